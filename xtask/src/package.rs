//! `cargo xtask package`: a Debian package of the binary, with its man pages, completions, systemd
//! unit and examples.
//!
//! `dpkg-deb` builds it, which every Debian has. What the binary needs of the C library is read
//! from its symbols, so that it can be installed wherever they are.

use crate::packages;
use crate::test::{cargo, target_folder};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the package and returns its path. The binary is `built`, or one built for release.
pub(crate) fn build(root: &Path, built: Option<&Path>) -> Result<PathBuf> {
    packages::need("dpkg-deb builds the package", &[("dpkg-deb", "dpkg"), ("strip", "binutils")])?;
    let binary = match built {
        Some(binary) => binary.to_owned(),
        None => {
            cargo(root, &["build", "--profile", "dist", "--package", "weft-cli"])?;
            target_folder(root).join("dist/weft")
        }
    };
    let folder = target_folder(root).join("package");
    let tree = folder.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let weft = tree.join("usr/bin/weft");
    fs::create_dir_all(weft.parent().context("a folder")?)?;
    output(Command::new("strip").arg("-o").arg(&weft).arg(&binary))?;
    shell_files(&weft, &tree)?;
    documents(root, &tree)?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let version = version(&weft)?;
    let control = control(&weft, &version, architecture.trim(), kib(&tree)?)?;
    place(&tree, "DEBIAN/control", control.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = fs::read(root.join("packaging").join(script))?;
        place(&tree, &format!("DEBIAN/{script}"), &text, 0o755)?;
    }
    let package = folder.join(format!("weft_{version}_{}.deb", architecture.trim()));
    let mut command = Command::new("dpkg-deb");
    command.args(["--build", "--root-owner-group", "-Zxz"]).arg(&tree).arg(&package);
    output(&mut command)?;
    Ok(package)
}

/// Man pages and completions, which the binary makes itself.
fn shell_files(weft: &Path, tree: &Path) -> Result<()> {
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    output(Command::new(weft).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        output(Command::new("gzip").args(["-9n"]).arg(page?.path()))?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/weft"),
        ("zsh", "usr/share/zsh/vendor-completions/_weft"),
        ("fish", "usr/share/fish/vendor_completions.d/weft.fish"),
    ] {
        let script = output(Command::new(weft).args(["completion", shell]))?;
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
        ("docs/config.toml", "usr/share/doc/weft/examples/config.toml"),
        ("monitoring/dashboard.json", "usr/share/doc/weft/examples/dashboard.json"),
        ("monitoring/alerts.yml", "usr/share/doc/weft/examples/alerts.yml"),
        ("CHANGELOG.md", "usr/share/doc/weft/CHANGELOG.md"),
    ] {
        let text = fs::read(root.join(from)).with_context(|| from.to_owned())?;
        place(tree, to, &text, 0o644)?;
    }
    let licence = |name: &str| fs::read_to_string(root.join(name));
    let (mit, apache) = (licence("LICENSE-MIT")?, licence("LICENSE-APACHE")?);
    let copyright = format!("License: MIT or Apache-2.0\n\n{mit}\n\n{apache}");
    place(tree, "usr/share/doc/weft/copyright", copyright.as_bytes(), 0o644)?;
    fs::create_dir_all(tree.join("etc/weft"))?;
    Ok(())
}

/// Runs what the package installs in a root that holds only it and the packages it depends on, and
/// reads from its target.
pub(crate) fn check(root: &Path, package: &Path) -> Result<()> {
    let folder = target_folder(root).join("package/root");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let downloads = target_folder(root).join("package/depends");
    fs::create_dir_all(&downloads)?;
    let depends = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
    for name in depends.split(',').filter_map(|part| part.split_whitespace().next()) {
        if !has_package(&downloads, name)? {
            packages::download(&downloads, name)?;
        }
    }
    let mut packages = vec![package.to_owned()];
    for entry in fs::read_dir(&downloads)? {
        packages.push(entry?.path());
    }
    for package in packages {
        output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&folder))?;
    }
    // Debian's /lib and /lib64 are links into /usr.
    for link in ["lib", "lib64"] {
        merge_usr(&folder, link)?;
    }
    serve(&folder)
}

fn has_package(folder: &Path, name: &str) -> Result<bool> {
    let prefix = format!("{name}_");
    for entry in fs::read_dir(folder)? {
        if entry?.file_name().to_string_lossy().starts_with(&prefix) {
            return Ok(true);
        }
    }
    Ok(false)
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

/// Serves memory from within the root, and reads it from there with another process.
fn serve(folder: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("chroot needs root");
    }
    let weft = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(folder).arg("/usr/bin/weft").args(arguments).stdin(Stdio::piped());
        command
    };
    let listen = ["target", "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"];
    let mut command = weft(&[&listen[..], &["--stop-with-stdin", "-o", "json"]].concat());
    let mut target = command.stdout(Stdio::piped()).spawn().context("cannot start chroot")?;
    let mut line = String::new();
    let stdout = target.stdout.take().context("no output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
    let said: serde_json::Value =
        serde_json::from_str(&line).context("the target did not start")?;
    let port = said["ports"][0]["address"].as_str().context("no address")?;
    let nqn = said["subsystems"][0]["nqn"].as_str().context("no subsystem")?;
    let address = format!("nvme-tcp://{port}/{nqn}");
    let read = output(&mut weft(&["bench", &address, "--rw", "randread", "--number-ios", "100"]));
    drop(target.stdin.take());
    let status = target.wait()?;
    read?;
    if status.success() { Ok(()) } else { bail!("the target ended with {status}") }
}

fn version(weft: &Path) -> Result<String> {
    let said = output(Command::new(weft).arg("--version"))?;
    Ok(said.split_whitespace().last().context("no version")?.to_owned())
}

fn control(weft: &Path, version: &str, architecture: &str, kib: u64) -> Result<String> {
    let symbols = output(Command::new("objdump").arg("-T").arg(weft))?;
    let libc = glibc(&symbols).context("the binary names no version of the C library")?;
    Ok(format!(
        "Package: weft\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: the maintainers of weft <weft@localhost>\nInstalled-Size: {kib}\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Recommends: libibverbs1, librdmacm1, ibverbs-providers\n\
         Suggests: nvme-cli\nSection: admin\nPriority: optional\n\
         Description: NVMe over Fabrics target and host in user space\n \
         Serves memory, files and block devices as NVMe namespaces over TCP and RDMA,\n \
         reaches any such target from user space, and measures what the network costs.\n"
    ))
}

/// The newest version of the C library that symbols ask for.
fn glibc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (major, minor) = rest[..end].split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    versions.max().map(|(major, minor)| format!("{major}.{minor}"))
}

fn kib(folder: &Path) -> Result<u64> {
    let said = output(Command::new("du").args(["--summarize", "--block-size=1K"]).arg(folder))?;
    Ok(said.split_whitespace().next().unwrap_or_default().parse()?)
}

fn place(tree: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// What a command prints; its own words if it fails.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().with_context(|| format!("cannot start {name}"))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        bail!("{name}: {}: {}", done.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        let symbols = "memcpy (GLIBC_2.14)\nfstat (GLIBC_2.33)\nfoo (GLIBC_2.2.5)\n";
        assert_eq!(glibc(symbols).as_deref(), Some("2.33"));
        assert_eq!(glibc("nothing"), None);
    }
}
