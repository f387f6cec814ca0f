//! `cargo xtask package`: the ways in which weft is installed without a compiler.
//!
//! A Debian package, an RPM of the same files, a container image that is made of the first, a
//! Python wheel that carries the binary, and a static binary. The first four share one binary,
//! which needs no newer C library than the oldest one that wheels are built for. Each is tried
//! where it will run: in a root, an environment or alone, with a target that serves and a load that
//! reads from it.

mod binary;
mod deb;
mod image;
mod parts;
mod rpm;
mod serve;
mod static_binary;
mod wheel;

use crate::cargo::{build_binary, target_folder};
use crate::python::succeeded;
use crate::report::Report;
use anyhow::{Result, ensure};
use binary::{DIST, QUICK};
use clap::{Args, ValueEnum};
pub(crate) use deb::SUITE;
pub use parts::{Arch, VERSION, tar, time};
pub(crate) use parts::{date, empty, scratch};

use parts::Parts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to build.
#[derive(Debug, Args)]
pub struct Options {
    /// What to build; all kinds if none is named
    #[arg(value_enum)]
    kinds: Vec<Kind>,
    /// For which processors; others than this machine's are cross-compiled, and not tried
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Arch::here()])]
    arch: Vec<Arch>,
    /// Package this binary, which has TLS, instead of building one; not for `static`, which is
    /// always built
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// As the tests: all kinds for this machine, of binaries without optimization
    #[arg(long, conflicts_with_all = ["kinds", "arch", "binary"])]
    pub test: bool,
}

/// A way to install weft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A Debian package
    Deb,
    /// A package for Fedora, RHEL, openSUSE and their relatives
    Rpm,
    /// A container image, as an OCI archive
    Image,
    /// A Python wheel that carries the binary
    Wheel,
    /// A binary that needs no library, and is without RDMA
    Static,
}

/// Builds what is asked for, tries what can run here, and lists it with its checksums.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    if options.binary.is_some() {
        ensure!(
            !options.kinds.contains(&Kind::Static),
            "--binary goes into the packages deb, image and wheel; a static one is built for itself"
        );
        ensure!(
            options.arch == [Arch::here()],
            "--binary writes its man pages and completions: it has to run on this machine"
        );
    }
    let wants = |kind| match options.kinds.is_empty() {
        true => options.binary.is_none() || kind != Kind::Static,
        false => options.kinds.contains(&kind),
    };
    let mut built = Vec::new();
    for arch in options.arch.iter().copied() {
        built.extend(of_arch(root, arch, options.binary.as_deref(), wants, DIST)?);
    }
    checksums(&target_folder(root).join("package"), &built)
}

/// The packages for a processor.
fn of_arch(
    root: &Path,
    arch: Arch,
    given: Option<&Path>,
    wants: impl Fn(Kind) -> bool,
    profile: &[&str],
) -> Result<Vec<PathBuf>> {
    let mut built = Vec::new();
    if [Kind::Deb, Kind::Rpm, Kind::Image, Kind::Wheel].into_iter().any(&wants) {
        let binary = match given {
            Some(binary) => binary.to_owned(),
            None => binary::shared(root, arch, profile)?,
        };
        // The binary writes its man pages itself, or this machine's does.
        let native = match arch == Arch::here() {
            true => binary.clone(),
            false => binary::shared(root, Arch::here(), profile)?,
        };
        let parts = Parts::new(root, arch, &binary, &native)?;
        if given.is_none() {
            binary::check_names(root, &parts.binary)?;
        }
        built.extend(shared(&parts, &wants)?);
    }
    if wants(Kind::Static) {
        let binary = binary::alone(root, arch, profile)?;
        let parts = Parts::new(root, arch, &binary, &binary)?;
        binary::check_names(root, &parts.binary)?;
        built.push(static_binary::build(&parts)?);
        if parts.runs_here() {
            static_binary::check(&parts)?;
        }
    }
    Ok(built)
}

/// All packages of binaries for these processors and C libraries, as they are shipped or as soon as
/// possible.
pub fn build(root: &Path, binaries: &[(Arch, &str)], quick: bool) -> Result<Vec<PathBuf>> {
    let profile = if quick { QUICK } else { DIST };
    let of = |arch| {
        let wants = |kind| {
            let libc = if kind == Kind::Static { "musl" } else { "gnu" };
            binaries.contains(&(arch, libc))
        };
        of_arch(root, arch, None, wants, profile)
    };
    Ok([Arch::X86, Arch::Arm].into_iter().map(of).collect::<Result<Vec<_>>>()?.concat())
}

/// Serves from what is installed in a root.
pub(crate) fn serve_in(root: &Path) -> Result<()> {
    serve::serve(&parts::inside(root, "/usr/bin/weft")?, root)
}

/// What an RPM of this machine's processor needs, where no distribution has it.
pub(crate) fn base_rpm(root: &Path) -> Result<PathBuf> {
    rpm::base(root)
}

/// Installs the Debian package of a binary in a root of its own that has systemd.
pub fn install(root: &Path, weft: &Path, folder: &Path) -> Result<()> {
    let parts = Parts::new(root, Arch::here(), weft, weft)?;
    deb::install(&deb::build(&parts)?, folder)
}

/// The packages that share a binary.
fn shared(parts: &Parts<'_>, wants: impl Fn(Kind) -> bool) -> Result<Vec<PathBuf>> {
    let mut built = Vec::new();
    let deb = deb::build(parts)?;
    if wants(Kind::Deb) {
        if parts.runs_here() {
            deb::check(parts, &deb)?;
        }
        built.push(deb.clone());
    }
    if wants(Kind::Rpm) {
        built.push(rpm::build(parts)?);
    }
    if wants(Kind::Image) {
        let image = image::build(parts, &deb)?;
        image::check(parts, &image)?;
        built.push(image);
    }
    if wants(Kind::Wheel) {
        let wheel = wheel::build(parts)?;
        wheel::check(parts, &wheel)?;
        built.push(wheel);
    }
    Ok(built)
}

/// Packages of the binary that other tests use: the one of Debian, of which a guest has a service,
/// or with `all` each kind.
pub fn test(root: &Path, report: &mut Report, all: bool) {
    report.announce("packages");
    let mut made = None;
    let ready = report.check("package/deb", || {
        let weft = build_binary(root)?;
        let parts = Parts::new(root, Arch::here(), &weft, &weft)?;
        let deb = deb::build(&parts)?;
        deb::check(&parts, &deb)?;
        made = Some((parts, deb));
        Ok(())
    });
    let (true, true, Some((parts, deb))) = (all, ready, made) else { return };
    report.check("package/image", || image::check(&parts, &image::build(&parts, &deb)?));
    report.check("package/wheel", || wheel::check(&parts, &wheel::build(&parts)?));
}

/// A static binary, of which every part is compiled for this test alone.
pub fn test_static(root: &Path, report: &mut Report) {
    report.check("package/static", || {
        let binary = binary::alone(root, Arch::here(), QUICK)?;
        let parts = Parts::new(root, Arch::here(), &binary, &binary)?;
        static_binary::build(&parts)?;
        static_binary::check(&parts)
    });
}

/// Writes SHA256SUMS of the packages, and prints it.
fn checksums(folder: &Path, built: &[PathBuf]) -> Result<()> {
    let names = built.iter().filter_map(|path| path.file_name());
    let sums = succeeded(Command::new("sha256sum").current_dir(folder).args(names))?;
    fs::write(folder.join("SHA256SUMS"), &sums)?;
    print!("{sums}");
    println!("in {}", folder.display());
    Ok(())
}
