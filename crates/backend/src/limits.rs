//! The most of what is bounded, but for what a model of the atomics includes (exclusion.rs).

/// Nested wrappers of a device.
pub(crate) const LAYERS_MAX: u8 = 16;

/// Ranges of unreadable blocks of a device: a file of them is written within a millisecond.
pub(crate) const RANGES_MAX: usize = 4096;
