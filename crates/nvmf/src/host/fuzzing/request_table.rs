//! The books of an I/O queue under any order of events.

use std::collections::BTreeMap;

use weft_nvme::Status;

use super::FuzzInput;
use crate::host::request_table::{
    BlockLimits, CommandResult, FusedPart, Issue, Kind, RequestError, RequestId, RequestPart,
    RequestTable,
};

const KINDS: [Kind; 11] = [
    Kind::Read,
    Kind::Write,
    Kind::Flush,
    Kind::WriteZeroes,
    Kind::Deallocate,
    Kind::Compare,
    Kind::CompareAndWrite,
    Kind::Verify,
    Kind::WriteUncorrectable,
    Kind::Copy,
    Kind::Reservation,
];

const SLOTS: u16 = 5;
const LIMITS: BlockLimits = BlockLimits {
    transfer: 8,
    write_zeroes: 16,
    verify: 0,
    write_uncorrectable: 3,
    deallocate_ranges: 4,
};

/// What the harness itself knows of a request.
#[derive(Debug)]
struct RequestModel {
    kind: Kind,
    slba: u64,
    nlb: u32,
    /// Blocks for which a command succeeded, to find a request told as done with a hole in it.
    done: Vec<bool>,
    /// Commands that succeeded without naming blocks.
    done_whole: bool,
    /// Whether a command of a kind that must not be replayed was lost.
    lost_for_good: bool,
    may_fail: bool,
}

#[derive(Debug)]
struct RequestTableRun {
    requests: RequestTable,
    slots: BTreeMap<u16, RequestPart>,
    expected: BTreeMap<RequestId, RequestModel>,
    begun: usize,
    told: usize,
}

/// Runs the books of a queue through any order of requests, completions, losses and failures.
/// Checks that each request is told exactly once, only when none of its commands is on the wire,
/// as done only if all its blocks were, and that nothing is replayed that must not be.
pub fn run_request_table(actions: &[u8]) {
    let mut run = RequestTableRun {
        requests: RequestTable::new(4),
        slots: BTreeMap::new(),
        expected: BTreeMap::new(),
        begun: 0,
        told: 0,
    };
    let mut fuzz_input = FuzzInput::new(actions);
    while !fuzz_input.is_empty() {
        run.step(&mut fuzz_input);
        run.collect();
    }
    run.finish_run();
}

impl RequestTableRun {
    fn step(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        match fuzz_input.below(13) {
            0..=2 => self.begin(fuzz_input),
            3..=5 => self.issue(fuzz_input),
            6..=8 => self.complete(fuzz_input),
            9 => self.requests.tick(),
            10 => self.handle_loss(),
            11 => self.fail_some(fuzz_input),
            _ => {
                for expected in self.expected.values_mut() {
                    expected.may_fail = true;
                }
                if fuzz_input.below(4) == 0 {
                    self.slots.clear();
                    self.requests.abandon(RequestError::PathLost, RequestError::Gone);
                } else {
                    self.requests.fail_waiting(RequestError::PathLost);
                }
            }
        }
    }

    fn begin(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        let kind = KINDS[fuzz_input.below(KINDS.len())];
        let nlb = match kind {
            Kind::Flush | Kind::Copy | Kind::Reservation => 0,
            _ => u32::from(fuzz_input.byte() % 40) + 1,
        };
        let slba = u64::from(fuzz_input.byte());
        let id = self.requests.begin(kind, slba, nlb, &LIMITS);
        let expected = RequestModel {
            kind,
            slba,
            nlb,
            done: vec![false; nlb as usize],
            done_whole: false,
            lost_for_good: false,
            may_fail: kind == Kind::CompareAndWrite && nlb > LIMITS.transfer,
        };
        assert!(self.expected.insert(id, expected).is_none(), "{id:?} is given out twice");
        self.begun += 1;
    }

    fn issue(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        let free: Vec<u16> = (0..SLOTS).filter(|slot| !self.slots.contains_key(slot)).collect();
        let Some(issue) = self.requests.next(free.len()) else { return };
        if fuzz_input.below(8) == 0 {
            match issue {
                Issue::Single(part) => self.requests.put_back(part.id),
                Issue::Fused(first, second) => {
                    self.requests.put_back(second.id);
                    self.requests.put_back(first.id);
                }
            }
            return;
        }
        match issue {
            Issue::Single(part) => self.submit(part, free[0]),
            Issue::Fused(first, second) => {
                assert_eq!((first.fused, second.fused), (FusedPart::First, FusedPart::Second));
                assert_eq!(first.request, second.request);
                self.submit(first, free[0]);
                self.submit(second, free[1]);
            }
        }
    }

    fn submit(&mut self, part: RequestPart, slot: u16) {
        let expected = &self.expected[&part.request];
        assert_eq!(part.kind, expected.kind);
        assert!(!expected.lost_for_good, "{part:?} is replayed");
        assert_eq!(part.slba, expected.slba + u64::from(part.skipped));
        assert!(part.skipped + part.nlb <= expected.nlb);
        let most = match part.kind {
            Kind::WriteZeroes => 16,
            Kind::WriteUncorrectable => 3,
            Kind::Deallocate => 4,
            Kind::Verify => 65536,
            _ => 8,
        };
        assert!(part.nlb <= most, "{part:?} is too large");
        self.requests.submitted(part.id, slot, 0);
        assert!(self.slots.insert(slot, part).is_none());
    }

    fn complete(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        let slot = u16::from(fuzz_input.byte()) % (SLOTS + 1);
        let ending = match fuzz_input.below(8) {
            0 => CommandResult::Status(Status::TRANSIENT_TRANSPORT_ERROR),
            1 => CommandResult::Status(Status::INVALID_FIELD.with_dnr()),
            2 => CommandResult::Status(Status::ABORTED_FAILED_FUSED),
            3 => CommandResult::Corrupt,
            _ => CommandResult::Status(Status::SUCCESS),
        };
        let Some(part) = self.slots.remove(&slot) else {
            assert!(self.requests.completed(slot, ending).is_err(), "slot {slot} is empty");
            return;
        };
        let told = self.requests.completed(slot, ending).expect("the slot is taken");
        assert_eq!((told.request, told.skipped), (part.request, part.skipped));
        let expected = self.expected.get_mut(&part.request).expect("not told yet");
        if ending == CommandResult::Status(Status::SUCCESS) {
            if part.fused != FusedPart::First {
                expected.done_whole |= part.whole;
                let from = part.skipped as usize;
                expected.done[from..from + part.nlb as usize].fill(true);
            }
        } else {
            expected.may_fail = true;
        }
    }

    /// As when a namespace goes.
    fn fail_some(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        let modulus = u32::from(fuzz_input.byte() % 4) + 1;
        for (id, expected) in &mut self.expected {
            expected.may_fail |= id.0 % modulus == 0;
        }
        self.requests.fail_requests(RequestError::Gone, |id| id.0 % modulus == 0);
    }

    fn handle_loss(&mut self) {
        for part in self.slots.values() {
            let expected = self.expected.get_mut(&part.request).expect("not told yet");
            if !part.kind.is_replayed() {
                expected.lost_for_good = true;
                expected.may_fail = true;
            }
        }
        self.slots.clear();
        self.requests.lost();
    }

    fn collect(&mut self) {
        assert_eq!(self.requests.in_flight(), self.slots.len());
        assert_eq!(self.requests.unfinished(), self.expected.len());
        while let Some((id, result)) = self.requests.poll_finished() {
            let expected = self.expected.remove(&id).expect("told once");
            self.told += 1;
            assert!(self.slots.values().all(|part| part.request != id), "{id:?} is on the wire");
            match result {
                Ok(()) => {
                    assert!(!expected.lost_for_good, "{expected:?} was lost but is told as done");
                    assert!(expected.done.iter().all(|done| *done), "{expected:?} has a hole");
                    assert!(expected.nlb > 0 || expected.done_whole, "{expected:?} never ran");
                }
                Err(error) => assert!(expected.may_fail, "{expected:?} failed: {error:?}"),
            }
        }
    }

    /// A good connection at last: everything that is left has to end.
    fn finish_run(&mut self) {
        self.handle_loss();
        self.collect();
        for _ in 0..100_000 {
            self.requests.tick();
            let Some(issue) = self.requests.next(usize::from(SLOTS)) else { break };
            let parts = match issue {
                Issue::Single(part) => vec![part],
                Issue::Fused(first, second) => vec![first, second],
            };
            for (slot, part) in (0u16..).zip(parts) {
                self.submit(part, slot);
            }
            let slots: Vec<u16> = self.slots.keys().copied().collect();
            for slot in slots {
                let part = self.slots.remove(&slot).expect("taken");
                self.requests
                    .completed(slot, CommandResult::Status(Status::SUCCESS))
                    .expect("taken");
                let expected = self.expected.get_mut(&part.request).expect("not told yet");
                if part.fused != FusedPart::First {
                    let from = part.skipped as usize;
                    expected.done_whole |= part.whole;
                    expected.done[from..from + part.nlb as usize].fill(true);
                }
            }
            self.collect();
        }
        self.collect();
        assert_eq!(self.begun, self.told, "not every request was told");
        assert_eq!((self.requests.unfinished(), self.requests.in_flight()), (0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_request_ends_once(actions in proptest::collection::vec(any::<u8>(), 0..400)) {
            run_request_table(&actions);
        }
    }
}
