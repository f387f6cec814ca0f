//! What a target counts of a namespace's device, in words with one writer.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds to a word that only the caller writes.
pub(crate) fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

/// The I/O commands that went to a device, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Read and Compare commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Others, those that deallocate included.
    pub others: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
    /// Commands that deallocate.
    pub deallocates: u64,
    /// Bytes of them.
    pub deallocated_bytes: u64,
    /// Compares that found other data.
    pub mismatches: u64,
    /// Commands that failed in another way.
    pub failures: u64,
}

/// How long a device took for its requests of a kind, as far as that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceTimes {
    /// The sum.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The shortest; 0: there was none.
    pub min_ns: u64,
}

impl DeviceTimes {
    /// Those of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let min_ns = match (self.min_ns, other.min_ns) {
            (0, one) | (one, 0) => one,
            (one, other) => one.min(other),
        };
        Self {
            total_ns: self.total_ns.wrapping_add(other.total_ns),
            max_ns: self.max_ns.max(other.max_ns),
            min_ns,
        }
    }
}

/// The kinds of requests whose time at the device is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Deallocate.
    Deallocate,
}

/// The words of [`DeviceTimes`].
#[derive(Debug, Default)]
struct TimeCounters {
    total_ns: AtomicU64,
    max_ns: AtomicU64,
    min_ns: AtomicU64,
}

/// What one thread of a target counts of one namespace, in words that only this thread writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IoCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// By [`TimedKind`].
    times: [TimeCounters; 3],
    deallocates: AtomicU64,
    deallocated_bytes: AtomicU64,
    mismatches: AtomicU64,
    failures: AtomicU64,
}

impl IoCounters {
    /// Counts a Read or Compare.
    pub fn count_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    /// Counts a Write.
    pub fn count_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    /// Counts a command that deallocates.
    pub fn count_deallocate(&self, bytes: u64) {
        add(&self.deallocates, 1);
        add(&self.deallocated_bytes, bytes);
        self.count_other();
    }

    /// Counts any other command.
    pub fn count_other(&self) {
        add(&self.others, 1);
    }

    /// Counts a compare that found other data.
    pub fn count_mismatch(&self) {
        add(&self.mismatches, 1);
    }

    /// Counts a command that failed in another way.
    pub fn count_failure(&self) {
        add(&self.failures, 1);
    }

    /// Adds the time that a device has taken for a request.
    pub fn add_time(&self, kind: TimedKind, ns: u64) {
        let TimeCounters { total_ns, max_ns, min_ns } = &self.times[kind as usize];
        add(total_ns, ns);
        // 0 says that there was none.
        let ns = ns.max(1);
        if ns > max_ns.load(Ordering::Relaxed) {
            max_ns.store(ns, Ordering::Relaxed);
        }
        let shortest = min_ns.load(Ordering::Relaxed);
        if shortest == 0 || ns < shortest {
            min_ns.store(ns, Ordering::Relaxed);
        }
    }

    /// How long the device took until now.
    #[must_use]
    pub fn times(&self, kind: TimedKind) -> DeviceTimes {
        let TimeCounters { total_ns, max_ns, min_ns } = &self.times[kind as usize];
        DeviceTimes {
            total_ns: total_ns.load(Ordering::Relaxed),
            max_ns: max_ns.load(Ordering::Relaxed),
            min_ns: min_ns.load(Ordering::Relaxed),
        }
    }

    /// What was counted so far, a moment ago for all but its writer.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            deallocates: self.deallocates.load(Ordering::Relaxed),
            deallocated_bytes: self.deallocated_bytes.load(Ordering::Relaxed),
            mismatches: self.mismatches.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

impl Totals {
    /// Those of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads.wrapping_add(other.reads),
            writes: self.writes.wrapping_add(other.writes),
            others: self.others.wrapping_add(other.others),
            read_bytes: self.read_bytes.wrapping_add(other.read_bytes),
            written_bytes: self.written_bytes.wrapping_add(other.written_bytes),
            deallocates: self.deallocates.wrapping_add(other.deallocates),
            deallocated_bytes: self.deallocated_bytes.wrapping_add(other.deallocated_bytes),
            mismatches: self.mismatches.wrapping_add(other.mismatches),
            failures: self.failures.wrapping_add(other.failures),
        }
    }
}
