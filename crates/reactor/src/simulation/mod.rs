//! A world without a kernel.

/// What [`driver_name`](crate::Reactor::driver_name) says of simulated reactors.
pub const DRIVER_NAME: &str = "simulated";

/// A connection between two simulated reactors.
#[derive(Debug)]
pub struct Detached(pub(crate) u64);

/// A file of a simulated world.
#[derive(Clone, Debug)]
pub struct SimulatedFile(pub(crate) u64);
