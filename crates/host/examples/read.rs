//! Only reads: finds a subsystem, lists its namespaces, and prints how many of each one's first
//! 4096 blocks are in use, which are those that are not all zeroes.
//!
//! ```text
//! weft target --memory 64MiB
//! cargo run --package weft-host --example read -- nvme-tcp://127.0.0.1:4420
//! ```

use std::error::Error;

use weft_host::{Options, TransportId};

/// Blocks of each namespace that are read.
const BLOCKS: u64 = 4096;

fn main() {
    if let Err(error) = read() {
        eprintln!("read: {error}");
        std::process::exit(1);
    }
}

fn read() -> Result<(), Box<dyn Error>> {
    let usage = "an address, please: nvme-tcp://HOST:PORT or nvme-tcp://HOST:PORT/NQN";
    let address: TransportId = std::env::args().nth(1).ok_or(usage)?.parse()?;
    let address = if address.is_discovery() { find(address)? } else { address };
    let controller = weft_host::connect(&Options::new(address))?;
    for namespace in controller.namespaces() {
        let disk = controller.namespace(namespace.nsid)?;
        let block_bytes = disk.block_bytes() as usize;
        let blocks = BLOCKS.min(namespace.blocks);
        let mut data = vec![0; usize::try_from(blocks)? * block_bytes];
        disk.read(0, &mut data)?;
        let used = data.chunks(block_bytes).filter(|block| block.iter().any(|byte| *byte != 0));
        let (nsid, used) = (namespace.nsid, used.count());
        println!("namespace {nsid}: {used} of {blocks} blocks of {block_bytes} bytes are in use");
    }
    controller.disconnect()?;
    Ok(())
}

/// The first subsystem that a discovery controller knows.
fn find(address: TransportId) -> Result<TransportId, Box<dyn Error>> {
    let log = weft_host::discover(&Options::new(address))?;
    let mut found = log.entries.iter().filter_map(|entry| weft_host::transport_id(entry).ok());
    let found = found.find(|address| !address.is_discovery());
    found.ok_or_else(|| "no subsystem is there".into())
}
