//! What is looked up across subsystems, so that a change of one namespace looks at no other one.

use std::collections::HashMap;
use std::path::PathBuf;

use super::subsystem::OWN_FILE;
use super::{Config, ConfigError, Namespace};

/// A namespace by its subsystem and number.
pub(crate) type NamespaceKey = (String, u32);

/// What only one namespace of a target may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum UniqueKey {
    Uuid([u8; 16]),
    Nguid([u8; 16]),
    Eui64([u8; 8]),
    File(PathBuf),
    Bdev(String),
}

impl UniqueKey {
    /// What a namespace of a configuration has of these, each with the key that says it.
    fn of(namespace: &Namespace) -> impl Iterator<Item = (&'static str, Self)> {
        let Namespace { uuid, nguid, eui64, bdev, .. } = namespace;
        let uuid = uuid.map(|uuid| ("uuid", Self::Uuid(uuid)));
        let nguid = nguid.map(|nguid| ("nguid", Self::Nguid(nguid)));
        let eui64 = eui64.map(|eui64| ("eui64", Self::Eui64(eui64)));
        let files = namespace.own_files().map(|(key, path)| (key, Self::File(path)));
        let bdev = bdev.iter().map(|name| ("bdev", Self::Bdev(name.clone())));
        uuid.into_iter().chain(nguid).chain(eui64).chain(files).chain(bdev)
    }
}

/// Which namespace has what only one may have.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Index {
    places: HashMap<UniqueKey, NamespaceKey>,
}

impl Index {
    /// That of a configuration without contradictions.
    pub(crate) fn of(config: &Config) -> Self {
        let mut index = Self::default();
        for subsystem in &config.subsystems {
            subsystem.namespaces.iter().for_each(|one| index.add(&subsystem.nqn, one));
        }
        index
    }

    /// A namespace is there from now on.
    pub(crate) fn add(&mut self, nqn: &str, namespace: &Namespace) {
        for (_, unique) in UniqueKey::of(namespace) {
            self.places.insert(unique, (nqn.to_owned(), namespace.nsid));
        }
    }

    /// It is no longer there.
    pub(crate) fn remove(&mut self, nqn: &str, namespace: &Namespace) {
        let is_it = |place: &NamespaceKey| place.0 == nqn && place.1 == namespace.nsid;
        for (_, unique) in UniqueKey::of(namespace) {
            if self.places.get(&unique).is_some_and(is_it) {
                self.places.remove(&unique);
            }
        }
    }

    /// The namespace that uses a block device: one with a name, or that of a namespace of the
    /// configuration.
    pub(crate) fn user_of<'a>(
        &self,
        config: &'a Config,
        bdev: &str,
    ) -> Option<(&'a str, &'a Namespace)> {
        let (nqn, nsid, is_named) = match self.places.get(&UniqueKey::Bdev(bdev.to_owned())) {
            Some((nqn, nsid)) => (nqn.as_str(), *nsid, true),
            None => {
                let (nqn, nsid) = bdev.rsplit_once(':')?;
                let number: u32 = nsid.parse().ok()?;
                (number.to_string() == nsid).then_some((nqn, number, false))?
            }
        };
        let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)?;
        let namespace = subsystem.namespaces.iter().find(|one| one.nsid == nsid)?;
        (namespace.bdev.is_some() == is_named).then_some((&subsystem.nqn, namespace))
    }

    /// Whether nothing of a namespace belongs to one of another number or subsystem.
    pub(crate) fn check(&self, nqn: &str, namespace: &Namespace) -> Result<(), ConfigError> {
        for (key, unique) in UniqueKey::of(namespace) {
            let other = self.places.get(&unique);
            if let Some((other, nsid)) = other
                && (other.as_str(), *nsid) != (nqn, namespace.nsid)
            {
                let key = format!("namespace {} of {nqn}: {key}", namespace.nsid);
                let what = format!("it is that of namespace {nsid} of {other} as well");
                let remedy = match unique {
                    UniqueKey::File(_) => OWN_FILE,
                    UniqueKey::Bdev(_) => "give each namespace a block device of its own",
                    _ => "leave it out to have one derived",
                };
                return Err(ConfigError::new(key, what).remedy(remedy));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Subsystem;

    fn namespace(nsid: u32) -> Namespace {
        Namespace::new(nsid, "null:1MiB".parse().expect("a device"))
    }

    #[test]
    fn a_block_device_is_used_by_the_namespace_that_has_it() {
        let named = Namespace { bdev: Some("nqn.a:1".to_owned()), ..namespace(2) };
        let mut first = Subsystem::new("nqn.a");
        first.namespaces = vec![namespace(1), named];
        let mut second = Subsystem::new("nqn.a:3");
        second.namespaces = vec![namespace(7)];
        let config = Config { subsystems: vec![first, second], ..Config::default() };
        let index = Index::of(&config);
        let user = |bdev: &str| {
            index.user_of(&config, bdev).map(|(nqn, namespace)| (nqn.to_owned(), namespace.nsid))
        };
        assert_eq!(user("nqn.a:1"), Some(("nqn.a".to_owned(), 2)), "a name of its own comes first");
        assert_eq!(user("nqn.a:3:7"), Some(("nqn.a:3".to_owned(), 7)));
        for none in ["nqn.a:2", "nqn.a:3:07", "nqn.a:9", "nqn.b:1", "x", "", "nqn.a:+1"] {
            assert_eq!(user(none), None, "{none}");
        }
    }

    #[test]
    fn what_one_has_no_other_may_have_until_it_is_gone() {
        let mut config = Config { subsystems: vec![Subsystem::new("nqn.a")], ..Config::default() };
        let first = Namespace {
            uuid: Some([1; 16]),
            nguid: Some([2; 16]),
            eui64: Some([3; 8]),
            ptpl_file: Some("/a".into()),
            bdev: Some("m".to_owned()),
            device: "uncorrectable:file=/m:memory:1MiB".parse().expect("a device"),
            ..namespace(1)
        };
        config.subsystems[0].namespaces.push(first.clone());
        let mut index = Index::of(&config);
        assert_eq!(index.check("nqn.a", &first), Ok(()), "its own");
        let others = [
            ("uuid", Namespace { uuid: first.uuid, ..namespace(1) }),
            ("nguid", Namespace { nguid: first.nguid, ..namespace(1) }),
            ("eui64", Namespace { eui64: first.eui64, ..namespace(1) }),
            ("ptpl-file", Namespace { ptpl_file: first.ptpl_file.clone(), ..namespace(1) }),
            ("uncorrectable:file", Namespace { device: first.device.clone(), ..namespace(1) }),
            ("bdev", Namespace { bdev: first.bdev.clone(), ..namespace(1) }),
        ];
        for (key, other) in &others {
            let error = index.check("nqn.b", other).expect_err(key).to_string();
            let said = format!("{key}`: it is that of namespace 1 of nqn.a as well");
            assert!(error.contains(&said), "{error}");
        }
        index.remove("nqn.b", &first);
        assert!(index.check("nqn.b", &others[0].1).is_err(), "another one went");
        index.remove("nqn.a", &first);
        others
            .iter()
            .for_each(|(key, other)| assert_eq!(index.check("nqn.b", other), Ok(()), "{key}"));
        assert_eq!(index, Index::default());
    }
}
