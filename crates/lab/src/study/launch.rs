//! How a study gets at targets. Who runs it knows; this crate does not.

use std::time::Duration;

use weft_backend::DeviceSpec;
use weft_host::{Transport, TransportId};
use weft_reactor::DriverKind;
use weft_rpc::Address;

/// A target that a study wants to be started.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What it serves, as namespaces 1, 2 and so on of one subsystem.
    pub devices: Vec<DeviceSpec>,
    /// How it is reached. Over loopback it runs within this process.
    pub transport: Transport,
    /// A poll group on each of these processors; empty: one, not pinned.
    pub cpus: Vec<usize>,
    /// How long it looks for commands before it sleeps, if that is not left to it.
    pub idle_poll: Option<Duration>,
    /// Which of the kernel's interfaces it uses.
    pub driver: DriverKind,
}

/// Starts targets.
pub trait Launcher {
    /// Starts one on this machine, in a process of its own unless it is reached over loopback, and
    /// waits until it listens.
    ///
    /// # Errors
    /// One sentence that says why it does not.
    fn launch(&self, order: &Order) -> Result<Box<dyn Launched>, String>;
}

/// A target that was started. Dropping it stops it, less gently than [`Launched::stop`].
pub trait Launched {
    /// How a host reaches its subsystem.
    fn address(&self) -> &TransportId;

    /// Where it tells its statistics.
    fn control(&self) -> &Address;

    /// Why it has ended, if it has.
    fn ended(&mut self) -> Option<String>;

    /// Stops it in good order.
    ///
    /// # Errors
    /// One sentence that says what did not go well.
    fn stop(self: Box<Self>) -> Result<(), String>;
}

/// A target that was there before the study.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// How a host reaches it, and perhaps which namespace is meant.
    pub address: TransportId,
    /// Where it tells its statistics, if it is one that does.
    pub control: Option<Address>,
}
