//! The crates of a release: what cargo publishes, the oldest compiler that they name, and what the
//! release before has promised to those who use them.

use crate::cargo::{FEATURES, install, target_folder};
use crate::python::succeeded;
use crate::{package, supply};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// The version that the workspace names (`rust-version`).
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// What compares the interfaces of two releases, built from its source once.
const SEMVER: (&str, &str) = ("cargo-semver-checks", "0.51.0");

/// Packs them, and no more.
pub(super) fn pack(root: &Path) -> Result<()> {
    supply::check_crates(root)?;
    println!("crates are packed, and not built (--quick)");
    supply::pack(root)
}

/// Checks them. Only a trial goes without what this machine lacks, and says so.
pub(super) fn check(root: &Path, is_trial: bool) -> Result<()> {
    supply::check_crates(root)?;
    supply::publish(root)?;
    match has_compiler(root) {
        true => build_with_oldest(root)?,
        false if is_trial => println!("!!! this trial has less: no compiler {OLDEST}"),
        false => bail!("crates are for Rust {OLDEST} on: rustup toolchain install {OLDEST}"),
    }
    match tag_before(root)? {
        Some(tag) => compare_with(root, &tag),
        None => {
            println!("no release is before {}: no interface is compared", package::VERSION);
            Ok(())
        }
    }
}

fn has_compiler(root: &Path) -> bool {
    let mut rustc = Command::new("rustup");
    succeeded(rustc.current_dir(root).args(["run", OLDEST, "rustc", "--version"])).is_ok()
}

/// Compiles the binary, which has all published crates, and removes what that leaves.
fn build_with_oldest(root: &Path) -> Result<()> {
    let folder = target_folder(root).join("oldest");
    let mut check = Command::new("rustup");
    check.current_dir(root).args(["run", OLDEST, "cargo", "check", "--locked", "--quiet"]);
    check.args(["--package", "weft-nvmeof"]).args(FEATURES).arg("--target-dir").arg(&folder);
    succeeded(&mut check)?;
    Ok(std::fs::remove_dir_all(folder)?)
}

/// The tag of the release before this one.
fn tag_before(root: &Path) -> Result<Option<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["tag", "--list", "v*", "--merged", "HEAD"]);
    let tags = succeeded(git.arg("--sort=-version:refname"))?;
    let own = format!("v{}", package::VERSION);
    Ok(tags.lines().find(|tag| *tag != own).map(str::to_owned))
}

/// Fails if an interface has changed more than the version says.
fn compare_with(root: &Path, tag: &str) -> Result<()> {
    let (name, version) = SEMVER;
    let mut compare = Command::new(install(root, name, version, &[])?);
    compare.current_dir(root).args(["semver-checks", "--workspace", "--baseline-rev", tag]);
    succeeded(&mut compare).map(drop)
}
