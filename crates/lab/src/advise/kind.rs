//! What requests are, and which measured ones stand for those that are asked for.

use super::question::Question;
use crate::cells::Cell;
use crate::results::{Value, key};
use crate::units;

/// The settings of requests.
pub(super) const OF_THE_REQUESTS: [&str; 3] = [key::PATTERN, key::READ_PERCENT, key::BLOCK_BYTES];

/// What fio mixes unless it is told.
const MIXED: f64 = 50.0;

/// A kind of request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kind {
    /// Where they go: at random, in order, or what else the pattern is.
    order: String,
    /// How many of a hundred read.
    read_percent: f64,
    block_bytes: Option<f64>,
}

impl Kind {
    fn new(pattern: &str, read_percent: Option<f64>, block_bytes: Option<f64>) -> Self {
        let mixed = read_percent.unwrap_or(MIXED);
        let (order, read_percent) = match pattern {
            "randread" => ("random", 100.0),
            "randwrite" => ("random", 0.0),
            "randrw" => ("random", mixed),
            "read" => ("in order", 100.0),
            "write" => ("in order", 0.0),
            "rw" => ("in order", mixed),
            other => (other, 100.0),
        };
        Self { order: order.to_owned(), read_percent, block_bytes }
    }

    pub(super) fn of(cell: &Cell) -> Self {
        let pattern = cell.text(key::PATTERN);
        Self::new(pattern, cell.number(key::READ_PERCENT), cell.number(key::BLOCK_BYTES))
    }

    /// What is asked for, of what was measured.
    ///
    /// # Errors
    /// The question does not say which of the measured ones.
    pub(super) fn asked(question: &Question, cells: &[&Cell]) -> Result<Self, String> {
        let mut exact = cells.iter().filter(|cell| is_asked_for(cell, question));
        if let Some(first) = exact.next() {
            let other = exact.find(|cell| Self::of(cell) != Self::of(first));
            return match other {
                None => Ok(Self::of(first)),
                Some(other) => {
                    let [one, other] = [first, other].map(|cell| words(cell));
                    Err(format!("give --rw and --bs: there are {one} and {other}"))
                }
            };
        }
        let measured: Vec<Self> = cells.iter().map(|cell| Self::of(cell)).collect();
        let first = measured.first().cloned().unwrap_or_default();
        let own = match &question.pattern {
            Some(pattern) => Self::new(pattern, question.read_percent.map(|one| one as f64), None),
            None => {
                let given = question.read_percent.map(|one| one as f64);
                let read_percent = given.unwrap_or(first.read_percent);
                Self { block_bytes: None, read_percent, ..first.clone() }
            }
        };
        let block_bytes = question.block_bytes.map(|bytes| bytes as f64).or(first.block_bytes);
        let asked = Self { block_bytes, ..own };
        let is_one = |of: &dyn Fn(&Self) -> (String, String)| {
            measured.iter().all(|kind| of(kind) == of(&first))
        };
        let order = |kind: &Self| {
            let mix = question.read_percent.is_none().then(|| kind.read_percent.to_string());
            (kind.order.clone(), mix.unwrap_or_default())
        };
        let size = |kind: &Self| (String::new(), format!("{:?}", kind.block_bytes));
        let is_clear = (question.pattern.is_some() || is_one(&order))
            && (question.block_bytes.is_some() || is_one(&size));
        if is_clear { Ok(asked) } else { Err(none_has(cells)) }
    }

    /// The measured ones that it is, or lies between, each with its weight; none if it does not.
    pub(super) fn between<'a>(&self, measured: &[&'a Self]) -> Option<Vec<(f64, &'a Self)>> {
        let near = |own: f64, all: &mut dyn Iterator<Item = f64>| {
            let ends = all.fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), one| {
                (
                    if one <= own { one.max(low) } else { low },
                    if one >= own { one.min(high) } else { high },
                )
            });
            let (low, high) =
                Some(ends).filter(|(low, high)| low.is_finite() && high.is_finite())?;
            let at = if high > low { (own - low) / (high - low) } else { 0.0 };
            Some([(1.0 - at, low), (at, high)])
        };
        let alike = || measured.iter().copied().filter(|kind| kind.order == self.order);
        let mixes = near(self.read_percent, &mut alike().map(|kind| kind.read_percent))?;
        let size = |kind: &Self| kind.block_bytes.unwrap_or(1.0).max(1.0).ln();
        let sizes = near(size(self), &mut alike().map(size))?;
        let mut all = Vec::new();
        for (mix_weight, mix) in mixes {
            for (size_weight, bytes) in sizes {
                let weight = mix_weight * size_weight;
                if weight > 0.0 {
                    let is = |kind: &&Self| kind.read_percent == mix && size(kind) == bytes;
                    all.push((weight, alike().find(is)?));
                }
            }
        }
        Some(all)
    }

    /// Whether it is one of those of these cells, or lies between some.
    pub(super) fn is_within(&self, cells: &[Cell]) -> bool {
        let kinds: Vec<Self> = cells.iter().map(Self::of).collect();
        self.between(&kinds.iter().collect::<Vec<_>>()).is_some()
    }

    /// Which part of them reads.
    pub(super) fn read_part(&self) -> f64 {
        self.read_percent / 100.0
    }

    /// Bytes of each.
    pub(super) fn bytes(&self) -> f64 {
        self.block_bytes.unwrap_or(4096.0)
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        let bytes = self.block_bytes.map(|bytes| units::bytes_text(weft_load::units::whole(bytes)));
        let reads = format!("{} % reads", units::digits(self.read_percent));
        [Some(self.order.clone()), Some(reads), bytes]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// That no measured cell has such requests.
pub(super) fn none_has(cells: &[&Cell]) -> String {
    let mut kinds: Vec<String> = cells.iter().map(|cell| words(cell)).collect();
    kinds.sort();
    kinds.dedup();
    format!("no cell has such requests: there are {}", kinds.join("; "))
}

/// A cell's requests in words.
fn words(cell: &Cell) -> String {
    let words = OF_THE_REQUESTS.iter().filter_map(|key| Some(units::short(key, cell.value(key)?)));
    words.collect::<Vec<String>>().join(", ")
}

fn is_asked_for(cell: &Cell, question: &Question) -> bool {
    let is = |key: &str, wanted: Option<Value>| {
        wanted.is_none_or(|wanted| cell.value(key) == Some(&wanted))
    };
    is(key::PATTERN, question.pattern.as_deref().map(Value::from))
        && is(key::READ_PERCENT, question.read_percent.map(Value::from))
        && is(key::BLOCK_BYTES, question.block_bytes.map(Value::from))
}
