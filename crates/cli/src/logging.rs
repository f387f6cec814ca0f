//! Log lines on standard error.

use std::io::Write;

use log::LevelFilter;

/// The environment variable that chooses what is logged, in `env_logger`'s notation.
const VARIABLE: &str = "WEFT_LOG";

/// Starts logging: warnings, and for a target what hosts do; more where asked for.
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
    // Only a second logger could be refused, and there is none.
    let _ = builder.try_init();
}
