//! nvme-stas for the guest, with Python's and D-Bus' parts that it needs: one archive in the cache,
//! outside the image. The tests that need it unpack it in the guest.

use super::apt::{Apt, unpack};
use super::image::SUITE;
use super::{cache_folder, output, say};
use anyhow::Result;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

const PACKAGES: &[&str] = &["nvme-stas", "dbus-daemon"];

/// Where packages have what only people read.
const UNUSED: &[&str] = &["usr/share/doc", "usr/share/man", "usr/share/locale"];

/// Makes the archive, unless it is cached.
pub(crate) fn prepare() -> Result<PathBuf> {
    let cache = cache_folder()?;
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    let path = cache.join("stas.tar");
    if path.exists() {
        return Ok(path);
    }
    say("preparing nvme-stas, once");
    let work = cache.join("work-stas");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let root = work.join("root");
    fs::create_dir_all(&root)?;
    let apt = Apt::open(&cache.join("apt"), SUITE)?;
    unpack(&apt.closure(PACKAGES, "stas")?, &root)?;
    for folder in UNUSED {
        // Not every set of packages has each of them.
        let _ = fs::remove_dir_all(root.join(folder));
    }
    // The guest has its own C library, which runs while this is unpacked.
    let made = work.join("stas.tar");
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(&made).arg("--directory").arg(&root);
    tar.args(["--exclude=libc.so*", "--exclude=libc-*", "--exclude=ld-linux*", "etc", "usr"]);
    output(&mut tar)?;
    fs::rename(made, &path)?;
    fs::remove_dir_all(&work)?;
    fs::remove_dir_all(cache.join("apt/archives/stas"))?;
    Ok(path)
}
