//! Locks a file or block device so that only one process writes to it.
//!
//! The exclusion of concurrent requests (see [`exclusion`](crate::exclusion)) and the identity of a
//! namespace hold within one process; two processes that write to one file would corrupt each
//! other's data. So a file is locked (`flock`) while it is open here: exclusively by a writer,
//! shared by a reader or by a writer that allows other writers.
//!
//! A `flock` lock belongs to the open file description, so a second open in the same process would
//! conflict with the first: a reload opens a file before it closes the old one. A table therefore
//! keeps the locks of this process, and all claims of a file use the same lock.

use crate::OpenError;
use core::time::Duration;
use rustix::{fs::FlockOperation, io::Errno};
use std::{
    fs::File,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Time for a lock to become free: a process that has just exited may hold it until its I/O has
/// ended, and udev locks a block device while it probes it.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(20);

/// The locks held by this process.
static LOCKS: Mutex<Vec<Weak<Lock>>> = Mutex::new(Vec::new());

/// A claim of a file: other processes cannot lock it in a conflicting mode.
#[derive(Debug)]
pub(crate) struct Claim {
    lock: Arc<Lock>,
    shared: bool,
}

/// The lock that all claims of a file share.
#[derive(Debug)]
struct Lock {
    /// The open file description that holds the lock.
    file: Arc<File>,
    what: Identity,
    /// How many claims are not shared. Changes only while [`LOCKS`] is locked.
    exclusive: AtomicUsize,
}

/// Identifies a file independently of its path.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    File { device: u64, inode: u64 },
    Block { device: u64 },
}

/// Claims an open file. The lock is exclusive while one claim of this process is not shared.
pub(crate) fn claim(path: &Path, file: &Arc<File>, shared: bool) -> Result<Claim, OpenError> {
    let what = identity(file).map_err(|error| OpenError::system("stat", path, error))?;
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    locks.retain(|lock| lock.strong_count() > 0);
    let known = locks.iter().filter_map(Weak::upgrade).find(|lock| lock.what == what);
    let is_known = known.is_some();
    let lock = known.unwrap_or_else(|| {
        let exclusive = AtomicUsize::new(0);
        let lock = Arc::new(Lock { file: Arc::clone(file), what, exclusive });
        locks.push(Arc::downgrade(&lock));
        lock
    });
    let is_exclusive = lock.exclusive.load(Relaxed) > 0;
    match if is_exclusive { Ok(()) } else { take(&lock.file, shared) } {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            // The kernel releases the old lock before it tries the new mode.
            if is_known {
                let _ = take(&lock.file, true);
            }
            return Err(OpenError::Invalid(format!(
                "{} is in use by another process, perhaps another target (if both are meant to \
                 have it, give it the option `shared` in both)",
                path.display()
            )));
        }
        Err(error) => log::warn!(
            "{} cannot be locked ({error}): see to it that no other process writes to it",
            path.display()
        ),
    }
    lock.exclusive.fetch_add(usize::from(!shared), Relaxed);
    Ok(Claim { lock, shared })
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let was_last = !self.shared && self.lock.exclusive.fetch_sub(1, Relaxed) == 1;
        if was_last && Arc::strong_count(&self.lock) > 1 {
            // The claims that remain are shared.
            let _ = take(&self.lock.file, true);
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

fn take(file: &File, shared: bool) -> Result<(), Errno> {
    let operation = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let mut waited = Duration::ZERO;
    loop {
        match rustix::fs::flock(file, operation) {
            Err(Errno::WOULDBLOCK) if waited < LOCK_TIMEOUT => {
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

    /// Opens the file as another process would: locks belong to open file descriptions.
    fn opened_by_another(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn open(path: &Path) -> Arc<File> {
        Arc::new(opened_by_another(path))
    }

    #[test]
    fn a_file_has_one_process_unless_both_share_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let exclusive = claim(path, &open(path), false).unwrap();
        let other = opened_by_another(path);
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
    fn a_refused_claim_leaves_no_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let other = opened_by_another(path);
        other.try_lock().unwrap();
        assert!(claim(path, &open(path), false).is_err());
        other.unlock().unwrap();
        let claimed = claim(path, &open(path), false).unwrap();
        assert!(other.try_lock().is_err());
        drop(claimed);
        other.try_lock().unwrap();
    }

    #[test]
    fn a_shared_claim_leaves_this_processs_exclusive_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let other = opened_by_another(path);
        let exclusive = claim(path, &open(path), false).unwrap();
        let shared = claim(path, &open(path), true).expect("the same process");
        assert!(other.try_lock_shared().is_err(), "still locked exclusively");
        drop(exclusive);
        assert!(other.try_lock().is_err());
        other.try_lock_shared().expect("only the shared claim is left");
        assert!(claim(path, &open(path), false).is_err(), "others read it");
        other.unlock().unwrap();
        assert!(other.try_lock().is_err(), "the shared claim remains");
        let again = claim(path, &open(path), false).expect("no other process has it");
        assert!(other.try_lock_shared().is_err());
        drop((shared, again));
        other.try_lock().expect("it is free");
    }
}
