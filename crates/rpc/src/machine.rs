//! CPU use and counters of this machine and this process, from /proc.
//!
//! All numbers count from an arbitrary start; a period is the difference of two readings
//! ([`Machine::since`], [`Thread::since`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The kernel's unit of CPU times (`USER_HZ` is 100 on every supported architecture).
const TICK_NS: u64 = 10_000_000;

/// Counters of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its processors.
    pub cores: Vec<Core>,
    /// Interrupts.
    pub interrupts: u64,
    /// Context switches.
    pub context_switches: u64,
    /// Soft interrupts by name.
    pub softirqs: BTreeMap<String, u64>,
}

/// Times of a processor in ns, counted in ticks of 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Core {
    /// Its number.
    pub cpu: usize,
    /// User mode, nice included.
    pub user_ns: u64,
    /// Kernel, without interrupts.
    pub system_ns: u64,
    /// Soft interrupts.
    pub softirq_ns: u64,
    /// Interrupts.
    pub irq_ns: u64,
    /// Idle while some thread waited for a disk.
    pub iowait_ns: u64,
    /// Idle.
    pub idle_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
}

/// This process as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// CPU time of all its threads.
    pub cpu_ns: u64,
    /// When it started, since 1970.
    pub started_ns: u64,
    /// Its memory that is resident.
    pub resident_bytes: u64,
    /// Its address space.
    pub virtual_bytes: u64,
    /// Its open file descriptors.
    pub open_fds: u64,
    /// The descriptors that it may have.
    pub max_fds: u64,
}

/// Counters of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Its thread ID.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// CPU time in user mode. The sum of this and the next is exact; the kernel divides it in ticks
    /// of 10 ms.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Context switches, voluntary and not.
    pub context_switches: u64,
    /// How it waited for a processor; none if the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<RunDelay>,
}

/// How a thread waited for a processor while it could have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunDelay {
    /// All its waits together.
    pub total_ns: u64,
    /// How often it was given a processor: there are no more waits than that.
    pub runs: u64,
    /// How often its processor was taken from it while it could have run on.
    pub involuntary_switches: u64,
    /// Its longest wait, where the kernel keeps that (`kernel.sched_schedstats`). Of a period it is
    /// known only if it is longer than all before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
}

impl RunDelay {
    /// That of the calling thread since its start.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        Self::read(Path::new("/proc/thread-self"))
    }

    fn read(directory: &Path) -> Option<Self> {
        let text = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        Self::from_texts(&text("schedstat"), &text("sched"), &text("status"))
    }

    fn from_texts(schedstat: &str, sched: &str, status: &str) -> Option<Self> {
        let mut numbers = schedstat.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (total_ns, runs) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let find = |text: &str, wanted: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(key, _)| key.trim_end().ends_with(wanted))?;
            Some(value.trim().to_owned())
        };
        let involuntary = find(status, "nonvoluntary_ctxt_switches")?.parse().ok()?;
        // Milliseconds with six digits behind the point.
        let longest = find(sched, "wait_max").and_then(|text| text.replace('.', "").parse().ok());
        // A kernel that does not count writes zeros.
        (runs > 0).then_some(Self {
            total_ns,
            runs,
            involuntary_switches: involuntary,
            longest_ns: longest,
        })
    }

    /// The difference to an earlier reading of the same thread.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = since!(self, earlier; total_ns, runs, involuntary_switches);
        since.longest_ns = self.longest_ns.filter(|longest| Some(*longest) > earlier.longest_ns);
        since
    }
}

impl Machine {
    /// This machine's counters now. What the kernel does not report is left out.
    #[must_use]
    pub fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::from_texts(&text("/proc/stat"), &text("/proc/softirqs"))
    }

    fn from_texts(stat: &str, softirqs: &str) -> Self {
        let mut machine = Self { softirqs: sums(softirqs), ..Self::default() };
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(key) = words.next() else { continue };
            let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0u64);
            match key {
                "intr" => machine.interrupts = number(),
                "ctxt" => machine.context_switches = number(),
                _ => {
                    let cpu = key.strip_prefix("cpu").and_then(|cpu| cpu.parse().ok());
                    let Some(cpu) = cpu else { continue };
                    let mut ns = || number().saturating_mul(TICK_NS);
                    let (user, nice) = (ns(), ns());
                    machine.cores.push(Core {
                        cpu,
                        user_ns: user.saturating_add(nice),
                        system_ns: ns(),
                        idle_ns: ns(),
                        iowait_ns: ns(),
                        irq_ns: ns(),
                        softirq_ns: ns(),
                        steal_ns: ns(),
                    });
                }
            }
        }
        machine
    }

    /// The difference to an earlier reading. Processors that it does not contain are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = since!(self, earlier; interrupts, context_switches);
        let before = |cpu: usize| earlier.cores.iter().find(|core| core.cpu == cpu);
        let cores = self.cores.iter();
        since.cores = cores.filter_map(|core| Some(core.since(before(core.cpu)?))).collect();
        for (name, count) in &mut since.softirqs {
            *count = count.saturating_sub(earlier.softirqs.get(name).copied().unwrap_or(0));
        }
        since
    }
}

impl Core {
    fn since(&self, earlier: &Self) -> Self {
        since!(
            self, earlier;
            user_ns, system_ns, softirq_ns, irq_ns, iowait_ns, idle_ns, steal_ns
        )
    }
}

impl Process {
    /// This process now. What the kernel does not report is 0.
    #[must_use]
    pub fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let fds = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let texts = ["/proc/self/stat", "/proc/self/status", "/proc/self/limits", "/proc/stat"];
        // One of them is this listing's own.
        Self { open_fds: fds.saturating_sub(1), ..Self::from_texts(texts.map(text).each_ref()) }
    }

    fn from_texts([stat, status, limits, machine]: [&String; 4]) -> Self {
        let number = |word: &str| word.parse::<u64>().ok();
        let line = |text: &str, key: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
            number(rest.split_ascii_whitespace().next()?)
        };
        let kib = |key| line(status, key).unwrap_or(0).saturating_mul(1024);
        let ticks = |field| stat_field(stat, field).saturating_mul(TICK_NS);
        let booted = line(machine, "btime ").unwrap_or(0).saturating_mul(1_000_000_000);
        Self {
            cpu_ns: ticks(14).saturating_add(ticks(15)),
            started_ns: booted.saturating_add(ticks(22)),
            resident_bytes: kib("VmRSS:"),
            virtual_bytes: kib("VmSize:"),
            open_fds: 0,
            max_fds: line(limits, "Max open files").unwrap_or(0),
        }
    }
}

/// A field of `/proc/PID/stat` by the number that proc(5) gives it. The name in parentheses may
/// contain anything; fields are counted from its end.
fn stat_field(stat: &str, number: usize) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let found = after_name.split_ascii_whitespace().nth(number - 3);
    found.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The rows of a table with a column for each processor, summed.
fn sums(table: &str) -> BTreeMap<String, u64> {
    let rows = table.lines().filter_map(|line| line.split_once(':'));
    let summed = rows.map(|(name, counts)| {
        let counts = counts.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok());
        (name.trim().to_owned(), counts.fold(0, u64::saturating_add))
    });
    summed.collect()
}

/// The threads of this process whose names have this prefix. One that ends meanwhile is left out.
#[must_use]
pub fn threads(prefix: &str) -> Vec<Thread> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut threads: Vec<Thread> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let id = path.file_name()?.to_str()?.parse().ok()?;
            let text = |name: &str| fs::read_to_string(path.join(name)).ok();
            let name = text("comm")?.trim_end().to_owned();
            if !name.starts_with(prefix) {
                return None;
            }
            let exact = text("schedstat").unwrap_or_default();
            let thread = Thread::from_texts(id, name, &text("stat")?, &exact, &text("status")?);
            Some(Thread { delay: RunDelay::read(&path), ..thread })
        })
        .collect();
    threads.sort_by_key(|thread| thread.id);
    let workers = ring_workers();
    for thread in &mut threads {
        let ns = workers.get(&thread.id).copied().unwrap_or(0);
        thread.system_ns = thread.system_ns.saturating_add(ns);
    }
    threads
}

/// CPU time of the workers that io_uring has for threads of this process, in ns, by the thread's
/// identifier. The kernel counts it in the process and in none of its own threads. Of a worker that
/// has ended it is what was last seen.
#[must_use]
pub fn ring_workers() -> BTreeMap<u32, u64> {
    static SEEN: Mutex<RingWorkers> = Mutex::new(RingWorkers(BTreeMap::new()));
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.look(Path::new("/proc/self/task"));
    seen.by_thread()
}

/// The last CPU time of each worker, by its thread and its own identifier.
#[derive(Debug, Default)]
struct RingWorkers(BTreeMap<(u32, u32), u64>);

impl RingWorkers {
    fn look(&mut self, tasks: &Path) {
        let Ok(entries) = fs::read_dir(tasks) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let text = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
            let of = text("comm").trim_end().strip_prefix("iou-wrk-").map(str::parse::<u32>);
            let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            let schedstat = text("schedstat");
            let ns = schedstat.split_ascii_whitespace().next().map(str::parse::<u64>);
            if let (Some(Ok(of)), Some(id), Some(Ok(ns))) = (of, id, ns) {
                let seen = self.0.entry((of, id)).or_insert(0);
                *seen = ns.max(*seen);
            }
        }
    }

    fn by_thread(&self) -> BTreeMap<u32, u64> {
        let mut sums = BTreeMap::new();
        for ((of, _), ns) in &self.0 {
            *sums.entry(*of).or_insert(0) += ns;
        }
        sums
    }
}

impl Thread {
    fn from_texts(id: u32, name: String, stat: &str, schedstat: &str, status: &str) -> Self {
        let (user, system) = (stat_field(stat, 14), stat_field(stat, 15));
        let ticks = user.saturating_add(system);
        let exact: Option<u64> =
            schedstat.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        let total_ns = exact.filter(|ns| *ns > 0).unwrap_or(ticks.saturating_mul(TICK_NS));
        let share = u128::from(total_ns) * u128::from(system) / u128::from(ticks.max(1));
        let system_ns = u64::try_from(share).unwrap_or(total_ns);
        let switches = status
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(key, _)| key.ends_with("ctxt_switches"))
            .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
            .fold(0, u64::saturating_add);
        Self {
            id,
            name,
            user_ns: total_ns.saturating_sub(system_ns),
            system_ns,
            context_switches: switches,
            delay: None,
        }
    }

    /// The difference to an earlier reading of the same thread.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = since!(self, earlier; user_ns, system_ns, context_switches);
        since.delay = self.delay.zip(earlier.delay).map(|(now, before)| now.since(&before));
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 1 20 300 4 5 6 7 0 0\n\
                        cpu0 4 1 8 150 2 2 3 3 0 0\n\
                        cpu12 6 0 12 150 2 3 3 4 0 0\n\
                        intr 8885917 17 0 0\nctxt 22848221\nbtime 1605316999\n";
    const SOFTIRQS: &str = "                    CPU0       CPU1\n\
                            \x20         HI:          1          0\n\
                            \x20     NET_RX:         10         32\n";

    #[test]
    fn a_process_is_read_from_the_kernels_texts() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 4 0 1234 99 9 0";
        let status = "Name:\ta) b\nVmSize:\t    2000 kB\nVmRSS:\t    1000 kB\n";
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files    1024  4096  files\n";
        let texts = [stat, status, limits, STAT].map(str::to_owned);
        let process = Process::from_texts(texts.each_ref());
        assert_eq!((process.cpu_ns, process.max_fds), (3_000_000_000, 1024));
        assert_eq!(process.started_ns, 1_605_316_999_000_000_000 + 12_340_000_000);
        assert_eq!((process.virtual_bytes, process.resident_bytes), (2000 << 10, 1000 << 10));
        let own = Process::read();
        assert!(own.open_fds > 0 && own.max_fds >= own.open_fds && own.resident_bytes > 1 << 16);
    }

    #[test]
    fn the_kernels_texts_are_parsed() {
        let machine = Machine::from_texts(STAT, SOFTIRQS);
        assert_eq!(machine.cores.len(), 2, "without the line of all processors");
        let core = &machine.cores[1];
        assert_eq!((core.cpu, core.user_ns, core.system_ns), (12, 60_000_000, 120_000_000));
        assert_eq!((core.idle_ns, core.iowait_ns), (1_500_000_000, 20_000_000));
        assert_eq!(
            (core.irq_ns, core.softirq_ns, core.steal_ns),
            (30_000_000, 30_000_000, 40_000_000)
        );
        assert_eq!(machine.cores[0].user_ns, 50_000_000, "includes nice");
        assert_eq!((machine.interrupts, machine.context_switches), (8_885_917, 22_848_221));
        assert_eq!(machine.softirqs["NET_RX"], 42);
        assert_eq!(machine.softirqs.len(), 2);
    }

    #[test]
    fn differences_match_by_processor() {
        let earlier = Machine::from_texts(STAT, SOFTIRQS);
        let mut later = earlier.clone();
        later.cores[0].user_ns += 7;
        later.interrupts += 3;
        later.cores.push(Core { cpu: 99, ..Core::default() });
        let between = later.since(&earlier);
        assert_eq!(between.cores.len(), 2);
        assert_eq!((between.cores[0].user_ns, between.cores[1].user_ns), (7, 0));
        assert_eq!((between.interrupts, between.softirqs["NET_RX"]), (3, 0));
    }

    #[test]
    fn a_threads_total_time_is_exact() {
        let stat = "4711 (a) (b 1 2) R 1 2 3 4 5 6 70 8 90 10 300 100 0 0 20 0 1 0";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t30\n";
        let thread = Thread::from_texts(7, "x".to_owned(), stat, "4000000004 17 9\n", status);
        assert_eq!((thread.user_ns, thread.system_ns), (3_000_000_003, 1_000_000_001));
        assert_eq!(thread.context_switches, 42);
        let coarse = Thread::from_texts(7, "x".to_owned(), stat, "", status);
        assert_eq!((coarse.user_ns, coarse.system_ns), (3_000_000_000, 1_000_000_000));
        for stat in ["", ")", "1 (x) R", "1 (x"] {
            let none = Thread::from_texts(7, "x".to_owned(), stat, "garbage", "garbage");
            assert_eq!((none.user_ns, none.system_ns, none.context_switches), (0, 0, 0));
        }
    }

    #[test]
    fn what_a_thread_waited_is_read_and_what_is_not_told_is_unknown() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t30\n";
        let sched = "x (7, #threads: 1)\n-----\nwait_start   :  0.000000\n\
                     se.statistics.wait_max      :        4.000321\nwait_sum : 9.000000\n";
        let delay = RunDelay::from_texts("4000000004 1700 9\n", sched, status).expect("a reading");
        let expected = RunDelay {
            total_ns: 1700,
            runs: 9,
            involuntary_switches: 30,
            longest_ns: Some(4_000_321),
        };
        assert_eq!(delay, expected);
        let without = RunDelay::from_texts("4000000004 1700 9\n", "", status).expect("a reading");
        assert_eq!(without, RunDelay { longest_ns: None, ..expected });
        for (schedstat, status) in [("0 0 0", status), ("", status), ("7 8", status), ("7 8 9", "")]
        {
            assert_eq!(RunDelay::from_texts(schedstat, sched, status), None, "{schedstat}");
        }
        let later = RunDelay { total_ns: 2000, runs: 11, involuntary_switches: 31, ..expected };
        let between = later.since(&expected);
        assert_eq!((between.total_ns, between.runs, between.involuntary_switches), (300, 2, 1));
        assert_eq!(between.longest_ns, None, "the longest was before");
        let longer = RunDelay { longest_ns: Some(5_000_000), ..later };
        assert_eq!(longer.since(&expected).longest_ns, Some(5_000_000));
        let thread = |delay| Thread { delay, ..Thread::default() };
        assert_eq!(thread(Some(later)).since(&thread(None)).delay, None);
    }

    #[test]
    fn this_machine_and_process_are_read() {
        let machine = Machine::read();
        assert!(!machine.cores.is_empty() && machine.context_switches > 0);
        assert!(machine.softirqs.contains_key("TIMER"));
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("weft-seen-7".to_owned())
            .spawn(move || stopped.recv())
            .expect("a thread");
        // The thread sets its name when it runs.
        while threads("weft-seen-7").is_empty() {
            std::thread::yield_now();
        }
        assert!(threads("weft-unseen").is_empty());
        drop(stop);
        assert!(thread.join().is_ok());
    }

    #[test]
    fn workers_of_a_ring_count_for_its_thread_and_stay_counted_when_they_end() {
        let folder = std::env::temp_dir().join(format!("weft-tasks-{}", std::process::id()));
        let task = |id: u32, comm: &str, ns: u64| {
            let path = folder.join(id.to_string());
            fs::create_dir_all(&path).expect("a folder");
            fs::write(path.join("comm"), format!("{comm}\n")).expect("a file");
            fs::write(path.join("schedstat"), format!("{ns} 1 1\n")).expect("a file");
        };
        task(10, "weft-group-0", 500);
        task(11, "iou-wrk-10", 70);
        task(12, "iou-wrk-10", 5);
        task(13, "iou-wrk-9", 1);
        let mut workers = RingWorkers::default();
        workers.look(&folder);
        assert_eq!(workers.by_thread(), BTreeMap::from([(9, 1), (10, 75)]));
        fs::remove_dir_all(folder.join("11")).expect("it ends");
        task(12, "iou-wrk-10", 9);
        workers.look(&folder);
        assert_eq!(workers.by_thread()[&10], 79);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
