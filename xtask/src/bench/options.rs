//! What to measure, and how, as the command line has it.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure, and how.
#[derive(Debug, Args)]
pub struct Options {
    /// Only rows whose name contains one of these
    #[arg(long, value_name = "PATTERN")]
    pub(super) only: Vec<String>,
    /// List the rows and what each measures, and exit
    #[arg(long)]
    pub(super) list: bool,
    /// How often each measurement is repeated
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// How long each measurement counts
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(super) seconds: f64,
    /// Count only rounds in which the machine was steady: the first measurement is repeated at the
    /// end of the round and may differ by this share, like 0.15. Other rounds are measured again,
    /// up to four times as many as requested
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(super) steady: Option<f64>,
    /// Another target to measure, like nvme-tcp://127.0.0.1:4420/NQN?nsid=1; the data of its
    /// namespace is overwritten
    #[arg(long, value_name = "ADDRESS")]
    pub(super) target: Option<String>,
    /// The process of that target, stopped while the raw socket is measured, because a target that
    /// polls all the time would take half of the processor; continue it with SIGCONT if this run
    /// is interrupted
    #[arg(long, value_name = "PID", requires = "target")]
    pub(super) target_pid: Option<u32>,
    /// The target's processor and the load's
    #[arg(long, default_value = "0,1", value_parser = two_cpus)]
    pub(super) cpus: (usize, usize),
    /// Run as root if this is root, instead of as nobody with the usual limit of locked memory
    #[arg(long)]
    pub(super) as_root: bool,
    /// Duration of the load of the row `growth` in seconds
    #[arg(long, default_value_t = 30.0, value_parser = seconds)]
    pub(super) soak: f64,
    /// Another binary than that of this tree
    #[arg(long, value_name = "FILE")]
    pub(super) binary: Option<PathBuf>,
    /// Another build to be measured in turns with this one: its binary. Only loads are measured
    /// then, and a row fails if the whole 95 % interval of its ratio is below 0.97
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "steady"])]
    pub(super) against: Option<PathBuf>,
    /// Write the figures into docs/performance.md
    #[arg(long, conflicts_with_all = ["only", "target", "against", "binary"])]
    pub(super) page: bool,
}

impl Options {
    /// So many processors of the target, for a command line.
    pub(super) fn target_cpus(&self, count: usize) -> String {
        cpus_of(self.cpus.into(), 0, count)
    }

    /// So many of the load.
    pub(super) fn load_cpus(&self, count: usize) -> String {
        cpus_of(self.cpus.into(), 1, count)
    }

    pub(super) fn runtime(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Before anything counts: connections are there and buffers have been touched.
    pub(super) fn ramp(&self) -> Duration {
        (self.runtime() / 4).min(Duration::from_millis(500))
    }
}

/// So many processors of the target (`end` 0) or of the load (1): its own of the two that are
/// given, then every second one of all others.
fn cpus_of(given: [usize; 2], end: usize, count: usize) -> String {
    let others = (0..).filter(|cpu| !given.contains(cpu)).skip(end).step_by(2);
    let cpus = std::iter::once(given[end]).chain(others).take(count);
    cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, from 0.05 to a million".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share between 0 and 1, like 0.15".to_owned()),
    }
}

fn two_cpus(text: &str) -> Result<(usize, usize), String> {
    let (target, load) = text.split_once(',').ok_or("two processors, like 0,1")?;
    let number = |text: &str| text.trim().parse::<usize>().map_err(|error| error.to_string());
    let (target, load) = (number(target)?, number(load)?);
    if target == load { Err("one processor twice".to_owned()) } else { Ok((target, load)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_below_one() {
        assert_eq!(share("0.15"), Ok(0.15));
        for bad in ["1", "-0.1", "15 %", "nan", ""] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_some() {
        assert_eq!(seconds("0.3"), Ok(0.3));
        for bad in ["0", "-1", "nan", "inf", "1e7", "30s", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_end_has_processors_of_its_own() {
        let both = |given, count| [cpus_of(given, 0, count), cpus_of(given, 1, count)];
        assert_eq!(both([0, 1], 1), ["0", "1"]);
        assert_eq!(both([0, 1], 2), ["0,2", "1,3"]);
        assert_eq!(both([3, 0], 2), ["3,1", "0,2"]);
    }

    #[test]
    fn two_processors_are_two() {
        assert_eq!(two_cpus("0,1"), Ok((0, 1)));
        for bad in ["0", "1,1", "a,b", ""] {
            assert!(two_cpus(bad).is_err(), "{bad}");
        }
    }
}
