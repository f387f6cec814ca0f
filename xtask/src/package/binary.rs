//! The binaries that packages carry.

use super::parts::Arch;
use crate::cargo::{FEATURES, cargo_command, need_target, target_folder};
use crate::python::succeeded;
use crate::{packages, python};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest C library that Rust's standard library runs on, and that of manylinux2014.
const GLIBC: &str = "2.17";
/// What is shipped.
pub(super) const DIST: &[&str] = &["--profile", "dist"];
/// What has little to do, and is built soon.
pub(super) const QUICK: &[&str] = &[
    "--config",
    "profile.dev.opt-level=0",
    "--config",
    "profile.dev.debug=false",
    "--config",
    "profile.dev.package.crypto-bigint.opt-level=0",
    "--config",
    "profile.dev.package.weft-advise.opt-level=0",
];

/// It links for an older C library than this machine's, and for another processor.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.1";

/// A binary with shared libraries, for every distribution since CentOS 7.
pub(super) fn shared(root: &Path, arch: Arch, profile: &[&str]) -> Result<PathBuf> {
    let target = arch.target("gnu");
    zigbuild(root, &target, &format!("{target}.{GLIBC}"), profile)?;
    Ok(built(root, &target, profile))
}

/// A binary without shared libraries; `profile` are cargo's options.
pub(super) fn alone(root: &Path, arch: Arch, profile: &[&str]) -> Result<PathBuf> {
    let target = arch.target("musl");
    zigbuild(root, &target, &target, profile)?;
    Ok(built(root, &target, profile))
}

fn built(root: &Path, target: &str, profile: &[&str]) -> PathBuf {
    let folder = if profile.contains(&"dist") { "dist" } else { "debug" };
    target_folder(root).join(target).join(folder).join("weft")
}

/// Builds the binary, with TLS, whose library is written in C: zig is its compiler and the linker.
fn zigbuild(root: &Path, target: &str, versioned: &str, profile: &[&str]) -> Result<()> {
    need_target(root, target)?;
    let programs = python::install(root, ZIGBUILD, "cargo-zigbuild")?;
    let mut path = programs.into_os_string();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    let mut command = cargo_command(root);
    command.args(["zigbuild", "--package", "weft-nvmeof", "--target", versioned]);
    command
        .env("CARGO_ENCODED_RUSTFLAGS", names_of_folders(root, "--remap-path-prefix=")?.join(FLAG));
    // The name that counts before all others: what is built for this machine's own kind as well
    // takes no flags of a `TARGET_`.
    let flags = format!("CFLAGS_{}", target.replace('-', "_"));
    command.env(flags, names_of_folders(root, "-ffile-prefix-map=")?.join(" "));
    run(command.args(FEATURES).args(profile).env("PATH", path))
}

/// What is between flags in cargo's variable.
const FLAG: &str = "\x1f";

/// Flags by which no folder of this machine is in the binary, which is then the same wherever it is
/// built.
fn names_of_folders(root: &Path, flag: &str) -> Result<Vec<String>> {
    let folders = folders(root)?;
    Ok(folders.map(|(folder, name)| format!("{flag}{}={name}", folder.display())).to_vec())
}

/// Folders of this machine that a compiler sees, and what a binary calls them. What comes later
/// counts: the target folder may be below the root.
fn folders(root: &Path) -> Result<[(PathBuf, &'static str); 3]> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let registry = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
    let registry = registry.context("neither CARGO_HOME nor HOME is set")?;
    Ok([(registry, "/cargo"), (root.to_owned(), "/weft"), (target_folder(root), "/target")])
}

/// Fails if a binary without symbols has the name of a folder of this machine.
pub(super) fn check_names(root: &Path, binary: &Path) -> Result<()> {
    for (folder, _) in folders(root)? {
        let mut grep = Command::new("grep");
        grep.args(["--text", "--fixed-strings", "--only-matching", "--regexp"]);
        let output = grep.arg(format!("{}/", folder.display())).arg(binary).output()?;
        ensure!(output.status.code() == Some(1), "the binary names {}", folder.display());
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!("{command:?}: {status}") }
}

/// Copies a binary without its symbols.
pub(super) fn strip(arch: Arch, from: &Path, to: &Path) -> Result<()> {
    let (program, package) = match (arch == Arch::here(), arch) {
        (true, _) => ("strip", "binutils"),
        (false, Arch::X86) => ("x86_64-linux-gnu-strip", "binutils-x86-64-linux-gnu"),
        (false, Arch::Arm) => ("aarch64-linux-gnu-strip", "binutils-aarch64-linux-gnu"),
    };
    packages::need("packages carry no symbols", &[(program, package)])?;
    succeeded(Command::new(program).arg("-o").arg(to).arg(from)).map(drop)
}

/// The newest version of the C library that a binary asks for.
pub(super) fn glibc(binary: &Path) -> Result<(u32, u32)> {
    packages::need("readelf shows what a binary needs", &[("readelf", "binutils")])?;
    let versions = succeeded(Command::new("readelf").args(["-W", "--version-info"]).arg(binary))?;
    newest_glibc(&versions).context("the binary names no version of the C library")
}

fn newest_glibc(versions: &str) -> Option<(u32, u32)> {
    let versions = versions.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (major, minor) = rest[..end].split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max()
}

/// The names of the shared libraries that a binary needs.
pub(super) fn libraries(binary: &Path) -> Result<Vec<String>> {
    let dynamic = succeeded(Command::new("readelf").args(["-W", "--dynamic"]).arg(binary))?;
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    Ok(needed.filter_map(|line| Some(line.split(['[', ']']).nth(1)?.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        let symbols = "memcpy (GLIBC_2.14)\nfstat (GLIBC_2.33)\nfoo (GLIBC_2.2.5)\n";
        assert_eq!(newest_glibc(symbols), Some((2, 33)));
        assert_eq!(newest_glibc("nothing"), None);
    }
}
