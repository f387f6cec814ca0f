//! Steps that concern hosts and their keys.

use std::path::Path;

use super::{Outcome, StepError, done, subsystem};
use crate::config::{Config, HostKeys, Subsystem, key_file, unknown_key};

/// The hosts that a subsystem lists.
fn hosts(subsystem: &mut Subsystem) -> &mut Vec<String> {
    subsystem.allowed_hosts.as_mut().unwrap_or(&mut subsystem.listed_hosts)
}

/// Allows a host, with its keys.
pub(super) fn add_host(config: &mut Config, nqn: &str, host: &HostKeys) -> Outcome {
    let subsystem = subsystem(config, nqn)?;
    let hosts = hosts(subsystem);
    if hosts.contains(&host.nqn) {
        let what = format!("{} is listed at {nqn} already", host.nqn);
        return Err(StepError::exists(what));
    }
    put_keys(subsystem, host.clone())?;
    self::hosts(subsystem).push(host.nqn.clone());
    done([nqn.to_owned()])
}

/// Gives a host that is listed other keys.
fn change(
    config: &mut Config,
    nqn: &str,
    host: &str,
    change: impl FnOnce(HostKeys) -> HostKeys,
) -> Outcome {
    let subsystem = subsystem(config, nqn)?;
    if !hosts(subsystem).iter().any(|one| one == host) {
        return Err(StepError::not_found(format!("{host} is not listed at {nqn}")));
    }
    let before = subsystem.host_keys.iter().find(|one| one.nqn == host).cloned();
    put_keys(subsystem, change(before.unwrap_or_else(|| HostKeys::new(host))))?;
    done([nqn.to_owned()])
}

/// Gives a host these keys of DH-HMAC-CHAP; how they are used stays, and so do its PSKs.
pub(super) fn change_keys(config: &mut Config, nqn: &str, host: &HostKeys) -> Outcome {
    let HostKeys { nqn: name, dhchap_key, dhchap_ctrlr_key, .. } = host.clone();
    change(config, nqn, &name, |before| HostKeys { dhchap_key, dhchap_ctrlr_key, ..before })
}

/// Gives a host other keys of TLS, which may be several while they are changed. Who is connected
/// stays.
pub(super) fn change_psks(config: &mut Config, nqn: &str, host: &str, psk: &[String]) -> Outcome {
    change(config, nqn, host, |before| HostKeys { psk: psk.to_vec(), ..before })
}

/// No longer allows a host.
pub(super) fn remove_host(config: &mut Config, nqn: &str, host: &str) -> Outcome {
    let subsystem = subsystem(config, nqn)?;
    let hosts = hosts(subsystem);
    let place = hosts.iter().position(|one| one == host);
    let place =
        place.ok_or_else(|| StepError::not_found(format!("{host} is not listed at {nqn}")))?;
    hosts.remove(place);
    subsystem.host_keys.retain(|keys| keys.nqn != *host);
    done([nqn.to_owned()])
}

/// Gives a host these keys. What is to be proved with a key that it has not is refused: without it
/// the host would be served although it proves nothing.
fn put_keys(subsystem: &mut Subsystem, keys: HostKeys) -> Result<(), StepError> {
    if let Some([_, what, _]) = keys.incomplete() {
        return Err(StepError::invalid(format!("{}: {what}", keys.nqn)));
    }
    subsystem.host_keys.retain(|one| one.nqn != keys.nqn);
    if keys.dhchap_key.is_some() || !keys.psk.is_empty() {
        subsystem.host_keys.push(keys);
    }
    Ok(())
}

pub(super) fn add_key(config: &mut Config, name: &str, path: &Path) -> Outcome {
    if [name, &path.to_string_lossy()].into_iter().any(key_file::is_key) {
        return Err(StepError::invalid("give the path of a file that has the key, not the secret"));
    }
    if name.is_empty() || name.contains('/') || name.starts_with('%') {
        return Err(StepError::invalid(format!("{name:?} is no name for a key")));
    }
    if config.keyring.contains_key(name) {
        return Err(StepError::exists(format!("key {name} exists")));
    }
    key_file::read_bytes(path)
        .map_err(|error| StepError::failed(format!("key {}: {error}", path.display())))?;
    config.keyring.insert(name.to_owned(), path.to_owned());
    done([])
}

/// Hosts that have the key keep it, by the path of its file: another key may have this name from
/// now on. Nothing is read, as the file may have gone.
pub(super) fn remove_key(config: &mut Config, name: &str) -> Outcome {
    let Some(path) = config.keyring.remove(name) else {
        return Err(StepError::not_found(unknown_key(name)));
    };
    for keys in config.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.host_keys) {
        keys.name_by_path(name, &path);
    }
    done([])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What asks for a proof without its key would be forgotten, and the host served without one.
    #[test]
    fn what_cannot_be_proved_is_refused() {
        let mut config = Config { subsystems: vec![Subsystem::new("nqn.a")], ..Config::default() };
        let host = HostKeys::new("nqn.h");
        for keys in [
            HostKeys { dhchap_concat: true, ..host.clone() },
            HostKeys { dhchap_ctrlr_key: Some("/key".to_owned()), ..host.clone() },
        ] {
            let error = add_host(&mut config.clone(), "nqn.a", &keys).expect_err("refused");
            assert!(error.to_string().contains("key"), "{error}");
        }
        let whole = HostKeys {
            dhchap_key: Some("/key".to_owned()),
            dhchap_concat: true,
            ..HostKeys::new("nqn.h")
        };
        add_host(&mut config, "nqn.a", &whole).expect("it has its key");
        let error = change_keys(&mut config, "nqn.a", &host).expect_err("its key would go");
        assert!(error.to_string().contains("key"), "{error}");
        assert_eq!(config.subsystems[0].host_keys.len(), 1, "nothing has changed");
    }

    #[test]
    fn other_keys_of_authentication_leave_psks() {
        let mut config = Config { subsystems: vec![Subsystem::new("nqn.a")], ..Config::default() };
        config.subsystems[0].listed_hosts.push("nqn.h".to_owned());
        let mut change = |psk: &[String], keys: &HostKeys| {
            let before = HostKeys { psk: psk.to_vec(), ..HostKeys::new("nqn.h") };
            config.subsystems[0].host_keys = vec![before];
            change_keys(&mut config, "nqn.a", keys).expect("a change");
            config.subsystems[0].host_keys.clone()
        };
        let psk = ["tls".to_owned()];
        let keys = HostKeys { dhchap_key: Some("one".to_owned()), ..HostKeys::new("nqn.h") };
        assert_eq!(change(&psk, &keys), [HostKeys { psk: psk.to_vec(), ..keys.clone() }]);
        let without = HostKeys::new("nqn.h");
        assert_eq!(change(&psk, &without), [HostKeys { psk: psk.to_vec(), ..without.clone() }]);
        assert_eq!(change(&[], &without), []);
    }

    #[test]
    fn hosts_keep_a_key_that_is_removed_by_its_path() {
        let mut config = Config::default();
        let keys = |one: &str, two: &str| HostKeys {
            dhchap_key: Some(one.to_owned()),
            dhchap_ctrlr_key: Some(two.to_owned()),
            psk: vec![two.to_owned(), one.to_owned()],
            ..HostKeys::new("nqn.h")
        };
        for (name, path) in [("one", "here"), ("two", "/there/two")] {
            config.keyring.insert(name.to_owned(), path.into());
        }
        for nqn in ["nqn.a", "nqn.b"] {
            let mut subsystem = Subsystem::new(nqn);
            subsystem.host_keys.push(keys("one", "two"));
            config.subsystems.push(subsystem);
        }
        for (name, after) in [("one", keys("./here", "two")), ("two", keys("./here", "/there/two"))]
        {
            remove_key(&mut config, name).expect("a key");
            for subsystem in &config.subsystems {
                assert_eq!(subsystem.host_keys, std::slice::from_ref(&after), "{name}");
            }
        }
        assert!(config.keyring.is_empty() && remove_key(&mut config, "one").is_err());
    }

    #[test]
    fn keys_of_tls_change_alone() {
        let mut config = Config::default();
        let mut subsystem = Subsystem::new("nqn.a");
        subsystem.allowed_hosts = Some(Vec::new());
        config.subsystems = vec![subsystem];
        let keys = |psk: &[&str]| HostKeys {
            dhchap_key: Some("one".to_owned()),
            psk: psk.iter().map(|name| (*name).to_owned()).collect(),
            psk_compat: true,
            ..HostKeys::new("nqn.h")
        };
        let refused = change_psks(&mut config, "nqn.a", "nqn.h", &[]).expect_err("not listed");
        assert!(refused.to_string().contains("not listed"), "{refused}");
        add_host(&mut config, "nqn.a", &keys(&["x"])).expect("a host");
        assert_eq!(config.subsystems[0].host_keys, [keys(&["x"])], "with all that was given");
        let next = ["x".to_owned(), "y".to_owned()];
        change_psks(&mut config, "nqn.a", "nqn.h", &next).expect("a change");
        assert_eq!(config.subsystems[0].host_keys, [keys(&["x", "y"])]);
        change_psks(&mut config, "nqn.a", "nqn.h", &[]).expect("a change");
        assert_eq!(config.subsystems[0].host_keys, [keys(&[])]);
    }
}
