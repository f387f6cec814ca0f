//! Figures and tables in the format that the page embeds.
//!
//! A chart is data for the charting library: its traces, and the part of its layout that depends on
//! the data. `page.js` adds colours, sizes and everything else that depends on the reader's
//! screen. Two entries of a trace's `meta` give its colour and dash by number, so that a transport
//! looks the same in every chart of a report.

use serde_json::{Value as Json, json};

use super::units::{self, Scale};
use crate::cells::{Estimate, Unit};

/// A chart or table with its text.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) title: String,
    /// The corresponding published figure.
    pub(super) stands_for: String,
    /// A note on its points and bars.
    pub(super) note: String,
    /// Whether it shows CPU use, which needs a caveat.
    pub(super) about_cpu: bool,
    pub(super) content: Content,
}

impl Figure {
    /// The data of a chart.
    pub(super) const fn data_mut(&mut self) -> Option<&mut Json> {
        match &mut self.content {
            Content::Chart { data, .. } => Some(data),
            Content::Table(_) => None,
        }
    }
}

/// The content of a figure.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A chart, and the same as numbers.
    Chart { data: Json, numbers: Grid },
    /// Numbers only.
    Table(Grid),
}

/// Rows and columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Grid {
    /// The head of a column of words, which may take several lines.
    pub(super) const MARKS: &str = "marks";
}

/// What is left beside the outermost points of an axis, of its length or of a decade.
const ROOM: f64 = 0.04;

/// Ticks of a distribution: the requests beyond, in percent.
const BEYOND: [(f64, &str); 7] = [
    (100.0, "100"),
    (50.0, "50 (p50)"),
    (10.0, "10 (p90)"),
    (1.0, "1 (p99)"),
    (0.1, "0.1 (p99.9)"),
    (0.01, "0.01 (p99.99)"),
    (0.001, "0.001"),
];

/// Colour and dash of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) colour: usize,
    pub(super) dash: usize,
}

impl Style {
    /// A chart's first quantity where no settings are told apart, such as IOPS over time. No
    /// setting's value has this colour, nor those of the next two.
    pub(super) const FIRST: Self = Self { colour: 5, dash: 0 };
    /// Its second quantity.
    pub(super) const SECOND: Self = Self { colour: 6, dash: 1 };
    /// What was published.
    pub(super) const PUBLISHED: Self = Self { colour: 7, dash: 0 };
}

/// A point of a series.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: Place,
    pub(super) value: Estimate,
    /// Its hover text.
    pub(super) text: String,
    /// The value of the setting over which it is the best.
    pub(super) chosen: Option<String>,
    /// Whether its marks forbid to compare it.
    pub(super) hollow: bool,
}

impl Point {
    /// One that nothing is said against.
    pub(super) const fn new(x: Place, value: Estimate, text: String) -> Self {
        Self { x, value, text, chosen: None, hollow: false }
    }
}

/// A position on the x axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    Number(f64),
    Word(String),
}

impl Place {
    pub(super) fn json(&self) -> Json {
        match self {
            Self::Number(number) => json!(number),
            Self::Word(word) => json!(word),
        }
    }
}

/// A line, or bars of one colour.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) points: Vec<Point>,
    pub(super) kind: SeriesKind,
}

impl Series {
    /// The point at a position.
    pub(super) fn at(&self, place: &Json) -> Option<&Point> {
        self.points.iter().find(|point| point.x.json() == *place)
    }
}

/// What the points of a series are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesKind {
    /// Measured here.
    Measured,
    /// Published; they are not joined by a line.
    Published,
    /// Rings around points of the line with the same style: a knee, or windows that are not steady.
    Rings,
}

/// An x axis.
#[derive(Clone, Debug, Default)]
pub(super) struct AxisX {
    pub(super) title: String,
    pub(super) log: bool,
    /// Positions and texts of ticks; of words both are the words.
    pub(super) ticks: Vec<(Json, String)>,
    pub(super) words: bool,
    /// Whether ticks are chosen by the range: the positions here are those of the points. On a
    /// logarithmic axis they are rates.
    pub(super) automatic: bool,
}

/// A y axis.
#[derive(Clone, Debug)]
pub(super) struct AxisY {
    pub(super) label: String,
    pub(super) unit: Unit,
    pub(super) log: bool,
}

/// Text for a hover label, with the characters escaped that the library would interpret.
pub(super) fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl AxisX {
    /// The first and the last position.
    fn ends(&self) -> (f64, f64) {
        let places = self.ticks.iter().filter_map(|(place, _)| place.as_f64());
        places.fold((f64::INFINITY, 0.0), |(least, most), at| (least.min(at), most.max(at)))
    }

    fn json(&self) -> Json {
        let kind = match (self.words, self.log) {
            (true, _) => "category",
            (false, true) => "log",
            (false, false) => "linear",
        };
        let mut axis = json!({ "title": { "text": self.title }, "type": kind });
        if self.automatic && self.log {
            // The browser's own are digits and powers.
            let (least, most) = self.ends();
            let ticks = units::log_ticks(least, most);
            let texts: Vec<String> =
                ticks.iter().map(|tick| tick_text(Unit::Iops, *tick)).collect();
            axis["tickvals"] = json!(ticks);
            axis["ticktext"] = json!(texts);
        } else if !self.ticks.is_empty() && !self.automatic {
            let places: Vec<&Json> = self.ticks.iter().map(|(place, _)| place).collect();
            let texts: Vec<&String> = self.ticks.iter().map(|(_, text)| text).collect();
            axis["tickvals"] = json!(places);
            axis["ticktext"] = json!(texts);
            if self.words {
                axis["categoryorder"] = json!("array");
                axis["categoryarray"] = json!(places);
            }
        }
        axis
    }
}

/// A tick of a scale of times, with its own unit.
fn time_tick(ns: f64) -> String {
    let scale = units::scale(Unit::Time, ns);
    format!("{} {}", trimmed(ns / scale.divisor), scale.name)
}

impl AxisY {
    /// The axis for values from `least` to `most`, and its scale.
    fn json(&self, least: f64, most: f64) -> (Json, Scale) {
        let scale = units::scale(self.unit, most);
        let unit = if scale.name == "×" { "times" } else { scale.name };
        let has_own_units = self.log && self.unit == Unit::Time;
        let title = if has_own_units {
            self.label.clone()
        } else if self.label == "IOPS" && unit.ends_with("IOPS") {
            unit.to_owned()
        } else {
            format!("{}, {unit}", self.label)
        };
        let axis = if self.log {
            let (least, most) = (least / scale.divisor, most / scale.divisor);
            let ticks = units::log_ticks(least, most);
            // Times of a scale from microseconds to seconds have the unit of each.
            let text = |tick: f64| match has_own_units {
                true => time_tick(tick * scale.divisor),
                false => trimmed(tick),
            };
            let texts: Vec<String> = ticks.iter().map(|tick| text(*tick)).collect();
            json!({
                "title": { "text": title }, "type": "log", "tickvals": ticks, "ticktext": texts,
            })
        } else {
            json!({ "title": { "text": title }, "type": "linear", "rangemode": "tozero" })
        };
        (axis, scale)
    }
}

/// A tick's number without trailing zeros.
pub(super) fn trimmed(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn ends(series: &[Series]) -> (f64, f64) {
    let values = series.iter().flat_map(|series| &series.points).map(|point| point.value.mean);
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

/// Lines over an axis, with error bars.
pub(super) fn lines(series: &[Series], x: &AxisX, y: &AxisY) -> Json {
    chart(series, x, y, |series| {
        json!({
            "type": "scatter",
            "mode": match series.kind {
                SeriesKind::Measured => "lines+markers",
                SeriesKind::Published | SeriesKind::Rings => "markers",
            },
        })
    })
}

/// Lines of two quantities: the axis of the second is on the right.
pub(super) fn lines_of_two(
    left: &[Series],
    y: &AxisY,
    right: &[Series],
    y2: &AxisY,
    x: &AxisX,
) -> Json {
    let mut data = lines(left, x, y);
    if right.iter().all(|series| series.points.is_empty()) {
        return data;
    }
    let mut others = lines(right, x, y2);
    let mut axis = others["layout"]["yaxis"].take();
    axis["overlaying"] = json!("y");
    axis["side"] = json!("right");
    data["layout"]["yaxis2"] = axis;
    if let (Some(all), Some(others)) =
        (data["traces"].as_array_mut(), others["traces"].as_array_mut())
    {
        others.iter_mut().for_each(|trace| trace["yaxis"] = json!("y2"));
        all.append(others);
    }
    data
}

/// Groups of bars over words, with error bars.
pub(super) fn bars(series: &[Series], x: &AxisX, y: &AxisY) -> Json {
    let mut data = chart(series, x, y, |_| json!({ "type": "bar" }));
    data["layout"]["barmode"] = json!("group");
    data
}

fn chart(series: &[Series], x: &AxisX, y: &AxisY, form: impl Fn(&Series) -> Json) -> Json {
    let (least, most) = ends(series);
    let log = y.log && least > 0.0;
    let (axis, scale) = AxisY { log, ..y.clone() }.json(least, most);
    let traces: Vec<Json> = series
        .iter()
        .map(|series| {
            let mut trace = form(series);
            let bar = |side: fn((f64, f64)) -> f64| -> Vec<f64> {
                let bars = series.points.iter().map(|point| point.value.bar().map_or(0.0, side));
                bars.map(|bar| bar / scale.divisor).collect()
            };
            trace["name"] = json!(series.name);
            trace["x"] = series.points.iter().map(|point| point.x.json()).collect();
            trace["y"] =
                series.points.iter().map(|point| json!(point.value.mean / scale.divisor)).collect();
            trace["hovertext"] = series.points.iter().map(|point| json!(point.text)).collect();
            if series.points.iter().any(|point| point.chosen.is_some()) {
                trace["text"] = series.points.iter().map(|point| json!(point.chosen)).collect();
                if trace["type"] == "scatter" {
                    trace["mode"] = json!("lines+markers+text");
                    // Beside the error bar, and not cut off at the edge.
                    trace["textposition"] = json!("top left");
                    trace["cliponaxis"] = json!(false);
                }
            }
            trace["error_y"] = json!({
                "type": "data", "symmetric": false,
                "array": bar(|(_, up)| up), "arrayminus": bar(|(down, _)| down),
            });
            trace["meta"] = json!({
                "colour": series.style.colour,
                "dash": series.style.dash,
                "published": series.kind == SeriesKind::Published,
                "rings": series.kind == SeriesKind::Rings,
            });
            if series.points.iter().any(|point| point.hollow) {
                trace["meta"]["hollow"] = series.points.iter().map(|point| point.hollow).collect();
            }
            trace
        })
        .collect();
    json!({ "traces": traces, "layout": { "xaxis": x.json(), "yaxis": axis } })
}

/// A distribution: pairs of latency in ns and share of requests that took no longer.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) steps: Vec<(f64, f64)>,
    /// Its hover text, before the numbers of a point.
    pub(super) text: String,
}

/// One range for the x axes of charts that are compared, with the ticks of all.
pub(super) fn share_x(charts: &mut [&mut Json]) {
    let numbers =
        |of: &Json| of.as_array().into_iter().flatten().filter_map(Json::as_f64).collect();
    let mut all: Vec<f64> = Vec::new();
    let mut ticks: Vec<(f64, Json)> = Vec::new();
    for chart in charts.iter() {
        let axis = &chart["layout"]["xaxis"];
        let places: Vec<f64> = numbers(&axis["tickvals"]);
        let texts = axis["ticktext"].as_array().into_iter().flatten().cloned();
        ticks.extend(places.into_iter().zip(texts));
        for trace in chart["traces"].as_array().into_iter().flatten() {
            let x: Vec<f64> = numbers(&trace["x"]);
            all.extend(x);
        }
    }
    ticks.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    ticks.dedup_by(|(one, _), (other, _)| one == other);
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for chart in charts.iter_mut().filter(|_| least < most) {
        let axis = &mut chart["layout"]["xaxis"];
        let ends = match axis["type"].as_str() {
            Some("log") if least > 0.0 => [least.log10(), most.log10()],
            Some("linear") => [least, most],
            _ => return,
        };
        let room = (ends[1] - ends[0]) * ROOM;
        axis["range"] = json!([ends[0] - room, ends[1] + room]);
        if !ticks.is_empty() {
            axis["tickvals"] = ticks.iter().map(|(place, _)| json!(place)).collect();
            axis["ticktext"] = ticks.iter().map(|(_, text)| text.clone()).collect();
        }
    }
}

/// Cumulative distributions over latency, both axes logarithmic: the tail is what is compared.
pub(super) fn distributions(curves: &[Curve]) -> Json {
    let all = || curves.iter().flat_map(|curve| &curve.steps).map(|(ns, _)| *ns);
    let least = all().fold(f64::INFINITY, f64::min);
    let most = all().fold(0.0, f64::max);
    let ticks = units::log_ticks(least.max(1.0), most.max(1.0));
    let x = AxisX {
        title: "latency".to_owned(),
        log: true,
        ticks: ticks.iter().map(|ns| (json!(ns), tick_text(Unit::Time, *ns))).collect(),
        ..AxisX::default()
    };
    let beyond = |(_, share): &(f64, f64)| 100.0 * (1.0 - share);
    let traces: Vec<Json> = curves
        .iter()
        .map(|curve| {
            let text = |(ns, share): &(f64, f64)| {
                let share = units::show(Unit::Share, *share);
                format!("{}<br>{share} within {}", curve.text, units::show(Unit::Time, *ns))
            };
            json!({
                "type": "scatter", "mode": "lines", "name": curve.name,
                "x": curve.steps.iter().map(|(ns, _)| *ns).collect::<Vec<f64>>(),
                "y": curve.steps.iter().map(beyond).collect::<Vec<f64>>(),
                "hovertext": curve.steps.iter().map(text).collect::<Vec<String>>(),
                "meta": { "colour": curve.style.colour, "dash": curve.style.dash },
            })
        })
        .collect();
    // Downwards, so that curves rise as those of shares do.
    let all = curves.iter().flat_map(|curve| &curve.steps).map(beyond);
    let least = all.filter(|percent| *percent > 0.0).fold(10.0, f64::min);
    let (places, texts): (Vec<f64>, Vec<&str>) = BEYOND.into_iter().unzip();
    let y = json!({
        "title": { "text": "requests that take longer, %" }, "type": "log",
        "range": [2.0 + ROOM, least.log10() - ROOM], "tickvals": places, "ticktext": texts,
    });
    json!({ "traces": traces, "layout": { "xaxis": x.json(), "yaxis": y } })
}

fn tick_text(unit: Unit, value: f64) -> String {
    let Scale { divisor, name } = units::scale(unit, value);
    format!("{} {}", trimmed(value / divisor), name.trim_end_matches("IOPS").trim_end())
}

/// One part of a stack: the same part of the same side at all positions.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// `usr` and so on.
    pub(super) name: String,
    /// Which of the parts it is.
    pub(super) part: usize,
    /// Whether it belongs to the target.
    pub(super) target: bool,
    /// Shares (1 is all) and their hover texts.
    pub(super) shares: Vec<(Place, f64, String)>,
}

/// Stacked bars that add up to all processors of a side; the sides are next to each other.
pub(super) fn stack(layers: &[Layer], x: &AxisX) -> Json {
    let both = layers.iter().any(|layer| layer.target) && layers.iter().any(|layer| !layer.target);
    let traces: Vec<Json> = layers
        .iter()
        .map(|layer| {
            let side = if layer.target { "target" } else { "host" };
            json!({
                "type": "bar",
                "name": format!("{side} {}", layer.name),
                "offsetgroup": side,
                "legendgroup": side,
                "legendgrouptitle": { "text": if both { side } else { "" } },
                "x": layer.shares.iter().map(|(place, ..)| place.json()).collect::<Vec<Json>>(),
                "y": layer.shares.iter().map(|(_, share, _)| 100.0 * share).collect::<Vec<f64>>(),
                "hovertext": layer.shares.iter().map(|(.., text)| text).collect::<Vec<&String>>(),
                "meta": { "part": layer.part, "target": layer.target },
            })
        })
        .collect();
    let y = json!({
        "title": { "text": "time of its processors, %" }, "type": "linear", "range": [0, 100],
    });
    json!({ "traces": traces, "layout": { "xaxis": x.json(), "yaxis": y, "barmode": "stack" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, values: &[f64]) -> Point {
        let value = Estimate::of(values, crate::cells::Scale::Plain).expect("values");
        Point::new(Place::Number(x), value, format!("at {x}"))
    }

    fn series() -> Series {
        let points = vec![point(1.0, &[1e4, 1.1e4, 1.2e4]), point(2.0, &[2e6])];
        Series {
            name: "tcp".to_owned(),
            style: Style { colour: 2, dash: 1 },
            points,
            kind: SeriesKind::Measured,
        }
    }

    #[test]
    fn a_line_has_scaled_values_error_bars_and_hover_texts() {
        let x = AxisX { title: "depth".to_owned(), log: true, ..AxisX::default() };
        let y = AxisY { label: "IOPS".to_owned(), unit: Unit::Iops, log: false };
        let data = lines(&[series()], &x, &y);
        let trace = &data["traces"][0];
        assert_eq!(trace["y"], json!([0.011, 2.0]), "in M IOPS, the unit of the largest");
        assert_eq!(data["layout"]["yaxis"]["title"]["text"], "M IOPS");
        assert_eq!(trace["hovertext"], json!(["at 1", "at 2"].map(|t| t.to_owned())));
        assert_eq!(trace["error_y"]["array"][1], 0.0, "one repeat has no bar");
        assert!(trace["error_y"]["array"][0].as_f64().is_some_and(|bar| bar > 0.0));
        assert_eq!((&trace["meta"]["colour"], &trace["meta"]["dash"]), (&json!(2), &json!(1)));
        assert_eq!(data["layout"]["xaxis"]["type"], "log");
    }

    #[test]
    fn a_logarithmic_axis_has_its_own_ticks_and_needs_positive_values() {
        let y = AxisY { label: "p99 latency".to_owned(), unit: Unit::Time, log: true };
        let data = lines(&[series()], &AxisX::default(), &y);
        assert_eq!(data["layout"]["yaxis"]["type"], "log");
        assert_eq!(data["layout"]["yaxis"]["title"]["text"], "p99 latency");
        let ticks: Vec<String> =
            serde_json::from_value(data["layout"]["yaxis"]["ticktext"].clone()).expect("texts");
        assert!(
            ["10 µs", "1 ms"].iter().all(|text| ticks.contains(&(*text).to_owned())),
            "{ticks:?}"
        );
        let mut zero = series();
        zero.points.push(point(3.0, &[0.0]));
        let data = lines(&[zero], &AxisX::default(), &y);
        assert_eq!(data["layout"]["yaxis"]["type"], "linear");
    }

    #[test]
    fn a_distribution_is_over_time_and_in_percent() {
        let curve = Curve {
            name: "tcp".to_owned(),
            style: Style::default(),
            steps: vec![(1e4, 0.5), (2e4, 0.75), (9e4, 0.9990)],
            text: "tcp, n = 3".to_owned(),
        };
        let data = distributions(&[curve]);
        let beyond: Vec<f64> = serde_json::from_value(data["traces"][0]["y"].clone()).expect("y");
        assert_eq!(beyond[..2], [50.0, 25.0]);
        let range = &data["layout"]["yaxis"]["range"];
        assert!(range[1].as_f64().is_some_and(|end| (-1.1..-1.0).contains(&end)), "{range}");
        assert_eq!(data["traces"][0]["hovertext"][0], "tcp, n = 3<br>50.0 % within 10.00 µs");
        let texts = data["layout"]["xaxis"]["ticktext"].as_array().expect("ticks");
        assert!(texts.contains(&json!("10 µs")), "{texts:?}");
    }

    #[test]
    fn hover_texts_are_escaped() {
        assert_eq!(plain("a<b> & c"), "a&lt;b&gt; &amp; c");
    }
}
