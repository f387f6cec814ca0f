//! Results as an HTML page: one self-contained file for desktop, phone and print, light and dark.
//!
//! A page depends on the directories of results alone, not on clock, network or machine: the same
//! results always give the same page. Numbers are computed here and embedded as data; `page.js`
//! adds what depends on the reader's browser (colours, sizes, drawing order) and passes the data
//! to plotly.js, which draws everything. The page embeds that library compressed, and the browser
//! inflates it; in a browser that cannot do that the numbers are still shown as tables.

mod advice;
mod bare;
mod draw;
mod drift;
mod figure;
mod machines;
mod over_time;
mod page;
mod paper;
mod section;
mod styles;

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::results::{self, LoadError, Repeats};
use crate::{units, whole};

/// Why no page was written.
#[derive(Debug)]
pub enum ReportError {
    /// Results cannot be read.
    Load(LoadError),
    /// Two directories are of one run: a sentence.
    Copy(String),
    /// No directory was given.
    Nothing,
    /// The page cannot be written.
    Write {
        /// The path of the page.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Copy(what) => f.write_str(what),
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
    // The page is replaced as a whole, so that it is never half written.
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
    let (mut sections, mut known) = (Vec::new(), Repeats::default());
    for directory in directories {
        // One directory at a time: histograms are large, and a section does not keep them.
        let results = results::load(directory)?;
        known.add(&results).map_err(ReportError::Copy)?;
        let faults = whole::verify(directory).faults;
        sections.push(section::Section { faults, ..section::Section::of(&results) });
    }
    Ok(page::page(&sections))
}

#[cfg(test)]
mod tests;
