//! A Linux kernel in a virtual machine, for tests that need one as their peer.
//!
//! Four parts, each of which uses only those before it:
//! - [`apt`] downloads packages from the archive that this machine's apt is configured for, with
//!   private state: nothing is installed and no root is needed;
//! - [`image`] builds from them, once, what a boot needs (QEMU, kernel, initramfs, root file
//!   system) and keeps it in a cache with a lock and a stamp;
//! - [`siw`] compiles on demand the one module that Debian does not build;
//! - [`stas`] fetches on demand nvme-stas and what it needs;
//! - [`machine`] boots it and runs commands in it, one after another, over one serial channel.
//!
//! Every tool that the preparation needs beside `apt-get` and `dpkg-deb` (zstd, xz, depmod,
//! mkfs.ext4, QEMU) is among the unpacked packages and runs with its own loader and libraries. Any
//! version of Debian therefore suffices.

pub(crate) mod apt;
pub(crate) mod arm;
pub(crate) mod cpio;
pub(crate) mod image;
pub(crate) mod machine;
pub(crate) mod modules;
pub(crate) mod siw;
pub(crate) mod stas;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

pub(crate) use image::{Image, Kernel};
pub(crate) use machine::{Exit, Guest, Options};

/// The cache of the prepared guest, outside the repository.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("WEFT_GUEST_CACHE") {
        return Ok(std::path::absolute(PathBuf::from(folder))?);
    }
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(base.context("set WEFT_GUEST_CACHE: there is no HOME")?.join("weft/guest"))
}

/// Runs `command` and returns its output, or an error that contains its messages.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let result = command.output().with_context(|| format!("cannot start {name}"))?;
    if !result.status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let said = String::from_utf8_lossy(&result.stderr);
        bail!("{name} {}: {}\n{}", arguments.join(" "), result.status, said.trim_end());
    }
    Ok(result.stdout)
}

/// Prints a line of progress.
pub(crate) fn say(message: &str) {
    eprintln!("guest: {message}");
}
