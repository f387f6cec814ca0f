//! The limits of a turn, and the source of each number.

use std::time::Duration;

/// Bytes of data that may begin in one turn. Further commands wait for the next turn: responses are
/// sent while the rest is processed, and the data of a turn stays in the cache until it is sent
/// (with a bound for each connection four of depth 64 were slower by a sixth). Measured
/// (docs/notebook): half of it costs 128 KiB reads 5 to 14 % against no bound, and without
/// one 512-byte reads of depth 128 fall to 0.6, as both ends work in turns.
pub(crate) const TURN_BYTES: usize = 512 * 1024;

/// Each command counts as at least this many bytes: small ones take time, too. So a turn begins 64
/// of them; twice as many and half as many were both slower.
pub(crate) const COMMAND_BYTES: usize = 8 * 1024;

/// How often the first connection that waits for memory may be passed over before no other is
/// served: the number of commands of a queue of the usual depth.
pub(crate) const PASSED_OVER_MAX: u32 = 128;

/// How many of the connections that wait for memory are tried at a time.
pub(crate) const TRIES_MAX: usize = 64;

/// One part in this many of the pool stays free of data that came in the capsules of commands under
/// a rate limit, but for one command of each queue.
pub(crate) const THROTTLED_SHARE: usize = 2;

/// Queues whose hosts have not authenticated themselves yet, of all addresses. Each may take two
/// powers of a processor and a few kilobytes: with the longest group these are 20 s.
pub(crate) const PENDING_MAX: usize = 1024;

/// The same of one address: hosts connect the queues of a controller one after the other, so this
/// is as many controllers at a time.
pub(crate) const PENDING_OF_AN_ADDRESS_MAX: usize = 256;

/// How long a host waits for the answer that its authentication has failed. With the bounds above
/// nobody tries more than some thousand keys in a second, whatever addresses there are, and nothing
/// has to be kept of those who have failed.
pub(crate) const FAILURE_DELAY: Duration = Duration::from_millis(200);

/// The time for which log lines that peers cause are counted.
pub(crate) const LINES_INTERVAL: Duration = Duration::from_secs(1);

/// Warnings in that time about handshakes with TLS that have failed: a host tries several times.
pub(crate) const TLS_WARNINGS: u64 = 8;

/// Lines in that time about Connects that were refused, and about peers that broke the protocol.
pub(crate) const FAULT_LINES: u64 = 64;

/// Lines in that time about hosts that have connected or left. After an outage many come at once.
pub(crate) const HOST_LINES: u64 = 64;

/// How long a key of TLS that an authentication has made waits for the connection that it is for:
/// the host comes back at once.
pub(crate) const KEY_WAIT: Duration = Duration::from_secs(60);

/// Such keys of one host at one subsystem: as many controllers may connect at a time.
pub(crate) const KEYS_WAITING_MAX: usize = 64;

/// Discovery controllers of one address: a quarter of them, so that no address keeps others from
/// discovery, but as many as a few hosts behind one address need.
pub(crate) const fn discovery_controllers_of_an_address(most: u16) -> usize {
    let quarter = most / 4;
    (if quarter > 16 { quarter } else { 16 }) as usize
}

/// What controllers learn of changes in one turn, in namespaces to look at: some 100 µs.
pub(crate) const UPDATES_OF_A_TURN: usize = 1024;

/// What it costs to tell one controller, in namespaces: mostly a send.
pub(crate) const UPDATE_COST: usize = 64;
