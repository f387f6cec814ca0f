//! CPU use of a thread.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_reactor::thread_cpu_time;
use weft_rpc::machine::{RunDelay, ring_workers};

/// Counters of the calling thread since its start, or the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
    /// Context switches, voluntary and not.
    pub context_switches: u64,
    /// How it waited for a processor; none if the kernel does not say, and of a whole process.
    pub delay: Option<RunDelay>,
    /// Page faults that needed the disk.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// How long the thread's reactor polled or slept without finding anything to do. The kernel
    /// does not report this; the owner of the reactor does.
    pub idle: Duration,
}

impl Usage {
    /// The calling thread's counters now, with the CPU time of the workers that io_uring has for
    /// it. What the kernel does not report is 0.
    ///
    /// The sum of user and system time is exact; the kernel divides it in its ticks only (usually
    /// 10 ms).
    #[must_use]
    pub fn of_this_thread() -> Self {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let usage = Self::from_texts(thread_cpu_time(), &stat, &status);
        let workers = ring_workers().remove(&rustix::thread::gettid().as_raw_pid().unsigned_abs());
        let system = usage.system + Duration::from_nanos(workers.unwrap_or(0));
        Self { system, delay: RunDelay::of_this_thread(), ..usage }
    }

    /// The counters of another process, all its threads together; zeros if it has ended.
    #[must_use]
    pub fn of_process(id: u32) -> Self {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let each = rustix::param::clock_ticks_per_second().max(1);
        let ticks = field(&stat, 14) + field(&stat, 15);
        let total = Duration::from_secs_f64(ticks as f64 / each as f64);
        Self::from_texts(total, &stat, &read("status"))
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
            delay: self.delay.zip(earlier.delay).map(|(now, before)| now.since(&before)),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            idle: self.idle.saturating_sub(earlier.idle),
        }
    }

    /// This and another one together; of whose waits nothing is said.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            context_switches: self.context_switches + other.context_switches,
            delay: None,
            major_faults: self.major_faults + other.major_faults,
            minor_faults: self.minor_faults + other.minor_faults,
            idle: self.idle + other.idle,
        }
    }

    fn from_texts(total: Duration, stat: &str, status: &str) -> Self {
        let (user_ticks, system_ticks) = (field(stat, 14), field(stat, 15));
        let ticks = user_ticks + system_ticks;
        let system = if ticks == 0 {
            Duration::ZERO
        } else {
            total.mul_f64(system_ticks as f64 / ticks as f64)
        };
        let switches = status
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(key, _)| key.ends_with("ctxt_switches"))
            .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
            .sum();
        Self {
            user: total.saturating_sub(system),
            system,
            context_switches: switches,
            delay: None,
            major_faults: field(stat, 12),
            minor_faults: field(stat, 10),
            idle: Duration::ZERO,
        }
    }
}

/// A field of a process' `stat` by its number in proc(5). The name in parentheses may contain
/// anything; fields are counted from its end.
fn field(stat: &str, number: usize) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let found = after_name.split_whitespace().nth(number - 3);
    found.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        // Fields as in proc_pid_stat(5), with a name that looks like fields.
        let stat = "4711 (a) (b 1 2) R 1 2 3 4 5 6 70 8 90 10 300 100 0 0 20 0 1 0";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t30\n";
        let usage = Usage::from_texts(Duration::from_secs(4), stat, status);
        assert_eq!(usage.user, Duration::from_secs(3));
        assert_eq!(usage.system, Duration::from_secs(1));
        assert_eq!(usage.context_switches, 42);
        assert_eq!((usage.minor_faults, usage.major_faults), (70, 90));
    }

    #[test]
    fn missing_texts_count_as_zero() {
        for stat in ["", ")", "1 (x) R", "1 (x"] {
            let usage = Usage::from_texts(Duration::from_secs(1), stat, "garbage");
            let expected = Usage { user: Duration::from_secs(1), ..Usage::default() };
            assert_eq!(usage, expected, "{stat}");
        }
    }

    #[test]
    fn work_is_counted() {
        let before = Usage::of_this_thread();
        let mut x = 1u64;
        while Usage::of_this_thread().since(&before).user.is_zero() {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let used = Usage::of_this_thread().since(&before);
        assert_eq!(used.plus(&Usage::default()), Usage { delay: None, ..used });
    }
}
