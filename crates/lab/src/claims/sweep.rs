//! Claims along a setting: from which value on something holds.

use super::ask::{Ask, Beside};
use super::make::{
    CLOSE, ClaimRows, Contender, ContenderValue, Judgement, NO_LOCAL, joined, listed,
};
use super::{Number, Row, Verdict};
use crate::cells::gate::{Gate, Sentence, compare, distinguish, gate, is_asked};
use crate::cells::{Cell, Cells, Estimate, MOST_REACHED, Metric, Unit, knee, value_order};
use crate::results::{Role, Value, key};
use crate::units;

/// A rate that is this share of its highest is near it.
const NEAR: f64 = 0.9;

/// Why a curve has no knee.
const KNEELESS: &str = "fewer than three loads have a p99, or none of them was served whole";

/// A tenant bears a background beside which its p99 is at most so many times that alone.
const BORNE: f64 = 2.0;

/// A point of a curve: the best cell with a value of the setting.
#[derive(Clone, Debug)]
struct Point<'a> {
    value: &'a Value,
    cell: &'a Cell,
    estimate: Estimate,
}

/// What others are compared with.
struct Local<'a, 'c> {
    cells: &'c [&'a Cell],
    curve: Vec<Point<'a>>,
}

/// A point beside local, of which it is a share.
struct Pair<'a> {
    own: Point<'a>,
    base: &'a Cell,
    share: Estimate,
}

impl Pair<'_> {
    fn reaches(&self) -> bool {
        is_surely(&self.share, 1.0 - CLOSE)
    }
}

/// Whether a share is above a bound beyond doubt.
fn is_surely(share: &Estimate, bound: f64) -> bool {
    share.mean > bound && share.is_apart_from(&Estimate::exact(bound))
}

impl Ask {
    pub(super) fn along<'a>(&self, cells: &'a Cells, contenders: &[Contender<'a>]) -> ClaimRows {
        let local = contenders.iter().find(|contender| contender.is_local);
        let local = local.map(|local| &local.cells[..]).unwrap_or_default();
        let local = Local { cells: local, curve: self.curve(cells, local) };
        let what = match self.beside {
            Beside::Alone => "of its value alone",
            Beside::Borne if self.metric.is_rate() => "of its value alone, at least 90 %",
            Beside::Borne => "of its value alone, at most 2 ×",
            Beside::Second => "of the second",
            Beside::Capacity => "of the capacity",
            _ => "of local there",
        };
        let mut made = ClaimRows { beside: what.to_owned(), ..ClaimRows::default() };
        for contender in contenders {
            let curve = self.curve(cells, &contender.cells);
            match (self.beside, &curve[..]) {
                (Beside::Second, _) => self.seconds(cells, contender, &mut made),
                (Beside::Parity, _) if contender.is_local => {}
                (_, []) => {
                    let why = self.why_missing(cells, &contender.cells);
                    made.add(Row::without(contender, &why), None);
                }
                (Beside::Alone, of) => self.beside_a_neighbour(cells, contender, of, &mut made),
                (Beside::Borne, of) => self.bears(cells, contender, of, &mut made),
                (Beside::Capacity, _) => self.bend(cells, contender, &mut made),
                (Beside::Parity, of) => self.parity(contender, of, &local, cells, &mut made),
                (_, of) => self.reach(contender, of, &local.curve, cells, &mut made),
            }
        }
        made
    }

    /// The best cell for each value of the setting, in the order of the values.
    fn curve<'a>(&self, cells: &Cells, of: &[&'a Cell]) -> Vec<Point<'a>> {
        let mut found: Vec<Point<'a>> = Vec::new();
        for cell in self.telling(of) {
            let estimate = self.metric.read(cells, cell).estimate();
            let (Some(value), Some(estimate)) = (cell.value(&self.along), estimate) else {
                continue;
            };
            let point = Point { value, cell, estimate };
            match found.iter_mut().find(|known| known.value == value) {
                Some(known) if self.metric.is_better(estimate.mean, known.estimate.mean) => {
                    *known = point;
                }
                Some(_) => {}
                None => found.push(point),
            }
        }
        found.sort_by(|one, other| value_order(&self.along, one.value, other.value));
        found
    }

    fn row(&self, contender: &Contender<'_>, point: &Point<'_>, at: String) -> Row {
        let (estimate, cells) = (point.estimate, vec![point.cell]);
        let at = listed([at, self.place(point.cell)]);
        Row::of(contender, self.metric.unit, &ContenderValue::of_cell(estimate, at, cells))
    }

    /// From which value on a rate is near its highest, and how much of local that is.
    fn reach(
        &self,
        contender: &Contender<'_>,
        curve: &[Point<'_>],
        local: &[Point<'_>],
        cells: &Cells,
        made: &mut ClaimRows,
    ) {
        let better = |best: &Point<'_>, other: &Point<'_>| {
            self.metric.is_better(other.estimate.mean, best.estimate.mean)
        };
        let highest =
            curve.iter().reduce(|best, other| if better(best, other) { other } else { best });
        let Some(highest) = highest else { return };
        let near = |point: &Point<'_>| {
            let share = Estimate::ratio(&point.estimate, &highest.estimate);
            point.value == highest.value || is_surely(&share, NEAR)
        };
        let from = curve.iter().rposition(|point| !near(point)).map_or(0, |last| last + 1);
        // Behind the highest it may fall again.
        let found = curve.get(from).unwrap_or(highest);
        // What holds from there on is said of all of them.
        let on = curve.iter().skip(from).map(|point| point.cell).chain([highest.cell]);
        let gate = gate(Sentence::Capacity, &self.metric, &on.collect::<Vec<&Cell>>());
        if let Some(why) = gate.refusal() {
            return made.add(Row::without(contender, &why), None);
        }
        let (at, mut verdict, mut why) = self.reached(cells, contender, curve, [found, highest]);
        let telling = self.telling(&contender.cells);
        let doubt = self.doubt(cells, contender, &telling, highest.estimate.mean);
        if verdict != Verdict::CannotTell && !doubt.is_empty() {
            (verdict, why) = (Verdict::CannotTell, doubt);
        }
        let mut row = self.row(contender, found, at);
        row.at = joined([row.at, self.cover(contender, |cell| self.is_told(cells, cell))]);
        (row.verdict, row.why) = (verdict, why);
        let twin = local.iter().find(|point| point.value == found.value && !contender.is_local);
        let mut marks = named(gate);
        if let Some(local) = twin {
            let (both, own) = ([found.cell, local.cell], &found.estimate);
            let told = compare(Sentence::Comparison, &self.metric, &both, own, &local.estimate);
            match told.refusal() {
                None => {
                    let ratio = Estimate::ratio(own, &local.estimate);
                    row.beside = Some(Number::of(Unit::Share, &ratio));
                    marks.extend(named(told));
                }
                Some(why) if row.why.is_empty() => row.why = format!("beside local: {why}"),
                Some(_) => {}
            }
        }
        if contender.is_local {
            row.verdict = Verdict::Reference;
        }
        made.add(row, marks);
    }

    /// Where a curve is near its highest, whether that is known, and why not.
    fn reached(
        &self,
        cells: &Cells,
        contender: &Contender<'_>,
        curve: &[Point<'_>],
        [found, highest]: [&Point<'_>; 2],
    ) -> (String, Verdict, String) {
        let setting = units::setting(&self.along, found.value);
        let is_last = |last: &Point<'_>, before: &[Point<'_>]| {
            let is_above = |point: &Point<'_>| {
                let share = Estimate::ratio(&last.estimate, &point.estimate);
                is_surely(&share, 1.0) && share.mean > 1.0 + CLOSE
            };
            last.value == found.value && before.iter().all(is_above)
        };
        let (at, verdict, why) = match curve {
            [_] => {
                let is_other = |cell: &&&Cell| {
                    cell.is_measured() && cell.value(&self.along) != Some(found.value)
                };
                let others: Vec<&Cell> = contender.cells.iter().filter(is_other).copied().collect();
                let axis = units::axis(&self.along);
                let why = match others.is_empty() {
                    true => format!("other values of {axis} were not measured"),
                    false => format!("other values of {axis}: {}", self.why_untold(cells, &others)),
                };
                return (setting, Verdict::CannotTell, why);
            }
            [before @ .., last] if is_last(last, before) => {
                if let Some(why) = self.beyond(cells, contender, last.value) {
                    return (format!("still grows at {setting}"), Verdict::CannotTell, why);
                }
                let at = format!("still grows at {setting}, the last that was measured");
                (at, Verdict::No, "")
            }
            _ if found.estimate.interval().is_none() => {
                (setting, Verdict::CannotTell, found.estimate.why_no_interval())
            }
            _ if found.value == highest.value => return self.highest(curve, highest),
            _ => (format!("near its highest from {setting} on"), Verdict::Yes, ""),
        };
        (at, verdict, why.to_owned())
    }

    /// Where a curve is highest: at one value if all others are apart from it.
    fn highest(&self, curve: &[Point<'_>], highest: &Point<'_>) -> (String, Verdict, String) {
        let setting = |point: &Point<'_>| units::setting(&self.along, point.value);
        let why = |point: &Point<'_>| {
            let told = distinguish(&point.estimate, &highest.estimate);
            told.refusal().filter(|_| point.value != highest.value)
        };
        let Some(refusal) = curve.iter().find_map(why) else {
            return (format!("highest at {}", setting(highest)), Verdict::Yes, String::new());
        };
        let is_near = |point: &Point<'_>| {
            is_surely(&Estimate::ratio(&point.estimate, &highest.estimate), NEAR)
        };
        let behind = curve.iter().skip_while(|point| point.value != highest.value).skip(1);
        if behind.clone().next().is_some() && behind.clone().all(is_near) {
            let at = format!("near its highest from {} on", setting(highest));
            return (at, Verdict::Yes, String::new());
        }
        let mut among =
            curve.iter().filter(|point| point.value == highest.value || why(point).is_some());
        let first = among.next().map(setting).unwrap_or_default();
        let last = among.next_back().map(setting).unwrap_or_default();
        (format!("highest from {first} to {last}"), Verdict::CannotTell, refusal)
    }

    /// What is said against a value of the setting that was measured beyond the last one of a
    /// curve; none if there is no such value.
    fn beyond(&self, cells: &Cells, contender: &Contender<'_>, last: &Value) -> Option<String> {
        let mut measured = contender.cells.iter().filter(|cell| cell.is_measured());
        let (value, cell) = measured.find_map(|cell| {
            let value = cell.value(&self.along)?;
            value_order(&self.along, value, last).is_gt().then_some((value, *cell))
        })?;
        let setting = units::setting(&self.along, value);
        Some(format!("{setting}: {}", self.why_untold(cells, &[cell])))
    }

    /// The points of a curve with local's, but for those at which both have what they were asked
    /// for.
    fn pairs<'a>(
        &self,
        cells: &Cells,
        curve: &[Point<'a>],
        local: &Local<'a, '_>,
    ) -> Vec<Pair<'a>> {
        let pair = |own: Point<'a>| {
            let base = local.curve.iter().find(|of| of.value == own.value)?.cell;
            let is_known = ![own.cell, base].iter().all(|cell| is_asked(&self.metric, cell));
            let share = self.metric.quotient(cells, own.cell, base).filter(|_| is_known)?;
            Some(Pair { share, own, base })
        };
        curve.iter().cloned().filter_map(pair).collect()
    }

    /// From which value on a rate reaches the local one.
    fn parity(
        &self,
        contender: &Contender<'_>,
        curve: &[Point<'_>],
        local: &Local<'_, '_>,
        cells: &Cells,
        made: &mut ClaimRows,
    ) {
        let pairs = self.pairs(cells, curve, local);
        let from = pairs.iter().rposition(|pair| !pair.reaches()).map_or(0, |last| last + 1);
        let setting = |pair: &Pair<'_>| units::setting(&self.along, pair.own.value);
        let by_share =
            |one: &&Pair<'_>, other: &&Pair<'_>| one.share.mean.total_cmp(&other.share.mean);
        // Where some values reach it and the highest does not, the answer is the farthest.
        let reaching: Vec<String> =
            pairs.iter().filter(|pair| pair.reaches()).map(setting).collect();
        let nearest = match reaching.is_empty() {
            true => pairs.iter().max_by(by_share),
            false => pairs.iter().min_by(by_share),
        };
        let Some(pair) = pairs.get(from).or(nearest) else {
            let why = self.why_no_local(cells, local, curve);
            return made.add(Row::without(contender, &why), None);
        };
        let (is_found, setting, both) =
            (from < pairs.len(), setting(pair), [pair.own.cell, pair.base]);
        let (at, judged) = if is_found {
            // That they are apart from the bound is known; what holds from there on is said of all.
            let on = pairs.iter().skip(from).flat_map(|pair| [pair.own.cell, pair.base]);
            let told = gate(Sentence::Comparison, &self.metric, &on.collect::<Vec<&Cell>>());
            (format!("from {setting} on"), Judgement::of(told, true))
        } else {
            let bound = Estimate::exact(1.0 - CLOSE);
            let told = compare(Sentence::Comparison, &self.metric, &both, &pair.share, &bound);
            let at = match reaching.is_empty() {
                true => format!("nowhere; nearest at {setting}"),
                false => format!("only at {}; farthest at {setting}", reaching.join(", ")),
            };
            (at, Judgement::of(told, false))
        };
        let others = match is_found {
            true => self.others(cells, &self.from(contender, pair.own.value), &both[..1]),
            false => String::new(),
        };
        let mut row = self.row(contender, &pair.own, joined([at, others]));
        if judged.verdict == Verdict::CannotTell && !is_found && judged.marks.is_empty() {
            row.at = setting;
        }
        let is_paired = |cell: &Cell| {
            let own = cell.value(&self.along);
            pairs.iter().any(|pair| Some(pair.own.value) == own) && self.is_told(cells, cell)
        };
        row.at = joined([row.at, self.cover(contender, is_paired)]);
        row.cells.push(pair.base.id.clone());
        row.beside = Some(Number::of(Unit::Share, &pair.share));
        (row.verdict, row.why) = (judged.verdict, judged.why);
        if row.verdict == Verdict::CannotTell
            && gate(Sentence::Comparison, &self.metric, &both).refusal().is_some()
        {
            (row.value, row.beside) = (None, None);
        }
        made.add(row, judged.marks);
    }

    /// Why there is no local value beside any of these.
    fn why_no_local(&self, cells: &Cells, local: &Local<'_, '_>, of: &[Point<'_>]) -> String {
        let is_beside = |cell: &&Cell| {
            let value = cell.value(&self.along);
            of.iter().any(|point| value == Some(point.value))
        };
        let measured: Vec<&Cell> =
            local.cells.iter().copied().filter(|cell| cell.is_measured()).collect();
        let beside: Vec<&Cell> = measured.iter().copied().filter(is_beside).collect();
        match (local.cells.is_empty(), measured.is_empty(), beside.is_empty()) {
            (false, true, _) => format!("local: {}", self.why_missing(cells, local.cells)),
            (_, _, true) => NO_LOCAL.to_owned(),
            (_, _, false) => format!("local: {}", self.why_untold(cells, &beside)),
        }
    }

    /// The cells of a contender from a value of the setting on.
    fn from<'a>(&self, contender: &Contender<'a>, value: &Value) -> Contender<'a> {
        let is_beyond = |cell: &&&Cell| {
            let own = cell.value(&self.along);
            own.is_some_and(|own| value_order(&self.along, own, value).is_ge())
        };
        let cells = contender.cells.iter().filter(is_beyond).copied().collect();
        Contender { cells, ..contender.clone() }
    }

    /// At which values of one setting the first value of another is as good as the second.
    fn seconds<'a>(&self, cells: &Cells, contender: &Contender<'a>, made: &mut ClaimRows) {
        let over = self.over.first().map_or("", String::as_str);
        let mut values: Vec<&Value> =
            contender.cells.iter().filter_map(|cell| cell.value(over)).collect();
        values.sort_by(|one, other| value_order(over, one, other).reverse());
        values.dedup();
        let [first, second, ..] = values[..] else {
            let axis = units::axis(over);
            let why = match values.is_empty() {
                true => format!("it has no {axis}"),
                false => format!("{axis} has one value here"),
            };
            return made.add(Row::without(contender, &why), None);
        };
        let name = |value: &Value| units::setting(over, value);
        made.beside = format!("{} beside {}", name(first), name(second));
        let of = |wanted: &Value| -> Vec<&Cell> {
            let of = contender.cells.iter().filter(|cell| cell.value(over) == Some(wanted));
            of.copied().collect()
        };
        let (ones, others) = (self.curve(cells, &of(first)), self.curve(cells, &of(second)));
        let mut along: Vec<&Value> =
            contender.cells.iter().filter_map(|cell| cell.value(&self.along)).collect();
        along.sort_by(|one, other| value_order(&self.along, one, other));
        along.dedup();
        if along.is_empty() {
            let why = format!("it has no {}", units::axis(&self.along));
            made.add(Row::without(contender, &why), None);
        }
        for value in along {
            let name_there = listed([contender.name.clone(), units::setting(&self.along, value)]);
            let there = |curve: &[Point<'a>]| curve.iter().find(|of| of.value == value).cloned();
            let (one, other) = match (there(&ones), there(&others)) {
                (Some(one), Some(other)) => (one, other),
                (one, _) => {
                    let missing = if one.is_none() { first } else { second };
                    let mut of = of(missing);
                    of.retain(|cell| cell.value(&self.along) == Some(value));
                    let why = format!("{}: {}", name(missing), self.why_untold(cells, &of));
                    let contender = Contender { name: name_there, ..contender.clone() };
                    made.add(Row::without(&contender, &why), None);
                    continue;
                }
            };
            let judged = self.judged(&one.estimate, &other.estimate, &[one.cell, other.cell]);
            let mut row = self.row(contender, &one, String::new());
            row.contender = name_there;
            row.cells.push(other.cell.id.clone());
            if gate(Sentence::Comparison, &self.metric, &[one.cell, other.cell]).refusal().is_none()
            {
                let ratio = Estimate::ratio(&one.estimate, &other.estimate);
                row.beside = Some(Number::of(Unit::Times, &ratio));
            } else {
                row.value = None;
            }
            (row.verdict, row.why) = (judged.verdict, judged.why);
            made.add(row, judged.marks);
        }
    }

    /// A tenant beside a background at its highest load, and from which load on it is worse.
    fn beside_a_neighbour(
        &self,
        cells: &Cells,
        contender: &Contender<'_>,
        curve: &[Point<'_>],
        made: &mut ClaimRows,
    ) {
        let Some(highest) = curve.last() else { return };
        let judge = |point: &Point<'_>| {
            let made_from = self.metric.made_from(cells, point.cell);
            self.judged(&point.estimate, &Estimate::exact(1.0), &made_from)
        };
        let judged = judge(highest);
        let setting = units::setting(&self.along, highest.value);
        let is_worse: Vec<bool> =
            curve.iter().map(|point| judge(point).verdict == Verdict::No).collect();
        let from = is_worse.iter().rposition(|worse| !worse).map_or(0, |last| last + 1);
        let onset = match curve.get(from) {
            _ if judged.verdict != Verdict::No => String::new(),
            Some(_) if from == 0 => ", worse at every load".to_owned(),
            Some(point) => format!(", worse from {} on", units::setting(&self.along, point.value)),
            None => String::new(),
        };
        let by_value = |one: &&Point<'_>, other: &&Point<'_>| {
            one.estimate.mean.total_cmp(&other.estimate.mean)
        };
        let worst = match self.metric.is_rate() {
            true => curve.iter().min_by(by_value),
            false => curve.iter().max_by(by_value),
        };
        let worst =
            worst.filter(|point| point.value != highest.value).map_or_else(String::new, |point| {
                let load = units::setting(&self.along, point.value);
                format!(", worst at {load}: {}", units::show(self.times(), point.estimate.mean))
            });
        let (mut row, _) = self.relative(cells, contender, highest);
        let cover = self.cover(contender, |cell| self.is_told(cells, cell));
        row.at = joined([format!("{setting}{onset}{worst}"), cover]);
        (row.verdict, row.why) = (judged.verdict, judged.why);
        made.add(row, judged.marks);
    }

    /// The largest load of a background up to which a tenant stays near its value alone.
    fn bears(
        &self,
        cells: &Cells,
        contender: &Contender<'_>,
        curve: &[Point<'_>],
        made: &mut ClaimRows,
    ) {
        let bound = Estimate::exact(if self.metric.is_rate() { NEAR } else { BORNE });
        let judge = |point: &Point<'_>| {
            let made_from = self.metric.made_from(cells, point.cell);
            let told =
                compare(Sentence::Comparison, &self.metric, &made_from, &point.estimate, &bound);
            let is_within = self.metric.is_better(point.estimate.mean, bound.mean);
            (is_within && told.refusal().is_none(), told)
        };
        let judged: Vec<_> = curve.iter().map(judge).collect();
        let Some(least) = curve.first() else { return };
        let borne = judged.iter().take_while(|(is_borne, _)| *is_borne).count();
        let load = |point: &Point<'_>| units::setting(&self.along, point.value);
        let (point, mut at, mut verdict) = match borne.checked_sub(1).and_then(|at| curve.get(at)) {
            Some(point) => (point, format!("up to {}", load(point)), Verdict::Yes),
            None => (least, format!("not even {}", load(least)), Verdict::No),
        };
        let mut why = String::new();
        match curve.get(borne).zip(judged.get(borne)) {
            None => match curve.last().and_then(|last| self.beyond(cells, contender, last.value)) {
                Some(beyond) => why = beyond,
                None => at += ", the highest that was measured",
            },
            Some((next, (_, told))) => {
                if let Some(refusal) = told.refusal() {
                    why = format!("{}: {refusal}", load(next));
                    if borne == 0 {
                        (verdict, at) = (Verdict::CannotTell, load(least));
                    }
                }
            }
        }
        let (mut row, gate) = self.relative(cells, contender, point);
        row.why = why;
        row.at = joined([at, self.cover(contender, |cell| self.is_told(cells, cell))]);
        row.verdict = verdict;
        made.add(row, named(gate));
    }

    /// The row of a point that is relative to the tenant alone, and whether it may be told.
    fn relative(&self, cells: &Cells, contender: &Contender<'_>, point: &Point<'_>) -> (Row, Gate) {
        let made_from = self.metric.made_from(cells, point.cell);
        let gate = gate(Sentence::Comparison, &self.metric, &made_from);
        let mut row = Row::without(contender, "");
        if gate.refusal().is_none() {
            let shown = self.shown();
            let value = shown.read(cells, point.cell).estimate();
            row.value = value.map(|value| Number::of(shown.unit, &value));
            row.beside = Some(Number::of(self.times(), &point.estimate));
        }
        row.cells = made_from.iter().map(|cell| cell.id.clone()).collect();
        (row, gate)
    }

    /// The unit of what is relative.
    fn times(&self) -> Unit {
        if self.metric.is_rate() { Unit::Share } else { Unit::Times }
    }

    /// The load up to which latency does not rise.
    fn bend(&self, cells: &Cells, contender: &Contender<'_>, made: &mut ClaimRows) {
        let p99 = Metric::named("p99").unwrap_or_else(|| unreachable!("it is a metric"));
        let curve: Vec<&Cell> =
            contender.cells.iter().copied().filter(|cell| cell.is_measured()).collect();
        let Some(bend) = knee(cells, &curve) else {
            return made.add(Row::without(contender, KNEELESS), None);
        };
        let gate = gate(Sentence::Comparison, &p99, &bend.made_from());
        let read = |metric: &Metric| metric.read(cells, bend.cell).estimate();
        let (None, Some(rate), Some(latency)) = (gate.refusal(), read(&self.metric), read(&p99))
        else {
            let why = gate.refusal().unwrap_or_else(|| "the knee has no p99".to_owned());
            return made.add(Row::without(contender, &why), None);
        };
        let capacity = capacity(cells, bend.cell, &self.metric);
        let load = bend.cell.number(key::LOAD_PERCENT).unwrap_or_default();
        let of = if capacity.is_some() { "the capacity" } else { MOST_REACHED };
        let last = match (bend.is_last, bend.is_first) {
            (true, _) => ", the highest load with a p99",
            (false, true) => ", the lowest load with a p99: the knee may be lower",
            (false, false) => "",
        };
        let at = format!(
            "{load:.0} % of {of}{last}; p99 is {} there",
            Number::of(p99.unit, &latency).told()
        );
        let point = Point { value: &Value::Integer(0), cell: bend.cell, estimate: rate };
        let has_p99 =
            |cell: &Cell| cell.is_measured() && p99.read(cells, cell).estimate().is_some();
        let at = joined([at, self.cover(contender, has_p99)]);
        let mut row = self.row(contender, &point, at);
        row.beside = capacity.map(|of| Number::of(Unit::Share, &Estimate::ratio(&rate, &of)));
        let doubt = bend.doubt();
        row.verdict = match contender.is_local {
            true => Verdict::Reference,
            false if latency.interval().is_none() || bend.is_first || !doubt.is_empty() => {
                Verdict::CannotTell
            }
            false => Verdict::Yes,
        };
        row.why = match doubt.trim_start_matches("; ") {
            "" if row.verdict == Verdict::CannotTell => latency.why_no_interval().to_owned(),
            doubt => doubt.to_owned(),
        };
        made.add(row, named(gate));
    }
}

/// The IOPS at depth 128 beside an open loop; none if its marks forbid to call that a capacity.
fn capacity(cells: &Cells, of: &Cell, iops: &Metric) -> Option<Estimate> {
    let same = |full: &&Cell| full.text(key::TRANSPORT) == of.text(key::TRANSPORT);
    let full = cells.measured(Role::Saturation).find(same)?;
    let gate = gate(Sentence::Capacity, iops, &[full]);
    iops.read(cells, full).estimate().filter(|_| gate.refusal().is_none())
}

fn named(gate: Gate) -> Vec<crate::results::Mark> {
    match gate {
        Gate::Allowed { named } => named,
        Gate::Forbidden { .. } | Gate::NotDistinguishable { .. } => Vec::new(),
    }
}
