//! `weft study run --against`: another build measures the same study in turns with this one.
//!
//! Each build runs as a process of its own, host and targets, into a directory of its own: one
//! repeat of all cells, then the other build the same repeat. What changes on the machine meanwhile
//! meets both. The order within a pair of turns alternates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use weft_lab::{
    compare::{self, Parameters},
    results::{self, file},
    study::{
        matrix::{Capabilities, Step, expand},
        plan::{Plan, with_repeats},
    },
};

use super::run::{How, several};
use crate::{
    failure::Failure,
    output::{self, Format},
    signals,
};

/// Names of the two directories of results.
const OTHER: &str = "other";
const THIS: &str = "this";

/// How often a turn is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What the two builds measure.
pub(super) struct Turns<'a> {
    pub(super) how: &'a How,
    /// The arguments of the first turn, without repeats and directory.
    pub(super) words: Vec<String>,
    pub(super) plan: &'a Plan,
    pub(super) directory: PathBuf,
}

/// A build, and where its results are.
struct Side {
    name: &'static str,
    program: PathBuf,
    directory: PathBuf,
}

impl Turns<'_> {
    /// Measures with both builds and compares: is this one slower than the other?
    pub(super) fn run(self, other: &Path, capabilities: &Capabilities) -> Result<(), Failure> {
        let repeats = self.repeats(capabilities)?;
        let this = std::env::current_exe()
            .map_err(|error| Failure::io("find", &"the path of this program", &error))?;
        let sides = [(OTHER, build(other)?), (THIS, this)].map(|(name, program)| {
            let directory = self.directory.join(name);
            Side { name, program, directory }
        });
        if let Some(side) = sides.iter().find(|side| side.directory.exists()) {
            return Err(Failure::Because(format!(
                "{} is there already: give another --out",
                side.directory.display()
            )));
        }
        let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
        for repeat in 1..=repeats {
            let mut turns: Vec<&Side> = sides.iter().collect();
            if repeat % 2 == 0 {
                turns.reverse();
            }
            for side in turns {
                self.say(&format!("repeat {repeat} of {repeats}, {}", side.program.display()));
                self.turn(side, (repeat, repeats), &stop)?;
            }
        }
        let [first, second] = &sides;
        if self.how.output_format == Format::Human {
            for side in &sides {
                output::print(&format!("results: {}\n", side.directory.display()))?;
            }
        }
        let directories = (&*first.directory, &*second.directory);
        let parameters = Parameters::default();
        crate::compare::conclude(directories, &parameters, false, self.how.output_format)
    }

    /// How many repeats each build measures: as given, or as many as are recommended.
    fn repeats(&self, capabilities: &Capabilities) -> Result<u32, Failure> {
        let only = self.plan.run.as_ref().map(|run| run.only.clone()).unwrap_or_default();
        let matrix = expand(self.plan, capabilities, &only);
        let can_run = |step: &&Step| step.missing().is_none();
        let cells = matrix.steps().filter(can_run).flat_map(Step::cells).count();
        if cells == 0 {
            return Err(Failure::because(
                "no cell of the study can run here: `weft study show` \
                                         says why",
            ));
        }
        let parameters = Parameters::default();
        let metric = self.plan.judged_by();
        let (least, recommended) = compare::repeats_needed(cells, &metric, &parameters);
        let repeats = self.how.repeats.unwrap_or(u32::try_from(recommended).unwrap_or(u32::MAX));
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

    /// One repeat of all cells by one build.
    fn turn(
        &self,
        side: &Side,
        (repeat, repeats): (u32, u32),
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut command = Command::new(&side.program);
        command.args(["study", "run"]);
        let before = measured(side);
        if repeat == 1 {
            command.args(&self.words).args(["--repeats", "1", "--out"]).arg(&side.directory);
        } else {
            let path = side.directory.join(file::PLAN);
            rewrite(&path, repeat).map_err(Failure::Because)?;
            command.arg("--resume").arg(&side.directory);
        }
        self.common(&mut command, repeat == repeats);
        // Ctrl-C is handled by this process, which stops the turn cleanly.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|e| Failure::io("start", &side.program.display(), &e))?;
        let status = wait(child, stop)
            .map_err(|error| Failure::io("wait for", &side.program.display(), &error))?;
        let kept = self.directory.display();
        if stop.load(Ordering::Relaxed) {
            output::complain(&format!("weft study: stopped; the measured repeats are in {kept}"));
            return Err(Failure::Exit(signals::INTERRUPTED));
        }
        // A cell without a result is named by the comparison.
        if !status.success() && measured(side) <= before {
            return Err(Failure::Because(format!(
                "the {} build ({}) measured nothing in repeat {repeat}, for the reason above; \
                 what was measured before is in {kept}",
                side.name,
                side.program.display(),
            )));
        }
        Ok(())
    }

    /// The arguments of every turn.
    fn common(&self, command: &mut Command, is_last: bool) {
        let how = self.how;
        if let Some(driver) = how.driver.to_possible_value() {
            command.args(["--driver", driver.get_name()]);
        }
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
            output::complain(&format!("weft study: {what}"));
        }
    }
}

/// The path of another build's binary, which has said its version.
fn build(path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |why: &str| {
        Failure::Because(format!(
            "--against {}: {why}; give the path of another build's binary",
            path.display()
        ))
    };
    let absolute = std::path::absolute(path).map_err(|error| wrong(&error.to_string()))?;
    let said = Command::new(&absolute).arg("--version").stdin(Stdio::null()).output();
    let said = said.map_err(|error| wrong(&error.to_string()))?;
    match said.status.success() && said.stdout.starts_with(b"weft ") {
        true => Ok(absolute),
        false => Err(wrong("it is not weft")),
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
    let text = fs::read_to_string(path).map_err(|error| what(&error))?;
    let text = with_repeats(&text, repeats).map_err(|error| what(&error))?;
    fs::write(path, text).map_err(|error| what(&error))
}

/// Waits for the end of a turn; a stop is passed on to it.
fn wait(mut child: Child, stop: &AtomicBool) -> std::io::Result<ExitStatus> {
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
