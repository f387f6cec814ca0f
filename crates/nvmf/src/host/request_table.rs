//! The requests of one I/O queue: the state of each, and that each ends exactly once.
//!
//! A *request* is what the caller asked for. It becomes one or more *parts*, each one command on
//! the wire: several where it is larger than the controller takes in one command (MDTS and its
//! relatives), two for a fused compare-and-write. Parts occupy the *slots* of a connection; when
//! the connection is lost, the slots are freed and the parts wait again, or fail.
//!
//! ```text
//!            begin            next/submitted             completed
//!   (caller) ─────▶ waiting ────────────────▶ in flight ───────────▶ finished ─▶ (caller)
//!                      ▲   put_back, lost (replayed)  │                  ▲
//!                      ├──────────────────────────────┤  lost (others)   │
//!                      │                              ├──────────────────┤
//!                      └── tick ─── delayed ◀─────────┘ status: retry    │
//!                            fail_waiting, abandon ──────────────────────┘
//! ```
//!
//! # What is replayed
//!
//! A command that was in flight when its connection was lost may or may not have been executed. It
//! is replayed if it is idempotent ([`Kind::is_replayed`]):
//!
//! * **Read** and **Verify** change nothing.
//! * **Write**, **Write Zeroes**, **Write Uncorrectable** and **Deallocate** have the same result
//!   the second time. The caller has not seen a completion, so it has not yet written these blocks
//!   again; the target ends the commands of the old association before it answers a new Connect, so
//!   the first execution cannot follow the second.
//! * So has **Copy**, whose source and destination do not overlap.
//! * **Flush** covers the commands that *completed* before it; the second covers at least as many.
//!   (It cannot restore data that a target with a volatile cache lost in a crash before the first
//!   flush; the Linux host replays it all the same, and so does this one.)
//! * **Compare** and fused **Compare-and-Write** are not: their result depends on whether they (or
//!   the write of the pair) were already executed. Nor are **reservation** commands, which fail the
//!   second time. Their caller gets [`RequestError::PathLost`].
//!
//! # Several paths
//!
//! A table of one of several paths ([`RequestTable::of_path`]) replays nothing itself: what was in
//! flight when the connection was lost fails with [`RequestError::PathLost`], what had no command
//! on it with [`RequestError::NotSent`], and a path-related status fails its request at once. The
//! caller takes them to another path ([`RequestTable::range`]), but not before the old commands
//! cannot be executed any more.
//!
//! Nothing here allocates once the tables have grown to the number of requests that the caller
//! keeps in flight.

use std::collections::VecDeque;

use weft_nvme::Status;
use weft_nvme::status::StatusCode;

use super::limits;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management, Deallocate. Its "blocks" are the ranges, counted from 0.
    Deallocate,
    /// Compare.
    Compare,
    /// Compare and Write, fused.
    CompareAndWrite,
    /// Verify.
    Verify,
    /// Write Uncorrectable.
    WriteUncorrectable,
    /// Copy, of one command. Its blocks are the caller's to count: it has none here.
    Copy,
    /// Reservation Register, Acquire, Release or Report.
    Reservation,
}

impl Kind {
    /// Whether a command that may have been executed is sent again; see the module.
    #[must_use]
    pub const fn is_replayed(self) -> bool {
        !matches!(self, Self::Compare | Self::CompareAndWrite | Self::Reservation)
    }

    /// Whether a request may become several commands.
    #[must_use]
    pub const fn is_split(self) -> bool {
        !matches!(self, Self::Flush | Self::CompareAndWrite | Self::Copy | Self::Reservation)
    }
}

/// The most blocks that one command of each kind may name; zero stands for no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockLimits {
    /// Read, Write and Compare (MDTS).
    pub transfer: u32,
    /// Write Zeroes (WZSL).
    pub write_zeroes: u32,
    /// Verify (VSL).
    pub verify: u32,
    /// Write Uncorrectable (WUSL).
    pub write_uncorrectable: u32,
    /// Dataset Management: ranges, not blocks (DMRL).
    pub deallocate_ranges: u32,
}

impl BlockLimits {
    const fn of(&self, kind: Kind) -> u32 {
        let own = match kind {
            Kind::Read | Kind::Write | Kind::Compare | Kind::CompareAndWrite => self.transfer,
            Kind::WriteZeroes => self.write_zeroes,
            Kind::Verify => self.verify,
            Kind::WriteUncorrectable => self.write_uncorrectable,
            Kind::Deallocate => self.deallocate_ranges,
            Kind::Flush | Kind::Copy | Kind::Reservation => 0,
        };
        if own == 0 || own > limits::BLOCKS_PER_COMMAND_MAX {
            limits::BLOCKS_PER_COMMAND_MAX
        } else {
            own
        }
    }
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// The controller answered with this status.
    Status(Status),
    /// The connection was lost; the command may have been executed.
    PathLost,
    /// The connection was lost when none of its commands was on it.
    NotSent,
    /// What came back does not fit the command (wrong length, broken digest after all retries).
    Broken,
    /// The namespace or the controller is gone for good.
    Gone,
    /// This side has no memory that the transport can use.
    NoMemory,
    /// The request is larger than can be done in one command, and cannot be split.
    TooLarge,
}

/// A request. The number is reused once the request was taken from
/// [`RequestTable::poll_finished`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u32);

/// A part of a request; its number is reused when the part ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId(pub u32);

/// Which command of a fused pair a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FusedPart {
    /// None: the command is not fused.
    No,
    /// The Compare of a fused pair.
    First,
    /// The Write of a fused pair.
    Second,
}

/// A part that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPart {
    /// The part, for [`RequestTable::submitted`] and [`RequestTable::put_back`].
    pub id: PartId,
    /// Its request.
    pub request: RequestId,
    /// What is asked for.
    pub kind: Kind,
    /// Whether it belongs to a fused pair.
    pub fused: FusedPart,
    /// First block.
    pub slba: u64,
    /// Number of blocks.
    pub nlb: u32,
    /// Blocks of the request that lie before this part.
    pub skipped: u32,
    /// Whether the part is all of its request.
    pub whole: bool,
}

/// What is to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issue {
    /// One command.
    Single(RequestPart),
    /// Two commands that must follow one another on the queue.
    Fused(RequestPart, RequestPart),
}

/// How a command ended, as the transport reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandResult {
    /// It was completed with this status.
    Status(Status),
    /// Its data had a wrong data digest; the controller executed it.
    Corrupt,
    /// The completion says success but less data came than was asked for.
    Short,
}

/// A completion for a slot in which no command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSlot(pub u16);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Free,
    Active,
    Finished(Option<RequestError>),
}

#[derive(Debug, Clone)]
struct RequestEntry {
    state: RequestState,
    kind: Kind,
    slba: u64,
    nlb: u32,
    part_blocks_max: u32,
    cut: u32,
    /// Whether all parts have been cut; a request without blocks has one part all the same.
    all_cut: bool,
    parts: u32,
    error: Option<RequestError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartState {
    Free,
    /// In the ready or the delayed queue.
    Waiting,
    /// Returned by [`RequestTable::next`], not yet submitted.
    Issued,
    InFlight(u16),
}

#[derive(Debug, Clone)]
struct PartEntry {
    state: PartState,
    request: u32,
    fused: FusedPart,
    skipped: u32,
    nlb: u32,
    sequence: u64,
    epoch: u32,
    retries: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Request(u32),
    Part(u32),
}

const NO_PART: u32 = u32::MAX;

/// The table; see the module.
#[derive(Debug)]
pub struct RequestTable {
    requests: Vec<RequestEntry>,
    free_requests: Vec<u32>,
    parts: Vec<PartEntry>,
    free_parts: Vec<u32>,
    slots: Vec<u32>,
    ready: VecDeque<Ready>,
    delayed: VecDeque<u32>,
    finished: VecDeque<u32>,
    in_flight: usize,
    active: usize,
    sequence: u64,
    scratch: Vec<u32>,
    /// Whether it is the table of one of several paths.
    of_path: bool,
}

impl RequestTable {
    /// A table with room for `capacity` requests; beyond that it grows.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            requests: Vec::with_capacity(capacity),
            free_requests: Vec::with_capacity(capacity),
            parts: Vec::with_capacity(capacity),
            free_parts: Vec::with_capacity(capacity),
            slots: Vec::with_capacity(capacity),
            ready: VecDeque::with_capacity(capacity),
            delayed: VecDeque::new(),
            finished: VecDeque::with_capacity(capacity),
            in_flight: 0,
            active: 0,
            sequence: 0,
            scratch: Vec::with_capacity(capacity),
            of_path: false,
        }
    }

    /// The table of one of several paths.
    #[must_use]
    pub fn of_path(capacity: usize) -> Self {
        Self { of_path: true, ..Self::new(capacity) }
    }

    /// What a request asks for: its kind, first block and number of blocks. Still known when it was
    /// taken from [`RequestTable::poll_finished`], until the next one begins.
    #[must_use]
    pub fn range(&self, request: RequestId) -> (Kind, u64, u32) {
        let entry = &self.requests[request.0 as usize];
        (entry.kind, entry.slba, entry.nlb)
    }

    /// Adds a request; it waits until [`RequestTable::next`] returns its parts.
    pub fn begin(&mut self, kind: Kind, slba: u64, nlb: u32, limits: &BlockLimits) -> RequestId {
        let part_blocks_max = limits.of(kind);
        let entry = RequestEntry {
            state: RequestState::Active,
            kind,
            slba,
            nlb,
            part_blocks_max,
            cut: 0,
            all_cut: false,
            parts: 0,
            error: None,
        };
        let index = match self.free_requests.pop() {
            Some(index) => {
                self.requests[index as usize] = entry;
                index
            }
            None => {
                self.requests.push(entry);
                index_of(self.requests.len() - 1)
            }
        };
        self.active += 1;
        if !kind.is_split() && nlb > part_blocks_max {
            self.set_error(index, RequestError::TooLarge);
            self.settle(index);
        } else {
            self.ready.push_back(Ready::Request(index));
        }
        RequestId(index)
    }

    /// What is to be sent next on a connection with this many free slots. The caller answers
    /// with [`RequestTable::submitted`] or [`RequestTable::put_back`] for each part.
    pub fn next(&mut self, free_slots: usize) -> Option<Issue> {
        if free_slots == 0 {
            return None;
        }
        loop {
            match *self.ready.front()? {
                Ready::Part(index) => {
                    self.ready.pop_front();
                    let request = self.parts[index as usize].request;
                    if self.requests[request as usize].error.is_some() {
                        // Another part failed: this one is not sent any more.
                        self.end_part(index);
                        self.settle(request);
                        continue;
                    }
                    self.parts[index as usize].state = PartState::Issued;
                    return Some(Issue::Single(self.part(index)));
                }
                Ready::Request(index) => {
                    if self.requests[index as usize].error.is_some() {
                        self.ready.pop_front();
                        self.requests[index as usize].all_cut = true;
                        self.settle(index);
                        continue;
                    }
                    if self.requests[index as usize].kind == Kind::CompareAndWrite {
                        return self.next_fused(index, free_slots);
                    }
                    return Some(Issue::Single(self.cut(index)));
                }
            }
        }
    }

    /// The part was sent in this slot of the connection.
    pub fn submitted(&mut self, part: PartId, slot: u16, epoch: u32) {
        let slot_index = usize::from(slot);
        if self.slots.len() <= slot_index {
            self.slots.resize(slot_index + 1, NO_PART);
        }
        debug_assert_eq!(self.slots[slot_index], NO_PART, "slot {slot} is taken");
        self.slots[slot_index] = part.0;
        let entry = &mut self.parts[part.0 as usize];
        debug_assert_eq!(entry.state, PartState::Issued);
        entry.state = PartState::InFlight(slot);
        entry.sequence = self.sequence;
        entry.epoch = epoch;
        self.sequence += 1;
        self.in_flight += 1;
    }

    /// The part could not be sent (no buffer); it is the next to be returned. Of a fused pair the
    /// second is put back before the first.
    pub fn put_back(&mut self, part: PartId) {
        let entry = &mut self.parts[part.0 as usize];
        debug_assert_eq!(entry.state, PartState::Issued);
        if entry.fused == FusedPart::No {
            entry.state = PartState::Waiting;
            self.ready.push_front(Ready::Part(part.0));
            return;
        }
        // A fused pair is cut anew.
        let request = entry.request;
        self.end_part(part.0);
        if self.requests[request as usize].parts == 0 {
            self.requests[request as usize].all_cut = false;
            self.ready.push_front(Ready::Request(request));
        }
    }

    /// The command in this slot ended. Its request may now be in [`RequestTable::poll_finished`].
    pub fn completed(
        &mut self,
        slot: u16,
        ending: CommandResult,
    ) -> Result<RequestPart, UnknownSlot> {
        let place = self.slots.get_mut(usize::from(slot)).ok_or(UnknownSlot(slot))?;
        let index = core::mem::replace(place, NO_PART);
        if index == NO_PART {
            return Err(UnknownSlot(slot));
        }
        self.in_flight -= 1;
        let part = self.part(index);
        let request = &self.requests[part.request.0 as usize];
        let error = match ending {
            CommandResult::Status(status) if status.is_success() => None,
            CommandResult::Status(status) => Some(RequestError::Status(status)),
            CommandResult::Corrupt | CommandResult::Short => Some(RequestError::Broken),
        };
        let entry = &mut self.parts[index as usize];
        let again = is_transient(ending)
            && !(self.of_path && is_path_related(ending))
            && part.kind.is_replayed()
            && request.error.is_none()
            && entry.retries < limits::RETRIES_MAX;
        if again {
            entry.retries += 1;
            entry.state = PartState::Waiting;
            self.delayed.push_back(index);
            return Ok(part);
        }
        if let Some(error) = error {
            self.set_error(part.request.0, error);
        }
        self.end_part(index);
        self.settle(part.request.0);
        Ok(part)
    }

    /// The part that is in flight in this slot.
    #[must_use]
    pub fn in_slot(&self, slot: u16) -> Option<RequestPart> {
        match self.slots.get(usize::from(slot)) {
            None | Some(&NO_PART) => None,
            Some(&index) => Some(self.part(index)),
        }
    }

    /// The number of the command in this slot: commands are counted as they are sent.
    #[must_use]
    pub fn sequence(&self, slot: u16) -> Option<u64> {
        let index = *self.slots.get(usize::from(slot)).filter(|index| **index != NO_PART)?;
        self.parts.get(index as usize).map(|part| part.sequence)
    }

    /// The number that the next command gets.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// The connection was lost: its slots are free. Parts that may be replayed wait again, in the
    /// order in which they were sent and before all newer ones; the others fail. Of one of several
    /// paths all fail, those that wait, too.
    pub fn lost(&mut self) {
        self.release_delayed();
        let mut lost = core::mem::take(&mut self.scratch);
        lost.clear();
        lost.extend(self.slots.iter().copied().filter(|index| *index != NO_PART));
        self.slots.fill(NO_PART);
        self.in_flight = 0;
        lost.sort_unstable_by_key(|index| self.parts[*index as usize].sequence);
        for index in lost.iter().rev().copied() {
            let request = self.parts[index as usize].request;
            let entry = &self.requests[request as usize];
            if entry.error.is_none() && entry.kind.is_replayed() && !self.of_path {
                self.parts[index as usize].state = PartState::Waiting;
                self.ready.push_front(Ready::Part(index));
            } else {
                self.set_error(request, RequestError::PathLost);
                self.end_part(index);
                self.settle(request);
            }
        }
        self.scratch = lost;
        if self.of_path {
            self.fail_waiting(RequestError::NotSent);
        }
    }

    /// The requests for which `is_meant` holds fail with `error`. Those that have parts in flight
    /// end when these do.
    pub fn fail_requests(
        &mut self,
        error: RequestError,
        mut is_meant: impl FnMut(RequestId) -> bool,
    ) {
        self.release_delayed();
        for index in 0..index_of(self.requests.len()) {
            let active = self.requests[index as usize].state == RequestState::Active;
            if active && is_meant(RequestId(index)) {
                self.set_error(index, error);
            }
        }
        let mut ready = core::mem::take(&mut self.ready);
        ready.retain(|ready| match *ready {
            Ready::Part(part) => {
                let request = self.parts[part as usize].request;
                let failed = self.requests[request as usize].error.is_some();
                if failed {
                    self.end_part(part);
                    self.settle(request);
                }
                !failed
            }
            Ready::Request(request) => {
                let failed = self.requests[request as usize].error.is_some();
                if failed {
                    self.requests[request as usize].all_cut = true;
                    self.settle(request);
                }
                !failed
            }
        });
        self.ready = ready;
    }

    /// Everything that waits fails with `error`. A request that has parts in flight ends when
    /// they do.
    pub fn fail_waiting(&mut self, error: RequestError) {
        self.release_delayed();
        while let Some(ready) = self.ready.pop_front() {
            let request = match ready {
                Ready::Request(index) => {
                    self.requests[index as usize].all_cut = true;
                    index
                }
                Ready::Part(index) => {
                    let request = self.parts[index as usize].request;
                    self.end_part(index);
                    request
                }
            };
            self.set_error(request, error);
            self.settle(request);
        }
    }

    /// Ends all requests: those in flight and those that were never sent each with its error.
    pub fn abandon(&mut self, in_flight: RequestError, waiting: RequestError) {
        for slot in 0..self.slots.len() {
            let index = core::mem::replace(&mut self.slots[slot], NO_PART);
            if index != NO_PART {
                let request = self.parts[index as usize].request;
                self.set_error(request, in_flight);
                self.end_part(index);
                self.settle(request);
            }
        }
        self.in_flight = 0;
        self.fail_waiting(waiting);
    }

    /// Makes delayed retries ready. Called by a timer.
    pub fn tick(&mut self) {
        self.release_delayed();
    }

    /// Whether retries wait for [`RequestTable::tick`].
    #[must_use]
    pub fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// The next request that ended; each is reported once, and its number is free again.
    pub fn poll_finished(&mut self) -> Option<(RequestId, Result<(), RequestError>)> {
        let index = self.finished.pop_front()?;
        let entry = &mut self.requests[index as usize];
        let RequestState::Finished(error) = entry.state else {
            debug_assert!(false, "request {index} is reported as finished but is not");
            return None;
        };
        entry.state = RequestState::Free;
        self.free_requests.push(index);
        Some((RequestId(index), error.map_or(Ok(()), Err)))
    }

    /// Requests that were begun and have not been reported as finished.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.active + self.finished.len()
    }

    /// Commands on the wire.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether something waits to be sent.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The epoch in which the oldest command on the wire was submitted, by distance from `now`.
    #[must_use]
    pub fn oldest_age(&self, now: u32) -> Option<u32> {
        let in_flight = self.slots.iter().filter(|index| **index != NO_PART);
        in_flight.map(|index| now.wrapping_sub(self.parts[*index as usize].epoch)).max()
    }

    fn next_fused(&mut self, request: u32, free_slots: usize) -> Option<Issue> {
        if free_slots < 2 {
            return None;
        }
        self.ready.pop_front();
        let nlb = self.requests[request as usize].nlb;
        let first = self.new_part(request, FusedPart::First, 0, nlb);
        let second = self.new_part(request, FusedPart::Second, 0, nlb);
        self.requests[request as usize].all_cut = true;
        Some(Issue::Fused(self.part(first), self.part(second)))
    }

    fn cut(&mut self, request: u32) -> RequestPart {
        let entry = &mut self.requests[request as usize];
        let skipped = entry.cut;
        let rest = entry.nlb - skipped;
        let nlb = rest.min(entry.part_blocks_max);
        entry.cut += nlb;
        if entry.cut == entry.nlb {
            entry.all_cut = true;
            self.ready.pop_front();
        }
        let index = self.new_part(request, FusedPart::No, skipped, nlb);
        self.part(index)
    }

    fn new_part(&mut self, request: u32, fused: FusedPart, skipped: u32, nlb: u32) -> u32 {
        self.requests[request as usize].parts += 1;
        let entry = PartEntry {
            state: PartState::Issued,
            request,
            fused,
            skipped,
            nlb,
            sequence: 0,
            epoch: 0,
            retries: 0,
        };
        match self.free_parts.pop() {
            Some(index) => {
                self.parts[index as usize] = entry;
                index
            }
            None => {
                self.parts.push(entry);
                index_of(self.parts.len() - 1)
            }
        }
    }

    fn part(&self, index: u32) -> RequestPart {
        let entry = &self.parts[index as usize];
        let request = &self.requests[entry.request as usize];
        RequestPart {
            id: PartId(index),
            request: RequestId(entry.request),
            kind: request.kind,
            fused: entry.fused,
            slba: request.slba.wrapping_add(u64::from(entry.skipped)),
            nlb: entry.nlb,
            skipped: entry.skipped,
            whole: entry.nlb == request.nlb,
        }
    }

    fn end_part(&mut self, index: u32) {
        let entry = &mut self.parts[index as usize];
        debug_assert_ne!(entry.state, PartState::Free);
        entry.state = PartState::Free;
        self.requests[entry.request as usize].parts -= 1;
        self.free_parts.push(index);
    }

    /// Records why the request fails: the first error, except that the status of the compare
    /// replaces that of the fused write which was aborted because of it.
    fn set_error(&mut self, request: u32, error: RequestError) {
        let known = &mut self.requests[request as usize].error;
        let says_little = match known {
            None => true,
            Some(RequestError::Status(status)) => status.code() == StatusCode::ABORTED_FAILED_FUSED,
            Some(_) => false,
        };
        if says_little {
            *known = Some(error);
        }
    }

    /// Reports the request as finished once it has no parts left.
    fn settle(&mut self, request: u32) {
        let entry = &mut self.requests[request as usize];
        let nothing_left = entry.parts == 0 && (entry.all_cut || entry.error.is_some());
        if entry.state != RequestState::Active || !nothing_left {
            return;
        }
        if !entry.all_cut {
            // Uncut and failed: its place in the ready queue goes with it.
            entry.all_cut = true;
            self.ready.retain(|ready| *ready != Ready::Request(request));
        }
        self.requests[request as usize].state =
            RequestState::Finished(self.requests[request as usize].error);
        self.active -= 1;
        self.finished.push_back(request);
    }

    fn release_delayed(&mut self) {
        while let Some(index) = self.delayed.pop_back() {
            self.ready.push_front(Ready::Part(index));
        }
    }
}

fn index_of(length: usize) -> u32 {
    // Each entry is longer than a byte, so 2^32 of them do not fit in memory that holds pools.
    u32::try_from(length).unwrap_or(NO_PART - 1)
}

/// Whether a retry of the same command may succeed.
fn is_path_related(ending: CommandResult) -> bool {
    matches!(ending, CommandResult::Status(status) if status.is_path_related())
}

fn is_transient(ending: CommandResult) -> bool {
    let status = match ending {
        CommandResult::Status(status) => status,
        CommandResult::Corrupt => return true,
        CommandResult::Short => return false,
    };
    let transient = matches!(
        status.code(),
        StatusCode::TRANSIENT_TRANSPORT_ERROR
            | StatusCode::COMMAND_INTERRUPTED
            | StatusCode::ABORTED_QUEUE_DELETED
            | StatusCode::NAMESPACE_NOT_READY
            | StatusCode::INTERNAL_PATH_ERROR
            | StatusCode::ANA_TRANSITION
    );
    transient && !status.do_not_retry()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BlockLimits = BlockLimits {
        transfer: 8,
        write_zeroes: 100,
        verify: 0,
        write_uncorrectable: 0,
        deallocate_ranges: 256,
    };
    const SUCCESS: CommandResult = CommandResult::Status(Status::SUCCESS);

    fn single(table: &mut RequestTable, slot: u16) -> RequestPart {
        match table.next(1) {
            Some(Issue::Single(part)) => {
                table.submitted(part.id, slot, 0);
                part
            }
            other => panic!("{other:?}"),
        }
    }

    fn fused(table: &mut RequestTable) -> (RequestPart, RequestPart) {
        assert_eq!(table.next(1), None, "a pair needs two slots");
        match table.next(2) {
            Some(Issue::Fused(first, second)) => {
                table.submitted(first.id, 0, 0);
                table.submitted(second.id, 1, 0);
                (first, second)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_request_becomes_parts_and_ends_once() {
        let mut table = RequestTable::new(4);
        let id = table.begin(Kind::Write, 100, 20, &LIMITS);
        let parts: Vec<RequestPart> = (0..3).map(|slot| single(&mut table, slot)).collect();
        let ranges: Vec<_> = parts.iter().map(|p| (p.slba, p.nlb, p.skipped)).collect();
        assert_eq!(ranges, [(100, 8, 0), (108, 8, 8), (116, 4, 16)]);
        assert!(parts.iter().all(|part| !part.whole));
        assert_eq!(table.next(9), None);
        for slot in [1, 0] {
            table.completed(slot, SUCCESS).unwrap();
            assert_eq!(table.poll_finished(), None);
        }
        table.completed(2, SUCCESS).unwrap();
        assert_eq!(table.poll_finished(), Some((id, Ok(()))));
        assert_eq!(table.poll_finished(), None);
        assert_eq!(table.completed(2, SUCCESS), Err(UnknownSlot(2)));
        assert_eq!(table.completed(900, SUCCESS), Err(UnknownSlot(900)));
    }

    #[test]
    fn a_command_names_at_most_65536_blocks() {
        let mut table = RequestTable::new(4);
        table.begin(Kind::Verify, 0, 65537, &LIMITS);
        assert_eq!(single(&mut table, 0).nlb, 65536);
        assert_eq!(single(&mut table, 1).nlb, 1);
    }

    #[test]
    fn the_first_failure_stops_the_rest() {
        let mut table = RequestTable::new(4);
        let id = table.begin(Kind::Read, 0, 32, &LIMITS);
        single(&mut table, 0);
        single(&mut table, 1);
        let failure = Status::LBA_OUT_OF_RANGE.with_dnr();
        table.completed(0, CommandResult::Status(failure)).unwrap();
        assert_eq!(table.poll_finished(), None, "the other part is on the wire");
        assert_eq!(table.next(5), None);
        table.completed(1, CommandResult::Status(Status::INTERNAL_ERROR)).unwrap();
        assert_eq!(table.poll_finished(), Some((id, Err(RequestError::Status(failure)))));
        assert!(!table.has_waiting());
    }

    #[test]
    fn a_loss_replays_in_order_and_before_younger_ones() {
        let mut table = RequestTable::new(8);
        for slba in 0..3 {
            table.begin(Kind::Write, slba, 1, &LIMITS);
        }
        for slot in [2, 0] {
            single(&mut table, slot);
        }
        table.lost();
        assert_eq!(table.in_flight(), 0);
        let order: Vec<u64> = (0..3).map(|slot| single(&mut table, slot).slba).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn compare_and_the_fused_pair_are_not_replayed() {
        let mut table = RequestTable::new(8);
        let compare = table.begin(Kind::Compare, 0, 1, &LIMITS);
        single(&mut table, 5);
        let pair = table.begin(Kind::CompareAndWrite, 0, 1, &LIMITS);
        fused(&mut table);
        let read = table.begin(Kind::Read, 0, 1, &LIMITS);
        table.lost();
        assert_eq!(table.poll_finished(), Some((pair, Err(RequestError::PathLost))));
        assert_eq!(table.poll_finished(), Some((compare, Err(RequestError::PathLost))));
        assert_eq!(table.poll_finished(), None);
        assert_eq!(single(&mut table, 0).request, read);
    }

    #[test]
    fn a_reservation_is_one_command_that_is_not_replayed() {
        let mut table = RequestTable::new(8);
        let reservation = table.begin(Kind::Reservation, 0, 0, &LIMITS);
        assert!(single(&mut table, 5).whole);
        table.lost();
        assert_eq!(table.poll_finished(), Some((reservation, Err(RequestError::PathLost))));
        assert_eq!(table.next(8), None);
    }

    #[test]
    fn a_fused_pair_that_loses_the_answer_with_the_reason_has_lost_its_path() {
        let mut table = RequestTable::new(8);
        let pair = table.begin(Kind::CompareAndWrite, 0, 1, &LIMITS);
        fused(&mut table);
        table.completed(0, CommandResult::Status(Status::ABORTED_FAILED_FUSED)).unwrap();
        table.lost();
        assert_eq!(table.poll_finished(), Some((pair, Err(RequestError::PathLost))));
        let pair = table.begin(Kind::CompareAndWrite, 0, 1, &LIMITS);
        fused(&mut table);
        table.completed(0, CommandResult::Status(Status::COMPARE_FAILURE)).unwrap();
        table.lost();
        let told = Err(RequestError::Status(Status::COMPARE_FAILURE));
        assert_eq!(table.poll_finished(), Some((pair, told)));
    }

    #[test]
    fn a_fused_pair_reports_the_compare() {
        for order in [[0, 1], [1, 0]] {
            let mut table = RequestTable::new(8);
            let id = table.begin(Kind::CompareAndWrite, 3, 2, &LIMITS);
            let (first, second) = fused(&mut table);
            assert_eq!((first.fused, second.fused), (FusedPart::First, FusedPart::Second));
            for slot in order {
                let status =
                    [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED][usize::from(slot)];
                table.completed(slot, CommandResult::Status(status)).unwrap();
            }
            let expected = Err(RequestError::Status(Status::COMPARE_FAILURE));
            assert_eq!(table.poll_finished(), Some((id, expected)));
        }
        let mut table = RequestTable::new(8);
        let id = table.begin(Kind::CompareAndWrite, 0, 9, &LIMITS);
        assert_eq!(table.poll_finished(), Some((id, Err(RequestError::TooLarge))));
        assert_eq!(table.next(9), None);
    }

    #[test]
    fn a_transient_status_is_retried_a_few_times() {
        let mut table = RequestTable::new(8);
        let id = table.begin(Kind::Write, 0, 1, &LIMITS);
        let transient = CommandResult::Status(Status::TRANSIENT_TRANSPORT_ERROR);
        for _ in 0..limits::RETRIES_MAX {
            single(&mut table, 0);
            table.completed(0, transient).unwrap();
            assert_eq!((table.next(1), table.poll_finished()), (None, None));
            assert!(table.has_delayed());
            table.tick();
        }
        single(&mut table, 0);
        table.completed(0, transient).unwrap();
        let expected = Err(RequestError::Status(Status::TRANSIENT_TRANSPORT_ERROR));
        assert_eq!(table.poll_finished(), Some((id, expected)));
        let id = table.begin(Kind::Write, 0, 1, &LIMITS);
        single(&mut table, 0);
        let final_status = Status::TRANSIENT_TRANSPORT_ERROR.with_dnr();
        table.completed(0, CommandResult::Status(final_status)).unwrap();
        let expected = Err(RequestError::Status(final_status));
        assert_eq!(table.poll_finished(), Some((id, expected)));
    }

    #[test]
    fn identifiers_are_reused_and_ages_are_reported() {
        let mut table = RequestTable::new(1);
        for round in 0..100u32 {
            let id = table.begin(Kind::Read, 0, 1, &LIMITS);
            assert_eq!(id, RequestId(0));
            let Some(Issue::Single(part)) = table.next(1) else { panic!() };
            assert!(part.whole);
            table.submitted(part.id, 0, round);
            assert_eq!(table.oldest_age(round.wrapping_add(3)), Some(3));
            table.completed(0, SUCCESS).unwrap();
            assert_eq!(table.unfinished(), 1);
            assert!(table.poll_finished().is_some());
        }
        assert_eq!((table.oldest_age(7), table.unfinished()), (None, 0));
    }

    #[test]
    fn of_one_of_several_paths_nothing_is_replayed() {
        let mut requests = RequestTable::of_path(4);
        let begun = [Kind::Write, Kind::CompareAndWrite, Kind::Read, Kind::Flush]
            .map(|kind| requests.begin(kind, 7, u32::from(kind != Kind::Flush), &LIMITS));
        let refused = Status::INTERNAL_PATH_ERROR;
        let Some(Issue::Single(write)) = requests.next(3) else { panic!("a write") };
        requests.submitted(write.id, 0, 0);
        let Some(Issue::Fused(first, second)) = requests.next(2) else { panic!("a pair") };
        requests.submitted(first.id, 1, 0);
        requests.submitted(second.id, 2, 0);
        let Some(Issue::Single(read)) = requests.next(1) else { panic!("a read") };
        requests.submitted(read.id, 3, 0);
        requests.completed(3, CommandResult::Status(refused)).expect("it is there");
        assert!(!requests.has_delayed(), "another path is for that");
        requests.lost();
        let mut ended: Vec<_> = std::iter::from_fn(|| requests.poll_finished()).collect();
        ended.sort_unstable_by_key(|(id, _)| *id);
        let errors = [
            RequestError::PathLost,
            RequestError::PathLost,
            RequestError::Status(refused),
            RequestError::NotSent,
        ];
        let expected: Vec<_> = begun.into_iter().zip(errors.map(Err)).collect();
        assert_eq!(ended, expected);
        assert_eq!(requests.range(begun[1]), (Kind::CompareAndWrite, 7, 1));
    }
}
