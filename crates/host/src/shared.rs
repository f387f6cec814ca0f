//! What the parts of one controller share: the words that they send each other, and a small
//! board that everyone may look at. The board has a lock and is for the control plane alone;
//! no request looks at it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_nvmf::host::{ControllerKind, ControllerSnapshot, Event, HostConfig, Problem};
use weft_reactor::Postbox;

use crate::error::Error;
use crate::limits;
use crate::options::Options;

/// A controller that I/O queues may connect to.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) snapshot: Arc<ControllerSnapshot>,
    pub(crate) address: SocketAddr,
}

/// From the owner of the admin queue to an I/O queue.
#[derive(Debug, Clone)]
pub(crate) enum QueueWord {
    /// Connect to this controller; I/O goes on.
    Live(Link),
    /// The namespaces changed.
    Changed(Arc<ControllerSnapshot>),
    /// Let go of the connection; I/O waits.
    Suspend,
    /// I/O fails until the next `Live`.
    FailIo,
    /// It is over.
    Ended,
}

/// To the owner of the admin queue, from an I/O queue.
#[derive(Debug)]
pub(crate) enum DriverWord {
    /// An I/O queue was opened and wants to hear.
    Opened { queue_id: u16, postbox: Postbox<QueueWord>, activity: Arc<Activity> },
    /// It was closed; its identifier is free again.
    Closed { queue_id: u16 },
    /// It lost its connection to the controller of this generation.
    Lost { queue_id: u16, generation: u32, problem: Problem },
}

/// A sign of life of an I/O queue, for keep-alive by traffic: a command that went out since the
/// last look for one, and was answered. The controller counts commands as they come, so the answer
/// to an older one says nothing of how long its timer still runs.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    seen: AtomicBool,
    looks: AtomicU32,
}

impl Activity {
    pub(crate) fn note(&self) {
        if !self.seen.load(Ordering::Relaxed) {
            self.seen.store(true, Ordering::Relaxed);
        }
    }

    /// Changes with each look.
    pub(crate) fn looks(&self) -> u32 {
        self.looks.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.seen.swap(false, Ordering::Relaxed)
    }
}

/// Where a controller stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerState {
    /// On its way up for the first time.
    Connecting,
    /// In use.
    Live,
    /// Lost, and looked for.
    Reconnecting,
    /// Gone for good: because of a problem, or because the user disconnected.
    Ended(Option<Problem>),
}

#[derive(Debug)]
struct Board {
    state: ControllerState,
    snapshot: Option<Arc<ControllerSnapshot>>,
    /// By queue identifier; the admin queue's place is taken from the start.
    queues_taken: Vec<bool>,
    /// The identifier that was given out last: the one that was free longest comes next.
    last_queue: usize,
    events: VecDeque<Event>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) config: HostConfig,
    pub(crate) postbox: Postbox<DriverWord>,
    board: Mutex<Board>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        kind: ControllerKind,
        postbox: Postbox<DriverWord>,
    ) -> Result<Self, Error> {
        options.check()?;
        let subsystem = match (kind, options.address.subnqn) {
            (_, Some(subnqn)) => subnqn,
            (ControllerKind::Discovery, None) => weft_nvme::Nqn::DISCOVERY,
            (ControllerKind::Nvm, None) => {
                let what = format!("{} names no subsystem (NQN)", options.address);
                return Err(Error::Invalid(what));
            }
        };
        let config = HostConfig {
            subsystem,
            host: options.hostnqn,
            host_id: options.hostid,
            kind,
            keep_alive_timeout: options.keep_alive_tmo,
            io_queues: options.nr_io_queues,
            queue_entries: options.queue_size,
            disable_flow_control: options.disable_sqflow,
            reconnect: options.reconnect_policy(),
            open_timeout: options.connect_timeout,
            admin_timeout: options.admin_timeout,
        };
        let board = Board {
            state: ControllerState::Connecting,
            snapshot: None,
            queues_taken: vec![true],
            last_queue: 0,
            events: VecDeque::new(),
        };
        let board = Mutex::new(board);
        Ok(Self { options, config, postbox, board, changed: Condvar::new() })
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // Nobody leaves it half changed.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> ControllerState {
        self.board().state.clone()
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<ControllerSnapshot>> {
        self.board().snapshot.clone()
    }

    pub(crate) fn set_state(&self, state: ControllerState) {
        self.board().state = state;
        self.changed.notify_all();
    }

    pub(crate) fn set_snapshot(&self, snapshot: Arc<ControllerSnapshot>) {
        self.board().snapshot = Some(snapshot);
    }

    pub(crate) fn push_event(&self, event: Event) {
        let mut board = self.board();
        if board.events.len() == limits::EVENTS_MAX {
            board.events.pop_front();
        }
        board.events.push_back(event);
        drop(board);
        self.changed.notify_all();
    }

    /// The oldest event that nobody has seen, waited for at most so long.
    pub(crate) fn next_event(&self, patience: Duration) -> Option<Event> {
        let board = self.board();
        let nothing = |board: &mut Board| {
            board.events.is_empty() && !matches!(board.state, ControllerState::Ended(_))
        };
        let waited = self.changed.wait_timeout_while(board, patience, nothing);
        let (mut board, _) = waited.unwrap_or_else(PoisonError::into_inner);
        board.events.pop_front()
    }

    /// Waits until the controller is live for the first time, or is not going to be.
    pub(crate) fn wait_for_first(&self) -> ControllerState {
        let connecting = |board: &mut Board| board.state == ControllerState::Connecting;
        let waited = self.changed.wait_while(self.board(), connecting);
        waited.unwrap_or_else(PoisonError::into_inner).state.clone()
    }

    /// The controller's problem as an error of this controller.
    pub(crate) fn error(&self, problem: Problem) -> Error {
        Error::Controller { address: self.options.address.to_string(), problem }
    }

    /// Takes an I/O queue identifier that nobody has.
    pub(crate) fn take_queue(&self) -> Result<u16, String> {
        let mut board = self.board();
        let granted = board.snapshot.as_ref().map_or(0, |snapshot| snapshot.controller.io_queues);
        let places = usize::from(granted) + 1;
        if board.queues_taken.len() < places {
            board.queues_taken.resize(places, false);
        }
        let from = board.last_queue + 1;
        let mut candidates = (from..places).chain(1..from.min(places));
        match candidates.find(|candidate| !board.queues_taken[*candidate]) {
            Some(free) => {
                board.queues_taken[free] = true;
                board.last_queue = free;
                Ok(u16::try_from(free).unwrap_or(u16::MAX))
            }
            None => Err(format!(
                "all {granted} I/O queues of the controller are in use; ask for more \
                 (nr_io_queues), or the controller grants no more"
            )),
        }
    }

    pub(crate) fn give_queue_back(&self, queue_id: u16) {
        if let Some(taken) = self.board().queues_taken.get_mut(usize::from(queue_id)) {
            *taken = false;
        }
    }
}
