//! The counters of the groups, and how other threads read them.
//!
//! Every counter is written by one group only, with a plain store, and read by any thread: counting
//! costs the data path neither a lock nor a locked instruction, and a reader never sees a torn
//! value. Different counters may be read a moment apart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_backend::{Failure, Operation};
use weft_nvmf::subsystem::{DeviceTimes, IoCounters, SubsystemView, TimedKind, Totals};
use weft_reactor::Pool;
use weft_statistics::{ExpressStatistics, Group, NamespaceStatistics, ns};

use crate::shared::ids::DeviceId;

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to it, for the one thread that writes it.
    pub(crate) fn add(&self, value: u64) {
        self.set(self.get().wrapping_add(value));
    }
}

/// The counters of one group.
#[derive(Debug, Default)]
pub(crate) struct GroupCounters {
    connections: Counter,
    pool_bytes: Counter,
    pool_used_bytes: Counter,
    express_queues: Counter,
    express_served: Counter,
    express_commands: Counter,
    express_ns: Counter,
    express_refused: Counter,
    idle_ns: Counter,
    /// Since when the group has been idle, 0 while it is busy.
    waits_since_ns: Counter,
    /// By the index of the device. Only reconfiguration and readers take the lock.
    devices: Mutex<Vec<Arc<IoCounters>>>,
}

impl GroupCounters {
    /// What the group has counted of the namespaces of these subsystems. `now` is the time of its
    /// reactor.
    pub(crate) fn read(
        &self,
        group: usize,
        cpu: Option<usize>,
        queues: usize,
        subsystems: &BTreeMap<String, Arc<SubsystemView>>,
        now: Duration,
    ) -> Group {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut served = Vec::new();
        for view in subsystems.values() {
            for namespace in view.namespaces.iter() {
                let slot = DeviceId(namespace.device).slot();
                let Some(counters) = devices.get(slot) else { continue };
                let totals = counters.totals();
                served.push(NamespaceStatistics {
                    subsystem: view.nqn.as_str().to_owned(),
                    nsid: namespace.nsid,
                    reads: totals.reads,
                    writes: totals.writes,
                    others: totals.others,
                    read_bytes: totals.read_bytes,
                    written_bytes: totals.written_bytes,
                });
            }
        }
        Group {
            group,
            cpu,
            thread: Default::default(),
            idle_ns: self.idle_ns(now),
            connections: self.connections.get(),
            pool_bytes: self.pool_bytes.get(),
            pool_used_bytes: self.pool_used_bytes.get(),
            queues: queues as u64,
            express: ExpressStatistics {
                queues: self.express_queues.get(),
                served: self.express_served.get(),
                commands: self.express_commands.get(),
                time_ns: self.express_ns.get(),
                refused: self.express_refused.get(),
            },
            served,
        }
    }

    /// Adds what the group has counted of a device.
    pub(crate) fn add_device(&self, device: u32, sum: &mut DeviceStatistics) {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = devices.get(DeviceId(device).slot()) {
            sum.add(counters);
        }
    }

    fn idle_ns(&self, now: Duration) -> u64 {
        let (idle_ns, since_ns) = (self.idle_ns.get(), self.waits_since_ns.get());
        let wait_ns = if since_ns == 0 { 0 } else { ns(now).saturating_sub(since_ns) };
        idle_ns.saturating_add(wait_ns)
    }
}

/// The writing end of a group's counters.
#[derive(Debug, Default)]
pub(crate) struct CounterWriter {
    group: Arc<GroupCounters>,
    devices: Vec<Arc<IoCounters>>,
}

impl CounterWriter {
    pub(crate) fn new(group: Arc<GroupCounters>) -> Self {
        Self { group, devices: Vec::new() }
    }

    /// Uses these counters at this index, which has a new device.
    pub(crate) fn begin(&mut self, slot: usize, counters: Arc<IoCounters>) {
        let mut shared = self.group.devices.lock().unwrap_or_else(PoisonError::into_inner);
        for devices in [&mut *shared, &mut self.devices] {
            devices.resize_with(devices.len().max(slot + 1), Arc::default);
            devices[slot] = Arc::clone(&counters);
        }
    }

    /// Counts a request that goes to a device. What hosts ask for is counted by the group's meter.
    pub(crate) fn count(&self, device: usize, block_bytes: u32, operation: &Operation) {
        let Some(counters) = self.devices.get(device) else { return };
        match operation {
            Operation::Read { into: buffer, .. } | Operation::Compare { with: buffer, .. } => {
                counters.count_read(buffer.len() as u64);
            }
            Operation::Write { from, .. } => counters.count_write(from.len() as u64),
            Operation::CompareAndWrite { compare, write, .. } => {
                counters.count_read(compare.len() as u64);
                counters.count_write(write.len() as u64);
            }
            Operation::Discard { ranges } => {
                let blocks: u64 = ranges.iter().map(|(_, nlb)| u64::from(*nlb)).sum();
                counters.count_deallocate(blocks * u64::from(block_bytes));
            }
            Operation::Flush
            | Operation::WriteZeroes { .. }
            | Operation::Verify { .. }
            | Operation::WriteUncorrectable { .. } => counters.count_other(),
        }
    }

    /// Counts a request that a device has failed.
    pub(crate) fn count_failure(&self, device: usize, failure: Failure) {
        let Some(counters) = self.devices.get(device) else { return };
        match failure {
            Failure::Mismatch => counters.count_mismatch(),
            _ => counters.count_failure(),
        }
    }

    /// The counters of a device.
    pub(crate) fn of(&self, device: u32) -> Arc<IoCounters> {
        self.devices.get(DeviceId(device).slot()).cloned().unwrap_or_default()
    }

    /// Publishes the state at the end of a turn: the group is idle since `now`.
    pub(crate) fn set_idle(&self, connections: usize, now: Duration) {
        self.group.connections.set(connections as u64);
        self.group.waits_since_ns.set(ns(now).max(1));
    }

    /// Publishes how much of the pool is in use.
    pub(crate) fn set_pool(&self, pool: &Pool) {
        let capacity = pool.capacity();
        self.group.pool_bytes.set(capacity as u64);
        self.group.pool_used_bytes.set(capacity.saturating_sub(pool.available()) as u64);
    }

    /// Publishes how many queues are express.
    pub(crate) fn set_express_queues(&self, queues: usize) {
        self.group.express_queues.set(queues as u64);
    }

    /// Counts that an express queue was served so often, which took so long.
    pub(crate) fn count_express(&self, times: u64, took: Duration) {
        self.group.express_served.add(times);
        self.group.express_ns.add(ns(took));
    }

    /// Counts a command that was begun between those of others.
    pub(crate) fn count_express_command(&self) {
        self.group.express_commands.add(1);
    }

    /// Counts that an express queue was served in its turn, as its time was used up.
    pub(crate) fn count_express_refused(&self) {
        self.group.express_refused.add(1);
    }

    /// Publishes that the group is busy, and its idle time so far.
    pub(crate) fn set_busy(&self, idle: Duration) {
        self.group.idle_ns.set(ns(idle));
        self.group.waits_since_ns.set(0);
    }
}

/// What was done at the device of a namespace, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatistics {
    /// What was counted.
    pub totals: Totals,
    /// How long the device took for Read commands.
    pub read_times: DeviceTimes,
    /// For Write commands.
    pub write_times: DeviceTimes,
    /// For commands that deallocate.
    pub deallocate_times: DeviceTimes,
}

impl DeviceStatistics {
    /// Adds what a group has counted.
    fn add(&mut self, counters: &IoCounters) {
        self.totals = self.totals.plus(counters.totals());
        let times = |sum: DeviceTimes, kind| sum.plus(counters.times(kind));
        self.read_times = times(self.read_times, TimedKind::Read);
        self.write_times = times(self.write_times, TimedKind::Write);
        self.deallocate_times = times(self.deallocate_times, TimedKind::Deallocate);
    }
}
