//! `weft bench`.

mod reports;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use weft_host::TransportId;
use weft_load::job::Polling;
use weft_load::jobfile::{self, Exit, Section};
use weft_load::limits::NOT_ENDED;
use weft_load::pacer::Process;
use weft_load::report::disks::Disks;
use weft_load::report::{Entry, human};
use weft_load::{Job, Part, Pattern, Progress, Rate, RunObserver, RunResult, logs};

use crate::connection::{Connection, NamespaceChoice};
use crate::driven::Driven;
use crate::failure::Failure;
use crate::output::{self, LiveLine};
use crate::place::Location;
use crate::values::{pattern, rate, size32};
use crate::within::TargetWithin;
use crate::words::Words;
use crate::{destroy, signals};

pub(crate) use self::reports::time_of_day;
use self::reports::{Output, Reports};

/// Options of `weft bench`. Names and meanings are fio's where fio has them.
///
/// What is driven comes first: an address (nvme-tcp://HOST:4420/NQN?nsid=1), a path, or a device
/// such as memory:1GiB, null:1TiB or file:PATH,direct=off. A job file (job.fio) is run as fio runs
/// it; it drives what it names, or what is given beside it.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    words: Words,
    /// Of a job file, only this section; may be given several times.
    #[arg(long, value_name = "NAME")]
    section: Vec<String>,
    /// Run a second job on the same threads. It copies the first one except for the settings given
    /// here: iodepth, rw, bs, numjobs, rate-iops, such as iodepth=256,bs=128k. A rate is not
    /// copied.
    #[arg(long, value_name = "JOB", value_parser = beside)]
    beside: Option<Beside>,
    /// Serve the device by a target within this process and reach it over loopback: what the
    /// protocol costs without a network.
    #[arg(long)]
    loopback: bool,
    #[command(flatten)]
    reports: Reports,
    /// The data there may be destroyed: a file or block device of this machine that the job writes
    /// to, by its name. What this run creates, and a namespace across the network, need it not.
    #[arg(long, value_name = "PATH")]
    yes_destroy: Vec<String>,
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
    let mut sections = sections(options)?;
    for note in sections.iter().flat_map(|section| &section.notes) {
        output::print_error(&format!("weft bench: {note}"));
    }
    let mut output = options.reports.open()?;
    let firsts = firsts(&sections);
    for (section, first) in sections.iter().zip(&firsts) {
        let prepared = logs::prepare(&section.job, *first);
        prepared.map_err(|error| Failure::Because(error.to_string()))?;
    }
    let places = places(options, &mut sections)?;
    let bench = Bench::open(options, &sections, places)?;
    // A thousand connections may exceed the limit of descriptors. If it cannot be raised, the
    // connection that fails reports it.
    let _ = weft_reactor::raise_descriptor_limit();
    let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
    output.disks = Disks::below(bench.driven.iter().map(|driven| Path::new(&driven.path)));
    let JobResults { entries, left_out, logged, begun } =
        bench.run_all(&stop, &firsts, &mut output);
    let entries = grouped(entries, &sections);
    if begun.is_ok() || !entries.is_empty() {
        output.report(&entries)?;
    }
    let fault = entries.iter().find(|entry| entry.result.failed()).map(|entry| bench.fault(entry));
    let closed = bench.close();
    begun?;
    logged?;
    if left_out > 0 || entries.iter().any(|entry| entry.result.interrupted) {
        let what = match (left_out, sections.len()) {
            (0, _) => "the results are what was measured until then".to_owned(),
            (out, all) => format!("{out} of {all} jobs never began"),
        };
        output::print_error(&format!("weft bench: interrupted: {what}"));
        return Err(Failure::Exit(signals::INTERRUPTED));
    }
    if let Some(fault) = fault {
        output::print_error(&format!("weft bench: {fault}"));
        return Err(Failure::Told);
    }
    closed
}

/// The number of each job's first copy among all copies, from 1, for the names of its logs.
fn firsts(sections: &[Section]) -> Vec<usize> {
    let mut next = 1;
    let first = |section: &Section| {
        let first = next;
        next += section.job.copies as usize;
        first
    };
    sections.iter().map(first).collect()
}

/// The results of the jobs.
struct JobResults {
    entries: Vec<Entry>,
    /// How many jobs did not start because the run was interrupted.
    left_out: usize,
    /// The first log that could not be written.
    logged: Result<(), Failure>,
    /// Why a run could not begin; none follows it.
    begun: Result<(), Failure>,
}

/// Shows what a run says of itself.
struct Observer<'a, 'b> {
    /// Which run of how many, where there are several.
    place: String,
    run: Range<usize>,
    bench: &'a Bench<'a>,
    output: &'a mut Output<'b>,
    live: LiveLine,
}

impl RunObserver for Observer<'_, '_> {
    fn progress(&mut self, progress: &Progress) {
        self.live.show(&format!("{}{}", self.place, human::progress(progress)));
    }

    fn status_interval(&self) -> Option<Duration> {
        self.bench.options.reports.status_interval()
    }

    fn status(&mut self, results: &[RunResult]) {
        let of = |(number, result): (usize, &RunResult)| self.bench.entry(number, result.clone());
        let entries = self.run.clone().zip(results).map(of).collect();
        let sections = &self.bench.sections[self.run.clone()];
        self.live.clear();
        if let Err(Failure::Because(why)) = self.output.report(&grouped(entries, sections)) {
            output::print_error(&format!("weft bench: {why}"));
        }
    }
}

/// The jobs of the files that are named, or the one that the words describe, with the one beside.
fn sections(options: &Options) -> Result<Vec<Section>, Failure> {
    let (files, _) = options.connection.without_job_files();
    if files.is_empty() {
        let first = options.words.section().map_err(Failure::Because)?;
        let second = options.beside.map(|beside| Section {
            job: beside.job(&first.job),
            notes: Vec::new(),
            ..first.clone()
        });
        return Ok(std::iter::once(first).chain(second).collect());
    }
    if let Some(word) = options.words.first() {
        let word = word.replace('_', "-");
        return Err(Failure::Because(format!(
            "--{word} stands beside a job file: write it into the file"
        )));
    }
    if options.beside.is_some() {
        return Err(Failure::because("--beside stands beside a job file: give it a section"));
    }
    let mut sections = Vec::new();
    for file in files {
        sections.extend(jobfile::read(Path::new(file)).map_err(Failure::Because)?);
    }
    if !options.section.is_empty() {
        sections.retain(|section| options.section.contains(&section.job.name));
    }
    if sections.is_empty() {
        return Err(Failure::because("no section of the job file has that name"));
    }
    Ok(sections)
}

/// The jobs that run at the same time, one run after the other: a stonewall begins one.
fn runs(sections: &[Section]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, section) in sections.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if !section.stonewall => run.end = number + 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// The group of reports of each job.
fn groups(sections: &[Section]) -> Vec<usize> {
    let mut group = 0;
    let begins =
        |number: usize, section: &Section| number > 0 && (section.stonewall || section.new_group);
    let of = |(number, section): (usize, &Section)| {
        group += usize::from(begins(number, section));
        group
    };
    sections.iter().enumerate().map(of).collect()
}

/// Jobs and what they drive.
struct Bench<'a> {
    options: &'a Options,
    sections: &'a [Section],
    groups: Vec<usize>,
    driven: Vec<Driven>,
    /// Which of them each job drives.
    drives: Vec<usize>,
}

impl<'a> Bench<'a> {
    fn open(
        options: &'a Options,
        sections: &'a [Section],
        of_sections: Vec<Location>,
    ) -> Result<Self, Failure> {
        let mut bench = Self {
            options,
            sections,
            groups: groups(sections),
            driven: Vec::new(),
            drives: Vec::new(),
        };
        let mut places: Vec<Location> = Vec::new();
        for place in of_sections {
            let known = places.iter().position(|known| *known == place);
            bench.drives.push(known.unwrap_or(places.len()));
            if known.is_none() {
                places.push(place);
            }
        }
        for (number, place) in places.into_iter().enumerate() {
            let jobs = sections.iter().zip(&bench.drives).filter(|(_, drives)| **drives == number);
            let jobs: Vec<&Job> = jobs.map(|(section, _)| &section.job).collect();
            bench.driven.push(open(options, place, &jobs)?);
        }
        bench.check()?;
        Ok(bench)
    }

    /// Why a run failed; of a device across the network also why that is gone.
    fn fault(&self, failed: &Entry) -> String {
        let fault = fault(&failed.result);
        let of_entry = |driven: &&Driven| driven.name == failed.device;
        let lost = [weft_backend::Failure::Gone, weft_backend::Failure::PathLost];
        let is_gone = lost.iter().any(|lost| fault.ends_with(&lost.to_string()));
        let driven = self.driven.iter().find(of_entry);
        let why = match is_gone {
            true => driven.and_then(Driven::trouble),
            false => driven.filter(|_| fault.contains(NOT_ENDED)).and_then(Driven::lost),
        };
        match why {
            Some(trouble) => format!("{fault}: {trouble}"),
            None => fault,
        }
    }

    /// Finds what no job can run with before the first one runs.
    fn check(&self) -> Result<(), Failure> {
        for (number, section) in self.sections.iter().enumerate() {
            self.awaited(number)?;
            let driven = self.driven(number);
            let planned = section.job.plan(&driven.factory.geometry());
            planned.map_err(|error| Failure::Because(format!("{}: {error}", driven.name)))?;
        }
        Ok(())
    }

    /// The job before this one that it waits for.
    fn awaited(&self, number: usize) -> Result<Option<usize>, Failure> {
        let Section { job, wait_for, .. } = &self.sections[number];
        let Some(name) = wait_for else { return Ok(None) };
        let found = (0..number).rev().find(|earlier| self.sections[*earlier].job.name == *name);
        found.map(Some).ok_or_else(|| {
            let job = &job.name;
            Failure::Because(format!("job {job:?} waits for {name:?}, which is no job before it"))
        })
    }

    /// Runs all jobs, those that wait for others after them.
    fn run_all(&self, stop: &AtomicBool, firsts: &[usize], output: &mut Output<'_>) -> JobResults {
        let (is_wanted, always) = self.options.reports.live();
        let mut live = LiveLine::of(is_wanted, always);
        let mut ran =
            JobResults { entries: Vec::new(), left_out: 0, logged: Ok(()), begun: Ok(()) };
        let runs = runs(self.sections);
        for (number, run) in (1..).zip(&runs) {
            if stop.load(Ordering::Relaxed) {
                ran.left_out += run.len();
                continue;
            }
            let all = runs.len();
            let place = if all > 1 { format!("{number} of {all}: ") } else { String::new() };
            let mut observer =
                Observer { place, run: run.clone(), bench: self, output: &mut *output, live };
            let results = self.run(self.options, run.clone(), stop, &mut observer);
            live = observer.live;
            let results = match results {
                Ok(results) => results,
                Err(failure) => {
                    ran.begun = Err(failure);
                    break;
                }
            };
            for (number, result) in run.clone().zip(results) {
                let (job, path) = (&self.sections[number].job, &self.driven(number).path);
                let logged = logs::write(job, path, &result, firsts[number]);
                let logged = logged.map_err(|error| Failure::Because(error.to_string()));
                ran.logged = std::mem::replace(&mut ran.logged, Ok(())).and(logged);
                ran.entries.push(self.entry(number, result));
            }
            if self.sections[run.clone()].iter().any(|one| one.exit == Some(Exit::All)) {
                break;
            }
        }
        ran
    }

    fn run(
        &self,
        options: &Options,
        run: Range<usize>,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<Vec<RunResult>, Failure> {
        let mut parts = Vec::new();
        for number in run.clone() {
            let section = &self.sections[number];
            let mut part = Part::new(&section.job, &self.driven(number).factory);
            part.group = self.groups[number];
            part.exit = section.exit;
            // One of an earlier run has ended.
            part.after = self.awaited(number)?.and_then(|found| found.checked_sub(run.start));
            parts.push(part);
        }
        let name = || self.driven(run.start).name.clone();
        let results = match (parts.as_slice(), options.beside) {
            ([first, second], Some(_)) => {
                let jobs = (&first.job, &second.job);
                let mut observe = |progress: &Progress| observer.progress(progress);
                weft_load::run_beside(jobs.0, jobs.1, &first.factory, stop, &mut observe)
                    .map(|(first, second)| vec![first, second])
            }
            (parts, _) => weft_load::run_jobs(parts, stop, observer),
        };
        results.map_err(|error| Failure::Because(format!("{}: {error}", name())))
    }

    fn driven(&self, number: usize) -> &Driven {
        &self.driven[self.drives[number]]
    }

    fn entry(&self, number: usize, result: RunResult) -> Entry {
        Entry {
            group: self.groups[number],
            job: self.sections[number].job.clone(),
            device: self.driven(number).name.clone(),
            result,
        }
    }

    fn close(self) -> Result<(), Failure> {
        self.driven.into_iter().map(Driven::close).fold(Ok(()), Result::and)
    }
}

/// One report for the jobs of a group that asks for it.
fn grouped(entries: Vec<Entry>, sections: &[Section]) -> Vec<Entry> {
    let mut reports: Vec<Entry> = Vec::new();
    for (entry, section) in entries.into_iter().zip(sections) {
        match reports.last_mut() {
            Some(last) if section.group_reporting && last.group == entry.group => {
                last.job.copies += entry.job.copies;
                last.result.lanes.extend(entry.result.lanes);
                last.result.elapsed = last.result.elapsed.max(entry.result.elapsed);
            }
            _ => reports.push(entry),
        }
    }
    reports
}

/// What each job drives. Files and block devices of this machine are waited for asleep unless the
/// job says otherwise, as fio waits: who polls on a busy machine is off its processor when the
/// completion comes.
fn places(options: &Options, sections: &mut [Section]) -> Result<Vec<Location>, Failure> {
    let place = |section: &mut Section| {
        let place = place_of(options, section)?;
        let is_of_the_kernel = matches!(&place, Location::Local(spec) if spec.path().is_some());
        if is_of_the_kernel && !options.loopback && !section.hipri && !section.says_polling {
            section.job.polling = Polling::Sleep;
        }
        Ok(place)
    };
    sections.iter_mut().map(place).collect()
}

/// What a job drives, polled if it asks for that.
fn place_of(options: &Options, section: &Section) -> Result<Location, Failure> {
    match named_place(options, section)? {
        Location::Local(spec) if section.hipri => {
            spec.into_polled().map(Location::Local).map_err(Failure::Because)
        }
        Location::Remote(id) if section.hipri => {
            output::print_error(&format!(
                "weft bench: job {:?}: hipri: a namespace across the network has no queues to \
                 poll here; --polling spin polls its sockets",
                section.job.name
            ));
            Ok(Location::Remote(id))
        }
        place => Ok(place),
    }
}

/// What the command line names, or else the job's own filename.
fn named_place(options: &Options, section: &Section) -> Result<Location, Failure> {
    let (files, connection) = options.connection.without_job_files();
    let job = &section.job.name;
    if !connection.is_empty() {
        if let Some(filename) = &section.filename {
            output::print_error(&format!(
                "weft bench: job {job:?} names {filename}, and drives what the command line names"
            ));
        }
        return Ok(match (connection.place()?, section.direct) {
            (Location::Local(spec), Some(direct)) => Location::Local(spec.with_direct(direct)),
            (Location::Local(spec), None) => Location::Local(spec),
            (remote, direct) => unbuffered(job, remote, direct),
        });
    }
    let Some(filename) = &section.filename else {
        return if files.is_empty() {
            connection.place()
        } else {
            Err(Failure::Because(format!(
                "job {job:?} names nothing that is driven: give a filename, or an address beside \
                 the job file"
            )))
        };
    };
    let is_plain = !filename.contains("://") && !filename.starts_with(['/', '.']);
    let text = match filename.parse::<Location>() {
        Err(_) if is_plain => format!("./{filename}"),
        _ => filename.clone(),
    };
    match text.parse().map_err(Failure::Because)? {
        Location::Local(spec) => {
            if let Some(path) = spec.path().filter(|path| !path.exists()) {
                return Err(Failure::Because(match path.starts_with("/dev") {
                    true => format!(
                        "job {job:?}: {}; to drive a namespace: weft bench ADDRESS JOB.fio",
                        weft_backend::missing_file(path)
                    ),
                    false => format!(
                        "job {job:?}: {} is not there, and files are not laid out: make it first, \
                         with truncate -s SIZE",
                        path.display()
                    ),
                }));
            }
            // fio uses the page cache by default.
            let buffered =
                if files.is_empty() { section.direct } else { section.direct.or(Some(false)) };
            Ok(Location::Local(match buffered {
                Some(direct) => spec.with_direct(direct),
                None => spec,
            }))
        }
        remote => Ok(unbuffered(job, remote, section.direct)),
    }
}

/// A namespace; that it is not buffered is said to who asks for that.
fn unbuffered(job: &str, remote: Location, direct: Option<bool>) -> Location {
    if direct == Some(false) {
        output::print_error(&format!(
            "weft bench: job {job:?}: direct=0: there is no page cache before a namespace"
        ));
    }
    remote
}

fn open(options: &Options, place: Location, jobs: &[&Job]) -> Result<Driven, Failure> {
    if let Location::Local(spec) = &place
        && jobs.iter().any(|job| job.pattern.writes() || job.pattern.trims())
    {
        destroy::allow("job", destroy::existing(spec).as_slice(), &options.yes_destroy)?;
    }
    match place {
        Location::Local(spec) if options.loopback => {
            let driver = jobs.first().map(|job| job.driver).unwrap_or_default();
            let target = TargetWithin::serve(&spec, driver).map_err(Failure::Because)?;
            let driven = remote(options, target.address().clone(), jobs)?;
            Ok(driven.served_by(format!("{spec} over loopback"), target))
        }
        Location::Local(spec) => {
            let unit = jobs.iter().map(|job| job.granularity()).min();
            Driven::local(&spec, unit.unwrap_or(1))
        }
        Location::Remote(_) if options.loopback => Err(Failure::because(
            "a loopback is within this process: give a device, like memory:1GiB --loopback",
        )),
        Location::Remote(id) => remote(options, *id, jobs),
    }
}

fn remote(options: &Options, id: TransportId, jobs: &[&Job]) -> Result<Driven, Failure> {
    let mut host = options.connection.options_for(id)?;
    // Each copy needs its own queue; the controller may grant fewer. A number that was given is
    // what is asked for, whether it is enough or not.
    if !options.connection.has_nr_io_queues() {
        let copies: u32 = jobs.iter().map(|job| job.copies).sum();
        host.nr_io_queues = host.nr_io_queues.max(u16::try_from(copies).unwrap_or(u16::MAX));
    }
    // A queue shorter than the job's depth would limit it.
    let depth = jobs.iter().map(|job| job.depth).max().unwrap_or(1);
    let entries = u16::try_from(depth.saturating_add(1)).unwrap_or(u16::MAX);
    host.queue_size = host.queue_size.max(entries.min(weft_host::QUEUE_SIZE_MAX));
    host.reactor.driver = jobs.first().map_or(host.reactor.driver, |job| job.driver);
    Driven::remote(&host, options.namespace.nsid())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &[(&str, &str)]) -> Job {
        let words = words.iter().map(|(word, value)| (*word, Some(*value)));
        jobfile::of_command_line(words).expect("a job").job
    }

    fn section(words: &[(&str, &str)]) -> Section {
        let words = words.iter().map(|(word, value)| (*word, Some(*value)));
        jobfile::of_command_line(words).expect("a job")
    }

    #[test]
    fn stonewalls_begin_runs_and_groups() {
        let plain = || section(&[]);
        let wall = || section(&[("stonewall", "1")]);
        let new = || section(&[("new_group", "1")]);
        let sections = [wall(), plain(), new(), wall(), plain()];
        assert_eq!(runs(&sections), [0..3, 3..5]);
        assert_eq!(groups(&sections), [0, 0, 1, 2, 2]);
    }

    #[test]
    fn a_second_job_has_what_it_is_given_and_else_what_the_first_has() {
        let first = job(&[("rate_iops", "500"), ("numjobs", "16"), ("bs", "8k"), ("cpus", "1")]);
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
}
