//! What every driver must do alike.

#![allow(clippy::unwrap_used)] // a test may fail

mod chaos;
mod express;
mod files;
mod harness;
mod pressure;
mod sockets;
mod timing;

use harness::{Epoll, SimulatedWorld, Uring};
use weft_reactor::RingMode;

/// Makes a test of each case with each driver: `case::driver`.
macro_rules! cases {
    (
        on every driver: $($module:ident::$case:ident),+;
        on the kernel: $($kernel_module:ident::$kernel_case:ident),+;
    ) => {
        $(
            mod $case {
                #[test]
                fn simulated() {
                    crate::$module::$case(&crate::SimulatedWorld::new());
                }
                cases!($module::$case);
            }
        )+
        $(mod $kernel_case { cases!($kernel_module::$kernel_case); })+
    };
    ($module:ident::$case:ident) => {
        #[test]
        fn epoll() {
            crate::$module::$case(&crate::Epoll);
        }
        #[test]
        fn uring_deferred() {
            crate::$module::$case(&crate::Uring(crate::RingMode::Deferred));
        }
        #[test]
        fn uring_cooperative() {
            crate::$module::$case(&crate::Uring(crate::RingMode::Cooperative));
        }
        #[test]
        fn uring_plain() {
            crate::$module::$case(&crate::Uring(crate::RingMode::Plain));
        }
    };
}

cases! {
    on every driver:
        sockets::echo_of_many_sizes,
        sockets::peers_know_each_other,
        sockets::a_large_message_goes_out_in_pieces,
        sockets::receive_into_a_given_range,
        sockets::end_of_stream_is_an_empty_receive,
        sockets::cancelled_operations_give_back_what_they_hold,
        sockets::closing_cancels_what_is_pending,
        sockets::closing_right_after_bytes_came_is_heard,
        sockets::connecting_to_nobody_is_refused,
        sockets::a_stream_moves_between_reactors,
        sockets::a_dropped_stream_is_closed,
        sockets::an_empty_pool_delays_receives,
        sockets::a_thousand_idle_connections_hold_no_buffer,
        sockets::misuse_is_refused_with_everything_given_back,
        sockets::a_closed_listener_refuses,
        sockets::connections_over_ipv6,
        sockets::a_local_address_can_be_chosen,
        sockets::a_cancelled_connect_leaves_nothing,
        sockets::a_broken_connection_fails_both_ways,
        chaos::each_operation_ends_once,
        pressure::a_crowd_of_small_requests_fits_in_the_pool,
        files::what_is_written_is_read,
        files::only_the_range_is_touched,
        files::an_end_of_file_on_the_way_is_an_error,
        files::many_at_once_complete_once_each,
        files::discard_and_zeroes_read_as_zeroes,
        files::requests_that_make_no_sense_fail,
        files::a_removed_file_finishes_what_it_began,
        files::cancelled_file_operations_complete_once,
        timing::timers_fire_in_order_and_once,
        timing::a_deadline_ends_the_wait,
        timing::who_has_waited_for_long_sleeps_at_once,
        timing::mail_ends_the_wait,
        timing::files_and_sockets_share_a_turn,
        express::what_comes_on_an_express_socket_is_handed_out_apart,
        express::nothing_is_lost_when_a_socket_changes_sides,
        express::what_files_and_timers_have_for_express_sockets_is_handed_out_apart,
        express::what_has_come_before_is_received,
        express::others_send_in_slices_beside_an_express_socket;
    on the kernel:
        sockets::a_wildcard_takes_both_families,
        sockets::tiny_socket_buffers,
        sockets::the_end_of_a_process_resets_its_connections,
        sockets::an_orderly_close_loses_nothing,
        sockets::an_idle_peer_shows_that_it_is_alive,
        sockets::a_connect_without_answer_times_out,
        sockets::what_a_connection_sends_can_be_marked,
        files::zeroes_are_written_where_they_cannot_be_made,
        files::block_devices_discard_and_zero,
        files::direct_files_take_whole_sectors,
        files::polled_files_complete_or_say_why,
        files::dropping_a_reactor_waits_for_its_files,
        timing::mail_from_other_threads_is_never_lost,
        timing::an_idle_reactor_uses_no_cpu,
        timing::a_call_from_another_thread_ends_a_sleep,
        pressure::running_out_of_descriptors,
        pressure::spinning_does_not_starve_cold_sockets;
}
