//! Callbacks while a study runs.

use std::time::Duration;

use weft_load::Progress;

use crate::results::Record;

/// The progress of a study.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// Steps that are done, counting every repeat.
    pub done: usize,
    /// Steps in all, as far as known.
    pub all: usize,
    /// Estimated time left, with the repeats that are known to come.
    pub left: Duration,
    /// The same with every repeat that the stop rule may ask for besides.
    pub left_most: Duration,
}

/// Callbacks of a study; they run on threads that carry no load.
pub trait StudyObserver {
    /// A step begins.
    fn begins(&mut self, position: &Position, what: &str);

    /// The numbers of the last half second.
    fn progress(&mut self, position: &Position, what: &str, progress: &Progress);

    /// A step is over.
    fn ends(&mut self, position: &Position, records: &[Record]);

    /// A message for the user.
    fn note(&mut self, text: &str);
}
