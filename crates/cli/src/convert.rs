//! `weft convert`: the configuration of another target as one of ours.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use weft_target::config::{nvmetcli, toml};

use crate::failure::Failure;
use crate::output::{self, Format};

/// Prints what nvmetcli has saved of a Linux target as TOML, and on standard error what of it is
/// not served.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What `nvmetcli save FILE` has written.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format: the configuration, or an object with it and with what is not served.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let path = &options.file;
    let in_file =
        |error: &dyn std::fmt::Display| Failure::Because(format!("{}: {error}", path.display()));
    let text = weft_backend::files::read_input(path).map_err(|error| in_file(&error))?;
    let loaded = nvmetcli::parse(&text).map_err(|error| in_file(&error))?;
    let (text, notes) =
        (toml::write(&loaded.config).map_err(|error| in_file(&error))?, &loaded.notes);
    if options.output_format == Format::Json {
        return output::print_json(&json!({ "configuration": text, "notes": notes }));
    }
    for note in notes {
        output::print_error(&format!("weft convert: {}: {note}", path.display()));
    }
    output::print(&text)
}
