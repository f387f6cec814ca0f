//! What hosts meet: how long their commands take, by host, namespace and kind of command.
//!
//! A command counts from the turn in which the target has its capsule until its completion is given
//! to the transport: with its wait for memory, for rate limits and for its data, without the
//! network. Each group has counters of its own, which it alone writes: a command costs neither a
//! lock nor a locked instruction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_nvme::status::{StatusCode, StatusCodeType};
use weft_nvme::{Command, NvmOpcode, Status};
use weft_statistics::{HostCommands, Hosts, Waits, ns};

use crate::config::IoMetricsConfig;
use crate::shared::ids::HostKey;
use crate::shared::statistics::Counter;

/// How long a pair keeps its counters when the host has no queue to the namespace.
const GONE_KEPT: Duration = Duration::from_secs(600);

/// A kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Any other I/O command.
    Other,
}

impl IoKind {
    /// Their names, in order.
    const NAMES: [&'static str; 3] = ["read", "write", "other"];

    pub(crate) fn of(command: &Command) -> Self {
        match command.nvm_opcode() {
            NvmOpcode::READ => Self::Read,
            NvmOpcode::WRITE => Self::Write,
            _ => Self::Other,
        }
    }
}

/// What a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A rate limit.
    Limit,
    /// Memory of the poll group.
    Memory,
    /// Its data, from the host's socket.
    Data,
    /// The device.
    Device,
    /// The turn of its tenant, of its connection, or of its thread: until it begins.
    Turn,
}

impl Wait {
    /// How many there are.
    pub(crate) const COUNT: usize = 5;
}

/// Why a command was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Of the path, as the states of asymmetric access are: another one may do.
    Path,
    /// A Compare found other data, also as the other half of a fused pair.
    Compare,
    /// The device could not read or write the data.
    Media,
    /// The target or its device failed, or has no capacity left.
    Internal,
    /// The request: it is not valid, not permitted, reserved for others, or was taken back.
    Request,
}

impl ErrorClass {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Path, Self::Compare, Self::Media, Self::Internal, Self::Request];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Compare => "compare",
            Self::Media => "media",
            Self::Internal => "internal",
            Self::Request => "request",
        }
    }

    /// The class of a status; `None`: the command was done.
    pub(crate) fn of(status: Status) -> Option<Self> {
        if status.is_success() {
            return None;
        }
        Some(match status.code() {
            StatusCode::COMPARE_FAILURE | StatusCode::ABORTED_FAILED_FUSED => Self::Compare,
            StatusCode::INTERNAL_ERROR
            | StatusCode::DATA_TRANSFER_ERROR
            | StatusCode::CAPACITY_EXCEEDED
            | StatusCode::NAMESPACE_NOT_READY => Self::Internal,
            StatusCode::ABORTED_BY_HOST => Self::Request,
            _ if status.is_path_related() => Self::Path,
            _ if status.status_code_type() == StatusCodeType::MEDIA_AND_DATA_INTEGRITY => {
                Self::Media
            }
            _ => Self::Request,
        })
    }
}

/// The counters of all groups.
#[derive(Debug)]
pub(crate) struct IoMetrics {
    config: IoMetricsConfig,
    groups: usize,
    /// The first I/O command of a queue to a namespace, and readers, take the lock.
    pairs: Mutex<Pairs>,
    overflow: Arc<HostNamespaceCounters>,
    bounds_ns: Vec<u64>,
}

#[derive(Debug)]
struct Pairs {
    kept: BTreeMap<(HostKey, u32), OwnCounters>,
    /// What those had that gave their counters back.
    gone: [HostCommands; 3],
}

/// The counters that a host and a namespace have for themselves.
#[derive(Clone, Debug)]
struct OwnCounters {
    counters: Arc<HostNamespaceCounters>,
    /// When no queue was first found to use them.
    unused_since: Option<Duration>,
}

impl Pairs {
    /// Takes the counters of hosts back that have been gone for long enough.
    fn take_back(&mut self, now: Duration) {
        let Self { kept, gone } = self;
        kept.retain(|_, one| {
            // Whoever dropped them last has written all that it counted.
            if Arc::get_mut(&mut one.counters).is_none() {
                return true;
            }
            let since = *one.unused_since.get_or_insert(now);
            let is_kept = now.saturating_sub(since) < GONE_KEPT;
            if !is_kept {
                for (sum, kind) in gone.iter_mut().zip(one.counters.read()) {
                    sum.add(&kind);
                }
            }
            is_kept
        });
    }
}

/// The counters of a host and a namespace, by group.
#[derive(Debug)]
pub(crate) struct HostNamespaceCounters(Vec<[KindCounters; 3]>);

/// The counters of a kind of command in one group.
#[derive(Debug)]
#[repr(align(64))]
struct KindCounters {
    buckets: Box<[Counter]>,
    total_ns: Counter,
    bytes: Counter,
    errors: [Counter; 5],
    waits_ns: [Counter; Wait::COUNT],
}

/// A command that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletedCommand {
    pub(crate) kind: IoKind,
    pub(crate) latency: Duration,
    pub(crate) bytes: u64,
    /// Why it was not done.
    pub(crate) error: Option<ErrorClass>,
    /// What it waited for, by [`Wait`].
    pub(crate) waits_ns: [u64; Wait::COUNT],
}

impl IoMetrics {
    pub(crate) fn new(config: IoMetricsConfig, groups: usize) -> Self {
        let bounds_ns: Vec<u64> = config.bounds.iter().copied().map(ns).collect();
        let overflow = Arc::new(HostNamespaceCounters::new(groups, bounds_ns.len()));
        let pairs = Mutex::new(Pairs { kept: BTreeMap::new(), gone: by_kind() });
        Self { config, groups, pairs, overflow, bounds_ns }
    }

    /// The counters of a host and a namespace, for a queue that uses them from `now` on.
    pub(crate) fn pair(
        &self,
        host: &HostKey,
        nsid: u32,
        now: Duration,
    ) -> Arc<HostNamespaceCounters> {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.take_back(now);
        let kept = &mut pairs.kept;
        let key = (host.clone(), nsid);
        if kept.len() >= self.config.pairs && !kept.contains_key(&key) {
            return Arc::clone(&self.overflow);
        }
        let counters = || Arc::new(HostNamespaceCounters::new(self.groups, self.bounds_ns.len()));
        let new = || OwnCounters { counters: counters(), unused_since: None };
        let one = kept.entry(key).or_insert_with(new);
        one.unused_since = None;
        Arc::clone(&one.counters)
    }

    /// Counts a command that a group has completed.
    pub(crate) fn count(&self, pair: &HostNamespaceCounters, group: usize, done: CompletedCommand) {
        let Some(counters) = pair.0.get(group).and_then(|kinds| kinds.get(done.kind as usize))
        else {
            return;
        };
        let latency_ns = ns(done.latency);
        let bucket = self.bounds_ns.partition_point(|bound_ns| *bound_ns < latency_ns);
        if let Some(counter) = counters.buckets.get(bucket) {
            counter.add(1);
        }
        counters.total_ns.add(latency_ns);
        for (counter, wait_ns) in counters.waits_ns.iter().zip(done.waits_ns) {
            if wait_ns > 0 {
                counter.add(wait_ns);
            }
        }
        match done.error {
            None => counters.bytes.add(done.bytes),
            Some(class) => counters.errors[class as usize].add(1),
        }
    }

    /// What was measured until `now`, without the kinds of command that a host did not send.
    pub(crate) fn read(&self, now: Duration) -> Hosts {
        let (kept, gone) = {
            let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
            pairs.take_back(now);
            (pairs.kept.clone(), pairs.gone.clone())
        };
        let kept = kept.into_iter().flat_map(|((host, nsid), OwnCounters { counters, .. })| {
            counters.read().map(|kind| {
                let (host, subsystem) = host.names();
                let (host, subsystem) = (Some(host.to_owned()), subsystem.to_owned());
                HostCommands { host, subsystem, nsid, ..kind }
            })
        });
        let came = |kind: &HostCommands| kind.count() > 0;
        Hosts {
            bounds_ns: self.bounds_ns.clone(),
            commands: kept.chain(self.overflow.read()).filter(came).collect(),
            gone: gone.into_iter().filter(came).collect(),
        }
    }
}

/// Nothing counted, by kind.
fn by_kind() -> [HostCommands; 3] {
    IoKind::NAMES.map(|name| HostCommands { command: name.to_owned(), ..HostCommands::default() })
}

impl HostNamespaceCounters {
    fn new(groups: usize, bounds: usize) -> Self {
        let counters = |_| KindCounters {
            buckets: (0..=bounds).map(|_| Counter::default()).collect(),
            total_ns: Counter::default(),
            bytes: Counter::default(),
            errors: Default::default(),
            waits_ns: Default::default(),
        };
        Self((0..groups).map(|_| IoKind::NAMES.map(counters)).collect())
    }

    /// The sums of all groups, by kind.
    fn read(&self) -> [HostCommands; 3] {
        let mut sums = by_kind();
        for kinds in &self.0 {
            for (sum, counters) in sums.iter_mut().zip(kinds) {
                sum.add(&counters.read());
            }
        }
        sums
    }
}

impl KindCounters {
    fn read(&self) -> HostCommands {
        let errors_by_class = self.errors.each_ref().map(Counter::get);
        let waits_ns = self.waits_ns.each_ref().map(Counter::get);
        let [limit_ns, memory_ns, data_ns, device_ns, turn_ns] = waits_ns;
        HostCommands {
            buckets: self.buckets.iter().map(Counter::get).collect(),
            total_ns: self.total_ns.get(),
            bytes: self.bytes.get(),
            errors: errors_by_class.iter().sum(),
            errors_by_class,
            waits: Waits { limit_ns, memory_ns, data_ns, device_ns, turn_ns },
            ..HostCommands::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: CompletedCommand = CompletedCommand {
        kind: IoKind::Read,
        latency: Duration::from_micros(20),
        bytes: 4096,
        error: None,
        waits_ns: [0, 0, 0, 20_000, 1_000],
    };

    fn metrics(pairs: usize) -> IoMetrics {
        let bounds = [10, 20, 50].map(Duration::from_micros).to_vec();
        IoMetrics::new(IoMetricsConfig { bounds, pairs }, 2)
    }

    #[test]
    fn a_latency_counts_up_to_its_bound() {
        let metrics = metrics(1);
        let pair = metrics.pair(&HostKey::new("subsystem", "host"), 1, Duration::ZERO);
        for (group, us) in [(0, 0), (1, 10), (0, 11), (1, 20), (0, 50), (1, 51)] {
            let latency = Duration::from_micros(us);
            metrics.count(&pair, group, CompletedCommand { latency, ..READ });
        }
        metrics.count(&pair, 0, CompletedCommand { error: Some(ErrorClass::Media), ..READ });
        let commands = metrics.read(Duration::ZERO).commands;
        let [read] = &commands[..] else { panic!("only reads came: {commands:?}") };
        assert_eq!((&*read.command, &read.buckets[..]), ("read", &[2, 3, 1, 1][..]));
        assert_eq!((read.count(), read.errors, read.bytes), (7, 1, 6 * 4096));
        assert_eq!(read.errors_by_class, [0, 0, 1, 0, 0]);
        assert_eq!(read.total_ns, 162_000);
        assert_eq!(read.waits, Waits { device_ns: 140_000, turn_ns: 7_000, ..Waits::default() });
    }

    #[test]
    fn an_error_is_of_the_path_the_data_the_target_or_the_request() {
        let table = [
            (Status::SUCCESS, None),
            (Status::ANA_INACCESSIBLE.with_dnr(), Some(ErrorClass::Path)),
            (Status::ANA_TRANSITION, Some(ErrorClass::Path)),
            (Status::ABORTED_BY_HOST, Some(ErrorClass::Request)),
            (Status::COMPARE_FAILURE.with_dnr(), Some(ErrorClass::Compare)),
            (Status::ABORTED_FAILED_FUSED, Some(ErrorClass::Compare)),
            (Status::UNRECOVERED_READ_ERROR, Some(ErrorClass::Media)),
            (Status::WRITE_FAULT, Some(ErrorClass::Media)),
            (Status::INTERNAL_ERROR, Some(ErrorClass::Internal)),
            (Status::CAPACITY_EXCEEDED.with_dnr(), Some(ErrorClass::Internal)),
            (Status::LBA_OUT_OF_RANGE.with_dnr(), Some(ErrorClass::Request)),
            (Status::RESERVATION_CONFLICT, Some(ErrorClass::Request)),
        ];
        for (status, class) in table {
            assert_eq!(ErrorClass::of(status), class, "{status:?}");
        }
    }

    #[test]
    fn pairs_beyond_the_limit_are_counted_together() {
        let metrics = metrics(2);
        for nsid in 1..=4 {
            let pair = metrics.pair(&HostKey::new("subsystem", "host"), nsid, Duration::ZERO);
            metrics.count(&pair, 0, READ);
        }
        let again = metrics.pair(&HostKey::new("subsystem", "host"), 2, Duration::ZERO);
        metrics.count(&again, 1, READ);
        let reading = metrics.read(Duration::ZERO);
        let commands = |one: &HostCommands| (one.host.clone(), one.nsid, one.count());
        let host = Some("host".to_owned());
        let counted: Vec<_> = reading.commands.iter().map(commands).collect();
        assert_eq!(counted, [(host.clone(), 1, 1), (host, 2, 2), (None, 0, 2)]);
    }

    /// A probe under a new name each minute, for two days, beside a host that stays.
    #[test]
    fn a_host_that_is_gone_gives_its_counters_back_to_the_sum() {
        let metrics = metrics(20);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let stays = metrics.pair(&HostKey::new("subsystem", "stays"), 1, Duration::ZERO);
        let mut most = 0;
        for minute in 1..=2_880_u32 {
            let now = minutes(minute.into());
            let probe = HostKey::new("subsystem", &format!("probe {minute}"));
            metrics.count(&metrics.pair(&probe, 1, now), 1, READ);
            metrics.count(&stays, 0, READ);
            let Hosts { commands, gone, .. } = metrics.read(now);
            assert!(commands.iter().all(|one| one.host.is_some()), "minute {minute}");
            most = most.max(commands.len());
            let counted = commands.iter().chain(&gone).map(|kind| (kind.count(), kind.bytes));
            let sum = counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert_eq!(sum, (2 * u64::from(minute), 2 * 4096 * u64::from(minute)));
        }
        assert_eq!(most, 11, "the one that stays, and the probes of ten minutes");
    }

    #[test]
    fn a_host_that_comes_back_in_time_goes_on_counting_and_a_later_one_begins_anew() {
        let metrics = metrics(20);
        let host = HostKey::new("subsystem", "host");
        let mut counted = Vec::new();
        // It is found gone at 1, 601 and 1202 s.
        for (comes, is_looked_at) in [(0, 1), (600, 601), (1_201, 1_202)] {
            let seconds = Duration::from_secs;
            metrics.count(&metrics.pair(&host, 1, seconds(comes)), 0, READ);
            let reading = metrics.read(seconds(is_looked_at));
            let gone = reading.gone.first().map_or(0, HostCommands::count);
            counted.push((reading.commands[0].count(), gone));
        }
        assert_eq!(counted, [(1, 0), (2, 0), (1, 2)]);
    }

    #[test]
    fn the_default_has_as_many_buckets_as_are_possible_and_they_ascend() {
        let bounds = IoMetricsConfig::default().bounds;
        assert_eq!(bounds.len(), IoMetricsConfig::BOUNDS_MAX);
        assert!(bounds.is_sorted_by(|one, two| one < two));
    }
}
