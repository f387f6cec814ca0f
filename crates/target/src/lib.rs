//! A target: subsystems, namespaces and ports, served by poll groups.
//!
//! # The layer
//!
//! The protocol's rules are `weft-nvmf`'s, moving bytes is `weft-transport`'s, storing them is
//! `weft-backend`'s. What is left is this crate's: which connection is whose queue, which group
//! holds it, which device a command goes to, and what happens when something comes or goes. It
//! must never know how a PDU looks, how a device works, or what time it is but by its reactor.
//!
//! # How it is divided
//!
//! * [`config`]: what is to be served, as data, and the forms in which people write it.
//! * `catalogue` turns that into a `snapshot`: immutable, the same for all groups.
//! * `group`: one thread each; accepting, connecting, admin queues, I/O queues.
//! * `numbers`: which namespace has which NSID, and what must not change its owner.
//! * `changes`: what a reload has changed, in words.
//! * `check`: what a configuration would be served as, without opening anything.
//! * `directory`: what groups must agree on when a host connects or leaves; behind a lock that
//!   the data path never takes.
//! * `drain`: the earlier commands of a host, which its next Connect waits for.
//! * `statistics`: what each group counts, in words of its own, for whoever wants to know.
//! * `round`: a change that every group makes, acknowledged by each. A reload has two steps: every
//!   group opens what it needs; only when all of it is there is it served.
//! * [`Target`]: start, reload, stop. [`LocalTarget`]: the same without threads.
//!
//! # Invariants
//!
//! * A queue is owned by one group; other groups reach it by message.
//! * A command that a device has is waited for, even if its connection is gone; until then the
//!   host's next Connect to that subsystem is not answered. A command that came before that
//!   Connect and was not begun before it never is.
//! * What one peer does costs others nothing but their share of the machine.

mod catalogue;
mod changes;
mod check;
pub mod config;
mod directory;
mod drain;
mod group;
mod limits;
mod local;
mod nsids;
mod round;
mod snapshot;
mod statistics;
mod target;

pub use check::{CheckedNamespace, check};
pub use local::LocalTarget;
pub use statistics::{GroupStatistics, NamespaceStatistics, StatisticsReader};
pub use target::{Target, TargetError};
