//! Several poll groups: queues are spread over them, and every namespace is there on each.

use std::net::SocketAddr;

use weft_nvme::command::{Flags, Fused};
use weft_nvme::{NvmOpcode, Status};
use weft_transport::host::HostData;

use crate::shares::idle;
use crate::support::child::{self, ChildTarget};
use crate::support::peer::{Peer, read_write};
use crate::support::{address, config_of_two_groups, on_each_transport, pattern, port};

const BLOCK: usize = 4096;

#[test]
fn one_queue_reads_the_writes_of_another() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let on_file = format!("file:{},size=16MiB", file.path().display());
    on_each_transport(&config_of_two_groups(&["memory:16MiB", &on_file]), |target| {
        let (_admin, controller) = Peer::admin(address(target));
        let mut queues: Vec<_> =
            (1..=4).map(|queue_id| Peer::io(address(target), controller, queue_id)).collect();
        for nsid in [1, 2] {
            for writer in 0..queues.len() {
                for blocks in [1_u32, 32] {
                    let seed = u8::try_from(writer * 8).expect("few");
                    let bytes = pattern(blocks as usize * BLOCK, seed);
                    queues[writer].write(nsid, 64, blocks, &bytes).succeeded();
                    for reader in &mut queues {
                        assert!(reader.read(nsid, 64, blocks, bytes.len()).bytes() == bytes);
                    }
                }
            }
        }
    });
}

/// Adds one to the number in block 0, as often as asked; each time only if nobody else did.
fn count_up(at: SocketAddr, controller: u16, queue_id: u16, times: u32, nsid: u32) {
    let mut io = Peer::io(at, controller, queue_id);
    let mut done = 0;
    while done < times {
        let old = io.read(nsid, 0, 1, BLOCK).bytes().to_vec();
        let number = u32::from_le_bytes(old[..4].try_into().expect("4 bytes"));
        assert!(old.chunks(4).all(|word| word == number.to_le_bytes()), "a block is never mixed");
        let new = (number + 1).to_le_bytes().repeat(BLOCK / 4);
        let half =
            |opcode, part| read_write(opcode, nsid, 0, 1).with_flags(Flags::SGL.with_fused(part));
        let data = HostData::ToController(io.buffer(&old));
        let compare = io.submit_later(half(NvmOpcode::COMPARE, Fused::FIRST), data);
        let data = HostData::ToController(io.buffer(&new));
        let write = io.submit(half(NvmOpcode::WRITE, Fused::SECOND), data);
        let outcome = (io.wait_for(compare).status(), io.wait_for(write).status());
        if outcome == (Status::SUCCESS, Status::SUCCESS) {
            done += 1;
        } else {
            let lost = (Status::COMPARE_FAILURE.with_dnr(), Status::ABORTED_FAILED_FUSED);
            assert_eq!(outcome, lost);
        }
    }
}

#[test]
fn compare_and_write_excludes_the_other_group() {
    const TIMES: u32 = 150;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let on_file = format!("file:{},size=1MiB", file.path().display());
    let config = config_of_two_groups(&["memory:1MiB", &on_file]);
    on_each_transport(&config, |target| {
        let at = address(target);
        let (_admin, controller) = Peer::admin(at);
        for nsid in [1, 2] {
            let first_id = 8 + u16::try_from(nsid).expect("few");
            let mut first = Peer::io(at, controller, first_id);
            first.write(nsid, 0, 1, &[0; BLOCK]).succeeded();
            std::thread::scope(|scope| {
                for queue_id in [1, 2] {
                    let queue_id = queue_id + 2 * u16::try_from(nsid).expect("few");
                    scope.spawn(move || count_up(at, controller, queue_id, TIMES, nsid));
                }
            });
            let number = first.read(nsid, 0, 1, BLOCK).bytes()[..4].to_vec();
            assert_eq!(number, (2 * TIMES).to_le_bytes());
            first.run(weft_nvme::fabrics::Disconnect::default().to_command(), HostData::None);
            first.until_closed();
        }
    });
}

/// Which group holds a queue shows by whose thread works when the queue does.
#[test]
fn queues_are_spread() {
    const NAME: &str = "groups::queues_are_spread";
    if child::is_child_of(NAME) {
        return child::serve(config_of_two_groups(&["memory:1MiB"]));
    }
    let mut target = ChildTarget::of(NAME, "epoll", None);
    let (_admin, controller) = Peer::admin(target.address);
    let mut queues: Vec<_> =
        (1..=5).map(|queue_id| Peer::io(target.address, controller, queue_id)).collect();
    // Six queues with the admin queue: three for each group.
    let mut held = [1, 0];
    for io in &mut queues {
        let before = target.group_times();
        for _ in 0..300 {
            io.read(1, 0, 1, BLOCK).succeeded();
        }
        let after = target.group_times();
        let busy = [0, 1].map(|group| after[group] - before[group]);
        held[usize::from(busy[1] > busy[0])] += 1;
    }
    assert_eq!(held, [3, 3]);
    drop(queues);
    target.stop();
}

/// A group of `express-cpus` has the queues for which a rule of the class latency is.
#[test]
fn express_processors_have_queues_with_a_rule_alone() {
    let mut config = config_of_two_groups(&["memory:1MiB"]);
    if config.cpus[1] == 0 {
        eprintln!("skipped: it takes two processors");
        return;
    }
    config.express_cpus = config.cpus[1..].to_vec();
    config.ports.push(port(2, "127.0.0.1:0"));
    config.qos_rules.push(idle(2));
    on_each_transport(&config, |target| {
        let addresses = target.addresses();
        let (_admin, controller) = Peer::admin(addresses[&1]);
        let (_second, other) = Peer::admin(addresses[&2]);
        let at = |port: u16, controller, queue_ids: [u16; 3]| {
            queue_ids.map(|queue_id| Peer::io(addresses[&port], controller, queue_id))
        };
        let (_turns, _express) = (at(1, controller, [1, 2, 3]), at(2, other, [1, 2, 3]));
        let queues = target.watch().queues();
        let io: Vec<_> = queues.iter().filter(|queue| queue.queue_id > 0).collect();
        assert_eq!(io.len(), 6);
        for queue in io {
            assert_eq!(queue.group, usize::from(queue.port_id == 2), "port {}", queue.port_id);
        }
        // Without Connect nothing but the port is known of a queue over RDMA.
        let admins = queues.iter().filter(|queue| queue.queue_id == 0);
        let of_port_1 = admins.filter(|queue| queue.port_id == 1);
        assert!(of_port_1.map(|queue| queue.group).eq([0]));
    });
}
