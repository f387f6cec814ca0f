//! Which sentence may be written about which cells.
//!
//! Every sentence of a report, an answer or a comparison with a publication asks [`gate`] or
//! [`compare`] first. [`rule`] is the table: a mark forbids a sentence, is named in it, or does not
//! concern it. A cell without a result forbids every sentence.

use super::{Cell, Estimate, Metric, estimate::half_of_interval};
use crate::results::{Mark, key};

/// What a sentence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sentence {
    /// A number of a cell.
    Value,
    /// The most that a processor or device does.
    Capacity,
    /// That one cell is better than another, or as good.
    Comparison,
    /// A share of the raw link.
    ShareOfLink,
    /// A cell beside a published number.
    Published,
}

impl Sentence {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 5] =
        [Self::Value, Self::Capacity, Self::Comparison, Self::ShareOfLink, Self::Published];
}

/// What a mark means for a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The sentence is not written.
    Forbidden,
    /// The sentence names the mark.
    Named,
    /// The mark does not concern it.
    Silent,
}

/// The table.
pub(crate) const fn rule(mark: Mark, sentence: Sentence) -> Rule {
    use Sentence::{Capacity, Comparison, Published, ShareOfLink, Value};
    match (mark, sentence) {
        (Mark::GeneratorFull, _) => Rule::Forbidden,
        // The number is that of another processor: less than the capacity of the one in question.
        (Mark::LoadLimited, Capacity | Comparison | Published) => Rule::Forbidden,
        // Nothing is faster than its floor: one of the two numbers is wrong.
        (Mark::AboveFloor, ShareOfLink) => Rule::Forbidden,
        (Mark::LoadLimited, Value | ShareOfLink)
        | (Mark::AboveFloor, _)
        | (Mark::SharedCores, _)
        | (Mark::Loopback, _)
        | (Mark::WideInterval, _)
        | (Mark::NotSettled, _)
        | (Mark::NotAwaited, _)
        | (Mark::TargetMachine, _)
        | (Mark::BackgroundShort, _) => Rule::Named,
        (Mark::DeviceUnknown, Comparison | Published) => Rule::Named,
        (Mark::OpenLoop, _)
        | (Mark::TargetUnknown, _)
        | (Mark::DeviceUnknown, Value | Capacity | ShareOfLink) => Rule::Silent,
    }
}

/// Whether a sentence may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Yes; it names these marks.
    Allowed {
        /// In the order of [`Mark`], each once.
        named: Vec<Mark>,
    },
    /// No.
    Forbidden {
        /// The mark; none if the cell has no result.
        mark: Option<Mark>,
        /// The label of the cell.
        cell: String,
    },
    /// No: the intervals of what it compares overlap.
    NotDistinguishable {
        /// How many repeats of each would keep them apart.
        repeats: Needed,
    },
}

/// How many repeats a comparison needs, by the spread of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needed {
    /// About so many.
    About(usize),
    /// More than [`NEEDED_MAX`], or the means are equal.
    TooMany,
    /// One repeat, or a percentile of all repeats together, shows no spread.
    Unknown,
}

/// More repeats than this are not recommended to anybody.
pub(crate) const NEEDED_MAX: usize = 100;

impl Gate {
    /// What follows the sentence, with a space before it: the marks that it names. Empty if there
    /// are none.
    pub(crate) fn named(&self) -> String {
        match self {
            Self::Allowed { named } => in_brackets(named),
            Self::Forbidden { .. } | Self::NotDistinguishable { .. } => String::new(),
        }
    }

    /// What stands in place of the sentence, without a full stop; none if it is allowed.
    pub(crate) fn refusal(&self) -> Option<String> {
        let reason = self.reason()?;
        Some(match self {
            Self::Forbidden { mark: None, cell } => format!("{cell} has no result"),
            Self::Forbidden { mark: Some(_), cell } => format!("{reason} ({cell})"),
            Self::Allowed { .. } | Self::NotDistinguishable { .. } => reason,
        })
    }

    /// The same without the name of the cell.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Allowed { .. } => None,
            Self::Forbidden { mark: None, .. } => Some("no result".to_owned()),
            Self::Forbidden { mark: Some(mark), .. } => Some(mark.explained().to_owned()),
            Self::NotDistinguishable { repeats } => Some(not_distinguishable(*repeats)),
        }
    }

    /// Both: what either forbids is forbidden, and the marks of both are named.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Allowed { mut named }, Self::Allowed { named: others }) => {
                named.extend(others);
                named.sort_unstable();
                named.dedup();
                Self::Allowed { named }
            }
            (Self::Allowed { .. }, refused) | (refused, _) => refused,
        }
    }
}

fn in_brackets(marks: &[Mark]) -> String {
    let words: Vec<&str> = marks.iter().map(|mark| mark.short()).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

fn not_distinguishable(repeats: Needed) -> String {
    let needed = match repeats {
        Needed::About(count) => format!("about {count} repeats would be needed"),
        Needed::TooMany => format!("more than {NEEDED_MAX} repeats would be needed"),
        Needed::Unknown => "the repeats show no spread; at least 3 are needed".to_owned(),
    };
    format!("not distinguishable here: {needed}")
}

/// The points of a sentence about many: those that may be in it, and what is said of the others.
#[derive(Clone, Debug)]
pub(crate) struct Sifted<T> {
    /// What may be in the sentence.
    pub(crate) allowed: Vec<T>,
    named: Vec<Mark>,
    refused: Vec<Gate>,
}

impl<T> Sifted<T> {
    /// Each point with its gate.
    pub(crate) fn of(points: impl IntoIterator<Item = (Gate, T)>) -> Self {
        let mut sifted = Self { allowed: Vec::new(), named: Vec::new(), refused: Vec::new() };
        for (gate, point) in points {
            match gate {
                Gate::Allowed { named } => {
                    sifted.allowed.push(point);
                    sifted.named.extend(named);
                }
                refused => sifted.refused.push(refused),
            }
        }
        sifted.named.sort_unstable();
        sifted.named.dedup();
        sifted
    }

    /// As [`Gate::named`], of all points of the sentence.
    pub(crate) fn named(&self) -> String {
        in_brackets(&self.named)
    }

    /// What is said of the points that are not in the sentence, without a full stop; none if there
    /// are none.
    pub(crate) fn refusal(&self) -> Option<String> {
        let mut parts: Vec<(String, usize)> = Vec::new();
        let mut alike: Vec<Needed> = Vec::new();
        for gate in &self.refused {
            if let Gate::NotDistinguishable { repeats } = gate {
                alike.push(*repeats);
                continue;
            }
            let part = gate.reason().unwrap_or_default();
            match parts.iter_mut().find(|(known, _)| *known == part) {
                Some((_, count)) => *count += 1,
                None => parts.push((part, 1)),
            }
        }
        if let Some(most) = alike.iter().max() {
            parts.push((not_distinguishable(*most), alike.len()));
        }
        let all = self.allowed.len() + self.refused.len();
        let part = |(what, count): &(String, usize)| match all {
            1 => what.clone(),
            _ => format!("{what} ({count} of {all} points)"),
        };
        let parts: Vec<String> = parts.iter().map(part).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Whether the marks of these cells allow a sentence about this metric.
pub(crate) fn gate(sentence: Sentence, metric: &Metric, cells: &[&Cell]) -> Gate {
    let mut named: Vec<Mark> = Vec::new();
    for cell in cells {
        if !cell.is_measured() {
            return Gate::Forbidden { mark: None, cell: cell.label.clone() };
        }
        for mark in cell.marks.iter().filter(|mark| !is_expected(**mark, metric, cell)) {
            match rule(*mark, sentence) {
                Rule::Forbidden => {
                    return Gate::Forbidden { mark: Some(*mark), cell: cell.label.clone() };
                }
                Rule::Named if !named.contains(mark) => named.push(*mark),
                Rule::Named | Rule::Silent => {}
            }
        }
    }
    named.sort_unstable();
    Gate::Allowed { named }
}

/// Whether a comparison of two values may be written: their marks allow it and their intervals are
/// apart. For a fixed bound, `other` is [`Estimate::exact`].
pub(crate) fn compare(
    sentence: Sentence,
    metric: &Metric,
    cells: &[&Cell],
    one: &Estimate,
    other: &Estimate,
) -> Gate {
    match gate(sentence, metric, cells) {
        allowed @ Gate::Allowed { .. } => match distinguish(one, other) {
            Gate::Allowed { .. } => allowed,
            refused => refused,
        },
        forbidden => forbidden,
    }
}

/// Whether the intervals of two values are apart, whatever the marks.
pub(crate) fn distinguish(one: &Estimate, other: &Estimate) -> Gate {
    match one.is_apart_from(other) {
        true => Gate::Allowed { named: Vec::new() },
        false => Gate::NotDistinguishable { repeats: needed(one, other) },
    }
}

/// A full generator is no fault where it is what the cell is about: the host's processor is under
/// test, or it is latency with no more than one request in flight for each thread, which does
/// nothing else while it waits. Concurrency is relative to such a cell.
fn is_expected(mark: Mark, metric: &Metric, cell: &Cell) -> bool {
    let number = |key: &str| cell.number(key).unwrap_or(1.0);
    let one_in_flight =
        || number(key::DEPTH) * number(key::JOBS) <= number(key::HOST_CORES).max(1.0);
    mark == Mark::GeneratorFull
        && (cell.text(key::SHARED) == "host"
            || (metric.is_latency() || metric.name == "concurrency") && one_in_flight())
}

/// How many repeats of each keep the intervals of two means apart, if neither the means nor the
/// spread change.
fn needed(one: &Estimate, other: &Estimate) -> Needed {
    let (Some(mine), Some(others)) = (one.deviation(), other.deviation()) else {
        return Needed::Unknown;
    };
    let distance = (one.mean - other.mean).abs();
    let apart = |count: &usize| half_of_interval(mine + others, *count) < distance;
    (3..=NEEDED_MAX).find(apart).map_or(Needed::TooMany, Needed::About)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cells::Cells,
        results::{Environment, Role, Status, Value},
        testing::record,
    };

    fn cell(settings: &[(&str, Value)], marks: &[Mark]) -> Cell {
        let mut record = record(Role::Plain, settings, 1000.0, 10);
        marks.iter().for_each(|mark| record.mark(*mark));
        Cells::of(&[record], &Environment::default()).cells.remove(0)
    }

    fn metric(name: &str) -> Metric {
        Metric::named(name).expect(name)
    }

    fn deep() -> [(&'static str, Value); 1] {
        [(key::DEPTH, 32u64.into())]
    }

    #[test]
    fn every_mark_forbids_or_is_named_as_the_table_says() {
        for mark in Mark::ALL {
            for sentence in Sentence::ALL {
                let marked = cell(&deep(), &[mark]);
                let gate = gate(sentence, &metric("iops"), &[&marked]);
                match rule(mark, sentence) {
                    Rule::Forbidden => {
                        assert_eq!(
                            gate,
                            Gate::Forbidden { mark: Some(mark), cell: marked.label.clone() }
                        );
                        let why = gate.refusal().expect("a refusal");
                        assert!(why.contains(mark.explained()) && gate.named().is_empty());
                    }
                    Rule::Named => {
                        assert_eq!(gate, Gate::Allowed { named: vec![mark] });
                        assert_eq!(gate.named(), format!(" ({})", mark.short()));
                    }
                    Rule::Silent => assert_eq!(gate.named(), "", "{mark:?} {sentence:?}"),
                }
                assert_eq!(gate.refusal().is_none(), matches!(gate, Gate::Allowed { .. }));
            }
        }
    }

    #[test]
    fn what_forbids_is_what_makes_a_sentence_false() {
        let forbidden = |mark| {
            let kinds = Sentence::ALL.into_iter();
            kinds.filter(|kind| rule(mark, *kind) == Rule::Forbidden).collect::<Vec<_>>()
        };
        assert_eq!(forbidden(Mark::GeneratorFull), Sentence::ALL);
        use Sentence::{Capacity, Comparison, Published, ShareOfLink};
        assert_eq!(forbidden(Mark::LoadLimited), [Capacity, Comparison, Published]);
        assert_eq!(forbidden(Mark::AboveFloor), [ShareOfLink]);
        for mark in [Mark::SharedCores, Mark::Loopback, Mark::WideInterval, Mark::NotSettled] {
            assert_eq!(forbidden(mark), [], "small machines get answers, too");
        }
    }

    #[test]
    fn a_refusal_names_the_cell_in_words() {
        let depth = |depth: u64| record(Role::Plain, &[(key::DEPTH, depth.into())], 1000.0, 10);
        let mut full = depth(32);
        full.mark(Mark::GeneratorFull);
        let cells = Cells::of(&[depth(1), full], &Environment::default()).cells;
        let gate = gate(Sentence::Value, &metric("iops"), &[&cells[1]]);
        let why = gate.refusal().expect("a refusal");
        assert!(why.ends_with(" (depth 32)"), "{why}");
    }

    #[test]
    fn a_cell_without_a_result_forbids_everything() {
        let mut void = record(Role::Plain, &[], 1000.0, 10);
        void.status = Status::Void { reason: "a check failed".to_owned() };
        let cells = Cells::of(&[void], &Environment::default()).cells;
        for sentence in Sentence::ALL {
            let gate = gate(sentence, &metric("iops"), &[&cells[0]]);
            assert!(matches!(gate, Gate::Forbidden { mark: None, .. }), "{gate:?}");
            assert!(gate.refusal().is_some_and(|why| why.contains("no result")));
        }
    }

    #[test]
    fn a_full_generator_is_no_fault_of_one_request_at_a_time_nor_of_the_host_under_test() {
        let full = [Mark::GeneratorFull];
        let allowed = |metric_name: &str, settings: &[(&str, Value)]| {
            let cell = cell(settings, &full);
            gate(Sentence::Comparison, &metric(metric_name), &[&cell]).refusal().is_none()
        };
        let one = [(key::DEPTH, Value::from(1u64)), (key::JOBS, 1u64.into())];
        assert!(allowed("mean", &one) && allowed("p99", &one) && allowed("delta", &one));
        assert!(!allowed("iops", &one), "its own work between requests limits the rate");
        assert!(!allowed("mean", &deep()), "requests wait for the generator");
        let jobs = [(key::DEPTH, Value::from(1u64)), (key::JOBS, 4u64.into())];
        assert!(!allowed("mean", &jobs), "four requests in flight on one processor");
        let spread = [&jobs[..], &[(key::HOST_CORES, 4u64.into())]].concat();
        assert!(allowed("mean", &spread));
        let host = [(key::DEPTH, Value::from(64u64)), (key::SHARED, "host".into())];
        assert!(allowed("saturation", &host), "it is what is measured");
    }

    #[test]
    fn values_are_compared_only_if_their_intervals_are_apart() {
        let estimate = |values: &[f64]| Estimate::of(values).expect("values");
        let (mean, plain) = (metric("mean"), cell(&deep(), &[Mark::Loopback]));
        let compare = |one: &Estimate, other: &Estimate| {
            compare(Sentence::Comparison, &mean, &[&plain], one, other)
        };
        let apart = compare(&estimate(&[10.0, 11.0, 12.0]), &estimate(&[20.0, 21.0, 22.0]));
        assert_eq!(apart, Gate::Allowed { named: vec![Mark::Loopback] });
        // s = 1 each, a distance of 2: 2 t / √n < 2 from 7 repeats on.
        let near = compare(&estimate(&[10.0, 11.0, 12.0]), &estimate(&[12.0, 13.0, 14.0]));
        assert_eq!(near, Gate::NotDistinguishable { repeats: Needed::About(7) });
        assert!(near.refusal().is_some_and(|why| why.contains("about 7 repeats")));
        let same = estimate(&[10.0, 11.0, 12.0]);
        assert_eq!(compare(&same, &same), Gate::NotDistinguishable { repeats: Needed::TooMany });
        let single = compare(&estimate(&[10.0]), &estimate(&[90.0, 91.0]));
        assert_eq!(single, Gate::NotDistinguishable { repeats: Needed::Unknown });
        let bound = Estimate::exact(9.0);
        let above = [10.0, 10.1, 10.2];
        assert_eq!(compare(&estimate(&above), &bound).refusal(), None);
        assert!(compare(&estimate(&[8.0, 9.5, 12.0]), &bound).refusal().is_some());
        let full = cell(&deep(), &[Mark::GeneratorFull]);
        let both = [&plain, &full];
        let gate = super::compare(Sentence::Comparison, &mean, &both, &estimate(&above), &bound);
        assert_eq!(
            gate,
            Gate::Forbidden { mark: Some(Mark::GeneratorFull), cell: full.label.clone() }
        );
    }

    #[test]
    fn two_gates_are_passed_together() {
        let named = |marks: &[Mark]| Gate::Allowed { named: marks.to_vec() };
        let both = named(&[Mark::Loopback]).and(named(&[Mark::SharedCores, Mark::Loopback]));
        assert_eq!(both, named(&[Mark::SharedCores, Mark::Loopback]));
        let full = Gate::Forbidden { mark: Some(Mark::GeneratorFull), cell: "x".to_owned() };
        assert_eq!(named(&[]).and(full.clone()), full);
        assert_eq!(full.clone().and(named(&[])), full);
    }

    #[test]
    fn points_that_are_refused_are_counted_by_reason() {
        let named = |mark| Gate::Allowed { named: vec![mark] };
        let full = Gate::Forbidden { mark: Some(Mark::GeneratorFull), cell: "x".to_owned() };
        let near = |count| Gate::NotDistinguishable { repeats: Needed::About(count) };
        let gates = [
            named(Mark::Loopback),
            full.clone(),
            near(9),
            named(Mark::SharedCores),
            near(20),
            named(Mark::Loopback),
            full,
        ];
        let sifted = Sifted::of(gates.into_iter().zip(1..));
        assert_eq!(sifted.allowed, [1, 4, 6]);
        assert_eq!(sifted.named(), " (shared cores, loopback)");
        let expected = "the load generator's processor was saturated (2 of 7 points); not \
                        distinguishable here: about 20 repeats would be needed (2 of 7 points)";
        assert_eq!(sifted.refusal().as_deref(), Some(expected));
        let all = Sifted::of([(named(Mark::Loopback), ())]);
        assert_eq!(all.refusal(), None);
    }
}
