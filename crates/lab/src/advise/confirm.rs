//! What becomes of an advice when it is measured.

use std::time::Duration;

use weft_advise::predict::is_served;

use super::answer::{Confirmation, Row, Verdict};
use super::measured::{OF_THE_LOAD, p99_of};
use super::question::Question;
use crate::cells::Cells;
use crate::results::{Configuration, Results, Value, key};
use crate::study::plan::{Kind, Measure, Plan};

/// How long the advised way is measured, and at a low rate at most.
const CONFIRMED: Duration = Duration::from_secs(30);
const CONFIRMED_MOST: Duration = Duration::from_secs(300);

/// So many requests have a p99.
const REQUESTS_MIN: f64 = 1200.0;

/// The plan that measures an advised way at the rate that was asked for: the one that was measured,
/// with this load in place of its own.
///
/// # Errors
/// The results have no plan that can be read, or there would be too few requests.
pub fn confirming(results: &Results, row: &Row, question: &Question) -> Result<Plan, String> {
    let seconds = REQUESTS_MIN / question.iops;
    if seconds > CONFIRMED_MOST.as_secs_f64() {
        return Err(
            "not measured: five minutes at this rate have too few requests for a p99".to_owned()
        );
    }
    let runtime = CONFIRMED.max(Duration::from_secs_f64(seconds));
    let mut plan: Plan = results.plan.parse().map_err(|error| format!("{error}"))?;
    // Where no depth is known to hold, the greatest that was measured is what says most.
    let depths = plan.axes.get(key::DEPTH).into_iter().flatten().chain(plan.fixed.get(key::DEPTH));
    let deepest = depths.filter_map(Value::as_integer).max().unwrap_or(1);
    let depth = row.least_depth.map_or(deepest, |depth| depth as u64);
    for key in OF_THE_LOAD {
        plan.axes.remove(key);
        plan.fixed.remove(key);
    }
    plan.fixed.insert(key::RATE_IOPS.to_owned(), question.iops.into());
    plan.fixed.insert(key::RATE_PROCESS.to_owned(), "poisson".into());
    plan.fixed.insert(key::DEPTH.to_owned(), depth.into());
    plan.measure =
        Measure { runtime, repeats: 1, repeats_max: 1, settle: Duration::ZERO, ..plan.measure };
    (plan.quick, plan.rdma) = Default::default();
    Ok(Plan { kind: Kind::Matrix, answer: None, plots: Vec::new(), run: None, ..plan })
}

/// The settings of a way that its plan has several values of.
#[must_use]
pub fn only(plan: &Plan, row: &Row) -> Configuration {
    let several = |key: &String| plan.axes.contains_key(key);
    row.configuration
        .iter()
        .filter(|(key, _)| several(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// What a run of such a plan says of an advice.
///
/// # Errors
/// It has no result.
pub fn confirm(results: &Results, row: &Row, question: &Question) -> Result<Confirmation, String> {
    let cells = Cells::of(&results.records, &results.environment);
    let cell = cells.cells.iter().find(|cell| cell.is_measured());
    let cell = cell.ok_or("the way that was advised could not be measured")?;
    let repeat = cell.repeats.first().ok_or("no repeat")?;
    let p99_ns = p99_of(cell).ok_or("too few requests for a p99")?;
    let verdict = match () {
        () if cell.is_spoilt() => Verdict::Unknown,
        () if !is_served(question.iops, repeat.iops) || p99_ns.low > question.p99_ns => {
            Verdict::Fails
        }
        () if p99_ns.high <= question.p99_ns => Verdict::Holds,
        () => Verdict::Unknown,
    };
    let predicted = row.quantiles_ns.map(|(_, p99, _)| p99);
    let is_predicted =
        predicted.is_some_and(|one| one.low <= p99_ns.high && p99_ns.low <= one.high);
    let way = row.way.clone();
    Ok(Confirmation { way, iops: repeat.iops, p99_ns, verdict, is_predicted })
}
