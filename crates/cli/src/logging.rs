//! Log messages on standard error.

use std::io::Write;

use log::LevelFilter;

/// The environment variable with a filter in `env_logger`'s syntax.
const VARIABLE: &str = "WEFT_LOG";

/// Starts logging: warnings, for a target also information on hosts; more if requested.
pub(crate) fn start(verbose: u8, target: bool) {
    let level = match (verbose, target) {
        (0, false) => LevelFilter::Warn,
        (0, true) | (1, _) => LevelFilter::Info,
        (2, _) => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let mut builder = env_logger::Builder::new();
    builder.filter_level(level).format(|out, record| {
        writeln!(out, "weft: {}: {}", record.level().as_str().to_lowercase(), record.args())
    });
    if let Ok(filter) = std::env::var(VARIABLE) {
        builder.parse_filters(&filter);
    }
    // An error means that a logger is set already, which does not happen.
    let _ = builder.try_init();
}
