//! The conditions of a run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Connection, LatencyRecord, SideMachine};
use crate::limits::{BUSY, TICK};
use weft_load::units;

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
    /// The builds that measured, by their linker's IDs: more than one if another build went on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<String>,
    /// The cells of the plan on this machine; none of an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// What had been changed of the results when a run went on with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Seed of the order of cells, and of the random numbers of the load.
    pub seed: u64,
    /// When it began, in ms since 1970.
    pub started_at_ms: u64,
    /// When it ended; 0 while it runs, and if it did not finish.
    pub ended_at_ms: u64,
    /// Whether the user stopped it before all cells were measured.
    pub interrupted: bool,
    /// The kernel's release and version.
    pub kernel: String,
    /// The machine's name.
    pub machine: String,
    /// Its processors.
    pub processor: Processor,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Its model, firmware and NVMe controllers.
    pub hardware: Hardware,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Kernel settings that affect results, by their names in /proc/sys.
    pub sysctls: BTreeMap<String, String>,
    /// The driver that the load generator's reactors used: `io_uring` or `epoll`.
    pub driver: String,
    /// The device that was driven locally.
    pub local: String,
    /// Whether it was driven inside the target, which holds it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub local_inside: bool,
    /// The machines of target and loads, if agents ran them; the fields above then are those of the
    /// machine that ran the study.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<AgentMachine>,
    /// The targets.
    pub targets: Vec<TestedTarget>,
    /// Whether the kernel counts the time of interrupts apart (IRQ_TIME_ACCOUNTING); otherwise that
    /// of the thread that they interrupted contains it. None if it is not known.
    pub irq_time_accounting: Option<bool>,
    /// What this machine does by itself, measured before the run; with agents, the machines of the
    /// loads together.
    pub idle: Option<IdleRate>,
    /// The same of given targets that report statistics, by their names; of a target that an agent
    /// started, by an empty one.
    pub target_idle: BTreeMap<String, IdleRate>,
    /// Measurements of the raw link before the study; one for each way of waiting.
    pub link: Vec<LinkProbe>,
    /// Further notes, in sentences.
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
    /// The frequency governor of the first one; empty if there is none.
    pub governor: String,
    /// Whether the machine is virtual.
    pub hypervisor: bool,
}

impl Environment {
    /// The local device, and where it was driven.
    #[must_use]
    pub fn local_device(&self) -> String {
        match self.local_inside {
            true => format!("{}, driven inside the target that holds it", self.local),
            false => self.local.clone(),
        }
    }

    /// How busy this machine was before the run, or those of the loads together, if they were too
    /// busy for numbers about everything that ran.
    #[must_use]
    pub fn busy_share(&self) -> Option<f64> {
        let idle = self.idle.as_ref()?;
        idle.share(self.processors_of("load")).filter(|share| *share > BUSY)
    }

    /// The same of a target on another machine, by its name.
    #[must_use]
    pub fn target_busy_share(&self, name: &str) -> Option<f64> {
        let idle = self.target_idle.get(name)?;
        // Nobody knows how many a given target of an earlier version had.
        let otherwise = if name.is_empty() { self.processors_of("target") } else { 0 };
        idle.share(otherwise).filter(|share| *share > BUSY)
    }

    /// The processors of the machines with a role, each once; of this one if there are no agents.
    fn processors_of(&self, role: &str) -> usize {
        let mut boots: Vec<&str> = Vec::new();
        let machines = self.machines.iter().filter(|machine| machine.role == role);
        let once = machines.filter(|machine| {
            let is_new = !boots.contains(&machine.boot_id.as_str());
            boots.push(&machine.boot_id);
            is_new
        });
        let count: usize = once.map(|machine| machine.processor.cores).sum();
        if self.machines.is_empty() { self.processor.cores } else { count }
    }

    /// What a reader has to know before everything else, if a machine was busy before the run.
    #[must_use]
    pub fn banner(&self) -> Option<String> {
        let own = self.busy_share().map(|share| match self.machines.is_empty() {
            true => ("the machine".to_owned(), share),
            false => ("the loads' machine".to_owned(), share),
        });
        let targets = self.target_idle.keys().filter_map(|name| {
            let what = if name.is_empty() { "the target's machine" } else { name };
            Some((what.to_owned(), self.target_busy_share(name)?))
        });
        let busy = own.into_iter().chain(targets);
        let busy: Vec<String> = busy
            .map(|(what, share)| {
                format!("{what} was {} busy before the run", units::percent(share))
            })
            .collect();
        (!busy.is_empty()).then(|| {
            format!(
                "{}: what ran there is part of these numbers. CPU time beyond idle is not known, \
                 and neither costs nor values beside a publication are judged. On a quiet \
                 machine: weft study run --wait-for-quiet 5m.",
                units::capital(&busy.join(", ")),
            )
        })
    }

    /// The probes of the raw link over the protocol and between the ends of a connection.
    pub fn links(&self, connection: Option<&Connection>) -> impl Iterator<Item = &LinkProbe> {
        let is_like = move |probe: &&LinkProbe| match (connection, &probe.connection) {
            (Some(own), Some(probed)) => own.is_like(probed),
            _ => false,
        };
        self.link.iter().filter(is_like)
    }
}

/// A machine on which an agent ran a part of the study.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentMachine {
    /// What ran there: `target` or `load`.
    pub role: String,
    /// Where it is, as it was given.
    pub place: String,
    /// The kernel's identifier of its boot: places with the same are one machine.
    pub boot_id: String,
    /// The processors that the agent may use.
    pub cpus: Vec<usize>,
    /// The machine's name.
    pub machine: String,
    /// The kernel's release and version.
    pub kernel: String,
    /// Its processors.
    pub processor: Processor,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Its model, firmware and NVMe controllers.
    pub hardware: Hardware,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Kernel settings that affect results, by their names in /proc/sys.
    pub sysctls: BTreeMap<String, String>,
    /// Whether the kernel counts the time of interrupts apart.
    pub irq_time_accounting: Option<bool>,
    /// Further notes, in sentences.
    pub notes: Vec<String>,
}

impl AgentMachine {
    /// What ran on which machine, in words.
    #[must_use]
    pub fn described(&self) -> String {
        let Self { place, machine, kernel, processor, .. } = self;
        let cores = processor.cores;
        format!("{place} ({machine}: {}, {cores} cores, Linux {kernel})", processor.model)
    }
}

/// What a machine does without a load, for each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleRate {
    /// How long it was measured.
    pub seconds: f64,
    /// Its processors; 0 in results of an earlier version.
    pub processors: usize,
    /// CPU time of all processors, softirqs and interrupts included: seconds.
    pub cpu_s: f64,
    /// Interrupts.
    pub interrupts: f64,
    /// Softirqs of the network.
    pub network_softirqs: f64,
}

impl IdleRate {
    /// From counters over a time; none without them.
    #[must_use]
    pub fn of(machine: &SideMachine, seconds: f64) -> Option<Self> {
        let known = seconds > 0.0 && !machine.cores.is_empty();
        known.then(|| Self {
            seconds,
            processors: machine.cores.len(),
            cpu_s: machine.busy_s() / seconds,
            interrupts: machine.interrupts as f64 / seconds,
            network_softirqs: machine.network_softirqs() as f64 / seconds,
        })
    }

    /// The share of the time of its processors that was used, but for a tick of each; so many
    /// processors if it does not know. None if nobody does.
    #[must_use]
    pub fn share(&self, otherwise: usize) -> Option<f64> {
        let processors = if self.processors > 0 { self.processors } else { otherwise };
        let tick_s = TICK.as_secs_f64() * processors as f64;
        let all_s = self.seconds * processors as f64;
        (all_s > 0.0).then(|| ((self.cpu_s * self.seconds - tick_s) / all_s).max(0.0))
    }
}

/// What /sys says of a machine's firmware and slots. What it does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// Its vendor and model.
    pub product: String,
    /// Vendor, version and date of its BIOS.
    pub bios: String,
    /// Its NVMe controllers.
    pub nvme: Vec<NvmeController>,
}

/// An NVMe controller of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvmeController {
    /// The kernel's name.
    pub name: String,
    /// Its model.
    pub model: String,
    /// The revision of its firmware.
    pub firmware: String,
    /// Where it is.
    pub slot: Slot,
}

/// Where a device is. What is not known is missing or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slot {
    /// The NUMA node.
    pub numa_node: Option<u32>,
    /// The speed of its PCIe link, in the kernel's words.
    pub link_speed: String,
    /// How many lanes that link has.
    pub link_width: Option<u32>,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.link_width.map(|lanes| format!(" x{lanes}")).unwrap_or_default();
        let link = Some(self.link_speed.trim_end_matches(" PCIe"))
            .filter(|speed| !speed.is_empty())
            .map(|speed| format!("PCIe at {speed}{lanes}"));
        let node = self.numa_node.map(|node| format!("NUMA node {node}"));
        let known: Vec<String> = link.into_iter().chain(node).collect();
        f.write_str(if known.is_empty() { "slot unknown" } else { "" })?;
        f.write_str(&known.join(", "))
    }
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
    /// Its speed, if reported.
    pub speed_mbit_per_s: Option<u64>,
    /// Where its adapter is; none of one without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
}

/// A target of the study.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestedTarget {
    /// Its address, or how it was started.
    pub address: String,
    /// Its device, if it was started for the study.
    pub device: String,
    /// Whether it was started for the study.
    pub started_here: bool,
    /// Model and firmware, from Identify Controller.
    pub identity: String,
    /// Whether it has a control connection for statistics.
    pub statistics: bool,
}

/// A measurement of the link without storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkProbe {
    /// The two ends, in words.
    pub between: String,
    /// The connection; that of schema 1 was TCP over loopback.
    pub connection: Option<Connection>,
    /// The congestion control of both ends; that of schema 1 was the system's.
    pub congestion: String,
    /// Whether both ends polled (otherwise they slept in the kernel).
    pub spinning: bool,
    /// Whether other programs took more than a tenth of its time: then it is nobody's floor.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spoilt: bool,
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
