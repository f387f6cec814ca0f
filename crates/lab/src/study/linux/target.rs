//! nvmet: subsystems, namespaces and a port in configfs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use uuid::Uuid;
use weft_backend::DeviceSpec;
use weft_host::Transport;

use super::changes::{Changes, Linux};
use super::made::{ForeignTarget, Port};
use super::sysfs::{CONFIGFS, attribute, load, names, nvmet, set};
use crate::study::given::protocol_name;
use crate::study::knob::change::Change;
use crate::study::launch::TargetSpec;

/// Ports that nvmet may have.
const PORTS: std::ops::Range<u32> = 1..1000;

/// How long nvmet-tcp polls before it sleeps, below the root.
const IDLE_POLL: &str = "sys/module/nvmet_tcp/parameters/idle_poll_period_usecs";

/// How much is written at a time when memory is filled.
const PIECE: usize = 1 << 20;

/// Makes a target of the kernel.
pub(super) fn start(
    linux: &Arc<Linux>,
    spec: &TargetSpec,
    listen: Option<IpAddr>,
) -> Result<ForeignTarget, String> {
    load("nvmet", &[])?;
    load(&nvmet(spec.transport), &[])?;
    let at = Port::free(spec, listen)?;
    let mut changes = Changes::new(linux);
    if let (Some(idle_poll), Transport::Tcp) = (spec.idle_poll, spec.transport) {
        // The module has one for all its queues.
        changes.set_file(IDLE_POLL, &idle_poll.as_micros().to_string())?;
    }
    let folder = Path::new(CONFIGFS).join("nvmet");
    let mut subsystems = Vec::new();
    for _ in 0..spec.subsystems.max(1) {
        subsystems.push(subsystem(&mut changes, &folder, &spec.devices)?);
    }
    let ports = folder.join("ports");
    let free = PORTS.map(|id| ports.join(id.to_string())).find(|port| !port.exists());
    let port = free.ok_or("nvmet has too many ports")?;
    changes.make_folder(&port)?;
    for (name, value) in [
        ("addr_trtype", protocol_name(spec.transport)),
        ("addr_adrfam", at.family()),
        ("addr_traddr", &at.at.to_string()),
        ("addr_trsvcid", &at.service.to_string()),
    ] {
        set(&port.join(name), value)?;
    }
    let mut addresses = Vec::new();
    for (nqn, path) in subsystems {
        let link = port.join("subsystems").join(&nqn);
        changes.note(Change::Made { path: link.clone() })?;
        symlink(&path, &link)
            .map_err(|error| format!("the kernel's target cannot listen at {at}: {error}"))?;
        addresses.push(at.address(&nqn)?);
    }
    let ended =
        move || (!port.exists()).then(|| format!("{} was removed by others", port.display()));
    Ok(ForeignTarget { whose: "the kernel's", changes, addresses, ended: Box::new(ended) })
}

/// Makes a subsystem with these devices as namespaces 1, 2 and so on.
fn subsystem(
    changes: &mut Changes,
    folder: &Path,
    devices: &[DeviceSpec],
) -> Result<(String, PathBuf), String> {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::new_v4());
    // What a namespace uses is made before it, and removed after it.
    let paths = devices.iter().map(|device| backing(changes, device));
    let paths = paths.collect::<Result<Vec<PathBuf>, String>>()?;
    let subsystem = folder.join("subsystems").join(&nqn);
    changes.make_folder(&subsystem)?;
    set(&subsystem.join("attr_allow_any_host"), "1")?;
    for (nsid, (path, device)) in (1..).zip(paths.iter().zip(devices)) {
        let namespace = subsystem.join("namespaces").join(nsid.to_string());
        changes.make_folder(&namespace)?;
        set(&namespace.join("device_path"), &path.display().to_string())?;
        set(&namespace.join("enable"), "1")
            .map_err(|why| format!("the kernel's target does not serve {device}: {why}"))?;
    }
    Ok((nqn, subsystem))
}

/// The file or block device of a namespace.
fn backing(changes: &mut Changes, device: &DeviceSpec) -> Result<PathBuf, String> {
    match device {
        DeviceSpec::Memory { bytes, block_bytes } => {
            let path = null_blk(changes, *bytes, *block_bytes, true)?;
            // Memory that was never written is not allocated.
            fill(&path, *bytes).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path)
        }
        DeviceSpec::Null { bytes, block_bytes } => null_blk(changes, *bytes, *block_bytes, false),
        DeviceSpec::File { path, create_bytes, .. } => {
            if let (Some(bytes), false) = (create_bytes, path.exists()) {
                let made = OpenOptions::new().write(true).create_new(true).open(path);
                let made = made.and_then(|file| file.set_len(*bytes));
                made.map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
            }
            fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))
        }
        DeviceSpec::Block { path, .. } => Ok(path.clone()),
        other => Err(format!(
            "the kernel's target serves memory, null, files and block devices, not {other}"
        )),
    }
}

/// Makes a device of null_blk, with memory or without.
fn null_blk(
    changes: &mut Changes,
    bytes: u64,
    block_bytes: u32,
    has_memory: bool,
) -> Result<PathBuf, String> {
    load("null_blk", &["nr_devices=0"])?;
    let folder = Path::new(CONFIGFS).join("nullb");
    let taken = names(&folder);
    let process = std::process::id();
    let mut free = (0..).map(|number: u32| format!("weft{process}-{number}"));
    let name = free.find(|name| !taken.contains(name)).ok_or("there is no free name")?;
    let disk = folder.join(&name);
    changes.make_folder(&disk)?;
    let size = bytes.div_ceil(1 << 20).to_string();
    let queues = thread::available_parallelism().map_or(1, usize::from).to_string();
    for (attribute, value) in [
        ("size", size.as_str()),
        ("blocksize", &block_bytes.to_string()),
        ("memory_backed", if has_memory { "1" } else { "0" }),
        ("submit_queues", &queues),
        // Completes at once, in the context of the request.
        ("irqmode", "0"),
        ("power", "1"),
    ] {
        set(&disk.join(attribute), value)?;
    }
    // Older kernels call it by its number.
    let numbered = format!("nullb{}", attribute(&disk.join("index")));
    let mut nodes = [name, numbered].into_iter().map(|name| Path::new("/dev").join(name));
    nodes.find(|node| node.exists()).ok_or_else(|| "null_blk made no device node".to_owned())
}

fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut device = OpenOptions::new().write(true).open(path)?;
    let piece = vec![0x5a; PIECE];
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let part = piece.get(..left.min(PIECE)).unwrap_or_default();
        device.write_all(part)?;
        left -= part.len();
    }
    device.sync_data()
}
