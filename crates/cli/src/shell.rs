//! What a shell and `man` show of the command line, made from its definition.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{arguments::Arguments, failure::Failure, output};

/// Options of `weft completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `weft man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// An existing directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn completion(options: &CompletionOptions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "weft", &mut script);
    output::print_bytes(&script)
}

pub(crate) fn man(options: &ManOptions) -> Result<(), Failure> {
    let written = clap_mangen::generate_to(Arguments::command(), &options.directory);
    written.map_err(|error| Failure::io("write", &options.directory.display(), &error))
}
