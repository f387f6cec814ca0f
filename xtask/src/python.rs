//! Programs from PyPI, each in a virtual environment of its own below `target/`, of one version,
//! installed once.

use crate::{cargo, packages};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the programs of a package, which is named with its version; `program` is one of
/// them.
pub fn install(root: &Path, package: &str, program: &str) -> Result<PathBuf> {
    install_all(root, &[package], &[], program)
}

/// The same of a package whose own demands do not count: these packages, each with its version, and
/// no others.
pub fn install_exactly(root: &Path, packages: &[&str]) -> Result<PathBuf> {
    install_all(root, packages, &["--no-deps", "--only-binary", ":all:"], "python3")
}

fn install_all(root: &Path, packages: &[&str], how: &[&str], program: &str) -> Result<PathBuf> {
    let name: String = packages[0]
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    let folder = cargo::target_folder(root).join("python").join(name);
    let (programs, complete) = (folder.join("bin"), folder.join("complete"));
    let wanted = packages.join(" ");
    let is_complete = std::fs::read_to_string(&complete).is_ok_and(|found| found == wanted);
    if !is_complete || !programs.join(program).exists() {
        make_environment(&folder)?;
        let mut pip = Command::new(programs.join("pip"));
        // The next run begins anew if this one fails.
        succeeded(pip.args(["install", "--quiet"]).args(how).args(packages))?;
        std::fs::write(complete, wanted)?;
    }
    Ok(programs)
}

/// The system's own, for which Debian has packages with parts in C; the first of `PATH` may be
/// another.
const PYTHON: &str = "/usr/bin/python3";

/// Makes a virtual environment, for which Debian's Python alone lacks a part.
pub fn make_environment(folder: &Path) -> Result<()> {
    if succeeded(Command::new(PYTHON).args(["-c", "import venv, ensurepip"])).is_ok() {
        let arguments = ["-m", "venv", "--clear"];
        return succeeded(Command::new(PYTHON).args(arguments).arg(folder)).map(drop);
    }
    packages::need("tests use programs written in Python", &[("virtualenv", "virtualenv")])?;
    succeeded(Command::new("virtualenv").arg("--clear").arg(folder)).map(drop)
}

/// The output of a command that must succeed.
pub fn succeeded(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {text}{error}", output.status);
    }
    Ok(text)
}
