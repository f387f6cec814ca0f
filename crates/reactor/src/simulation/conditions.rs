//! How a simulated world behaves.

use std::time::Duration;

/// How the network behaves. Probabilities are per piece of data sent unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConditions {
    /// The latency from end to end.
    pub latency: Duration,
    /// Random extra latency, up to this. Bytes of one connection stay in order.
    pub jitter: Duration,
    /// That sent data arrives in two pieces, and that a receive returns less than is there; both
    /// are cut at any byte.
    pub split_probability: f64,
    /// That the connection is reset.
    pub reset_probability: f64,
    /// That from here on nothing arrives at either end, not even an error.
    pub silence_probability: f64,
    /// That a connection attempt is refused although there is a listener; per attempt.
    pub refusal_probability: f64,
    /// Bytes in transit or unread before a sender has to wait.
    pub window_bytes: usize,
}

impl Default for NetworkConditions {
    /// A network without faults: 50 µs, in order, nothing cut.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(50),
            jitter: Duration::ZERO,
            split_probability: 0.0,
            reset_probability: 0.0,
            silence_probability: 0.0,
            refusal_probability: 0.0,
            window_bytes: 256 << 10,
        }
    }
}

/// How files behave.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageConditions {
    /// The latency of an operation.
    pub latency: Duration,
    /// Random extra latency, up to this. Operations overtake each other.
    pub jitter: Duration,
    /// How long each of the file's channels works on 64 KiB before the latency, one operation
    /// after the other; zero: all at the same time.
    pub service: Duration,
    /// How many channels a file has.
    pub channels: usize,
    /// That an operation fails with an I/O error and does nothing.
    pub error_probability: f64,
    /// That a sector that was written but not made durable survives a crash; per sector.
    pub survival_probability: f64,
}

impl Default for StorageConditions {
    /// A device of 100 µs without errors that loses what was not made durable.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(100),
            jitter: Duration::ZERO,
            service: Duration::ZERO,
            channels: 1,
            error_probability: 0.0,
            survival_probability: 0.0,
        }
    }
}

/// A file of a simulated world; [`Reactor::add_file`](crate::Reactor::add_file) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedFile(pub(crate) usize);
