//! The laboratory: studies of what a block device costs over a network, and what their results say.
//!
//! A [plan](study::plan) becomes a matrix of cells, whose loads are those of [`weft_load`]; each
//! repeat of a cell is a [record](results::Record), and all pages, lines and comparisons are made
//! of these alone. A target under test is another process that the caller starts: this crate does
//! not know it.

pub mod advise;
mod cells;
pub mod claims;
pub mod compare;
pub mod environment;
pub mod html;
pub mod limits;
pub mod published;
pub mod results;
pub mod study;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod units;
pub mod whole;
