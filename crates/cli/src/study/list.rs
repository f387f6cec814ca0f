//! `weft study list`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weft_lab::results::Configuration;
use weft_lab::study::builtin::BUILTINS;
use weft_lab::study::matrix::{Matrix, Step, expand};
use weft_lab::study::plan::Plan;

use super::here;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;

/// Options of `weft study list`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let capabilities = here::capabilities();
    let mut table = Table::new(&["NAME", "FROM", ">CELLS", ">HERE", ">TIME", ">QUICK", "TITLE"]);
    let mut all = Vec::new();
    for builtin in BUILTINS {
        let plan = here::plan_here(builtin.name)?;
        let mut quick = plan.clone();
        quick.quicken();
        let expanded = |plan: &Plan| expand(plan, &capabilities, &Configuration::new());
        let (matrix, quick_matrix) = (expanded(&plan), expanded(&quick));
        let (whole, short) = (time(&plan, &matrix), time(&quick, &quick_matrix));
        let here = runnable(&matrix);
        table.row(vec![
            plan.name.clone(),
            format!("{} {}", plan.source.document, plan.source.figure),
            matrix.len().to_string(),
            here.to_string(),
            about(whole),
            about(short),
            plan.title.clone(),
        ]);
        all.push(as_json(&plan, &matrix, here, whole, short));
    }
    match options.output_format {
        Format::Human => output::print(&table.text()),
        Format::Json => output::print_json(&Value::Array(all)),
    }
}

fn as_json(plan: &Plan, matrix: &Matrix, here: usize, whole: Duration, short: Duration) -> Value {
    json!({
        "name": plan.name,
        "title": plan.title,
        "question": plan.question,
        "document": plan.source.document,
        "figure": plan.source.figure,
        "cells": matrix.len(),
        "cells_here": here,
        "seconds": whole.as_secs(),
        "seconds_quick": short.as_secs(),
    })
}

/// Number of cells that can run here.
pub(super) fn runnable(matrix: &Matrix) -> usize {
    let runnable = matrix.steps().filter(|step| step.missing().is_none());
    runnable.map(|step| step.cells().count()).sum()
}

/// The duration of a study with the least number of repeats.
pub(super) fn time(plan: &Plan, matrix: &Matrix) -> Duration {
    /// Time to connect and disconnect for each cell.
    const BETWEEN: Duration = Duration::from_millis(100);
    /// Time of the link probe and the report.
    const AROUND: Duration = Duration::from_secs(4);
    /// Time until IOPS are known to be steady, if they are.
    const SETTLE: Duration = Duration::from_secs(6);
    let measure = &plan.measure;
    let each = measure.runtime + measure.ramp + BETWEEN;
    let of = |step: &Step| {
        let cell = step.cells().next();
        let repeats = cell.map_or(0, |cell| plan.repeats_of(&cell.configuration));
        (each * repeats).saturating_add(measure.settle.min(SETTLE))
    };
    let cells: Duration = matrix.steps().filter(|step| step.missing().is_none()).map(of).sum();
    if cells.is_zero() { cells } else { cells + AROUND }
}

/// A duration, rounded.
pub(super) fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", time.as_secs_f64() / 3600.0),
    }
}
