//! Commands that wait for a rate limit.
//!
//! A flow is the commands of one queue to one namespace that write, or that do not. Each waits for
//! itself, so that a limit of one does not hold up the others. A command that its buckets do not
//! admit waits in its flow, before it takes a buffer, and later ones wait behind it. The group
//! knows for each waiting flow when its first command is to ask again; one timer wakes it for all
//! of them. What begins as one asks as one: a fused pair, or the read and the write of a piece of
//! a Copy command, waits in the flow of its write and takes what both cost, or nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_nvmf::queue::{DeviceCommand, DeviceOperation};
use weft_reactor::{Reactor, Token};
use weft_transport::Slot;

use crate::group::core::{Core, RATE_TIMER};
use crate::group::io::bytes_of;
use crate::shared::bucket::Lease;
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::rate_limits::{LimitBucket, RateLimits, TenantTime};

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
    leases: Vec<Lease>,
    waiting: BTreeSet<WaitingFlow>,
    turn: u64,
    timer: Option<Duration>,
}

/// What a command costs, together with the one that begins with it.
#[derive(Debug)]
struct Charge<'a> {
    buckets: &'a [usize],
    bytes: usize,
    with_buckets: &'a [usize],
    with_bytes: usize,
}

impl Charge<'_> {
    /// Each bucket once.
    fn buckets(&self) -> impl Iterator<Item = usize> {
        let only = |index: &&usize| !self.buckets.contains(index);
        self.buckets.iter().chain(self.with_buckets.iter().filter(only)).copied()
    }

    /// What is taken from one of them.
    fn cost(&self, index: usize, limit: &LimitBucket) -> u64 {
        let of = |buckets: &[usize], bytes| match buckets.contains(&index) {
            true => limit.cost(bytes),
            false => 0,
        };
        of(self.buckets, self.bytes).saturating_add(of(self.with_buckets, self.with_bytes))
    }
}

/// A command was not admitted.
#[derive(Debug, Clone, Copy)]
struct Refused {
    bucket: usize,
    at: Duration,
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
                let mut lease = lease.unwrap_or_else(|| Lease::new(self.group));
                // Those that wait will say so again.
                bucket.bucket.leave_all(&mut lease);
                lease
            })
            .collect();
        let waiting = std::mem::take(&mut self.waiting);
        let now = |flow| WaitingFlow { at: Duration::ZERO, ..flow };
        self.waiting = waiting.into_iter().map(now).collect();
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

    /// A flow that was served: the others come first.
    pub(crate) fn served(&mut self, flow: WaitingFlow) -> WaitingFlow {
        self.turn += 1;
        WaitingFlow { turn: self.turn, ..flow }
    }

    /// Sets the timer for the first flow, if any waits.
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

    /// Takes from all buckets what is to be taken, or from none.
    fn take(&mut self, charge: &Charge<'_>, now: Duration) -> Result<(), Refused> {
        let refused = |bucket, at: Duration| Refused { bucket, at: at.min(now + WAIT_MAX) };
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

    fn bucket(&mut self, index: usize) -> Option<(&LimitBucket, &mut Lease)> {
        Some((self.limits.buckets.get(index)?, self.leases.get_mut(index)?))
    }

    /// A flow waits for this bucket, or does so no longer.
    fn waits(&mut self, index: usize, is_waiting: bool) {
        if let Some((limit, lease)) = self.bucket(index) {
            match is_waiting {
                true => limit.bucket.enter(lease),
                false => limit.bucket.leave(lease),
            }
        }
    }
}

/// The commands of a queue that is under limits.
#[derive(Debug)]
pub(crate) struct Flows {
    connection: ConnectionId,
    host: HostKey,
    flows: BTreeMap<FlowKey, Flow>,
}

#[derive(Debug, Default)]
struct Flow {
    buckets: Arc<[usize]>,
    /// What waits, oldest first.
    waiting: VecDeque<Slot>,
    /// The bucket that refused the first one last, and when.
    binding: Option<(usize, Duration)>,
    /// Where its time is counted of the buckets that have refused it.
    counted: BTreeMap<usize, Arc<TenantTime>>,
    /// The group knows that it waits.
    is_known: bool,
}

/// Whether the first command of a flow may begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It begins, and perhaps there are more.
    Begin(Slot),
    /// It asks again then.
    Wait(Duration),
    /// None waits.
    Empty,
}

impl Flows {
    /// The flows of a queue, if limits apply to it.
    pub(crate) fn new(connection: ConnectionId, host: &HostKey, core: &Core) -> Option<Box<Self>> {
        let (name, subsystem) = host.names();
        let applies = core.schedule.throttle.apply_to(name, subsystem);
        let flows = BTreeMap::new();
        applies.then(|| Box::new(Self { connection, host: host.clone(), flows }))
    }

    /// Other limits are in force.
    pub(crate) fn refresh(&mut self, core: &mut Core) {
        self.end(core);
        self.flows.retain(|_, flow| flow.is_known || !flow.waiting.is_empty());
        for (key, flow) in &mut self.flows {
            flow.buckets = core.schedule.throttle.limits.of(self.host.names(), key.0, key.1).into();
            flow.counted.clear();
        }
    }

    /// None of them waits for a bucket any more.
    pub(crate) fn end(&mut self, core: &mut Core) {
        for flow in self.flows.values_mut() {
            if let Some((bucket, _)) = flow.binding.take() {
                core.schedule.throttle.waits(bucket, false);
            }
        }
    }

    /// Whether a command, and the one that begins with it, may begin; if not, it waits here.
    pub(crate) fn admit(
        &mut self,
        slot: Slot,
        command: &DeviceCommand,
        with: Option<&DeviceCommand>,
        core: &mut Core,
    ) -> bool {
        // What makes writes durable, or says who may write, never waits. Copy waits piece by piece.
        if matches!(
            command.operation,
            DeviceOperation::Flush
                | DeviceOperation::Reserve(_)
                | DeviceOperation::ReportReservations
                | DeviceOperation::Copy { .. }
        ) {
            return true;
        }
        let (key, connection) = (key_of(command), self.connection);
        let (with_buckets, with_bytes) = self.beside(with, core);
        let (host, flow) = self.flow(key, core);
        if flow.waiting.is_empty() {
            let (buckets, bytes) = (&*flow.buckets, bytes_of(command.transfer));
            let charge = Charge { buckets, bytes, with_buckets: &with_buckets, with_bytes };
            let taken = core.schedule.throttle.take(&charge, core.reactor.turn_time());
            let Err(refused) = taken else { return true };
            flow.count(Some(refused.bucket), host, key.0, core);
            if !std::mem::replace(&mut flow.is_known, true) {
                let (at, turn) = (refused.at, core.schedule.throttle.turn);
                core.schedule.throttle.waiting.insert(WaitingFlow {
                    at,
                    turn,
                    connection,
                    flow: key,
                });
            }
        }
        flow.waiting.push_back(slot);
        false
    }

    /// The buckets and the bytes of the command that begins with another one.
    fn beside(&mut self, with: Option<&DeviceCommand>, core: &Core) -> (Arc<[usize]>, usize) {
        let Some(with) = with else { return (Arc::default(), 0) };
        let (_, flow) = self.flow(key_of(with), core);
        (Arc::clone(&flow.buckets), bytes_of(with.transfer))
    }

    /// The slot of the first command of a flow.
    pub(crate) fn first(&self, key: FlowKey) -> Option<Slot> {
        self.flows.get(&key)?.waiting.front().copied()
    }

    /// The first command of a flow, which this is, asks again. While the target drains it begins.
    pub(crate) fn retry(
        &mut self,
        command: Option<&DeviceCommand>,
        with: Option<&DeviceCommand>,
        key: FlowKey,
        core: &mut Core,
    ) -> Turn {
        let (with_buckets, with_bytes) = self.beside(with, core);
        let Some(flow) = self.flows.get_mut(&key) else { return Turn::Empty };
        let (Some(command), Some(slot)) = (command, flow.waiting.front().copied()) else {
            flow.count(None, &self.host, key.0, core);
            flow.is_known = false;
            return Turn::Empty;
        };
        let (buckets, bytes) = (&*flow.buckets, bytes_of(command.transfer));
        let charge = Charge { buckets, bytes, with_buckets: &with_buckets, with_bytes };
        let taken = core.schedule.throttle.take(&charge, core.reactor.turn_time());
        if let (Err(refused), false) = (taken, core.draining) {
            flow.count(Some(refused.bucket), &self.host, key.0, core);
            return Turn::Wait(refused.at);
        }
        flow.count(None, &self.host, key.0, core);
        flow.waiting.pop_front();
        Turn::Begin(slot)
    }

    /// A command was aborted. Says whether it waited.
    pub(crate) fn remove(&mut self, slot: Slot, command: &DeviceCommand, core: &mut Core) -> bool {
        let Some(flow) = self.flows.get_mut(&key_of(command)) else { return false };
        let before = flow.waiting.len();
        flow.waiting.retain(|waiting| *waiting != slot);
        if flow.waiting.is_empty() {
            flow.count(None, &self.host, command.nsid, core);
        }
        flow.waiting.len() < before
    }

    fn flow(&mut self, key: FlowKey, core: &Core) -> (&HostKey, &mut Flow) {
        let host = &self.host;
        let flow = self.flows.entry(key).or_insert_with(|| {
            let buckets = core.schedule.throttle.limits.of(host.names(), key.0, key.1).into();
            Flow { buckets, ..Flow::default() }
        });
        (host, flow)
    }
}

impl Flow {
    /// The first command, of this host and to this namespace, is refused by this bucket, or not any
    /// more: counts the time since then.
    fn count(&mut self, refusing: Option<usize>, host: &HostKey, nsid: u32, core: &mut Core) {
        let now = core.reactor.turn_time();
        let next = refusing.map(|index| (index, now));
        let before = std::mem::replace(&mut self.binding, next);
        let was_refusing = before.map(|(index, _)| index);
        if was_refusing != refusing {
            was_refusing.into_iter().for_each(|index| core.schedule.throttle.waits(index, false));
            refusing.into_iter().for_each(|index| core.schedule.throttle.waits(index, true));
        }
        let limit = |index: usize| core.schedule.throttle.limits.buckets.get(index);
        if let Some((index, since)) = before
            && let Some(limit) = limit(index)
        {
            let waited = now.saturating_sub(since);
            limit.count_time(core.id, waited);
            let tenant = self.counted.entry(index).or_insert_with(|| limit.tenant(host, nsid));
            tenant.count(core.id, waited);
        } else if let Some(limit) = refusing.and_then(limit) {
            limit.count_command(core.id);
        }
    }
}

fn key_of(command: &DeviceCommand) -> FlowKey {
    (command.nsid, command.operation.modifies())
}
