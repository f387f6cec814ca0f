//! The keys by which hosts and subsystems authenticate each other. A configuration has their names
//! or paths, never a key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_nvme::Nqn;
use weft_nvmf::auth::{Group, HashFunction, Policy, Secret};
use weft_nvmf::keys::{Derivation, ParseKeyError, TlsKey};

use super::{ConfigError, RuntimeObjects, key_file, text};

/// What hosts of a subsystem have to prove, by name.
pub(crate) type Policies = BTreeMap<Nqn, Arc<Policy>>;

/// A key of TLS, and how the host derives from it.
pub(crate) type PskKey = (TlsKey, Derivation);

/// Keys of TLS of a subsystem's hosts, by name.
pub(crate) type Psks = BTreeMap<String, Vec<PskKey>>;

/// Paths of key files and names of the kernel's keys, by the names of the keys.
pub type Keyring = BTreeMap<String, PathBuf>;

/// The keys of a host at a subsystem. Each is the name of a key of the keyring, or the path of a
/// file: what has a slash in it; or the name of one of the kernel's: what begins with `%`.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostKeys {
    /// The host.
    pub nqn: String,
    /// The key that the host has to have; none: it need not authenticate itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhchap_key: Option<String>,
    /// The key by which the subsystem authenticates itself to a host that asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhchap_ctrlr_key: Option<String>,
    /// Hash functions, the preferred one first; none: those of all hosts.
    #[serde_as(as = "Vec<DisplayFromStr>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dhchap_hashes: Vec<HashFunction>,
    /// The keys of TLS that the host may have: more than one while they are changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "text::one_or_several")]
    pub psk: Vec<String>,
    /// The host derives from them as libnvme before 1.16 did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub psk_compat: bool,
    /// DH groups, the preferred one first; none: those of all hosts.
    #[serde_as(as = "Vec<DisplayFromStr>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dhchap_groups: Vec<Group>,
    /// The host is served over TLS only: its authentication makes the keys, or it has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhchap_concat: bool,
    /// Where its authentication makes the keys, it is a Linux before 7.1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhchap_concat_compat: bool,
}

impl HostKeys {
    /// A host without keys.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            dhchap_key: None,
            dhchap_ctrlr_key: None,
            dhchap_hashes: Vec::new(),
            dhchap_groups: Vec::new(),
            psk: Vec::new(),
            psk_compat: false,
            dhchap_concat: false,
            dhchap_concat_compat: false,
        }
    }

    /// The names of keys and paths of files in it, each with its field.
    fn keys(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let host = self.dhchap_key.iter().map(|key| ("dhchap-key", key));
        let controller = self.dhchap_ctrlr_key.iter().map(|key| ("dhchap-ctrlr-key", key));
        host.chain(controller).chain(self.psk.iter().map(|key| ("psk", key)))
    }

    /// Replaces the name of a key by its path.
    pub(crate) fn name_by_path(&mut self, name: &str, path: &Path) {
        let is_path = is_path(&path.to_string_lossy());
        let path = if is_path { path.to_owned() } else { Path::new(".").join(path) };
        let of_host = self.dhchap_key.iter_mut().chain(&mut self.dhchap_ctrlr_key);
        for key in of_host.chain(&mut self.psk).filter(|key| *key == name) {
            *key = path.to_string_lossy().into_owned();
        }
    }

    pub(super) fn check(&self, at: &str, keyring: &Keyring) -> Result<(), ConfigError> {
        for (field, key) in self.keys() {
            if path_of(keyring, key).is_none() {
                let what = unknown_key(key);
                return Err(ConfigError::new(format!("{at}.{field}"), what)
                    .remedy("name one of the keyring, or give the path of a file or %user:NAME"));
            }
        }
        match self.incomplete() {
            None => Ok(()),
            Some([key, what, remedy]) => {
                Err(ConfigError::new(format!("{at}.{key}"), what).remedy(remedy))
            }
        }
    }

    /// What needs the key of the host, which has none: the key of the configuration, why, and what
    /// to do.
    pub(crate) fn incomplete(&self) -> Option<[&'static str; 3]> {
        match self {
            Self { dhchap_key: Some(_), .. } => None,
            Self { dhchap_ctrlr_key: Some(_), .. } => Some([
                "dhchap-ctrlr-key",
                "the subsystem cannot authenticate itself to a host without a key",
                "give the host a dhchap-key as well",
            ]),
            Self { dhchap_concat: true, .. } => Some([
                "dhchap-concat",
                "keys of TLS are made by the authentication, for which the host has no key",
                "give the host a dhchap-key; or have ports that require TLS, and a psk",
            ]),
            _ => None,
        }
    }

    /// The keys of TLS.
    pub(super) fn psks(&self, keyring: &Keyring) -> Result<Vec<PskKey>, String> {
        let derivation =
            if self.psk_compat { Derivation::OldLibnvme } else { Derivation::Standard };
        self.psk.iter().map(|key| Ok((read_key(keyring, key)?, derivation))).collect()
    }

    /// What it has to prove; of all hosts are the functions that it has none of.
    pub(super) fn policy(
        &self,
        keyring: &Keyring,
        of_all: &RuntimeObjects,
    ) -> Result<Option<Policy>, String> {
        let read = |key: &String| read_key::<Secret>(keyring, key);
        let Some(secret) = self.dhchap_key.as_ref().map(read).transpose()? else {
            return Ok(None);
        };
        let controller_secret = self.dhchap_ctrlr_key.as_ref().map(read).transpose()?;
        let mut policy = Policy::new(secret, controller_secret);
        policy.requires_channel = self.dhchap_concat;
        policy.old_channel = self.dhchap_concat_compat;
        let hashes = [&self.dhchap_hashes, &of_all.dhchap_hashes];
        if let Some(hashes) = hashes.into_iter().find(|hashes| !hashes.is_empty()) {
            policy.hashes = hashes.as_slice().into();
        }
        let groups = [&self.dhchap_groups, &of_all.dhchap_groups];
        if let Some(groups) = groups.into_iter().find(|groups| !groups.is_empty()) {
            policy.groups = groups.as_slice().into();
        }
        Ok(Some(policy))
    }
}

/// The name is not repeated where somebody has given a secret in its place.
pub(crate) fn unknown_key(key: &str) -> String {
    if key_file::is_key(key) {
        "this is a key itself, not the name of one or a path".to_owned()
    } else {
        format!("there is no key {key:?}")
    }
}

/// Where a key is, that is a name or a path itself.
fn path_of<'a>(keyring: &'a Keyring, key: &'a str) -> Option<&'a Path> {
    if is_path(key) { Some(Path::new(key)) } else { keyring.get(key).map(PathBuf::as_path) }
}

/// Whether this is a path, or one of the kernel's keys, rather than a name.
fn is_path(key: &str) -> bool {
    // Base64 has slashes as well.
    (key.contains('/') || key_file::is_in_kernel(Path::new(key))) && !key_file::is_key(key)
}

fn read_key<K: FromStr<Err = ParseKeyError>>(keyring: &Keyring, key: &str) -> Result<K, String> {
    key_file::read(path_of(keyring, key).ok_or_else(|| unknown_key(key))?)
}
