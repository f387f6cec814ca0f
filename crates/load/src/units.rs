//! Formats numbers, for terminals and pages alike.

use std::time::Duration;

const KIB: f64 = 1024.0;

/// The unit of a number, which determines how it is displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests a second.
    Iops,
    /// Bytes a second.
    BytesPerSecond,
    /// Nanoseconds.
    Time,
    /// Percent of one core.
    CorePercent,
    /// Cores.
    Cores,
    /// Percent of one core for each Gb/s.
    CorePercentPerGbps,
    /// Events a second.
    PerSecond,
    /// A factor.
    Times,
    /// A share of a whole; 1 is all of it.
    Share,
}

/// A scale for numbers up to a certain size: divisor and name of the unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// What a number is divided by.
    pub divisor: f64,
    /// The unit's name.
    pub name: &'static str,
}

/// A count or rate: `987`, `12.3 K`, `4.56 M`.
#[must_use]
pub fn count(number: f64) -> String {
    show(Unit::Iops, number)
}

/// A time: `999 ns`, `12.34 µs`, `123.5 ms`.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        t if t < 1e3 => format!("{t:.0} ns"),
        t if t < 1e5 => format!("{:.2} µs", t / 1e3),
        t if t < 1e6 => format!("{:.1} µs", t / 1e3),
        t if t < 1e8 => format!("{:.2} ms", t / 1e6),
        t if t < 1e9 => format!("{:.1} ms", t / 1e6),
        t => format!("{:.2} s", t / 1e9),
    }
}

/// In nanoseconds, or the most that there is.
#[must_use]
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A number's whole part; one that is too large, or none, becomes the nearest end.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the cast saturates, which is what is wanted")]
#[allow(clippy::cast_sign_loss, reason = "the cast saturates, which is what is wanted")]
pub fn whole(number: f64) -> u64 {
    number as u64
}

/// A rate of bytes in powers of 1024: `4.71 GiB/s`.
#[must_use]
pub fn byte_rate(bytes_per_second: f64) -> String {
    show(Unit::BytesPerSecond, bytes_per_second)
}

/// The same in powers of 1000, as links are rated: `5.05 GB/s`.
#[must_use]
pub fn decimal_byte_rate(bytes_per_second: f64) -> String {
    let (divisor, name) = match bytes_per_second {
        rate if rate >= 1e9 => (1e9, "GB/s"),
        rate if rate >= 1e6 => (1e6, "MB/s"),
        rate if rate >= 1e3 => (1e3, "kB/s"),
        _ => (1.0, "B/s"),
    };
    format!("{} {name}", digits(bytes_per_second / divisor))
}

/// A share in percent: `25 %`, `6.0 %`, `0.41 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let value = 100.0 * share;
    match value.abs() {
        size if size >= 9.95 => format!("{value:.0} %"),
        size if size >= 0.95 || size == 0.0 => format!("{value:.1} %"),
        _ => format!("{value:.2} %"),
    }
}

/// The scale of an axis whose largest number is `most`.
#[must_use]
pub fn scale(unit: Unit, most: f64) -> Scale {
    let steps: &[(f64, &str)] = match unit {
        Unit::Iops => &[(1e6, "M IOPS"), (1e3, "K IOPS"), (1.0, "IOPS")],
        Unit::BytesPerSecond => {
            &[(KIB * KIB * KIB, "GiB/s"), (KIB * KIB, "MiB/s"), (KIB, "KiB/s"), (1.0, "B/s")]
        }
        Unit::Time => &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")],
        Unit::Cores => &[(1.0, "cores")],
        Unit::CorePercent => &[(1.0, "% of a core")],
        Unit::CorePercentPerGbps => &[(1.0, "% of a core per Gb/s")],
        Unit::PerSecond => &[(1e6, "M/s"), (1e3, "K/s"), (1.0, "/s")],
        Unit::Times => &[(1.0, "×")],
        Unit::Share => &[(0.01, "%")],
    };
    let (divisor, name) = steps
        .iter()
        .find(|(divisor, _)| most >= *divisor)
        .or(steps.last())
        .copied()
        .unwrap_or((1.0, ""));
    Scale { divisor, name }
}

/// A number with its unit.
#[must_use]
pub fn show(unit: Unit, value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match unit {
        Unit::Time if value < 0.0 => format!("−{}", time(-value)),
        Unit::Time => time(value),
        Unit::Share => format!("{} %", digits(100.0 * value)),
        Unit::Times => format!("{} ×", digits(value)),
        Unit::Cores => format!("{} cores", digits(value)),
        Unit::CorePercent => format!("{} %", digits(value)),
        Unit::CorePercentPerGbps => format!("{} %/Gb/s", digits(value)),
        Unit::Iops | Unit::BytesPerSecond | Unit::PerSecond => {
            let Scale { divisor, name } = scale(unit, value.abs());
            let name = name.trim_end_matches("IOPS").trim_end();
            let space = if name.is_empty() || name.starts_with('/') { "" } else { " " };
            format!("{}{space}{name}", digits(value / divisor))
        }
    }
}

/// As [`show`], with the unit of a rate of requests.
#[must_use]
pub fn quantity(unit: Unit, value: f64) -> String {
    let text = show(unit, value);
    if unit == Unit::Iops { format!("{text} IOPS") } else { text }
}

/// A number with three significant digits.
#[must_use]
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        size if size >= 0.000_995 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// A factor: `2.3 times`.
#[must_use]
pub fn times(factor: f64) -> String {
    match factor {
        f if f >= 99.5 => format!("{f:.0} times"),
        f if f >= 9.95 => format!("{f:.1} times"),
        f => format!("{f:.2} times"),
    }
}

/// `4 KiB`; bytes if no unit divides them.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

/// A sentence's first letter is a capital.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(letters).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_suitable_units() {
        for (unit, value, text) in [
            (Unit::Iops, 987.0, "987"),
            (Unit::Iops, 123_456.0, "123 K"),
            (Unit::Iops, 1_234_567.0, "1.23 M"),
            (Unit::BytesPerSecond, 1_048_576.0 * 512.0, "512 MiB/s"),
            (Unit::BytesPerSecond, 1_073_741_824.0 * 3.5, "3.50 GiB/s"),
            (Unit::Time, 12_340.0, "12.34 µs"),
            (Unit::Time, 1_500_000.0, "1.50 ms"),
            (Unit::Time, -1_500.0, "−1.50 µs"),
            (Unit::Share, 0.4321, "43.2 %"),
            (Unit::Times, 6.8, "6.80 ×"),
            (Unit::PerSecond, 25_000.0, "25.0 K/s"),
            (Unit::PerSecond, 12.0, "12.0/s"),
            (Unit::CorePercent, 101.2, "101 %"),
            (Unit::Iops, f64::NAN, "–"),
        ] {
            assert_eq!(show(unit, value), text);
        }
    }

    #[test]
    fn numbers_have_three_digits_at_every_magnitude() {
        for (number, text) in [
            (0.0, "0"),
            (12.34, "12.3"),
            (999.4, "999"),
            (9_999.0, "10.0 K"),
            (12_345.0, "12.3 K"),
            (123_456.0, "123 K"),
            (1_234_567.0, "1.23 M"),
            (12_345_678.0, "12.3 M"),
            (123_456_789.0, "123 M"),
        ] {
            assert_eq!(count(number), text);
        }
        for (ns, text) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1_234.0, "1.23 µs"),
            (123_456.0, "123.5 µs"),
            (1_234_567.0, "1.23 ms"),
            (123_456_789.0, "123.5 ms"),
            (1.5e9, "1.50 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        for (bytes, binary, decimal) in [
            (999.0, "999 B/s", "999 B/s"),
            (5_054_464_000.0, "4.71 GiB/s", "5.05 GB/s"),
            (40_960_000.0, "39.1 MiB/s", "41.0 MB/s"),
            (16_000.0, "15.6 KiB/s", "16.0 kB/s"),
        ] {
            assert_eq!(
                (byte_rate(bytes), decimal_byte_rate(bytes)),
                (binary.into(), decimal.into())
            );
        }
    }
}
