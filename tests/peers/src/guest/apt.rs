//! Downloads Debian packages without installing them.
//!
//! A private apt with its own lists, no installed packages and one suite. Archive and network
//! settings (proxies, credentials, timeouts) are those of the machine, and every package is
//! verified with Debian's keys.

use super::{output, say};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The archive's keys, in older and newer releases of Debian.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// An apt with one suite and no installed packages.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Sets up the private state in `folder` and fetches the lists of `suite`.
    pub(crate) fn open(folder: &Path, suite: &str) -> Result<Self> {
        Self::open_for("amd64", folder, suite)
    }

    /// The same for another processor.
    pub(crate) fn open_for(architecture: &str, folder: &Path, suite: &str) -> Result<Self> {
        let apt = Self { folder: folder.to_owned() };
        for name in ["lists/partial", "archives/partial", "etc"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("apt.conf"), configuration(folder, architecture)?)?;
        let keyring = KEYRINGS.iter().find(|path| Path::new(path).exists());
        let signed = keyring.map(|path| format!("[signed-by={path}] ")).unwrap_or_default();
        let mut failure = None;
        for archive in archives()? {
            let source = format!("deb {signed}{archive} {suite} main\n");
            fs::write(folder.join("sources.list"), source)?;
            match output(apt.command("apt-get").arg("update")) {
                Ok(_) => return Ok(apt),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.context("this machine's apt is configured for no Debian archive")?)
            .with_context(|| format!("the suite {suite} is not available"))
    }

    /// Downloads `packages` and their dependencies; returns the package files.
    pub(crate) fn closure(&self, packages: &[&str], name: &str) -> Result<Vec<PathBuf>> {
        let archives = self.folder.join("archives").join(name);
        fs::create_dir_all(archives.join("partial"))?;
        let option = format!("Dir::Cache::archives={}", archives.display());
        let mut command = self.command("apt-get");
        command.args(["-q", "-o", &option, "install", "--download-only"]).args(packages);
        show_download(&mut command)?;
        output(self.command("apt-get").args(["-o", &option, "autoclean"]))?;
        package_files(&archives)
    }

    /// Downloads `packages` without their dependencies.
    pub(crate) fn exactly(&self, packages: &[String], name: &str) -> Result<Vec<PathBuf>> {
        let archives = self.folder.join("archives").join(name);
        let _ = fs::remove_dir_all(&archives);
        fs::create_dir_all(&archives)?;
        let mut command = self.command("apt-get");
        show_download(command.args(["-q", "download"]).args(packages).current_dir(&archives))?;
        package_files(&archives)
    }

    /// The names of the packages that `package` depends on, first alternatives only.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let mut command = self.command("apt-cache");
        let text = output(command.args(["show", "--no-all-versions", package]))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or("");
        Ok(line.split(", ").filter_map(|d| d.split([' ', ':']).next()).map(str::to_owned).collect())
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(tool);
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        command.stdin(Stdio::null());
        command
    }
}

/// Unpacks package files into the new folder `root`, laid out with a merged `/usr`.
pub(crate) fn unpack(packages: &[PathBuf], root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    for package in packages {
        output(Command::new("dpkg-deb").arg("-x").arg(package).arg(root))?;
    }
    Ok(())
}

/// The private configuration: its own paths, and the network settings of the machine.
fn configuration(folder: &Path, architecture: &str) -> Result<String> {
    let dump = output(Command::new("apt-config").arg("dump"))?;
    let dump = String::from_utf8_lossy(&dump).into_owned();
    let network = ["Acquire::http", "Acquire::https", "Acquire::Proxy", "Acquire::ForceIP"];
    let inherited: Vec<&str> =
        dump.lines().filter(|line| network.iter().any(|name| line.starts_with(name))).collect();
    let folder = folder.display();
    Ok(format!(
        r#"{inherited}
Dir::State "{folder}"; Dir::State::lists "lists"; Dir::State::status "{folder}/status";
Dir::Cache "{folder}"; Dir::Cache::archives "archives";
Dir::Etc::main "{folder}/none"; Dir::Etc::parts "{folder}/etc";
Dir::Etc::preferences "{folder}/none"; Dir::Etc::preferencesparts "{folder}/etc";
Dir::Etc::sourcelist "{folder}/sources.list"; Dir::Etc::sourceparts "{folder}/etc";
APT::Architecture "{architecture}"; APT::Architectures "{architecture}"; APT::Sandbox::User "";
APT::Install-Recommends "false"; APT::Get::Assume-Yes "true"; Debug::NoLocking "true";
Acquire::Languages "none"; Acquire::Retries "3";
"#,
        inherited = inherited.join("\n"),
    ))
}

/// The archives of the machine's own release, as its apt is configured.
fn archives() -> Result<BTreeSet<String>> {
    let mut command = Command::new("apt-get");
    let text = output(command.args(["--print-uris", "update"]).env("LC_ALL", "C"))
        .context("the guest is made of Debian packages, and apt does not work here")?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suites = [codename.unwrap_or("stable"), "stable", "testing", "unstable", "sid"];
    let found = String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| line.trim_start_matches('\'').split_once("/dists/"))
        .filter(|(_, rest)| {
            suites.iter().any(|suite| rest.starts_with(&format!("{suite}/main/binary-")))
        })
        .map(|(archive, _)| archive.to_owned())
        .collect();
    Ok(found)
}

/// Runs a downloading apt-get and reports its progress.
fn show_download(command: &mut Command) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start apt-get")?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut count = 0;
    for line in lines.map_while(Result::ok) {
        if let Some(size) = line.strip_prefix("Need to get ") {
            say(&format!("downloading {}", size.trim_end_matches('.')));
        } else if line.starts_with("Get:") {
            count += 1;
            if count % 50 == 0 {
                say(&format!("{count} packages"));
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("apt-get cannot download: {status}");
    }
    Ok(())
}

fn package_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
