//! The hosts that a rule is for.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Hosts by NQN: one, or a group that a rule takes for one tenant. Notation as a text, or as a list
/// of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Notation", into = "Notation")]
pub struct Hosts(BTreeSet<String>);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "give a host's NQN, or a list of them")]
enum Notation {
    One(String),
    Group(Vec<String>),
}

impl TryFrom<Notation> for Hosts {
    type Error = &'static str;

    fn try_from(written: Notation) -> Result<Self, Self::Error> {
        let hosts: BTreeSet<_> = match written {
            Notation::One(host) => [host].into(),
            Notation::Group(hosts) => hosts.into_iter().collect(),
        };
        if hosts.is_empty() { Err("a group has at least one host") } else { Ok(Self(hosts)) }
    }
}

impl From<Hosts> for Notation {
    fn from(hosts: Hosts) -> Self {
        let mut hosts: Vec<_> = hosts.0.into_iter().collect();
        match (hosts.pop(), hosts.is_empty()) {
            (Some(only), true) => Self::One(only),
            (last, _) => {
                hosts.extend(last);
                Self::Group(hosts)
            }
        }
    }
}

impl From<String> for Hosts {
    fn from(host: String) -> Self {
        Self([host].into())
    }
}

impl From<&str> for Hosts {
    fn from(host: &str) -> Self {
        host.to_owned().into()
    }
}

impl Hosts {
    /// These hosts as one; none if there are none.
    #[must_use]
    pub fn group(hosts: impl IntoIterator<Item = String>) -> Option<Self> {
        Some(Self(hosts.into_iter().collect())).filter(|group| !group.0.is_empty())
    }

    /// Whether a host is among them.
    #[must_use]
    pub fn contain(&self, host: &str) -> bool {
        self.0.contains(host)
    }

    /// Their names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether they are more than one.
    #[must_use]
    pub fn are_group(&self) -> bool {
        self.0.len() > 1
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.names().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            f.write_str(host)?;
        }
        Ok(())
    }
}
