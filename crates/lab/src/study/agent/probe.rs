//! The raw link between two machines: round trips, and a stream.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde::{Deserialize, Serialize};
use weft_host::Provider;
use weft_load::floor::Floor;
use weft_load::floor::rdma::{ProbeServer, RdmaFloor};
use weft_load::usage::Usage;
use weft_reactor::monotonic_time;

use crate::environment;
use crate::results::LatencyRecord;
use crate::study::link::{self, OpenLoop};

/// How long a listener waits for the other end.
const LISTEN: Duration = Duration::from_secs(20);

/// Of a stream: bytes of a message, and how many are in flight.
const STREAM_BYTES: usize = 256 << 10;
const STREAM_DEPTH: usize = 16;

/// Of a round trip: bytes either way.
const PING_BYTES: usize = 64;

/// What is probed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Probe {
    /// One small message there and back.
    RoundTrip,
    /// Bytes from the end that listens.
    Stream,
    /// Reads of so many bytes, as NVMe over TCP has them.
    Read {
        /// Bytes of data.
        bytes: usize,
        /// How many are in flight.
        depth: usize,
        /// Whether both ends poll.
        spin: bool,
        /// Whether both ends are one machine.
        within: bool,
        /// The rate, if they are an open loop.
        open: Option<OpenLoop>,
    },
    /// The same over RDMA.
    ReadRdma {
        /// Bytes of data.
        bytes: usize,
        /// How many are in flight.
        depth: usize,
        /// Whether both ends poll.
        spin: bool,
    },
}

/// Where it is probed from, and where to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Way {
    pub(super) probe: Probe,
    pub(super) from: IpAddr,
    /// The interface that has that address.
    pub(super) interface: String,
    pub(super) to: SocketAddr,
    pub(super) runtime: Duration,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ProbeResult {
    pub(super) round_trip: LatencyRecord,
    pub(super) bytes_per_s: f64,
    /// How much of that the interface has received, by its own count.
    pub(super) through_interface: f64,
    /// Messages, and while they were counted.
    pub(super) messages: u64,
    pub(super) measured: Duration,
    /// What this end used of its processor.
    pub(super) usage: Usage,
    /// The addresses of this end and of the other.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
}

/// A way over TCP; none of one over RDMA.
fn floor(probe: Probe, address: IpAddr, runtime: Duration) -> Option<Floor> {
    let (response_bytes, depth) = match probe {
        Probe::RoundTrip => (PING_BYTES, 1),
        Probe::Stream => (STREAM_BYTES, STREAM_DEPTH),
        Probe::ReadRdma { .. } => return None,
        Probe::Read { bytes, depth, spin, within, open } => {
            let near = if within { address } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            let of_read = link::floor(bytes, depth, near, address);
            let floor = Floor { spin, runtime, ramp: runtime / 5, ..of_read };
            return Some(open.map_or(floor.clone(), |open| open.at_its_rate(floor)));
        }
    };
    Some(Floor {
        rate: None,
        spin_until_due: false,
        request_bytes: PING_BYTES,
        response_bytes,
        depth,
        spin: false,
        runtime,
        ramp: runtime / 5,
        cpus: None,
        think: (Duration::ZERO, Duration::ZERO),
        congestion: None,
        address,
    })
}

/// A way over RDMA; none of one over TCP.
fn rdma_floor(probe: Probe, runtime: Duration) -> io::Result<Option<RdmaFloor>> {
    let Probe::ReadRdma { bytes, depth, spin } = probe else { return Ok(None) };
    let probe = link::rdma_reads(bytes, depth, spin)?;
    let (ramp, cpus, provider) = (runtime / 5, None, Provider::System);
    Ok(Some(RdmaFloor { probe, runtime, ramp, cpus, provider }))
}

/// Listens for one other end over RDMA, and answers it.
fn listen_rdma(floor: RdmaFloor, address: IpAddr) -> io::Result<SocketAddr> {
    let own = match address.is_unspecified() {
        true => environment::rdma_address().ok_or(ErrorKind::NotFound)?,
        false => address,
    };
    let (ready, listening) = mpsc::channel();
    let answering = thread::Builder::new().name("weft-probe".to_owned());
    answering.spawn(move || {
        match ProbeServer::listen(&floor.provider, SocketAddr::new(own, 0)) {
            Ok(server) => {
                let _ = ready.send(server.local_address());
                // What fails here fails at the other end, which says so.
                let _ = floor.serve(server);
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    })?;
    listening.recv().map_err(io::Error::other)?
}

/// Listens for one other end, and answers it.
pub(super) fn listen(probe: Probe, address: IpAddr) -> Result<SocketAddr, String> {
    let fault = |error: io::Error| format!("cannot listen at {address}: {error}");
    if let Some(floor) = rdma_floor(probe, Duration::ZERO).map_err(fault)? {
        return listen_rdma(floor, address).map_err(fault);
    }
    let listener = TcpListener::bind((address, 0)).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    let at = listener.local_addr().map_err(fault)?;
    let answering = thread::Builder::new().name("weft-probe".to_owned()).spawn(move || {
        let end = monotonic_time() + LISTEN;
        while monotonic_time() < end {
            match listener.accept() {
                Ok((stream, _)) => {
                    // What fails here fails at the other end, which says so.
                    let _ = stream.set_nonblocking(false);
                    let _ = floor(probe, address, Duration::ZERO).map(|floor| floor.serve(stream));
                    return;
                }
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    });
    answering.map_err(fault)?;
    Ok(at)
}

/// Probes the way to another end.
pub(super) fn run(way: &Way) -> Result<ProbeResult, String> {
    let fault = |error: io::Error| format!("{} from {}: {error}", way.to, way.from);
    let received = || {
        let path = Path::new("/sys/class/net").join(&way.interface).join("statistics/rx_bytes");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let drive = || match floor(way.probe, way.from, way.runtime) {
        Some(floor) => floor.check().and_then(|()| floor.drive(connected(way.from, way.to)?)),
        None => {
            let floor = rdma_floor(way.probe, way.runtime)?.ok_or(ErrorKind::InvalidInput)?;
            floor.drive(Some(way.from).filter(|from| !from.is_unspecified()), way.to)
        }
    };
    let (before, began) = (received(), monotonic_time());
    let result = drive().map_err(fault)?;
    let lasted = monotonic_time().saturating_sub(began).as_secs_f64();
    let counted = received().zip(before).map(|(after, before)| after.saturating_sub(before));
    let size = match way.probe {
        Probe::RoundTrip => PING_BYTES,
        Probe::Stream => STREAM_BYTES,
        Probe::Read { bytes, .. } | Probe::ReadRdma { bytes, .. } => bytes,
    };
    Ok(ProbeResult {
        round_trip: LatencyRecord::of(&result.latency),
        bytes_per_s: result.messages_per_second() * size as f64,
        through_interface: counted.map_or(0.0, |bytes| bytes as f64 / lasted.max(1e-9)),
        messages: result.messages,
        measured: result.measured,
        usage: result.client,
        ends: Some(result.ends),
    })
}

/// A connection from an address.
fn connected(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    if from.is_ipv4() != to.is_ipv4() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "addresses of two families"));
    }
    let socket = socket(family, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_a_round_trip_and_a_stream() {
        let here: IpAddr = "127.0.0.1".parse().expect("an address");
        let (spin, within, open) = (false, true, None);
        let read = Probe::Read { bytes: 4096, depth: 4, spin, within, open };
        for probe in [Probe::RoundTrip, Probe::Stream, read] {
            let to = listen(probe, here).expect("a listener");
            let (interface, runtime) = ("lo".to_owned(), Duration::from_millis(500));
            let began = monotonic_time();
            let found = run(&Way { probe, from: here, interface, to, runtime }).expect("a result");
            let lasted = monotonic_time().saturating_sub(began).as_secs_f64();
            assert!(found.round_trip.count > 0 && found.bytes_per_s > 0.0, "{found:?}");
            // The interface is counted for longer than messages are, so their rates differ where
            // that of the machine does.
            let bytes = found.bytes_per_s * found.measured.as_secs_f64();
            assert!(found.through_interface * lasted > bytes * 0.99, "{lasted} s, {found:?}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one");
        let (interface, runtime) = (String::new(), Duration::from_millis(1));
        let way = Way { probe: Probe::Stream, from: here, interface, to: closed, runtime };
        let why = run(&way).expect_err("nobody listens");
        assert!(why.contains(" from 127.0.0.1: Connection refused"), "{why}");
    }
}
