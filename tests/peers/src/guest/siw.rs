//! Soft-iWARP (siw) for the guest, which Debian's kernels do not include.
//!
//! Its source is in Debian's `linux-source` and is compiled against the headers of the guest's
//! kernel, by Debian's compiler in a separate folder. The result is one file in the cache,
//! `siw/VERSION/siw.ko`, outside the image: tests that need it copy it into the folder shared with
//! the guest. The first of them compiles it, which takes half a gigabyte of packages and about a
//! quarter of a minute.

use super::apt::{Apt, unpack};
use super::image::{Image, SUITE};
use super::{cache_folder, output, say};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Packages for the build, beside the kernel's headers and source.
const PACKAGES: &[&str] = &[
    "bash",
    "coreutils",
    "findutils",
    "gawk",
    "gcc-14",
    "grep",
    "kmod",
    "libc6-dev",
    "make",
    "perl-base",
    "sed",
    "tar",
    "xz-utils",
];

/// Runs in its own mount namespace, with the unpacked packages as working folder.
const SCRIPT: &str = include_str!("siw.sh");

/// Compiles the module for the kernel of `image`, unless it is cached.
pub(crate) fn prepare(image: &Image) -> Result<PathBuf> {
    let cache = cache_folder()?;
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    let path = place(image)?;
    if path.exists() {
        return Ok(path);
    }
    let start = Instant::now();
    let work = cache.join("work-siw");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let made = compile(&cache, &work, &image.version)?;
    fs::create_dir_all(path.parent().context("no parent")?)?;
    fs::rename(made, &path)?;
    fs::remove_dir_all(&work)?;
    fs::remove_dir_all(cache.join("apt/archives/siw"))?;
    say(&format!("siw is ready after {} s", start.elapsed().as_secs()));
    Ok(path)
}

fn place(image: &Image) -> Result<PathBuf> {
    Ok(cache_folder()?.join("siw").join(&image.version).join("siw.ko"))
}

fn compile(cache: &Path, work: &Path, version: &str) -> Result<PathBuf> {
    say(&format!("preparing soft-iWARP for Linux {version}, once"));
    let apt = Apt::open(&cache.join("apt"), SUITE)?;
    let headers = format!("linux-headers-{version}");
    let mut packages = PACKAGES.to_vec();
    packages.extend([headers.as_str(), "linux-source"]);
    let files = apt.closure(&packages, "siw").with_context(|| {
        format!("without {headers}, `cargo xtask guest build --force` takes the newest kernel")
    })?;
    unpack(&files, work)?;
    say("compiling");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-euc", SCRIPT, "siw", version]).current_dir(work);
    output(&mut command)?;
    let made = work.join("usr/src/siw/siw.ko");
    ensure!(made.exists(), "the build has produced no module");
    Ok(made)
}
