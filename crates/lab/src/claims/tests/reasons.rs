//! A reason that a claim gives is true of its cells, whatever is missing or marked.

use super::*;
use crate::cells::gate::{gate, is_asked};
use crate::cells::{Cell, Reading};
use crate::claims::ask::Beside;
use crate::claims::make::{Contender, NO_LOCAL};

/// What a reason is held against.
struct Case<'a> {
    ask: &'a Ask,
    cells: &'a Cells,
    /// Those of the row; of a claim that compares rows, of the others as well.
    own: &'a [&'a Cell],
    all: &'a [Contender<'a>],
    row: &'a Row,
}

impl<'a> Case<'a> {
    fn measured(&self) -> impl Iterator<Item = &'a Cell> {
        self.own.iter().copied().filter(|cell| cell.is_measured())
    }

    fn reading(&self, cell: &Cell) -> Reading {
        self.ask.metric.read(self.cells, cell)
    }

    fn of_local(&self) -> Self {
        let local = self.all.iter().find(|of| of.is_local);
        Case { own: local.map_or(&[], |local| &local.cells), ..*self }
    }

    /// Cells with a value of the setting along which something holds, of a text that begins with
    /// that.
    fn at<'t>(&self, text: &'t str) -> Option<(Vec<&'a Cell>, &'t str)> {
        let (place, rest) = text.split_once(": ")?;
        let words = |cell: &Cell| {
            let along = cell.value(&self.ask.along);
            along.is_some_and(|value| units::setting(&self.ask.along, value) == place)
                || self.ask.over.iter().any(|key| {
                    cell.value(key).is_some_and(|value| units::setting(key, value) == place)
                })
        };
        let of: Vec<&Cell> = self.own.iter().copied().filter(|cell| words(cell)).collect();
        (!of.is_empty()).then_some((of, rest))
    }

    /// Whether a reason is true; none if it is of no known form.
    fn holds(&self, why: &str) -> Option<bool> {
        if let Some(of) = self.of_a_part(why) {
            return Some(of);
        }
        let label = &self.ask.metric.label;
        let axis = |key: &str| units::axis(key);
        if let Some(reason) = why.strip_prefix("not measured: ") {
            let mut reasons = self.own.iter().flat_map(|cell| &cell.missing);
            let is_given = reasons
                .any(|status| status.reason().is_some_and(|of| of.trim_end_matches('.') == reason));
            let is_none = self.own.iter().all(|cell| cell.missing.is_empty());
            return Some(
                self.measured().next().is_none() && (is_given || is_none && reason == "no result"),
            );
        }
        if let Some(rest) = why.strip_prefix(&format!("too few requests for its {label} (")) {
            let is_it = |cell: &Cell| {
                self.reading(cell) == Reading::Unresolved
                    && format!("{})", cell.latency().count()) == rest
            };
            return Some(self.measured().any(is_it));
        }
        if why == format!("its {label} is not known") {
            let is_unknown = |cell: &Cell| {
                let bases = self.ask.metric.made_from(self.cells, cell);
                self.reading(cell) == Reading::Unknown
                    && (bases.len() > 1 || !is_relative(&self.ask.metric.name))
            };
            return Some(self.measured().any(is_unknown));
        }
        if why == "it was not measured alone" {
            return Some(self.measured().any(|cell| self.cells.alone(cell).is_none()));
        }
        if why == NO_LOCAL {
            let has_local = |cell: &Cell| {
                let local = self.cells.local(cell);
                local.is_some_and(|local| local.is_measured() && !std::ptr::eq(local, cell))
            };
            return Some(self.measured().any(|cell| !has_local(cell)));
        }
        if why == "local was not measured at depth 1 beside it" {
            return Some(self.measured().any(|cell| self.cells.local_at_depth_1(cell).is_none()));
        }
        if let Some(of) = why.strip_prefix("it has no ") {
            let keys = self.ask.over.iter().chain([&self.ask.along]);
            let key = keys.into_iter().find(|key| axis(key) == of)?;
            return Some(self.own.iter().any(|cell| cell.value(key).is_none()));
        }
        if let Some(of) = why.strip_suffix(" has one value here") {
            let key = self.ask.over.iter().find(|key| axis(key) == of)?;
            return Some(distinct(self.own.iter().copied(), key) == 1);
        }
        if why == format!("other values of {} were not measured", axis(&self.ask.along)) {
            return Some(distinct(self.measured(), &self.ask.along) == 1);
        }
        self.of_a_comparison(why)
    }

    /// A reason about a part of the cells: local, other values, one value.
    fn of_a_part(&self, why: &str) -> Option<bool> {
        for prefix in ["local: ", "beside local: "] {
            if let Some(rest) = why.strip_prefix(prefix) {
                return self.of_local().holds(rest).or_else(|| self.holds(rest));
            }
        }
        let prefix = format!("other values of {}: ", units::axis(&self.ask.along));
        if let Some(rest) = why.strip_prefix(&prefix) {
            return self.holds(rest);
        }
        if let Some((place, rest)) = why.split_once(" may be better: ") {
            if let Some(rival) = self.all.iter().find(|of| !of.is_local && of.name == place) {
                return Case { own: &rival.cells, ..*self }.holds(rest);
            }
            let is_there = self.own.iter().any(|cell| cell.is_measured());
            return Some(is_there && !place.is_empty() && self.holds(rest)?);
        }
        if let Some(rest) = why.split_once(" % beside that: ").map(|(_, rest)| rest) {
            return self.holds(rest);
        }
        let (of, rest) = self.at(why)?;
        // A contender of each value of `over` has those at one value of `along`.
        let along = self.row.contender.rsplit(", ").next().unwrap_or_default();
        let is_there = |cell: &&Cell| {
            let value = cell.value(&self.ask.along);
            value.is_some_and(|value| units::setting(&self.ask.along, value) == along)
        };
        let there: Vec<&Cell> = of.iter().copied().filter(is_there).collect();
        let of = if there.is_empty() { of } else { there };
        Case { own: &of, ..*self }.holds(rest)
    }

    /// A reason about what is compared, and about marks.
    fn of_a_comparison(&self, why: &str) -> Option<bool> {
        let others = || {
            let others = self.all.iter().filter(|of| !of.is_local);
            others.filter(|of| of.name != self.row.contender)
        };
        let has = |of: &Contender<'_>| of.cells.iter().any(|cell| cell.is_measured());
        if why == "none of the others was measured beside it" {
            return Some(others().next().is_some() && !others().any(has));
        }
        if why == "none of the others has a value to compare it with" {
            return Some(others().any(has));
        }
        if why == "there is no point at which all of them have a value" {
            return Some(self.all.iter().filter(|of| has(of)).count() > 1);
        }
        if why.starts_with("fewer than three loads have a p99") {
            let served = |cell: &&Cell| {
                cell.latency().percentile_ns(99.0).is_some()
                    && cell.repeats.iter().all(|repeat| {
                        let offered = repeat.values.get(crate::results::number::OFFERED_IOPS);
                        offered.is_some_and(|offered| repeat.iops >= 0.97 * offered)
                    })
            };
            let with = self.measured().filter(|cell| cell.latency().percentile_ns(99.0).is_some());
            let served: Vec<&Cell> = self.measured().filter(served).collect();
            return Some(with.count() < 3 || served.is_empty());
        }
        if let Some(rest) = why.strip_prefix("not distinguishable here: ") {
            return self.is_indistinct(rest);
        }
        if why == "at least 3 repeats would be needed" {
            return Some(self.row.value.as_ref().is_none_or(|value| value.repeats < 3));
        }
        if why.starts_with("it is a percentile of all repeats together") {
            return Some(self.everyone().any(|cell| {
                cell.repeats.iter().any(|repeat| repeat.latency.percentile_ns(99.0).is_none())
            }));
        }
        if let Some(name) = why.strip_suffix(" has no result") {
            let is_it = |cell: &&Cell| {
                cell.label == name
                    || self.ask.place(cell) == name
                    || name.contains(&self.ask.place(cell))
            };
            return Some(self.everyone().filter(is_it).any(|cell| !cell.is_measured()));
        }
        if why.starts_with("the rate that was asked for was served") {
            return Some(self.everyone().any(|cell| is_asked(&self.ask.metric, cell)));
        }
        if why == "no result" {
            return Some(self.everyone().any(|cell| !cell.is_measured()));
        }
        let mark = Mark::ALL.into_iter().find(|mark| why.starts_with(mark.explained()))?;
        let label = why.strip_prefix(mark.explained())?.trim_start_matches(" (");
        let is_marked = |cell: &Cell| {
            (cell.marks.contains(&mark) || mark == Mark::Disturbed && cell.is_spoilt())
                && (label.is_empty() || label == format!("{})", cell.label))
        };
        Some(self.everyone().any(is_marked))
    }

    /// All cells that a comparison may be made of.
    fn everyone(&self) -> impl Iterator<Item = &'a Cell> {
        self.cells.cells.iter()
    }

    fn is_indistinct(&self, rest: &str) -> Option<bool> {
        let counts = || self.everyone().filter(|cell| cell.is_measured());
        if rest.starts_with("one repeat shows no spread") {
            return Some(counts().any(|cell| cell.repeats.len() == 1));
        }
        if rest.starts_with("other programs may have made the difference") {
            let is_lost = |cell: &Cell| cell.marks.contains(&Mark::Disturbed) || cell.is_spoilt();
            return Some(counts().any(is_lost));
        }
        rest.ends_with(" repeats would be needed").then_some(true)
    }
}

/// What a verdict needs, whatever is missing or marked.
impl Case<'_> {
    fn holds_what_it_decides(&self, claim: &Claim, context: &str) {
        let row = self.row;
        let is_peak = self.ask.metric.is_rate() && !self.ask.is_typical;
        let best = format!("the best is {} with", row.contender);
        if claim.consequence.contains(&best) {
            let own: Vec<&Cell> =
                self.own.iter().copied().filter(|cell| row.cells.contains(&cell.id)).collect();
            let told = gate(Sentence::Comparison, &self.ask.metric, &own);
            assert_eq!(told.refusal(), None, "its cells forbid it: {context}");
        }
        if !matches!(row.verdict, Verdict::Yes | Verdict::No) {
            return;
        }
        assert!(row.value.as_ref().is_none_or(has_an_interval), "no interval: {context}");
        let own = self.measured().filter(|cell| row.cells.contains(&cell.id));
        let own: Vec<&Cell> = own.collect();
        let peaks = [Beside::Best, Beside::Local, Beside::Highest];
        if is_peak && peaks.contains(&self.ask.beside) {
            let mut own = own.iter();
            assert!(!own.any(|cell| is_asked(&self.ask.metric, cell)), "asked for: {context}");
        }
        self.holds_beside_others(claim, &own, context);
        self.says_of_which_points(context);
    }

    fn holds_beside_others(&self, claim: &Claim, own: &[&Cell], context: &str) {
        let is_peak = self.ask.metric.is_rate() && !self.ask.is_typical;
        let is_failed = |cell: &&Cell| {
            let mut missing = cell.missing.iter();
            !cell.is_measured() && missing.any(|of| !matches!(of, Status::Skipped { .. }))
        };
        match self.ask.beside {
            // Beside one of which nothing is known none is the best, or near it.
            Beside::Best if self.row.verdict == Verdict::Yes => {
                let is_open = |of: &&Contender<'_>| {
                    let may_run = |cell: &Cell| cell.is_measured() || is_failed(&cell);
                    !of.is_local && of.cells.iter().any(|cell| may_run(cell))
                };
                for rival in self.all.iter().filter(is_open) {
                    let row = claim.rows.iter().find(|row| row.contender == rival.name);
                    let value = row.and_then(|row| row.value.as_ref());
                    assert!(value.is_some_and(has_an_interval), "{}: {context}", rival.name);
                }
            }
            // Where local was and it was not, it may reach more.
            Beside::Local if is_peak && self.row.verdict == Verdict::No => {
                let is_short = |cell: &&Cell| {
                    let local = self.cells.local(cell);
                    is_failed(cell)
                        || !cell.is_measured() && local.is_some_and(|local| local.is_measured())
                        || cell.is_measured() && cell.is_spoilt()
                };
                assert!(!self.own.iter().any(is_short), "{context}");
            }
            // Where a curve is highest at one value, no other may be as high.
            Beside::Highest if self.row.at.starts_with("highest at") => {
                let top = self.reading(own[0]).estimate().expect("a value");
                let mut best: Vec<(&Value, Estimate)> = Vec::new();
                for cell in self.measured().filter(|cell| self.ask.is_told(self.cells, cell)) {
                    let Some(value) = cell.value(&self.ask.along) else { continue };
                    let estimate = self.reading(cell).estimate().expect("a value");
                    match best.iter_mut().find(|(known, _)| *known == value) {
                        Some((_, most)) if estimate.mean > most.mean => *most = estimate,
                        Some(_) => {}
                        None => best.push((value, estimate)),
                    }
                }
                best.retain(|(value, _)| own[0].value(&self.ask.along) != Some(*value));
                for (value, of) in best {
                    assert!(of.is_apart_from(&top), "{value}: {context}");
                }
            }
            _ => {}
        }
    }

    /// What is said of a part of the points says so.
    fn says_of_which_points(&self, context: &str) {
        let at = &self.row.at;
        let is_peak = self.ask.metric.is_rate() && !self.ask.is_typical;
        let is_sought = match self.ask.beside {
            Beside::Best | Beside::Local => is_peak,
            Beside::Second | Beside::Capacity => false,
            Beside::Highest | Beside::Parity | Beside::Alone | Beside::Borne => true,
        };
        let has = |place: &str| self.measured().any(|cell| place_of(self.ask, cell) == place);
        let absent = self.own.iter().map(|cell| place_of(self.ask, cell));
        let absent: Vec<String> = absent.filter(|place| !has(place)).collect();
        if is_sought && let Some(first) = absent.first() {
            let is_said = at.contains(" points, without ") && at.contains(first.as_str());
            assert!(is_said || at.contains(" and others"), "without {first}: {context}");
        }
    }
}

fn has_an_interval(number: &Number) -> bool {
    number.interval.as_ref().is_some_and(|interval| interval.kind != BOTH)
}

fn place_of(ask: &Ask, cell: &Cell) -> String {
    let along = cell.value(&ask.along).map(|value| units::setting(&ask.along, value));
    let place = [along.unwrap_or_default(), ask.place(cell)];
    crate::claims::make::listed(place)
}

fn is_relative(name: &str) -> bool {
    let names =
        ["delta", "share-of-local", "concurrency", "latency-interference", "throughput-sustained"];
    names.contains(&name)
}

fn distinct<'a>(cells: impl Iterator<Item = &'a Cell>, key: &str) -> usize {
    let mut values: Vec<&Value> = Vec::new();
    for value in cells.filter_map(|cell| cell.value(key)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.len()
}

/// What a row says of its place, where it names an end of what was measured.
fn is_an_end(case: &Case<'_>) -> bool {
    let value = |cell: &Cell| cell.number(&case.ask.along);
    let told = case.row.at.split([';', ',']).next().unwrap_or_default();
    let named = |cell: &&Cell| {
        let along = cell.value(&case.ask.along);
        along.is_some_and(|along| told.ends_with(&units::setting(&case.ask.along, along)))
    };
    // One setting may end with another: 32 cores with 2 cores.
    let at = case.measured().filter(named).filter_map(value).reduce(f64::max);
    let most = case.measured().filter_map(value).fold(f64::NEG_INFINITY, f64::max);
    at.is_none_or(|at| at >= most)
}

/// The reasons of every claim about these cells are true of them; how many there were.
fn check(plan: &Plan, cells: &Cells, what: &str) -> usize {
    let asks = ask::of_answer(plan, cells).into_iter().flatten();
    let mut told = 0;
    for ask in asks.chain(findings(plan, cells)).chain(criteria(cells)) {
        let claim = ask.claim(cells);
        let ask = Ask { points: ask.points_of(cells), ..ask };
        let all = ask.contenders(cells);
        let context = |row: &Row| format!("{}, {what}: {}: {row:?}", plan.name, claim.question);
        for row in &claim.rows {
            let is_its = |of: &&Contender<'_>| {
                row.contender == of.name || row.contender.starts_with(&format!("{}, ", of.name))
            };
            let mut of = all.iter().filter(is_its);
            let longest = of.by_ref().max_by_key(|of| of.name.len());
            let own = &longest.expect("its contender").cells;
            let case = Case { ask: &ask, cells, own, all: &all, row };
            for end in [", the last that was measured", ", the highest that was"] {
                assert!(!row.at.contains(end) || is_an_end(&case), "{}", context(row));
            }
            case.holds_what_it_decides(&claim, &context(row));
            if row.why.is_empty() {
                continue;
            }
            told += 1;
            // None: it has a form that is not known here.
            assert_eq!(case.holds(&row.why), Some(true), "{}", context(row));
        }
        let is_measured = |of: &Contender<'_>| of.cells.iter().any(|cell| cell.is_measured());
        if claim.consequence.contains("nothing was measured beside local") {
            assert!(all.iter().any(|of| of.is_local && is_measured(of)), "{claim:?}");
            assert!(!all.iter().any(|of| !of.is_local && is_measured(of)), "{claim:?}");
        }
        if claim.consequence.contains("no answer: no cell") {
            assert!(!all.iter().any(is_measured), "{}, {what}: {claim:?}", plan.name);
        }
    }
    told
}

/// What is done to a cell; none is left where it says so.
type Damage = fn(&mut Cell) -> bool;

fn loses(cell: &mut Cell, status: Status) -> bool {
    cell.repeats.clear();
    cell.missing.push(status);
    true
}

fn fails(cell: &mut Cell) -> bool {
    loses(cell, Status::Failed { reason: "the target is gone".to_owned() })
}

fn is_skipped(cell: &mut Cell) -> bool {
    loses(cell, Status::Skipped { reason: "one processor is too few".to_owned() })
}

fn has_few_requests(cell: &mut Cell) -> bool {
    for repeat in &mut cell.repeats {
        repeat.latency = weft_load::Latency::new();
        repeat.latency.record_times(30_000, 50);
        (repeat.requests, repeat.iops) = (50, 50.0);
    }
    true
}

fn has_no_cpu(cell: &mut Cell) -> bool {
    cell.repeats.iter_mut().for_each(|repeat| (repeat.host, repeat.target) = (None, None));
    true
}

fn has_one_repeat(cell: &mut Cell) -> bool {
    cell.repeats.truncate(1);
    true
}

fn is_spoilt(cell: &mut Cell) -> bool {
    cell.marks.push(Mark::Disturbed);
    cell.repeats.iter_mut().for_each(|repeat| repeat.lost.time = 1.0);
    true
}

fn has_a_wide_spread(cell: &mut Cell) -> bool {
    for (repeat, share) in cell.repeats.iter_mut().zip([0.8, 1.0, 1.2]) {
        repeat.iops *= share;
        repeat.bytes_per_second *= share;
    }
    true
}

/// An open loop below saturation.
fn has_what_was_asked(cell: &mut Cell) -> bool {
    cell.marks.push(Mark::OpenLoop);
    for repeat in &mut cell.repeats {
        repeat.values.insert(crate::results::number::OFFERED_IOPS.to_owned(), repeat.iops);
    }
    true
}

fn is_gone(_: &mut Cell) -> bool {
    false
}

/// Ways in which results are not what the plan wanted. The first three are of each place, and the
/// others of all cells and of every second one.
const DAMAGES: [(&str, Damage); 9] = [
    ("failed", fails),
    ("few requests", has_few_requests),
    ("gone", is_gone),
    ("skipped", is_skipped),
    ("no CPU", has_no_cpu),
    ("one repeat", has_one_repeat),
    ("spoilt", is_spoilt),
    ("a wide spread", has_a_wide_spread),
    ("an open loop", has_what_was_asked),
];
type Place = fn(usize, &Cell) -> bool;
const PLACES: [(&str, Place); 6] = [
    ("all", |_, _| true),
    ("every second", |at, _| at % 2 == 0),
    ("local", |_, cell| cell.text(key::TRANSPORT) == "local"),
    ("remote", |_, cell| cell.text(key::TRANSPORT) != "local"),
    ("alone", |_, cell| cell.role == Role::Alone),
    ("depth 1", |_, cell| cell.value(key::DEPTH) == Some(&1u64.into())),
];

#[test]
fn a_reason_is_true_of_the_cells() {
    let (mut told, mut turn) = (0, 0);
    all(|plan, records| {
        let whole = Cells::of(&repeated(records), &Environment::default());
        told += check(plan, &whole, "whole");
        turn += 1;
        for (number, (what, damage)) in DAMAGES.into_iter().enumerate() {
            let places = if number < 3 { 6 } else { 2 };
            // A third for each study, since some have hundreds of cells.
            let its = PLACES[..places].iter().enumerate();
            let its = its.filter(|(place, _)| (place + number + turn) % 3 == 0);
            for (_, (place, is_there)) in its {
                let mut cells = whole.clone();
                let mut at = 0;
                cells.cells.retain_mut(|cell| {
                    at += 1;
                    !is_there(at - 1, cell) || damage(cell)
                });
                told += check(plan, &cells, &format!("{place}: {what}"));
            }
        }
        // Every mark: first each cell with another one, then some on half of the cells.
        for start in [turn, turn + 7] {
            let mut cells = whole.clone();
            let marks = Mark::ALL.into_iter().cycle().skip(start);
            cells.cells.iter_mut().zip(marks).for_each(|(cell, mark)| cell.marks.push(mark));
            told += check(plan, &cells, &format!("marks in turn from {start}"));
        }
        for mark in Mark::ALL.into_iter().skip(turn % 3).step_by(3) {
            let mut cells = whole.clone();
            cells.cells.iter_mut().step_by(2).for_each(|cell| cell.marks.push(mark));
            told += check(plan, &cells, &format!("every second {mark:?}"));
        }
    });
    assert!(told > 1_000, "{told} reasons were given");
}

/// The settings of which a reader chooses a value: each has its row, with a line or without.
#[test]
fn a_contender_without_a_line_has_a_row_and_the_reason() {
    let mut held = 0;
    all(|plan, records| {
        let cells = records.iter().map(|record| record.cell.clone()).collect();
        let environment = Environment { cells, ..Environment::default() };
        let claims_of = |records: &[Record]| {
            claims_of_cells(plan, &Cells::of(&repeated(records), &environment))
        };
        let whole = claims_of(records);
        let keys = [key::TRANSPORT, key::HOST_SOFTWARE, key::TARGET_SOFTWARE, key::DEVICE];
        let keys = keys.into_iter().chain([key::HOST_POLLING, key::PLACEMENT, key::TLS]);
        for (key, absent) in keys.flat_map(|key| {
            let values = plan.axes.get(key).into_iter().flatten();
            values.map(move |value| (key, value))
        }) {
            let mut left = records.to_vec();
            left.retain(|record| record.configuration.get(key) != Some(absent));
            let claims = claims_of(&left);
            for before in &whole {
                let is_same = |claim: &&Claim| {
                    (&claim.question, &claim.metric) == (&before.question, &before.metric)
                };
                // Without a local cell there is no question that is about that.
                if !claims.iter().any(|claim| is_same(&claim)) {
                    continue;
                }
                for row in &before.rows {
                    let rows = claims.iter().filter(is_same).flat_map(|claim| &claim.rows);
                    let found = rows.clone().find(|of| of.contender == row.contender);
                    let names: Vec<&str> = rows.map(|of| of.contender.as_str()).collect();
                    let context = || format!("{} without {absent}: {row:?}, {names:?}", plan.name);
                    let Some(found) = found else { panic!("{}", context()) };
                    let of = |id: &String| left.iter().any(|record| record.cell == *id);
                    if !row.cells.is_empty() && !row.cells.iter().any(of) {
                        held += 1;
                        assert!(found.value.is_none(), "{}", context());
                        let is_said = found.why.contains("no line here");
                        assert!(is_said || found.verdict != Verdict::Yes, "{}", context());
                        assert!(!found.why.is_empty(), "{}", context());
                    }
                }
            }
        }
    });
    assert!(held > 50, "{held} rows are of an absent contender");
}
