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
use crate::control::steps::{Step, StepError, StepErrorKind, StepOutcome, Visible};
use crate::shared::message::NamespaceRequest;

/// How the names of block devices begin that hosts have made.
const PREFIX: &str = "host-made-";

impl NamespaceRequest {
    /// Makes the change in a subsystem by steps. What is done is done if a later step fails.
    ///
    /// # Errors
    /// The status for the host.
    pub fn carry_out(
        &self,
        subsystem: &Subsystem,
        mut step: impl FnMut(&Step) -> Result<StepOutcome, StepError>,
    ) -> Result<u32, Status> {
        let settings = subsystem.host_namespaces.as_ref();
        let settings = settings.ok_or(Status::INVALID_OPCODE.with_dnr())?;
        let nqn = &subsystem.nqn;
        let find = |nsid: u32| subsystem.namespaces.iter().find(|one| one.nsid == nsid);
        let made = |nsid| find(nsid).filter(|one| is_made(one));
        let made = |nsid| made(nsid).ok_or(Status::INVALID_NAMESPACE.with_dnr());
        let mut step = |one: Step| step(&one).map_err(|error| self.status(&error));
        match &self.change {
            NamespaceChange::Create { blocks, block_bytes, ana_group } => {
                let bytes = blocks.saturating_mul(u64::from(*block_bytes));
                // The controller has checked it when the command came: since then namespaces that
                // were asked for before it may have been made.
                if bytes > settings.capacity.saturating_sub(made_bytes(subsystem)) {
                    return Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.with_dnr());
                }
                let bdev = settings.bdev(bytes, *block_bytes);
                let (name, device) = (bdev.name.clone(), bdev.device.clone());
                let namespace = Box::new(Namespace {
                    ana_group: *ana_group,
                    visible_to: Some(Vec::new()),
                    ..Namespace::on_bdev(&name)
                });
                let added = step(Step::CreateBdev(bdev)).and_then(|_| {
                    step(Step::AddNamespace { nqn: nqn.clone(), namespace }).inspect_err(|_| {
                        let _ = step(Step::DeleteBdev { name, kind: None });
                    })
                });
                match added {
                    Ok(StepOutcome::Nsid(nsid)) => Ok(nsid),
                    Ok(StepOutcome::Done) => Err(Status::INTERNAL_ERROR),
                    Err(status) => {
                        // Without a namespace nobody would find it.
                        delete_storage(&device);
                        Err(status)
                    }
                }
            }
            NamespaceChange::Delete(nsids) => {
                for nsid in nsids {
                    let namespace = made(*nsid)?;
                    let name = namespace.bdev.clone().unwrap_or_default();
                    step(Step::DeleteBdev { name, kind: None })?;
                    delete_storage(&namespace.device);
                }
                Ok(0)
            }
            NamespaceChange::Attach(nsid, hosts) | NamespaceChange::Detach(nsid, hosts) => {
                made(*nsid)?;
                for host in hosts {
                    let host = host.to_string();
                    let visible = match self.change {
                        NamespaceChange::Attach(..) => Visible::To(host),
                        _ => Visible::NotTo(host),
                    };
                    step(Step::SetVisible { nqn: nqn.clone(), nsid: *nsid, visible })?;
                }
                Ok(0)
            }
        }
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
