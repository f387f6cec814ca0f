//! A target over loopback sockets, with hosts that are plain connections of `weft-transport`, and
//! with peers that are none.

mod commands;
mod connecting;
mod discovery;
mod reload;
mod support;
