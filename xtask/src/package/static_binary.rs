//! The static binary: one file that runs on every Linux, without RDMA.

use super::binary;
use super::parts::{Parts, VERSION, licences, list_of_parts, place, place_documents, tar};
use super::serve::{serve, with};
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the archive and returns its path.
pub(super) fn build(parts: &Parts<'_>) -> Result<PathBuf> {
    let name = format!("weft-{VERSION}-{}-linux-static", parts.arch.name());
    let tree = parts.empty("static")?;
    place(&tree, &format!("{name}/weft"), &fs::read(&parts.binary)?, 0o755)?;
    licences(parts.root, &tree, &name)?;
    place_documents(parts.root, &tree, &name)?;
    list_of_parts(parts, "musl", &tree, &format!("{name}/sbom.cdx.json"))?;
    let archive = parts.folder.join(format!("{name}.tar.xz"));
    tar(&parts.time, &archive, &tree, &[&name])?;
    Ok(archive)
}

/// Serves and reads, and asks for RDMA.
pub(super) fn check(parts: &Parts<'_>) -> Result<()> {
    let libraries = binary::libraries(&parts.binary)?;
    ensure!(libraries.is_empty(), "the static binary needs {}", libraries.join(", "));
    let weft = Command::new(&parts.binary);
    serve(&weft, Path::new("/"))?;
    for asked in [
        &["rdma", "devices"][..],
        &["target", "--memory", "1MiB", "--listen", "rdma://127.0.0.1:4420"],
        &["discover", "rdma://127.0.0.1:4420"],
    ] {
        let done = with(&weft, asked).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.success() || !said.contains("a static binary has no RDMA") {
            bail!("weft {}: {}: {said}", asked.join(" "), done.status);
        }
    }
    Ok(())
}
