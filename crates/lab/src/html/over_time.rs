//! Cells over time: IOPS and p99 of each window, with the ramp, and where a cell was not steady.

use serde_json::json;
use weft_load::limits::WINDOW;

use super::figure::{
    self, AxisX, AxisY, Content, Figure, Grid, Place, Point, Series, SeriesKind, Style,
};
use super::units;
use crate::cells::{Cell, Cells, Estimate, Repeat, Unit};
use crate::claims::{Answer, Verdict};
use crate::results::{Mark, Window};
use crate::study::plan::{Measure, Plan};
use crate::study::steady::Steadiness;

/// Most cells that are drawn.
const CELLS_MAX: usize = 8;

/// About the most points of a line: windows of a longer run are joined.
const POINTS_MAX: usize = 240;

/// Fewest windows of the measured time that are drawn.
const WINDOWS_MIN: usize = 3;

/// A shorter ramp cannot be told from the time that a window takes to arrive.
const RAMP_S_MIN: f64 = 0.05;

/// A figure for each cell that the answer is made from, and then for each that was not steady; if
/// there is none of them, for the first cells.
pub(super) fn figures(cells: &Cells, plan: &Plan, answer: Option<&Answer>) -> Vec<Figure> {
    let rows = answer.into_iter().flat_map(|answer| &answer.claims).flat_map(|claim| &claim.rows);
    let ids = rows.filter(|row| row.verdict != Verdict::Reference).flat_map(|row| &row.cells);
    let of_answer = ids.filter_map(|id| cells.cells.iter().find(|cell| cell.id == *id));
    let unsteady = cells.cells.iter().filter(|cell| cell.marks.contains(&Mark::NotSettled));
    let mut chosen: Vec<&Cell> = Vec::new();
    for cell in of_answer.chain(unsteady) {
        if !chosen.iter().any(|known| std::ptr::eq(*known, cell)) {
            chosen.push(cell);
        }
    }
    if chosen.is_empty() {
        chosen = cells.cells.iter().collect();
    }
    let drawn = chosen.into_iter().filter_map(|cell| figure(cell, &plan.measure));
    drawn.take(CELLS_MAX).collect()
}

fn figure(cell: &Cell, measure: &Measure) -> Option<Figure> {
    let courses = cell.repeats.iter().filter_map(|repeat| Course::of(repeat, measure));
    let course =
        courses.reduce(|most, other| if other.excess > most.excess { other } else { most });
    let course = course?;
    let moments = course.moments();
    let label = &cell.label;
    let head = ["time", "IOPS", "p99", "part"].map(str::to_owned).to_vec();
    let rows = moments.iter().map(Moment::row).collect();
    Some(Figure {
        title: format!("Over time: {label}"),
        stands_for: String::new(),
        note: course.note(cell),
        about_cpu: false,
        content: Content::Chart { data: course.chart(&moments), numbers: Grid { head, rows } },
    })
}

/// One repeat over time.
struct Course<'a> {
    repeat: &'a Repeat,
    measure: &'a Measure,
    /// Of IOPS, over the windows that count.
    mean: f64,
    steadiness: Option<Steadiness>,
    /// By how much it is beyond the bounds of the plan: up to 1 it is steady.
    excess: f64,
    /// When counting began, if a ramp is known.
    ramp_s: Option<f64>,
}

impl<'a> Course<'a> {
    fn of(repeat: &'a Repeat, measure: &'a Measure) -> Option<Self> {
        let windows = || repeat.windows.iter().filter(|window| !window.ramp);
        let counted: Vec<f64> = windows().map(|window| window.iops).collect();
        if counted.len() < WINDOWS_MIN {
            return None;
        }
        let begun_s = windows().next()?.at_s - WINDOW.as_secs_f64();
        let steadiness = Steadiness::of(&counted, WINDOW.as_secs_f64());
        let excess = steadiness.map_or(0.0, |of| {
            let slope = of.slope_percent_per_s.abs() / measure.slope_percent_per_s;
            slope.max(of.deviation_percent / measure.deviation_percent)
        });
        Some(Self {
            repeat,
            measure,
            mean: counted.iter().sum::<f64>() / counted.len() as f64,
            steadiness,
            excess,
            ramp_s: (begun_s > RAMP_S_MIN).then_some(begun_s),
        })
    }

    /// Whether a window that counts is too far from the mean.
    fn is_off(&self, window: &Window) -> bool {
        let percent = 100.0 * (window.iops - self.mean).abs() / self.mean;
        !window.ramp && percent > self.measure.deviation_percent
    }

    fn moments(&self) -> Vec<Moment> {
        let windows = &self.repeat.windows;
        let each = windows.len().div_ceil(POINTS_MAX).max(1);
        let parts = windows.chunk_by(|one, other| one.ramp == other.ramp);
        let joined = |windows: &[Window]| {
            let iops = windows.iter().map(|window| window.iops).sum::<f64>();
            let last = windows.last().copied().unwrap_or_default();
            Moment {
                at_s: last.at_s,
                iops: iops / windows.len() as f64,
                p99_ns: windows.iter().filter_map(|window| window.p99_ns).max(),
                ramp: last.ramp,
                is_off: windows.iter().any(|window| self.is_off(window)),
            }
        };
        parts.flat_map(|part| part.chunks(each)).map(joined).collect()
    }

    fn chart(&self, moments: &[Moment]) -> serde_json::Value {
        let x = AxisX { title: "time, seconds".to_owned(), automatic: true, ..AxisX::default() };
        let y = AxisY { label: "IOPS".to_owned(), unit: Unit::Iops, log: false };
        let right = AxisY { label: "p99".to_owned(), unit: Unit::Time, log: false };
        let line = |name: &str, style, kind, points: Vec<Point>| Series {
            name: name.to_owned(),
            style,
            points,
            kind,
        };
        let iops = moments.iter().map(|moment| moment.point(moment.iops)).collect();
        let mut left = vec![line("IOPS", Style::FIRST, SeriesKind::Measured, iops)];
        let off = moments.iter().filter(|moment| moment.is_off);
        let off: Vec<Point> = off.map(|moment| moment.point(moment.iops)).collect();
        if !off.is_empty() {
            left.push(line("not steady", Style::FIRST, SeriesKind::Rings, off));
        }
        let p99 = moments.iter().filter_map(|of| Some(of.point(of.p99_ns? as f64)));
        let p99 = line("p99", Style::SECOND, SeriesKind::Measured, p99.collect());
        let mut data = figure::lines_of_two(&left, &y, &[p99], &right, &x);
        if let Some(ramp_s) = self.ramp_s {
            data["layout"]["shapes"] = json!([{
                "type": "rect", "xref": "x", "yref": "paper",
                "x0": 0.0, "x1": ramp_s, "y0": 0, "y1": 1,
                "label": { "text": "ramp", "textposition": "bottom center" },
            }]);
        }
        data
    }

    fn note(&self, cell: &Cell) -> String {
        let windows = &self.repeat.windows;
        let number = self.repeat.number;
        let which = match cell.repeats.len() {
            1 => "the only repeat".to_owned(),
            all if self.steadiness.is_none() => format!("repeat {number} of {all}"),
            all => format!("repeat {number}, of {all} the one that is furthest from steady"),
        };
        let each = WINDOW.as_millis();
        let mut note = format!("Windows of {each} ms of {which}.");
        if windows.len() > POINTS_MAX {
            note += " A point is the mean IOPS and the highest p99 of several.";
        }
        note += match self.ramp_s {
            Some(_) => " Shaded: the ramp, which does not count.",
            None if self.measure.ramp.is_zero() => " There was no ramp.",
            None => " These results do not have the ramp.",
        };
        if windows.iter().all(|window| window.p99_ns.is_none()) {
            note += " No window has a p99 that is recorded and resolved.";
        }
        let off = windows.iter().filter(|window| self.is_off(window)).count();
        if off > 0 {
            let percent = self.measure.deviation_percent;
            note += &format!(
                " Rings: not steady, more than {percent} % from the mean of the measured time \
                 ({off} of {} windows).",
                windows.iter().filter(|window| !window.ramp).count()
            );
        }
        let slope = self.steadiness.map_or(0.0, |of| of.slope_percent_per_s);
        if slope.abs() > self.measure.slope_percent_per_s {
            note += &format!(
                " Not steady: IOPS changed by {slope:.1} % per second; the plan allows {} %.",
                self.measure.slope_percent_per_s
            );
        }
        for mark in [Mark::NotSettled, Mark::NotAwaited] {
            if cell.marks.contains(&mark) {
                note += &format!(" The cell is marked: {}.", mark.explained());
            }
        }
        note
    }
}

/// A point of the chart: one window, or several of a long run.
struct Moment {
    at_s: f64,
    iops: f64,
    p99_ns: Option<u64>,
    ramp: bool,
    is_off: bool,
}

impl Moment {
    const fn part(&self) -> &'static str {
        match (self.ramp, self.is_off) {
            (true, _) => "ramp",
            (false, true) => "measured, not steady",
            (false, false) => "measured",
        }
    }

    fn row(&self) -> Vec<String> {
        let p99 = self.p99_ns.map(|ns| units::show(Unit::Time, ns as f64));
        vec![
            format!("{:.1} s", self.at_s),
            units::show(Unit::Iops, self.iops),
            p99.unwrap_or_else(|| "unresolved".to_owned()),
            self.part().to_owned(),
        ]
    }

    fn point(&self, value: f64) -> Point {
        let [at, iops, p99, part] = &self.row()[..] else { unreachable!("a row has four") };
        let text = format!("{at}, {part}<br>{iops} IOPS<br>p99 {p99}");
        Point::new(Place::Number(self.at_s), Estimate::exact(value), text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::results::{Environment, Record, Role, key};
    use crate::study::builtin;
    use crate::testing::record;

    fn window(at_s: f64, iops: f64, us: u64, ramp: bool) -> Window {
        Window { at_s, iops, p99_ns: Some(us * 1000), ramp }
    }

    /// A ramp of a second, and two seconds that count: one window of them is slow.
    fn slow_once(depth: u64) -> Record {
        let mut record = record(Role::Plain, &[(key::DEPTH, depth.into())], 10e3, 50);
        record.windows = vec![
            window(0.5, 4e3, 90, true),
            window(1.0, 8e3, 70, true),
            window(1.5, 10e3, 50, false),
            window(2.0, 10e3, 50, false),
            window(2.5, 7e3, 95, false),
            window(3.0, 10e3, 50, false),
        ];
        record
    }

    fn plan() -> Plan {
        builtin::find("overhead-t-app").expect("a study").plan().expect("a plan")
    }

    fn drawn(records: &[Record]) -> Vec<Figure> {
        figures(&Cells::of(records, &Environment::default()), &plan(), None)
    }

    fn chart(figure: &Figure) -> (&Json, &Grid) {
        let Content::Chart { data, numbers } = &figure.content else { panic!("a chart") };
        (data, numbers)
    }

    #[test]
    fn windows_are_the_points_with_the_ramp_shaded_and_the_unsteady_one_ringed() {
        let figures = drawn(&[slow_once(1)]);
        let (data, numbers) = chart(&figures[0]);
        let [iops, rings, p99] = &data["traces"].as_array().expect("traces")[..] else {
            panic!("three series: {data}")
        };
        assert_eq!(iops["x"], json!([0.5, 1.0, 1.5, 2.0, 2.5, 3.0]));
        assert_eq!(iops["y"], json!([4.0, 8.0, 10.0, 10.0, 7.0, 10.0]), "in K IOPS");
        assert_eq!((&rings["x"], &rings["y"]), (&json!([2.5]), &json!([7.0])));
        assert_eq!(rings["meta"]["rings"], json!(true));
        assert_eq!(p99["y"], json!([90.0, 70.0, 50.0, 50.0, 95.0, 50.0]), "in µs");
        assert_eq!(p99["yaxis"], "y2");
        assert_eq!(data["layout"]["yaxis2"]["title"]["text"], "p99, µs");
        let shape = &data["layout"]["shapes"][0];
        assert_eq!((&shape["x0"], &shape["x1"]), (&json!(0.0), &json!(1.0)));
        assert_eq!(numbers.rows[0], ["0.5 s", "4.00 K", "90.00 µs", "ramp"]);
        assert_eq!(numbers.rows[4][3], "measured, not steady");
        let note = &figures[0].note;
        assert!(
            note.contains("more than 10 % from the mean") && note.contains("(1 of 4"),
            "{note}"
        );
    }

    #[test]
    fn results_without_windows_have_iops_and_say_that_there_is_no_ramp() {
        let mut old = record(Role::Plain, &[], 10e3, 50);
        old.read.as_mut().expect("reads").window_iops = vec![10e3; 4];
        let figures = drawn(std::slice::from_ref(&old));
        let (data, numbers) = chart(&figures[0]);
        assert_eq!(data["traces"].as_array().map(Vec::len), Some(1), "{data}");
        assert!(data["layout"].get("shapes").is_none() && data["layout"].get("yaxis2").is_none());
        assert_eq!(numbers.rows[3], ["2.0 s", "10.0 K", "unresolved", "measured"]);
        let note = &figures[0].note;
        assert!(note.contains("do not have the ramp") && note.contains("No window has"), "{note}");
        old.read.as_mut().expect("reads").window_iops.truncate(1);
        assert!(drawn(&[old]).is_empty(), "one window is no course");
    }

    #[test]
    fn the_repeat_furthest_from_steady_of_an_unsteady_cell_is_drawn() {
        let steady = |repeat: u32| {
            let mut record = slow_once(1);
            record.repeat = repeat;
            record.windows.retain(|window| window.iops >= 8e3);
            record
        };
        let mut slow = slow_once(1);
        slow.repeat = 2;
        slow.mark(Mark::NotSettled);
        let mut other = slow_once(64);
        other.windows.clear();
        let figures = drawn(&[steady(1), slow, steady(3), slow_once(4), other]);
        assert_eq!(figures.len(), 1, "the steady cell is not drawn beside the one that is not");
        assert!(figures[0].note.contains("repeat 2, of 3"), "{}", figures[0].note);
        assert!(figures[0].note.contains("marked: IOPS were not steady"), "{}", figures[0].note);
    }

    #[test]
    fn a_long_run_has_few_points_and_keeps_what_was_not_steady() {
        let mut record = slow_once(1);
        let at = |index: u32| 1.5 + 0.5 * f64::from(index);
        record.windows.truncate(2);
        record.windows.extend(
            (0..7200)
                .map(|index| window(at(index), if index == 5000 { 5e3 } else { 10e3 }, 50, false)),
        );
        let figures = drawn(&[record]);
        let (data, numbers) = chart(&figures[0]);
        assert!(numbers.rows.len() <= POINTS_MAX + 2, "{}", numbers.rows.len());
        assert_eq!(numbers.rows.iter().filter(|row| row[3] == "measured, not steady").count(), 1);
        assert_eq!(numbers.rows.iter().filter(|row| row[3] == "ramp").count(), 1);
        assert_eq!(data["traces"][1]["x"].as_array().map(Vec::len), Some(1));
    }
}
