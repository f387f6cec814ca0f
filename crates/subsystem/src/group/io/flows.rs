//! The commands of a queue that is under rate limits.
//!
//! A flow is the commands of one queue to one namespace that write, or that do not. Each waits for
//! itself, so that a limit of one does not hold up the others. A command that its buckets do not
//! admit waits in its flow, before it takes a buffer, and later ones wait behind it. What begins as
//! one asks as one: a fused pair, or the read and the write of a piece of a Copy command, waits in
//! the flow of its write and takes what both cost, or nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_nvmf::queue::{DeviceCommand, DeviceOperation};
use weft_transport::Slot;

use crate::group::core::Core;
use crate::group::schedule::{Charge, FlowKey, LimitAnswer};
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::rate_limits::TenantTime;

/// The commands of a queue that is under limits.
#[derive(Debug)]
pub(super) struct Flows {
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

impl Flows {
    /// The flows of a queue, if limits apply to it.
    pub(super) fn new(connection: ConnectionId, host: &HostKey, core: &Core) -> Option<Box<Self>> {
        let (name, subsystem) = host.names();
        let applies = core.schedule.throttle.apply_to(name, subsystem);
        let flows = BTreeMap::new();
        applies.then(|| Box::new(Self { connection, host: host.clone(), flows }))
    }

    /// Other limits are in force.
    pub(super) fn refresh(&mut self, core: &mut Core) {
        self.end(core);
        self.flows.retain(|_, flow| flow.is_known || !flow.waiting.is_empty());
        for (key, flow) in &mut self.flows {
            flow.buckets = core.schedule.throttle.buckets(&self.host, *key);
            flow.counted.clear();
        }
    }

    /// None of them waits for a bucket any more.
    pub(super) fn end(&mut self, core: &mut Core) {
        for flow in self.flows.values_mut() {
            if let Some((bucket, _)) = flow.binding.take() {
                core.schedule.throttle.waits(bucket, false);
            }
        }
    }

    /// Whether a command, and the one that begins with it, may begin; if not, it waits here.
    pub(super) fn admit(
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
            let (buckets, bytes) = (&*flow.buckets, command.transfer.bytes());
            let charge = Charge { buckets, bytes, with_buckets: &with_buckets, with_bytes };
            let taken = core.schedule.throttle.take(&charge, core.reactor.turn_time());
            let Err(refused) = taken else { return true };
            flow.count(Some(refused.bucket), host, key.0, core);
            if !std::mem::replace(&mut flow.is_known, true) {
                core.schedule.throttle.wait(refused.at, connection, key);
            }
        }
        flow.waiting.push_back(slot);
        false
    }

    /// The buckets and the bytes of the command that begins with another one.
    fn beside(&mut self, with: Option<&DeviceCommand>, core: &Core) -> (Arc<[usize]>, usize) {
        let Some(with) = with else { return (Arc::default(), 0) };
        let (_, flow) = self.flow(key_of(with), core);
        (Arc::clone(&flow.buckets), with.transfer.bytes())
    }

    /// The slot of the first command of a flow.
    pub(super) fn first(&self, key: FlowKey) -> Option<Slot> {
        self.flows.get(&key)?.waiting.front().copied()
    }

    /// The first command of a flow, which this is, asks again. While the target drains it begins.
    pub(super) fn retry(
        &mut self,
        command: Option<&DeviceCommand>,
        with: Option<&DeviceCommand>,
        key: FlowKey,
        core: &mut Core,
    ) -> LimitAnswer {
        let (with_buckets, with_bytes) = self.beside(with, core);
        let Some(flow) = self.flows.get_mut(&key) else { return LimitAnswer::Empty };
        let (Some(command), Some(slot)) = (command, flow.waiting.front().copied()) else {
            flow.count(None, &self.host, key.0, core);
            flow.is_known = false;
            return LimitAnswer::Empty;
        };
        let (buckets, bytes) = (&*flow.buckets, command.transfer.bytes());
        let charge = Charge { buckets, bytes, with_buckets: &with_buckets, with_bytes };
        let taken = core.schedule.throttle.take(&charge, core.reactor.turn_time());
        if let (Err(refused), false) = (taken, core.is_stopping) {
            flow.count(Some(refused.bucket), &self.host, key.0, core);
            return LimitAnswer::Wait(refused.at);
        }
        flow.count(None, &self.host, key.0, core);
        flow.waiting.pop_front();
        LimitAnswer::Begin(slot)
    }

    /// A command was aborted. Says whether it waited.
    pub(super) fn remove(&mut self, slot: Slot, command: &DeviceCommand, core: &mut Core) -> bool {
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
            let buckets = core.schedule.throttle.buckets(host, key);
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
        let limit = |index: usize| core.schedule.throttle.limit(index);
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
