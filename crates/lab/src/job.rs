//! What is to be done, in fio's words.

use std::{fmt, thread, time::Duration};

use weft_backend::Geometry;
use weft_reactor::DriverKind;

use crate::{
    limits::{
        BLOCK_BYTES_MAX, COPIES_MAX, DEPTH_MAX, POOL_BYTES_MAX, POOL_BYTES_SPARE,
        VERIFY_BLOCK_BYTES_MIN, VERIFY_UNITS_MAX,
    },
    pacer::Process,
    pattern::Pattern,
};

/// A job. [`Job::default`] is a closed loop of 4 KiB random reads at depth 1 for 10 s.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name in reports.
    pub name: String,
    /// `rw`: which blocks, in which order, which way.
    pub pattern: Pattern,
    /// `rwmixread`: of a hundred requests of a mixed pattern so many read.
    pub read_percent: u8,
    /// `bs`: bytes of each request.
    pub block_bytes: u32,
    /// `iodepth`: requests in flight, of each copy.
    pub depth: u32,
    /// `numjobs`: copies of the job that run side by side.
    pub copies: u32,
    /// `offset`: where the region begins.
    pub offset_bytes: u64,
    /// `size`: how long the region is; to the end of the device if not given.
    pub size_bytes: Option<u64>,
    /// `io_size`: end after so many bytes, of each copy.
    pub io_bytes: Option<u64>,
    /// `runtime`: end after this time. Where neither it nor `io_bytes` is given, a verified job
    /// ends after one pass over its region and any other after 10 s.
    pub runtime: Option<Duration>,
    /// `ramp_time`: run for so long before anything counts.
    pub ramp: Duration,
    /// `rate_iops` and `rate_process`: an open loop.
    pub rate: Option<Rate>,
    /// `cpus_allowed`: a worker on each of these, and the copies spread over them; none: workers
    /// that are not pinned, as many as there are copies or processors, whichever is fewer.
    pub cpus: Vec<usize>,
    /// `randseed`.
    pub seed: u64,
    /// `verify`: write blocks that can be recognised, and read them back.
    pub verify: bool,
    /// How workers wait.
    pub polling: Polling,
    /// Which of the kernel's interfaces the workers' reactors use.
    pub driver: DriverKind,
    /// Writes that survive a loss of power before they complete (force unit access).
    pub durable: bool,
}

/// An open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second, of each copy.
    pub iops: f64,
    /// How they follow each other.
    pub process: Process,
}

/// How a worker waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// At full speed of a core.
    Spin,
    /// At full speed until nothing came for this long, then asleep.
    Adaptive(Duration),
    /// Asleep.
    Sleep,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            name: "weft".to_owned(),
            pattern: Pattern::RandRead,
            read_percent: 50,
            block_bytes: 4096,
            depth: 1,
            copies: 1,
            offset_bytes: 0,
            size_bytes: None,
            io_bytes: None,
            runtime: None,
            ramp: Duration::ZERO,
            rate: None,
            cpus: Vec::new(),
            seed: 0x7765_6674,
            verify: false,
            polling: Polling::Adaptive(Duration::from_micros(100)),
            driver: DriverKind::Auto,
            durable: false,
        }
    }
}

/// The runtime of a job that has no other end.
pub const RUNTIME_DEFAULT: Duration = Duration::from_secs(10);

/// A job as it runs on one device: everything derived and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Device blocks of one request.
    pub blocks: u32,
    /// Requests that fit in the region of one lane.
    pub units: u64,
    /// First device block of each lane's region.
    pub first_block: Vec<u64>,
    /// When to end.
    pub runtime: Option<Duration>,
    /// After how many requests to end.
    pub requests: Option<u64>,
    /// How many blocks of each lane verification reads back at the end, at most.
    pub read_back: u64,
    /// Pool of a worker that runs so many lanes.
    pub pool_bytes_of_lane: usize,
}

impl Job {
    /// Works out what the job is on a device.
    ///
    /// # Errors
    /// What in the job contradicts itself or the device.
    pub fn plan(&self, geometry: &Geometry) -> Result<Plan, JobError> {
        self.check()?;
        let unit_bytes = u64::from(self.block_bytes);
        if !self.block_bytes.is_multiple_of(geometry.block_bytes) {
            return Err(JobError(format!(
                "bs {} is not a multiple of the device's block of {} bytes",
                self.block_bytes, geometry.block_bytes
            )));
        }
        if self.pattern.writes() && geometry.capabilities.read_only {
            return Err(JobError("the device is read-only and the job writes".to_owned()));
        }
        if !self.offset_bytes.is_multiple_of(u64::from(geometry.block_bytes)) {
            return Err(JobError(format!(
                "offset {} is not a multiple of the device's block of {} bytes",
                self.offset_bytes, geometry.block_bytes
            )));
        }
        let after = geometry.bytes().saturating_sub(self.offset_bytes);
        let size = self.size_bytes.unwrap_or(after);
        if size > after {
            return Err(JobError(format!(
                "offset {} and size {size} go beyond the device's {} bytes",
                self.offset_bytes,
                geometry.bytes()
            )));
        }
        // Lanes that write what they will check must not write over each other.
        let share = if self.verify { size / u64::from(self.copies) } else { size };
        let units = share / unit_bytes;
        if units == 0 {
            return Err(JobError(format!("a region of {share} bytes holds no block of this bs")));
        }
        if self.verify && units > VERIFY_UNITS_MAX {
            return Err(JobError(format!(
                "verification remembers at most {VERIFY_UNITS_MAX} blocks of a copy, not {units}: \
                 give a smaller size"
            )));
        }
        let blocks = self.block_bytes / geometry.block_bytes;
        let first = self.offset_bytes / u64::from(geometry.block_bytes);
        let stride = if self.verify { units * u64::from(blocks) } else { 0 };
        let first_block = (0..u64::from(self.copies)).map(|copy| first + copy * stride).collect();
        let (runtime, requests) = self.end(units);
        let pool_bytes_of_lane = self.buffer_bytes() * self.depth as usize;
        let is_read_back = self.verify && self.pattern.writes();
        let read_back = if is_read_back { requests.map_or(units, |n| n.min(units)) } else { 0 };
        Ok(Plan { blocks, units, first_block, runtime, requests, read_back, pool_bytes_of_lane })
    }

    /// How many workers the job's lanes run on: more polling threads than processors take each
    /// other's time, so that lanes beyond the processors share threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        let processors = if self.cpus.is_empty() { processors() } else { self.cpus.len() };
        (self.copies as usize).min(processors)
    }

    fn end(&self, units: u64) -> (Option<Duration>, Option<u64>) {
        let requests = self.io_bytes.map(|bytes| bytes.div_ceil(u64::from(self.block_bytes)));
        match (self.runtime, requests) {
            (None, None) if self.verify => (None, Some(units)),
            (None, None) => (Some(RUNTIME_DEFAULT), None),
            given => given,
        }
    }

    /// Buffers come in powers of two of at least a page.
    fn buffer_bytes(&self) -> usize {
        (self.block_bytes as usize).next_power_of_two().max(4096)
    }

    fn check(&self) -> Result<(), JobError> {
        let fault = |what: String| Err(JobError(what));
        if self.block_bytes == 0 || self.block_bytes > BLOCK_BYTES_MAX {
            return fault(format!("bs {} is not within 1 to {BLOCK_BYTES_MAX}", self.block_bytes));
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return fault(format!("iodepth {} is not within 1 to {DEPTH_MAX}", self.depth));
        }
        if self.copies == 0 || self.copies > COPIES_MAX {
            return fault(format!("numjobs {} is not within 1 to {COPIES_MAX}", self.copies));
        }
        if self.read_percent > 100 {
            return fault(format!("rwmixread {} is more than 100", self.read_percent));
        }
        if let Some(rate) = self.rate
            && !(rate.iops > 0.0 && rate.iops <= 1e9)
        {
            return fault(format!("rate-iops {} is not within 0 to 1e9", rate.iops));
        }
        if self.runtime == Some(Duration::ZERO) {
            return fault("a runtime of 0 measures nothing".to_owned());
        }
        if self.io_bytes == Some(0) {
            return fault("an io-size of 0 measures nothing".to_owned());
        }
        if self.verify && self.block_bytes < VERIFY_BLOCK_BYTES_MIN {
            return fault(format!("verify needs a bs of at least {VERIFY_BLOCK_BYTES_MIN}"));
        }
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

    #[test]
    fn a_job_covers_the_device_unless_told_otherwise() {
        let plan = Job::default().plan(&device((1 << 20) + 512, 512)).expect("a plan");
        assert_eq!((plan.blocks, plan.units), (8, 256));
        assert_eq!(plan.first_block, [0]);
        assert_eq!((plan.runtime, plan.requests), (Some(RUNTIME_DEFAULT), None));
        let part =
            Job { offset_bytes: 8192, size_bytes: Some(65_536), copies: 2, ..Job::default() };
        let plan = part.plan(&device(1 << 20, 4096)).expect("a plan");
        assert_eq!((plan.units, plan.first_block), (16, vec![2, 2]));
    }

    #[test]
    fn lanes_that_verify_have_regions_of_their_own() {
        let job = Job { verify: true, copies: 3, pattern: Pattern::RandWrite, ..Job::default() };
        let plan = job.plan(&device(1 << 20, 4096)).expect("a plan");
        assert_eq!((plan.units, plan.first_block), (85, vec![0, 85, 170]));
        assert_eq!((plan.runtime, plan.requests), (None, Some(85)), "one pass");
    }

    #[test]
    fn a_job_ends_by_time_or_by_bytes() {
        let end = |runtime, io_bytes| {
            let job = Job { runtime, io_bytes, ..Job::default() };
            let plan = job.plan(&device(1 << 20, 4096)).expect("a plan");
            (plan.runtime, plan.requests)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(end(second, None), (second, None));
        assert_eq!(end(None, Some(10_000)), (None, Some(3)));
        assert_eq!(end(second, Some(4096)), (second, Some(1)));
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
        assert!(fault(&Job { read_percent: 101, ..job() }).contains("rwmixread"));
        assert!(fault(&Job { offset_bytes: 100, ..job() }).contains("offset 100"));
        assert!(fault(&Job { offset_bytes: 1 << 20, ..job() }).contains("holds no block"));
        assert!(fault(&Job { size_bytes: Some(2 << 20), ..job() }).contains("beyond the device"));
        assert!(fault(&Job { size_bytes: Some(100), ..job() }).contains("holds no block"));
        assert!(fault(&Job { runtime: Some(Duration::ZERO), ..job() }).contains("runtime"));
        assert!(fault(&Job { io_bytes: Some(0), ..job() }).contains("io-size"));
        let rate = |iops| Some(Rate { iops, process: Process::Fixed });
        for iops in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(fault(&Job { rate: rate(iops), ..job() }).contains("rate-iops"), "{iops}");
        }
        let large = Job { block_bytes: 4 << 20, depth: 4096, ..job() };
        assert!(fault(&large).contains("bs × iodepth"));
        let mut read_only = device(1 << 20, 4096);
        read_only.capabilities.read_only = true;
        let write = Job { pattern: Pattern::Write, ..job() };
        assert!(write.plan(&read_only).is_err_and(|e| e.to_string().contains("read-only")));
        let many = Job { verify: true, ..job() };
        let huge = many.plan(&device(1 << 50, 4096));
        assert!(huge.is_err_and(|e| e.to_string().contains("smaller size")));
    }
}
