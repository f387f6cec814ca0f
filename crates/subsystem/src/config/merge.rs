//! A file that has changed, merged into what is served: what the file did not change stays, also
//! what was made at run time.

use serde_json::Value;

use super::rules::Rule;
use super::{Config, ConfigError, Keyring, Namespace, Port, PortSubsystems, Subsystem};

/// A list as it is served, in the file before, and in the file now.
type Lists<'a, T> = [&'a [T]; 3];

/// The differences of the file, applied to what is served. `merge` says what becomes of one that
/// the file has: of what is served, of what the file had, and of what it has.
fn merged<'a, T: Clone + PartialEq>(
    [served, before, after]: Lists<'a, T>,
    is_same: impl Fn(&T, &T) -> bool,
    merge: impl Fn(&T, Option<&T>, &T) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    let find = |list: &'a [T], one: &T| list.iter().find(|other| is_same(other, one));
    let mut merged = Vec::new();
    for one in served {
        match (find(before, one), find(after, one)) {
            (Some(_), None) => {}
            (None, None) => merged.push(one.clone()),
            (before, Some(after)) => merged.push(merge(one, before, after)?),
        }
    }
    // What was deleted at run time stays so until the file changes it.
    let is_new = |one: &&T| find(served, one).is_none() && find(before, one) != Some(*one);
    merged.extend(after.iter().filter(is_new).cloned());
    Ok(merged)
}

/// The same where one is as it is served until the file changes it.
fn latest<T: Clone + PartialEq>(
    lists: Lists<'_, T>,
    is_same: impl Fn(&T, &T) -> bool,
) -> Result<Vec<T>, ConfigError> {
    merged(lists, is_same, |served, before, after| {
        Ok(if before == Some(after) { served.clone() } else { after.clone() })
    })
}

impl Config {
    /// What is served after a file was changed from `before` to `after`: the differences of the
    /// two are applied to this configuration.
    ///
    /// # Errors
    /// The file adds what was made at run time with the same name or number, another pair, or
    /// another controller to register with.
    pub fn merged(&self, before: &Self, after: &Self) -> Result<Self, ConfigError> {
        if self.pair != after.pair {
            return Err(ConfigError::new("pair", "it cannot change while the target runs")
                .remedy("restart the target"));
        }
        if self.register != after.register {
            return Err(ConfigError::new("register", "it cannot change while the target runs")
                .remedy("restart the target"));
        }
        let limits = if before.limits == after.limits { &self.limits } else { &after.limits };
        let subsystems = [&*self.subsystems, &before.subsystems, &after.subsystems];
        let is_same = |one: &Subsystem, other: &Subsystem| one.nqn == other.nqn;
        let subsystems = merged(subsystems, is_same, |served, before, after| match before {
            Some(before) => served.merged(before, after),
            None => {
                let what = format!("subsystem {} was made at run time", served.nqn);
                Err(ConfigError::new("subsystem", what)
                    .remedy("give the one of the file another NQN, or delete the other"))
            }
        })?;
        let rate_limits = [&*self.rate_limits, &before.rate_limits, &after.rate_limits];
        let qos_rules = [&*self.qos_rules, &before.qos_rules, &after.qos_rules];
        let mut merged = Self {
            ports: self.merged_ports(before, after)?,
            subsystems,
            limits: limits.clone(),
            operated: self.operated.clone(),
            rate_limits: latest(rate_limits, Rule::has_scope_of)?,
            qos_rules: latest(qos_rules, Rule::has_scope_of)?,
            keyring: self.merged_keyring(before, after),
            is_standby: self.is_standby,
            ..after.clone()
        };
        let has = |nqn: &String| merged.subsystems.iter().any(|subsystem| subsystem.nqn == *nqn);
        for port in &mut merged.ports {
            if let PortSubsystems::Only(nqns) = &mut port.subsystems {
                nqns.retain(has);
            }
        }
        merged.prune_ports();
        merged.prune_bdev_limits();
        Ok(merged)
    }

    fn merged_keyring(&self, before: &Self, after: &Self) -> Keyring {
        let mut merged = self.keyring.clone();
        merged.retain(|name, _| {
            after.keyring.contains_key(name) || !before.keyring.contains_key(name)
        });
        let changed =
            after.keyring.iter().filter(|(name, path)| before.keyring.get(*name) != Some(*path));
        merged.extend(changed.map(|(name, path)| (name.clone(), path.clone())));
        merged
    }

    fn merged_ports(&self, before: &Self, after: &Self) -> Result<Vec<Port>, ConfigError> {
        let ports = [&*self.ports, &before.ports, &after.ports];
        merged(
            ports,
            |one, other| one.id == other.id,
            |served, before, after| {
                let Some(before) = before else {
                    let what = format!("port {} was made at run time", served.id);
                    return Err(ConfigError::new("port", what)
                        .remedy("give the one of the file another `id`"));
                };
                if before == after {
                    return Ok(served.clone());
                }
                let mut merged = after.clone();
                if before.ana == after.ana {
                    merged.ana.clone_from(&served.ana);
                }
                if let (
                    PortSubsystems::Only(was),
                    PortSubsystems::Only(is),
                    PortSubsystems::Only(nqns),
                ) = (&before.subsystems, &served.subsystems, &mut merged.subsystems)
                {
                    add_made(nqns, was, is);
                }
                Ok(merged)
            },
        )
    }

    /// Gives the namespaces of a file that were numbered by their position the numbers that they
    /// are served with, where `before` is the file that was applied before it.
    pub fn number_as(&mut self, before: &Self, served: &Self) {
        for subsystem in &mut self.subsystems {
            let find = |config: &Self| {
                config.subsystems.iter().find(|one| one.nqn == subsystem.nqn).cloned()
            };
            let before = find(before).map(|one| one.namespaces).unwrap_or_default();
            let served = find(served).map(|one| one.namespaces).unwrap_or_default();
            let pairs = pairs(&before, &subsystem.namespaces);
            let mut used: Vec<u32> = pairs.iter().flatten().map(|known| known.nsid).collect();
            for (namespace, known) in subsystem.namespaces.iter_mut().zip(&pairs) {
                let fresh = || {
                    let is_it = |one: &&Namespace| {
                        one.bdev.is_none()
                            && one.device == namespace.device
                            && !used.contains(&one.nsid)
                    };
                    served.iter().find(is_it).map(|one| one.nsid)
                };
                // A reload gives another number to what its path has led to another disk.
                let is_served = |nsid: &u32| {
                    let is_it = |one: &Namespace| {
                        one.bdev.is_none() && one.nsid == *nsid && one.device == namespace.device
                    };
                    served.iter().any(is_it)
                };
                let known = known.map(|known| known.nsid);
                let number = known.filter(is_served).or_else(fresh).or(known);
                if namespace.by_position
                    && let Some(nsid) = number
                {
                    namespace.nsid = nsid;
                    used.push(nsid);
                }
            }
        }
    }
}

impl Subsystem {
    fn merged(&self, before: &Self, after: &Self) -> Result<Self, ConfigError> {
        let mut merged = self.merged_fields(before, after)?;
        if before.allowed_hosts != after.allowed_hosts {
            let was = before.allowed_hosts.clone().unwrap_or_default();
            let is = self.allowed_hosts.as_ref().unwrap_or(&self.listed_hosts);
            match after.allowed_hosts.clone() {
                Some(mut hosts) => {
                    add_made(&mut hosts, &was, is);
                    merged.allowed_hosts = Some(hosts);
                    merged.listed_hosts.clear();
                }
                None => {
                    merged.allowed_hosts = None;
                    merged.listed_hosts.clear();
                    add_made(&mut merged.listed_hosts, &was, is);
                }
            }
        }
        let keys = [&*self.host_keys, &before.host_keys, &after.host_keys];
        merged.host_keys = latest(keys, |one, other| one.nqn == other.nqn)?;
        let hosts = merged.allowed_hosts.as_ref().unwrap_or(&merged.listed_hosts);
        merged.host_keys.retain(|keys| hosts.contains(&keys.nqn));
        merged.namespaces = self.merged_namespaces(before, after);
        Ok(merged)
    }

    /// Those that are no lists, each as it is where the file has not changed it.
    fn merged_fields(&self, before: &Self, after: &Self) -> Result<Self, ConfigError> {
        let failed = |error: serde_json::Error| ConfigError::new("subsystem", error.to_string());
        let fields = |of: &Self| {
            let lists_apart = Self {
                allowed_hosts: None,
                listed_hosts: Vec::new(),
                host_keys: Vec::new(),
                namespaces: Vec::new(),
                ..of.clone()
            };
            serde_json::to_value(lists_apart).map_err(failed)
        };
        let (mut merged, before, after) = (fields(self)?, fields(before)?, fields(after)?);
        if let (Value::Object(merged), Value::Object(before), Value::Object(after)) =
            (&mut merged, before, after)
        {
            merged.retain(|key, _| after.contains_key(key) || !before.contains_key(key));
            merged.extend(after.into_iter().filter(|(key, value)| before.get(key) != Some(value)));
        }
        let merged: Self = serde_json::from_value(merged).map_err(failed)?;
        Ok(Self {
            allowed_hosts: self.allowed_hosts.clone(),
            listed_hosts: self.listed_hosts.clone(),
            ..merged
        })
    }

    fn merged_namespaces(&self, before: &Self, after: &Self) -> Vec<Namespace> {
        let find = |nsid: u32| {
            let own = self.namespaces.iter().filter(|one| one.bdev.is_none());
            own.clone().find(|one| one.nsid == nsid).cloned()
        };
        let mut namespaces = Vec::new();
        for (namespace, known) in
            after.namespaces.iter().zip(pairs(&before.namespaces, &after.namespaces))
        {
            match known {
                // One that was removed at run time stays so.
                Some(known) => namespaces.extend(find(known.nsid)),
                None => namespaces.push(namespace.clone()),
            }
        }
        namespaces.extend(self.namespaces.iter().filter(|one| one.bdev.is_some()).cloned());
        namespaces
    }
}

/// For each namespace of a file, the same one in the file before, if it was there and has not
/// changed; numbers by position are not compared.
fn pairs<'a>(before: &'a [Namespace], after: &[Namespace]) -> Vec<Option<&'a Namespace>> {
    let mut left: Vec<&Namespace> = before.iter().collect();
    let find = |namespace: &Namespace| {
        let same = |one: &&Namespace| {
            let nsid = if one.by_position { namespace.nsid } else { one.nsid };
            Namespace { nsid, ..(*one).clone() } == *namespace
        };
        let place = left.iter().position(same)?;
        Some(left.remove(place))
    };
    after.iter().map(find).collect()
}

/// Adds what is there now and was not there before.
fn add_made(list: &mut Vec<String>, before: &[String], now: &[String]) {
    let made = now.iter().filter(|one| !before.contains(one));
    let new: Vec<String> = made.filter(|one| !list.contains(one)).cloned().collect();
    list.extend(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::toml;

    const FILE: &str = "[[port]]\nlisten = 'tcp://127.0.0.1:4420'\n\
                        [[subsystem]]\nnqn = 'nqn.a'\n\
                        namespace = [{ null = '1MiB' }, { null = '2MiB' }]\n";

    fn file(text: &str) -> Config {
        toml::read(text).expect("a file")
    }

    fn numbers(config: &Config) -> Vec<u32> {
        config.subsystems[0].namespaces.iter().map(|one| one.nsid).collect()
    }

    /// What is served after a namespace, a host list, a subsystem and a port were made.
    fn operated() -> Config {
        let mut config = file(FILE);
        let device = "null:4MiB".parse().expect("a device");
        let made = Namespace { bdev: Some("n".to_owned()), ..Namespace::new(7, device) };
        config.subsystems[0].namespaces.push(made);
        config.subsystems[0].allowed_hosts = Some(vec!["nqn.h".to_owned()]);
        config.subsystems.push(Subsystem::new("nqn.made"));
        let listen = "tcp://127.0.0.1:4421".parse().expect("an address");
        let subsystems = PortSubsystems::Only(vec!["nqn.made".to_owned()]);
        config.ports.push(Port { subsystems, made_at_run_time: true, ..Port::new(2, listen) });
        config
    }

    #[test]
    fn an_unchanged_file_changes_nothing() {
        let config = operated();
        assert_eq!(config.merged(&file(FILE), &file(FILE)), Ok(config));
    }

    #[test]
    fn only_what_the_file_changed_changes() {
        let config = operated();
        let more = FILE.replace("{ null = '2MiB' }", "{ null = '2MiB' }, { null = '3MiB' }");
        let merged = config.merged(&file(FILE), &file(&more)).expect("a configuration");
        assert_eq!(numbers(&merged), [1, 2, 3, 7]);
        assert_eq!(merged.ports, config.ports);
        assert_eq!(merged.subsystems[1], config.subsystems[1]);
        assert_eq!(merged.subsystems[0].allowed_hosts, config.subsystems[0].allowed_hosts);
        // One of the file was removed at run time; the file adds another one.
        let mut without = config.clone();
        without.subsystems[0].namespaces.remove(0);
        let merged = without.merged(&file(FILE), &file(&more)).expect("a configuration");
        assert_eq!(numbers(&merged), [2, 3, 7]);
        let named = FILE.replace("nqn = 'nqn.a'", "nqn = 'nqn.a'\nserial = 'S'");
        let merged = config.merged(&file(FILE), &file(&named)).expect("a configuration");
        assert_eq!(merged.subsystems[0].serial.as_deref(), Some("S"));
        assert_eq!(numbers(&merged), [1, 2, 7]);
        let gone = "[[port]]\nlisten = 'tcp://127.0.0.1:4420'\n";
        let merged = config.merged(&file(FILE), &file(gone)).expect("a configuration");
        let left: Vec<&str> = merged.subsystems.iter().map(|one| one.nqn.as_str()).collect();
        assert_eq!(left, ["nqn.made"]);
    }

    #[test]
    fn what_was_deleted_at_run_time_stays_so_until_the_file_changes_it() {
        let mut config = operated();
        config.subsystems.remove(0);
        let merged = config.merged(&file(FILE), &file(FILE)).expect("a configuration");
        assert_eq!(merged, config);
        let named = FILE.replace("nqn = 'nqn.a'", "nqn = 'nqn.a'\nserial = 'S'");
        let merged = config.merged(&file(FILE), &file(&named)).expect("a configuration");
        assert_eq!(merged.subsystems.len(), 2);
    }

    #[test]
    fn the_file_cannot_add_what_was_made() {
        let config = operated();
        let same = format!("{FILE}[[subsystem]]\nnqn = 'nqn.made'\n");
        let error = config.merged(&file(FILE), &file(&same)).expect_err("the same NQN");
        assert!(error.to_string().contains("nqn.made was made at run time"), "{error}");
        let same = format!("{FILE}[[port]]\nlisten = 'tcp://127.0.0.1:4422'\n");
        let error = config.merged(&file(FILE), &file(&same)).expect_err("the same id");
        assert!(error.to_string().contains("port 2 was made at run time"), "{error}");
    }

    #[test]
    fn a_file_keeps_the_numbers_that_it_is_served_with() {
        let before = file(FILE);
        let mut after = file(&FILE.replace("{ null = '1MiB' }, ", "{ null = '3MiB' }, "));
        let mut served = operated();
        served.subsystems[0].namespaces[0] =
            Namespace::new(3, "null:3MiB".parse().expect("a device"));
        after.number_as(&before, &served);
        assert_eq!(numbers(&after), [3, 2]);
        // What the first one's path leads to has another number since, and it is there.
        let mut same = file(FILE);
        served.subsystems[0].namespaces[0] =
            Namespace::new(4, "null:1MiB".parse().expect("a device"));
        same.number_as(&before, &served);
        assert_eq!(numbers(&same), [4, 2]);
        let merged = served.merged(&same, &file(FILE)).expect("a configuration");
        assert_eq!(numbers(&merged), [4, 2, 7]);
        // It was removed at run time.
        served.subsystems[0].namespaces.remove(0);
        let mut same = file(FILE);
        same.number_as(&before, &served);
        assert_eq!(numbers(&same), [1, 2]);
    }
}
