//! What follows from the rows of a claim, in a sentence without its full stop.

use super::ask::{Ask, Beside};
use super::make::ClaimRows;
use super::{Number, Row, Verdict};
use crate::units;

impl Ask {
    pub(super) fn consequence(&self, made: &ClaimRows) -> String {
        let rows: Vec<&Row> =
            made.rows.iter().filter(|row| row.verdict != Verdict::Reference).collect();
        let parts = match self.beside {
            _ if rows.is_empty() => vec![self.nothing(made.has_local)],
            Beside::Best => {
                let leader = made.leader.and_then(|at| made.rows.get(at));
                best(&rows, leader, self.is_choice, self.metric.is_cpu())
            }
            Beside::Second => by_verdict(&rows),
            Beside::Local | Beside::Alone => each(&rows, &made.beside, false),
            Beside::Highest | Beside::Parity | Beside::Borne | Beside::Capacity => {
                each(&rows, &made.beside, true)
            }
        };
        let question = match self.beside {
            Beside::Second => format!("{}, {}", self.question, made.beside),
            _ => self.question.clone(),
        };
        format!("{}: {}", units::capital(&question), parts.join("; "))
    }
}

impl Ask {
    /// Why there is no row but that of local, if that was measured.
    fn nothing(&self, has_local: bool) -> String {
        if has_local {
            return "no answer: nothing was measured beside local".to_owned();
        }
        let at = self.at.iter().map(|(key, value)| units::setting(key, value));
        let at = at.collect::<Vec<String>>().join(", ");
        let cells = if at.is_empty() { "cell".to_owned() } else { format!("cell with {at}") };
        format!("no answer: no {cells} was measured")
    }
}

fn told(row: &Row) -> String {
    let number = row.value.as_ref().map(Number::told).unwrap_or_default();
    let at = if row.at.is_empty() { String::new() } else { format!(" at {}", row.at) };
    format!("{number}{at}")
}

/// What is said of rows without a value or without a verdict, those with the same reason together.
fn untold(rows: &[&Row]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| row.verdict == Verdict::CannotTell) {
        match reasons.iter_mut().find(|(known, _)| *known == row.why) {
            Some((_, names)) => names.push(&row.contender),
            None => reasons.push((&row.why, vec![&row.contender])),
        }
    }
    let of = |(why, names): &(&str, Vec<&str>)| match names.len() {
        count if count > 2 && count == rows.len() => format!("all {count} of them: {why}"),
        _ => format!("{}: {why}", names.join(", ")),
    };
    reasons.iter().map(of).collect()
}

/// The best contender, those as good, and the others.
fn best(rows: &[&Row], leader: Option<&Row>, is_choice: bool, is_cost: bool) -> Vec<String> {
    let Some(leader) = leader else {
        return std::iter::once("no answer".to_owned()).chain(untold(rows)).collect();
    };
    let name = &leader.contender;
    let mut parts = match leader.verdict {
        Verdict::Value => vec![format!("{} ({name})", told(leader))],
        Verdict::Yes if is_choice => vec![format!("take {name}, {}", told(leader))],
        Verdict::Yes => vec![format!("{name}, {}", told(leader))],
        _ if rows.len() == 1 => vec![format!("cannot tell; {name} has {}", told(leader))],
        _ => vec![format!("cannot tell; the best is {name} with {}", told(leader))],
    };
    let of = |row: &&Row| {
        let beside = row.beside.as_ref().map(|of| of.text.clone()).unwrap_or_default();
        let saved = row.beside.as_ref().map(|of| 1.0 - 1.0 / of.value);
        let saved = saved.filter(|_| is_cost && row.verdict == Verdict::No);
        let saved = saved.map(|share| format!(", of which {} are saved", units::percent(share)));
        format!("{} ({beside}{})", row.contender, saved.unwrap_or_default())
    };
    for (verdict, what) in [(Verdict::Yes, "within 5 % of it"), (Verdict::No, "worse")] {
        let with = rows.iter().filter(|row| row.verdict == verdict && row.beside.is_some());
        let with: Vec<String> = with.map(of).collect();
        if !with.is_empty() {
            parts.push(format!("{what}: {}", with.join(", ")));
        }
    }
    parts.extend(untold(rows));
    parts
}

/// Each row by itself.
fn each(rows: &[&Row], beside: &str, is_place_first: bool) -> Vec<String> {
    let decided = rows.iter().filter(|row| row.verdict != Verdict::CannotTell);
    let of = |row: &&Row| {
        let beside = row.beside.as_ref().map(|of| format!("{} {beside}", of.told()));
        let value = row.value.as_ref().map(Number::told).unwrap_or_default();
        let at = row.at.clone();
        let parts = if is_place_first { [at, value] } else { [value, at] };
        let parts = parts.into_iter().chain(beside).filter(|part| !part.is_empty());
        let why = if row.why.is_empty() { String::new() } else { format!(" ({})", row.why) };
        format!("{}: {}{why}", row.contender, parts.collect::<Vec<String>>().join(", "))
    };
    let told: Vec<String> = decided.map(of).collect();
    let none = told.is_empty().then(|| "no answer".to_owned());
    none.into_iter().chain(told).chain(untold(rows)).collect()
}

/// The places of each verdict, and the first and last number.
fn by_verdict(rows: &[&Row]) -> Vec<String> {
    let mut parts = Vec::new();
    for (verdict, what) in [(Verdict::Yes, "as good or better"), (Verdict::No, "worse")] {
        let places = rows.iter().filter(|row| row.verdict == verdict);
        let places: Vec<&str> = places.map(|row| row.contender.as_str()).collect();
        if !places.is_empty() {
            parts.push(format!("{what} at {}", places.join(", ")));
        }
    }
    if parts.is_empty() {
        parts.push("no answer".to_owned());
    }
    parts.extend(untold(rows));
    let numbers = rows.iter().filter_map(|row| Some((row, row.beside.as_ref()?)));
    let mut ends = numbers.map(|(row, of)| format!("{} at {}", of.told(), row.contender));
    let (first, last) = (ends.next(), ends.next_back());
    parts.extend(first.into_iter().chain(last));
    parts
}
