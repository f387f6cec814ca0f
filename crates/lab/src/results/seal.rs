//! What a directory of results says of itself, so that a reader finds what was cut, edited or mixed
//! with another run's. It is no signature: who means to deceive can seal again.
//!
//! The seal of a line is a digest of the line before it, or of its seal, and of its own text. The
//! environment has the digests of the other files, how many lines there are, and the last seal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a digest: half of SHA-256.
const DIGITS: usize = 32;

/// What comes before the seal of a line, and of the environment.
const IN_LINE: &str = ",\"seal\":\"";
const IN_TEXT: &str = ",\n  \"seal\": \"";
const LINE_END: &str = "\"}";
const TEXT_END: &str = "\"\n}\n";

/// What the environment says of the other files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The digest of each.
    pub(crate) files: BTreeMap<String, String>,
    /// Lines of `results.jsonl`.
    pub(crate) lines: usize,
    /// The seal of the last one.
    pub(crate) chain: String,
}

/// The digest of a text, after another's.
pub(crate) fn digest(before: &str, text: &[u8]) -> String {
    let digest = Sha256::new().chain_update(before).chain_update(text).finalize();
    digest.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// A line with its seal, after the one before it, and the seal.
pub(super) fn line(before: &str, text: &str) -> (String, String) {
    let stem = text.strip_suffix('}').unwrap_or(text);
    let seal = digest(before, stem.as_bytes());
    (format!("{stem}{IN_LINE}{seal}{LINE_END}\n"), seal)
}

/// An environment with its seal.
pub(super) fn environment(text: &str) -> String {
    let stem = text.strip_suffix("\n}").unwrap_or(text);
    format!("{stem}{IN_TEXT}{}{TEXT_END}", digest("", stem.as_bytes()))
}

/// What a line's seal has to be after the one before it, and the one that it has, if it has any.
pub(crate) fn of_line<'a>(before: &str, line: &'a str) -> (String, Option<&'a str>) {
    let (stem, seal) = split(line, IN_LINE, LINE_END);
    let stem = if seal.is_some() { stem } else { line.strip_suffix('}').unwrap_or(line) };
    (digest(before, stem.as_bytes()), seal)
}

/// The same of an environment.
pub(crate) fn of_environment(text: &str) -> (String, Option<&str>) {
    let (stem, seal) = split(text, IN_TEXT, TEXT_END);
    (digest("", stem.as_bytes()), seal)
}

/// The value after some lines: the last seal, or a digest of lines without.
pub(super) fn after<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.fold(String::new(), |before, line| {
        let (wanted, seal) = of_line(&before, line);
        seal.map_or(wanted, str::to_owned)
    })
}

fn split<'a>(text: &'a str, begin: &str, end: &str) -> (&'a str, Option<&'a str>) {
    let found = text.strip_suffix(end).and_then(|text| {
        let (stem, seal) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
        Some((stem.strip_suffix(begin)?, seal))
    });
    found.map_or((text, None), |(stem, seal)| (stem, Some(seal)))
}
