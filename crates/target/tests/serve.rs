//! A target on loopback: what is written comes back, over every way that a command can take.

mod support;

use support::{Peer, address, config};
use weft_target::Target;
use weft_transport::host::HostOptions;

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

#[test]
fn what_is_written_is_read_back_at_every_size() {
    let target = Target::start(config(&["memory:64MiB"])).expect("a target");
    let (_admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1, HostOptions::default());
    for (round, blocks) in [1_u32, 2, 4, 5, 16, 64, 256].into_iter().enumerate() {
        let bytes = pattern(blocks as usize * 4096, u8::try_from(round).expect("few"));
        let wrote = io.write(1, 3 * round as u64, blocks, &bytes);
        assert!(wrote.status().is_success(), "write of {blocks}: {}", wrote.status());
        let read = io.read(1, 3 * round as u64, blocks, bytes.len());
        assert!(read.status().is_success(), "read of {blocks}: {}", read.status());
        assert!(read.data.expect("data")[..] == bytes[..], "{blocks} blocks came back changed");
    }
    target.stop().expect("a clean stop");
}
