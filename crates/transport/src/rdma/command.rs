//! What the target side keeps of a command.

use weft_nvme::sgl::Descriptor;
use weft_nvme::{Command, Completion};
use weft_nvmf::limits::RDMA_IN_CAPSULE_BYTES_MAX;
use weft_nvmf::rdma::Remote;
use weft_reactor::Buffer;

use super::arena;
use crate::limits::RDMA_ADMIN_CAPSULE_BYTES;
use crate::target::Limits;

#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub(super) in_flight: bool,
    pub(super) command: Command,
    pub(super) remote: Option<Remote>,
    /// The buffer for its data.
    pub(super) buffer: Option<Buffer>,
    /// The leased slot that is read into first, if hosts can access the sink of a READ.
    pub(super) leased: Option<arena::Slot>,
    /// READs posted for it.
    pub(super) reads: usize,
    /// A completion to be sent after them.
    pub(super) late: Option<Completion>,
    /// Its data came in the capsule.
    pub(super) in_capsule: bool,
}

/// A response, with data if the command has some.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) slot: u16,
    pub(super) completion: Completion,
    pub(super) data: Option<Buffer>,
}

/// Replaces a keyed data pointer by an in-capsule or transport one, which the owner handles.
pub(super) fn with_transport(command: Command, length: u32) -> Command {
    command.with_data_pointer(Descriptor::transport(length))
}

pub(super) fn capsule_bytes(queue_id: u16, limits: &Limits) -> usize {
    let bytes = match queue_id {
        0 => RDMA_ADMIN_CAPSULE_BYTES,
        _ => limits.tcp.in_capsule_bytes.min(RDMA_IN_CAPSULE_BYTES_MAX),
    };
    usize::try_from(bytes).unwrap_or(0)
}
