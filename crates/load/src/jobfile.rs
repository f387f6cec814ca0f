//! fio's jobs: what a section of a job file, or a command line, says.
//!
//! A word is looked up in one [table](words), wherever it comes from; together they become a
//! [`Section`], which is a [`Job`] and what fio says about it besides. A word that is not done is
//! refused with a sentence that says what to use; none is misread.

pub mod ini;
mod values;
pub mod words;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft_reactor::DriverKind;

use self::words::Effect;
use crate::job::{Backlog, Extent, Job, LatencyTarget, Polling, Rate, RateMin, Think};
use crate::logs::Logs;
use crate::pacer::Process;
use crate::pattern::sizes::Sizes;
use crate::pattern::spread::Spread;
use crate::pattern::{Direction, Modifier, Pattern, Zones};
use crate::replay::{Replay, Timing};
use crate::verify::checksum::Checksum;

/// A job, and what is said about it besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The job.
    pub job: Job,
    /// What it drives, with the directory before it.
    pub filename: Option<String>,
    /// Past the page cache or through it; none: nothing is said.
    pub direct: Option<bool>,
    /// Completions of its block device are polled.
    pub hipri: bool,
    /// It says how completions are waited for.
    pub says_polling: bool,
    /// It begins when all before it have ended.
    pub stonewall: bool,
    /// It begins a group of reports.
    pub new_group: bool,
    /// The jobs of its group are one report.
    pub group_reporting: bool,
    /// It begins when the job of this name has ended.
    pub wait_for: Option<String>,
    /// Which jobs end when it does.
    pub exit: Option<Exit>,
    /// What has to be said aloud.
    pub notes: Vec<String>,
}

/// `exit_what`: what ends with a job that has `exitall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// The jobs of its group.
    #[default]
    Group,
    /// All that run, up to the next stonewall.
    Stonewall,
    /// All, and those that were to come.
    All,
}

/// What fio's engines come to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// One request at a time.
    Synchronous,
    /// As many as iodepth says.
    Queued,
}

impl Engine {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" => Ok(Self::Synchronous),
            "io_uring" | "libaio" | "posixaio" | "weft" => Ok(Self::Queued),
            "null" => Err("what does nothing is driven as null:SIZE (and ioengine=libaio)".into()),
            "io_uring_cmd" | "sg" | "libzbc" | "xnvme" | "libblkio" => Err(format!(
                "{name:?} sends commands past the block layer: io_uring drives the same device"
            )),
            _ => Err(format!(
                "{name:?} drives no block device: there are sync, psync, libaio, io_uring and \
                 their relatives; leave it out for NVMe over Fabrics, the address says it"
            )),
        }
    }
}

/// What is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verification {
    #[default]
    Nothing,
    /// Every byte, and this checksum in each block's header.
    Header(Checksum),
    /// The same, where fio has a checksum that weft has not.
    OtherChecksum,
    /// Every byte of a pattern.
    Pattern,
}

impl Verification {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "0" => Ok(Self::Nothing),
            "crc32c" | "crc32c-intel" => Ok(Self::Header(Checksum::Crc32c)),
            "md5" => Ok(Self::Header(Checksum::Md5)),
            "sha256" => Ok(Self::Header(Checksum::Sha256)),
            "xxhash" => Ok(Self::Header(Checksum::Xxhash)),
            "crc64" | "crc32" | "crc16" | "crc7" | "sha512" | "sha1" | "sha3-224" | "sha3-256"
            | "sha3-384" | "sha3-512" | "meta" => Ok(Self::OtherChecksum),
            "pattern" => Ok(Self::Pattern),
            "null" => Err("verify=null checks nothing: leave it out".to_owned()),
            _ => Err(format!("{name:?} is none of crc32c, md5, sha256, xxhash, pattern")),
        }
    }
}

/// What words say about verification.
#[derive(Clone, Debug)]
struct Verify {
    what: Verification,
    pattern: Option<Vec<u8>>,
    /// Whether a job of writes reads them back.
    read_back: bool,
    backlog: u32,
    backlog_batch: Option<u32>,
}

impl Default for Verify {
    fn default() -> Self {
        Self {
            what: Verification::Nothing,
            pattern: None,
            read_back: true,
            backlog: 0,
            backlog_batch: None,
        }
    }
}

/// What words say about a latency to be kept.
#[derive(Clone, Copy, Debug)]
struct Target {
    latency: Duration,
    window: Duration,
    percentile: f64,
    goes_on: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self { latency: Duration::ZERO, window: Duration::ZERO, percentile: 100.0, goes_on: false }
    }
}

/// Where words come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A job file: what is not said is as in fio.
    File,
    /// weft's command line: what is not said is a short random read.
    CommandLine,
}

/// What words have set so far.
#[derive(Clone, Debug)]
struct Draft {
    kilo: u64,
    name: Option<String>,
    pattern: Option<Pattern>,
    modifier: Option<String>,
    /// Without `zonemode` a `zonesize` says it, as in fio.
    is_strided: Option<bool>,
    zones: Zones,
    is_identical: bool,
    read_percent: f64,
    sizes: [Option<Sizes>; 3],
    split: [Option<Sizes>; 3],
    align: Option<u32>,
    spread: Spread,
    no_map: bool,
    random_percent: u32,
    depth: u32,
    copies: u32,
    size: Option<Extent>,
    file_size: Option<Extent>,
    io_size: Option<Extent>,
    offset: Extent,
    offset_increment: Extent,
    number_ios: Option<u64>,
    loops: u32,
    runtime: Option<Duration>,
    time_based: bool,
    ramp: Duration,
    start_delay: (Duration, Duration),
    rate: [Option<u64>; 3],
    rate_iops: [Option<f64>; 3],
    rate_min: [Option<u64>; 3],
    rate_iops_min: [Option<f64>; 3],
    rate_cycle: Duration,
    process: Process,
    think_time: Duration,
    think_blocks: u32,
    flush_every: u32,
    flush_at_end: bool,
    durable: bool,
    verify: Verify,
    seed: Option<u64>,
    repeats: bool,
    filename: Option<String>,
    directory: Option<String>,
    engine: Option<Engine>,
    direct: Option<bool>,
    hipri: bool,
    express: bool,
    cpus: Vec<usize>,
    polling: Option<Polling>,
    says_polling: bool,
    grace: Duration,
    driver: DriverKind,
    stonewall: bool,
    new_group: bool,
    group_reporting: bool,
    wait_for: Option<String>,
    exit_all: bool,
    exit_what: Exit,
    percentiles: Option<Vec<f64>>,
    percentiles_of_lat: bool,
    target: Target,
    logs: Logs,
    replay: Option<String>,
    replay_timing: Timing,
    replay_redirect: Option<String>,
    notes: Vec<String>,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            kilo: 1024,
            name: None,
            pattern: None,
            modifier: None,
            is_strided: None,
            zones: Zones { size: 0, range: 0, skip: 0 },
            is_identical: false,
            read_percent: 50.0,
            sizes: [None, None, None],
            split: [None, None, None],
            align: None,
            spread: Spread::Uniform,
            no_map: false,
            random_percent: 100,
            depth: 1,
            copies: 1,
            size: None,
            file_size: None,
            io_size: None,
            offset: Extent::Bytes(0),
            offset_increment: Extent::Bytes(0),
            number_ios: None,
            loops: 1,
            runtime: None,
            time_based: false,
            ramp: Duration::ZERO,
            start_delay: (Duration::ZERO, Duration::ZERO),
            rate: [None; 3],
            rate_iops: [None; 3],
            rate_min: [None; 3],
            rate_iops_min: [None; 3],
            rate_cycle: Duration::from_secs(1),
            process: Process::Fixed,
            think_time: Duration::ZERO,
            think_blocks: 1,
            flush_every: 0,
            flush_at_end: false,
            durable: false,
            verify: Verify::default(),
            seed: None,
            repeats: true,
            filename: None,
            directory: None,
            engine: None,
            direct: None,
            hipri: false,
            express: false,
            cpus: Vec::new(),
            polling: None,
            says_polling: false,
            grace: Duration::from_micros(100),
            driver: DriverKind::Auto,
            stonewall: false,
            new_group: false,
            group_reporting: false,
            wait_for: None,
            exit_all: false,
            exit_what: Exit::Group,
            percentiles: None,
            percentiles_of_lat: false,
            target: Target::default(),
            logs: Logs::default(),
            replay: None,
            replay_timing: Timing { is_kept: true, percent: 100.0 },
            replay_redirect: None,
            notes: Vec::new(),
        }
    }
}

/// The jobs of a job file.
///
/// # Errors
/// The line that cannot be read, or the word that is refused and what to use in its place.
pub fn read(path: &Path) -> Result<Vec<Section>, String> {
    ini::read(path)?.iter().map(of_file).collect()
}

/// A section of a job file as a job.
///
/// # Errors
/// As [`read`].
pub fn of_file(section: &ini::Section) -> Result<Section, String> {
    let mut draft = Draft { name: Some(section.name.clone()), ..Draft::default() };
    // What a size means follows from kb_base, wherever that stands.
    let (base, others): (Vec<_>, Vec<_>) =
        section.lines.iter().partition(|line| line.word == "kb_base");
    for line in base.into_iter().chain(others) {
        draft
            .take(&line.word, line.value.as_deref())
            .map_err(|error| format!("{}: {}: {error}", line.place, line.word))?;
    }
    draft.finish(Origin::File).map_err(|error| format!("job {:?}: {error}", section.name))
}

/// The words of a command line as a job.
///
/// # Errors
/// As [`read`].
pub fn of_command_line<'a>(
    words: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Section, String> {
    let mut draft = Draft::default();
    for (word, value) in words {
        let named = || word.replace('_', "-");
        draft.take(word, value).map_err(|error| format!("--{}: {error}", named()))?;
    }
    draft.finish(Origin::CommandLine)
}

impl Draft {
    fn take(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let Some(word) = words::find(name) else {
            let known = words::WORDS.iter().map(|word| word.name);
            return Err(match weft_backend::nearest(&name.replace('-', "_"), known) {
                Some(meant) => format!("weft does not know this word: did you mean {meant}?"),
                None => "weft does not know this word: leave it out where it makes no difference"
                    .to_owned(),
            });
        };
        let text = match value {
            // These quotes tell a text from a number.
            Some(value) if word.name == "verify_pattern" => value.trim(),
            Some(value) => value.trim().trim_matches('"'),
            None if word.may_be_bare => "",
            None => return Err("it wants a value".to_owned()),
        };
        match word.effect {
            Effect::Set(set) => set(self, text),
            Effect::Nothing => Ok(()),
            Effect::Note(sentence) => {
                self.notes.push(format!("{name}: {sentence}"));
                Ok(())
            }
            Effect::Only(accepted, _) if accepted == text => Ok(()),
            Effect::Refused(_) if text == "0" => Ok(()),
            Effect::Only(_, sentence) | Effect::Refused(sentence) | Effect::Never(sentence) => {
                Err(format!("this is not done: {sentence}"))
            }
        }
    }

    fn pattern(&mut self, text: &str) -> Result<(), String> {
        let (name, modifier) = text.split_once(':').map_or((text, None), |(n, m)| (n, Some(m)));
        self.pattern = Some(name.parse().map_err(|error| format!("{error}"))?);
        self.modifier = modifier.map(str::to_owned);
        Ok(())
    }

    fn driver(&mut self, text: &str) -> Result<(), String> {
        let known = DriverKind::named(text);
        self.driver = known.ok_or_else(|| format!("{text:?} is none of auto, uring, epoll"))?;
        Ok(())
    }

    /// Directions of which nothing is said keep what they had.
    fn merge_sizes(&mut self, sizes: [Option<Sizes>; 3]) {
        for (mine, new) in self.sizes.iter_mut().zip(sizes) {
            if new.is_some() {
                *mine = new;
            }
        }
    }

    fn finish(mut self, origin: Origin) -> Result<Section, String> {
        let mut job = self.job(origin)?;
        self.set_sizes(&mut job);
        self.set_rates(&mut job)?;
        self.set_verification(&mut job)?;
        self.set_target(&mut job)?;
        self.set_logs(&mut job);
        self.set_replay(&mut job)?;
        if !self.think_time.is_zero() {
            job.think = Some(Think { time: self.think_time, blocks: self.think_blocks.max(1) });
        }
        if origin == Origin::File && job.size.is_none() {
            // A job of a file covers its device once, as in fio, where nothing else is said.
            job.size = Some(Extent::Percent(100));
        }
        if self.time_based && self.runtime.is_none() && origin == Origin::File {
            return Err("time_based wants a runtime, after which the job ends".to_owned());
        }
        Ok(Section {
            job,
            filename: self.path(),
            direct: self.direct,
            hipri: self.hipri,
            says_polling: self.says_polling,
            stonewall: self.stonewall,
            new_group: self.new_group,
            group_reporting: self.group_reporting,
            wait_for: self.wait_for,
            exit: self.exit_all.then_some(self.exit_what),
            notes: self.notes,
        })
    }

    /// The job as far as each word says one thing of it.
    fn job(&mut self, origin: Origin) -> Result<Job, String> {
        let default = Job::default();
        let pattern = match (self.pattern, origin) {
            (Some(pattern), _) => pattern,
            (None, Origin::File) => Pattern::Read,
            (None, Origin::CommandLine) => default.pattern,
        };
        Ok(Job {
            name: self.name.clone().unwrap_or(default.name),
            pattern,
            modifier: self.modifier(pattern)?,
            zones: self.zones(),
            read_percent: self.read_percent,
            align_bytes: self.align,
            spread: self.spread.clone(),
            random_map: !self.no_map,
            random_percent: self.random_percent,
            depth: self.depth(origin),
            copies: self.copies,
            offset: self.offset,
            offset_increment: self.offset_increment,
            size: self.size.or(self.file_size),
            io_size: self.io_size,
            number_ios: self.number_ios,
            loops: self.loops,
            runtime: self.runtime,
            time_based: self.time_based,
            ramp: self.ramp,
            start_delay: self.start_delay,
            flush_every: self.flush_every,
            flush_at_end: self.flush_at_end,
            durable: self.durable,
            express: self.express,
            cpus: self.cpus.clone(),
            polling: self.polling.unwrap_or(Polling::Adaptive(self.grace)),
            driver: self.driver,
            seed: self.seed(default.seed),
            percentiles: self.percentiles.clone(),
            percentiles_of_lat: self.percentiles_of_lat,
            ..default
        })
    }

    /// What is driven, with its directory.
    fn path(&mut self) -> Option<String> {
        let name = self.filename.take()?;
        match &self.directory {
            Some(directory) if !name.starts_with('/') => Some(format!("{directory}/{name}")),
            _ => Some(name),
        }
    }

    /// fio's own engine is synchronous; weft's is not.
    fn depth(&mut self, origin: Origin) -> u32 {
        let engine = match (self.engine, origin) {
            (Some(engine), _) => engine,
            (None, Origin::File) => Engine::Synchronous,
            (None, Origin::CommandLine) => Engine::Queued,
        };
        if engine == Engine::Queued || self.depth == 1 {
            return self.depth;
        }
        let why = if self.engine.is_none() { "without an ioengine, fio's is" } else { "that is" };
        self.notes.push(format!(
            "iodepth={} is 1, as in fio: {why} synchronous; ioengine=libaio keeps {} in flight",
            self.depth, self.depth
        ));
        1
    }

    fn seed(&self, default: u64) -> u64 {
        match self.seed {
            Some(seed) => seed,
            None if self.repeats => default,
            None => u64::try_from(weft_reactor::monotonic_time().as_nanos()).unwrap_or(default),
        }
    }

    /// A zone is as long as what is transferred in it, unless something else is said.
    fn zones(&self) -> Option<Zones> {
        let Zones { size, range, skip } = self.zones;
        let zones = Zones { size, range: if range > 0 { range } else { size }, skip };
        self.is_strided.unwrap_or(size > 0).then_some(zones)
    }

    fn modifier(&self, pattern: Pattern) -> Result<Modifier, String> {
        let Some(text) = &self.modifier else { return Ok(Modifier::None) };
        if pattern.is_random() {
            let count = values::count(text)?;
            let count = u32::try_from(count).ok().filter(|count| *count > 0);
            let count = count.ok_or_else(|| format!("{text:?} is no number of requests"))?;
            return Ok(match self.is_identical {
                true => Modifier::Repeat(count),
                false => Modifier::Run(count),
            });
        }
        if self.is_identical {
            return Err("rw_sequencer=identical is for random patterns here".to_owned());
        }
        let (sign, size) = text.strip_prefix('-').map_or((1, text.as_str()), |size| (-1, size));
        let bytes = i64::try_from(values::bytes(size, self.kilo)?);
        bytes.map(|bytes| Modifier::Hole(sign * bytes)).map_err(|_| format!("{text} is too large"))
    }

    /// Sizes of a direction that are split replace its size.
    fn set_sizes(&self, job: &mut Job) {
        let of = |direction: Direction| {
            let given =
                |sizes: &[Option<Sizes>; 3]| sizes.get(direction as usize).cloned().flatten();
            given(&self.split).or_else(|| given(&self.sizes)).unwrap_or(Sizes::Fixed(4096))
        };
        let all = [Direction::Read, Direction::Write, Direction::Trim].map(of);
        let first = job.pattern.directions().next().map_or(Sizes::Fixed(4096), of);
        match first {
            Sizes::Fixed(bytes) if job.pattern.directions().all(|d| of(d) == first) => {
                job.block_bytes = bytes;
            }
            _ => {
                job.block_bytes = first.min();
                job.sizes = all.map(Some);
            }
        }
    }

    /// Rates are for each direction; together they are one, and the mix is theirs.
    fn set_rates(&self, job: &mut Job) -> Result<(), String> {
        let of = |direction: Direction| {
            let index = direction as usize;
            let by_bytes = self.rate.get(index).copied().flatten();
            let by_bytes = by_bytes.map(|rate| rate as f64 / job.sizes(direction).mean());
            let by_requests = self.rate_iops.get(index).copied().flatten();
            match (by_bytes, by_requests) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        };
        let rates: Vec<Option<f64>> = job.pattern.directions().map(of).collect();
        let given: Vec<f64> = rates.iter().copied().flatten().collect();
        if !given.is_empty() && given.len() < rates.len() {
            return Err("a rate of one direction of a mix is not done: give both".to_owned());
        }
        let iops: f64 = given.iter().sum();
        if let [read, _] = given.as_slice() {
            job.read_percent = 100.0 * read / iops;
        }
        if !given.is_empty() {
            job.rate = Some(Rate { iops, process: self.process });
        }
        // The sum of no numbers is -0.
        let sum = |rates: [Option<f64>; 3]| -> f64 {
            let given = |d: Direction| rates.get(d as usize).copied().flatten();
            job.pattern.directions().filter_map(given).fold(0.0, |sum, rate| sum + rate)
        };
        let bytes = sum(self.rate_min.map(|rate| rate.map(|rate| rate as f64)));
        let requests = sum(self.rate_iops_min);
        if bytes > 0.0 || requests > 0.0 {
            job.rate_min = Some(RateMin { iops: requests, bytes, cycle: self.rate_cycle });
        }
        Ok(())
    }

    fn set_verification(&mut self, job: &mut Job) -> Result<(), String> {
        let Verify { what, read_back, backlog, backlog_batch, .. } = self.verify;
        job.verify = what != Verification::Nothing;
        job.read_back = read_back;
        if backlog > 0 {
            let batch = backlog_batch.unwrap_or(backlog);
            job.verify_backlog = Some(Backlog { blocks: backlog, batch });
        }
        if job.verify && job.copies > 1 && job.offset_increment == Extent::Bytes(0) {
            self.notes.push(format!(
                "numjobs={0} with verify: each copy has 1/{0} of the region, so that none writes \
                 over what another verifies (in fio each has all of it); offset_increment \
                 chooses the regions",
                job.copies
            ));
        }
        let pattern = self.verify.pattern.take();
        match what {
            Verification::Pattern => {
                job.verify_pattern = Some(pattern.ok_or("verify=pattern wants verify_pattern")?);
            }
            Verification::Nothing => {}
            Verification::Header(_) | Verification::OtherChecksum if pattern.is_some() => {
                return Err("verify_pattern goes with verify=pattern".to_owned());
            }
            Verification::OtherChecksum => self.notes.push(
                "verify: blocks carry CRC32C, for this checksum is not done, and every byte is \
                 compared: fio verifies them with verify=crc32c"
                    .to_owned(),
            ),
            Verification::Header(checksum) => job.checksum = checksum,
        }
        Ok(())
    }

    fn set_target(&self, job: &mut Job) -> Result<(), String> {
        let Target { latency, window, percentile, goes_on } = self.target;
        if latency.is_zero() {
            return Ok(());
        }
        if window.is_zero() {
            return Err("latency_target wants a latency_window".to_owned());
        }
        if !(percentile > 0.0 && percentile <= 100.0) {
            return Err("latency_percentile is above 0 and at most 100".to_owned());
        }
        job.latency_target = Some(LatencyTarget { latency, window, percentile, goes_on });
        Ok(())
    }

    /// Without a name logs have the job's.
    fn set_logs(&self, job: &mut Job) {
        job.logs = self.logs.clone();
        for name in [&mut job.logs.latency, &mut job.logs.iops, &mut job.logs.bandwidth] {
            if name.as_deref().is_some_and(str::is_empty) {
                *name = Some(job.name.clone());
            }
        }
    }

    /// What was recorded is in place of a pattern.
    fn set_replay(&mut self, job: &mut Job) -> Result<(), String> {
        let Some(path) = &self.replay else { return Ok(()) };
        if self.replay_timing.percent <= 0.0 {
            return Err("replay_time_scale is above 0".to_owned());
        }
        let replay = Replay::read(path, self.replay_timing)
            .map_err(|error| format!("read_iolog: {error}"))?;
        let writes = replay.has(Direction::Write) || replay.has(Direction::Trim);
        job.pattern = match (replay.has(Direction::Read), writes) {
            (true, true) => Pattern::ReadWrite,
            (_, false) => Pattern::Read,
            (false, true) => Pattern::Write,
        };
        (job.modifier, job.sizes) = (Modifier::None, [None, None, None]);
        job.block_bytes = replay.longest().max(512);
        match (self.replay_redirect.take(), replay.devices.as_slice()) {
            (Some(device), _) => self.filename = Some(device),
            (None, [device]) => self.filename = Some(device.clone()),
            (None, []) => {}
            (None, _) => {
                return Err(format!(
                    "{path} names several devices: give the one to drive as replay_redirect"
                ));
            }
        }
        job.replay = Some(Arc::new(replay));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
