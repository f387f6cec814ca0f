//! What is checked of subsystems before anything is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_backend::files;
use weft_nvme::Nqn;

use crate::config::{Namespace, Subsystem};
use crate::shared::error::TargetError;
use crate::shared::snapshot::ServedDevice;

/// Two namespaces of a subsystem must not use one file or device, whatever its paths.
pub(super) fn check_aliases(
    subsystem: &Subsystem,
    opened: &[Arc<ServedDevice>],
) -> Result<(), TargetError> {
    let mut seen = BTreeMap::new();
    for (namespace, device) in subsystem.namespaces.iter().zip(opened) {
        let Some(storage) = device.factory.storage() else { continue };
        if let Some(first) = seen.insert(storage.id(), namespace.nsid) {
            return Err(alias(&subsystem.nqn, namespace.nsid, device, first));
        }
    }
    Ok(())
}

pub(super) fn alias(nqn: &str, nsid: u32, device: &ServedDevice, first: u32) -> TargetError {
    let what = format!("{} is what namespace {first} stands on", device.factory.identity());
    TargetError::namespace(nqn, nsid, &what)
}

/// Invalid names are found before anything is done.
pub(super) fn check_names(subsystem: &Subsystem) -> Result<(), TargetError> {
    nqn(&subsystem.nqn)?;
    let hosts = subsystem.allowed_hosts.iter().flatten().chain(&subsystem.listed_hosts);
    let seeing = subsystem.namespaces.iter().flat_map(|one| one.visible_to.iter().flatten());
    for host in hosts.chain(seeing) {
        nqn(host)?;
    }
    Ok(())
}

/// Where hosts make files of their own there has to be a place for them.
pub(super) fn check_folder(subsystem: &Subsystem) -> Result<(), TargetError> {
    let settings = subsystem.host_namespaces.as_ref();
    let Some(folder) = settings.and_then(|settings| settings.folder.as_deref()) else {
        return Ok(());
    };
    files::can_create(&folder.join("new")).map_err(|error| {
        let (nqn, folder) = (&subsystem.nqn, folder.display());
        let what = format!(
            "host-namespaces of {nqn}: no file can be made in {folder}: {error}; make the folder, \
             for the user of the target"
        );
        TargetError::new(what)
    })
}

/// Where reservations are kept they have to be written later.
pub(super) fn check_reservations_file(nqn: &str, namespace: &Namespace) -> Result<(), TargetError> {
    let Some(path) = &namespace.ptpl_file else { return Ok(()) };
    files::can_replace(path).map_err(|error| {
        let what = format!("reservations cannot be kept in {}: {error}", path.display());
        TargetError::namespace(nqn, namespace.nsid, &what)
    })
}

pub(super) fn nqn(name: &str) -> Result<Nqn, TargetError> {
    name.parse().map_err(|error| TargetError::name(name, &error))
}
