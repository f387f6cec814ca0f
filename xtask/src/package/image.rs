//! The container image: what the Debian package installs, above the packages that it depends on
//! and recommends, which are RDMA's libraries.
//!
//! mmdebstrap unpacks Debian's packages, and umoci writes the image: neither needs a daemon, and
//! nothing of another processor has to run.

use super::deb;
use super::parts::{Parts, VERSION, date, inside, place, scratch, tar};
use super::serve::serve;
use crate::packages;
use crate::python::succeeded;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user that the image runs as, who owns its working folder.
const USER: u32 = 65532;
/// What no program of the image reads.
const UNUSED: &[&str] = &["usr/share/man", "usr/share/locale", "usr/share/lintian", "var/cache"];

/// Builds the image, an OCI archive, and returns its path.
pub(super) fn build(parts: &Parts<'_>, deb: &Path) -> Result<PathBuf> {
    need()?;
    let layout = parts.empty("layout")?;
    // umoci makes it.
    fs::remove_dir(&layout)?;
    umoci(&["init", "--layout"], &layout)?;
    let image = tagged(&layout);
    umoci(&["new", "--image"], &image)?;
    let created = date(&parts.time, "--iso-8601=seconds")?;
    for (tree, what) in [(libraries(parts, deb)?, deb::SUITE), (weft(parts, deb)?, "weft")] {
        set_times(&tree, &parts.time)?;
        let comment = format!("--history.comment={what}");
        let mut insert = Command::new("umoci");
        insert.args(["insert", &comment, "--history.created", &created, "--image"]);
        succeeded(insert.args([image.as_path(), &tree, Path::new("/")]))?;
    }
    let mut command = Command::new("umoci");
    command.args(["config", "--architecture", parts.arch.debian(), "--os", "linux"]);
    command.args(["--config.entrypoint", "/usr/bin/weft", "--config.cmd", "--help"]);
    command.args(["--config.workingdir", "/var/lib/weft", "--config.exposedports", "4420/tcp"]);
    command.args(["--created", &created, "--history.created", &created]);
    command.arg(format!("--config.user={USER}:{USER}"));
    command.arg(format!("--config.label=org.opencontainers.image.version={VERSION}"));
    command.args(["--config.label", "org.opencontainers.image.licenses=MIT OR Apache-2.0"]);
    succeeded(command.arg("--image").arg(&image))?;
    umoci(&["gc", "--layout"], &layout)?;
    let archive = parts.folder.join(format!("weft-{VERSION}-{}.oci.tar", parts.arch.debian()));
    tar(&parts.time, &archive, &layout, &["blobs", "index.json", "oci-layout"])?;
    Ok(archive)
}

/// Sets the time of all files, which a layer has.
fn set_times(tree: &Path, time: &str) -> Result<()> {
    let touch = format!("--date=@{time}");
    let mut find = Command::new("find");
    let touch = ["-depth", "-exec", "touch", "--no-dereference", &touch, "{}", "+"];
    succeeded(find.arg(tree).args(touch)).map(drop)
}

fn need() -> Result<()> {
    packages::need(
        "a container image is made by mmdebstrap and umoci, and checked by skopeo",
        &[("mmdebstrap", "mmdebstrap"), ("umoci", "umoci"), ("skopeo", "skopeo")],
    )
}

fn umoci(arguments: &[&str], of: &Path) -> Result<()> {
    succeeded(Command::new("umoci").args(arguments).arg(of)).map(drop)
}

/// The name of the image in a layout.
fn tagged(layout: &Path) -> PathBuf {
    let mut name = layout.as_os_str().to_owned();
    name.push(format!(":weft:{VERSION}"));
    name.into()
}

/// The files of the packages that ours depends on and recommends.
fn libraries(parts: &Parts<'_>, deb: &Path) -> Result<PathBuf> {
    let names = [deb::field(deb, "Depends")?, deb::field(deb, "Recommends")?].concat();
    let tree = parts.empty("libraries")?;
    let mut command = parts.command("mmdebstrap");
    command.args(["--quiet", "--variant=extract", "--architectures", parts.arch.debian()]);
    command.arg(format!("--include={}", names.join(",")));
    succeeded(command.arg(deb::SUITE).arg(&tree))?;
    for path in UNUSED {
        let _ = fs::remove_dir_all(tree.join(path));
    }
    Ok(tree)
}

/// The files of our package, and its user.
fn weft(parts: &Parts<'_>, deb: &Path) -> Result<PathBuf> {
    let tree = parts.empty("weft")?;
    deb::extract(deb, &tree)?;
    for path in UNUSED {
        let _ = fs::remove_dir_all(tree.join(path));
    }
    let users = format!("root:x:0:0::/:/\nweft:x:{USER}:{USER}::/var/lib/weft:/\n");
    place(&tree, "etc/passwd", users.as_bytes(), 0o644)?;
    let groups = format!("root:x:0:\nweft:x:{USER}:\n");
    place(&tree, "etc/group", groups.as_bytes(), 0o644)?;
    fs::create_dir_all(tree.join("tmp"))?;
    let state = tree.join("var/lib/weft");
    fs::create_dir_all(&state)?;
    std::os::unix::fs::chown(&state, Some(USER), Some(USER))
        .context("the image's user owns a folder, which needs root")?;
    Ok(tree)
}

/// Reads the image as skopeo does, and, if it is for this processor, unpacks it, serves from it,
/// and looks for RDMA's libraries.
pub(super) fn check(parts: &Parts<'_>, image: &Path) -> Result<()> {
    let name = format!("oci-archive:{}:weft:{VERSION}", image.display());
    let said: Value = serde_json::from_str(&succeeded(Command::new("skopeo").args([
        "inspect",
        "--no-tags",
        &name,
    ]))?)?;
    ensure!(said["Architecture"] == parts.arch.debian(), "the image is for {said}");
    ensure!(said["Labels"]["org.opencontainers.image.version"] == VERSION, "{said}");
    ensure!(said["Layers"].as_array().map(Vec::len) == Some(2), "{said}");
    let bundle = parts.empty("bundle")?;
    fs::remove_dir(&bundle)?;
    let layout = tagged(&scratch(parts.root).join("layout"));
    succeeded(Command::new("umoci").args(["unpack", "--image"]).arg(&layout).arg(&bundle))?;
    let folder = bundle.join("rootfs");
    ensure!(folder.join("usr/bin/weft").is_file(), "the image has no weft");
    if !parts.runs_here() {
        return Ok(());
    }
    let mut weft = inside(&folder, "/usr/bin/weft")?;
    serve(&weft, &folder)?;
    let devices = weft.args(["rdma", "devices"]).output()?;
    let said = String::from_utf8_lossy(&[devices.stdout, devices.stderr].concat()).into_owned();
    // Without a device, or without the kernel's modules, but with the libraries.
    if said.contains("RDMA needs libibverbs") {
        bail!("the image lacks RDMA's libraries: {said}");
    }
    Ok(())
}
