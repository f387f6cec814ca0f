//! Results as text, and as JSON in fio's format.

pub mod fio;
pub mod human;
