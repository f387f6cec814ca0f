//! Studies: experiments as data, and what runs them.
//!
//! A [`Plan`](plan::Plan) says what is asked, over which axes, with what held fixed, how often and
//! for how long, and what to draw. [`matrix`] makes it into cells on the machine at hand; a cell
//! that cannot be run there stays in, with its reason. [`runner`] measures the cells one after the
//! other and writes a [`Record`](crate::results::Record) for each repeat.
//!
//! What it must never know: how a target is made. Whoever runs a study hands in a
//! [`Launcher`](launch::Launcher); the target is another process, and what it used it tells itself.
//!
//! Invariants:
//! - Every cell of a plan ends up in the results: measured, skipped, void or failed.
//! - The same plan, machine and seed give the same cells in the same order.
//! - Local and remote runs of one point stand next to each other in time.
//! - What breaks an invariant of a cell voids it; its numbers are never passed off as a result.
//! - Nothing that looks on (progress, samples of `/proc`, the target's counters) runs on the
//!   threads that carry the load.

pub mod builtin;
mod fleet;
pub mod launch;
pub mod link;
pub mod matrix;
mod measure;
pub mod observe;
pub mod plan;
pub mod precondition;
pub mod roles;
pub mod runner;
pub mod scene;
mod side;
pub mod steady;
