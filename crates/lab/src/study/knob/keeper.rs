//! The journal of a process: one for all that it has changed on its machine, knobs and what the
//! kernel or SPDK were made to have, with one watchdog.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::change::{Change, Machine};
use super::journal::{self, Journal, Watch};

/// What a process has changed on its machine.
pub struct Keeper {
    machine: Machine,
    folder: PathBuf,
    watch: Watch,
    /// Without anything to be put back there is none.
    journal: Mutex<Option<Journal>>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Of a machine, with journals in this folder.
    #[must_use]
    pub fn new(machine: Machine, folder: PathBuf, watch: Watch) -> Self {
        Self { machine, folder, watch, journal: Mutex::default() }
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

    pub(super) const fn machine(&self) -> &Machine {
        &self.machine
    }

    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What something was that this process has changed.
    pub(super) fn before(&self, change: &Change) -> Option<String> {
        self.journal().as_ref()?.before(change)
    }

    /// Notes what something is before it is changed; what has no value is nothing.
    pub(in crate::study) fn note(&self, change: &Change, now: &str) -> Result<(), String> {
        let mut journal = self.journal();
        if journal.is_none() {
            *journal = Some(Journal::begin(&self.folder, &self.watch)?);
        }
        journal.as_mut().map_or(Ok(()), |journal| journal.note(change, now))
    }

    /// Notes what a file holds and writes it: what it holds then.
    pub(in crate::study) fn set(&self, change: &Change) -> Result<String, String> {
        let fault = |why: String| format!("{change} cannot be set to {}: {why}", change.value());
        let now = self.machine.read(change).map_err(fault)?;
        if change.agrees(&now) {
            return Ok(now);
        }
        self.note(change, &now)?;
        self.machine.write(change).map_err(fault)?;
        let is = self.machine.read(change).map_err(fault)?;
        match change.agrees(&is) {
            true => Ok(is),
            false => Err(fault(format!("it is {is} after it was set"))),
        }
    }

    /// Puts back, last first, those of its changes that these are about.
    ///
    /// # Errors
    /// One sentence that says what could not be put back; the journal keeps it.
    pub(in crate::study) fn restore(&self, meant: &[Change]) -> Result<(), String> {
        let mut journal = self.journal();
        let Some(open) = journal.as_mut() else { return Ok(()) };
        let is_meant = |change: &Change| meant.iter().any(|one| one.is_of(change));
        let restored = open.restore(&self.machine, is_meant);
        if open.is_empty() {
            *journal = None;
        }
        restored
    }
}
