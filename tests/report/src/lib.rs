//! What tests of the report page share: results that were made up.
//!
//! The page itself is made by `weft-lab`; here it is looked at from outside, as text (`tests/`) and
//! in a browser (the binary). This package ships nothing.

pub mod made_up;
