//! What the network costs by itself: request and response over one TCP connection, with the sizes
//! of a command and its answer and nothing in between.
//!
//! Both ends do as little as can be done: one receive takes whatever is there, one send answers all
//! of it. What a target and a host reach on the same machine is to be read as a share of this.

mod crowd;
pub mod rdma;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;
use weft_reactor::{monotonic_time, pin_current_thread};

pub use self::crowd::Crowd;
use crate::Rate;
use crate::histogram::Latency;
use crate::pacer::Pacer;
use crate::random::Random;
use crate::units::ns;
use crate::usage::Usage;

/// Bytes received at once: more than a socket buffer holds by default.
const RECEIVE_BYTES: usize = 4 << 20;

/// Bytes sent at once at most.
const SEND_BYTES: usize = 8 << 20;

/// With more than this in flight both ways the two ends would wait for each other: each sends
/// before it receives again.
const BOTH_WAYS_BYTES_MAX: usize = 1 << 20;

/// Largest message: the largest transfer of a command and its header.
const MESSAGE_BYTES_MAX: usize = (4 << 20) + 4096;

/// Well below what the other end takes for silence.
const THINK_MAX: Duration = Duration::from_secs(1);

/// The random numbers of arrivals: the same in every run.
const SEED: u64 = 1;

/// A connection that says nothing for so long is broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// Bytes of a request: 72 for a read (header and command), that and the data for a write.
    pub request_bytes: usize,
    /// Bytes of a response: for a read two headers of 24 bytes in all and the data.
    pub response_bytes: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Try again and again instead of sleeping in the kernel.
    pub spin: bool,
    /// An open loop of so many requests a second, one in flight: the next one is sent when it is
    /// due, or when its predecessor is answered, and its latency counts from when it was due.
    pub rate: Option<Rate>,
    /// Poll until a request is due instead of sleeping, whatever the ends do for the other's bytes.
    pub spin_until_due: bool,
    /// How long to count.
    pub runtime: Duration,
    /// How long to run before that.
    pub ramp: Duration,
    /// The processors of server and client.
    pub cpus: Option<(usize, usize)>,
    /// How long server and client compute about what a receive has brought: the least that a
    /// target and a host of so much work can reach.
    pub think: (Duration, Duration),
    /// The congestion control of both ends, by the kernel's name; the system's choice if `None`.
    pub congestion: Option<String>,
    /// The address of both ends, one of this machine's.
    pub address: IpAddr,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct FloorResult {
    /// Requests that were answered.
    pub messages: u64,
    /// While it counted.
    pub measured: Duration,
    /// From the send that carried a request, or from when it was due in an open loop, to the
    /// receive that ended its response.
    pub latency: Latency,
    /// What the client used of its processor, ramp included.
    pub client: Usage,
    /// What the server used of its processor, ramp included.
    pub server: Usage,
    /// The addresses of client and server; of several connections the first one's.
    pub ends: (SocketAddr, SocketAddr),
}

impl FloorResult {
    /// Answers a second.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 { self.messages as f64 / seconds } else { 0.0 }
    }
}

impl Floor {
    /// Measures, between two ends on this machine.
    ///
    /// # Errors
    /// Sizes that make no sense, or a socket that cannot be had.
    pub fn measure(&self) -> io::Result<FloorResult> {
        self.check()?;
        let (client, server) = pair(&TcpListener::bind((self.address, 0))?)?;
        thread::scope(|scope| {
            let server = scope.spawn(|| self.serve(server));
            let client = scope.spawn(|| self.drive(client));
            both(joined(client.join()), joined(server.join()))
        })
    }

    /// Whether it can be measured.
    ///
    /// # Errors
    /// What is asked for is beyond a bound.
    pub fn check(&self) -> io::Result<()> {
        let fault = |what: &str| Err(io::Error::new(ErrorKind::InvalidInput, what.to_owned()));
        let sizes = 1..=MESSAGE_BYTES_MAX;
        if !sizes.contains(&self.request_bytes) || !sizes.contains(&self.response_bytes) {
            return fault("a message has 1 byte to 4 MiB");
        }
        if self.depth == 0 || self.depth > 65_536 {
            return fault("the depth is 1 to 65536");
        }
        if self.runtime.is_zero() {
            return fault("a runtime of 0 measures nothing");
        }
        if self.think.0.max(self.think.1) > THINK_MAX {
            return fault("neither end thinks for more than a second");
        }
        if self.rate.is_some_and(|rate| !(1.0..=1e7).contains(&rate.iops)) {
            return fault("a rate is 1 to 10 million requests a second");
        }
        if self.rate.is_some() && self.depth != 1 {
            return fault("at a rate there is one request in flight");
        }
        let smaller = self.request_bytes.min(self.response_bytes);
        if smaller.saturating_mul(self.depth) > BOTH_WAYS_BYTES_MAX {
            return fault("requests and responses are both too large for this depth");
        }
        Ok(())
    }

    /// Answers until the client is gone.
    ///
    /// # Errors
    /// As [`Floor::drive`].
    pub fn serve(&self, mut stream: TcpStream) -> io::Result<Usage> {
        self.pin(self.cpus.map(|(server, _)| server))?;
        self.prepare(&stream)?;
        let before = Usage::of_this_thread();
        let mut received = vec![0; RECEIVE_BYTES];
        let response = vec![1; SEND_BYTES.min(self.response_bytes.saturating_mul(self.depth))];
        let mut have = 0;
        loop {
            let bytes = match self.receive(&mut stream, &mut received) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            };
            think(self.think.0);
            have += bytes;
            let requests = have / self.request_bytes;
            have %= self.request_bytes;
            if let Err(error) = self.send(&mut stream, &response, requests * self.response_bytes) {
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
                    break;
                }
                return Err(error);
            }
        }
        Ok(Usage::of_this_thread().since(&before))
    }

    /// Sends requests to an end that [serves](Floor::serve), and measures.
    ///
    /// # Errors
    /// The socket has an error, or has been silent for too long.
    pub fn drive(&self, mut stream: TcpStream) -> io::Result<FloorResult> {
        self.pin(self.cpus.map(|(_, client)| client))?;
        self.prepare(&stream)?;
        if let Some(rate) = self.rate {
            return self.drive_at(rate, stream);
        }
        let ends = (stream.local_addr()?, stream.peer_addr()?);
        let before = Usage::of_this_thread();
        let mut received = vec![0; RECEIVE_BYTES];
        let request = vec![1; SEND_BYTES.min(self.request_bytes.saturating_mul(self.depth))];
        // When each batch of requests went out: responses come in their order.
        let mut sent: VecDeque<(Duration, usize)> = VecDeque::with_capacity(self.depth + 1);
        let count_from = monotonic_time() + self.ramp;
        let mut latency = Latency::new();
        let (mut messages, mut have) = (0, 0);
        sent.push_back((monotonic_time(), self.depth));
        self.send(&mut stream, &request, self.depth * self.request_bytes)?;
        let mut now = monotonic_time();
        while now < count_from + self.runtime {
            let bytes = self.receive(&mut stream, &mut received)?;
            if bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            think(self.think.1);
            now = monotonic_time();
            have += bytes;
            let answered = have / self.response_bytes;
            have %= self.response_bytes;
            if answered == 0 {
                continue;
            }
            let counts = now >= count_from;
            account(&mut sent, answered, now, counts.then_some(&mut latency));
            messages += if counts { answered as u64 } else { 0 };
            sent.push_back((now, answered));
            self.send(&mut stream, &request, answered * self.request_bytes)?;
        }
        let measured = now.saturating_sub(count_from);
        let client = Usage::of_this_thread().since(&before);
        let server = Usage::default();
        Ok(FloorResult { messages, measured, latency, client, server, ends })
    }

    /// The same with requests that are due at times of their own.
    fn drive_at(&self, rate: Rate, mut stream: TcpStream) -> io::Result<FloorResult> {
        let ends = (stream.local_addr()?, stream.peer_addr()?);
        let before = Usage::of_this_thread();
        let (mut received, request) = (vec![0; RECEIVE_BYTES], vec![1; self.request_bytes]);
        let mut pacer = Pacer::open(rate.process, rate.iops, Random::new(SEED, 0));
        let began = monotonic_time();
        let count_from = began + self.ramp;
        pacer.start(ns(began));
        let mut latency = Latency::new();
        let mut messages = 0;
        let mut now = began;
        while now < count_from + self.runtime {
            let Some(due_ns) = pacer.take(ns(now)) else {
                now = self.wait_until(pacer.due_ns().unwrap_or(0), count_from + self.runtime);
                continue;
            };
            self.send(&mut stream, &request, self.request_bytes)?;
            let mut have = 0;
            while have < self.response_bytes {
                match self.receive(&mut stream, &mut received)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    bytes => have += bytes,
                }
            }
            think(self.think.1);
            now = monotonic_time();
            if due_ns >= ns(count_from) {
                latency.record_times(ns(now).saturating_sub(due_ns), 1);
                messages += 1;
            }
        }
        let measured = now.saturating_sub(count_from);
        let (client, server) = (Usage::of_this_thread().since(&before), Usage::default());
        Ok(FloorResult { messages, measured, latency, client, server, ends })
    }

    /// Waits until a request is due, or until the end; the time then.
    fn wait_until(&self, due_ns: u64, end: Duration) -> Duration {
        let due = Duration::from_nanos(due_ns).min(end);
        if !self.spin_until_due {
            thread::sleep(due.saturating_sub(monotonic_time()));
        }
        loop {
            let now = monotonic_time();
            if now >= due {
                return now;
            }
            std::hint::spin_loop();
        }
    }

    fn pin(&self, cpu: Option<usize>) -> io::Result<()> {
        cpu.map_or(Ok(()), pin_current_thread)
    }

    /// Sets the options of a socket.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        self.choose_congestion(stream)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(self.spin)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))
    }

    fn choose_congestion(&self, stream: &TcpStream) -> io::Result<()> {
        let Some(name) = &self.congestion else { return Ok(()) };
        set_tcp_congestion(stream, name).map_err(|error| {
            io::Error::new(error.kind(), format!("the congestion control {name}: {error}"))
        })
    }

    fn receive(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match stream.read(buffer) {
                Err(error) if retries(&error, self.spin) => std::hint::spin_loop(),
                done => return done,
            }
        }
    }

    /// Sends `bytes` bytes out of `source`, which may be shorter.
    fn send(&self, stream: &mut TcpStream, source: &[u8], mut bytes: usize) -> io::Result<()> {
        while bytes > 0 {
            match stream.write(source.get(..bytes).unwrap_or(source)) {
                Ok(sent) => bytes -= sent.min(bytes),
                Err(error) if retries(&error, self.spin) => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What both ends came to. If the server failed, the client only saw the end of its connection; if
/// it waited in vain, the client says why.
fn both(client: io::Result<FloorResult>, server: io::Result<Usage>) -> io::Result<FloorResult> {
    match (client, server) {
        (Err(client), Err(server)) if server.kind() == io::ErrorKind::TimedOut => Err(client),
        (client, server) => Ok(FloorResult { server: server?, ..client? }),
    }
}

/// Both ends of a new connection.
fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok((client, listener.accept()?.0))
}

/// Keeps the processor busy with nothing that is in memory.
fn think(time: Duration) {
    if time.is_zero() {
        return;
    }
    let until = monotonic_time() + time;
    while monotonic_time() < until {}
}

fn retries(error: &io::Error, spin: bool) -> bool {
    error.kind() == ErrorKind::Interrupted || spin && error.kind() == ErrorKind::WouldBlock
}

/// Takes `answered` requests off the list, oldest first, and records how long they took.
fn account(
    sent: &mut VecDeque<(Duration, usize)>,
    mut answered: usize,
    now: Duration,
    mut latency: Option<&mut Latency>,
) {
    while answered > 0 {
        let Some((at, count)) = sent.front_mut() else { return };
        let taken = answered.min(*count);
        *count -= taken;
        answered -= taken;
        if let Some(latency) = &mut latency {
            let waited = ns(now.saturating_sub(*at));
            latency.record_times(waited, taken as u64);
        }
        if *count == 0 {
            sent.pop_front();
        }
    }
}

fn joined<T>(result: thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(io::Error::other("a thread of the measurement died")))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::pacer::Process;

    fn floor(request_bytes: usize, response_bytes: usize, depth: usize, spin: bool) -> Floor {
        Floor {
            request_bytes,
            response_bytes,
            depth,
            spin,
            rate: None,
            spin_until_due: false,
            runtime: Duration::from_millis(60),
            ramp: Duration::from_millis(10),
            cpus: None,
            think: (Duration::ZERO, Duration::ZERO),
            congestion: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    #[test]
    fn requests_are_answered_at_every_size_and_depth() {
        for (request, response, depth) in
            [(72, 4120, 1), (72, 4120, 32), (4168, 24, 8), (72, 131_096, 4), (131_144, 24, 4)]
        {
            for spin in [false, true] {
                let result = floor(request, response, depth, spin).measure().expect("a result");
                assert!(result.messages > 0, "{request} {response} {depth} {spin}");
                assert_eq!(result.latency.count(), result.messages);
                assert!(result.measured >= Duration::from_millis(60));
                assert!(result.messages_per_second() > 0.0);
            }
        }
    }

    #[test]
    fn an_open_loop_keeps_its_rate_and_counts_from_when_requests_are_due() {
        for process in [Process::Fixed, Process::Poisson] {
            for (spin, spin_until_due) in [(false, false), (false, true), (true, true)] {
                let rate = Some(Rate { iops: 500.0, process });
                let runtime = Duration::from_millis(400);
                let floor = Floor { rate, spin_until_due, runtime, ..floor(72, 4120, 1, spin) };
                let result = floor.measure().expect("a result");
                assert_eq!(result.latency.count(), result.messages);
                // 200 are due, and Poisson arrivals vary by 14. Those that a busy machine has not
                // come to show in the latency of the last one.
                let late = 500.0 * result.latency.max_ns() as f64 / 1e9;
                let all = result.messages as f64 + late;
                assert!(result.messages <= 260 && all >= 140.0, "{process:?} {}", result.messages);
            }
        }
        // A server that takes 4 ms cannot answer 1,000 in a second: what is late counts as late.
        let think = (Duration::from_millis(4), Duration::ZERO);
        let rate = Some(Rate { iops: 1_000.0, process: Process::Fixed });
        let late =
            Floor { think, rate, runtime: Duration::from_millis(200), ..floor(72, 24, 1, false) };
        let result = late.measure().expect("a result");
        assert!(result.latency.max_ns() > 50_000_000, "{}", result.latency.max_ns());
    }

    #[test]
    fn what_both_ends_think_is_part_of_the_latency() {
        let think = (Duration::from_micros(300), Duration::from_micros(200));
        for spin in [false, true] {
            let result = Floor { think, ..floor(72, 4120, 1, spin) }.measure().expect("a result");
            assert!(result.latency.min_ns() >= 500_000, "{}", result.latency.min_ns());
        }
    }

    #[test]
    fn the_congestion_control_is_the_one_that_was_named() {
        let named = |name: &str| Some(name.to_owned());
        let reno = Floor { congestion: named("reno"), ..floor(72, 4120, 1, false) };
        let (client, server) = pair(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
        for end in [&client, &server] {
            reno.prepare(end).expect("every kernel has it");
            let chosen = rustix::net::sockopt::tcp_congestion(end).unwrap();
            assert_eq!(chosen.trim_end_matches('\0'), "reno");
        }
        let none = Floor { congestion: named("none-such"), ..reno };
        for error in [
            none.measure().expect_err("there is none").to_string(),
            Crowd { floor: none, connections: 2 }.measure().expect_err("nor here").to_string(),
        ] {
            assert!(error.starts_with("the congestion control none-such: "), "{error}");
        }
    }

    #[test]
    fn an_end_that_fails_says_why() {
        for cpus in [(8191, 0), (0, 8191)] {
            let alone = Floor { cpus: Some(cpus), ..floor(72, 4120, 1, false) };
            let why = pin_current_thread(8191).expect_err("no such processor").to_string();
            assert_eq!(alone.measure().expect_err("one end fails").to_string(), why);
            let crowd = Crowd { floor: alone, connections: 2 };
            assert_eq!(crowd.measure().expect_err("one end fails").to_string(), why);
        }
    }

    /// Of two ends that fail, one only sees that the other is gone.
    #[test]
    fn an_end_that_waited_in_vain_does_not_hide_the_others_error() {
        let why = |client: io::Error, server: io::Result<Usage>| {
            both(Err(client), server).expect_err("one end failed").to_string()
        };
        let cause = || io::Error::other("no such device");
        let waited = || io::Error::from(ErrorKind::TimedOut);
        assert_eq!(why(cause(), Err(waited())), "no such device");
        assert_eq!(why(ErrorKind::UnexpectedEof.into(), Err(cause())), "no such device");
        assert_eq!(why(waited(), Err(cause())), "no such device");
        assert_eq!(why(cause(), Ok(Usage::default())), "no such device");
        assert_eq!(why(waited(), Err(waited())), waited().to_string());
    }

    #[test]
    fn latency_is_that_of_the_batch_a_request_went_out_with() {
        let ms = Duration::from_millis;
        let mut sent = VecDeque::from([(ms(0), 2), (ms(10), 3)]);
        let mut latency = Latency::new();
        account(&mut sent, 3, ms(20), Some(&mut latency));
        assert_eq!(sent, [(ms(10), 2)]);
        assert_eq!(
            (latency.count(), latency.min_ns(), latency.max_ns()),
            (3, 10_000_000, 20_000_000)
        );
        account(&mut sent, 5, ms(20), None);
        assert!(sent.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let rate = |iops| Some(Rate { iops, process: Process::Fixed });
        for bad in [
            floor(0, 1, 1, false),
            floor(1, 0, 1, false),
            floor(1, 8 << 20, 1, false),
            floor(1, 1, 0, false),
            floor(65_536, 65_536, 32, false),
            Floor { runtime: Duration::ZERO, ..floor(1, 1, 1, false) },
            Floor { rate: rate(0.0), ..floor(1, 1, 1, false) },
            Floor { rate: rate(f64::NAN), ..floor(1, 1, 1, false) },
            Floor { rate: rate(9.0), ..floor(1, 1, 2, false) },
            Floor { think: (2 * THINK_MAX, THINK_MAX), ..floor(1, 1, 1, false) },
        ] {
            assert!(bad.measure().is_err(), "{bad:?}");
        }
    }
}
