//! The conclusion: the cheapest way that holds, and what would have to be true for the next one.

use weft_advise::Interval;

use super::answer::{Row, Verdict, advised};
use super::prices::{Prices, port};
use super::question::Question;
use crate::units;

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
    let unknown = rows.iter().find(|row| row.verdict == Verdict::Unknown && !row.is_local());
    let doubt = |row: &Row| doubt(row, questions);
    let Some(first) = advised(rows) else {
        return match unknown {
            Some(row) => {
                let way = &row.way;
                format!(
                    "No way is known to hold {objective}; of {way} it cannot be told{}.",
                    doubt(row)
                )
            }
            None => {
                let has_local = rows.iter().any(|row| row.verdict == Verdict::Holds);
                let over = if has_local { " over a network" } else { "" };
                format!("No way{over} that was measured holds {objective}.")
            }
        };
    };
    let depth = match first.least_depth {
        Some(depth) => format!(" from depth {depth} on,"),
        None => ",".to_owned(),
    };
    let processors = first
        .cost()
        .map_or_else(String::new, |cost| format!(", {} processors", units::digits(cost)));
    let money =
        |money: f64, prices: &Prices| format!("{} {}", units::digits(money), prices.currency);
    let price = prices.and_then(|prices| Some(format!(", {}", money(first.money?, prices))));
    let mut text = format!(
        "{} holds {objective}{depth} up to {} IOPS{processors}{}.",
        units::capital(&first.way),
        units::count(first.headroom_iops.unwrap_or(0.0)),
        price.unwrap_or_default()
    );
    if let Some(prices) = prices {
        text += &cheaper(rows, first, prices).unwrap_or_default();
    }
    if let Some(row) = unknown {
        text += &format!(" Of {} it cannot be told{}.", row.way, doubt(row));
    }
    text
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
    let own = row.quantiles_ns.map(|all| (all[1], questions[0].p99_ns, String::new()));
    let of = |tenant: &super::answer::Tenant| {
        (tenant.quantiles_ns[1], tenant.p99_ns, format!(" of {}", tenant.name))
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
