//! `weft advise`: which way to reach the data holds an objective.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use weft_lab::advise::{self, Advice, Confirmation, Question, Row, Verdict};
use weft_lab::html;
use weft_lab::results::file::ADVICE;
use weft_lab::results::{self, Configuration, Results, key};
use weft_load::jobfile::{self, Section};
use weft_load::{Pattern, units};

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::study::{Asked, How, REPORT};
use crate::table::Table;
use crate::values::{pattern, rate, size, time};

/// No way holds the objective, as far as it is known.
pub(crate) const NONE_HOLDS: u8 = 3;

/// The way that was advised did not hold it when it was measured.
pub(crate) const NOT_CONFIRMED: u8 = 4;

/// The study that is measured, and its loads: with the capacity six cells for each way.
const STUDY: &str = "latency-vs-load";
const LOADS: [u64; 5] = [10, 30, 50, 70, 85];

/// The folder of the confirmation, and its plan, beside the results.
const CONFIRMATION: &str = "confirmation";
const CONFIRMATION_PLAN: &str = "confirmation.toml";

/// Options of `weft advise`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --from it measures the study latency-vs-load with five loads, and \
                        then the way that it advises, for half a minute at the rate that was asked \
                        for. With --from it measures nothing: the results are those of any study \
                        with several rates or depths of each transport. Exit codes: 0: a way holds \
                        the objective; 3: none is known to; 4: the one that was advised did not \
                        when it was measured; 1: the results say nothing of it."
)]
pub(crate) struct Options {
    /// A job file of fio whose one job says what the requests are, and how many a second
    /// (rate_iops).
    #[arg(value_name = "FILE.fio", conflicts_with_all = ["rw", "rwmixread", "bs"])]
    job: Option<PathBuf>,
    /// The latency that 99 % of the requests are to have at most, such as 300us.
    #[arg(long, value_name = "TIME", value_parser = weft_backend::duration::parse)]
    p99: Duration,
    /// Requests a second, such as 200k.
    #[arg(long, value_name = "RATE", value_parser = rate, required_unless_present = "job")]
    iops: Option<f64>,
    /// What the requests are, as for weft bench; by default random reads, or what the results have.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    rw: Option<Pattern>,
    /// Percentage of reads in a mixed pattern.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    rwmixread: Option<u64>,
    /// Size of a request; by default 4 KiB, or that of the results.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bs: Option<u64>,
    /// Directories of results, as `weft study run` writes them: nothing is measured.
    #[arg(long, num_args = 1.., value_name = "DIR", conflicts_with_all = ["Setup", "Agents"])]
    from: Vec<PathBuf>,
    /// How long to measure, about.
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = time)]
    budget: Duration,
    /// Do not measure the way that is advised at the rate that was asked for.
    #[arg(long)]
    no_confirm: bool,
    #[command(flatten)]
    how: How,
}

impl Options {
    fn question(&self) -> Result<Question, Failure> {
        let p99_ns = self.p99.as_secs_f64() * 1e9;
        let Some(path) = &self.job else {
            return Ok(Question {
                p99_ns,
                iops: self.iops.unwrap_or_default(),
                pattern: self.rw.map(|pattern| pattern.name().to_owned()),
                read_percent: self.rwmixread,
                block_bytes: self.bs,
            });
        };
        let sections = jobfile::read(path).map_err(Failure::Because)?;
        let fault = |what: &str| Failure::Because(format!("{}: {what}", path.display()));
        let [Section { job, .. }] = &sections[..] else {
            return Err(fault("it has several jobs, and the advice is about one"));
        };
        Question::of(job, p99_ns, self.iops).map_err(|what| fault(&what))
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let question = options.question()?;
    let measured = match options.from.is_empty() {
        true => vec![measure(options, &question)?],
        false => options.from.clone(),
    };
    let results = measured.iter().map(|path| load(path)).collect::<Result<Vec<_>, Failure>>()?;
    let mut advice = advise::advise(&results, &question).map_err(Failure::Because)?;
    let is_human = options.how.output_format == Format::Human;
    if is_human {
        output::print(&human(&advice))?;
    }
    let mut unconfirmed = None;
    if options.from.is_empty()
        && let [results] = &results[..]
    {
        if let Some(row) = advice.advised().filter(|_| !options.no_confirm) {
            // Without it the advice is still one.
            match confirm(options, results, row, &question) {
                Ok(confirmation) => advice.confirmation = Some(confirmation),
                Err(failure) => unconfirmed = Some(failure),
            }
        }
        keep(options, &results.directory, &advice)?;
    }
    let confirmed = advice.confirmation.as_ref();
    match is_human {
        true => {
            let sentence = confirmed.map(|confirmed| format!("{}\n", confirmed.sentence()));
            output::print(&sentence.unwrap_or_default())?;
        }
        false => output::print_json(&serde_json::to_value(&advice).map_err(Failure::because)?)?,
    }
    if let Some(failure) = unconfirmed {
        return Err(failure);
    }
    match (advice.advised(), confirmed.map(|confirmed| confirmed.verdict)) {
        (None, _) => Err(Failure::Exit(NONE_HOLDS)),
        (Some(_), Some(Verdict::Fails | Verdict::Unknown)) => Err(Failure::Exit(NOT_CONFIRMED)),
        (Some(_), Some(Verdict::Holds) | None) => Ok(()),
    }
}

/// Writes the advice beside the results, and the page with it.
fn keep(options: &Options, directory: &Path, advice: &Advice) -> Result<(), Failure> {
    let path = directory.join(ADVICE);
    let text = serde_json::to_string_pretty(advice).map_err(Failure::because)?;
    std::fs::write(&path, text).map_err(|error| Failure::io("write", &path.display(), &error))?;
    if options.how.no_report {
        return Ok(());
    }
    let report = directory.join(REPORT);
    html::write_report(&[directory], &report).map_err(Failure::because)?;
    match options.how.output_format {
        Format::Human => output::print(&format!("report: {}\n", report.display())),
        Format::Json => Ok(()),
    }
}

fn load(path: &Path) -> Result<Results, Failure> {
    results::load(path).map_err(Failure::because)
}

/// Measures each way, and returns the directory of its results.
fn measure(options: &Options, question: &Question) -> Result<PathBuf, Failure> {
    let mut settings = vec![(key::LOAD_PERCENT, LOADS.map(Into::into).to_vec())];
    settings.extend(question.pattern.as_deref().map(|name| (key::PATTERN, vec![name.into()])));
    settings.extend(question.read_percent.map(|part| (key::READ_PERCENT, vec![part.into()])));
    settings.extend(question.block_bytes.map(|size| (key::BLOCK_BYTES, vec![size.into()])));
    let directory = options.how.directory("advise");
    let budget = Some(options.budget);
    options.how.measure(
        STUDY,
        &directory,
        Asked { settings, only: Configuration::new(), budget },
    )?;
    Ok(directory)
}

/// Measures the way that is advised at the rate that was asked for.
fn confirm(
    options: &Options,
    results: &Results,
    row: &Row,
    question: &Question,
) -> Result<Confirmation, Failure> {
    let plan = advise::confirming(results, row, question).map_err(Failure::Because)?;
    let only = advise::only(&plan, row);
    let path = results.directory.join(CONFIRMATION_PLAN);
    let text = plan.to_text().map_err(Failure::because)?;
    std::fs::write(&path, text).map_err(|error| Failure::io("write", &path.display(), &error))?;
    let directory = results.directory.join(CONFIRMATION);
    let asked = Asked { settings: Vec::new(), only, budget: None };
    options.how.of_a_plan().measure(&path.to_string_lossy(), &directory, asked)?;
    advise::confirm(&load(&directory)?, row, question).map_err(Failure::Because)
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
