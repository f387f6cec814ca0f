//! What was changed on this machine for a host or target that is not weft.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::study::knob::Keeper;
use crate::study::knob::change::Change;
use crate::study::site::SpdkTools;

/// The kernel of this machine, as host and as target.
#[derive(Debug)]
pub struct Linux {
    keeper: Arc<Keeper>,
    /// Where SPDK's programs are.
    spdk: Mutex<SpdkTools>,
}

impl Linux {
    /// One whose changes are kept here.
    #[must_use]
    pub fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, spdk: Mutex::default() }
    }

    /// Says where SPDK's programs are.
    pub(in crate::study) fn use_spdk(&self, tools: SpdkTools) {
        *self.spdk.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    pub(in crate::study) fn spdk(&self) -> SpdkTools {
        self.spdk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Undoes what dead processes have left, and says what.
    #[must_use]
    pub fn restore_left(&self) -> Vec<String> {
        self.keeper.restore_left()
    }
}

/// Changes that belong together. They are undone when this is dropped.
#[derive(Debug)]
pub(in crate::study) struct Changes {
    linux: Arc<Linux>,
    all: Vec<Change>,
}

impl Changes {
    pub(in crate::study) fn new(linux: &Arc<Linux>) -> Self {
        Self { linux: Arc::clone(linux), all: Vec::new() }
    }

    /// Notes how the next change is undone.
    pub(in crate::study) fn note(&mut self, change: Change) -> Result<(), String> {
        self.linux.keeper.note(&change, "")?;
        self.all.push(change);
        Ok(())
    }

    /// Writes a file below the root, which is read back.
    pub(super) fn set_file(&mut self, path: &str, value: &str) -> Result<String, String> {
        let change = Change::File { path: path.into(), value: value.to_owned() };
        // Noted by then, if anything was.
        let set = self.linux.keeper.set(&change);
        self.all.push(change);
        set
    }

    /// Makes a folder.
    pub(super) fn make_folder(&mut self, path: &Path) -> Result<(), String> {
        self.note(Change::Made { path: path.to_owned() })?;
        fs::create_dir(path).map_err(|error| format!("{} cannot be made: {error}", path.display()))
    }

    /// Undoes them.
    pub(in crate::study) fn undo(&mut self) -> Result<(), String> {
        self.linux.keeper.restore(&std::mem::take(&mut self.all))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // What fails stays in the journal: the watchdog tries again, and the next process.
        let _ = self.undo();
    }
}
