//! Two targets that serve the same devices, one at a time.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use weft_backend::DeviceSpec;
use weft_backend::rbd::RbdSpec;

use super::ConfigError;
use super::limits::{CNTLID_FIRST, CNTLID_LAST};

/// How long a lease lasts by default: what a pair takes to notice that its primary is gone.
const TTL_DEFAULT: Duration = Duration::from_secs(5);
/// etcd grants no shorter ones with its own settings.
const TTL_MIN: Duration = Duration::from_secs(2);
const TTL_MAX: Duration = Duration::from_secs(60);

const HTTPS: &str = "https://";

/// Members have the numbers 1 to this.
const MEMBERS: u8 = 2;
/// The ports of the second member are numbered from here on.
const PORT_IDS_APART: u16 = 0x4000;

/// This target is one of two that serve the same devices. One is primary; the other stands by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Which of the two it is.
    pub member: u8,
    /// Who decides which of them is primary.
    pub arbiter: Arbiter,
}

/// Who decides which member is primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arbiter {
    /// A file, which the primary has locked (`flock`).
    LockFile(PathBuf),
    /// A lease of etcd.
    Etcd(Etcd),
    /// An image of a Ceph cluster, whose exclusive lock the primary has.
    RbdLock(Box<RbdSpec>),
}

/// A lease of etcd, on a key that the primary has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// The URLs of its members, without a path.
    pub endpoints: Vec<String>,
    /// What all of these URLs need, or none.
    pub tls: Option<EtcdTls>,
    /// The key.
    pub key: String,
    /// How long the lease lasts without being renewed.
    pub ttl: Duration,
}

/// The files of TLS to etcd, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// The certificates of authorities, of which one has signed those of etcd.
    pub cacert: PathBuf,
    /// This member's own certificate and its key, for an etcd that asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The table `[pair]` of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PairKeys {
    member: u8,
    lock_file: Option<PathBuf>,
    rbd_lock: Option<String>,
    #[serde(default)]
    etcd: Vec<String>,
    etcd_cacert: Option<PathBuf>,
    etcd_cert: Option<PathBuf>,
    etcd_key: Option<PathBuf>,
    key: Option<String>,
    #[serde(default, with = "weft_backend::duration::as_text")]
    ttl: Duration,
}

impl PairKeys {
    /// The pair of a target that serves this subsystem first.
    pub(super) fn into_pair(self, nqn: Option<&str>) -> Result<Pair, ConfigError> {
        let wrong = |key: &str, what: String, remedy: &str| {
            Err(ConfigError::new(format!("pair.{key}"), what).remedy(remedy))
        };
        if !(1..=MEMBERS).contains(&self.member) {
            let what = format!("there is no member {}", self.member);
            return wrong("member", what, "give 1 in one of the two files and 2 in the other");
        }
        let of_etcd = [
            ("key", self.key.is_some()),
            ("ttl", !self.ttl.is_zero()),
            ("etcd-cacert", self.etcd_cacert.is_some()),
            ("etcd-cert", self.etcd_cert.is_some()),
            ("etcd-key", self.etcd_key.is_some()),
        ];
        if let Some((key, _)) = of_etcd.iter().find(|(_, given)| self.etcd.is_empty() && *given) {
            return wrong(key, "it says nothing about a lock".to_owned(), "remove it");
        }
        let arbiter = match (self.lock_file, self.rbd_lock, self.etcd.is_empty()) {
            (Some(path), None, true) => Arbiter::LockFile(path),
            (None, Some(image), true) => Arbiter::RbdLock(Box::new(image_of_lock(&image)?)),
            (None, None, false) => {
                let ttl = if self.ttl.is_zero() { TTL_DEFAULT } else { self.ttl };
                if !(TTL_MIN..=TTL_MAX).contains(&ttl) || ttl.subsec_nanos() != 0 {
                    let what = "etcd counts whole seconds, and grants 2 or more".to_owned();
                    return wrong("ttl", what, "give 2s to 60s");
                }
                let identity = (self.etcd_cert, self.etcd_key);
                let tls = tls_of(&self.etcd, self.etcd_cacert, identity)?;
                let endpoints = self.etcd.iter().map(|url| endpoint(url));
                let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
                let Some(key) = self.key.or_else(|| Some(format!("weft/pair/{}", nqn?))) else {
                    let what = "no subsystem is configured to name it after".to_owned();
                    return wrong("key", what, "give the same `key` to both members");
                };
                Arbiter::Etcd(Etcd { endpoints, tls, key, ttl })
            }
            _ => {
                let what = "one of `lock-file`, `etcd` and `rbd-lock` says who is primary";
                return wrong("lock-file", what.to_owned(), "give one of the three");
            }
        };
        Ok(Pair { member: self.member, arbiter })
    }
}

/// The files of TLS to these addresses.
fn tls_of(
    etcd: &[String],
    cacert: Option<PathBuf>,
    identity: (Option<PathBuf>, Option<PathBuf>),
) -> Result<Option<EtcdTls>, ConfigError> {
    let wrong = |key: &str, what: &str, remedy: &str| {
        Err(ConfigError::new(format!("pair.{key}"), what).remedy(remedy))
    };
    let identity = match identity {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        (cert, _) => {
            let key = if cert.is_some() { "etcd-key" } else { "etcd-cert" };
            let remedy = "give both, or neither if etcd asks for none";
            return wrong(key, "a certificate is of use only with its key", remedy);
        }
    };
    let is_tls = |url: &String| url.starts_with(HTTPS);
    match cacert {
        None if identity.is_none() && !etcd.iter().any(is_tls) => Ok(None),
        None => {
            let what = "it is not known whose signature the certificate of etcd has";
            wrong("etcd-cacert", what, "give the file with the certificate of that authority")
        }
        Some(cacert) if etcd.iter().all(is_tls) => Ok(Some(EtcdTls { cacert, identity })),
        Some(_) => {
            let what = "without TLS whoever is on the way can say who is primary";
            wrong("etcd", what, "write https:// in each address, or leave etcd-cacert out")
        }
    }
}

/// `http://HOST:PORT` or `https://HOST:PORT`, without a slash at its end.
fn endpoint(url: &str) -> Result<String, ConfigError> {
    let url = url.trim_end_matches('/');
    let authority = url.strip_prefix(HTTPS).or_else(|| url.strip_prefix("http://"));
    let is_address = authority.is_some_and(|rest| {
        let port = rest.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0))
            && !rest.contains('/')
    });
    is_address.then(|| url.to_owned()).ok_or_else(|| {
        ConfigError::new("pair.etcd", format!("{url:?} is no address of etcd"))
            .remedy("write https://HOST:2379 or http://HOST:2379")
    })
}

/// The image of an `rbd-lock`, of which nothing but the lock is used.
fn image_of_lock(text: &str) -> Result<RbdSpec, ConfigError> {
    let wrong = |what: String| ConfigError::new("pair.rbd-lock", what);
    let spec = RbdSpec::parse(text).map_err(|error| wrong(error.to_string()))?;
    let plain = RbdSpec {
        namespace: spec.namespace.clone(),
        ceph: spec.ceph.clone(),
        ..RbdSpec::new(spec.pool.clone(), spec.image.clone())
    };
    if spec != plain {
        return Err(wrong("nothing but its lock is used".to_owned())
            .remedy("give no snapshot, and no options but conf, cluster, user and config"));
    }
    Ok(spec)
}

impl fmt::Display for Arbiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockFile(path) => write!(f, "the lock of {}", path.display()),
            Self::Etcd(etcd) => write!(f, "the key {} of etcd", etcd.key),
            Self::RbdLock(image) => write!(f, "the lock of image {}", image.name()),
        }
    }
}

impl Pair {
    /// The first and the last controller id of this member, where a subsystem does not say them.
    pub(super) const fn controller_ids(&self) -> (u16, u16) {
        let middle = CNTLID_FIRST + (CNTLID_LAST - CNTLID_FIRST) / 2;
        match self.member {
            1 => (CNTLID_FIRST, middle),
            _ => (middle + 1, CNTLID_LAST),
        }
    }

    /// What is added to the numbers that ports have without an `id`.
    pub(super) fn port_ids_apart(&self) -> u16 {
        if self.member == 1 { 0 } else { PORT_IDS_APART }
    }

    /// A device as both members open it. With a lock file they take turns in having it for
    /// themselves. What one machine has written and not stored yet is lost for the other if it
    /// ends, so nothing is in the page cache of two machines.
    pub(crate) fn opened(&self, spec: &DeviceSpec) -> DeviceSpec {
        let spec = match &self.arbiter {
            Arbiter::LockFile(_) => return spec.clone(),
            Arbiter::Etcd(_) | Arbiter::RbdLock(_) => spec.clone().into_shared(),
        };
        match (&self.arbiter, &spec) {
            (Arbiter::Etcd(_), DeviceSpec::File { direct: None, .. }) => spec.with_direct(true),
            _ => spec,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EtcdTls;
    use crate::config::{Arbiter, Config, toml};
    use std::time::Duration;

    const REST: &str = r#"
[[port]]
listen = "tcp://127.0.0.1:4420"
[[subsystem]]
nqn = "nqn.a"
[[subsystem.namespace]]
file = "/srv/disk.img"
size = "1GiB"
"#;

    fn read(pair: &str) -> Result<Config, String> {
        toml::parse(&format!("[pair]\n{pair}\n{REST}")).map_err(|error| error.to_string())
    }

    #[test]
    fn members_are_told_apart_and_share_what_hosts_see() {
        let [one, two] = [1, 2].map(|member| {
            read(&format!("member = {member}\nlock-file = \"/srv/lock\"")).expect("a pair")
        });
        let [first, second] =
            [&one, &two].map(|config| config.subsystems[0].controller_ids(config.pair.as_ref()));
        assert!(first.1 < second.0, "{first:?} {second:?}");
        assert_ne!(one.ports[0].id, two.ports[0].id);
        assert!(one.subsystems[0].ana_reporting);
        assert!(!one.is_standby, "that is known once it runs");
    }

    #[test]
    fn etcd_has_a_key_and_a_time() {
        let config = read("member = 1\netcd = [\"http://[::1]:2379\", \"http://b:2379/\"]");
        let pair = config.expect("a pair").pair.expect("a pair");
        let Arbiter::Etcd(etcd) = pair.arbiter else { panic!() };
        assert_eq!(etcd.endpoints, ["http://[::1]:2379", "http://b:2379"]);
        assert_eq!(etcd.tls, None);
        assert_eq!((etcd.key.as_str(), etcd.ttl), ("weft/pair/nqn.a", Duration::from_secs(5)));
    }

    #[test]
    fn etcd_over_tls_has_an_authority_and_perhaps_an_identity() {
        let read = |keys: &str| {
            let config = read(&format!("member = 1\netcd = [\"https://a:2379/\"]\n{keys}"));
            let pair = config.map(|config| config.pair.expect("a pair"))?;
            let Arbiter::Etcd(etcd) = pair.arbiter else { panic!() };
            assert_eq!(etcd.endpoints, ["https://a:2379"]);
            Ok::<_, String>(etcd.tls.expect("TLS"))
        };
        let tls = read("etcd-cacert = \"/ca\"").expect("a pair");
        assert_eq!(tls, EtcdTls { cacert: "/ca".into(), identity: None });
        let tls = read("etcd-cacert = \"/ca\"\netcd-cert = \"/c\"\netcd-key = \"/k\"");
        assert_eq!(tls.expect("a pair").identity, Some(("/c".into(), "/k".into())));
        for (keys, told) in [
            ("", "etcd-cacert"),
            ("etcd-cert = \"/c\"\netcd-key = \"/k\"", "etcd-cacert"),
            ("etcd-cacert = \"/ca\"\netcd-cert = \"/c\"", "pair.etcd-key"),
            ("etcd-cacert = \"/ca\"\netcd-key = \"/k\"", "pair.etcd-cert"),
        ] {
            let error = read(keys).expect_err(keys);
            assert!(error.contains(told), "{keys}: {error}");
        }
    }

    /// Who breaks the lock of an image has the connection fenced by which the other one has it.
    #[test]
    fn a_lock_of_ceph_guards_what_it_fences() {
        let pair = "member = 1\nrbd-lock = \"rbd/lock,user=weft\"";
        let with = |image: &str| {
            let device = "file = \"/srv/disk.img\"\nsize = \"1GiB\"";
            let text = format!("[pair]\n{pair}\n{REST}");
            toml::parse(&text.replace(device, image)).map_err(|error| error.to_string())
        };
        let config = with("rbd = \"disk,user=weft,block=512\"").expect("a pair");
        let arbiter = config.pair.expect("a pair").arbiter;
        assert_eq!(arbiter.to_string(), "the lock of image rbd/lock");
        for (image, told) in [
            ("rbd = \"disk\"", "the same conf"),
            ("rbd = \"disk,user=weft,conf=/etc/ceph/east.conf\"", "the same conf"),
            ("rbd = \"lock,user=weft\"", "an image of its own"),
            ("file = \"/srv/disk.img\"\nsize = \"1GiB\"", "nothing fences"),
            ("device = \"delay:read=1ms:file:/srv/disk.img\"", "nothing fences"),
        ] {
            let error = with(image).expect_err(image);
            assert!(error.contains(told), "{image}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_a_pair_is_refused_in_a_sentence() {
        for (pair, told) in [
            ("member = 3\nlock-file = \"/l\"", "there is no member 3"),
            ("member = 1", "give one of the three"),
            ("member = 1\nlock-file = \"/l\"\netcd = [\"http://a:1\"]", "give one of the three"),
            ("member = 1\nlock-file = \"/l\"\nrbd-lock = \"l\"", "give one of the three"),
            ("member = 1\nlock-file = \"/l\"\nttl = \"3s\"", "nothing about a lock"),
            ("member = 1\nrbd-lock = \"a/l\"\nkey = \"k\"", "nothing about a lock"),
            ("member = 1\nrbd-lock = \"a/b/c/d\"", "is not an image"),
            ("member = 1\nrbd-lock = \"lock@monday\"", "no snapshot"),
            ("member = 1\nrbd-lock = \"lock,exclusive\"", "nothing but its lock"),
            ("member = 1\nlock-file = \"/l\"\netcd-cacert = \"/c\"", "nothing about a lock"),
            ("member = 1\netcd = [\"http://a:1\"]\netcd-cacert = \"/c\"", "write https://"),
            (
                "member = 1\netcd = [\"https://a:1\", \"http://b:1\"]\netcd-cacert = \"/c\"",
                "write https://",
            ),
            ("member = 1\netcd = [\"ftp://a:2379\"]", "no address"),
            ("member = 1\netcd = [\"http://a\"]", "no address"),
            ("member = 1\netcd = [\"http://a:2379\"]\nttl = \"1s\"", "2s to 60s"),
            ("member = 1\netcd = [\"http://a:2379\"]\nttl = \"2500ms\"", "2s to 60s"),
        ] {
            let error = read(pair).expect_err(pair);
            assert!(error.contains(told), "{pair}: {error}");
        }
        let text = format!("[pair]\nmember = 1\nlock-file = \"/l\"\n{REST}");
        for (from, to, told) in [
            ("file = \"/srv/disk.img\"\nsize", "memory", "memory of one process"),
            ("nqn = \"nqn.a\"", "nqn = \"nqn.a\"\nana-reporting = false", "need the access states"),
        ] {
            let error = toml::parse(&text.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
