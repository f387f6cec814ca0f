//! Commands that wait for a rate limit.
//!
//! A queue under limits has a lane for each namespace and direction, so that a limit of one does not
//! hold up the others. A command that its buckets do not admit waits in its lane, before it takes a
//! buffer, and later ones wait behind it. The group knows for each waiting lane when its first
//! command is to ask again; one timer wakes it for all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_nvmf::queue::{DeviceCommand, DeviceOperation};
use weft_reactor::{Reactor, Token};
use weft_transport::Slot;

use super::core::{Core, RATE_TIMER};
use super::io::bytes_of;
use super::message::ConnectionId;
use crate::bucket::Lease;
use crate::directory::HostKey;
use crate::rate_limits::{LimitBucket, RateLimits};

/// The timer is not set for less: what accrues meanwhile is in every bucket's tolerance.
const WAKE_INTERVAL: Duration = Duration::from_micros(50);

/// A lane asks again after this time at the latest: another group may have given back what made a
/// bucket refuse it.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// The namespace of a command, and whether it writes.
pub(crate) type LaneKey = (u32, bool);

/// A lane of a queue whose first command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitingLane {
    /// When it is to ask again.
    at: Duration,
    /// Lanes that were served longer ago come first.
    turn: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) lane: LaneKey,
}

/// A group's part of the rate limits.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    limits: Arc<RateLimits>,
    /// By bucket.
    leases: Vec<Lease>,
    waiting: BTreeSet<WaitingLane>,
    turn: u64,
    timer: Option<Duration>,
}

/// A command was not admitted.
#[derive(Debug, Clone, Copy)]
struct Refused {
    bucket: usize,
    at: Duration,
}

impl Throttle {
    /// Other limits are in force: every lane that waits asks again.
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
                index.and_then(|index| leases.get(index).copied()).unwrap_or_default()
            })
            .collect();
        let waiting = std::mem::take(&mut self.waiting);
        let now = |lane| WaitingLane { at: Duration::ZERO, ..lane };
        self.waiting = waiting.into_iter().map(now).collect();
    }

    /// The lanes that are to ask now, in their order; `all`: those that wait longer, too.
    pub(crate) fn take_due(&mut self, now: Duration, all: bool) -> VecDeque<WaitingLane> {
        let is_due = |lane: &WaitingLane| all || lane.at <= now;
        if !self.waiting.first().is_some_and(is_due) {
            return VecDeque::new();
        }
        let mut due = Vec::new();
        while let Some(lane) = self.waiting.pop_first() {
            if !is_due(&lane) {
                self.waiting.insert(lane);
                break;
            }
            due.push(lane);
        }
        due.sort_unstable_by_key(|lane| lane.turn);
        due.into()
    }

    /// A lane waits until then.
    pub(crate) fn wait_until(&mut self, at: Duration, lane: WaitingLane) {
        self.waiting.insert(WaitingLane { at, ..lane });
    }

    /// A lane that was served: the others come first.
    pub(crate) fn served(&mut self, lane: WaitingLane) -> WaitingLane {
        self.turn += 1;
        WaitingLane { turn: self.turn, ..lane }
    }

    /// Sets the timer for the first lane, if any waits.
    pub(crate) fn set_timer(&mut self, reactor: &mut Reactor) {
        let Some(first) = self.waiting.first() else { return };
        let at = first.at.max(reactor.turn_time() + WAKE_INTERVAL);
        if self.timer.is_none_or(|set| set > at || set < reactor.turn_time()) {
            self.timer = Some(at);
            reactor.set_timer(Token { owner: RATE_TIMER, tag: 0 }, at);
        }
    }

    /// The timer has arrived.
    pub(crate) const fn timer_arrived(&mut self) {
        self.timer = None;
    }

    /// Takes from all these buckets what a command costs, or from none.
    fn take(&mut self, buckets: &[usize], bytes: usize, now: Duration) -> Result<(), Refused> {
        let refused = |bucket, at: Duration| Refused { bucket, at: at.min(now + WAIT_MAX) };
        // The later buckets seldom refuse what they have just not refused: another group may have
        // come between.
        let refusing = buckets.iter().copied().filter_map(|index| {
            let (limit, lease) = self.bucket(index)?;
            Some((limit.bucket.refuses(*lease, limit.cost(bytes), now)?, index))
        });
        if let Some((at, index)) = refusing.max() {
            return Err(refused(index, at));
        }
        for (done, index) in buckets.iter().copied().enumerate() {
            let Some((limit, lease)) = self.bucket(index) else { continue };
            if let Err(at) = limit.bucket.take(lease, limit.cost(bytes), now) {
                for index in buckets.iter().copied().take(done) {
                    let Some((limit, lease)) = self.bucket(index) else { continue };
                    limit.bucket.give_back(lease, limit.cost(bytes));
                }
                return Err(refused(index, at));
            }
        }
        Ok(())
    }

    fn bucket(&mut self, index: usize) -> Option<(&LimitBucket, &mut Lease)> {
        Some((self.limits.buckets.get(index)?, self.leases.get_mut(index)?))
    }

    fn take_at_once(&mut self, buckets: &[usize], bytes: usize, now: Duration) {
        for index in buckets.iter().copied() {
            if let Some((limit, lease)) = self.bucket(index) {
                limit.bucket.take_at_once(lease, limit.cost(bytes), now);
            }
        }
    }
}

/// The commands of a queue that is under limits.
#[derive(Debug)]
pub(crate) struct Lanes {
    connection: ConnectionId,
    host: HostKey,
    lanes: BTreeMap<LaneKey, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    buckets: Vec<usize>,
    /// What waits, oldest first.
    waiting: VecDeque<Slot>,
    /// The bucket that refused the first one last, and when.
    binding: Option<(usize, Duration)>,
    /// The group knows that it waits.
    is_known: bool,
}

/// Whether the first command of a lane may begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It begins, and perhaps there are more.
    Begin(Slot),
    /// It asks again then.
    Wait(Duration),
    /// None waits.
    Empty,
}

impl Lanes {
    /// The lanes of a queue, if limits apply to it.
    pub(crate) fn new(connection: ConnectionId, host: &HostKey, core: &Core) -> Option<Box<Self>> {
        let (name, subsystem) = host.names();
        let applies = core.throttle.limits.apply_to(name, subsystem);
        let lanes = BTreeMap::new();
        applies.then(|| Box::new(Self { connection, host: host.clone(), lanes }))
    }

    /// Other limits are in force.
    pub(crate) fn refresh(&mut self, core: &Core) {
        self.lanes.retain(|_, lane| lane.is_known || !lane.waiting.is_empty());
        for (key, lane) in &mut self.lanes {
            lane.buckets = core.throttle.limits.of(self.host.names(), key.0, key.1);
            lane.binding = None;
        }
    }

    /// Whether a command may begin; if not, it waits in this slot.
    pub(crate) fn admit(&mut self, slot: Slot, command: &DeviceCommand, core: &mut Core) -> bool {
        // What makes writes durable never waits.
        if matches!(command.operation, DeviceOperation::Flush) {
            return true;
        }
        let (key, connection) = (key_of(command), self.connection);
        let lane = self.lane(key, core);
        if lane.buckets.is_empty() && lane.waiting.is_empty() {
            return true;
        }
        if lane.waiting.is_empty() {
            let (bytes, now) = (bytes_of(command.transfer), core.reactor.turn_time());
            let Err(refused) = core.throttle.take(&lane.buckets, bytes, now) else { return true };
            lane.count(Some(refused.bucket), core);
            if !std::mem::replace(&mut lane.is_known, true) {
                let (at, turn) = (refused.at, core.throttle.turn);
                core.throttle.waiting.insert(WaitingLane { at, turn, connection, lane: key });
            }
        }
        lane.waiting.push_back(slot);
        false
    }

    /// Counts a command that cannot wait.
    pub(crate) fn admit_at_once(&mut self, command: &DeviceCommand, core: &mut Core) {
        let lane = self.lane(key_of(command), core);
        let (bytes, now) = (bytes_of(command.transfer), core.reactor.turn_time());
        core.throttle.take_at_once(&lane.buckets, bytes, now);
    }

    /// The slot of the first command of a lane.
    pub(crate) fn first(&self, key: LaneKey) -> Option<Slot> {
        self.lanes.get(&key)?.waiting.front().copied()
    }

    /// The first command of a lane, which this is, asks again. While the target drains it begins.
    pub(crate) fn retry(
        &mut self,
        command: Option<&DeviceCommand>,
        key: LaneKey,
        core: &mut Core,
    ) -> Turn {
        let Some(lane) = self.lanes.get_mut(&key) else { return Turn::Empty };
        let (Some(command), Some(slot)) = (command, lane.waiting.front().copied()) else {
            lane.count(None, core);
            lane.is_known = false;
            return Turn::Empty;
        };
        let now = core.reactor.turn_time();
        let taken = core.throttle.take(&lane.buckets, bytes_of(command.transfer), now);
        if let (Err(refused), false) = (taken, core.draining) {
            lane.count(Some(refused.bucket), core);
            return Turn::Wait(refused.at);
        }
        lane.count(None, core);
        lane.waiting.pop_front();
        Turn::Begin(slot)
    }

    /// A command was aborted.
    pub(crate) fn remove(&mut self, slot: Slot, command: &DeviceCommand) {
        if let Some(lane) = self.lanes.get_mut(&key_of(command)) {
            lane.waiting.retain(|waiting| *waiting != slot);
        }
    }

    fn lane(&mut self, key: LaneKey, core: &Core) -> &mut Lane {
        let host = &self.host;
        self.lanes.entry(key).or_insert_with(|| {
            let buckets = core.throttle.limits.of(host.names(), key.0, key.1);
            Lane { buckets, ..Lane::default() }
        })
    }
}

impl Lane {
    /// The first command is refused by this bucket, or not any more: counts the time since then.
    fn count(&mut self, refusing: Option<usize>, core: &Core) {
        let now = core.reactor.turn_time();
        let next = refusing.map(|index| (index, now));
        let before = std::mem::replace(&mut self.binding, next);
        let limit = |index: usize| core.throttle.limits.buckets.get(index);
        if let Some((index, since)) = before
            && let Some(limit) = limit(index)
        {
            limit.count_time(core.id, now.saturating_sub(since));
        } else if let Some(limit) = refusing.and_then(limit) {
            limit.count_command(core.id);
        }
    }
}

fn key_of(command: &DeviceCommand) -> LaneKey {
    (command.nsid, command.operation.modifies())
}
