//! What a target reports of itself: its counters ([`Statistics`]) and traces ([`trace`]), their
//! form in JSON, and the methods that read them.
//!
//! Whoever counts fills these types, and whoever reads a target over its control socket has them
//! from here; there is no second description of a counter. All numbers count from the target's
//! start; a period is the difference of two readings ([`Statistics::since`]).

pub mod trace;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_rpc::machine::{Machine, Thread};
use weft_rpc::{Method, since};

/// A time as counters have it.
#[must_use]
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the counters of the target since its start, and those of its machine.
#[derive(Clone, Copy, Debug)]
pub enum GetStatistics {}

impl Method for GetStatistics {
    const NAME: &'static str = "statistics";
    type Params = ();
    type Answer = Statistics;
}

/// Reloads the configuration, as SIGHUP does. The answer is one line for each change.
#[derive(Clone, Copy, Debug)]
pub enum Reload {}

impl Method for Reload {
    const NAME: &'static str = "reload";
    type Params = ();
    type Answer = Vec<String>;
}

/// The answer to [`GetStatistics`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// The program's version.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The target's process.
    pub process_id: u32,
    /// When this was read, in ns of the machine's monotonic clock.
    pub time_ns: u64,
    /// When the target was started, on the same clock.
    pub started_ns: u64,
    /// Connections that are served at most: as many as are configured, or as there are descriptors
    /// for.
    pub connections_max: u64,
    /// Connections that are configured.
    pub connections_configured: u64,
    /// The poll groups.
    pub groups: Vec<Group>,
    /// How long the commands of hosts took; none if the target does not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// What rate limits have held up.
    pub rate_limits: Vec<RateLimit>,
    /// The machine that it runs on.
    pub machine: Machine,
}

/// How long the commands of hosts took since the target's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hosts {
    /// Upper bounds of the buckets of latency, ascending.
    pub bounds_ns: Vec<u64>,
    /// By host, namespace and kind of command.
    pub commands: Vec<HostCommands>,
    /// By kind, those whose host was gone for so long that it gave its counters back. Only the
    /// target's metrics have them.
    #[serde(skip)]
    pub gone: Vec<HostCommands>,
}

/// A host's commands of a kind to a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCommands {
    /// The host; none: all hosts and namespaces that are not counted by themselves.
    pub host: Option<String>,
    /// The subsystem.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// `read`, `write` or `other`.
    pub command: String,
    /// Commands by latency: one number for each bound, then those beyond the last one.
    pub buckets: Vec<u64>,
    /// The sum of all latencies.
    pub total_ns: u64,
    /// Bytes of the Read and Write commands that succeeded.
    pub bytes: u64,
    /// Commands that completed with an error.
    pub errors: u64,
    /// These by class, in the target's order. Only its metrics have them.
    #[serde(skip)]
    pub errors_by_class: [u64; 5],
    /// Parts of `total_ns`.
    pub waits: Waits,
}

/// How long commands have waited, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// For a rate limit.
    pub limit_ns: u64,
    /// For memory of the target.
    pub memory_ns: u64,
    /// For data that the host sends.
    pub data_ns: u64,
    /// For the device.
    pub device_ns: u64,
    /// For the turn of their tenant, connection or thread, before they began.
    pub turn_ns: u64,
}

impl Waits {
    /// Each with what was waited for.
    #[must_use]
    pub const fn by_cause(&self) -> [(&'static str, u64); 5] {
        let Self { limit_ns, memory_ns, data_ns, device_ns, turn_ns } = *self;
        [
            ("limit", limit_ns),
            ("memory", memory_ns),
            ("data", data_ns),
            ("device", device_ns),
            ("turn", turn_ns),
        ]
    }

    fn add(&mut self, other: &Self) {
        self.limit_ns += other.limit_ns;
        self.memory_ns += other.memory_ns;
        self.data_ns += other.data_ns;
        self.device_ns += other.device_ns;
        self.turn_ns += other.turn_ns;
    }

    /// The difference to an earlier reading.
    fn since(&self, earlier: &Self) -> Self {
        since!(self, earlier; limit_ns, memory_ns, data_ns, device_ns, turn_ns)
    }
}

impl HostCommands {
    /// Adds what was counted of others.
    pub fn add(&mut self, other: &Self) {
        self.buckets.resize(other.buckets.len(), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
        self.total_ns += other.total_ns;
        self.bytes += other.bytes;
        self.errors += other.errors;
        for (sum, more) in self.errors_by_class.iter_mut().zip(other.errors_by_class) {
            *sum += more;
        }
        self.waits.add(&other.waits);
    }

    /// Commands that completed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The host's name, or `overflow` for all that are not counted by themselves.
    #[must_use]
    pub fn host_name(&self) -> &str {
        self.host.as_deref().unwrap_or("overflow")
    }

    /// The latency that a share of the commands did not exceed, interpolated within its bucket as
    /// Prometheus does; the last bound if it is beyond. None without a command.
    #[must_use]
    pub fn quantile_ns(&self, bounds_ns: &[u64], share: f64) -> Option<f64> {
        let rank = share * self.count() as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, commands) in bounds_ns.iter().zip(&self.buckets) {
            let (bound, commands) = (*bound as f64, *commands as f64);
            if commands > 0.0 && below + commands >= rank {
                return Some(lower + (bound - lower) * (rank - below) / commands);
            }
            below += commands;
            lower = bound;
        }
        (self.count() > 0).then_some(lower)
    }

    /// The difference to an earlier reading, of the same commands.
    fn since(&self, earlier: &[Self]) -> Self {
        let key = |of: &Self| (of.host.clone(), of.subsystem.clone(), of.nsid, of.command.clone());
        let before = earlier.iter().find(|before| key(before) == key(self));
        let before = before.cloned().unwrap_or_default();
        let of_before = before.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(of_before);
        Self {
            buckets: buckets.map(|(now, before)| now.saturating_sub(before)).collect(),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
            waits: self.waits.since(&before.waits),
            ..self.clone()
        }
    }
}

/// One of the two rates of a limit, and what waited for it since it was configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateLimit {
    /// The host that it is for; none: all together.
    pub host: Option<String>,
    /// The subsystem that it is for; none: all together.
    pub subsystem: Option<String>,
    /// The namespace that it is for; none: all together.
    pub nsid: Option<u32>,
    /// The block device whose limit it is; none: a limit of the configuration.
    pub bdev: Option<String>,
    /// The commands that it is for: `read`, `write` or `rw`.
    pub rw: String,
    /// Whether it counts bytes; else commands.
    pub counts_bytes: bool,
    /// The rate in a second.
    pub rate: u64,
    /// Commands that were the first of their queue to the namespace to wait for this rate.
    pub throttled: u64,
    /// How long queues have waited for this rate rather than for another one, all together.
    pub throttled_ns: u64,
    /// Parts of this time.
    pub tenants: Vec<ThrottledTenant>,
}

/// How long a host's commands to a namespace have waited for a rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThrottledTenant {
    /// The host; none: all hosts and namespaces that are not counted by themselves.
    pub host: Option<String>,
    /// The subsystem.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// How long its queues have waited, all together.
    pub throttled_ns: u64,
}

impl ThrottledTenant {
    /// The host's name, or `overflow` for all that are not counted by themselves.
    #[must_use]
    pub fn host_name(&self) -> &str {
        self.host.as_deref().unwrap_or("overflow")
    }

    /// The difference to an earlier reading, of the same commands.
    fn since(&self, earlier: &[Self]) -> Self {
        let key = |of: &Self| (of.host.clone(), of.subsystem.clone(), of.nsid);
        let before = earlier.iter().find(|before| key(before) == key(self));
        let before = before.map_or(0, |before| before.throttled_ns);
        Self { throttled_ns: self.throttled_ns.saturating_sub(before), ..self.clone() }
    }
}

/// A poll group's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Its number.
    pub group: usize,
    /// The processor to which it is pinned.
    pub cpu: Option<usize>,
    /// Its thread.
    pub thread: Thread,
    /// Time without work, polling or asleep.
    pub idle_ns: u64,
    /// Its connections.
    pub connections: u64,
    /// Memory of its pool, in bytes. Only the target's metrics have this and the next.
    #[serde(skip)]
    pub pool_bytes: u64,
    /// What of that was in use at the end of its last turn.
    #[serde(skip)]
    pub pool_used_bytes: u64,
    /// Its I/O queues.
    pub queues: u64,
    /// What it did for express queues.
    pub express: ExpressStatistics,
    /// Requests by namespace.
    pub served: Vec<NamespaceStatistics>,
}

/// The express queues of a poll group, and what it did for them since the target's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpressStatistics {
    /// Queues that are express now.
    pub queues: u64,
    /// How often one of them was served between the commands of others.
    pub served: u64,
    /// Commands that went to a device meanwhile.
    pub commands: u64,
    /// How long that took.
    pub time_ns: u64,
    /// How often one was served in its turn, as its time was used up.
    pub refused: u64,
}

impl ExpressStatistics {
    /// The difference to an earlier reading.
    fn since(&self, earlier: &Self) -> Self {
        since!(self, earlier; served, commands, time_ns, refused)
    }
}

/// Requests that a poll group served on one namespace since the target's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceStatistics {
    /// The subsystem's name.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// Read and Compare commands that went to its device.
    pub reads: u64,
    /// Write commands that did.
    pub writes: u64,
    /// Others that did, those that deallocate included.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl NamespaceStatistics {
    /// Commands of all kinds.
    #[must_use]
    pub const fn commands(&self) -> u64 {
        self.reads + self.writes + self.others
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.others += other.others;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        since!(self, earlier; reads, writes, others, read_bytes, written_bytes)
    }
}

impl Statistics {
    /// What was done from the target's start until it was read, as a difference.
    #[must_use]
    pub fn whole(&self) -> Self {
        self.since(&Self { time_ns: self.started_ns, ..Self::default() })
    }

    /// The difference to an earlier reading of the same target; numbers of connections and queues
    /// are the current ones.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let groups = self.groups.iter().map(|group| {
            match earlier.groups.iter().find(|before| before.group == group.group) {
                Some(before) => group.since(before),
                None => group.clone(),
            }
        });
        let rate_limits = self.rate_limits.iter().map(|limit| limit.since(&earlier.rate_limits));
        let before = earlier.hosts.as_ref().map_or(&[][..], |hosts| &hosts.commands);
        let hosts = self.hosts.as_ref().map(|hosts| Hosts {
            bounds_ns: hosts.bounds_ns.clone(),
            commands: hosts.commands.iter().map(|one| one.since(before)).collect(),
            gone: Vec::new(),
        });
        Self {
            time_ns: self.time_ns.saturating_sub(earlier.time_ns),
            groups: groups.collect(),
            hosts,
            rate_limits: rate_limits.collect(),
            machine: self.machine.since(&earlier.machine),
            ..self.clone()
        }
    }
}

impl RateLimit {
    /// The difference to an earlier reading, of the same commands.
    fn since(&self, earlier: &[Self]) -> Self {
        let key = |of: &Self| {
            let scope = (of.host.clone(), of.subsystem.clone(), of.nsid, of.bdev.clone());
            (scope, of.rw.clone(), of.counts_bytes)
        };
        let before = earlier.iter().find(|before| key(before) == key(self));
        let before = before.cloned().unwrap_or_default();
        Self {
            throttled: self.throttled.saturating_sub(before.throttled),
            throttled_ns: self.throttled_ns.saturating_sub(before.throttled_ns),
            tenants: self.tenants.iter().map(|tenant| tenant.since(&before.tenants)).collect(),
            ..self.clone()
        }
    }
}

impl Group {
    fn since(&self, earlier: &Self) -> Self {
        let served = self.served.iter().map(|served| {
            let same = |before: &&NamespaceStatistics| {
                before.nsid == served.nsid && before.subsystem == served.subsystem
            };
            match earlier.served.iter().find(same) {
                Some(before) => served.since(before),
                None => served.clone(),
            }
        });
        Self {
            thread: self.thread.since(&earlier.thread),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            express: self.express.since(&earlier.express),
            served: served.collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(reads: u64, idle_ns: u64) -> Statistics {
        let served = NamespaceStatistics {
            subsystem: "nqn.x".to_owned(),
            nsid: 1,
            reads,
            ..NamespaceStatistics::default()
        };
        let express = ExpressStatistics {
            queues: 2,
            served: reads,
            refused: 1,
            ..ExpressStatistics::default()
        };
        let served = vec![served];
        let group =
            Group { group: 1, idle_ns, connections: 3, express, served, ..Group::default() };
        Statistics { time_ns: idle_ns * 2, groups: vec![group], ..Statistics::default() }
    }

    #[test]
    fn differences_match_by_group_and_namespace() {
        let between = statistics(10, 500).since(&statistics(4, 100));
        assert_eq!(between.time_ns, 800);
        let group = &between.groups[0];
        assert_eq!((group.idle_ns, group.connections, group.served[0].reads), (400, 3, 6));
        let ExpressStatistics { queues, served, refused, .. } = group.express;
        assert_eq!((queues, served, refused), (2, 6, 0));
        let mut other = statistics(4, 100);
        other.groups[0].served[0].nsid = 2;
        assert_eq!(statistics(10, 500).since(&other).groups[0].served[0].reads, 10);
    }

    #[test]
    fn what_waited_is_the_difference_of_the_same_limit() {
        let limit = |rw: &str, throttled, rate| RateLimit {
            rw: rw.to_owned(),
            throttled,
            throttled_ns: throttled * 1000,
            rate,
            ..RateLimit::default()
        };
        let of = |rate_limits| Statistics { rate_limits, ..Statistics::default() };
        let before = of(vec![limit("read", 3, 100), limit("write", 5, 100)]);
        // The limit of writes was changed, that of reads removed.
        let between = of(vec![limit("write", 9, 200)]).since(&before);
        assert_eq!(between.rate_limits, [limit("write", 4, 200)]);
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let bounds = [1_000, 2_000, 4_000];
        let of =
            |buckets: [u64; 4]| HostCommands { buckets: buckets.to_vec(), ..Default::default() };
        let quantile = |buckets, share| of(buckets).quantile_ns(&bounds, share);
        assert_eq!(quantile([0, 0, 0, 0], 0.5), None);
        assert_eq!(quantile([10, 0, 0, 0], 0.5), Some(500.0));
        assert_eq!(quantile([50, 0, 50, 0], 0.75), Some(3_000.0));
        assert_eq!(quantile([50, 0, 50, 0], 0.5), Some(1_000.0));
        assert_eq!(quantile([0, 0, 1, 99], 0.99), Some(4_000.0), "beyond the last bound");
    }

    #[test]
    fn commands_of_hosts_are_the_difference_of_the_same_host_namespace_and_kind() {
        let commands = |host: &str, command: &str, buckets: [u64; 2]| HostCommands {
            host: Some(host.to_owned()),
            command: command.to_owned(),
            buckets: buckets.to_vec(),
            ..HostCommands::default()
        };
        let of = |commands| Statistics {
            hosts: Some(Hosts { bounds_ns: vec![1_000], commands, ..Hosts::default() }),
            ..Statistics::default()
        };
        let before = of(vec![commands("a", "read", [3, 1])]);
        let now = of(vec![
            commands("a", "read", [5, 1]),
            commands("a", "write", [2, 0]),
            commands("b", "read", [0, 4]),
        ]);
        let counts: Vec<u64> = now
            .since(&before)
            .hosts
            .map(|hosts| hosts.commands.iter().map(HostCommands::count).collect())
            .unwrap_or_default();
        assert_eq!(counts, [2, 2, 4]);
    }

    #[test]
    fn missing_fields_have_defaults() {
        let read: Statistics =
            serde_json::from_str(r#"{"version":"9","new":1}"#).expect("a reading");
        assert_eq!(read, Statistics { version: "9".to_owned(), ..Statistics::default() });
    }
}
