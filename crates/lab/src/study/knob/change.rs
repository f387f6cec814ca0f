//! What is written for a knob, and how it is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::wish::KnobValue;
use crate::results::key;
use crate::study::linux::fabrics;
use crate::study::spdk::process;

mod netem;

/// Entries of the table of flows of aRFS.
const FLOWS: usize = 32_768;

/// The files and the program by which a machine is changed.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder that has its `sys` and `proc`.
    root: PathBuf,
    /// The system's ethtool.
    ethtool: PathBuf,
    /// Its tc.
    tc: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(PathBuf::from("/"), PathBuf::from("ethtool"))
    }
}

/// A value of one file, or of one word of ethtool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub(in crate::study) enum Change {
    /// A file of sysfs or procfs.
    File {
        /// Its path below the root.
        path: PathBuf,
        value: String,
    },
    /// An offload: `ethtool -K`.
    Offload { interface: String, name: String, value: String },
    /// Interrupt moderation: `ethtool -C`.
    Moderation { interface: String, name: String, value: String },
    /// Packets that are lost or held back: `tc qdisc … netem`.
    Netem { interface: String, name: String, value: String },
    /// A link or a folder of configfs, which is put back by removing it. This and what follows has
    /// no value.
    Made { path: PathBuf },
    /// A connection of the kernel's host.
    Connected { nqn: String, hostnqn: String },
    /// A process that was started, which is ended.
    Process { id: u32, began: u64 },
    /// What a method of SPDK's target deletes.
    Spdk { socket: PathBuf, method: String, params: Json },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "/{}", path.display()),
            Self::Offload { interface, name, .. } => write!(f, "ethtool -K {interface} {name}"),
            Self::Moderation { interface, name, .. } => {
                write!(f, "ethtool -C {interface} {name}")
            }
            Self::Netem { interface, name, .. } => write!(f, "tc qdisc {interface} netem {name}"),
            Self::Made { path } => path.display().fmt(f),
            Self::Connected { nqn, .. } => write!(f, "the kernel's connection to {nqn}"),
            Self::Process { id, .. } => write!(f, "the process {id}"),
            Self::Spdk { method, params, .. } => write!(f, "what SPDK's {method} {params} deletes"),
        }
    }
}

impl Change {
    pub(in crate::study) fn value(&self) -> &str {
        match self {
            Self::File { value, .. }
            | Self::Offload { value, .. }
            | Self::Moderation { value, .. }
            | Self::Netem { value, .. } => value,
            Self::Made { .. }
            | Self::Connected { .. }
            | Self::Process { .. }
            | Self::Spdk { .. } => "",
        }
    }

    /// The same with another value.
    pub(super) fn with(&self, value: &str) -> Self {
        let mut other = self.clone();
        match &mut other {
            Self::File { value: own, .. }
            | Self::Offload { value: own, .. }
            | Self::Moderation { value: own, .. }
            | Self::Netem { value: own, .. } => value.clone_into(own),
            Self::Made { .. }
            | Self::Connected { .. }
            | Self::Process { .. }
            | Self::Spdk { .. } => {}
        }
        other
    }

    /// Whether it is about the same as another.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        *self == other.with(self.value())
    }

    /// Whether what was read is its value. A mask of processors may have zeros before it.
    pub(super) fn agrees(&self, read: &str) -> bool {
        let plain = |text: &str| {
            let text = text.replace(',', "");
            let digits = text.trim_start_matches('0');
            if digits.is_empty() && !text.is_empty() { "0".to_owned() } else { digits.to_owned() }
        };
        if let Self::Netem { value, .. } = self {
            return value.parse::<f64>().map(netem::percent).is_ok_and(|wanted| wanted == read);
        }
        let is_mask = matches!(self, Self::File { path, .. } if path.ends_with("rps_cpus"));
        match is_mask {
            true => plain(read) == plain(self.value()),
            false => read == self.value(),
        }
    }
}

/// The names of an offload in what `ethtool -k` prints, and as `ethtool -K` takes it.
fn printed(name: &str) -> &str {
    match name {
        "tso" => "tcp-segmentation-offload",
        "gro" => "generic-receive-offload",
        "lro" => "large-receive-offload",
        "rx" => "rx-checksumming",
        "tx" => "tx-checksumming",
        "ntuple" => "ntuple-filters",
        other => other,
    }
}

impl Machine {
    /// One with these files and this program, beside which is tc.
    #[must_use]
    pub fn new(root: PathBuf, ethtool: PathBuf) -> Self {
        Self { root, tc: ethtool.with_file_name("tc"), ethtool }
    }

    /// What has to be changed for a wish; `interface` is that of its link.
    pub(super) fn changes(
        &self,
        wish: &KnobValue,
        interface: Option<&str>,
    ) -> Result<Vec<Change>, String> {
        let knob = wish.knob.as_str();
        let value = wish.value.as_str();
        let file = |path: PathBuf, value: &str| Change::File { path, value: value.to_owned() };
        match knob {
            key::CONGESTION_CONTROL => {
                return Ok(vec![file("proc/sys/net/ipv4/tcp_congestion_control".into(), value)]);
            }
            key::GOVERNOR => {
                let paths = self.of_cpus("cpufreq/scaling_governor");
                let changes = paths.into_iter().map(|path| file(path, value)).collect();
                return some(changes, "this machine has no frequency governor");
            }
            key::IDLE_STATES => {
                let changes = self.idle_states(value == "shallow");
                return some(changes, "this machine has no idle states that it can leave out");
            }
            _ => {}
        }
        let interface = interface.ok_or_else(|| format!("{knob} needs an interface"))?;
        let net = Path::new("sys/class/net").join(interface);
        let interface = interface.to_owned();
        let offload = |name: &str, value: &str| Change::Offload {
            interface: interface.clone(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let moderation = |name: &str| Change::Moderation {
            interface: interface.clone(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        Ok(match knob {
            key::MTU => vec![file(net.join("mtu"), value)],
            key::TSO | key::GRO | key::LRO => vec![offload(knob, value)],
            key::CHECKSUM => vec![offload("rx", value), offload("tx", value)],
            key::RX_USECS => vec![moderation("rx-usecs")],
            key::ADAPTIVE_RX => vec![moderation("adaptive-rx")],
            key::LOSS_PERCENT | key::REORDER_PERCENT => {
                vec![Change::Netem { interface, name: knob.to_owned(), value: value.to_owned() }]
            }
            key::RPS => {
                let mask = if value == "all" { self.all_cpus() } else { "0".to_owned() };
                let paths = self.queues(&net, "rps_cpus");
                let changes = paths.into_iter().map(|path| file(path, &mask)).collect();
                some(changes, "it has no queues that receive")?
            }
            key::IRQ_CPUS => {
                let irqs = self.entries(&net.join("device/msi_irqs"));
                let path = |irq: String| format!("proc/irq/{irq}/smp_affinity_list").into();
                let changes = irqs.into_iter().map(|irq| file(path(irq), value)).collect();
                some(changes, &format!("{interface} has no interrupts of its own"))?
            }
            key::ARFS => {
                let queues = self.queues(&net, "rps_flow_cnt");
                let is_on = value == "on";
                let all = if is_on { FLOWS } else { 0 };
                let each = (all / queues.len().max(1)).to_string();
                let mut changes = vec![offload("ntuple", value)];
                let entries = "proc/sys/net/core/rps_sock_flow_entries";
                changes.push(file(entries.into(), &all.to_string()));
                changes.extend(queues.into_iter().map(|path| file(path, &each)));
                changes
            }
            other => return Err(format!("{other} is no knob")),
        })
    }

    /// The names in a folder, in order.
    fn entries(&self, folder: &Path) -> Vec<String> {
        let found = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            found.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// A file of each queue that receives.
    fn queues(&self, net: &Path, name: &str) -> Vec<PathBuf> {
        let queues = self.entries(&net.join("queues")).into_iter();
        let queues = queues.filter(|queue| queue.starts_with("rx-"));
        queues.map(|queue| net.join("queues").join(queue).join(name)).collect()
    }

    /// A file of each processor that has it.
    fn of_cpus(&self, name: &str) -> Vec<PathBuf> {
        let folder = Path::new("sys/devices/system/cpu");
        let is_cpu = |name: &String| {
            let digits = name.strip_prefix("cpu").unwrap_or_default();
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        let cpus = self.entries(folder).into_iter().filter(is_cpu);
        let paths = cpus.map(|cpu| folder.join(cpu).join(name));
        paths.filter(|path| self.root.join(path).exists()).collect()
    }

    /// The mask of all processors.
    fn all_cpus(&self) -> String {
        let count = self.of_cpus("").len().max(1);
        let mut words = Vec::new();
        let mut left = count;
        while left > 0 {
            let bits = left.min(32);
            words.push(u32::MAX >> (32 - bits));
            left -= bits;
        }
        let words = words.iter().rev().enumerate().map(|(at, word)| match at {
            0 => format!("{word:x}"),
            _ => format!("{word:08x}"),
        });
        words.collect::<Vec<String>>().join(",")
    }

    /// All idle states, or only the first, which merely waits.
    fn idle_states(&self, shallow: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        for folder in self.of_cpus("cpuidle") {
            for state in self.entries(&folder).into_iter().filter(|state| state != "state0") {
                let path = folder.join(state).join("disable");
                let value = if shallow { "1" } else { "0" };
                changes.push(Change::File { path, value: value.to_owned() });
            }
        }
        changes
    }

    /// The present value of what a change is about.
    pub(super) fn read(&self, change: &Change) -> Result<String, String> {
        match change {
            Change::File { path, .. } => {
                let text = fs::read_to_string(self.root.join(path));
                text.map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
            }
            Change::Offload { interface, name, .. } => {
                let text = self.ethtool(&["-k", interface])?;
                let value = field(&text, printed(name));
                // `[fixed]` may follow.
                let value = value.and_then(|value| value.split_whitespace().next());
                value.map(str::to_owned).ok_or_else(|| format!("{interface} has no {name}"))
            }
            Change::Moderation { interface, name, .. } => {
                let text = self.ethtool(&["-c", interface])?;
                let value = match name.as_str() {
                    // `Adaptive RX: off  TX: off`
                    "adaptive-rx" => field(&text, "Adaptive RX"),
                    name => field(&text, name),
                };
                let value = value.and_then(|value| value.split_whitespace().next());
                let value = value.filter(|value| *value != "n/a");
                value.map(str::to_owned).ok_or_else(|| format!("{interface} has no {name}"))
            }
            Change::Netem { interface, name, .. } => {
                Ok(netem::Netem::read(&self.tc, interface)?.part(name))
            }
            Change::Made { .. }
            | Change::Connected { .. }
            | Change::Process { .. }
            | Change::Spdk { .. } => {
                // So that nothing counts as put back before it is removed.
                Err("it has no value".to_owned())
            }
        }
    }

    /// Makes a change. What has no value is removed.
    pub(super) fn write(&self, change: &Change) -> Result<(), String> {
        match change {
            Change::File { path, value } => {
                fs::write(self.root.join(path), value).map_err(|error| error.to_string())
            }
            Change::Offload { interface, name, value } => {
                self.ethtool(&["-K", interface, name, value]).map(|_| ())
            }
            Change::Moderation { interface, name, value } => {
                self.ethtool(&["-C", interface, name, value]).map(|_| ())
            }
            Change::Netem { interface, name, value } => {
                let present = netem::Netem::read(&self.tc, interface)?;
                present.with(name, value)?.write(&self.tc, interface)
            }
            Change::Made { path } => removed(path).map_err(|error| error.to_string()),
            Change::Connected { nqn, hostnqn } => {
                fabrics::disconnect(nqn, hostnqn).map_err(|error| error.to_string())
            }
            Change::Process { id, began } => process::end(*id, *began),
            Change::Spdk { socket, method, params } => {
                process::delete(socket, method, params).map_err(|error| error.to_string())
            }
        }
    }

    /// Whether what a change is about is there: an interface may have gone.
    pub(super) fn has(&self, change: &Change) -> bool {
        match change {
            Change::File { path, .. } => self.root.join(path).exists(),
            Change::Offload { interface, .. }
            | Change::Moderation { interface, .. }
            | Change::Netem { interface, .. } => {
                self.root.join("sys/class/net").join(interface).exists()
            }
            // These see for themselves.
            Change::Made { .. }
            | Change::Connected { .. }
            | Change::Process { .. }
            | Change::Spdk { .. } => true,
        }
    }

    /// Offloads and interrupt moderation of an interface, by the words of ethtool.
    pub(in crate::study) fn described(
        &self,
        interface: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut found = BTreeMap::new();
        let offloads = self.ethtool(&["-k", interface])?;
        for name in ["tso", "gro", "lro", "rx", "tx", "ntuple"] {
            let value = field(&offloads, printed(name));
            found.extend(value.map(|value| (printed(name).to_owned(), value.to_owned())));
        }
        // A driver need not have any.
        let moderation = self.ethtool(&["-c", interface]).unwrap_or_default();
        for name in ["rx-usecs", "tx-usecs", "Adaptive RX"] {
            let value = field(&moderation, name).filter(|value| !value.starts_with("n/a"));
            found.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        Ok(found)
    }

    fn ethtool(&self, words: &[&str]) -> Result<String, String> {
        printed_by(&self.ethtool, words)?.map_err(|said| {
            format!(
                "the driver refuses it ({said}): leave it out of the plan, or take an adapter that \
                 has it"
            )
        })
    }
}

/// What a program prints, or what it says where it fails.
fn printed_by(program: &Path, words: &[&str]) -> Result<Result<String, String>, String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let output = Command::new(program).env("LC_ALL", "C").args(words).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("the program {name} is not there: install it"),
        _ => format!("{name} cannot be run: {error}"),
    })?;
    if output.status.success() {
        return Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(Err(said.join("; ")))
}

/// The value behind a name and a colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let found = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = found.filter(|(key, _)| key.trim() == name);
    found.next().map(|(_, value)| value.trim())
}

/// Changes, of which there has to be one.
fn some(changes: Vec<Change>, otherwise: &str) -> Result<Vec<Change>, String> {
    if changes.is_empty() { Err(otherwise.to_owned()) } else { Ok(changes) }
}

/// Removes a link or an empty folder; one that is gone already counts as removed.
fn removed(path: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
