//! Copy, which no block device has: the blocking calls hand it to their queue.

use weft_nvmf::host::NamespaceInfo;
use weft_nvmf::host::request_table::Kind;
use weft_reactor::Buffer;

use super::QueuePair;
use super::buffers::{Copying, RequestBuffers, RequestRange, failure_of};

impl QueuePair {
    /// Accepts a Copy to blocks that were checked, with its source ranges.
    pub(crate) fn submit_copy(
        &mut self,
        namespace: &NamespaceInfo,
        tag: u64,
        copy: Copying,
        ranges: Buffer,
    ) {
        let entry = RequestRange { kind: Kind::Copy, slba: copy.command.sdlba, nlb: 0 };
        let buffers = RequestBuffers::of_copy(namespace.nsid, tag, copy, ranges);
        match self.failing {
            Some(error) => self.completions.push_back(buffers.complete(Err(failure_of(error)))),
            None => self.begin(namespace, buffers, entry),
        }
    }

    /// Of a Copy that failed: the first range that was not copied.
    pub(crate) fn take_failed_range(&mut self, tag: u64) -> u32 {
        self.failed_ranges.remove(&tag).unwrap_or(0)
    }
}
