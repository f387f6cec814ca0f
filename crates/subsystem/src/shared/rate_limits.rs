//! The rate limits that are served, with their buckets, which all groups share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_statistics::{self as statistics, ThrottledTenant, ns};

use crate::config::RateLimit;
use crate::config::rules::Rule;
use crate::shared::bucket::Bucket;
use crate::shared::ids::HostKey;
use crate::shared::statistics::Counter;

/// Hosts and namespaces for which a bucket counts by itself: the first ones that waited. All others
/// are counted together.
const TENANTS_MAX: usize = 1000;

/// All limits at a time. Part of a snapshot; buckets live as long as their limits.
#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    limits: Vec<RateLimit>,
    pub(crate) buckets: Vec<Arc<LimitBucket>>,
}

/// One of a limit's two buckets.
#[derive(Debug)]
pub(crate) struct LimitBucket {
    /// The index of its limit.
    limit: usize,
    unit: Unit,
    pub(crate) bucket: Bucket,
    counters: Arc<[ThrottleCounters]>,
    tenants: Arc<Tenants>,
}

/// A host, and the namespace that its commands are for; none: all that are counted together.
type HostNamespace = Option<(HostKey, u32)>;

/// Who has waited for a bucket.
#[derive(Debug, Default)]
struct Tenants {
    /// The first command of a flow that waits, and readers, take the lock.
    all: Mutex<BTreeMap<HostNamespace, Arc<TenantTime>>>,
}

/// How long a tenant's flows have waited for a bucket, by group.
#[derive(Debug)]
pub(crate) struct TenantTime(Box<[Counter]>);

impl TenantTime {
    /// Counts how long a group's flow has waited.
    pub(crate) fn count(&self, group: usize, waited: Duration) {
        self.0.get(group).into_iter().for_each(|counter| counter.add(ns(waited)));
    }
}

/// What a bucket counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Commands,
    Bytes,
}

/// What one group counts of a bucket: it alone writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ThrottleCounters {
    commands: AtomicU64,
    waited_ns: AtomicU64,
}

impl RateLimits {
    /// The buckets of these limits for this many groups. A limit that was served before goes on
    /// with what it has admitted.
    pub(crate) fn replace(
        old: &Arc<Self>,
        limits: &[RateLimit],
        groups: usize,
        now: Duration,
    ) -> Arc<Self> {
        match old.limits == limits {
            true => Arc::clone(old),
            false => Arc::new(Self::new(limits, groups, old, now)),
        }
    }

    fn new(limits: &[RateLimit], groups: usize, old: &Self, now: Duration) -> Self {
        let mut buckets = Vec::new();
        for (index, limit) in limits.iter().enumerate() {
            for (unit, rate) in [(Unit::Commands, limit.rate_iops), (Unit::Bytes, limit.rate)] {
                let Some(rate) = rate else { continue };
                let bucket = Bucket::new(rate, limit.burst, groups);
                let before = old.buckets.iter().find(|before| {
                    let same = |of: &RateLimit| of.has_scope_of(limit);
                    before.unit == unit && old.limits.get(before.limit).is_some_and(same)
                });
                let served = match before {
                    Some(old) if old.bucket.is_like(&bucket) && old.limit == index => {
                        Arc::clone(old)
                    }
                    Some(old) => Arc::new(LimitBucket {
                        limit: index,
                        unit,
                        bucket: bucket.continue_from(&old.bucket, now),
                        counters: Arc::clone(&old.counters),
                        tenants: Arc::clone(&old.tenants),
                    }),
                    None => {
                        let counters = (0..groups).map(|_| ThrottleCounters::default()).collect();
                        let tenants = Arc::default();
                        Arc::new(LimitBucket { limit: index, unit, bucket, counters, tenants })
                    }
                };
                buckets.push(served);
            }
        }
        Self { limits: limits.to_vec(), buckets }
    }

    /// Whether any limit applies to a host's commands in a subsystem.
    pub(crate) fn apply_to(&self, host: &str, subsystem: &str) -> bool {
        self.limits.iter().any(|limit| limit.applies_to(host, subsystem))
    }

    /// The buckets of commands to a namespace, by the names of the host and the subsystem.
    pub(crate) fn of(&self, names: (&str, &str), nsid: u32, is_write: bool) -> Vec<usize> {
        let (host, subsystem) = names;
        let applies = |bucket: &LimitBucket| {
            self.limits.get(bucket.limit).is_some_and(|limit| {
                limit.applies_to(host, subsystem)
                    && limit.nsid.is_none_or(|wanted| wanted == nsid)
                    && limit.rw.includes(is_write)
            })
        };
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, bucket)| applies(bucket)).map(|(index, _)| index).collect()
    }

    /// What has waited, by bucket.
    pub(crate) fn statistics(&self) -> Vec<statistics::RateLimit> {
        let of = |bucket: &Arc<LimitBucket>| {
            let sum = |of: fn(&ThrottleCounters) -> &AtomicU64| {
                bucket.counters.iter().map(|one| of(one).load(Ordering::Relaxed)).sum()
            };
            let limit = self.limits.get(bucket.limit)?;
            let counts_bytes = bucket.unit == Unit::Bytes;
            let rate = if counts_bytes { limit.rate } else { limit.rate_iops };
            Some(statistics::RateLimit {
                host: limit.host.as_ref().map(ToString::to_string),
                subsystem: limit.subsystem.clone(),
                nsid: limit.nsid,
                bdev: limit.bdev.clone(),
                rw: limit.rw.word().to_owned(),
                counts_bytes,
                rate: rate.unwrap_or_default(),
                throttled: sum(|one| &one.commands),
                throttled_ns: sum(|one| &one.waited_ns),
                tenants: bucket.tenants.read(),
            })
        };
        self.buckets.iter().filter_map(of).collect()
    }
}

impl Tenants {
    fn get(&self, host: &HostKey, nsid: u32, groups: usize) -> Arc<TenantTime> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Some((host.clone(), nsid));
        let is_full = all.len() >= TENANTS_MAX && !all.contains_key(&key);
        let new = || Arc::new(TenantTime((0..groups).map(|_| Counter::default()).collect()));
        Arc::clone(all.entry(if is_full { None } else { key }).or_insert_with(new))
    }

    fn read(&self) -> Vec<ThrottledTenant> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let tenants = all.iter().map(|(key, time)| {
            let throttled_ns = time.0.iter().map(Counter::get).sum();
            let Some((host, nsid)) = key else {
                return ThrottledTenant { throttled_ns, ..ThrottledTenant::default() };
            };
            let (host, subsystem) = host.names();
            let (host, subsystem) = (Some(host.to_owned()), subsystem.to_owned());
            ThrottledTenant { host, subsystem, nsid: *nsid, throttled_ns }
        });
        tenants.collect()
    }
}

impl LimitBucket {
    /// What a command with this many bytes of data costs.
    pub(crate) const fn cost(&self, bytes: usize) -> u64 {
        match self.unit {
            Unit::Commands => 1,
            Unit::Bytes => bytes as u64,
        }
    }

    /// Counts a command of this group that begins to wait for this bucket.
    pub(crate) fn count_command(&self, group: usize) {
        self.add(group, |counters| &counters.commands, 1);
    }

    /// Counts how long a group's flow has waited for this bucket.
    pub(crate) fn count_time(&self, group: usize, waited: Duration) {
        self.add(group, |counters| &counters.waited_ns, ns(waited));
    }

    /// Where the time of a host's commands to a namespace is counted.
    pub(crate) fn tenant(&self, host: &HostKey, nsid: u32) -> Arc<TenantTime> {
        self.tenants.get(host, nsid, self.counters.len())
    }

    fn add(&self, group: usize, which: fn(&ThrottleCounters) -> &AtomicU64, more: u64) {
        let Some(counter) = self.counters.get(group).map(which) else { return };
        // Only this group writes it.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}
