//! The conclusion: the cheapest way that holds, and what would have to be true for the next one.

use weft_advise::Interval;

use super::answer::{Row, Verdict, advised};
use super::prices::{Prices, port};
use super::question::Question;
use crate::units;

/// Of a row that is between others.
const BETWEEN: &str = " (only requests on both sides of these were measured)";

/// More repeats than this are not worth a sentence.
const REPEATS_MAX: f64 = 50.0;

pub(super) fn conclusion(rows: &[Row], questions: &[Question], prices: Option<&Prices>) -> String {
    let objective = match questions {
        [question] => format!(
            "p99 ≤ {} at {} IOPS",
            units::time(question.p99_ns),
            units::count(question.iops)
        ),
        all => format!("the objectives of {} jobs", all.len()),
    };
    let others = || rows.iter().filter(|row| !row.is_local());
    let unknown = others().find(|row| row.verdict == Verdict::Unknown);
    let doubt = |row: &Row| doubt(row, questions);
    let Some(first) = advised(rows) else {
        let nearest = others().filter_map(|row| Some((row, would_hold(row, questions)?)));
        let near = nearest.min_by(|(one, _), (other, _)| p99(one).total_cmp(&p99(other)));
        let near = near.map(|(row, would)| {
            let way = units::capital(&row.way);
            format!(" {way} would hold {would}.")
        });
        let text = match unknown {
            Some(row) => {
                let (way, doubt) = (&row.way, doubt(row));
                let what = match (row.is_likely, row.is_between) {
                    (true, false) => format!("the cheapest that is likely to is {way}"),
                    (true, true) => format!("the cheapest that may is {way}{BETWEEN}"),
                    (false, _) => format!("of {way} it cannot be told"),
                };
                format!("No way is known to hold {objective}; {what}{doubt}.")
            }
            None => {
                if others().next().is_none() {
                    return format!(
                        "No way over a network was measured: nothing is known of {objective}."
                    );
                }
                let has_local = rows.iter().any(|row| row.verdict == Verdict::Holds);
                let over = if has_local { " over a network" } else { "" };
                format!("No way{over} that was measured holds {objective}.")
            }
        };
        return text + &near.unwrap_or_default();
    };
    let depth = match first.least_depth {
        Some(depth) => format!(" from depth {depth} on,"),
        None => ",".to_owned(),
    };
    let more = if first.is_headroom_least { " or more" } else { "" };
    let holds = if first.is_between { "is expected to hold" } else { "holds" };
    let mut text = format!(
        "{} {holds} {objective}{}{depth} up to {} IOPS{more}{}{}.",
        units::capital(&first.way),
        if first.is_between { BETWEEN } else { "" },
        units::count(first.headroom_iops.unwrap_or(0.0)),
        shown(first.cost(None), "processors"),
        prices.map_or_else(String::new, |prices| shown(first.money, &prices.currency)),
    );
    let cheaper = prices.and_then(|prices| cheaper(rows, first, prices));
    text += &cheaper.or_else(|| better(rows, first, questions, prices)).unwrap_or_default();
    if let Some(row) = unknown {
        text += &format!(" Of {} it cannot be told{}.", row.way, doubt(row));
    }
    text
}

/// After a comma, if it is known.
fn shown(cost: Option<f64>, of: &str) -> String {
    cost.map_or_else(String::new, |cost| format!(", {} {of}", units::digits(cost)))
}

fn p99(row: &Row) -> f64 {
    row.quantiles_ns.map_or(f64::INFINITY, |(_, p99, _)| p99.high)
}

/// The next better way, and what would have to be true for it: one that costs less and does not
/// hold, or else one that is faster and costs more.
fn better(
    rows: &[Row],
    first: &Row,
    questions: &[Question],
    prices: Option<&Prices>,
) -> Option<String> {
    let cost = |row: &Row| row.cost(prices);
    let own = cost(first)?;
    let others = || rows.iter().skip(1).filter(|row| !row.is_local());
    let currency = prices.map_or("processors", |prices| &prices.currency);
    let cheaper = others()
        .filter(|row| row.verdict == Verdict::Fails && cost(row).is_some_and(|cost| cost < own));
    let cheaper = cheaper.min_by(|one, other| p99(one).total_cmp(&p99(other)));
    let would = cheaper.and_then(|row| Some((row, would_hold(row, questions)?)));
    if let Some((row, would)) = would {
        let (way, taken) = (units::capital(&row.way), shown(cost(row), currency));
        return Some(format!(" {way}{taken}, would hold {would}."));
    }
    let faster = others()
        .filter(|row| row.verdict == Verdict::Holds && p99(row) < p99(first))
        .min_by(|one, other| p99(one).total_cmp(&p99(other)))?;
    Some(format!(
        " {}{}, would be the choice for a p99 of {} to {}.",
        units::capital(&faster.way),
        shown(cost(faster), currency),
        units::time(p99(faster)),
        units::time(p99(first)),
    ))
}

/// The objective that a way which does not hold this one would.
fn would_hold(row: &Row, questions: &[Question]) -> Option<String> {
    let [question] = questions else { return None };
    if row.verdict != Verdict::Fails {
        return None;
    }
    let up_to = row.headroom_iops.filter(|iops| *iops > 0.0);
    let up_to = up_to.map(|iops| format!("this p99 up to {} IOPS", units::count(iops)));
    let at_rate = p99(row);
    let at_rate = (at_rate.is_finite() && at_rate > question.p99_ns && !row.is_beyond_knee)
        .then(|| format!("a p99 of {} at this rate", units::time(at_rate)));
    let all: Vec<String> = at_rate.into_iter().chain(up_to).collect();
    (!all.is_empty()).then(|| all.join(", or "))
}

/// At which price of its ports the next way that holds would be the cheapest.
fn cheaper(rows: &[Row], first: &Row, prices: &Prices) -> Option<String> {
    let is_next = |row: &&Row| {
        row.verdict == Verdict::Holds
            && !row.is_local()
            && port(row).is_some()
            && port(row) != port(first)
    };
    let row = rows.iter().skip(1).find(is_next)?;
    let below = first.money? - prices.of_cores(row)?;
    let (way, currency) = (units::capital(&row.way), &prices.currency);
    Some(match below > 0.0 {
        true => format!(
            " {way} would be cheaper if its ports cost less than {} {currency}.",
            units::digits(below)
        ),
        false => format!(" {way} would not be cheaper with free ports."),
    })
}

/// Why it cannot be told, and how many repeats might tell: an interval becomes narrower as the root
/// of their number.
fn doubt(row: &Row, questions: &[Question]) -> String {
    if let Some(why) = &row.refusal {
        return format!(": {why}");
    }
    let own = row.quantiles_ns.map(|(_, p99, _)| (p99, questions[0].p99_ns, String::new()));
    let of = |tenant: &super::answer::Tenant| {
        (tenant.quantiles_ns.1, tenant.p99_ns, format!(" of {}", tenant.name))
    };
    let unknown = row.tenants.iter().filter(|one| one.verdict == Verdict::Unknown);
    let Some((p99, objective, whose)) = own.or_else(|| unknown.map(of).next()) else {
        return String::new();
    };
    let mut text =
        format!(": its p99{whose} may be {} to {}", units::time(p99.low), units::time(p99.high));
    if let Some(repeats) = more_repeats(p99, objective, row.repeats) {
        text += &format!("; {repeats} more repeats of its cells may tell");
    }
    text
}

/// How many more would put a value that is within the objective there with its interval.
fn more_repeats(p99: Interval, objective: f64, repeats: usize) -> Option<u64> {
    let (wide, wanted) = ((p99.high / p99.value).ln(), (objective / p99.value).ln());
    let more = repeats as f64 * ((wide / wanted).powi(2) - 1.0);
    // A whole number is not made the next one by what rounding leaves of it.
    let count = (more - 1e-6).ceil();
    let is_some = wanted > 0.0 && more > 0.0 && count <= REPEATS_MAX;
    is_some.then(|| weft_load::units::whole(count.max(1.0)))
}
