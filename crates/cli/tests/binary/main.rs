//! Tests of the binary.

mod control;
mod faults;
mod key;
mod look;
mod metrics;
mod operate;
mod reports;
mod safety;
mod serve;
mod study;
mod trace;
mod weft;
