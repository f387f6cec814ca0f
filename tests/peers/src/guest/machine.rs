//! A running guest and the commands in it.
//!
//! QEMU's standard input and output are the guest's serial channel: a command is sent as one line,
//! its output is returned as it is produced, and a record separator with the exit status ends
//! it. Changes of the guest's disk are discarded at its end. Closing the channel ends the guest, so
//! that none outlives its test.

use super::{Image, say};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Ends a command's output; the exit status and a newline follow.
const RECORD_SEPARATOR: u8 = 0x1e;

/// How long a boot may take: seconds with emulation, and many times that on a loaded machine.
const BOOT_TIME_S: u64 = 120;

/// Parameters for a quick boot: no output, no self-tests and no calibration, which take seconds
/// on an emulated processor. A panic ends QEMU at once.
///
/// The last two avoid a fault of the kernel's NVMe/TCP host: since Linux 6.12 it creates the block
/// devices of several namespaces at the same time, and they allocate PDUs from one cache without a
/// lock. Such memory was sometimes freed too early ("Bad page state", or a WARNING in
/// `skb_splice_from_iter`). Newer kernels have a lock ("nvme-tcp: fix usage of
/// page_frag_cache"); here this work runs on one processor without preemption.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=3 panic=-1 nokaslr mitigations=off audit=0 \
     apparmor=0 random.trust_cpu=1 no_timer_check tsc=reliable lpj=10000000 net.ifnames=0 \
     cryptomgr.notests=1 initcall_blacklist=jent_mod_init,load_system_certificate_list \
     workqueue.unbound_cpus=0 preempt=none";

/// Settings of a guest. Inside it, 10.0.2.2 is the host's 127.0.0.1.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// A folder of this machine, read-write at `/share` inside and the working directory there.
    pub(crate) share: Option<PathBuf>,
    /// Ports of this machine's 127.0.0.1, and the guest's ports to which they are forwarded.
    pub(crate) forwards: Vec<(u16, u16)>,
    /// Kernel modules to load at the start.
    pub(crate) modules: Vec<String>,
    /// A folder for the data of an emulated NVMe SSD with the namespaces of [`SSD`], if there is
    /// one.
    pub(crate) ssd: Option<PathBuf>,
    /// Processors.
    pub(crate) cpus: u32,
    /// Memory.
    pub(crate) memory_mib: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            share: None,
            forwards: Vec::new(),
            modules: Vec::new(),
            ssd: None,
            cpus: 2,
            memory_mib: 1024,
        }
    }
}

/// The formats of the namespaces of an emulated SSD: without metadata, with protection information,
/// with other metadata, and without metadata again, for the one with bad blocks.
const SSD: [&str; 4] = [
    "logical_block_size=4096,physical_block_size=4096",
    "logical_block_size=4096,physical_block_size=4096,ms=8,pi=1",
    "logical_block_size=4096,physical_block_size=4096,ms=16",
    "logical_block_size=4096,physical_block_size=4096",
];
/// The namespace of which block [`BAD_BLOCK`] can be neither read nor written.
const WITH_BAD_BLOCK: u32 = 4;
const BAD_BLOCK: u32 = 100;
const SSD_BYTES: u64 = 64 << 20;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited with this status.
    Status(i32),
    /// It exceeded its time; the guest was ended, too.
    TimedOut,
    /// The guest ended while it ran.
    Died,
}

/// A running guest. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guest {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    /// Output that came after the last record separator.
    rest: Vec<u8>,
    console: PathBuf,
}

impl Guest {
    /// Boots `image` and returns when it accepts commands.
    ///
    /// An emulated kernel on several processors rarely dies while it boots (an int3 of a jump label
    /// that another processor was patching), or stops before its first line; on a busy machine its
    /// clock is at times measured wrongly, and goes many times too fast. It is started once more
    /// then, and that is said.
    pub(crate) fn boot(image: &Image, options: &Options) -> Result<Self> {
        if let Some(folder) = &options.ssd {
            for (nsid, _) in (1..).zip(SSD) {
                fs::File::create(ssd_file(folder, nsid))?.set_len(SSD_BYTES)?;
            }
        }
        let booted = || -> Result<Self> {
            let begin = Instant::now();
            let (mut guest, exit) = Self::start(image, options)?;
            let console = guest.console();
            ensure!(
                matches!(exit, Exit::Status(_)),
                "the guest did not boot ({exit:?}); its console:\n{console}"
            );
            let up = guest.uptime()?;
            let time = begin.elapsed();
            ensure!(up < 2 * time, "the guest's clock counts {up:?} in {time:?}");
            Ok(guest)
        };
        booted().or_else(|error| {
            ensure!(!has_kvm(), error);
            super::say(&format!("it is started once more: {error:#}"));
            booted()
        })
    }

    /// For how long it has run, by its own clock.
    fn uptime(&mut self) -> Result<Duration> {
        let mut said = Vec::new();
        let uptime = "cut -d' ' -f1 /proc/uptime";
        self.run(uptime, Duration::from_secs(60), &mut |bytes| said.extend(bytes))?;
        let seconds = String::from_utf8(said)?.trim().parse();
        Ok(Duration::from_secs_f64(seconds.context("the guest does not tell its time")?))
    }

    /// A guest that has booted, or has not within its time.
    fn start(image: &Image, options: &Options) -> Result<(Self, Exit)> {
        let console = console_path();
        let mut command = emulator(image, options, &console, "");
        command.args(["-chardev", "stdio,id=channel,signal=off"]);
        command.args(["-device", "virtserialport,chardev=channel,name=weft"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start QEMU")?;
        let input = child.stdin.take();
        let mut stdout = child.stdout.take().context("no output")?;
        let (sender, output) = sync_channel(64);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut guest = Self { child, input, output, rest: Vec::new(), console };
        let mut noise: Vec<u8> = Vec::new();
        let time = Duration::from_secs(BOOT_TIME_S);
        let exit = guest.collect(time, &mut |bytes| noise.extend(bytes))?;
        Ok((guest, exit))
    }

    /// Runs `script` with bash and passes its output (both streams) to `sink` as it arrives.
    pub(crate) fn run(
        &mut self,
        script: &str,
        time: Duration,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Exit> {
        let line = script.replace('\\', "\\\\").replace('\n', "\\n") + "\n";
        let Some(input) = self.input.as_mut() else { return Ok(Exit::Died) };
        if input.write_all(line.as_bytes()).and_then(|()| input.flush()).is_err() {
            return Ok(Exit::Died);
        }
        self.collect(time, sink)
    }

    /// What the guest's kernel has written to its console.
    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    fn collect(&mut self, time: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<Exit> {
        let deadline = Instant::now() + time;
        let mut bytes = std::mem::take(&mut self.rest);
        loop {
            if let Some(at) = bytes.iter().position(|byte| *byte == RECORD_SEPARATOR) {
                if let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') {
                    sink(&bytes[..at]);
                    self.rest = bytes[at + end + 1..].to_vec();
                    let status = std::str::from_utf8(&bytes[at + 1..at + end])?;
                    return Ok(Exit::Status(status.parse().context("invalid exit status")?));
                }
            } else if !bytes.is_empty() {
                sink(&bytes);
                bytes.clear();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(more) => bytes.extend(more),
                Err(RecvTimeoutError::Timeout) => {
                    self.end();
                    return Ok(Exit::TimedOut);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.end();
                    return Ok(Exit::Died);
                }
            }
        }
    }

    fn end(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_file(&self.console);
    }
}

/// Boots a guest with an interactive shell on this terminal, until it exits.
pub(crate) fn shell(image: &Image, options: &Options) -> Result<()> {
    let console = console_path();
    let size = rustix::termios::tcgetwinsize(std::io::stdin()).context("not a terminal")?;
    let append = format!("weft.columns={} weft.shell={}", size.ws_col, size.ws_row);
    let mut command = emulator(image, options, &console, &append);
    command.args(["-chardev", "stdio,id=channel,signal=off"]);
    command.args(["-device", "virtconsole,chardev=channel"]);
    say("leave with exit or Ctrl-D");
    let status = command.status().context("cannot start QEMU")?;
    let _ = fs::remove_file(&console);
    if !status.success() {
        bail!("QEMU: {status}");
    }
    Ok(())
}

/// Whether guests run on KVM. A KVM without hardware support (`kvm_intel`, `kvm_amd`) cannot boot a
/// stock kernel.
pub(crate) fn has_kvm() -> bool {
    let module = ["kvm_intel", "kvm_amd"].iter().any(|m| Path::new("/sys/module").join(m).exists());
    module && fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

fn console_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("weft-guest-{}-{count}.console", std::process::id()))
}

fn emulator(image: &Image, options: &Options, console: &Path, append: &str) -> Command {
    let mut command = image.qemu.command("bin/qemu-system-x86_64");
    command.arg("-L").arg(image.qemu.path("share/qemu"));
    command.arg("-L").arg(image.qemu.path("share/seabios"));
    command.args(match has_kvm() {
        true => ["-accel", "kvm", "-cpu", "host"],
        false => ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"],
    });
    command.args(["-machine", "q35,hpet=off,sata=off,smbus=off,vmport=off", "-bios", "qboot.rom"]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-m", &options.memory_mib.to_string(), "-smp", &options.cpus.to_string()]);
    command.arg("-kernel").arg(image.folder.join("vmlinux"));
    command.arg("-initrd").arg(image.folder.join("initrd"));
    let mut append = format!("{KERNEL_ARGUMENTS} {append}");
    if !options.modules.is_empty() {
        append += &format!(" weft.modprobe={}", options.modules.join(","));
    }
    if let Some(share) = &options.share {
        append = format!("weft.share {append}");
        command.arg("-fsdev").arg(format!(
            "local,id=share,security_model=none,multidevs=remap,path={}",
            share.display()
        ));
        command.args(["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"]);
    }
    command.arg("-append").arg(append);
    let root = image.folder.join("root.img");
    command.arg("-drive").arg(format!(
        "file={},if=none,id=root,format=raw,snapshot=on,cache=unsafe",
        root.display()
    ));
    command.args(["-device", "virtio-blk-pci,drive=root", "-device", "virtio-rng-pci"]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    let mut network = String::from("user,id=net,ipv6=off");
    for (outside, inside) in &options.forwards {
        network += &format!(",hostfwd=tcp:127.0.0.1:{outside}-:{inside}");
    }
    command.args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net,romfile="]);
    command.args(["-device", "virtio-serial-pci"]);
    if let Some(folder) = &options.ssd {
        add_ssd(&mut command, folder);
    }
    command
}

/// An emulated SSD with the namespaces of [`SSD`].
fn add_ssd(command: &mut Command, folder: &Path) {
    command.args(["-device", "nvme,id=ssd,serial=weft,mdts=5"]);
    for (nsid, format) in (1..).zip(SSD) {
        let file = ssd_file(folder, nsid);
        let mut drive = format!("if=none,id=ssd{nsid},cache=unsafe,format=raw,");
        if nsid == WITH_BAD_BLOCK {
            drive += "file.driver=blkdebug,file.image.driver=file,file.image.filename=";
            drive += &file.display().to_string();
            for (rule, kind) in ["read", "write"].iter().enumerate() {
                let rule = format!("file.inject-error.{rule}");
                let sector = BAD_BLOCK * 8;
                drive += &format!(",{rule}.event=none,{rule}.iotype={kind},{rule}.errno=5");
                drive += &format!(",{rule}.sector={sector}");
            }
        } else {
            drive += &format!("file={}", file.display());
        }
        command.arg("-drive").arg(drive);
        let namespace = format!("nvme-ns,bus=ssd,drive=ssd{nsid},nsid={nsid},{format}");
        command.arg("-device").arg(namespace);
    }
}

/// The file of a namespace's data.
fn ssd_file(folder: &Path, nsid: u32) -> PathBuf {
    folder.join(format!("ssd{nsid}.img"))
}
