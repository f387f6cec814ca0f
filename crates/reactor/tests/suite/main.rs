//! What every driver must do alike.

mod files;
mod harness;
mod sockets;
mod timing;

use harness::{Driver, Epoll};

/// Runs each case on each driver.
macro_rules! on_every_driver {
    ($($module:ident::$case:ident),* $(,)?) => {
        mod epoll { $(#[test] fn $case() { crate::$module::$case(&crate::Epoll); })* }
    };
}

on_every_driver!(
    sockets::echo_of_many_sizes,
    sockets::peers_know_each_other,
    sockets::a_large_message_goes_out_in_pieces,
    sockets::receive_into_a_given_range,
    sockets::end_of_stream_is_an_empty_receive,
    sockets::cancelled_operations_give_back_what_they_hold,
    sockets::closing_cancels_what_is_pending,
    sockets::connecting_to_nobody_is_refused,
    sockets::a_stream_moves_between_reactors,
    sockets::an_empty_pool_delays_receives,
    sockets::a_thousand_idle_connections_hold_no_buffer,
    sockets::misuse_is_refused_with_everything_given_back,
    sockets::a_closed_listener_refuses,
    timing::timers_fire_in_order_and_once,
    timing::a_deadline_ends_the_wait,
    timing::mail_ends_the_wait,
);
