//! What stands beside the points of a chart: a second metric on an axis at the right, and how far
//! repeats of depths and jobs are apart.

use super::super::figure::{self, AxisX, AxisY, Content, Figure, Grid, Series, SeriesKind, Style};
use super::super::units;
use super::Group;
use crate::cells::{Cells, Metric, Unit};
use crate::results::{Role, key};
use crate::study::plan::{Plot, PlotKind};

/// The depth and jobs of cells that vary in both, which no plot has together.
pub(super) fn depth_by_jobs(plots: &[Plot], cells: &Cells, role: Role) -> Option<Plot> {
    let mut varied = cells.varied(role);
    let both = [key::DEPTH, key::JOBS];
    let has = |plot: &Plot| {
        both.iter().all(|key| plot.x == *key || plot.series.iter().any(|series| series == key))
    };
    if !both.iter().all(|key| varied.iter().any(|of| of == key)) || plots.iter().any(has) {
        return None;
    }
    varied.retain(|key| !both.contains(&key.as_str()));
    let title = "Depth by jobs".to_owned();
    let y = ["iops", "p99"].map(str::to_owned).to_vec();
    let of = Plot { title, x: key::DEPTH.to_owned(), y, ..Plot::of(PlotKind::Bar) };
    Some(Plot { series: vec![key::JOBS.to_owned()], split: varied, ..of })
}

impl Group<'_> {
    /// A chart's data with the plot's second metric, and the numbers of that.
    pub(super) fn with_second(
        &self,
        keys: &[String],
        x: &AxisX,
        left: (&[Series], &AxisY),
        mut numbers: Grid,
    ) -> (serde_json::Value, Grid) {
        let (series, y) = left;
        let Some(second) = Metric::named(&self.plot.second) else {
            return (figure::lines(series, x, y), numbers);
        };
        let of = |(name, style, group): (String, Style, Vec<&crate::cells::Cell>)| {
            let points = self.points(&second, &group, x);
            let name = [name, second.label.clone()];
            let name = name.into_iter().filter(|part| !part.is_empty());
            let name = name.collect::<Vec<String>>().join(", ");
            let style = Style { dash: style.dash + 2, ..style };
            Series { name, style, points, kind: SeriesKind::Measured }
        };
        let right: Vec<Series> = self.series(keys).into_iter().map(of).collect();
        let right: Vec<Series> = right.into_iter().filter(|of| !of.points.is_empty()).collect();
        let more = self.grid(&right, x, &second);
        numbers.head.extend(more.head.into_iter().skip(1));
        for row in &mut numbers.rows {
            let same = more.rows.iter().find(|other| other.first() == row.first());
            let none = || vec!["–".to_owned(); right.len()];
            row.extend(same.map_or_else(none, |other| other.iter().skip(1).cloned().collect()));
        }
        let y2 = AxisY { label: second.label.clone(), unit: second.unit, log: false };
        (figure::lines_of_two(series, y, &right, &y2, x), numbers)
    }

    /// How far the repeats of each bar are apart, beneath them.
    pub(super) fn deviations(&self, metric: &Metric) -> Option<Figure> {
        let x = AxisX { words: true, ..self.axis_x() };
        let mut head = vec![String::new()];
        head.extend(x.ticks.iter().map(|(_, text)| format!("{} {text}", x.title)));
        let row = |(name, _, group): (String, Style, Vec<&crate::cells::Cell>)| {
            let points = self.points(metric, &group, &x);
            let of = |(place, _): &(serde_json::Value, String)| {
                let point = points.iter().find(|point| point.x.json() == *place);
                let share = point.and_then(|point| point.value.relative_error());
                share.map_or("–".to_owned(), |share| units::show(Unit::Share, share))
            };
            std::iter::once(name).chain(x.ticks.iter().map(of)).collect::<Vec<String>>()
        };
        let rows: Vec<Vec<String>> = self.series(&self.plot.series).into_iter().map(row).collect();
        (rows.len() > 1).then(|| Figure {
            title: format!("{}: deviation", self.title(Some(metric))),
            stands_for: String::new(),
            note: "Half of the 95 % confidence interval as a share of the mean.".to_owned(),
            about_cpu: metric.is_cpu(),
            content: Content::Table(Grid { head, rows }),
        })
    }
}
