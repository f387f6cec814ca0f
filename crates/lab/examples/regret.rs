//! What an advice costs beside the best way that was measured: ten questions.
//!
//! ```text
//! cargo run -p weft-lab --example regret -- DIR…
//! ```
//!
//! The results have several ways at the same rates (`rate_iops`). Those of every second rate are
//! left out and answer: multiples of the least p99 there are asked for. The cost is the processors
//! of host and target.

use std::path::Path;
use std::process::ExitCode;

use weft_lab::advise::{Question, Row, Terms, advise};
use weft_lab::results::{self, Results, key};
use weft_load::units;

const QUESTIONS: usize = 10;

/// Objectives, by the least p99.
const TIMES: [f64; 3] = [1.25, 2.0, 4.0];

/// A rate is served from this part of it on.
const SERVED: f64 = 0.98;

/// A way as it was measured at a rate that was left out.
#[derive(Clone)]
struct Truth {
    way: String,
    p99_ns: f64,
    processors: f64,
}

fn of_rates(all: &[Results], is_kept: impl Fn(f64) -> bool) -> Vec<Results> {
    let rate = |value: &results::Value| value.as_number().is_none_or(&is_kept);
    let kept = |one: &Results| {
        let mut one = one.clone();
        one.records.retain(|record| record.configuration.get(key::RATE_IOPS).is_none_or(rate));
        one
    };
    all.iter().map(kept).collect()
}

fn truth_of(row: &Row, rate: f64) -> Option<Truth> {
    if row.configuration.get(key::TRANSPORT)?.as_text() == Some("local") {
        return None;
    }
    let is_at = |iops: f64| iops >= SERVED * rate && iops <= rate / SERVED;
    let point = row.measured.iter().find(|point| is_at(point.iops))?;
    let [host, target] = row.processors;
    let processors = host? + target.unwrap_or(0.0);
    Some(Truth { way: row.way.clone(), p99_ns: point.p99_ns.value, processors })
}

/// Rates and objectives, and what was measured.
fn questions(all: &[Results], held: &[f64]) -> Result<Vec<(Question, Vec<Truth>)>, String> {
    let mut found = Vec::new();
    for rate in held {
        let question = |p99_ns| Question { p99_ns, iops: *rate, ..Question::default() };
        let rows = advise(all, &[question(1e9)], &Terms::default())?.rows;
        let truth: Vec<Truth> = rows.iter().filter_map(|row| truth_of(row, *rate)).collect();
        let least = truth.iter().map(|one| one.p99_ns).fold(f64::INFINITY, f64::min);
        found.extend(TIMES.map(|times| (question(times * least), truth.clone())));
    }
    let count = found.len().max(QUESTIONS);
    let is_asked = |at: usize| (at + 1) * QUESTIONS / count > at * QUESTIONS / count;
    Ok(found.into_iter().enumerate().filter(|(at, _)| is_asked(*at)).map(|(_, one)| one).collect())
}

fn run(directories: &[String]) -> Result<(), String> {
    let load = |path: &String| results::load(Path::new(path)).map_err(|error| error.to_string());
    let all = directories.iter().map(load).collect::<Result<Vec<_>, String>>()?;
    let records = all.iter().flat_map(|one| &one.records);
    let rates = records.filter_map(|one| one.configuration.get(key::RATE_IOPS)?.as_number());
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let held: Vec<f64> = rates.iter().copied().skip(1).step_by(2).collect();
    let known = of_rates(&all, |rate| !held.contains(&rate));
    println!("| rate | p99 at most | advised | its p99 | least that holds | regret |");
    println!("|---|---|---|---|---|---|");
    for (question, truth) in questions(&all, &held)? {
        let advice = advise(&known, std::slice::from_ref(&question), &Terms::default())?;
        let holds = |one: &&Truth| one.p99_ns <= question.p99_ns;
        let least = truth.iter().filter(holds);
        let least = least.min_by(|one, other| one.processors.total_cmp(&other.processors));
        // Those of which it cannot be told are measured until one holds.
        let ways: Vec<&str> = advice.candidates().map(|row| row.way.as_str()).collect();
        let of = |way: &&str| truth.iter().find(|one| one.way == **way);
        let held = ways.iter().copied().find(|way| of(way).is_some_and(|one| holds(&one)));
        let advised = held.or(ways.first().copied());
        let own = advised.and_then(|way| of(&way));
        let how = match (advice.advised(), ways.iter().position(|way| Some(*way) == advised)) {
            (None, Some(before)) => format!(" (measured, {} of {})", before + 1, ways.len()),
            _ => String::new(),
        };
        let regret = match (own.filter(holds), least) {
            (Some(own), Some(least)) => {
                format!("{:.0} %", 100.0 * (own.processors / least.processors - 1.0))
            }
            _ if advised.is_some() => "does not hold".to_owned(),
            _ => "none advised".to_owned(),
        };
        println!(
            "| {} | {} | {}{how} | {} | {} | {regret} |",
            units::count(question.iops),
            units::time(question.p99_ns),
            advised.unwrap_or("–"),
            own.map_or_else(|| "–".to_owned(), |own| units::time(own.p99_ns)),
            least.map_or("–", |least| &least.way),
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let directories: Vec<String> = std::env::args().skip(1).collect();
    match run(&directories) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
