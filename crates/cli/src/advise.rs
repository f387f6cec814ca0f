//! `weft advise`: which way to reach the data holds an objective.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use weft_lab::advise::{self, Advice, Confirmation, Prices, Question, Row, Terms, Verdict, WhatIf};
use weft_lab::html;
use weft_lab::results::file::ADVICE;
use weft_lab::results::{self, Configuration, Results, key};
use weft_load::jobfile::{self, Section};
use weft_load::{Pattern, units};

use crate::compare::tell_faults;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::study::{AdviceRun, AdviceSettings, REPORT, RunOptions};
use crate::table::Table;
use crate::values::{pattern, rate, size, time};

/// No way holds the objective, as far as it is known.
pub(crate) const NONE_HOLDS: u8 = 3;

/// The way that was advised did not hold it when it was measured, or could not be measured.
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
                        for; where none is known to hold, up to three that may, until one \
                        does. With --from it measures nothing: the results are those of any \
                        study with several rates or depths of each transport. Exit codes: 0: a way \
                        holds the objective; 3: none is known to; 4: the one that is advised did \
                        not, or could not be measured, or the results are not whole; 6: the \
                        machine is busy, and nothing was measured; 1: there is no answer, or it \
                        could not be written, and an error says why; 2: the command line has a \
                        fault."
)]
pub(crate) struct Options {
    /// A job file of fio whose jobs say what the requests are, and how many a second (rate_iops).
    /// Several jobs are tenants of the same cores, each with an objective of its own if it has a
    /// latency_target with a latency_percentile of 99.
    #[arg(value_name = "FILE.fio")]
    job: Option<PathBuf>,
    /// The latency that 99 % of the requests are to have at most, such as 300us.
    #[arg(long, value_name = "TIME", value_parser = objective)]
    p99: Option<Duration>,
    /// Requests a second, such as 200k.
    #[arg(long, value_name = "RATE", value_parser = wanted, allow_negative_numbers = true)]
    iops: Option<f64>,
    /// What the requests are, as for weft bench; by default random reads, or what the results have.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    rw: Option<Pattern>,
    /// Percentage of reads in a mixed pattern.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    rwmixread: Option<u64>,
    /// Size of a request; by default 4 KiB, or that of the results.
    #[arg(long, value_name = "SIZE", value_parser = block)]
    bs: Option<u64>,
    /// Directories of results, as `weft study run` writes them: nothing is measured. A file among
    /// them is the job file.
    #[arg(long, num_args = 1.., value_name = "DIR", conflicts_with_all = ["Setup", "Agents"])]
    from: Vec<PathBuf>,
    /// What is not as it was measured, such as link=25Gb/s,rtt=30us or target-cores=8 or
    /// device=delay:read=80us,write=20us: link, rtt, host-cores, target-cores, and last device with
    /// the options of a delay.
    #[arg(long, value_name = "PART=VALUE,…", value_parser = str::parse::<WhatIf>)]
    what_if: Vec<WhatIf>,
    /// Prices (TOML): currency, host_core, target_core, and under [port] tcp and rdma. The cheapest
    /// way is then that of the least money.
    #[arg(long, value_name = "FILE")]
    cost: Option<PathBuf>,
    /// How long to measure, about.
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = time)]
    budget: Duration,
    /// Do not measure the way that is advised at the rate that was asked for.
    #[arg(long)]
    no_confirm: bool,
    #[command(flatten)]
    how: RunOptions,
}

impl Options {
    /// The job file, and the directories of results: both may follow --from.
    fn given(&self) -> Result<(Option<&PathBuf>, Vec<PathBuf>), Failure> {
        let (jobs, from): (Vec<_>, Vec<_>) = self.from.iter().partition(|path| path.is_file());
        let jobs: Vec<&PathBuf> = jobs.into_iter().chain(&self.job).collect();
        if !self.from.is_empty() && from.is_empty() {
            return Err(Failure::because("--from: give a directory of results"));
        }
        let is_plain = self.rw.is_none() && self.rwmixread.is_none() && self.bs.is_none();
        match jobs[..] {
            [] => Ok((None, from.into_iter().cloned().collect())),
            [job] if is_plain => Ok((Some(job), from.into_iter().cloned().collect())),
            [_] => Err(Failure::because("--rw, --rwmixread and --bs are those of the job file")),
            _ => Err(Failure::because("there is more than one job file")),
        }
    }

    /// What is asked, of each job.
    fn questions(&self, job: Option<&PathBuf>) -> Result<Vec<Question>, Failure> {
        let p99_ns = self.p99.map(|p99| p99.as_secs_f64() * 1e9);
        let Some(path) = job else {
            let (Some(p99_ns), Some(iops)) = (p99_ns, self.iops) else {
                return Err(Failure::because("give --p99 and --iops, or a job file"));
            };
            self.check_mix()?;
            return Ok(vec![Question {
                p99_ns,
                iops,
                pattern: self.rw.map(|pattern| pattern.name().to_owned()),
                read_percent: self.rwmixread,
                block_bytes: self.bs,
                ..Question::default()
            }]);
        };
        let sections = jobfile::read(path).map_err(Failure::Because)?;
        let fault = |what: &str| Failure::Because(format!("{}: {what}", path.display()));
        let is_later = |section: &&Section| {
            section.stonewall
                || section.wait_for.is_some()
                || section.job.start_delay.1 > Duration::ZERO
        };
        if let Some(Section { job, .. }) = sections.iter().skip(1).find(is_later) {
            let name = &job.name;
            return Err(fault(&format!(
                "job {name:?} begins later than others, and tenants are there at once"
            )));
        }
        if sections.len() > 1 && self.iops.is_some() {
            return Err(fault("each of several jobs has a rate of its own: leave out --iops"));
        }
        let of = |section: &Section| Question::of(&section.job, p99_ns, self.iops);
        sections.iter().map(of).collect::<Result<_, String>>().map_err(|what| fault(&what))
    }

    /// Whether there is a mix to which the percentage belongs.
    fn check_mix(&self) -> Result<(), Failure> {
        let Some(percent) = self.rwmixread else { return Ok(()) };
        let is_mix = |pattern| [Pattern::RandRw, Pattern::ReadWrite].contains(&pattern);
        match self.rw {
            Some(pattern) if !is_mix(pattern) => Err(Failure::Because(format!(
                "--rwmixread {percent} is for a mix, and --rw {} is none: give --rw randrw or rw",
                pattern.name()
            ))),
            // Results may have a mix of their own.
            None if self.from.is_empty() => Err(Failure::Because(format!(
                "--rwmixread {percent} is for a mix: give --rw randrw or rw, too"
            ))),
            _ => Ok(()),
        }
    }

    fn terms(&self) -> Result<Terms, Failure> {
        let both = |all: WhatIf, one: &WhatIf| all.and(one.clone());
        let what_if = self.what_if.iter().try_fold(WhatIf::default(), both);
        let what_if = what_if.map_err(|why| Failure::Because(format!("--what-if: {why}")))?;
        let prices = |path: &PathBuf| {
            let shown = path.display();
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::io("read", &shown, &error))?;
            text.parse::<Prices>().map_err(|why| Failure::Because(format!("{shown}: {why}")))
        };
        Ok(Terms { what_if, prices: self.cost.as_ref().map(prices).transpose()? })
    }
}

fn objective(text: &str) -> Result<Duration, String> {
    advise::objective(weft_backend::duration::parse(text).map_err(|error| error.to_string())?)
}

fn wanted(text: &str) -> Result<f64, String> {
    advise::rate(rate(text)?)
}

/// The size of a request: whole blocks of the smallest that devices have.
fn block(text: &str) -> Result<u64, String> {
    const SMALLEST: u64 = 512;
    let size = size(text)?;
    let is_whole = size > 0 && size.is_multiple_of(SMALLEST);
    is_whole
        .then_some(size)
        .ok_or_else(|| format!("a request has 512 B, or a multiple: not {size} B"))
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (job, from) = options.given()?;
    let (questions, terms) = (options.questions(job)?, options.terms()?);
    let measured = match from.is_empty() {
        true => measure(options, &questions, &terms.what_if)?,
        false => from.clone(),
    };
    let results = measured.iter().map(|path| load(path)).collect::<Result<Vec<_>, Failure>>()?;
    let faulty = from.iter().filter(|path| !tell_faults("weft advise", path)).count();
    let mut advice = advise::advise(&results, &questions, &terms).map_err(Failure::Because)?;
    let is_human = options.how.output_format == Format::Human;
    if is_human {
        output::print(&human(&advice))?;
    }
    let mut unconfirmed = None;
    if from.is_empty() {
        // What is not there cannot be measured, and tenants and recordings have no study.
        if let ([question], [results]) = (&questions[..], &results[..])
            && !options.no_confirm
            && !terms.what_if.is_any()
            && question.gaps.is_empty()
        {
            // Without it the advice is still one.
            match confirmed(options, results, &advice, question) {
                Ok(confirmation) => advice.confirmation = confirmation,
                Err(failure) => unconfirmed = Some(failure),
            }
        }
    }
    let confirmed = advice.confirmation.as_ref();
    match is_human {
        true => {
            let sentence = confirmed.map(|confirmed| format!("{}\n", confirmed.sentence()));
            output::print(&sentence.unwrap_or_default())?;
        }
        false => output::print_json(&serde_json::to_value(&advice).map_err(Failure::because)?)?,
    }
    if let Some(Failure::Because(why)) = &unconfirmed {
        output::print_error(&format!("weft advise: {why}"));
    }
    // What was found is said, whether it can be kept or not.
    if from.is_empty() {
        keep(options, &measured, &advice)?;
    }
    // What is said of results that were changed is no answer to rely on.
    let is_doubtful = unconfirmed.is_some() || faulty > 0;
    match (advice.advised(), confirmed.map(|confirmed| confirmed.verdict)) {
        (None, Some(Verdict::Holds)) => Ok(()),
        (None, _) => Err(Failure::Exit(NONE_HOLDS)),
        _ if is_doubtful => Err(Failure::Exit(NOT_CONFIRMED)),
        (Some(_), Some(Verdict::Fails | Verdict::Unknown)) => Err(Failure::Exit(NOT_CONFIRMED)),
        (Some(_), Some(Verdict::Holds) | None) => Ok(()),
    }
}

/// Writes the advice beside the results, and the page with it.
fn keep(options: &Options, measured: &[PathBuf], advice: &Advice) -> Result<(), Failure> {
    let Some(directory) = measured.first() else { return Ok(()) };
    let path = directory.join(ADVICE);
    let text = serde_json::to_string_pretty(advice).map_err(Failure::because)?;
    std::fs::write(&path, text).map_err(|error| Failure::io("write", &path.display(), &error))?;
    if options.how.no_report {
        return Ok(());
    }
    let report = directory.join(REPORT);
    let directories: Vec<&Path> = measured.iter().map(PathBuf::as_path).collect();
    html::write_report(&directories, &report).map_err(Failure::because)?;
    match options.how.output_format {
        Format::Human => output::print(&format!("report: {}\n", report.display())),
        Format::Json => Ok(()),
    }
}

fn load(path: &Path) -> Result<Results, Failure> {
    results::load(path).map_err(Failure::because)
}

/// Measures each way with each kind of request, and returns the directories of the results.
fn measure(
    options: &Options,
    questions: &[Question],
    what_if: &WhatIf,
) -> Result<Vec<PathBuf>, Failure> {
    let mut kinds: Vec<AdviceSettings> = Vec::new();
    for question in questions {
        let mut kind = AdviceSettings::new();
        kind.extend(question.pattern.as_deref().map(|name| (key::PATTERN, vec![name.into()])));
        kind.extend(question.read_percent.map(|part| (key::READ_PERCENT, vec![part.into()])));
        kind.extend(question.block_bytes.map(|size| (key::BLOCK_BYTES, vec![size.into()])));
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let cells = options.how.configurations(STUDY)?;
    let replaced = advise::replaceable(&cells, what_if);
    replaced.map_err(|why| Failure::Because(format!("--what-if: {why}")))?;
    let directory = options.how.directory("advise");
    let budget = Some(options.budget / u32::try_from(kinds.len()).unwrap_or(u32::MAX));
    let mut measured = Vec::new();
    for (number, mut settings) in (1..).zip(kinds) {
        settings.push((key::LOAD_PERCENT, LOADS.map(Into::into).to_vec()));
        let directory = match number {
            1 => directory.clone(),
            more => directory.with_file_name(format!("{}-{more}", name_of(&directory))),
        };
        let wanted = AdviceRun { settings, only: Configuration::new(), budget };
        options.how.measure(STUDY, &directory, wanted)?;
        measured.push(directory);
    }
    Ok(measured)
}

fn name_of(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Measures the way that is advised, or those that may hold until one does.
fn confirmed(
    options: &Options,
    results: &Results,
    advice: &Advice,
    question: &Question,
) -> Result<Option<Confirmation>, Failure> {
    let mut last = None;
    for (number, row) in (1..).zip(advice.candidates()) {
        let one = confirm(options, results, (number, row), question)?;
        let holds = one.verdict == Verdict::Holds;
        last = Some(one);
        if holds {
            break;
        }
    }
    Ok(last)
}

/// Measures a way at the rate that was asked for.
fn confirm(
    options: &Options,
    results: &Results,
    (number, row): (u32, &Row),
    question: &Question,
) -> Result<Confirmation, Failure> {
    let plan = advise::confirming(results, row, question).map_err(Failure::Because)?;
    let only = advise::only(&plan, row);
    let path = results.directory.join(CONFIRMATION_PLAN);
    let text = plan.to_text().map_err(Failure::because)?;
    std::fs::write(&path, text).map_err(|error| Failure::io("write", &path.display(), &error))?;
    let name = match number {
        1 => CONFIRMATION.to_owned(),
        more => format!("{CONFIRMATION}-{more}"),
    };
    let directory = results.directory.join(name);
    let wanted = AdviceRun { settings: Vec::new(), only, budget: None };
    options.how.of_a_plan().measure(&path.to_string_lossy(), &directory, wanted)?;
    advise::confirm(&load(&directory)?, row, question).map_err(Failure::Because)
}

fn human(advice: &Advice) -> String {
    let mut head = vec![
        "",
        "WAY",
        ">P50 (90 %)",
        ">P99 (90 %)",
        ">P99.9 (90 %)",
        ">DEPTH",
        ">UP TO",
        ">HOST",
        ">TARGET",
    ];
    let currency = advice.currency.as_ref().map(|currency| format!(">{currency}"));
    head.extend(currency.as_deref());
    let mut table = Table::new(&head);
    for row in &advice.rows {
        let mut own = cells(row);
        own.extend(currency.as_ref().map(|_| row.money.map_or_else(unknown, units::digits)));
        table.row(own);
        for tenant in &row.tenants {
            let mut own = vec![tenant.verdict.sign().to_owned(), format!("  {}", tenant.name)];
            own.extend(latencies(Some(tenant.quantiles_ns)));
            own.push(tenant.least_depth.map_or_else(unknown, |depth| depth.to_string()));
            own.resize(head.len(), String::new());
            table.row(own);
        }
    }
    let said = advice.rows.iter().flat_map(|row| {
        row.refusal.iter().chain(&row.notes).map(|why| format!("{}: {why}\n", row.way))
    });
    let said: String = said.collect();
    format!("{}{said}{}\n", table.text(), advice.conclusion)
}

fn unknown() -> String {
    "-".to_owned()
}

fn latencies(quantiles_ns: Option<advise::Latencies>) -> [String; 3] {
    let between = |one: advise::Interval| {
        let [value, low, high] = [one.value, one.low, one.high].map(units::time);
        format!("{value} ({low} to {high})")
    };
    let all = quantiles_ns.map_or([None; 3], |(p50, p99, p999)| [Some(p50), Some(p99), p999]);
    all.map(|one| one.map_or_else(unknown, between))
}

fn cells(row: &Row) -> Vec<String> {
    let processors = |side: Option<f64>| side.map_or_else(unknown, |one| format!("{one:.2}"));
    let mut cells = vec![row.mark(), row.way.clone()];
    cells.extend(latencies(row.quantiles_ns));
    cells.extend([
        row.least_depth.map_or_else(unknown, |depth| depth.to_string()),
        row.up_to().unwrap_or_else(unknown),
        processors(row.processors[0]),
        processors(row.processors[1]),
    ]);
    cells
}
