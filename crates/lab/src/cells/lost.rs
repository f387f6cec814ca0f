//! How far a number may be off because other programs had the processors.
//!
//! Others only slow measured threads down. So the rate on a quiet machine is at least the measured
//! one, and a latency at most that; how far on the other side of it they may lie follows from the
//! time that threads lost and from the requests that may have waited meanwhile.

use weft_load::Latency;

use crate::limits::SPOILT;
use crate::results::{Mark, Record, Side, number};

/// The load of a processor is not known better than that it may be this high.
const LOAD_MAX: f64 = 0.8;

/// What a repeat lost to other programs, at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lost {
    /// The part of the time in which threads of either side could have run and did not.
    pub(crate) time: f64,
    /// The part of the requests that waited for one of them.
    pub(crate) requests: f64,
    /// Whether it is an open loop, which is offered its rate whatever happens.
    is_open: bool,
}

impl Lost {
    pub(super) fn of(record: &Record, latency: &Latency) -> Self {
        let (time, is_open) = (time(record), record.values.contains_key(number::OFFERED_IOPS));
        if time >= 1.0 {
            return Self { time, requests: 1.0, is_open };
        }
        let (rate, requests) = (record.iops(), latency.count().max(1) as f64);
        // By Little's law.
        let in_flight = rate * latency.mean_ns() / 1e9;
        let mut lost = 0.0_f64;
        for (side, lost_s) in known(record) {
            lost += side.interruptions as f64 * in_flight / requests;
            // What arrives meanwhile waits as well, and what comes until those have been served.
            if is_open {
                lost += lost_s * rate / (1.0 - load(side)) / requests;
            }
        }
        Self { time, requests: lost.min(1.0), is_open }
    }

    /// Whether there is nothing near that it would have been.
    pub(super) fn is_all(self) -> bool {
        self.time > SPOILT
    }

    /// How far below and above a metric of these latencies the value on a quiet machine may lie, by
    /// the logarithm. It is infinite where others had too much of the time.
    pub(super) fn slack(self, metric: &str, latency: &Latency) -> [f64; 2] {
        if self.is_all() {
            return [f64::INFINITY; 2];
        }
        let down = |measured: f64, least: f64| match least > 0.0 {
            true => [(measured / least).ln().max(0.0), 0.0],
            false => [0.0; 2],
        };
        match (metric, percentile_of(metric)) {
            ("iops" | "bandwidth" | "saturation", _) if self.is_open => [0.0; 2],
            ("iops" | "bandwidth" | "saturation", _) => [0.0, -(1.0 - self.time).ln()],
            ("mean", _) => down(latency.mean_ns(), self.lowest_mean(latency)),
            (_, Some(percentile)) => {
                let least = latency.percentile_ns(percentile * (1.0 - self.requests));
                let least = least.unwrap_or(0).max(latency.min_ns());
                let measured = latency.percentile_ns(percentile);
                measured.map_or([0.0; 2], |measured| down(measured as f64, least as f64))
            }
            _ => [0.0; 2],
        }
    }

    /// The mean of all but the longest latencies, which are those that others may have made.
    fn lowest_mean(self, latency: &Latency) -> f64 {
        let keep = latency.count() as f64 * (1.0 - self.requests);
        let (mut count, mut sum) = (0.0, 0.0);
        for (value, times) in latency.raw() {
            let times = (times as f64).min(keep - count);
            if times <= 0.0 {
                break;
            }
            count += times;
            sum += times * value as f64;
        }
        if count > 0.0 { sum / count } else { latency.min_ns() as f64 }
    }
}

pub(super) fn percentile_of(metric: &str) -> Option<f64> {
    let share = metric.strip_prefix('p')?.parse::<f64>().ok()?;
    (0.0..100.0).contains(&share).then_some(share)
}

fn known(record: &Record) -> impl Iterator<Item = (&Side, f64)> {
    let sides = [&record.host, &record.target].into_iter().flatten();
    sides.filter_map(|side| Some((side, side.lost_s?)))
}

/// The part of the time that threads of either side lost; all of it where they were disturbed and
/// it is not known how much.
fn time(record: &Record) -> f64 {
    if record.has(Mark::Disturbed) && known(record).next().is_none() {
        return 1.0;
    }
    let of = known(record).map(|(side, lost_s)| lost_s / side.seconds.max(f64::MIN_POSITIVE));
    of.sum::<f64>().min(1.0)
}

/// Whether other programs had so much of a repeat that it says nothing but its own numbers.
pub(crate) fn is_spoilt(record: &Record) -> bool {
    time(record) > SPOILT
}

/// The part of its time in which the busiest thread of a side has work.
fn load(side: &Side) -> f64 {
    let of = side.threads.iter().map(|thread| thread.user_s + thread.system_s - thread.polling_s);
    (of.fold(0.0, f64::max) / side.seconds.max(f64::MIN_POSITIVE)).clamp(0.0, LOAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::gate::{Gate, RepeatsNeeded, Sentence, compare, gate};
    use crate::cells::{Cell, Cells, Metric, Repeat};
    use crate::results::{Environment, LatencyRecord, Role, Value, key};
    use crate::testing::{record, repeated};
    use weft_load::random::Random;

    /// A cell of three repeats of a second whose host lost this part of it.
    fn cell(iops: f64, us: u64, part: f64, is_open: bool) -> Cell {
        let mut record = record(Role::Plain, &[(key::DEPTH, Value::from(1u64))], iops, us);
        record.mark(Mark::Disturbed);
        let lost_s = Some(part);
        let side = Side { seconds: 1.0, lost_s, interruptions: 40, ..Side::default() };
        record.host = Some(side);
        if is_open {
            record.values.insert(number::OFFERED_IOPS.to_owned(), iops);
        }
        Cells::of(&repeated(&[record]), &Environment::default()).cells.remove(0)
    }

    fn read(cell: &Cell, metric: &str) -> crate::cells::Estimate {
        let cells = Cells::of(&[], &Environment::default());
        let metric = Metric::named(metric).expect(metric);
        metric.read(&cells, cell).estimate().expect("a value")
    }

    #[test]
    fn a_rate_may_have_been_higher_by_what_was_lost_and_a_latency_lower() {
        let (quiet, lost) = (cell(1e4, 50, 0.0, false), cell(1e4, 50, 0.05, false));
        let ends = |cell: &Cell| read(cell, "iops").interval().expect("three repeats");
        let (before, after) = (ends(&quiet), ends(&lost));
        assert_eq!(before.0, after.0, "no lower");
        assert!((after.1 - before.1 - 1e4 * 0.05 / 0.95).abs() < 30.0, "{before:?} {after:?}");
        let open = ends(&cell(1e4, 50, 0.05, true));
        assert_eq!(open, before, "an open loop is offered its rate");
        let [down, up] = lost.repeats[0].slack("p99");
        assert!(down >= 0.0 && up == 0.0);
        assert_eq!(lost.repeats[0].slack("cpu-per-io"), [0.0; 2]);
    }

    /// Whatever others did to a part of the requests, the value without them is within.
    #[test]
    fn what_is_lost_holds_the_value_of_a_quiet_machine() {
        let mut random = Random::new(7, 1);

        for part in [0.0_f64, 0.001, 0.01, 0.05, 0.3] {
            for delay_ns in [1e3, 1e5, 1e7] {
                let (mut quiet, mut measured) = (Latency::new(), Latency::new());
                for _ in 0..50_000 {
                    let own = 20_000.0 - 9_000.0 * random.unit().max(1e-9).ln();
                    let is_late = random.unit() < part;
                    let late = if is_late { delay_ns * random.unit() } else { 0.0 };
                    let whole = |ns: f64| ns.round().to_string().parse().expect("a whole number");
                    quiet.record(whole(own));
                    measured.record(whole(own + late));
                }
                let mut record = record(Role::Plain, &[], 1e5, 1);
                record.read.as_mut().expect("reads").latency = LatencyRecord::of(&measured);
                let mut repeat = Repeat::of(&record).expect("a repeat");
                // By chance a few more.
                repeat.lost.requests = part + 3.0 * (part / 50_000.0).sqrt();
                for metric in ["p50", "p90", "p99", "p99.9", "mean"] {
                    let [down, _] = repeat.slack(metric);
                    let value = repeat.metric(metric).expect("measured");
                    let truth = Metric::named(metric).and_then(|_| match metric {
                        "mean" => Some(quiet.mean_ns()),
                        _ => quiet.percentile_ns(metric[1..].parse().ok()?).map(|ns| ns as f64),
                    });
                    let (truth, context) = (truth.expect("known"), || format!("{part} {metric}"));
                    let low = value * (-down).exp();
                    // The histogram has three digits.
                    assert!(low <= 1.003 * truth && truth <= 1.003 * value, "{}", context());
                }
            }
        }
    }

    #[test]
    fn a_difference_that_others_may_have_made_is_not_told() {
        let of = |iops, part| cell(iops, 50, part, false);
        let told = |one: &Cell, other: &Cell| {
            let (both, metric) = ([one, other], Metric::named("iops").expect("a metric"));
            let (own, others) = (read(one, "iops"), read(other, "iops"));
            compare(Sentence::Comparison, &metric, &both, &own, &others)
        };
        let far = told(&of(1e4, 0.05), &of(2e4, 0.0));
        assert_eq!(far, Gate::Allowed { named: vec![Mark::Disturbed] });
        let quiet = || of(1.08e4, 0.0);
        assert!(matches!(told(&of(1e4, 0.0), &quiet()), Gate::Allowed { .. }));
        let near = told(&of(1e4, 0.06), &quiet());
        assert_eq!(near, Gate::NotDistinguishable { repeats: RepeatsNeeded::Quiet });
        assert!(near.refusal().is_some_and(|why| why.contains("quiet machine")));
        // The faster one lost: it is faster all the more.
        assert!(matches!(told(&of(1e4, 0.0), &of(1.08e4, 0.06)), Gate::Allowed { .. }));
    }

    #[test]
    fn too_much_or_nobody_knows_how_much_forbids() {
        let metric = Metric::named("iops").expect("a metric");
        let is_told =
            |cell: &Cell| gate(Sentence::Comparison, &metric, &[cell]).refusal().is_none();
        assert!(is_told(&cell(1e4, 50, 0.09, false)) && !is_told(&cell(1e4, 50, 0.11, false)));
        let mut old = record(Role::Plain, &[], 1e4, 50);
        old.mark(Mark::Disturbed);
        assert!(is_spoilt(&old), "a result of an earlier version");
        let cells = Cells::of(&[old], &Environment::default());
        assert!(!is_told(&cells.cells[0]));
    }
}
