//! `weft study compare`: whether one set of results is slower than another.

use std::path::{Path, PathBuf};

use clap::Args;
use weft_lab::{
    compare::{self, Answer, Compared, Comparison, Parameters, Quantity, Ranking},
    report::human as shown,
    results,
};

use crate::{
    failure::Failure,
    output::{self, Format},
    table::Table,
};

/// Exit codes other than 0 (not slower) and 1 (the comparison failed).
const SLOWER: u8 = 3;
const INCOMPLETE: u8 = 4;

/// Options of `weft study compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0: nothing is slower by more than the margin, with confidence; \
                        3: something is; 4: nothing is, but cells of the first set have no result \
                        in the second; 1: the sets cannot be read or have no cell in common."
)]
pub(crate) struct Options {
    /// The directory of the first set of results (the baseline).
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

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let load = |path: &Path| results::load(path).map_err(Failure::because);
    let (first, second) = (load(&options.first)?, load(&options.second)?);
    let parameters = Parameters { margin: options.margin, confidence: options.confidence };
    let comparison = compare::compare(&first, &second, parameters);
    if comparison.cells.is_empty() {
        return Err(Failure::because("the two sets have no cell in common that has a result"));
    }
    match options.output_format {
        Format::Human => output::print(&human(&comparison, options.all))?,
        Format::Json => output::print_json(&json(&comparison)?)?,
    }
    if comparison.is_slower() {
        return Err(Failure::Exit(SLOWER));
    }
    if comparison.missing.is_empty() { Ok(()) } else { Err(Failure::Exit(INCOMPLETE)) }
}

fn json(comparison: &Comparison) -> Result<serde_json::Value, Failure> {
    let mut json = serde_json::to_value(comparison).map_err(Failure::because)?;
    json["slower"] = comparison.is_slower().into();
    Ok(json)
}

fn human(comparison: &Comparison, all: bool) -> String {
    let mut text = String::new();
    for difference in &comparison.differences {
        text += &format!("different conditions: {difference}\n");
    }
    let changed =
        |compared: &Compared| all || matches!(compared.answer, Answer::Slower | Answer::Faster);
    let mut table = Table::new(&[
        "cell",
        "",
        ">first",
        ">second",
        ">change",
        "result",
        ">p slower",
        ">detectable from",
        "ranked",
    ]);
    let mut rows = 0;
    for cell in &comparison.cells {
        for compared in cell.quantities.iter().filter(|compared| changed(compared)) {
            table.row(row(&cell.cell, cell.repeats, compared));
            rows += 1;
        }
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

fn row(cell: &str, repeats: (usize, usize), compared: &Compared) -> Vec<String> {
    let (name, show): (&str, fn(f64) -> String) = match compared.quantity {
        Quantity::Iops => ("IOPS", shown::count),
        Quantity::Latency => ("latency", shown::time),
        Quantity::P99 => ("p99", shown::time),
    };
    let ranked = match compared.ranking {
        Ranking::Repeats => format!("{} and {} repeats", repeats.0, repeats.1),
        Ranking::Windows => "500 ms windows".to_owned(),
        Ranking::Requests => "requests".to_owned(),
        Ranking::Nothing => "nothing: too few repeats".to_owned(),
    };
    vec![
        cell.to_owned(),
        name.to_owned(),
        show(compared.first),
        show(compared.second),
        format!("{:+.1} %", 100.0 * (compared.ratio - 1.0)),
        answer(compared.answer).to_owned(),
        format!("{:.3}", compared.p_slower_adjusted),
        compared.noticeable.map_or("–".to_owned(), |least| format!("{:.0} %", 100.0 * least)),
        ranked,
    ]
}

const fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Slower => "SLOWER",
        Answer::Faster => "faster",
        Answer::Same => "same",
        Answer::Undecided => "undecided",
    }
}

/// The number of each result, and the sensitivity of the comparison.
fn totals(comparison: &Comparison) -> String {
    let margin = 100.0 * comparison.margin;
    let count = |wanted: Answer| {
        comparison.quantities().filter(|compared| compared.answer == wanted).count()
    };
    let mut text = format!(
        "{} cells: {} slower, {} faster, {} the same, {} undecided (by {margin} % or more, with {} \
         % confidence, p adjusted by Holm's method)\n",
        comparison.cells.len(),
        count(Answer::Slower),
        count(Answer::Faster),
        count(Answer::Same),
        count(Answer::Undecided),
        100.0 * comparison.confidence,
    );
    let mut noticed: Vec<f64> = comparison
        .quantities()
        .filter(|compared| compared.quantity == Quantity::Iops)
        .filter_map(|compared| compared.noticeable)
        .collect();
    noticed.sort_by(f64::total_cmp);
    text += &match noticed.get(noticed.len() / 2) {
        Some(middle) => format!(
            "sensitivity: in the median cell a fall of IOPS by {:.0} % is detected with \
             probability 0.8; {} of {} cells cannot detect any\n",
            100.0 * middle,
            comparison.cells.len() - noticed.len(),
            comparison.cells.len(),
        ),
        None => {
            "sensitivity: no cell can detect a change by itself; measure more repeats\n".to_owned()
        }
    };
    if let Some(overall) = &comparison.overall {
        text += &format!(
            "all cells together: {:+.1} % IOPS (geometric mean), p of slower by more than {margin} \
             %: {:.3}\n",
            100.0 * (overall.iops_ratio - 1.0),
            overall.p_slower,
        );
    }
    text
}

fn verdict(comparison: &Comparison) -> String {
    let margin = 100.0 * comparison.margin;
    if comparison.is_slower() {
        format!("SLOWER by more than {margin} %, with confidence\n")
    } else if comparison.missing.is_empty() {
        format!("not slower by more than {margin} %, as far as the results can tell\n")
    } else {
        format!("cells are missing; the others are not slower by more than {margin} %\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_shares() {
        assert_eq!(percent("5"), Ok(0.05));
        assert_eq!(percent("2.5 %"), Ok(0.025));
        assert!(percent("0").is_err() && percent("100").is_err() && percent("x").is_err());
    }
}
