//! Results as text for people and as JSON in fio's shape.

pub mod fio;
pub mod human;
