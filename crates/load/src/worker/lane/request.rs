//! The requests of a lane.

use std::sync::Arc;

use crate::pacer::Pacer;
use crate::pattern::{Direction, DrawnRequest};
use crate::replay::{Action, RecordedRequest, Replay};

/// A recording that is replayed.
#[derive(Debug)]
pub(super) struct Replaying {
    replay: Arc<Replay>,
    next: usize,
    loops: u32,
}

impl Replaying {
    pub(super) fn new(replay: &Arc<Replay>, loops: u32) -> Self {
        Self { replay: Arc::clone(replay), next: 0, loops }
    }

    /// When its requests are due.
    pub(super) fn pacer(&self) -> Pacer {
        match &self.replay.times {
            Some(times) => Pacer::recorded(Arc::clone(times)),
            None => Pacer::Closed,
        }
    }

    /// The next request, if there is one.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Planned> {
        if self.next == self.replay.requests.len() && self.loops > 1 {
            (self.next, self.loops) = (0, self.loops - 1);
        }
        let RecordedRequest { action, offset, bytes } =
            self.replay.requests.get(self.next).copied()?;
        self.next += 1;
        Some(match action {
            Action::Flush => Planned::own(Purpose::Flush, 0, 0, now_ns),
            Action::Transfer(direction) => {
                Planned::of(DrawnRequest { direction, offset, bytes }, now_ns)
            }
        })
    }
}

/// A request that is to be started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) purpose: Purpose,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) due_ns: u64,
    pub(super) started_ns: u64,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Probe,
    Read,
    Write,
    Trim,
    Flush,
    /// A read of verification's own; it is in no statistics.
    ReadBack,
}

impl Planned {
    /// One that does not belong to the pattern.
    pub(super) const fn own(purpose: Purpose, offset: u64, bytes: u32, now_ns: u64) -> Self {
        Self { purpose, offset, bytes, due_ns: now_ns, started_ns: now_ns }
    }

    #[inline]
    pub(super) const fn of(drawn: DrawnRequest, now_ns: u64) -> Self {
        let purpose = match drawn.direction {
            Direction::Read => Purpose::Read,
            Direction::Write => Purpose::Write,
            Direction::Trim => Purpose::Trim,
        };
        Self::own(purpose, drawn.offset, drawn.bytes, now_ns)
    }
}

impl Purpose {
    pub(super) const fn is_of_the_pattern(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Trim)
    }

    /// Of the pattern's requests.
    pub(super) const fn direction(self) -> Option<Direction> {
        match self {
            Self::Read => Some(Direction::Read),
            Self::Write => Some(Direction::Write),
            Self::Trim => Some(Direction::Trim),
            Self::Probe | Self::Flush | Self::ReadBack => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Probe | Self::Read | Self::ReadBack => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Flush => "flush",
        }
    }
}
