//! Connections with commands that wait for memory, in the order in which they have come to wait.
//!
//! Each has its turn: one with many large commands does not keep another from its small one. Who
//! cannot be served is passed over, as others may need less; but not for ever, or small commands
//! would always take what a large one needs. Then all that comes free is kept for it.

use std::collections::VecDeque;

/// How often the first may be passed over before nobody else is served: as often as a queue of the
/// usual depth has commands.
const PASSED_OVER_MAX: u32 = 128;

/// How many are tried at a time.
const TRIES_MAX: usize = 64;

/// Connections that wait, by their indices in the group.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: VecDeque<usize>,
    /// How often somebody was served before the first, since it has been the first.
    passed_over: u32,
}

impl Line {
    /// A connection begins to wait.
    pub(crate) fn join(&mut self, index: usize) {
        self.waiting.push_back(index);
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether all memory is kept for the first.
    pub(crate) fn is_held(&self) -> bool {
        self.passed_over >= PASSED_OVER_MAX
    }

    /// Who is to be tried at this place, if anybody.
    pub(crate) fn at(&self, position: usize) -> Option<usize> {
        let most = if self.is_held() { 1 } else { TRIES_MAX };
        self.waiting.get(position).copied().filter(|_| position < most)
    }

    /// A command of the one at this place has been served; if there are more, it waits again,
    /// behind the others.
    pub(crate) fn served(&mut self, position: usize, has_more: bool) {
        let passes_over = u32::from(position > 0);
        if let Some(index) = self.leave(position).filter(|_| has_more) {
            self.waiting.push_back(index);
        }
        self.passed_over = self.passed_over.saturating_add(passes_over);
    }

    /// The one at this place waits no longer.
    pub(crate) fn leave(&mut self, position: usize) -> Option<usize> {
        if position == 0 {
            self.passed_over = 0;
        }
        self.waiting.remove(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(line: &Line) -> Vec<usize> {
        (0..).map_while(|position| line.at(position)).collect()
    }

    #[test]
    fn each_has_its_turn() {
        let mut line = Line::default();
        (1..=3).for_each(|index| line.join(index));
        line.served(0, true);
        assert_eq!(order(&line), [2, 3, 1]);
        line.served(0, false);
        assert_eq!(order(&line), [3, 1]);
        assert_eq!(line.leave(1), Some(1));
        assert_eq!(line.leave(0), Some(3));
        assert!(line.is_empty());
    }

    #[test]
    fn the_first_is_not_passed_over_for_ever() {
        let mut line = Line::default();
        (1..=3).for_each(|index| line.join(index));
        for _ in 0..PASSED_OVER_MAX {
            assert_eq!(line.at(0), Some(1));
            line.served(1, true);
        }
        assert!(line.is_held());
        assert_eq!(order(&line), [1], "nobody else is tried");
        line.served(0, true);
        assert!(!line.is_held());
        assert_eq!(order(&line), [2, 3, 1]);
    }
}
