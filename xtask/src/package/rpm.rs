//! The package for Fedora, RHEL, openSUSE and their relatives: the files of the Debian package.
//!
//! `rpmbuild` and `rpmsign` of the distribution make it, as `dpkg-deb` makes the other one, and
//! read what the binary needs from its symbols. The crate `rpm` would bring 45 packages into each
//! build of this program, and cargo-generate-rpm would be compiled from its source.

use super::deb;
use super::parts::{Arch, Parts, TIME, VERSION, empty, place, time};
use crate::cargo::target_folder;
use crate::packages;
use crate::python::succeeded;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that are the package's own.
const FOLDERS: [&str; 2] = ["/etc/weft", "/usr/share/doc/weft"];

/// What would otherwise differ between two builds, or change the files.
const MACROS: &str = "%define _buildhost localhost
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define _build_id_links none
%define debug_package %{nil}
%define __os_install_post %{nil}
%define _binary_payload w6.xzdio
";

/// Builds the package and returns its path.
pub(super) fn build(parts: &Parts<'_>) -> Result<PathBuf> {
    let tree = deb::files(parts, "usr/share/zsh/site-functions/_weft")?;
    let script = |name: &str| fs::read_to_string(parts.root.join("packaging").join(name));
    // rpm gives its scripts the number of packages that there will be.
    let scripts = format!(
        "%post\n[ \"$1\" -lt 2 ] && set -- configure || set -- configure upgrade\n{}\n\
         %preun\n[ \"$1\" -gt 0 ] || set -- remove\n{}\n%postun\n{}\n",
        script("postinst")?,
        script("prerm")?,
        script("postrm")?
    );
    let about = "License: MIT OR Apache-2.0\nRecommends: libibverbs, librdmacm\n";
    of_files(parts.root, parts.arch, "weft", &tree, about, &scripts)
}

/// A package of the files in a folder; `about` and `scripts` are of its description.
fn of_files(
    root: &Path,
    arch: Arch,
    name: &str,
    tree: &Path,
    about: &str,
    scripts: &str,
) -> Result<PathBuf> {
    packages::need("rpmbuild builds the package", &[("rpmbuild", "rpm")])?;
    let folder = empty(root, "rpm")?;
    // rpm calls processors as the compiler does.
    let arch = arch.name();
    let mut files = Vec::new();
    list(tree, Path::new("/"), &mut files)?;
    let files = files.join("\n");
    let description = format!(
        "{MACROS}Name: {name}\nVersion: {VERSION}\nRelease: 1\n\
         Summary: NVMe over Fabrics target and host in user space\n{about}\
         %description\n\
         Serves memory, files and block devices as NVMe namespaces over TCP and RDMA,\n\
         reaches any such target from user space, and measures what the network costs.\n\
         %install\ncp --archive {}/. %{{buildroot}}\n{scripts}\
         %files\n%defattr(-,root,root)\n{files}\n",
        tree.display()
    );
    place(&folder, "weft.spec", description.as_bytes(), 0o644)?;
    let mut command = Command::new("rpmbuild");
    command.env(TIME, time(root)?).args([
        "-bb",
        "--quiet",
        "--target",
        &format!("{arch}-linux"),
        "--define",
    ]);
    command.arg(format!("_topdir {}", folder.display())).arg(folder.join("weft.spec"));
    succeeded(&mut command)?;
    let file = format!("{name}-{VERSION}-1.{arch}.rpm");
    let package = target_folder(root).join("package").join(&file);
    fs::rename(folder.join("RPMS").join(arch).join(&file), &package)
        .with_context(|| format!("rpmbuild has made no {file}"))?;
    Ok(package)
}

/// The lines of what a package has: its files, and folders that are its own.
fn list(tree: &Path, path: &Path, lines: &mut Vec<String>) -> Result<()> {
    let below = tree.join(path.strip_prefix("/")?);
    if below.is_symlink() || !below.is_dir() {
        lines.push(format!("\"{}\"", path.display()));
        return Ok(());
    }
    if FOLDERS.iter().any(|own| path.starts_with(own)) {
        lines.push(format!("%dir {}", path.display()));
    }
    let mut entries = fs::read_dir(below)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    entries.iter().try_for_each(|entry| list(tree, &path.join(entry.file_name()), lines))
}

/// A package of Debian's C library and shell, which weft's needs where no distribution has them.
pub(super) fn base(root: &Path) -> Result<PathBuf> {
    let tree = empty(root, "base")?;
    let names = ["libc6", "libgcc-s1", "dash"].map(str::to_owned);
    deb::extract_here(root, &tree, &names, &[])?;
    fs::remove_dir_all(tree.join("usr/share"))?;
    std::os::unix::fs::symlink("dash", tree.join("usr/bin/sh"))
        .or_else(|error| if tree.join("usr/bin/sh").exists() { Ok(()) } else { Err(error) })?;
    // As the packages of distributions with this C library and shell say it.
    let about = "License: of its parts\nProvides: /bin/sh, rtld(GNU_HASH)\n";
    of_files(root, Arch::here(), "base", &tree, about, "")
}
