//! One repeat of one cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LatencyRecord, SCHEMA, value::Configuration};

/// One line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the schema.
    pub schema: u32,
    /// Name of the study.
    pub study: String,
    /// Which cell: the same text for all its repeats, another for every other cell of the study.
    pub cell: String,
    /// What the cell is for.
    pub role: Role,
    /// The value of every axis and every fixed setting.
    pub configuration: Configuration,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Records that were measured at the same time carry the same text here: a foreground and its
    /// background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<String>,
    /// Whether there is a result.
    pub status: Status,
    /// What must be said beside the numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// When it began, in ms since 1970.
    pub started_at_ms: u64,
    /// The command that measures this cell again.
    pub command: String,
    /// Reads, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Direction>,
    /// Writes, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Direction>,
    /// What the load generator's side used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Side>,
    /// What the target used, as it says itself; none for `local`, and where it cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Side>,
    /// Numbers that are neither counted nor timed here (see [`number`](super::number)).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

impl Record {
    /// A record of a cell that was not measured yet.
    #[must_use]
    pub fn new(study: &str, cell: &str, role: Role, configuration: Configuration) -> Self {
        Self {
            schema: SCHEMA,
            study: study.to_owned(),
            cell: cell.to_owned(),
            role,
            configuration,
            repeat: 1,
            together: None,
            status: Status::Measured,
            marks: Vec::new(),
            started_at_ms: 0,
            command: String::new(),
            read: None,
            write: None,
            host: None,
            target: None,
            values: BTreeMap::new(),
        }
    }

    /// Whether its numbers are a result.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.status == Status::Measured
    }

    /// Whether it carries a mark.
    #[must_use]
    pub fn has(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }

    /// Adds a mark once.
    pub fn mark(&mut self, mark: Mark) {
        if !self.has(mark) {
            self.marks.push(mark);
        }
    }

    /// Reads and writes.
    pub fn directions(&self) -> impl Iterator<Item = &Direction> {
        self.read.iter().chain(&self.write)
    }

    /// Requests a second, both ways.
    #[must_use]
    pub fn iops(&self) -> f64 {
        // Not from the sum's own beginning, which is -0.
        self.directions().map(Direction::iops).fold(0.0, |sum, iops| sum + iops)
    }

    /// Bytes a second, both ways.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.directions().map(Direction::bytes_per_second).fold(0.0, |sum, rate| sum + rate)
    }
}

/// What a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A point of the study's matrix.
    Plain,
    /// A tenant that is looked at, while another one loads what they share.
    Foreground,
    /// That other one.
    Background,
    /// The foreground without the background: what interference is measured against.
    Alone,
    /// The most that a processor delivers.
    Saturation,
    /// The raw link, without storage: request and response of a 4 KiB read at depth 1, or a stream
    /// (`configuration.pattern` is `round-trip` or `stream`).
    Link,
}

/// Whether there is a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Status {
    /// It was measured, and what had to hold did.
    Measured,
    /// This machine, or this build, cannot run it.
    Skipped {
        /// Why, for people.
        reason: String,
    },
    /// It was measured, and something that had to hold did not: its numbers mean nothing.
    Void {
        /// What did not hold.
        reason: String,
    },
    /// It was begun and could not be finished.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Status {
    /// Why there is no result, if there is none.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Measured => None,
            Self::Skipped { reason } | Self::Void { reason } | Self::Failed { reason } => {
                Some(reason)
            }
        }
    }
}

/// What must be said beside a cell's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The machine has too few processors: roles share them.
    SharedCores,
    /// The processor that was to be saturated was not full: the load generator's, or another one,
    /// was before it.
    LoadLimited,
    /// IOPS still rose or fell, or wavered, when it was measured.
    NotSettled,
    /// It was not waited until IOPS settled (first look, quick runs).
    NotAwaited,
    /// The load generator used its processor up: the number may be its own limit.
    GeneratorFull,
    /// Requests started when they were due; latency counts from then.
    OpenLoop,
    /// The background did not reach the rate it was asked for.
    BackgroundShort,
    /// The target is on this machine: the kernel's packet work of either side may run on the
    /// other's processor.
    Loopback,
    /// The target did not tell its CPU: only the host's is known.
    TargetUnknown,
}

impl Mark {
    /// What it means, in a few words.
    #[must_use]
    pub const fn explained(self) -> &'static str {
        match self {
            Self::SharedCores => "roles shared processors",
            Self::LoadLimited => {
                "load-limited: another processor was full before the one to be filled"
            }
            Self::NotSettled => "IOPS had not settled",
            Self::NotAwaited => "steady state was not waited for",
            Self::GeneratorFull => "the load generator's processor was full",
            Self::OpenLoop => "open loop: latency counts from the intended start",
            Self::BackgroundShort => "the background fell short of its rate",
            Self::Loopback => "target on the same machine",
            Self::TargetUnknown => "the target's CPU is not known",
        }
    }
}

/// The reads, or the writes, of the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long it counted.
    pub seconds: f64,
    /// From the intended start to the completion.
    pub latency: LatencyRecord,
    /// From the actual start to the completion, in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<LatencyRecord>,
    /// IOPS of each full window of 500 ms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window_iops: Vec<f64>,
}

impl Direction {
    /// Requests a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

/// What one side used while it counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// How long that was.
    pub seconds: f64,
    /// The threads that did the work: the load generator's workers, the target's poll groups.
    pub threads: Vec<Thread>,
    /// The machine that they ran on, with all that ran beside them.
    pub machine: SideMachine,
    /// The processors that this side's threads were pinned to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<usize>,
    /// What was served, by poll group and namespace; of a target only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<Served>,
}

impl Side {
    /// CPU time of its threads, in seconds.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.threads.iter().map(|thread| thread.user_s + thread.system_s).sum()
    }

    /// Context switches of its threads.
    #[must_use]
    pub fn context_switches(&self) -> u64 {
        self.threads.iter().map(|thread| thread.context_switches).sum()
    }
}

/// What one thread used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// CPU time in user mode.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Voluntary and not.
    pub context_switches: u64,
}

/// What a machine did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideMachine {
    /// Its processors.
    pub cores: Vec<Core>,
    /// Interrupts of devices.
    pub interrupts: u64,
    /// Context switches of everything that runs there.
    pub context_switches: u64,
    /// Soft interrupts by the kernel's name: `NET_RX`, `NET_TX`, `TIMER` and others.
    pub softirqs: BTreeMap<String, u64>,
}

/// What one processor did, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// Which.
    pub cpu: usize,
    /// User mode (nice included).
    pub user_s: f64,
    /// Kernel, without interrupts.
    pub system_s: f64,
    /// Soft interrupts.
    pub softirq_s: f64,
    /// Interrupts.
    pub irq_s: f64,
    /// Nothing to do, and some thread waited for a disk.
    pub iowait_s: f64,
    /// Nothing to do.
    pub idle_s: f64,
    /// Taken by the hypervisor.
    pub steal_s: f64,
}

/// What one poll group served of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The target, where there are several.
    #[serde(default)]
    pub target: usize,
    /// The poll group.
    pub group: usize,
    /// Its processor, if it is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<usize>,
    /// The subsystem's name.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Other commands that went to the device.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Served {
    /// Commands of all kinds.
    #[must_use]
    pub const fn commands(&self) -> u64 {
        self.reads + self.writes + self.others
    }
}
