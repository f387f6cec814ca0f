use super::*;
use crate::results::{Value, Window};
use crate::testing;

/// A second of a closed loop, or of an open one, in which all numbers agree.
fn sound(is_open: bool) -> Record {
    let settings = [
        (key::DEPTH, Value::from(8_u64)),
        (key::JOBS, 2_u64.into()),
        (key::BLOCK_BYTES, 4096_u64.into()),
    ];
    let mut record = testing::record(Role::Plain, &settings, 40_000.0, 400);
    let mut latency = Latency::new();
    (0..40_000).for_each(|at| latency.record(390_000 + at % 20_000));
    let read = record.read.as_mut().expect("reads");
    read.latency = LatencyRecord::of(&latency);
    record.windows = vec![Window { iops: 40_000.0, ..Window::default() }; 4];
    record.read.as_mut().expect("reads").seconds = 1.0;
    if is_open {
        let mut completion = Latency::new();
        (0..40_000).for_each(|at| completion.record(90_000 + at % 20_000));
        record.read.as_mut().expect("reads").completion = Some(LatencyRecord::of(&completion));
        record.values.insert(number::OFFERED_IOPS.to_owned(), 40_000.0);
    }
    record.values.insert(number::REQUESTS_ALL.to_owned(), 48_000.0);
    record.values.insert(number::GENERATOR_SHARE.to_owned(), 0.9);
    let thread = Thread { user_s: 0.5, system_s: 0.4, polling_s: 0.2, ..Thread::default() };
    let mut side = Side { seconds: 1.0, threads: vec![thread; 2], ..Side::default() };
    side.machine.cores = vec![Core { user_s: 0.6, system_s: 0.4, ..Core::default() }; 2];
    (record.host, record.target) = (Some(side.clone()), Some(side));
    record
}

/// Each number that is held against others: where it alone is another one, that is said.
#[test]
fn a_number_that_contradicts_others_is_found() {
    type Change = fn(&mut Record);
    fn read(of: &mut Record) -> &mut Direction {
        of.read.as_mut().expect("reads")
    }
    fn set(of: &mut Record, name: &str, value: f64) {
        of.values.insert(name.to_owned(), value);
    }
    fn host(of: &mut Record) -> &mut Side {
        of.host.as_mut().expect("a host")
    }
    let both: [(Change, &str); 12] = [
        (|of| read(of).requests *= 10, "latencies"),
        (|of| read(of).seconds = 0.0, "read: 40000 requests in 0 s"),
        (|of| read(of).bytes /= 2, "read: 40000 requests of 4096 bytes, and 81920000 bytes"),
        (|of| read(of).latency.sum_ns *= 2, "it says 800"),
        (|of| read(of).latency.min_ns = 500_000, "it says 500"),
        (|of| read(of).latency.max_ns /= 2, "it says 390"),
        (|of| of.windows.iter_mut().for_each(|one| one.iops *= 10.0), "400 K in its windows"),
        (|of| set(of, number::REQUESTS_ALL, 30_000.0), "with its ramp"),
        (|of| set(of, number::GENERATOR_SHARE, 7.0), "no share is"),
        (|of| host(of).threads[1].user_s = 9.0, "host:  ran for 9.40 s of 1.00 s"),
        (|of| host(of).threads[0].polling_s = 5.0, "polled for 5.00 s of 900"),
        (|of| host(of).machine.cores[1].steal_s = 4.0, "processor 0 ran for 5.00 s of 1.00 s"),
    ];
    let closed: [(Change, &str); 3] = [
        (|of| drop(of.configuration.insert(key::DEPTH.into(), 1_u64.into())), "its depth is 2 ("),
        (
            |of| drop(of.configuration.insert(key::JOBS.into(), 200_u64.into())),
            "are 16.0 in flight",
        ),
        // Ten times as fast in a tenth of the time.
        (
            |of| {
                read(of).seconds /= 10.0;
                of.windows.clear();
            },
            "(Little's law)",
        ),
    ];
    let open: [(Change, &str); 3] = [
        (|of| drop(of.configuration.insert(key::DEPTH.into(), 1_u64.into())), "its depth is 2 ("),
        (
            |of| set(of, number::OFFERED_IOPS, 4000.0),
            "40.0 K requests a second, of 4.00 K that were offered",
        ),
        (
            |of| {
                let all = read(of).latency.clone();
                read(of).latency = read(of).completion.replace(all).expect("both");
            },
            "longer from their submission",
        ),
    ];
    for (is_open, own) in [(false, closed), (true, open)] {
        assert_eq!(contradiction(&sound(is_open)), None);
        for (change, why) in both.into_iter().chain(own) {
            let mut record = sound(is_open);
            change(&mut record);
            let said = contradiction(&record);
            assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{why}: {said:?}");
        }
    }
}

/// What is slow, idle or disturbed is no contradiction.
#[test]
fn what_a_slow_machine_has_is_possible() {
    type Change = fn(&mut Record);
    let possible: [Change; 4] = [
        // A request that began before the run, and took twice as long as that.
        |of| {
            let mut latency = Latency::new();
            latency.record_times(2_000_000_000, 16);
            let read = of.read.as_mut().expect("reads");
            read.latency = LatencyRecord::of(&latency);
            (read.requests, read.bytes) = (16, 16 * 4096);
            of.windows.clear();
        },
        // The clock of a thread was read late.
        |of| of.host.as_mut().expect("a host").threads[0].user_s = 0.8,
        |of| {
            of.configuration.insert(key::THINKTIME_US.into(), 100_u64.into());
            of.configuration.insert(key::DEPTH.into(), 500_u64.into());
        },
        |of| {
            let latency = LatencyRecord::of(&Latency::new());
            of.read = Some(Direction { seconds: 1.0, latency, ..Direction::default() });
            of.windows.clear();
        },
    ];
    for (place, change) in possible.into_iter().enumerate() {
        let mut record = sound(false);
        change(&mut record);
        assert_eq!(contradiction(&record), None, "{place}");
    }
}
