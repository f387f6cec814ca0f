//! Programs of the distribution that a stage needs.
//!
//! A missing program is installed, which needs root; without root the stage fails and says what to
//! install. A stage is never skipped for a missing program.

use crate::cargo::target_folder;
use crate::python::succeeded;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// apt installs for one of the threads of the tests at a time, and packages are extracted once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Makes sure that programs are installed, each given by its name, or another file by its path,
/// with its Debian package.
pub fn need(what_for: &str, programs: &[(&str, &'static str)]) -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
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
        bail!("{what_for}, which is not installed (as root: {install})");
    }
    // The package lists may be outdated.
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())?;
    let missing = missing();
    if missing.is_empty() { Ok(()) } else { bail!("{install} lacks {}", missing.join(", ")) }
}

/// Downloads a package, with what it is called in front of its file's name.
pub fn download(folder: &Path, package: &str) -> Result<()> {
    let get = || apt_get_in(folder, &["download", package]);
    // There may be no package lists yet, or outdated ones.
    get().or_else(|_| apt_get(&["update"]).and_then(|()| get()))
}

/// The path of a program of a package, which is only extracted: installing it would start a daemon.
pub fn extract(root: &Path, package: &str, program: &str) -> Result<PathBuf> {
    Ok(extract_all(root, package, &[package])?.join("usr/bin").join(program))
}

/// The folder of this name, with what these packages have in it.
pub fn extract_all(root: &Path, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = target_folder(root).join(name);
    let done = folder.join("extracted");
    if !done.exists() {
        std::fs::create_dir_all(&folder)?;
        packages.iter().try_for_each(|package| download(&folder, package))?;
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "deb") {
                succeeded(Command::new("dpkg-deb").arg("-x").arg(path).arg(&folder))?;
            }
        }
        std::fs::write(done, "")?;
    }
    Ok(folder)
}

/// A folder with packages and what they depend on and is not installed. They are only extracted.
pub fn extract_with_dependencies(root: &Path, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = target_folder(root).join(name);
    let (archives, complete) = (folder.join("archives"), folder.join("complete"));
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
        return Ok(folder);
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(archives.join("partial"))?;
    let cache = format!("Dir::Cache::archives={}", archives.display());
    let install = ["install", "--download-only", "--reinstall", "--yes", "--no-install-recommends"];
    let words = [&["-o", &cache, "-o", "Debug::NoLocking=1"], &install[..], packages].concat();
    // There may be no package lists yet, or outdated ones.
    apt_get(&words).or_else(|_| apt_get(&["update"]).and_then(|()| apt_get(&words)))?;
    for entry in std::fs::read_dir(&archives)? {
        let file = entry?.path();
        if file.extension().is_some_and(|end| end == "deb") {
            succeeded(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&folder))?;
        }
    }
    std::fs::remove_dir_all(&archives)?;
    std::fs::write(complete, wanted)?;
    Ok(folder)
}

fn found(program: &str) -> bool {
    // What is joined as a whole path replaces the folder.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    apt_get_in(Path::new("/"), arguments)
}

fn apt_get_in(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.current_dir(folder).arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
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
    fn installed_programs_need_no_installation() {
        assert!(need("a shell runs", &[("sh", "no-such-package")]).is_ok());
        assert!(need("a shell runs", &[("/bin/sh", "no-such-package")]).is_ok());
    }
}
