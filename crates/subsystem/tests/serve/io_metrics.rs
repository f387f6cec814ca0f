//! How long hosts' commands take: what is counted of which host and namespace.

use std::time::Duration;

use weft_nvme::nvm::{DatasetAttributes, DatasetManagement, DatasetRange};
use weft_nvme::{NvmOpcode, Status, Wire};
use weft_statistics::HostCommands;
use weft_target::config::{Config, RateLimit, RateLimitedCommands};
use weft_target::{IoMetricsConfig, Target};
use weft_transport::host::HostOptions;

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::{
    HOST, SUBSYSTEM, address, config, config_of_two_groups, on_each_transport, pattern, start,
};

const BLOCK: usize = 4096;

fn measured(config: Config, pairs: usize) -> Config {
    Config { io_metrics: Some(IoMetricsConfig { pairs, ..IoMetricsConfig::default() }), ..config }
}

/// The commands of each host to each namespace, by kind.
fn commands(target: &Target) -> Vec<HostCommands> {
    let now = weft_reactor::monotonic_time();
    target.watch().io_metrics(now).expect("it is measured").commands
}

#[test]
fn commands_count_by_host_namespace_and_kind() {
    let config = measured(config(&["memory:1MiB", "memory:1MiB"]), 10);
    on_each_transport(&config, |target| {
        let (_admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        let bytes = pattern(4 * BLOCK, 1);
        io.write(1, 0, 4, &bytes).succeeded();
        for _ in 0..3 {
            io.read(1, 0, 4, bytes.len()).succeeded();
        }
        io.run_with(read_write(NvmOpcode::COMPARE, 2, 0, 1), &[0; BLOCK]).succeeded();
        let beyond = io.read(2, 1 << 20, 1, BLOCK);
        assert_eq!(beyond.status(), Status::LBA_OUT_OF_RANGE.with_dnr());
        let unknown = io.read(7, 0, 1, BLOCK);
        assert_eq!(unknown.status(), Status::INVALID_NAMESPACE.with_dnr());
        let commands = commands(target);
        let of_host =
            |one: &HostCommands| one.host.as_deref() == Some(HOST) && one.subsystem == SUBSYSTEM;
        assert!(commands.iter().all(of_host), "{commands:?}");
        let counted: Vec<_> = commands
            .iter()
            .map(|one| (one.nsid, &*one.command, one.count(), one.bytes, one.errors_by_class))
            .collect();
        let expected = [
            (1, "read", 3, 3 * 16_384, [0; 5]),
            (1, "write", 1, 16_384, [0; 5]),
            (2, "read", 1, 0, [0, 0, 0, 0, 1]),
            (2, "other", 1, 0, [0; 5]),
        ];
        assert_eq!(counted, expected, "a namespace that there is not has no counters");
    });
}

/// What a device took is without the wait for a limit, and by kind of request.
#[test]
fn a_device_has_the_times_and_failures_of_its_requests() {
    let ms = Duration::from_millis;
    let limit = RateLimit {
        rw: RateLimitedCommands::Rw,
        rate_iops: Some(20),
        burst: ms(1),
        force: true,
        ..RateLimit::default()
    };
    let config = config(&["delay:read=20ms,write=5ms:memory:1MiB"]);
    let target = start(measured(Config { rate_limits: vec![limit], ..config }, 10));
    let (_admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    let slots: Vec<_> = (0..4).map(|block| io.begin_read(1, block, 1, BLOCK)).collect();
    slots.into_iter().for_each(|slot| drop(io.wait_for(slot).succeeded()));
    io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
    let deallocate = DatasetManagement {
        range_count: 2,
        attributes: DatasetAttributes(0).with_deallocate(true),
    };
    let ranges = [DatasetRange::new(8, 3), DatasetRange::new(16, 4)];
    let ranges: Vec<u8> = ranges.iter().flat_map(|range| range.bytes().to_vec()).collect();
    io.run_with(deallocate.to_command(1), &ranges).succeeded();
    let compare = io.run_with(read_write(NvmOpcode::COMPARE, 1, 0, 1), &[0; BLOCK]);
    assert_eq!(compare.status(), Status::COMPARE_FAILURE.with_dnr());
    let served = target.watch().device(SUBSYSTEM, 1);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).expect("a short time");
    let reads = served.read_times;
    assert!(reads.min_ns >= ns(ms(20)) && reads.max_ns >= reads.min_ns, "{reads:?}");
    let with_the_limit = commands(&target)[0].total_ns;
    assert!(with_the_limit >= reads.total_ns + ns(ms(100)), "{reads:?}");
    assert!(served.write_times.min_ns >= ns(ms(5)), "{:?}", served.write_times);
    assert!(served.deallocate_times.min_ns >= ns(ms(5)), "{:?}", served.deallocate_times);
    let totals = served.totals;
    assert_eq!((totals.deallocates, totals.deallocated_bytes), (1, 7 * BLOCK as u64));
    assert_eq!((totals.mismatches, totals.failures, totals.others), (1, 0, 1));
    target.stop().expect("a clean stop");
}

#[test]
fn a_latency_has_the_time_of_the_device_and_the_wait_for_a_limit() {
    let ms = Duration::from_millis;
    let limit = RateLimit {
        host: Some(HOST.into()),
        nsid: Some(2),
        rw: RateLimitedCommands::Rw,
        rate_iops: Some(100),
        burst: ms(1),
        ..RateLimit::default()
    };
    let config = config(&["delay:read=20ms:memory:1MiB", "memory:1MiB"]);
    let target = start(measured(Config { rate_limits: vec![limit], ..config }, 10));
    let (_admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    io.read(1, 0, 1, BLOCK).succeeded();
    let slots: Vec<_> = (0..8).map(|block| io.begin_read(2, block, 1, BLOCK)).collect();
    for slot in slots {
        io.wait_for(slot).succeeded();
    }
    let commands = commands(&target);
    let [delayed, throttled] = &commands[..] else { panic!("two reads: {commands:?}") };
    assert!(delayed.total_ns >= 20_000_000, "{}", delayed.total_ns);
    let first = delayed.buckets.iter().position(|count| *count > 0).expect("one read");
    let bounds = IoMetricsConfig::default().bounds;
    assert!(bounds.get(first).is_none_or(|bound| *bound >= ms(20)), "{:?}", delayed.buckets);
    // The eighth began at least 60 ms after the first.
    assert_eq!(throttled.count(), 8);
    assert!(throttled.total_ns >= 60_000_000, "{}", throttled.total_ns);
    target.stop().expect("a clean stop");
}

#[test]
fn groups_add_up_and_pairs_beyond_the_limit_are_one() {
    let config = config_of_two_groups(&["memory:1MiB", "memory:1MiB"]);
    let target = start(measured(config, 1));
    let (_admin, controller) = Peer::admin(address(&target));
    for queue_id in 1..=2 {
        let fields = ConnectFields::io(controller, queue_id);
        let mut io = Peer::io_as(address(&target), &fields, HostOptions::default());
        io.read(1, 0, 1, BLOCK).succeeded();
        io.read(2, 0, 1, BLOCK).succeeded();
        io.read(2, 0, 1, BLOCK).succeeded();
    }
    let counted: Vec<_> =
        commands(&target).iter().map(|one| (one.host.is_some(), one.count())).collect();
    assert_eq!(counted, [(true, 2), (false, 4)]);
    target.stop().expect("a clean stop");
}

#[test]
fn nothing_is_measured_unless_it_is_asked_for() {
    let target = start(config(&["memory:1MiB"]));
    assert_eq!(target.watch().io_metrics(Duration::ZERO), None);
    target.stop().expect("a clean stop");
}
