//! One repeat of one cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_load::Latency;
use weft_load::limits::WINDOW;

use super::value::Configuration;
use super::{Connection, LatencyRecord, LinkProbe, SCHEMA, Value, key};
use crate::limits::ABOVE_FLOOR;

/// One line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the schema.
    pub schema: u32,
    /// Name of the study.
    pub study: String,
    /// Which cell: the same text for all its repeats, another for every other cell of the study.
    pub cell: String,
    /// The role of the cell.
    pub role: Role,
    /// The value of every axis and every fixed setting.
    pub configuration: Configuration,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Records that were measured at the same time have the same text here: a foreground and its
    /// background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<String>,
    /// Whether there is a result.
    pub status: Status,
    /// What was measured: the protocol, and both ends. None for `local`, and where there is no
    /// result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// Of `local`: whether the load ran inside the target, on the device that it holds.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub inside_target: bool,
    /// Remarks that belong to the numbers.
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
    /// The run over time, ramp included; none of results of an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// What each machine did of the load, if agents drove it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<LoadPart>,
    /// The knobs that agents have set for it, as they were read back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<KnobRecord>,
    /// CPU use of the load generator's side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Side>,
    /// CPU use of the target, as it reports; none for `local`, and without a control connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Side>,
    /// Derived numbers (see [`number`](super::number)).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

impl Record {
    /// A record of a cell that has not been measured yet.
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
            connection: None,
            inside_target: false,
            marks: Vec::new(),
            started_at_ms: 0,
            command: String::new(),
            read: None,
            write: None,
            windows: Vec::new(),
            parts: Vec::new(),
            knobs: Vec::new(),
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

    /// Whether it has a mark.
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

    /// Marks it if it is faster than the raw link between its ends, beyond noise: its bandwidth
    /// than a stream, and reads of 4 KiB than as many messages.
    pub(crate) fn mark_above_floor(&mut self, probes: &[LinkProbe]) {
        let Some(connection) = self.connection.as_ref().filter(|_| self.role != Role::Link) else {
            return;
        };
        let same = |probe: &&LinkProbe| {
            !probe.spoilt
                && probe.connection.as_ref().is_some_and(|probed| probed.is_like(connection))
        };
        let most =
            |of: fn(&LinkProbe) -> f64| probes.iter().filter(same).map(of).fold(0.0, f64::max);
        let number = |key: &str| self.configuration.get(key).and_then(Value::as_integer);
        let alone = number(key::DEPTH) == Some(1) && number(key::JOBS) == Some(1);
        let messages = match alone {
            true => most(|probe| probe.round_trips_per_s),
            false => most(|probe| probe.messages_per_s),
        };
        let small = number(key::BLOCK_BYTES) == Some(4096) && self.write.is_none();
        let above = |rate: f64, floor: f64| floor > 0.0 && rate > floor * ABOVE_FLOOR;
        // Reads and writes have a direction of the link each.
        let bytes = self.directions().map(Direction::bytes_per_second).fold(0.0, f64::max);
        if above(bytes, most(|probe| probe.stream_bytes_per_s))
            || small && above(self.iops(), messages)
        {
            self.mark(Mark::AboveFloor);
        }
    }

    /// Reads and writes.
    pub fn directions(&self) -> impl Iterator<Item = &Direction> {
        self.read.iter().chain(&self.write)
    }

    /// Latencies, both ways, as far as they can be read.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let mut latency = Latency::new();
        let each = self.directions().filter_map(|direction| direction.latency.latency().ok());
        each.for_each(|one| latency.add(&one));
        latency
    }

    /// Requests a second, both ways.
    #[must_use]
    pub fn iops(&self) -> f64 {
        // A fold from +0: the sum of no numbers would be -0.
        self.directions().map(Direction::iops).fold(0.0, |sum, iops| sum + iops)
    }

    /// Its windows; of a record of an earlier version, which has none, IOPS of the measured time.
    #[must_use]
    pub fn over_time(&self) -> Vec<Window> {
        if !self.windows.is_empty() {
            return self.windows.clone();
        }
        let mut windows: Vec<Window> = Vec::new();
        for direction in self.directions() {
            for (index, iops) in direction.window_iops.iter().enumerate() {
                match windows.get_mut(index) {
                    Some(window) => window.iops += iops,
                    None => {
                        let at_s = (index + 1) as f64 * WINDOW.as_secs_f64();
                        windows.push(Window { at_s, iops: *iops, ..Window::default() });
                    }
                }
            }
        }
        windows
    }

    /// Bytes a second, both ways.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.directions().map(Direction::bytes_per_second).fold(0.0, |sum, rate| sum + rate)
    }
}

/// A knob of a machine during a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnobRecord {
    /// What ran on the machine: `target` or `load`.
    pub role: String,
    /// Where it is, as it was given.
    pub place: String,
    /// The key of the setting.
    pub knob: String,
    /// Its value, as it was read back.
    pub value: String,
    /// What it was before the study.
    pub before: String,
}

/// The role of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A point of the study's matrix.
    Plain,
    /// The tenant that is studied, while the background loads what they share.
    Foreground,
    /// The other tenant.
    Background,
    /// The foreground without the background: the reference of interference.
    Alone,
    /// The maximum rate of a processor.
    Saturation,
    /// A cell that comes back through the whole run, to show whether the machine stays the same.
    Reference,
    /// The raw link, without storage: request and response of a 4 KiB read at depth 1, or a stream
    /// (`configuration.pattern` is `round-trip` or `stream`).
    Link,
}

/// Whether there is a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Status {
    /// It was measured, and all checks passed.
    Measured,
    /// It cannot run on this machine or with this build.
    Skipped {
        /// The reason.
        reason: String,
    },
    /// It was measured, and a check failed: its numbers are not a result.
    Void {
        /// The failed check.
        reason: String,
    },
    /// It was started and did not finish.
    Failed {
        /// The reason.
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

/// A remark that belongs to a cell's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The machine has too few processors, so that roles share them.
    SharedCores,
    /// Another processor than the one under test was saturated first: the load generator's, for
    /// example.
    LoadLimited,
    /// IOPS were still changing when it was measured.
    NotSettled,
    /// It was measured without waiting for steady state (first look, quick runs).
    NotAwaited,
    /// The load generator's processor was saturated: the number may be its own limit.
    GeneratorFull,
    /// Requests started when they were due; latency counts from then.
    OpenLoop,
    /// The background did not reach its requested rate.
    BackgroundShort,
    /// The target is on this machine: the kernel may process packets of either side on the other's
    /// processor.
    Loopback,
    /// The target reports no CPU use: only the host's is known.
    TargetUnknown,
    /// The target counts no CPU time of its own: its CPU use is that of everything on its machine
    /// beyond idle, but for the load's threads if they are on the same machine.
    TargetMachine,
    /// The repeats did not come within the bound that the plan sets for their interval.
    WideInterval,
    /// It is faster than the raw link that was probed: one of the two numbers is wrong.
    AboveFloor,
    /// The target was given: whether it serves the device that is driven locally is not known.
    DeviceUnknown,
    /// Measured threads did not get their processors: others used them.
    Disturbed,
    /// The host does not tell reads from writes: its mix is counted as reads.
    MixedTogether,
    /// A machine of it was busy before the run: set by who reads it, of what the environment says.
    BusyMachine,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Self; 16] = [
        Self::SharedCores,
        Self::LoadLimited,
        Self::NotSettled,
        Self::NotAwaited,
        Self::GeneratorFull,
        Self::OpenLoop,
        Self::BackgroundShort,
        Self::Loopback,
        Self::TargetUnknown,
        Self::TargetMachine,
        Self::WideInterval,
        Self::AboveFloor,
        Self::DeviceUnknown,
        Self::Disturbed,
        Self::MixedTogether,
        Self::BusyMachine,
    ];

    /// One or two words, for a sentence or a column.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::SharedCores => "shared cores",
            Self::LoadLimited => "load-limited",
            Self::NotSettled => "not steady",
            Self::NotAwaited => "steadiness unchecked",
            Self::GeneratorFull => "generator saturated",
            Self::OpenLoop => "open loop",
            Self::BackgroundShort => "background too slow",
            Self::Loopback => "loopback",
            Self::TargetUnknown => "target CPU unknown",
            Self::TargetMachine => "target CPU of its whole machine",
            Self::WideInterval => "wide interval",
            Self::AboveFloor => "above its floor",
            Self::DeviceUnknown => "local and remote devices may be unrelated",
            Self::Disturbed => "disturbed",
            Self::MixedTogether => "mix counted as reads",
            Self::BusyMachine => "busy machine",
        }
    }

    /// A description in a few words.
    #[must_use]
    pub const fn explained(self) -> &'static str {
        match self {
            Self::SharedCores => "processors were shared by several roles",
            Self::LoadLimited => "load-limited: the processor under test was not saturated",
            Self::NotSettled => "IOPS were not steady",
            Self::NotAwaited => "measured without waiting for steady state",
            Self::GeneratorFull => "the load generator's processor was saturated",
            Self::OpenLoop => "open loop: latency counts from the due time",
            Self::BackgroundShort => "the background did not reach its rate",
            Self::Loopback => "target on the same machine",
            Self::TargetUnknown => "the target's CPU is not known",
            Self::TargetMachine => {
                "the target's CPU is that of everything on its machine beyond idle"
            }
            Self::WideInterval => "the interval of the repeats is wider than the plan wants",
            Self::AboveFloor => "faster than the raw link was when it was probed",
            Self::DeviceUnknown => {
                "the target was given: its device is not known to be the local one"
            }
            Self::BusyMachine => "the machine was busy before the run",
            Self::MixedTogether => "reads and writes of the mix are counted together, as reads",
            Self::Disturbed => "disturbed: others used the processors of the measured threads",
        }
    }
}

/// The reads, or the writes, of the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The measured time.
    pub seconds: f64,
    /// From the due time to the completion.
    pub latency: LatencyRecord,
    /// From the submission to the completion, in an open loop.
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

/// What one of several machines did of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPart {
    /// The machine, by the place in the environment's `machines`.
    pub place: String,
    /// The driver that its reactors used.
    pub driver: String,
    /// Requests of the measured time.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The 99th percentile of its latencies, if they resolve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// When its measured time began, in seconds since the first machine's did.
    pub began_s: f64,
    /// By how much that may be wrong, as clocks were compared.
    pub clock_error_s: f64,
    /// Its measured time.
    pub seconds: f64,
}

impl LoadPart {
    /// Requests a second.
    pub(crate) fn iops(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// Jain's index of the shares of several: 1 if all are the same, 1 ÷ n if one of n has all. There
/// is none of nothing.
pub(crate) fn fairness(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The numbers of one window of a run, reads and writes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// When it ended, in seconds since the run began.
    pub at_s: f64,
    /// Requests a second.
    pub iops: f64,
    /// The 99th percentile of its latencies, if they resolve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Whether it is part of the ramp, which does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ramp: bool,
}

/// What one side used during the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The measured time.
    pub seconds: f64,
    /// The threads that did the work: the load generator's workers, the target's poll groups.
    pub threads: Vec<Thread>,
    /// The machine that they ran on, including everything else on it.
    pub machine: SideMachine,
    /// The processors that this side's threads were pinned to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<usize>,
    /// What others than the measured threads used of these processors, at least: user and system
    /// time beyond that of all measured threads that may run there. None if it is not known, and of
    /// results of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_s: Option<f64>,
    /// For how long the thread that waited most could have run and had no processor, beyond waits
    /// for measured threads and for wake-ups, with what the hypervisor took. None if it is not
    /// known, and of results of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_s: Option<f64>,
    /// In how many pieces, at the most.
    #[serde(default)]
    pub interruptions: u64,
    /// Of a load: the thread that collects its windows, shows progress and writes records. It
    /// carries no load, runs on no measured processor while another one is left, and is in no cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<Thread>,
    /// Requests by poll group and namespace; of a target only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<NamespaceCounts>,
}

impl Side {
    /// CPU time of its threads, in seconds.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.threads.iter().map(|thread| thread.user_s + thread.system_s).sum()
    }

    /// The processors that its threads were pinned to.
    pub fn pinned(&self) -> impl Iterator<Item = &Core> {
        self.machine.cores.iter().filter(|core| self.cpus.contains(&core.cpu))
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
    /// Context switches, voluntary and not.
    pub context_switches: u64,
    /// How much of the CPU time, at least, was polling that found nothing: what it used beyond the
    /// time in which it had work.
    #[serde(default)]
    pub polling_s: f64,
    /// How it waited for its processor; none if that is not known, and of results of an earlier
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
}

/// How a thread waited for a processor while it could have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delay {
    /// All its waits together, those of wake-ups among them.
    pub waited_s: f64,
    /// How often it was given a processor.
    pub runs: u64,
    /// How often its processor was taken from it while it could have run on.
    pub involuntary_switches: u64,
    /// Its longest wait, where the kernel keeps that and it was longer than any before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_s: Option<f64>,
}

/// Counters of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideMachine {
    /// Its processors.
    pub cores: Vec<Core>,
    /// Interrupts of devices.
    pub interrupts: u64,
    /// Context switches of all its threads.
    pub context_switches: u64,
    /// Soft interrupts by the kernel's name: `NET_RX`, `NET_TX`, `TIMER` and others.
    pub softirqs: BTreeMap<String, u64>,
}

impl SideMachine {
    /// CPU time of everything that ran, softirqs and interrupts included, in seconds.
    #[must_use]
    pub fn busy_s(&self) -> f64 {
        let busy = |core: &Core| core.user_s + core.system_s + core.softirq_s + core.irq_s;
        self.cores.iter().map(busy).sum()
    }

    /// `NET_RX` and `NET_TX`.
    #[must_use]
    pub fn network_softirqs(&self) -> u64 {
        let net = ["NET_RX", "NET_TX"];
        net.iter().filter_map(|name| self.softirqs.get(*name)).sum()
    }
}

/// Time of one processor, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// Its number.
    pub cpu: usize,
    /// User mode (nice included).
    pub user_s: f64,
    /// Kernel, without interrupts.
    pub system_s: f64,
    /// Soft interrupts.
    pub softirq_s: f64,
    /// Interrupts.
    pub irq_s: f64,
    /// Idle while some thread waited for a disk.
    pub iowait_s: f64,
    /// Idle.
    pub idle_s: f64,
    /// Taken by the hypervisor.
    pub steal_s: f64,
}

/// Requests that one poll group served on one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceCounts {
    /// Index of the target, if there are several.
    #[serde(default)]
    pub target: usize,
    /// The poll group.
    pub group: usize,
    /// Its processor, if it is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<usize>,
    /// What it counted.
    #[serde(flatten)]
    pub counted: weft_statistics::NamespaceStatistics,
}
