//! A process that ends with its test, and waiting.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running process with its output in a file. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// The offset in the log at which this process began.
    start: usize,
}

impl Process {
    /// Starts `command`; both its streams are appended to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(log)?;
        let start = usize::try_from(file.metadata()?.len())?;
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, log: log.to_owned(), start })
    }

    /// Its output so far.
    pub(crate) fn output(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.start..).unwrap_or_default()).into_owned()
    }

    /// What it says of itself as JSON, in a line of its output, once it has.
    pub(crate) fn said(&self) -> Result<Value> {
        let lines =
            |output: String| output.lines().find_map(|line| serde_json::from_str(line).ok());
        let said = || lines(self.output()).with_context(|| format!("no JSON: {}", self.output()));
        within(Duration::from_secs(30), "it has started", said)
    }

    /// Waits until its output contains `text`.
    pub(crate) fn wait_for(&mut self, text: &str, time: Duration) -> Result<()> {
        let deadline = Instant::now() + time;
        while !self.output().contains(text) {
            if let Some(status) = self.child.try_wait()? {
                bail!("weft ended ({status}) before it printed `{text}`:\n{}", self.output());
            }
            if Instant::now() > deadline {
                bail!("weft has not printed `{text}` in {time:?}:\n{}", self.output());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.context("no process")
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("weft has not ended in {time:?}:\n{}", self.output());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it as a user does; it must exit with 0.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.wait(Duration::from_secs(20))?;
        if !status.success() {
            bail!("weft was stopped and ended with {status}:\n{}", self.output());
        }
        Ok(())
    }

    /// Its CPU time, from `/proc`.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = text.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks = ticks.sum::<Result<u64, _>>()?; // user and system time, in 1/100 s
        Ok(Duration::from_millis(ticks * 10))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again until it succeeds.
pub(crate) fn within<T>(
    time: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<T>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if begin.elapsed() > time => {
                return Err(error.context(format!("not within {time:?}: {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The last `lines` lines of a file.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = std::io::Read::read_to_end(&mut file, &mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
