//! `weft advise`: which of the ways that were measured holds an objective.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use weft_lab::advise::{self, Advice, Question, Row, Verdict};
use weft_lab::results;
use weft_load::{Pattern, units};

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;
use crate::values::{pattern, rate, size, time};

/// No way holds the objective, as far as it is known.
const NONE_HOLDS: u8 = 3;

/// Options of `weft advise`.
#[derive(Debug, Args)]
#[command(
    after_help = "The results are those of weft study run latency-vs-load, or of any study with \
                        several rates or depths of each transport. Exit codes: 0: a way holds \
                        the objective; 3: none is known to; 1: the results say nothing of it."
)]
pub(crate) struct Options {
    /// The latency that 99 % of the requests are to have at most, such as 300us.
    #[arg(long, value_name = "TIME", value_parser = time)]
    p99: Duration,
    /// Requests a second, such as 200k.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    iops: f64,
    /// What the requests are, as for weft bench; by default what the results have.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    rw: Option<Pattern>,
    /// Percentage of reads in a mixed pattern.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    rwmixread: Option<u64>,
    /// Size of a request; by default that of the results.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bs: Option<u64>,
    /// Directories of results, as `weft study run` writes them.
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let load = |path: &PathBuf| results::load(path).map_err(Failure::because);
    let results = options.from.iter().map(load).collect::<Result<Vec<_>, Failure>>()?;
    let question = Question {
        p99_ns: options.p99.as_secs_f64() * 1e9,
        iops: options.iops,
        pattern: options.rw.map(|pattern| pattern.name().to_owned()),
        read_percent: options.rwmixread,
        block_bytes: options.bs,
    };
    let advice = advise::advise(&results, &question).map_err(Failure::Because)?;
    match options.output_format {
        Format::Human => output::print(&human(&advice))?,
        Format::Json => {
            output::print_json(&serde_json::to_value(&advice).map_err(Failure::because)?)?;
        }
    }
    match advice.rows.iter().any(|row| row.verdict == Verdict::Holds) {
        true => Ok(()),
        false => Err(Failure::Exit(NONE_HOLDS)),
    }
}

fn human(advice: &Advice) -> String {
    let mut table = Table::new(&[
        "",
        "WAY",
        ">P50",
        ">P99 (90 %)",
        ">P99.9 (90 %)",
        ">DEPTH",
        ">UP TO",
        ">HOST",
        ">TARGET",
    ]);
    for row in &advice.rows {
        table.row(cells(row));
    }
    let refused = advice
        .rows
        .iter()
        .filter_map(|row| Some(format!("{}: {}\n", row.way, row.refusal.as_ref()?)));
    let refused: String = refused.collect();
    format!("{}{refused}{}\n", table.text(), advice.conclusion)
}

fn cells(row: &Row) -> Vec<String> {
    let unknown = || "-".to_owned();
    let [p50, p99, p999] = match row.quantiles_ns {
        Some([p50, p99, p999]) => {
            let between = |one: weft_lab::advise::Interval| {
                format!(
                    "{} ({} to {})",
                    units::time(one.value),
                    units::time(one.low),
                    units::time(one.high)
                )
            };
            [units::time(p50.value), between(p99), between(p999)]
        }
        None => [unknown(), unknown(), unknown()],
    };
    let processors = |side: Option<f64>| side.map_or_else(unknown, |one| format!("{one:.2}"));
    vec![
        row.verdict.sign().to_owned(),
        row.way.clone(),
        p50,
        p99,
        p999,
        row.least_depth.map_or_else(unknown, |depth| depth.to_string()),
        row.headroom_iops.map_or_else(unknown, units::count),
        processors(row.processors[0]),
        processors(row.processors[1]),
    ]
}
