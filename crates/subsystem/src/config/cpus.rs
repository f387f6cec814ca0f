//! Lists of processors.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Most processors a list may name: what the kernel's `cpu_set_t` holds.
const CPUS_MAX: usize = 1024;

/// Reads a list of processors as `taskset` writes it: `0`, `0-3`, `0,2,4-7`.
///
/// # Errors
/// A sentence that says which part is wrong.
pub fn parse(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let bad =
            || format!("{part:?} in {text:?} is not a list of processors (try 0, 0-3 or 0,2)");
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| bad())?;
        let last: usize = last.trim().parse().map_err(|_| bad())?;
        if last < first {
            return Err(bad());
        }
        if last >= CPUS_MAX {
            return Err(format!("processor {last} in {text:?} is beyond {}", CPUS_MAX - 1));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(format!("{text:?} names processor {cpu} twice"));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// Serde: a list as such a text, as numbers, or as one number.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<usize>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "processors are written as \"0-3\" or [0, 1]")]
    enum Notation {
        Text(String),
        List(Vec<usize>),
        One(usize),
    }
    match Notation::deserialize(deserializer)? {
        Notation::Text(text) => parse(&text).map_err(D::Error::custom),
        Notation::List(list) => Ok(list),
        Notation::One(cpu) => Ok(vec![cpu]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse("0"), Ok(vec![0]));
        assert_eq!(parse("0-3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(parse("0, 2,4-5"), Ok(vec![0, 2, 4, 5]));
    }

    #[test]
    fn a_bad_list_is_refused_with_its_part() {
        for text in ["", "a", "3-1", "0,0", "0-2,1", "1-", "99999", "-", ",", "0-18446744073709"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("0,x").is_err_and(|e| e.contains("\"x\" in \"0,x\"")));
    }
}
