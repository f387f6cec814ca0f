//! The description of an image: where it is, how to reach it, and how to open it.

use crate::spec::{block_size, size, switch, unknown};
use crate::{ParseSpecError, bytes, duration, split_path};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The pool of an image that is named without one, as for the command `rbd`.
const POOL: &str = "rbd";
/// Less than the 30 s after which a Linux host aborts a command.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An image of a Ceph cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RbdSpec {
    /// The pool.
    #[serde(default = "pool")]
    pub pool: String,
    /// The namespace within the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// A snapshot of the image, which is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// How to reach the cluster.
    #[serde(default, skip_serializing_if = "CephSpec::is_default")]
    pub ceph: CephSpec,
    /// Extend the image to this size if it is smaller. It is never cut.
    #[serde(
        default,
        with = "bytes::as_text::option",
        alias = "size",
        skip_serializing_if = "Option::is_none"
    )]
    pub least_bytes: Option<u64>,
    /// Make the image, of that size, if there is none.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub create: bool,
    /// 512 or 4096; by default 4096 if the size is a multiple of it, else 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
    /// Refuse writes.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub read_only: bool,
    /// Take the exclusive lock and keep it: no other client can write.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub exclusive: bool,
    /// A request that the cluster does not complete within this time fails.
    #[serde(default = "timeout", with = "duration::as_text")]
    pub timeout: Duration,
}

/// How to reach a cluster. The default is what Ceph's own commands take by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct CephSpec {
    /// The name of the cluster; `ceph` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The configuration file; by default Ceph looks for one in its usual places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// The user, without `client.`; `admin` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Ceph's own options, which win over the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

fn pool() -> String {
    POOL.to_owned()
}

fn timeout() -> Duration {
    TIMEOUT
}

impl CephSpec {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl RbdSpec {
    /// The image of this name in a pool, opened as by default.
    #[must_use]
    pub fn new(pool: impl Into<String>, image: impl Into<String>) -> Self {
        Self {
            pool: pool.into(),
            namespace: None,
            image: image.into(),
            snapshot: None,
            ceph: CephSpec::default(),
            least_bytes: None,
            create: false,
            block_bytes: None,
            read_only: false,
            exclusive: false,
            timeout: TIMEOUT,
        }
    }

    /// Reads `[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]` as the command `rbd` does.
    pub fn named(text: &str) -> Result<Self, ParseSpecError> {
        let (path, snapshot) = match text.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot.to_owned())),
            None => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [image] => (POOL, None, image),
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace.to_owned()), image),
            _ => return Err(not_an_image(text)),
        };
        let spec = Self { namespace, snapshot, ..Self::new(pool, image) };
        spec.check_names().map(|()| spec)
    }

    /// Reads an image with options after commas; a comma in a value is written twice.
    pub fn parse(text: &str) -> Result<Self, ParseSpecError> {
        let (name, mut rest) = split_path(text);
        let mut spec = Self::named(&name.to_string_lossy())?;
        while !rest.is_empty() {
            let (option, behind) = split_path(rest);
            rest = behind;
            let option = option.to_string_lossy();
            let (key, value) = option.split_once('=').unwrap_or((&option, ""));
            let text = || Some(value.to_owned());
            match key {
                "conf" => spec.ceph.conf = Some(value.into()),
                "user" => spec.ceph.user = text(),
                "cluster" => spec.ceph.cluster = text(),
                "size" => spec.least_bytes = Some(size(value)?),
                "create" => spec.create = switch(value)?,
                "block" => spec.block_bytes = Some(block_size(value)?),
                "read-only" => spec.read_only = switch(value)?,
                "exclusive" => spec.exclusive = switch(value)?,
                "timeout" => {
                    let span = duration::parse(value);
                    spec.timeout = span.map_err(|error| ParseSpecError::new(error.to_string()))?;
                }
                "" => {}
                _ => match key.strip_prefix("config.") {
                    Some(key) => {
                        spec.ceph.config.insert(key.to_owned(), value.to_owned());
                    }
                    None => {
                        let known = "conf, user, cluster, size, create, block, read-only, \
                                     exclusive, timeout, config.OPTION";
                        return Err(unknown(key, known));
                    }
                },
            }
        }
        Ok(spec)
    }

    /// Checks that an image can be opened, and made if that is wanted, as this says.
    pub(crate) fn check(&self) -> Result<(), ParseSpecError> {
        if self.create && (self.least_bytes.is_none() || self.is_read_only()) {
            let what = format!(
                "image {}: `create` needs a size, and what is made is written to (add size=…, \
                 without read-only or a snapshot)",
                self.name()
            );
            return Err(ParseSpecError::new(what));
        }
        self.check_names()
    }

    /// Checks that the names are those of an image that `rbd` can name as well.
    fn check_names(&self) -> Result<(), ParseSpecError> {
        let names = [Some(&self.pool), self.namespace.as_ref(), Some(&self.image)];
        let all = names.into_iter().chain([self.snapshot.as_ref()]).flatten();
        let plain = |name: &String| !name.is_empty() && !name.contains(['/', '@', '\0']);
        match all.into_iter().all(plain) {
            true => Ok(()),
            false => Err(not_an_image(&self.name())),
        }
    }

    /// `POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { pool, image, .. } = self;
        let namespace = self.namespace.iter().map(|name| format!("{name}/")).collect::<String>();
        let snapshot = self.snapshot.iter().map(|name| format!("@{name}")).collect::<String>();
        format!("{pool}/{namespace}{image}{snapshot}")
    }

    /// A text that names the image on every machine that reaches its cluster in the same way.
    #[must_use]
    pub fn identity(&self) -> String {
        let CephSpec { cluster, conf, config, .. } = &self.ceph;
        let conf = conf.as_ref().map(|path| path.display().to_string());
        let monitors = config.get("mon_host").cloned();
        let parts = [cluster.clone(), conf, monitors].into_iter().flatten();
        let cluster = parts.map(|part| format!("{part}:")).collect::<String>();
        format!("rbd:{cluster}{}", self.name())
    }

    /// Whether nothing can be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.snapshot.is_some()
    }
}

fn not_an_image(text: &str) -> ParseSpecError {
    ParseSpecError::new(format!(
        "{text:?} is not an image (use [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT])"
    ))
}

impl FromStr for RbdSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// The form that [`RbdSpec::parse`] reads.
impl fmt::Display for RbdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let twice = |text: &str| text.replace(',', ",,");
        f.write_str(&twice(&self.name()))?;
        let Self { ceph: CephSpec { cluster, conf, user, config }, .. } = self;
        let conf = conf.as_ref().map(|path| path.display().to_string());
        let all = [("conf", conf.as_ref()), ("user", user.as_ref()), ("cluster", cluster.as_ref())];
        for (key, value) in all {
            if let Some(value) = value {
                write!(f, ",{key}={}", twice(value))?;
            }
        }
        if let Some(least_bytes) = self.least_bytes {
            write!(f, ",size={}", bytes::exact(least_bytes))?;
        }
        if let Some(block_bytes) = self.block_bytes {
            write!(f, ",block={block_bytes}")?;
        }
        f.write_str(if self.create { ",create" } else { "" })?;
        f.write_str(if self.read_only { ",read-only" } else { "" })?;
        f.write_str(if self.exclusive { ",exclusive" } else { "" })?;
        if self.timeout != TIMEOUT {
            write!(f, ",timeout={}", duration::exact(self.timeout))?;
        }
        for (key, value) in config {
            write!(f, ",config.{}={}", twice(key), twice(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_as_rbd_names_them() {
        for (text, full) in [
            ("disk", "rbd/disk"),
            ("pool/disk", "pool/disk"),
            ("pool/team/disk@monday", "pool/team/disk@monday"),
        ] {
            let spec = RbdSpec::named(text).unwrap();
            assert_eq!(spec.name(), full);
            assert_eq!(spec.is_read_only(), text.contains('@'));
        }
        for text in ["", "/disk", "pool/", "a/b/c/d", "disk@", "pool/disk@a@b", "disk@a/b"] {
            assert!(RbdSpec::named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn options_read_back() {
        let text = "pool/team/disk,conf=/etc/ceph/a,,b.conf,user=weft,cluster=east,size=1GiB,\
                    block=512,create,read-only,exclusive,timeout=3s,\
                    config.mon_host=192.0.2.1,,192.0.2.2";
        let spec = RbdSpec::parse(text).unwrap();
        assert_eq!(spec.to_string(), text);
        assert_eq!(spec.ceph.conf, Some("/etc/ceph/a,b.conf".into()));
        assert_eq!(spec.ceph.config["mon_host"], "192.0.2.1,192.0.2.2");
        assert_eq!(spec.timeout, Duration::from_secs(3));
        for (text, part) in [
            ("disk,usr=weft", "did you mean user?"),
            ("disk,direct=on", "is not an option here"),
            ("disk,timeout=3", "is not a span of time"),
            ("disk,create=perhaps", "perhaps"),
            ("disk,block=520", "512 or 4096"),
        ] {
            let error = RbdSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_made_has_a_size_and_is_written_to() {
        let check = |text: &str| RbdSpec::parse(text).unwrap().check().is_ok();
        assert!(check("disk") && check("disk,size=1GiB,create"));
        assert!(!check("disk,create"));
        assert!(!check("disk,size=1GiB,create,read-only"));
        assert!(!check("disk@monday,size=1GiB,create"));
    }

    #[test]
    fn images_of_several_clusters_are_apart() {
        let identity = |text: &str| RbdSpec::parse(text).unwrap().identity();
        assert_eq!(identity("disk,user=a"), identity("rbd/disk,block=512"));
        assert_eq!(identity("disk"), "rbd:rbd/disk");
        assert_ne!(identity("disk,conf=/etc/ceph/east.conf"), identity("disk"));
        assert_ne!(identity("disk,cluster=east"), identity("disk,cluster=west"));
        assert_ne!(identity("disk,config.mon_host=a"), identity("disk,config.mon_host=b"));
    }
}
