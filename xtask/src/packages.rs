//! Programs of the distribution that a stage cannot do without.
//!
//! Where one is missing it is installed, which takes root; without it the stage fails and says
//! what to install. It is never skipped: what was not run is not tested.

use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// Sees to it that the programs are there, each given with the Debian package that holds it.
pub(crate) fn need(what_for: &str, programs: &[(&str, &'static str)]) -> Result<()> {
    let missing = || -> Vec<&str> {
        let missing = programs.iter().filter(|(program, _)| !found(program));
        missing.map(|(_, package)| *package).collect()
    };
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !rustix::process::geteuid().is_root() || !found("apt-get") {
        bail!("{what_for}, and it is not here: install it (as root: {install})");
    }
    // The lists may be older than the archive.
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())?;
    let missing = missing();
    if missing.is_empty() { Ok(()) } else { bail!("{install} brought no {}", missing.join(", ")) }
}

fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let output = command.stdin(Stdio::null()).output().context("cannot start apt-get")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("apt-get {}: {}: {}", arguments.join(" "), output.status, why.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_needs_no_installing() {
        assert!(need("a shell runs", &[("sh", "no-such-package")]).is_ok());
    }
}
