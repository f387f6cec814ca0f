//! The same with many connections: one thread on each side, woken by epoll, that answers for each
//! connection all that one wake-up brought.
//!
//! With one message in flight on each of many connections there is nothing to batch but the
//! waiting itself; what is left of the rate then is what many connections cost by themselves.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use weft_reactor::{monotonic_time, raise_descriptor_limit};

use super::{
    Floor, FloorResult, RECEIVE_BYTES, SEND_BYTES, SILENCE_MAX, account, both, joined, pair,
    retries, think,
};
use crate::histogram::Latency;
use crate::usage::Usage;

/// Events taken from the kernel at once: those of all connections that there may be.
const EVENTS: usize = 1024;

/// Most connections: both ends are descriptors of this process, whose limit is 20,000 and more
/// where it is not 1024.
const CONNECTIONS_MAX: usize = 8192;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Crowd {
    /// The messages; the depth is that of each connection.
    pub floor: Floor,
    /// Connections at the same time.
    pub connections: usize,
}

impl Crowd {
    /// Measures, between two ends on this machine.
    ///
    /// # Errors
    /// Sizes that make no sense, or a socket that cannot be had.
    pub fn measure(&self) -> io::Result<FloorResult> {
        self.floor.check()?;
        if self.connections == 0 || self.connections > CONNECTIONS_MAX {
            let what = format!("the connections are 1 to {CONNECTIONS_MAX}");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        if self.floor.rate.is_some() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a rate is for one connection"));
        }
        // What is missing then is told by the socket that cannot be had.
        let _ = raise_descriptor_limit();
        let listener = TcpListener::bind((self.floor.address, 0))?;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..self.connections {
            let (client, server) = pair(&listener)?;
            clients.push(client);
            servers.push(server);
        }
        thread::scope(|scope| {
            let server = scope.spawn(|| self.serve(servers));
            let client = scope.spawn(|| self.drive(clients));
            both(joined(client.join()), joined(server.join()))
        })
    }

    /// Answers until all clients are gone.
    fn serve(&self, streams: Vec<TcpStream>) -> io::Result<Usage> {
        let floor = &self.floor;
        floor.pin(floor.cpus.map(|(server, _)| server))?;
        let mut ends = self.ends(streams)?;
        let before = Usage::of_this_thread();
        let mut received = vec![0; RECEIVE_BYTES];
        let response = vec![1; SEND_BYTES.min(floor.response_bytes * floor.depth)];
        let mut open = self.connections;
        while open > 0 {
            for position in 0..ends.wait(floor.spin)? {
                let Some(end) = ends.ready(position) else { continue };
                let gone = match end.receive(&mut received, floor.request_bytes) {
                    Ok(Some(requests)) => {
                        think(floor.think.0);
                        let sent = end.send(&response, requests * floor.response_bytes, floor.spin);
                        is_gone(sent)?
                    }
                    Ok(None) => true,
                    Err(error) => is_gone(Err(error))?,
                };
                // That a client is gone may be told twice: by a send, then by a receive.
                if gone && !std::mem::replace(&mut end.gone, true) {
                    open -= 1;
                }
            }
        }
        Ok(Usage::of_this_thread().since(&before))
    }

    fn drive(&self, streams: Vec<TcpStream>) -> io::Result<FloorResult> {
        let floor = &self.floor;
        floor.pin(floor.cpus.map(|(_, client)| client))?;
        let first = streams.first().ok_or(ErrorKind::InvalidInput)?;
        let addresses = (first.local_addr()?, first.peer_addr()?);
        let mut ends = self.ends(streams)?;
        let before = Usage::of_this_thread();
        let mut received = vec![0; RECEIVE_BYTES];
        let request = vec![1; SEND_BYTES.min(floor.request_bytes * floor.depth)];
        let mut sent = Vec::new();
        for end in &mut ends.ends {
            let mut batches = VecDeque::with_capacity(floor.depth + 1);
            batches.push_back((monotonic_time(), floor.depth));
            sent.push(batches);
            end.send(&request, floor.depth * floor.request_bytes, floor.spin)?;
        }
        let count_from = monotonic_time() + floor.ramp;
        let mut latency = Latency::new();
        let mut messages = 0;
        let mut now = monotonic_time();
        while now < count_from + floor.runtime {
            for position in 0..ends.wait(floor.spin)? {
                let Some(end) = ends.ready(position) else { continue };
                let answered = end.receive(&mut received, floor.response_bytes)?;
                let answered = answered.ok_or(ErrorKind::UnexpectedEof)?;
                think(floor.think.1);
                now = monotonic_time();
                let Some(sent) = sent.get_mut(end.number) else { continue };
                let counts = now >= count_from;
                account(sent, answered, now, counts.then_some(&mut latency));
                messages += if counts { answered as u64 } else { 0 };
                if answered > 0 {
                    sent.push_back((now, answered));
                    end.send(&request, answered * floor.request_bytes, floor.spin)?;
                }
            }
        }
        let measured = now.saturating_sub(count_from);
        let client = Usage::of_this_thread().since(&before);
        let (server, ends) = (Usage::default(), addresses);
        Ok(FloorResult { messages, measured, latency, client, server, ends })
    }

    /// Connections that are watched from now on.
    fn ends(&self, streams: Vec<TcpStream>) -> io::Result<Ends> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut ends = Vec::with_capacity(self.connections);
        for (number, stream) in streams.into_iter().enumerate() {
            self.floor.choose_congestion(&stream)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, EventFlags::IN | EventFlags::ET)?;
            ends.push(End { number, stream, have: 0, gone: false });
        }
        let events = vec![MaybeUninit::uninit(); EVENTS.min(self.connections)];
        Ok(Ends { epoll, ends, events, numbers: Vec::with_capacity(EVENTS) })
    }
}

/// One side's ends of all connections.
struct Ends {
    epoll: OwnedFd,
    ends: Vec<End>,
    events: Vec<MaybeUninit<Event>>,
    /// Those that the last wait brought.
    numbers: Vec<usize>,
}

impl Ends {
    /// Waits until there is something to receive; on how many connections.
    fn wait(&mut self, spin: bool) -> io::Result<usize> {
        let timeout = if spin { Duration::ZERO } else { SILENCE_MAX };
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        self.numbers.clear();
        match epoll::wait(&self.epoll, &mut self.events[..], Some(&timeout)) {
            Ok((events, _)) => {
                let numbers =
                    events.iter().filter_map(|event| usize::try_from(event.data.u64()).ok());
                self.numbers.extend(numbers);
            }
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        match (self.numbers.len(), spin) {
            (0, true) => std::hint::spin_loop(),
            (0, false) => return Err(ErrorKind::TimedOut.into()),
            _ => {}
        }
        Ok(self.numbers.len())
    }

    fn ready(&mut self, position: usize) -> Option<&mut End> {
        self.ends.get_mut(*self.numbers.get(position)?)
    }
}

/// One end of a connection.
struct End {
    number: usize,
    stream: TcpStream,
    /// Bytes of a message that has not come to its end.
    have: usize,
    /// The other end is gone, and has been counted.
    gone: bool,
}

impl End {
    /// Receives all that is there; how many messages came to their end with it, none if the peer
    /// is gone.
    fn receive(&mut self, buffer: &mut [u8], message_bytes: usize) -> io::Result<Option<usize>> {
        let mut messages = 0;
        loop {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Ok(None),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Some(messages)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.have += bytes;
            messages += self.have / message_bytes;
            self.have %= message_bytes;
            // Less than was asked for is all that there is; what comes next comes with an edge.
            if bytes < buffer.len() {
                return Ok(Some(messages));
            }
        }
    }

    /// Sends `bytes` bytes out of `source`, which may be shorter.
    fn send(&mut self, source: &[u8], mut bytes: usize, spin: bool) -> io::Result<()> {
        while bytes > 0 {
            match self.stream.write(source.get(..bytes).unwrap_or(source)) {
                Ok(sent) => bytes -= sent.min(bytes),
                Err(error) if retries(&error, spin) => std::hint::spin_loop(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut waited = [PollFd::new(&self.stream, PollFlags::OUT)];
                    rustix::event::poll(&mut waited, None)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the peer is gone, which is how a connection ends here; any other error is one.
fn is_gone(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(false),
        Err(error)
            if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
        {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(connections: usize, depth: usize, spin: bool) -> Crowd {
        let floor = Floor {
            rate: None,
            spin_until_due: false,
            request_bytes: 72,
            response_bytes: 4120,
            depth,
            spin,
            runtime: Duration::from_millis(60),
            ramp: Duration::from_millis(10),
            cpus: None,
            think: (Duration::ZERO, Duration::ZERO),
            congestion: None,
            address: std::net::Ipv4Addr::LOCALHOST.into(),
        };
        Crowd { floor, connections }
    }

    #[test]
    fn every_connection_is_answered() {
        for (connections, depth) in [(1, 32), (16, 4), (100, 1)] {
            for spin in [false, true] {
                let result = crowd(connections, depth, spin).measure().expect("a result");
                assert!(result.messages > 0, "{connections} {depth} {spin}");
                assert_eq!(result.latency.count(), result.messages);
                assert!(result.measured >= Duration::from_millis(60));
            }
        }
    }

    #[test]
    fn what_both_ends_think_is_part_of_the_latency() {
        let crowd = crowd(4, 1, false);
        let think = (Duration::from_micros(300), Duration::from_micros(200));
        let result = Crowd { floor: Floor { think, ..crowd.floor }, ..crowd }.measure();
        let latency = result.expect("a result").latency;
        assert!(latency.min_ns() >= 500_000, "{}", latency.min_ns());
    }

    #[test]
    fn large_messages_do_not_wait_for_each_other() {
        for (request_bytes, response_bytes) in [(72, 131_096), (131_144, 24)] {
            let small = crowd(4, 8, false);
            // Long enough for a machine that has other things to do.
            let runtime = Duration::from_millis(500);
            let floor = Floor { request_bytes, response_bytes, runtime, ..small.floor };
            let result = Crowd { floor, ..small }.measure().expect("a result");
            assert!(result.messages > 0, "{request_bytes}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(crowd(0, 1, false).measure().is_err());
        assert!(crowd(CONNECTIONS_MAX + 1, 1, false).measure().is_err());
        assert!(crowd(4, 0, false).measure().is_err());
    }

    #[test]
    fn a_peer_that_leaves_is_gone_and_nothing_else_is() {
        assert!(is_gone(Err(ErrorKind::BrokenPipe.into())).expect("an end"));
        assert!(is_gone(Err(ErrorKind::ConnectionReset.into())).expect("an end"));
        assert!(!is_gone(Ok(())).expect("no end"));
        assert!(is_gone(Err(ErrorKind::TimedOut.into())).is_err());
    }
}
