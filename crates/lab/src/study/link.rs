//! Measures the link without storage, as the reference of every result.

use std::{io, time::Duration};

use super::{
    matrix::{integer, text},
    plan::Measure,
    side,
};
use crate::{
    floor::{Floor, FloorResult},
    results::{Configuration, Direction, LatencyRecord, LinkProbe, Mark, Record, Role, key},
};

/// Bytes of a read's header and command on the wire.
pub const COMMAND_BYTES: usize = 72;

/// Bytes of the header that precedes a read's data.
pub const DATA_HEADER_BYTES: usize = 24;

/// The stream consists of responses of this size, several in flight.
const STREAM_BYTES: usize = 256 << 10;
const STREAM_DEPTH: usize = 16;

/// Requests in flight when the message rate is measured.
const MESSAGES_DEPTH: usize = 128;

/// Probes the loopback link of this machine: once with both ends polling, if there is a processor
/// for each, and once with both ends asleep until they are woken.
///
/// # Errors
/// A socket cannot be opened.
pub fn probe(cpus: &[usize], each: Duration) -> io::Result<Vec<LinkProbe>> {
    let pair = pair(cpus);
    let mut probes = Vec::new();
    for spinning in [true, false] {
        if spinning && pair.is_none() {
            continue;
        }
        let run = |data: usize, depth: usize| {
            floor(data, depth, (spinning, pair), (each, each / 5)).measure()
        };
        let one = run(4096, 1)?;
        let many = run(4096, MESSAGES_DEPTH)?;
        let stream = run(STREAM_BYTES, STREAM_DEPTH)?;
        probes.push(LinkProbe {
            between: "this machine and itself (loopback)".to_owned(),
            spinning,
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

fn floor(
    data: usize,
    depth: usize,
    (spin, cpus): (bool, Option<(usize, usize)>),
    (runtime, ramp): (Duration, Duration),
) -> Floor {
    Floor {
        request_bytes: COMMAND_BYTES,
        response_bytes: DATA_HEADER_BYTES + data,
        depth,
        spin,
        runtime,
        ramp,
        cpus,
        think: (Duration::ZERO, Duration::ZERO),
        congestion: None,
    }
}

/// Measures a cell of the raw link.
pub(super) fn measure(
    study: &str,
    cell: &str,
    configuration: &Configuration,
    measure: &Measure,
    cpus: &[usize],
) -> Result<Record, String> {
    let size = |key, otherwise| {
        integer(configuration, key).and_then(|n| usize::try_from(n).ok()).unwrap_or(otherwise)
    };
    let data = size(key::BLOCK_BYTES, 4096);
    let cpus = pair(cpus);
    let spin = text(configuration, key::HOST_POLLING) == "spin";
    if spin && cpus.is_none() {
        return Err("two ends that poll need a processor each".to_owned());
    }
    let times = (measure.runtime, measure.ramp);
    let floor = floor(data, size(key::DEPTH, 1), (spin, cpus), times);
    let result = floor.measure().map_err(|error| error.to_string())?;
    let mut record = Record::new(study, cell, Role::Link, configuration.clone());
    record.read = Some(direction(&result, data));
    let (host, target) = side::ends(&result, measure.ramp.as_secs_f64(), cpus);
    record.host = Some(host);
    record.target = Some(target);
    record.mark(Mark::Loopback);
    record.mark(Mark::NotAwaited);
    Ok(record)
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
    use super::*;

    #[test]
    fn a_link_has_a_round_trip_and_a_bandwidth() {
        let probes = probe(&[0], Duration::from_millis(40)).expect("a link");
        assert_eq!(probes.len(), 1, "one processor is not enough for two ends that poll");
        let probe = &probes[0];
        assert!(!probe.spinning && probe.round_trip.count > 0);
        assert!(probe.messages_per_s > 0.0 && probe.stream_bytes_per_s > 0.0);
        assert_eq!((probe.request_bytes, probe.response_bytes), (72, 4120));
    }
}
