//! The requests of a lane, one after the other.

use super::sizes::Sizes;
use super::spread::Chooser;
use super::{Direction, Modifier, Pattern, Zones};
use crate::job::Job;
use crate::random::Random;

/// One request: where it begins in its region, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnRequest {
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
    trimmed: Option<DrawnRequest>,
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
    pub fn draw(&mut self) -> DrawnRequest {
        if self.pattern.trims_and_writes() {
            if let Some(trimmed) = self.trimmed.take() {
                return DrawnRequest { direction: Direction::Write, ..trimmed };
            }
            let drawn = self.draw_one();
            self.trimmed = Some(drawn);
            return drawn;
        }
        self.draw_one()
    }

    #[inline]
    fn draw_one(&mut self) -> DrawnRequest {
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
        DrawnRequest { direction, offset, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
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
