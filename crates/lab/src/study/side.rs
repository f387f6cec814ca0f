//! Converts counters of both sides into records.

use weft_load::RunResult;
use weft_load::floor::FloorResult;
use weft_load::usage::Usage;
use weft_rpc::machine::{Machine, RunDelay};
use weft_statistics::Statistics;

use crate::results::{Core, Delay, IdleRate, NamespaceCounts, Side, SideMachine, Thread};

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A machine's counters over a time.
pub(super) fn machine(of: &Machine) -> SideMachine {
    let core = |core: &weft_rpc::machine::Core| Core {
        cpu: core.cpu,
        user_s: seconds(core.user_ns),
        system_s: seconds(core.system_ns),
        softirq_s: seconds(core.softirq_ns),
        irq_s: seconds(core.irq_ns),
        iowait_s: seconds(core.iowait_ns),
        idle_s: seconds(core.idle_ns),
        steal_s: seconds(core.steal_ns),
    };
    SideMachine {
        cores: of.cores.iter().map(core).collect(),
        interrupts: of.interrupts,
        context_switches: of.context_switches,
        softirqs: of.softirqs.clone(),
    }
}

fn delay(of: &RunDelay) -> Delay {
    Delay {
        waited_s: seconds(of.total_ns),
        runs: of.runs,
        involuntary_switches: of.involuntary_switches,
        longest_s: of.longest_ns.map(seconds),
    }
}

pub(super) fn thread(name: String, usage: &Usage, whole_s: f64) -> Thread {
    let (user_s, system_s) = (usage.user.as_secs_f64(), usage.system.as_secs_f64());
    Thread {
        name,
        user_s,
        system_s,
        context_switches: usage.context_switches,
        polling_s: polling_s(whole_s, usage.idle.as_secs_f64(), user_s + system_s),
        delay: usage.delay.as_ref().map(delay),
    }
}

/// CPU time that a thread used beyond the time in which it had work: polling that found nothing.
/// If it had to wait for its processor while it had work, there was more.
fn polling_s(whole_s: f64, idle_s: f64, cpu_s: f64) -> f64 {
    (cpu_s - (whole_s - idle_s)).clamp(0.0, idle_s.max(0.0))
}

/// The workers of a run, without duplicates.
pub(super) fn workers(result: &RunResult) -> Vec<Thread> {
    let mut seen = Vec::new();
    let mut threads = Vec::new();
    for (worker, lane) in &result.lanes {
        if !seen.contains(worker) {
            seen.push(*worker);
            let whole = lane.read.measured.max(lane.write.measured).as_secs_f64();
            threads.push(thread(format!("weft-lab-{worker}"), &lane.usage, whole));
        }
    }
    threads
}

/// The share of a time in which a thread had work. For a thread that sleeps while idle it is its
/// CPU time; for a polling thread it is all but the time of polls that found nothing. (System
/// calls of a sleeping thread that find nothing count as work.)
fn share(whole_s: f64, idle_s: f64, cpu_s: f64, sleeps: bool) -> f64 {
    if whole_s <= 0.0 {
        return 0.0;
    }
    let looked = 1.0 - idle_s / whole_s;
    if sleeps { looked.max(cpu_s / whole_s) } else { looked }
}

/// The share of the measured time in which the busiest worker had work.
pub(super) fn generator_share(result: &RunResult, sleeps: bool) -> f64 {
    let share = |lane: &weft_load::LaneResult| {
        let counted = lane.read.measured.max(lane.write.measured).as_secs_f64();
        let Usage { user, system, idle, .. } = lane.usage;
        share(counted, idle.as_secs_f64(), (user + system).as_secs_f64(), sleeps)
    };
    result.lanes.iter().map(|(_, lane)| share(lane)).fold(0.0, f64::max).clamp(0.0, 1.0)
}

/// The same of the busiest poll group.
pub(super) fn target_share(of: &Statistics, sleeps: bool) -> f64 {
    let share = |group: &weft_statistics::Group| {
        let cpu_ns = group.thread.user_ns.saturating_add(group.thread.system_ns);
        share(seconds(of.time_ns), seconds(group.idle_ns), seconds(cpu_ns), sleeps)
    };
    of.groups.iter().map(share).fold(0.0, f64::max).clamp(0.0, 1.0)
}

/// The requests that a target served.
pub(super) fn served(of: &Statistics, target: usize) -> Vec<NamespaceCounts> {
    let groups = of.groups.iter().flat_map(|group| {
        group.served.iter().map(move |served| NamespaceCounts {
            target,
            group: group.group,
            cpu: group.cpu,
            counted: served.clone(),
        })
    });
    groups.collect()
}

/// A target's counters over a time.
pub(super) fn target(of: &Statistics, number: usize) -> Side {
    let threads = of.groups.iter().map(|group| Thread {
        name: group.thread.name.clone(),
        user_s: seconds(group.thread.user_ns),
        system_s: seconds(group.thread.system_ns),
        context_switches: group.thread.context_switches,
        polling_s: polling_s(
            seconds(of.time_ns),
            seconds(group.idle_ns),
            seconds(group.thread.user_ns.saturating_add(group.thread.system_ns)),
        ),
        delay: group.thread.delay.as_ref().map(delay),
    });
    Side {
        seconds: seconds(of.time_ns),
        threads: threads.collect(),
        machine: machine(&of.machine),
        cpus: of.groups.iter().filter_map(|group| group.cpu).collect(),
        others_s: None,
        lost_s: None,
        interruptions: 0,
        collector: None,
        served: served(of, number),
    }
}

/// A target that does not count its own time: what its machine did beyond its idle rate, but for
/// the load if that was on the same machine.
pub(super) fn of_a_machine(of: &Statistics, idle: &IdleRate, load: Option<&Side>) -> Side {
    let (seconds, machine) = (seconds(of.time_ns), machine(&of.machine));
    let of_load = load.map_or(0.0, Side::cpu_seconds);
    let busy = machine.busy_s() - idle.cpu_s * seconds - of_load;
    // It is not known what of it was user time: of kernels next to nothing.
    let all = Thread {
        name: "its machine beyond idle".to_owned(),
        system_s: busy.max(0.0),
        ..Thread::default()
    };
    Side { seconds, threads: vec![all], machine, ..Side::default() }
}

/// The one end of a raw link that is known.
pub(super) fn end(usage: &Usage, seconds: f64) -> Thread {
    thread("client".to_owned(), usage, seconds)
}

/// The two ends of a raw link.
pub(super) fn ends(of: &FloorResult, ramp_s: f64, cpus: Option<(usize, usize)>) -> (Side, Side) {
    let side = |name: &str, usage: &Usage, cpu: Option<usize>| Side {
        seconds: of.measured.as_secs_f64() + ramp_s,
        threads: vec![thread(name.to_owned(), usage, of.measured.as_secs_f64() + ramp_s)],
        cpus: cpu.into_iter().collect(),
        ..Side::default()
    };
    let (server, client) = (cpus.map(|(server, _)| server), cpus.map(|(_, client)| client));
    (side("client", &of.client, client), side("server", &of.server, server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weft_load::{DirectionResult, LaneResult};
    use weft_statistics::Group;

    #[test]
    fn a_worker_counts_once_and_the_busiest_decides() {
        let lane = |idle_ms| LaneResult {
            read: DirectionResult { measured: Duration::from_secs(1), ..Default::default() },
            usage: Usage {
                idle: Duration::from_millis(idle_ms),
                user: Duration::from_millis(10),
                ..Usage::default()
            },
            ..LaneResult::default()
        };
        let lanes = vec![(0, lane(900)), (0, lane(900)), (1, lane(100))];
        let result = RunResult { lanes, ..RunResult::default() };
        assert_eq!(workers(&result).len(), 2);
        assert!((generator_share(&result, false) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn polling_that_found_nothing_is_cpu_time_beyond_the_work() {
        let of = |idle_s, cpu_s| polling_s(2.0, idle_s, cpu_s);
        assert!((of(0.5, 2.0) - 0.5).abs() < 1e-9, "it polled all the time that it had no work");
        assert!((of(1.5, 0.75) - 0.25).abs() < 1e-9, "and slept for the rest");
        assert_eq!((of(1.5, 0.4), of(0.0, 2.5)), (0.0, 0.0));
        let usage = Usage {
            user: Duration::from_secs(2),
            idle: Duration::from_millis(500),
            ..Usage::default()
        };
        let read = DirectionResult { measured: Duration::from_secs(2), ..Default::default() };
        let lane = LaneResult { read, usage, ..LaneResult::default() };
        let result = RunResult { lanes: vec![(0, lane)], ..RunResult::default() };
        assert!((workers(&result)[0].polling_s - 0.5).abs() < 1e-9);
        let mut group = Group { idle_ns: 500_000_000, ..Group::default() };
        group.thread.user_ns = 2_000_000_000;
        let groups = vec![group];
        let of = Statistics { time_ns: 2_000_000_000, groups, ..Statistics::default() };
        assert!((target(&of, 0).threads[0].polling_s - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_target_of_the_kernel_is_what_its_machine_does_beyond_idle_and_the_load() {
        let core = weft_rpc::machine::Core {
            user_ns: 500_000_000,
            system_ns: 1_000_000_000,
            softirq_ns: 500_000_000,
            idle_ns: 2_000_000_000,
            ..Default::default()
        };
        let machine = Machine { cores: vec![core], ..Machine::default() };
        let of = Statistics { time_ns: 2_000_000_000, machine, ..Statistics::default() };
        let idle = IdleRate { cpu_s: 0.1, ..IdleRate::default() };
        let apart = of_a_machine(&of, &idle, None);
        assert!((apart.cpu_seconds() - 1.8).abs() < 1e-9, "{apart:?}");
        let thread = Thread { user_s: 0.3, system_s: 0.5, ..Thread::default() };
        let load = Side { threads: vec![thread], ..Side::default() };
        let beside = of_a_machine(&of, &idle, Some(&load));
        assert!((beside.cpu_seconds() - 1.0).abs() < 1e-9, "{beside:?}");
        let busy = IdleRate { cpu_s: 9.0, ..IdleRate::default() };
        assert_eq!(of_a_machine(&of, &busy, None).cpu_seconds(), 0.0);
    }

    #[test]
    fn a_targets_share_is_that_of_its_busiest_group() {
        let group = |idle_ns| Group { idle_ns, ..Group::default() };
        let groups = vec![group(700), group(200)];
        let of = Statistics { time_ns: 1000, groups, ..Statistics::default() };
        assert!((target_share(&of, false) - 0.8).abs() < 1e-9);
        assert_eq!(target_share(&Statistics::default(), true), 0.0);
    }

    #[test]
    fn the_share_of_a_sleeping_thread_is_its_cpu_time() {
        assert!((share(2.0, 0.5, 1.9, true) - 0.95).abs() < 1e-9);
        assert!((share(2.0, 0.5, 1.9, false) - 0.75).abs() < 1e-9, "idle polls are not work");
        assert!((share(2.0, 0.1, 0.4, true) - 0.95).abs() < 1e-9, "nor is waiting for a CPU");
    }
}
