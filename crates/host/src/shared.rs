//! What the parts of a controller share: their messages, and a state behind a lock that only the
//! control plane takes, no request.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use weft_nvme::Nqn;
use weft_nvmf::auth::{Policy, Random, Secret};
use weft_nvmf::host::{
    ControllerKind, ControllerSnapshot, Credentials, Event, HostConfig, Problem, Transport,
};
use weft_nvmf::keys::IdentityVersion;
use weft_reactor::{MailboxSender, Marking, Reactor};
use weft_transport::CloseReason;
use weft_transport::host::HostConnection;
use weft_transport::tls::{TlsConnector, TlsFault, TlsRecords};

use crate::error::Error;
use crate::limits;
use crate::options::Options;

/// A controller that I/O queues may connect to.
#[derive(Debug, Clone)]
pub(crate) struct LiveController {
    pub(crate) snapshot: Arc<ControllerSnapshot>,
    pub(crate) address: SocketAddr,
    pub(crate) security: Security,
    pub(crate) credentials: Option<Credentials>,
}

/// The host's secret, and the controller's if it has to prove that it has that.
pub(crate) type Secrets = (Secret, Option<Secret>);

/// What is below connections: TLS, if there is a connector, or why they cannot be made.
pub(crate) type Security = Result<Option<TlsConnector>, TlsFault>;

/// Puts TLS below a connection that has just begun, or ends it if that is not possible.
pub(crate) fn secure(security: &Security, reactor: &mut Reactor, connection: &mut HostConnection) {
    let secured = match security {
        Ok(None) => Ok(()),
        Ok(Some(connector)) => connection.secure(connector),
        Err(fault) => Err(*fault),
    };
    if let Err(fault) = secured {
        connection.close(reactor, CloseReason::Tls(fault));
    }
}

/// From the owner of the admin queue to an I/O queue.
#[derive(Debug, Clone)]
pub(crate) enum QueueMessage {
    /// Connect to this controller; I/O continues.
    Live(LiveController),
    /// The namespaces changed.
    Changed(Arc<ControllerSnapshot>),
    /// Authenticate again, with these credentials from now on.
    Authenticate(Option<Credentials>),
    /// Connections that are made from now on have this below them.
    Renew(Security),
    /// Disconnect; I/O waits. Whether the controller has ended a connection by itself.
    Suspend { by_peer: bool },
    /// I/O fails until the next `Live`.
    FailIo,
    /// The controller has ended.
    Ended,
}

/// To the owner of the admin queue, from an I/O queue.
#[derive(Debug)]
pub(crate) enum DriverMessage {
    /// An I/O queue was opened and wants messages.
    Opened { queue_id: u16, postbox: MailboxSender<QueueMessage>, activity: Arc<Activity> },
    /// It was closed; its identifier is free again.
    Closed { queue_id: u16 },
    /// It lost its connection to the controller of this generation; whether the controller has
    /// ended it.
    Lost { queue_id: u16, generation: u32, problem: Problem, by_peer: bool },
    /// It was authenticated again at the controller of this generation, or was not.
    Authenticated { queue_id: u16, generation: u32, result: Result<(), Problem> },
    /// It was refused a command because of an access state.
    AccessRefused,
}

/// A sign of life of an I/O queue, for keep-alive by traffic: a command that went out since the
/// last poll, and was answered. The controller counts commands as they come, so the answer
/// to an older one says nothing of how long its timer still runs.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    seen: AtomicBool,
    polls: AtomicU32,
}

impl Activity {
    pub(crate) fn note(&self) {
        if !self.seen.load(Ordering::Relaxed) {
            self.seen.store(true, Ordering::Relaxed);
        }
    }

    /// The number of polls.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.seen.swap(false, Ordering::Relaxed)
    }
}

/// The state of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerState {
    /// Connecting for the first time.
    Connecting,
    /// Connected.
    Live,
    /// Lost, and reconnecting.
    Reconnecting,
    /// Ended: because of a problem, or because the user disconnected.
    Ended(Option<Problem>),
}

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionEnds {
    /// Its transport.
    pub transport: Transport,
    /// The host's address.
    pub local: SocketAddr,
    /// The controller's.
    pub remote: SocketAddr,
    /// How what the host sends is marked, as it was read back; only over TCP.
    pub marking: Option<Marking>,
    /// Who has the records of TLS; none without TLS.
    pub tls_records: Option<TlsRecords>,
}

#[derive(Debug)]
struct State {
    state: ControllerState,
    snapshot: Option<Arc<ControllerSnapshot>>,
    /// That of the admin queue; I/O queues use the same transport and address.
    ends: Option<ConnectionEnds>,
    /// By queue identifier; that of the admin queue is in use from the start.
    queue_ids_in_use: Vec<bool>,
    /// The identifier that was allocated last: the one that was free longest comes next.
    last_queue: usize,
    events: VecDeque<Event>,
    /// Who is woken by each event and each other state.
    waiter: Option<Thread>,
}

/// What the host authenticates itself with: its secret, and the controller's if that has to prove
/// itself.
pub(crate) fn credentials(options: &Options, (own, controllers): Secrets) -> Credentials {
    let policy = Policy::new(own, controllers);
    let policy = Arc::new(Policy { requires_channel: options.concat, ..policy });
    let random = || weft_reactor::system::random_bytes().ok().map(Random::new);
    Credentials { policy, random }
}

/// What TLS connections to a subsystem begin with; none without TLS. The controller chooses one of
/// both versions of the identity; the driver offers the last one alone if both are refused.
fn connector(options: &Options, subsystem: &Nqn) -> Result<Option<TlsConnector>, Error> {
    if options.concat {
        // Not only when there is a key: a program without TLS says so at once.
        let told = |fault: TlsFault| Error::Invalid(fault.to_string());
        return TlsConnector::new(Vec::new(), options.tls_records).map(|_| None).map_err(told);
    }
    let Some(key) = &options.tls_key else { return Ok(None) };
    let (host, subsystem) = (options.hostnqn.as_str(), subsystem.as_str());
    let versions = [IdentityVersion::V1, IdentityVersion::V0].iter();
    let psks = versions.filter_map(|one| key.psk(*one, options.tls_derivation, host, subsystem));
    let connector = TlsConnector::new(psks.collect(), options.tls_records);
    connector.map(Some).map_err(|fault| Error::Invalid(fault.to_string()))
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) config: HostConfig,
    pub(crate) postbox: MailboxSender<DriverMessage>,
    /// If connections have TLS with a configured key.
    pub(crate) tls: Option<TlsConnector>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        kind: ControllerKind,
        postbox: MailboxSender<DriverMessage>,
    ) -> Result<Self, Error> {
        options.check()?;
        let subsystem = match (kind, options.address.subnqn) {
            (_, Some(subnqn)) => subnqn,
            (ControllerKind::Discovery, None) => Nqn::DISCOVERY,
            (ControllerKind::Nvm, None) => {
                let what = format!("{} names no subsystem (NQN)", options.address);
                return Err(Error::Invalid(what));
            }
        };
        let tls = connector(&options, &subsystem)?;
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
            credentials: options
                .dhchap_secret
                .clone()
                .map(|own| credentials(&options, (own, options.dhchap_ctrl_secret.clone()))),
            authenticate_every: options.dhchap_interval,
            multipath: options.multipath,
        };
        let state = State {
            state: ControllerState::Connecting,
            snapshot: None,
            ends: None,
            queue_ids_in_use: vec![true],
            last_queue: 0,
            events: VecDeque::new(),
            waiter: None,
        };
        let state = Mutex::new(state);
        Ok(Self { options, config, postbox, tls, state, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Its state is valid even if a panic poisoned it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> ControllerState {
        self.lock().state.clone()
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<ControllerSnapshot>> {
        self.lock().snapshot.clone()
    }

    pub(crate) fn ends(&self) -> Option<ConnectionEnds> {
        self.lock().ends
    }

    pub(crate) fn set_ends(&self, ends: ConnectionEnds) {
        self.lock().ends = Some(ends);
    }

    pub(crate) fn set_state(&self, state: ControllerState) {
        self.change(|own| own.state = state);
    }

    pub(crate) fn set_snapshot(&self, snapshot: Arc<ControllerSnapshot>) {
        self.lock().snapshot = Some(snapshot);
    }

    pub(crate) fn push_event(&self, event: Event) {
        self.change(|state| {
            if state.events.len() == limits::EVENTS_MAX {
                state.events.pop_front();
            }
            // Whoever sees a loss sees its reason, and whoever sees the reason sees the loss.
            if matches!(event, Event::Lost { .. } | Event::AttemptFailed { .. }) {
                state.state = ControllerState::Reconnecting;
            }
            state.events.push_back(event);
        });
    }

    /// Changes what others wait for.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waiter = state.waiter.clone();
        drop(state);
        self.changed.notify_all();
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
    }

    /// Unparks this thread from now on whenever the state changes or an event comes.
    pub(crate) fn wake(&self, waiter: Thread) {
        self.lock().waiter = Some(waiter);
    }

    /// The oldest event that was not returned yet; waits for one at most this long.
    pub(crate) fn next_event(&self, patience: Duration) -> Option<Event> {
        let state = self.lock();
        let nothing = |state: &mut State| {
            state.events.is_empty() && !matches!(state.state, ControllerState::Ended(_))
        };
        let waited = self.changed.wait_timeout_while(state, patience, nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.events.pop_front()
    }

    /// The problem of the last attempt that failed, of the events that were not returned yet.
    pub(crate) fn last_problem(&self) -> Option<Problem> {
        self.lock().events.iter().rev().find_map(|event| match event {
            Event::AttemptFailed { problem, .. } | Event::Lost { problem, .. } => {
                Some(problem.clone())
            }
            _ => None,
        })
    }

    /// Waits until the controller is connected for the first time, or has failed.
    pub(crate) fn wait_for_first(&self) -> ControllerState {
        let connecting = |state: &mut State| state.state == ControllerState::Connecting;
        let waited = self.changed.wait_while(self.lock(), connecting);
        waited.unwrap_or_else(PoisonError::into_inner).state.clone()
    }

    /// The controller's problem as an error of this controller.
    pub(crate) fn error(&self, problem: Problem) -> Error {
        Error::Controller { address: self.options.address.to_string(), problem }
    }

    /// Allocates an I/O queue identifier.
    pub(crate) fn allocate_queue_id(&self) -> Result<u16, String> {
        let mut state = self.lock();
        // A path that was never there grants as many as are asked for, until it says otherwise.
        let unknown = if self.options.multipath { self.options.nr_io_queues } else { 0 };
        let snapshot = state.snapshot.as_ref();
        let granted = snapshot.map_or(unknown, |snapshot| snapshot.controller.io_queues);
        let places = usize::from(granted) + 1;
        if state.queue_ids_in_use.len() < places {
            state.queue_ids_in_use.resize(places, false);
        }
        let from = state.last_queue + 1;
        let mut candidates = (from..places).chain(1..from.min(places));
        match candidates.find(|candidate| !state.queue_ids_in_use[*candidate]) {
            Some(free) => {
                state.queue_ids_in_use[free] = true;
                state.last_queue = free;
                Ok(u16::try_from(free).unwrap_or(u16::MAX))
            }
            None => Err(format!(
                "all {granted} I/O queues of the controller are in use; ask for more \
                 (nr_io_queues), or the controller grants no more"
            )),
        }
    }

    pub(crate) fn release_queue_id(&self, queue_id: u16) {
        if let Some(taken) = self.lock().queue_ids_in_use.get_mut(usize::from(queue_id)) {
            *taken = false;
        }
    }
}
