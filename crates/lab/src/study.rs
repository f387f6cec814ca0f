//! Studies: experiments as data, and what runs them.
//!
//! A [`Plan`](plan::Plan) defines the question, the axes, the fixed settings, repeats and times,
//! and the figures. [`matrix`] expands it into cells for this machine; a cell that cannot run here
//! is kept, with the reason. [`runner`] measures the cells one after the other and writes a
//! [`Record`](crate::results::Record) for each repeat.
//!
//! This module does not know how a target is started. The caller passes a
//! [`Launcher`](launch::Launcher); the target is another process and reports its own statistics.
//! Targets and loads may also be started by [agents](agent) on other machines.
//!
//! Invariants:
//! - Every cell of a plan is in the results: measured, skipped, void or failed.
//! - The same plan, machine and seed give the same cells in the same order.
//! - Local and remote cells of one point are measured directly after one another.
//! - A cell whose check failed is void; its numbers never appear as a result.
//! - Observation (progress, samples of `/proc`, the target's counters) runs on threads that carry
//!   no load.

pub mod agent;
mod alike;
pub mod builtin;
pub mod capabilities;
pub mod deployment;
mod disturbed;
pub mod given;
pub mod inside;
pub mod knob;
pub mod launch;
pub mod link;
pub mod linux;
mod load_device;
pub mod matrix;
mod measure;
pub mod observe;
pub mod plan;
pub mod precondition;
pub mod quiet;
pub mod roles;
pub mod runner;
mod side;
pub mod site;
pub mod software;
pub mod spdk;
pub mod steady;
mod target_set;
