//! Measures the link without storage, as the reference of every result.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_host::{Provider, Transport};
use weft_load::Rate;
use weft_load::floor::rdma::{self, Probe, RdmaFloor};
use weft_load::floor::{Floor, FloorResult};
use weft_load::network::{COMMAND_BYTES, DATA_HEADER_BYTES};
use weft_load::pacer::Process;
use weft_reactor::congestion_between;

use super::deployment::Load;
use super::disturbed::{self, Beside};
use super::given::protocol_name;
use super::matrix::Cell;
use super::plan::Measure;
use super::side;
use crate::cells::is_spoilt;
use crate::results::{
    Configuration, Connection, Direction, LatencyRecord, LinkProbe, Mark, Record, Role, key, number,
};
use crate::results::{integer, text};

/// The stream consists of responses of this size, several in flight.
pub(super) const STREAM_BYTES: usize = 256 << 10;
pub(super) const STREAM_DEPTH: usize = 16;

/// Requests in flight when the message rate is measured.
pub(super) const MESSAGES_DEPTH: usize = 128;

/// How often each is measured; the best one counts.
const PARTS: u32 = 3;

/// A link between this machine and itself.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// TCP or RDMA.
    pub transport: Transport,
    /// The address of both ends.
    pub address: IpAddr,
    /// Where RDMA devices come from.
    pub rdma: &'a Provider,
}

/// How long the bare sockets of an open loop are measured, at most.
pub(super) const BARE: Duration = Duration::from_secs(2);

/// An open loop over bare sockets: one request in flight on one connection, at the rate of one of
/// a load's queues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenLoop {
    iops: f64,
    is_poisson: bool,
    is_write: bool,
    /// Whether the client polls until a request is due. The ends block for the other's bytes.
    spins: bool,
}

impl OpenLoop {
    /// That of a load; none of a closed loop, and none of a mix, which has no one size.
    pub(super) fn of(load: &Load) -> Option<Self> {
        let rate = load.job.rate?;
        let is_write = match text(&load.cell.configuration, key::PATTERN) {
            "read" | "randread" => false,
            "write" | "randwrite" => true,
            _ => return None,
        };
        let spins = text(&load.cell.configuration, key::HOST_POLLING) == "spin";
        Some(Self {
            iops: rate.iops,
            is_poisson: rate.process == Process::Poisson,
            is_write,
            spins,
        })
    }

    /// The messages of reads as those of this loop.
    pub(super) fn at_its_rate(self, reads: Floor) -> Floor {
        let process = if self.is_poisson { Process::Poisson } else { Process::Fixed };
        let data = reads.response_bytes - DATA_HEADER_BYTES;
        let (request_bytes, response_bytes) = match self.is_write {
            true => (COMMAND_BYTES + data, DATA_HEADER_BYTES),
            false => (reads.request_bytes, reads.response_bytes),
        };
        let (rate, spin_until_due) = (Some(Rate { iops: self.iops, process }), self.spins);
        Floor { rate, spin_until_due, request_bytes, response_bytes, ..reads }
    }
}

/// The record of the bare sockets beside an open loop.
pub(super) fn bare_socket(study: &str, cell: &Cell, open: OpenLoop) -> Record {
    let id = format!("role=link {}", cell.id);
    let mut record = Record::new(study, &id, Role::Link, cell.configuration.clone());
    record.mark(Mark::OpenLoop);
    record.mark(Mark::NotAwaited);
    record.values.insert(number::OFFERED_IOPS.to_owned(), open.iops);
    record
}

/// How a link is used.
#[derive(Clone, Copy, Debug)]
struct Use {
    data: usize,
    depth: usize,
    spin: bool,
    cpus: Option<(usize, usize)>,
    runtime: Duration,
    ramp: Duration,
    open: Option<OpenLoop>,
}

impl Link<'_> {
    /// Reads of so many bytes, as messages without storage.
    fn measure(&self, how: Use) -> io::Result<FloorResult> {
        let Use { data, depth, spin, cpus, runtime, ramp, open } = how;
        if self.transport == Transport::Rdma {
            let probe = rdma_reads(data, depth, spin)?;
            let provider = self.rdma.clone();
            return RdmaFloor { probe, runtime, ramp, cpus, provider }.measure(self.address);
        }
        let floor = floor(data, depth, self.address, self.address);
        let floor = Floor { spin, cpus, runtime, ramp, ..floor };
        open.map_or(floor.clone(), |open| open.at_its_rate(floor)).measure()
    }
}

/// Reads of so many bytes over RDMA.
pub(super) fn rdma_reads(data: usize, depth: usize, spin: bool) -> io::Result<Probe> {
    let bytes = u32::try_from(data).map_err(io::Error::other)?;
    let depth = u16::try_from(depth).map_err(io::Error::other)?;
    Ok(rdma::read_of(bytes, depth, spin))
}

/// Bytes of request and response that carry 4 KiB.
pub(super) const fn message_bytes(transport: Transport) -> (u64, u64) {
    match transport {
        Transport::Rdma => (rdma::CAPSULE_BYTES as u64, 4096 + rdma::RESPONSE_BYTES as u64),
        Transport::Tcp | Transport::Loopback => {
            (COMMAND_BYTES as u64, 4096 + DATA_HEADER_BYTES as u64)
        }
    }
}

/// Probes a link: once with both ends polling, if there is a processor for each, and once with both
/// ends asleep until they are woken.
///
/// # Errors
/// A socket or device cannot be opened.
pub fn probe(link: &Link<'_>, cpus: &[usize], each: Duration) -> io::Result<Vec<LinkProbe>> {
    let pair = pair(cpus);
    let mut probes = Vec::new();
    for spinning in [true, false] {
        if spinning && pair.is_none() {
            continue;
        }
        let run = |data: usize, depth: usize| {
            let (spin, cpus, runtime, ramp) = (spinning, pair, each, each / 5);
            let how = Use { data, depth, spin, cpus, runtime, ramp, open: None };
            // The floor is what the link can do: a part in which the machine was slower is none.
            let mut best = link.measure(how)?;
            for _ in 1..PARTS {
                let next = link.measure(how)?;
                if next.messages_per_second() > best.messages_per_second() {
                    best = next;
                }
            }
            Ok::<_, io::Error>(best)
        };
        let one = run(4096, 1)?;
        let many = run(4096, MESSAGES_DEPTH)?;
        let stream = run(STREAM_BYTES, STREAM_DEPTH)?;
        let is_spoilt = |result: &FloorResult| {
            let record = Record::new("", "", Role::Link, Configuration::new());
            is_spoilt(&filled(record, link.transport, result, 0, each / 5, pair))
        };
        let (address, (request_bytes, response_bytes)) =
            (link.address, message_bytes(link.transport));
        let congestion = match link.transport {
            Transport::Rdma => None,
            Transport::Tcp | Transport::Loopback => congestion_between(address, address),
        };
        probes.push(LinkProbe {
            between: format!("this machine and itself ({address})"),
            connection: Some(connection(link.transport, &one)),
            congestion: congestion.unwrap_or_default().to_owned(),
            spinning,
            spoilt: [&one, &many, &stream].into_iter().any(is_spoilt),
            request_bytes,
            response_bytes,
            round_trip: LatencyRecord::of(&one.latency),
            round_trips_per_s: one.messages_per_second(),
            messages_per_s: many.messages_per_second(),
            stream_bytes_per_s: stream.messages_per_second() * STREAM_BYTES as f64,
        });
    }
    Ok(probes)
}

/// A processor for each end: those of target and host in a plain cell.
fn pair(cpus: &[usize]) -> Option<(usize, usize)> {
    match cpus {
        [server, client, ..] => Some((*server, *client)),
        _ => None,
    }
}

/// Reads of so many bytes, with the socket options of weft's own connections between these ends: no
/// delay and its choice of congestion control. Neither sets the sizes of socket buffers.
pub(super) fn floor(data: usize, depth: usize, near: IpAddr, far: IpAddr) -> Floor {
    Floor {
        request_bytes: COMMAND_BYTES,
        response_bytes: DATA_HEADER_BYTES + data,
        depth,
        rate: None,
        spin_until_due: false,
        spin: false,
        runtime: Duration::ZERO,
        ramp: Duration::ZERO,
        cpus: None,
        think: (Duration::ZERO, Duration::ZERO),
        congestion: congestion_between(near, far).map(str::to_owned),
        address: far,
    }
}

fn connection(transport: Transport, result: &FloorResult) -> Connection {
    let (host, target) = result.ends;
    Connection::new(protocol_name(transport), host, target)
}

/// Measures a cell of the raw link between this machine and itself.
pub(super) fn measure(
    study: &str,
    cell: &Cell,
    measure: &Measure,
    link: &Link<'_>,
    cpus: &[usize],
) -> Result<Record, String> {
    let configuration = &cell.configuration;
    let data = size(configuration, key::BLOCK_BYTES, 4096);
    let cpus = pair(cpus);
    let spin = text(configuration, key::HOST_POLLING) == "spin";
    if spin && cpus.is_none() {
        return Err("two ends that poll need a processor each".to_owned());
    }
    let depth = size(configuration, key::DEPTH, 1);
    let (runtime, ramp) = (measure.runtime, measure.ramp);
    let how = Use { data, depth, spin, cpus, runtime, ramp, open: None };
    let result = link.measure(how).map_err(|error| error.to_string())?;
    let record = Record::new(study, &cell.id, Role::Link, configuration.clone());
    let mut record = filled(record, link.transport, &result, data, measure.ramp, cpus);
    record.mark(Mark::Loopback);
    record.mark(Mark::NotAwaited);
    Ok(record)
}

/// A size among the settings of a cell.
pub(super) fn size(of: &Configuration, key: &str, otherwise: usize) -> usize {
    integer(of, key).and_then(|size| usize::try_from(size).ok()).unwrap_or(otherwise)
}

/// Measures the bare sockets of an open loop between this machine and itself, on these processors
/// of server and client.
pub(super) fn measure_bare(
    record: Record,
    open: OpenLoop,
    runtime: Duration,
    link: &Link<'_>,
    cpus: Option<(usize, usize)>,
) -> Result<Record, String> {
    let data = size(&record.configuration, key::BLOCK_BYTES, 4096);
    let (ramp, open) = (runtime / 10, Some(open));
    let how = Use { data, depth: 1, spin: false, cpus, runtime, ramp, open };
    let result = link.measure(how).map_err(|error| error.to_string())?;
    let mut record = filled(record, link.transport, &result, data, ramp, cpus);
    record.mark(Mark::Loopback);
    Ok(record)
}

/// A record with what was measured, marked if other programs had the processors.
fn filled(
    mut record: Record,
    transport: Transport,
    result: &FloorResult,
    data: usize,
    ramp: Duration,
    cpus: Option<(usize, usize)>,
) -> Record {
    record.connection = Some(connection(transport, result));
    record.read = Some(direction(result, data));
    let (host, target) = side::ends(result, ramp.as_secs_f64(), cpus);
    (record.host, record.target) = (Some(host), Some(target));
    let p99_s = result.latency.percentile_ns(99.0).map(|ns| ns as f64 / 1e9);
    disturbed::mark(&mut [Beside {
        record: &mut record,
        machines: Vec::new(),
        target: Some(0),
        p99_s,
        is_alone: [true; 2],
        is_beside_network: false,
    }]);
    record
}

fn direction(result: &FloorResult, data: usize) -> Direction {
    Direction {
        requests: result.messages,
        bytes: result.messages * data as u64,
        seconds: result.measured.as_secs_f64(),
        latency: LatencyRecord::of(&result.latency),
        completion: None,
        window_iops: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rustix::net::sockopt;
    use weft_reactor::Reactor;

    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_link_has_a_round_trip_and_a_bandwidth() {
        let link = Link { transport: Transport::Tcp, address: LOCALHOST, rdma: &Provider::System };
        let probes = probe(&link, &[0], Duration::from_millis(40)).expect("a link");
        assert_eq!(probes.len(), 1, "one processor is not enough for two ends that poll");
        let probe = &probes[0];
        assert!(!probe.spinning && probe.round_trip.count > 0);
        assert!(probe.messages_per_s > 0.0 && probe.stream_bytes_per_s > 0.0);
        assert_eq!((probe.request_bytes, probe.response_bytes), (72, 4120));
        let connection = probe.connection.as_ref().expect("both ends");
        assert!(connection.is_like(&Connection::over_loopback("tcp")), "{connection:?}");
        assert!(connection.host.port() != 0 && connection.target.port() != 0);
    }

    #[test]
    fn the_bare_sockets_of_an_open_loop_have_its_rate_and_sizes() {
        let rdma = &Provider::System;
        let link = Link { transport: Transport::Tcp, address: LOCALHOST, rdma };
        let configuration = Configuration::from([
            (key::BLOCK_BYTES.to_owned(), 8192u64.into()),
            (key::LOAD_PERCENT.to_owned(), 50u64.into()),
        ]);
        let id = "load_percent=50 transport=tcp".to_owned();
        let cell = Cell { id, role: Role::Plain, configuration, missing: None };
        for is_write in [false, true] {
            let open = OpenLoop { iops: 400.0, is_poisson: true, is_write, spins: false };
            let record = bare_socket("mine", &cell, open);
            assert_eq!(record.cell, "role=link load_percent=50 transport=tcp");
            let time = Duration::from_millis(500);
            let record = measure_bare(record, open, time, &link, None).expect("measured");
            let read = record.read.as_ref().expect("messages");
            // 200 are due; some of them late on a busy machine.
            assert!((20..=260).contains(&read.requests), "{}", read.requests);
            assert_eq!(read.bytes, 8192 * read.requests);
            assert!(record.has(Mark::OpenLoop) && record.has(Mark::Loopback));
            let floor = open.at_its_rate(floor(8192, 1, LOCALHOST, LOCALHOST));
            let sizes = (floor.request_bytes, floor.response_bytes);
            assert_eq!(sizes, if is_write { (72 + 8192, 24) } else { (72, 24 + 8192) });
        }
    }

    #[test]
    fn a_probe_has_the_socket_options_of_wefts_own_connections() {
        let probe = floor(4096, 1, LOCALHOST, LOCALHOST);
        let listener = TcpListener::bind((LOCALHOST, 0)).expect("a socket");
        let stream = || TcpStream::connect(listener.local_addr().expect("bound")).expect("it");
        let (ours, probed) = (stream(), stream());
        let options = |stream: &TcpStream| {
            let congestion = sockopt::tcp_congestion(stream).expect("a name");
            let sizes = (
                sockopt::socket_send_buffer_size(stream).expect("a size"),
                sockopt::socket_recv_buffer_size(stream).expect("a size"),
            );
            (congestion, sockopt::tcp_nodelay(stream).expect("a flag"), sizes)
        };
        let mut reactor = Reactor::new(weft_reactor::Config::default()).expect("a reactor");
        reactor.add_stream(ours.try_clone().expect("a handle").into()).expect("a connection");
        probe.prepare(&probed).expect("every kernel has it");
        assert_eq!(options(&ours), options(&probed));
        assert!(options(&probed).1 && probe.congestion.as_deref() == Some("reno"));
    }

    #[test]
    fn a_link_over_rdma_is_probed_and_measured_by_its_own_verbs() {
        let rdma = &Provider::Software(weft_transport::rdma::software::Fabric::default());
        let address = IpAddr::from([10, 0, 0, 1]);
        let link = Link { transport: Transport::Rdma, address, rdma };
        let probes = probe(&link, &[0], Duration::from_millis(20)).expect("a link");
        let probe = &probes[0];
        assert_eq!((probe.request_bytes, probe.response_bytes), (64, 4112));
        assert!(probe.messages_per_s > 0.0 && probe.stream_bytes_per_s > 0.0);
        assert_eq!(probe.connection.as_ref().map(|ends| &*ends.protocol), Some("rdma"));
        assert_eq!(probe.congestion, "", "it has none of TCP's");

        let configuration = Configuration::from([
            (key::TRANSPORT.to_owned(), "rdma".into()),
            (key::BLOCK_BYTES.to_owned(), 131_072u64.into()),
            (key::DEPTH.to_owned(), 16u64.into()),
        ]);
        let cell = Cell { id: "x".to_owned(), role: Role::Link, configuration, missing: None };
        let plan = Measure {
            runtime: Duration::from_millis(20),
            ramp: Duration::from_millis(5),
            ..Measure::default()
        };
        let record = measure("mine", &cell, &plan, &link, &[0]).expect("measured");
        let read = record.read.as_ref().expect("reads");
        assert!(read.requests > 0 && read.bytes == read.requests * 131_072);
        let ends = record.connection.as_ref().expect("both ends");
        assert!(ends.protocol == "rdma" && ends.target.ip() == address, "{ends:?}");
    }
}
