//! `weft report`: an HTML report of results.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use weft_lab::{html, whole};

use crate::failure::Failure;
use crate::output::{self, Format};

/// Default name of the page.
const PAGE: &str = "report.html";

/// Options of `weft report`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directories of results, as `weft study run` writes them; several make one page.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// The file to write. Default: report.html in the directory of results, or in the current
    /// directory, where there is none, if there are several.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write no page: say of each directory whether it is whole, as the run has left it, or why
    /// not. The exit code is 1 if one is not.
    #[arg(long, conflicts_with = "out")]
    verify: bool,
    /// Format of the message.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.verify {
        return verify(options);
    }
    let out = match (&options.out, options.directories.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [one]) => one.join(PAGE),
        (None, _) => {
            output::check_free(Path::new(PAGE), "--out")?;
            PathBuf::from(PAGE)
        }
    };
    for directory in &options.directories {
        if !directory.join("environment.json").exists() {
            return Err(Failure::Because(format!(
                "{} has no results: name a directory that `weft study run` wrote",
                directory.display()
            )));
        }
    }
    let directories: Vec<&Path> = options.directories.iter().map(PathBuf::as_path).collect();
    html::write_report(&directories, &out).map_err(Failure::because)?;
    let path = std::path::absolute(&out).unwrap_or(out);
    match options.output_format {
        Format::Human => output::print(&format!("{}\n", path.display())),
        Format::Json => output::print_json(&json!({ "report": path })),
    }
}

/// Says of each directory whether it is whole.
fn verify(options: &Options) -> Result<(), Failure> {
    let verified: Vec<_> =
        options.directories.iter().map(|directory| (directory, whole::verify(directory))).collect();
    match options.output_format {
        Format::Human => {
            for (directory, found) in &verified {
                let directory = directory.display();
                let said = match (found.is_valid(), found.sealed) {
                    (true, true) => "valid",
                    (true, false) => "valid, as far as results without seals tell",
                    (false, _) => "not valid",
                };
                output::print(&format!("{directory}: {said}\n"))?;
                for fault in &found.faults {
                    output::print(&format!("  {fault}\n"))?;
                }
            }
        }
        Format::Json => {
            let said = verified.iter().map(|(directory, found)| {
                json!({
                    "directory": directory,
                    "valid": found.is_valid(),
                    "sealed": found.sealed,
                    "faults": found.faults,
                })
            });
            output::print_json(&json!({ "results": said.collect::<Vec<_>>() }))?;
        }
    }
    match verified.iter().all(|(_, found)| found.is_valid()) {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}
