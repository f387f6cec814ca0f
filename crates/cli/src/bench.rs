//! `weft bench`.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::{Args, ValueEnum};
use weft_backend::DeviceFactory;
use weft_host::{Controller, TransportId};
use weft_lab::{
    Job, Pattern, Polling, Rate, RunResult,
    pacer::Process,
    report::{fio, human},
};
use weft_reactor::DriverKind;

use crate::{
    connection::{Connection, NamespaceChoice, pick},
    destroy,
    failure::Failure,
    output::{self, Format, LiveLine},
    place::{self, Place},
    signals,
    within::TargetWithin,
};

/// Options of `weft bench`. Names and meanings are fio's where fio has them.
///
/// What is driven comes first: an address (nvme-tcp://HOST:4420/NQN?nsid=1), a path, or a device
/// such as memory:1GiB, null:1TiB or file:PATH,direct=off.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    load: Load,
    /// A second job on the same threads: what it has other than the first, out of iodepth, rw, bs,
    /// numjobs and rate-iops, like iodepth=256,bs=128k. A rate is not taken over.
    #[arg(long, value_name = "JOB", value_parser = beside)]
    beside: Option<Beside>,
    /// Serve the device by a target within this process and reach it over loopback: what the
    /// protocol costs without a network.
    #[arg(long)]
    loopback: bool,
    /// How to write the result; json is in fio's shape.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
    /// Write the JSON to this file as well.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The data there may be destroyed: a file or block device of this machine that the job writes
    /// to, by its name. What this run creates, and a namespace across the network, need it not.
    #[arg(long, value_name = "PATH")]
    yes_destroy: Vec<String>,
    /// No live line.
    #[arg(long)]
    quiet: bool,
}

/// What a job is made of.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// Name of the job in reports.
    #[arg(long, default_value = "weft")]
    name: String,
    /// read, write, randread, randwrite, rw or randrw.
    #[arg(long, visible_alias = "readwrite", default_value = "randread", value_parser = pattern)]
    rw: Pattern,
    /// Share of reads in a mix, in percent.
    #[arg(long, default_value_t = 50, value_name = "PERCENT")]
    rwmixread: u8,
    /// Bytes of a request.
    #[arg(long, default_value = "4k", value_parser = size32, value_name = "SIZE")]
    bs: u32,
    /// Requests in flight.
    #[arg(long, default_value_t = 1, value_name = "DEPTH")]
    iodepth: u32,
    /// Copies of the job, each with its own connection. They share threads: at most one for each
    /// processor of --cpus, or of the machine.
    #[arg(long, default_value_t = 1, value_name = "JOBS")]
    numjobs: u32,
    /// How long to run: seconds, or a time such as 500ms. 10 s unless something else ends the job.
    #[arg(long, value_parser = time, value_name = "TIME")]
    runtime: Option<Duration>,
    /// How long to run before anything counts.
    #[arg(long, alias = "ramp_time", default_value = "0", value_parser = time, value_name = "TIME")]
    ramp_time: Duration,
    /// Length of the region; to the end of the device if left out.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    size: Option<u64>,
    /// Where the region begins.
    #[arg(long, default_value = "0", value_parser = size, value_name = "SIZE")]
    offset: u64,
    /// End after so many bytes.
    #[arg(long, alias = "io_size", value_parser = size, value_name = "SIZE")]
    io_size: Option<u64>,
    /// Start so many requests a second, in each copy, whatever becomes of them (open loop); latency
    /// then counts from when each was due.
    #[arg(long, alias = "rate_iops", value_parser = rate, value_name = "IOPS")]
    rate_iops: Option<f64>,
    /// How they follow each other.
    #[arg(long, alias = "rate_process", value_enum, default_value_t)]
    rate_process: RateProcess,
    /// Processors to run on, like 0-3; jobs are spread over them.
    #[arg(long, visible_alias = "cpus-allowed", alias = "cpus_allowed")]
    #[arg(value_name = "CPUS", value_parser = cpus)]
    cpus: Option<Cpus>,
    /// Write blocks that can be recognised, and read them back during and after the job. A job that
    /// only reads checks what an earlier one wrote.
    #[arg(long, value_enum)]
    verify: Option<Verify>,
    /// Seed of everything random.
    #[arg(long, alias = "randseed", value_name = "NUMBER")]
    seed: Option<u64>,
    /// How to wait for completions.
    #[arg(long, value_enum, default_value_t)]
    polling: PollingMode,
    /// With adaptive polling: how long to look before sleeping.
    #[arg(long, default_value = "100us", value_parser = time, value_name = "TIME")]
    grace: Duration,
    /// Which of the kernel's interfaces to use.
    #[arg(long, value_enum, default_value_t)]
    driver: Driver,
    /// Writes survive a loss of power before they complete (force unit access).
    #[arg(long)]
    fua: bool,
    /// Accepted for fio's sake: a runtime is always kept.
    #[arg(long, alias = "time_based", hide = true)]
    time_based: bool,
    /// Accepted for fio's sake: all copies are always one result.
    #[arg(long, alias = "group_reporting", hide = true)]
    group_reporting: bool,
}

/// What is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// A checksum and every byte.
    Crc32c,
}

/// fio's names of the processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum RateProcess {
    /// At equal distances.
    #[default]
    #[value(alias = "fixed")]
    Linear,
    /// As independent events.
    Poisson,
}

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PollingMode {
    /// Look for a while, then sleep.
    #[default]
    Adaptive,
    /// Always look.
    Spin,
    /// Always sleep.
    Sleep,
}

/// Which driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// io_uring where it is allowed.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

impl From<Driver> for DriverKind {
    fn from(driver: Driver) -> Self {
        match driver {
            Driver::Auto => Self::Auto,
            Driver::Uring => Self::Uring,
            Driver::Epoll => Self::Epoll,
        }
    }
}

/// A list of processors; a type of its own, or clap would take it for several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

impl Load {
    /// The job that the options describe.
    pub(crate) fn job(&self) -> Job {
        let default = Job::default();
        Job {
            name: self.name.clone(),
            pattern: self.rw,
            read_percent: self.rwmixread,
            block_bytes: self.bs,
            depth: self.iodepth,
            copies: self.numjobs,
            offset_bytes: self.offset,
            size_bytes: self.size,
            io_bytes: self.io_size,
            runtime: self.runtime,
            ramp: self.ramp_time,
            rate: self.rate_iops.map(|iops| Rate {
                iops,
                process: match self.rate_process {
                    RateProcess::Linear => Process::Fixed,
                    RateProcess::Poisson => Process::Poisson,
                },
            }),
            cpus: self.cpus.clone().unwrap_or_default().0,
            seed: self.seed.unwrap_or(default.seed),
            verify: self.verify.is_some(),
            polling: match self.polling {
                PollingMode::Adaptive => Polling::Adaptive(self.grace),
                PollingMode::Spin => Polling::Spin,
                PollingMode::Sleep => Polling::Sleep,
            },
            driver: self.driver.into(),
            durable: self.fua,
        }
    }
}

/// A device to drive, and what keeps it there.
pub(crate) struct Driven {
    pub(crate) name: String,
    pub(crate) factory: Arc<dyn DeviceFactory>,
    controller: Option<Controller>,
    /// The target that serves it, if that is within this process.
    within: Option<TargetWithin>,
}

impl Driven {
    /// A device of this machine.
    pub(crate) fn local(spec: &weft_backend::DeviceSpec) -> Result<Self, Failure> {
        let factory = place::build(spec).map_err(Failure::Because)?;
        Ok(Self { name: spec.to_string(), factory, controller: None, within: None })
    }

    /// A namespace across the network.
    pub(crate) fn remote(options: &weft_host::Options, nsid: Option<u32>) -> Result<Self, Failure> {
        if options.address.is_discovery() {
            return Err(Failure::because(
                "no subsystem is named: give --nqn, or ask `weft discover` which there are",
            ));
        }
        let controller = weft_host::connect(options)?;
        let nsid = pick(&controller, nsid.or(options.address.nsid))?;
        let factory = Arc::new(controller.factory(nsid)?);
        let address = weft_host::TransportId { nsid: Some(nsid), ..options.address.clone() };
        let controller = Some(controller);
        Ok(Self { name: address.to_string(), factory, controller, within: None })
    }

    /// Lets go of it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        drop(self.factory);
        if let Some(controller) = self.controller {
            controller.disconnect()?;
        }
        self.within.map_or(Ok(()), TargetWithin::stop).map_err(Failure::Because)
    }
}

/// What a second job has other than the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Beside {
    depth: Option<u32>,
    pattern: Option<Pattern>,
    block_bytes: Option<u32>,
    copies: Option<u32>,
    iops: Option<f64>,
}

impl Beside {
    fn job(&self, first: &Job) -> Job {
        Job {
            name: format!("{}-beside", first.name),
            depth: self.depth.unwrap_or(first.depth),
            pattern: self.pattern.unwrap_or(first.pattern),
            block_bytes: self.block_bytes.unwrap_or(first.block_bytes),
            copies: self.copies.unwrap_or(1),
            rate: self.iops.map(|iops| Rate { iops, process: Process::Fixed }),
            ..first.clone()
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let first = options.load.job();
    let second = options.beside.map(|beside| beside.job(&first));
    let jobs: Vec<Job> = std::iter::once(first).chain(second).collect();
    let output = options.output.as_deref().map(Output::open).transpose()?;
    let driven = open(options, &jobs)?;
    // A thousand connections are more descriptors than some are given; what is missing then is told
    // by the connection that cannot be had.
    let _ = weft_reactor::raise_descriptor_limit();
    let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
    let mut live = LiveLine::new();
    let mut observe = |progress: &weft_lab::Progress| {
        if !options.quiet {
            live.show(&human::progress(progress));
        }
    };
    let results = match jobs.as_slice() {
        [first, second, ..] => {
            weft_lab::run_beside(first, second, &driven.factory, &stop, &mut observe)
                .map(|(first, second)| vec![first, second])
        }
        [only] => weft_lab::run(only, &driven.factory, &stop, &mut observe).map(|only| vec![only]),
        [] => Ok(Vec::new()),
    };
    live.clear();
    let results = results.map_err(|error| Failure::Because(format!("{}: {error}", driven.name)))?;
    let results: Vec<(&Job, &RunResult)> = jobs.iter().zip(&results).collect();
    report(options, &driven.name, &results, output)?;
    let closed = driven.close();
    if results.iter().any(|(_, result)| result.interrupted) {
        return Err(Failure::Exit(signals::INTERRUPTED));
    }
    if let Some((_, failed)) = results.iter().find(|(_, result)| result.failed()) {
        output::complain(&format!("weft bench: {}", fault(failed)));
        return Err(Failure::Told);
    }
    closed
}

fn open(options: &Options, jobs: &[Job]) -> Result<Driven, Failure> {
    let place = options.connection.place()?;
    if let Place::Local(spec) = &place
        && jobs.iter().any(|job| job.pattern.writes())
    {
        destroy::allow("job", destroy::existing(spec).as_slice(), &options.yes_destroy)?;
    }
    match place {
        Place::Local(spec) if options.loopback => {
            let driver = jobs.first().map(|job| job.driver).unwrap_or_default();
            let target = TargetWithin::serve(&spec, driver).map_err(Failure::Because)?;
            let driven = remote(options, target.address().clone(), jobs)?;
            Ok(Driven { name: format!("{spec} over loopback"), within: Some(target), ..driven })
        }
        Place::Local(spec) => Driven::local(&spec),
        Place::Remote(_) if options.loopback => Err(Failure::because(
            "a loopback is within this process: give a device, like memory:1GiB --loopback",
        )),
        Place::Remote(id) => remote(options, *id, jobs),
    }
}

fn remote(options: &Options, id: TransportId, jobs: &[Job]) -> Result<Driven, Failure> {
    let mut host = options.connection.options_for(id)?;
    // Each copy needs a queue of its own, one the controller may refuse to give.
    let copies: u32 = jobs.iter().map(|job| job.copies).sum();
    host.nr_io_queues = host.nr_io_queues.max(u16::try_from(copies).unwrap_or(u16::MAX));
    // A queue that is shorter than the depth would hide the depth that was asked for.
    let depth = jobs.iter().map(|job| job.depth).max().unwrap_or(1);
    let entries = u16::try_from(depth.saturating_add(1)).unwrap_or(u16::MAX);
    host.queue_size = host.queue_size.max(entries.min(weft_host::QUEUE_SIZE_MAX));
    host.reactor.driver = jobs.first().map_or(host.reactor.driver, |job| job.driver);
    Driven::remote(&host, options.namespace.nsid())
}

fn report(
    options: &Options,
    name: &str,
    results: &[(&Job, &RunResult)],
    output: Option<Output>,
) -> Result<(), Failure> {
    let json = fio::reports(results, name, time_of_day());
    let printed = match options.output_format {
        Format::Human => {
            let texts = results.iter().map(|(job, result)| human::result(job, name, result));
            output::print(&texts.collect::<String>())
        }
        Format::Json => output::print_json(&json),
    };
    output.map_or(Ok(()), |output| output.write(&format!("{json:#}\n")))?;
    printed
}

/// The file of `--output`: opened before the run, so that one that cannot be written ends the run
/// before it begins. What it held stays until there is a result.
struct Output<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Output<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Failure::io("write", &path.display(), &error))?;
        Ok(Self { path, file })
    }

    fn write(mut self, text: &str) -> Result<(), Failure> {
        let is_file = self.file.metadata().is_ok_and(|found| found.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|error| Failure::io("write", &self.path.display(), &error))
    }
}

/// Why a run failed.
pub(crate) fn fault(result: &RunResult) -> String {
    let total = result.total();
    match (&total.error, total.verify.faults) {
        (Some(error), _) => error.clone(),
        (None, 1) => "1 block is wrong".to_owned(),
        (None, faults) => format!("{faults} blocks are wrong"),
    }
}

/// Since 1970, for reports.
pub(crate) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn pattern(text: &str) -> Result<Pattern, String> {
    text.parse().map_err(|error: weft_lab::pattern::ParsePatternError| error.to_string())
}

fn beside(text: &str) -> Result<Beside, String> {
    let mut beside = Beside::default();
    for word in text.split(',') {
        let Some((key, value)) = word.split_once('=') else {
            return Err(format!("{word:?} is not KEY=VALUE"));
        };
        let number = || value.parse::<u32>().map_err(|error| format!("{value:?}: {error}"));
        match key {
            "iodepth" => beside.depth = Some(number()?),
            "numjobs" => beside.copies = Some(number()?),
            "rw" => beside.pattern = Some(pattern(value)?),
            "bs" => beside.block_bytes = Some(size32(value)?),
            "rate-iops" | "rate_iops" => beside.iops = Some(rate(value)?),
            _ => return Err(format!("{key:?} is none of iodepth, rw, bs, numjobs, rate-iops")),
        }
    }
    Ok(beside)
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    weft_backend::bytes::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn size32(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| format!("{text} is too large"))
}

/// Seconds, as fio takes a bare number, or a time with its unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => weft_backend::duration::parse(text).map_err(|error| error.to_string()),
    }
}

/// A number of requests: `5000`, `20k`, `1.5M`; thousands here, for they are no bytes.
fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1e6),
            None => (text, 1.0),
        },
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no rate (try 5000, 20k)"))?;
    if number.is_finite() && number > 0.0 {
        Ok(number * factor)
    } else {
        Err(format!("{text:?} is no rate (try 5000, 20k)"))
    }
}

pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    weft_target::config::cpus::parse(text).map(Cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Load,
    }

    fn job(words: &str) -> Result<Job, String> {
        let words = std::iter::once("weft").chain(words.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.load.job())
    }

    #[test]
    fn fios_words_make_a_job() {
        let words = "--name x --rw randrw --rwmixread 70 --bs 128k --iodepth 32 --numjobs 4 \
                     --runtime 30 --ramp-time 500ms --size 1GiB --offset 1M --io-size 2G \
                     --rate-iops 20k --rate-process poisson --cpus 0-1,3 --verify crc32c --seed 7 \
                     --polling spin --driver epoll --fua --time_based --group_reporting";
        let expected = Job {
            name: "x".to_owned(),
            pattern: Pattern::RandRw,
            read_percent: 70,
            block_bytes: 131_072,
            depth: 32,
            copies: 4,
            offset_bytes: 1 << 20,
            size_bytes: Some(1 << 30),
            io_bytes: Some(2 << 30),
            runtime: Some(Duration::from_secs(30)),
            ramp: Duration::from_millis(500),
            rate: Some(Rate { iops: 20_000.0, process: Process::Poisson }),
            cpus: vec![0, 1, 3],
            seed: 7,
            verify: true,
            polling: Polling::Spin,
            driver: DriverKind::Epoll,
            durable: true,
        };
        assert_eq!(job(words), Ok(expected));
    }

    #[test]
    fn nothing_said_is_the_default_job() {
        assert_eq!(job(""), Ok(Job::default()));
    }

    #[test]
    fn fios_underscores_are_taken() {
        let words = "--ramp_time 1 --io_size 4k --rate_iops 5 --rate_process linear \
                     --readwrite rw --randseed 9 --cpus_allowed 1";
        let job = job(words).expect("a job");
        assert_eq!((job.ramp, job.io_bytes), (Duration::from_secs(1), Some(4096)));
        assert_eq!(job.rate, Some(Rate { iops: 5.0, process: Process::Fixed }));
        assert_eq!((job.pattern, job.seed, job.cpus), (Pattern::ReadWrite, 9, vec![1]));
    }

    #[test]
    fn a_second_job_has_what_it_is_given_and_else_what_the_first_has() {
        let first = job("--rate-iops 500 --numjobs 16 --bs 8k --cpus 1").expect("a job");
        let second = beside("iodepth=256,rw=randwrite").expect("a second").job(&first);
        let expected = Job {
            name: "weft-beside".to_owned(),
            depth: 256,
            pattern: Pattern::RandWrite,
            copies: 1,
            rate: None,
            ..first.clone()
        };
        assert_eq!(second, expected);
        let paced = beside("numjobs=2,bs=4k,rate-iops=1k").expect("a second").job(&first);
        assert_eq!((paced.copies, paced.block_bytes), (2, 4096));
        assert_eq!(paced.rate, Some(Rate { iops: 1_000.0, process: Process::Fixed }));
        for (words, part) in [("iodepth", "KEY=VALUE"), ("depth=1", "none of"), ("bs=x", "size")] {
            let error = beside(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }

    #[test]
    fn bad_words_are_told() {
        for (words, part) in [
            ("--rw trim", "randread"),
            ("--bs 4x", "is not a size"),
            ("--bs 8G", "too large"),
            ("--runtime soon", "span of time"),
            ("--rate-iops fast", "no rate"),
            ("--rate-iops -1", "unexpected"),
            ("--cpus 3-1", "list of processors"),
            ("--verify md5", "crc32c"),
            ("--driver kqueue", "epoll"),
            ("--iodepth many", "many"),
        ] {
            let error = job(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
