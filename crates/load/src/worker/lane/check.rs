//! Verification of what a lane writes and reads.

use std::collections::VecDeque;

use crate::job::{Backlog, Job, Region};
use crate::verify::checksum::Checksum;
use crate::verify::{self, Fault, Generations, Identity};

use super::request::Purpose;

/// Verification of a lane.
#[derive(Debug)]
pub(super) struct Check {
    seed: u64,
    /// None: the job only reads what an earlier one wrote.
    pub(super) generations: Option<Generations>,
    /// What blocks hold, where they cannot be told apart.
    pattern: Option<Vec<u8>>,
    checksum: Checksum,
    scratch: Vec<u8>,
    pub(super) backlog: Option<Pending>,
}

/// `verify_backlog`: blocks that were written and not yet verified.
#[derive(Debug)]
pub(super) struct Pending {
    of: Backlog,
    units: VecDeque<u64>,
    /// How many of them are verified before more are written.
    left: u32,
}

impl Check {
    pub(super) fn new(job: &Job, region: &Region, seed: u64) -> Self {
        let units = region.bytes / u64::from(job.shortest()).max(1);
        let pending = |of| Pending { of, units: VecDeque::new(), left: 0 };
        Self {
            seed,
            generations: job.writes_to_verify().then(|| Generations::new(units)),
            pattern: job.verify_pattern.clone(),
            checksum: job.checksum,
            scratch: Vec::with_capacity(job.longest() as usize),
            backlog: job.verify_backlog.filter(|_| job.read_back).map(pending),
        }
    }

    /// Fills a block that is to be written at this offset of the device.
    pub(super) fn fill(&mut self, block: &mut [u8], unit: u64, offset: u64) {
        let generation =
            self.generations.as_mut().map_or(0, |generations| generations.begin_write(unit));
        if let Some(pending) = &mut self.backlog {
            pending.units.push_back(unit);
        }
        match &self.pattern {
            Some(pattern) => verify::fill_pattern(block, pattern),
            None => {
                verify::fill(block, Identity { seed: self.seed, offset, generation }, self.checksum)
            }
        }
    }

    /// A request has completed; what there is to say about what it read.
    pub(super) fn completed(
        &mut self,
        purpose: Purpose,
        unit: u64,
        offset: u64,
        block: Option<&[u8]>,
    ) -> Option<Result<(), Fault>> {
        if purpose == Purpose::Flush {
            return None;
        }
        let mut generation = 0;
        if let Some(generations) = &mut self.generations {
            generations.end(unit);
            generation = generations.generation(unit);
            if generation == 0 {
                // The job writes, but not here yet: what is here is nobody's business.
                return None;
            }
        }
        if matches!(purpose, Purpose::Write | Purpose::Trim | Purpose::Probe) {
            return None;
        }
        let block = block?;
        Some(match &self.pattern {
            Some(pattern) => verify::check_pattern(block, offset, pattern, &mut self.scratch),
            None => {
                let expected = Identity { seed: self.seed, offset, generation };
                verify::check(block, expected, self.checksum, &mut self.scratch)
            }
        })
    }

    /// The next block of the final verification, from this one on.
    pub(super) fn next_written(&mut self, from: u64) -> Option<u64> {
        match &mut self.backlog {
            Some(pending) => pending.units.pop_front(),
            None => self.generations.as_ref()?.written_from(from),
        }
    }

    /// The block that is to be verified before more is written: none, or one that something may
    /// still be in flight on.
    pub(super) fn next_of_backlog(&mut self) -> Option<Result<u64, ()>> {
        let pending = self.backlog.as_mut()?;
        let written = u32::try_from(pending.units.len()).unwrap_or(u32::MAX);
        if pending.left == 0 && written >= pending.of.blocks {
            pending.left = pending.of.batch.min(written);
        }
        if pending.left == 0 {
            return None;
        }
        let unit = pending.units.front().copied()?;
        let generations = self.generations.as_mut()?;
        if generations.free_from(unit) != Some(unit) {
            return Some(Err(()));
        }
        generations.begin(unit);
        pending.units.pop_front();
        pending.left -= 1;
        Some(Ok(unit))
    }
}
