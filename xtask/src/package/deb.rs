//! The Debian package: the binary with its man pages, completions, systemd unit and examples.
//!
//! `dpkg-deb` builds it, which every Debian has. What the binary needs of the C library is read
//! from its symbols, so that it can be installed wherever they are.

use super::binary;
use super::parts::{Parts, VERSION, inside, list_of_parts, place, place_documents};
use super::serve::serve;
use crate::cargo::target_folder;
use crate::packages;
use crate::python::succeeded;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Debian release of roots that are made for the package.
pub(crate) const SUITE: &str = "bookworm";

/// Builds the package and returns its path.
pub(super) fn build(parts: &Parts<'_>) -> Result<PathBuf> {
    packages::need("dpkg-deb builds the package", &[("dpkg-deb", "dpkg")])?;
    let tree = files(parts, "usr/share/zsh/vendor-completions/_weft")?;
    let control = control(parts, kib(&tree)?)?;
    place(&tree, "DEBIAN/control", control.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = fs::read(parts.root.join("packaging").join(script))?;
        place(&tree, &format!("DEBIAN/{script}"), &text, 0o755)?;
    }
    let package = parts.folder.join(format!("weft_{VERSION}_{}.deb", parts.arch.debian()));
    let mut command = parts.command("dpkg-deb");
    command.args(["--build", "--root-owner-group", "-Zxz"]).arg(&tree).arg(&package);
    succeeded(&mut command)?;
    Ok(package)
}

/// A folder with the files that the package installs; `zsh` is where its completions are.
pub(super) fn files(parts: &Parts<'_>, zsh: &str) -> Result<PathBuf> {
    let tree = parts.empty("tree")?;
    place(&tree, "usr/bin/weft", &fs::read(&parts.binary)?, 0o755)?;
    shell_files(&parts.native, &tree, zsh)?;
    documents(parts.root, &tree)?;
    list_of_parts(parts, "gnu", &tree, "usr/share/doc/weft/sbom.cdx.json")?;
    Ok(tree)
}

/// Man pages and completions, which the binary makes itself.
fn shell_files(weft: &Path, tree: &Path, zsh: &str) -> Result<()> {
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    succeeded(Command::new(weft).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        succeeded(Command::new("gzip").args(["-9n"]).arg(page?.path()))?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/weft"),
        ("zsh", zsh),
        ("fish", "usr/share/fish/vendor_completions.d/weft.fish"),
    ] {
        let script = succeeded(Command::new(weft).args(["completion", shell]))?;
        place(tree, path, script.as_bytes(), 0o644)?;
    }
    Ok(())
}

/// The unit, its user, examples, licences and changes.
fn documents(root: &Path, tree: &Path) -> Result<()> {
    for (from, to) in [
        ("packaging/weft.service", "usr/lib/systemd/system/weft.service"),
        ("packaging/weft.sysusers", "usr/lib/sysusers.d/weft.conf"),
        ("packaging/target.toml", "usr/share/doc/weft/examples/target.toml"),
        ("packaging/nvmf_tgt", "usr/share/doc/weft/examples/nvmf_tgt"),
        ("monitoring/dashboard.json", "usr/share/doc/weft/examples/dashboard.json"),
        ("monitoring/alerts.yml", "usr/share/doc/weft/examples/alerts.yml"),
    ] {
        let text = fs::read(root.join(from)).with_context(|| from.to_owned())?;
        place(tree, to, &text, 0o644)?;
    }
    place_documents(root, tree, "usr/share/doc/weft")?;
    let licence = |name: &str| fs::read_to_string(root.join(name));
    let (mit, apache) = (licence("LICENSE-MIT")?, licence("LICENSE-APACHE")?);
    let copyright = format!("License: MIT or Apache-2.0\n\n{mit}\n\n{apache}");
    place(tree, "usr/share/doc/weft/copyright", copyright.as_bytes(), 0o644)?;
    fs::create_dir_all(tree.join("etc/weft"))?;
    Ok(())
}

/// Runs what the package installs in a root that holds only it and the packages it depends on, and
/// reads from its target.
pub(super) fn check(parts: &Parts<'_>, package: &Path) -> Result<()> {
    let folder = parts.empty("root")?;
    extract_here(parts.root, &folder, &field(package, "Depends")?, &[package])?;
    serve(&inside(&folder, "/usr/bin/weft")?, &folder)
}

/// Unpacks these packages of Debian and these files into a root.
pub(super) fn extract_here(
    root: &Path,
    folder: &Path,
    names: &[String],
    files: &[&Path],
) -> Result<()> {
    let downloads = target_folder(root).join("package/depends");
    fs::create_dir_all(&downloads)?;
    for name in names {
        if package_file(&downloads, name)?.is_none() {
            packages::download(&downloads, name)?;
        }
        let file = package_file(&downloads, name)?;
        extract(&file.with_context(|| format!("there is no package {name}"))?, folder)?;
    }
    files.iter().try_for_each(|file| extract(file, folder))?;
    // Debian's /bin, /lib and /lib64 are links into /usr.
    ["bin", "lib", "lib64"].iter().try_for_each(|link| merge_usr(folder, link))
}

/// Installs a package with apt, which runs its scripts, in a new root that has systemd.
pub(super) fn install(package: &Path, folder: &Path) -> Result<()> {
    packages::need("mmdebstrap makes a root", &[("mmdebstrap", "mmdebstrap")])?;
    let file = package.file_name().context("no name")?.to_string_lossy();
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=essential"]);
    command.arg("--include=systemd,apt");
    command.arg(format!("--customize-hook=copy-in {} /tmp", package.display()));
    let install = "DEBIAN_FRONTEND=noninteractive chroot \"$1\" apt-get install --quiet --yes";
    command.arg(format!("--customize-hook={install} /tmp/{file}"));
    succeeded(command.arg(SUITE).arg(folder)).map(drop)
}

/// Unpacks the files of a package.
pub(super) fn extract(package: &Path, folder: &Path) -> Result<()> {
    succeeded(Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder)).map(drop)
}

/// The names of the packages that a field lists.
pub(super) fn field(package: &Path, field: &str) -> Result<Vec<String>> {
    let said = succeeded(Command::new("dpkg-deb").arg("--field").arg(package).arg(field))?;
    let names = said.split(',').filter_map(|part| part.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

fn package_file(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let prefix = format!("{name}_");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

fn merge_usr(folder: &Path, link: &str) -> Result<()> {
    let (top, below) = (folder.join(link), folder.join("usr").join(link));
    if top.exists() && !below.exists() {
        fs::rename(&top, &below)?;
    }
    if !top.exists() {
        std::os::unix::fs::symlink(Path::new("usr").join(link), &top)?;
    }
    Ok(())
}

fn control(parts: &Parts<'_>, kib: u64) -> Result<String> {
    let (major, minor) = binary::glibc(&parts.binary)?;
    let mut depends = format!("libc6 (>= {major}.{minor})");
    if binary::libraries(&parts.binary)?.iter().any(|name| name == "libgcc_s.so.1") {
        depends += ", libgcc-s1";
    }
    Ok(format!(
        "Package: weft\nVersion: {VERSION}\nArchitecture: {}\n\
         Maintainer: the maintainers of weft <weft@localhost>\nInstalled-Size: {kib}\n\
         Depends: {depends}\n\
         Recommends: libibverbs1, librdmacm1, ibverbs-providers\n\
         Suggests: nvme-cli, librbd1\nSection: admin\nPriority: optional\n\
         Description: NVMe over Fabrics target and host in user space\n \
         Serves memory, files and block devices as NVMe namespaces over TCP and RDMA,\n \
         reaches any such target from user space, and measures what the network costs.\n",
        parts.arch.debian()
    ))
}

/// As Debian's own tools count: the same on every file system.
fn kib(folder: &Path) -> Result<u64> {
    let mut sum = 1;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += match about.is_dir() {
            true => kib(&entry.path())?,
            false => about.len().div_ceil(1024),
        };
    }
    Ok(sum)
}
