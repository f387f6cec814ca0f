//! What the tasks of this repository and its tests beside other programs have in common, and the
//! tasks themselves.

pub mod bench;
pub mod cargo;
pub mod docs;
pub mod fuzz;
pub mod instructions;
pub mod lines;
pub mod package;
pub mod packages;
pub mod python;
pub mod release;
pub mod report;
pub mod supply;
pub mod test;
pub mod tidy;
