//! What a target counts is what was done, and stays with the group that did it.

use std::time::Duration;

use weft_nvme::log_page::{Health, LogPageId};
use weft_nvme::{NvmOpcode, Wire};
use weft_statistics::NamespaceStatistics;
use weft_target::{StatisticsReader, Target};
use weft_transport::host::HostOptions;

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::{
    SUBSYSTEM, address, config, config_of_two_groups, on_each_transport, pattern, start, wait_until,
};

fn served(watch: &StatisticsReader, group: usize, nsid: u32) -> NamespaceStatistics {
    let groups = watch.read(weft_reactor::monotonic_time());
    let served = groups[group].served.iter().find(|served| served.nsid == nsid);
    served.expect("a namespace").clone()
}

fn io_queues(target: &Target, count: u16) -> (Peer, Vec<Peer>) {
    let (admin, controller) = Peer::admin(address(target));
    let queue = |id| {
        Peer::io_as(address(target), &ConnectFields::io(controller, id), HostOptions::default())
    };
    (admin, (1..=count).map(queue).collect())
}

#[test]
fn commands_and_bytes_are_counted_by_namespace() {
    on_each_transport(&config(&["memory:1MiB", "memory:1MiB"]), |target| {
        let watch = target.watch();
        let (_admin, mut queues) = io_queues(target, 1);
        let io = &mut queues[0];
        let bytes = pattern(16_384, 1);
        io.write(1, 0, 4, &bytes).succeeded();
        for _ in 0..3 {
            io.read(1, 0, 4, bytes.len()).succeeded();
        }
        io.read(2, 0, 1, 4096).succeeded();
        let first = served(&watch, 0, 1);
        assert_eq!((first.reads, first.writes, first.others), (3, 1, 0));
        assert_eq!((first.read_bytes, first.written_bytes), (3 * 16_384, 16_384));
        assert_eq!(first.subsystem, SUBSYSTEM);
        let second = served(&watch, 0, 2);
        assert_eq!((second.reads, second.read_bytes, second.commands()), (1, 4096, 1));
    });
}

#[test]
fn each_group_counts_its_own() {
    let target = start(config_of_two_groups(&["memory:1MiB"]));
    let watch = target.watch();
    let (_admin, mut queues) = io_queues(&target, 2);
    for (queue, rounds) in queues.iter_mut().zip([5, 9]) {
        for _ in 0..rounds {
            queue.read(1, 0, 1, 4096).succeeded();
        }
    }
    let mut counts = [0, 1].map(|group| served(&watch, group, 1).commands());
    counts.sort_unstable();
    assert_eq!(counts, [5, 9], "queues are spread over the groups, and each counts alone");
    let cpus: Vec<_> =
        watch.read(weft_reactor::monotonic_time()).iter().map(|group| group.cpu).collect();
    assert_eq!(cpus.len(), 2);
    assert!(cpus[0] == Some(0) && cpus[1].is_some());
    target.stop().expect("a clean stop");
}

/// SMART and the statistics are read from the same counters, and a namespace that goes leaves its
/// part of SMART behind.
#[test]
fn smart_and_statistics_agree() {
    let device = "memory:1MiB";
    let config = config_of_two_groups(&[device, device]);
    let mut target = start(config.clone());
    let watch = target.watch();
    let (mut admin, mut queues) = io_queues(&target, 2);
    let bytes = pattern(16_384, 1);
    for io in &mut queues {
        for nsid in [1, 2] {
            io.write(nsid, 0, 4, &bytes).succeeded();
            io.read(nsid, 0, 4, bytes.len()).succeeded();
            io.run_with(read_write(NvmOpcode::COMPARE, nsid, 0, 4), &bytes).succeeded();
        }
    }
    let parts = [(0, 1), (0, 2), (1, 1), (1, 2)].map(|(group, nsid)| served(&watch, group, nsid));
    let sum = |of: fn(&NamespaceStatistics) -> u64| parts.iter().map(of).sum::<u64>();
    assert_eq!((sum(|served| served.reads), sum(|served| served.writes)), (8, 4));
    let smart = |admin: &mut Peer| {
        let health = Health::read(&admin.log_page(LogPageId::HEALTH, 512)).expect("512 bytes");
        (health.host_read_commands.get(), health.host_write_commands.get())
    };
    assert_eq!(smart(&mut admin), (8, 4));
    let mut smaller = config;
    smaller.subsystems[0].namespaces.truncate(1);
    target.reload(smaller).expect("it can be had");
    queues[0].read(1, 0, 4, bytes.len()).succeeded();
    assert_eq!(smart(&mut admin), (9, 4));
    target.stop().expect("a clean stop");
}

#[test]
fn connections_come_and_go() {
    let target = start(config(&["memory:1MiB"]));
    let watch = target.watch();
    let connections = || watch.read(weft_reactor::monotonic_time())[0].connections;
    let (admin, queues) = io_queues(&target, 3);
    wait_until("four connections", || connections() == 4);
    drop(queues);
    wait_until("one connection", || connections() == 1);
    drop(admin);
    wait_until("no connection", || connections() == 0);
    target.stop().expect("a clean stop");
}

#[test]
fn a_group_that_works_is_less_idle_than_one_that_waits() {
    let target = start(config(&["memory:1MiB"]));
    let watch = target.watch();
    let idle = || Duration::from_nanos(watch.read(weft_reactor::monotonic_time())[0].idle_ns);
    let (_admin, mut queues) = io_queues(&target, 1);
    queues[0].read(1, 0, 1, 4096).succeeded();
    let before = idle();
    std::thread::sleep(Duration::from_millis(200));
    queues[0].read(1, 0, 1, 4096).succeeded();
    let waited = idle() - before;
    assert!(waited >= Duration::from_millis(150), "{waited:?}");
    std::thread::sleep(Duration::from_millis(200));
    let asleep = idle() - before;
    assert!(asleep >= Duration::from_millis(300), "{asleep:?}: a wait counts while it lasts");
    target.stop().expect("a clean stop");
}

#[test]
fn counters_outlive_a_reload_and_new_namespaces_begin_at_nothing() {
    let mut target = start(config(&["memory:1MiB"]));
    let watch = target.watch();
    let (_admin, mut queues) = io_queues(&target, 1);
    queues[0].read(1, 0, 1, 4096).succeeded();
    let mut more = target.config().clone();
    let second = config(&["memory:1MiB", "null:1MiB"]).subsystems[0].namespaces[1].clone();
    more.subsystems[0].namespaces.push(second);
    target.reload(more).expect("a second namespace");
    queues[0].read(2, 0, 1, 4096).succeeded();
    queues[0].read(1, 0, 1, 4096).succeeded();
    assert_eq!(served(&watch, 0, 1).commands(), 2);
    assert_eq!(served(&watch, 0, 2).commands(), 1);
    target.stop().expect("a clean stop");
}
