//! The order and the direction of requests.

use std::{fmt, str::FromStr};

use crate::random::Random;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// An access pattern, with fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential, reads and writes mixed.
    ReadWrite,
    /// Random, reads and writes mixed.
    RandRw,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::RandRead, Self::RandWrite, Self::ReadWrite, Self::RandRw];

    /// fio's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::ReadWrite => "rw",
            Self::RandRw => "randrw",
        }
    }

    /// Whether blocks are chosen at random rather than in sequence.
    #[must_use]
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// Whether its requests include writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether its requests include reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that is not the name of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePatternError(String);

impl fmt::Display for ParsePatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Pattern::ALL.map(Pattern::name).join(", ");
        write!(f, "{:?} is not a pattern: use one of {names}", self.0)
    }
}

impl std::error::Error for ParsePatternError {}

impl FromStr for Pattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = if text == "readwrite" { "rw" } else { text };
        let found = Self::ALL.into_iter().find(|pattern| pattern.name() == name);
        found.ok_or_else(|| ParsePatternError(text.to_owned()))
    }
}

/// The requests of one lane, one after the other.
#[derive(Clone, Debug)]
pub struct Sequence {
    pattern: Pattern,
    /// Percentage of reads.
    read_percent: u8,
    units: u64,
    position: u64,
    random: Random,
}

impl Sequence {
    /// Requests over `units` blocks; of mixed patterns `read_percent` in a hundred read.
    #[must_use]
    pub fn new(pattern: Pattern, read_percent: u8, units: u64, random: Random) -> Self {
        Self { pattern, read_percent: read_percent.min(100), units, position: 0, random }
    }

    /// The next request: its direction and the number of its block.
    #[inline]
    pub fn draw(&mut self) -> (Direction, u64) {
        let direction = match self.pattern {
            Pattern::Read | Pattern::RandRead => Direction::Read,
            Pattern::Write | Pattern::RandWrite => Direction::Write,
            Pattern::ReadWrite | Pattern::RandRw => {
                if self.random.below(100) < u64::from(self.read_percent) {
                    Direction::Read
                } else {
                    Direction::Write
                }
            }
        };
        let unit = if self.pattern.is_random() {
            self.random.below(self.units)
        } else {
            let unit = self.position;
            self.position = if unit + 1 >= self.units { 0 } else { unit + 1 };
            unit
        };
        (direction, unit)
    }

    /// A random block, for requests that do not belong to the pattern.
    pub fn any_unit(&mut self) -> u64 {
        self.random.below(self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(pattern: Pattern, read_percent: u8, units: u64) -> Sequence {
        Sequence::new(pattern, read_percent, units, Random::new(1, 0))
    }

    #[test]
    fn names_are_parsed() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.name().parse(), Ok(pattern));
            assert!(pattern.reads() || pattern.writes());
        }
        assert_eq!("readwrite".parse(), Ok(Pattern::ReadWrite));
        let error = "trim".parse::<Pattern>().expect_err("not a pattern").to_string();
        assert_eq!(
            error,
            "\"trim\" is not a pattern: use one of read, write, randread, randwrite, rw, randrw"
        );
    }

    #[test]
    fn sequential_requests_wrap_around() {
        let mut sequence = sequence(Pattern::Write, 50, 3);
        let units: Vec<_> = (0..7).map(|_| sequence.draw()).collect();
        let write = |unit| (Direction::Write, unit);
        assert_eq!(units, [0, 1, 2, 0, 1, 2, 0].map(write));
    }

    #[test]
    fn random_requests_cover_exactly_the_blocks() {
        let mut sequence = sequence(Pattern::RandRead, 50, 64);
        let mut seen = [false; 64];
        for _ in 0..2_000 {
            let (direction, unit) = sequence.draw();
            assert_eq!(direction, Direction::Read);
            seen[usize::try_from(unit).expect("below 64")] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn the_read_percentage_is_kept() {
        for (pattern, percent) in
            [(Pattern::RandRw, 70), (Pattern::ReadWrite, 0), (Pattern::ReadWrite, 100)]
        {
            let mut sequence = sequence(pattern, percent, 1_000);
            let reads = (0..100_000).filter(|_| sequence.draw().0 == Direction::Read).count();
            let expected = usize::from(percent) * 1_000;
            assert!(reads.abs_diff(expected) < 600, "{pattern} {percent}: {reads}");
        }
    }

    #[test]
    fn a_single_block_is_enough() {
        for pattern in Pattern::ALL {
            let mut sequence = sequence(pattern, 50, 1);
            assert!((0..10).all(|_| sequence.draw().1 == 0));
        }
    }
}
