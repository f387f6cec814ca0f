//! A queue of a device: the requests that the kernel leaves in memory that both see.

use super::Device;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a descriptor (`struct ublksrv_io_desc`), and most tags of a queue: the descriptors of
/// each queue begin where those of so many tags of the one before it end.
const DESCRIPTOR_BYTES: usize = 24;
const DEPTH_MAX: usize = 4096;

/// The page that offsets are a multiple of.
fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
}

/// A mapped queue.
#[derive(Debug)]
pub struct Queue {
    file: Arc<File>,
    descriptors: NonNull<u8>,
    mapped: usize,
    place: QueueInfo,
    depth: u16,
}

/// What a reactor knows of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueInfo {
    pub(crate) queue: u16,
    /// The kernel copies as many bytes from and to a buffer, at most.
    pub(crate) buffer_bytes: usize,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To fill the buffer.
    Read,
    /// To write the buffer.
    Write,
    /// To make what is written durable.
    Flush,
    /// To deallocate.
    Discard,
    /// To write zeroes.
    WriteZeroes,
    /// Something that was not announced.
    Other(u8),
}

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub kind: Kind,
    /// To be durable before it ends (FUA).
    pub durable: bool,
    /// Blocks that are zeroed stay allocated (NOUNMAP).
    pub keeps_blocks: bool,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// How many sectors.
    pub sectors: u32,
}

impl Request {
    fn from_words(flags: u32, sectors: u32, sector: u64) -> Self {
        let [operation, ..] = flags.to_le_bytes();
        let kind = match operation {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Flush,
            3 => Kind::Discard,
            5 => Kind::WriteZeroes,
            other => Kind::Other(other),
        };
        let durable = flags >> 13 & 1 != 0;
        Self { kind, durable, keeps_blocks: flags >> 15 & 1 != 0, sector, sectors }
    }
}

impl Queue {
    pub(super) fn map(device: &Device, number: u16) -> io::Result<Self> {
        let info = &device.info;
        if number >= info.queues {
            return Err(Errno::INVAL.into());
        }
        let mapped = pages(usize::from(info.depth) * DESCRIPTOR_BYTES);
        let offset = usize::from(number) * pages(DEPTH_MAX * DESCRIPTOR_BYTES);
        // SAFETY: a new mapping at an address of the kernel's choice, of memory of the device that
        // lives as long as the mapping.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                &device.file,
                offset as u64,
            )
        }?;
        let descriptors = NonNull::new(address.cast()).ok_or(Errno::NOMEM)?;
        let place = QueueInfo { queue: number, buffer_bytes: info.request_bytes_max as usize };
        let file = Arc::clone(&device.file);
        Ok(Self { file, descriptors, mapped, place, depth: info.depth })
    }

    /// How many tags it has.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.depth
    }

    /// The bytes that a buffer for one of its tags has.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.place.buffer_bytes
    }

    pub(crate) fn parts(&self) -> (Arc<File>, QueueInfo) {
        (Arc::clone(&self.file), self.place)
    }

    /// The request of a tag whose operation has completed, until the next one for that tag.
    ///
    /// # Panics
    /// If there is no such tag: a caller's bug.
    #[must_use]
    pub fn request(&self, tag: u16) -> Request {
        assert!(tag < self.depth, "there is no tag {tag}");
        let at = usize::from(tag) * DESCRIPTOR_BYTES;
        // SAFETY: the mapping has a descriptor for each tag, and is aligned to a page; the kernel
        // may write to it at any time, hence volatile reads. It does not while the request is this
        // process's, and what it wrote came before the completion that was taken from the ring.
        let (flags, sectors, sector) = unsafe {
            let descriptor = self.descriptors.as_ptr().add(at);
            (
                descriptor.cast::<u32>().read_volatile(),
                descriptor.add(4).cast::<u32>().read_volatile(),
                descriptor.add(8).cast::<u64>().read_volatile(),
            )
        };
        Request::from_words(flags, sectors, sector)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what was mapped, and no reference into it exists.
        let _ = unsafe { rustix::mm::munmap(self.descriptors.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_the_kernel_writes_them() {
        let read = Request::from_words(0, 8, 1 << 40);
        let expected = Request {
            kind: Kind::Read,
            durable: false,
            keeps_blocks: false,
            sector: 1 << 40,
            sectors: 8,
        };
        assert_eq!(read, expected);
        // A flag of the block layer that means nothing here is ignored.
        let write = Request::from_words(1 | 1 << 13 | 1 << 8, 8, 0);
        assert_eq!((write.kind, write.durable), (Kind::Write, true));
        let zeroes = Request::from_words(5 | 1 << 15, 8, 0);
        assert_eq!((zeroes.kind, zeroes.keeps_blocks), (Kind::WriteZeroes, true));
        assert_eq!(Request::from_words(13, 0, 0).kind, Kind::Other(13));
    }
}
