//! `weft flush`.

use clap::Args;

use crate::connection::{Connection, NamespaceChoice};
use crate::failure::Failure;
use crate::output;

/// Options of `weft flush`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    report: output::BlockReport,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (controller, namespace) = options.connection.namespace(&options.namespace)?;
    namespace.flush()?;
    let nsid = namespace.nsid();
    options.report.print(&format!("flushed namespace {nsid}"), nsid, 0)?;
    Ok(controller.disconnect()?)
}
