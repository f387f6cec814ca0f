//! `weft study show`.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Args;
use serde_json::json;
use weft_lab::results::{Configuration, Value};
use weft_lab::study::matrix::{Matrix, Step, expand};
use weft_lab::study::plan::Plan;

use super::here;
use super::list::{about, runnable, time};
use crate::failure::Failure;
use crate::output::{self, Format};

/// Options of `weft study show`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Name of a study, or a file: PLAN.toml.
    #[arg(value_name = "NAME|PLAN.toml")]
    study: String,
    /// Print the plan, as a template for your own.
    #[arg(long)]
    toml: bool,
    /// List every cell.
    #[arg(long, conflicts_with = "toml")]
    cells: bool,
    /// Show a quick run.
    #[arg(long)]
    quick: bool,
    /// Output format: JSON has every cell.
    #[arg(short, long, value_enum, default_value_t, conflicts_with = "toml")]
    output_format: Format,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    // The printed plan is the original, without the changes for this machine.
    let mut plan =
        if options.toml { here::plan(&options.study)? } else { here::plan_here(&options.study)? };
    if options.quick {
        plan.quicken();
    }
    if options.toml {
        return output::print(&plan.to_text().map_err(Failure::because)?);
    }
    let matrix = expand(&plan, &here::capabilities(), &Configuration::new());
    if options.output_format == Format::Json {
        let cells = matrix.steps().flat_map(Step::cells);
        let cells = cells.map(|cell| json!({ "id": cell.id, "missing": cell.missing }));
        return output::print_json(&json!({
            "name": plan.name,
            "title": plan.title,
            "question": plan.question,
            "cells": cells.collect::<Vec<_>>(),
        }));
    }
    let mut text = described(&plan, &matrix);
    if options.cells {
        text += "\nCells\n";
        for cell in matrix.steps().flat_map(Step::cells) {
            let missing = cell.missing.as_ref().map(|why| format!("  (cannot run here: {why})"));
            text += &format!("  {}{}\n", cell.id, missing.unwrap_or_default());
        }
    }
    output::print(&text)
}

fn described(plan: &Plan, matrix: &Matrix) -> String {
    let mut text = format!("{}: {}\n\n{}\n", plan.name, plan.title, plan.question);
    if !plan.note.is_empty() {
        text += &format!("{}\n", plan.note);
    }
    text += &format!("\nFrom      {}, {}\n", plan.source.document, plan.source.figure);
    let shown =
        |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for (key, values) in &plan.axes {
        let _ = writeln!(text, "Axis      {key}: {}", shown(values));
    }
    for (key, value) in &plan.fixed {
        let _ = writeln!(text, "Fixed     {key} = {value}");
    }
    let measure = &plan.measure;
    let times = match (measure.repeats, measure.repeats_max) {
        (1, 1) => "once".to_owned(),
        (least, most) if least == most => format!("{least} times"),
        (least, most) => format!(
            "{least} to {most} times, until the 95 % confidence interval is within {} % of the \
             mean",
            measure.confidence_percent
        ),
    };
    let _ = writeln!(text, "Measured  {:?} after {:?}, {times}", measure.runtime, measure.ramp);
    let here = runnable(matrix);
    let _ = writeln!(
        text,
        "Cells     {}, of which {here} run here; about {}",
        matrix.len(),
        about(time(plan, matrix))
    );
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for step in matrix.steps() {
        if let Some(reason) = step.missing() {
            *reasons.entry(reason).or_default() += step.cells().count();
        }
    }
    for (reason, count) in reasons {
        let _ = writeln!(text, "Skipped   {count}: {reason}");
    }
    for plot in &plan.plots {
        let figure =
            if plot.figure.is_empty() { String::new() } else { format!(" ({})", plot.figure) };
        let _ = writeln!(text, "Draws     {}{figure}", plot.title);
    }
    text
}
