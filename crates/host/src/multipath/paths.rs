//! The paths to a subsystem, which may become others while devices use them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weft_reactor::{Mailbox, MailboxSender, Reactor};

use crate::shared::Shared;

/// The paths of a subsystem, for all its devices.
#[derive(Debug)]
pub(super) struct Paths {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    all: Vec<Arc<Shared>>,
    devices: Vec<(Weak<()>, MailboxSender<Arc<Shared>>)>,
}

/// What a device hears of paths that were added after it was opened. It learns from the path itself
/// that one has ended.
#[derive(Debug)]
pub(super) struct AddedPaths {
    mailbox: Mailbox<Arc<Shared>>,
    /// Nothing more is posted once it is gone.
    _listens: Arc<()>,
}

impl AddedPaths {
    pub(super) fn take(&self) -> Option<Arc<Shared>> {
        self.mailbox.take()
    }
}

impl Paths {
    pub(super) fn new(all: Vec<Arc<Shared>>) -> Self {
        Self { state: Mutex::new(State { all, devices: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Its state is valid even if a panic poisoned it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Arc<Shared>> {
        self.lock().all.clone()
    }

    /// The paths from now on. Devices open those that are new to them.
    pub(super) fn set(&self, all: Vec<Arc<Shared>>) {
        let mut state = self.lock();
        state.devices.retain(|(listens, _)| listens.strong_count() > 0);
        for path in &all {
            if !state.all.iter().any(|known| Arc::ptr_eq(known, path)) {
                state.devices.iter().for_each(|(_, device)| device.post(Arc::clone(path)));
            }
        }
        state.all = all;
    }

    /// The paths as they are, and for a device on this reactor what is added later.
    pub(super) fn subscribe(&self, reactor: &Reactor) -> (Vec<Arc<Shared>>, AddedPaths) {
        let (postbox, mailbox) = reactor.mailbox();
        let listens = Arc::new(());
        let mut state = self.lock();
        state.devices.push((Arc::downgrade(&listens), postbox));
        (state.all.clone(), AddedPaths { mailbox, _listens: listens })
    }
}
