//! The kernel's modules, and its attributes in files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use weft_host::Transport;

use crate::study::given::protocol_name;

/// Where configfs is.
pub(super) const CONFIGFS: &str = "/sys/kernel/config";

/// The module of the target over a transport.
pub(super) fn nvmet(transport: Transport) -> String {
    format!("nvmet_{}", protocol_name(transport))
}

/// That of the host.
pub(super) fn nvme(transport: Transport) -> String {
    format!("nvme_{}", protocol_name(transport))
}

/// Whether configfs is mounted where the kernel's tools expect it.
pub(super) fn configfs() -> Result<(), String> {
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
pub(super) fn module(name: &str) -> Result<(), String> {
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
pub(super) fn load(name: &str, parameters: &[&str]) -> Result<(), String> {
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
pub(super) fn set(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value)
        .map_err(|error| format!("{} cannot be set to {value:?}: {error}", path.display()))
}

/// An attribute; empty if it cannot be read.
pub(super) fn attribute(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The names in a folder; none if there is none.
pub(super) fn names(path: &Path) -> Vec<String> {
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
}
