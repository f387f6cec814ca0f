//! fio's logs of requests: latency, IOPS and bandwidth over time, and the requests themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::job::Job;
use crate::pattern::Direction;
use crate::statistics::RunResult;

/// Which logs a job writes, by the beginnings of their files' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// `write_lat_log`.
    pub latency: Option<String>,
    /// `write_iops_log`.
    pub iops: Option<String>,
    /// `write_bw_log`.
    pub bandwidth: Option<String>,
    /// `log_avg_msec`: a line for each direction and so much time; zero: for each request.
    pub average: Duration,
    /// `log_max_value`: the longest latency in place of the mean.
    pub maximum: bool,
    /// `log_offset`: each line has the request's offset.
    pub offsets: bool,
    /// `write_hist_log`, which is empty without `log_hist_msec`.
    pub histogram: Option<String>,
    /// `log_hist_msec`: a line for each direction and so much time; zero: none.
    pub histogram_every: Duration,
    /// `log_hist_coarseness`: a number of the line is that of so many bins, as a power of two.
    pub coarseness: u32,
    /// `write_iolog`: the requests themselves.
    pub requests: Option<String>,
}

impl Logs {
    /// Whether completions are logged.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        self.latency.is_some() || self.iops.is_some() || self.bandwidth.is_some()
    }
}

/// The bins of fio's histograms: 64 for each power of two of ns.
pub(crate) const BINS: u32 = 29 * GROUP_BINS;
const GROUP_BINS: u32 = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 6;

/// The bin of a latency.
pub(crate) fn bin(latency_ns: u64) -> u32 {
    let coarse = (u64::BITS - latency_ns.leading_zeros()).saturating_sub(GROUP_BITS + 1);
    let within = u32::try_from(latency_ns >> coarse).unwrap_or(u32::MAX);
    (coarse * GROUP_BINS).saturating_add(within).min(BINS - 1)
}

/// The latencies of one direction in one window, from submission to completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The window's end, since the start of its copy.
    pub at_ns: u64,
    /// Which way.
    pub direction: Direction,
    /// The size of the request that ended the window.
    pub bytes: u32,
    /// How many there are in each bin that has some.
    pub bins: BTreeMap<u32, u64>,
}

/// One request, or those of one direction in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogLine {
    /// Its end, since the start of its copy.
    pub at_ns: u64,
    /// Which way.
    pub direction: Direction,
    /// From the due time to the completion: of one, or the mean or the maximum of all.
    pub latency_ns: u64,
    /// From the submission to the completion.
    pub completion_ns: u64,
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where it began; 0 for several.
    pub offset: u64,
    /// How long the window was; zero for one request.
    pub lasted_ns: u64,
}

/// A request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedRequest {
    /// When, since the start of its copy.
    pub at_ns: u64,
    /// fio's word for it.
    pub action: &'static str,
    /// Bytes from the beginning of the device.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
}

/// Writes the logs of a job's copies; the first of them is the `first`th of all jobs, from 1.
/// `device` stands for fio's file in the log of requests.
///
/// # Errors
/// The file that cannot be written.
pub fn write(job: &Job, device: &str, result: &RunResult, first: usize) -> io::Result<()> {
    let logs = &job.logs;
    for (number, (_, lane)) in (first..).zip(&result.lanes) {
        for (path, value) in completions(logs, number) {
            let mut file = Output::create(path)?;
            for one in &lane.logged {
                file.line(|text| logged(text, one, value(one), logs))?;
            }
            file.finish()?;
        }
        if let Some(path) = histograms(logs, number) {
            let mut file = Output::create(path)?;
            for one in &lane.histograms {
                file.line(|text| bins(text, one, logs.coarseness))?;
            }
            file.finish()?;
        }
        if let Some(path) = requests(job, number) {
            let mut file = Output::create(path)?;
            let device = device.replace(char::is_whitespace, "_");
            file.line(|text| {
                let _ = write!(text, "fio version 3 iolog\n0 {device} add\n0 {device} open");
            })?;
            for IssuedRequest { at_ns, action, offset, bytes } in &lane.issued {
                let at_us = at_ns / 1000;
                file.line(|text| {
                    let _ = write!(text, "{at_us} {device} {action} {offset} {bytes}");
                })?;
            }
            let end_us = lane.issued.last().map_or(0, |last| last.at_ns / 1000);
            file.line(|text| {
                let _ = write!(text, "{end_us} {device} close");
            })?;
            file.finish()?;
        }
    }
    Ok(())
}

/// The logs of completions of the `number`th copy, and what each line of them has.
fn completions(logs: &Logs, number: usize) -> impl Iterator<Item = (PathBuf, fn(&LogLine) -> u64)> {
    let kinds = [
        (&logs.latency, "lat", latency as fn(&LogLine) -> u64),
        (&logs.latency, "clat", completion),
        (&logs.latency, "slat", waiting),
        (&logs.iops, "iops", iops),
        (&logs.bandwidth, "bw", bandwidth),
    ];
    kinds.into_iter().filter_map(move |(name, kind, value)| {
        let name = name.as_ref()?;
        Some((PathBuf::from(format!("{name}_{kind}.{number}.log")), value))
    })
}

/// The log of histograms of the `number`th copy.
fn histograms(logs: &Logs, number: usize) -> Option<PathBuf> {
    Some(PathBuf::from(format!("{}_clat_hist.{number}.log", logs.histogram.as_ref()?)))
}

/// The log of requests of the `number`th copy. Copies of a job would write over each other; fio's
/// mix.
fn requests(job: &Job, number: usize) -> Option<PathBuf> {
    let name = job.logs.requests.as_ref()?;
    Some(PathBuf::from(if job.copies == 1 { name.clone() } else { format!("{name}.{number}") }))
}

/// Makes sure that a job's logs can be written, so that one that cannot ends the run before it
/// begins.
///
/// # Errors
/// The file that cannot be written.
pub fn prepare(job: &Job, first: usize) -> io::Result<()> {
    let paths = |number| {
        let completions = completions(&job.logs, number).map(|(path, _)| path);
        completions.chain(histograms(&job.logs, number)).chain(requests(job, number))
    };
    (first..first + job.copies as usize).flat_map(paths).try_for_each(|path| try_open(&path))
}

fn try_open(path: &Path) -> io::Result<()> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| named(path, &error))
}

fn logged(text: &mut String, one: &LogLine, value: u64, logs: &Logs) {
    let (at_ms, direction) = (one.at_ns / 1_000_000, one.direction as usize);
    let bytes = if one.lasted_ns == 0 { one.bytes } else { 0 };
    // Writing to a String cannot fail; the last number is fio's class of priority.
    let _ = write!(text, "{at_ms}, {value}, {direction}, {bytes}, ");
    if logs.offsets {
        let _ = write!(text, "{}, ", one.offset);
    }
    text.push('0');
}

fn bins(text: &mut String, one: &Histogram, coarseness: u32) {
    let (at_ms, direction) = (one.at_ns / 1_000_000, one.direction as usize);
    // Writing to a String cannot fail.
    let _ = write!(text, "{at_ms}, {direction}, {}", one.bytes);
    for first in (0..BINS).step_by(1 << coarseness) {
        let count: u64 = one.bins.range(first..first + (1 << coarseness)).map(|(_, n)| n).sum();
        let _ = write!(text, ", {count}");
    }
}

fn latency(one: &LogLine) -> u64 {
    one.latency_ns
}

fn completion(one: &LogLine) -> u64 {
    one.completion_ns
}

fn waiting(one: &LogLine) -> u64 {
    one.latency_ns.saturating_sub(one.completion_ns)
}

fn iops(one: &LogLine) -> u64 {
    if one.lasted_ns == 0 { 1 } else { per_second(one.requests, one.lasted_ns) }
}

/// KiB a second: as fio has it, of one request by its own time.
fn bandwidth(one: &LogLine) -> u64 {
    let time_ns = if one.lasted_ns == 0 { one.completion_ns } else { one.lasted_ns };
    per_second(one.bytes, time_ns) / 1024
}

fn per_second(count: u64, time_ns: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / u128::from(time_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// A file that is written line by line; its errors name it.
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
    text: String,
}

impl Output {
    fn create(path: PathBuf) -> io::Result<Self> {
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file: BufWriter::new(file), text: String::new() }),
            Err(error) => Err(named(&path, &error)),
        }
    }

    fn line(&mut self, write: impl FnOnce(&mut String)) -> io::Result<()> {
        self.text.clear();
        write(&mut self.text);
        self.text.push('\n');
        let written = self.file.write_all(self.text.as_bytes());
        written.map_err(|error| named(&self.path, &error))
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| named(&self.path, &error))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of bins as fio's own `plat_idx_to_val` gives them.
    #[test]
    fn bins_are_those_of_fio() {
        for (latency_ns, expected) in [(0, 0), (63, 63), (64, 64), (127, 127), (128, 128)] {
            assert_eq!(bin(latency_ns), expected);
        }
        // From 128 to 255 ns a bin has two, from 256 on four.
        assert_eq!([bin(129), bin(130), bin(255), bin(256), bin(259)], [128, 129, 191, 192, 192]);
        assert_eq!(bin(u64::MAX), BINS - 1);
        assert!((1..1 << 16).all(|latency_ns| bin(latency_ns) - bin(latency_ns - 1) <= 1));
    }
}
