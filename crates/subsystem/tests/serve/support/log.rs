//! What the target logs, kept for tests that look at it.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use log::{LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static INSTALLED: Once = Once::new();
static KEEPER: Keeper = Keeper;

struct Keeper;

impl Log for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        lines().push(format!("{}: {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

/// Begins to keep what is logged.
pub(crate) fn install() {
    INSTALLED.call_once(|| {
        log::set_logger(&KEEPER).expect("no other logger");
        log::set_max_level(LevelFilter::Info);
    });
}

/// How many lines there are so far.
pub(crate) fn length() -> usize {
    lines().len()
}

/// The lines from this one on in which this stands.
pub(crate) fn since(first: usize, what: &str) -> Vec<String> {
    lines().iter().skip(first).filter(|line| line.contains(what)).cloned().collect()
}

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}
