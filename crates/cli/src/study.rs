//! `weft study`: experiments defined as data, run locally or against given targets.

mod against;
mod agents;
mod build_id;
mod child;
mod keys;
mod list;
mod progress;
mod run;
mod show;
pub(crate) mod site;
mod summary;

pub(crate) use against::{COMPARISON, OTHER, THIS};
pub(crate) use child::Children;

use std::{
    hash::{DefaultHasher, Hasher},
    io,
    path::Path,
};

use clap::{Args, Subcommand};
use weft_backend::files::read_text;
use weft_lab::{
    environment,
    study::{agent, builtin, linux, matrix::Capabilities, plan::Plan, site::SpdkTools},
};

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
    how: run::How,
}

/// This build, for agents, which have to be of the same.
pub(crate) fn this_build() -> Result<agent::Build, Failure> {
    // The file by that name may be another one by now.
    let program = Path::new("/proc/self/exe");
    let of_contents = || contents(program).map(|contents| format!("{contents:016x}"));
    let id = build_id::of(program).map_or_else(of_contents, Ok);
    let id = id.map_err(|error| Failure::io("read", &"this program's binary", &error))?;
    Ok(agent::Build { version: env!("CARGO_PKG_VERSION").to_owned(), id })
}

/// What tells a binary from others.
fn contents(program: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(program)?);
    Ok(hasher.finish())
}

/// A study as it runs on this machine.
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
            "{name:?} is not a study: `weft study list` shows the built-in ones; a plan of your \
             own is given as PLAN.toml"
        )));
    }
    let text = read_text(path).map_err(|error| Failure::io("read", &name, &error))?;
    text.parse().map_err(|error| Failure::Because(format!("{name}: {error}")))
}

/// What is available for studies if no target is given.
fn capabilities() -> Capabilities {
    Capabilities {
        cpus: environment::cpus(),
        own_target: true,
        rdma: environment::rdma_address().is_some(),
        tls: cfg!(feature = "tls"),
        lacks: linux::lacks(&SpdkTools::default()),
        ..Capabilities::default()
    }
}
