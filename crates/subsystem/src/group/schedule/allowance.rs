//! How much a turn may still begin.

use crate::shared::limits::{COMMAND_BYTES, TURN_BYTES};

/// What a turn may begin, in bytes of data, of which each command has at least [`COMMAND_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    left: usize,
    /// What was begun; it wraps.
    spent: usize,
}

/// An allowance that was set aside.
#[derive(Debug)]
pub(crate) struct SuspendedAllowance(Allowance);

impl Allowance {
    /// A turn begins.
    pub(crate) const fn begin_turn(&mut self) {
        self.left = TURN_BYTES;
    }

    /// Whether another command may begin.
    pub(crate) const fn may_begin(&self) -> bool {
        self.left > 0
    }

    /// A command with so many bytes of data begins.
    pub(crate) fn spend(&mut self, bytes: usize) {
        let bytes = bytes.max(COMMAND_BYTES);
        self.left = self.left.saturating_sub(bytes);
        self.spent = self.spent.wrapping_add(bytes);
    }

    /// Express work begins, which has an allowance of its own, until the turn
    /// [goes on](Self::resume).
    pub(crate) const fn interrupt(&mut self) -> SuspendedAllowance {
        let own = Self { left: TURN_BYTES, spent: self.spent };
        SuspendedAllowance(std::mem::replace(self, own))
    }

    /// The turn goes on.
    pub(crate) const fn resume(&mut self, turn: SuspendedAllowance) {
        *self = turn.0;
    }

    /// A visit begins that may begin so much of what is left. Returns what
    /// [`end_visit`](Self::end_visit) takes.
    pub(crate) fn begin_visit(&mut self, bytes: usize) -> (usize, usize) {
        let left = self.left;
        self.left = left.min(bytes);
        (left, self.spent)
    }

    /// The visit has ended. What it has begun.
    pub(crate) const fn end_visit(&mut self, begun: (usize, usize)) -> usize {
        let (left, before) = begun;
        let spent = self.spent.wrapping_sub(before);
        self.left = left.saturating_sub(spent);
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_has_a_part_of_the_turn() {
        let mut allowance = Allowance::default();
        assert!(!allowance.may_begin());
        allowance.begin_turn();
        let visit = allowance.begin_visit(2 * COMMAND_BYTES);
        allowance.spend(512);
        assert!(allowance.may_begin());
        allowance.spend(5 * COMMAND_BYTES);
        assert!(!allowance.may_begin(), "the last may go beyond");
        assert_eq!(allowance.end_visit(visit), 6 * COMMAND_BYTES);
        assert_eq!(allowance.left, TURN_BYTES - 6 * COMMAND_BYTES);
        let turn = allowance.interrupt();
        allowance.spend(TURN_BYTES);
        assert!(!allowance.may_begin());
        allowance.resume(turn);
        assert_eq!(allowance.left, TURN_BYTES - 6 * COMMAND_BYTES, "express work has its own");
        let visit = allowance.begin_visit(usize::MAX);
        allowance.spend(TURN_BYTES);
        assert_eq!((allowance.end_visit(visit), allowance.may_begin()), (TURN_BYTES, false));
    }
}
