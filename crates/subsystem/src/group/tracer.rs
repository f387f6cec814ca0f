//! Records what the commands of a group go through, while a trace is asked for.

use std::sync::Arc;
use std::time::Duration;

use weft_nvme::{Command, Status};
use weft_statistics::ns;
use weft_statistics::trace::{TracedCommand, TracedQueue};
use weft_transport::Slot;

use crate::shared::trace::{Ring, Trace};

/// The trace of a group.
#[derive(Debug)]
pub(crate) struct Tracer {
    trace: Arc<Trace>,
    group: usize,
    ring: Ring,
}

impl Tracer {
    /// Begins a group's part of a trace, once.
    pub(super) fn begin(trace: Arc<Trace>, group: usize) -> Option<Self> {
        let ring = trace.begin(group)?;
        Some(Self { trace, group, ring })
    }

    /// Gives back what was recorded.
    pub(super) fn end(self) {
        self.trace.end(self.group, self.ring);
    }

    /// For how long it records.
    pub(super) fn time(&self) -> Duration {
        self.trace.time
    }
}

/// The commands of a queue that are traced.
#[derive(Debug)]
pub(super) struct QueueTrace {
    /// None: the trace has no room for it.
    queue: Option<u32>,
    /// Commands in flight, by slot. Those that came before the trace are none.
    begun: Vec<Option<TracedCommand>>,
    /// The numbers of those that completed in this turn.
    unsent: Vec<u64>,
}

impl QueueTrace {
    /// Traces a queue of this many entries.
    pub(super) fn new(tracer: &mut Tracer, of: TracedQueue, entries: usize) -> Box<Self> {
        let queue = tracer.ring.add_queue(of);
        let (begun, unsent) = (vec![None; entries], Vec::with_capacity(entries));
        Box::new(Self { queue, begun, unsent })
    }

    /// A command that has come at a time gets its turn now.
    pub(super) fn received(
        &mut self,
        slot: Slot,
        command: &Command,
        arrived: Duration,
        now: Duration,
    ) {
        let Some(queue) = self.queue else { return };
        if self.begun.len() <= slot.index() {
            self.begun.resize(slot.index() + 1, None);
        }
        self.begun[slot.index()] = Some(TracedCommand {
            queue,
            opcode: command.opcode,
            nsid: command.namespace_id.get(),
            received_ns: ns(arrived),
            taken_ns: ns(now),
            ..TracedCommand::default()
        });
    }

    /// It has its memory.
    pub(super) fn begun(&mut self, slot: Slot, now: Duration) {
        if let Some(Some(command)) = self.begun.get_mut(slot.index()) {
            command.begun_ns.get_or_insert(ns(now));
        }
    }

    /// Its device gets it, with its data.
    pub(super) fn submitted(&mut self, slot: Slot, bytes: usize, now: Duration) {
        if let Some(Some(command)) = self.begun.get_mut(slot.index()) {
            command.begun_ns.get_or_insert(ns(now));
            command.submitted_ns = Some(ns(now));
            command.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// It completes.
    pub(super) fn completed(&mut self, slot: Slot, status: Status, now: Duration, to: &mut Tracer) {
        if self.queue.is_none() {
            return to.ring.count_beyond();
        }
        let begun = self.begun.get_mut(slot.index()).and_then(Option::take);
        let Some(mut command) = begun else { return };
        (command.completed_ns, command.status) = (ns(now), status.0);
        let number = to.ring.push(command);
        if self.unsent.len() < self.unsent.capacity() {
            self.unsent.push(number);
        }
    }

    /// The responses of this turn have been given to the socket or the adapter.
    pub(super) fn sent(&mut self, now: Duration, to: &mut Tracer) {
        self.unsent.drain(..).for_each(|number| to.ring.sent(number, now));
    }
}
