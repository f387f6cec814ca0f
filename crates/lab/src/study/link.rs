//! Measures the link without storage, as the reference of every result.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use weft_host::Transport;
use weft_load::floor::{Floor, FloorResult};
use weft_load::network::{COMMAND_BYTES, DATA_HEADER_BYTES};
use weft_reactor::congestion_between;

use super::disturbed::{self, Beside};
use super::given::protocol;
use super::matrix::Cell;
use super::plan::Measure;
use super::side;
use crate::cells::is_spoilt;
use crate::results::{
    Configuration, Connection, Direction, LatencyRecord, LinkProbe, Mark, Record, Role, key,
};
use crate::results::{integer, text};

/// The stream consists of responses of this size, several in flight.
pub(super) const STREAM_BYTES: usize = 256 << 10;
pub(super) const STREAM_DEPTH: usize = 16;

/// Requests in flight when the message rate is measured.
pub(super) const MESSAGES_DEPTH: usize = 128;

/// How often each is measured; the best one counts.
const PARTS: u32 = 3;

/// Probes TCP between this machine and itself at one of its addresses: once with both ends polling,
/// if there is a processor for each, and once with both ends asleep until they are woken.
///
/// # Errors
/// A socket cannot be opened.
pub fn probe(address: IpAddr, cpus: &[usize], each: Duration) -> io::Result<Vec<LinkProbe>> {
    let pair = pair(cpus);
    let mut probes = Vec::new();
    for spinning in [true, false] {
        if spinning && pair.is_none() {
            continue;
        }
        let run = |data: usize, depth: usize| {
            let floor = floor(data, depth, address, address);
            let (runtime, ramp) = (each, each / 5);
            let floor = Floor { spin: spinning, cpus: pair, runtime, ramp, ..floor };
            // The floor is what the link can do: a part in which the machine was slower is none.
            let mut best = floor.measure()?;
            for _ in 1..PARTS {
                let next = floor.measure()?;
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
            is_spoilt(&filled(record, result, 0, each / 5, pair))
        };
        probes.push(LinkProbe {
            between: format!("this machine and itself ({address})"),
            connection: Some(connection(&one)),
            congestion: congestion_between(address, address).unwrap_or_default().to_owned(),
            spinning,
            spoilt: [&one, &many, &stream].into_iter().any(is_spoilt),
            request_bytes: COMMAND_BYTES as u64,
            response_bytes: (4096 + DATA_HEADER_BYTES) as u64,
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

fn connection(result: &FloorResult) -> Connection {
    let (host, target) = result.ends;
    Connection::new("tcp", host, target)
}

/// Measures a cell of the raw link: TCP between this machine and itself at one of its addresses.
pub(super) fn measure(
    study: &str,
    cell: &Cell,
    measure: &Measure,
    address: IpAddr,
    cpus: &[usize],
) -> Result<Record, String> {
    let configuration = &cell.configuration;
    if protocol(text(configuration, key::TRANSPORT)) != Some(Transport::Tcp) {
        return Err("the raw link is measured over TCP only".to_owned());
    }
    let size = |key, otherwise| {
        integer(configuration, key).and_then(|n| usize::try_from(n).ok()).unwrap_or(otherwise)
    };
    let data = size(key::BLOCK_BYTES, 4096);
    let cpus = pair(cpus);
    let spin = text(configuration, key::HOST_POLLING) == "spin";
    if spin && cpus.is_none() {
        return Err("two ends that poll need a processor each".to_owned());
    }
    let floor = floor(data, size(key::DEPTH, 1), address, address);
    let floor = Floor { spin, cpus, runtime: measure.runtime, ramp: measure.ramp, ..floor };
    let result = floor.measure().map_err(|error| error.to_string())?;
    let record = Record::new(study, &cell.id, Role::Link, configuration.clone());
    let mut record = filled(record, &result, data, measure.ramp, cpus);
    record.mark(Mark::Loopback);
    record.mark(Mark::NotAwaited);
    Ok(record)
}

/// A record with what was measured, marked if other programs had the processors.
fn filled(
    mut record: Record,
    result: &FloorResult,
    data: usize,
    ramp: Duration,
    cpus: Option<(usize, usize)>,
) -> Record {
    record.connection = Some(connection(result));
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
        let probes = probe(LOCALHOST, &[0], Duration::from_millis(40)).expect("a link");
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
    fn an_rdma_link_is_not_measured_over_tcp() {
        let configuration = Configuration::from([(key::TRANSPORT.to_owned(), "rdma".into())]);
        let cell = Cell { id: "x".to_owned(), role: Role::Link, configuration, missing: None };
        let error = measure("mine", &cell, &Measure::default(), LOCALHOST, &[0]);
        assert!(error.is_err_and(|why| why.contains("over TCP only")));
    }
}
