//! Progress of a study on the terminal.

use weft_lab::results::{Record, Role, Status};
use weft_lab::study::observe::{Position, StudyObserver};
use weft_load::{Progress, units};

use super::list::about;
use crate::output::{self, LiveLine};

/// A status line on a terminal; otherwise one line for each step.
#[derive(Debug)]
pub(super) struct StatusLine {
    live: LiveLine,
    terminal: bool,
    quiet: bool,
}

impl StatusLine {
    pub(super) fn new(quiet: bool) -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Self { live: LiveLine::new(), terminal, quiet }
    }

    /// Removes the status line.
    pub(super) fn clear(&mut self) {
        self.live.clear();
    }

    fn line(&mut self, text: &str) {
        if !self.quiet {
            self.live.clear();
            output::print_error(text);
        }
    }
}

impl StudyObserver for StatusLine {
    fn begins(&mut self, position: &Position, what: &str) {
        if !self.quiet {
            self.live.show(&format!("{} {what}", place(position)));
        }
    }

    fn progress(&mut self, position: &Position, what: &str, progress: &Progress) {
        if self.quiet {
            return;
        }
        let iops = units::count(progress.read_iops + progress.write_iops);
        let p99 = progress.p99_ns.map(|ns| format!(", p99 {}", units::time(ns as f64)));
        // The cell's name comes last, since a narrow terminal cuts off the end.
        self.live.show(&format!(
            "cell {} of {}{}: {iops} IOPS{}: {what}",
            position.done + 1,
            position.all,
            left(position),
            p99.unwrap_or_default(),
        ));
    }

    fn ends(&mut self, position: &Position, records: &[Record]) {
        for record in records {
            let place = match record.role {
                Role::Reference => "reference".to_owned(),
                _ => format!("cell {} of {}", position.done, position.all),
            };
            let (cell, repeat) = (&record.cell, record.repeat);
            let what = match &record.status {
                // The status line has shown it.
                Status::Measured if self.terminal => continue,
                Status::Measured => said(record),
                Status::Skipped { reason } => format!("skipped: {reason}"),
                Status::Void { reason } => format!("void: {reason}"),
                Status::Failed { reason } => format!("failed: {reason}"),
            };
            let left = left(position);
            self.line(&format!("{place}: {cell} (repeat {repeat}): {what}{left}"));
        }
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }
}

fn place(position: &Position) -> String {
    format!("cell {} of {}:", position.done + 1, position.all)
}

/// The time left, and how much it may be if repeats are added.
fn left(position: &Position) -> String {
    if position.left.is_zero() {
        return String::new();
    }
    let (least, most) = (about(position.left), about(position.left_most));
    match least == most {
        true => format!(", {least} left"),
        false => format!(", {least} left, up to {most}"),
    }
}

fn said(record: &Record) -> String {
    let p99 =
        record.latency().percentile_ns(99.0).map(|ns| format!(", p99 {}", units::time(ns as f64)));
    format!("{} IOPS{}", units::count(record.iops()), p99.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_most_that_is_left_is_told_where_it_differs() {
        let of = |least, most| {
            let (left, left_most) = (Duration::from_secs(least), Duration::from_secs(most));
            super::left(&Position { left, left_most, ..Position::default() })
        };
        assert_eq!(of(0, 0), "");
        assert_eq!(of(90, 90), ", 90 s left");
        assert_eq!(of(90, 700), ", 90 s left, up to 12 min");
        assert_eq!(of(601, 655), ", 11 min left", "the same in minutes");
    }
}
