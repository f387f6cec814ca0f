//! What is to be done, in fio's words.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, thread};

use serde::{Deserialize, Serialize};
use weft_backend::Geometry;
use weft_reactor::DriverKind;

use crate::limits::{
    BLOCK_BYTES_MAX, COPIES_MAX, DEPTH_MAX, POOL_BYTES_MAX, POOL_BYTES_SPARE,
    VERIFY_BLOCK_BYTES_MIN, VERIFY_UNITS_MAX,
};
use crate::logs::Logs;
use crate::pacer::Process;
use crate::pattern::sizes::Sizes;
use crate::pattern::spread::Spread;
use crate::pattern::{Direction, Modifier, Pattern, Zones};
use crate::replay::Replay;
use crate::units::whole;
use crate::verify::checksum::Checksum;

/// A job. [`Job::default`] is a closed loop of 4 KiB random reads at depth 1 for 10 s.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name in reports.
    pub name: String,
    /// `rw`: which blocks, in which order, which way.
    pub pattern: Pattern,
    /// The number after `rw`.
    pub modifier: Modifier,
    /// `zonemode=strided`.
    pub zones: Option<Zones>,
    /// `rwmixread`: of a hundred requests of a mixed pattern so many read.
    pub read_percent: f64,
    /// `bs`: bytes of each request.
    pub block_bytes: u32,
    /// `bs`, `bsrange`, `bssplit`: lengths of reads, writes and trims where they are not all `bs`.
    pub sizes: [Option<Sizes>; 3],
    /// `blockalign`: where random requests may begin; multiples of the shortest if not given.
    pub align_bytes: Option<u32>,
    /// `random_distribution`.
    pub spread: Spread,
    /// Not `norandommap`: random requests of a uniform spread go everywhere once before they go
    /// anywhere again.
    pub random_map: bool,
    /// `percentage_random`: of a hundred requests of a random pattern so many are.
    pub random_percent: u32,
    /// `iodepth`: requests in flight, of each copy.
    pub depth: u32,
    /// `numjobs`: copies of the job that run side by side.
    pub copies: u32,
    /// `offset`: where the region begins.
    pub offset: Extent,
    /// `offset_increment`: how much later the region of each further copy begins.
    pub offset_increment: Extent,
    /// `size`: how long the region is; to the end of the device if not given.
    pub size: Option<Extent>,
    /// `io_size`: end after so many bytes, of each copy; after its region's if not given.
    pub io_size: Option<Extent>,
    /// `number_ios`: end after so many requests, of each copy.
    pub number_ios: Option<u64>,
    /// `loops`: how often all of this is done.
    pub loops: u32,
    /// `runtime`: end after this time. Where nothing at all ends a job, it ends after 10 s.
    pub runtime: Option<Duration>,
    /// `time_based`: only the runtime ends it.
    pub time_based: bool,
    /// `ramp_time`: run for so long before anything counts.
    pub ramp: Duration,
    /// `startdelay`: begin so long after the others, anywhere between the two.
    pub start_delay: (Duration, Duration),
    /// `rate_iops` and `rate_process`: an open loop.
    pub rate: Option<Rate>,
    /// `rate_min` and its relatives: a copy that is slower has failed.
    pub rate_min: Option<RateMin>,
    /// `thinktime`.
    pub think: Option<Think>,
    /// `fsync` and `fdatasync`: a flush after so many writes; 0: none.
    pub flush_every: u32,
    /// `end_fsync`: a flush at the end.
    pub flush_at_end: bool,
    /// `prioclass`: it comes before the other jobs of its threads, between any two pieces of work
    /// for these.
    pub express: bool,
    /// `cpus_allowed`: a worker on each of these, and the copies spread over them; none: workers
    /// that are not pinned, as many as there are copies or processors, whichever is fewer.
    pub cpus: Vec<usize>,
    /// `randseed`.
    pub seed: u64,
    /// `verify`: write blocks that can be recognised, and read them back.
    pub verify: bool,
    /// Which checksum their headers carry.
    pub checksum: Checksum,
    /// `verify_pattern`: they hold nothing but these bytes, again and again.
    pub verify_pattern: Option<Vec<u8>>,
    /// `do_verify`: what was written is read back.
    pub read_back: bool,
    /// How workers wait.
    pub polling: Polling,
    /// Which of the kernel's interfaces the workers' reactors use.
    pub driver: DriverKind,
    /// Writes that survive a loss of power before they complete (force unit access).
    pub durable: bool,
    /// `verify_backlog`: what is written is verified after so many blocks.
    pub verify_backlog: Option<Backlog>,
    /// Which logs it writes.
    pub logs: Logs,
    /// `read_iolog`: requests that were recorded, in place of a pattern.
    pub replay: Option<Arc<Replay>>,
    /// `latency_target`: the depth is what is looked for.
    pub latency_target: Option<LatencyTarget>,
    /// `percentile_list`: those of the report; the usual ones if not given.
    pub percentiles: Option<Vec<f64>>,
    /// `lat_percentiles`: where a report has room for one kind, they count from the due time and
    /// not from the submission.
    pub percentiles_of_lat: bool,
}

/// A length: of itself, or of the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// Bytes.
    Bytes(u64),
    /// Percent of the device.
    Percent(u32),
}

impl Extent {
    /// In bytes, of so many; percentages down to a multiple of `unit`.
    fn of(self, bytes: u64, unit: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let share = u128::from(bytes) * u128::from(percent) / 100;
                let share = u64::try_from(share).unwrap_or(u64::MAX);
                share - share % unit.max(1)
            }
        }
    }
}

/// An open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second, of each copy.
    pub iops: f64,
    /// How they follow each other.
    pub process: Process,
}

/// `verify_backlog` and `verify_backlog_batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// After so many written blocks
    pub blocks: u32,
    /// so many of them are verified.
    pub batch: u32,
}

/// `latency_target`: the greatest depth up to `iodepth` is looked for at which requests are fast
/// enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// How fast.
    pub latency: Duration,
    /// `latency_window`: how long each depth is tried.
    pub window: Duration,
    /// `latency_percentile`: how many of a hundred.
    pub percentile: f64,
    /// `latency_run`: the job goes on, and the depth follows.
    pub goes_on: bool,
}

/// How slow a copy may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateMin {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// `rate_cycle`: on average over this time.
    pub cycle: Duration,
}

/// Pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// How long each is, from when nothing is in flight.
    pub time: Duration,
    /// `thinktime_blocks`: after how many requests there is one.
    pub blocks: u32,
}

/// How a worker waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Polling {
    /// At full speed of a core.
    Spin,
    /// At full speed until nothing came for this long, then asleep; at once after a wait of more
    /// than twice as long.
    Adaptive(Duration),
    /// Asleep.
    Sleep,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            name: "weft".to_owned(),
            pattern: Pattern::RandRead,
            modifier: Modifier::None,
            zones: None,
            read_percent: 50.0,
            block_bytes: 4096,
            sizes: [None, None, None],
            align_bytes: None,
            spread: Spread::Uniform,
            random_map: true,
            random_percent: 100,
            depth: 1,
            copies: 1,
            offset: Extent::Bytes(0),
            offset_increment: Extent::Bytes(0),
            size: None,
            io_size: None,
            number_ios: None,
            loops: 1,
            runtime: None,
            time_based: false,
            ramp: Duration::ZERO,
            start_delay: (Duration::ZERO, Duration::ZERO),
            rate: None,
            rate_min: None,
            think: None,
            flush_every: 0,
            flush_at_end: false,
            express: false,
            cpus: Vec::new(),
            seed: 0x7765_6674,
            verify: false,
            checksum: Checksum::Crc32c,
            verify_pattern: None,
            read_back: true,
            polling: Polling::Adaptive(Duration::from_micros(100)),
            driver: DriverKind::Auto,
            durable: false,
            verify_backlog: None,
            logs: Logs::default(),
            replay: None,
            latency_target: None,
            percentiles: None,
            percentiles_of_lat: false,
        }
    }
}

/// The runtime of a job that has no other end.
pub const RUNTIME_DEFAULT: Duration = Duration::from_secs(10);

/// A job as it runs on one device: everything derived and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where each lane works.
    pub regions: Vec<Region>,
    /// When to end.
    pub runtime: Option<Duration>,
    /// Pool of a worker that runs so many lanes.
    pub pool_bytes_of_lane: usize,
}

/// Where a lane works, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first device block.
    pub first_block: u64,
    /// How long it is: a multiple of the shortest request.
    pub bytes: u64,
    /// After so many bytes everything is done once.
    pub pass_bytes: u64,
    /// After how many bytes to end.
    pub end_bytes: Option<u64>,
    /// After how many requests to end.
    pub end_requests: Option<u64>,
    /// How many of its bytes verification reads back at the end, at most.
    pub read_back_bytes: u64,
}

impl Region {
    /// How much there is to do, if that has an end: bytes, also of what is read back.
    pub(crate) fn work_bytes(&self, mean: f64) -> Option<u64> {
        let of_requests = self.end_requests.map(|requests| whole(requests as f64 * mean));
        let ends = [self.end_bytes, of_requests];
        Some(ends.into_iter().flatten().min()? + self.read_back_bytes)
    }
}

impl Job {
    /// The lengths of the requests of a direction.
    #[must_use]
    pub fn sizes(&self, direction: Direction) -> Sizes {
        let own = self.sizes.get(direction as usize).cloned().flatten();
        own.unwrap_or(Sizes::Fixed(self.block_bytes))
    }

    fn of_all_directions<T>(&self, of: impl Fn(&Sizes) -> T) -> impl Iterator<Item = T> {
        self.pattern.directions().map(move |direction| of(&self.sizes(direction)))
    }

    /// The largest power of two of which its requests' lengths and places are multiples, up to
    /// 4096: what a block of a device is at most.
    #[must_use]
    pub fn granularity(&self) -> u32 {
        let extents = [self.offset, self.offset_increment].map(|extent| match extent {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(_) => 0,
        });
        let hole = match self.modifier {
            Modifier::Hole(bytes) => bytes.unsigned_abs(),
            _ => 0,
        };
        let lengths = self.of_all_directions(Sizes::lengths).flatten().chain(self.align_bytes);
        let all = lengths.map(u64::from).chain(extents).chain([hole]).fold(4096, |all, n| all | n);
        1 << all.trailing_zeros().min(12)
    }

    /// The shortest request.
    #[must_use]
    pub fn shortest(&self) -> u32 {
        self.of_all_directions(Sizes::min).min().unwrap_or(self.block_bytes)
    }

    /// The longest request.
    #[must_use]
    pub fn longest(&self) -> u32 {
        self.of_all_directions(Sizes::max).max().unwrap_or(self.block_bytes)
    }

    /// The mean length of its requests.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        if let Some(replay) = &self.replay {
            return replay.mean_bytes();
        }
        let mean = |direction| self.sizes(direction).mean();
        if self.pattern.reads() && self.pattern.writes() {
            let reads = self.read_percent / 100.0;
            return reads * mean(Direction::Read) + (1.0 - reads) * mean(Direction::Write);
        }
        self.pattern.directions().map(mean).next().unwrap_or(0.0)
    }

    /// Whether every place comes once before any comes again.
    #[must_use]
    pub fn has_map(&self) -> bool {
        self.random_map && self.spread == Spread::Uniform
    }

    /// Whether something is written whose contents are checked.
    #[must_use]
    pub fn writes_to_verify(&self) -> bool {
        self.verify && self.pattern.writes()
    }

    /// Works out what the job is on a device.
    ///
    /// # Errors
    /// What in the job contradicts itself or the device.
    pub fn plan(&self, geometry: &Geometry) -> Result<Plan, JobError> {
        self.check()?;
        self.check_device(geometry)?;
        if let Some(replay) = &self.replay {
            return self.plan_replay(replay, geometry);
        }
        let unit = u64::from(self.shortest());
        let device = geometry.bytes();
        let regions = (0..u64::from(self.copies)).map(|copy| self.region(copy, geometry, unit));
        let regions = regions.collect::<Result<Vec<Region>, JobError>>()?;
        if let Some(region) =
            regions.iter().find(|region| self.verify && region.bytes / unit > VERIFY_UNITS_MAX)
        {
            return Err(JobError(format!(
                "verification remembers at most {VERIFY_UNITS_MAX} blocks of a copy, not {}: \
                 give a smaller size",
                region.bytes / unit
            )));
        }
        debug_assert!(regions.iter().all(|region| region.bytes <= device));
        let pool_bytes_of_lane = self.buffer_bytes() * self.depth as usize;
        Ok(Plan { regions, runtime: self.end_time(), pool_bytes_of_lane })
    }

    fn plan_replay(&self, replay: &Replay, geometry: &Geometry) -> Result<Plan, JobError> {
        let (device, block) = (geometry.bytes(), u64::from(geometry.block_bytes));
        if replay.end() > device {
            return Err(JobError(format!(
                "the recorded requests reach {} bytes, and the device has {device}",
                replay.end()
            )));
        }
        let is_whole = |at: u64| at.is_multiple_of(block);
        if !replay.requests.iter().all(|one| is_whole(one.offset) && is_whole(one.bytes.into())) {
            return Err(JobError(format!(
                "a recorded request is no multiple of the device's block of {block} bytes"
            )));
        }
        if replay.has(Direction::Trim) && !geometry.capabilities.discard {
            return Err(JobError("the device cannot deallocate blocks, and the job trims".into()));
        }
        let region = Region {
            first_block: 0,
            bytes: device,
            pass_bytes: device,
            end_bytes: None,
            end_requests: Some(replay.requests.len() as u64 * u64::from(self.loops)),
            read_back_bytes: 0,
        };
        let regions = vec![region; self.copies as usize];
        let pool_bytes_of_lane = self.buffer_bytes() * self.depth as usize;
        Ok(Plan { regions, runtime: self.runtime, pool_bytes_of_lane })
    }

    fn region(&self, copy: u64, geometry: &Geometry, unit: u64) -> Result<Region, JobError> {
        let device = geometry.bytes();
        let offset = self.offset.of(device, unit);
        let increment = self.offset_increment.of(device, unit);
        let offset = offset.saturating_add(copy.saturating_mul(increment));
        if !offset.is_multiple_of(u64::from(geometry.block_bytes)) {
            return Err(JobError(format!(
                "offset {offset} is not a multiple of the device's block of {} bytes",
                geometry.block_bytes
            )));
        }
        let after = device.saturating_sub(offset);
        let size = match self.size {
            None => after,
            Some(Extent::Percent(percent)) => Extent::Percent(percent).of(device, unit).min(after),
            Some(Extent::Bytes(size)) if size <= after => size,
            Some(Extent::Bytes(size)) => {
                return Err(JobError(format!(
                    "offset {offset} and size {size} go beyond the device's {device} bytes"
                )));
            }
        };
        // Lanes that write what they will check must not write over each other.
        let apart = self.verify && increment == 0;
        let share = if apart { size / u64::from(self.copies) } else { size };
        let bytes = share - share % unit;
        if bytes == 0 {
            return Err(JobError(format!("a region of {share} bytes holds no block of this bs")));
        }
        let first = offset + if apart { copy * bytes } else { 0 };
        let pass_bytes = self.io_size.map_or(bytes, |io_size| io_size.of(bytes, unit));
        // As in fio, where so many are trimmed and as many written.
        let times = if self.pattern.trims_and_writes() { 2 } else { 1 };
        let end_bytes = pass_bytes.saturating_mul(u64::from(self.loops)).saturating_mul(times);
        let end_bytes = (!self.is_time_based()).then_some(end_bytes);
        let is_read_back = self.writes_to_verify() && self.read_back;
        let written = end_bytes.unwrap_or(bytes).min(bytes);
        Ok(Region {
            first_block: first / u64::from(geometry.block_bytes),
            bytes,
            pass_bytes,
            end_bytes,
            end_requests: self
                .number_ios
                .filter(|_| !self.is_time_based())
                .map(|requests| requests.saturating_mul(times)),
            read_back_bytes: if is_read_back { written } else { 0 },
        })
    }

    /// How many workers the job's lanes run on: more polling threads than processors take each
    /// other's time, so that lanes beyond the processors share threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        let processors = if self.cpus.is_empty() { processors() } else { self.cpus.len() };
        (self.copies as usize).min(processors)
    }

    /// Whether only time ends it; also a job of which nothing says when it ends.
    fn is_time_based(&self) -> bool {
        let has_end = self.size.is_some()
            || self.io_size.is_some()
            || self.number_ios.is_some()
            || self.loops > 1
            || self.verify
            || self.runtime.is_some();
        self.time_based || !has_end
    }

    fn end_time(&self) -> Option<Duration> {
        self.runtime.or_else(|| self.is_time_based().then_some(RUNTIME_DEFAULT))
    }

    /// Buffers come in powers of two of at least a page.
    fn buffer_bytes(&self) -> usize {
        (self.longest() as usize).next_power_of_two().max(4096)
    }

    fn check_device(&self, geometry: &Geometry) -> Result<(), JobError> {
        let fault = |what: String| Err(JobError(what));
        let block = geometry.block_bytes;
        let lengths = self.of_all_directions(Sizes::lengths).flatten().chain(self.align_bytes);
        for bytes in lengths {
            if !bytes.is_multiple_of(block) {
                return fault(format!(
                    "bs {bytes} is not a multiple of the device's block of {block} bytes"
                ));
            }
        }
        if self.pattern.writes() && geometry.capabilities.read_only {
            return fault("the device is read-only and the job writes".to_owned());
        }
        if self.pattern.trims() && geometry.capabilities.read_only {
            return fault("the device is read-only and the job trims".to_owned());
        }
        if self.pattern.trims() && !geometry.capabilities.discard {
            return fault("the device cannot deallocate blocks, and the job trims".to_owned());
        }
        Ok(())
    }

    fn check(&self) -> Result<(), JobError> {
        let fault = |what: String| Err(JobError(what));
        for bytes in self.of_all_directions(Sizes::lengths).flatten() {
            if bytes == 0 || bytes > BLOCK_BYTES_MAX {
                return fault(format!("bs {bytes} is not within 1 to {BLOCK_BYTES_MAX}"));
            }
        }
        if self.align_bytes == Some(0) {
            return fault("a blockalign of 0 is none".to_owned());
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return fault(format!("iodepth {} is not within 1 to {DEPTH_MAX}", self.depth));
        }
        if self.copies == 0 || self.copies > COPIES_MAX {
            return fault(format!("numjobs {} is not within 1 to {COPIES_MAX}", self.copies));
        }
        if !(0.0..=100.0).contains(&self.read_percent) {
            return fault(format!("rwmixread {} is not within 0 to 100", self.read_percent));
        }
        if let Some(rate) = self.rate
            && !(rate.iops > 0.0 && rate.iops <= 1e9)
        {
            return fault(format!("rate-iops {} is not within 0 to 1e9", rate.iops));
        }
        for (is_zero, what) in [
            (self.runtime == Some(Duration::ZERO), "a runtime of 0 measures nothing"),
            (self.io_size == Some(Extent::Bytes(0)), "an io-size of 0 measures nothing"),
            (self.number_ios == Some(0), "a number-ios of 0 measures nothing"),
            (self.loops == 0, "0 loops measure nothing"),
            (
                self.zones.is_some() && (self.verify || matches!(self.modifier, Modifier::Hole(_))),
                "zonemode=strided goes with neither verify nor holes (rw=read:8k)",
            ),
            (
                self.zones.is_some_and(|zones| zones.size == 0),
                "zonemode=strided wants a zonesize: the bytes that are transferred in a zone",
            ),
            (
                self.zones.is_some_and(|zones| zones.range < u64::from(self.longest())),
                "zonerange is less than bs",
            ),
            (self.verify && self.replay.is_some(), "verify and read_iolog do not go together"),
            (self.rate.is_some() && self.replay.is_some(), "read_iolog has its own times: no rate"),
            (
                self.latency_target.is_some() && self.think.is_some(),
                "latency_target and thinktime do not go together",
            ),
        ] {
            if is_zero {
                return fault(what.to_owned());
            }
        }
        self.check_verify()?;
        let lanes = (self.copies as usize).div_ceil(self.workers());
        let pool = self.buffer_bytes() * self.depth as usize * lanes;
        if pool > POOL_BYTES_MAX - POOL_BYTES_SPARE {
            return fault(format!(
                "bs × iodepth takes {pool} bytes of buffers a worker, more than {POOL_BYTES_MAX}: \
                 make one of them smaller"
            ));
        }
        Ok(())
    }

    fn check_verify(&self) -> Result<(), JobError> {
        let fault = |what: String| Err(JobError(what));
        if !self.verify {
            return Ok(());
        }
        if self.shortest() != self.longest() {
            return fault("verify needs one bs for all requests".to_owned());
        }
        if self.verify_pattern.is_none() && self.shortest() < VERIFY_BLOCK_BYTES_MIN {
            return fault(format!("verify needs a bs of at least {VERIFY_BLOCK_BYTES_MIN}"));
        }
        let is_whole = match self.modifier {
            Modifier::None => true,
            Modifier::Hole(bytes) => bytes % i64::from(self.shortest()) == 0,
            Modifier::Run(_) | Modifier::Repeat(_) => false,
        };
        if !is_whole || self.align_bytes.is_some_and(|align| align != self.shortest()) {
            return fault("verify needs requests that begin at multiples of bs".to_owned());
        }
        if self.pattern.trims() {
            return fault("what is trimmed cannot be verified".to_owned());
        }
        Ok(())
    }
}

/// The processors that this process may use.
#[must_use]
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// What in a job cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(pub(crate) String);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(bytes: u64, block_bytes: u32) -> Geometry {
        Geometry::new(bytes, block_bytes)
    }

    fn fault(job: &Job) -> String {
        job.plan(&device(1 << 20, 4096)).expect_err("a contradiction").to_string()
    }

    fn plan(job: &Job, bytes: u64, block_bytes: u32) -> Plan {
        job.plan(&device(bytes, block_bytes)).expect("a plan")
    }

    #[test]
    fn a_job_covers_the_device_unless_told_otherwise() {
        let whole = plan(&Job::default(), (1 << 20) + 512, 512);
        assert_eq!((whole.regions[0].first_block, whole.regions[0].bytes), (0, 1 << 20));
        assert_eq!((whole.runtime, whole.regions[0].end_bytes), (Some(RUNTIME_DEFAULT), None));
        let part = Job {
            offset: Extent::Bytes(8192),
            size: Some(Extent::Bytes(65_536)),
            copies: 2,
            ..Job::default()
        };
        let part = plan(&part, 1 << 20, 4096);
        assert!(part.regions.iter().all(|r| (r.first_block, r.bytes) == (2, 65_536)));
        let percent = Job {
            offset: Extent::Percent(50),
            offset_increment: Extent::Bytes(65_536),
            size: Some(Extent::Percent(10)),
            copies: 2,
            ..Job::default()
        };
        let regions = plan(&percent, 1 << 20, 4096).regions;
        let found: Vec<_> = regions.iter().map(|r| (r.first_block, r.bytes)).collect();
        assert_eq!(found, [(128, 25 * 4096), (144, 25 * 4096)]);
    }

    #[test]
    fn lanes_that_verify_have_regions_of_their_own() {
        let job = Job { verify: true, copies: 3, pattern: Pattern::RandWrite, ..Job::default() };
        let regions = plan(&job, 1 << 20, 4096).regions;
        let first: Vec<u64> = regions.iter().map(|region| region.first_block).collect();
        assert_eq!(first, [0, 85, 170]);
        assert!(regions.iter().all(|r| r.end_bytes == Some(85 * 4096)), "one pass");
        assert!(regions.iter().all(|r| r.read_back_bytes == 85 * 4096));
    }

    /// When fio ends: with the size, the bytes, the requests, the loops or the time, whichever
    /// comes first; with the time alone where it is time-based.
    #[test]
    fn a_job_ends_as_in_fio() {
        let second = Some(Duration::from_secs(1));
        let end = |job: &Job| {
            let plan = plan(job, 1 << 20, 4096);
            (plan.runtime, plan.regions[0].end_bytes, plan.regions[0].end_requests)
        };
        let job = Job::default;
        let size = Some(Extent::Bytes(65_536));
        assert_eq!(end(&Job { size, ..job() }), (None, Some(65_536), None));
        assert_eq!(end(&Job { size, loops: 3, ..job() }), (None, Some(196_608), None));
        assert_eq!(end(&Job { runtime: second, ..job() }), (second, Some(1 << 20), None));
        let timed = Job { runtime: second, time_based: true, size, loops: 3, ..job() };
        assert_eq!(end(&timed), (second, None, None));
        let io_size = Some(Extent::Bytes(10_000));
        assert_eq!(end(&Job { io_size, ..job() }), (None, Some(10_000), None));
        let number_ios = Some(7);
        assert_eq!(end(&Job { number_ios, ..job() }), (None, Some(1 << 20), Some(7)));
    }

    #[test]
    fn workers_follow_the_processors() {
        let workers = |copies, cpus: &[usize]| {
            Job { copies, cpus: cpus.to_vec(), ..Job::default() }.workers()
        };
        assert_eq!(workers(4, &[]), processors().min(4));
        assert_eq!(workers(4, &[0, 1]), 2);
        assert_eq!(workers(1, &[0, 1]), 1);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let job = Job::default;
        assert!(fault(&Job { block_bytes: 512, ..job() }).contains("device's block of 4096"));
        assert!(fault(&Job { block_bytes: 0, ..job() }).contains("bs 0"));
        assert!(fault(&Job { block_bytes: 8 << 20, ..job() }).contains("bs 8388608"));
        assert!(fault(&Job { depth: 0, ..job() }).contains("iodepth 0"));
        assert!(fault(&Job { depth: 5000, ..job() }).contains("iodepth 5000"));
        assert!(fault(&Job { copies: 0, ..job() }).contains("numjobs 0"));
        assert!(fault(&Job { read_percent: 101.0, ..job() }).contains("rwmixread"));
        assert!(fault(&Job { offset: Extent::Bytes(100), ..job() }).contains("offset 100"));
        assert!(fault(&Job { offset: Extent::Bytes(1 << 20), ..job() }).contains("holds no block"));
        assert!(
            fault(&Job { size: Some(Extent::Bytes(2 << 20)), ..job() })
                .contains("beyond the device")
        );
        assert!(fault(&Job { size: Some(Extent::Bytes(100)), ..job() }).contains("holds no block"));
        assert!(fault(&Job { runtime: Some(Duration::ZERO), ..job() }).contains("runtime"));
        assert!(fault(&Job { io_size: Some(Extent::Bytes(0)), ..job() }).contains("io-size"));
        let rate = |iops| Some(Rate { iops, process: Process::Fixed });
        for iops in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(fault(&Job { rate: rate(iops), ..job() }).contains("rate-iops"), "{iops}");
        }
        let large = Job { block_bytes: 4 << 20, depth: 4096, ..job() };
        assert!(fault(&large).contains("bs × iodepth"));
        let trim = Job { pattern: Pattern::RandTrim, ..job() };
        assert!(fault(&trim).contains("cannot deallocate"));
        let mixed = [Some(Sizes::Fixed(4096)), Some(Sizes::Fixed(8192)), None];
        let mixed = Job { sizes: mixed, verify: true, pattern: Pattern::RandRw, ..job() };
        assert!(fault(&mixed).contains("one bs"));
        let mut read_only = device(1 << 20, 4096);
        read_only.capabilities.read_only = true;
        let write = Job { pattern: Pattern::Write, ..job() };
        assert!(write.plan(&read_only).is_err_and(|e| e.to_string().contains("read-only")));
        let many = Job { verify: true, ..job() };
        let huge = many.plan(&device(1 << 50, 4096));
        assert!(huge.is_err_and(|e| e.to_string().contains("smaller size")));
    }
}
