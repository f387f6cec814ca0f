//! Namespaces that hosts make: what they ask for by Namespace Management and Namespace Attachment
//! becomes steps of whoever operates the target.
//!
//! Such a namespace has a block device of its own, whose name says that a host made it, and is
//! visible to the hosts whose controllers it is attached to. So it is kept and shown as any other
//! that was made at run time.

use std::io::ErrorKind;
use std::path::PathBuf;

use uuid::Uuid;
use weft_backend::DeviceSpec;
use weft_backend::rbd::{self, RbdSpec};
use weft_nvme::Status;
use weft_nvmf::controller::NamespaceChange;

use crate::config::{Bdev, BdevKind, HostNamespaces, Namespace, Subsystem};
use crate::control::steps::{NamespaceVisibility, Step, StepError, StepErrorKind, StepOutcome};
use crate::shared::message::NamespaceRequest;

/// How the names of block devices begin that hosts have made.
const PREFIX: &str = "host-made-";

/// Whoever makes the steps of a request, between which nobody else makes any.
pub trait Changes {
    /// Makes a step.
    ///
    /// # Errors
    /// It is not possible, and nothing has changed.
    fn step(&mut self, step: &Step) -> Result<StepOutcome, StepError>;

    /// Has what is served now be served after a restart as well.
    ///
    /// # Errors
    /// It cannot be written.
    fn keep(&mut self) -> Result<(), StepError>;
}

impl NamespaceRequest {
    /// Makes the change in a subsystem by steps: all of it, kept, or nothing. A file is deleted
    /// once no state names it any more.
    ///
    /// # Errors
    /// The status for the host.
    pub fn carry_out(
        &self,
        subsystem: &Subsystem,
        changes: &mut impl Changes,
    ) -> Result<u32, Status> {
        let settings = subsystem.host_namespaces.as_ref();
        let settings = settings.ok_or(Status::INVALID_OPCODE.with_dnr())?;
        let find = |nsid: u32| subsystem.namespaces.iter().find(|one| one.nsid == nsid);
        let made = |nsid| find(nsid).filter(|one| is_made(one));
        let made = |nsid| made(nsid).ok_or(Status::INVALID_NAMESPACE.with_dnr());
        match &self.change {
            NamespaceChange::Create { blocks, block_bytes, ana_group } => {
                let bytes = blocks.saturating_mul(u64::from(*block_bytes));
                // The controller has checked it when the command came: since then namespaces that
                // were asked for before it may have been made.
                if bytes > settings.capacity.saturating_sub(made_bytes(subsystem)) {
                    return Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.with_dnr());
                }
                let bdev = settings.bdev(bytes, *block_bytes);
                self.create(&subsystem.nqn, bdev, *ana_group, changes)
            }
            NamespaceChange::Delete(nsids) => {
                let gone = nsids.iter().map(|nsid| made(*nsid)).collect::<Result<Vec<_>, _>>()?;
                self.delete(&gone, changes)
            }
            NamespaceChange::Attach(nsid, hosts) | NamespaceChange::Detach(nsid, hosts) => {
                let seen_by = made(*nsid)?.visible_to.as_deref().unwrap_or_default();
                let is_attach = matches!(self.change, NamespaceChange::Attach(..));
                let hosts = hosts.iter().map(ToString::to_string);
                let hosts = hosts.filter(|host| seen_by.contains(host) != is_attach);
                let show = |host: &String, is_shown: bool| Step::SetVisible {
                    nqn: subsystem.nqn.clone(),
                    nsid: *nsid,
                    visible: match is_shown {
                        true => NamespaceVisibility::To(host.clone()),
                        false => NamespaceVisibility::NotTo(host.clone()),
                    },
                };
                let mut done = Vec::new();
                let mut result = Ok(StepOutcome::Done);
                for host in hosts {
                    result = changes.step(&show(&host, is_attach));
                    if result.is_err() {
                        break;
                    }
                    done.push(host);
                }
                match result.and_then(|_| changes.keep()) {
                    Ok(()) => Ok(0),
                    Err(error) => {
                        for host in &done {
                            undo(&show(host, !is_attach), changes);
                        }
                        Err(self.status(&error))
                    }
                }
            }
        }
    }

    fn create(
        &self,
        nqn: &str,
        bdev: Bdev,
        ana_group: Option<u32>,
        changes: &mut impl Changes,
    ) -> Result<u32, Status> {
        let (name, device) = (bdev.name.clone(), bdev.device.clone());
        let namespace =
            Namespace { ana_group, visible_to: Some(Vec::new()), ..Namespace::on_bdev(&name) };
        let add = Step::AddNamespace { nqn: nqn.to_owned(), namespace: Box::new(namespace) };
        if let Err(error) = changes.step(&Step::CreateBdev(bdev)) {
            // What was made of it nobody would find.
            delete_storage(&device);
            return Err(self.status(&error));
        }
        let added = changes.step(&add).and_then(|made| changes.keep().map(|()| made));
        match added {
            Ok(StepOutcome::Nsid(nsid)) => Ok(nsid),
            other => {
                if undo(&Step::DeleteBdev { name, kind: None }, changes) {
                    delete_storage(&device);
                }
                Err(other.err().map_or(Status::INTERNAL_ERROR, |error| self.status(&error)))
            }
        }
    }

    fn delete(&self, gone: &[&Namespace], changes: &mut impl Changes) -> Result<u32, Status> {
        // It cannot be undone, so there has to be room for a state, which then gets no larger.
        changes.keep().map_err(|error| self.status(&error))?;
        let (mut deleted, mut result) = (Vec::new(), Ok(StepOutcome::Done));
        for namespace in gone {
            let name = namespace.bdev.clone().unwrap_or_default();
            result = changes.step(&Step::DeleteBdev { name, kind: None });
            if result.is_err() {
                break;
            }
            deleted.push(&namespace.device);
        }
        if let Err(error) = changes.keep() {
            log::error!("{error}: the data of deleted namespaces is kept: {deleted:?}");
            return Err(self.status(&error));
        }
        deleted.into_iter().for_each(delete_storage);
        result.map(|_| 0).map_err(|error| self.status(&error))
    }

    /// The status for a host whose change is not possible; the reason is for the operator.
    fn status(&self, error: &StepError) -> Status {
        log::warn!("{} wanted to change namespaces of {}: {error}", self.host, self.subsystem);
        match error.kind {
            StepErrorKind::NotFound => Status::INVALID_NAMESPACE.with_dnr(),
            StepErrorKind::Exists | StepErrorKind::Invalid => {
                Status::NAMESPACE_ID_UNAVAILABLE.with_dnr()
            }
            StepErrorKind::Failed => Status::NAMESPACE_INSUFFICIENT_CAPACITY,
        }
    }
}

/// Takes a step back. Whether that was possible.
fn undo(step: &Step, changes: &mut impl Changes) -> bool {
    let undone = changes.step(step);
    undone.inspect_err(|error| log::error!("a change cannot be taken back: {error}")).is_ok()
}

/// Bytes of the namespaces of a subsystem that hosts have made.
fn made_bytes(subsystem: &Subsystem) -> u64 {
    let made = subsystem.namespaces.iter().filter(|namespace| is_made(namespace));
    let bytes = made.filter_map(|namespace| namespace.device.configured_bytes());
    bytes.fold(0, u64::saturating_add)
}

/// Whether a namespace was made by a host.
pub(crate) fn is_made(namespace: &Namespace) -> bool {
    namespace.bdev.as_ref().is_some_and(|name| name.starts_with(PREFIX))
}

/// Deletes the file or image, if there is one, of a namespace that is deleted or was not added.
fn delete_storage(device: &DeviceSpec) {
    if let DeviceSpec::Rbd(image) = device {
        rbd::remove(image);
    } else if let Some(path) = device.path()
        && let Err(error) = std::fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        log::error!("{}: it is no longer used, but cannot be deleted: {error}", path.display());
    }
}

impl HostNamespaces {
    /// A new block device of this size.
    fn bdev(&self, bytes: u64, block_bytes: u32) -> Bdev {
        let uuid = Uuid::new_v4();
        let (kind, device) = match (&self.folder, &self.rbd) {
            (Some(folder), _) => {
                (BdevKind::Device, file(folder.join(format!("{uuid}.img")), bytes, block_bytes))
            }
            (None, Some(rbd)) => (BdevKind::Device, image(rbd, uuid, bytes, block_bytes)),
            (None, None) => (BdevKind::Malloc, DeviceSpec::Memory { bytes, block_bytes }),
        };
        let (name, uuid) = (format!("{PREFIX}{uuid}"), uuid.into_bytes());
        Bdev { name, kind, device, base: None, uuid }
    }
}

fn image(like: &RbdSpec, uuid: Uuid, bytes: u64, block_bytes: u32) -> DeviceSpec {
    DeviceSpec::Rbd(Box::new(RbdSpec {
        image: format!("{}-{uuid}", like.image),
        least_bytes: Some(bytes),
        block_bytes: Some(block_bytes),
        create: true,
        ..like.clone()
    }))
}

fn file(path: PathBuf, bytes: u64, block_bytes: u32) -> DeviceSpec {
    DeviceSpec::File {
        path,
        create_bytes: Some(bytes),
        block_bytes: Some(block_bytes),
        direct: None,
        read_only: false,
        shared: false,
    }
}
