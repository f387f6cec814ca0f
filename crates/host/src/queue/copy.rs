//! What no block device has, Copy and reservations: the blocking calls hand them to their queue.

use weft_nvmf::host::NamespaceInfo;
use weft_nvmf::host::request_table::Kind;
use weft_reactor::Buffer;

use super::QueuePair;
use super::buffers::{CopyRequest, RequestBuffers, RequestRange, ReservationCommand, failure_of};

impl QueuePair {
    /// Accepts a Copy to blocks that were checked, with its source ranges.
    pub(crate) fn submit_copy(
        &mut self,
        namespace: &NamespaceInfo,
        tag: u64,
        copy: CopyRequest,
        ranges: Buffer,
    ) {
        let entry = RequestRange { kind: Kind::Copy, slba: copy.command.sdlba, nlb: 0 };
        self.begin_with(
            namespace,
            RequestBuffers::of_copy(namespace.nsid, tag, copy, ranges),
            entry,
        );
    }

    /// Accepts a reservation command with its data.
    pub(crate) fn submit_reservation(
        &mut self,
        namespace: &NamespaceInfo,
        tag: u64,
        what: ReservationCommand,
        data: Buffer,
    ) {
        let entry = RequestRange { kind: Kind::Reservation, slba: 0, nlb: 0 };
        let buffers = RequestBuffers::of_reservation(namespace.nsid, tag, what, data);
        self.begin_with(namespace, buffers, entry);
    }

    fn begin_with(&mut self, of: &NamespaceInfo, buffers: RequestBuffers, entry: RequestRange) {
        match self.failing {
            Some(error) => self.completions.push_back(buffers.complete(Err(failure_of(error)))),
            None => self.begin(of, buffers, entry),
        }
    }

    /// Of a Copy that failed: the first range that was not copied.
    pub(crate) fn take_failed_range(&mut self, tag: u64) -> u32 {
        self.failed_ranges.remove(&tag).unwrap_or(0)
    }
}
