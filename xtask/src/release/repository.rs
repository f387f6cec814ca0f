//! Repositories that apt and dnf install from: packages, lists of them, and signatures of these.

use super::signature::Signer;
use crate::package;
use crate::packages;
use crate::python::succeeded;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The repository of apt in a folder of packages.
pub(super) fn apt(folder: &Path, signer: &Signer, time: &str) -> Result<()> {
    packages::need("apt-ftparchive lists packages", &[("apt-ftparchive", "apt-utils")])?;
    let apt = folder.join("apt");
    link(folder, "deb", &apt.join("pool"))?;
    let archive = |words: &[&str]| {
        let mut command = Command::new("apt-ftparchive");
        succeeded(command.current_dir(&apt).args(words))
    };
    let mut all = Vec::new();
    for arch in ["amd64", "arm64"] {
        let list = archive(&["--arch", arch, "packages", "pool"])?;
        if !list.is_empty() {
            let below = apt.join(format!("dists/stable/main/binary-{arch}"));
            fs::create_dir_all(&below)?;
            fs::write(below.join("Packages"), list)?;
            all.push(arch);
        }
    }
    let set = |name: &str, value: &str| {
        ["-o".into(), format!("APT::FTPArchive::Release::{name}={value}")]
    };
    let words = [
        set("Date", &package::date(time, "--rfc-email")?),
        set("Origin", "weft"),
        set("Suite", "stable"),
        set("Codename", "stable"),
        set("Components", "main"),
        set("Architectures", &all.join(" ")),
        ["release".to_owned(), "dists/stable".to_owned()],
    ];
    let words: Vec<&str> = words.iter().flatten().map(String::as_str).collect();
    let release = apt.join("dists/stable/Release");
    let text = archive(&words)?;
    fs::write(&release, text)?;
    signer.sign_within(&release, "InRelease")?;
    signer.sign(&release, "Release.gpg")
}

/// The repository of dnf, zypper and their relatives.
pub(super) fn dnf(folder: &Path, signer: &Signer, time: &str) -> Result<()> {
    let rpm = folder.join("rpm");
    link(folder, "rpm", &rpm)?;
    // Its list has the times of the files.
    let mut touch = Command::new("touch");
    succeeded(touch.arg(format!("--date=@{time}")).args(super::files(&rpm)?))?;
    list_rpms(&rpm, time)?;
    signer.sign(&rpm.join("repodata/repomd.xml"), "repomd.xml.asc")
}

fn list_rpms(folder: &Path, time: &str) -> Result<()> {
    packages::need("createrepo_c lists packages", &[("createrepo_c", "createrepo-c")])?;
    let mut command = Command::new("createrepo_c");
    command.args(["--quiet", "--no-database", "--general-compress-type=gz"]);
    command.args(["--revision", time, "--set-timestamp-to-revision"]).arg(folder);
    succeeded(&mut command).map(drop)
}

/// Puts the packages that end so into a folder as well.
fn link(folder: &Path, end: &str, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|one| one == end) {
            fs::hard_link(&path, into.join(path.file_name().context("no name")?))?;
        }
    }
    Ok(())
}

/// A web server of a folder on loopback, which ends with this value.
struct Server(Child, String);

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let mut python = Command::new("python3");
        python.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
        python.arg(folder).arg("0").stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = python.stdout(Stdio::piped()).spawn().context("cannot start python3")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let url = line.split(['(', ')']).nth(1).with_context(|| format!("it says {line:?}"))?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self(child, url))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Installs from both repositories over HTTP, each in a root of its own, and serves from there; and
/// sees both refused once a list has another byte than was signed.
pub(super) fn check(root: &Path, folder: &Path) -> Result<()> {
    let published = package::empty(root, "published")?;
    succeeded(Command::new("cp").arg("--archive").arg(folder).arg(published.join("copy")))?;
    let copy = published.join("copy");
    let server = Server::start(&copy)?;
    check_apt(root, &copy, &server.1).context("apt")?;
    check_dnf(root, &copy, &server.1).context("dnf")?;
    drop(server);
    Ok(fs::remove_dir_all(published)?)
}

fn check_apt(root: &Path, copy: &Path, url: &str) -> Result<()> {
    packages::need("mmdebstrap makes a root", &[("mmdebstrap", "mmdebstrap")])?;
    let system = package::empty(root, "apt-root")?;
    let mut make = Command::new("mmdebstrap");
    succeeded(make.args(["--quiet", "--variant=apt", package::SUITE]).arg(&system))?;
    fs::copy(copy.join("weft.asc"), system.join("usr/share/keyrings/weft.asc"))?;
    // Nothing else.
    fs::write(system.join("etc/apt/sources.list"), "")?;
    let [_, list, _] = steps(root, url)?;
    succeeded(Command::new("chroot").arg(&system).args(["sh", "-c", &list]))?;
    let apt = |words: &[&str]| {
        let mut apt = Command::new("chroot");
        apt.arg(&system).args(["apt-get", "--quiet", "--yes"]).args(words);
        succeeded(apt.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update", "--error-on=any"])?;
    apt(&["install", "weft"])?;
    package::serve_in(&system)?;
    change(&files_named(copy, "Packages")?)?;
    // As a machine that has not seen it before.
    fs::remove_dir_all(system.join("var/lib/apt/lists"))?;
    ensure!(apt(&["update", "--error-on=any"]).is_err(), "apt takes a list that was not signed");
    Ok(())
}

fn check_dnf(root: &Path, copy: &Path, url: &str) -> Result<()> {
    packages::need("dnf installs from its repository", &[("dnf", "dnf")])?;
    let base = package::empty(root, "base-repository")?;
    let package = package::base_rpm(root)?;
    fs::rename(&package, base.join(package.file_name().context("no name")?))?;
    list_rpms(&base, "0")?;
    let system = package::empty(root, "dnf-root")?;
    let sources = base.join("sources");
    fs::create_dir_all(&sources)?;
    let [.., list] = steps(root, url)?;
    let list = list.replace("/etc/yum.repos.d", &sources.to_string_lossy());
    succeeded(Command::new("sh").args(["-c", &list]))?;
    let list = format!("[base]\nname=base\nbaseurl=file://{}\ngpgcheck=0\n", base.display());
    fs::write(sources.join("base.repo"), list)?;
    let dnf = |words: &[&str]| {
        let mut dnf = Command::new("dnf");
        dnf.args(["--assumeyes", "--quiet", "--releasever=1", "--installroot"]).arg(&system);
        dnf.arg(format!("--setopt=reposdir={}", sources.display()));
        // Some configurations go on without a repository that they refuse.
        dnf.args(["--setopt=cachedir=/var/cache/dnf", "--setopt=*.skip_if_unavailable=0"]);
        succeeded(dnf.args(words))
    };
    dnf(&["install", "weft"])?;
    package::serve_in(&system)?;
    change(&files_named(copy, "repomd.xml")?)?;
    ensure!(dnf(&["--refresh", "makecache"]).is_err(), "dnf takes a list that was not signed");
    Ok(())
}

/// The commands of docs/install.md that make the repositories known: one fetches the key, one is
/// for apt, one for dnf.
fn steps(root: &Path, url: &str) -> Result<[String; 3]> {
    let page = fs::read_to_string(root.join("docs/install.md"))?;
    let (_, of) = page.split_once("## Repositories\n").context("no repositories")?;
    let fence = of.split("```").nth(1).context("no commands")?;
    let steps = fence.lines().filter_map(|line| line.strip_prefix("$ "));
    let steps: Vec<String> = steps.map(|step| step.replace("URL", url)).collect();
    let all = <[String; 3]>::try_from(steps).map_err(|steps| anyhow!("{steps:?}"))?;
    let are_so = all.iter().zip(["curl ", "echo ", "printf "]).all(|(one, so)| one.starts_with(so));
    ensure!(are_so, "{all:?}");
    Ok(all)
}

fn files_named(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut files = super::files(folder)?;
    files.retain(|file| file.file_name().is_some_and(|one| one == name));
    ensure!(!files.is_empty(), "there is no {name}");
    Ok(files)
}

/// Appends a byte, to a file of its own.
fn change(files: &[PathBuf]) -> Result<()> {
    for file in files {
        let mut bytes = fs::read(file)?;
        bytes.push(b'\n');
        fs::remove_file(file)?;
        fs::write(file, bytes)?;
    }
    Ok(())
}
