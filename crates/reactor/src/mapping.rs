//! Anonymous memory from the kernel, page-aligned, given back when dropped.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// The smallest page of every machine we run on; offsets are kept to multiples of it.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A private anonymous mapping. Its pages exist once they are touched and read as zeroes first.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Reserves `bytes` of address space without committing memory to them.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(PAGE_BYTES);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory
        // that anything else uses.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address zero"))?;
        Ok(Self { base, bytes })
    }

    /// Asks for huge pages where the kernel has free ones: random reads then need fewer page table
    /// walks.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: advice about our own mapping changes nothing of what it holds.
        // (Without them all works, only slower.)
        let _ = unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().cast(),
                self.bytes,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `reserve` mapped, and the code that hands out pointers
        // into it keeps the mapping alive for as long as they are used.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread; `Mapping` itself never reads or
// writes its memory. Its users are responsible for their own accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access to a `Mapping` yields only its address and size.
unsafe impl Sync for Mapping {}
