//! The parts of a device's description as text: paths, options and their values.

use crate::{BLOCK_BYTES_DEFAULT, bytes};
use core::fmt;
use std::path::{Path, PathBuf};

/// The smallest block size, that of a file whose size is no multiple of a larger one.
pub(super) const BLOCK_BYTES_MIN: u32 = 512;

/// Why a text is not a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpecError(pub(crate) String);

impl ParseSpecError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for ParseSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParseSpecError {}

/// Splits a path from its options. A comma in the path is written twice.
pub fn split_path(text: &str) -> (PathBuf, &str) {
    let mut path = String::new();
    let mut rest = text;
    while let Some((part, behind)) = rest.split_once(',') {
        path.push_str(part);
        let Some(behind) = behind.strip_prefix(',') else { return (path.into(), behind) };
        path.push(',');
        rest = behind;
    }
    path.push_str(rest);
    (path.into(), "")
}

pub(super) fn checked_path(text: &str) -> Result<(PathBuf, &str), ParseSpecError> {
    let (path, options) = split_path(text);
    if path.as_os_str().is_empty() {
        return Err(ParseSpecError("the path is missing".to_owned()));
    }
    Ok((path, options))
}

pub(super) fn escape_commas(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Parses a probability: `0.25` is 250,000 of a million.
pub(super) fn per_million(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = fraction.len();
    let valid = (1..=6).contains(&digits) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: u32 = if valid { fraction.parse().ok()? } else { return None };
    let fraction = fraction * 10u32.pow(6 - u32::try_from(digits).ok()?);
    match whole {
        "0" => Some(fraction),
        "1" if fraction == 0 => Some(1_000_000),
        _ => None,
    }
}

pub(super) fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',')
        .filter(|option| !option.is_empty())
        .map(|option| option.split_once('=').unwrap_or((option, "")))
}

pub(crate) fn unknown(key: &str, known: &str) -> ParseSpecError {
    let meant = meant(key, known.split(", "));
    let comma = if known.contains("shared") { "; a comma in a path is written \",,\"" } else { "" };
    ParseSpecError(format!("{key:?} is not an option here{meant} (options: {known}{comma})"))
}

/// A known word that differs in one letter, or else the shortest one that ends with this one
/// (`iops`: `rate-iops`), or else that with the smallest edit distance, if that is less than half
/// its length.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known.iter().map(|known| (edit_distance(word, known), *known));
    let near = near.filter(|(distance, known)| 2 * distance < known.len()).min();
    if let Some((1, known)) = near {
        return Some(known);
    }
    let ends = |known: &&&str| known.strip_suffix(word).is_some_and(|s| s.ends_with(['-', '_']));
    let longer = known.iter().filter(ends).copied().min_by_key(|known| known.len());
    longer.or(near.map(|(_, known)| known))
}

/// What is said behind a word that is not known: the nearest one, if there is one.
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or(String::new(), |known| format!(", did you mean {known}?"))
}

/// How many characters are to be inserted, deleted, replaced, or exchanged with their neighbours.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let (mut before, mut above) = (Vec::new(), (0..=to.len()).collect::<Vec<usize>>());
    let mut last = None;
    for (row, mine) in from.chars().enumerate() {
        let mut own = vec![row + 1];
        for (at, theirs) in to.iter().enumerate() {
            let replaced = above[at] + usize::from(mine != *theirs);
            let mut least = replaced.min(above[at + 1] + 1).min(own[at] + 1);
            if at > 0 && last == Some(*theirs) && to[at - 1] == mine {
                least = least.min(before[at - 1] + 1);
            }
            own.push(least);
        }
        (before, above) = (above, own);
        last = Some(mine);
    }
    above[to.len()]
}

pub(crate) fn size(text: &str) -> Result<u64, ParseSpecError> {
    bytes::parse(text).map_err(|error| ParseSpecError(error.to_string()))
}

pub(crate) fn block_size(text: &str) -> Result<u32, ParseSpecError> {
    let bytes = u32::try_from(size(text)?).unwrap_or(u32::MAX);
    check_block_size(bytes).map(|()| bytes)
}

pub(super) fn check_block_size(bytes: u32) -> Result<(), ParseSpecError> {
    let what = || ParseSpecError(format!("the block size is 512 or 4096 bytes, not {bytes}"));
    [BLOCK_BYTES_MIN, BLOCK_BYTES_DEFAULT].contains(&bytes).then_some(()).ok_or_else(what)
}

pub(crate) fn switch(text: &str) -> Result<bool, ParseSpecError> {
    match text {
        "on" | "yes" | "true" | "1" | "" => Ok(true),
        "off" | "no" | "false" | "0" => Ok(false),
        _ => Err(ParseSpecError(format!("{text:?} is neither on nor off"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_counts_characters() {
        assert_eq!(
            (
                edit_distance("", "abc"),
                edit_distance("abc", ""),
                edit_distance("kitten", "sitting")
            ),
            (3, 3, 3)
        );
    }

    #[test]
    fn the_nearest_word_ends_with_what_was_written_or_is_spelt_like_it() {
        let known = ["loops", "rate-iops", "rate-iops-min", "iodepth"];
        for (word, expected) in [
            ("iops", ", did you mean rate-iops?"),
            ("io_depth", ", did you mean iodepth?"),
            ("loop", ", did you mean loops?"),
            ("verify", ""),
        ] {
            assert_eq!(meant(word, known), expected, "{word}");
        }
        // One letter is less than a word before it.
        assert_eq!(nearest("limit", ["rate-limit", "limits"]), Some("limits"));
    }
}
