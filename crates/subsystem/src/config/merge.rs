//! A file that has changed, merged into what is served: what the file did not change stays, also
//! what was made at run time.

use serde_json::Value;

use super::rules::Rule;
use super::{Config, ConfigError, HostKeys, Keyring, Namespace, Port, PortSubsystems, Subsystem};

/// The differences of the second list and the third, applied to the first.
fn merged_rules<T: Rule>(served: &[T], before: &[T], after: &[T]) -> Vec<T> {
    let find = |list: &[T], one: &T| list.iter().find(|other| other.has_scope_of(one)).cloned();
    let kept = served.iter().filter_map(|one| match (find(before, one), find(after, one)) {
        (Some(_), None) => None,
        (before, after) if before == after => Some(one.clone()),
        (_, after) => after,
    });
    // What was deleted at run time stays so until the file changes it.
    let is_new = |one: &&T| find(served, one).is_none() && find(before, one).as_ref() != Some(*one);
    kept.chain(after.iter().filter(is_new).cloned()).collect()
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
        let mut merged = Self {
            ports: self.merged_ports(before, after)?,
            subsystems: Vec::new(),
            limits: limits.clone(),
            operated: self.operated.clone(),
            rate_limits: merged_rules(&self.rate_limits, &before.rate_limits, &after.rate_limits),
            qos_rules: merged_rules(&self.qos_rules, &before.qos_rules, &after.qos_rules),
            keyring: self.merged_keyring(before, after),
            is_standby: self.is_standby,
            ..after.clone()
        };
        let find = |config: &Self, nqn: &str| {
            config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn).cloned()
        };
        for subsystem in &self.subsystems {
            let nqn = &subsystem.nqn;
            match (find(before, nqn), find(after, nqn)) {
                (Some(_), None) => {}
                (None, None) => merged.subsystems.push(subsystem.clone()),
                (None, Some(_)) => {
                    let what = format!("subsystem {nqn} was made at run time");
                    return Err(ConfigError::new("subsystem", what)
                        .remedy("give the one of the file another NQN, or delete the other"));
                }
                (Some(before), Some(after)) => {
                    merged.subsystems.push(subsystem.merged(&before, &after)?);
                }
            }
        }
        for subsystem in &after.subsystems {
            let served = find(self, &subsystem.nqn).is_some();
            // What was deleted at run time stays so until the file changes it.
            if !served && find(before, &subsystem.nqn).as_ref() != Some(subsystem) {
                merged.subsystems.push(subsystem.clone());
            }
        }
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
        let find = |config: &Self, id: u16| config.ports.iter().find(|port| port.id == id).cloned();
        let mut ports = Vec::new();
        for port in &self.ports {
            match (find(before, port.id), find(after, port.id)) {
                (Some(_), None) => {}
                (None, None) => ports.push(port.clone()),
                (None, Some(_)) => {
                    let what = format!("port {} was made at run time", port.id);
                    return Err(ConfigError::new("port", what)
                        .remedy("give the one of the file another `id`"));
                }
                (Some(before), Some(after)) if before == after => ports.push(port.clone()),
                (Some(before), Some(mut after)) => {
                    if before.ana == after.ana {
                        after.ana.clone_from(&port.ana);
                    }
                    if let (
                        PortSubsystems::Only(was),
                        PortSubsystems::Only(is),
                        PortSubsystems::Only(nqns),
                    ) = (&before.subsystems, &port.subsystems, &mut after.subsystems)
                    {
                        add_made(nqns, was, is);
                    }
                    ports.push(after);
                }
            }
        }
        let new = after.ports.iter().filter(|port| find(self, port.id).is_none());
        ports.extend(new.cloned());
        Ok(ports)
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
        merged.host_keys = self.merged_host_keys(before, after);
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

    fn merged_host_keys(&self, before: &Self, after: &Self) -> Vec<HostKeys> {
        let find = |of: &Self, nqn: &str| of.host_keys.iter().find(|keys| keys.nqn == nqn).cloned();
        let kept = self.host_keys.iter().filter_map(|keys| {
            match (find(before, &keys.nqn), find(after, &keys.nqn)) {
                (Some(_), None) => None,
                (before, after) if before == after => Some(keys.clone()),
                (_, after) => after,
            }
        });
        // What was removed at run time stays so until the file changes it.
        let is_new = |keys: &&HostKeys| {
            find(self, &keys.nqn).is_none() && find(before, &keys.nqn).as_ref() != Some(*keys)
        };
        kept.chain(after.host_keys.iter().filter(is_new).cloned()).collect()
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
