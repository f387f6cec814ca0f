//! Results as data: what a run of a study leaves behind, and all that a report is made from.
//!
//! A directory of results holds
//! - `results.jsonl`: one [`Record`] a line, one line for each repeat of each cell, in the order in
//!   which they were measured. Lines are only ever added; of two lines for the same cell and repeat
//!   the later one counts (a resumed run measures again what had failed).
//! - `environment.json`: one [`Environment`].
//! - `plan.toml`: the plan as it was run.
//! - `results.csv`: the same as `results.jsonl` without the histograms, for spreadsheets.
//!
//! `docs/results.md` describes every field. A reader takes what it knows and leaves the rest:
//! fields may be added within a version of the schema, but none changes its meaning.

mod csv;
mod environment;
mod latency;
mod record;
mod store;
mod value;

pub use environment::{Environment, Interface, LinkProbe, Processor, Tested};
pub use latency::{LatencyRecord, LatencyRecordError};
pub use record::{Core, Direction, Mark, Record, Role, Served, Side, SideMachine, Status, Thread};
pub use store::{LoadError, Results, Store, load};
pub use value::{Configuration, Value};

/// The version of the schema that this build writes and reads.
pub const SCHEMA: u32 = 1;

/// Names of the files in a directory of results.
pub mod file {
    /// The records.
    pub const RECORDS: &str = "results.jsonl";
    /// The environment.
    pub const ENVIRONMENT: &str = "environment.json";
    /// The plan as it was run.
    pub const PLAN: &str = "plan.toml";
    /// The flat table.
    pub const TABLE: &str = "results.csv";
}

/// Names of the entries of a [`Configuration`] that plans use; a plan may add others.
pub mod key {
    /// `local`, `tcp` (on this machine or whatever leads to the target), `tcp-link` (over a link
    /// between machines), `rdma`, `loopback` (within the process that drives the load).
    pub const TRANSPORT: &str = "transport";
    /// fio's word: `randread`.
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
    /// How long the target looks for commands before it sleeps.
    pub const TARGET_IDLE_POLL_US: &str = "target_idle_poll_us";
    /// Where the load's threads run: `same-core` or `other-core` as the host's packet work.
    pub const PLACEMENT: &str = "placement";
    /// Completion moderation of the network device: `default`, `on` or `off`.
    pub const MODERATION: &str = "moderation";
    /// The device behind target and local: `memory`, `null` or what `--local` said.
    pub const DEVICE: &str = "device";
    /// The size of that device.
    pub const DEVICE_BYTES: &str = "device_bytes";
    /// What gives each tenant of a target its share: `none`, or `share`.
    pub const SCHEDULER: &str = "scheduler";
    /// Which tenant is looked at: `l-app`, `t-app` or `b-app`.
    pub const FOREGROUND: &str = "foreground";
    /// Load of the background in percent of the saturation point.
    pub const LOAD_PERCENT: &str = "load_percent";
    /// Which processor is shared, or saturated: `host` or `target`.
    pub const SHARED: &str = "shared";
    /// Requests a second that were asked for: an open loop.
    pub const RATE_IOPS: &str = "rate_iops";
    /// `fixed` or `poisson`.
    pub const RATE_PROCESS: &str = "rate_process";
    /// Which of several targets that were given.
    pub const TARGET: &str = "target";
    /// Hosts that drive load at the same time.
    pub const HOSTS: &str = "hosts";
    /// Subsystems that are driven at the same time.
    pub const SUBSYSTEMS: &str = "subsystems";
}

/// Names of the entries of [`Record::values`].
pub mod number {
    /// Of a saturation point: requests a second, both ways.
    pub const SATURATION_IOPS: &str = "saturation_iops";
    /// Of an interference cell: the saturation point that 100 % of load stand for.
    pub const REFERENCE_IOPS: &str = "reference_iops";
    /// Requests a second that were asked for.
    pub const OFFERED_IOPS: &str = "offered_iops";
    /// Share of the counted time that the busiest thread of the load generator used of its
    /// processor, 0 to 1.
    pub const GENERATOR_SHARE: &str = "generator_share";
    /// The same of the busiest poll group of the target.
    pub const TARGET_SHARE: &str = "target_share";
    /// Requests of the load, ramp and probes included, as the host counted them.
    pub const REQUESTS_ALL: &str = "requests_all";
    /// The same as the target's counters have them.
    pub const SERVED_ALL: &str = "served_all";
    /// Slope of IOPS over the windows of the counted time, in percent of the mean a second.
    pub const SLOPE_PERCENT_PER_S: &str = "slope_percent_per_s";
    /// How far the furthest of these windows is from the mean, in percent of it.
    pub const DEVIATION_PERCENT: &str = "deviation_percent";
}
