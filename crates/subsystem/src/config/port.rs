//! Where a target listens, and what it serves there.

use std::net::SocketAddr;
use std::ops::Not;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_nvmf::keys::{TlsMode, TlsRecords};

use super::{AnaRule, AnaState, Listen, Referral, address, text};

/// One address that the target listens on.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// The port's id in the discovery log; 0, until it is known: that of its place.
    #[serde(default)]
    pub id: u16,
    /// Transport and address; port 0 takes a free one.
    pub listen: Listen,
    /// The address that the discovery log gives instead of the one to which the host connected,
    /// for hosts behind NAT and for containers.
    #[serde(default, with = "address::optional", skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// Whether hosts come with TLS.
    #[serde_as(as = "DisplayFromStr")]
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub tls: TlsMode,
    /// Who makes and reads the records of TLS.
    #[serde_as(as = "DisplayFromStr")]
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub tls_records: TlsRecords,
    /// Whether the discovery subsystem answers here.
    #[serde(default = "text::yes", skip_serializing_if = "Clone::clone")]
    pub discovery: bool,
    /// Which subsystems answer here.
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub subsystems: PortSubsystems,
    /// Other discovery services that the log of this port refers to.
    #[serde(rename = "referral", default, skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<Referral>,
    /// The access states of groups of namespaces here; of several for a group the last one holds,
    /// and it is optimized without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ana: Vec<AnaRule>,
    /// It was made at run time, and goes with the last subsystem that uses it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub made_at_run_time: bool,
}

impl Port {
    /// A port that serves every subsystem and discovery.
    #[must_use]
    pub fn new(id: u16, listen: Listen) -> Self {
        Self {
            id,
            listen,
            advertise: None,
            tls: TlsMode::Off,
            tls_records: TlsRecords::User,
            discovery: true,
            subsystems: PortSubsystems::All,
            referrals: Vec::new(),
            ana: Vec::new(),
            made_at_run_time: false,
        }
    }

    /// The state of a group of a subsystem here.
    #[must_use]
    pub fn ana_state(&self, nqn: &str, group: u32) -> AnaState {
        let rule = self.ana.iter().rev().find(|rule| rule.is_for(nqn, group));
        rule.map_or(AnaState::Optimized, |rule| rule.state)
    }

    /// From now on this rule holds before all others.
    pub(crate) fn set_ana(&mut self, rule: AnaRule) {
        self.ana.retain(|other| !other.is_within(&rule));
        self.ana.push(rule);
    }
}

/// Which subsystems a port serves. Written as the list of those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<Vec<String>>", into = "Option<Vec<String>>")]
pub enum PortSubsystems {
    /// All of them.
    #[default]
    All,
    /// Those with these NQNs; none: a port for discovery only.
    Only(Vec<String>),
}

impl From<Option<Vec<String>>> for PortSubsystems {
    fn from(only: Option<Vec<String>>) -> Self {
        only.map_or(Self::All, Self::Only)
    }
}

impl From<PortSubsystems> for Option<Vec<String>> {
    fn from(subsystems: PortSubsystems) -> Self {
        match subsystems {
            PortSubsystems::All => None,
            PortSubsystems::Only(nqns) => Some(nqns),
        }
    }
}

impl PortSubsystems {
    /// Whether a subsystem is among them.
    #[must_use]
    pub fn contains(&self, nqn: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(nqns) => nqns.iter().any(|served| served == nqn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_holds_and_replaces_what_it_covers() {
        let mut port = Port::new(1, "tcp://127.0.0.1:4420".parse().expect("an address"));
        let rule = |nqn: Option<&str>, group, state| AnaRule {
            subsystem: nqn.map(str::to_owned),
            group,
            state,
        };
        port.set_ana(rule(None, None, AnaState::NonOptimized));
        port.set_ana(rule(Some("a"), Some(2), AnaState::Inaccessible));
        let states =
            |port: &Port| [("a", 1), ("a", 2), ("b", 2)].map(|(n, g)| port.ana_state(n, g));
        let (slow, none) = (AnaState::NonOptimized, AnaState::Inaccessible);
        assert_eq!(states(&port), [slow, none, slow]);
        port.set_ana(rule(Some("a"), None, AnaState::Change));
        assert_eq!(states(&port), [AnaState::Change, AnaState::Change, slow]);
        assert_eq!(port.ana.len(), 2, "the rule of group 2 is covered");
    }
}
