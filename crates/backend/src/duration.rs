//! Parses and prints durations: `100us`, `1.5ms`, `2s`.

use core::fmt;
use core::time::Duration;

use crate::quantity;

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError {
    text: String,
}

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a span of time (try 50us, 1.5ms, 2s)", self.text)
    }
}

impl core::error::Error for ParseDurationError {}

/// Parses a number with its unit: `ns`, `us` (or `µs`), `ms`, `s`, `min` (or fio's `m`), `h`. `0`
/// needs no unit.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    parse_nanoseconds(text.trim())
        .map(Duration::from_nanos)
        .ok_or_else(|| ParseDurationError { text: text.to_owned() })
}

/// Prints a duration so that [`parse`] returns the same again: in the largest unit that divides it.
pub fn exact(span: Duration) -> String {
    let nanoseconds = span.as_nanos();
    for (name, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if nanoseconds != 0 && nanoseconds.is_multiple_of(size) {
            return format!("{}{name}", nanoseconds / size);
        }
    }
    format!("{nanoseconds}ns")
}

fn parse_nanoseconds(text: &str) -> Option<u64> {
    let (number, unit) = quantity::split(text);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" if number == "0" => 1,
        _ => return None,
    };
    quantity::times(number, unit).ok().map(|(nanoseconds, _)| nanoseconds)
}

/// Serde: a duration as such a text.
pub mod as_text {
    use core::time::Duration;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the exact text.
    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::exact(*span))
    }

    /// Reads a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_read() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("5ns", 5),
            ("50us", 50_000),
            ("50µs", 50_000),
            ("1.5ms", 1_500_000),
            ("2 s", 2_000_000_000),
            ("1min", 60_000_000_000),
            ("2m", 120_000_000_000),
            ("1.5h", 5_400_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "5", "ms", "-1s", "1.s", "1d", "1e3s", "99999999999999999999s", ".5s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_exact_form_reads_back(nanoseconds in any::<u64>(), shift in 0u32..64) {
            let span = Duration::from_nanos(nanoseconds >> shift);
            prop_assert_eq!(parse(&exact(span)), Ok(span));
        }
    }
}
