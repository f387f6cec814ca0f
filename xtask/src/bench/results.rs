//! Every sample as a line of JSON, and at the end a table.

use super::against::{Interval, LEAST};
use super::experiment::{Experiment, Figure, Metric, Sample, Spread};
use super::{machine, page};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where samples and figures go.
#[derive(Debug)]
pub(crate) struct Results {
    file: File,
    path: PathBuf,
    environment: Value,
    /// The repository, into whose page the figures go.
    page: Option<PathBuf>,
    rows: Vec<TableLine>,
    missed: usize,
    failed: usize,
    /// Rounds that were judged, and those of them that do not count.
    judged: usize,
    unsteady: usize,
}

/// A line of the table.
#[derive(Debug, PartialEq)]
pub(super) struct TableLine {
    pub(super) row: String,
    pub(super) what: String,
    /// What it is held against, and what it is, in their own units.
    pub(super) absolute: String,
    pub(super) value: String,
    pub(super) bar: String,
    pub(super) verdict: &'static str,
}

impl Results {
    /// Begins a file of its own in `folder`; its first line says where and of what it is.
    pub(crate) fn create(folder: &Path, environment: Value, page: Option<PathBuf>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.jsonl", machine::seconds_since_1970()));
        let mut file = File::create(&path).with_context(|| path.display().to_string())?;
        writeln!(file, "{}", json!({ "environment": environment }))?;
        let (missed, failed, judged, unsteady) = (0, 0, 0, 0);
        let rows = Vec::new();
        Ok(Self { file, path, environment, page, rows, missed, failed, judged, unsteady })
    }

    /// Keeps one sample.
    pub(crate) fn line(
        &mut self,
        experiment: &Experiment,
        step: &str,
        round: usize,
        sample: &Sample,
    ) -> Result<()> {
        let metrics: Map<String, Value> =
            sample.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value))).collect();
        let line = json!({
            "row": experiment.name,
            "step": step,
            "round": round,
            "time": machine::seconds_since_1970(),
            "load_average": machine::load_average(),
            "metrics": metrics,
        });
        writeln!(self.file, "{line}")?;
        let shown: Vec<String> = sample
            .iter()
            .filter(|(metric, _)| **metric != Metric::StolenPercent)
            .map(|(metric, value)| format!("{} {}", metric.name(), short(*value)))
            .collect();
        println!("  {round} {step:<16} {}", shown.join("  "));
        Ok(())
    }

    /// Keeps whether a round counts, and returns it.
    pub(crate) fn judge(
        &mut self,
        experiment: &Experiment,
        round: usize,
        steady: bool,
    ) -> Result<bool> {
        writeln!(
            self.file,
            "{}",
            json!({ "row": experiment.name, "round": round, "steady": steady })
        )?;
        if !steady {
            println!("  {round} does not count: the machine was not steady");
        }
        self.judged += 1;
        self.unsteady += usize::from(!steady);
        Ok(steady)
    }

    /// Works out the figures of an experiment.
    pub(crate) fn add(&mut self, experiment: &Experiment, samples: &[Vec<Sample>]) -> Result<()> {
        for figure in &experiment.figures {
            let values = samples.iter().filter_map(|of| figure.value(&experiment.steps, of));
            let spread = Spread::of(values);
            let holds = spread.and_then(|spread| figure.bar.holds(spread.median));
            self.missed += usize::from(holds == Some(false));
            self.failed += usize::from(spread.is_none());
            let line = json!({
                "row": experiment.name,
                "figure": figure.label,
                "median": spread.map(|spread| spread.median),
                "min": spread.map(|spread| spread.min),
                "max": spread.map(|spread| spread.max),
                "rounds": spread.map_or(0, |spread| spread.count),
                "bar": figure.bar.to_string(),
                "reached": holds,
            });
            writeln!(self.file, "{line}")?;
            self.rows.push(shown(experiment, figure, samples, spread));
        }
        Ok(())
    }

    /// Sets two builds side by side: pairs of samples, this one's and the other's.
    pub(crate) fn compare(
        &mut self,
        experiment: &Experiment,
        step: &str,
        metric: Metric,
        pairs: &[[Sample; 2]],
    ) -> Result<()> {
        let of = |build: usize| pairs.iter().map(move |pair| pair[build].get(&metric).copied());
        let ratios = of(0).zip(of(1)).filter_map(|(this, other)| {
            let (this, other) = (this.filter(|it| *it > 0.0)?, other.filter(|it| *it > 0.0)?);
            // Above 1 this one is faster.
            Some(if metric == Metric::Iops { this / other } else { other / this })
        });
        let interval = Interval::of(ratios.collect());
        let holds = interval.map(Interval::holds);
        self.missed += usize::from(holds == Some(false));
        self.failed += usize::from(holds.is_none());
        let line = json!({
            "row": experiment.name,
            "figure": step,
            "median": interval.map(|it| it.median),
            "low": interval.map(|it| it.low),
            "high": interval.map(|it| it.high),
            "rounds": interval.map_or(0, |it| it.count),
            "reached": holds,
        });
        writeln!(self.file, "{line}")?;
        let median = |build| Spread::of(of(build).flatten()).map_or(0.0, |spread| spread.median);
        let (this, other) = (short(median(0)), short(median(1)));
        self.rows.push(TableLine {
            row: experiment.name.to_owned(),
            what: step.to_owned(),
            absolute: format!("{this} / {other} {}", metric.name()),
            value: interval.map_or("–".to_owned(), |it| {
                format!("{} [{} to {}]", short(it.median), short(it.low), short(it.high))
            }),
            bar: format!("≥ {LEAST}"),
            verdict: holds.map_or("not measured", |it| if it { "reached" } else { "MISSED" }),
        });
        Ok(())
    }

    /// Takes note that an experiment came to nothing.
    pub(crate) fn fail(&mut self, experiment: &Experiment, why: &str) -> Result<()> {
        println!("  {why}");
        self.failed += 1;
        self.note(experiment, why, "not measured")
    }

    /// Takes note that this machine lacks what an experiment needs, which is no fault.
    pub(crate) fn skip(&mut self, experiment: &Experiment, why: &str) -> Result<()> {
        println!("SKIP {}: {why}", experiment.name);
        self.note(experiment, why, "skipped")
    }

    fn note(&mut self, experiment: &Experiment, why: &str, verdict: &'static str) -> Result<()> {
        writeln!(self.file, "{}", json!({ "row": experiment.name, "error": why }))?;
        self.rows.push(TableLine {
            row: experiment.name.to_owned(),
            what: why.to_owned(),
            absolute: String::new(),
            value: "–".to_owned(),
            bar: String::new(),
            verdict,
        });
        Ok(())
    }

    /// Prints the table; whether every bar was reached.
    pub(crate) fn finish(self) -> Result<bool> {
        println!("\n{}", table(&self.rows));
        println!(
            "medians of the rounds [least to most, or of two builds their 95 % interval]; every \
             sample is in {}",
            self.path.display()
        );
        if self.judged > 0 {
            println!(
                "{} of {} rounds do not count, as the machine was not steady",
                self.unsteady, self.judged
            );
        }
        println!("{} bars missed, {} rows not measured", self.missed, self.failed);
        if let Some(root) = &self.page {
            let rounds = (self.unsteady, self.judged);
            let about = page::about(&self.environment, &machine::date()?, rounds);
            page::write(root, &self.rows, &about)?;
        }
        Ok(self.missed == 0 && self.failed == 0)
    }
}

fn shown(
    experiment: &Experiment,
    figure: &Figure,
    samples: &[Vec<Sample>],
    spread: Option<Spread>,
) -> TableLine {
    // The two sides in their own units: the same figure without what it is divided by.
    let median = |of| {
        let alone = Figure { label: "", of, per: None, bar: figure.bar };
        let values = samples.iter().filter_map(|of| alone.value(&experiment.steps, of));
        Spread::of(values).map_or("–".to_owned(), |spread| short(spread.median))
    };
    let absolute = figure
        .per
        .map(|per| format!("{} / {} {}", median(figure.of), median(per), figure.of.1.name()));
    let value = spread.map_or("–".to_owned(), |spread| {
        let (median, min, max) = (short(spread.median), short(spread.min), short(spread.max));
        if spread.count > 1 { format!("{median} [{min} to {max}]") } else { median }
    });
    let verdict = match spread.map(|spread| figure.bar.holds(spread.median)) {
        Some(Some(true)) => "reached",
        Some(Some(false)) => "MISSED",
        Some(None) => "",
        None => "not measured",
    };
    TableLine {
        row: experiment.name.to_owned(),
        what: figure.label.to_owned(),
        absolute: absolute.unwrap_or_default(),
        value,
        bar: figure.bar.to_string(),
        verdict,
    }
}

/// In Markdown, so that it can be put into a page as it is.
fn table(rows: &[TableLine]) -> String {
    let mut lines = vec![
        ["row", "what", "measured / against", "figure", "bar", ""].map(str::to_owned).to_vec(),
    ];
    for row in rows {
        let TableLine { row, what, absolute, value, bar, verdict } = row;
        lines.push([row, what, absolute, value, bar, *verdict].map(str::to_owned).to_vec());
    }
    let columns = 6;
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text += &format!("| {} |\n", rules.join(" | "));
        }
    }
    text
}

/// Three digits that matter.
fn short(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{:.2}M", value / 1e6),
        1e4.. => format!("{:.1}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Action, Bar, BenchStep};
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shorts = [0.554, 12.34, 123.4, 4_321.0, 65_432.0, 1_234_567.0].map(short);
        assert_eq!(shorts, ["0.55", "12.3", "123", "4321", "65.4k", "1.23M"]);
    }

    #[test]
    fn a_figure_is_shown_with_its_spread_and_both_its_sides() {
        let step = |label| BenchStep { label, action: Action::StartUp };
        let figure = Figure {
            label: "flow control on",
            of: ("on", Metric::Iops),
            per: Some(("raw", Metric::Iops)),
            bar: Bar::AtLeast(0.55),
        };
        let experiment = Experiment {
            name: "reads",
            about: "",
            targets: Vec::new(),
            steps: vec![step("raw"), step("on")],
            figures: Vec::new(),
            rounds_min: 1,
        };
        let sample = |iops| Sample::from([(Metric::Iops, iops)]);
        let samples = [(100.0, 60.0), (200.0, 100.0), (100.0, 40.0)]
            .map(|(raw, on)| vec![sample(raw), sample(on)]);
        let values = samples.iter().filter_map(|of| figure.value(&experiment.steps, of));
        let shown = shown(&experiment, &figure, &samples, Spread::of(values));
        assert_eq!(shown.value, "0.50 [0.40 to 0.60]");
        assert_eq!(shown.absolute, "60.0 / 100 iops");
        assert_eq!((shown.bar.as_str(), shown.verdict), ("≥ 0.55", "MISSED"));
        let text = table(&[shown]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.starts_with("| ") && line.ends_with(" |")));
    }
}
