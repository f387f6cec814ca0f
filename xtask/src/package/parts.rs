//! What packages are made of: a binary and one that runs here, documents, licences and the list of
//! parts.

use super::binary;
use crate::cargo::target_folder;
use crate::docs::joined;
use crate::python::succeeded;
use crate::supply;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All packages of a version have the workspace's.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A processor's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// Of AMD and Intel.
    #[value(name = "x86_64")]
    X86,
    /// Of Arm.
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    /// This machine's.
    pub(crate) fn here() -> Self {
        if std::env::consts::ARCH == "aarch64" { Self::Arm } else { Self::X86 }
    }

    /// As the compiler, the C library and wheels call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// What the compiler calls it with a C library.
    pub(crate) fn target(self, libc: &str) -> String {
        format!("{}-unknown-linux-{libc}", self.name())
    }

    /// As Debian and container images call it.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }
}

/// What all packages of an architecture are made of.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The repository.
    pub(super) root: &'a Path,
    pub(super) arch: Arch,
    /// The binary, without symbols.
    pub(super) binary: PathBuf,
    /// One that runs here, which writes its man pages and completions.
    pub(super) native: PathBuf,
    /// Where packages and their parts go.
    pub(super) folder: PathBuf,
    /// The time that all files of packages have, in seconds.
    pub(super) time: String,
}

/// What programs of distributions take a time from.
pub(super) const TIME: &str = "SOURCE_DATE_EPOCH";

/// The time of the commit that packages are made from, unless the environment has another.
pub fn time(root: &Path) -> Result<String> {
    if let Ok(time) = std::env::var(TIME) {
        return Ok(time);
    }
    let mut log = Command::new("git");
    let said = succeeded(log.current_dir(root).args(["log", "-1", "--format=%ct"]));
    Ok(said
        .with_context(|| format!("{TIME} is not set, and there is no commit"))?
        .trim()
        .to_owned())
}

impl<'a> Parts<'a> {
    /// `binary` is stripped into `folder`.
    pub(super) fn new(root: &'a Path, arch: Arch, binary: &Path, native: &Path) -> Result<Self> {
        let folder = target_folder(root).join("package");
        let stripped = folder.join(format!("weft-{}", arch.name()));
        fs::create_dir_all(&folder)?;
        binary::strip(arch, binary, &stripped)?;
        let time = time(root)?;
        Ok(Self { root, arch, binary: stripped, native: native.to_owned(), folder, time })
    }

    /// An empty folder for what a package is made of.
    pub(super) fn empty(&self, name: &str) -> Result<PathBuf> {
        empty(self.root, name)
    }

    /// A command that takes the time of what it makes from the commit.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(TIME, &self.time);
        command
    }

    /// Whether what is built can run here.
    pub(super) fn runs_here(&self) -> bool {
        self.arch == Arch::here()
    }
}

/// A time in another form.
pub(crate) fn date(time: &str, form: &str) -> Result<String> {
    let mut date = Command::new("date");
    Ok(succeeded(date.args(["--utc", form, &format!("--date=@{time}")]))?.trim().to_owned())
}

/// Packs what is in a folder: the same bytes for the same files.
pub fn tar(time: &str, archive: &Path, folder: &Path, what: &[&str]) -> Result<()> {
    let form = if archive.extension().is_some_and(|end| end == "xz") { "-cJf" } else { "-cf" };
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    command.args(["--mode=u+rwX,go+rX,go-w", &format!("--mtime=@{time}")]);
    succeeded(command.arg(form).arg(archive).arg("-C").arg(folder).args(what)).map(drop)
}

/// The folder of what packages are made of and tried in.
pub(crate) fn scratch(root: &Path) -> PathBuf {
    target_folder(root).join("package/scratch")
}

/// An empty folder below that one.
pub(crate) fn empty(root: &Path, name: &str) -> Result<PathBuf> {
    let folder = scratch(root).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A command in a root of its own.
pub(super) fn inside(folder: &Path, program: &str) -> Result<Command> {
    if !rustix::process::geteuid().is_root() {
        bail!("chroot needs root");
    }
    fs::create_dir_all(folder.join("tmp"))?;
    let mut command = Command::new("chroot");
    command.arg(folder).arg(program);
    Ok(command)
}

pub(super) fn place(tree: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Places the list of parts (SBOM) of a binary for this C library.
pub(super) fn list_of_parts(parts: &Parts<'_>, libc: &str, tree: &Path, path: &str) -> Result<()> {
    place(tree, path, supply::parts(parts.root, &parts.arch.target(libc))?.as_bytes(), 0o644)
}

/// Places the licences.
pub(super) fn licences(root: &Path, tree: &Path, folder: &str) -> Result<()> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        place(tree, &format!("{folder}/{name}"), &fs::read(root.join(name))?, 0o644)?;
    }
    Ok(())
}

/// Places the documents, which messages, help and man pages name as docs/NAME.
pub(super) fn place_documents(root: &Path, tree: &Path, folder: &str) -> Result<()> {
    for (name, text) in installed(root)? {
        place(tree, &format!("{folder}/{name}"), &text, 0o644)?;
    }
    Ok(())
}

/// The documents of packages by their paths there. What a page links to and no package has, such as
/// source and pictures of reports, is its text alone.
fn installed(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let names = documents(root)?;
    let read = |name: &String| {
        let bytes = fs::read(root.join(name)).with_context(|| name.clone())?;
        let bytes = match name.ends_with(".md") {
            true => without_links(&String::from_utf8(bytes)?, name, &names).into_bytes(),
            false => bytes,
        };
        Ok((name.clone(), bytes))
    };
    names.iter().map(read).collect()
}

/// The text of a page without its links to files that are not among these.
fn without_links(text: &str, page: &str, names: &[String]) -> String {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let (mut written, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("](") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        let link = &after[..after.find(')').unwrap_or(after.len())];
        let name = link.split('#').next().unwrap_or_default();
        let is_there = name.is_empty()
            || name.contains("://")
            || names.iter().any(|one| Path::new(one) == joined(folder, name));
        match before.rfind('[').filter(|_| !is_there) {
            Some(open) => {
                written += before[..open].trim_end_matches('!');
                written += &before[open + 1..];
            }
            None => written += &rest[..at + 2 + link.len() + 1],
        }
        rest = after.get(link.len() + 1..).unwrap_or_default();
    }
    written + rest
}

/// The documents of packages, with what they link to, by their paths in the repository.
fn documents(root: &Path) -> Result<Vec<String>> {
    let mut names = ["ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"].map(str::to_owned).to_vec();
    for folder in ["docs", "docs/notebook", "monitoring"] {
        for entry in fs::read_dir(root.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let ends = [".md", ".toml", ".svg", ".png", ".json", "alerts.yml"];
            if ends.iter().any(|end| name.ends_with(end)) {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rust_files;

    /// The names of documents in a text, as they are written.
    fn named(text: &str) -> impl Iterator<Item = String> {
        let after = text.match_indices("docs/").map(|(at, _)| &text[at..]);
        let is_part = |one: char| one.is_ascii_alphanumeric() || "/._-".contains(one);
        after.filter_map(move |rest| {
            let name = &rest[..rest.find(|one| !is_part(one)).unwrap_or(rest.len())];
            let end = [".md", ".toml"].iter().find_map(|end| Some(name.find(end)? + end.len()));
            end.map(|end| name[..end].to_owned())
        })
    }

    #[test]
    fn links_of_installed_documents_are_installed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let have = installed(root).expect("documents");
        let mut count = 0;
        for (name, text) in have.iter().filter(|(name, _)| name.ends_with(".md")) {
            let text = std::str::from_utf8(text).expect("a text");
            let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            for link in links.filter(|link| !link.is_empty() && !link.contains(':')) {
                let path = joined(Path::new(name).parent().expect("a folder"), link);
                count += 1;
                assert!(have.keys().any(|one| Path::new(one) == path), "{name}: {link}");
            }
        }
        assert!(count > 100, "{count} links");
    }

    #[test]
    fn a_link_to_what_is_not_installed_is_its_text() {
        let names = ["docs/a.md".to_owned(), "docs/b.md".to_owned()];
        let text = "[b](b.md#c), [d](../d.rs), ![a picture](p.png) and [e](https://e.org)[f](#g).";
        let left = "[b](b.md#c), d, a picture and [e](https://e.org)[f](#g).";
        assert_eq!(without_links(text, "docs/a.md", &names), left);
    }

    /// Messages, help and man pages are made of literals and of comments of options.
    #[test]
    fn packages_have_each_document_that_weft_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let have = documents(root).expect("documents");
        let mut paths = rust_files(root).expect("files");
        paths.retain(|path| path.starts_with("crates"));
        for folder in ["packaging", "monitoring"] {
            let files = fs::read_dir(root.join(folder)).expect("a folder").flatten();
            paths.extend(files.map(|file| Path::new(folder).join(file.file_name())));
        }
        let mut count = 0;
        for path in paths {
            let text = fs::read_to_string(root.join(&path)).expect("a text");
            let is_shown = |line: &&str| {
                let line = line.trim_start();
                line.starts_with("///") || !line.starts_with("//")
            };
            for name in text.lines().filter(is_shown).flat_map(named) {
                count += 1;
                assert!(have.contains(&name), "{}: {name}", path.display());
            }
        }
        assert!(count > 5, "{count} documents are named");
    }
}
