//! `weft write-zeroes` and `weft dsm`: blocks that are changed without data.

use clap::Args;

use crate::connection::{Connection, NamespaceChoice};
use crate::copy::bytes_of;
use crate::failure::Failure;
use crate::output;

/// Options of `weft write-zeroes`.
#[derive(Debug, Args)]
pub(crate) struct ZeroesOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    report: output::BlockReport,
    /// First logical block (SLBA).
    #[arg(long, default_value_t = 0, value_name = "BLOCK")]
    start_block: u64,
    /// Number of logical blocks (nvme-cli's option is this number minus 1).
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    block_count: u64,
    /// The blocks may be deallocated (DEAC).
    #[arg(long)]
    deac: bool,
}

pub(crate) fn write_zeroes(options: &ZeroesOptions) -> Result<(), Failure> {
    let (controller, namespace) = options.connection.namespace(&options.namespace)?;
    let offset = bytes_of(options.start_block, &namespace)?;
    let length = bytes_of(options.block_count, &namespace)?;
    namespace.write_zeroes(offset, length, options.deac)?;
    let nsid = namespace.nsid();
    options.report.print(&format!("zeroed {length} bytes of namespace {nsid}"), nsid, length)?;
    Ok(controller.disconnect()?)
}

/// Options of `weft dsm`.
#[derive(Debug, Args)]
pub(crate) struct DsmOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    report: output::BlockReport,
    /// Deallocate: what the blocks hold is given up. There is no other attribute here.
    #[arg(long, required = true)]
    ad: bool,
    /// First logical block of each range.
    #[arg(long, required = true, value_delimiter = ',', value_name = "BLOCK,…")]
    slbs: Vec<u64>,
    /// Number of logical blocks of each range.
    #[arg(long, required = true, value_delimiter = ',', value_name = "BLOCKS,…",
        value_parser = clap::value_parser!(u64).range(1..))]
    blocks: Vec<u64>,
}

pub(crate) fn dsm(options: &DsmOptions) -> Result<(), Failure> {
    let (first, counts) = (options.slbs.len(), options.blocks.len());
    if first != counts {
        return Err(Failure::Because(format!("--slbs has {first} ranges, and --blocks {counts}")));
    }
    let (controller, namespace) = options.connection.namespace(&options.namespace)?;
    let ranges = options.slbs.iter().zip(&options.blocks);
    let ranges =
        ranges.map(|(slba, nlb)| Ok((bytes_of(*slba, &namespace)?, bytes_of(*nlb, &namespace)?)));
    let ranges: Vec<(u64, u64)> = ranges.collect::<Result<_, Failure>>()?;
    namespace.deallocate(&ranges)?;
    let bytes: u64 = ranges.iter().map(|(_, length)| length).sum();
    let nsid = namespace.nsid();
    options.report.print(&format!("deallocated {bytes} bytes of namespace {nsid}"), nsid, bytes)?;
    Ok(controller.disconnect()?)
}
