//! The requests of a lane.

use crate::pattern::{Direction, Drawn};

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
    pub(super) const fn of(drawn: Drawn, now_ns: u64) -> Self {
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

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Probe | Self::Read | Self::ReadBack => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Flush => "flush",
        }
    }
}
