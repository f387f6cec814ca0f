//! Formats numbers, for terminals and pages alike.

use crate::cells::{Estimate, Metric, Reading, Unit};
use crate::results::{Value, key, number};

const KIB: f64 = 1024.0;

/// A scale for numbers up to a certain size: divisor and name of the unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) divisor: f64,
    pub(crate) name: &'static str,
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

/// The value of the metric that a plan calls so.
#[must_use]
pub fn of_metric(name: &str, value: f64) -> String {
    Metric::named(name).map_or_else(|| digits(value), |metric| show(metric.unit, value))
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
pub(crate) fn scale(unit: Unit, most: f64) -> Scale {
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
pub(crate) fn show(unit: Unit, value: f64) -> String {
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
pub(crate) fn quantity(unit: Unit, value: f64) -> String {
    let text = show(unit, value);
    if unit == Unit::Iops { format!("{text} IOPS") } else { text }
}

/// A number with three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        size if size >= 0.000_995 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// An estimate with its spread: `123 K ± 4 %`, both ends where they are far or not as far from it,
/// or both values where there are only two.
pub(crate) fn show_estimate(unit: Unit, estimate: &Estimate) -> String {
    const EVEN: f64 = 0.2;
    let mean = show(unit, estimate.mean);
    let range =
        |low: f64, high: f64| format!("{mean} ({} … {})", show(unit, low), show(unit, high));
    match (estimate.interval(), estimate.count) {
        _ if estimate.pooled && estimate.count > 1 => format!("{mean} (pooled)"),
        (Some((_, high)), _) if high <= estimate.mean * (1.0 + EVEN) && estimate.mean > 0.0 => {
            format!("{mean} ± {}", percent(high / estimate.mean - 1.0))
        }
        (Some((low, high)), _) => range(low, high),
        (None, 2) => range(estimate.least, estimate.most),
        _ => mean,
    }
}

/// The value of a metric in a table.
pub(crate) fn show_reading(unit: Unit, reading: &Reading) -> String {
    match reading {
        Reading::Is(estimate) => show_estimate(unit, estimate),
        Reading::Unresolved => "unresolved".to_owned(),
        Reading::Unknown => "–".to_owned(),
    }
}

/// A factor: `2.3 times`.
pub(crate) fn times(factor: f64) -> String {
    match factor {
        f if f >= 99.5 => format!("{f:.0} times"),
        f if f >= 9.95 => format!("{f:.1} times"),
        f => format!("{f:.2} times"),
    }
}

/// A setting's value with its name.
pub(crate) fn setting(name: &str, value: &Value) -> String {
    let plural = |count: &str, one: &str, many: &str| {
        if count == "1" { format!("1 {one}") } else { format!("{count} {many}") }
    };
    let text = value.to_string();
    match name {
        key::DEPTH => format!("depth {text}"),
        key::JOBS => plural(&text, "job", "jobs"),
        key::CORES => format!("{} a side", plural(&text, "core", "cores")),
        key::HOST_CORES => plural(&text, "host core", "host cores"),
        key::TARGET_CORES => plural(&text, "target core", "target cores"),
        key::HOSTS => plural(&text, "host", "hosts"),
        key::SUBSYSTEMS => plural(&text, "subsystem", "subsystems"),
        key::HOST_POLLING => match text.as_str() {
            "spin" => "host polls".to_owned(),
            "sleep" => "host sleeps".to_owned(),
            _ => format!("{text} polling"),
        },
        key::TARGET_IDLE_POLL_US => format!("idle poll {text} µs"),
        key::TLS if text == "off" => "no TLS".to_owned(),
        key::TLS => format!("TLS, {text}"),
        key::TARGET_EXPRESS => format!("express {text}"),
        key::LOAD_PERCENT => format!("load {text} %"),
        key::READ_PERCENT => format!("{text} % reads"),
        key::SHARED => format!("{text} core"),
        key::BACKGROUND | key::NEIGHBOUR => format!("beside {text}"),
        key::RATE_IOPS => format!("{text} IOPS requested"),
        key::THINKTIME_US => format!("{text} µs pauses"),
        key::THINKTIME_BLOCKS => format!("after {text} requests"),
        key::TRANSPORT | key::PATTERN | key::FOREGROUND | key::PLACEMENT | key::RATE_PROCESS => {
            text
        }
        _ if name.ends_with("_bytes") => short(name, value),
        key::DEVICE => text,
        _ => format!("{} {text}", name.replace('_', " ")),
    }
}

/// The value alone, for an axis.
pub(crate) fn short(name: &str, value: &Value) -> String {
    match value.as_integer() {
        Some(bytes) if name.ends_with("_bytes") => bytes_text(bytes),
        None if name == number::OFFERED_IOPS => {
            value.as_number().map_or_else(String::new, |iops| show(Unit::Iops, iops))
        }
        _ => value.to_string(),
    }
}

/// `4 KiB`; bytes if no unit divides them.
pub(crate) fn bytes_text(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

/// The title of an axis.
pub(crate) fn axis(name: &str) -> String {
    match name {
        key::BLOCK_BYTES => "block size".to_owned(),
        key::DEPTH => "queue depth".to_owned(),
        key::CORES => "cores of each side".to_owned(),
        key::LOAD_PERCENT => "background load, % of saturation".to_owned(),
        key::TARGET_IDLE_POLL_US => "target idle poll, µs".to_owned(),
        key::SHARED => "core".to_owned(),
        key::TLS => "TLS".to_owned(),
        number::OFFERED_IOPS => "offered load, IOPS".to_owned(),
        _ => name.replace('_', " "),
    }
}

/// Ticks of a logarithmic axis from `least` to `most` in the axis' own scale: 1, 2, 5 and their
/// multiples by powers of ten, or fewer if that would be too many.
pub(crate) fn log_ticks(least: f64, most: f64) -> Vec<f64> {
    if !(least > 0.0 && most.is_finite() && most >= least) {
        return Vec::new();
    }
    let decades = (most / least).log10();
    let steps: &[f64] = match decades {
        d if d > 4.0 => &[1.0],
        d if d > 2.0 => &[1.0, 3.0],
        _ => &[1.0, 2.0, 5.0],
    };
    // One decade more on either side; values outside are removed again.
    #[expect(clippy::cast_possible_truncation, reason = "an exponent of a finite number")]
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    (first - 1..=last)
        .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
        .filter(|tick| *tick >= least * 0.5 && *tick <= most * 2.0)
        .collect()
}

/// A sentence's first letter is a capital.
pub(crate) fn capital(text: &str) -> String {
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

    #[test]
    fn a_metric_has_its_own_unit() {
        assert_eq!(of_metric("iops", 122_000.0), "122 K");
        assert_eq!(of_metric("bandwidth", 1_048_576.0), "1.00 MiB/s");
        assert_eq!(of_metric("p99.9", 12_340.0), "12.34 µs");
    }

    #[test]
    fn the_spread_is_shown_if_known() {
        let of = |values: &[f64]| Estimate::of(values, crate::cells::Scale::Plain).expect("values");
        assert_eq!(show_estimate(Unit::Iops, &of(&[1000.0])), "1.00 K");
        assert_eq!(show_estimate(Unit::Iops, &of(&[1000.0, 1200.0])), "1.10 K (1.00 K … 1.20 K)");
        assert_eq!(show_estimate(Unit::Iops, &of(&[1e5, 1.1e5, 1.2e5])), "110 K (85.2 K … 135 K)");
        assert_eq!(show_estimate(Unit::Time, &Estimate::pooled(2e6, 3)), "2.00 ms (pooled)");
        assert_eq!(show_reading(Unit::Time, &Reading::Unresolved), "unresolved");
    }

    #[test]
    fn settings_are_described() {
        let number = |value: u64| Value::from(value);
        assert_eq!(setting(key::BLOCK_BYTES, &number(131_072)), "128 KiB");
        assert_eq!(setting(key::BLOCK_BYTES, &number(512)), "512 B");
        assert_eq!(setting(key::JOBS, &number(1)), "1 job");
        assert_eq!(setting(key::DEPTH, &number(32)), "depth 32");
        assert_eq!(setting(key::HOST_POLLING, &Value::from("spin")), "host polls");
        assert_eq!(setting("other_thing", &number(3)), "other thing 3");
    }

    #[test]
    fn ticks_of_a_logarithmic_axis() {
        assert_eq!(log_ticks(10.0, 100.0), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(log_ticks(1.0, 1e5).first(), Some(&1.0));
        assert!(log_ticks(1.0, 1e6).len() <= 8);
        assert!(log_ticks(0.0, 10.0).is_empty() && log_ticks(f64::NAN, 1.0).is_empty());
    }
}
