//! `weft study compare`: whether one set of results is slower than another.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use weft_lab::compare::{self, Answer, Comparison, MetricComparison, Parameters, RepeatPlan};
use weft_lab::results::{self, Results, file};
use weft_lab::units;
use weft_lab::whole;

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::study::{COMPARISON, OTHER, THIS};
use crate::table::Table;

/// Exit codes other than 0 (not slower, and a slow-down would have been seen) and 1 (the comparison
/// failed).
pub(crate) const SLOWER: u8 = 3;
pub(crate) const INCOMPLETE: u8 = 4;
pub(crate) const UNDECIDED: u8 = 5;

/// Options of `weft study compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0: nothing is slower by more than the margin, with confidence; \
                        3: something is; 4: nothing is, but cells of the first set have no result \
                        in the second; 5: undecided, something may be slower by more than one \
                        would mind, or the repeats are too few for any answer (--quick; the table \
                        is shown nevertheless); 1: the sets cannot be read, have no cell in \
                        common, or other programs disturbed them (--accept-disturbed compares \
                        them nevertheless)."
)]
pub(crate) struct Options {
    /// The directory of the first set of results (the baseline), or one that holds the directories
    /// of its sessions.
    #[arg(value_name = "DIR_A")]
    first: PathBuf,
    /// The directory of the second set.
    #[arg(value_name = "DIR_B")]
    second: PathBuf,
    /// The smallest slow-down in percent that counts as slower.
    #[arg(long, default_value = "5", value_parser = percent, value_name = "PERCENT")]
    margin: f64,
    /// The confidence level in percent.
    #[arg(long, default_value = "95", value_parser = percent, value_name = "PERCENT")]
    confidence: f64,
    /// A metric to compare: iops, bandwidth, mean, or a percentile such as p99; may be repeated. By
    /// default the one that the study is judged by. Each one more takes more repeats.
    #[arg(long, value_parser = metric)]
    metric: Vec<String>,
    /// Compare the sets although other programs disturbed them.
    #[arg(long)]
    accept_disturbed: bool,
    /// Show all cells, not only those that changed.
    #[arg(long)]
    all: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// A percentage between 0 and 100, as a share.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches(['%', ' ']).parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("a percentage above 0 and below 100".to_owned()),
    }
}

fn metric(text: &str) -> Result<String, String> {
    match compare::is_metric(text) {
        true => Ok(text.to_owned()),
        false => Err("a metric is iops, bandwidth, mean or a percentile such as p99".to_owned()),
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let parameters = Parameters {
        margin: options.margin,
        confidence: options.confidence,
        metrics: options.metric.clone(),
        accepts_disturbed: options.accept_disturbed,
    };
    let (first, second) = (&*options.first, &*options.second);
    conclude(first, second, &parameters, options.all, options.output_format)
}

/// The sessions of a set: those in a directory of theirs, or the directory itself.
fn sessions(set: &Path) -> Result<Vec<Results>, Failure> {
    let load = |path: &Path| {
        let loaded = results::load(path).map_err(Failure::because)?;
        tell_faults("weft study compare", path);
        Ok(loaded)
    };
    let is_session = |path: &Path| path.join(file::RECORDS).exists();
    if set.join(COMPARISON).exists() {
        return Err(Failure::Because(format!(
            "{} holds a comparison of two builds: give {OTHER} and {THIS} in it as the two sets",
            set.display()
        )));
    }
    let entries = fs::read_dir(set).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| is_session(path));
    paths.sort();
    match is_session(set) || paths.is_empty() {
        true => Ok(vec![load(set)?]),
        false => paths.iter().map(|path| load(path)).collect(),
    }
}

/// Says why results are not whole, before what is made of them. Whether they are.
pub(crate) fn tell_faults(who: &str, path: &Path) -> bool {
    let faults = whole::verify(path).faults;
    if !faults.is_empty() {
        output::print_error(&format!(
            "{who}: {} is not whole: {}",
            path.display(),
            faults.join("; ")
        ));
    }
    faults.is_empty()
}

/// Compares two directories, prints the result, and ends with the exit code that says it.
pub(crate) fn conclude(
    first: &Path,
    second: &Path,
    parameters: &Parameters,
    all: bool,
    format: Format,
) -> Result<(), Failure> {
    let (first, second) = (sessions(first)?, sessions(second)?);
    results::each_once(first.iter().chain(&second)).map_err(Failure::Because)?;
    let comparison = compare::compare_sets(&first, &second, parameters);
    if comparison.cells.is_empty() {
        return Err(Failure::because("the two sets have no cell in common that has a result"));
    }
    if let Some(refusal) = comparison.refusal() {
        return Err(Failure::Because(refusal));
    }
    let inconclusive = comparison.inconclusive();
    match format {
        Format::Human => output::print(&human(&comparison, all || inconclusive.is_some()))?,
        Format::Json => output::print_json(&json(&comparison)?)?,
    }
    if let Some(why) = inconclusive {
        output::print_error(&format!("weft study compare: undecided: {why}"));
        return Err(Failure::Exit(UNDECIDED));
    }
    if comparison.is_slower() {
        return Err(Failure::Exit(SLOWER));
    }
    match (comparison.missing.is_empty(), comparison.is_undecided()) {
        (false, _) => Err(Failure::Exit(INCOMPLETE)),
        (true, true) => Err(Failure::Exit(UNDECIDED)),
        (true, false) => Ok(()),
    }
}

fn json(comparison: &Comparison) -> Result<serde_json::Value, Failure> {
    let mut json = serde_json::to_value(comparison).map_err(Failure::because)?;
    json["slower"] = comparison.is_slower().into();
    json["undecided"] = comparison.is_undecided().into();
    Ok(json)
}

fn human(comparison: &Comparison, all: bool) -> String {
    let mut text = String::new();
    for difference in &comparison.differences {
        text += &format!("different conditions: {difference}\n");
    }
    let changed = |compared: &MetricComparison| {
        all || matches!(compared.answer, Answer::Slower | Answer::Faster)
    };
    let values = if comparison.is_of_sessions() { ">sessions" } else { ">repeats" };
    let mut table = Table::new(&[
        "cell",
        "",
        ">first",
        ">second",
        ">change",
        "result",
        ">p slower",
        ">least it would find",
        values,
    ]);
    let mut rows = 0;
    for cell in &comparison.cells {
        for compared in cell.metrics.iter().filter(|compared| changed(compared)) {
            table.row(row(&cell.cell, compared));
            rows += 1;
        }
    }
    for compared in &comparison.overall {
        table.row(row("all cells together", compared));
        rows += 1;
    }
    if rows > 0 {
        text += &table.text();
        text += "\n";
    }
    text += &totals(comparison);
    for (cell, why) in &comparison.missing {
        text += &format!("no result in the second set: {cell}: {why}\n");
    }
    if !comparison.new.is_empty() {
        text += &format!("only in the second set: {}\n", comparison.new.join("; "));
    }
    text += &verdict(comparison);
    text
}

fn row(cell: &str, compared: &MetricComparison) -> Vec<String> {
    let show = |value: f64| units::of_metric(&compared.metric, value);
    vec![
        cell.to_owned(),
        compared.metric.clone(),
        show(compared.first),
        show(compared.second),
        format!("{:+.1} %", 100.0 * (compared.ratio - 1.0)),
        answer(compared.answer).to_owned(),
        format!("{:.3}", compared.p_slower_adjusted),
        compared.noticeable.map_or("–".to_owned(), |least| format!("{:.0} %", 100.0 * least)),
        format!("{} and {}", compared.repeats.0, compared.repeats.1),
    ]
}

const fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Slower => "SLOWER",
        Answer::Faster => "faster",
        Answer::Same => "same",
        Answer::Undecided => "undecided",
        Answer::TooFew => "too few repeats",
    }
}

/// The number of each result, and how many repeats find what.
fn totals(comparison: &Comparison) -> String {
    let count =
        |wanted: Answer| comparison.each().filter(|compared| compared.answer == wanted).count();
    let mut text = format!(
        "{} cells: {} slower, {} faster, {} the same, {} undecided, {} with too few repeats (by \
         {} % or more, with {} % confidence for the whole page)\n",
        comparison.cells.len(),
        count(Answer::Slower),
        count(Answer::Faster),
        count(Answer::Same),
        count(Answer::Undecided),
        count(Answer::TooFew),
        100.0 * comparison.margin,
        100.0 * comparison.confidence,
    );
    let RepeatPlan { least, recommended, slow_down, spread, .. } = comparison.needed;
    let what = if comparison.is_of_sessions() { "session" } else { "repeat" };
    text += &format!(
        "at least {least} {what}s to convince, {recommended} recommended: they find a slow-down by \
         {:.0} % of one cell in four of five cases",
        100.0 * slow_down,
    );
    text += &match spread {
        Some(spread) => format!(" (the spread from {what} to {what} is {:.1} %)\n", 100.0 * spread),
        None => "\n".to_owned(),
    };
    text
}

fn verdict(comparison: &Comparison) -> String {
    let margin = 100.0 * comparison.margin;
    if comparison.is_slower() {
        format!("SLOWER by more than {margin} %, with confidence\n")
    } else if comparison.is_undecided() {
        format!(
            "undecided: something may be slower by more than {margin} %; see \"least it would \
             find\"\n"
        )
    } else if comparison.missing.is_empty() {
        format!(
            "not slower: a slow-down by {:.0} % would have been found\n",
            100.0 * comparison.needed.slow_down
        )
    } else {
        format!("cells are missing; the others are not slower by more than {margin} %\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_lab::results::{Environment, Store};

    #[test]
    fn a_set_is_a_run_or_a_directory_of_its_sessions() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = folder.path().join("set");
        for session in ["1", "2"] {
            let mut store = Store::open(&set.join(session)).expect("a store");
            store.set_plan("").expect("a plan");
            store.set_environment(&Environment::default()).expect("an environment");
        }
        fs::create_dir(set.join("notes")).expect("another directory");
        let count = |path: &Path| sessions(path).map(|set| set.len());
        assert_eq!(count(&set).expect("two sessions"), 2);
        assert_eq!(count(&set.join("1")).expect("a run"), 1);
        assert!(count(&set.join("notes")).is_err(), "nothing is no set");
        fs::write(folder.path().join(COMPARISON), "{}").expect("a comparison");
        let Err(Failure::Because(why)) = count(folder.path()) else { panic!("it is no set") };
        assert!(why.contains("give other and this in it"), "{why}");
    }

    #[test]
    fn percentages_are_shares() {
        assert_eq!(percent("5"), Ok(0.05));
        assert_eq!(percent("2.5 %"), Ok(0.025));
        assert!(percent("0").is_err() && percent("100").is_err() && percent("x").is_err());
    }
}
