//! What is decided: the target's start, its changes, and what is made of its configuration.

pub(crate) mod catalogue;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod events;
pub(crate) mod local;
pub(crate) mod managed;
pub(crate) mod nsids;
pub(crate) mod reader;
pub(crate) mod reservations;
pub(crate) mod settled;
pub mod steps;
pub(crate) mod target;
