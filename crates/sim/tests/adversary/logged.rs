//! What all runs log, in which no secret may be, in no encoding.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Keeper;

impl log::Log for Keeper {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        lines().push(format!("{} {}: {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps all that is logged from now on, at every level.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        log::set_logger(&Keeper).expect("no other logger");
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// Takes what was logged.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *lines())
}
