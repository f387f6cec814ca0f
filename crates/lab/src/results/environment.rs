//! Where and how a study was run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LatencyRecord;

/// `environment.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Version of the schema.
    pub schema: u32,
    /// Name of the study.
    pub study: String,
    /// The command line.
    pub command_line: Vec<String>,
    /// Version of this program.
    pub weft_version: String,
    /// Seed of the order of cells, and of everything random in the load.
    pub seed: u64,
    /// When it began, in ms since 1970.
    pub started_at_ms: u64,
    /// When it ended; 0 while it runs, and when it was cut short.
    pub ended_at_ms: u64,
    /// Whether somebody stopped it before all cells were measured.
    pub interrupted: bool,
    /// The kernel's release and version.
    pub kernel: String,
    /// The machine's name.
    pub machine: String,
    /// Its processors.
    pub processor: Processor,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Kernel settings that matter, by their names in /proc/sys.
    pub sysctls: BTreeMap<String, String>,
    /// The driver that the load generator's reactors used: `io_uring` or `epoll`.
    pub driver: String,
    /// What was driven locally.
    pub local: String,
    /// The targets.
    pub targets: Vec<Tested>,
    /// The raw link, probed before the study; one for each way to wait.
    pub link: Vec<LinkProbe>,
    /// What else a reader has to know, in sentences.
    pub notes: Vec<String>,
}

/// The processors of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Processor {
    /// The model's name.
    pub model: String,
    /// How many are online.
    pub cores: usize,
    /// The frequency governor of the first one, empty if there is none.
    pub governor: String,
    /// The hypervisor, if there is one.
    pub hypervisor: bool,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its driver, empty for those without.
    pub driver: String,
    /// Its MTU.
    pub mtu: u64,
    /// Its speed, where it tells one.
    pub speed_mbit_per_s: Option<u64>,
}

/// A target as it was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tested {
    /// Its address, or how it was started.
    pub address: String,
    /// What it serves, if it was started for the study.
    pub device: String,
    /// Whether it was started for the study.
    pub started_here: bool,
    /// Model and firmware, as its controller says.
    pub identity: String,
    /// Whether it tells its statistics.
    pub statistics: bool,
}

/// What the link does without storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkProbe {
    /// Between which ends.
    pub between: String,
    /// Whether both ends kept looking (else they slept in the kernel).
    pub spinning: bool,
    /// Bytes of a request (72: header and command of a read).
    pub request_bytes: u64,
    /// Bytes of a response (4120: header and data of a 4 KiB read).
    pub response_bytes: u64,
    /// Round trips, one at a time.
    pub round_trip: LatencyRecord,
    /// Round trips a second, one at a time.
    pub round_trips_per_s: f64,
    /// Round trips a second with 128 in flight.
    pub messages_per_s: f64,
    /// Bytes a second of a stream, one way.
    pub stream_bytes_per_s: f64,
}
