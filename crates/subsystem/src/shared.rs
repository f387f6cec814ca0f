//! What poll groups and those who change the target both know: messages, rounds, the snapshot that
//! is served, the directory, counters.

pub(crate) mod bucket;
pub(crate) mod classes;
pub(crate) mod directory;
pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod generated;
pub(crate) mod ids;
pub(crate) mod io_metrics;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod pending;
pub(crate) mod powers;
pub(crate) mod rate_limits;
pub(crate) mod reservations;
pub(crate) mod round;
pub(crate) mod snapshot;
pub(crate) mod statistics;
pub(crate) mod tls;
pub(crate) mod trace;
