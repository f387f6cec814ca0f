//! What every driver must do alike.

mod files;
mod harness;
mod sockets;
mod timing;

use harness::{Epoll, Uring};

/// Runs each case on each driver.
macro_rules! on_every_driver {
    ($($module:ident::$case:ident),* $(,)?) => {
        mod epoll { $(#[test] fn $case() { crate::$module::$case(&crate::Epoll); })* }
        mod uring_deferred {
            $(#[test] fn $case() { crate::$module::$case(&crate::Uring(RingMode::Deferred)); })*
            use weft_reactor::RingMode;
        }
        mod uring_cooperative {
            $(#[test] fn $case() { crate::$module::$case(&crate::Uring(RingMode::Cooperative)); })*
            use weft_reactor::RingMode;
        }
        mod uring_plain {
            $(#[test] fn $case() { crate::$module::$case(&crate::Uring(RingMode::Plain)); })*
            use weft_reactor::RingMode;
        }
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
    files::what_is_written_is_read,
    files::only_the_range_is_touched,
    files::an_end_of_file_on_the_way_is_an_error,
    files::many_at_once_complete_once_each,
    files::direct_files_take_whole_sectors,
    files::discard_and_zeroes_read_as_zeroes,
    files::requests_that_make_no_sense_fail,
    files::a_removed_file_finishes_what_it_began,
    files::cancelled_file_operations_complete_once,
    files::dropping_a_reactor_waits_for_its_files,
    timing::timers_fire_in_order_and_once,
    timing::a_deadline_ends_the_wait,
    timing::mail_ends_the_wait,
);
