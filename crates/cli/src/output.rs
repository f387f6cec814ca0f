//! Standard output and standard error.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use crate::failure::Failure;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text.
    #[default]
    #[value(alias = "normal")]
    Human,
    /// JSON.
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

/// Writes a line to standard error, ignoring errors.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The columns of standard output; none if it is no terminal.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Shortens a text to fewer than `columns` characters, so that it does not wrap and scroll; 0 means
/// unknown, and 80 is assumed.
fn cut(text: &str, columns: usize) -> String {
    let columns = if columns == 0 { 80 } else { columns };
    if text.chars().count() < columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(2)).collect();
    short.push('…');
    short
}

/// A status line on a terminal, overwritten in place; without a terminal nothing is written.
#[derive(Debug)]
pub(crate) struct LiveLine {
    terminal: bool,
    /// Without a terminal each text is a line of its own.
    always: bool,
    shown: bool,
}

impl LiveLine {
    /// A status line on standard error.
    pub(crate) fn new() -> Self {
        Self::of((true, false))
    }

    /// One that is wanted or not, and also without a terminal or not.
    pub(crate) fn of((is_wanted, always): (bool, bool)) -> Self {
        Self { terminal: is_wanted && io::stderr().is_terminal(), always, shown: false }
    }

    /// Replaces the text.
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
            // To the start of the line; clear the rest of the previous text.
            let _ = write!(io::stderr(), "\r{}\x1b[K", cut(text, columns));
            self.shown = true;
        } else if self.always {
            complain(text);
        }
    }

    /// Removes the line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_fills_its_last_column() {
        let text = "run 4 s (37 %), 6 s left  1.23 M IOPS  p99 12.34 µs  4.71 GiB/s";
        for columns in [1, 60, 80, 200] {
            let shown = cut(text, columns);
            assert!(shown.chars().count() <= columns, "{columns}: {shown}");
            assert!(columns < 80 || shown == text, "{columns}: {shown}");
        }
        assert_eq!(cut(text, 60), "run 4 s (37 %), 6 s left  1.23 M IOPS  p99 12.34 µs  4.71 …");
        assert_eq!(cut(text, 0), text);
    }
}
