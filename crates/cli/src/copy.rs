//! `weft copy`.

use clap::Args;
use weft_host::{CopySource, Namespace};

use crate::connection::{Connection, NamespaceChoice};
use crate::failure::Failure;
use crate::output;

/// Options of `weft copy`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    report: output::BlockReport,
    /// First logical block that is written (SDLBA).
    #[arg(long, value_name = "BLOCK")]
    sdlba: u64,
    /// First logical block of each source range.
    #[arg(long, required = true, value_delimiter = ',', value_name = "BLOCK,…")]
    slbs: Vec<u64>,
    /// Number of logical blocks of each source range (nvme-cli's option is this number minus 1).
    #[arg(long, required = true, value_delimiter = ',', value_name = "BLOCKS,…",
        value_parser = clap::value_parser!(u64).range(1..))]
    blocks: Vec<u64>,
    /// Namespace of each source range; by default the one that is written.
    #[arg(long, value_delimiter = ',', value_name = "NSID,…")]
    snsids: Vec<u32>,
    /// Complete when the data is durable (FUA).
    #[arg(short, long, visible_alias = "force-unit-access")]
    fua: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let ranges = options.slbs.len();
    let mut counts = vec![("--blocks", options.blocks.len())];
    if !options.snsids.is_empty() {
        counts.push(("--snsids", options.snsids.len()));
    }
    if let Some((flag, count)) = counts.into_iter().find(|(_, count)| *count != ranges) {
        return Err(Failure::Because(format!(
            "--slbs has {ranges} source ranges, and {flag} has {count}"
        )));
    }
    let (controller, namespace) = options.connection.namespace(&options.namespace)?;
    let sources = sources(options, &namespace)?;
    namespace.copy(bytes_of(options.sdlba, &namespace)?, &sources, options.fua)?;
    let bytes: u64 = sources.iter().map(|source| source.length).sum();
    let nsid = namespace.nsid();
    options.report.print(&format!("copied {bytes} bytes to namespace {nsid}"), nsid, bytes)?;
    Ok(controller.disconnect()?)
}

fn sources(options: &Options, namespace: &Namespace) -> Result<Vec<CopySource>, Failure> {
    let ranges = options.slbs.iter().zip(&options.blocks).enumerate();
    let source = |(index, (slba, nlb)): (usize, (&u64, &u64))| {
        let nsid = options.snsids.get(index).copied().unwrap_or(namespace.nsid());
        let (offset, length) = (bytes_of(*slba, namespace)?, bytes_of(*nlb, namespace)?);
        Ok(CopySource { nsid, offset, length })
    };
    ranges.map(source).collect()
}

/// Blocks as bytes.
pub(crate) fn bytes_of(blocks: u64, namespace: &Namespace) -> Result<u64, Failure> {
    let bytes = blocks.checked_mul(namespace.block_bytes().into());
    bytes.ok_or_else(|| Failure::Because(format!("{blocks} blocks exceed any namespace")))
}
