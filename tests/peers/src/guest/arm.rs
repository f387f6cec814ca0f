//! A guest whose processor is one of Arm, emulated, that serves a target: Debian's kernel, busybox
//! and the binary in an initramfs, and nothing else.

use super::apt::{Apt, unpack};
use super::cpio::Archive;
use super::image::{SUITE, Tools, kernel_packages};
use super::modules::Tree;
use super::{cache_folder, say};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULES: &[&str] = &["virtio_pci", "virtio_net", "virtio_rng"];

/// The libraries of the binary, with their path where they are cross-compiled for.
const LIBRARIES: &[&str] = &["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1"];
const LIBRARY_FOLDER: &str = "/usr/aarch64-linux-gnu/lib";

/// What the guest is made of, unpacked in the cache.
#[derive(Debug)]
pub(crate) struct ArmGuest {
    folder: PathBuf,
    tools: Tools,
    version: String,
}

/// A folder of the cache with this name, which is filled once.
fn prepared(name: &str, what: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = cache_folder()?;
    fs::create_dir_all(&cache)?;
    let lock = File::create(cache.join(format!("lock-{name}")))?;
    lock.lock()?;
    let folder = cache.join(name);
    if !folder.join("stamp").exists() {
        say(&format!("preparing {what}, once, in {}", folder.display()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        fill(&folder)?;
        fs::write(folder.join("stamp"), "")?;
    }
    Ok(folder)
}

/// The emulator of single programs. That of Debian 12 has a table of all pages, which the terabyte
/// that a memory device reserves makes gigabytes.
pub(crate) fn user_emulator() -> Result<PathBuf> {
    let folder = prepared("arm-user", "QEMU for programs of Arm", |folder| {
        let apt = Apt::open(&folder.join("apt"), SUITE)?;
        // It is linked statically, and needs none of what it depends on.
        let packages = apt.exactly(&["qemu-user".to_owned()], "tools")?;
        unpack(&packages, &folder.join("tools"))
    })?;
    Ok(Tools::at(folder.join("tools")).path("bin/qemu-aarch64"))
}

impl ArmGuest {
    /// Downloads and unpacks it, once.
    pub(crate) fn prepare() -> Result<Self> {
        let folder = prepared("arm", "Linux for Arm", |folder| {
            let apt = Apt::open(&folder.join("apt"), SUITE)?;
            let packages = ["qemu-system-arm", "xz-utils", "zstd"];
            unpack(&apt.closure(&packages, "tools")?, &folder.join("tools"))?;
            let apt = Apt::open_for("arm64", &folder.join("apt-arm64"), SUITE)?;
            let mut packages = kernel_packages(&apt, "linux-image-arm64")?;
            packages.push("busybox-static".to_owned());
            unpack(&apt.exactly(&packages, "kernel")?, &folder.join("root"))
        })?;
        let modules = folder.join("root/usr/lib/modules");
        let version = fs::read_dir(&modules)?.next().context("the kernel package is empty")??;
        let version = version.file_name().to_string_lossy().into_owned();
        let tools = Tools::at(folder.join("tools"));
        Ok(Self { folder, tools, version })
    }

    /// The emulator whose guest runs `weft` with these arguments, reachable at a port of this
    /// machine. The output of both is its own.
    pub(crate) fn serve(
        &self,
        initrd: &Path,
        outside: u16,
        inside: u16,
        weft: &Path,
        arguments: &str,
    ) -> Result<Command> {
        fs::write(initrd, self.initramfs(weft, arguments)?)?;
        let mut command = self.tools.command("bin/qemu-system-aarch64");
        command.arg("-L").arg(self.tools.path("share/qemu"));
        command.args(["-machine", "virt", "-cpu", "max,pauth-impdef=on"]);
        command.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "1024"]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        let kernel = self.folder.join("root/boot").join(format!("vmlinuz-{}", self.version));
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
        command.args(["-append", "console=ttyAMA0 loglevel=4 panic=-1", "-serial", "stdio"]);
        let network = format!("user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:{outside}-:{inside}");
        command.args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net,romfile="]);
        command.args(["-device", "virtio-rng-pci"]);
        Ok(command)
    }

    fn initramfs(&self, weft: &Path, arguments: &str) -> Result<Vec<u8>> {
        let root = self.folder.join("root/usr");
        let mut archive = Archive::default();
        for path in ["bin", "dev", "proc", "sys", "tmp", "lib", "modules"] {
            archive.directory(path);
        }
        let init = include_str!("arm.sh").replace("ARGUMENTS", arguments);
        archive.file("init", init.as_bytes());
        archive.file("bin/busybox", &fs::read(root.join("bin/busybox"))?);
        archive.file("bin/weft", &fs::read(weft)?);
        for name in LIBRARIES {
            let path = Path::new(LIBRARY_FOLDER).join(name);
            archive.file(&format!("lib/{name}"), &fs::read(&path).context(name.to_string())?);
        }
        let tree = Tree::scan(&root.join("lib/modules").join(&self.version))?;
        let modules = tree.closure(MODULES, &self.tools)?;
        let order: String = modules.iter().map(|module| format!("{}\n", module.name)).collect();
        archive.file("modules/order", order.as_bytes());
        for module in modules {
            archive.file(&format!("modules/{}", module.name), &module.content);
        }
        Ok(archive.finish())
    }
}
