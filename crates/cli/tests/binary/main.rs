//! Tests of the binary.

mod control;
mod faults;
mod key;
mod look;
mod metrics;
mod operate;
mod paths;
mod reports;
mod safety;
mod serve;
mod study;
#[cfg(feature = "tls")]
mod tls;
mod trace;
mod weft;
#[cfg(not(feature = "tls"))]
mod without_tls;
