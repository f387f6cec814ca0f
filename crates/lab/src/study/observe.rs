//! Who looks on while a study runs.

use std::time::Duration;

use crate::{Progress, results::Record};

/// How far a study is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// Steps that are done, counting every repeat.
    pub done: usize,
    /// How many there will be, as far as that is known.
    pub all: usize,
    /// Time left, if it goes on like this.
    pub left: Duration,
}

/// Is told what happens. Nothing of it happens on threads that carry load.
pub trait Observer {
    /// A step begins.
    fn begins(&mut self, position: &Position, what: &str);

    /// What happened in the last half second.
    fn progress(&mut self, position: &Position, what: &str, progress: &Progress);

    /// A step is over.
    fn ends(&mut self, position: &Position, records: &[Record]);

    /// Something else that people should know.
    fn note(&mut self, text: &str);
}
