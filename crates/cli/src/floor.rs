//! `weft floor`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use weft_backend::duration::exact;
use weft_load::floor::rdma::{
    CAPSULE_BYTES, Probe, ProbeOperation, Provider, RESPONSE_BYTES, RdmaFloor,
};
use weft_load::floor::{Crowd, Floor, FloorResult};
use weft_load::network::{COMMAND_BYTES, DATA_HEADER_BYTES};
use weft_load::pacer::Process;
use weft_load::{Rate, units};

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::values::{Cpus, cpus, size, time};

/// Options of `weft floor`.
///
/// A client keeps requests in flight over TCP or RDMA on this machine, and a server answers each
/// with a response. The defaults are one TCP connection and the sizes of a 4 KiB read.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure RDMA between two queue pairs at this address of an RDMA device, instead of TCP.
    #[arg(long, value_name = "ADDRESS",
        conflicts_with_all = ["connections", "rate_iops", "think", "congestion"])]
    rdma: Option<IpAddr>,
    /// With --rdma: SENDs that are answered by SENDs, or RDMA READs of the server's memory.
    #[arg(long, value_enum, default_value_t, requires = "rdma")]
    operation: RdmaOperation,
    /// Bytes of a request; by default a read's, 72 over TCP and 64 over RDMA. A READ has none.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    request: Option<u64>,
    /// Bytes of a response; by default a 4 KiB read's, 4120 over TCP and 4112 over RDMA. Of a READ
    /// the bytes that it reads, by default 4096.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    response: Option<u64>,
    /// Requests in flight of each connection.
    #[arg(long, default_value_t = 1, value_name = "DEPTH")]
    iodepth: usize,
    /// Number of connections, served with epoll; without this option one blocking connection.
    #[arg(long, value_name = "CONNECTIONS")]
    connections: Option<usize>,
    /// Poll instead of sleeping in the kernel, at both ends.
    #[arg(long)]
    spin: bool,
    /// An open loop of so many requests a second with one in flight, whose latency counts from when
    /// each was due: the twin of an open-loop cell without storage and protocol.
    #[arg(long, alias = "rate_iops", value_name = "RATE", conflicts_with = "connections")]
    rate_iops: Option<f64>,
    /// How they follow each other.
    #[arg(long, alias = "rate_process", value_enum, default_value_t, requires = "rate_iops")]
    rate_process: Arrivals,
    /// How the client waits until a request is due.
    #[arg(long, value_enum, default_value_t, requires = "rate_iops")]
    wait: Wait,
    /// Measured time.
    #[arg(long, default_value = "3", value_parser = time, value_name = "TIME")]
    runtime: Duration,
    /// Time it runs before that.
    #[arg(long, default_value = "500ms", value_parser = time, value_name = "TIME")]
    ramp_time: Duration,
    /// Processors of server and client, like 0,1; by default the scheduler's choice.
    #[arg(long, value_parser = cpus, value_name = "CPUS")]
    cpus: Option<Cpus>,
    /// Time that server and client compute between a receive and the next send, like 1us,600ns:
    /// gives the upper bound for a target and a host with that much work.
    #[arg(long, default_value = "0,0", value_parser = think, value_name = "TIME,TIME")]
    think: (Duration, Duration),
    /// Congestion control of both ends, like reno; by default the system's. weft uses reno if both
    /// ends are on one machine.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// What is done over RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum RdmaOperation {
    /// A SEND each way.
    #[default]
    Send,
    /// An RDMA READ.
    Read,
}

/// How requests of an open loop follow each other, with fio's names.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Arrivals {
    /// At equal distances.
    #[default]
    Linear,
    /// At random.
    Poisson,
}

/// How the client waits until a request is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Asleep.
    #[default]
    Sleep,
    /// Polling the clock.
    Spin,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let floor = floor(options)?;
    let result = match (options.rdma, options.connections) {
        (Some(address), _) => rdma(options, &floor).measure(address),
        (None, Some(connections)) => Crowd { floor: floor.clone(), connections }.measure(),
        (None, None) => floor.measure(),
    };
    let result = result.map_err(|error| Failure::Because(error.to_string()))?;
    match options.output_format {
        Format::Human => output::print(&human(options, &floor, &result)),
        Format::Json => output::print_json(&as_json(options, &floor, &result)),
    }
}

fn floor(options: &Options) -> Result<Floor, Failure> {
    let cpus = match options.cpus.as_ref().map(|cpus| cpus.0.as_slice()) {
        None => None,
        Some([server, client]) => Some((*server, *client)),
        Some(_) => return Err(Failure::because("--cpus takes two: the server's and the client's")),
    };
    let (request, response) = match (options.rdma, options.operation) {
        (None, _) => (COMMAND_BYTES, DATA_HEADER_BYTES + READ_BYTES),
        (Some(_), RdmaOperation::Send) => {
            (capsule(CAPSULE_BYTES), capsule(RESPONSE_BYTES) + READ_BYTES)
        }
        (Some(_), RdmaOperation::Read) => (0, READ_BYTES),
    };
    let bytes = |given: Option<u64>, otherwise| {
        given.map_or(otherwise, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    };
    Ok(Floor {
        request_bytes: bytes(options.request, request),
        response_bytes: bytes(options.response, response),
        depth: options.iodepth,
        spin: options.spin,
        rate: options.rate_iops.map(|iops| Rate { iops, process: options.rate_process.process() }),
        spin_until_due: options.wait == Wait::Spin,
        runtime: options.runtime,
        ramp: options.ramp_time,
        cpus,
        think: options.think,
        congestion: options.congestion.clone(),
        address: Ipv4Addr::LOCALHOST.into(),
    })
}

/// Data of a read whose messages are the default.
const READ_BYTES: usize = 4096;

fn capsule(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The same messages over RDMA.
fn rdma(options: &Options, floor: &Floor) -> RdmaFloor {
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let depth = u16::try_from(floor.depth).unwrap_or(u16::MAX);
    let operation = match options.operation {
        RdmaOperation::Send => ProbeOperation::Send,
        RdmaOperation::Read => ProbeOperation::Read,
    };
    RdmaFloor {
        probe: Probe {
            operation,
            request_bytes: bytes(floor.request_bytes),
            response_bytes: bytes(floor.response_bytes),
            depth,
            spin: floor.spin,
        },
        runtime: floor.runtime,
        ramp: floor.ramp,
        cpus: floor.cpus,
        provider: Provider::System,
    }
}

impl Arrivals {
    const fn process(self) -> Process {
        match self {
            Self::Linear => Process::Fixed,
            Self::Poisson => Process::Poisson,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Poisson => "poisson",
        }
    }
}

impl Wait {
    const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        }
    }
}

fn think(text: &str) -> Result<(Duration, Duration), String> {
    let Some((server, client)) = text.split_once(',') else {
        return Err("expected two times, the server's and the client's, like 1us,600ns".to_owned());
    };
    Ok((time(server)?, time(client)?))
}

fn percentile(result: &FloorResult, percentile: f64) -> String {
    let value = result.latency.percentile_ns(percentile);
    value.map_or("unresolved".to_owned(), |ns| units::time(ns as f64))
}

/// A rate below this share of the wanted one was not reached.
const FULL_RATE: f64 = 0.98;

fn human(options: &Options, floor: &Floor, result: &FloorResult) -> String {
    let rate = result.messages_per_second();
    let missed = options.rate_iops.filter(|wanted| rate < FULL_RATE * wanted);
    let missed = missed.map_or_else(String::new, |wanted| {
        format!(" ({} of the rate: it was not reached)", units::percent(rate / wanted))
    });
    let bytes = rate * (floor.request_bytes + floor.response_bytes) as f64;
    format!(
        "{} floor: request {} response {} depth {}{} {}{}{}\n  \
         {} messages/s{missed}, {} both ways\n  \
         latency: min {}, mean {}, p50 {}, p99 {}, p99.9 {}, max {}\n",
        protocol(options),
        floor.request_bytes,
        floor.response_bytes,
        floor.depth,
        options.connections.map(|number| format!(" connections {number}")).unwrap_or_default(),
        if floor.spin { "spinning" } else { "blocking" },
        thinking(floor.think.0, floor.think.1),
        offered(options),
        units::count(rate),
        units::byte_rate(bytes),
        units::time(result.latency.min_ns() as f64),
        units::time(result.latency.mean_ns()),
        percentile(result, 50.0),
        percentile(result, 99.0),
        percentile(result, 99.9),
        units::time(result.latency.max_ns() as f64),
    )
}

fn protocol(options: &Options) -> &'static str {
    match (options.rdma, options.operation) {
        (None, _) => "tcp",
        (Some(_), RdmaOperation::Send) => "rdma send",
        (Some(_), RdmaOperation::Read) => "rdma read",
    }
}

fn thinking(server: Duration, client: Duration) -> String {
    if server.is_zero() && client.is_zero() {
        return String::new();
    }
    format!(" thinking {}, {}", exact(server), exact(client))
}

fn offered(options: &Options) -> String {
    options.rate_iops.map_or_else(String::new, |rate| {
        let (arrivals, wait) = (options.rate_process.name(), options.wait.name());
        format!(" rate {} {arrivals} wait {wait}", units::count(rate))
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn as_json(options: &Options, floor: &Floor, result: &FloorResult) -> serde_json::Value {
    json!({
        "protocol": protocol(options),
        "request_bytes": floor.request_bytes,
        "response_bytes": floor.response_bytes,
        "iodepth": floor.depth,
        "connections": options.connections,
        "spin": floor.spin,
        "rate_iops": options.rate_iops,
        "rate_process": options.rate_iops.map(|_| options.rate_process.name()),
        "wait": options.rate_iops.map(|_| options.wait.name()),
        "server_think_ns": nanoseconds(floor.think.0),
        "client_think_ns": nanoseconds(floor.think.1),
        "congestion": floor.congestion,
        "messages": result.messages,
        "messages_per_second": result.messages_per_second(),
        "latency_ns": {
            "min": result.latency.min_ns(),
            "mean": result.latency.mean_ns(),
            "stddev": result.latency.stddev_ns(),
            "p50": result.latency.percentile_ns(50.0),
            "p99": result.latency.percentile_ns(99.0),
            "p99.9": result.latency.percentile_ns(99.9),
            "max": result.latency.max_ns(),
        },
        "client_cpu_seconds": (result.client.user + result.client.system).as_secs_f64(),
        "server_cpu_seconds": (result.server.user + result.server.system).as_secs_f64(),
    })
}
