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
//!
//! Of two processes that take turns with the same files one holds the locks at a time
//! ([`lock_devices`], [`unlock_devices`]); the other one has the files open meanwhile.

use crate::OpenError;
use core::time::Duration;
use rustix::{fs::FlockOperation, io::Errno};
use std::{
    fs::File,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Time for a lock to become free: a process that has just exited may hold it until its I/O has
/// ended, and udev locks a block device while it probes it.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(20);

/// The locks of this process.
static LOCKS: Mutex<Table> = Mutex::new(Table::new());

/// Locks, and whether they are held.
#[derive(Debug)]
struct Table {
    locks: Vec<Weak<Lock>>,
    turn: Turn,
}

/// When this process has what it has open for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Always,
    /// It takes turns with another process, and it is its own.
    Own,
    Other,
}

/// A claim of a file: other processes cannot lock it in a conflicting mode.
#[derive(Debug)]
pub(crate) struct Claim {
    table: &'static Mutex<Table>,
    lock: Arc<Lock>,
    shared: bool,
}

/// The lock that all claims of a file share.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
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

/// Takes the locks of all files and block devices that are open, and from now on of what is opened:
/// it is this process's turn to write to them.
///
/// # Errors
/// Another process has one of them: then none is locked.
pub fn lock_devices() -> Result<(), OpenError> {
    lock(&LOCKS).begin_turn()
}

/// Gives up all of these locks, and takes none until [`lock_devices`]: another process may write.
pub fn unlock_devices() {
    lock(&LOCKS).end_turn();
}

/// Whether this process takes turns with another one, which has the same files open as well.
pub(crate) fn takes_turns() -> bool {
    lock(&LOCKS).turn != Turn::Always
}

/// Claims an open file. The lock is exclusive while one claim of this process is not shared.
pub(crate) fn claim(path: &Path, file: &Arc<File>, shared: bool) -> Result<Claim, OpenError> {
    claim_in(&LOCKS, path, file, shared)
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn claim_in(
    table: &'static Mutex<Table>,
    path: &Path,
    file: &Arc<File>,
    shared: bool,
) -> Result<Claim, OpenError> {
    let what = identity(file).map_err(|error| OpenError::system("stat", path, error))?;
    let mut locked = self::lock(table);
    let Table { locks, turn } = &mut *locked;
    locks.retain(|lock| lock.strong_count() > 0);
    let known = locks.iter().filter_map(Weak::upgrade).find(|lock| lock.what == what);
    let is_known = known.is_some();
    let lock = known.unwrap_or_else(|| {
        let (path, exclusive) = (path.to_owned(), AtomicUsize::new(0));
        let lock = Arc::new(Lock { path, file: Arc::clone(file), what, exclusive });
        locks.push(Arc::downgrade(&lock));
        lock
    });
    let needs_none = *turn == Turn::Other || lock.exclusive.load(Relaxed) > 0;
    match if needs_none { Ok(()) } else { take(&lock.file, shared) } {
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
        Err(error) => warn_unlocked(path, error),
    }
    lock.exclusive.fetch_add(usize::from(!shared), Relaxed);
    Ok(Claim { table, lock, shared })
}

fn warn_unlocked(path: &Path, error: Errno) {
    log::warn!(
        "{} cannot be locked ({error}): see to it that no other process writes to it",
        path.display()
    );
}

impl Table {
    const fn new() -> Self {
        Self { locks: Vec::new(), turn: Turn::Always }
    }

    fn begin_turn(&mut self) -> Result<(), OpenError> {
        for lock in self.locks.iter().filter_map(Weak::upgrade) {
            let is_shared = lock.exclusive.load(Relaxed) == 0;
            match take(&lock.file, is_shared) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    self.end_turn();
                    return Err(OpenError::Invalid(format!(
                        "{} is in use by another process: see that both members of a pair have \
                         the same lock file, and that nothing else serves it",
                        lock.path.display()
                    )));
                }
                Err(error) => warn_unlocked(&lock.path, error),
            }
        }
        self.turn = Turn::Own;
        Ok(())
    }

    fn end_turn(&mut self) {
        self.turn = Turn::Other;
        for lock in self.locks.iter().filter_map(Weak::upgrade) {
            if let Err(error) = rustix::fs::flock(&lock.file, FlockOperation::Unlock) {
                log::debug!("{} cannot be unlocked: {error}", lock.path.display());
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let table = lock(self.table);
        let was_last = !self.shared && self.lock.exclusive.fetch_sub(1, Relaxed) == 1;
        if was_last && table.turn != Turn::Other && Arc::strong_count(&self.lock) > 1 {
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

    /// The other process has its files open, and each in its turn has the locks.
    #[test]
    fn processes_that_take_turns_have_locks_in_their_own_turn_only() {
        let files = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let [one, two] = files.each_ref().map(|file| file.path());
        let table: &'static Mutex<Table> = Box::leak(Box::new(Mutex::new(Table::new())));
        let others = [one, two].map(opened_by_another);
        others[0].try_lock().unwrap();
        lock(table).end_turn();
        let first = claim_in(table, one, &open(one), false).expect("it is only opened");
        let error = lock(table).begin_turn().unwrap_err().to_string();
        assert!(error.contains("is in use by another process"), "{error}");
        others[0].unlock().unwrap();
        let second = claim_in(table, two, &open(two), true).unwrap();
        others[1].try_lock().expect("it is not locked after a turn that was refused");
        assert!(lock(table).begin_turn().is_err());
        others[0].try_lock().expect("none of them is");
        others.iter().for_each(|other| other.unlock().unwrap());
        lock(table).begin_turn().unwrap();
        assert!(others[0].try_lock_shared().is_err(), "a writer's is exclusive");
        assert!(others[1].try_lock().is_err() && others[1].try_lock_shared().is_ok());
        others[1].unlock().unwrap();
        let third = claim_in(table, two, &open(two), false).expect("opened in its turn");
        assert!(others[1].try_lock_shared().is_err());
        lock(table).end_turn();
        others.iter().for_each(|other| other.try_lock().unwrap());
        drop((first, second, third));
        others.iter().for_each(|other| other.unlock().unwrap());
        assert!(lock(table).begin_turn().is_ok(), "what is closed is not locked");
        others[0].try_lock().unwrap();
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
