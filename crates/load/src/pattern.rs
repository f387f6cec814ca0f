//! Which blocks, in which order, which way, and how much at a time.

pub mod permutation;
mod sequence;
pub mod sizes;
pub mod spread;

use std::fmt;
use std::str::FromStr;

pub use sequence::{DrawnRequest, Sequence};

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Blocks are deallocated.
    Trim,
}

/// An access pattern, with fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential trims.
    Trim,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Random trims.
    RandTrim,
    /// Sequential, reads and writes mixed.
    ReadWrite,
    /// Random, reads and writes mixed.
    RandRw,
    /// Sequential: each block is trimmed, then written.
    TrimWrite,
    /// Random: each block is trimmed, then written.
    RandTrimWrite,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Write,
        Self::Trim,
        Self::RandRead,
        Self::RandWrite,
        Self::RandTrim,
        Self::ReadWrite,
        Self::RandRw,
        Self::TrimWrite,
        Self::RandTrimWrite,
    ];

    /// fio's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::RandTrim => "randtrim",
            Self::ReadWrite => "rw",
            Self::RandRw => "randrw",
            Self::TrimWrite => "trimwrite",
            Self::RandTrimWrite => "randtrimwrite",
        }
    }

    /// Whether blocks are chosen at random rather than in sequence.
    #[must_use]
    pub const fn is_random(self) -> bool {
        matches!(
            self,
            Self::RandRead | Self::RandWrite | Self::RandTrim | Self::RandRw | Self::RandTrimWrite
        )
    }

    /// Whether its requests include writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandWrite | Self::ReadWrite | Self::RandRw)
            || self.trims_and_writes()
    }

    /// Whether its requests include reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandRead | Self::ReadWrite | Self::RandRw)
    }

    /// Whether its requests include trims.
    #[must_use]
    pub const fn trims(self) -> bool {
        matches!(self, Self::Trim | Self::RandTrim) || self.trims_and_writes()
    }

    /// Whether each block is trimmed and then written: every request is two.
    #[must_use]
    pub const fn trims_and_writes(self) -> bool {
        matches!(self, Self::TrimWrite | Self::RandTrimWrite)
    }

    /// The directions of its requests.
    pub fn directions(self) -> impl Iterator<Item = Direction> {
        let all = [
            (self.reads(), Direction::Read),
            (self.writes(), Direction::Write),
            (self.trims(), Direction::Trim),
        ];
        all.into_iter().filter_map(|(is_there, direction)| is_there.then_some(direction))
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

/// What the number after a pattern does (`rw=randread:8`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modifier {
    /// There is none.
    #[default]
    None,
    /// A sequential request begins so many bytes after the end of the last one, or before it.
    Hole(i64),
    /// After each place that was drawn, so many requests follow each other from there.
    Run(u32),
    /// Each place that was drawn is requested so many times.
    Repeat(u32),
}

/// `zonemode=strided`: requests stay within a part of the region, and then go on to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// `zonesize`: bytes that are transferred in a zone before the next.
    pub size: u64,
    /// `zonerange`: the length of a zone.
    pub range: u64,
    /// `zoneskip`: bytes between two zones.
    pub skip: u64,
}

#[cfg(test)]
mod tests;
