//! What every command of a while went through, when that is asked for.
//!
//! A trace has a ring of records for each poll group, which is allocated when the trace begins. The
//! group owns its ring while it records, and gives it back when the time is over: the data path
//! takes no lock and allocates nothing, and a trace that nobody reads ends all the same.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weft_statistics::ns;
use weft_statistics::trace::{TracedCommand, TracedQueue};

/// What to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// For how long.
    pub time: Duration,
    /// The last commands of each poll group that are kept.
    pub commands: usize,
}

impl TraceConfig {
    /// The longest time.
    pub const TIME_MAX: Duration = Duration::from_secs(600);
    /// Most commands of a group: about 100 MiB.
    pub const COMMANDS_MAX: usize = 1 << 20;
}

/// What a poll group has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedGroup {
    /// Its queues.
    pub queues: Vec<TracedQueue>,
    /// The last commands that completed, in the order of their completion.
    pub commands: VecDeque<TracedCommand>,
    /// Earlier commands, which later ones have replaced.
    pub replaced: u64,
    /// Commands of queues beyond those that a trace has room for.
    pub beyond: u64,
}

/// Queues of a group that a trace has room for: with each, what its host and subsystem are called.
const QUEUES_MAX: usize = 4096;

/// A trace, which groups take their rings from and give them back to.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) time: Duration,
    groups: Vec<Mutex<RingState>>,
}

#[derive(Debug)]
enum RingState {
    Empty(Ring),
    Recording,
    Done(TracedGroup),
}

impl Trace {
    /// Allocates the rings.
    pub(crate) fn new(config: TraceConfig, groups: usize) -> Self {
        let most = config.commands.clamp(1, TraceConfig::COMMANDS_MAX);
        let ring = |_| Mutex::new(RingState::Empty(Ring::new(most)));
        let time = config.time.min(TraceConfig::TIME_MAX);
        Self { time, groups: (0..groups).map(ring).collect() }
    }

    /// Takes the ring of a group.
    pub(crate) fn begin(&self, group: usize) -> Option<Ring> {
        let mut part = self.groups.get(group)?.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *part, RingState::Recording) {
            RingState::Empty(ring) => Some(ring),
            other => {
                *part = other;
                None
            }
        }
    }

    /// A group's time is over.
    pub(crate) fn end(&self, group: usize, ring: Ring) {
        if let Some(part) = self.groups.get(group) {
            *part.lock().unwrap_or_else(PoisonError::into_inner) = RingState::Done(ring.recorded);
        }
    }

    /// Whether all groups have recorded.
    pub(crate) fn is_complete(&self) -> bool {
        self.groups.iter().all(|part| {
            matches!(*part.lock().unwrap_or_else(PoisonError::into_inner), RingState::Done(_))
        })
    }

    /// What every group has recorded, once all of them have; after that nothing is left.
    pub(crate) fn take(&self) -> Option<Vec<TracedGroup>> {
        if !self.is_complete() {
            return None;
        }
        let taken = self.groups.iter().map(|part| {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            match std::mem::replace(&mut *part, RingState::Recording) {
                RingState::Done(group) => Some(group),
                RingState::Empty(_) | RingState::Recording => None,
            }
        });
        taken.collect()
    }
}

/// The last commands of a group.
#[derive(Debug)]
pub(crate) struct Ring {
    recorded: TracedGroup,
    most: usize,
}

impl Ring {
    fn new(most: usize) -> Self {
        // Written once, so that the data path meets no page that is not there yet.
        let mut commands = VecDeque::from(vec![TracedCommand::default(); most]);
        commands.clear();
        Self { recorded: TracedGroup { commands, ..TracedGroup::default() }, most }
    }

    /// A queue has commands from now on; none if there is no room for it.
    pub(crate) fn add_queue(&mut self, queue: TracedQueue) -> Option<u32> {
        if self.recorded.queues.len() >= QUEUES_MAX {
            return None;
        }
        self.recorded.queues.push(queue);
        u32::try_from(self.recorded.queues.len() - 1).ok()
    }

    /// Adds a command, and returns its number.
    pub(crate) fn push(&mut self, command: TracedCommand) -> u64 {
        let recorded = &mut self.recorded;
        if recorded.commands.len() >= self.most {
            recorded.commands.pop_front();
            recorded.replaced += 1;
        }
        recorded.commands.push_back(command);
        recorded.replaced + recorded.commands.len() as u64 - 1
    }

    /// A command for which there is no room.
    pub(crate) fn count_beyond(&mut self) {
        self.recorded.beyond += 1;
    }

    /// The command of this number has been sent, if it is still there.
    pub(crate) fn sent(&mut self, number: u64, at: Duration) {
        let index = number.checked_sub(self.recorded.replaced).map(usize::try_from);
        if let Some(Ok(index)) = index
            && let Some(command) = self.recorded.commands.get_mut(index)
        {
            command.sent_ns = Some(ns(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: TraceConfig = TraceConfig { time: Duration::from_secs(1), commands: 3 };

    #[test]
    fn the_last_commands_stay_and_the_others_are_counted() {
        let trace = Trace::new(CONFIG, 1);
        let mut ring = trace.begin(0).expect("a ring");
        assert!(trace.begin(0).is_none() && trace.begin(1).is_none());
        let memory = ring.recorded.commands.capacity();
        let numbers: Vec<_> = (0..5)
            .map(|nsid| ring.push(TracedCommand { nsid, ..TracedCommand::default() }))
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        let at = Duration::from_micros(7);
        for number in [0, 1, 3] {
            ring.sent(number, at);
        }
        assert_eq!(ring.recorded.commands.capacity(), memory, "nothing is allocated");
        assert_eq!(trace.take(), None);
        trace.end(0, ring);
        let group = trace.take().expect("a trace").remove(0);
        let kept: Vec<_> = group.commands.iter().map(|one| (one.nsid, one.sent_ns)).collect();
        assert_eq!(kept, [(2, None), (3, Some(7_000)), (4, None)]);
        assert_eq!(group.replaced, 2);
        assert_eq!(trace.take(), None, "it is read once");
    }

    #[test]
    fn queues_are_bounded() {
        let mut ring = Ring::new(1);
        let queue = TracedQueue { host: String::new(), subsystem: String::new(), queue_id: 1 };
        for _ in 0..QUEUES_MAX {
            assert!(ring.add_queue(queue.clone()).is_some());
        }
        assert_eq!(ring.add_queue(queue), None);
    }
}
