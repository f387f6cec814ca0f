//! Paths that discovery controllers list, now and later.
//!
//! A thread reads their log pages whenever one has changed, or can be read again. A port that is
//! new becomes a path. One that is listed no longer is disconnected as soon as another path that is
//! listed can be used: a discovery controller that has just started, and lists nothing yet, takes
//! no path away.

use std::sync::{Arc, Weak};
use std::thread::Thread;

use super::Group;
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::sources::{Sources, first};

/// A search that goes on until it is dropped.
#[derive(Debug)]
pub(super) struct Search {
    /// The thread ends once it is gone.
    goes_on: Option<Arc<()>>,
    thread: Thread,
}

impl Search {
    /// Makes paths of the ports that are listed, and of those that will be.
    pub(super) fn start(options: &Options, group: &Arc<Group>) -> Result<Self, Error> {
        let (ports, sources) = first(options)?;
        group.add(&ports)?;
        let goes_on = Arc::new(());
        let (group, seen) = (Arc::clone(group), Arc::downgrade(&goes_on));
        let run = move || search(sources, &group, &seen);
        let thread = std::thread::Builder::new().name("weft-paths".into()).spawn(run);
        let thread = thread
            .map_err(|error| Error::Invalid(format!("cannot start a thread: {error}")))?
            .thread()
            .clone();
        Ok(Self { goes_on: Some(goes_on), thread })
    }
}

impl Drop for Search {
    /// The thread ends by itself, and with it a path that it has added meanwhile. It is not waited
    /// for: it may be reading a log page.
    fn drop(&mut self) {
        drop(self.goes_on.take());
        self.thread.unpark();
    }
}

fn search(mut sources: Sources, group: &Group, goes_on: &Weak<()>) {
    sources.wake(std::thread::current());
    loop {
        let are_new = sources.ask();
        if goes_on.strong_count() == 0 {
            return;
        }
        let ports = sources.ports();
        if are_new && let Err(error) = group.add(&ports) {
            log::warn!("a path cannot be added: {error}");
        }
        let is_known = !ports.is_empty() && !sources.is_pending();
        let mut patience = sources.patience();
        if is_known && !group.end_others(&ports) {
            patience = patience.min(limits::UNLISTED_POLL);
        }
        std::thread::park_timeout(patience);
    }
}
