//! Tests of every device on every driver, and of single kinds of devices.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // a test may fail

mod concurrent;
mod devices;
mod model;
mod operations;
mod rig;
mod seeded;
mod storages;
mod wrappers;
