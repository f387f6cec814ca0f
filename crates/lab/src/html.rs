//! Results as a page: one file that needs nothing else, on a phone, on paper, by day and by night.
//!
//! A page is a pure function of directories of results: no clock, no network, no machine is asked,
//! so the same results always give the same page. Numbers are computed here and carried as data;
//! what depends on who looks (colours, sizes, what is drawn first) is `page.js`, which hands the
//! data to plotly.js and draws nothing itself. The library travels in the page, compressed, and is
//! inflated by the browser; where a browser cannot, the numbers are still there as tables.

mod beside;
mod contest;
mod draw;
mod figure;
mod page;
mod section;
mod units;
mod words;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use crate::results::{self, LoadError};

/// Why there is no page.
#[derive(Debug)]
pub enum ReportError {
    /// Results cannot be read.
    Load(LoadError),
    /// No directory was named.
    Nothing,
    /// The page cannot be written.
    Write {
        /// Where to.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Nothing => f.write_str("a report needs at least one directory of results"),
            Self::Write { path, error } => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ReportError {}

impl From<LoadError> for ReportError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// Writes a report on some directories of results.
///
/// # Errors
/// Results cannot be read, or the page cannot be written.
pub fn write_report(directories: &[&Path], out: &Path) -> Result<(), ReportError> {
    let page = report(directories)?;
    // A page is there as before or as after, never half.
    let name = out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let new = out.with_file_name(format!(".{name}.new"));
    fs::write(&new, page)
        .and_then(|()| fs::rename(&new, out))
        .map_err(|error| ReportError::Write { path: out.to_owned(), error })
}

/// The report as text.
///
/// # Errors
/// Results cannot be read.
pub fn report(directories: &[&Path]) -> Result<String, ReportError> {
    if directories.is_empty() {
        return Err(ReportError::Nothing);
    }
    let mut sections = Vec::new();
    for directory in directories {
        // One after the other: histograms are large, what a section keeps of them is not.
        let results = results::load(directory)?;
        sections.push(section::Section::of(&results));
    }
    Ok(page::page(&sections))
}

#[cfg(test)]
mod tests;
