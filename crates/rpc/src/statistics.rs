//! The methods that a target answers, and what they carry.

use serde::{Deserialize, Serialize};

use crate::{
    machine::{Machine, Thread},
    method::Method,
};

/// How the target fares: its counters since it started, and those of its machine.
#[derive(Clone, Copy, Debug)]
pub enum GetStatistics {}

impl Method for GetStatistics {
    const NAME: &'static str = "statistics";
    type Params = ();
    type Answer = Statistics;
}

/// Read the configuration again, as SIGHUP does.
#[derive(Clone, Copy, Debug)]
pub enum Reload {}

impl Method for Reload {
    const NAME: &'static str = "reload";
    type Params = ();
    type Answer = ();
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
    /// The poll groups.
    pub groups: Vec<Group>,
    /// The machine that it runs on.
    pub machine: Machine,
}

/// A poll group's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Its number.
    pub group: usize,
    /// The processor that it is pinned to.
    pub cpu: Option<usize>,
    /// Its thread.
    pub thread: Thread,
    /// How long it had nothing to do, looking or asleep.
    pub idle_ns: u64,
    /// Connections that it holds.
    pub connections: u64,
    /// I/O queues that were given to it.
    pub queues: u64,
    /// What it served.
    pub served: Vec<Served>,
}

/// What a poll group served of one namespace since the target started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Served {
    /// The subsystem's name.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Other commands that went to its device.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Served {
    /// What came on top of an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            subsystem: self.subsystem.clone(),
            nsid: self.nsid,
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            others: self.others.saturating_sub(earlier.others),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }
}

impl Statistics {
    /// What came on top of an earlier reading of the same target; numbers of now (connections,
    /// queues) stay as they are.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let groups = self.groups.iter().map(|group| {
            match earlier.groups.iter().find(|before| before.group == group.group) {
                Some(before) => group.since(before),
                None => group.clone(),
            }
        });
        Self {
            time_ns: self.time_ns.saturating_sub(earlier.time_ns),
            groups: groups.collect(),
            machine: self.machine.since(&earlier.machine),
            ..self.clone()
        }
    }
}

impl Group {
    fn since(&self, earlier: &Self) -> Self {
        let served = self.served.iter().map(|served| {
            let same = |before: &&Served| {
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
            served: served.collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(reads: u64, idle_ns: u64) -> Statistics {
        let served = Served { subsystem: "nqn.x".to_owned(), nsid: 1, reads, ..Served::default() };
        let group =
            Group { group: 1, idle_ns, connections: 3, served: vec![served], ..Group::default() };
        Statistics { time_ns: idle_ns * 2, groups: vec![group], ..Statistics::default() }
    }

    #[test]
    fn a_difference_is_of_the_same_namespace_and_group() {
        let between = statistics(10, 500).since(&statistics(4, 100));
        assert_eq!(between.time_ns, 800);
        let group = &between.groups[0];
        assert_eq!((group.idle_ns, group.connections, group.served[0].reads), (400, 3, 6));
        let mut other = statistics(4, 100);
        other.groups[0].served[0].nsid = 2;
        assert_eq!(statistics(10, 500).since(&other).groups[0].served[0].reads, 10);
    }

    #[test]
    fn fields_that_are_not_there_are_nothing() {
        let read: Statistics =
            serde_json::from_str(r#"{"version":"9","new":1}"#).expect("a reading");
        assert_eq!(read, Statistics { version: "9".to_owned(), ..Statistics::default() });
    }
}
