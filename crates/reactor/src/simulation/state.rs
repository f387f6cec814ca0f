//! A world's time: its future events, and the notices to its reactors.

use super::conditions::{NetworkConditions, SimulatedFile, StorageConditions};
use super::files::FileState;
use super::network::{End, Interceptor, Listener};
use super::random::Random;
use crate::slab::{Key, Slab};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;
use std::time::Duration;

/// Whether the drivers of the kernel make connections that are reset when their process ends.
const RESETS_AT_DEATH: bool = true;

/// Everything that reactors of a world share.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) network: NetworkConditions,
    pub(super) storage: StorageConditions,
    pub(super) pool_bytes: usize,
    pub(super) receive_bytes: usize,
    pub(super) socket_limit: Option<usize>,
    /// What passes between two looks at express sockets.
    pub(super) work_time: Duration,
    pub(super) interceptor: Interceptor,
    pub(super) send_time: Duration,
    /// The addresses that nothing reaches, and since when.
    pub(super) outages: BTreeMap<IpAddr, Duration>,
    /// Whether a connection is reset when the process that has made it ends.
    pub(super) resets_at_death: bool,
    pub(super) random: Random,
    pub(super) ends: Slab<End>,
    pub(super) listeners: Slab<Listener>,
    pub(super) addresses: BTreeMap<SocketAddr, Key>,
    pub(super) next_port: u16,
    /// Ends that are moved between reactors; dropping one closes it.
    pub(super) detached: Vec<(Key, Weak<()>)>,
    now: Duration,
    events: BinaryHeap<Reverse<ScheduledEvent>>,
    order: u64,
    fingerprint: u64,
    reactors: Vec<ReactorState>,
    files: Vec<FileState>,
}

#[derive(Debug, Default)]
struct ReactorState {
    notices: VecDeque<Notice>,
    deadline: Option<Duration>,
}

/// A future event.
#[derive(Debug)]
pub(super) enum Event {
    /// Bytes arrive at an end.
    Deliver { end: Key, bytes: Vec<u8> },
    /// The end's peer sends nothing more.
    Finish { end: Key },
    /// The end's connection is broken.
    Reset { end: Key },
    /// The end may send again.
    Credit { end: Key },
    /// A connection attempt reaches its address.
    Attempt { end: Key },
    /// The connection of the end is established.
    Established { end: Key },
    /// The connection of the end failed.
    Refused { end: Key, error: Errno },
    /// An operation of a reactor on a file is over.
    File { reactor: usize, operation: Key },
    /// What an outage has kept from the end is sent again.
    Again { end: Key },
}

/// What of a reactor is handed out apart from the rest: sockets, and operations on files.
#[derive(Debug, Default)]
pub(super) struct ExpressWork {
    pub(super) sockets: Vec<Key>,
    pub(super) operations: Vec<Key>,
}

/// A notice to a reactor; keys are those of its own tables.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notice {
    /// A socket's operations may be able to continue.
    Changed(Key),
    Connected(Key),
    NotConnected(Key, Errno),
    File(Key),
}

#[derive(Debug)]
struct ScheduledEvent {
    at: Duration,
    order: u64,
    event: Event,
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl State {
    pub(super) fn new(seed: u64, network: NetworkConditions) -> Self {
        Self {
            network,
            storage: StorageConditions::default(),
            pool_bytes: 16 << 20,
            receive_bytes: 64 << 10,
            socket_limit: None,
            work_time: Duration::ZERO,
            interceptor: Interceptor::default(),
            send_time: Duration::ZERO,
            outages: BTreeMap::new(),
            resets_at_death: RESETS_AT_DEATH,
            random: Random::new(seed),
            ends: Slab::new(),
            listeners: Slab::new(),
            addresses: BTreeMap::new(),
            next_port: 32_768,
            detached: Vec::new(),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            fingerprint: seed,
            reactors: Vec::new(),
            files: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// One event, or a reactor's timer.
    pub(super) fn advance(&mut self) -> bool {
        self.close_dropped_streams();
        let event = self.events.peek().map(|Reverse(next)| next.at);
        let timer = self
            .reactors
            .iter_mut()
            .map(|reactor| &mut reactor.deadline)
            .filter(|deadline| deadline.is_some())
            .min();
        match (event, timer) {
            (event, Some(timer))
                if event.is_none_or(|event| timer.is_some_and(|it| it < event)) =>
            {
                // The reactor sets the next one.
                if let Some(at) = timer.take() {
                    self.now = self.now.max(at);
                }
                true
            }
            (Some(_), _) => self.run_next_event(),
            (None, _) => false,
        }
    }

    /// One event, if there is one until then; otherwise it becomes that time.
    pub(super) fn advance_until(&mut self, until: Option<Duration>) -> bool {
        self.close_dropped_streams();
        let event = self.events.peek().map(|Reverse(next)| next.at);
        match (event, until) {
            (Some(event), until) if until.is_none_or(|until| event <= until) => {
                self.run_next_event()
            }
            (_, Some(until)) => {
                self.now = self.now.max(until);
                false
            }
            (_, None) => false,
        }
    }

    /// Lets this much time pass, with the events in it.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.advance_until(Some(until));
        }
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn schedule(&mut self, at: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse(ScheduledEvent { at, order: self.order, event }));
    }

    /// A latency with its random part.
    pub(super) fn delay(&mut self, latency: Duration, jitter: Duration) -> Duration {
        let nanoseconds = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        if nanoseconds == 0 {
            return latency;
        }
        latency + Duration::from_nanos(self.random.below(nanoseconds.saturating_add(1)))
    }

    // Reactors

    pub(super) fn add_reactor(&mut self) -> usize {
        self.reactors.push(ReactorState::default());
        self.reactors.len() - 1
    }

    pub(super) fn set_deadline(&mut self, reactor: usize, deadline: Option<Duration>) {
        self.reactors[reactor].deadline = deadline;
    }

    pub(super) fn notify(&mut self, reactor: usize, notice: Notice) {
        self.reactors[reactor].notices.push_back(notice);
    }

    /// Takes the first notice, but for those of what is express.
    pub(super) fn take_notice(&mut self, reactor: usize, express: &ExpressWork) -> Option<Notice> {
        let notices = &mut self.reactors[reactor].notices;
        let at = notices.iter().position(|notice| !is_change(notice, express))?;
        notices.remove(at)
    }

    /// Takes the first of these.
    pub(super) fn take_change(&mut self, reactor: usize, express: &ExpressWork) -> Option<Notice> {
        let notices = &mut self.reactors[reactor].notices;
        let at = notices.iter().position(|notice| is_change(notice, express))?;
        notices.remove(at)
    }

    /// Whether there is such a notice.
    pub(super) fn has_change(&self, reactor: usize, express: &ExpressWork) -> bool {
        self.reactors[reactor].notices.iter().any(|notice| is_change(notice, express))
    }

    // Files

    pub(super) fn add_file(&mut self, len: u64) -> SimulatedFile {
        self.files.push(FileState::new(len));
        SimulatedFile(self.files.len() - 1)
    }

    pub(super) fn file(&self, file: SimulatedFile) -> &FileState {
        &self.files[file.0]
    }

    pub(super) fn file_mut(&mut self, file: SimulatedFile) -> &mut FileState {
        &mut self.files[file.0]
    }

    pub(super) fn crash_files(&mut self) {
        for file in &mut self.files {
            file.crash(self.storage.survival_probability, &mut self.random);
        }
    }

    fn run_next_event(&mut self) -> bool {
        let Some(Reverse(ScheduledEvent { at, event, .. })) = self.events.pop() else {
            return false;
        };
        self.now = self.now.max(at);
        self.note(&event);
        if let Some(event) = self.cross(event) {
            self.happen(event);
        }
        true
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver { end, bytes } => self.deliver(end, &bytes),
            Event::Finish { end } => self.finish(end),
            Event::Reset { end } => self.reset(end),
            Event::Credit { end } => self.credit(end),
            Event::Attempt { end } => self.connect_now(end),
            Event::Established { end } => self.established(end),
            Event::Refused { end, error } => self.refused(end, error),
            Event::File { reactor, operation } => self.notify(reactor, Notice::File(operation)),
            Event::Again { end } => self.send_again(end),
        }
    }

    /// Adds an event to the fingerprint.
    fn note(&mut self, event: &Event) {
        let time = u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX);
        let (kind, key, bytes): (u64, Key, &[u8]) = match event {
            Event::Deliver { end, bytes } => (1, *end, bytes),
            Event::Finish { end } => (2, *end, &[]),
            Event::Reset { end } => (3, *end, &[]),
            Event::Credit { end } => (4, *end, &[]),
            Event::Attempt { end } => (5, *end, &[]),
            Event::Established { end } => (6, *end, &[]),
            Event::Refused { end, .. } => (7, *end, &[]),
            Event::File { operation, .. } => (8, *operation, &[]),
            Event::Again { end } => (9, *end, &[]),
        };
        let words = [time, kind, key.bits(), bytes.len() as u64];
        let (eights, rest) = bytes.as_chunks();
        let contents = eights.iter().map(|eight| u64::from_be_bytes(*eight));
        let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        for word in words.into_iter().chain(contents).chain([rest]) {
            let mixed = (self.fingerprint ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.fingerprint = mixed ^ mixed >> 29;
        }
    }
}

fn is_change(notice: &Notice, express: &ExpressWork) -> bool {
    match notice {
        Notice::Changed(key) => express.sockets.contains(key),
        Notice::File(key) => express.operations.contains(key),
        Notice::Connected(_) | Notice::NotConnected(..) => false,
    }
}
