//! The Linux kernel as host and as target of a study.
//!
//! - `target`: nvmet's subsystems and port in configfs, as nvmetcli would write them;
//! - `made`: what a target of the kernel and one of SPDK have in common;
//! - `host`: a connection through `/dev/nvme-fabrics`, as nvme-cli makes it, and its block device.
//!
//! Both need root. What they change is in the [journal of knobs](super::knob) before it is
//! changed, and is removed at the end: by this process, by its watchdog if it dies, or by the
//! next process if both died. Modules that were loaded stay loaded.

mod host;
mod made;
mod target;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use weft_host::Transport;

pub(super) use self::host::{Connected, connect, disconnect, ends};
pub(super) use self::made::{ForeignTarget, Port};
use super::given::protocol_name;
use super::knob::Keeper;
use super::knob::change::Change;
use super::launch::{StartedTarget, TargetSpec};
use super::site::SpdkTools;
use super::software::{MissingSoftware, Software};
use super::spdk;

/// Where configfs is.
const CONFIGFS: &str = "/sys/kernel/config";

/// The kernel of this machine, as host and as target.
#[derive(Debug)]
pub struct Linux {
    keeper: Arc<Keeper>,
    /// Where SPDK's programs are.
    spdk: Mutex<SpdkTools>,
}

impl Linux {
    /// One whose changes are kept here.
    #[must_use]
    pub fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, spdk: Mutex::default() }
    }

    /// Says where SPDK's programs are.
    pub(super) fn use_spdk(&self, tools: SpdkTools) {
        *self.spdk.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    pub(super) fn spdk(&self) -> SpdkTools {
        self.spdk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Undoes what dead processes have left, and says what.
    #[must_use]
    pub fn restore_left(&self) -> Vec<String> {
        self.keeper.restore_left()
    }

    /// Starts a target that is not weft.
    ///
    /// # Errors
    /// One sentence that says why it cannot serve these devices here.
    pub fn start_target(
        self: &Arc<Self>,
        spec: &TargetSpec,
        listen: Option<IpAddr>,
    ) -> Result<Box<dyn StartedTarget>, String> {
        Ok(match spec.software {
            Software::Weft => return Err("this is no target of the kernel".to_owned()),
            Software::Linux => Box::new(target::start(self, spec, listen)?),
            Software::Spdk => Box::new(spdk::start(self, &self.spdk(), spec, listen)?),
        })
    }
}

/// Changes that belong together. They are undone when this is dropped.
#[derive(Debug)]
pub(super) struct Changes {
    linux: Arc<Linux>,
    all: Vec<Change>,
}

impl Changes {
    pub(super) fn new(linux: &Arc<Linux>) -> Self {
        Self { linux: Arc::clone(linux), all: Vec::new() }
    }

    /// Notes how the next change is undone.
    pub(super) fn note(&mut self, change: Change) -> Result<(), String> {
        self.linux.keeper.note(&change, "")?;
        self.all.push(change);
        Ok(())
    }

    /// Writes a file below the root, which is read back.
    fn set_file(&mut self, path: &str, value: &str) -> Result<String, String> {
        let change = Change::File { path: path.into(), value: value.to_owned() };
        // Noted by then, if anything was.
        let set = self.linux.keeper.set(&change);
        self.all.push(change);
        set
    }

    /// Makes a folder.
    fn make_folder(&mut self, path: &Path) -> Result<(), String> {
        self.note(Change::Made { path: path.to_owned() })?;
        fs::create_dir(path).map_err(|error| format!("{} cannot be made: {error}", path.display()))
    }

    /// Undoes them.
    pub(super) fn undo(&mut self) -> Result<(), String> {
        self.linux.keeper.restore(&std::mem::take(&mut self.all))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // What fails stays in the journal: the watchdog tries again, and the next process.
        let _ = self.undo();
    }
}

/// Why the kernel or SPDK cannot be host or target here, as far as that can be seen without a
/// change.
#[must_use]
pub fn lacks(tools: &SpdkTools) -> MissingSoftware {
    let mut lacks = MissingSoftware::default();
    let spdk = spdk::lacks(tools);
    let perf = spdk::perf::find(&tools.perf).err();
    for transport in [Transport::Tcp, Transport::Rdma] {
        let spoken = protocol_name(transport);
        let name = format!("linux {spoken}");
        let root = || match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err("the kernel's host and target need root: run weft as root".to_owned()),
        };
        let target = root().and_then(|()| configfs()).and_then(|()| module(&nvmet(transport)));
        lacks.target.extend(target.err().map(|why| (name.clone(), why)));
        let host = root().and_then(|()| module(&nvme(transport)));
        lacks.host.extend(host.err().map(|why| (name, why)));
        lacks.target.extend(spdk.clone().map(|why| (format!("spdk {spoken}"), why)));
        lacks.host.extend(perf.clone().map(|why| (format!("spdk {spoken}"), why)));
    }
    let null = module("null_blk").err().map(|why| ("linux null_blk".to_owned(), why));
    lacks.target.extend(null);
    lacks
}

fn nvmet(transport: Transport) -> String {
    format!("nvmet_{}", protocol_name(transport))
}

fn nvme(transport: Transport) -> String {
    format!("nvme_{}", protocol_name(transport))
}

/// Whether configfs is mounted where the kernel's tools expect it.
fn configfs() -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let is_it = |fields: Vec<&str>| matches!(fields[..], [_, CONFIGFS, "configfs", ..]);
    match mounts.any(is_it) {
        true => Ok(()),
        false => Err(format!(
            "the kernel's target is set through configfs, which is not mounted: mount -t configfs \
             configfs {CONFIGFS}"
        )),
    }
}

/// Whether the kernel has a module, loaded or not.
fn module(name: &str) -> Result<(), String> {
    if Path::new("/sys/module").join(name).exists() {
        return Ok(());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let folder = PathBuf::from("/lib/modules").join(release.trim());
    let lists = ["modules.dep", "modules.builtin"].map(|list| folder.join(list));
    let text: String = lists.iter().filter_map(|list| fs::read_to_string(list).ok()).collect();
    match lists_module(&text, name) {
        true => Ok(()),
        false => Err(format!("the kernel {} has no module {name}", release.trim())),
    }
}

/// Whether a list of modules has one, which may be compressed.
fn lists_module(list: &str, name: &str) -> bool {
    let mut paths = list.lines().filter_map(|line| line.split([':', ' ']).next());
    paths.any(|path| {
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split_once(".ko").is_some_and(|(stem, _)| stem.replace('-', "_") == name)
    })
}

/// Loads a module if it is not there yet.
fn load(name: &str, parameters: &[&str]) -> Result<(), String> {
    if Path::new("/sys/module").join(name).exists() {
        return Ok(());
    }
    let output = Command::new("modprobe").arg(name).args(parameters).output();
    let output = output.map_err(|error| format!("modprobe cannot be run: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("the module {name} cannot be loaded: {}", said.trim()))
        }
    }
}

/// Writes an attribute.
fn set(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value)
        .map_err(|error| format!("{} cannot be set to {value:?}: {error}", path.display()))
}

/// An attribute; empty if it cannot be read.
fn attribute(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The names in a folder; none if there is none.
fn names(path: &Path) -> Vec<String> {
    let entries: io::Result<Vec<_>> = fs::read_dir(path).and_then(Iterator::collect);
    let mut names: Vec<String> = entries
        .unwrap_or_default()
        .into_iter()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_either_spelling_and_compressed() {
        let list = "kernel/nvme/target/nvmet-tcp.ko.xz: kernel/nvme/target/nvmet.ko\n\
                    kernel/drivers/block/null_blk/null_blk.ko\n";
        assert!(lists_module(list, "nvmet_tcp") && lists_module(list, "null_blk"));
        assert!(!lists_module(list, "nvmet"), "only named by another");
        assert!(!lists_module(list, "nvmet_rdma"));
    }

    #[test]
    fn what_lacks_is_said_in_a_sentence() {
        let lacks = lacks(&SpdkTools::default());
        for why in lacks.target.values().chain(lacks.host.values()) {
            assert!(why.starts_with("the kernel") || why.starts_with("SPDK"), "{why}");
        }
    }
}
