//! One process at a time has a file or block device to write to.
//!
//! What keeps requests from disturbing each other (see [`exclusion`](crate::exclusion)), and what
//! a namespace is believed to be, holds within a process; two that wrote to one file would each
//! undo the other's work. So a file is locked (`flock`) for as long as anybody here has it:
//! exclusively by who writes, shared by who only reads or says that others may write, too.
//!
//! A lock belongs to what was opened, not to the process, and so would shut out a second opening
//! by the process that has it: a configuration that is read again opens before it closes. So what
//! this process has locked is kept in one place.

use crate::OpenError;
use core::time::Duration;
use rustix::{fs::FlockOperation, io::Errno};
use std::{
    fs::File,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
};

/// A process that ended a moment ago may still have a file: what it had under way goes first. And
/// udev locks a block device for as long as it looks at it.
const PATIENCE: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(20);

/// What is locked by this process.
static CLAIMS: Mutex<Vec<Weak<Claim>>> = Mutex::new(Vec::new());

/// A file that others are kept out of until the last handle on this is gone.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Holds the lock.
    file: Arc<File>,
    what: Identity,
}

/// Which file, whatever path led to it.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    File { device: u64, inode: u64 },
    Block { device: u64 },
}

/// Claims an open file, together with everybody in this process who has claimed it.
pub(crate) fn claim(path: &Path, file: &Arc<File>, shared: bool) -> Result<Arc<Claim>, OpenError> {
    let what = identity(file).map_err(|error| OpenError::system("look at", path, error))?;
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    claims.retain(|claim| claim.strong_count() > 0);
    let known = claims.iter().filter_map(Weak::upgrade).find(|claim| claim.what == what);
    let claim = known.unwrap_or_else(|| {
        let claim = Arc::new(Claim { file: Arc::clone(file), what });
        claims.push(Arc::downgrade(&claim));
        claim
    });
    match lock(&claim.file, shared) {
        Ok(()) => Ok(claim),
        Err(Errno::WOULDBLOCK) => Err(OpenError::Invalid(format!(
            "{} is in use by another process, perhaps another target (if both are meant to have \
             it, give it the option `shared` in both)",
            path.display()
        ))),
        Err(error) => {
            log::warn!(
                "{} cannot be locked ({error}): see to it that no other process writes to it",
                path.display()
            );
            Ok(claim)
        }
    }
}

fn identity(file: &File) -> std::io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok(match metadata.file_type().is_block_device() {
        true => Identity::Block { device: metadata.rdev() },
        false => Identity::File { device: metadata.dev(), inode: metadata.ino() },
    })
}

fn lock(file: &File, shared: bool) -> Result<(), Errno> {
    let operation = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let mut waited = Duration::ZERO;
    loop {
        match rustix::fs::flock(file, operation) {
            Err(Errno::WOULDBLOCK) if waited < PATIENCE => {
                thread::sleep(RETRY);
                waited += RETRY;
            }
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file as another process has it open: a lock does not tell processes from openings.
    fn as_another(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn open(path: &Path) -> Arc<File> {
        Arc::new(as_another(path))
    }

    #[test]
    fn a_file_has_one_process_unless_both_share_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let exclusive = claim(path, &open(path), false).unwrap();
        let other = as_another(path);
        assert!(other.try_lock_shared().is_err(), "not even to read");
        let again = claim(path, &open(path), false).expect("the same process");
        drop(exclusive);
        assert!(other.try_lock_shared().is_err(), "until the last has gone");
        drop(again);
        other.try_lock_shared().expect("it is free");
        let error = claim(path, &open(path), false).unwrap_err().to_string();
        assert!(error.contains("another process") && error.contains("`shared`"), "{error}");
        let shared = claim(path, &open(path), true).expect("both share it");
        assert!(other.try_lock().is_err());
        drop(shared);
        other.try_lock().expect("it is free again");
        assert!(claim(path, &open(path), true).is_err());
    }

    #[test]
    fn what_was_refused_is_not_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let other = as_another(path);
        other.try_lock().unwrap();
        assert!(claim(path, &open(path), false).is_err());
        other.unlock().unwrap();
        let claimed = claim(path, &open(path), false).unwrap();
        assert!(other.try_lock().is_err());
        drop(claimed);
        other.try_lock().unwrap();
    }
}
