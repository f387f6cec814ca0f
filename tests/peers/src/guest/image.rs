//! The files of a boot, built once from Debian's packages and kept in the cache.
//!
//! The cache has `apt/` (lists and package files), `qemu/` (unpacked), and for each kernel a
//! folder, `image/` or `image-backports/`, with `vmlinux`, `initrd`, `root.img`, `version` and
//! `stamp`. The stamp is the whole recipe as text: a changed recipe gives a new image.

use super::apt::{Apt, unpack};
use super::cpio::Archive;
use super::modules::{Module, Tree};
use super::{cache_folder, output, say};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The Debian release of the guest's user space and of QEMU.
pub(crate) const SUITE: &str = "trixie";

/// Debian's kernels for that release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The one that it was released with, which most of its users have.
    Release,
    /// The newest one, for what came later, such as secure concatenation (Linux 6.15).
    Backports,
}

impl Kernel {
    /// The suite of its packages, the place of its lists and that of its image.
    fn places(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Release => (SUITE, "apt", "image"),
            Self::Backports => ("trixie-backports", "apt-backports", "image-backports"),
        }
    }
}

const PACKAGES: &[&str] = &[
    // the system, and the tools that make the image
    "base-files",
    "bash",
    "busybox-static",
    "coreutils",
    "diffutils",
    "findutils",
    "gawk",
    "grep",
    "iproute2",
    "jq",
    "kmod",
    "libc-bin",
    "procps",
    "sed",
    "util-linux",
    "xz-utils",
    "zstd",
    // what the tests drive
    "e2fsprogs",
    "ethtool",
    "fio",
    "ibverbs-providers",
    "keyutils",
    "ktls-utils",
    "nvme-cli",
    "openssl",
    "rdma-core",
    "strace",
    "tcpdump",
    "xfsprogs",
];

/// The modules that the initramfs loads.
const BOOT_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "virtio_rng",
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
    "9pnet_virtio",
    "9p",
    "configfs",
];

/// More modules, for `modprobe` in the guest; a slash ends the name of a folder.
const MODULES: &[&str] = &[
    "drivers/nvme/",
    "crypto/",
    "arch/x86/crypto/",
    "lib/",
    "drivers/infiniband/sw/",
    "ib_uverbs",
    "rdma_ucm",
    "null_blk",
    "loop",
    "brd",
    "xfs",
    "tls",
    "veth",
    "sch_netem",
    "tcp_diag",
    "dm-flakey",
    "dm-delay",
    "ublk_drv",
];

const FILES: &[(&str, &str)] = &[
    ("etc/hosts", "127.0.0.1 localhost weft-guest\n10.0.2.2 outside\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"),
    ("etc/group", "root:x:0:\n"),
    ("etc/nvme/hostid", "77656674-0000-4000-8000-000000000001\n"),
    ("etc/nvme/hostnqn", "nqn.2014-08.org.nvmexpress:uuid:77656674-0000-4000-8000-000000000001\n"),
];

const LINKS: &[(&str, &str)] =
    &[("usr/bin/sh", "bash"), ("usr/bin/awk", "gawk"), ("etc/mtab", "/proc/self/mounts")];

const INIT: &str = include_str!("init.sh");
const AGENT: &str = include_str!("agent.sh");

/// A guest that can be booted.
#[derive(Debug)]
pub(crate) struct Image {
    /// Holds `vmlinux`, `initrd` and `root.img`.
    pub(crate) folder: PathBuf,
    /// The unpacked emulator.
    pub(crate) qemu: Tools,
    /// The kernel's version.
    pub(crate) version: String,
}

impl Image {
    /// Returns the cached image, building it first if there is none or the recipe has changed.
    /// Concurrent callers wait for the first one. `force` builds it anew with the newest
    /// packages.
    pub(crate) fn prepare(kernel: Kernel, force: bool) -> Result<Self> {
        if std::env::consts::ARCH != "x86_64" {
            bail!("guests run on x86_64 only");
        }
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).with_context(|| format!("cannot use {}", cache.display()))?;
        let lock = File::create(cache.join("lock"))?;
        lock.lock()?;
        let folder = cache.join(kernel.places().2);
        let qemu = Tools { root: cache.join("qemu") };
        let stamp = folder.join("stamp");
        let recipe = recipe(kernel);
        if force || fs::read_to_string(&stamp).unwrap_or_default() != recipe {
            let start = Instant::now();
            say(&format!("preparing Linux and QEMU, once, in {}", cache.display()));
            // Guests with the other kernel may be running with this emulator.
            let with_qemu = kernel == Kernel::Release || !qemu.root.exists();
            build(kernel, &cache, &folder, &qemu, with_qemu)?;
            fs::write(&stamp, recipe)?;
            say(&format!("ready after {} s", start.elapsed().as_secs()));
        }
        let version = fs::read_to_string(folder.join("version"))?;
        Ok(Self { folder, qemu, version })
    }
}

/// A folder of unpacked packages whose programs run with their own loader and libraries.
#[derive(Debug)]
pub(crate) struct Tools {
    root: PathBuf,
}

impl Tools {
    /// What was unpacked there.
    pub(super) const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The command that runs `program` (a path below `/usr`).
    pub(crate) fn command(&self, program: &str) -> Command {
        let usr = self.root.join("usr");
        let mut command = Command::new(usr.join("lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(usr.join("lib/x86_64-linux-gnu")).arg(usr.join(program));
        command
    }

    /// A path below the folder's `/usr`.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join("usr").join(path)
    }

    /// The content of a file, decompressed where its name says that it is compressed.
    pub(crate) fn decompress(&self, path: &Path) -> Result<Vec<u8>> {
        let program = match path.extension().and_then(|extension| extension.to_str()) {
            Some("xz") => "bin/xz",
            Some("zst") => "bin/zstd",
            _ => return Ok(fs::read(path)?),
        };
        output(self.command(program).arg("-dc").stdin(Stdio::from(File::open(path)?)))
    }
}

/// Everything that determines the image.
fn recipe(kernel: Kernel) -> String {
    let suite = kernel.places().0;
    format!(
        "{suite} {PACKAGES:?} {BOOT_MODULES:?} {MODULES:?} {FILES:?} {LINKS:?}\n{INIT}\n{AGENT}"
    )
}

fn build(kernel: Kernel, cache: &Path, folder: &Path, qemu: &Tools, with_qemu: bool) -> Result<()> {
    let work = cache.join("work");
    for old in [folder, &work] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    fs::create_dir_all(folder)?;
    fs::create_dir_all(&work)?;
    let apt = Apt::open(&cache.join("apt"), SUITE)?;
    if with_qemu {
        if qemu.root.exists() {
            fs::remove_dir_all(&qemu.root)?;
        }
        unpack(&apt.closure(&["qemu-system-x86"], "qemu")?, &qemu.root)?;
    }
    let root = work.join("root");
    unpack(&apt.closure(PACKAGES, "root")?, &root)?;
    let tools = Tools { root: root.clone() };

    let (suite, lists, _) = kernel.places();
    let apt = Apt::open(&cache.join(lists), suite)?;
    unpack(
        &apt.exactly(&kernel_packages(&apt, "linux-image-amd64")?, "kernel")?,
        &work.join("kernel"),
    )?;
    let modules = work.join("kernel/usr/lib/modules");
    let version = fs::read_dir(&modules)?.next().context("the kernel package is empty")??;
    let version = version.file_name().to_string_lossy().into_owned();
    say(&format!("Linux {version}"));
    let places = [
        work.join("kernel/boot").join(format!("vmlinuz-{version}")),
        modules.join(&version).join("vmlinuz"),
    ];
    let packed = places.iter().find(|path| path.exists()).context("the packages have no kernel")?;
    fs::write(folder.join("vmlinux"), unpack_kernel(&fs::read(packed)?, &work, &tools)?)?;

    let tree = Tree::scan(&modules.join(&version))?;
    let boot = tree.closure(BOOT_MODULES, &tools)?;
    fs::write(folder.join("initrd"), initramfs(&fs::read(root.join("usr/bin/busybox"))?, &boot))?;
    install_modules(&boot, &modules.join(&version), &root)?;
    install_modules(&tree.closure(MODULES, &tools)?, &modules.join(&version), &root)?;
    output(tools.command("sbin/depmod").arg("-b").arg(&root).arg(&version))?;

    finish_root(&root)?;
    make_file_system(&tools, &root, &folder.join("root.img"))?;
    fs::write(folder.join("version"), &version)?;
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// The packages of the newest kernel: one, or since Linux 7 one each for the kernel, its modules
/// and their lists, which its package depends on.
pub(super) fn kernel_packages(apt: &Apt, newest: &str) -> Result<Vec<String>> {
    let mut packages = apt.depends(newest)?;
    packages.retain(|name| name.starts_with("linux-image-"));
    for image in packages.clone() {
        let version = image.trim_start_matches("linux-image");
        let parts = apt.depends(&image)?;
        packages.extend(parts.into_iter().filter(|name| name.ends_with(version)));
    }
    Ok(packages)
}

/// The ELF kernel inside a bzImage. It boots by its PVH entry point, so that no emulated
/// processor has to decompress it.
fn unpack_kernel(packed: &[u8], work: &Path, tools: &Tools) -> Result<Vec<u8>> {
    let word = |at: usize| -> Option<usize> {
        let bytes = packed.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    // The setup header of Linux' boot protocol: setup_sects, payload_offset, payload_length.
    let setup = usize::from(*packed.get(0x1f1).context("not a kernel")?).max(1);
    let start = (setup + 1) * 512 + word(0x248).context("not a kernel")?;
    let length = word(0x24c).context("not a kernel")?;
    let payload = packed.get(start..start + length - 4).context("the kernel is cut short")?;
    let suffix = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zst",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        _ => bail!("the kernel is compressed with an unknown method"),
    };
    let path = work.join("vmlinux").with_extension(suffix);
    fs::write(&path, payload)?;
    tools.decompress(&path)
}

fn initramfs(busybox: &[u8], boot: &[Module]) -> Vec<u8> {
    let mut archive = Archive::default();
    for path in ["bin", "dev", "modules", "root"] {
        archive.directory(path);
    }
    archive.file("init", INIT.as_bytes());
    archive.file("bin/busybox", busybox);
    let order: String = boot.iter().map(|module| format!("{}\n", module.name)).collect();
    archive.file("modules/order", order.as_bytes());
    for module in boot {
        archive.file(&format!("modules/{}", module.name), &module.content);
    }
    archive.finish()
}

fn install_modules(modules: &[Module], from: &Path, root: &Path) -> Result<()> {
    let version = from.file_name().context("no version")?;
    let to = root.join("usr/lib/modules").join(version);
    for module in modules {
        let path = to.join(&module.path);
        fs::create_dir_all(path.parent().context("no parent")?)?;
        fs::write(path, &module.content)?;
    }
    for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
}

/// Adds the files that packages create during installation, and ours.
fn finish_root(root: &Path) -> Result<()> {
    use std::os::unix::fs::{PermissionsExt, symlink};
    for name in ["proc", "sys", "dev", "run", "tmp", "root", "mnt", "share", "etc/nvme"] {
        fs::create_dir_all(root.join(name))?;
    }
    for (path, text) in FILES {
        fs::write(root.join(path), text)?;
    }
    for (path, to) in LINKS {
        if root.join(path).symlink_metadata().is_err() {
            symlink(to, root.join(path))?;
        }
    }
    let agent = root.join("usr/sbin/weft-agent");
    fs::write(&agent, AGENT)?;
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
    // Files unpacked without root belong to that user, so set-user-ID would drop privileges.
    output(Command::new("chmod").args(["-R", "-s"]).arg(root.join("usr")))?;
    for name in ["doc", "man", "locale", "info"] {
        let _ = fs::remove_dir_all(root.join("usr/share").join(name));
    }
    Ok(())
}

fn make_file_system(tools: &Tools, root: &Path, image: &Path) -> Result<()> {
    let used = output(Command::new("du").args(["-sm"]).arg(root))?;
    let used = String::from_utf8_lossy(&used);
    let used: u64 = used.split_whitespace().next().unwrap_or_default().parse()?;
    say(&format!("root file system, {used} MiB"));
    output(
        tools
            .command("sbin/mke2fs")
            .args(["-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0"])
            .args(["-E", "root_owner=0:0", "-d"])
            .arg(root)
            .arg(image)
            .arg(format!("{}M", used * 5 / 4 + 128))
            .env("MKE2FS_CONFIG", root.join("etc/mke2fs.conf")),
    )?;
    Ok(())
}
