//! The raw link between the machines of a study, as the reference of what is measured over it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weft_host::Transport;

use super::calls::{ProbeListen, ProbeRun};
use super::fleet::Fleet;
use super::probe::{Probe, ProbeResult, Way};
use crate::results::text;
use crate::results::{Connection, Direction, LinkProbe, Mark, Record, Role, Side, key};
use crate::study::given::{protocol, protocol_name};
use crate::study::link::{
    self, MESSAGES_DEPTH, OpenLoop, STREAM_BYTES, STREAM_DEPTH, message_bytes,
};
use crate::study::matrix::Cell;
use crate::study::plan::Measure;
use crate::study::side;
use crate::study::site::link_of;

impl Fleet {
    /// Probes a protocol from the target's machine to the first load's over a link, or over the
    /// address that all loads reach: once with both ends polling, if they have processors, and
    /// once with both asleep until they are woken.
    ///
    /// # Errors
    /// One sentence that names the machine.
    pub(in crate::study) fn probe_link(
        &self,
        transport: Transport,
        link: &str,
        each: Duration,
    ) -> Result<Vec<LinkProbe>, String> {
        let mut probes = Vec::new();
        for spinning in [true, false] {
            if spinning && self.is_one_machine() && self.target().description.cpus.len() < 2 {
                continue;
            }
            let read = |bytes, depth| {
                let probe = Reads { transport, bytes, depth, spin: spinning, open: None };
                self.read_over(link, probe, each)
            };
            let (request_bytes, response_bytes) = message_bytes(transport);
            let (one, connection) = read(4096, 1)?;
            let (many, _) = read(4096, MESSAGES_DEPTH)?;
            let (stream, _) = read(STREAM_BYTES, STREAM_DEPTH)?;
            let per_s = |found: &ProbeResult| found.messages as f64 / found.measured.as_secs_f64();
            let loads = self.loads();
            let load = loads.first().ok_or("there is no machine for the load")?;
            probes.push(LinkProbe {
                between: format!("{} and {}", load.place, self.target().place),
                connection: Some(connection),
                // That of connections to another machine is the system's.
                congestion: String::new(),
                spinning,
                spoilt: false,
                request_bytes,
                response_bytes,
                round_trips_per_s: per_s(&one),
                round_trip: one.round_trip,
                messages_per_s: per_s(&many),
                stream_bytes_per_s: stream.bytes_per_s,
            });
        }
        Ok(probes)
    }

    /// Measures a cell of the raw link.
    ///
    /// # Errors
    /// One sentence that names the machine.
    pub(in crate::study) fn measure_link(
        &self,
        study: &str,
        cell: &Cell,
        measure: &Measure,
    ) -> Result<Record, String> {
        let configuration = &cell.configuration;
        let bytes = link::size(configuration, key::BLOCK_BYTES, 4096);
        let depth = link::size(configuration, key::DEPTH, 1);
        let spin = text(configuration, key::HOST_POLLING) == "spin";
        let name = text(configuration, key::TRANSPORT);
        let transport = protocol(name).ok_or_else(|| format!("{name} has no link"))?;
        let reads = Reads { transport, bytes, depth, spin, open: None };
        let record = Record::new(study, &cell.id, Role::Link, configuration.clone());
        let mut record = self.filled(record, reads, measure.runtime)?;
        record.mark(Mark::NotAwaited);
        Ok(record)
    }

    /// Measures the bare sockets of an open loop.
    ///
    /// # Errors
    /// One sentence that names the machine.
    pub(in crate::study) fn measure_bare(
        &self,
        record: Record,
        open: OpenLoop,
        runtime: Duration,
    ) -> Result<Record, String> {
        let bytes = link::size(&record.configuration, key::BLOCK_BYTES, 4096);
        let transport = Transport::Tcp;
        let reads = Reads { transport, bytes, depth: 1, spin: false, open: Some(open) };
        self.filled(record, reads, runtime)
    }

    /// A record with what is measured over the link of its transport.
    fn filled(&self, mut record: Record, reads: Reads, time: Duration) -> Result<Record, String> {
        let link = link_of(text(&record.configuration, key::TRANSPORT)).to_owned();
        let (found, connection) = self.read_over(&link, reads, time)?;
        if connection.is_within_a_machine() {
            record.mark(Mark::Loopback);
        }
        // The other end does not report its own.
        record.mark(Mark::TargetUnknown);
        record.connection = Some(connection);
        record.host = Some(Side {
            // The time before it counted is a fifth of that, and its CPU time has both.
            seconds: found.measured.as_secs_f64() * 1.2,
            threads: vec![side::end(&found.usage, found.measured.as_secs_f64() * 1.2)],
            ..Side::default()
        });
        record.read = Some(Direction {
            requests: found.messages,
            bytes: found.messages * reads.bytes as u64,
            seconds: found.measured.as_secs_f64(),
            latency: found.round_trip,
            ..Direction::default()
        });
        Ok(record)
    }

    /// Reads over a link, and the connection that they went over.
    fn read_over(
        &self,
        link: &str,
        reads: Reads,
        runtime: Duration,
    ) -> Result<(ProbeResult, Connection), String> {
        let Reads { transport, bytes, depth, spin, open } = reads;
        let to: IpAddr = match self.listens_at(link)? {
            Some(address) => address,
            // The agent knows where its RDMA device is.
            None if transport == Transport::Rdma => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            None => self.route()?,
        };
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let from = self.connects_from(link, 0)?;
        let probe = match transport {
            Transport::Rdma => Probe::ReadRdma { bytes, depth, spin },
            Transport::Tcp | Transport::Loopback => {
                Probe::Read { bytes, depth, spin, within: to.is_loopback(), open }
            }
        };
        let at = self.target().call::<ProbeListen>(&(probe, to))?;
        let loads = self.loads();
        let load = loads.first().ok_or("there is no machine for the load")?;
        let interface = String::new();
        let way = Way { probe, from: from.unwrap_or(any), interface, to: at, runtime };
        let found = load.call::<ProbeRun>(&way)?;
        let (host, target) = found.ends.ok_or("a probe has no ends")?;
        let ends = Connection::new(protocol_name(transport), host, target);
        Ok((found, self.over_link(link, ends.within(self.is_one_machine()))?))
    }
}

/// Reads that are probed.
#[derive(Clone, Copy, Debug)]
struct Reads {
    transport: Transport,
    bytes: usize,
    depth: usize,
    spin: bool,
    open: Option<OpenLoop>,
}
