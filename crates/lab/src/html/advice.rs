//! What was advised, with its curves.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::figure::{
    self, AxisX, AxisY, Content, Figure, Grid, Place, Point, Series, SeriesKind, Style,
};
use super::units;
use crate::advise::{self, Advice, Interval, Row, Tenant};
use crate::cells::{Estimate, Unit};
use crate::results::file::ADVICE;
use crate::results::from_json;

/// The advice beside the results, if there is one that can be read.
pub(super) fn of(directory: &Path) -> Option<Advice> {
    from_json(&fs::read(directory.join(ADVICE)).ok()?).ok()
}

/// The rows, and the p99 of each way over the rate.
pub(super) fn figures(advice: &Advice) -> [Figure; 2] {
    let objective = format!(
        "p99 ≤ {} at {} IOPS",
        units::show(Unit::Time, advice.p99_ns),
        units::show(Unit::Iops, advice.iops)
    );
    let table = Figure {
        title: format!("Which way holds {objective}"),
        stands_for: String::new(),
        note: "Predicted, with 90 % intervals.".to_owned(),
        about_cpu: false,
        content: Content::Table(rows(advice)),
    };
    let series = series(advice);
    let x = AxisX {
        title: "requests a second".to_owned(),
        log: true,
        automatic: true,
        ticks: series
            .iter()
            .flat_map(|one| &one.points)
            .map(|point| (point.x.json(), String::new()))
            .collect(),
        ..AxisX::default()
    };
    let y = AxisY { label: "p99 latency".to_owned(), unit: Unit::Time, log: true };
    let chart = Figure {
        title: "p99, predicted and measured".to_owned(),
        stands_for: String::new(),
        note:
            "Lines are predicted, up to the knee; points were measured. A bar has what another run \
               may have had, and goes down to what a quiet machine may."
                .to_owned(),
        about_cpu: false,
        content: Content::Chart { data: figure::lines(&series, &x, &y), numbers: points(&series) },
    };
    [table, chart]
}

fn show(of: &Interval) -> String {
    let time = |ns| units::show(Unit::Time, ns);
    format!("{} ({} to {})", time(of.value), time(of.low), time(of.high))
}

fn rows(advice: &Advice) -> Grid {
    let head =
        ["", "way", "p50", "p99", "p99.9", "depth", "up to", "host cores", "target cores", "notes"];
    let unknown = || "–".to_owned();
    let all = |(p50, p99, p999): advise::Latencies| {
        [Some(p50), Some(p99), p999].map(|one| one.as_ref().map_or_else(unknown, show))
    };
    let row = |row: &Row| {
        let [p50, p99, p999] = row.quantiles_ns.map_or_else(|| [(); 3].map(|()| unknown()), all);
        let [host, target] =
            row.processors.map(|of| of.map_or_else(unknown, |cores| format!("{cores:.2}")));
        let up_to = row.up_to().unwrap_or_else(unknown);
        let depth = row.least_depth.map_or_else(unknown, |depth| depth.to_string());
        let (sign, way) = (row.mark(), row.way.clone());
        let notes = row.refusal.iter().chain(&row.notes).cloned().collect::<Vec<_>>().join("; ");
        let money = row.money.map_or_else(unknown, units::digits);
        let mut cells = vec![sign, way, p50, p99, p999, depth, up_to, host, target, notes];
        cells.extend(advice.currency.as_ref().map(|_| money));
        let of = |tenant: &Tenant| {
            let [p50, p99, p999] = all(tenant.quantiles_ns);
            let (sign, way) = (tenant.verdict.sign(), format!("{}, {}", row.way, tenant.name));
            let depth = tenant.least_depth.map_or_else(unknown, |depth| depth.to_string());
            let mut own = vec![sign.to_owned(), way, p50, p99, p999, depth];
            own.resize(cells.len(), String::new());
            own
        };
        let tenants: Vec<Vec<String>> = row.tenants.iter().map(of).collect();
        std::iter::once(cells).chain(tenants)
    };
    let rows = advice.rows.iter().flat_map(row).collect();
    let head = head.iter().map(|word| (*word).to_owned()).chain(advice.currency.clone());
    Grid { head: head.collect(), rows }
}

/// The curves and points of each way, and the objective.
fn series(advice: &Advice) -> Vec<Series> {
    let mut all = Vec::new();
    for (colour, row) in advice.rows.iter().enumerate() {
        let style = Style { colour: colour % Style::FIRST.colour, dash: 0 };
        let of = |points: &[advise::Point], what: &str, kind| Series {
            name: format!("{}, {what}", row.way),
            style,
            points: points.iter().map(|point| at(point, &row.way, what)).collect(),
            kind,
        };
        all.push(of(&row.predicted, "predicted", SeriesKind::Measured));
        all.push(of(&row.measured, "measured", SeriesKind::Published));
    }
    let rates = || all.iter().flat_map(|one: &Series| &one.points).filter_map(rate);
    let ends = [rates().fold(advice.iops, f64::min), rates().fold(advice.iops, f64::max)];
    let p99_ns = Interval { value: advice.p99_ns, low: advice.p99_ns, high: advice.p99_ns };
    let line = ends.map(|iops| at(&advise::Point { iops, p99_ns }, "the objective", "p99"));
    all.push(Series {
        name: "objective".to_owned(),
        style: Style::SECOND,
        points: line.to_vec(),
        kind: SeriesKind::Measured,
    });
    all
}

fn rate(point: &Point) -> Option<f64> {
    json!(point.x.json()).as_f64()
}

fn at(point: &advise::Point, way: &str, what: &str) -> Point {
    let iops = units::show(Unit::Iops, point.iops);
    let text = format!("{}, {what}<br>{iops}<br>{}", figure::plain(way), show(&point.p99_ns));
    let Interval { value, low, high } = point.p99_ns;
    let value = Estimate::pooled(value, 1).within(low, high);
    Point::new(Place::Number(point.iops), value, text)
}

fn points(series: &[Series]) -> Grid {
    let head = ["series", "requests a second", "p99"].map(str::to_owned).to_vec();
    let row = |one: &Series, point: &Point| {
        let place = rate(point).unwrap_or_default();
        let p99 = units::show(Unit::Time, point.value.mean);
        vec![one.name.clone(), units::show(Unit::Iops, place), p99]
    };
    let rows = series.iter().flat_map(|one| one.points.iter().map(move |point| row(one, point)));
    Grid { head, rows: rows.collect() }
}
