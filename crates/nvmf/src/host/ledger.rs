//! The books of one I/O queue: which request is where, and that each ends exactly once.
//!
//! A *request* is what the caller asked for. It becomes one or more *parts*, each one command on
//! the wire: several where it is larger than the controller takes in one command (MDTS and its
//! relatives), two for a fused compare-and-write. Parts occupy the *slots* of a connection; when
//! the connection dies, the slots are void and the parts go back to wait, or fail.
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
//! A command that was in flight when its connection died may or may not have been executed.
//! Replaying it is right where doing it twice is doing it once ([`Kind::is_replayed`]):
//!
//! * **Read** and **Verify** change nothing.
//! * **Write**, **Write Zeroes**, **Write Uncorrectable** and **Deallocate** leave the same state
//!   behind the second time. The caller has not been told of the first, so it cannot have written
//!   the same blocks again on the strength of it; the target has to end the old association's
//!   commands before it answers a new Connect, so the first cannot land after the second.
//! * **Flush** asks for what was *completed* before it; the second asks for at least as much. (It
//!   cannot bring back what a target with a volatile cache lost by crashing before the first one
//!   ran; the Linux host replays it all the same, and so does this one.)
//! * **Compare** and fused **Compare-and-Write** are not: their answer depends on whether they
//!   (or, for the pair, its own write) already happened. Their caller gets
//!   [`Fault::PathLost`] and has to look.
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
}

impl Kind {
    /// Whether a command that may have been executed is sent again; see the module.
    #[must_use]
    pub const fn is_replayed(self) -> bool {
        !matches!(self, Self::Compare | Self::CompareAndWrite)
    }

    /// Whether a request may become several commands.
    #[must_use]
    pub const fn is_split(self) -> bool {
        !matches!(self, Self::Flush | Self::CompareAndWrite)
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
            Kind::Flush => 0,
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
pub enum Fault {
    /// The controller answered with this status.
    Status(Status),
    /// The connection was lost; the command may have been executed.
    PathLost,
    /// What came back does not fit the command (wrong length, broken digest after all retries).
    Broken,
    /// The namespace or the controller is gone for good.
    Gone,
    /// This side has no memory that the transport can use.
    NoMemory,
    /// The request is larger than can be done in one command, and cannot be split.
    TooLarge,
}

/// A request in the books. The number is reused once the request was taken from
/// [`Ledger::poll_finished`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u32);

/// A part in the books; its number is reused when the part ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId(pub u32);

/// Which command of its request a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Not fused.
    Whole,
    /// The Compare of a fused pair.
    First,
    /// The Write of a fused pair.
    Second,
}

/// A part that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The part, for [`Ledger::submitted`] and [`Ledger::put_back`].
    pub id: PartId,
    /// Whose part it is.
    pub request: RequestId,
    /// What is asked for.
    pub kind: Kind,
    /// Whether it is half of a fused pair.
    pub half: Half,
    /// First block.
    pub block: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Blocks of the request that lie before this part.
    pub skipped: u32,
    /// Whether the part is all of its request.
    pub whole: bool,
}

/// What is to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issue {
    /// One command.
    Single(Part),
    /// Two commands that must follow one another on the queue.
    Fused(Part, Part),
}

/// How a command ended, as the transport tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was completed with this status.
    Status(Status),
    /// Its data arrived broken (data digest); the controller executed it.
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
    Finished(Option<Fault>),
}

#[derive(Debug, Clone)]
struct RequestEntry {
    state: RequestState,
    kind: Kind,
    block: u64,
    blocks: u32,
    part_blocks_max: u32,
    cut: u32,
    /// Whether all parts have been cut; a request without blocks has one part all the same.
    all_cut: bool,
    parts: u32,
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    /// In the ready or the delayed queue.
    Waiting,
    /// Handed out by [`Ledger::next`], not yet submitted.
    Out,
    InFlight(u16),
}

#[derive(Debug, Clone)]
struct PartEntry {
    place: Place,
    request: u32,
    half: Half,
    skipped: u32,
    blocks: u32,
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

/// The books; see the module.
#[derive(Debug)]
pub struct Ledger {
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
}

impl Ledger {
    /// Books with room for `capacity` requests before anything has to grow.
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
        }
    }

    /// Enters a request; it waits until [`Ledger::next`] hands it out.
    pub fn begin(
        &mut self,
        kind: Kind,
        block: u64,
        blocks: u32,
        limits: &BlockLimits,
    ) -> RequestId {
        let part_blocks_max = limits.of(kind);
        let entry = RequestEntry {
            state: RequestState::Active,
            kind,
            block,
            blocks,
            part_blocks_max,
            cut: 0,
            all_cut: false,
            parts: 0,
            fault: None,
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
        if !kind.is_split() && blocks > part_blocks_max {
            self.fault(index, Fault::TooLarge);
            self.settle(index);
        } else {
            self.ready.push_back(Ready::Request(index));
        }
        RequestId(index)
    }

    /// Enters a request that has failed already; it only has to be told.
    pub fn begin_failed(&mut self, kind: Kind, fault: Fault) -> RequestId {
        let id = self.begin(kind, 0, 0, &BlockLimits::default());
        self.ready.pop_back();
        self.fault(id.0, fault);
        self.settle(id.0);
        id
    }

    /// What is to be sent next on a connection with this many free slots. The caller answers
    /// with [`Ledger::submitted`] or [`Ledger::put_back`] for each part.
    pub fn next(&mut self, free_slots: usize) -> Option<Issue> {
        if free_slots == 0 {
            return None;
        }
        loop {
            match *self.ready.front()? {
                Ready::Part(index) => {
                    self.ready.pop_front();
                    let request = self.parts[index as usize].request;
                    if self.requests[request as usize].fault.is_some() {
                        // Another part failed: this one need not go out any more.
                        self.end_part(index);
                        self.settle(request);
                        continue;
                    }
                    self.parts[index as usize].place = Place::Out;
                    return Some(Issue::Single(self.part(index)));
                }
                Ready::Request(index) => {
                    if self.requests[index as usize].fault.is_some() {
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

    /// The part went out in this slot of the connection.
    pub fn submitted(&mut self, part: PartId, slot: u16, epoch: u32) {
        let slot_index = usize::from(slot);
        if self.slots.len() <= slot_index {
            self.slots.resize(slot_index + 1, NO_PART);
        }
        debug_assert_eq!(self.slots[slot_index], NO_PART, "slot {slot} is taken");
        self.slots[slot_index] = part.0;
        let entry = &mut self.parts[part.0 as usize];
        debug_assert_eq!(entry.place, Place::Out);
        entry.place = Place::InFlight(slot);
        entry.sequence = self.sequence;
        entry.epoch = epoch;
        self.sequence += 1;
        self.in_flight += 1;
    }

    /// The part could not go out (no buffer); it is the first to be handed out again. Of a
    /// fused pair the second is put back before the first.
    pub fn put_back(&mut self, part: PartId) {
        let entry = &mut self.parts[part.0 as usize];
        debug_assert_eq!(entry.place, Place::Out);
        if entry.half == Half::Whole {
            entry.place = Place::Waiting;
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

    /// The command in this slot ended. Its request may now be in [`Ledger::poll_finished`].
    pub fn completed(&mut self, slot: u16, ending: Ending) -> Result<Part, UnknownSlot> {
        let place = self.slots.get_mut(usize::from(slot)).ok_or(UnknownSlot(slot))?;
        let index = core::mem::replace(place, NO_PART);
        if index == NO_PART {
            return Err(UnknownSlot(slot));
        }
        self.in_flight -= 1;
        let part = self.part(index);
        let request = &self.requests[part.request.0 as usize];
        let fault = match ending {
            Ending::Status(status) if status.is_success() => None,
            Ending::Status(status) => Some(Fault::Status(status)),
            Ending::Corrupt | Ending::Short => Some(Fault::Broken),
        };
        let entry = &mut self.parts[index as usize];
        let again = is_transient(ending)
            && part.kind.is_replayed()
            && request.fault.is_none()
            && entry.retries < limits::RETRIES_MAX;
        if again {
            entry.retries += 1;
            entry.place = Place::Waiting;
            self.delayed.push_back(index);
            return Ok(part);
        }
        if let Some(fault) = fault {
            self.fault(part.request.0, fault);
        }
        self.end_part(index);
        self.settle(part.request.0);
        Ok(part)
    }

    /// The part that is in flight in this slot.
    #[must_use]
    pub fn in_slot(&self, slot: u16) -> Option<Part> {
        match self.slots.get(usize::from(slot)) {
            None | Some(&NO_PART) => None,
            Some(&index) => Some(self.part(index)),
        }
    }

    /// The number of the command in this slot: commands are counted as they go out.
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

    /// The connection died: its slots are void. What may be replayed waits again, in the order
    /// in which it went out and before everything younger; the rest fails.
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
            if entry.fault.is_some() {
                self.end_part(index);
                self.settle(request);
            } else if entry.kind.is_replayed() {
                self.parts[index as usize].place = Place::Waiting;
                self.ready.push_front(Ready::Part(index));
            } else {
                self.fault(request, Fault::PathLost);
                self.end_part(index);
                self.settle(request);
            }
        }
        self.scratch = lost;
    }

    /// The requests for which `is_meant` holds fail with `fault`. Those that have parts in flight
    /// end when these do.
    pub fn fail_requests(&mut self, fault: Fault, mut is_meant: impl FnMut(RequestId) -> bool) {
        self.release_delayed();
        for index in 0..index_of(self.requests.len()) {
            let active = self.requests[index as usize].state == RequestState::Active;
            if active && is_meant(RequestId(index)) {
                self.fault(index, fault);
            }
        }
        let mut ready = core::mem::take(&mut self.ready);
        ready.retain(|ready| match *ready {
            Ready::Part(part) => {
                let request = self.parts[part as usize].request;
                let failed = self.requests[request as usize].fault.is_some();
                if failed {
                    self.end_part(part);
                    self.settle(request);
                }
                !failed
            }
            Ready::Request(request) => {
                let failed = self.requests[request as usize].fault.is_some();
                if failed {
                    self.requests[request as usize].all_cut = true;
                    self.settle(request);
                }
                !failed
            }
        });
        self.ready = ready;
    }

    /// Everything that waits fails with `fault`. A request that has parts in flight ends when
    /// they do.
    pub fn fail_waiting(&mut self, fault: Fault) {
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
            self.fault(request, fault);
            self.settle(request);
        }
    }

    /// Everything ends: what is in flight was cut off, what waits never went out.
    pub fn abandon(&mut self, in_flight: Fault, waiting: Fault) {
        for slot in 0..self.slots.len() {
            let index = core::mem::replace(&mut self.slots[slot], NO_PART);
            if index != NO_PART {
                let request = self.parts[index as usize].request;
                self.fault(request, in_flight);
                self.end_part(index);
                self.settle(request);
            }
        }
        self.in_flight = 0;
        self.fail_waiting(waiting);
    }

    /// Lets the retries go that waited for a moment. Called now and then by a timer.
    pub fn tick(&mut self) {
        self.release_delayed();
    }

    /// Whether retries wait for [`Ledger::tick`].
    #[must_use]
    pub fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// The next request that ended; it is told once, and its number is free again.
    pub fn poll_finished(&mut self) -> Option<(RequestId, Result<(), Fault>)> {
        let index = self.finished.pop_front()?;
        let entry = &mut self.requests[index as usize];
        let RequestState::Finished(fault) = entry.state else {
            debug_assert!(false, "request {index} is told as finished but is not");
            return None;
        };
        entry.state = RequestState::Free;
        self.free_requests.push(index);
        Some((RequestId(index), fault.map_or(Ok(()), Err)))
    }

    /// Requests that were begun and have not been told as finished.
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
        let blocks = self.requests[request as usize].blocks;
        let first = self.new_part(request, Half::First, 0, blocks);
        let second = self.new_part(request, Half::Second, 0, blocks);
        self.requests[request as usize].all_cut = true;
        Some(Issue::Fused(self.part(first), self.part(second)))
    }

    fn cut(&mut self, request: u32) -> Part {
        let entry = &mut self.requests[request as usize];
        let skipped = entry.cut;
        let rest = entry.blocks - skipped;
        let blocks = rest.min(entry.part_blocks_max);
        entry.cut += blocks;
        if entry.cut == entry.blocks {
            entry.all_cut = true;
            self.ready.pop_front();
        }
        let index = self.new_part(request, Half::Whole, skipped, blocks);
        self.part(index)
    }

    fn new_part(&mut self, request: u32, half: Half, skipped: u32, blocks: u32) -> u32 {
        self.requests[request as usize].parts += 1;
        let entry = PartEntry {
            place: Place::Out,
            request,
            half,
            skipped,
            blocks,
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

    fn part(&self, index: u32) -> Part {
        let entry = &self.parts[index as usize];
        let request = &self.requests[entry.request as usize];
        Part {
            id: PartId(index),
            request: RequestId(entry.request),
            kind: request.kind,
            half: entry.half,
            block: request.block.wrapping_add(u64::from(entry.skipped)),
            blocks: entry.blocks,
            skipped: entry.skipped,
            whole: entry.blocks == request.blocks,
        }
    }

    fn end_part(&mut self, index: u32) {
        let entry = &mut self.parts[index as usize];
        debug_assert_ne!(entry.place, Place::Free);
        entry.place = Place::Free;
        self.requests[entry.request as usize].parts -= 1;
        self.free_parts.push(index);
    }

    /// Remembers why the request fails: the first reason, except that a fused write which was
    /// aborted because of its compare says less than the compare itself.
    fn fault(&mut self, request: u32, fault: Fault) {
        let known = &mut self.requests[request as usize].fault;
        let says_little = match known {
            None => true,
            Some(Fault::Status(status)) => status.code() == StatusCode::ABORTED_FAILED_FUSED,
            Some(_) => false,
        };
        if says_little {
            *known = Some(fault);
        }
    }

    /// Tells the request as finished if nothing of it is left.
    fn settle(&mut self, request: u32) {
        let entry = &mut self.requests[request as usize];
        let nothing_left = entry.parts == 0 && (entry.all_cut || entry.fault.is_some());
        if entry.state != RequestState::Active || !nothing_left {
            return;
        }
        if !entry.all_cut {
            // Uncut and failed: its place in the ready queue goes with it.
            entry.all_cut = true;
            self.ready.retain(|ready| *ready != Ready::Request(request));
        }
        self.requests[request as usize].state =
            RequestState::Finished(self.requests[request as usize].fault);
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

/// Whether the same command may well succeed in a moment.
fn is_transient(ending: Ending) -> bool {
    let status = match ending {
        Ending::Status(status) => status,
        Ending::Corrupt => return true,
        Ending::Short => return false,
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
    const SUCCESS: Ending = Ending::Status(Status::SUCCESS);

    fn single(ledger: &mut Ledger, slot: u16) -> Part {
        match ledger.next(1) {
            Some(Issue::Single(part)) => {
                ledger.submitted(part.id, slot, 0);
                part
            }
            other => panic!("{other:?}"),
        }
    }

    fn fused(ledger: &mut Ledger) -> (Part, Part) {
        assert_eq!(ledger.next(1), None, "a pair needs two slots");
        match ledger.next(2) {
            Some(Issue::Fused(first, second)) => {
                ledger.submitted(first.id, 0, 0);
                ledger.submitted(second.id, 1, 0);
                (first, second)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_request_becomes_parts_and_ends_once() {
        let mut ledger = Ledger::new(4);
        let id = ledger.begin(Kind::Write, 100, 20, &LIMITS);
        let parts: Vec<Part> = (0..3).map(|slot| single(&mut ledger, slot)).collect();
        let ranges: Vec<_> = parts.iter().map(|p| (p.block, p.blocks, p.skipped)).collect();
        assert_eq!(ranges, [(100, 8, 0), (108, 8, 8), (116, 4, 16)]);
        assert!(parts.iter().all(|part| !part.whole));
        assert_eq!(ledger.next(9), None);
        for slot in [1, 0] {
            ledger.completed(slot, SUCCESS).unwrap();
            assert_eq!(ledger.poll_finished(), None);
        }
        ledger.completed(2, SUCCESS).unwrap();
        assert_eq!(ledger.poll_finished(), Some((id, Ok(()))));
        assert_eq!(ledger.poll_finished(), None);
        assert_eq!(ledger.completed(2, SUCCESS), Err(UnknownSlot(2)));
        assert_eq!(ledger.completed(900, SUCCESS), Err(UnknownSlot(900)));
    }

    #[test]
    fn a_command_names_at_most_65536_blocks() {
        let mut ledger = Ledger::new(4);
        ledger.begin(Kind::Verify, 0, 65537, &LIMITS);
        assert_eq!(single(&mut ledger, 0).blocks, 65536);
        assert_eq!(single(&mut ledger, 1).blocks, 1);
    }

    #[test]
    fn the_first_failure_stops_the_rest() {
        let mut ledger = Ledger::new(4);
        let id = ledger.begin(Kind::Read, 0, 32, &LIMITS);
        single(&mut ledger, 0);
        single(&mut ledger, 1);
        let failure = Status::LBA_OUT_OF_RANGE.with_dnr();
        ledger.completed(0, Ending::Status(failure)).unwrap();
        assert_eq!(ledger.poll_finished(), None, "the other part is on the wire");
        assert_eq!(ledger.next(5), None);
        ledger.completed(1, Ending::Status(Status::INTERNAL_ERROR)).unwrap();
        assert_eq!(ledger.poll_finished(), Some((id, Err(Fault::Status(failure)))));
        assert!(!ledger.has_waiting());
    }

    #[test]
    fn a_loss_replays_in_order_and_before_younger_ones() {
        let mut ledger = Ledger::new(8);
        for block in 0..3 {
            ledger.begin(Kind::Write, block, 1, &LIMITS);
        }
        for slot in [2, 0] {
            single(&mut ledger, slot);
        }
        ledger.lost();
        assert_eq!(ledger.in_flight(), 0);
        let order: Vec<u64> = (0..3).map(|slot| single(&mut ledger, slot).block).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn compare_and_the_fused_pair_are_not_replayed() {
        let mut ledger = Ledger::new(8);
        let compare = ledger.begin(Kind::Compare, 0, 1, &LIMITS);
        single(&mut ledger, 5);
        let pair = ledger.begin(Kind::CompareAndWrite, 0, 1, &LIMITS);
        fused(&mut ledger);
        let read = ledger.begin(Kind::Read, 0, 1, &LIMITS);
        ledger.lost();
        assert_eq!(ledger.poll_finished(), Some((pair, Err(Fault::PathLost))));
        assert_eq!(ledger.poll_finished(), Some((compare, Err(Fault::PathLost))));
        assert_eq!(ledger.poll_finished(), None);
        assert_eq!(single(&mut ledger, 0).request, read);
    }

    #[test]
    fn a_fused_pair_tells_the_compare() {
        for order in [[0, 1], [1, 0]] {
            let mut ledger = Ledger::new(8);
            let id = ledger.begin(Kind::CompareAndWrite, 3, 2, &LIMITS);
            let (first, second) = fused(&mut ledger);
            assert_eq!((first.half, second.half), (Half::First, Half::Second));
            for slot in order {
                let status =
                    [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED][usize::from(slot)];
                ledger.completed(slot, Ending::Status(status)).unwrap();
            }
            let expected = Err(Fault::Status(Status::COMPARE_FAILURE));
            assert_eq!(ledger.poll_finished(), Some((id, expected)));
        }
        let mut ledger = Ledger::new(8);
        let id = ledger.begin(Kind::CompareAndWrite, 0, 9, &LIMITS);
        assert_eq!(ledger.poll_finished(), Some((id, Err(Fault::TooLarge))));
        assert_eq!(ledger.next(9), None);
    }

    #[test]
    fn a_transient_status_is_retried_a_few_times() {
        let mut ledger = Ledger::new(8);
        let id = ledger.begin(Kind::Write, 0, 1, &LIMITS);
        let transient = Ending::Status(Status::TRANSIENT_TRANSPORT_ERROR);
        for _ in 0..limits::RETRIES_MAX {
            single(&mut ledger, 0);
            ledger.completed(0, transient).unwrap();
            assert_eq!((ledger.next(1), ledger.poll_finished()), (None, None));
            assert!(ledger.has_delayed());
            ledger.tick();
        }
        single(&mut ledger, 0);
        ledger.completed(0, transient).unwrap();
        let expected = Err(Fault::Status(Status::TRANSIENT_TRANSPORT_ERROR));
        assert_eq!(ledger.poll_finished(), Some((id, expected)));
        let id = ledger.begin(Kind::Write, 0, 1, &LIMITS);
        single(&mut ledger, 0);
        let final_status = Status::TRANSIENT_TRANSPORT_ERROR.with_dnr();
        ledger.completed(0, Ending::Status(final_status)).unwrap();
        let expected = Err(Fault::Status(final_status));
        assert_eq!(ledger.poll_finished(), Some((id, expected)));
    }

    #[test]
    fn numbers_are_reused_and_ages_are_told() {
        let mut ledger = Ledger::new(1);
        for round in 0..100u32 {
            let id = ledger.begin(Kind::Read, 0, 1, &LIMITS);
            assert_eq!(id, RequestId(0));
            let Some(Issue::Single(part)) = ledger.next(1) else { panic!() };
            assert!(part.whole);
            ledger.submitted(part.id, 0, round);
            assert_eq!(ledger.oldest_age(round.wrapping_add(3)), Some(3));
            ledger.completed(0, SUCCESS).unwrap();
            assert_eq!(ledger.unfinished(), 1);
            assert!(ledger.poll_finished().is_some());
        }
        assert_eq!((ledger.oldest_age(7), ledger.unfinished()), (None, 0));
        let id = ledger.begin_failed(Kind::Read, Fault::Gone);
        assert_eq!(ledger.poll_finished(), Some((id, Err(Fault::Gone))));
    }
}
