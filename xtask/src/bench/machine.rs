//! What the kernel says about this machine and about processes.

use super::options::Options;
use super::process::Program;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// With more than this running beside it a measurement says little.
const LOAD_MAX: f64 = 0.5;

/// Where and of what a run's figures are.
pub(crate) fn environment(root: &Path, options: &Options, program: &Program) -> Value {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root));
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    json!({
        "time": seconds_since_1970(),
        "commit": git(&["rev-parse", "HEAD"]),
        "changed": changed,
        "rustc": output(Command::new("rustc").arg("--version")),
        "kernel": text("/proc/sys/kernel/osrelease"),
        "processor": processor(),
        "processors": processors(),
        "cpus": [options.cpus.0, options.cpus.1],
        "user": program.user().describe(),
        "load_average": load_average(),
        "rounds": options.rounds,
        "seconds": options.runtime().as_secs_f64(),
        "target": options.target,
        "command": command(),
    })
}

/// How many processors are here.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What makes figures worthless, as far as it can be seen.
pub(crate) fn warnings(cpus: (usize, usize)) -> Vec<String> {
    let mut warnings = Vec::new();
    if cpus.0.max(cpus.1) >= processors() {
        warnings.push(format!("warning: there is no processor {}", cpus.0.max(cpus.1)));
    }
    let load = load_average();
    if load > LOAD_MAX {
        warnings.push(format!("warning: the load average is {load}: this machine is not quiet"));
    }
    warnings
}

/// Processor time of a process, in all its threads, to the nanosecond.
pub fn cpu_time(process: u32) -> Result<Duration> {
    let mut sum_ns = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let path = thread?.path().join("schedstat");
        // A thread may end while its folder is looked at.
        let Ok(text) = fs::read_to_string(path) else { continue };
        let first = text.split_whitespace().next().context("an empty schedstat")?;
        sum_ns += first.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum_ns))
}

/// Resident memory of a process.
pub fn resident_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib = line.split_whitespace().next().context("an empty VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// Sockets that a process holds.
pub(crate) fn sockets(process: u32) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        // A descriptor may be closed while it is looked at.
        let target = fs::read_link(entry?.path()).unwrap_or_default();
        count += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(count)
}

/// Ticks of all processors: those that the hypervisor took, and all.
pub(crate) fn stolen_ticks() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    ticks_of(&stat)
}

fn ticks_of(stat: &str) -> (u64, u64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|tick| tick.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are part of user.
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().take(8).sum())
}

pub(crate) fn load_average() -> f64 {
    let text = text("/proc/loadavg");
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Today.
pub(crate) fn date() -> Result<String> {
    let date = output(Command::new("date").args(["--utc", "--iso-8601"]));
    ensure!(!date.is_empty(), "no date");
    Ok(date)
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name);
    name.trim().to_owned()
}

/// The command that has started this.
fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo xtask {}", words.join(" "))
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn output(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_as_the_kernel_writes_them() {
        let stat = "cpu  10 20 30 400 5 6 7 8 9 1\ncpu0 1 2 3 4 5 6 7 8 9 1\n";
        assert_eq!(ticks_of(stat), (8, 486));
        assert_eq!(ticks_of(""), (0, 0));
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        let process = std::process::id();
        let before = cpu_time(process).expect("its time");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(sockets(process).expect("its sockets") >= 1);
        assert!(resident_bytes(process).expect("its memory") > 100_000);
        while cpu_time(process).expect("its time") == before {
            std::hint::black_box(&socket);
        }
    }
}
