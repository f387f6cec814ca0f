//! Which knobs there are, and what a cell wants of them.

use serde::{Deserialize, Serialize};

use crate::results::{Configuration, key};

/// Where a knob acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::study) enum Scope {
    /// On the interface of a link.
    Interface,
    /// On the whole machine, or its network namespace.
    Machine,
}

/// Every knob.
pub(in crate::study) const KNOBS: [(&str, Scope); 15] = [
    (key::MTU, Scope::Interface),
    (key::TSO, Scope::Interface),
    (key::GRO, Scope::Interface),
    (key::LRO, Scope::Interface),
    (key::CHECKSUM, Scope::Interface),
    (key::RX_USECS, Scope::Interface),
    (key::ADAPTIVE_RX, Scope::Interface),
    (key::RPS, Scope::Interface),
    (key::IRQ_CPUS, Scope::Interface),
    (key::ARFS, Scope::Interface),
    (key::LOSS_PERCENT, Scope::Interface),
    (key::REORDER_PERCENT, Scope::Interface),
    (key::CONGESTION_CONTROL, Scope::Machine),
    (key::GOVERNOR, Scope::Machine),
    (key::IDLE_STATES, Scope::Machine),
];

/// A knob, and the value that a cell wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobValue {
    /// The key of the setting.
    pub knob: String,
    /// Its value.
    pub value: String,
}

/// A knob that has the value that a cell wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The key of the setting.
    pub knob: String,
    /// Its value, as it was read back.
    pub value: String,
    /// What it was before the study.
    pub before: String,
}

/// The knobs of a cell: those of interfaces only if it has a link with a name.
pub(in crate::study) fn wishes(configuration: &Configuration, link: &str) -> Vec<KnobValue> {
    let applies = |scope: Scope| scope == Scope::Machine || !link.is_empty();
    let knobs = KNOBS.iter().filter(|(_, scope)| applies(*scope));
    let wish = |(knob, _): &(&str, Scope)| {
        let value = configuration.get(*knob)?.to_string();
        Some(KnobValue { knob: (*knob).to_owned(), value })
    };
    knobs.filter_map(wish).collect()
}

/// Whether a setting is a knob of an interface.
pub(in crate::study) fn is_of_interface(key: &str) -> bool {
    KNOBS.iter().any(|(knob, scope)| *knob == key && *scope == Scope::Interface)
}

/// The first knob of an interface that a configuration has.
pub(in crate::study) fn of_interface(configuration: &Configuration) -> Option<&'static str> {
    let mut knobs = KNOBS.iter().map(|(knob, _)| *knob).filter(|knob| is_of_interface(knob));
    knobs.find(|knob| configuration.contains_key(*knob))
}

/// The first knob that a configuration has.
pub(in crate::study) fn any(configuration: &Configuration) -> Option<&'static str> {
    KNOBS.iter().find(|(knob, _)| configuration.contains_key(*knob)).map(|(knob, _)| *knob)
}
