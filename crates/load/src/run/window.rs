//! What a worker has done in a window, and in which phase.

use std::time::Duration;

use crate::histogram::Latency;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Running, not yet measured.
    Ramp,
    /// Running and measured.
    Run,
    /// Reading back what was written.
    Check,
}

/// What happened in a window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) phase: Phase,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) trims: u64,
    pub(crate) bytes: u64,
    pub(crate) lasted: Duration,
    pub(crate) latency: Latency,
    /// Blocks that verification has found wrong since the start.
    pub(crate) faults: u64,
    /// Bytes that have been started since the start, and those that were read back.
    pub(crate) work_bytes: u64,
}

impl Window {
    /// What came after it, before it was shown.
    pub(crate) fn extend(&mut self, later: Self) {
        self.phase = later.phase;
        self.reads += later.reads;
        self.writes += later.writes;
        self.trims += later.trims;
        self.bytes += later.bytes;
        self.lasted += later.lasted;
        self.latency.add(&later.latency);
        (self.faults, self.work_bytes) = (later.faults, later.work_bytes);
    }
}
