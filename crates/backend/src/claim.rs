//! Locks a file or block device so that only one process writes to it.
//!
//! The exclusion of concurrent requests (see [`exclusion`](crate::exclusion)) and the identity of a
//! namespace hold within one process; two processes that write to one file would corrupt each
//! other's data. So a file is locked (`flock`) while it is open here: exclusively by a writer,
//! shared by a reader or by a writer that allows other writers.
//!
//! A node of a block device is one of many: so what the device has its blocks on is locked as well,
//! beginning with the node that the kernel has made for it. What has other parts is only shared.
//!
//! A `flock` lock belongs to the open file description, so a second open in the same process would
//! conflict with the first: a reload opens a file before it closes the old one, and two subsystems
//! may serve one. A table therefore keeps the locks of this process, and all claims of one storage
//! use the same lock, and share what its devices have in common ([`Storage`]).
//!
//! A file that the process itself keeps, such as its state, is for no device ([`OwnFile`]).
//!
//! Of two processes that take turns with the same files one holds the locks at a time
//! ([`lock_devices`], [`unlock_devices`]); the other one has the files open meanwhile.

use crate::storage::{UnderlyingStorage, part_beside_whole, same_blocks};
use crate::{OpenError, Storage, StorageId};
use core::time::Duration;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

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
    /// The files of this process itself, by canonical path: how often, and what is there.
    own: BTreeMap<PathBuf, (usize, Option<StorageId>)>,
    /// Those of them that stay so.
    kept: BTreeSet<PathBuf>,
    turn: Turn,
}

/// A file that this process itself reads or writes: while this lives no device stands on it,
/// whatever the path.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    canonical: PathBuf,
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

/// The lock that all claims of a storage share.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    /// The open file descriptions that hold the locks.
    files: Vec<LockedFile>,
    storage: Arc<Storage>,
    /// How many claims are not shared. Changes only while [`LOCKS`] is locked.
    exclusive: AtomicUsize,
}

/// A file that is locked.
#[derive(Debug)]
struct LockedFile {
    file: Arc<File>,
    /// Whether other processes may have other parts of it.
    has_parts: bool,
}

/// What is claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimedFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a Arc<File>,
    pub(crate) id: &'a StorageId,
    /// Whether this process has made it, empty.
    pub(crate) is_created: bool,
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

/// Whether this process has it open already.
pub(crate) fn is_claimed(id: &StorageId) -> bool {
    lock(&LOCKS).live().iter().any(|lock| lock.storage.id() == id)
}

/// Another file may be at this path from now on.
pub(crate) fn note_replaced(path: &Path) {
    if let Some((_, id)) = lock(&LOCKS).own.get_mut(path) {
        *id = StorageId::of(path);
    }
}

/// Whether a path leads to a file of this process itself, which is for no device.
pub(crate) fn check_not_own(path: &Path) -> Result<(), OpenError> {
    lock(&LOCKS).check_not_own(path, StorageId::of(path).as_ref())
}

impl OwnFile {
    /// The file at this path, which need not exist yet.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let canonical = crate::files::canonical(path);
        let mut table = lock(&LOCKS);
        let (count, id) = table.own.entry(canonical.clone()).or_default();
        (*count, *id) = (*count + 1, StorageId::of(path));
        Self { path: path.to_owned(), canonical }
    }

    /// The file at this path is one until the process ends.
    pub fn keep(path: &Path) {
        let (canonical, is) = (crate::files::canonical(path), StorageId::of(path));
        let mut table = lock(&LOCKS);
        let is_new = table.kept.insert(canonical.clone());
        let (count, id) = table.own.entry(canonical).or_default();
        (*count, *id) = (*count + usize::from(is_new), is);
    }
}

impl Deref for OwnFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let own = &mut lock(&LOCKS).own;
        if let Some((count, _)) = own.get_mut(&self.canonical) {
            *count -= 1;
            if *count == 0 {
                own.remove(&self.canonical);
            }
        }
    }
}

/// Claims what is open. The lock is exclusive while one claim of this process is not shared.
pub(crate) fn claim(claimed: ClaimedFile<'_>, shared: bool) -> Result<Claim, OpenError> {
    claim_in(&LOCKS, claimed, shared)
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn claim_in(
    table: &'static Mutex<Table>,
    claimed: ClaimedFile<'_>,
    shared: bool,
) -> Result<Claim, OpenError> {
    let ClaimedFile { path, file, id, is_created } = claimed;
    let mut locked = self::lock(table);
    locked.check_not_own(path, Some(id))?;
    let locks = locked.live();
    let known = locks.iter().find(|lock| lock.storage.id() == id).cloned();
    let is_known = known.is_some();
    if !is_known {
        check_parts(path, id, &locks)?;
    }
    let lock = known.unwrap_or_else(|| {
        let (path, exclusive) = (path.to_owned(), AtomicUsize::new(0));
        let storage = Storage::new(id.clone(), is_created);
        Arc::new(Lock { path, files: files_of(file, id), storage, exclusive })
    });
    let needs_none = locked.turn == Turn::Other || lock.exclusive.load(Relaxed) > 0;
    match if needs_none { Ok(()) } else { lock.take(shared) } {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            // The kernel releases the old lock before it tries the new mode.
            if is_known {
                let _ = lock.take(true);
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
    if !is_known {
        locked.locks.push(Arc::downgrade(&lock));
    }
    Ok(Claim { table, lock, shared })
}

/// A part beside its whole would not exclude its writes: there are two storages of one set of
/// blocks.
fn check_parts(path: &Path, id: &StorageId, locks: &[Arc<Lock>]) -> Result<(), OpenError> {
    if !id.is_block() && !locks.iter().any(|lock| lock.storage.id().is_block()) {
        return Ok(());
    }
    let own = id.wholes();
    // All files of a file system have the same wholes.
    let mut of_systems: BTreeMap<u64, BTreeSet<StorageId>> = BTreeMap::new();
    for lock in locks {
        let (part, whole) = match lock.storage.id() {
            other if own.contains(other) => (path, &*lock.path),
            StorageId::File { device, .. }
                if of_systems
                    .entry(*device)
                    .or_insert_with(|| lock.storage.id().wholes())
                    .contains(id) =>
            {
                (&*lock.path, path)
            }
            other @ StorageId::Block { .. } if other.wholes().contains(id) => (&*lock.path, path),
            other if other.overlaps(id) => {
                return Err(OpenError::Invalid(same_blocks(path, &lock.path)));
            }
            _ => continue,
        };
        return Err(OpenError::Invalid(part_beside_whole(part, whole)));
    }
    Ok(())
}

fn warn_unlocked(path: &Path, error: Errno) {
    log::warn!(
        "{} cannot be locked ({error}): see to it that no other process writes to it",
        path.display()
    );
}

impl Table {
    const fn new() -> Self {
        Self { locks: Vec::new(), own: BTreeMap::new(), kept: BTreeSet::new(), turn: Turn::Always }
    }

    fn check_not_own(&self, path: &Path, id: Option<&StorageId>) -> Result<(), OpenError> {
        // Another file may have the number of one that has gone.
        let is_it = |(own, (_, known)): (&PathBuf, &(usize, Option<StorageId>))| {
            known.is_some() && known.as_ref() == id && StorageId::of(own).as_ref() == id
        };
        let is_there = |own: &BTreeMap<_, _>| {
            own.contains_key(&crate::files::canonical(path)) || own.iter().any(is_it)
        };
        match is_there(&self.own) {
            false => Ok(()),
            true => Err(OpenError::Invalid(format!(
                "{} is a file that this process keeps for itself: name another one",
                path.display()
            ))),
        }
    }

    /// The locks of what is open.
    fn live(&mut self) -> Vec<Arc<Lock>> {
        self.locks.retain(|lock| lock.strong_count() > 0);
        self.locks.iter().filter_map(Weak::upgrade).collect()
    }

    fn begin_turn(&mut self) -> Result<(), OpenError> {
        for lock in self.locks.iter().filter_map(Weak::upgrade) {
            let is_shared = lock.exclusive.load(Relaxed) == 0;
            match lock.take(is_shared) {
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
            for LockedFile { file, .. } in &lock.files {
                if let Err(error) = rustix::fs::flock(file, FlockOperation::Unlock) {
                    log::debug!("{} cannot be unlocked: {error}", lock.path.display());
                }
            }
        }
    }
}

impl Claim {
    /// What all devices on it share.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.lock.storage
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let table = lock(self.table);
        let was_last = !self.shared && self.lock.exclusive.fetch_sub(1, Relaxed) == 1;
        if was_last && table.turn != Turn::Other && Arc::strong_count(&self.lock) > 1 {
            // The claims that remain are shared.
            let _ = self.lock.take(true);
        }
    }
}

impl Lock {
    fn take(&self, shared: bool) -> Result<(), Errno> {
        self.files.iter().try_for_each(|locked| take(&locked.file, shared || locked.has_parts))
    }
}

/// What was made for something that is not possible is not left behind.
impl Drop for Lock {
    fn drop(&mut self) {
        let path = &self.path;
        let is_its = || StorageId::of(path).as_ref() == Some(self.storage.id());
        // Whoever has written to it wants it.
        let is_empty = || path.metadata().is_ok_and(|metadata| metadata.blocks() == 0);
        if self.storage.is_on_trial() && is_its() && is_empty() {
            match std::fs::remove_file(path) {
                Ok(()) => log::info!("{}, which was created, is removed", path.display()),
                Err(error) => log::warn!("{} cannot be removed: {error}", path.display()),
            }
        }
    }
}

/// What is to be locked for a storage that was opened as `file`.
fn files_of(file: &Arc<File>, id: &StorageId) -> Vec<LockedFile> {
    let mut files = vec![LockedFile { file: Arc::clone(file), has_parts: false }];
    let open = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(File::from)
    };
    let is_own = |other: &File| {
        let inode = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        inode(other).ok() == inode(file).ok()
    };
    for UnderlyingStorage { id, path, has_parts } in id.beneath() {
        match open(&path) {
            Ok(file) if is_own(&file) => {}
            Ok(file) if file.metadata().is_ok_and(|it| StorageId::of_metadata(&it) == id) => {
                files.push(LockedFile { file: Arc::new(file), has_parts });
            }
            Ok(_) | Err(_) if matches!(id, StorageId::File { .. }) => log::warn!(
                "a loop device has its blocks in a file that is not at {} here: see to it that \
                 no other process writes to that file",
                path.display()
            ),
            Ok(_) => log::debug!("{} is another device here", path.display()),
            Err(error) => log::debug!("{} cannot be opened: {error}", path.display()),
        }
    }
    files
}

pub(crate) fn take(file: &File, shared: bool) -> Result<(), Errno> {
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

    fn claim(path: &Path, file: &Arc<File>, shared: bool) -> Result<Claim, OpenError> {
        claim_in(&LOCKS, path, file, shared)
    }

    fn claim_in(
        table: &'static Mutex<Table>,
        path: &Path,
        file: &Arc<File>,
        shared: bool,
    ) -> Result<Claim, OpenError> {
        let id = &StorageId::of_metadata(&file.metadata().unwrap());
        super::claim_in(table, ClaimedFile { path, file, id, is_created: false }, shared)
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
        // A process that another test starts has the file until it executes its program.
        take(&other, false).unwrap();
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
