//! Every order of loads and stores that the memory model allows: see the library.

macro_rules! models {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                ordering::$name();
            }
        )*
    };
}

models! {
    a_reactor_that_sleeps_is_woken
    writes_do_not_overlap_a_compare_and_write
    compare_and_writes_exclude_each_other
    a_block_is_read_whole
    writers_of_a_block_exclude_each_other
    a_record_is_of_one_writer
    groups_share_a_rate
}
