//! Makes claims from cells.

use super::ask::{Ask, Beside};
use super::doubt::{NOT_MEASURED, unknown_rival};
use super::{Claim, Number, Row, Verdict, marks_of, unit_name};
use crate::cells::gate::{Gate, Sentence, compare, gate};
use crate::cells::{Better, Cell, Cells, Estimate, Metric, Unit};
use crate::results::{Mark, Value, key};
use crate::units;

/// A contender within this share of what it is compared with counts as good as that.
pub(crate) const CLOSE: f64 = 0.05;

/// Latency of a read from a real SSD, where there is none: 4 KiB from NAND flash.
const SSD_NS: f64 = 80_000.0;

/// Why there is nothing to compare a remote cell with.
pub(super) const NO_LOCAL: &str = "local was not measured with its settings";

/// Why contenders are not compared.
const NOTHING_IN_COMMON: &str = "there is no point at which all of them have a value";

/// Most points that are named.
pub(super) const POINTS_NAMED: usize = 4;

/// Cells with the same values of all settings that distinguish contenders.
#[derive(Clone, Debug)]
pub(super) struct Contender<'a> {
    pub(super) name: String,
    /// Local, which others are compared with.
    pub(super) is_local: bool,
    pub(super) cells: Vec<&'a Cell>,
}

/// The value of a contender.
#[derive(Clone, Debug)]
pub(super) struct ContenderValue<'a> {
    pub(super) estimate: Estimate,
    /// Where it is, if points differ.
    pub(super) at: String,
    /// The cells that it is made from.
    pub(super) cells: Vec<&'a Cell>,
    /// Why it may be better elsewhere; empty if it is not.
    pub(super) doubt: String,
}

impl<'a> ContenderValue<'a> {
    pub(super) fn of_cell(estimate: Estimate, at: String, cells: Vec<&'a Cell>) -> Self {
        Self { estimate, at, cells, doubt: String::new() }
    }
}

/// A value at a point.
#[derive(Clone, Debug)]
struct PointValue<'a> {
    place: String,
    estimate: Estimate,
    cell: &'a Cell,
}

fn at<'p, 'a>(of: &'p [PointValue<'a>], place: &str) -> Option<&'p PointValue<'a>> {
    of.iter().find(|of| of.place == *place)
}

/// A row before it is compared, or why there is no value.
pub(super) type Entry<'a> = (Contender<'a>, Result<ContenderValue<'a>, String>);

/// A verdict, why there is none, and the marks that belong to it.
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) why: String,
    pub(super) marks: Vec<Mark>,
    /// Whether marks forbid the comparison itself, and not its intervals a verdict.
    pub(super) is_forbidden: bool,
}

impl Judgement {
    pub(super) fn of(gate: Gate, is_good: bool) -> Self {
        let why = gate.refusal().unwrap_or_default();
        let is_forbidden = matches!(gate, Gate::Forbidden { .. });
        let (verdict, marks) = match gate {
            Gate::Allowed { named } if is_good => (Verdict::Yes, named),
            Gate::Allowed { named } => (Verdict::No, named),
            Gate::NotDistinguishable { .. } | Gate::Forbidden { .. } => {
                (Verdict::CannotTell, Vec::new())
            }
        };
        Self { verdict, why, marks, is_forbidden }
    }
}

/// Rows, and the marks of their cells.
#[derive(Default)]
pub(super) struct ClaimRows {
    pub(super) rows: Vec<Row>,
    pub(super) marks: Vec<Mark>,
    /// The row of the best contender, where contenders are compared with it.
    pub(super) leader: Option<usize>,
    /// Whether local was measured, of which there is a row or not.
    pub(super) has_local: bool,
    /// What follows the consequence.
    pub(super) remark: String,
    pub(super) points: String,
    pub(super) beside: String,
}

impl ClaimRows {
    pub(super) fn add(&mut self, row: Row, marks: impl IntoIterator<Item = Mark>) {
        self.rows.push(row);
        self.marks.extend(marks);
    }
}

impl Row {
    /// Of a contender without a value.
    pub(super) fn without(contender: &Contender<'_>, why: &str) -> Self {
        Self {
            contender: contender.name.clone(),
            at: String::new(),
            value: None,
            beside: None,
            verdict: if contender.is_local { Verdict::Reference } else { Verdict::CannotTell },
            why: why.trim_end_matches('.').to_owned(),
            cells: Vec::new(),
        }
    }

    pub(super) fn of(contender: &Contender<'_>, unit: Unit, found: &ContenderValue<'_>) -> Self {
        Self {
            at: found.at.clone(),
            value: Some(Number::of(unit, &found.estimate)),
            cells: found.cells.iter().map(|cell| cell.id.clone()).collect(),
            ..Self::without(contender, "")
        }
    }
}

impl Ask {
    /// Its claim.
    pub(crate) fn claim(&self, cells: &Cells) -> Claim {
        Self { points: self.points_of(cells), ..self.clone() }.claimed(cells)
    }

    fn claimed(&self, cells: &Cells) -> Claim {
        let contenders = self.contenders(cells);
        let is_measured = |of: &Contender<'_>| of.cells.iter().any(|cell| cell.is_measured());
        let has_local = contenders.iter().any(|of| of.is_local && is_measured(of));
        let mut made = match self.beside {
            Beside::Best => self.among(cells, contenders),
            Beside::Local => self.beside_local(cells, contenders),
            Beside::Highest
            | Beside::Parity
            | Beside::Alone
            | Beside::Borne
            | Beside::Second
            | Beside::Capacity => self.along(cells, &contenders),
        };
        made.has_local = has_local;
        made.marks.sort_unstable();
        made.marks.dedup();
        let is_answered = self.is_answered(&made.rows);
        let marks = marks_of(&made.marks);
        let named =
            if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
        Claim {
            question: self.question.clone(),
            metric: self.shown().label,
            unit: unit_name(self.shown().unit),
            consequence: format!("{}{}{named}.", self.consequence(&made), made.remark),
            beside: made.beside,
            points: made.points,
            rows: made.rows,
            marks,
            is_answered,
        }
    }

    /// The metric whose values the rows show: of one that is relative, what it is made of.
    pub(super) fn shown(&self) -> Metric {
        let name = match self.metric.name.as_str() {
            "latency-interference" => "p99",
            "throughput-sustained" => "iops",
            _ => return self.metric.clone(),
        };
        Metric::named(name).unwrap_or_else(|| unreachable!("{name} is a metric"))
    }

    fn is_answered(&self, rows: &[Row]) -> bool {
        let rows = || rows.iter().filter(|row| row.verdict != Verdict::Reference);
        let has = |wanted: &[Verdict]| rows().any(|row| wanted.contains(&row.verdict));
        match self.beside {
            Beside::Best if self.is_choice => has(&[Verdict::Yes]),
            Beside::Best => has(&[Verdict::Yes, Verdict::Value]),
            _ => has(&[Verdict::Yes, Verdict::No]),
        }
    }

    /// The contenders that the plan had, in the order of their settings.
    pub(super) fn contenders<'a>(&self, cells: &'a Cells) -> Vec<Contender<'a>> {
        let at = |cell: &Cell| {
            let same = |(key, value): (&String, &Value)| cell.value(key) == Some(value);
            self.at.iter().all(same)
        };
        let asked: Vec<&Cell> =
            cells.cells.iter().filter(|cell| cell.role == self.role && at(cell)).collect();
        let mut keys = self.contending(&asked);
        if self.beside == Beside::Second {
            keys.retain(|key| !self.over.contains(key));
        }
        // Where the values of the second setting are transports, a contender has no own one.
        let is_of_all =
            self.beside == Beside::Second && !keys.iter().any(|of| of == key::TRANSPORT);
        let is_of_all = is_of_all && self.over.iter().any(|key| key == key::TRANSPORT);
        let names_local = is_of_all || self.at.get(key::TRANSPORT) == Some(&"local".into());
        let mut contenders: Vec<(Vec<Option<&Value>>, Contender<'_>)> = Vec::new();
        for cell in asked {
            let values: Vec<Option<&Value>> = keys.iter().map(|key| cell.value(key)).collect();
            if let Some((_, known)) = contenders.iter_mut().find(|(known, _)| *known == values) {
                known.cells.push(cell);
                continue;
            }
            let words = keys.iter().zip(&values);
            let words: Vec<String> =
                words.filter_map(|(key, value)| Some(units::setting(key, (*value)?))).collect();
            let name = match (words.is_empty(), cell.text(key::TRANSPORT)) {
                (true, _) if is_of_all => "all cells".to_owned(),
                (true, "") => "all cells".to_owned(),
                (true, transport) => transport.to_owned(),
                (false, _) => words.join(", "),
            };
            let is_local = cell.text(key::TRANSPORT) == "local" && !names_local;
            contenders.push((values, Contender { name, is_local, cells: vec![cell] }));
        }
        contenders.into_iter().map(|(_, contender)| contender).collect()
    }

    /// What kind of sentence a value is.
    pub(super) fn sentence(&self) -> Sentence {
        if self.metric.is_rate() { Sentence::Capacity } else { Sentence::Value }
    }

    /// Those of some cells whose marks allow to tell their values, or all if none do.
    pub(super) fn telling<'a>(&self, of: &[&'a Cell]) -> Vec<&'a Cell> {
        let measured = of.iter().copied().filter(|cell| cell.is_measured());
        let (good, other): (Vec<&Cell>, Vec<&Cell>) = measured
            .partition(|cell| gate(self.sentence(), &self.metric, &[*cell]).refusal().is_none());
        if good.is_empty() { other } else { good }
    }

    /// The best value of a contender.
    pub(super) fn best<'a>(
        &self,
        cells: &'a Cells,
        contender: &Contender<'a>,
    ) -> Result<ContenderValue<'a>, String> {
        let telling = self.telling(&contender.cells);
        let read = |cell: &&'a Cell| Some((self.metric.read(cells, cell).estimate()?, *cell));
        let better = |best: (Estimate, &'a Cell), other: (Estimate, &'a Cell)| {
            if self.metric.is_better(other.0.mean, best.0.mean) { other } else { best }
        };
        let Some((estimate, cell)) = telling.iter().filter_map(read).reduce(better) else {
            return Err(self.why_missing(cells, &contender.cells));
        };
        let made_from = self.metric.made_from(cells, cell);
        match gate(self.sentence(), &self.metric, &made_from).reason() {
            Some(why) => Err(why),
            None => Ok(ContenderValue {
                doubt: self.doubt(cells, contender, &telling, estimate.mean),
                ..ContenderValue::of_cell(estimate, self.seen(cells, contender, cell), made_from)
            }),
        }
    }

    /// The settings that vary and do not distinguish contenders.
    pub(super) fn points_of(&self, cells: &Cells) -> Vec<String> {
        let asked: Vec<&Cell> = cells.cells.iter().filter(|cell| cell.role == self.role).collect();
        let contending = self.contending(&asked);
        let mut points = cells.varied(self.role);
        points.retain(|key| {
            !contending.contains(key) && !self.at.contains_key(key) && *key != self.along
        });
        points
    }

    /// The point of a cell.
    pub(super) fn place(&self, cell: &Cell) -> String {
        let words = self.points.iter();
        let words: Vec<String> =
            words.filter_map(|key| Some(units::setting(key, cell.value(key)?))).collect();
        words.join(", ")
    }

    /// The point of a cell, and over which points of its contender it was sought.
    fn seen(&self, cells: &Cells, of: &Contender<'_>, cell: &Cell) -> String {
        joined([self.place(cell), self.cover(of, |cell| self.is_told(cells, cell))])
    }

    /// How a value stands to another.
    pub(super) fn judged(&self, own: &Estimate, base: &Estimate, of: &[&Cell]) -> Judgement {
        let advantage = match self.metric.better {
            Better::More => Estimate::ratio(own, base),
            Better::Less => Estimate::ratio(base, own),
        };
        self.judged_by(&advantage, of)
    }

    /// How a value stands to another one that it is so many times better than: as good, if it is
    /// within 5 % of it or better.
    fn judged_by(&self, advantage: &Estimate, of: &[&Cell]) -> Judgement {
        let bound = 1.0 - CLOSE;
        let gate =
            compare(Sentence::Comparison, &self.metric, of, advantage, &Estimate::exact(bound));
        Judgement::of(gate, advantage.mean > bound)
    }

    /// Contenders beside the best of them.
    fn among<'a>(&self, cells: &'a Cells, contenders: Vec<Contender<'a>>) -> ClaimRows {
        let has_local = contenders.iter().any(|contender| contender.is_local);
        let best = if has_local { "of the best remote" } else { "of the best" };
        let mut made = ClaimRows { beside: best.to_owned(), ..ClaimRows::default() };
        let entries = self.entries(cells, contenders, &mut made);
        let found = || entries.iter().filter(|(contender, _)| !contender.is_local);
        let told = found().filter_map(|(_, found)| found.as_ref().ok());
        let better = |best: &'_ ContenderValue<'_>, other: &'_ ContenderValue<'_>| {
            self.metric.is_better(other.estimate.mean, best.estimate.mean)
        };
        let best = told.reduce(|best, other| if better(best, other) { other } else { best });
        let is_sole = found().filter(|(_, found)| found.is_ok()).count() < 2;
        let doubt =
            |of: &ContenderValue<'_>| Some(of.doubt.clone()).filter(|doubt| !doubt.is_empty());
        let of_any = |own: &ContenderValue<'_>| {
            let why = found().find_map(|(of, found)| {
                let (value, name) = (found.as_ref().ok()?, of.name.clone());
                let name = if std::ptr::eq(value, own) { String::new() } else { name };
                Some(listed([name, doubt(value)?]))
            });
            why.or_else(|| unknown_rival(&entries))
        };
        for (contender, value) in &entries {
            let (Ok(own), Some(best)) = (value, best) else {
                let why = value.as_ref().err().map_or("", String::as_str);
                match value {
                    Ok(own) => made.add(Row::of(contender, self.metric.unit, own), None),
                    Err(_) => made.add(Row::without(contender, why), None),
                }
                continue;
            };
            let mut row = Row::of(contender, self.metric.unit, own);
            let ratio = Estimate::ratio(&own.estimate, &best.estimate);
            let is_best = std::ptr::eq(own, best);
            if !is_best {
                row.beside = Some(Number::of(Unit::Times, &ratio));
            }
            if contender.is_local {
                made.add(row, None);
                continue;
            }
            let judged = match is_best {
                _ if is_sole => {
                    self.alone(own, found().filter_map(|(_, found)| found.as_ref().err()))
                }
                false => {
                    let of: Vec<&Cell> = own.cells.iter().chain(&best.cells).copied().collect();
                    self.judged(&own.estimate, &best.estimate, &of)
                }
                true => self.leader(best, &entries),
            };
            row.beside = row.beside.filter(|_| !judged.is_forbidden);
            (row.verdict, row.why) = (judged.verdict, judged.why);
            // Of cells that forbid a comparison none is the best.
            if is_best && !judged.is_forbidden {
                made.leader = Some(made.rows.len());
            }
            // What may be better elsewhere is not worse than the best, and beside another that may
            // be better none is the best or near it.
            if let Some(why) = match row.verdict {
                Verdict::CannotTell => None,
                Verdict::No => doubt(own),
                _ => of_any(own),
            } {
                (row.verdict, row.why) = (Verdict::CannotTell, why);
            }
            made.add(row, judged.marks);
        }
        made
    }

    /// The only contender with a value: it is one, if it has an interval and no choice was asked
    /// for. The others have the reasons why they have none.
    fn alone<'f>(
        &self,
        own: &ContenderValue<'_>,
        others: impl Iterator<Item = &'f String>,
    ) -> Judgement {
        let mut others = others.peekable();
        let is_missed = others.peek().is_some();
        let why = match others.all(|why| why.starts_with(NOT_MEASURED)) {
            true => "none of the others was measured beside it",
            false => "none of the others has a value to compare it with",
        };
        let gate = gate(self.sentence(), &self.metric, &own.cells);
        let value = |verdict, why: &str, marks| Judgement {
            verdict,
            why: why.to_owned(),
            marks,
            is_forbidden: false,
        };
        match gate {
            _ if own.estimate.interval().is_none() => {
                value(Verdict::CannotTell, own.estimate.why_no_interval(), Vec::new())
            }
            Gate::Allowed { .. } if self.is_choice && is_missed => {
                value(Verdict::CannotTell, why, Vec::new())
            }
            Gate::Allowed { named } => value(Verdict::Value, "", named),
            refused => Judgement::of(refused, false),
        }
    }

    /// Whether what seems best is so: no other may be better by more than 5 %.
    fn leader(&self, best: &ContenderValue<'_>, entries: &[Entry<'_>]) -> Judgement {
        let mut judged = Judgement::of(gate(Sentence::Comparison, &self.metric, &best.cells), true);
        let told = entries.iter().filter(|(contender, _)| !contender.is_local);
        let told = told.filter_map(|(of, found)| Some((&of.name, found.as_ref().ok()?)));
        for (name, other) in told.filter(|(_, other)| !std::ptr::eq(*other, best)) {
            if judged.verdict == Verdict::CannotTell {
                break;
            }
            let advantage = match self.metric.better {
                Better::More => Estimate::ratio(&other.estimate, &best.estimate),
                Better::Less => Estimate::ratio(&best.estimate, &other.estimate),
            };
            let bound = Estimate::exact(1.0 / (1.0 - CLOSE));
            let of = [&best.cells[..], &other.cells].concat();
            match compare(Sentence::Comparison, &self.metric, &of, &advantage, &bound) {
                Gate::Allowed { named } => judged.marks.extend(named),
                refused => {
                    let is_marked = matches!(refused, Gate::Forbidden { .. });
                    judged = Judgement { is_forbidden: false, ..Judgement::of(refused, false) };
                    if is_marked {
                        judged.why = format!("{name} may be better: {}", judged.why);
                    }
                }
            }
        }
        match best.estimate.why_no_interval() {
            why if !why.is_empty() && judged.verdict == Verdict::Yes => {
                Judgement { verdict: Verdict::CannotTell, why: why.to_owned(), ..judged }
            }
            _ => judged,
        }
    }

    /// The value of each contender: its best, or the mean over the points that all of them have
    /// and whose marks allow a comparison.
    fn entries<'a>(
        &self,
        cells: &'a Cells,
        contenders: Vec<Contender<'a>>,
        made: &mut ClaimRows,
    ) -> Vec<Entry<'a>> {
        if self.is_typical {
            return self.typical_entries(cells, contenders, made);
        }
        let of = |contender: Contender<'a>| {
            let found = self.best(cells, &contender);
            (contender, found)
        };
        let entries: Vec<Entry<'a>> = contenders.into_iter().map(of).collect();
        match self.beside == Beside::Best && !self.metric.is_rate() {
            true => self.at_one_point(cells, entries),
            false => entries,
        }
    }

    /// The values of the first measured one of these cells at each place.
    fn values<'a>(&self, cells: &Cells, of: &[&'a Cell]) -> Vec<PointValue<'a>> {
        let mut first: Vec<(String, &Cell)> = Vec::new();
        for cell in of.iter().copied().filter(|cell| cell.is_measured()) {
            let place = self.place(cell);
            if !first.iter().any(|(known, _)| *known == place) {
                first.push((place, cell));
            }
        }
        let read = |(place, cell): (String, &'a Cell)| {
            Some(PointValue { place, cell, estimate: self.metric.read(cells, cell).estimate()? })
        };
        first.into_iter().filter_map(read).collect()
    }

    fn typical_entries<'a>(
        &self,
        cells: &'a Cells,
        contenders: Vec<Contender<'a>>,
        made: &mut ClaimRows,
    ) -> Vec<Entry<'a>> {
        let with_values = |contender: Contender<'a>| {
            let values = self.values(cells, &contender.cells);
            (contender, values)
        };
        let contenders: Vec<(Contender<'a>, Vec<PointValue<'a>>)> =
            contenders.into_iter().map(with_values).collect();
        let compared: Vec<&(Contender<'a>, Vec<PointValue<'a>>)> =
            contenders.iter().filter(|(_, values)| !values.is_empty()).collect();
        let mut all: Vec<String> = Vec::new();
        for place in compared.iter().flat_map(|(of, _)| &of.cells).map(|cell| self.place(cell)) {
            if !all.contains(&place) {
                all.push(place);
            }
        }
        let mut refused = None;
        let mut used = all.clone();
        used.retain(|place| {
            let values: Option<Vec<_>> = compared.iter().map(|(_, of)| at(of, place)).collect();
            let Some(values) = values else { return false };
            let remote = values
                .iter()
                .zip(&compared)
                .filter(|(_, (of, _))| !of.is_local || self.beside == Beside::Local);
            let made_from = remote.flat_map(|(of, _)| self.metric.made_from(cells, of.cell));
            let why = gate(Sentence::Comparison, &self.metric, &made_from.collect::<Vec<&Cell>>())
                .refusal();
            refused = refused.take().or(why.clone());
            why.is_none()
        });
        let named: Vec<&str> =
            used.iter().take(POINTS_NAMED).map(String::as_str).filter(|p| !p.is_empty()).collect();
        let more = if used.len() > POINTS_NAMED { "; …" } else { "" };
        if all.len() > 1 {
            made.points = format!(
                "geometric mean over {} of {} points: {}{more}",
                used.len(),
                all.len(),
                named.join("; ")
            );
        }
        let of = |(contender, placed): (Contender<'a>, Vec<PointValue<'a>>)| {
            let values = used.iter().filter_map(|place| at(&placed, place));
            let values: Vec<(Estimate, &Cell)> = values.map(|of| (of.estimate, of.cell)).collect();
            let found = self.metric.typical(&values).map(|estimate| {
                let from = values.iter().flat_map(|(_, cell)| self.metric.made_from(cells, cell));
                ContenderValue::of_cell(estimate, String::new(), from.collect())
            });
            let found = found.ok_or_else(|| match (placed.is_empty(), &refused) {
                (false, Some(why)) => why.clone(),
                (false, None) => NOTHING_IN_COMMON.to_owned(),
                (true, _) => self.why_missing(cells, &contender.cells),
            });
            (contender, found)
        };
        contenders.into_iter().map(of).collect()
    }

    /// The same at one point: a latency or cost at one load is not compared with that at another.
    /// It is the point, of those that all contenders with a value have, where one is the best.
    fn at_one_point<'a>(&self, cells: &'a Cells, entries: Vec<Entry<'a>>) -> Vec<Entry<'a>> {
        let is_compared = |(of, found): &Entry<'a>| found.is_ok() && !of.is_local;
        if entries.iter().filter(|entry| is_compared(entry)).count() < 2 {
            return entries;
        }
        let told = |entry: &Entry<'a>| {
            let mut values = self.values(cells, &self.telling(&entry.0.cells));
            values.retain(|of| {
                let made_from = self.metric.made_from(cells, of.cell);
                gate(self.sentence(), &self.metric, &made_from).refusal().is_none()
            });
            values
        };
        let values: Vec<Vec<PointValue<'a>>> = entries.iter().map(told).collect();
        let both = || entries.iter().zip(&values).filter(|(entry, _)| is_compared(entry));
        let best = |place: &String| {
            let values: Option<Vec<f64>> =
                both().map(|(_, of)| Some(at(of, place)?.estimate.mean)).collect();
            Some((values?.into_iter().fold(f64::INFINITY, f64::min), place.clone()))
        };
        let places = both().flat_map(|(_, of)| of).map(|of| &of.place);
        let common = places.filter_map(best).min_by(|one, other| one.0.total_cmp(&other.0));
        let of = |((contender, found), values): (Entry<'a>, &Vec<PointValue<'a>>)| {
            let there = |place: &String| {
                let of = at(values, place)?;
                let made_from = self.metric.made_from(cells, of.cell);
                let seen = self.seen(cells, &contender, of.cell);
                Some(ContenderValue::of_cell(of.estimate, seen, made_from))
            };
            let found = match (&common, found) {
                (Some((_, place)), Ok(found)) => Ok(there(place).unwrap_or(found)),
                (None, Ok(found)) => {
                    Ok(ContenderValue { doubt: NOTHING_IN_COMMON.to_owned(), ..found })
                }
                (_, Err(why)) => Err(why),
            };
            (contender, found)
        };
        entries.into_iter().zip(&values).map(of).collect()
    }

    /// Contenders beside local.
    fn beside_local<'a>(&self, cells: &'a Cells, contenders: Vec<Contender<'a>>) -> ClaimRows {
        let is_time = self.metric.unit == Unit::Time && !self.is_typical;
        let what = if is_time { "above local" } else { "of local" };
        let mut made = ClaimRows { beside: what.to_owned(), ..ClaimRows::default() };
        let entries = self.entries(cells, contenders, &mut made);
        let peak = entries.iter().find(|(contender, found)| contender.is_local && found.is_ok());
        let mut least: Option<Estimate> = None;
        for (contender, value) in &entries {
            let own = match value {
                Ok(own) => own,
                Err(why) => {
                    made.add(Row::without(contender, why), None);
                    continue;
                }
            };
            let mut row = Row::of(contender, self.metric.unit, own);
            let local = match own.cells.first().filter(|_| is_time) {
                Some(cell) => cells.local(cell).filter(|_| !contender.is_local).and_then(|local| {
                    let estimate = self.metric.read(cells, local).estimate()?;
                    Some(ContenderValue::of_cell(estimate, String::new(), vec![local]))
                }),
                None => peak.and_then(|(_, found)| found.clone().ok()),
            };
            let Some(local) = local.filter(|_| !contender.is_local) else {
                if !contender.is_local {
                    let of_local = entries.iter().find(|(contender, _)| contender.is_local);
                    let twin = own.cells.first().and_then(|cell| cells.local(cell));
                    row.why = match (of_local, twin.filter(|_| is_time)) {
                        (Some((_, Err(why))), _) => format!("local: {why}"),
                        (_, Some(twin)) => format!("local: {}", self.why_missing(cells, &[twin])),
                        _ => NO_LOCAL.to_owned(),
                    };
                }
                made.add(row, None);
                continue;
            };
            let of: Vec<&Cell> = own.cells.iter().chain(&local.cells).copied().collect();
            let advantage = match self.metric.better {
                Better::More => self.quotient(cells, own, &local),
                Better::Less => self.quotient(cells, &local, own),
            };
            let judged = self.judged_by(&advantage, &of);
            let beside = match is_time {
                true => self.above(cells, own, &local),
                false => self.quotient(cells, own, &local),
            };
            let unit = if is_time { Unit::Time } else { Unit::Share };
            row.beside = Some(Number::of(unit, &beside));
            row.beside = row.beside.filter(|_| !judged.is_forbidden);
            let unlike = self.unlike(cells, (contender, own), &local, judged.verdict);
            (row.verdict, row.why) = match unlike {
                Some(why) => (Verdict::CannotTell, why),
                None => (judged.verdict, judged.why),
            };
            if !is_time {
                row.at = joined([row.at, self.others(cells, contender, &own.cells)]);
            }
            if row.verdict != Verdict::CannotTell && is_time {
                least = least.or(Some(local.estimate));
            }
            made.add(row, judged.marks);
        }
        if let Some(local) = least.filter(|_| self.metric.is_latency()) {
            made.remark = ssd(cells, &local);
        }
        made
    }
}

/// The parts that say something.
pub(super) fn joined(parts: [String; 2]) -> String {
    said(parts).join("; ")
}

/// The same as the settings of a place.
pub(super) fn listed(parts: [String; 2]) -> String {
    said(parts).join(", ")
}

fn said(parts: [String; 2]) -> Vec<String> {
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

impl Ask {
    /// How many times another value one is, by repeats where both are of one cell.
    fn quotient(
        &self,
        cells: &Cells,
        own: &ContenderValue<'_>,
        base: &ContenderValue<'_>,
    ) -> Estimate {
        let both = own.cells.first().zip(base.cells.first()).filter(|_| !self.is_typical);
        let paired = both.and_then(|(own, base)| self.metric.quotient(cells, own, base));
        paired.unwrap_or_else(|| Estimate::ratio(&own.estimate, &base.estimate))
    }

    /// How far a value is above that of local. A mean is so in each repeat.
    fn above(
        &self,
        cells: &Cells,
        own: &ContenderValue<'_>,
        local: &ContenderValue<'_>,
    ) -> Estimate {
        let delta = Metric::named("delta").filter(|_| self.metric.name == "mean");
        let paired = delta.zip(own.cells.first());
        let paired = paired.and_then(|(delta, cell)| delta.read(cells, cell).estimate());
        paired.unwrap_or_else(|| Estimate::difference(&own.estimate, &local.estimate))
    }

    /// The shares of local at the points of a contender that a value is not at; empty if there are
    /// none.
    pub(super) fn others(&self, cells: &Cells, of: &Contender<'_>, found: &[&Cell]) -> String {
        let is_other = |cell: &&&Cell| !found.iter().any(|known| std::ptr::eq(*known, **cell));
        let share = |cell: &&Cell| {
            let local = cells.local(cell).filter(|local| local.is_measured())?;
            let both = [*cell, local];
            let is_told = gate(Sentence::Comparison, &self.metric, &both).refusal().is_none();
            self.metric.quotient(cells, cell, local).filter(|_| is_told).map(|share| share.mean)
        };
        let telling = self.telling(&of.cells);
        let shares = telling.iter().filter(is_other).filter_map(share);
        let (least, most) = shares
            .fold((f64::INFINITY, 0.0_f64), |(least, most), of| (least.min(of), most.max(of)));
        match (units::percent(least), units::percent(most)) {
            _ if self.is_typical || least > most => String::new(),
            (least, most) if least == most => format!("{least} of local at the other points"),
            (least, most) => format!("{least} to {most} of local at the other points"),
        }
    }
}

/// What local latency is: that of a device, or of a copy, beside which an SSD's is named.
fn ssd(cells: &Cells, local: &Estimate) -> String {
    let device = cells.environment.local.split([':', ',']).next().unwrap_or_default();
    match device {
        "memory" | "" => {
            format!("; local is memory; an SSD would take about {} (assumed)", units::time(SSD_NS))
        }
        "null" => "; local is a null device, which moves no data".to_owned(),
        _ => format!("; local is {} ({})", cells.environment.local, units::time(local.mean)),
    }
}
