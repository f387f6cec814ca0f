//! The flows that wait for a rate limit, and what they take from its buckets.
//!
//! A command that its buckets do not admit waits in its flow (`group/io/flows.rs`). The group
//! knows for each waiting flow when its first command is to ask again; one timer wakes it for all
//! of them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_reactor::{Reactor, Token};
use weft_transport::Slot;

use crate::group::owners::RATE_TIMER;
use crate::shared::bucket::BucketShare;
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::rate_limits::{LimitBucket, RateLimits};

/// The timer is not set for less: what accrues meanwhile is in every bucket's tolerance.
const WAKE_INTERVAL: Duration = Duration::from_micros(50);

/// A flow asks again after this time at the latest: another group may have given back what made a
/// bucket refuse it.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// The namespace of a command, and whether it writes.
pub(crate) type FlowKey = (u32, bool);

/// A flow of a queue whose first command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitingFlow {
    /// When it is to ask again.
    at: Duration,
    /// Flows that were served longer ago come first.
    turn: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) flow: FlowKey,
}

/// A group's part of the rate limits.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    group: usize,
    limits: Arc<RateLimits>,
    /// By bucket.
    leases: Vec<BucketShare>,
    waiting: BTreeSet<WaitingFlow>,
    turn: u64,
}

/// What a command costs, together with the one that begins with it.
#[derive(Debug)]
pub(crate) struct Charge<'a> {
    pub(crate) buckets: &'a [usize],
    pub(crate) bytes: usize,
    pub(crate) with_buckets: &'a [usize],
    pub(crate) with_bytes: usize,
}

impl Charge<'_> {
    /// Each bucket once.
    fn buckets(&self) -> impl Iterator<Item = usize> {
        let only = |index: &&usize| !self.buckets.contains(index);
        self.buckets.iter().chain(self.with_buckets.iter().filter(only)).copied()
    }

    /// What is taken from one of them.
    fn cost(&self, index: usize, limit: &LimitBucket) -> u64 {
        let of = |buckets: &[usize], bytes| buckets.contains(&index).then_some(bytes);
        let [own, with] = [of(self.buckets, self.bytes), of(self.with_buckets, self.with_bytes)];
        // The two are one command.
        let bytes = own.unwrap_or(0).saturating_add(with.unwrap_or(0));
        own.or(with).map_or(0, |_| limit.cost(bytes))
    }
}

/// A command was not admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitRefusal {
    pub(crate) bucket: usize,
    pub(crate) at: Duration,
}

impl Throttle {
    /// That of the group with this number.
    pub(crate) fn new(group: usize) -> Self {
        Self { group, ..Self::default() }
    }

    /// Other limits are in force: every flow that waits asks again.
    pub(crate) fn replace(&mut self, limits: &Arc<RateLimits>) {
        if Arc::ptr_eq(&self.limits, limits) {
            return;
        }
        let old = std::mem::replace(&mut self.limits, Arc::clone(limits));
        let leases = std::mem::take(&mut self.leases);
        self.leases = limits
            .buckets
            .iter()
            .map(|bucket| {
                let index = old.buckets.iter().position(|before| Arc::ptr_eq(before, bucket));
                let lease = index.and_then(|index| leases.get(index).copied());
                let mut lease = lease.unwrap_or_else(|| BucketShare::new(self.group));
                // Those that wait will say so again.
                bucket.bucket.leave_all(&mut lease);
                lease
            })
            .collect();
        let waiting = std::mem::take(&mut self.waiting);
        let now = |flow| WaitingFlow { at: Duration::ZERO, ..flow };
        self.waiting = waiting.into_iter().map(now).collect();
    }

    /// The buckets of a flow of a host.
    pub(crate) fn buckets(&self, host: &HostKey, flow: FlowKey) -> Arc<[usize]> {
        Arc::from(self.limits.of(host.names(), flow.0, flow.1))
    }

    /// The limit of a bucket.
    pub(crate) fn limit(&self, index: usize) -> Option<&LimitBucket> {
        self.limits.buckets.get(index).map(|limit| &**limit)
    }

    /// Whether any limit applies to a host's commands in a subsystem.
    pub(crate) fn apply_to(&self, host: &str, subsystem: &str) -> bool {
        self.limits.apply_to(host, subsystem)
    }

    /// The flows that are to ask now, in their order; `all`: those that wait longer, too.
    pub(crate) fn take_due(&mut self, now: Duration, all: bool) -> VecDeque<WaitingFlow> {
        let is_due = |flow: &WaitingFlow| all || flow.at <= now;
        if !self.waiting.first().is_some_and(is_due) {
            return VecDeque::new();
        }
        let mut due = Vec::new();
        while let Some(flow) = self.waiting.pop_first() {
            if !is_due(&flow) {
                self.waiting.insert(flow);
                break;
            }
            due.push(flow);
        }
        due.sort_unstable_by_key(|flow| flow.turn);
        due.into()
    }

    /// A flow waits until then.
    pub(crate) fn wait_until(&mut self, at: Duration, flow: WaitingFlow) {
        self.waiting.insert(WaitingFlow { at, ..flow });
    }

    /// A flow waits from now on, behind those that have waited.
    pub(crate) fn wait(&mut self, at: Duration, connection: ConnectionId, flow: FlowKey) {
        self.waiting.insert(WaitingFlow { at, turn: self.turn, connection, flow });
    }

    /// A flow that was served: the others come first.
    pub(crate) fn served(&mut self, flow: WaitingFlow) -> WaitingFlow {
        self.turn += 1;
        WaitingFlow { turn: self.turn, ..flow }
    }

    /// Sets the timer for the first flow, if any waits.
    pub(crate) fn set_timer(&self, reactor: &mut Reactor) {
        if let Some(first) = self.waiting.first() {
            let at = first.at.max(reactor.turn_time() + WAKE_INTERVAL);
            reactor.set_timer(Token { owner: RATE_TIMER, tag: 0 }, at);
        }
    }

    /// Takes from all buckets what is to be taken, or from none.
    pub(crate) fn take(&mut self, charge: &Charge<'_>, now: Duration) -> Result<(), LimitRefusal> {
        let refused = |bucket, at: Duration| LimitRefusal { bucket, at: at.min(now + WAIT_MAX) };
        // The later buckets seldom refuse what they have just not refused: another group may have
        // come between.
        let refusing = charge.buckets().filter_map(|index| {
            let (limit, lease) = self.bucket(index)?;
            Some((limit.bucket.refuses(*lease, charge.cost(index, limit), now)?, index))
        });
        if let Some((at, index)) = refusing.max() {
            return Err(refused(index, at));
        }
        for (done, index) in charge.buckets().enumerate() {
            let Some((limit, lease)) = self.bucket(index) else { continue };
            if let Err(at) = limit.bucket.take(lease, charge.cost(index, limit), now) {
                for index in charge.buckets().take(done) {
                    let Some((limit, lease)) = self.bucket(index) else { continue };
                    limit.bucket.give_back(lease, charge.cost(index, limit));
                }
                return Err(refused(index, at));
            }
        }
        Ok(())
    }

    fn bucket(&mut self, index: usize) -> Option<(&LimitBucket, &mut BucketShare)> {
        Some((self.limits.buckets.get(index)?, self.leases.get_mut(index)?))
    }

    /// A flow waits for this bucket, or does so no longer.
    pub(crate) fn waits(&mut self, index: usize, is_waiting: bool) {
        if let Some((limit, lease)) = self.bucket(index) {
            match is_waiting {
                true => limit.bucket.enter(lease),
                false => limit.bucket.leave(lease),
            }
        }
    }
}

/// Whether the first command of a flow may begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitAnswer {
    /// It begins, and perhaps there are more.
    Begin(Slot),
    /// It asks again then.
    Wait(Duration),
    /// None waits.
    Empty,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RateLimit, RateLimitedCommands};

    /// A fused pair, or a piece of a Copy, which is read and written.
    #[test]
    fn two_that_begin_together_are_one_command_and_all_of_their_bytes() {
        use RateLimitedCommands::{Read, Rw, Write};
        let (rate_iops, rate) = (Some(1), Some(1));
        let of = |rw| RateLimit { rw, rate_iops, rate, ..RateLimit::default() };
        let limits = [Read, Write, Rw].map(of);
        let limits = RateLimits::replace(&Arc::default(), &limits, 1, Duration::ZERO);
        let both = [false, true].map(|is_write| limits.of(("host", "subsystem"), 1, is_write));
        let [reads, writes] = &both;
        let charge = Charge { buckets: writes, bytes: 8, with_buckets: reads, with_bytes: 4 };
        let costs: Vec<u64> = limits
            .buckets
            .iter()
            .zip(0..)
            .map(|(limit, index)| charge.cost(index, limit))
            .collect();
        assert_eq!(costs, [1, 4, 1, 8, 1, 12]);
        let alone = Charge { buckets: writes, bytes: 8, with_buckets: &[], with_bytes: 0 };
        let costs: Vec<u64> =
            limits.buckets.iter().zip(0..).map(|(limit, index)| alone.cost(index, limit)).collect();
        assert_eq!(costs, [0, 0, 1, 8, 1, 8]);
    }
}
