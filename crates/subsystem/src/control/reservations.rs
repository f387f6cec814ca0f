//! Which reservations are kept, and what was kept of them when a namespace is served.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use weft_backend::{OwnFile, files};
use weft_nvmf::reservation::Reservations;
use weft_nvmf::subsystem::SubsystemView;

use crate::config::{Config, Namespace};
use crate::shared::error::TargetError;
use crate::shared::reservations::file;
use crate::shared::snapshot::ReservationFiles;

/// What was kept of reservations, by subsystem and NSID.
pub(crate) type ReservationsByNamespace = BTreeMap<(String, u32), Reservations>;

/// The files of these subsystems are those of a configuration from now on.
pub(crate) fn keep_files(
    files: &mut ReservationFiles,
    config: &Config,
    is_meant: impl Fn(&str) -> bool,
) {
    files.retain(|nqn, _| !is_meant(nqn));
    for subsystem in config.subsystems.iter().filter(|subsystem| is_meant(&subsystem.nqn)) {
        let of = |one: &Namespace| Some((one.nsid, Arc::new(OwnFile::of(one.ptpl_file.as_ref()?))));
        let own: BTreeMap<_, _> = subsystem.namespaces.iter().filter_map(of).collect();
        if !own.is_empty() {
            files.insert(subsystem.nqn.clone(), Arc::new(own));
        }
    }
}

/// The file of a namespace is this one from now on.
pub(crate) fn keep_file(files: &mut ReservationFiles, nqn: &str, nsid: u32, file: Option<&Path>) {
    let before = files.get(nqn).and_then(|own| own.get(&nsid));
    if before.map(|own| &***own) == file {
        return;
    }
    let own = Arc::make_mut(files.entry(nqn.to_owned()).or_default());
    match file {
        Some(file) => drop(own.insert(nsid, Arc::new(OwnFile::of(file)))),
        None => drop(own.remove(&nsid)),
    }
}

/// Reads what was kept of the reservations of namespaces that are new: whose UUID is not known.
pub(crate) fn restore<'a>(
    nqn: &str,
    namespaces: impl IntoIterator<Item = &'a Namespace>,
    uuid: impl Fn(u32) -> Option<[u8; 16]>,
    known: impl Fn(u32) -> Option<[u8; 16]>,
) -> Result<ReservationsByNamespace, TargetError> {
    let mut restored = ReservationsByNamespace::new();
    for namespace in namespaces {
        let nsid = namespace.nsid;
        if let (Some(path), Some(uuid)) = (&namespace.ptpl_file, uuid(nsid))
            && known(nsid) != Some(uuid)
        {
            let error = |error: &dyn Display| TargetError::namespace(nqn, nsid, &error);
            files::check_not_served(path).map_err(|served| error(&served))?;
            let kept = file::read(path, &uuid).map_err(|unread| error(&unread))?;
            restored.insert((nqn.to_owned(), nsid), kept);
        }
    }
    Ok(restored)
}

/// These subsystems are about to be served: namespaces that are new have what was kept.
pub(crate) fn serve<'a>(
    subsystems: impl Iterator<Item = (&'a String, &'a Arc<SubsystemView>)>,
    mut restored: ReservationsByNamespace,
) {
    for (nqn, view) in subsystems {
        for namespace in view.namespaces.iter() {
            let kept = restored.remove(&(nqn.clone(), namespace.nsid)).unwrap_or_default();
            view.shared.reservations().serve(namespace.nsid, namespace.uuid, kept);
        }
    }
}

/// The same for one namespace of a subsystem, if it is there.
pub(crate) fn serve_one(view: &SubsystemView, nsid: u32, restored: ReservationsByNamespace) {
    if let Some(namespace) = view.namespaces.get(nsid) {
        let kept = restored.into_values().next().unwrap_or_default();
        view.shared.reservations().serve(nsid, namespace.uuid, kept);
    }
}
