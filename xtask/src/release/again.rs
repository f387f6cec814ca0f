//! The same release once more, of the same tree in another folder.

use super::Options;
use super::signature::Signer;
use crate::cargo::{ROOT, target_folder};
use crate::package;
use crate::python::succeeded;
use anyhow::{Result, bail};
use clap::ValueEnum;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Builds it, and fails if a file has other bytes.
pub(super) fn compare(root: &Path, options: &Options, signer: &Signer, first: &Path) -> Result<()> {
    let folder = target_folder(root).join("again");
    let tree = folder.join("another/tree");
    let _ = fs::remove_dir_all(&folder);
    copy(root, &tree)?;
    let mut release = Command::new(std::env::current_exe()?);
    release.current_dir(&tree).args(["release", "--untagged", "--compared"]);
    release.args(options.quick.then_some("--quick"));
    release.env(ROOT, &tree);
    let arch = options
        .arch
        .iter()
        .filter_map(|arch| Some(arch.to_possible_value()?.get_name().to_owned()));
    release.arg("--arch").arg(arch.collect::<Vec<_>>().join(","));
    release.env("CARGO_TARGET_DIR", folder.join("built")).env("SOURCE_DATE_EPOCH", &signer.time);
    // The programs that are kept, and the key, are the same.
    for kept in ["python", "cargo"] {
        let from = target_folder(root).join(kept);
        fs::create_dir_all(&from)?;
        fs::create_dir_all(folder.join("built"))?;
        std::os::unix::fs::symlink(from, folder.join("built").join(kept))?;
    }
    std::os::unix::fs::symlink(&signer.home, folder.join("built/trial-key"))?;
    if let Some(key) = &options.key {
        release.args(["--key", key]).env("GNUPGHOME", &signer.home);
    }
    succeeded(&mut release)?;
    let second = folder.join("built/published").join(package::VERSION);
    let lines = |folder: &Path| -> Result<Vec<String>> {
        let text = fs::read_to_string(folder.join("SHA256SUMS"))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let (first, second) = (lines(first)?, lines(&second)?);
    let differ: Vec<&str> = first
        .iter()
        .filter(|line| !second.contains(line))
        .chain(second.iter().filter(|line| !first.contains(line)))
        .map(String::as_str)
        .collect();
    if !differ.is_empty() {
        bail!("two builds differ:\n{}", differ.join("\n"));
    }
    println!("{} files of another build in {} are the same", second.len(), tree.display());
    Ok(fs::remove_dir_all(folder)?)
}

/// Copies what git has of the tree, as it is now.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    let files = succeeded(Command::new("git").current_dir(root).args(["ls-files"]))?;
    let is_there = |file: &&str| root.join(file).symlink_metadata().is_ok();
    fs::create_dir_all(tree)?;
    let mut cp = Command::new("cp");
    cp.current_dir(root)
        .args(["--parents", "--no-dereference", "--preserve=timestamps", "--target-directory"])
        .arg(tree);
    succeeded(cp.args(files.lines().filter(is_there))).map(drop)
}
