//! Programs from PyPI, each in a virtual environment of its own below `target/`, of one version,
//! installed once.

use crate::packages;
use crate::test;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the programs of a package, which is named with its version; `program` is one of
/// them.
pub(crate) fn install(root: &Path, package: &str, program: &str) -> Result<PathBuf> {
    let name: String = package
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    let folder = test::target_folder(root).join("python").join(name);
    let programs = folder.join("bin");
    if !programs.join(program).exists() {
        make_environment(&folder)?;
        let install = ["install", "--quiet", package];
        if let Err(error) = succeeded(Command::new(programs.join("pip")).args(install)) {
            // The next run begins anew.
            let _ = std::fs::remove_dir_all(&folder);
            return Err(error);
        }
    }
    Ok(programs)
}

/// Makes a virtual environment, for which Debian's Python alone lacks a part.
pub(crate) fn make_environment(folder: &Path) -> Result<()> {
    if succeeded(Command::new("python3").args(["-c", "import venv, ensurepip"])).is_ok() {
        let arguments = ["-m", "venv", "--clear"];
        return succeeded(Command::new("python3").args(arguments).arg(folder)).map(drop);
    }
    packages::need("tests use programs written in Python", &[("virtualenv", "virtualenv")])?;
    succeeded(Command::new("virtualenv").arg("--clear").arg(folder)).map(drop)
}

/// The output of a command that must succeed.
pub(crate) fn succeeded(command: &mut Command) -> Result<String> {
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
