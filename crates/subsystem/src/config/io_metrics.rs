//! What is to be measured of hosts' commands.

use std::time::Duration;

/// What is measured of each host's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoMetricsConfig {
    /// Upper bounds of the buckets that latencies are counted in, ascending.
    pub bounds: Vec<Duration>,
    /// Pairs of a host and a namespace that have counters of their own at a time: the first ones
    /// that have I/O. All others are counted together.
    pub pairs: usize,
}

impl IoMetricsConfig {
    /// Buckets at most.
    pub const BOUNDS_MAX: usize = 20;
}

impl Default for IoMetricsConfig {
    fn default() -> Self {
        let decade = |us: u64| [1, 2, 5].map(|step| Duration::from_micros(us * step));
        let decades = [10, 100, 1_000, 10_000, 100_000, 1_000_000].into_iter().flat_map(decade);
        let bounds = std::iter::once(Duration::from_micros(5)).chain(decades);
        Self { bounds: bounds.chain([Duration::from_secs(10)]).collect(), pairs: 1_000 }
    }
}
