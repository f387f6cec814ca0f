//! The Python wheel: the binary among an environment's programs, for `pip install`.
//!
//! Its tag says which C library the binary needs: auditwheel, which knows what each tag promises,
//! reads it from the binary.

use super::parts::{Parts, VERSION, licences, list_of_parts, place, place_documents};
use super::serve::serve;
use crate::python;
use crate::python::succeeded;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// PyPI's `weft` is another project.
const NAME: &str = "weft_nvme";

const WHEEL: &str = "wheel==0.48.0";
const AUDITWHEEL: &str = "auditwheel==6.8.2";

/// Builds the wheel and returns its path.
pub(super) fn build(parts: &Parts<'_>) -> Result<PathBuf> {
    let tree = parts.empty("wheel")?;
    let name = format!("{NAME}-{VERSION}");
    // Of this machine's Linux alone, until auditwheel has said where it runs.
    let tag = format!("py3-none-linux_{}", parts.arch.name());
    place(&tree, &format!("{name}.data/scripts/weft"), &fs::read(&parts.binary)?, 0o755)?;
    place_documents(parts.root, &tree, &format!("{name}.data/data/share/doc/weft"))?;
    let facts = format!("{name}.dist-info");
    place(&tree, &format!("{facts}/METADATA"), metadata(parts.root)?.as_bytes(), 0o644)?;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: weft ({VERSION})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    place(&tree, &format!("{facts}/WHEEL"), wheel.as_bytes(), 0o644)?;
    licences(parts.root, &tree, &format!("{facts}/licenses"))?;
    // Where PEP 770 has it.
    list_of_parts(parts, "gnu", &tree, &format!("{facts}/sboms/weft.cdx.json"))?;
    let program = python::install(parts.root, WHEEL, "wheel")?.join("wheel");
    // It lists the files with their checksums.
    let mut pack = parts.command(&program);
    succeeded(pack.arg("pack").arg(&tree).arg("--dest-dir").arg(&parts.folder))?;
    let untagged = parts.folder.join(format!("{name}-{tag}.whl"));
    let platform = platform(parts, &untagged)?;
    let mut tags = parts.command(&program);
    succeeded(tags.args(["tags", "--remove", "--platform-tag", &platform]).arg(&untagged))?;
    Ok(parts.folder.join(format!("{name}-py3-none-{platform}.whl")))
}

/// The platform (PEP 600) that a wheel is for, as auditwheel reads it from the binary: the one of
/// those it names that has the oldest C library.
fn platform(parts: &Parts<'_>, wheel: &Path) -> Result<String> {
    let audit = python::install(parts.root, AUDITWHEEL, "auditwheel")?.join("auditwheel");
    let said = succeeded(Command::new(audit).arg("show").arg(wheel))?;
    let mut quoted = said.split('"').skip(1).step_by(2);
    let platform = quoted.find(|word| word.starts_with("manylinux_"));
    platform.map(str::to_owned).with_context(|| format!("it is for no platform: {said}"))
}

fn metadata(root: &Path) -> Result<String> {
    let readme = fs::read_to_string(root.join("README.md"))?;
    Ok(format!(
        "Metadata-Version: 2.4\nName: {}\nVersion: {VERSION}\n\
         Summary: NVMe over Fabrics target, host and benchmark in user space\n\
         License-Expression: MIT OR Apache-2.0\n\
         License-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\n\
         Classifier: Operating System :: POSIX :: Linux\nRequires-Python: >=3.7\n\
         Description-Content-Type: text/markdown\n\n{readme}",
        NAME.replace('_', "-")
    ))
}

/// Has auditwheel check the tag; installs the wheel into an empty environment, and serves from it.
pub(super) fn check(parts: &Parts<'_>, wheel: &Path) -> Result<()> {
    let platform = platform(parts, wheel)?;
    let name = wheel.file_name().context("no name")?.to_string_lossy();
    ensure!(name.ends_with(&format!("-{platform}.whl")), "{name} is for {platform}");
    if !parts.runs_here() {
        return Ok(());
    }
    let environment = parts.empty("environment")?;
    python::make_environment(&environment)?;
    let programs = environment.join("bin");
    let install = ["install", "--quiet", "--no-index"];
    succeeded(Command::new(programs.join("pip")).args(install).arg(wheel))?;
    let weft = Command::new(programs.join("weft"));
    serve(&weft, Path::new("/"))
}
