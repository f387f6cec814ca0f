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

use crate::config::IoMetricsConfig;
use crate::shared::ids::HostKey;
use crate::shared::statistics::{Counter, ns};

/// How long a pair keeps its counters when the host has no queue to the namespace.
const GONE_KEPT: Duration = Duration::from_secs(600);

/// A kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Any other I/O command.
    Other,
}

impl IoKind {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }

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
pub enum Wait {
    /// A rate limit.
    Limit,
    /// Memory of the poll group.
    Memory,
    /// Its data, from the host's socket.
    Data,
    /// The device.
    Device,
}

impl Wait {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Limit, Self::Memory, Self::Data, Self::Device];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Memory => "memory",
            Self::Data => "data",
            Self::Device => "device",
        }
    }
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

/// What was measured of a kind of command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoMeasured {
    /// Commands by latency: one number for each bound, then those beyond the last one.
    pub buckets: Vec<u64>,
    /// The sum of all latencies.
    pub total: Duration,
    /// Bytes of the Read and Write commands that succeeded.
    pub bytes: u64,
    /// Commands that completed with an error, in the order of [`ErrorClass::ALL`].
    pub errors: [u64; 5],
    /// Parts of `total`, in the order of [`Wait::ALL`].
    pub waits: [Duration; 4],
}

impl IoMeasured {
    /// Commands that completed.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn add_measured(&mut self, other: &Self) {
        self.buckets.resize(other.buckets.len(), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
        self.total += other.total;
        self.bytes += other.bytes;
        for (sum, more) in self.errors.iter_mut().zip(other.errors) {
            *sum += more;
        }
        for (sum, wait) in self.waits.iter_mut().zip(other.waits) {
            *sum += wait;
        }
    }

    fn add(&mut self, counters: &KindCounters) {
        self.buckets.resize(counters.buckets.len(), 0);
        for (sum, counter) in self.buckets.iter_mut().zip(&counters.buckets) {
            *sum += counter.get();
        }
        self.total += Duration::from_nanos(counters.total_ns.get());
        self.bytes += counters.bytes.get();
        for (sum, counter) in self.errors.iter_mut().zip(&counters.errors) {
            *sum += counter.get();
        }
        for (sum, wait_ns) in self.waits.iter_mut().zip(&counters.waits_ns) {
            *sum += Duration::from_nanos(wait_ns.get());
        }
    }
}

/// What was measured of a host's commands to a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostIo {
    /// The host's name; `None`: all hosts and namespaces that have no counters of their own.
    pub host: Option<String>,
    /// The subsystem's name.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// By kind, in the order of [`IoKind::ALL`].
    pub kinds: [IoMeasured; 3],
}

/// What all groups have measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoMetricsReading {
    /// The bounds of the buckets.
    pub bounds: Vec<Duration>,
    /// Each host and namespace that had I/O.
    pub pairs: Vec<HostIo>,
    /// All that gave their counters back, as the host was gone, by kind.
    pub gone: [IoMeasured; 3],
}

/// The counters of all groups.
#[derive(Debug)]
pub(crate) struct IoMetrics {
    config: IoMetricsConfig,
    groups: usize,
    /// The first I/O command of a queue to a namespace, and readers, take the lock.
    pairs: Mutex<Pairs>,
    overflow: Arc<PairCounters>,
    bounds_ns: Vec<u64>,
}

#[derive(Debug, Default)]
struct Pairs {
    kept: BTreeMap<(HostKey, u32), Kept>,
    /// What those had that gave their counters back.
    gone: [IoMeasured; 3],
}

/// The counters that a host and a namespace have for themselves.
#[derive(Clone, Debug)]
struct Kept {
    counters: Arc<PairCounters>,
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
                    sum.add_measured(&kind);
                }
            }
            is_kept
        });
    }
}

/// The counters of a host and a namespace, by group.
#[derive(Debug)]
pub(crate) struct PairCounters(Vec<[KindCounters; 3]>);

/// The counters of a kind of command in one group.
#[derive(Debug)]
#[repr(align(64))]
struct KindCounters {
    buckets: Box<[Counter]>,
    total_ns: Counter,
    bytes: Counter,
    errors: [Counter; 5],
    waits_ns: [Counter; 4],
}

/// A command that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) kind: IoKind,
    pub(crate) latency: Duration,
    pub(crate) bytes: u64,
    /// Why it was not done.
    pub(crate) error: Option<ErrorClass>,
    /// What it waited for, by [`Wait`].
    pub(crate) waits_ns: [u64; 4],
}

impl IoMetrics {
    pub(crate) fn new(config: IoMetricsConfig, groups: usize) -> Self {
        let bounds_ns: Vec<u64> = config.bounds.iter().copied().map(ns).collect();
        let overflow = Arc::new(PairCounters::new(groups, bounds_ns.len()));
        Self { config, groups, pairs: Mutex::default(), overflow, bounds_ns }
    }

    /// The counters of a host and a namespace, for a queue that uses them from `now` on.
    pub(crate) fn pair(&self, host: &HostKey, nsid: u32, now: Duration) -> Arc<PairCounters> {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.take_back(now);
        let kept = &mut pairs.kept;
        let key = (host.clone(), nsid);
        if kept.len() >= self.config.pairs && !kept.contains_key(&key) {
            return Arc::clone(&self.overflow);
        }
        let counters = || Arc::new(PairCounters::new(self.groups, self.bounds_ns.len()));
        let new = || Kept { counters: counters(), unused_since: None };
        let one = kept.entry(key).or_insert_with(new);
        one.unused_since = None;
        Arc::clone(&one.counters)
    }

    /// Counts a command that a group has completed.
    pub(crate) fn count(&self, pair: &PairCounters, group: usize, done: Completed) {
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

    /// What was measured until `now`.
    pub(crate) fn read(&self, now: Duration) -> IoMetricsReading {
        let (kept, gone) = {
            let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
            pairs.take_back(now);
            (pairs.kept.clone(), pairs.gone.clone())
        };
        let bounds = self.config.bounds.clone();
        let mut reading = IoMetricsReading { bounds, pairs: Vec::new(), gone };
        for ((host, nsid), Kept { counters: pair, .. }) in kept {
            let (host, subsystem) = host.names();
            let (host, subsystem) = (Some(host.to_owned()), subsystem.to_owned());
            reading.pairs.push(HostIo { host, subsystem, nsid, kinds: pair.read() });
        }
        let kinds = self.overflow.read();
        if kinds.iter().any(|kind| kind.commands() > 0) {
            reading.pairs.push(HostIo { kinds, ..HostIo::default() });
        }
        reading
    }
}

impl PairCounters {
    fn new(groups: usize, bounds: usize) -> Self {
        let counters = |_| KindCounters {
            buckets: (0..=bounds).map(|_| Counter::default()).collect(),
            total_ns: Counter::default(),
            bytes: Counter::default(),
            errors: Default::default(),
            waits_ns: Default::default(),
        };
        Self((0..groups).map(|_| IoKind::ALL.map(counters)).collect())
    }

    fn read(&self) -> [IoMeasured; 3] {
        let mut sums = <[IoMeasured; 3]>::default();
        for kinds in &self.0 {
            for (sum, counters) in sums.iter_mut().zip(kinds) {
                sum.add(counters);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Completed = Completed {
        kind: IoKind::Read,
        latency: Duration::from_micros(20),
        bytes: 4096,
        error: None,
        waits_ns: [0, 0, 0, 20_000],
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
            metrics.count(&pair, group, Completed { latency, ..READ });
        }
        metrics.count(&pair, 0, Completed { error: Some(ErrorClass::Media), ..READ });
        let [read, write, _] = &metrics.read(Duration::ZERO).pairs[0].kinds;
        assert_eq!(read.buckets, [2, 3, 1, 1]);
        assert_eq!((read.commands(), read.errors, read.bytes), (7, [0, 0, 1, 0, 0], 6 * 4096));
        assert_eq!(read.total, Duration::from_micros(162));
        assert_eq!(read.waits, [0, 0, 0, 140].map(Duration::from_micros));
        assert_eq!(write.commands(), 0);
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
        let commands = |one: &HostIo| (one.host.clone(), one.nsid, one.kinds[0].commands());
        let host = Some("host".to_owned());
        let counted: Vec<_> = reading.pairs.iter().map(commands).collect();
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
            let IoMetricsReading { pairs, gone, .. } = metrics.read(now);
            assert!(pairs.iter().all(|one| one.host.is_some()), "minute {minute}");
            most = most.max(pairs.len());
            let of = |kinds: &[IoMeasured; 3]| (kinds[0].commands(), kinds[0].bytes);
            let counted = pairs.iter().map(|one| of(&one.kinds)).chain([of(&gone)]);
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
            let gone = reading.gone[0].commands();
            counted.push((reading.pairs[0].kinds[0].commands(), gone));
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
