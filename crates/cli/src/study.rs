//! `weft study`: experiments defined as data, run locally or against given targets.

mod against;
mod agents;
mod build_id;
pub(crate) mod child;
pub(crate) mod here;
mod keys;
mod list;
mod progress;
mod run;
mod show;
pub(crate) mod site;
mod summary;

pub(crate) use against::{COMPARISON, OTHER, THIS};
pub(crate) use run::{AdviceRun, AdviceSettings, NOT_QUIET, REPORT, RunOptions};

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Options of `weft study`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

/// A subcommand of `weft study`.
#[derive(Debug, Subcommand)]
enum Action {
    /// List the built-in studies, and how many cells of each can run here.
    List(list::Options),
    /// Show the question and cells of a study, and which of them cannot run here.
    Show(show::Options),
    /// Run a study and write its results and report into a directory.
    Run(Box<run::Options>),
    /// Compare two sets of results cell by cell: is the second slower?
    Compare(crate::compare::Options),
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.action {
        Action::List(options) => list::run(options),
        Action::Show(options) => show::run(options),
        Action::Run(options) => run::run(options),
        Action::Compare(options) => crate::compare::run(options),
    }
}

/// The first look is a study with a subcommand of its own.
pub(crate) fn first_look(options: &FirstLook) -> Result<(), Failure> {
    run::first_look(&options.how)
}

/// Options of `weft first-look`.
#[derive(Debug, Args)]
pub(crate) struct FirstLook {
    #[command(flatten)]
    how: run::RunOptions,
}
