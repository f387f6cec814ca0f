//! A summary of results for the terminal.

use std::collections::BTreeMap;

use weft_lab::{
    Latency,
    report::human,
    results::{Mark, Record, Results},
    statistics::Summary,
};

use crate::table::Table;

/// Longer tables are left to the report.
const ROWS_MAX: usize = 64;

/// A row for each cell, unless there are too many.
pub(super) fn table(results: &Results) -> Option<String> {
    let mut cells: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in results.records.iter().filter(|record| record.is_measured()) {
        cells.entry(&record.cell).or_default().push(record);
    }
    if cells.is_empty() || cells.len() > ROWS_MAX {
        return None;
    }
    let columns =
        ["CELL", ">N", ">IOPS", ">MiB/s", ">MEAN", ">P50", ">P99", ">P99.9", ">CPU/IO", "MARKS"];
    let mut table = Table::new(&columns);
    for (cell, records) in &cells {
        table.row(row(cell, records));
    }
    Some(table.text())
}

fn row(cell: &str, records: &[&Record]) -> Vec<String> {
    let mut latency = Latency::new();
    for direction in records.iter().flat_map(|record| record.directions()) {
        if let Ok(one) = direction.latency.latency() {
            latency.add(&one);
        }
    }
    let mean =
        |of: &dyn Fn(&Record) -> f64| Summary::of(records.iter().map(|record| of(record))).mean;
    let percentile = |percentile| {
        let ns = latency.percentile_ns(percentile);
        ns.map_or("unresolved".to_owned(), |ns| human::time(ns as f64))
    };
    let cpu = |record: &Record| {
        let requests: u64 = record.directions().map(|direction| direction.requests).sum();
        let sides = record.host.iter().chain(&record.target);
        let used: f64 = sides.map(|side| side.cpu_seconds()).sum();
        used * 1e9 / requests.max(1) as f64
    };
    let mut marks: Vec<Mark> =
        records.iter().flat_map(|record| record.marks.iter().copied()).collect();
    marks.sort_unstable();
    marks.dedup();
    // Marks of every cell are left to the report.
    let silent = [Mark::Loopback, Mark::NotAwaited];
    let marks: Vec<&str> =
        marks.iter().filter(|mark| !silent.contains(mark)).map(|mark| mark.short()).collect();
    vec![
        cell.to_owned(),
        records.len().to_string(),
        human::count(mean(&Record::iops)),
        format!("{:.1}", mean(&Record::bytes_per_second) / 1_048_576.0),
        human::time(latency.mean_ns()),
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
        human::time(mean(&cpu)),
        marks.join(", "),
    ]
}
