//! What a record says against itself: numbers that no run has, however slow or fast it was.

use weft_load::Latency;
use weft_load::limits::{LATENCY_NS_MAX, WINDOW};

use crate::limits::TICK;
use crate::results::{
    Configuration, Core, Direction, LatencyRecord, Record, Role, Side, Thread, integer, key, number,
};
use crate::units;

/// A histogram keeps three significant digits.
const DIGITS: f64 = 2e-3;

/// Clocks of two threads are read one after the other, on a machine that may be busy: times differ
/// by this part, and by so many ticks of the kernel.
const SKEW: f64 = 0.05;
const SKEW_TICKS: f64 = 20.0;

/// What has to be about the same is not if one is so many times the other.
const FAR: f64 = 2.0;

/// A closed loop that has less than this part of its depth in flight is none.
const IN_FLIGHT_MIN: f64 = 0.1;

/// So many deviations from what arrives at random are no chance.
const CHANCE: f64 = 10.0;

/// Full windows from which on they are most of the measured time.
const WINDOWS_MIN: usize = 4;

/// Settings that multiply the requests in flight.
const SLOTS: [&str; 4] = [key::DEPTH, key::JOBS, key::HOSTS, key::SUBSYSTEMS];

/// Why no run can have it; none if one can.
pub(super) fn contradiction(of: &Record) -> Option<String> {
    let counted: u64 = of.directions().map(|direction| direction.requests).sum();
    let parts: u64 = of.parts.iter().map(|part| part.requests).sum();
    if !of.parts.is_empty() && parts != counted {
        return Some(format!("its machines counted {parts} requests, and all together {counted}"));
    }
    let directions = [("read", &of.read), ("write", &of.write)].into_iter();
    let directions = directions.filter_map(|(name, one)| Some((name, one.as_ref()?)));
    let is_counted = |one: &Direction| of.role != Role::Link || one.latency.count > 0;
    directions
        .filter(|(_, one)| is_counted(one))
        .find_map(|(name, one)| Some(format!("{name}: {}", direction(one, &of.configuration)?)))
        .or_else(|| all_requests(of, counted))
        .or_else(|| side("host", of.host.as_ref(), of))
        .or_else(|| side("target", of.target.as_ref(), of))
        .or_else(|| in_flight(of))
}

/// The requests of a direction, and their histograms.
fn direction(of: &Direction, configuration: &Configuration) -> Option<String> {
    let Direction { requests, bytes, seconds, .. } = *of;
    let histograms = std::iter::once(&of.latency).chain(&of.completion);
    if let Some(why) = histograms.clone().find_map(|one| histogram(one, requests)) {
        return Some(why);
    }
    if requests > 0 && !(seconds > 0.0 && seconds.is_finite()) {
        return Some(format!("{requests} requests in {seconds} s"));
    }
    if let Some(size) = integer(configuration, key::BLOCK_BYTES).filter(|_| requests > 0)
        && requests.checked_mul(size) != Some(bytes)
    {
        return Some(format!("{requests} requests of {size} bytes, and {bytes} bytes"));
    }
    let completion = of.completion.as_ref()?;
    let [all, own] = [&of.latency, completion].map(|one| (one.sum_ns, one.min_ns, one.max_ns));
    (own.0 > all.0 || own.1 > all.1 || own.2 > all.2)
        .then(|| "requests took longer from their submission than from when they were due".into())
}

/// A histogram beside its count, its exact sum and its exact ends.
fn histogram(of: &LatencyRecord, requests: u64) -> Option<String> {
    let latency = match of.latency() {
        Ok(latency) => latency,
        Err(error) => return Some(error.to_string()),
    };
    if of.count != requests {
        return Some(format!("{requests} requests, and {} latencies", of.count));
    }
    // What takes longer is counted as an hour.
    if of.count == 0 || of.max_ns >= LATENCY_NS_MAX {
        return None;
    }
    let [least, most] = ends(&latency);
    let time = |ns: u64| units::time(ns as f64);
    let is_alike =
        |one: u64, other: u64| one.abs_diff(other) as f64 <= 1.0 + DIGITS * one.max(other) as f64;
    if !is_alike(of.min_ns, least) || !is_alike(of.max_ns, most) {
        return Some(format!(
            "its latencies are {} to {}, and it says {} to {}",
            time(least),
            time(most),
            time(of.min_ns),
            time(of.max_ns)
        ));
    }
    let sum: f64 = latency.raw().map(|(ns, count)| ns as f64 * count as f64).sum();
    let (mean, said) = (sum / of.count as f64, of.mean_ns());
    ((mean - said).abs() > 1.0 + DIGITS * mean).then(|| {
        let [mean, said] = [mean, said].map(units::time);
        format!("its mean latency is {mean}, and it says {said}")
    })
}

/// The least and the greatest of what was recorded.
fn ends(of: &Latency) -> [u64; 2] {
    let all = of.raw().map(|(ns, _)| ns);
    let (least, most) = all.fold((u64::MAX, 0), |(least, most), ns| (least.min(ns), most.max(ns)));
    [least, most]
}

/// What was counted elsewhere: over time, as offered, and with the ramp.
fn all_requests(of: &Record, counted: u64) -> Option<String> {
    let (seconds, max_ns) = of.directions().fold((0.0, 0), |(seconds, max_ns), one| {
        (f64::max(seconds, one.seconds), one.latency.max_ns.max(max_ns))
    });
    let value = |name: &str| of.values.get(name).copied();
    let iops = of.iops();
    let windows: Vec<f64> =
        of.over_time().iter().filter(|window| !window.ramp).map(|window| window.iops).collect();
    let mean = windows.iter().sum::<f64>() / windows.len().max(1) as f64;
    let is_most = windows.len() as f64 * WINDOW.as_secs_f64() * FAR > seconds;
    if windows.len() >= WINDOWS_MIN && is_most && (mean > FAR * iops || iops > FAR * mean) {
        let [iops, mean] = [iops, mean].map(units::count);
        return Some(format!("{iops} requests a second, and {mean} in its windows"));
    }
    if let Some(offered) = value(number::OFFERED_IOPS) {
        // What was due before may end as well.
        let due = offered * (seconds + max_ns as f64 / 1e9);
        let most = due + CHANCE * due.sqrt() + CHANCE;
        if counted as f64 > (1.0 + SKEW) * most {
            let [iops, offered] = [iops, offered].map(units::count);
            return Some(format!("{iops} requests a second, of {offered} that were offered"));
        }
    }
    if let Some(all) = value(number::REQUESTS_ALL).filter(|all| *all < counted as f64) {
        return Some(format!("{counted} requests, of {all} with its ramp"));
    }
    let shares = [number::GENERATOR_SHARE, number::TARGET_SHARE, number::FAIRNESS];
    let no_share = |name: &&str| value(name).is_some_and(|of| !(0.0..=1.0 + SKEW).contains(&of));
    let name = shares.into_iter().find(no_share)?;
    Some(format!("{name} is {}, and no share is", value(name).unwrap_or_default()))
}

/// The processors of a side: none has more time than there is.
fn side(name: &str, of: Option<&Side>, record: &Record) -> Option<String> {
    let of = of?;
    let measured = record.directions().map(|one| one.seconds).fold(0.0, f64::max);
    let skew_s = SKEW_TICKS * TICK.as_secs_f64();
    let most = (1.0 + SKEW) * of.seconds + skew_s;
    let show = |seconds: f64| units::time(seconds * 1e9);
    if of.seconds.is_nan() || of.seconds < 0.0 || measured > FAR * of.seconds + skew_s {
        return Some(format!("{name}: {} of {}", show(of.seconds), show(measured)));
    }
    let thread = |one: &Thread| {
        let used = one.user_s + one.system_s;
        let is_time = one.user_s >= 0.0 && one.system_s >= 0.0 && used <= most;
        if !is_time {
            return Some(format!("{} ran for {} of {}", one.name, show(used), show(of.seconds)));
        }
        (one.polling_s > (1.0 + SKEW) * used + skew_s)
            .then(|| format!("{} polled for {} of {}", one.name, show(one.polling_s), show(used)))
    };
    let threads = of.threads.iter().chain(&of.collector).find_map(thread);
    let core = |one: &Core| {
        let used = one.user_s + one.system_s + one.softirq_s + one.irq_s + one.steal_s;
        (!(0.0..=most).contains(&used)).then(|| {
            format!("processor {} ran for {} of {}", one.cpu, show(used), show(of.seconds))
        })
    };
    let why = threads.or_else(|| of.machine.cores.iter().find_map(core))?;
    Some(format!("{name}: {why}"))
}

/// Little's law: as many requests are under way as come during the latency of one. Each place of
/// the queue has one at a time, for no longer than the run and one request that began before it.
fn in_flight(of: &Record) -> Option<String> {
    // Several loads may saturate a processor together.
    if [Role::Link, Role::Saturation].contains(&of.role) {
        return None;
    }
    let setting = |key: &str| match of.configuration.get(key) {
        None => Some(1.0),
        Some(value) => value.as_integer().map(|count| count as f64),
    };
    let depth = of.configuration.get(key::DEPTH).and(Some(()));
    let slots: f64 = depth.and_then(|()| SLOTS.into_iter().map(setting).product())?;
    let histogram = |one: &Direction| {
        let own = one.completion.as_ref().unwrap_or(&one.latency);
        (one.seconds, own.sum_ns as f64 / 1e9, own.max_ns as f64 / 1e9)
    };
    let all = of.directions().map(histogram);
    let (seconds, sum_s, max_s) = all.fold((0.0, 0.0, 0.0), |sum: (f64, f64, f64), one| {
        (sum.0.max(one.0), sum.1 + one.1, sum.2.max(one.2))
    });
    let is_open = of.values.contains_key(number::OFFERED_IOPS)
        || [key::RATE_IOPS, key::THINKTIME_US]
            .iter()
            .any(|key| of.configuration.contains_key(*key))
        || of.directions().any(|one| one.completion.is_some());
    // What never ended is not counted: only a load that did something all the time says more.
    let mut windows = of.over_time().into_iter().filter(|window| !window.ramp);
    let goes_on = windows.clone().count() >= WINDOWS_MIN && windows.all(|one| one.iops > 0.0);
    let is_less = !is_open && goes_on && sum_s < IN_FLIGHT_MIN * slots * (seconds - max_s);
    // Each of several machines may have as many.
    let most = slots * of.parts.len().max(1) as f64;
    let is_more = sum_s > (1.0 + SKEW) * most * (seconds + max_s);
    (seconds > 0.0 && (is_less || is_more)).then(|| {
        format!(
            "{} requests a second of {} are {} in flight, and its depth is {slots} (Little's law)",
            units::count(of.iops()),
            units::time(of.latency().mean_ns()),
            units::digits(sum_s / seconds),
        )
    })
}

#[cfg(test)]
mod tests;
