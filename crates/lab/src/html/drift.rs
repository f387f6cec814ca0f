//! The reference cell of a run: whether the machine stayed the same.

use super::figure::{
    self, AxisX, AxisY, Content, Figure, Grid, Place, Point, Series, SeriesKind, Style,
};
use super::units;
use crate::cells::{Cells, Estimate, Repeat, Scale, Unit};
use crate::limits::DRIFT_PERCENT;

/// Fewest repeats that are drawn.
const REPEATS_MIN: usize = 3;

/// How the reference cell went through the run.
pub(super) struct Drift {
    pub(super) figure: Figure,
    /// What to be warned of, if it varied too much.
    pub(super) warning: Option<String>,
}

pub(super) fn drift(cells: &Cells) -> Option<Drift> {
    let cell = cells.reference.as_ref().filter(|cell| cell.repeats.len() >= REPEATS_MIN)?;
    let mut repeats: Vec<&Repeat> = cell.repeats.iter().collect();
    repeats.sort_by_key(|repeat| repeat.started_at_ms);
    let began = repeats.first()?.started_at_ms;
    let minutes = |repeat: &Repeat| repeat.started_at_ms.saturating_sub(began) as f64 / 60e3;
    let iops: Vec<f64> = repeats.iter().map(|repeat| repeat.iops).collect();
    let all = Estimate::of(&iops, Scale::Plain)?;
    let percent = 100.0 * (all.most - all.least) / all.mean;
    let (least, most) = (units::show(Unit::Iops, all.least), units::show(Unit::Iops, all.most));
    let name = &cell.label;
    let (mut points, mut rows) = (Vec::new(), Vec::new());
    for repeat in &repeats {
        let at = format!("{:.1} min", minutes(repeat));
        let shown = units::show(Unit::Iops, repeat.iops);
        let p99 = repeat.metric("p99").map(|ns| units::show(Unit::Time, ns));
        points.push(Point::new(
            Place::Number(minutes(repeat)),
            Estimate::exact(repeat.iops),
            format!("{at}<br>{shown} IOPS"),
        ));
        rows.push(vec![at, shown, p99.unwrap_or_else(|| "unresolved".to_owned())]);
    }
    let kind = SeriesKind::Measured;
    let series = Series { name: name.clone(), style: Style::FIRST, points, kind };
    let title = "minutes since its first time".to_owned();
    let x = AxisX { title, automatic: true, ..AxisX::default() };
    let y = AxisY { label: "IOPS".to_owned(), unit: Unit::Iops, log: false };
    let head = ["time", "IOPS", "p99"].map(str::to_owned).to_vec();
    let range = format!("from {least} to {most} IOPS, {percent:.0} % of the mean apart");
    let warning = (percent > DRIFT_PERCENT).then(|| {
        format!(
            "The machine did not stay the same: the reference cell ({name}) came back {} times, \
             {range}. Differences of this size between cells may come from it.",
            repeats.len()
        )
    });
    let figure = Figure {
        title: "The reference cell through the run".to_owned(),
        stands_for: String::new(),
        note: format!(
            "One cell ({name}) comes back through the whole run: {range}. Nothing is corrected by \
             it."
        ),
        about_cpu: false,
        content: Content::Chart {
            data: figure::lines(&[series], &x, &y),
            numbers: Grid { head, rows },
        },
    };
    Some(Drift { figure, warning })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Environment, Role};
    use crate::testing::record;

    fn drift_of(iops: &[f64]) -> Option<Drift> {
        let records: Vec<_> = (0u32..)
            .zip(iops)
            .map(|(number, iops)| {
                let mut record = record(Role::Reference, &[], *iops, 50);
                record.repeat = number + 1;
                record.started_at_ms = 1_000 + 30_000 * u64::from(number);
                record
            })
            .collect();
        let cells = Cells::of(&records, &Environment::default());
        assert!(cells.cells.is_empty(), "it is none of the study's cells");
        drift(&cells)
    }

    #[test]
    fn a_machine_that_slows_down_is_reported() {
        let Drift { figure, warning } = drift_of(&[10e3, 9.5e3, 8e3]).expect("a figure");
        let warning = warning.expect("22 % apart");
        assert!(warning.contains("came back 3 times, from 8.00 K"), "{warning}");
        let Content::Chart { numbers, data } = &figure.content else { panic!("a chart") };
        assert_eq!(numbers.rows[2][0], "1.0 min");
        assert_eq!(data["traces"][0]["x"], serde_json::json!([0.0, 0.5, 1.0]));
        assert!(drift_of(&[10e3, 9.9e3, 10.1e3]).expect("a figure").warning.is_none());
        assert!(drift_of(&[10e3, 5e3]).is_none(), "two are no course");
    }
}
