//! Agents: a study with its target and its loads on several machines.
//!
//! An agent is this program on another machine, or in another namespace or container there. It
//! speaks JSON-RPC over its standard input and output, so that whatever carries those two carries a
//! study. It starts targets and drives loads as [`super::runner`] does here, and ends everything
//! that it started when its input ends.
//!
//! - `calls` has what an agent is asked for; `serve` is the agent's side, `line` the connection to
//!   one agent.
//! - [`Fleet`] has the agents of a study: it is the [`Launcher`](super::launch::Launcher) of its
//!   targets and opens its loads; `together` runs a load on all its machines at the same time.
//!
//! Clocks: every load begins at one time of this machine's clock, which each agent is told in
//! terms of its own. The offset between the two is that of the fastest of several round trips, and
//! is wrong by half of that round trip at most.

mod calls;
mod control;
mod fleet;
mod floors;
mod knobs;
mod line;
mod links;
mod probe;
mod reach;
mod serve;
mod survey;
mod together;

pub use calls::Build;
pub(super) use fleet::idle;
pub use fleet::{Carrier, Connector, Fleet, Places, Streams};
pub use serve::methods;
pub use survey::{Findings, FoundEnd, FoundMachine, FoundWay, Survey};
pub(super) use together::{Elsewhere, Part, jumped, machines, overlap, parts_of, run_beside};

#[cfg(test)]
mod tests;
