//! Copies of this program for machines that do not have this build of it.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use super::Way;
use super::process::explain;

/// Where it is on the other machine, in the home of the user.
fn folder(build: &str) -> String {
    format!(".cache/weft/{build}")
}

/// A script that starts the agent of a copied program.
pub(super) fn agent(build: &str) -> String {
    format!("cd && exec {}/weft agent", folder(build))
}

/// Copies this program to a machine unless this build of it is there.
///
/// # Errors
/// Half a sentence that says why that is not possible, and what helps.
pub(super) fn copy(way: &Way, build: &str) -> Result<(), String> {
    let folder = folder(build);
    // The answer to the first says that a shell was reached at all.
    let look = format!("cd && if test -x {folder}/weft; then echo there; else echo missing; fi");
    let looked = output(way.shell(&look)?.stdin(Stdio::null()))?;
    match String::from_utf8_lossy(&looked.stdout).lines().last() {
        Some("there") => return Ok(()),
        Some("missing") if looked.status.success() => {}
        _ => return Err(explain(&way.place, Some(looked.status), false, &lines(&looked))),
    }
    // Complete under its own name, or not there.
    let write = format!(
        "cd && umask 077 && mkdir -p {folder} && \
         {{ cat >{folder}/$$ && chmod 700 {folder}/$$ && mv {folder}/$$ {folder}/weft || \
         {{ rm -f {folder}/$$; exit 1; }}; }}"
    );
    let program = File::open("/proc/self/exe").map_err(|e| format!("read this program: {e}"))?;
    let written = output(way.shell(&write)?.stdin(program))?;
    if written.status.success() {
        return Ok(());
    }
    let why = lines(&written).pop().unwrap_or_else(|| written.status.to_string());
    Err(format!(
        "this program cannot be copied to ~/{folder} ({why}): make room there, or install its \
         package"
    ))
}

fn output(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|error| format!("cannot run {name} ({error}): is it installed?"))
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
