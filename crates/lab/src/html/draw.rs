//! Draws the figures of a plan.

mod beside;

use serde_json::Value as Json;
use weft_load::Latency;
use weft_load::limits::SAMPLES_BEYOND;

use super::figure::{
    self, AxisX, AxisY, Content, Curve, Figure, Grid, Layer, Place, Point, Series, SeriesKind,
    Style,
};
use super::styles::Styles;
use super::units;
use crate::cells::gate::{Sentence, gate};
use crate::cells::{Cell, Cells, Estimate, Metric, Part, Reading, Scale, Unit, knee, value_order};
use crate::published::PublishedResult;
use crate::results::{Role, Side, Value, key, number};
use crate::study::plan::{Kind, Plan, Plot, PlotKind};

/// The ratio of the largest to the least point from which on a line has a logarithmic axis.
const LINEAR_MAX: f64 = 20.0;

/// Most points of a distribution.
const CURVE_STEPS: usize = 240;

/// The figures of a plot: one for each metric and each combination of its `split`.
///
/// Published numbers that are shares or factors are drawn in the same chart.
pub(super) fn figures(
    cells: &Cells,
    kind: Kind,
    plot: &Plot,
    plots: &[Plot],
    published: &[&PublishedResult],
) -> Vec<Figure> {
    let mut figures = Vec::new();
    let first_style = Styles::before(plot, plots, cells);
    for (settings, group) in split(&selected(cells, kind, plot), &plot.split) {
        let group = Group { cells, plot, group, settings, published, first_style };
        match plot.kind {
            PlotKind::Line | PlotKind::Bar => {
                for metric in Metric::all(&plot.y) {
                    figures.extend(group.chart(&metric));
                    if plot.kind == PlotKind::Bar {
                        figures.extend(group.deviations(&metric));
                    }
                }
            }
            PlotKind::Cdf => figures.extend(group.distribution()),
            PlotKind::Stack => figures.extend(group.stack()),
            PlotKind::Table => figures.extend(group.table()),
        }
    }
    let mut charts: Vec<&mut Json> = figures.iter_mut().filter_map(Figure::data_mut).collect();
    if !plot.split.is_empty() {
        figure::share_x(&mut charts);
    }
    figures
}

fn selected<'a>(cells: &'a Cells, kind: Kind, plot: &Plot) -> Vec<&'a Cell> {
    // A tenant alone has no background, so it is no point of one's series.
    let is_other = |key: &str| key == key::BACKGROUND || key == key::NEIGHBOUR;
    let of_background = plot.series.iter().chain(&plot.split).any(|key| is_other(key));
    let alone = kind == Kind::Interference && plot.x == key::LOAD_PERCENT && !of_background;
    let wanted = |cell: &&Cell| {
        let role = cell.role == kind.role() || alone && cell.role == Role::Alone;
        let is_own = |key: &str| !is_other(key) || cell.role != Role::Alone;
        let mut only = plot.only.iter().filter(|(key, _)| is_own(key));
        role && only.all(|(key, value)| cell.value(key) == Some(value))
    };
    cells.cells.iter().filter(wanted).collect()
}

/// Cells grouped by the values of `keys`, with those values as text.
fn split<'a>(cells: &[&'a Cell], keys: &[String]) -> Vec<(Vec<String>, Vec<&'a Cell>)> {
    let mut groups: Vec<(Vec<Option<Value>>, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let values: Vec<Option<Value>> = keys.iter().map(|key| cell.value(key).cloned()).collect();
        match groups.iter_mut().find(|(known, _)| *known == values) {
            Some((_, group)) => group.push(cell),
            None => groups.push((values, vec![cell])),
        }
    }
    groups
        .into_iter()
        .map(|(values, group)| {
            let words = keys.iter().zip(&values);
            let words = words
                .filter_map(|(key, value)| value.as_ref().map(|value| units::setting(key, value)));
            (words.collect(), group)
        })
        .collect()
}

/// The hover text of a cell: its varied settings and main numbers.
pub(super) fn hover(cells: &Cells, cell: &Cell, shown: Option<(&Metric, &Reading)>) -> String {
    let mut lines = vec![cell.label.clone()];
    if let Some((metric, reading)) = shown {
        lines.push(format!("{}: {}", metric.label, units::show_reading(metric.unit, reading)));
    }
    for name in ["iops", "bandwidth", "mean", "p50", "p99", "p99.9", "total-cpu"] {
        let Some(metric) = Metric::named(name) else { continue };
        if shown.is_some_and(|(shown, _)| *shown == metric) {
            continue;
        }
        let reading = metric.read(cells, cell);
        if reading != Reading::Unknown {
            lines.push(format!("{}: {}", metric.label, units::show_reading(metric.unit, &reading)));
        }
    }
    lines.push(format!("n = {}", cell.repeats.len()));
    lines.extend(cell.marks.iter().map(|mark| mark.explained().to_owned()));
    let lines: Vec<String> = lines.iter().map(|line| figure::plain(line)).collect();
    lines.join("<br>")
}

/// Cells that make one chart.
struct Group<'a> {
    cells: &'a Cells,
    plot: &'a Plot,
    group: Vec<&'a Cell>,
    settings: Vec<String>,
    published: &'a [&'a PublishedResult],
    /// Styles that belong to other settings in earlier plots.
    first_style: usize,
}

impl<'a> Group<'a> {
    /// The title of an axis. Only beside a foreground is a load that of a background.
    fn axis(&self, key: &str) -> String {
        let is_own = self.group.iter().all(|cell| cell.role == Role::Plain);
        match key {
            key::LOAD_PERCENT if is_own => "load, % of capacity".to_owned(),
            _ => units::axis(key),
        }
    }

    fn title(&self, metric: Option<&Metric>) -> String {
        let mut title = self.plot.title.clone();
        let several = self.plot.y.len() > 1;
        if let Some(metric) = metric.filter(|_| several) {
            title = format!("{title}: {}", metric.label);
        }
        if self.settings.is_empty() {
            title
        } else {
            format!("{title} – {}", self.settings.join(", "))
        }
    }

    /// Settings that distinguish cells of this group although the plot does not name them.
    fn left_over(&self) -> Vec<String> {
        // The share of the capacity gives the offered rate.
        let offered = self.plot.x == number::OFFERED_IOPS;
        let named = |key: &String| {
            offered && key == key::LOAD_PERCENT
                || *key == self.plot.x
                || self.plot.series.contains(key)
                || self.plot.split.contains(key)
                || *key == self.plot.best_over
        };
        let role = self.group.first().map_or(Role::Plain, |cell| cell.role);
        let varied = self.cells.varied(role).into_iter().filter(|key| !named(key));
        varied
            .filter(|key| {
                let mut values = self.group.iter().map(|cell| cell.value(key));
                let first = values.next();
                values.any(|value| Some(value) != first)
            })
            .filter(|key| {
                // It follows from a named one: the number of jobs from that of cores.
                !self.follows(key)
            })
            .collect()
    }

    fn follows(&self, key: &str) -> bool {
        let named: Vec<&String> =
            self.plot.series.iter().chain(Some(&self.plot.x).filter(|x| !x.is_empty())).collect();
        self.group.iter().all(|one| {
            self.group.iter().all(|other| {
                named.iter().any(|named| one.value(named) != other.value(named))
                    || one.value(key) == other.value(key)
            })
        })
    }

    /// The cells by series, with the name of each.
    fn series(&self, keys: &[String]) -> Vec<(String, Style, Vec<&'a Cell>)> {
        let mut groups = split(&self.group, keys);
        if keys.is_empty() {
            groups = vec![(Vec::new(), self.group.clone())];
        }
        let styles = Styles::new(keys, self.cells, self.first_style);
        groups
            .into_iter()
            .map(|(words, group)| {
                let style = styles.of(group.first().copied());
                (words.join(", "), style, group)
            })
            .collect()
    }

    fn chart(&self, metric: &Metric) -> Option<Figure> {
        let mut keys = self.plot.series.clone();
        let left_over = self.left_over();
        let mut best_of = if metric.is_rate() { left_over } else { Vec::new() };
        if best_of.is_empty() {
            keys.extend(self.left_over());
        }
        best_of.extend(Some(self.plot.best_over.clone()).filter(|key| !key.is_empty()));
        let x = self.axis_x();
        let mut series: Vec<Series> = self
            .series(&keys)
            .into_iter()
            .map(|(name, style, group)| {
                let points = self.points(metric, &group, &x);
                let name = if name.is_empty() { metric.label.clone() } else { name };
                Series { name, style, points, kind: SeriesKind::Measured }
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        if series.is_empty() {
            return None;
        }
        let mut note = self.note(&series, &best_of);
        series.extend(self.overlay(metric));
        let knees = self.knees(metric, &keys, &x);
        if !knees.is_empty() {
            note += " A ring marks the knee: the highest load up to which p99 stays within twice \
                     its least value and at least 98 % of the offered rate is served.";
            series.extend(knees);
        }
        let numbers = self.grid(&series, &x, metric);
        let log = self.plot.log_y || self.plot.kind == PlotKind::Line && spreads(&series);
        let y = AxisY { label: metric.label.clone(), unit: metric.unit, log };
        let (data, numbers) = match self.plot.kind {
            PlotKind::Bar => (figure::bars(&series, &AxisX { words: true, ..x }, &y), numbers),
            _ => self.with_second(&keys, &x, (&series, &y), numbers),
        };
        Some(Figure {
            title: self.title(Some(metric)),
            stands_for: self.plot.figure.clone(),
            note,
            about_cpu: metric.is_cpu() || !self.plot.second.is_empty(),
            content: Content::Chart { data, numbers },
        })
    }

    /// The points of a chart as numbers; a knee is named at the point where it is.
    fn grid(&self, series: &[Series], x: &AxisX, metric: &Metric) -> Grid {
        let (rings, columns): (Vec<&Series>, Vec<&Series>) =
            series.iter().partition(|series| series.kind == SeriesKind::Rings);
        let cell = |column: &Series, place: &Json| {
            let Some(point) = column.at(place) else { return "–".to_owned() };
            let mut text = units::show_estimate(metric.unit, &point.value);
            if column.kind == SeriesKind::Measured {
                text += &format!(", n = {}", point.value.count);
            }
            if point.hollow {
                text += ", hollow";
            }
            if let Some(chosen) = &point.chosen {
                text += &format!(", {} {chosen}", units::axis(&self.plot.best_over));
            }
            let is_ringed =
                |rings: &&Series| rings.style == column.style && rings.at(place).is_some();
            if rings.iter().any(is_ringed) { text + ", knee" } else { text }
        };
        let mut head = vec![x.title.clone()];
        head.extend(columns.iter().map(|column| column.name.clone()));
        let row = |(place, text): &(Json, String)| {
            let cells = columns.iter().map(|column| cell(column, place));
            std::iter::once(text.clone()).chain(cells).collect()
        };
        Grid { head, rows: self.places(&columns, x).iter().map(row).collect() }
    }

    /// The positions of a chart: its ticks, and where only published points are.
    fn places(&self, columns: &[&Series], x: &AxisX) -> Vec<(Json, String)> {
        let mut places = x.ticks.clone();
        for point in columns.iter().flat_map(|column| &column.points) {
            let Place::Number(number) = point.x else { continue };
            let place = point.x.json();
            if !places.iter().any(|(known, _)| *known == place) {
                places.push((place, units::short(&self.plot.x, &Value::from(number))));
            }
        }
        if !x.words {
            let number = |place: &Json| place.as_f64().unwrap_or_default();
            places.sort_by(|(one, _), (other, _)| number(one).total_cmp(&number(other)));
        }
        places
    }

    /// The knee of each line over the offered load.
    fn knees(&self, metric: &Metric, keys: &[String], x: &AxisX) -> Vec<Series> {
        if self.plot.x != number::OFFERED_IOPS || !metric.is_latency() {
            return Vec::new();
        }
        let of = |(name, style, group): (String, Style, Vec<&Cell>)| {
            let cell = knee(self.cells, &group)?.cell;
            let points = self.points(metric, &[cell], x);
            let name = if name.is_empty() { "knee".to_owned() } else { format!("{name}, knee") };
            let kind = SeriesKind::Rings;
            (!points.is_empty()).then_some(Series { name, style, points, kind })
        };
        self.series(keys).into_iter().filter_map(of).collect()
    }

    /// Published numbers of the group's settings, if they have a place on the axis.
    fn overlay(&self, metric: &Metric) -> Vec<Series> {
        let mut series: Vec<Series> = Vec::new();
        for result in self.published.iter().filter(|of| of.ours() == Some(&metric.name)) {
            let Some(x) = self.place_of_published(result).filter(|_| self.has(result)) else {
                continue;
            };
            // The depth tells to which tenant a number belongs.
            let tenant = self.group.iter().find_map(|cell| {
                let same = result.qd.is_some() && result.qd == cell.value(key::DEPTH)?.as_integer();
                same.then(|| cell.text(key::FOREGROUND)).filter(|name| !name.is_empty())
            });
            let name = match tenant.or(result.transport.as_deref()) {
                Some(whose) => format!("{}, {whose}", result.source),
                None => result.source.clone(),
            };
            let of_percent = metric.unit == Unit::Share && result.unit == "%";
            let value = result.plain_value() / if of_percent { 100.0 } else { 1.0 };
            let (figure, shown) = (&result.figure, units::show(metric.unit, value));
            let text = format!("{name}, {figure}<br>{shown}");
            let point = Point::new(x, Estimate::pooled(value, 1), text);
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => {
                    let style = Style { dash: series.len(), ..Style::PUBLISHED };
                    let kind = SeriesKind::Published;
                    series.push(Series { name, style, points: vec![point], kind });
                }
            }
        }
        series
    }

    /// Where a published number is on the axis.
    fn place_of_published(&self, result: &PublishedResult) -> Option<Place> {
        let number = match self.plot.x.as_str() {
            key::DEPTH => result.qd,
            key::BLOCK_BYTES => result.bs_bytes,
            key::JOBS => result.jobs,
            key::CORES => result.cores,
            key => result.settings.get(key)?.as_integer(),
        };
        number.map(|number| Place::Number(number as f64))
    }

    /// Whether cells of the group have the settings of a published number, where they have such.
    fn has(&self, result: &PublishedResult) -> bool {
        let settings = [
            (key::PATTERN, result.pattern.as_deref().map(Value::from)),
            (key::BLOCK_BYTES, result.bs_bytes.map(Value::from)),
            (key::DEPTH, result.qd.filter(|_| !result.metric.ends_with("_max")).map(Value::from)),
            (key::JOBS, result.jobs.map(Value::from)),
        ];
        settings.iter().filter(|(key, _)| *key != self.plot.x).all(|(key, theirs)| {
            let mut own = self.group.iter().filter_map(|cell| cell.value(key)).peekable();
            theirs.is_none() || own.peek().is_none() || own.any(|own| theirs.as_ref() == Some(own))
        })
    }

    fn axis_x(&self) -> AxisX {
        let key = &self.plot.x;
        let mut values: Vec<Value> = Vec::new();
        for cell in &self.group {
            let value = place_of(cell, key);
            if let Some(value) = value.filter(|value| !values.contains(value)) {
                values.push(value);
            }
        }
        values.sort_by(|one, other| value_order(key, one, other));
        let numbers: Vec<f64> = values.iter().filter_map(Value::as_number).collect();
        let words = numbers.len() < values.len() || self.plot.kind == PlotKind::Bar;
        let log = self.plot.log_x && !words && numbers.iter().all(|number| *number > 0.0);
        let ticks = values
            .iter()
            .map(|value| {
                let text = units::short(key, value);
                let place = match value.as_number() {
                    Some(number) if !words => Place::Number(number),
                    _ => Place::Word(text.clone()),
                };
                (place.json(), text)
            })
            .collect();
        let automatic = key == number::OFFERED_IOPS;
        AxisX { title: self.axis(key), log, ticks, words, automatic }
    }

    fn points(&self, metric: &Metric, group: &[&Cell], x: &AxisX) -> Vec<Point> {
        let mut points: Vec<(Value, Point)> = Vec::new();
        for cell in group {
            let Some(value) = place_of(cell, &self.plot.x) else { continue };
            let reading = metric.read(self.cells, cell);
            let Some(estimate) = reading.estimate() else { continue };
            let place = match value.as_number() {
                Some(number) if !x.words => Place::Number(number),
                _ => Place::Word(units::short(&self.plot.x, &value)),
            };
            let text = hover(self.cells, cell, Some((metric, &reading)));
            let chosen = cell.value(&self.plot.best_over);
            let chosen = chosen.map(|value| units::short(&self.plot.best_over, value));
            let made_from = metric.made_from(self.cells, cell);
            let hollow = gate(Sentence::Comparison, metric, &made_from).reason().is_some();
            let point = Point { x: place, value: estimate, text, chosen, hollow };
            match points.iter_mut().find(|(known, _)| *known == value) {
                Some((_, best)) if metric.is_better(estimate.mean, best.value.mean) => {
                    *best = point;
                }
                Some(_) => {}
                None => points.push((value, point)),
            }
        }
        points.sort_by(|(one, _), (other, _)| value_order(&self.plot.x, one, other));
        points.into_iter().map(|(_, point)| point).collect()
    }

    /// A note on points, bars and missing cells.
    fn note(&self, series: &[Series], best_of: &[String]) -> String {
        let counts = series.iter().flat_map(|series| &series.points).map(|point| point.value.count);
        let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
        let n =
            if least == most { format!("n = {most}") } else { format!("n = {least} to {most}") };
        let mut note = match (least, most) {
            (_, 1) => format!("One repeat per point ({n}): the spread is not known."),
            (_, 2) => format!("Points: mean of the repeats ({n}); bars: both values."),
            (least, _) if least < 3 => format!(
                "Points: mean of the repeats ({n}); bars: its 95 % confidence interval, or both \
                 values if there are two."
            ),
            _ => format!("Points: mean of the repeats ({n}); bars: its 95 % confidence interval."),
        };
        if !best_of.is_empty() {
            let names: Vec<String> = best_of.iter().map(|key| units::axis(key)).collect();
            note += &format!(" Each point is the best over {}.", names.join(" and "));
            if !self.plot.best_over.is_empty() {
                let name = units::axis(&self.plot.best_over);
                note += &format!(" The number at a point is its {name}.");
            }
        }
        if series.iter().flat_map(|series| &series.points).any(|point| point.hollow) {
            note += " Hollow: its marks, which it shows when pointed at, forbid a comparison.";
        }
        if series.iter().flat_map(|series| &series.points).any(|point| point.value.pooled) {
            note +=
                " Some percentiles are resolved only by all repeats together; they have no bar.";
        }
        note + &self.missing()
    }

    fn missing(&self) -> String {
        match self.group.iter().filter(|cell| !cell.is_measured()).count() {
            0 => String::new(),
            1 => " One cell has no result; see below.".to_owned(),
            missing => format!(" {missing} cells have no result; see below."),
        }
    }

    fn distribution(&self) -> Option<Figure> {
        let mut keys = self.plot.series.clone();
        keys.extend(self.left_over());
        let mut curves = Vec::new();
        let mut rows = Vec::new();
        for (name, style, group) in self.series(&keys) {
            for cell in group.into_iter().filter(|cell| cell.is_measured()) {
                let latency = cell.latency();
                let name = if name.is_empty() { "latency".to_owned() } else { name.clone() };
                let n = format!("n = {}, {} requests", cell.repeats.len(), latency.count());
                let text = format!("{}<br>{n}", figure::plain(&cell.label));
                rows.push(self.percentiles(&name, cell, &latency));
                curves.push(Curve { name, style, steps: steps(&latency), text });
            }
        }
        if curves.is_empty() {
            return None;
        }
        let note = format!(
            "Curves: all requests of all repeats; one ends where fewer than {SAMPLES_BEYOND} \
             requests lie beyond it. Percentiles: the geometric mean of those of the repeats.{}",
            self.missing()
        );
        let head = ["", "p50", "p90", "p99", "p99.9", "p99.99", "most", "requests"];
        let numbers = Grid { head: head.map(str::to_owned).to_vec(), rows };
        Some(Figure {
            title: self.title(None),
            stands_for: self.plot.figure.clone(),
            note,
            about_cpu: false,
            content: Content::Chart { data: figure::distributions(&curves), numbers },
        })
    }

    /// The percentiles of a cell, as everywhere.
    fn percentiles(&self, name: &str, cell: &Cell, latency: &Latency) -> Vec<String> {
        let mut row = vec![name.to_owned()];
        let metrics =
            ["p50", "p90", "p99", "p99.9", "p99.99"].into_iter().filter_map(Metric::named);
        row.extend(
            metrics.map(|metric| units::show_reading(metric.unit, &metric.read(self.cells, cell))),
        );
        row.push(units::show(crate::cells::Unit::Time, latency.max_ns() as f64));
        row.push(latency.count().to_string());
        row
    }

    fn stack(&self) -> Option<Figure> {
        let mut keys: Vec<String> = vec![self.plot.x.clone()];
        keys.extend(self.plot.series.iter().cloned());
        keys.extend(self.left_over());
        let bars: Vec<(String, &Cell)> = split(&self.group, &keys)
            .into_iter()
            .filter_map(|(words, group)| {
                let cell = group.into_iter().find(|cell| cell.is_measured())?;
                Some((words.join(", "), cell))
            })
            .collect();
        let layers = layers(&bars);
        if layers.is_empty() {
            return None;
        }
        let ticks = bars.iter().map(|(name, _)| (Place::Word(name.clone()).json(), name.clone()));
        let x = AxisX { ticks: ticks.collect(), words: true, ..AxisX::default() };
        let note = format!(
            "Time of the processors to which each side was pinned (all, if not pinned), mean of \
             the repeats; softirq includes interrupts. Plain: host; hatched: target.{}",
            self.missing()
        );
        Some(Figure {
            title: self.title(None),
            stands_for: self.plot.figure.clone(),
            note,
            about_cpu: true,
            content: Content::Chart {
                data: figure::stack(&layers, &x),
                numbers: layer_grid(&bars, &layers),
            },
        })
    }

    fn table(&self) -> Option<Figure> {
        let metrics = Metric::all(&self.plot.y);
        if metrics.is_empty() || self.group.is_empty() {
            return None;
        }
        let mut keys: Vec<String> = vec![self.plot.x.clone()];
        keys.extend(self.plot.series.iter().cloned());
        keys.extend(self.left_over());
        keys.retain(|key| !key.is_empty());
        let mut head: Vec<String> = keys.iter().map(|key| self.axis(key)).collect();
        head.extend(metrics.iter().map(|metric| metric.label.clone()));
        head.push("n".to_owned());
        let mut ordered = self.group.clone();
        // Those without a result are counted in the note; their reasons are below.
        if ordered.iter().any(|cell| cell.is_measured()) {
            ordered.retain(|cell| cell.is_measured());
        }
        ordered.sort_by(|one, other| {
            keys.iter()
                .filter_map(|key| Some(value_order(key, one.value(key)?, other.value(key)?)))
                .find(|ordering| ordering.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let rows = ordered.iter().map(|cell| {
            let mut row: Vec<String> = keys
                .iter()
                .map(|key| cell.value(key).map_or("–".to_owned(), |v| units::short(key, v)))
                .collect();
            if cell.is_measured() {
                row.extend(metrics.iter().map(|metric| {
                    units::show_reading(metric.unit, &metric.read(self.cells, cell))
                }));
                row.push(cell.repeats.len().to_string());
            } else {
                row.extend(metrics.iter().map(|_| "no result".to_owned()));
                row.push("0".to_owned());
            }
            row
        });
        Some(Figure {
            title: self.title(None),
            stands_for: self.plot.figure.clone(),
            note: format!(
                "Mean of the repeats (the geometric one of latencies, costs and ratios) with its \
                 95 % confidence interval; both values if there are two repeats.{}",
                self.missing()
            ),
            about_cpu: metrics.iter().any(Metric::is_cpu),
            content: Content::Table(Grid { head, rows: rows.collect() }),
        })
    }
}

/// Whether the least points of a chart would lie on a linear axis' zero.
fn spreads(series: &[Series]) -> bool {
    let means = || series.iter().flat_map(|series| &series.points).map(|point| point.value.mean);
    means().fold(0.0, f64::max) >= LINEAR_MAX * means().fold(f64::INFINITY, f64::min)
}

/// The position of a cell on an axis. A foreground without a background has no load.
fn place_of(cell: &Cell, key: &str) -> Option<Value> {
    if key == key::LOAD_PERCENT && cell.role == Role::Alone {
        return Some(Value::from(0u64));
    }
    if key == number::OFFERED_IOPS {
        let offered = cell.repeats.iter().filter_map(|repeat| repeat.values.get(key).copied());
        return Estimate::of(&offered.collect::<Vec<f64>>(), Scale::Plain)
            .map(|estimate| Value::from(estimate.mean));
    }
    cell.value(key).cloned()
}

/// The steps of a distribution as far as it is resolved, thinned.
fn steps(latency: &Latency) -> Vec<(f64, f64)> {
    let count = latency.count() as f64;
    let resolved = 1.0 - SAMPLES_BEYOND / count;
    let mut steps: Vec<(f64, f64)> = vec![(latency.min_ns() as f64, 0.0)];
    let mut seen = 0u64;
    for (ns, times) in latency.raw() {
        seen += times;
        let share = seen as f64 / count;
        if share > resolved {
            break;
        }
        steps.push((ns as f64, share));
    }
    thinned(&steps)
}

/// Leaves out steps that are indistinguishable from the last one: by share in the body, by time in
/// the tail.
fn thinned(steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let span = match (steps.first(), steps.last()) {
        (Some((first, _)), Some((last, _))) if *first > 0.0 => (last / first).ln().max(1e-9),
        _ => return steps.to_vec(),
    };
    let step = 2.0 / CURVE_STEPS as f64;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (index, (ns, share)) in steps.iter().enumerate() {
        let far = kept.last().is_none_or(|(last_ns, last_share)| {
            share - last_share >= step || (ns / last_ns).ln() / span >= step
        });
        if far || index + 1 == steps.len() {
            kept.push((*ns, *share));
        }
    }
    kept
}

fn layers(bars: &[(String, &Cell)]) -> Vec<Layer> {
    let mut layers = Vec::new();
    for target in [false, true] {
        for (index, part) in Part::ALL.into_iter().enumerate() {
            let shares: Vec<(Place, f64, String)> = bars
                .iter()
                .filter_map(|(name, cell)| {
                    let share = part.share(&sides(cell, target), false)?;
                    let side = if target { "target" } else { "host" };
                    let name = figure::plain(name);
                    let (part, n) = (part.name(), cell.repeats.len());
                    let share_text = units::percent(share);
                    let text = format!("{name}<br>{side} {part}: {share_text}<br>n = {n}");
                    Some((Place::Word(name), share, text))
                })
                .collect();
            let any = shares.iter().any(|(_, share, _)| *share > 0.0005);
            if any {
                layers.push(Layer { name: part.name().to_owned(), part: index, target, shares });
            }
        }
    }
    layers
}

/// The records of one side of a cell's repeats.
pub(super) fn sides<'a>(cell: &'a Cell, target: bool) -> Vec<&'a Side> {
    let side = |repeat: &'a crate::cells::Repeat| {
        if target { repeat.target.as_ref() } else { repeat.host.as_ref() }
    };
    cell.repeats.iter().filter_map(side).collect()
}

fn layer_grid(bars: &[(String, &Cell)], layers: &[Layer]) -> Grid {
    let mut head = vec![String::new()];
    head.extend(
        layers.iter().map(|layer| {
            format!("{} {}", if layer.target { "target" } else { "host" }, layer.name)
        }),
    );
    let rows = bars.iter().map(|(name, _)| {
        let mut row = vec![name.clone()];
        row.extend(layers.iter().map(|layer| {
            let place = Place::Word(figure::plain(name));
            let found = layer.shares.iter().find(|(known, ..)| *known == place);
            found.map_or("–".to_owned(), |(_, share, _)| units::percent(*share))
        }));
        row
    });
    Grid { head, rows: rows.collect() }
}

/// The plots of a study whose plan names none: rates, latency and CPU over its first numeric axis,
/// and a table of all cells.
pub(super) fn plots(plan: &Plan, cells: &Cells) -> Vec<Plot> {
    let role = plan.kind.role();
    let mut plots = match plan.plots.is_empty() {
        true => default_plots(&cells.varied(role)),
        false => plan.plots.clone(),
    };
    plots.extend(beside::depth_by_jobs(&plots, cells, role));
    plots
}

fn default_plots(varied: &[String]) -> Vec<Plot> {
    const NUMBERS: [&str; 8] = [
        key::BLOCK_BYTES,
        key::DEPTH,
        key::CORES,
        key::HOST_CORES,
        key::TARGET_CORES,
        key::JOBS,
        key::LOAD_PERCENT,
        key::TARGET_IDLE_POLL_US,
    ];
    let x = NUMBERS.iter().find(|key| varied.iter().any(|varied| varied == *key));
    let x = x.map_or_else(|| varied.first().cloned().unwrap_or_default(), |x| (*x).to_owned());
    let others: Vec<String> = varied.iter().filter(|key| **key != x).cloned().collect();
    let (series, split) = others.split_at(others.len().min(1));
    let plot = |title: &str, kind, y: &[&str]| Plot {
        title: title.to_owned(),
        x: x.clone(),
        y: y.iter().map(|y| (*y).to_owned()).collect(),
        series: series.to_vec(),
        split: split.to_vec(),
        log_x: true,
        ..Plot::of(kind)
    };
    let kind = if x.is_empty() { PlotKind::Table } else { PlotKind::Line };
    let mut table = plot("All cells", PlotKind::Table, &["iops", "bandwidth", "mean", "p99"]);
    (table.series, table.split) = (others.clone(), Vec::new());
    if kind == PlotKind::Table {
        return vec![table];
    }
    vec![
        plot("Throughput", kind, &["iops", "bandwidth"]),
        plot("Latency", kind, &["mean", "p99"]),
        plot("CPU", kind, &["cpu-per-io"]),
        table,
    ]
}
