//! The binary as its users have it.

mod control;
mod faults;
mod look;
mod safety;
mod serve;
mod study;
mod weft;
