//! Results as data: everything that a run of a study writes, and the only input of a report.
//!
//! A directory of results holds
//! - `results.jsonl`: one [`Record`] a line for each repeat of each cell, in the order of
//!   measurement. Lines are only appended; of two lines for the same cell and repeat the later one
//!   counts (a resumed run measures again what had failed).
//! - `environment.json`: one [`Environment`].
//! - `plan.toml`: the plan as it was run.
//! - `answer.json`: the study's question and its answer, an [`Answer`](crate::claims::Answer).
//! - `results.csv`: the same as `results.jsonl` without the histograms.
//!
//! `docs/results.md` describes every field. What was measured (protocol, link, both ends) is in
//! [`Record::connection`]; `transport` of a configuration is the cell's label. A reader ignores
//! fields that it does not know: fields may be added within a version of the schema, but none
//! changes its meaning.

mod connection;
mod csv;
mod environment;
mod record;
pub(crate) mod seal;
mod store;
mod upgrade;
mod value;

pub use connection::Connection;
pub use environment::{
    AgentMachine, Environment, Hardware, IdleRate, Interface, LinkProbe, NvmeController, Processor,
    Slot, TestedTarget,
};
pub(crate) use record::fairness;
pub use record::{
    Core, Delay, Direction, KnobRecord, LoadPart, Mark, NamespaceCounts, Record, Role, Side,
    SideMachine, Status, Thread, Window,
};
pub use store::{LoadError, Results, Store, each_once, load};
pub(crate) use store::{Repeats, from_json};
pub use value::{Configuration, Value, integer, text};
pub use weft_load::histogram::{LatencyRecord, LatencyRecordError};

/// The version of the schema that this build writes. It reads this one and schema 1.
pub const SCHEMA: u32 = 2;

/// Names of the files in a directory of results.
pub mod file {
    /// The records.
    pub const RECORDS: &str = "results.jsonl";
    /// The environment.
    pub const ENVIRONMENT: &str = "environment.json";
    /// The plan as it was run.
    pub const PLAN: &str = "plan.toml";
    /// The answer.
    pub const ANSWER: &str = "answer.json";
    /// What was advised from them.
    pub const ADVICE: &str = "advice.json";
    /// The CSV table.
    pub const TABLE: &str = "results.csv";
}

/// Names of the entries of a [`Configuration`] that the built-in plans use; a plan may add others.
pub mod key {
    /// The label of a cell: `local`, `tcp` (over loopback, or to the target that was given),
    /// `tcp-link` (over a link between machines), `rdma` (to the target that was given, or to one
    /// on this machine), `loopback` (within the process that drives the load).
    pub const TRANSPORT: &str = "transport";
    /// fio's name: `randread`.
    pub const PATTERN: &str = "pattern";
    /// Share of reads in a mix.
    pub const READ_PERCENT: &str = "read_percent";
    /// Bytes of a request.
    pub const BLOCK_BYTES: &str = "block_bytes";
    /// Requests in flight of each job.
    pub const DEPTH: &str = "depth";
    /// Copies of the load, each with its own queue.
    pub const JOBS: &str = "jobs";
    /// Processors of each side: sets `host_cores` and `target_cores`.
    pub const CORES: &str = "cores";
    /// Processors of the host that drive load.
    pub const HOST_CORES: &str = "host_cores";
    /// Poll groups of the target.
    pub const TARGET_CORES: &str = "target_cores";
    /// How the host waits for completions: `adaptive`, `spin` (poll) or `sleep` (interrupt).
    pub const HOST_POLLING: &str = "host_polling";
    /// How long the target polls for commands before it sleeps.
    pub const TARGET_IDLE_POLL_US: &str = "target_idle_poll_us";
    /// Whether the target has express queues for what has no rule: `on` or `off`.
    pub const TARGET_EXPRESS: &str = "target_express";
    /// Where the load's threads run: `same-core` or `other-core` as the host's packet work.
    pub const PLACEMENT: &str = "placement";
    /// The device behind target and local: `memory`, `null` or what `--local` said.
    pub const DEVICE: &str = "device";
    /// The size of that device.
    pub const DEVICE_BYTES: &str = "device_bytes";
    /// Which tenant is the foreground: `l-app`, `t-app` or `b-app`.
    pub const FOREGROUND: &str = "foreground";
    /// What the background does: `storage`, or `network` (the bytes of its reads over the same link
    /// without storage).
    pub const BACKGROUND: &str = "background";
    /// Which load the background is, of those that the plan names.
    pub const NEIGHBOUR: &str = "neighbour";
    /// Load of the background in percent of the saturation point.
    pub const LOAD_PERCENT: &str = "load_percent";
    /// Which processor is shared, or saturated: `host` or `target`.
    pub const SHARED: &str = "shared";
    /// Requested rate in requests a second: an open loop.
    pub const RATE_IOPS: &str = "rate_iops";
    /// fio's `thinktime`: a pause of so many µs, from when nothing is in flight.
    pub const THINKTIME_US: &str = "thinktime_us";
    /// fio's `thinktime_blocks`: after how many requests there is one.
    pub const THINKTIME_BLOCKS: &str = "thinktime_blocks";
    /// `fixed` or `poisson`.
    pub const RATE_PROCESS: &str = "rate_process";
    /// What the host is: `weft` (also where nothing is said), `linux` (the kernel's) or `spdk` (its
    /// perf tool).
    pub const HOST_SOFTWARE: &str = "host_software";
    /// What a target is that the study starts: `weft` (also where nothing is said), `linux`
    /// or `spdk`.
    pub const TARGET_SOFTWARE: &str = "target_software";
    /// I/O queues that the host asks for, with nvme-cli's names here and below.
    pub const NR_IO_QUEUES: &str = "nr_io_queues";
    /// Queues of the kernel's host for writes alone.
    pub const NR_WRITE_QUEUES: &str = "nr_write_queues";
    /// Queues of the kernel's host that are polled.
    pub const NR_POLL_QUEUES: &str = "nr_poll_queues";
    /// Entries of each I/O queue.
    pub const QUEUE_SIZE: &str = "queue_size";
    /// Type of service of what the host sends.
    pub const TOS: &str = "tos";
    /// `SO_PRIORITY` of the host's sockets.
    pub const SO_PRIORITY: &str = "so_priority";
    /// Whether completions of a block device are polled, as by fio's `hipri`: `on` or `off`.
    pub const HIPRI: &str = "hipri";
    /// `on` or `off`.
    pub const HDR_DIGEST: &str = "hdr_digest";
    /// `on` or `off`.
    pub const DATA_DIGEST: &str = "data_digest";
    /// Seconds, of the kernel's host.
    pub const KEEP_ALIVE_TMO: &str = "keep_alive_tmo";
    /// Seconds, of the kernel's host.
    pub const CTRL_LOSS_TMO: &str = "ctrl_loss_tmo";
    /// The scheduler of the kernel's block device; `none` unless the plan says otherwise.
    pub const SCHEDULER: &str = "scheduler";
    /// Which given target.
    pub const TARGET: &str = "target";
    /// Hosts that drive load at the same time.
    pub const HOSTS: &str = "hosts";
    /// Subsystems that are driven at the same time.
    pub const SUBSYSTEMS: &str = "subsystems";
    /// Largest packet of the link's interfaces.
    pub const MTU: &str = "mtu";
    /// Whether an interface cuts what it sends into packets.
    pub const TSO: &str = "tso";
    /// Whether the kernel joins packets that were received.
    pub const GRO: &str = "gro";
    /// Whether the interface does.
    pub const LRO: &str = "lro";
    /// Whether the interface computes and checks checksums.
    pub const CHECKSUM: &str = "checksum";
    /// How long an interface holds back the interrupt of a packet: microseconds.
    pub const RX_USECS: &str = "rx_usecs";
    /// Whether it chooses that time itself.
    pub const ADAPTIVE_RX: &str = "adaptive_rx";
    /// Which processors work on packets that were received: `off` (that of the interrupt) or `all`.
    pub const RPS: &str = "rps";
    /// The processors of the interface's interrupts, as a list.
    pub const IRQ_CPUS: &str = "irq_cpus";
    /// Whether packets are steered to the processor of their reader (accelerated RFS).
    pub const ARFS: &str = "arfs";
    /// Packets that an interface loses of those that it is to send.
    pub const LOSS_PERCENT: &str = "loss_percent";
    /// Those that it holds back so that others overtake them.
    pub const REORDER_PERCENT: &str = "reorder_percent";
    /// The congestion control of TCP.
    pub const CONGESTION_CONTROL: &str = "congestion_control";
    /// The frequency governor of all processors.
    pub const GOVERNOR: &str = "governor";
    /// Which idle states processors may enter: `all`, or `shallow` (the first, which waits).
    pub const IDLE_STATES: &str = "idle_states";
    /// TLS of connections: `off`, the cipher suite, or `concatenation` (keys that an authentication
    /// makes).
    pub const TLS: &str = "tls";
}

/// Names of the entries of [`Record::values`].
pub mod number {
    /// The rate of a saturation point: requests a second, reads and writes.
    pub const SATURATION_IOPS: &str = "saturation_iops";
    /// Of an interference cell: the saturation point to which `load_percent` refers.
    pub const REFERENCE_IOPS: &str = "reference_iops";
    /// The requested rate in requests a second.
    pub const OFFERED_IOPS: &str = "offered_iops";
    /// CPU share of the load generator's busiest thread during the measured time, 0 to 1.
    pub const GENERATOR_SHARE: &str = "generator_share";
    /// The same of the busiest poll group of the target.
    pub const TARGET_SHARE: &str = "target_share";
    /// Requests of the load as counted by the host, including ramp and probes.
    pub const REQUESTS_ALL: &str = "requests_all";
    /// The same as counted by the target.
    pub const SERVED_ALL: &str = "served_all";
    /// Of a load on several machines: Jain's index of their rates.
    pub const FAIRNESS: &str = "fairness";
    /// Slope of IOPS over the windows of the measured time, in percent of the mean per second.
    pub const SLOPE_PERCENT_PER_S: &str = "slope_percent_per_s";
    /// Largest distance of one of these windows from the mean, in percent of it.
    pub const DEVIATION_PERCENT: &str = "deviation_percent";
}
