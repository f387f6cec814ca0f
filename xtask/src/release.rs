//! `cargo xtask release`: everything that the page of a release needs, from the tag of its version.
//!
//! What packages have is read from the tree alone, and has the time of the commit, so that two
//! builds in two folders are the same byte for byte.

mod again;
mod crates;
mod repository;
mod signature;

use crate::cargo::{need_target, target_folder};
use crate::package::{self, Arch};
use crate::python::succeeded;
use crate::{docs, supply};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use signature::Signer;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to release.
#[derive(Debug, Args)]
pub struct Options {
    /// From any commit, and with what is not committed: to try it
    #[arg(long)]
    untagged: bool,
    /// The key of gpg that signs; without it a key that is made for the trial
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// For which processors
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Arch::X86, Arch::Arm])]
    arch: Vec<Arch>,
    /// Binaries without optimization, no static one, and crates that are packed and not built: to
    /// try it
    #[arg(long, requires = "untagged")]
    quick: bool,
    /// Build everything once more in another folder, and compare
    #[arg(long)]
    again: bool,
    /// That other build: what has the same bytes is not tried once more
    #[arg(long, hide = true)]
    compared: bool,
}

/// The folder of what is released, with a list of it.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    if !options.untagged {
        check_tag(root)?;
        ensure!(options.key.is_some(), "--key KEY signs a release; --untagged tries one");
    }
    let folder = target_folder(root).join("published").join(package::VERSION);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let signer = Signer::new(root, options.key.as_deref(), &package::time(root)?)?;
    let done = make(root, options, &signer, &folder);
    signer.end()?;
    done?;
    Ok(fs::remove_dir_all(package::scratch(root))?)
}

/// Makes all files of it, tries them, and lists them.
fn make(root: &Path, options: &Options, signer: &Signer, folder: &Path) -> Result<()> {
    let time = package::time(root)?;
    match (options.compared, options.quick) {
        (true, _) => {}
        (false, true) => crates::pack(root)?,
        (false, false) => crates::check(root, options.untagged)?,
    }
    for (name, text) in [("NOTES.md", notes(root)?), ("weft.asc", signer.public_key()?)] {
        fs::write(folder.join(name), text)?;
    }
    let binaries = binaries(root, options)?;
    for (arch, libc) in &binaries {
        let target = arch.target(libc);
        let list = supply::parts(root, &target)?;
        fs::write(folder.join(format!("weft-{}-{target}.cdx.json", package::VERSION)), list)?;
    }
    let site = docs::build(root)?;
    let name = format!("weft-{}-docs.tar.xz", package::VERSION);
    package::tar(&time, &folder.join(name), &site, &["."])?;
    for package in package::build(root, &binaries, options.quick)? {
        let name = package.file_name().context("no name")?;
        if package.extension().is_some_and(|end| end == "rpm") {
            signer.sign_rpm(&package)?;
        }
        fs::copy(&package, folder.join(name))?;
    }
    repository::apt(folder, signer, &time)?;
    repository::dnf(folder, signer, &time)?;
    match binaries.contains(&(Arch::here(), "gnu")) {
        _ if options.compared => {}
        true => repository::check(root, folder)?,
        false => println!("!!! nothing was installed: no package is for this processor"),
    }
    let sums = checksums(folder)?;
    fs::write(folder.join("SHA256SUMS"), &sums)?;
    signer.sign(&folder.join("SHA256SUMS"), "SHA256SUMS.asc")?;
    print!("{sums}");
    println!("in {}", folder.display());
    if options.again { again::compare(root, options, signer, folder) } else { Ok(()) }
}

/// As the tests: both processors, soon, twice, with a key of its own.
pub fn test(root: &Path) -> Result<()> {
    let (arch, key) = (vec![Arch::X86, Arch::Arm], None);
    let options = Options { untagged: true, key, arch, quick: true, again: true, compared: false };
    run(root, &options)
}

/// For which processors and C libraries binaries are built. Only a trial goes without what this
/// machine cannot build, and says so.
fn binaries(root: &Path, options: &Options) -> Result<Vec<(Arch, &'static str)>> {
    let all = options.arch.iter().flat_map(|arch| ["gnu", "musl"].map(|libc| (*arch, libc)));
    let mut binaries = Vec::new();
    for (arch, libc) in all.filter(|(_, libc)| !options.quick || *libc == "gnu") {
        match need_target(root, &arch.target(libc)) {
            Err(error) if options.untagged => println!("!!! this trial has less: {error:#}"),
            needed => {
                needed?;
                binaries.push((arch, libc));
            }
        }
    }
    Ok(binaries)
}

/// The tree has to be the tag of this version.
fn check_tag(root: &Path) -> Result<()> {
    let git = |words: &[&str]| succeeded(Command::new("git").current_dir(root).args(words));
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "a release has what is committed, and there is more:\n{changed}");
    let tag = format!("v{}", package::VERSION);
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    if tags.lines().any(|one| one == tag) { Ok(()) } else { bail!("this commit is not {tag}") }
}

/// What the changelog says of this version.
fn notes(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("CHANGELOG.md"))?;
    section(&text, package::VERSION)
        .with_context(|| format!("CHANGELOG.md says nothing of {}", package::VERSION))
}

/// The section of a version, whose heading may have a date behind it.
fn section(text: &str, version: &str) -> Option<String> {
    let heading =
        |line: &str| line.strip_prefix("## ").map(|title| title.trim_matches('[').to_owned());
    let is_own = |line: &&str| {
        let title = heading(line).unwrap_or_default();
        title.split([' ', ']']).next() == Some(version)
    };
    let lines = text.lines().skip_while(|line| !is_own(line)).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| heading(line).is_none()).collect();
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then(|| text + "\n")
}

/// The checksums of all files below a folder.
fn checksums(folder: &Path) -> Result<String> {
    let mut names: Vec<String> = files(folder)?
        .iter()
        .map(|path| Ok(path.strip_prefix(folder)?.to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    succeeded(Command::new("sha256sum").current_dir(folder).args(names))
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(self::files(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_the_section_of_the_version() {
        let text =
            "# C\n## Unreleased\n- u\n## [0.2.0] - 2027-01-01\n- b\n\n### X\n- c\n## 0.1.0\n- a\n";
        assert_eq!(section(text, "0.2.0").as_deref(), Some("- b\n\n### X\n- c\n"));
        assert_eq!(section(text, "0.1.0").as_deref(), Some("- a\n"));
        assert_eq!(section(text, "0.1"), None);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        assert!(notes(root).expect("notes").contains("### Target"));
    }
}
