//! `weft study`: experiments as data, run here or against targets elsewhere.

mod child;
mod destroy;
mod list;
mod progress;
mod run;
mod show;
mod summary;

use std::path::Path;

use clap::{Args, Subcommand};
use weft_lab::{
    environment,
    study::{builtin, matrix::Capabilities, plan::Plan},
};

use crate::failure::Failure;

/// Options of `weft study`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

/// What to do with studies.
#[derive(Debug, Subcommand)]
enum Action {
    /// List the studies that come with weft, and how much of each runs here.
    List(list::Options),
    /// Show what a study asks, its cells, and what of it cannot run here.
    Show(show::Options),
    /// Run a study and write its results and its report into a directory.
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

/// The first look is a study like any other; it has a verb of its own because it comes first.
pub(crate) fn first_look(options: &FirstLook) -> Result<(), Failure> {
    run::first_look(&options.how)
}

/// Options of `weft first-look`.
#[derive(Debug, Args)]
pub(crate) struct FirstLook {
    #[command(flatten)]
    how: run::How,
}

/// A study as this machine runs it by itself.
fn plan_here(name: &str) -> Result<Plan, Failure> {
    let mut plan = plan(name)?;
    if capabilities().rdma {
        plan.with_rdma();
    }
    Ok(plan)
}

/// A built-in study by its name, or one from a file.
fn plan(name: &str) -> Result<Plan, Failure> {
    if let Some(builtin) = builtin::find(name) {
        return builtin.plan().map_err(Failure::because);
    }
    let path = Path::new(name);
    if !name.ends_with(".toml") && !path.exists() {
        return Err(Failure::Because(format!(
            "there is no study {name:?}; `weft study list` shows those that there are, and \
             PLAN.toml is one of your own"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io("read", &name, &error))?;
    text.parse().map_err(|error| Failure::Because(format!("{name}: {error}")))
}

/// What there is to run studies with, when nothing is given.
fn capabilities() -> Capabilities {
    Capabilities {
        cpus: environment::cpus(),
        own_target: true,
        rdma: environment::rdma_address().is_some(),
        ..Capabilities::default()
    }
}
