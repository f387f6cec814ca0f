//! `weft agent`: this program as a part of a study that another machine runs.

use std::io::{self, IsTerminal};

use clap::Args;
use weft_lab::study::agent;

use crate::{failure::Failure, study};

/// Options of `weft agent`.
#[derive(Debug, Args)]
pub(crate) struct Options {}

/// Serves until standard input ends. Everything that was started ends with this process.
pub(crate) fn run(_: &Options) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::because(
            "it is started by `weft study run --target-on PLACE --load-on PLACE`, which speaks to \
             it over standard input and output",
        ));
    }
    let methods = agent::methods(Box::new(study::Children::default()), study::this_build()?);
    weft_rpc::serve(methods, io::stdin(), io::stdout());
    Ok(())
}
