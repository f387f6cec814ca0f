//! Whether measured threads got their processors.
//!
//! What the kernel says without root is the sum of a thread's waits and their number
//! (`schedstat`), the longest one since its start if `kernel.sched_schedstats` is on (`sched`), and
//! the time of each processor in ticks (`/proc/stat`). So everything here is a lower bound: a mark
//! means that the threads did not get their processors, whatever the rest was.

use std::time::Duration;

use weft_backend::DeviceSpec;
use weft_load::limits::WAKE_UP;

use super::deployment::{Load, Place};
use super::launch::TargetSpec;
use super::software::Software;
use crate::limits::{DISTURBED, PIECE, TICK};
use crate::results::{Connection, Core, Mark, Record, Side};

/// A load of a step, for the threads that ran beside those of others.
pub(super) struct Beside<'a> {
    pub(super) record: &'a mut Record,
    /// The machines that drove it; none: this one.
    pub(super) machines: Vec<String>,
    /// The number of its target.
    pub(super) target: Option<usize>,
    /// Its p99, if that is resolved.
    pub(super) p99_s: Option<f64>,
    /// Whether nothing but the measured threads works for it: on the load's side and the target's.
    pub(super) is_alone: [bool; 2],
    /// Whether its target shares its processor with a thread that is not measured: the bytes of a
    /// background without storage. What that takes is the experiment.
    pub(super) is_beside_network: bool,
}

/// Threads of one side that are measured.
struct Party {
    /// The target whose they are; none: a load's.
    target: Option<usize>,
    load: usize,
    /// The machines that they may run on.
    machines: Vec<String>,
    cpus: Vec<usize>,
    cpu_s: f64,
}

impl Party {
    fn of(side: &Side, load: usize, target: Option<usize>, machines: Vec<String>) -> Self {
        let (cpus, cpu_s) = (side.cpus.clone(), side.cpu_seconds());
        Self { target, load, machines, cpus, cpu_s }
    }

    fn is(&self, load: usize, target: Option<usize>) -> bool {
        self.target == target && (target.is_some() || self.load == load)
    }

    /// Whether they may run on the same processor.
    fn meets(&self, other: &Self) -> bool {
        let is_anywhere = self.cpus.is_empty() || other.cpus.is_empty();
        self.machines.iter().any(|machine| other.machines.contains(machine))
            && (is_anywhere || self.cpus.iter().any(|cpu| other.cpus.contains(cpu)))
    }
}

/// Records what others than the measured threads used of their processors, and marks the records
/// of a step whose threads were disturbed.
pub(super) fn mark(loads: &mut [Beside<'_>]) {
    let mut parties: Vec<Party> = Vec::new();
    for (number, load) in loads.iter().enumerate() {
        for party in load.parties(number) {
            if !parties.iter().any(|known| known.is(number, party.target)) {
                parties.push(party);
            }
        }
    }
    for (number, load) in loads.iter_mut().enumerate() {
        let Beside { record, target, p99_s, is_alone, is_beside_network, .. } = load;
        let sides = [(&mut record.host, None), (&mut record.target, *target)];
        let mut is_disturbed = false;
        for ((side, target), is_alone) in sides.into_iter().zip(*is_alone) {
            let party = parties.iter().find(|party| party.is(number, target));
            let (Some(side), Some(party)) = (side.as_mut(), party) else { continue };
            let rivals = parties.iter().filter(|other| !std::ptr::eq(*other, party));
            let rivals = rivals.filter(|other| party.meets(other)).map(|other| other.cpu_s);
            let rivals_s = match party.target.is_some() && *is_beside_network {
                true => f64::INFINITY,
                false => rivals.sum(),
            };
            side.others_s = others_s(side, rivals_s);
            let taken_s = if is_alone { taken_s(side) } else { 0.0 };
            let waits = Waits::of(side, rivals_s, taken_s);
            (side.lost_s, side.interruptions) = (waits.lost_s, waits.interruptions(side, rivals_s));
            is_disturbed |= waits.are_long(side, *p99_s) || is_taken(side, taken_s);
        }
        if is_disturbed {
            record.mark(Mark::Disturbed);
        }
    }
}

impl Beside<'_> {
    fn parties(&self, number: usize) -> Vec<Party> {
        let here = |machines: &[String]| match machines {
            [] => vec![String::new()],
            machines => machines.to_vec(),
        };
        let machines = here(&self.machines);
        let ends = self.record.connection.as_ref();
        let of_target = match ends.is_none_or(Connection::is_within_a_machine) {
            true => machines.clone(),
            // No machine of a load has this name.
            false => vec!["target".to_owned()],
        };
        let host = self.record.host.iter().map(|side| (side, None, machines.clone()));
        let target = self.record.target.iter().map(|side| (side, self.target, of_target.clone()));
        host.chain(target)
            .map(|(side, target, machines)| Party::of(side, number, target, machines))
            .collect()
    }
}

/// What others used of the processors of a side, at least, beside measured threads that used
/// `rivals_s` there at the most. Softirqs are work of the network, and count for nobody; where the
/// kernel counts them in the time of threads they hide as much of others. If nobody knows what
/// `rivals_s` is, it is infinite.
fn others_s(side: &Side, rivals_s: f64) -> Option<f64> {
    side.pinned().next().filter(|_| rivals_s.is_finite())?;
    let used: f64 = side.pinned().map(|core| core.user_s + core.system_s).sum();
    Some((used - side.cpu_seconds() - rivals_s).max(0.0))
}

/// What others used of the processors beyond what ticks leave uncertain.
fn taken_s(side: &Side) -> f64 {
    let (Some(others_s), count) = (side.others_s, side.pinned().count() as f64) else { return 0.0 };
    let all_s = side.seconds * count;
    // Ticks are samples: of a share of the time they are wrong by the deviation of a binomial
    // distribution. Three of these, and one at each end of each processor.
    let share = (side.cpu_seconds() / all_s).clamp(0.0, 1.0);
    let tick_s = TICK.as_secs_f64();
    let uncertain_s = 3.0 * (share * (1.0 - share) * all_s * tick_s).sqrt() + count * tick_s;
    (others_s - uncertain_s).max(0.0)
}

/// Whether that is a share of the time that counts.
fn is_taken(side: &Side, taken_s: f64) -> bool {
    taken_s > 0.0 && taken_s >= DISTURBED * side.seconds * side.pinned().count() as f64
}

/// How threads of a side waited for a processor that no measured thread had.
struct Waits {
    /// The most of a thread, with what the hypervisor took of a processor.
    lost_s: Option<f64>,
    /// The longest one of a thread that no measured thread may have kept waiting.
    longest_s: f64,
}

impl Waits {
    /// Those of a side whose processors others used for `taken_s`.
    fn of(side: &Side, rivals_s: f64, taken_s: f64) -> Self {
        let stolen = |core: &Core| (core.steal_s - TICK.as_secs_f64()).max(0.0);
        let is_crowded = side.threads.len() > side.cpus.len().max(1);
        let (mut waited_s, mut longest_s) = (None, 0.0_f64);
        for thread in &side.threads {
            let Some(own) = thread.delay else { continue };
            let cpu_s = thread.user_s + thread.system_s;
            let fellows_s = if is_crowded { side.cpu_seconds() - cpu_s } else { 0.0 };
            let measured_s = rivals_s + fellows_s;
            // A run after which the processor was taken begins with a wait that is no wake-up's.
            let wake_ups = own.runs.saturating_sub(own.involuntary_switches);
            let wake_ups_s = WAKE_UP.as_secs_f64() * wake_ups as f64;
            let others_s = (own.waited_s - measured_s).max(0.0);
            // Where others used the processor, a short wait may be theirs as well.
            let beyond_s = (others_s - wake_ups_s).max(others_s.min(taken_s));
            waited_s = Some(beyond_s.max(waited_s.unwrap_or(0.0)));
            if measured_s <= 0.0 {
                let mean_s = own.waited_s / (own.runs as f64).max(1.0);
                longest_s = longest_s.max(own.longest_s.unwrap_or(0.0)).max(mean_s);
            }
        }
        let stolen_s = side.pinned().map(stolen).reduce(f64::max);
        let lost_s = [waited_s, stolen_s].into_iter().flatten().reduce(|one, other| one + other);
        Self { lost_s, longest_s }
    }

    /// Whether they are a part of the time that counts, or longer than the p99 that is claimed.
    fn are_long(&self, side: &Side, p99_s: Option<f64>) -> bool {
        let is_long = |p99_s: f64| self.longest_s > p99_s.max(WAKE_UP.as_secs_f64());
        side.seconds > 0.0
            && (self.lost_s.is_some_and(|lost_s| lost_s >= DISTURBED * side.seconds)
                || p99_s.is_some_and(is_long))
    }

    /// In how many pieces the processor was lost, at the most: the kernel counts how often it was
    /// taken from a thread, for measured threads too, and a thread that sleeps waits as well.
    fn interruptions(&self, side: &Side, rivals_s: f64) -> u64 {
        let Some(lost_s) = self.lost_s else { return 0 };
        let pieces = Duration::from_secs_f64(lost_s).as_nanos().div_ceil(PIECE.as_nanos());
        let taken = side.threads.iter().filter_map(|thread| thread.delay);
        let taken = taken.map(|own| own.involuntary_switches).max().unwrap_or(0);
        let is_known = rivals_s <= 0.0 && side.threads.len() <= side.cpus.len().max(1);
        u64::try_from(pieces).unwrap_or(u64::MAX).max(if is_known { taken } else { 0 })
    }
}

/// Whether nothing but the measured threads works for a load: no kernel threads of a block device,
/// of the kernel's host or target, and none of SPDK's. The device of a given target is not known.
pub(super) fn is_alone(load: &Load, target: Option<&TargetSpec>) -> [bool; 2] {
    let in_memory = |device: &DeviceSpec| device.stored_name().is_none();
    let own = match &load.place {
        Place::Local(device) => in_memory(device),
        Place::Inside { .. } | Place::Network(_) => false,
        Place::Own { .. } | Place::Given { .. } => true,
    };
    let is_weft = |software: Software| software == Software::Weft;
    let serves = |spec: &TargetSpec| is_weft(spec.software) && spec.devices.iter().all(in_memory);
    [own && is_weft(load.host.software), target.is_some_and(serves)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Configuration, Delay, Role, SideMachine, Thread};

    /// A thread on processor 1 for two seconds, of which it had `cpu_s`, and so had others.
    fn side(cpu_s: f64, others_s: f64, delay: Option<Delay>) -> Side {
        let core = |cpu, user_s: f64| Core { cpu, user_s, ..Core::default() };
        let cores = vec![core(0, 2.0), core(1, cpu_s + others_s)];
        Side {
            seconds: 2.0,
            threads: vec![Thread { user_s: cpu_s, delay, ..Thread::default() }],
            machine: SideMachine { cores, ..SideMachine::default() },
            cpus: vec![1],
            ..Side::default()
        }
    }

    fn waits(waited_s: f64, runs: u64) -> Option<Delay> {
        Some(Delay { waited_s, runs, involuntary_switches: 3, longest_s: None })
    }

    fn record(host: Side, target: Option<Side>) -> Record {
        let mut record = Record::new("made-up", "x", Role::Plain, Configuration::new());
        (record.host, record.target) = (Some(host), target);
        record
    }

    /// Whether each record of a step is marked; all loads and targets are on this machine.
    fn marked(records: &mut [Record], p99_s: Option<f64>, is_alone: bool) -> Vec<bool> {
        let beside = |(number, record)| Beside {
            record,
            machines: Vec::new(),
            target: Some(number),
            p99_s,
            is_alone: [is_alone; 2],
            is_beside_network: false,
        };
        mark(&mut records.iter_mut().enumerate().map(beside).collect::<Vec<Beside<'_>>>());
        records.iter().map(|record| record.has(Mark::Disturbed)).collect()
    }

    fn is_marked(host: Side, p99_s: Option<f64>) -> bool {
        marked(&mut [record(host, None)], p99_s, true) == [true]
    }

    #[test]
    fn threads_that_waited_a_hundredth_of_the_time_were_disturbed() {
        assert!(!is_marked(side(2.0, 0.0, waits(0.0, 1)), None), "a quiet machine");
        assert!(!is_marked(side(1.98, 0.0, waits(0.019, 9)), None));
        assert!(is_marked(side(1.97, 0.0, waits(0.0206, 9)), None), "a hundredth, and wake-ups");
        // A wake-up is a wait as well, and nobody's fault.
        assert!(!is_marked(side(0.5, 0.0, waits(0.8, 20_000)), None));
        assert!(is_marked(side(0.5, 0.0, waits(1.3, 20_000)), None));
        let taken = Delay { involuntary_switches: 19_000, ..waits(0.4, 20_000).expect("waits") };
        assert!(is_marked(side(0.5, 0.0, Some(taken)), None), "few of them were wake-ups");
    }

    #[test]
    fn a_wait_that_is_longer_than_the_p99_disturbs_it() {
        let mean = || side(1.99, 0.0, waits(0.004, 4));
        assert!(is_marked(mean(), Some(0.0009)), "1 ms each");
        assert!(!is_marked(mean(), Some(0.0011)));
        assert!(!is_marked(mean(), None), "a p99 that is not resolved is not claimed");
        let short = || side(1.99, 0.0, waits(0.00004, 1));
        assert!(!is_marked(short(), Some(0.000_001)), "no longer than a wake-up");
        let longest = Delay { longest_s: Some(0.003), ..waits(0.004, 400).expect("waits") };
        assert!(is_marked(side(1.99, 0.0, Some(longest)), Some(0.0011)), "as the kernel says");
        assert!(!is_marked(side(1.99, 0.0, Some(longest)), Some(0.0031)));
    }

    #[test]
    fn others_on_the_processor_count_beyond_what_ticks_leave_uncertain() {
        let is_marked = |cpu_s, others_s| is_marked(side(cpu_s, others_s, None), None);
        assert!(!is_marked(2.0, 0.0) && !is_marked(1.96, 0.029));
        assert!(is_marked(1.9, 0.14), "a thread that polls leaves little uncertain");
        assert!(!is_marked(1.0, 0.2), "of half the time every tick may be wrong");
        assert!(is_marked(1.0, 0.3));
        // Kernel threads that work for a block device, a kernel's host or target are no others.
        let mut served = [record(side(1.0, 0.9, None), None)];
        assert_eq!(marked(&mut served, None, false), [false]);
        assert!(served[0].host.as_ref().is_some_and(|host| host.others_s.is_some()));
    }

    /// Waits of a thread that sleeps often are wake-ups where nobody else was on its processor, and
    /// may be what others took where somebody was, however short each is.
    #[test]
    fn short_waits_beside_others_are_lost_time() {
        let lost = |others_s: f64, is_alone: bool| {
            let mut records = [record(side(1.0, others_s, waits(0.5, 20_000)), None)];
            marked(&mut records, None, is_alone);
            records[0].host.as_ref().and_then(|host| host.lost_s).expect("it is known")
        };
        assert!(lost(0.0, true) < 1e-9, "wake-ups of 25 µs");
        assert!((0.25..0.4).contains(&lost(0.5, true)), "no more than others used");
        assert!((lost(0.9, true) - 0.5).abs() < 1e-9, "no more than it waited");
        assert!(lost(0.9, false) < 1e-9, "kernel threads that work for a device are no others");
    }

    #[test]
    fn what_the_hypervisor_took_is_marked_on_the_processors_of_the_threads_only() {
        let stolen = |cpu: usize, steal_s| {
            let mut side = side(1.9, 0.0, None);
            side.machine.cores[cpu].steal_s = steal_s;
            is_marked(side, None)
        };
        assert!(stolen(1, 0.031) && !stolen(1, 0.029), "a hundredth and a tick");
        assert!(!stolen(0, 1.0));
    }

    #[test]
    fn measured_threads_do_not_disturb_each_other() {
        let pair = || [1.1, 0.9].map(|cpu_s| record(side(cpu_s, 2.0 - cpu_s, waits(0.9, 9)), None));
        assert_eq!(marked(&mut pair(), Some(0.0001), true), [false, false], "by design");
        let [mut one, mut other] = pair();
        other.host.as_mut().expect("a side").cpus = vec![0];
        one.host.as_mut().expect("a side").machine.cores[0].user_s = 0.9;
        other.host.as_mut().expect("a side").machine.cores[0].user_s = 0.9;
        assert_eq!(marked(&mut [one, other], None, true)[..1], [true], "on another processor");
        // A target of this machine that shares its processor with the load.
        let shared = || record(side(1.0, 1.0, waits(0.9, 9)), Some(side(1.0, 1.0, waits(0.9, 9))));
        assert_eq!(marked(&mut [shared()], None, true), [false]);
        let mut apart = shared();
        apart.connection = Some(Connection {
            host: "192.0.2.1:9".parse().expect("an address"),
            target: "192.0.2.2:9".parse().expect("an address"),
            ..Connection::over_loopback("tcp")
        });
        assert_eq!(marked(&mut [apart], None, true), [true], "a processor of another machine");
        let mut crowd = side(1.0, 0.0, waits(0.9, 9));
        crowd.threads.push(crowd.threads[0].clone());
        crowd.machine.cores[1].user_s = 2.0;
        assert!(!is_marked(crowd, Some(0.0001)), "two threads of one load");
    }

    #[test]
    fn a_background_without_storage_does_not_disturb_the_target_beside_it() {
        let target = || side(1.0, 1.0, waits(0.9, 9));
        let mut beside =
            record(side(2.0, 0.0, waits(0.0, 1)), Some(Side { cpus: vec![0], ..target() }));
        mark(&mut [Beside {
            record: &mut beside,
            machines: Vec::new(),
            target: Some(0),
            p99_s: Some(0.0001),
            is_alone: [true; 2],
            is_beside_network: true,
        }]);
        assert!(!beside.has(Mark::Disturbed), "{beside:?}");
        let others_s = |side: &Option<Side>| side.as_ref().and_then(|side| side.others_s);
        assert_eq!((others_s(&beside.host), others_s(&beside.target)), (Some(0.0), None));
    }

    #[test]
    fn what_is_not_known_stays_unknown() {
        let foreign = Side { cpus: Vec::new(), ..side(1.0, 1.0, None) };
        let mut records = [record(foreign, None)];
        assert_eq!(marked(&mut records, Some(0.0001), true), [false]);
        assert_eq!(records[0].host.as_ref().and_then(|host| host.others_s), None);
        let line = serde_json::to_value(&records[0]).expect("JSON");
        assert!(line["host"].get("others_s").is_none(), "{line}");
        assert!(line["host"]["threads"][0].get("delay").is_none(), "{line}");
        // A line of an earlier version has neither.
        let read: Record = serde_json::from_value(line).expect("a record");
        assert_eq!(read, records[0]);
    }
}
