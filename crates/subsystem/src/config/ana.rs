//! Asymmetric Namespace Access: the states of groups of namespaces at a port.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_nvme::log_page::AsymmetricNamespaceAccessState as WireState;

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

    /// Its code in the log page.
    pub(super) const fn on_the_wire(self) -> WireState {
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
    pub(super) fn is_for(&self, nqn: &str, group: u32) -> bool {
        self.subsystem.as_ref().is_none_or(|own| own == nqn)
            && self.group.is_none_or(|own| own == group)
    }

    /// Whether it is for nothing that another rule is not for.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        (other.subsystem.is_none() || other.subsystem == self.subsystem)
            && (other.group.is_none() || other.group == self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_nvmet_and_of_spdk() {
        for state in AnaState::ALL {
            assert_eq!(state.word().parse(), Ok(state));
            assert_eq!(state.word().replace('-', "_").parse(), Ok(state));
        }
        assert!("best".parse::<AnaState>().expect_err("a state").contains("persistent-loss"));
    }
}
