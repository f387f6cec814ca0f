//! Log messages on standard error.

use std::io::{self, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use env_logger::fmt::Formatter;
use log::{Level, LevelFilter, Record};
use serde_json::json;
use weft_load::calendar::Date;

use crate::output::{self, printable};

/// The environment variable with a filter in `env_logger`'s syntax.
const VARIABLE: &str = "WEFT_LOG";

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text; of a target with the time.
    Text,
    /// An object for each line: time, level, module, message.
    Json,
    /// The priority as journald and syslog number it, then the message.
    Journal,
}

/// Starts logging: warnings, for a target also information on hosts; more if requested.
pub(crate) fn start(verbose: u8, target: bool, format: Option<LogFormat>) {
    let level = match (verbose, target) {
        (0, false) => LevelFilter::Warn,
        (0, true) | (1, _) => LevelFilter::Info,
        (2, _) => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let format = format.unwrap_or_else(by_standard_error);
    let mut builder = env_logger::Builder::new();
    builder.format(move |out, record| write_line(out, record, format, target));
    let filter = std::env::var(VARIABLE).ok();
    match &filter {
        Some(filter) => builder.filter_level(level).parse_filters(filter),
        // The level is the maximum, which may be raised while the process runs.
        None => builder.filter_level(LevelFilter::Trace),
    };
    // An error means that a logger is set already, which does not happen.
    let _ = builder.try_init();
    // Also only set once.
    let _ = MOST.set(log::max_level());
    if filter.is_none() {
        log::set_max_level(level);
    }
}

/// What the filter lets through.
static MOST: OnceLock<LevelFilter> = OnceLock::new();

/// Changes what is logged from now on. False: the filter of the environment leaves that out.
pub(crate) fn set_level(level: LevelFilter) -> bool {
    let possible = MOST.get().is_some_and(|most| level <= *most);
    if possible {
        log::set_max_level(level);
    }
    possible
}

fn write_line(
    out: &mut Formatter,
    record: &Record<'_>,
    format: LogFormat,
    target: bool,
) -> io::Result<()> {
    let level = record.level().as_str().to_lowercase();
    let (message, time) = (record.args().to_string(), now());
    let shown = printable(&message);
    match format {
        LogFormat::Text if target => writeln!(out, "{time} {level}: {shown}"),
        LogFormat::Text => writeln!(out, "weft: {level}: {shown}"),
        LogFormat::Json => {
            let module = record.target();
            let line =
                json!({ "time": time, "level": level, "module": module, "message": message });
            writeln!(out, "{}", output::json(&line.to_string()))
        }
        // What spans lines would lose its priority after the first.
        LogFormat::Journal => {
            let priority = priority(record.level());
            shown.lines().try_for_each(|line| writeln!(out, "<{priority}>{line}"))
        }
    }
}

/// The time with its milliseconds, as RFC 3339 has it.
fn now() -> String {
    let now = weft_reactor::real_time();
    let date = Date::of(now);
    format!("{}T{}.{:03}Z", date.day_text(), date.time_text(), now.subsec_millis())
}

/// syslog's number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// `JOURNAL_STREAM` has the device and inode of the socket that journald reads.
fn by_standard_error() -> LogFormat {
    let journal = std::env::var("JOURNAL_STREAM").ok();
    let this = rustix::fs::fstat(io::stderr()).ok();
    let here = this.map(|this| format!("{}:{}", this.st_dev, this.st_ino));
    if here.is_some() && here == journal { LogFormat::Journal } else { LogFormat::Text }
}
