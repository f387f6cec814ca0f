//! Whose the completions of a group's reactor are.

use weft_reactor::{Owner, Token};

use crate::shared::ids::ConnectionId;

/// Completions for listeners and their timers.
pub(crate) const LISTENERS: Owner = Owner(0);
/// Completions for connections.
pub(crate) const CONNECTIONS: Owner = Owner(1);
/// Timers of controllers: keep-alive and the like.
pub(crate) const CONTROLLERS: Owner = Owner(2);
/// Timers of Connects that wait for their host's drain.
pub(crate) const DRAIN_TIMERS: Owner = Owner(3);
/// The timer of the check for hosts that hold memory which others wait for.
pub(crate) const STALL_TIMER: Owner = Owner(4);
/// The timer of commands that wait for a rate limit: it ends a sleep, and the turn lets them go on.
pub(crate) const RATE_TIMER: Owner = Owner(5);
/// Timers of queues whose hosts have to authenticate themselves.
pub(crate) const AUTHENTICATION_TIMERS: Owner = Owner(6);
/// The timer of a trace's end.
pub(crate) const TRACE_TIMER: Owner = Owner(7);
/// The timer of keys of TLS with which nobody comes.
pub(crate) const KEY_TIMER: Owner = Owner(8);
/// Timers of what hosts have registered that are gone.
pub(crate) const REGISTRATION_TIMERS: Owner = Owner(9);
/// The timer of the hosts whose connections have to show that they are alive.
pub(crate) const DOUBT_TIMER: Owner = Owner(10);
/// Completions for device `n` carry this owner and `n`.
pub(crate) const DEVICES: u32 = 16;

/// The tag of a connection's operations.
pub(crate) fn transport_tag(id: ConnectionId) -> u32 {
    u32::try_from(id.index).unwrap_or(weft_transport::TAG_MAX).min(weft_transport::TAG_MAX)
}

/// The token of a timer that belongs to a connection.
pub(crate) fn timer(owner: Owner, id: ConnectionId) -> Token {
    Token { owner, tag: transport_tag(id) }
}
