//! A target over loopback sockets, with hosts that are plain connections of `weft-transport`, and
//! with peers that are none.

mod admin;
mod authenticating;
mod bad_input;
mod commands;
mod connecting;
mod copying;
mod discovery;
mod drain;
mod failure;
mod flood;
mod groups;
mod io_metrics;
mod lifecycle;
mod limit_accuracy;
mod managed;
mod nsids;
mod persistent;
mod pool;
mod random_reservations;
mod rate_limits;
mod reload;
mod reservations;
mod settled;
mod shares;
mod standby;
mod statistics;
mod steps;
mod stopping;
mod storages;
mod support;
mod turns;
mod visible;
