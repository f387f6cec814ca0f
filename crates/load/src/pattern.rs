//! Which blocks, in which order, which way, and how much at a time.

pub mod permutation;
pub mod sizes;
pub mod spread;

use std::fmt;
use std::str::FromStr;

use self::sizes::Sizes;
use self::spread::Chooser;
use crate::job::Job;
use crate::random::Random;

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

/// One request: where it begins in its region, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Which way.
    pub direction: Direction,
    /// Bytes from the beginning of the region.
    pub offset: u64,
    /// How long.
    pub bytes: u32,
}

/// The requests of one lane, one after the other.
#[derive(Clone, Debug)]
pub struct Sequence {
    pattern: Pattern,
    /// Of a hundred requests, so many read.
    read_percent: f64,
    sizes: [Sizes; 3],
    /// All requests lie within so many bytes.
    region: u64,
    /// The shortest request, and what cut ones are a multiple of.
    unit: u64,
    align: u64,
    chooser: Chooser,
    /// Of a hundred random requests, so many are.
    random_percent: u32,
    modifier: Modifier,
    zones: Option<Zones>,
    /// Where the zone begins and ends (the region, without zones), and bytes transferred there.
    zone: (u64, u64),
    zone_bytes: u64,
    /// Requests left of a run.
    run: u32,
    /// Where the last request of each direction began and ended.
    last: [(u64, u64); 3],
    /// After so many bytes everything begins anew, and how many are left of them.
    pass: u64,
    left: u64,
    /// What was trimmed and is to be written.
    trimmed: Option<Drawn>,
    random: Random,
}

impl Sequence {
    /// The requests of a job over a region, in passes of so many bytes; `random` makes generators
    /// for several purposes.
    #[must_use]
    pub fn new(job: &Job, region: u64, pass: u64, random: &dyn Fn(u64) -> Random) -> Self {
        let sizes = [Direction::Read, Direction::Write, Direction::Trim].map(|d| job.sizes(d));
        let unit = u64::from(job.shortest()).max(1);
        let align = u64::from(job.align_bytes.unwrap_or(job.shortest())).max(1);
        let zone = job.zones.map_or(region, |zones| zones.range.min(region));
        // The last place has room for the shortest request.
        let places = zone.saturating_sub(unit.saturating_sub(align)) / align;
        let map = job.has_map();
        Self {
            pattern: job.pattern,
            read_percent: job.read_percent,
            sizes,
            region,
            unit,
            align,
            chooser: Chooser::new(&job.spread, places, align, map, random(1)),
            random_percent: if job.pattern.is_random() { job.random_percent } else { 0 },
            modifier: job.modifier,
            zones: job.zones,
            zone: (0, zone),
            zone_bytes: 0,
            run: 0,
            last: [(0, 0); 3],
            pass,
            left: pass,
            trimmed: None,
            random: random(0),
        }
    }

    /// The next request.
    #[inline]
    pub fn draw(&mut self) -> Drawn {
        if self.pattern.trims_and_writes() {
            if let Some(trimmed) = self.trimmed.take() {
                return Drawn { direction: Direction::Write, ..trimmed };
            }
            let drawn = self.draw_one();
            self.trimmed = Some(drawn);
            return drawn;
        }
        self.draw_one()
    }

    #[inline]
    fn draw_one(&mut self) -> Drawn {
        if self.left == 0 {
            self.restart();
        }
        if let Some(zones) = self.zones.filter(|zones| self.zone_bytes >= zones.size) {
            let next = self.zone.0 + zones.range + zones.skip;
            self.enter_zone(if next + self.unit <= self.region { next } else { 0 });
        }
        let direction = self.direction();
        let index = direction as usize;
        let offset = self.offset(index);
        let sizes = self.sizes.get(index).unwrap_or(&self.sizes[0]);
        let bytes = sizes.draw(&mut self.random);
        let room = self.zone.1 - offset;
        let bytes = match u64::from(bytes) {
            bytes if bytes <= room => bytes,
            _ => sizes.fitting(room),
        };
        self.last[index] = (offset, offset + bytes);
        self.left = self.left.saturating_sub(bytes);
        self.zone_bytes += bytes;
        Drawn { direction, offset, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    /// Begins a pass.
    fn restart(&mut self) {
        self.left = self.pass;
        self.enter_zone(0);
    }

    /// Goes to the zone that begins there; without zones the only one is the region.
    fn enter_zone(&mut self, from: u64) {
        let range = self.zones.map_or(self.region, |zones| zones.range);
        self.zone = (from, from.saturating_add(range).min(self.region));
        (self.zone_bytes, self.run, self.last) = (0, 0, [(from, from); 3]);
        self.chooser.restart();
    }

    #[inline]
    fn direction(&mut self) -> Direction {
        match self.pattern {
            Pattern::Read | Pattern::RandRead => Direction::Read,
            Pattern::Write | Pattern::RandWrite => Direction::Write,
            Pattern::Trim | Pattern::RandTrim | Pattern::TrimWrite | Pattern::RandTrimWrite => {
                Direction::Trim
            }
            Pattern::ReadWrite | Pattern::RandRw => {
                if self.random.unit() * 100.0 < self.read_percent {
                    Direction::Read
                } else {
                    Direction::Write
                }
            }
        }
    }

    #[inline]
    fn offset(&mut self, index: usize) -> u64 {
        let (began, ended) = self.last.get(index).copied().unwrap_or_default();
        if self.random_percent == 0
            || self.random_percent < 100 && self.random.below(100) >= u64::from(self.random_percent)
        {
            return self.next(ended);
        }
        if let Modifier::Run(count) | Modifier::Repeat(count) = self.modifier {
            if self.run > 0 {
                self.run -= 1;
                let again = matches!(self.modifier, Modifier::Repeat(_));
                return if again { began } else { self.next(ended) };
            }
            self.run = count.saturating_sub(1);
        }
        let drawn = self.zone.0 + self.chooser.draw(&mut self.random) * self.align;
        // The last zone may be shorter than the others.
        if drawn + self.unit <= self.zone.1 { drawn } else { self.zone.0 }
    }

    /// Where a sequential request begins after one that ended there.
    #[inline]
    fn next(&self, ended: u64) -> u64 {
        let Modifier::Hole(hole) = self.modifier else {
            return if ended + self.unit <= self.zone.1 { ended } else { self.zone.0 };
        };
        // As in fio: a walk backwards begins at the end, and no hole is before the first request.
        let (from, hole) = match (ended, hole) {
            (0, hole) if hole < 0 => (self.region, hole),
            (0, _) => (0, 0),
            given => given,
        };
        match from.checked_add_signed(hole) {
            Some(next) if next + self.unit <= self.region => next,
            _ if hole < 0 => self.region.saturating_add_signed(hole),
            _ => 0,
        }
    }

    /// A random place of fixed length, for what goes on beside the pattern.
    pub fn any_unit(&mut self) -> u64 {
        self.random.below(self.region / self.unit)
    }
}

#[cfg(test)]
mod tests;
