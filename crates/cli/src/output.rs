//! Standard output and standard error.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::failure::Failure;

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    #[value(alias = "normal")]
    Human,
    /// For programs.
    Json,
}

/// Writes text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Writes JSON to standard output.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Writes a line to standard error. Where that is gone too, nobody is left to be told.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A line on a terminal that is written over again and again; nothing where there is no terminal.
#[derive(Debug)]
pub(crate) struct LiveLine {
    terminal: bool,
    shown: bool,
}

impl LiveLine {
    /// A line on standard error.
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: false }
    }

    /// Shows a text in place of the last one.
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            // Back to the start, and clear what is longer than the new text.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
            self.shown = true;
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.clear();
    }
}
