//! What a driver asks of the kernel for a file at a time.

use rustix::fs::FallocateFlags;

/// The next request to the kernel, in a form for a system call or an io_uring entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KernelRequest {
    Read { memory: *mut u8, len: usize, offset: u64 },
    Write { memory: *const u8, len: usize, offset: u64, durable: bool },
    Sync,
    Allocate { flags: FallocateFlags, offset: u64, length: u64 },
    DeviceDiscard { offset: u64, length: u64 },
    DeviceZero { offset: u64, length: u64 },
    FetchUblk { queue: u16, tag: u16, result: Option<i32>, memory: *mut u8 },
}

impl KernelRequest {
    /// Whether only a system call can do it.
    pub(crate) fn needs_thread(&self) -> bool {
        matches!(self, Self::DeviceDiscard { .. } | Self::DeviceZero { .. })
    }
}
