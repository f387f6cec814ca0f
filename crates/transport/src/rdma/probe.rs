//! The raw link: SENDs there and back, or RDMA READs, over one queue pair and without a protocol.
//!
//! Both ends do as little as can be done. All messages use the same memory, whose contents nobody
//! reads; what a poll has found is answered by one chain. The serving end of READs does nothing,
//! since its adapter serves them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use weft_reactor::{
    BUFFER_BYTES_MAX, Buffer, Config, Outcome, Owner, Reactor, ReactorCompletion, ReadyFlag,
    Source, Token, WaitLimit,
};

use super::engine::{number, short, watch};
use super::pair::without_short_piece;
use super::verbs::{
    Access, CmEvent, CompletionQueue, Device, Domain, Endpoint, Incoming, Listener, Manager,
    Parameters, Piece, PrivateData, Provider, QueuePairOptions, ReceiveWork, Region, SendOperation,
    SendWork, WorkCompletion, WorkStatus,
};
use crate::limits::{PROBE_DEPTH_MAX, PROBE_SILENCE_MAX, PROBE_TIME_MAX};

/// Largest message: an outgoing and an incoming one lie in a buffer.
pub const MESSAGE_BYTES_MAX: u32 = 2 << 20;
const _: () = assert!(2 * MESSAGE_BYTES_MAX as usize <= BUFFER_BYTES_MAX);

/// Begins the private data of a request, which no other program sends.
const MAGIC: [u8; 8] = *b"weftprob";

/// The identifier of all receives; requests have the numbers from 1 on.
const RECEIVE: u64 = 1 << 63;

/// The identifier of the WRITE that wakes the peer up.
const WAKE_UP: u64 = 1 << 62;

/// Completions polled at once.
const BATCH: usize = 64;

/// Polls without a completion between two looks at the connection and the clock.
const SPINS: u32 = 4096;

/// Longest sleep between two looks at the connection.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// Incoming messages begin on a page of their own.
const PAGE_BYTES: u32 = 4096;

/// Bytes that a SEND may carry inline, if the device can.
const INLINE_BYTES: u32 = 64;

/// What is done over and over again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOperation {
    /// A SEND that is answered by a SEND.
    Send,
    /// An RDMA READ from the other end's memory.
    Read,
}

/// What is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The operation.
    pub operation: ProbeOperation,
    /// Bytes of a request; 0 of a READ, which has none.
    pub request_bytes: u32,
    /// Bytes of a response, or of what is read.
    pub response_bytes: u32,
    /// Requests in flight.
    pub depth: u16,
    /// Poll instead of sleeping until the adapter reports a completion, at both ends.
    pub spin: bool,
}

impl Probe {
    /// Whether it can be measured.
    ///
    /// # Errors
    /// What is asked for is beyond a bound.
    pub fn check(&self) -> io::Result<()> {
        let sizes = 1..=MESSAGE_BYTES_MAX;
        let has_request = self.operation == ProbeOperation::Send;
        if !has_request && self.request_bytes > 0 {
            return Err(invalid("a READ has no request"));
        }
        let request_fits = !has_request || sizes.contains(&self.request_bytes);
        if !request_fits || !sizes.contains(&self.response_bytes) {
            return Err(invalid("a message over RDMA has 1 byte to 2 MiB"));
        }
        if !(1..=PROBE_DEPTH_MAX).contains(&self.depth) {
            return Err(invalid(&format!("the depth over RDMA is 1 to {PROBE_DEPTH_MAX}")));
        }
        Ok(())
    }

    /// The private data of the connection request.
    fn to_private_data(self) -> PrivateData {
        let mut bytes = MAGIC.to_vec();
        bytes.push(u8::from(self.operation == ProbeOperation::Read));
        bytes.push(u8::from(self.spin));
        bytes.extend(self.depth.to_le_bytes());
        bytes.extend(self.request_bytes.to_le_bytes());
        bytes.extend(self.response_bytes.to_le_bytes());
        PrivateData::new(&bytes)
    }

    /// What a connection request asks for, if it is a probe's.
    fn of_private_data(bytes: &[u8]) -> Option<Self> {
        let [operation, spin, low, high, sizes @ ..] = bytes.strip_prefix(&MAGIC)? else {
            return None;
        };
        let (request, rest) = sizes.split_first_chunk()?;
        let (response, _) = rest.split_first_chunk()?;
        let probe = Self {
            operation: if *operation == 0 { ProbeOperation::Send } else { ProbeOperation::Read },
            request_bytes: u32::from_le_bytes(*request),
            response_bytes: u32::from_le_bytes(*response),
            depth: u16::from_le_bytes([*low, *high]),
            spin: *spin != 0,
        };
        probe.check().ok().map(|()| probe)
    }
}

/// The end that answers.
#[derive(Debug)]
pub struct ProbeServer {
    events: Events,
    listener: Listener,
}

impl ProbeServer {
    /// Listens. Port 0 takes a free one.
    ///
    /// # Errors
    /// No device has the address, or another program has the port.
    pub fn listen(provider: &Provider, address: SocketAddr) -> io::Result<Self> {
        let mut events = Events::open(provider)?;
        let listener = events.manager.listen(address, 1)?;
        Ok(Self { events, listener })
    }

    /// The address with the actual port.
    ///
    /// # Errors
    /// The device has gone.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }

    /// Waits for one client, and answers it until it is gone.
    ///
    /// # Errors
    /// None came in time, or the connection failed before it ended.
    pub fn serve(mut self, patience: Duration) -> io::Result<()> {
        let until = self.events.reactor.now() + patience;
        let (mut end, probe) = loop {
            let CmEvent::Requested { incoming, parameters } = self.events.next(until)? else {
                continue;
            };
            match Probe::of_private_data(parameters.private_data.bytes()) {
                Some(probe) => break (self.accept(incoming, &parameters, probe)?, probe),
                None => incoming.reject(&[]),
            }
        };
        match self.answer(&mut end, probe) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            // What fails when the client has gone is no fault of this end.
            Err(_) if self.has_ended() => Ok(()),
            result => result,
        }
    }

    fn answer(&mut self, end: &mut End, probe: Probe) -> io::Result<()> {
        let answers = probe.operation == ProbeOperation::Send;
        let life = self.events.reactor.now() + PROBE_TIME_MAX;
        while self.events.reactor.now() < life {
            let received = end.wait(&mut self.events, probe.spin, answers)?;
            end.receive(received)?;
            end.send(received, SendOperation::Send)?;
        }
        Ok(())
    }

    /// Whether the client has disconnected, or does so now.
    fn has_ended(&mut self) -> bool {
        let until = self.events.reactor.now() + LOOK_TIME;
        loop {
            match self.events.next(until) {
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }

    fn accept(&mut self, incoming: Incoming, asked: &Parameters, probe: Probe) -> io::Result<End> {
        let endpoint = self.events.manager.adopt(incoming)?;
        let remote_read = probe.operation == ProbeOperation::Read;
        let sizes = (probe.response_bytes, probe.request_bytes);
        let mut end = End::new(&mut self.events, endpoint, probe, sizes, |_| Access {
            local_write: true,
            remote_read,
            ..Access::default()
        })?;
        // One more than may be in flight: a request may come before its predecessor is polled.
        if !remote_read {
            end.receive(usize::from(probe.depth) + 1)?;
        }
        // iWARP's connection requests need not say how many READs they want served.
        let wanted = match asked.responder_resources {
            0 => u8::try_from(probe.depth).unwrap_or(u8::MAX),
            wanted => wanted,
        };
        let most = end.device.attributes().responder_resources_max;
        let reads = if remote_read { wanted.min(most) } else { 0 };
        let mut reply = number(end.memory.address())?.to_le_bytes().to_vec();
        reply.extend(end.region.remote_key().to_le_bytes());
        reply.push(reads);
        end.endpoint.accept(&Parameters {
            private_data: PrivateData::new(&reply),
            responder_resources: reads,
            initiator_depth: 0,
        })?;
        Ok(end)
    }
}

/// The end that asks, and measures.
#[derive(Debug)]
pub struct ProbeClient {
    events: Events,
    end: End,
    probe: Probe,
    /// Where the other end's memory is, and its key.
    far: (u64, u32),
    ends: (SocketAddr, SocketAddr),
}

impl ProbeClient {
    /// Connects to a [`ProbeServer`].
    ///
    /// # Errors
    /// The connection cannot be made.
    pub fn connect(
        provider: &Provider,
        probe: Probe,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> io::Result<Self> {
        probe.check()?;
        let mut events = Events::open(provider)?;
        let endpoint = events.manager.resolve(remote, local, PROBE_SILENCE_MAX)?;
        let until = events.reactor.now() + PROBE_SILENCE_MAX;
        while !matches!(events.next(until)?, CmEvent::RouteResolved) {}
        let near = endpoint.local_address()?;
        let reads = probe.operation == ProbeOperation::Read;
        let sizes = (probe.request_bytes, probe.response_bytes);
        let mut end = End::new(&mut events, endpoint, probe, sizes, |device| Access {
            local_write: true,
            remote_write: reads && device.attributes().sink_is_remote(),
            ..Access::default()
        })?;
        if !reads {
            end.receive(probe.depth.into())?;
        }
        let wanted = match reads {
            true => u8::try_from(probe.depth).unwrap_or(u8::MAX),
            false => 0,
        };
        let wanted = wanted.min(end.device.attributes().initiator_depth_max);
        end.endpoint.connect(&Parameters {
            private_data: probe.to_private_data(),
            responder_resources: 0,
            initiator_depth: wanted,
        })?;
        let reply = loop {
            if let CmEvent::Established { parameters } = events.next(until)? {
                break parameters;
            }
        };
        let (far, served) = far_end(reply.private_data.bytes())
            .ok_or_else(|| invalid("the other end is not a probe's"))?;
        // An adapter serves so many READs at a time: what is beyond waits, as it would there.
        let depth = if reads { wanted.min(served).max(1).into() } else { probe.depth };
        let probe = Probe { depth: depth.min(probe.depth), ..probe };
        Ok(Self { events, end, probe, far, ends: (near, remote) })
    }

    /// Requests that are in flight: of READs at most as many as both adapters serve at a time.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.probe.depth
    }

    /// The addresses of this end and of the other.
    #[must_use]
    pub const fn ends(&self) -> (SocketAddr, SocketAddr) {
        self.ends
    }

    /// Keeps requests in flight, and calls `answered` with the times at which each was posted and
    /// its answer was found, until that says no.
    ///
    /// # Errors
    /// The connection has failed, or has been silent for too long.
    pub fn drive(mut self, mut answered: impl FnMut(Duration, Duration) -> bool) -> io::Result<()> {
        let Probe { operation, depth, spin, .. } = self.probe;
        let (address, key) = self.far;
        let operation = match operation {
            ProbeOperation::Send => SendOperation::Send,
            ProbeOperation::Read => SendOperation::Read { address, key },
        };
        let depth = usize::from(depth);
        let mut posted: VecDeque<Duration> = VecDeque::with_capacity(depth);
        posted.resize(depth, self.events.reactor.now());
        self.end.send(depth, operation)?;
        if self.end.device.attributes().soft_iwarp {
            // Soft-iWARP may not notice the first message to the side that accepts until another
            // one arrives.
            self.end.wake_up_peer()?;
        }
        loop {
            let found = self.end.wait(&mut self.events, spin, true)?;
            let now = self.events.reactor.now();
            for at in posted.drain(..found.min(posted.len())) {
                if !answered(at, now) {
                    return self.end.endpoint.disconnect();
                }
            }
            if matches!(operation, SendOperation::Send) {
                self.end.receive(found)?;
            }
            posted.extend(std::iter::repeat_n(now, found));
            self.end.send(found, operation)?;
        }
    }
}

/// Address and key of the memory that a reply names, and how many READs of it are served at a time.
fn far_end(reply: &[u8]) -> Option<((u64, u32), u8)> {
    let (address, rest) = reply.split_first_chunk()?;
    let (key, rest) = rest.split_first_chunk()?;
    Some(((u64::from_le_bytes(*address), u32::from_le_bytes(*key)), *rest.first()?))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why.to_owned())
}

/// What an end waits with: the connection manager, and a reactor whose descriptors wake it.
#[derive(Debug)]
struct Events {
    manager: Manager,
    reactor: Reactor,
    flags: Flags,
    completions: Vec<ReactorCompletion>,
}

/// The flags of the descriptors, which end a sleep of the reactor.
#[derive(Clone, Debug, Default)]
struct Flags(Rc<RefCell<Vec<ReadyFlag>>>);

impl Flags {
    fn watch(&self, reactor: &mut Reactor, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let flag = watch(reactor, descriptor)?;
        self.0.borrow_mut().extend(flag);
        Ok(())
    }
}

impl Source for Flags {
    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>) {
        let token = Token::new(Owner(0), 0);
        let set = self.0.borrow().iter().filter(|flag| flag.take()).count();
        let completion = || ReactorCompletion { token, outcome: Outcome::SourceEvents };
        ready.extend((0..set).map(|_| completion()));
    }

    fn arm(&mut self, ready: &mut Vec<ReactorCompletion>) {
        self.poll(ready);
    }
}

impl Events {
    fn open(provider: &Provider) -> io::Result<Self> {
        let config = Config { pool_bytes: BUFFER_BYTES_MAX, ..Config::default() };
        let mut reactor = Reactor::new(config).map_err(io::Error::other)?;
        let manager = provider.open(reactor.waker())?;
        let flags = Flags::default();
        flags.watch(&mut reactor, manager.descriptor())?;
        reactor.add_source(Box::new(flags.clone()));
        Ok(Self { manager, reactor, flags, completions: Vec::new() })
    }

    /// Sleeps until something may have happened, or until then.
    fn sleep(&mut self, until: Duration) {
        self.reactor.poll(WaitLimit::Until(until), &mut self.completions);
        self.completions.clear();
    }

    /// The next event of the connection manager.
    fn next(&mut self, until: Duration) -> io::Result<CmEvent> {
        loop {
            if let Some(event) = self.manager.poll()? {
                return alive(event.event);
            }
            if self.reactor.now() >= until {
                return Err(io::Error::new(ErrorKind::TimedOut, "the other end does not answer"));
            }
            self.sleep(until);
        }
    }
}

/// The event, unless it ends the connection.
fn alive(event: CmEvent) -> io::Result<CmEvent> {
    match event {
        CmEvent::Rejected { .. } => Err(ErrorKind::ConnectionRefused.into()),
        CmEvent::Failed { step, error } => {
            let error = io::Error::from_raw_os_error(error);
            Err(io::Error::new(error.kind(), format!("{step}: {error}")))
        }
        CmEvent::Disconnected => Err(ErrorKind::ConnectionReset.into()),
        CmEvent::DeviceRemoved | CmEvent::AddressChanged => {
            Err(io::Error::new(ErrorKind::NetworkDown, "the RDMA device has gone"))
        }
        event => Ok(event),
    }
}

/// One end's queue pair and memory.
#[derive(Debug)]
struct End {
    // Dropped first: then the device does not use the memory below any more.
    endpoint: Endpoint,
    queue: CompletionQueue,
    region: Region,
    _domain: Domain,
    device: Device,
    /// An outgoing message, and from the next page on an incoming one.
    memory: Buffer,
    outgoing: Piece,
    incoming: Piece,
    inline_bytes: u32,
    work: Vec<WorkCompletion>,
    /// Whether its requests are READs, each of which is answered by its own completion.
    reads: bool,
    /// Answers that were found and not taken.
    arrived: usize,
    /// Requests that the send queue has room for, and how many were posted to it and have ended.
    sends: u64,
    posted: u64,
    ended: u64,
}

impl End {
    fn new(
        events: &mut Events,
        mut endpoint: Endpoint,
        probe: Probe,
        (outgoing, incoming): (u32, u32),
        access: impl FnOnce(&Device) -> Access,
    ) -> io::Result<Self> {
        let device = endpoint.open_device()?;
        events.flags.watch(&mut events.reactor, device.descriptor())?;
        let depth = u32::from(probe.depth);
        // A request may have been answered before its own completion is found, and one wakes the
        // peer up.
        let (sends, receives) = (2 * depth + 1, depth + 1);
        let queue = device.create_completion_queue(sends + receives)?;
        let domain = device.create_domain()?;
        let pool = events.reactor.pool();
        let behind = outgoing.next_multiple_of(PAGE_BYTES);
        let bytes = usize::try_from(behind + incoming).map_err(io::Error::other)?;
        let memory = pool.take(bytes).ok_or(ErrorKind::OutOfMemory)?;
        let offset = memory.address().wrapping_sub(pool.address());
        let region = domain.register(pool, offset, bytes, access(&device))?;
        let (start, key) = (number(memory.address())?, region.local_key());
        let piece = |from: u32, bytes| Piece { address: start + u64::from(from), bytes, key };
        let options = QueuePairOptions {
            send_depth: sends,
            receive_depth: receives,
            inline_bytes: INLINE_BYTES,
            windows: 0,
        };
        let limits = endpoint.create_queue_pair(&domain, &queue, options)?;
        Ok(Self {
            endpoint,
            queue,
            outgoing: piece(0, outgoing),
            incoming: piece(behind, incoming),
            region,
            _domain: domain,
            device,
            memory,
            inline_bytes: limits.inline_bytes,
            work: Vec::with_capacity(BATCH),
            reads: probe.operation == ProbeOperation::Read,
            arrived: 0,
            sends: u64::from(sends) - 1,
            posted: 0,
            ended: 0,
        })
    }

    /// Posts so many receives.
    fn receive(&mut self, count: usize) -> io::Result<()> {
        let pieces = [self.incoming, Piece::default()];
        let chain = vec![ReceiveWork { work: RECEIVE, pieces }; count];
        if chain.is_empty() {
            return Ok(());
        }
        self.endpoint.post_receive(&chain).map_err(|failed| failed.error)
    }

    /// Posts so many requests as one chain.
    fn send(&mut self, count: usize, operation: SendOperation) -> io::Result<()> {
        let is_read = matches!(operation, SendOperation::Read { .. });
        let piece = if is_read { self.incoming } else { self.outgoing };
        let inline = !is_read && piece.bytes <= self.inline_bytes;
        let mut pieces = [piece, Piece::default()];
        if self.device.attributes().soft_iwarp && !inline {
            pieces = without_short_piece(operation, pieces);
        }
        self.post(count, SendWork { pieces, inline, ..SendWork::of(operation) })
    }

    /// A WRITE of no data, whose completion nobody waits for.
    fn wake_up_peer(&mut self) -> io::Result<()> {
        let write = SendWork::of(SendOperation::Write { address: 0, key: 0 });
        let work = SendWork { work: WAKE_UP, signalled: true, ..write };
        self.endpoint.post_send(&[work]).map_err(|failed| failed.error)
    }

    /// Each READ is signalled, of others the last one of the chain, which ends those before it.
    fn post(&mut self, count: usize, work: SendWork) -> io::Result<()> {
        let is_read = matches!(work.operation, SendOperation::Read { .. });
        let last = self.posted + u64::from(short(count)?);
        let mut chain = vec![work; count];
        for (number, one) in (self.posted + 1..).zip(&mut chain) {
            (one.work, one.signalled) = (number, is_read || number == last);
        }
        self.posted = last;
        // An answer may be found before the completion of its request.
        while self.posted - self.ended > self.sends {
            self.poll()?;
        }
        match chain.is_empty() {
            true => Ok(()),
            false => self.endpoint.post_send(&chain).map_err(|failed| failed.error),
        }
    }

    /// Takes completions: each receive and each READ is an answer.
    fn poll(&mut self) -> io::Result<()> {
        self.work.clear();
        self.queue.poll(BATCH, &mut self.work)?;
        for done in &self.work {
            match done.status {
                WorkStatus::SUCCESS => {}
                WorkStatus::FLUSHED => return Err(ErrorKind::ConnectionReset.into()),
                status => return Err(io::Error::other(status.to_string())),
            }
            match done.work {
                WAKE_UP => {}
                RECEIVE => self.arrived += 1,
                number => {
                    self.ended = self.ended.max(number);
                    self.arrived += usize::from(self.reads);
                }
            }
        }
        Ok(())
    }

    /// Waits until something was received or read, and returns how much; `speaks`: a peer that is
    /// silent for long has gone.
    fn wait(&mut self, events: &mut Events, spin: bool, speaks: bool) -> io::Result<usize> {
        let silent_at = events.reactor.now() + PROBE_SILENCE_MAX;
        let mut spins = 0_u32;
        loop {
            self.poll()?;
            if self.arrived == 0 && !spin {
                // What completed before that causes no event.
                self.queue.arm()?;
                self.poll()?;
            }
            if self.arrived > 0 {
                return Ok(std::mem::take(&mut self.arrived));
            }
            spins = spins.wrapping_add(1);
            if spin && !spins.is_multiple_of(SPINS) {
                std::hint::spin_loop();
                continue;
            }
            while let Some(event) = events.manager.poll()? {
                alive(event.event)?;
            }
            if speaks && events.reactor.now() > silent_at {
                return Err(io::Error::new(ErrorKind::TimedOut, "the other end has gone silent"));
            }
            if !spin {
                events.sleep(events.reactor.now() + LOOK_TIME);
                self.device.take_events();
            } else if !speaks {
                events.sleep(events.reactor.now() + LOOK_TIME);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::super::software::{Conditions, Fabric};
    use super::super::verbs::Attributes;
    use super::*;

    const PROBE: Probe = Probe {
        operation: ProbeOperation::Send,
        request_bytes: 64,
        response_bytes: 4112,
        depth: 4,
        spin: false,
    };

    const READ: Probe = Probe { operation: ProbeOperation::Read, request_bytes: 0, ..PROBE };

    /// Answers of a probe whose two ends are on a fabric, and the requests in flight.
    fn answers(conditions: Conditions, probe: Probe) -> (u64, u16) {
        let provider = Provider::Software(Fabric::new(conditions));
        let (ready, listening) = mpsc::channel();
        thread::scope(|scope| {
            let own = provider.clone();
            let server = scope.spawn(move || {
                let address = "10.0.0.1:0".parse().expect("an address");
                let server = ProbeServer::listen(&own, address)?;
                ready.send(server.local_address()?).expect("the client waits");
                server.serve(Duration::from_secs(10))
            });
            let remote = listening.recv().expect("it listens");
            let client = ProbeClient::connect(&provider, probe, None, remote).expect("connected");
            let (depth, mut count) = (client.depth(), 0);
            let ends = client.drive(|posted, found| {
                assert!(posted <= found);
                count += 1;
                count < 1000
            });
            ends.expect("it goes on until it is told to stop");
            server.join().expect("no panic").expect("the client has gone, which is no fault");
            (count, depth)
        })
    }

    #[test]
    fn sends_and_reads_are_answered() {
        for spin in [false, true] {
            for probe in [PROBE, READ] {
                let probe = Probe { spin, ..probe };
                assert_eq!(answers(Conditions::default(), probe), (1000, 4), "{probe:?}");
            }
        }
    }

    #[test]
    fn no_more_reads_are_in_flight_than_the_adapter_serves() {
        let mut conditions = Conditions::default();
        conditions.attributes.initiator_depth_max = 2;
        conditions.attributes.responder_resources_max = 2;
        let probe = Probe { depth: 64, ..READ };
        assert_eq!(answers(conditions.clone(), probe), (1000, 2));
        assert_eq!(answers(conditions, Probe { depth: 64, ..PROBE }), (1000, 64));
    }

    #[test]
    fn soft_iwarp_is_woken() {
        let attributes = Attributes {
            kind: super::super::DeviceKind::Iwarp,
            soft_iwarp: true,
            memory_windows: false,
            ..Conditions::default().attributes
        };
        let conditions = Conditions { attributes, ..Conditions::default() };
        for probe in [PROBE, READ] {
            let probe = Probe { depth: 1, ..probe };
            assert_eq!(answers(conditions.clone(), probe), (1000, 1));
        }
    }

    #[test]
    fn private_data_of_others_is_no_probe() {
        let sent = PROBE.to_private_data();
        assert_eq!(Probe::of_private_data(sent.bytes()), Some(PROBE));
        let padded: Vec<u8> = sent.bytes().iter().copied().chain([0; 36]).collect();
        assert_eq!(Probe::of_private_data(&padded), Some(PROBE), "managers pad it");
        for length in 0..sent.bytes().len() {
            assert_eq!(Probe::of_private_data(&sent.bytes()[..length]), None);
        }
        for bad in [
            Probe { depth: 0, ..PROBE },
            Probe { depth: PROBE_DEPTH_MAX + 1, ..PROBE },
            Probe { response_bytes: 0, ..PROBE },
            Probe { request_bytes: MESSAGE_BYTES_MAX + 1, ..PROBE },
            Probe { request_bytes: 0, ..PROBE },
            Probe { request_bytes: 1, ..READ },
        ] {
            assert_eq!(Probe::of_private_data(bad.to_private_data().bytes()), None, "{bad:?}");
            assert_eq!(bad.check().expect_err("beyond a bound").kind(), ErrorKind::InvalidInput);
        }
        let mut other = sent.bytes().to_vec();
        other[0] ^= 1;
        assert_eq!(Probe::of_private_data(&other), None);
    }
}
