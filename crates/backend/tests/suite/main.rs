//! What every device must do, on every driver; and what each does of its own.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // a test may fail

mod concurrent;
mod devices;
mod model;
mod operations;
mod rig;
mod seeded;
mod wrappers;
