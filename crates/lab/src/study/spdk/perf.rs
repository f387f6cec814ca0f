//! SPDK's perf tool as a host: a process of `spdk_nvme_perf`, whose report is read.
//!
//! It is started by `stdbuf`, so that the line with which its workers begin comes when they do. Its
//! times are whole seconds, and its latencies those of its histogram, which begins anew after the
//! warm-up. What it prints is described by its source, app/spdk_nvme_perf/perf.c of SPDK 26.09-pre
//! (git 3230130e6a); tests run a program that prints the same.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use std::{fs, thread};

use weft_host::TransportId;
use weft_load::usage::Usage;
use weft_load::{DirectionResult, Job, LaneResult, Latency, RunObserver, RunResult};
use weft_reactor::monotonic_time;

/// The line with which its workers begin.
const LAUNCHED: &str = "Initialization complete. Launching workers.";

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long it may take beyond its time, to set itself up and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much of what it says is read.
const OUTPUT_MAX: u64 = 64 << 20;

/// The perf tool, and the namespaces that it drives.
#[derive(Clone, Debug)]
pub(in crate::study) struct Perf {
    pub(in crate::study) program: PathBuf,
    pub(in crate::study) targets: Vec<TransportId>,
    pub(in crate::study) nsid: u32,
    /// The address that it connects from, if the kernel does not choose it.
    pub(in crate::study) from: Option<IpAddr>,
    pub(in crate::study) hdr_digest: bool,
    pub(in crate::study) data_digest: bool,
}

impl Perf {
    /// Its arguments for a job.
    fn words(&self, job: &Job) -> Result<Vec<String>, String> {
        let namespaces = u32::try_from(self.targets.len()).unwrap_or(u32::MAX).max(1);
        let queues = job.copies / namespaces;
        let cores = u32::try_from(job.cpus.len()).unwrap_or(u32::MAX).clamp(1, queues.max(1));
        if job.rate.is_some() {
            return Err("SPDK's perf has no rate".to_owned());
        }
        if queues == 0 || !queues.is_multiple_of(cores) {
            return Err(format!(
                "SPDK's perf has as many queues on each processor: {queues} jobs, {cores} \
                 processors"
            ));
        }
        // The depth is that of a processor, and its queues share it.
        let each = queues / cores;
        let cpus = job.cpus.iter().take(cores as usize).map(ToString::to_string);
        let cpus: Vec<String> = cpus.collect();
        let cpus = if cpus.is_empty() { "0".to_owned() } else { cpus.join(",") };
        let mut words: Vec<String> = [
            ("-q", (job.depth * each).to_string()),
            ("-P", each.to_string()),
            ("-o", job.block_bytes.to_string()),
            ("-w", job.pattern.to_string()),
            ("-c", format!("[{cpus}]")),
            ("-t", whole_seconds(job.runtime.unwrap_or_default()).max(1).to_string()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
        if job.pattern.reads() && job.pattern.writes() {
            words.extend(["-M".to_owned(), job.read_percent.to_string()]);
        }
        if !job.ramp.is_zero() {
            words.extend(["-a".to_owned(), whole_seconds(job.ramp).to_string()]);
        }
        // Twice: with the histogram.
        words.extend(["-L", "-L"].map(str::to_owned));
        if self.targets.len() > 1 {
            words.push("--use-every-core".to_owned());
        }
        words.extend(self.hdr_digest.then(|| "-H".to_owned()));
        words.extend(self.data_digest.then(|| "-I".to_owned()));
        for target in &self.targets {
            let place = TransportId { nsid: None, ..target.clone() }.spdk();
            // Found by its first letters, which a name may have as well.
            let from = self.from.map(|from| format!("hostaddr:{from} ")).unwrap_or_default();
            words.extend(["-r".to_owned(), format!("ns:{} {from}{place}", self.nsid)]);
        }
        Ok(words)
    }

    /// Runs a job, whose times become whole seconds.
    pub(in crate::study) fn run(
        &self,
        job: &Job,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<RunResult, String> {
        let words = self.words(job)?;
        if let Some(at) = observer.ready() {
            thread::sleep(at.saturating_sub(monotonic_time()));
        }
        let ramp = match job.ramp.is_zero() {
            true => Duration::ZERO,
            false => Duration::from_secs(whole_seconds(job.ramp)),
        };
        let runtime = Duration::from_secs(whole_seconds(job.runtime.unwrap_or_default()).max(1));
        let mut process = Process::start(&self.program, &words)?;
        let watched = process.watch(ramp, runtime, stop, observer)?;
        let ProcessEnd { text, usage, interrupted } = watched;
        if interrupted {
            return Ok(RunResult { interrupted, ..RunResult::default() });
        }
        let report = report(&text)
            .ok_or_else(|| format!("{} printed no report that is known", self.program.display()))?;
        let mut direction = DirectionResult {
            requests: report.latency.count(),
            bytes: report.latency.count() * u64::from(job.block_bytes),
            measured: Duration::from_secs_f64(report.latency.count() as f64 / report.iops),
            latency: report.latency,
            ..DirectionResult::default()
        };
        let mut lane = LaneResult { usage, submitted: direction.requests, ..LaneResult::default() };
        // Of a mix it tells the sum alone.
        let place = if job.pattern.reads() { &mut lane.read } else { &mut lane.write };
        std::mem::swap(place, &mut direction);
        let elapsed = ramp + runtime;
        Ok(RunResult { lanes: vec![(0, lane)], elapsed, ..RunResult::default() })
    }
}

/// Whole seconds that are no less.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// What a report says.
#[derive(Debug)]
struct Report {
    iops: f64,
    latency: Latency,
}

/// Reads a report: the sum of all namespaces and processors, and their histograms.
fn report(text: &str) -> Option<Report> {
    let mut iops = None;
    let mut latency = Latency::new();
    let mut is_histogram = false;
    for line in text.lines() {
        if line.starts_with("Latency histogram for ") {
            is_histogram = true;
        } else if line.is_empty() || line.starts_with("Summary latency data for ") {
            is_histogram = false;
        } else if let Some(numbers) = line.strip_prefix("Total").and_then(|rest| {
            // The name is filled up with spaces.
            rest.trim_start().strip_prefix(':')
        }) {
            iops = numbers.split_whitespace().next().and_then(|text| text.parse().ok());
        } else if let Some((low, high, count)) = bucket(line).filter(|_| is_histogram) {
            let ns = ((low + high) / 2).as_nanos();
            latency.record_times(u64::try_from(ns).unwrap_or(u64::MAX), count);
        }
    }
    let iops = iops.filter(|iops: &f64| *iops > 0.0)?;
    (latency.count() > 0).then_some(Report { iops, latency })
}

/// A line of a histogram: its bounds, and how many requests were between them.
fn bucket(line: &str) -> Option<(Duration, Duration, u64)> {
    let (low, rest) = line.split_once(" - ")?;
    let (high, rest) = rest.split_once(": ")?;
    let count = rest.split_once('(')?.1.strip_suffix(')')?;
    let time = |text: &str| {
        let us = text.trim().parse::<f64>().ok()?;
        Duration::try_from_secs_f64(us / 1e6).ok()
    };
    Some((time(low)?, time(high)?, count.trim().parse().ok()?))
}

/// What has come of a process.
struct ProcessEnd {
    text: String,
    usage: Usage,
    interrupted: bool,
}

/// A process that ends with this value.
struct Process {
    child: Child,
    lines: Receiver<String>,
    messages: Receiver<String>,
}

impl Process {
    fn start(program: &std::path::Path, words: &[String]) -> Result<Self, String> {
        let mut command = Command::new("stdbuf");
        command.arg("-oL").arg(program).args(words).env("LC_ALL", "C");
        // Ctrl-C is handled by this process, which ends it.
        command.process_group(0).stdin(Stdio::null());
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child =
            spawned.map_err(|error| format!("stdbuf cannot be run ({error}): is it installed?"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (lines, messages) = (read(stdout)?, read(stderr)?);
        Ok(Self { child, lines, messages })
    }

    /// Follows it to its end.
    fn watch(
        &mut self,
        ramp: Duration,
        runtime: Duration,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<ProcessEnd, String> {
        let end = monotonic_time() + ramp + runtime + PATIENCE;
        let (mut launched, mut before, mut usage) = (None, None, None);
        let mut text = String::new();
        loop {
            let said = self.lines.recv_timeout(LOOK);
            let now = monotonic_time();
            match said {
                Ok(line) => {
                    if line.trim_end() == LAUNCHED {
                        launched.get_or_insert(now);
                    }
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(ProcessEnd { text, usage: Usage::default(), interrupted: true });
            }
            if now > end {
                return Err("SPDK's perf does not end".to_owned());
            }
            let Some(launched) = launched else { continue };
            if before.is_none() && now >= launched + ramp {
                before = Some(self.usage());
                observer.measurement_begins();
            }
            if let (Some(before), None) = (&before, &usage)
                && now >= launched + ramp + runtime
            {
                usage = Some(self.usage().since(before));
                observer.measurement_ends();
            }
        }
        let status = self.child.wait().map_err(|error| format!("SPDK's perf: {error}"))?;
        match (status.success(), usage) {
            (true, Some(usage)) => Ok(ProcessEnd { text, usage, interrupted: false }),
            _ => Err(self.fault(status)),
        }
    }

    /// CPU time of all its threads.
    fn usage(&self) -> Usage {
        Usage::of_process(self.child.id())
    }

    /// Why it has ended early.
    fn fault(&self, status: ExitStatus) -> String {
        let last = self.messages.iter().filter(|line| !line.trim().is_empty()).last();
        match last {
            Some(line) => format!("SPDK's perf has ended ({status}): {}", line.trim()),
            None => format!("SPDK's perf has ended before its time ({status})"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The lines of a pipe, read by a thread.
fn read(pipe: Option<impl Read + Send + 'static>) -> Result<Receiver<String>, String> {
    let pipe = pipe.ok_or("SPDK's perf has no pipes")?;
    let (told, lines) = channel();
    let reading = move || {
        for line in BufReader::new(pipe.take(OUTPUT_MAX)).lines().map_while(Result::ok) {
            if told.send(line).is_err() {
                return;
            }
        }
    };
    let reader = thread::Builder::new().name("weft-spdk-perf".to_owned());
    reader.spawn(reading).map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(lines)
}

/// Where the perf tool is: the given path, or else in PATH.
pub(in crate::study) fn find(given: &str) -> Result<PathBuf, String> {
    const NAME: &str = "spdk_nvme_perf";
    if !given.is_empty() {
        let path = PathBuf::from(given);
        return match fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            true => Ok(path),
            false => Err(format!("SPDK's perf tool is not at {given}, which the site file names")),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(NAME));
    places.find(|path| path.is_file()).ok_or_else(|| {
        format!("SPDK's perf tool, {NAME}, is not in PATH: name its path in the site file")
    })
}

#[cfg(test)]
mod tests;
