//! What the kernel says about a loop device, a block device with its blocks in a file or on another
//! block device. The layout is that of `linux/loop.h`.

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode};
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const LOOP_GET_STATUS64: Opcode = 0x4c05;
/// `struct loop_info64`: lo_device, lo_inode, lo_rdevice, and what is not read here.
type LoopInfo = [u64; 29];

/// What a loop device has its blocks on, by the numbers that `stat` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopBacking {
    /// A file: the device of its file system, and its inode.
    File {
        /// The device of its file system.
        device: u64,
        /// Its inode.
        inode: u64,
    },
    /// A block device.
    Block {
        /// Its number.
        device: u64,
    },
}

impl LoopBacking {
    /// Asks the loop device of this number at its node. The path of the file in sysfs is no answer:
    /// it may have been removed, replaced, or be that of another mount namespace.
    ///
    /// # Errors
    /// The node cannot be opened, is that of another device, or of none with a file.
    pub fn of(node: &Path, number: u64) -> io::Result<Self> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let device = File::options().read(true).custom_flags(flags).open(node)?;
        if device.metadata()?.rdev() != number {
            return Err(Errno::NXIO.into());
        }
        // SAFETY: the request writes a structure of this size, which is of numbers and bytes.
        let [device, inode, number, ..] = unsafe {
            let request = Getter::<LOOP_GET_STATUS64, LoopInfo>::new();
            rustix::ioctl::ioctl(&device, request)?
        };
        Ok(match number {
            0 => Self::File { device, inode },
            device => Self::Block { device },
        })
    }
}
