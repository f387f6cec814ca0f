//! The host as a library, from discovery to reconnection: finds a subsystem, lists its namespaces,
//! writes, flushes and reads back the last block of the first one, gives it back, and resets the
//! controller to show that requests go on afterwards. What was in that block is lost.
//!
//! ```text
//! weft target --memory 64MiB
//! cargo run --package weft-host --example tour -- nvme-tcp://127.0.0.1:4420
//! ```

use std::error::Error;
use std::time::Duration;

use weft_host::{Event, Options, TransportId};

fn main() {
    if let Err(error) = tour() {
        eprintln!("tour: {error}");
        std::process::exit(1);
    }
}

fn tour() -> Result<(), Box<dyn Error>> {
    let usage = "an address, please: nvme-tcp://HOST:PORT or nvme-tcp://HOST:PORT/NQN";
    let address: TransportId = std::env::args().nth(1).ok_or(usage)?.parse()?;
    let address = if address.is_discovery() { find(address)? } else { address };

    let mut options = Options::new(address);
    options.reconnect_delay = Duration::from_secs(1);
    options.ctrl_loss_tmo = Some(Duration::from_secs(30));
    let controller = weft_host::connect(&options)?;
    let namespaces = controller.namespaces();
    for namespace in &namespaces {
        println!("namespace {}: {} bytes", namespace.nsid, namespace.bytes());
    }

    let disk = controller.namespace(namespaces.first().ok_or("no namespace")?.nsid)?;
    let block_bytes = u64::from(disk.block_bytes());
    let last = disk.bytes() - block_bytes;
    let written = vec![0x77; disk.block_bytes() as usize];
    disk.write(last, &written)?;
    disk.flush()?;

    // The connections are closed and made anew; what is asked meanwhile waits.
    controller.reset();
    let mut read = vec![0; written.len()];
    disk.read(last, &mut read)?;
    assert_eq!(read, written);
    while let Some(event) = controller.next_event(Duration::ZERO) {
        println!("event: {event}");
        if matches!(event, Event::Lost { retry_in: None, .. }) {
            return Err("the controller is gone for good".into());
        }
    }

    disk.deallocate(&[(last, block_bytes)])?;
    controller.disconnect()?;
    println!("done");
    Ok(())
}

/// The first subsystem that a discovery controller knows.
fn find(address: TransportId) -> Result<TransportId, Box<dyn Error>> {
    let log = weft_host::discover(&Options::new(address))?;
    let found = log.entries.iter().filter_map(|entry| weft_host::transport_id(entry).ok());
    found
        .filter(|address| !address.is_discovery())
        .inspect(|address| println!("found {address}"))
        .next()
        .ok_or_else(|| "no subsystem is there".into())
}
