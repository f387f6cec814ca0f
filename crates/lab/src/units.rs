//! Formats what cells and settings have, for terminals and pages alike.

pub(crate) use weft_load::units::{
    Scale, bytes_text, capital, count, digits, percent, quantity, scale, show, time, times,
};

use crate::cells::{Estimate, Metric, Reading, Unit};
use crate::results::{Value, key, number};

/// The value of the metric that a plan calls so.
#[must_use]
pub fn of_metric(name: &str, value: f64) -> String {
    Metric::named(name).map_or_else(|| digits(value), |metric| show(metric.unit, value))
}

/// Whether both ends of an interval are about as far from a value above zero.
fn is_even(mean: f64, low: f64, high: f64) -> bool {
    const ALIKE: f64 = 0.75;
    let (down, up) = (mean - low, high - mean);
    mean > 0.0 && down.min(up) >= ALIKE * down.max(up)
}

/// An estimate with its spread: `123 K ± 4 %`, both ends where they are far or not as far from it,
/// or both values where there are only two.
pub(crate) fn show_estimate(unit: Unit, estimate: &Estimate) -> String {
    const EVEN: f64 = 0.2;
    let mean = show(unit, estimate.mean);
    let range =
        |low: f64, high: f64| format!("{mean} ({} … {})", show(unit, low), show(unit, high));
    match (estimate.interval(), estimate.count) {
        _ if estimate.is_pooled() => format!("{mean} (pooled)"),
        (Some((low, high)), _)
            if high <= estimate.mean * (1.0 + EVEN) && is_even(estimate.mean, low, high) =>
        {
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

#[cfg(test)]
mod tests {
    use super::*;

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
