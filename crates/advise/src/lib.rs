//! The model of the advisor: which latency a transport has at a rate that was not measured.
//!
//! A request passes a host's core, the wire, a target's core and a device, and comes back
//! ([`network`]). Each has a few parameters, which are fitted from measured cells ([`fit`]). What
//! becomes of another rate or depth is simulated, from a seed; how far that may be off is known
//! from the cells that were fitted ([`predict`]).
//!
//! Nothing here reads a file, a clock or a socket. The crate is one of its own since its
//! simulation has to be optimized, and the lab is built without.

pub mod fit;
pub mod network;
pub mod predict;
mod random;
mod residual;
pub mod transfer;

pub use self::fit::{Cell, Fit};
pub use self::network::{Arrivals, Network, Outcome};
pub use self::predict::{Interval, Prediction, Quantiles, Refusal};
