//! Reads a number and its unit, which sizes and durations have in common.

/// The number at the beginning of a text, and the unit behind it.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// A number, perhaps with a fraction, of units of this size: rounded down, and whether it is exact.
/// The error says what is wrong with the number.
pub(crate) fn times(number: &str, unit: u64) -> Result<(u64, bool), &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') {
        return Err("a number is missing");
    }
    if fraction.len() > 9 || fraction.contains('.') {
        return Err("the number cannot be read");
    }
    let digits: Option<u128> = format!("{whole}{fraction}").parse().ok();
    let product = digits.and_then(|digits| digits.checked_mul(unit.into()));
    let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let found = product.map(|product| (u64::try_from(product / scale), product % scale == 0));
    match found {
        Some((Ok(rounded), is_exact)) => Ok((rounded, is_exact)),
        _ => Err("it is too large"),
    }
}
