//! The bytes of reads over TCP without storage: what a background of an interference study does in
//! its network-only control.
//!
//! The load generator drives a device whose reads go over a connection to a thread with a reactor,
//! as commands to a poll group do. Requests and responses have the lengths of NVMe/TCP; there is no
//! protocol, no namespace and no copy of data at that end.

mod device;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weft_reactor::{
    Buffer, Config, DriverKind, Message, Operation, Outcome, Owner, Reactor, ReactorCompletion,
    SocketId, Token, WaitLimit, Waker,
};

pub use self::device::NetworkFactory;
use crate::limits::BLOCK_BYTES_MAX;

/// Bytes of a read's header and command on the wire.
pub const COMMAND_BYTES: usize = 72;

/// Bytes of the header that precedes a read's data.
pub const DATA_HEADER_BYTES: usize = 24;

/// Owners of the operations at this end.
const ACCEPT: Owner = Owner(0);
const RECEIVE: Owner = Owner(1);
const SEND: Owner = Owner(2);

/// Memory for the data of responses and for received bytes.
const POOL_BYTES: usize = 16 << 20;

/// The end that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkEnd {
    /// The processor of its thread; none: not pinned.
    pub cpu: Option<usize>,
    /// How long it polls before it sleeps.
    pub idle_poll: Duration,
    /// The driver of its reactor.
    pub driver: DriverKind,
}

/// An end that runs; dropping it stops it.
pub struct Responder {
    /// How it was asked for.
    pub end: NetworkEnd,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Responder {
    /// Listens at a free port of the loopback interface.
    ///
    /// # Errors
    /// One sentence that says why it does not.
    pub fn start(end: &NetworkEnd) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, began) = mpsc::channel();
        let (own, stopped) = (end.clone(), Arc::clone(&stop));
        let thread =
            thread::Builder::new().name("weft-network".to_owned()).spawn(
                move || match Server::new(&own) {
                    Ok((mut server, address)) => {
                        let _ = ready.send(Ok((address, server.reactor.waker())));
                        server.run(&own, &stopped);
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                },
            );
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let (address, waker) = began.recv().map_err(|_| "the network's end died".to_owned())??;
        Ok(Self { end: end.clone(), address, stop, waker, thread: Some(thread) })
    }

    /// A device whose reads have responses from this end.
    pub fn device(&self, bytes: u64, block_bytes: u32) -> NetworkFactory {
        NetworkFactory::new(self.address, bytes, block_bytes)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection at this end.
struct Peer {
    socket: SocketId,
    /// Of a request whose end has not come: its bytes.
    request: Vec<u8>,
    /// What is to be sent next, and the memory of the message before it.
    unsent: Message,
    spare: Option<Message>,
}

struct Server {
    reactor: Reactor,
    peers: BTreeMap<u32, Peer>,
    accepted: u32,
    /// The data of all responses.
    data: Buffer,
}

impl Server {
    fn new(end: &NetworkEnd) -> Result<(Self, SocketAddr), String> {
        let config = Config {
            driver: end.driver,
            pool_bytes: POOL_BYTES,
            cpu: end.cpu,
            ..Config::default()
        };
        let mut reactor = Reactor::new(config).map_err(|error| error.to_string())?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = reactor.listen(any).map_err(|error| format!("cannot listen: {error}"))?;
        let address = reactor.local_address(listener).map_err(|error| error.to_string())?;
        reactor.submit(Token::new(ACCEPT, 0), Operation::Accept { listener });
        let data = reactor.pool().take(BLOCK_BYTES_MAX as usize).ok_or("no memory for data")?;
        Ok((Self { reactor, peers: BTreeMap::new(), accepted: 0, data }, address))
    }

    fn run(&mut self, end: &NetworkEnd, stop: &AtomicBool) {
        let patience = match end.idle_poll {
            Duration::ZERO => WaitLimit::Sleep,
            grace => WaitLimit::Adaptive { grace },
        };
        let mut completions = Vec::with_capacity(256);
        while !stop.load(Ordering::Relaxed) {
            self.reactor.poll(patience, &mut completions);
            for completion in completions.drain(..) {
                self.handle(completion);
            }
            // One send answers all that a turn has brought, as at a poll group.
            self.flush();
        }
    }

    fn handle(&mut self, ReactorCompletion { token, outcome }: ReactorCompletion) {
        match outcome {
            Outcome::Accepted { socket, .. } => {
                self.accepted = self.accepted.wrapping_add(1);
                let (unsent, spare) = (Message::new(), Some(Message::new()));
                let request = Vec::with_capacity(COMMAND_BYTES);
                self.peers.insert(self.accepted, Peer { socket, request, unsent, spare });
                self.receive(self.accepted);
            }
            Outcome::Received { buffer, len } if len > 0 => {
                if let Some(peer) = self.peers.get_mut(&token.tag) {
                    peer.take(buffer.get(..len).unwrap_or_default(), &self.data);
                }
                drop(buffer);
                self.receive(token.tag);
            }
            Outcome::Sent { mut message } => {
                message.clear();
                if let Some(peer) = self.peers.get_mut(&token.tag) {
                    peer.spare = Some(message);
                }
            }
            // A connection that has ended or failed; a failed accept is told by the host's end.
            _ => {
                if let Some(peer) = self.peers.remove(&token.tag) {
                    self.reactor.close(peer.socket);
                }
            }
        }
    }

    fn receive(&mut self, number: u32) {
        if let Some(Peer { socket, .. }) = self.peers.get(&number) {
            let operation = Operation::Receive { socket: *socket };
            self.reactor.submit(Token::new(RECEIVE, number), operation);
        }
    }

    fn flush(&mut self) {
        for (number, peer) in &mut self.peers {
            if peer.unsent.is_empty() {
                continue;
            }
            let Some(spare) = peer.spare.take() else { continue };
            let message = std::mem::replace(&mut peer.unsent, spare);
            let operation = Operation::Send { socket: peer.socket, message };
            self.reactor.submit(Token::new(SEND, *number), operation);
        }
    }
}

impl Peer {
    /// Appends the responses to all requests that end in these bytes.
    fn take(&mut self, mut bytes: &[u8], data: &Buffer) {
        while !bytes.is_empty() {
            let missing = COMMAND_BYTES - self.request.len();
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.request.extend_from_slice(now);
            bytes = later;
            if let Some(wanted) = self.request.first_chunk().filter(|_| now.len() == missing) {
                let wanted = usize::try_from(u32::from_le_bytes(*wanted)).unwrap_or(usize::MAX);
                self.unsent.extend(DATA_HEADER_BYTES);
                self.unsent.buffer(data.share(), 0..wanted.min(data.len()));
                self.request.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::{Job, Pattern, Polling};

    fn end() -> NetworkEnd {
        NetworkEnd { cpu: None, idle_poll: Duration::ZERO, driver: DriverKind::Auto }
    }

    #[test]
    fn a_request_has_a_response_of_the_length_that_it_names() {
        let answering = Responder::start(&end()).expect("an end");
        let mut stream = TcpStream::connect(answering.address).expect("it listens");
        let request = |bytes: u32| {
            let mut request = [0; COMMAND_BYTES];
            request[..4].copy_from_slice(&bytes.to_le_bytes());
            request
        };
        // Requests that come in pieces, several at once, and without data.
        let all = [request(4096), request(0), request(512)].concat();
        for piece in all.chunks(50) {
            stream.write_all(piece).expect("it receives");
        }
        let mut received = vec![0; 3 * DATA_HEADER_BYTES + 4096 + 512];
        stream.read_exact(&mut received).expect("it answers");
        drop(stream);
        // The others go on after a peer that left in the middle of a request.
        let mut left = TcpStream::connect(answering.address).expect("it listens");
        left.write_all(&[1; 7]).expect("it receives");
        drop(left);
        let mut stream = TcpStream::connect(answering.address).expect("it listens");
        stream.write_all(&request(8192)).expect("it receives");
        let mut received = vec![0; DATA_HEADER_BYTES + 8192];
        stream.read_exact(&mut received).expect("it answers");
    }

    #[test]
    fn the_load_generator_reads_over_it() {
        let answering = Responder::start(&end()).expect("an end");
        for (driver, polling, block_bytes, copies, depth) in [
            (DriverKind::Uring, Polling::Sleep, 4096, 2, 32),
            (DriverKind::Epoll, Polling::Spin, 4096, 1, 1),
            (DriverKind::Epoll, Polling::Sleep, 128 << 10, 1, 8),
        ] {
            let factory = Arc::new(answering.device(64 << 20, 4096));
            let job = Job {
                pattern: Pattern::RandRead,
                number_ios: Some(300),
                ..Job { driver, polling, block_bytes, copies, depth, ..Job::default() }
            };
            let stop = AtomicBool::new(false);
            let result = crate::run(&job, &(factory as _), &stop, &mut |_| {}).expect("a result");
            let total = result.total();
            assert_eq!(total.error, None);
            assert_eq!(total.read.requests, 300 * u64::from(copies), "{job:?}");
            assert_eq!(total.read.bytes, total.read.requests * u64::from(block_bytes));
        }
    }

    #[test]
    fn what_is_not_a_read_is_refused_and_a_lost_end_is_told() {
        let answering = Responder::start(&end()).expect("an end");
        let factory: Arc<dyn weft_backend::DeviceFactory> =
            Arc::new(answering.device(64 << 20, 4096));
        let run = |pattern, factory: &Arc<dyn weft_backend::DeviceFactory>| {
            let job = Job { pattern, runtime: Some(Duration::from_secs(5)), ..Job::default() };
            crate::run(&job, factory, &AtomicBool::new(false), &mut |_| {})
        };
        let why = match run(Pattern::RandWrite, &factory) {
            Ok(result) => result.total().error.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        assert!(why.contains("read-only") || why.contains("read only"), "{why}");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                drop(answering);
            });
            let lost = match run(Pattern::RandRead, &factory) {
                Ok(result) => result.total().error,
                Err(error) => Some(error.to_string()),
            };
            assert!(lost.is_some(), "requests without an end were not reported");
        });
    }
}
