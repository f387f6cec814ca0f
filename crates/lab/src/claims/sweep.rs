//! Claims along a setting: from which value on something holds.

use super::ask::{Ask, Beside};
use super::make::{CLOSE, Contender, Found, Judged, Made, joined};
use super::{Number, Row, Verdict};
use crate::cells::gate::{Gate, Sentence, compare, gate};
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
    pub(super) fn along<'a>(&self, cells: &'a Cells, contenders: &[Contender<'a>]) -> Made {
        let local = contenders.iter().find(|contender| contender.is_local);
        let local = local.map(|local| self.curve(cells, &local.cells)).unwrap_or_default();
        let what = match self.beside {
            Beside::Alone => "of its value alone",
            Beside::Borne if self.metric.is_rate() => "of its value alone, at least 90 %",
            Beside::Borne => "of its value alone, at most 2 ×",
            Beside::Second => "of the second",
            Beside::Capacity => "of the capacity",
            _ => "of local there",
        };
        let mut made = Made { beside: what.to_owned(), ..Made::default() };
        for contender in contenders {
            match self.beside {
                Beside::Second => self.seconds(cells, contender, &mut made),
                Beside::Alone => self.beside_a_neighbour(cells, contender, &mut made),
                Beside::Borne => self.bears(cells, contender, &mut made),
                Beside::Capacity => self.bend(cells, contender, &mut made),
                _ if contender.is_local && self.beside == Beside::Parity => {}
                Beside::Parity => self.parity(contender, &local, cells, &mut made),
                _ => self.reach(contender, &local, cells, &mut made),
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
        let words = [at, self.place(point.cell)];
        let words = words.into_iter().filter(|text| !text.is_empty());
        let at = words.collect::<Vec<String>>().join(", ");
        Row::of(contender, self.metric.unit, &Found::of_cell(estimate, at, cells))
    }

    /// From which value on a rate is near its highest, and how much of local that is.
    fn reach(
        &self,
        contender: &Contender<'_>,
        local: &[Point<'_>],
        cells: &Cells,
        made: &mut Made,
    ) {
        let curve = self.curve(cells, &contender.cells);
        let better = |best: &Point<'_>, other: &Point<'_>| {
            self.metric.is_better(other.estimate.mean, best.estimate.mean)
        };
        let highest =
            curve.iter().reduce(|best, other| if better(best, other) { other } else { best });
        let Some(highest) = highest else {
            return made
                .add(Row::without(contender, &self.why_missing(cells, &contender.cells)), None);
        };
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
        let (at, verdict, why) = self.reached(contender, &curve, found, highest);
        let mut row = self.row(contender, found, at);
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
        contender: &Contender<'_>,
        curve: &[Point<'_>],
        found: &Point<'_>,
        highest: &Point<'_>,
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
                let others = contender.cells.iter().filter(|cell| cell.is_measured());
                let others = others.filter(|cell| cell.value(&self.along) != Some(found.value));
                let why =
                    others.map(|cell| gate(Sentence::Capacity, &self.metric, &[cell]).refusal());
                let why = match why.flatten().next() {
                    Some(why) => format!("other values of {}: {why}", units::axis(&self.along)),
                    None => {
                        format!("other values of {} were not measured", units::axis(&self.along))
                    }
                };
                return (setting, Verdict::CannotTell, why);
            }
            [before @ .., last] if is_last(last, before) => {
                let at = format!("still grows at {setting}, the last that was measured");
                (at, Verdict::No, "")
            }
            _ if found.estimate.interval().is_none() => {
                (setting, Verdict::CannotTell, found.estimate.why_no_interval())
            }
            _ if found.value == highest.value => {
                (format!("highest at {setting}"), Verdict::Yes, "")
            }
            _ => (format!("near its highest from {setting} on"), Verdict::Yes, ""),
        };
        (at, verdict, why.to_owned())
    }

    /// From which value on a rate reaches the local one.
    fn parity(
        &self,
        contender: &Contender<'_>,
        local: &[Point<'_>],
        cells: &Cells,
        made: &mut Made,
    ) {
        let pairs: Vec<Pair<'_>> = self
            .curve(cells, &contender.cells)
            .into_iter()
            .filter_map(|own| {
                let base = local.iter().find(|of| of.value == own.value)?.cell;
                Some(Pair { share: self.metric.quotient(cells, own.cell, base)?, own, base })
            })
            .collect();
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
            let why = match contender.cells.iter().any(|cell| cell.is_measured()) {
                true => "local was not measured beside it".to_owned(),
                false => self.why_missing(cells, &contender.cells),
            };
            return made.add(Row::without(contender, &why), None);
        };
        let (is_found, setting, both) =
            (from < pairs.len(), setting(pair), [pair.own.cell, pair.base]);
        let (at, judged) = if is_found {
            // That they are apart from the bound is known; what holds from there on is said of all.
            let on = pairs.iter().skip(from).flat_map(|pair| [pair.own.cell, pair.base]);
            let told = gate(Sentence::Comparison, &self.metric, &on.collect::<Vec<&Cell>>());
            (format!("from {setting} on"), Judged::of(told, true))
        } else {
            let bound = Estimate::exact(1.0 - CLOSE);
            let told = compare(Sentence::Comparison, &self.metric, &both, &pair.share, &bound);
            let at = match reaching.is_empty() {
                true => format!("nowhere; nearest at {setting}"),
                false => format!("only at {}; farthest at {setting}", reaching.join(", ")),
            };
            (at, Judged::of(told, false))
        };
        let others = match is_found {
            true => self.others(cells, &self.from(contender, pair.own.value), &both[..1]),
            false => String::new(),
        };
        let mut row = self.row(contender, &pair.own, joined([at, others]));
        if judged.verdict == Verdict::CannotTell && !is_found && judged.marks.is_empty() {
            row.at = setting;
        }
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
    fn seconds(&self, cells: &Cells, contender: &Contender<'_>, made: &mut Made) {
        let over = self.over.first().map_or("", String::as_str);
        let mut values: Vec<&Value> =
            contender.cells.iter().filter_map(|cell| cell.value(over)).collect();
        values.sort_by(|one, other| value_order(over, one, other).reverse());
        values.dedup();
        let [first, second, ..] = values[..] else {
            return made.add(
                Row::without(contender, &format!("{} has one value here", units::axis(over))),
                None,
            );
        };
        let name = |value: &Value| units::setting(over, value);
        made.beside = format!("{} beside {}", name(first), name(second));
        let of = |wanted: &Value| {
            let cells_of = contender.cells.iter().filter(|cell| cell.value(over) == Some(wanted));
            self.curve(cells, &cells_of.copied().collect::<Vec<&Cell>>())
        };
        let (ones, others) = (of(first), of(second));
        for one in &ones {
            let setting = units::setting(&self.along, one.value);
            let Some(other) = others.iter().find(|other| other.value == one.value) else {
                continue;
            };
            let judged = self.judged(&one.estimate, &other.estimate, &[one.cell, other.cell]);
            let mut row = self.row(contender, one, String::new());
            row.contender = format!("{}, {setting}", contender.name);
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
        if ones.is_empty() {
            made.add(Row::without(contender, &self.why_missing(cells, &contender.cells)), None);
        }
    }

    /// A tenant beside a background at its highest load, and from which load on it is worse.
    fn beside_a_neighbour(&self, cells: &Cells, contender: &Contender<'_>, made: &mut Made) {
        let curve = self.curve(cells, &contender.cells);
        let Some(highest) = curve.last() else {
            return made
                .add(Row::without(contender, &self.why_missing(cells, &contender.cells)), None);
        };
        let shown = self.shown();
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
                let unit = if self.metric.is_rate() { Unit::Share } else { Unit::Times };
                let load = units::setting(&self.along, point.value);
                format!(", worst at {load}: {}", units::show(unit, point.estimate.mean))
            });
        let value = shown.read(cells, highest.cell).estimate();
        let is_told =
            gate(Sentence::Comparison, &self.metric, &self.metric.made_from(cells, highest.cell));
        let mut row = Row::without(contender, &judged.why);
        if is_told.refusal().is_none() {
            row.value = value.map(|value| Number::of(shown.unit, &value));
            let unit = if self.metric.is_rate() { Unit::Share } else { Unit::Times };
            row.beside = Some(Number::of(unit, &highest.estimate));
        }
        row.cells =
            self.metric.made_from(cells, highest.cell).iter().map(|cell| cell.id.clone()).collect();
        row.at = format!("{setting}{onset}{worst}");
        row.verdict = judged.verdict;
        made.add(row, judged.marks);
    }

    /// The largest load of a background up to which a tenant stays near its value alone.
    fn bears(&self, cells: &Cells, contender: &Contender<'_>, made: &mut Made) {
        let curve = self.curve(cells, &contender.cells);
        let bound = Estimate::exact(if self.metric.is_rate() { NEAR } else { BORNE });
        let judge = |point: &Point<'_>| {
            let made_from = self.metric.made_from(cells, point.cell);
            let told =
                compare(Sentence::Comparison, &self.metric, &made_from, &point.estimate, &bound);
            let is_within = self.metric.is_better(point.estimate.mean, bound.mean);
            (is_within && told.refusal().is_none(), told)
        };
        let judged: Vec<_> = curve.iter().map(judge).collect();
        let Some(least) = curve.first() else {
            return made
                .add(Row::without(contender, &self.why_missing(cells, &contender.cells)), None);
        };
        let borne = judged.iter().take_while(|(is_borne, _)| *is_borne).count();
        let load = |point: &Point<'_>| units::setting(&self.along, point.value);
        let (point, mut at, mut verdict) = match borne.checked_sub(1).and_then(|at| curve.get(at)) {
            Some(point) => (point, format!("up to {}", load(point)), Verdict::Yes),
            None => (least, format!("not even {}", load(least)), Verdict::No),
        };
        let mut why = String::new();
        match curve.get(borne).zip(judged.get(borne)) {
            None => at += ", the highest that was measured",
            Some((next, (_, told))) => {
                if let Some(refusal) = told.refusal() {
                    why = format!("{}: {refusal}", load(next));
                    if borne == 0 {
                        (verdict, at) = (Verdict::CannotTell, load(least));
                    }
                }
            }
        }
        let made_from = self.metric.made_from(cells, point.cell);
        let gate = gate(Sentence::Comparison, &self.metric, &made_from);
        let mut row = Row::without(contender, &why);
        if gate.refusal().is_none() {
            let shown = self.shown();
            let value = shown.read(cells, point.cell).estimate();
            row.value = value.map(|value| Number::of(shown.unit, &value));
            let unit = if self.metric.is_rate() { Unit::Share } else { Unit::Times };
            row.beside = Some(Number::of(unit, &point.estimate));
        }
        row.cells = made_from.iter().map(|cell| cell.id.clone()).collect();
        (row.at, row.verdict) = (at, verdict);
        made.add(row, named(gate));
    }

    /// The load up to which latency does not rise.
    fn bend(&self, cells: &Cells, contender: &Contender<'_>, made: &mut Made) {
        let p99 = Metric::named("p99").unwrap_or_else(|| unreachable!("it is a metric"));
        let curve: Vec<&Cell> =
            contender.cells.iter().copied().filter(|cell| cell.is_measured()).collect();
        let Some(bend) = knee(cells, &curve) else {
            let why = match curve.is_empty() {
                true => self.why_missing(cells, &contender.cells),
                false => KNEELESS.to_owned(),
            };
            return made.add(Row::without(contender, &why), None);
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
            (true, _) => ", the highest load that was measured",
            (false, true) => ", the lowest load that was measured: the knee may be lower",
            (false, false) => "",
        };
        let at = format!(
            "{load:.0} % of {of}{last}; p99 is {} there",
            Number::of(p99.unit, &latency).told()
        );
        let point = Point { value: &Value::Integer(0), cell: bend.cell, estimate: rate };
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
