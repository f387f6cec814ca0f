//! `weft agent`: this program as a part of a study that another machine runs.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use clap::Args;
use weft_lab::study::agent;
use weft_lab::study::knob::{self, Keeper, Knobs, Machine};
use weft_lab::study::linux::Linux;

use crate::failure::Failure;
use crate::signals;
use crate::study::child::Children;
use crate::study::here::this_build;

/// Options of `weft agent`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Put back what this journal has when standard input ends: what an agent starts beside itself
    /// before it changes anything.
    #[arg(long, hide = true, value_name = "JOURNAL")]
    watch: Option<PathBuf>,
}

/// Serves until standard input ends. Everything that was started ends with this process.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::because(
            "it is started by `weft study run --target-on PLACE --load-on PLACE`, which speaks to \
             it over standard input and output",
        ));
    }
    if let Some(journal) = &options.watch {
        return watch(journal);
    }
    let keeper = keeper();
    let knobs = Knobs::new(Arc::clone(&keeper));
    let linux = Arc::new(Linux::new(keeper));
    let launcher = Box::new(Children::new(&linux));
    let methods = agent::methods(launcher, Some(linux), this_build()?, knobs);
    weft_rpc::serve(methods, io::stdin(), io::stdout());
    Ok(())
}

/// The kernel of this machine.
pub(crate) fn linux() -> Arc<Linux> {
    Arc::new(Linux::new(keeper()))
}

/// What this process changes on its machine, with a watchdog.
fn keeper() -> Arc<Keeper> {
    Arc::new(Keeper::new(Machine::default(), Keeper::folder(), Box::new(watchdog)))
}

/// Starts the process that watches over this one.
fn watchdog(journal: &Path, file: File) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
    let mut command = Command::new(program);
    // The file's lock is held as long as it is open.
    command.args(["agent", "--watch"]).arg(journal).stdin(Stdio::piped()).stdout(file);
    let spawned = command.stderr(Stdio::null()).spawn();
    spawned.map_err(|error| format!("the watchdog cannot be started: {error}"))
}

/// Waits for the end of the agent.
fn watch(journal: &Path) -> Result<(), Failure> {
    // What ends the agent's group of processes, or asks its processes to end, is not for this one.
    let _ = rustix::process::setsid();
    let _ = signals::stop_flag();
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    knob::restore(&Machine::default(), journal).map(|_| ()).map_err(Failure::Because)
}
