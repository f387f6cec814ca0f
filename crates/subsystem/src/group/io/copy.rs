//! Copy, in pieces: each is read into a buffer and written from it, the next one in a later turn.
//!
//! A piece asks the rate limits for a read and a write of its size, takes its buffer as any command
//! does, and is checked against the view of its moment. So a long Copy keeps no memory while it
//! waits, holds up neither the group nor a change of reservations, and ends with the first piece
//! that is refused.

use std::time::Duration;

use weft_backend::{Operation, RequestCompletion};
use weft_nvme::Status;
use weft_nvmf::queue::{CopyError, CopyRange, DeviceCommand, DeviceOperation, Transfer};
use weft_reactor::Buffer;
use weft_transport::Slot;

use super::{Io, SlotState};
use crate::group::core::Context;
use crate::group::devices::{NO_DEVICE, status_of};
use crate::shared::io_metrics::Wait;

/// Bytes of a piece: reading and writing them takes some tens of microseconds of a processor.
const PIECE_BYTES: u32 = 128 << 10;

/// A Copy command.
#[derive(Debug)]
pub(super) struct CopyState {
    pub(super) command: DeviceCommand,
    ranges: Box<[CopyRange]>,
    /// The range that is being copied, and how much of it is done.
    range: usize,
    done: u32,
    /// The next block to be written.
    to: u64,
    durable: bool,
    pub(super) step: CopyStep,
}

/// What a Copy command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyStep {
    /// A turn of its tenant.
    Turn,
    /// A rate limit, for this read and this write.
    Limit([DeviceCommand; 2]),
    /// A buffer of so many bytes.
    Memory(usize),
    /// The device that it reads from.
    Read,
    /// The device that it writes to.
    Write,
}

impl CopyStep {
    /// The read and the write that a rate limit is asked for.
    pub(super) const fn limited(&self) -> Option<[DeviceCommand; 2]> {
        if let Self::Limit(halves) = self { Some(*halves) } else { None }
    }

    /// How much memory it waits for.
    pub(super) const fn wanted(&self) -> Option<usize> {
        if let Self::Memory(bytes) = self { Some(*bytes) } else { None }
    }

    /// Whether a device has a request of it.
    pub(super) const fn is_at_device(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

impl CopyState {
    /// The rest of its present range, as far as it is in the next piece.
    fn piece(&self, block_bytes: u32) -> Option<CopyRange> {
        let range = self.ranges.get(self.range)?;
        let most = (PIECE_BYTES / block_bytes.max(1)).max(1);
        let nlb = range.nlb.saturating_sub(self.done).min(most);
        Some(CopyRange { slba: range.slba + u64::from(self.done), nlb, ..*range })
    }

    /// A piece is written. Whether there is another.
    fn advance(&mut self, nlb: u32) -> bool {
        self.to += u64::from(nlb);
        self.done += nlb;
        if self.ranges.get(self.range).is_some_and(|range| range.nlb <= self.done) {
            self.range += 1;
            self.done = 0;
        }
        self.range < self.ranges.len()
    }

    /// A piece as the reads and writes that it consists of.
    fn halves(&self, piece: &CopyRange, bytes: u32) -> [DeviceCommand; 2] {
        let CopyRange { nsid, device, slba, nlb } = *piece;
        let read = DeviceOperation::Read { slba, nlb };
        let write = DeviceOperation::Write { slba: self.to, nlb, durable: self.durable };
        [
            DeviceCommand {
                nsid,
                device,
                operation: read,
                transfer: Transfer::ToHost(bytes),
                ..self.command
            },
            DeviceCommand { operation: write, transfer: Transfer::FromHost(bytes), ..self.command },
        ]
    }
}

impl Io {
    /// The source ranges of a Copy command have come.
    pub(super) fn begin_copy(
        &mut self,
        slot: Slot,
        command: DeviceCommand,
        data: Option<&[u8]>,
        context: &mut Context<'_>,
    ) {
        let ranges = self.queue.handle_copy(&command, data.unwrap_or_default());
        let DeviceOperation::Copy { sdlba, durable, .. } = command.operation else { return };
        match ranges {
            Ok(ranges) => {
                self.trace_submitted(slot, command.transfer.bytes(), context.core);
                let (to, step) = (sdlba, CopyStep::Turn);
                let copy = CopyState { command, ranges, range: 0, done: 0, to, durable, step };
                self.wait_for_turn(slot, Box::new(copy));
            }
            Err(error) => self.fail_copy(slot, &command, error, context),
        }
    }

    fn wait_for_turn(&mut self, slot: Slot, mut copy: Box<CopyState>) {
        copy.step = CopyStep::Turn;
        self.put(slot, SlotState::Copying(copy));
        self.copies.push_back(slot);
    }

    /// Whether a Copy command has a piece that could begin now.
    pub(in crate::group) fn has_copies(&self) -> bool {
        !self.copies.is_empty() && !self.stopped
    }

    /// Begins the next piece of the Copy command whose turn it is. Whether there was one.
    pub(in crate::group) fn continue_copy(&mut self, context: &mut Context<'_>) -> bool {
        let Some(slot) = self.copies.pop_front().filter(|_| !self.stopped) else { return false };
        match self.take(slot) {
            SlotState::Copying(copy) if copy.step == CopyStep::Turn => {
                self.admit_piece(slot, copy, context)
            }
            // It was aborted, and its slot may have another command.
            other => self.put(slot, other),
        }
        true
    }

    /// Asks the rate limits for the next piece of a Copy command.
    fn admit_piece(&mut self, slot: Slot, mut copy: Box<CopyState>, context: &mut Context<'_>) {
        let Some((piece, bytes)) = self.next_piece(&copy) else {
            return self.fail_piece(slot, &copy, NO_DEVICE, context);
        };
        let [read, write] = copy.halves(&piece, bytes);
        if let Some(flows) = &mut self.flows
            && !flows.admit(slot, &write, Some(&read), context.core)
        {
            self.wait(slot, Wait::Limit, context.core);
            copy.step = CopyStep::Limit([read, write]);
            return self.put(slot, SlotState::Copying(copy));
        }
        self.begin_piece(slot, copy, context);
    }

    fn next_piece(&self, copy: &CopyState) -> Option<(CopyRange, u32)> {
        let block_bytes = self.queue.namespaces().get(copy.command.nsid)?.block_bytes;
        let piece = copy.piece(block_bytes)?;
        Some((piece, piece.nlb.checked_mul(block_bytes)?))
    }

    /// The status with which the next piece of a Copy command would be refused now.
    pub(super) fn refusal_of_copy(&self, copy: &CopyState) -> Option<Status> {
        match self.next_piece(copy) {
            Some((piece, _)) => self.queue.recheck_copy(&copy.command, &piece).err(),
            None => Some(NO_DEVICE),
        }
    }

    /// Begins the next piece of a Copy command, once there is a buffer for it.
    pub(super) fn begin_piece(
        &mut self,
        slot: Slot,
        mut copy: Box<CopyState>,
        context: &mut Context<'_>,
    ) {
        let Some((_, bytes)) = self.next_piece(&copy) else {
            return self.fail_piece(slot, &copy, NO_DEVICE, context);
        };
        match context.core.schedule.memory.take(bytes as usize) {
            Some(buffer) => self.read_piece(slot, copy, buffer, context),
            None => {
                self.wait(slot, Wait::Memory, context.core);
                copy.step = CopyStep::Memory(bytes as usize);
                self.put(slot, SlotState::Copying(copy));
                self.starved.push_back(slot);
                let now = context.core.reactor.turn_time();
                context.core.schedule.memory.wait(self.id.index, self.host_hash, now);
            }
        }
    }

    pub(super) fn read_piece(
        &mut self,
        slot: Slot,
        copy: Box<CopyState>,
        into: Buffer,
        context: &mut Context<'_>,
    ) {
        let Some((piece, bytes)) =
            self.next_piece(&copy).filter(|(_, bytes)| into.len() == *bytes as usize)
        else {
            return self.fail_piece(slot, &copy, NO_DEVICE, context);
        };
        if let Err(status) = self.queue.recheck_copy(&copy.command, &piece) {
            return self.fail_piece(slot, &copy, status, context);
        }
        context.core.schedule.allowance.spend(bytes as usize);
        let operation = Operation::Read { slba: piece.slba, nlb: piece.nlb, into };
        self.submit_piece(slot, copy, CopyStep::Read, piece.device, operation, context);
    }

    fn submit_piece(
        &mut self,
        slot: Slot,
        mut copy: Box<CopyState>,
        step: CopyStep,
        device: u32,
        operation: Operation,
        context: &mut Context<'_>,
    ) {
        if let Some(meter) = &mut self.meter {
            meter.submit(slot, &copy.command.operation, context.core.time());
        }
        if !context.core.submit(device, self.id, slot, operation) {
            return self.fail_piece(slot, &copy, NO_DEVICE, context);
        }
        self.at_devices += 1;
        copy.step = step;
        self.put(slot, SlotState::Copying(copy));
    }

    /// A device has read or written a piece of a Copy command.
    pub(super) fn piece_done(
        &mut self,
        slot: Slot,
        mut copy: Box<CopyState>,
        done: RequestCompletion,
        now: Duration,
        context: &mut Context<'_>,
    ) {
        let Some((piece, _)) = self.next_piece(&copy) else {
            return self.fail_piece(slot, &copy, NO_DEVICE, context);
        };
        let checked = match (done.result, copy.step) {
            (Err(_), _) => Err(status_of(done.result)),
            (Ok(()), CopyStep::Read) => self.queue.recheck_copy(&copy.command, &piece),
            (Ok(()), _) => Ok(()),
        };
        match (checked, copy.step, done.buffer) {
            (Err(status), ..) => self.fail_piece(slot, &copy, status, context),
            (Ok(()), CopyStep::Read, Some(from)) => {
                let (slba, nlb, durable) = (copy.to, piece.nlb, copy.durable);
                let operation = Operation::Write { slba, nlb, from, durable };
                let device = copy.command.device;
                self.submit_piece(slot, copy, CopyStep::Write, device, operation, context);
            }
            _ if copy.advance(piece.nlb) => self.wait_for_turn(slot, copy),
            _ => {
                let completion = self.queue.complete(copy.command.command_id, Status::SUCCESS);
                self.measure(slot, completion.status(), now, context.core);
                context.transport.complete(slot, completion);
            }
        }
    }

    pub(super) fn fail_piece(
        &mut self,
        slot: Slot,
        copy: &CopyState,
        status: Status,
        context: &mut Context<'_>,
    ) {
        let range = u32::try_from(copy.range).unwrap_or(u32::MAX);
        self.fail_copy(slot, &copy.command, CopyError { status, range }, context);
    }

    /// Ends a Copy command with an error and the first range that was not copied.
    fn fail_copy(
        &mut self,
        slot: Slot,
        command: &DeviceCommand,
        CopyError { status, range }: CopyError,
        context: &mut Context<'_>,
    ) {
        let completion = self.queue.complete_device(command, status).with_dword0(range);
        self.complete(slot, completion, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every block once and in order, whatever the ranges and the size of a piece.
    #[test]
    fn pieces_are_all_blocks_of_all_ranges() {
        for (block_bytes, lengths) in
            [(512, [1, 256, 257, 4000]), (4096, [32, 31, 33, 1]), (65536, [1, 2, 3, 9])]
        {
            let range = |(place, nlb): (usize, u32)| CopyRange {
                nsid: 1,
                device: 7,
                slba: 100_000 * place as u64,
                nlb,
            };
            let ranges: Box<[_]> = lengths.into_iter().enumerate().map(range).collect();
            let command = DeviceCommand {
                command_id: 1,
                device: 7,
                nsid: 1,
                operation: DeviceOperation::Flush,
                transfer: Transfer::None,
            };
            let (to, step) = (500, CopyStep::Turn);
            let mut copy = CopyState {
                command,
                ranges: ranges.clone(),
                range: 0,
                done: 0,
                to,
                durable: false,
                step,
            };
            let mut blocks = Vec::new();
            loop {
                assert_eq!(copy.to, 500 + blocks.len() as u64);
                let piece = copy.piece(block_bytes).expect("there is more");
                assert!((1..=PIECE_BYTES / block_bytes).contains(&piece.nlb));
                blocks.extend(piece.slba..piece.slba + u64::from(piece.nlb));
                if !copy.advance(piece.nlb) {
                    break;
                }
            }
            let all = |range: &CopyRange| range.slba..range.slba + u64::from(range.nlb);
            assert_eq!(blocks, ranges.iter().flat_map(all).collect::<Vec<_>>());
            assert_eq!(copy.piece(block_bytes), None);
        }
    }
}
