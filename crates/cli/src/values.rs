//! Values of options, as text: sizes, times, rates, processors and ways to wait.

use std::time::Duration;

use clap::ValueEnum;
use weft_load::Pattern;
use weft_reactor::DriverKind;

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PollingMode {
    /// Look for a while, then sleep.
    #[default]
    Adaptive,
    /// Always look.
    Spin,
    /// Always sleep.
    Sleep,
}

/// Which driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// io_uring where it is allowed.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

impl From<Driver> for DriverKind {
    fn from(driver: Driver) -> Self {
        match driver {
            Driver::Auto => Self::Auto,
            Driver::Uring => Self::Uring,
            Driver::Epoll => Self::Epoll,
        }
    }
}

/// A list of processors; a type of its own, or clap would take it for several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// A number, decimal or hexadecimal with 0x.
pub(crate) fn number<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = parsed.map_err(|error| error.to_string())?;
    N::try_from(number).map_err(|_| format!("{text} is too large"))
}

/// A number of bytes with its unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    weft_backend::bytes::parse(text).map_err(|error| error.to_string())
}

/// A number of bytes below 4 GiB.
pub(crate) fn size32(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| format!("{text} is too large"))
}

/// Seconds, as fio takes a bare number, or a time with its unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => weft_backend::duration::parse(text).map_err(|error| error.to_string()),
    }
}

/// A pattern, with fio's names.
pub(crate) fn pattern(text: &str) -> Result<Pattern, String> {
    text.parse().map_err(|error: weft_load::pattern::ParsePatternError| error.to_string())
}

/// A number of requests: `5000`, `20k`, `1.5M`; in thousands, for they are no bytes.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1e6),
            None => (text, 1.0),
        },
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no rate (try 5000, 20k)"))?;
    if number.is_finite() && number > 0.0 {
        Ok(number * factor)
    } else {
        Err(format!("{text:?} is no rate (try 5000, 20k)"))
    }
}

/// A whole number of requests.
pub(crate) fn whole_rate(text: &str) -> Result<u64, String> {
    let error = |_| format!("{text:?} is no whole rate (try 5000, 20k)");
    rate(text)?.to_string().parse().map_err(error)
}

/// A list of processors.
pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    weft_target::config::cpus::parse(text).map(Cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_rate_takes_thousands() {
        for (text, number) in [("5000", 5000), ("5k", 5000), ("1.5M", 1_500_000)] {
            assert_eq!(whole_rate(text), Ok(number), "{text}");
        }
        for text in ["0", "0.5", "-1", "fast", "5 k", "1e30"] {
            assert!(whole_rate(text).is_err(), "{text}");
        }
    }
}
