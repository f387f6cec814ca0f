//! Standard output and standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::{Args, ValueEnum};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use weft_load::text;

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

impl Format {
    /// Prints a result, as a text or as JSON.
    pub(crate) fn print(self, text: &str, json: &Value) -> Result<(), Failure> {
        match self {
            Self::Human => print(text),
            Self::Json => print_json(json),
        }
    }
}

/// A text with `?` for what a terminal would obey rather than show: control characters, and those
/// that change the direction of text. Whatever is written passes here, since much of it is what a
/// peer has sent.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    match text.chars().any(is_obeyed) {
        true => text.replace(is_obeyed, "?").into(),
        false => text.into(),
    }
}

fn is_obeyed(one: char) -> bool {
    text::is_obeyed(one) && !matches!(one, '\n' | '\t')
}

/// Writes text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(printable(text).as_bytes())
}

/// Writes bytes to standard output as they are: none of them may be a peer's, but for data that was
/// asked for.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Writes JSON to standard output: what a terminal would obey is written as an escape.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&json(&format!("{value:#}\n")))
}

/// The same JSON, in whose strings nothing is left that a terminal would obey.
pub(crate) fn json(text: &str) -> String {
    let escaped = |one: char| match is_obeyed(one) {
        // What is beyond 16 bits has two of them.
        true => one.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        false => one.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The report of a verb about the blocks of a namespace that it treated.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BlockReport {
    /// Output format: a line on standard error, or an object on standard output.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

impl BlockReport {
    /// Whether standard output is for programs.
    pub(crate) fn is_json(self) -> bool {
        matches!(self.output_format, Format::Json)
    }

    /// So many bytes of a namespace were treated, as the text says.
    pub(crate) fn print(self, text: &str, nsid: u32, bytes: u64) -> Result<(), Failure> {
        if self.is_json() {
            return print_json(&json!({ "nsid": nsid, "bytes": bytes }));
        }
        print_error(text);
        Ok(())
    }
}

/// Writes a line to standard error, ignoring errors.
pub(crate) fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(text));
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
        Self::of(true, false)
    }

    /// One that is wanted or not, and also without a terminal or not.
    pub(crate) fn of(is_wanted: bool, always: bool) -> Self {
        Self { terminal: is_wanted && io::stderr().is_terminal(), always, shown: false }
    }

    /// Replaces the text.
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
            // To the start of the line; clear the rest of the previous text.
            let _ = write!(io::stderr(), "\r{}\x1b[K", cut(&printable(text), columns));
            self.shown = true;
        } else if self.always {
            print_error(text);
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

/// A file whose name nobody has given is not overwritten: `flag` would give it.
pub(crate) fn check_free(path: &Path, flag: &str) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Ok(_) => Err(Failure::Because(format!(
            "{} is there already: give {flag} FILE, or remove it",
            path.display()
        ))),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        for (text, shown) in [
            ("\x1b[31mred\x07", "?[31mred?"),
            ("a\tb\n", "a\tb\n"),
            ("\u{9b}2J\x7f\r\x08", "?2J???"),
            ("\u{202e}gpj.exe\u{2066}", "?gpj.exe?"),
            ("a\u{200b}b\u{feff}c\u{2028}d\u{e0041}", "a?b?c?d?"),
            ("größe, µs, 界", "größe, µs, 界"),
        ] {
            assert_eq!(printable(text), shown);
            let value = serde_json::json!({ text: [text] });
            for form in [value.to_string(), format!("{value:#}")] {
                let written = json(&form);
                assert_eq!(printable(&written), written);
                assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), value);
            }
        }
    }

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
