//! Waits until the machines of a study are quiet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use weft_backend::duration::exact;
use weft_reactor::monotonic_time;
use weft_rpc::machine::Machine;

use super::agent::{self, Fleet};
use super::side;
use crate::limits::{BUSY, TICK};
use crate::results::IdleRate;
use crate::units;

/// How long the machines are watched at a time, and have to be quiet.
const WATCH: Duration = Duration::from_secs(1);

/// How often it is looked at whether the user has stopped it.
const LOOK: Duration = Duration::from_millis(100);

/// How often it is said anew how busy the machines are.
const SAY: Duration = Duration::from_secs(30);

/// How long a run that is of no use on a busy machine waits for a quiet second.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many programs are named that keep a machine busy, if they use this share of its time.
const NAMED_MAX: usize = 2;
const NAMED: f64 = 0.01;

/// How a wait has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// All machines were quiet for a second.
    Quiet,
    /// They were not in the time that was given: a sentence.
    GaveUp(String),
    /// The user has stopped it.
    Stopped,
}

/// Waits until this machine, or those of agents, are quiet for a second: no more than
/// [`BUSY`](crate::limits::BUSY) of the time of their processors is used. `tell` is called with
/// what is waited for.
pub fn wait(
    limit: Duration,
    fleet: Option<&Fleet>,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> WaitEnd {
    wait_by(limit, &mut || watch(fleet, stop), stop, tell)
}

/// Whether they are quiet now, for a run of which nothing could be said otherwise.
pub fn now(fleet: Option<&Fleet>, stop: &AtomicBool) -> WaitEnd {
    let (began, before) = (monotonic_time(), processes());
    let mut last = Vec::new();
    let mut watch = || {
        last = watch(fleet, stop);
        last.clone()
    };
    let waited = wait_by(PATIENCE, &mut watch, stop, &mut |_| {});
    let (WaitEnd::GaveUp(_), Some((share, count))) = (&waited, busiest(&last)) else {
        return waited;
    };
    let seconds = monotonic_time().saturating_sub(began).as_secs_f64() * count.max(1) as f64;
    let named = match fleet {
        Some(_) => String::new(),
        None => named(&before, &processes(), seconds),
    };
    let (share, most) = (units::percent(share), units::percent(BUSY));
    WaitEnd::GaveUp(format!(
        "the machine is busy: other programs use {share} of the time of its {count} \
         processors{named}, and with more than {most} nothing can be said of a way. End them, \
         wait until they have ended (--wait-for-quiet 5m), or measure nevertheless \
         (--accept-disturbed)"
    ))
}

/// CPU time so far of all programs but this one, by their processes and names.
fn processes() -> BTreeMap<(u32, String), Duration> {
    let of = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // A name may have parentheses and blanks of its own.
        let (name, rest) = stat.rsplit_once(')')?;
        let (_, name) = name.split_once('(')?;
        let mut numbers = rest.split_ascii_whitespace().skip(11).map(str::parse::<u32>);
        let ticks = numbers.next()?.ok()?.checked_add(numbers.next()?.ok()?)?;
        (id != std::process::id()).then(|| ((id, name.to_owned()), TICK * ticks))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of).collect()
}

/// The programs that used most of so many seconds of processors, in parentheses.
fn named(
    before: &BTreeMap<(u32, String), Duration>,
    after: &BTreeMap<(u32, String), Duration>,
    seconds: f64,
) -> String {
    let mut used: BTreeMap<&str, Duration> = BTreeMap::new();
    for (process, time) in after {
        let earlier = before.get(process).copied().unwrap_or_default();
        *used.entry(&process.1).or_default() += time.saturating_sub(earlier);
    }
    let share = |(name, time): (&str, Duration)| (time.as_secs_f64() / seconds, name.to_owned());
    let mut all: Vec<(f64, String)> = used.into_iter().map(share).collect();
    all.retain(|(share, _)| *share >= NAMED);
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    let words = all.iter().take(NAMED_MAX);
    let words = words.map(|(share, name)| format!("{name} {}", units::percent(*share)));
    let words: Vec<String> = words.collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The share that is used of the busiest machine that is not quiet, and its processors.
fn busiest(rates: &[IdleRate]) -> Option<(f64, usize)> {
    let shares = rates.iter().filter_map(|rate| Some((rate.share(0)?, rate.processors)));
    let busy = shares.filter(|(share, _)| *share > BUSY);
    busy.max_by(|one, other| one.0.total_cmp(&other.0))
}

/// As [`wait`], by how busy machines were in each second.
fn wait_by(
    limit: Duration,
    watch: &mut dyn FnMut() -> Vec<IdleRate>,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> WaitEnd {
    let began = monotonic_time();
    let mut said: Option<Duration> = None;
    loop {
        let rates = watch();
        let lasted = monotonic_time().saturating_sub(began);
        if stop.load(Ordering::Relaxed) {
            return WaitEnd::Stopped;
        }
        let Some((share, count)) = busiest(&rates) else { return WaitEnd::Quiet };
        let (share, most) = (units::percent(share), units::percent(BUSY));
        let limit_text = exact(limit);
        if lasted >= limit {
            return WaitEnd::GaveUp(format!(
                "the machine was not quiet for a second in {limit_text}: {share} of the time of \
                 its {count} processors is used by other programs, and {most} is the most. End \
                 them, give more time, or measure without --wait-for-quiet; then the results say \
                 that the machine was busy"
            ));
        }
        if said.is_none_or(|said| lasted >= said + SAY) {
            said = Some(lasted);
            tell(&format!(
                "waiting for a quiet machine, at most {limit_text}: {share} of the time of its \
                 {count} processors is used, and {most} is the most"
            ));
        }
    }
}

/// How busy the machines are in a second.
fn watch(fleet: Option<&Fleet>, stop: &AtomicBool) -> Vec<IdleRate> {
    let Some(fleet) = fleet else {
        let (before, began) = (Machine::read(), monotonic_time());
        sleep(stop);
        let seconds = monotonic_time().saturating_sub(began).as_secs_f64();
        let here = side::machine(&Machine::read().since(&before));
        return IdleRate::of(&here, seconds).into_iter().collect();
    };
    let before = fleet.readings();
    sleep(stop);
    // An agent that does not answer is reported by the run.
    let (Ok((loads, target)), Ok((loads_after, target_after))) = (before, fleet.readings()) else {
        return Vec::new();
    };
    let rates = [agent::idle(&loads, &loads_after), agent::idle(&target, &target_after)];
    rates.into_iter().flatten().collect()
}

fn sleep(stop: &AtomicBool) {
    let end = monotonic_time() + WATCH;
    while monotonic_time() < end && !stop.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(cpu_s: f64) -> Vec<IdleRate> {
        vec![IdleRate { seconds: 1.0, processors: 2, cpu_s, ..IdleRate::default() }]
    }

    #[test]
    fn it_goes_on_after_a_quiet_second_and_says_what_it_waits_for() {
        let mut seen = [1.97, 0.5, 0.21, 0.3].into_iter();
        let mut said = Vec::new();
        let stop = AtomicBool::new(false);
        let mut watch = || rate(seen.next().expect("a second more"));
        let limit = Duration::from_secs(300);
        let waited = wait_by(limit, &mut watch, &stop, &mut |what| said.push(what.to_owned()));
        assert_eq!((waited, seen.next()), (WaitEnd::Quiet, Some(0.3)));
        let [what] = &said[..] else { panic!("once in half a minute: {said:?}") };
        assert!(what.contains("98 % of the time of its 2 processors"), "{what}");
        let limit = format!("at most {}", exact(limit));
        assert!(what.contains(&limit) && what.contains("10 % is the most"), "{what}");
    }

    /// By how much they use, those of one name together, and not what they used before.
    #[test]
    fn the_programs_that_keep_a_machine_busy_are_named() {
        let of = |all: &[(u32, &str, u64)]| {
            let all = all.iter();
            all.map(|(id, name, ms)| ((*id, (*name).to_owned()), Duration::from_millis(*ms)))
                .collect()
        };
        let before = of(&[(1, "init", 9000), (2, "cc1", 500), (3, "sh", 100), (4, "old", 700)]);
        let after = of(&[(1, "init", 9000), (2, "cc1", 900), (3, "sh", 300), (5, "cc1", 400)]);
        assert_eq!(named(&before, &after, 2.0), " (cc1 40 %, sh 10 %)");
        assert_eq!(named(&before, &before, 2.0), "");
        let own = std::process::id();
        assert!(processes().keys().all(|(id, _)| *id != own) && !processes().is_empty());
    }

    #[test]
    fn it_gives_up_in_a_sentence_and_stops_when_it_is_told_to() {
        let stop = AtomicBool::new(false);
        let wait = |stop: &AtomicBool| {
            wait_by(Duration::ZERO, &mut || rate(1.0), stop, &mut |_| panic!("too late"))
        };
        let WaitEnd::GaveUp(why) = wait(&stop) else { panic!("it was never quiet") };
        assert!(why.contains("49 % of the time of its 2 processors"), "{why}");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wait(&stop), WaitEnd::Stopped);
    }
}
