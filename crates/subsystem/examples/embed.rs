//! A target within another program: serves memory, adds a namespace while hosts are connected, and
//! says at the end of its standard input what hosts have read.
//!
//! ```text
//! cargo run --package weft-target --example embed
//! weft list ADDRESS            # which the example prints
//! ```

use std::error::Error;
use std::io;

use weft_target::Target;
use weft_target::config::toml;

/// The keys of docs/config.toml.
const CONFIG: &str = r#"
[[port]]
listen = "tcp://127.0.0.1:0"
[[subsystem]]
nqn = "nqn.2024-01.io.example:embedded"
[[subsystem.namespace]]
memory = "64MiB"
"#;

/// Belongs to the last subsystem.
const MORE: &str = "[[subsystem.namespace]]\nnull = \"1GiB\"\n";

fn main() -> Result<(), Box<dyn Error>> {
    let mut target = Target::start(toml::parse(CONFIG)?)?;
    let address = target.addresses().into_values().next().ok_or("no port is open")?;
    println!("nvme-tcp://{address}/nqn.2024-01.io.example:embedded");
    // Hosts stay connected, and are told.
    for change in target.reload(toml::parse(&format!("{CONFIG}{MORE}"))?)? {
        println!("{change}");
    }
    io::copy(&mut io::stdin(), &mut io::sink())?;
    let statistics = target.watch().statistics();
    for served in statistics.groups.iter().flat_map(|group| &group.served) {
        println!("namespace {}: {} bytes read", served.nsid, served.read_bytes);
    }
    Ok(target.stop()?)
}
