//! What stands after `=` in fio's words.
//!
//! Sizes and times have a reader of their own, beside that of all other text (`weft_backend`): in
//! fio's words `kb` is 1024 or what `kb_base` says, a number alone has the unit of its key, and a
//! size may be a product or hexadecimal.

use std::time::Duration;

use crate::job::Extent;
use crate::pattern::sizes::Sizes;
use crate::pattern::spread::{Spread, Zone, ZoneLength};
use crate::units::whole;

/// A number of bytes as fio reads it: `4k`, `4kb` and, by its name, `4KiB` are 4096.
pub(super) fn bytes(text: &str, kilo: u64) -> Result<u64, String> {
    let fault = || format!("{text:?} is not a size (try 4k, 512m, 1g)");
    let trimmed = text.trim();
    let mut product: u64 = 1;
    // `8*$mb_memory`, as far as fio's arithmetic is followed.
    for factor in trimmed.split('*') {
        let factor = factor.trim();
        if factor.starts_with('(') {
            return Err(format!("{text:?}: arithmetic is not done: give the number"));
        }
        product = product.checked_mul(one(factor, kilo).ok_or_else(fault)?).ok_or_else(fault)?;
    }
    Ok(product)
}

fn one(text: &str, kilo: u64) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.to_ascii_lowercase();
    let (base, unit) = match unit.strip_suffix("ib").or(unit.strip_suffix('i')) {
        Some(unit) => (1024, unit),
        None => (kilo, unit.strip_suffix('b').unwrap_or(&unit)),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|name| *name == unit)?;
    let factor = base.checked_pow(u32::try_from(power).ok()?)?;
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(factor),
        Some(_) => {
            let scaled = number.parse::<f64>().ok()? * factor as f64;
            (scaled.fract() == 0.0 && scaled < 1e18).then(|| whole(scaled))
        }
    }
}

/// A length that fits a request.
pub(super) fn bytes32(text: &str, kilo: u64) -> Result<u32, String> {
    u32::try_from(bytes(text, kilo)?).map_err(|_| format!("{text} is too large"))
}

/// A count, without a unit: fio takes `20k` for 20480, others for 20000.
pub(super) fn count(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| {
        if text.trim().ends_with(['k', 'K', 'm', 'M']) {
            format!("{text:?}: fio takes k for 1024 here: give the number itself")
        } else {
            format!("{text:?} is not a number")
        }
    })
}

/// A number that may have a fraction.
pub(super) fn real(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| match text.trim().strip_suffix(['k', 'K']) {
        Some(_) => format!("{text:?} is not a number: fio takes no k here, write 5000 for 5k"),
        None => format!("{text:?} is not a number"),
    })
}

/// A percentage, 0 to 100.
pub(super) fn percent(text: &str) -> Result<u32, String> {
    let number = count(text.trim().trim_end_matches('%'))?;
    u32::try_from(number)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| format!("{text:?} is not within 0 to 100"))
}

/// Bytes, or a percentage of something.
pub(super) fn extent(text: &str, kilo: u64) -> Result<Extent, String> {
    match text.trim().strip_suffix('%') {
        Some(number) => percent(number).map(Extent::Percent),
        None => bytes(text, kilo).map(Extent::Bytes),
    }
}

/// A flag: set where no value is given.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.trim() {
        "1" | "true" | "" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("{text:?} is neither 0 nor 1")),
    }
}

/// A time: a number alone counts `unit`s.
pub(super) fn time(text: &str, unit: Duration) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let fault = || format!("{text:?} is not a span of time (try 10, 500ms, 5m)");
    let unit = match suffix.trim().to_ascii_lowercase().as_str() {
        "" => unit,
        "ns" => Duration::from_nanos(1),
        "us" | "usec" => Duration::from_micros(1),
        "ms" | "msec" => Duration::from_millis(1),
        "s" | "sec" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3_600),
        "d" => Duration::from_secs(86_400),
        _ => return Err(fault()),
    };
    let number: f64 = number.parse().map_err(|_| fault())?;
    Duration::try_from_secs_f64(number * unit.as_secs_f64()).map_err(|_| fault())
}

/// Up to three values, of reads, writes and trims. What is missing is what fio takes it for: one
/// alone is for all, and the last of two is for trims, too.
pub(super) fn directions<T: Clone>(
    text: &str,
    separator: char,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<[Option<T>; 3], String> {
    let parts: Vec<&str> = text.split(separator).collect();
    let value = |text: &str| match text.trim() {
        "" => Ok(None),
        text => parse(text).map(Some),
    };
    match parts.as_slice() {
        [all] => value(all).map(|all| [all.clone(), all.clone(), all]),
        [read, write] => {
            let write = value(write)?;
            Ok([value(read)?, write.clone(), write])
        }
        [read, write, trim] => Ok([value(read)?, value(write)?, value(trim)?]),
        _ => Err(format!("{text:?} has more than three values")),
    }
}

/// `min-max` or `min:max`.
pub(super) fn range<T: Copy + PartialOrd>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(T, T), String> {
    let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (low, high) = (parse(low)?, parse(high)?);
    Ok(if low <= high { (low, high) } else { (high, low) })
}

/// `4k-16k`.
pub(super) fn size_range(text: &str, kilo: u64) -> Result<Sizes, String> {
    let (low, high) = range(text, |text| bytes32(text, kilo))?;
    Ok(if low == high { Sizes::Fixed(low) } else { Sizes::Range(low, high) })
}

/// `4k/60:64k/40`: what has no percentage shares what is left.
pub(super) fn size_split(text: &str, kilo: u64) -> Result<Sizes, String> {
    let mut parts = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = if share.is_empty() { None } else { Some(percent(share)?) };
        parts.push((bytes32(size, kilo)?, share));
    }
    let shares = shares(parts.iter().map(|(_, share)| *share))?;
    let mut parts: Vec<(u32, u32)> =
        parts.into_iter().zip(shares).map(|((size, _), share)| (size, share)).collect();
    // As in fio, whose largest share takes what rounding leaves.
    parts.sort_by_key(|(_, share)| *share);
    parts.retain(|(_, share)| *share > 0);
    Ok(Sizes::Split(parts))
}

/// Shares in percent: those that are not given divide what is left.
fn shares(given: impl Iterator<Item = Option<u32>> + Clone) -> Result<Vec<u32>, String> {
    let sum: u32 = given.clone().flatten().sum();
    let missing = u32::try_from(given.clone().filter(Option::is_none).count()).unwrap_or(u32::MAX);
    let Some(left) = 100u32.checked_sub(sum) else {
        return Err(format!("the percentages add up to {sum}"));
    };
    if missing == 0 && left > 0 {
        return Err(format!("the percentages add up to {sum} and not to 100"));
    }
    Ok(given.map(|share| share.unwrap_or(left / missing.max(1))).collect())
}

/// `zipf:1.2`, `zoned:60/10:40/90` and the others.
pub(super) fn spread(text: &str, kilo: u64) -> Result<Spread, String> {
    let (law, rest) = text.split_once(':').unwrap_or((text, ""));
    let numbers = || -> Result<(f64, Option<f64>), String> {
        let (value, centre) = rest.split_once(':').map_or((rest, None), |(v, c)| (v, Some(c)));
        let centre = centre.map(real).transpose()?;
        if centre.is_some_and(|centre| !(0.0..=1.0).contains(&centre)) {
            return Err(format!("{text:?}: a centre is within 0 to 1"));
        }
        real(value).map(|value| (value, centre)).map_err(|_| format!("{text:?} wants a number"))
    };
    match law {
        "random" => Ok(Spread::Uniform),
        "zipf" => match numbers()? {
            (theta, _) if theta <= 0.0 || theta == 1.0 => {
                Err(format!("{text:?}: theta is above 0 and not 1"))
            }
            (theta, centre) => Ok(Spread::Zipf(theta, centre)),
        },
        "pareto" => match numbers()? {
            (h, _) if h <= 0.0 || h >= 1.0 => Err(format!("{text:?}: h is between 0 and 1")),
            (h, centre) => Ok(Spread::Pareto(h, centre)),
        },
        "normal" => match numbers()? {
            (percent, _) if !(0.0..=100.0).contains(&percent) => {
                Err(format!("{text:?}: the deviation is within 0 to 100"))
            }
            (percent, centre) => Ok(Spread::Normal(percent, centre)),
        },
        "zoned" | "zoned_abs" => zones(rest, law == "zoned_abs", kilo).map(Spread::Zoned),
        _ => Err(format!("{law:?} is none of random, zipf, pareto, normal, zoned, zoned_abs")),
    }
}

fn zones(text: &str, absolute: bool, kilo: u64) -> Result<Vec<Zone>, String> {
    if text.contains(',') {
        return Err("zones are for all directions: give one set".to_owned());
    }
    let mut parts = Vec::new();
    for part in text.split(':') {
        let (accesses, length) = part.split_once('/').unwrap_or((part, ""));
        parts.push((percent(accesses)?, length));
    }
    let accesses = shares(parts.iter().map(|(accesses, _)| Some(*accesses)))?;
    if absolute {
        let zone = |((_, length), accesses): (&(u32, &str), &u32)| {
            let length = ZoneLength::Bytes(bytes(length, kilo)?);
            Ok(Zone { accesses: *accesses, length })
        };
        return parts.iter().zip(&accesses).map(zone).collect();
    }
    let given: Result<Vec<Option<u32>>, String> = parts
        .iter()
        .map(|(_, length)| if length.is_empty() { Ok(None) } else { percent(length).map(Some) })
        .collect();
    let lengths = shares(given?.into_iter())?;
    let zone = |(accesses, length): (&u32, u32)| Zone {
        accesses: *accesses,
        length: ZoneLength::Percent(length),
    };
    Ok(accesses.iter().zip(lengths).map(zone).collect())
}

/// A list of processors, like `0-3,5`.
pub(super) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let fault = || format!("{text:?} is no list of processors (try 0-3,5)");
    let mut cpus = Vec::new();
    for part in text.split([',', ':']) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| fault())?;
        let last: usize = last.trim().parse().map_err(|_| fault())?;
        if last < first || last - first > 4096 {
            return Err(fault());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// What `verify_pattern` repeats: a number (`0xaa555aa5`, its bytes in the order in which they are
/// written), or a text in quotes.
pub(super) fn verify_pattern(text: &str) -> Result<Vec<u8>, String> {
    let fault = || format!("{text:?} is no pattern (try 0xdeadbeef or \"text\")");
    if let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return if quoted.is_empty() { Err(fault()) } else { Ok(quoted.as_bytes().to_vec()) };
    }
    if let Some(hex) = text.strip_prefix("0x") {
        let digits = if hex.len() % 2 == 1 { format!("0{hex}") } else { hex.to_owned() };
        let pairs = (0..digits.len()).step_by(2);
        let bytes = pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok());
        return bytes.collect::<Option<Vec<u8>>>().filter(|b| !b.is_empty()).ok_or_else(fault);
    }
    let number: u64 = text.parse().map_err(|_| fault())?;
    let bytes = number.to_le_bytes();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    Ok(bytes[..used].to_vec())
}
