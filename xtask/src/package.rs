//! `cargo xtask package`: the ways in which weft is installed without a compiler.
//!
//! A Debian package, a container image that is made of it, a Python wheel that carries the binary,
//! and a static binary. The first three share one binary, which needs no newer C library than the
//! oldest one that wheels are built for. Each is tried where it will run: in a root, an
//! environment or alone, with a target that serves and a load that reads from it.

mod binary;
mod deb;
mod image;
mod static_binary;
mod wheel;

use crate::cargo::{build_binary, target_folder};
use crate::python::succeeded;
use crate::report::Report;
use crate::supply;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All packages of a version have the workspace's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    /// A container image, as an OCI archive
    Image,
    /// A Python wheel that carries the binary
    Wheel,
    /// A binary that needs no library, and is without RDMA
    Static,
}

/// A processor's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86,
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    /// This machine's.
    fn here() -> Self {
        if std::env::consts::ARCH == "aarch64" { Self::Arm } else { Self::X86 }
    }

    /// As the compiler, the C library and wheels call it.
    fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// As Debian and container images call it.
    fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }
}

/// What all packages of an architecture are made of.
#[derive(Debug)]
struct Parts<'a> {
    /// The repository.
    root: &'a Path,
    arch: Arch,
    /// The binary, without symbols.
    binary: PathBuf,
    /// One that runs here, which writes its man pages and completions.
    native: PathBuf,
    /// Where packages and their parts go.
    folder: PathBuf,
}

impl<'a> Parts<'a> {
    /// `binary` is stripped into `folder`.
    fn new(root: &'a Path, arch: Arch, binary: &Path, native: &Path) -> Result<Self> {
        let folder = target_folder(root).join("package");
        let stripped = folder.join(format!("weft-{}", arch.name()));
        fs::create_dir_all(&folder)?;
        binary::strip(arch, binary, &stripped)?;
        Ok(Self { root, arch, binary: stripped, native: native.to_owned(), folder })
    }

    /// An empty folder for what a package is made of.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Whether what is built can run here.
    fn runs_here(&self) -> bool {
        self.arch == Arch::here()
    }
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
    let native = match &options.binary {
        Some(binary) => binary.clone(),
        None => build_binary(root)?,
    };
    let mut built = Vec::new();
    for arch in options.arch.iter().copied() {
        if wants(Kind::Deb) || wants(Kind::Image) || wants(Kind::Wheel) {
            let binary = match &options.binary {
                Some(binary) => binary.clone(),
                None => binary::shared(root, arch)?,
            };
            let parts = Parts::new(root, arch, &binary, &native)?;
            built.extend(shared(&parts, wants)?);
        }
        if wants(Kind::Static) {
            let binary = binary::alone(root, arch, &["--profile", "dist"])?;
            let parts = Parts::new(root, arch, &binary, &native)?;
            built.push(static_binary::build(&parts)?);
            if parts.runs_here() {
                static_binary::check(&parts)?;
            }
        }
    }
    checksums(&target_folder(root).join("package"), &built)
}

/// All kinds of packages for all processors, as they are shipped.
pub fn everything(root: &Path) -> Result<()> {
    let arch = Arch::value_variants().to_vec();
    run(root, &Options { kinds: Vec::new(), arch, binary: None, test: false })
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
        // It has little to do.
        let quick = ["--config", "profile.dev.opt-level=0", "--config", "profile.dev.debug=false"];
        let binary = binary::alone(root, Arch::here(), &quick)?;
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

const NQN: &str = "nqn.2014-08.org.example:disk";
/// The host that has a key of TLS.
const HOST: &str = "nqn.2014-08.org.example:package";

/// Serves memory with the target that `weft` starts, and reads it with another process, in the
/// clear and over TLS; both see the files of `root`.
fn serve(weft: &Command, root: &Path) -> Result<()> {
    let folder = format!("tmp/weft-package-{}", std::process::id());
    let outside = root.join(&folder);
    fs::create_dir_all(&outside)?;
    let served = serve_from(weft, &format!("/{folder}"), &outside);
    let _ = fs::remove_dir_all(&outside);
    served
}

fn serve_from(weft: &Command, folder: &str, outside: &Path) -> Result<()> {
    let key = format!("{folder}/key");
    succeeded(&mut with(weft, &["key", "generate", "tls", &key]))?;
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"required\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\npsk = [\"{key}\"]\n\
         [[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    );
    fs::write(outside.join("target.toml"), config)?;
    let mut command = with(weft, &["target", "--config", &format!("{folder}/target.toml")]);
    command.args(["--stop-with-stdin", "--output-format", "json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut target = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = target.stdout.take().context("no output")?;
    let read = read_from(weft, &mut BufReader::new(stdout), &key);
    drop(target.stdin.take());
    let status = target.wait()?;
    read?;
    if status.success() { Ok(()) } else { bail!("the target ended with {status}") }
}

/// Reads at both ports of a target.
fn read_from(weft: &Command, said: &mut impl BufRead, key: &str) -> Result<()> {
    let mut line = String::new();
    said.read_line(&mut line)?;
    let said: serde_json::Value =
        serde_json::from_str(&line).context("the target did not start")?;
    for (port, tls) in [(0, &[][..]), (1, &["--tls", "--tls-key-file", key])] {
        let port = said["ports"][port]["address"].as_str().context("no address")?;
        let address = format!("nvme-tcp://{port}/{NQN}");
        let load = ["bench", "--hostnqn", HOST, "--rw", "randread", "--number-ios", "100"];
        succeeded(with(weft, &load).args(tls).arg("--").arg(address))?;
    }
    Ok(())
}

/// The same command with more arguments.
fn with(command: &Command, arguments: &[&str]) -> Command {
    let mut more = Command::new(command.get_program());
    more.args(command.get_args()).args(arguments);
    more
}

/// A command in a root of its own.
fn inside(folder: &Path, program: &str) -> Result<Command> {
    if !rustix::process::geteuid().is_root() {
        bail!("chroot needs root");
    }
    fs::create_dir_all(folder.join("tmp"))?;
    let mut command = Command::new("chroot");
    command.arg(folder).arg(program);
    Ok(command)
}

fn place(tree: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Places the list of parts (SBOM) of a binary for this C library.
fn list_of_parts(parts: &Parts<'_>, libc: &str, tree: &Path, path: &str) -> Result<()> {
    let target = format!("{}-unknown-linux-{libc}", parts.arch.name());
    place(tree, path, supply::parts(parts.root, &target)?.as_bytes(), 0o644)
}

/// Places the licences.
fn licences(root: &Path, tree: &Path, folder: &str) -> Result<()> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        place(tree, &format!("{folder}/{name}"), &fs::read(root.join(name))?, 0o644)?;
    }
    Ok(())
}

/// Places the documents, which messages, help and man pages name as docs/NAME.
fn place_documents(root: &Path, tree: &Path, folder: &str) -> Result<()> {
    for name in documents(root)? {
        let text = fs::read(root.join(&name)).with_context(|| name.clone())?;
        place(tree, &format!("{folder}/{name}"), &text, 0o644)?;
    }
    Ok(())
}

/// The documents of packages, each as docs/NAME.
fn documents(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") || name.ends_with(".toml") {
            names.push(format!("docs/{name}"));
        }
    }
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
