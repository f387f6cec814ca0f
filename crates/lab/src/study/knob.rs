//! The knobs of a machine: settings of its kernel and its network that a cell may have.
//!
//! An agent sets them on the machine where they act. What a knob was is in a journal on that
//! machine before it is changed. It is put back when no cell wants it any more and when the agent
//! ends; by a watchdog if the agent dies; by the next agent there if both have died.
//!
//! - `wishes` are the knobs of a cell; `change` knows what has to be written for each.
//! - [`Knobs`] is the agent's side: it changes, reads back, and puts back by the `journal`.

pub(super) mod change;
pub(super) mod journal;

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Child,
};

use serde::{Deserialize, Serialize};

pub use self::change::Machine;
use self::{change::Change, journal::Journal};
use crate::results::{Configuration, key};

/// Where a knob acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// On the interface of a link.
    Interface,
    /// On the whole machine, or its network namespace.
    Machine,
}

/// Every knob.
pub(super) const KNOBS: [(&str, Scope); 13] = [
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
pub(super) fn wishes(configuration: &Configuration, link: &str) -> Vec<KnobValue> {
    let applies = |scope: Scope| scope == Scope::Machine || !link.is_empty();
    let knobs = KNOBS.iter().filter(|(_, scope)| applies(*scope));
    let wish = |(knob, _): &(&str, Scope)| {
        let value = configuration.get(*knob)?.to_string();
        Some(KnobValue { knob: (*knob).to_owned(), value })
    };
    knobs.filter_map(wish).collect()
}

/// Whether a setting is a knob of an interface.
pub(super) fn is_of_interface(key: &str) -> bool {
    KNOBS.iter().any(|(knob, scope)| *knob == key && *scope == Scope::Interface)
}

/// The first knob of an interface that a configuration has.
pub(super) fn of_interface(configuration: &Configuration) -> Option<&'static str> {
    let mut knobs = KNOBS.iter().map(|(knob, _)| *knob).filter(|knob| is_of_interface(knob));
    knobs.find(|knob| configuration.contains_key(*knob))
}

/// The first knob that a configuration has.
pub(super) fn any(configuration: &Configuration) -> Option<&'static str> {
    KNOBS.iter().find(|(knob, _)| configuration.contains_key(*knob)).map(|(knob, _)| *knob)
}

/// Starts a process that puts back what a journal has when its input ends, with the journal's file
/// open so that its lock lasts.
pub type Watch = Box<dyn Fn(&Path, File) -> Result<Child, String> + Send + Sync>;

/// The knobs of this machine that this process has set.
pub struct Knobs {
    machine: Machine,
    folder: PathBuf,
    watch: Watch,
    journal: Option<Journal>,
}

impl std::fmt::Debug for Knobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Knobs").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Knobs {
    /// Those of a machine, with journals in this folder.
    #[must_use]
    pub fn new(machine: Machine, folder: PathBuf, watch: Watch) -> Self {
        Self { machine, folder, watch, journal: None }
    }

    /// The folder of journals on a real machine: what it holds is void after a restart, as what was
    /// changed is. It is not that of `weft.service`, which another user may write to.
    #[must_use]
    pub fn folder() -> PathBuf {
        PathBuf::from("/run/weft-study")
    }

    /// Puts back what processes of this network namespace have left that are dead, and says what.
    #[must_use]
    pub fn restore_left(&self) -> Vec<String> {
        journal::restore_left(&self.machine, &self.folder)
    }

    /// Makes these knobs have these values, and those of earlier cells what they were.
    ///
    /// # Errors
    /// One sentence: a knob that does not exist here, or that the driver refuses.
    pub fn arrange(
        &mut self,
        wishes: &[KnobValue],
        interface: Option<&str>,
    ) -> Result<Vec<Applied>, String> {
        let planned = wishes
            .iter()
            .map(|wish| Ok((wish, self.machine.changes(wish, interface)?)))
            .collect::<Result<Vec<_>, String>>()?;
        let wanted: Vec<&Change> = planned.iter().flat_map(|(_, changes)| changes).collect();
        if let Some(journal) = &mut self.journal {
            let machine = &self.machine;
            journal.restore(machine, |change| !wanted.iter().any(|one| one.is_of(change)))?;
        }
        let mut applied = Vec::new();
        for (wish, changes) in &planned {
            let mut values = Vec::new();
            let mut before = Vec::new();
            for change in changes {
                let (was, is) = self.set(wish, change)?;
                values.push(is);
                before.push(was);
            }
            values.dedup();
            before.dedup();
            applied.push(Applied {
                knob: wish.knob.clone(),
                value: values.join(" "),
                before: before.join(" "),
            });
        }
        self.end_if_done();
        Ok(applied)
    }

    /// Makes one change: what it was before the study, and what it is now.
    fn set(&mut self, wish: &KnobValue, change: &Change) -> Result<(String, String), String> {
        let fault =
            |why: String| format!("{} {} cannot be set: {change}: {why}", wish.knob, wish.value);
        let now = self.machine.read(change).map_err(fault)?;
        let known = self.journal.as_ref().and_then(|journal| journal.before(change));
        if change.agrees(&now) {
            return Ok((known.unwrap_or_else(|| now.clone()), now));
        }
        let before = match known {
            Some(before) => before,
            None => {
                self.journal()?.note(change, &now)?;
                now
            }
        };
        let written = self.machine.write(change).map_err(fault);
        let read = written.and_then(|()| self.machine.read(change).map_err(fault));
        match read {
            Ok(is) if change.agrees(&is) => Ok((before, is)),
            other => {
                let why = match other {
                    Ok(is) => fault(format!("it is {is} after it was set")),
                    Err(why) => why,
                };
                Err(match self.restore() {
                    Ok(()) => why,
                    Err(left) => format!("{why}; {left}"),
                })
            }
        }
    }

    fn journal(&mut self) -> Result<&mut Journal, String> {
        if self.journal.is_none() {
            self.journal = Some(Journal::begin(&self.folder, &self.watch)?);
        }
        self.journal.as_mut().ok_or_else(|| "there is no journal".to_owned())
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// One sentence that says what could not be put back; the journal keeps it.
    pub fn restore(&mut self) -> Result<(), String> {
        let machine = &self.machine;
        self.journal.as_mut().map_or(Ok(()), |journal| journal.restore(machine, |_| true))?;
        self.end_if_done();
        Ok(())
    }

    /// Without anything to be put back there is no journal.
    fn end_if_done(&mut self) {
        if self.journal.as_ref().is_some_and(Journal::is_empty) {
            self.journal = None;
        }
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        // What fails stays in the journal: the watchdog tries again, and the next agent.
        let _ = self.restore();
    }
}

/// Puts back what a journal has: what a watchdog does.
///
/// # Errors
/// One sentence that says what could not be put back; the journal keeps it.
pub fn restore(machine: &Machine, journal: &Path) -> Result<Vec<String>, String> {
    journal::restore(machine, journal)
}

#[cfg(test)]
mod tests;
