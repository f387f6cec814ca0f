//! Measures how long the commands of an I/O queue take.

use std::sync::Arc;
use std::time::Duration;

use weft_nvme::nvm::ReadWrite;
use weft_nvme::{Command, Status};
use weft_nvmf::subsystem::Namespaces;
use weft_transport::Slot;

use super::core::Core;
use crate::directory::HostKey;
use crate::io_metrics::{Completed, IoKind, IoMetrics, PairCounters};

/// What is measured of a queue.
#[derive(Debug)]
pub(super) struct Meter {
    metrics: Arc<IoMetrics>,
    group: usize,
    /// Commands in flight, by slot.
    begun: Vec<Option<Begun>>,
    /// The counters of the namespaces that the queue had commands for.
    pairs: Vec<(u32, Arc<PairCounters>)>,
}

#[derive(Debug)]
struct Begun {
    at: Duration,
    /// The index of its counters.
    pair: usize,
    kind: IoKind,
    bytes: u64,
}

impl Meter {
    /// A meter, if commands are measured.
    pub(super) fn new(core: &Core) -> Option<Box<Self>> {
        let metrics = Arc::clone(core.directory.io_metrics()?);
        Some(Box::new(Self { metrics, group: core.id, begun: Vec::new(), pairs: Vec::new() }))
    }

    /// A host's command begins. One for no namespace in particular, or for one that there is not,
    /// is not counted: a host cannot have counters made by what it names.
    pub(super) fn begin(
        &mut self,
        slot: Slot,
        command: &Command,
        (host, namespaces): (&HostKey, &Namespaces),
        now: Duration,
    ) {
        let nsid = command.namespace_id.get();
        let begun = namespaces.get(nsid).map(|namespace| {
            let kind = IoKind::of(command);
            let blocks = match kind {
                IoKind::Read | IoKind::Write => ReadWrite::from_command(command).nlb(),
                IoKind::Other => 0,
            };
            let bytes = u64::from(blocks) * u64::from(namespace.block_bytes);
            Begun { at: now, pair: self.pair(host, nsid), kind, bytes }
        });
        if self.begun.len() <= slot.index() {
            self.begun.resize_with(slot.index() + 1, || None);
        }
        self.begun[slot.index()] = begun;
    }

    /// The command in this slot completes.
    pub(super) fn end(&mut self, slot: Slot, status: Status, now: Duration) {
        let begun = self.begun.get_mut(slot.index()).and_then(Option::take);
        let Some(Begun { at, pair, kind, bytes }) = begun else { return };
        let Some((_, pair)) = self.pairs.get(pair) else { return };
        let latency = now.saturating_sub(at);
        let done = Completed { kind, latency, bytes, is_success: status.is_success() };
        self.metrics.count(pair, self.group, done);
    }

    fn pair(&mut self, host: &HostKey, nsid: u32) -> usize {
        if let Some(index) = self.pairs.iter().position(|(of, _)| *of == nsid) {
            return index;
        }
        self.pairs.push((nsid, self.metrics.pair(host, nsid)));
        self.pairs.len() - 1
    }
}
