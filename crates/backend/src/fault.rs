//! A wrapper that injects faults by rules: requests fail, or never complete.
//!
//! Rules count requests and draw random numbers for the device as a whole, not for each reactor, so
//! that "the third write" is one write. A request that a rule hits does not reach the inner device.
//! As with any device, a flush that failed stays failed.

use crate::limits::LAYERS_MAX;
use crate::shared::LostWrites;
use crate::wrapper::Wrapper;
use crate::{
    BlockDevice, DeviceFactory, Failure, Geometry, OpenError, Operation, OperationKind, Request,
    RequestCompletion,
};
use core::fmt;
use core::str::FromStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use weft_reactor::{Owner, Reactor};

/// A rule: which requests it hits, and with which effect.
///
/// A request matches by its operation and its blocks. Of the matching requests a rule hits the
/// `nth` (and those after it, up to `times`), or each with a probability, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// Only this operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationKind>,
    /// Only requests that touch this block or one after it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_block: u64,
    /// Only requests that touch this block or one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_block: Option<u64>,
    /// The first hit is the nth matching request (from 1). Without `times` it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// The probability of a hit for each matching request, in millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_million: Option<u32>,
    /// The seed of the random numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// The maximum number of hits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The effect of a hit.
    pub effect: Effect,
}

/// The effect on a request that a rule hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails without being executed.
    Fail(Failure),
    /// It does not complete until the device is closed.
    Drop,
}

impl Default for Effect {
    fn default() -> Self {
        Self::Fail(Failure::Device(rustix::io::Errno::IO.raw_os_error()))
    }
}

/// The failure's name, or `drop`.
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(failure) => failure.fmt(f),
            Self::Drop => f.write_str("drop"),
        }
    }
}

impl FromStr for Effect {
    type Err = <Failure as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "drop" => Ok(Self::Drop),
            failure => failure.parse().map(Self::Fail),
        }
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Effect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The options that [`DeviceSpec`](crate::DeviceSpec) reads.
impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.operation {
            write!(f, "operation={operation},")?;
        }
        if self.first_block != 0 {
            write!(f, "first-block={},", self.first_block)?;
        }
        if let Some(last) = self.last_block {
            write!(f, "last-block={last},")?;
        }
        if let Some(nth) = self.nth {
            write!(f, "nth={nth},")?;
        }
        if let Some(per_million) = self.per_million {
            write!(f, "probability={}.{:06},", per_million / 1_000_000, per_million % 1_000_000)?;
        }
        if self.seed != 0 {
            write!(f, "seed={},", self.seed)?;
        }
        if let Some(times) = self.times {
            write!(f, "times={times},")?;
        }
        write!(f, "effect={}", self.effect)
    }
}

/// A device with injected faults.
#[derive(Debug)]
pub struct FaultFactory {
    inner: Arc<dyn DeviceFactory>,
    rules: Arc<[ActiveRule]>,
    lost_writes: Arc<LostWrites>,
}

impl FaultFactory {
    /// Wraps a device. The first rule that hits a request decides.
    pub fn new(inner: Arc<dyn DeviceFactory>, rules: Vec<FaultRule>) -> Result<Self, OpenError> {
        if inner.layers() >= LAYERS_MAX {
            return Err(OpenError::Invalid(format!("more than {LAYERS_MAX} wrappers")));
        }
        let rules = rules.into_iter().map(ActiveRule::new).collect();
        // What is lost here is lost for all devices of a storage.
        let storage = inner.storage();
        let lost_writes = storage.map(|storage| Arc::clone(&storage.lost_writes));
        let lost_writes = lost_writes.unwrap_or_default();
        Ok(Self { inner, rules, lost_writes })
    }

    /// The number of hits of each rule so far.
    pub fn hits(&self) -> Vec<u64> {
        self.rules.iter().map(|rule| rule.hits.load(Relaxed)).collect()
    }
}

impl Wrapper for FaultFactory {
    fn inner(&self) -> &dyn DeviceFactory {
        &*self.inner
    }

    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        Ok(Box::new(FaultDevice {
            inner: self.inner.open(reactor, owner)?,
            rules: Arc::clone(&self.rules),
            lost_writes: Arc::clone(&self.lost_writes),
            dropped: Vec::new(),
            done: VecDeque::new(),
            closed: false,
        }))
    }

    /// Counts as a flush, except that `Effect::Drop` is ignored: this call has to return.
    fn sync(&self) -> io::Result<()> {
        match self.rules.iter().find_map(|rule| rule.hit(&Operation::Flush)) {
            None if self.lost_writes.any() => Err(rustix::io::Errno::IO.into()),
            None => self.inner.sync(),
            Some(Effect::Fail(failure)) => {
                self.lost_writes.synced(Err(io::Error::other(failure.to_string())))
            }
            Some(Effect::Drop) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn has_lost_writes(&self) -> bool {
        self.lost_writes.any() || self.inner.has_lost_writes()
    }
}

/// A rule and its counters.
#[derive(Debug)]
struct ActiveRule {
    rule: FaultRule,
    matches: AtomicU64,
    hits: AtomicU64,
}

impl ActiveRule {
    fn new(rule: FaultRule) -> Self {
        Self { rule, matches: AtomicU64::new(0), hits: AtomicU64::new(0) }
    }

    fn hit(&self, operation: &Operation) -> Option<Effect> {
        let rule = &self.rule;
        if rule.operation.is_some_and(|kind| kind != operation.kind()) || !self.touches(operation) {
            return None;
        }
        let number = self.matches.fetch_add(1, Relaxed) + 1;
        if rule.nth.is_some_and(|nth| number < nth) {
            return None;
        }
        let drawn = draw(rule.seed, number) % 1_000_000;
        if rule.per_million.is_some_and(|per_million| drawn >= u64::from(per_million)) {
            return None;
        }
        let limit = rule.times.or(rule.nth.map(|_| 1)).unwrap_or(u64::MAX);
        let counted =
            self.hits.fetch_update(Relaxed, Relaxed, |hits| (hits < limit).then(|| hits + 1));
        counted.is_ok().then_some(rule.effect)
    }

    fn touches(&self, operation: &Operation) -> bool {
        let (first, last) = (self.rule.first_block, self.rule.last_block.unwrap_or(u64::MAX));
        let anywhere = first == 0 && last == u64::MAX;
        anywhere
            || operation.ranges().any(|(block, blocks)| {
                blocks != 0 && block <= last && block.saturating_add(u64::from(blocks) - 1) >= first
            })
    }
}

/// The nth random number of a seed, independent of the calling thread (splitmix64's finalizer).
fn draw(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[derive(Debug)]
struct FaultDevice {
    inner: Box<dyn BlockDevice>,
    rules: Arc<[ActiveRule]>,
    lost_writes: Arc<LostWrites>,
    /// Requests that a rule has dropped.
    dropped: Vec<Request>,
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

impl BlockDevice for FaultDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        if self.closed {
            return self.done.push_back(request.refuse(Failure::Gone));
        }
        match self.rules.iter().find_map(|rule| rule.hit(&request.operation)) {
            None if self.lost_writes.any() && request.operation.is_durable() => {
                self.done.push_back(request.refuse(Failure::MediaWrite));
            }
            None => self.inner.submit(reactor, request),
            Some(Effect::Fail(failure)) => {
                if matches!(request.operation, Operation::Flush) {
                    self.lost_writes.flush_failed(failure);
                }
                self.done.push_back(request.refuse(failure));
            }
            Some(Effect::Drop) => self.dropped.push(request),
        }
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        self.inner.handle(reactor, completion);
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        self.inner.flush(reactor);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front().or_else(|| self.inner.poll_completion())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.dropped.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        self.done.extend(self.dropped.drain(..).map(|request| request.refuse(Failure::Gone)));
        self.inner.close(reactor);
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(rule: FaultRule, operations: usize) -> Vec<usize> {
        let rule = ActiveRule::new(rule);
        (1..=operations).filter(|_| rule.hit(&Operation::Flush).is_some()).collect::<Vec<_>>()
    }

    #[test]
    fn rules_count() {
        let always = FaultRule::default();
        assert_eq!(hits(always.clone(), 3), [1, 2, 3]);
        assert_eq!(hits(FaultRule { nth: Some(2), ..always.clone() }, 4), [2]);
        let more = FaultRule { nth: Some(2), times: Some(2), ..always.clone() };
        assert_eq!(hits(more, 5), [2, 3]);
        assert_eq!(hits(FaultRule { times: Some(2), ..always.clone() }, 5), [1, 2]);
        let reads = FaultRule { operation: Some(OperationKind::Read), ..always };
        assert_eq!(hits(reads, 5), [0usize; 0]);
    }

    #[test]
    fn rules_draw_from_their_seed() {
        let rule = FaultRule { per_million: Some(100_000), seed: 7, ..FaultRule::default() };
        let first = hits(rule.clone(), 10_000);
        assert!((800..1200).contains(&first.len()), "{}", first.len());
        assert_eq!(hits(rule.clone(), 10_000), first);
        assert_ne!(hits(FaultRule { seed: 8, ..rule.clone() }, 10_000), first);
        assert!(hits(FaultRule { per_million: Some(0), ..rule.clone() }, 100).is_empty());
        assert_eq!(hits(FaultRule { per_million: Some(1_000_000), ..rule }, 100).len(), 100);
    }

    #[test]
    fn rules_look_at_blocks() {
        let rule = FaultRule { first_block: 8, last_block: Some(15), ..FaultRule::default() };
        let rule = ActiveRule::new(rule);
        for (block, blocks, hit) in [
            (0, 8, false),
            (0, 9, true),
            (8, 0, false),
            (15, 1, true),
            (16, 1, false),
            (0, 1000, true),
            (u64::MAX, 1, false),
        ] {
            let operation = Operation::Verify { slba: block, nlb: blocks };
            assert_eq!(rule.hit(&operation).is_some(), hit, "{block} {blocks}");
        }
        assert!(rule.hit(&Operation::Flush).is_none(), "a flush touches no block");
        let ranges = Box::new([(0, 1), (12, 1)]);
        assert!(rule.hit(&Operation::Discard { ranges }).is_some());
    }
}
