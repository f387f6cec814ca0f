//! Which sentence may be written about which cells.
//!
//! Every sentence of a report, an answer or a comparison with a publication asks [`gate`] or
//! [`compare`] first. [`rule`] is the table: a mark forbids a sentence, is named in it, or does not
//! concern it. A cell without a result forbids every sentence.

use weft_advise::predict::is_served;

use super::estimate::POOLED;
use super::{Cell, Estimate, Metric, Repeat};
use crate::results::{Mark, key, number};

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
    /// CPU time, or what is made of it, beside whatever else is said with it.
    Cost,
}

impl Sentence {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] = [
        Self::Value,
        Self::Capacity,
        Self::Comparison,
        Self::ShareOfLink,
        Self::Published,
        Self::Cost,
    ];
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
    use Sentence::{Capacity, Comparison, Cost, Published, ShareOfLink, Value};
    match (mark, sentence) {
        (Mark::GeneratorFull, _) => Rule::Forbidden,
        // The number is that of another processor: less than the capacity of the one in question.
        (Mark::LoadLimited, Capacity | Comparison | Published) => Rule::Forbidden,
        // Others had so much of the processor that the interval does not hold what it would have
        // been; see [`Cell::is_spoilt`].
        (Mark::Disturbed, Capacity | Comparison | ShareOfLink | Published | Cost) => {
            Rule::Forbidden
        }
        // What else ran is in the time of the processors, and no paper measured beside it.
        (Mark::BusyMachine, Published | Cost) => Rule::Forbidden,
        // Nothing is faster than its floor: one of the two numbers is wrong.
        (Mark::AboveFloor, ShareOfLink) => Rule::Forbidden,
        (Mark::LoadLimited, Value | ShareOfLink | Cost)
        | (Mark::AboveFloor, _)
        | (Mark::Disturbed, Value)
        | (Mark::BusyMachine, Value | Capacity | Comparison | ShareOfLink)
        | (Mark::SharedCores, _)
        | (Mark::Loopback, _)
        | (Mark::WideInterval, _)
        | (Mark::NotSettled, _)
        | (Mark::NotAwaited, _)
        | (Mark::TargetMachine, _)
        | (Mark::MixedTogether, _)
        | (Mark::BackgroundShort, _) => Rule::Named,
        (Mark::DeviceUnknown, Comparison | Published) => Rule::Named,
        (Mark::OpenLoop, _)
        | (Mark::TargetUnknown, _)
        | (Mark::DeviceUnknown, Value | Capacity | ShareOfLink | Cost) => Rule::Silent,
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
    /// No: what it compares may be equal.
    NotDistinguishable {
        /// How many repeats of each would tell.
        repeats: RepeatsNeeded,
    },
}

/// How many repeats a comparison needs, by the spread of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RepeatsNeeded {
    /// About so many.
    About(usize),
    /// More than [`NEEDED_MAX`], or the means are equal.
    TooMany,
    /// None: other programs may have made the difference.
    Quiet,
    /// One repeat shows no spread.
    Once,
    /// Neither does a percentile of all repeats together.
    Pooled,
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
            Self::Forbidden { mark: Some(Mark::OpenLoop), .. } => Some(ASKED.to_owned()),
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

fn not_distinguishable(repeats: RepeatsNeeded) -> String {
    let needed = match repeats {
        RepeatsNeeded::About(count) => format!("about {count} repeats would be needed"),
        RepeatsNeeded::TooMany => format!("more than {NEEDED_MAX} repeats would be needed"),
        RepeatsNeeded::Quiet => {
            "other programs may have made the difference; measure on a quiet machine".to_owned()
        }
        RepeatsNeeded::Once => "one repeat shows no spread; at least 3 are needed".to_owned(),
        RepeatsNeeded::Pooled => return POOLED.to_owned(),
    };
    format!("not distinguishable here: {needed}")
}

/// Why the rate of an open loop is no capacity.
const ASKED: &str = "the rate that was asked for was served: the most is not known";

/// Whether the rate of a cell is the one that was asked for.
pub(crate) fn is_asked(metric: &Metric, cell: &Cell) -> bool {
    let offered = |repeat: &Repeat| repeat.values.get(number::OFFERED_IOPS).copied();
    let is_served = |repeat: &Repeat| offered(repeat).is_none_or(|of| is_served(of, repeat.iops));
    ["iops", "bandwidth", "concurrency"].contains(&metric.name.as_str())
        && cell.marks.contains(&Mark::OpenLoop)
        && cell.repeats.iter().any(is_served)
}

/// Whether the marks of these cells allow a sentence about this metric.
pub(crate) fn gate(sentence: Sentence, metric: &Metric, cells: &[&Cell]) -> Gate {
    let mut named: Vec<Mark> = Vec::new();
    for cell in cells {
        if !cell.is_measured() {
            return Gate::Forbidden { mark: None, cell: cell.label.clone() };
        }
        if sentence == Sentence::Capacity && is_asked(metric, cell) {
            return Gate::Forbidden { mark: Some(Mark::OpenLoop), cell: cell.label.clone() };
        }
        for mark in cell.marks.iter().filter(|mark| !is_expected(**mark, metric, cell)) {
            let rules = [sentence, Sentence::Cost].map(|sentence| match rule(*mark, sentence) {
                // What others may have done is in the interval.
                Rule::Forbidden if *mark == Mark::Disturbed && !cell.is_spoilt() => Rule::Named,
                rule => rule,
            });
            match rules[usize::from(metric.is_cpu() && rules[1] == Rule::Forbidden)] {
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

/// Whether a comparison of two values may be written: their marks allow it and the interval of
/// their difference leaves zero out. For a fixed bound, `other` is [`Estimate::exact`].
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

/// Whether the interval of the difference of two values leaves zero out, whatever the marks.
pub(crate) fn distinguish(one: &Estimate, other: &Estimate) -> Gate {
    match one.is_apart_from(other) {
        true => Gate::Allowed { named: Vec::new() },
        false if one.is_apart_when_quiet(other) => {
            Gate::NotDistinguishable { repeats: RepeatsNeeded::Quiet }
        }
        false => Gate::NotDistinguishable {
            repeats: match one.needed(other, NEEDED_MAX) {
                None if one.is_pooled() || other.is_pooled() => RepeatsNeeded::Pooled,
                None => RepeatsNeeded::Once,
                Some(None) => RepeatsNeeded::TooMany,
                Some(Some(count)) => RepeatsNeeded::About(count),
            },
        },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cells;
    use crate::results::{Environment, Role, Status, Value};
    use crate::testing::record;

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
        use Sentence::{Capacity, Comparison, Cost, Published, ShareOfLink};
        assert_eq!(forbidden(Mark::LoadLimited), [Capacity, Comparison, Published]);
        assert_eq!(forbidden(Mark::AboveFloor), [ShareOfLink]);
        assert_eq!(forbidden(Mark::BusyMachine), [Published, Cost]);
        assert_eq!(
            forbidden(Mark::Disturbed),
            [Capacity, Comparison, ShareOfLink, Published, Cost]
        );
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
        let estimate =
            |values: &[f64]| Estimate::of(values, crate::cells::Scale::Plain).expect("values");
        let (mean, plain) = (metric("mean"), cell(&deep(), &[Mark::Loopback]));
        let compare = |one: &Estimate, other: &Estimate| {
            compare(Sentence::Comparison, &mean, &[&plain], one, other)
        };
        let apart = compare(&estimate(&[10.0, 11.0, 12.0]), &estimate(&[20.0, 21.0, 22.0]));
        assert_eq!(apart, Gate::Allowed { named: vec![Mark::Loopback] });
        // A deviation of about 9 % each, and a quotient of 1.1.
        let near = compare(&estimate(&[10.0, 11.0, 12.0]), &estimate(&[11.0, 12.0, 13.2]));
        let Gate::NotDistinguishable { repeats: RepeatsNeeded::About(count) } = near else {
            panic!("{near:?}")
        };
        assert!((6..14).contains(&count), "{count}");
        let part = format!("about {count} repeats");
        assert!(near.refusal().is_some_and(|why| why.contains(&part)));
        let same = estimate(&[10.0, 11.0, 12.0]);
        assert_eq!(
            compare(&same, &same),
            Gate::NotDistinguishable { repeats: RepeatsNeeded::TooMany }
        );
        let single = compare(&estimate(&[10.0]), &estimate(&[90.0, 91.0]));
        assert_eq!(single, Gate::NotDistinguishable { repeats: RepeatsNeeded::Once });
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
}
