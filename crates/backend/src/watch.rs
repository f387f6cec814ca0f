//! Notices that a file which is open loses a name or is moved, without looking for it again and
//! again: a thread sleeps until the kernel says so (inotify).

use crate::Storage;
use core::mem::MaybeUninit;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::{io, thread};

/// Room for some events; the kernel keeps the others.
const EVENTS_BYTES: usize = 4096;

static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();

#[derive(Debug)]
struct Watcher {
    inotify: OwnedFd,
    watched: Mutex<BTreeMap<i32, WatchEntry>>,
}

#[derive(Debug)]
struct WatchEntry {
    storage: Weak<Storage>,
    /// How many open files watch it.
    watches: usize,
}

/// A file is watched as long as this lives.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: &'static Watcher,
    number: i32,
}

impl Watch {
    /// Tells who has asked the storage. None: the kernel does not tell of this file; then it is
    /// looked at when somebody asks.
    pub(crate) fn new(file: &File, storage: &Arc<Storage>) -> Option<Self> {
        let watcher = WATCHER.get_or_init(|| started(Watcher::start())).as_ref()?;
        // The file that is open, whatever its path leads to now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let names = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
        let mut watched = watcher.watched();
        let number = inotify::add_watch(&watcher.inotify, path, names);
        let number =
            number.inspect_err(|error| log::debug!("a file is not watched: {error}")).ok()?;
        let one = watched
            .entry(number)
            .or_insert_with(|| WatchEntry { storage: Weak::new(), watches: 0 });
        one.storage = Arc::downgrade(storage);
        one.watches += 1;
        Some(Self { watcher, number })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.watcher.watched();
        let Some(one) = watched.get_mut(&self.number) else { return };
        one.watches -= 1;
        if one.watches == 0 {
            watched.remove(&self.number);
            // It may have gone with the file.
            let _ = inotify::remove_watch(&self.watcher.inotify, self.number);
        }
    }
}

fn started(watcher: io::Result<Watcher>) -> Option<Watcher> {
    watcher.inspect_err(|error| log::debug!("files are not watched: {error}")).ok()
}

impl Watcher {
    fn start() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC)?;
        thread::Builder::new().name("weft-files".to_owned()).spawn(|| {
            // It is started while the watcher is made.
            if let Some(watcher) = WATCHER.wait() {
                watcher.tell();
            }
        })?;
        Ok(Self { inotify, watched: Mutex::default() })
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<i32, WatchEntry>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let mut memory = [const { MaybeUninit::uninit() }; EVENTS_BYTES];
        let mut events = Reader::new(&self.inotify, &mut memory);
        loop {
            let number = match events.next() {
                Ok(event) => event.wd(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return log::warn!("files are no longer watched: {error}"),
            };
            let storage = self.watched().get(&number).and_then(|one| one.storage.upgrade());
            storage.iter().for_each(|storage| storage.tell());
        }
    }
}
