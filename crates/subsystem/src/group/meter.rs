//! Measures how long the commands of an I/O queue take.

use std::sync::Arc;
use std::time::Duration;

use weft_nvme::nvm::ReadWrite;
use weft_nvme::{Command, Status};
use weft_nvmf::queue::DeviceOperation;
use weft_nvmf::subsystem::{IoCounters, NamespaceView, Namespaces, TimedKind};
use weft_statistics::ns;
use weft_transport::Slot;

use super::core::Core;
use crate::shared::ids::HostKey;
use crate::shared::io_metrics::{
    CompletedCommand, ErrorClass, HostNamespaceCounters, IoKind, IoMetrics, Wait,
};

/// What is measured of a queue.
#[derive(Debug)]
pub(super) struct Meter {
    metrics: Arc<IoMetrics>,
    group: usize,
    /// Commands in flight, by slot.
    begun: Vec<Option<Measurement>>,
    /// The counters of the namespaces that the queue had commands for.
    pairs: Vec<NamespaceMeter>,
}

/// Where commands to a namespace are counted.
#[derive(Debug)]
struct NamespaceMeter {
    nsid: u32,
    /// The device that it had when the last command began.
    device: u32,
    pair: Arc<HostNamespaceCounters>,
    device_counters: Arc<IoCounters>,
}

#[derive(Debug)]
struct Measurement {
    at: Duration,
    /// The index of its counters.
    pair: usize,
    kind: IoKind,
    bytes: u64,
    /// What it waits for, and since when.
    wait: Option<(Wait, Duration)>,
    waits_ns: [u64; Wait::COUNT],
    /// What its device is to do.
    timed: Option<TimedKind>,
}

impl Measurement {
    /// It waits no longer, or for something else.
    fn wait(&mut self, next: Option<Wait>, now: Duration) {
        if let Some((wait, since)) = self.wait {
            let of = &mut self.waits_ns[wait as usize];
            *of = of.saturating_add(ns(now.saturating_sub(since)));
        }
        self.wait = next.map(|wait| (wait, now));
    }
}

impl Meter {
    /// A meter, if commands are measured.
    pub(super) fn new(core: &Core) -> Option<Box<Self>> {
        let metrics = Arc::clone(core.directory.io_metrics()?);
        Some(Box::new(Self { metrics, group: core.id, begun: Vec::new(), pairs: Vec::new() }))
    }

    /// A host's command that has come at a time gets its turn now. One for no namespace in
    /// particular, or for one that there is not, is not counted: a host cannot have counters made
    /// by what it names.
    pub(super) fn begin(
        &mut self,
        slot: Slot,
        command: &Command,
        at: Duration,
        host: &HostKey,
        namespaces: &Namespaces,
        core: &Core,
    ) {
        let nsid = command.namespace_id.get();
        let begun = namespaces.get(nsid).map(|namespace| {
            let kind = IoKind::of(command);
            let blocks = match kind {
                IoKind::Read | IoKind::Write => ReadWrite::from_command(command).nlb(),
                IoKind::Other => 0,
            };
            let bytes = u64::from(blocks) * u64::from(namespace.block_bytes);
            let pair = self.pair(host, namespace, core);
            let mut waits_ns = [0; Wait::COUNT];
            waits_ns[Wait::Turn as usize] = ns(core.time().saturating_sub(at));
            Measurement { at, pair, kind, bytes, wait: None, waits_ns, timed: None }
        });
        if self.begun.len() <= slot.index() {
            self.begun.resize_with(slot.index() + 1, || None);
        }
        self.begun[slot.index()] = begun;
    }

    /// The command in this slot waits.
    pub(super) fn wait(&mut self, slot: Slot, wait: Wait, now: Duration) {
        if let Some(Some(begun)) = self.begun.get_mut(slot.index()) {
            begun.wait(Some(wait), now);
        }
    }

    /// The command in this slot goes to its device. Time in the device's window counts as the
    /// device's.
    pub(super) fn submit(&mut self, slot: Slot, operation: &DeviceOperation, now: Duration) {
        if let Some(Some(begun)) = self.begun.get_mut(slot.index()) {
            begun.wait(Some(Wait::Device), now);
            begun.timed = match operation {
                DeviceOperation::Read { .. } => Some(TimedKind::Read),
                DeviceOperation::Write { .. } => Some(TimedKind::Write),
                DeviceOperation::Deallocate { .. } => Some(TimedKind::Deallocate),
                _ => None,
            };
        }
    }

    /// The command in this slot completes.
    pub(super) fn end(&mut self, slot: Slot, status: Status, now: Duration) {
        let begun = self.begun.get_mut(slot.index()).and_then(Option::take);
        let Some(mut begun) = begun else { return };
        begun.wait(None, now);
        let Measurement { at, pair, kind, bytes, waits_ns, timed, .. } = begun;
        let Some(NamespaceMeter { pair, device_counters, .. }) = self.pairs.get(pair) else {
            return;
        };
        let (latency, error) = (now.saturating_sub(at), ErrorClass::of(status));
        let done = CompletedCommand { kind, latency, bytes, error, waits_ns };
        self.metrics.count(pair, self.group, done);
        if let Some(kind) = timed {
            device_counters.add_time(kind, waits_ns[Wait::Device as usize]);
        }
    }

    fn pair(&mut self, host: &HostKey, namespace: &NamespaceView, core: &Core) -> usize {
        let NamespaceView { nsid, device, .. } = *namespace;
        let index = self.pairs.iter().position(|one| one.nsid == nsid);
        if let Some(index) = index
            && let Some(one) = self.pairs.get_mut(index)
        {
            if one.device != device {
                (one.device, one.device_counters) = (device, core.devices.counters().of(device));
            }
            return index;
        }
        let (pair, device_counters) =
            (self.metrics.pair(host, nsid, core.time()), core.devices.counters().of(device));
        self.pairs.push(NamespaceMeter { nsid, device, pair, device_counters });
        self.pairs.len() - 1
    }
}
