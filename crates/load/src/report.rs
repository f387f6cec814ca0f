//! Results as text, and as JSON in fio's format.

pub mod disks;
pub mod fio;
pub mod human;
pub mod terse;

use crate::{Job, RunResult};

/// What a job, or a group of them, came to.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its group.
    pub group: usize,
    /// The job; of a group the first.
    pub job: Job,
    /// What it drove.
    pub device: String,
    /// What it did.
    pub result: RunResult,
}
