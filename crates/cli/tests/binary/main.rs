//! The binary as its users have it.

mod look;
mod serve;
mod weft;
