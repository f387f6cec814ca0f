//! Asymmetric Namespace Access: the states of groups of namespaces at a port.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_nvme::log_page::AsymmetricNamespaceAccessState as WireState;
use weft_nvmf::ana::{AnaView, GroupStates};

use super::{Config, ConfigError, NSID_MAX, Port, Subsystem};

/// How well a port reaches a group of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnaState {
    /// As well as any.
    #[default]
    Optimized,
    /// Less well: hosts prefer another port.
    NonOptimized,
    /// Not now: commands are refused, and hosts wait or use another port.
    Inaccessible,
    /// Never again.
    PersistentLoss,
    /// Between two states: commands are refused, and hosts wait.
    Change,
}

impl AnaState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Optimized,
        Self::NonOptimized,
        Self::Inaccessible,
        Self::PersistentLoss,
        Self::Change,
    ];

    /// The word for it, which is that of nvmet.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        }
    }

    const fn on_the_wire(self) -> WireState {
        match self {
            Self::Optimized => WireState::OPTIMIZED,
            Self::NonOptimized => WireState::NON_OPTIMIZED,
            Self::Inaccessible => WireState::INACCESSIBLE,
            Self::PersistentLoss => WireState::PERSISTENT_LOSS,
            Self::Change => WireState::CHANGE,
        }
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for AnaState {
    type Err = String;

    /// With a hyphen as nvmet writes it, or an underscore as SPDK does.
    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.replace('_', "-");
        Self::ALL.into_iter().find(|state| state.word() == word).ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            format!("{text:?} is no access state; give one of {all}")
        })
    }
}

/// The state of groups at a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AnaRule {
    /// Of this subsystem; none: of all that are served there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// This group; none: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// The state.
    pub state: AnaState,
}

impl AnaRule {
    /// Whether it is for this group of a subsystem.
    fn is_for(&self, nqn: &str, group: u32) -> bool {
        self.subsystem.as_ref().is_none_or(|own| own == nqn)
            && self.group.is_none_or(|own| own == group)
    }

    /// Whether it is for nothing that another rule is not for.
    fn is_within(&self, other: &Self) -> bool {
        (other.subsystem.is_none() || other.subsystem == self.subsystem)
            && (other.group.is_none() || other.group == self.group)
    }
}

impl Port {
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

impl Subsystem {
    /// The groups that have a namespace, in order.
    #[must_use]
    pub fn ana_groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.namespaces.iter().map(|one| one.ana_group()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// The states of its groups at every port, if hosts are told of them.
    pub(crate) fn ana_view(&self, config: &Config) -> Option<AnaView> {
        let groups = self.ana_groups();
        let states = |port: &Port| -> GroupStates {
            let state = |group: &u32| {
                (*group, config.shown_state(port.ana_state(&self.nqn, *group)).on_the_wire())
            };
            groups.iter().map(state).collect()
        };
        self.ana_reporting
            .then(|| config.ports.iter().map(|port| (port.id, states(port))).collect())
    }
}

impl Config {
    /// Checks the rules of ports.
    pub(super) fn check_ana_rules(&self) -> Result<(), ConfigError> {
        for (index, port) in self.ports.iter().enumerate() {
            for (number, rule) in port.ana.iter().enumerate() {
                self.check_ana_rule(&format!("port[{index}].ana[{number}]"), rule)?;
            }
        }
        Ok(())
    }

    /// Checks the groups of namespaces.
    pub(super) fn check_ana_groups(&self) -> Result<(), ConfigError> {
        for (index, subsystem) in self.subsystems.iter().enumerate() {
            self.check_ana_groups_of(&format!("subsystem[{index}]"), subsystem)?;
        }
        Ok(())
    }

    fn check_ana_rule(&self, at: &str, rule: &AnaRule) -> Result<(), ConfigError> {
        if let Some(group) = rule.group.filter(|group| *group == 0 || *group > NSID_MAX) {
            return Err(ConfigError::new(format!("{at}.group"), format!("{group} is no group"))
                .remedy(format!("give 1 to {NSID_MAX}, or leave it out for all")));
        }
        let Some(nqn) = &rule.subsystem else { return Ok(()) };
        let key = format!("{at}.subsystem");
        match self.subsystems.iter().find(|subsystem| subsystem.nqn == *nqn) {
            None => Err(ConfigError::new(key, format!("there is no subsystem {nqn:?}"))
                .remedy("name one that is configured, or leave the key out for all")),
            Some(subsystem) if !subsystem.ana_reporting => {
                Err(ConfigError::new(key, format!("{nqn:?} does not report access states"))
                    .remedy("give the subsystem `ana-reporting = true`"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks the group of one namespace of a subsystem.
    pub(super) fn check_ana_group_of(
        &self,
        at: &str,
        subsystem: &Subsystem,
        index: usize,
    ) -> Result<(), ConfigError> {
        let most = subsystem.most_namespaces(&self.limits);
        let group = subsystem.namespaces.get(index).and_then(|namespace| namespace.ana_group);
        let Some(group) = group else { return Ok(()) };
        let key = format!("{at}.namespace[{index}].ana-group");
        if group == 0 || group > most {
            return Err(ConfigError::new(key, format!("{group} is no group"))
                .remedy(format!("give 1 to {most}, the largest NSID, or leave it out")));
        }
        if subsystem.ana_reporting {
            return Ok(());
        }
        Err(ConfigError::new(key, "the subsystem does not report access states")
            .remedy("give it `ana-reporting = true`"))
    }

    /// Checks the groups of a subsystem.
    pub(super) fn check_ana_groups_of(
        &self,
        at: &str,
        subsystem: &Subsystem,
    ) -> Result<(), ConfigError> {
        for index in 0..subsystem.namespaces.len() {
            self.check_ana_group_of(at, subsystem, index)?;
        }
        let most = subsystem.most_namespaces(&self.limits);
        // A Linux host reads the whole log page with one command, and ignores ANA if it cannot.
        let page = 16 + 36 * u64::from(most);
        if subsystem.ana_reporting && u64::from(self.limits.transfer_bytes) < page {
            let what = format!("its log page may have {page} bytes, and one command moves fewer");
            return Err(ConfigError::new(format!("{at}.ana-reporting"), what)
                .remedy("raise `limits.transfer-size`, or lower `limits.namespaces`"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::toml;

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

    #[test]
    fn words_are_those_of_nvmet_and_of_spdk() {
        for state in AnaState::ALL {
            assert_eq!(state.word().parse(), Ok(state));
            assert_eq!(state.word().replace('-', "_").parse(), Ok(state));
        }
        assert!("best".parse::<AnaState>().expect_err("a state").contains("persistent-loss"));
    }

    #[test]
    fn contradictions_are_found() {
        let read = |port: &str, subsystem: &str, namespace: &str| {
            toml::read(&format!(
                "limits = {{ namespaces = 8 }}\n\
                 [[port]]\nlisten = 'tcp://127.0.0.1:4420'\n{port}\n\
                 [[subsystem]]\nnqn = 'nqn.a'\n{subsystem}\n\
                 [[subsystem.namespace]]\nnull = '1MiB'\n{namespace}\n"
            ))
        };
        let told = |port, subsystem, namespace| {
            read(port, subsystem, namespace).expect_err("a contradiction").to_string()
        };
        let on = "ana-reporting = true";
        let rule = "ana = [{ subsystem = 'nqn.a', group = 3, state = 'inaccessible' }]";
        let config = read(rule, on, "ana-group = 3").expect("a configuration");
        let view = config.subsystems[0].ana_view(&config).expect("reported");
        assert_eq!(view.state(1, 3), WireState::INACCESSIBLE);
        assert_eq!(config.subsystems[0].ana_groups(), [3]);
        assert!(told(rule, "", "").contains("does not report access states"));
        assert!(
            told("ana = [{ subsystem = 'nqn.b', state = 'change' }]", on, "").contains("nqn.b")
        );
        assert!(told("ana = [{ group = 0, state = 'change' }]", on, "").contains("no group"));
        assert!(told("", on, "ana-group = 9").contains("give 1 to 8"));
        assert!(told("", "", "ana-group = 1").contains("ana-reporting = true"));
        assert!(told("ana = [{ state = 'best' }]", on, "").contains("best"));
        let silent = read("", "", "").expect("a file");
        assert!(silent.subsystems[0].ana_view(&silent).is_none());
    }
}
