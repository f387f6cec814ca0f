//! Tests of the binary.

mod control;
mod faults;
mod look;
mod reports;
mod safety;
mod serve;
mod study;
mod weft;
