//! `weft study run --against`: another build measures the same study in turns with this one.
//!
//! Each build runs as a process of its own, host and targets, into a directory of its own: one
//! repeat of all cells, then the other build the same repeat. What changes on the machine meanwhile
//! meets both. The order within a pair of turns alternates. A comparison that was stopped goes on
//! with the turn that it was at, if the two binaries still are the same.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use weft_backend::files::read_text;
use weft_lab::compare::{self, Parameters};
use weft_lab::results::{self, file};
use weft_lab::study::capabilities::Capabilities;
use weft_lab::study::matrix::{Step, expand};
use weft_lab::study::plan::{Plan, with_repeats};
use weft_reactor::DriverKind;

use super::run::{RunOptions, several};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::signals;

/// Names of the two directories of results.
pub(crate) const OTHER: &str = "other";
pub(crate) const THIS: &str = "this";

/// Name of the file beside them that says how far the comparison is.
pub(crate) const COMPARISON: &str = "comparison.json";

/// How often a turn is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What the two builds measure.
pub(super) struct Turns<'a> {
    pub(super) how: &'a RunOptions,
    pub(super) directory: PathBuf,
}

/// A comparison and how far it is; it can be resumed.
#[derive(Debug, Serialize, Deserialize)]
struct Comparison {
    /// The other build and this one.
    builds: [Build; 2],
    /// Repeats of each build.
    repeats: u32,
    /// The arguments of the first turn, without repeats and directory.
    words: Vec<String>,
    /// The driver of all turns.
    driver: String,
    /// How many turns are done.
    done: u32,
}

/// A binary and its contents.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Build {
    program: PathBuf,
    contents: u64,
}

/// A build, and where its results are.
struct Side {
    name: &'static str,
    program: PathBuf,
    directory: PathBuf,
}

/// Whether a comparison was begun in this directory.
pub(super) fn is_comparison(directory: &Path) -> bool {
    [OTHER, THIS].iter().any(|name| directory.join(name).is_dir())
        || directory.join(COMPARISON).exists()
}

impl Turns<'_> {
    /// Measures with both builds and compares: is this one slower than the other?
    pub(super) fn begin(
        self,
        other: &Path,
        words: Vec<String>,
        plan: &Plan,
        capabilities: &Capabilities,
    ) -> Result<(), Failure> {
        let repeats = self.repeats(plan, capabilities)?;
        let builds = [build(other)?, this_build()?];
        if is_comparison(&self.directory) {
            return Err(Failure::Because(format!(
                "{} holds a comparison already: use --resume to continue it, or another --out",
                self.directory.display()
            )));
        }
        let driver = DriverKind::from(self.how.driver).name().to_owned();
        let comparison = Comparison { builds, repeats, words, driver, done: 0 };
        fs::create_dir_all(&self.directory)
            .map_err(|error| Failure::io("write", &self.directory.display(), &error))?;
        self.keep(&comparison)?;
        self.run(comparison)
    }

    /// Measures what is missing, and compares.
    pub(super) fn resume(self) -> Result<(), Failure> {
        let path = self.directory.join(COMPARISON);
        let text = read_text(&path).map_err(|error| {
            Failure::Because(format!(
                "the comparison in {} cannot be resumed, for it does not say how far it is ({}: \
                 {error}): begin it anew with another --out",
                self.directory.display(),
                path.display()
            ))
        })?;
        let comparison: Comparison = serde_json::from_str(&text)
            .map_err(|error| Failure::Because(format!("{}: {error}", path.display())))?;
        let [other, this] = &comparison.builds;
        for (before, now) in [(other, build(&other.program)?), (this, this_build()?)] {
            if *before != now {
                return Err(Failure::Because(format!(
                    "{} is another build than {}, which has measured so far: begin the comparison \
                     anew with another --out",
                    now.program.display(),
                    before.program.display(),
                )));
            }
        }
        self.how.driver_of("comparison", &comparison.driver)?;
        self.run(comparison)
    }

    fn run(self, mut comparison: Comparison) -> Result<(), Failure> {
        let side = |name, build: &Build| {
            let (program, directory) = (build.program.clone(), self.directory.join(name));
            Side { name, program, directory }
        };
        let [first, second] = &comparison.builds;
        let sides = [side(OTHER, first), side(THIS, second)];
        let [other, this] = &sides;
        let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
        let repeats = comparison.repeats;
        while comparison.done < 2 * repeats {
            let repeat = comparison.done / 2 + 1;
            // Odd repeats begin with the other build, even ones with this one.
            let side = if (comparison.done + repeat) % 2 == 1 { other } else { this };
            self.say(&format!("repeat {repeat} of {repeats}, {}", side.program.display()));
            self.how.await_quiet(None, &stop)?;
            self.turn(side, &comparison, repeat, &stop)?;
            comparison.done += 1;
            self.keep(&comparison)?;
        }
        if self.how.output_format == Format::Human {
            for side in &sides {
                output::print(&format!("results: {}\n", side.directory.display()))?;
            }
        }
        let accepts_disturbed = self.how.accept_disturbed;
        let parameters = Parameters { accepts_disturbed, ..Parameters::default() };
        let (first, second) = (&*other.directory, &*this.directory);
        crate::compare::conclude(first, second, &parameters, false, self.how.output_format)
    }

    /// Writes how far the comparison is.
    fn keep(&self, comparison: &Comparison) -> Result<(), Failure> {
        let path = self.directory.join(COMPARISON);
        let new = self.directory.join(format!(".{COMPARISON}.new"));
        let text = serde_json::to_string_pretty(comparison).map_err(Failure::because)?;
        let written = fs::write(&new, format!("{text}\n")).and_then(|()| fs::rename(new, &path));
        written.map_err(|error| Failure::io("write", &path.display(), &error))
    }

    /// How many repeats each build measures: as given, or as many as are recommended.
    fn repeats(&self, plan: &Plan, capabilities: &Capabilities) -> Result<u32, Failure> {
        let only = plan.run.as_ref().map(|run| run.only.clone()).unwrap_or_default();
        let matrix = expand(plan, capabilities, &only);
        let can_run = |step: &&Step| step.missing().is_none();
        let cells = matrix.steps().filter(can_run).flat_map(Step::cells).count();
        if cells == 0 {
            let why = "no cell of the study can run here: `weft study show` says why";
            return Err(Failure::because(why));
        }
        let parameters = Parameters::default();
        let metric = plan.judged_by();
        let (least, recommended) = compare::repeats_needed(cells, &metric, &parameters);
        let repeats = self.how.repeats().unwrap_or(u32::try_from(recommended).unwrap_or(u32::MAX));
        if (repeats as usize) < least {
            return Err(Failure::Because(format!(
                "--repeats {repeats} cannot convince, whatever they show: with {} it takes at \
                 least {least} of each build; {recommended} are recommended. Give as many, or \
                 choose fewer cells (--only)",
                several(cells, "cell"),
            )));
        }
        Ok(repeats)
    }

    /// One repeat of all cells by one build, or what is missing of it.
    fn turn(
        &self,
        side: &Side,
        comparison: &Comparison,
        repeat: u32,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut command = Command::new(&side.program);
        // A turn runs here, whatever nodes there are.
        command.env_remove("SLURM_JOB_NODELIST").args(["study", "run"]);
        let before = measured(side);
        let path = side.directory.join(file::PLAN);
        if path.exists() {
            rewrite(&path, repeat).map_err(Failure::Because)?;
            command.arg("--resume").arg(&side.directory);
        } else {
            command.args(&comparison.words).args(["--repeats", "1", "--out"]).arg(&side.directory);
        }
        command.args(["--driver", &comparison.driver]);
        self.common(&mut command, repeat == comparison.repeats);
        // Ctrl-C is handled by this process, which stops the turn cleanly.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|e| Failure::io("start", &side.program.display(), &e))?;
        let status = wait(child, stop)
            .map_err(|error| Failure::io("wait for", &side.program.display(), &error))?;
        let kept = self.directory.display();
        if stop.load(Ordering::Relaxed) {
            output::print_error(&format!(
                "weft study: stopped; to continue: weft study run --resume {kept}"
            ));
            return Err(Failure::Exit(signals::INTERRUPTED));
        }
        // A cell without a result is named by the comparison.
        if !status.success() && measured(side) <= before {
            return Err(Failure::Because(format!(
                "the {} build ({}) measured nothing in repeat {repeat}, for the reason above; \
                 what was measured before is kept; to continue: weft study run --resume {kept}",
                side.name,
                side.program.display(),
            )));
        }
        Ok(())
    }

    /// The arguments of every turn.
    fn common(&self, command: &mut Command, is_last: bool) {
        let how = self.how;
        for name in &how.yes_destroy {
            command.args(["--yes-destroy", name]);
        }
        let flags = [
            ("--fio-json", how.fio_json),
            ("--quiet", how.quiet),
            ("--no-report", how.no_report || !is_last),
        ];
        command.args(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| flag));
    }

    fn say(&self, what: &str) {
        if !self.how.quiet {
            output::print_error(&format!("weft study: {what}"));
        }
    }
}

/// Another build, whose binary has said its version.
fn build(path: &Path) -> Result<Build, Failure> {
    let wrong = |why: &str| {
        Failure::Because(format!(
            "--against {}: {why}; give the path of another build's binary",
            path.display()
        ))
    };
    let absolute = std::path::absolute(path).map_err(|error| wrong(&error.to_string()))?;
    let said = Command::new(&absolute).arg("--version").stdin(Stdio::null()).output();
    let said = said.map_err(|error| wrong(&error.to_string()))?;
    if !said.status.success() || !said.stdout.starts_with(b"weft ") {
        return Err(wrong("it is not weft"));
    }
    Build::of(absolute).map_err(|error| wrong(&error.to_string()))
}

fn this_build() -> Result<Build, Failure> {
    let program = std::env::current_exe();
    let build = program.and_then(Build::of);
    build.map_err(|error| Failure::io("read", &"this program's binary", &error))
}

impl Build {
    fn of(program: PathBuf) -> io::Result<Self> {
        let contents = super::here::contents(&program)?;
        Ok(Self { program, contents })
    }
}

/// How many repeats a directory has.
fn measured(side: &Side) -> usize {
    results::load(&side.directory)
        .map_or(0, |results| results.records.iter().filter(|record| record.is_measured()).count())
}

/// Sets the number of repeats of the plan in a directory of results.
fn rewrite(path: &Path, repeats: u32) -> Result<(), String> {
    let what = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = read_text(path).map_err(|error| what(&error))?;
    let text = with_repeats(&text, repeats).map_err(|error| what(&error))?;
    fs::write(path, text).map_err(|error| what(&error))
}

/// Waits for the end of a turn; a stop is passed on to it.
fn wait(mut child: Child, stop: &AtomicBool) -> io::Result<ExitStatus> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut told, true) {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        thread::sleep(LOOK);
    }
}
