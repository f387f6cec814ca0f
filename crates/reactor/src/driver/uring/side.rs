//! A ring beside the main one, for what that cannot have: completions that are looked for at the
//! device, and commands of devices, whose entries are larger.

use crate::limits::SUBMISSION_ENTRIES;
use io_uring::{IoUring, cqueue, squeue};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::{fmt, io};

/// Flag of `io_uring_enter`: look for completions.
const ENTER_GETEVENTS: u32 = 1;

pub(super) struct SideRing<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    ring: IoUring<S, C>,
    /// What did not fit into the submission queue.
    backlog: VecDeque<S>,
    in_flight: usize,
}

/// A ring whose completions are looked for at the device (IORING_SETUP_IOPOLL).
///
/// Its reads and writes raise no interrupt: they end when this thread asks the device. Only files
/// that were opened with O_DIRECT on a device with polled queues can be used, and nothing but reads
/// and writes.
pub(super) type PolledRing = SideRing<squeue::Entry, cqueue::Entry>;

/// A ring for commands of NVMe devices, with entries of 128 and 32 bytes.
pub(super) type CommandRing = SideRing<squeue::Entry128, cqueue::Entry32>;

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> fmt::Debug for SideRing<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideRing").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl PolledRing {
    pub(super) fn polled() -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_iopoll();
        Ok(Self::new(builder.build(SUBMISSION_ENTRIES)?))
    }
}

impl CommandRing {
    pub(super) fn commands() -> io::Result<Self> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry32>::builder();
        builder.dontfork().setup_clamp();
        Ok(Self::new(builder.build(SUBMISSION_ENTRIES)?))
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> SideRing<S, C> {
    fn new(ring: IoUring<S, C>) -> Self {
        Self { ring, backlog: VecDeque::new(), in_flight: 0 }
    }

    /// The ring, which is readable while it has completions.
    pub(super) fn descriptor(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// How many of its requests have not been taken by [`next`](Self::next).
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether there is something to hand over or to take.
    pub(super) fn has_work(&mut self) -> bool {
        let submission = self.ring.submission();
        let has_pending = !submission.is_empty() || submission.cq_overflow();
        drop(submission);
        has_pending || !self.backlog.is_empty() || !self.ring.completion().is_empty()
    }

    /// Adds a request, which [`look`](Self::look) hands over. The memory that it points to has to
    /// stay until its completion was taken.
    pub(super) fn push(&mut self, entry: S) {
        self.in_flight += 1;
        self.backlog.push_back(entry);
        self.fill();
    }

    /// Moves what waits into the submission queue, as far as there is room.
    fn fill(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: the caller of `push` keeps what the entry points to.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Hands over what is pending, and looks for completions once. An error is one of this call: a
    /// full completion queue or an interruption, after which it is called again.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.fill();
        let pending = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // SAFETY: the entries are valid (`push`), and no further argument is given.
        let entered =
            unsafe { self.ring.submitter().enter::<()>(pending, 0, ENTER_GETEVENTS, None) };
        entered.map(|_| ())
    }

    /// A completion: its data and its result.
    pub(super) fn next(&mut self) -> Option<(u64, i32)> {
        let entry: cqueue::Entry = self.ring.completion().next()?.into();
        self.in_flight -= 1;
        Some((entry.user_data(), entry.result()))
    }
}
