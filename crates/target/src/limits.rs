//! The bounds of a turn, and where each number comes from.

/// What may begin in one turn, in bytes of data. What hosts have sent beyond that waits for the
/// next turn: answers begin to go out while the rest is worked on, and what a turn moves stays in
/// the cache until it is sent (with a bound for each connection four of depth 64 were slower by a
/// sixth). Measured (docs/performance.md): half of it costs 128 KiB reads 5 to 14 % against
/// no bound, and without one 512-byte reads of depth 128 fall to 0.6, as both ends work in turns.
pub(crate) const TURN_BYTES: usize = 512 * 1024;

/// What a command counts as at least: small ones take time, too. So a turn begins 64 of them;
/// twice as many and half as many were both slower.
pub(crate) const COMMAND_BYTES: usize = 8 * 1024;

/// How often the first of those who wait for memory may be passed over before nobody else is
/// served: as often as a queue of the usual depth has commands.
pub(crate) const PASSED_OVER_MAX: u32 = 128;

/// How many of those who wait for memory are tried at a time.
pub(crate) const TRIES_MAX: usize = 64;
