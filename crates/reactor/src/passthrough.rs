//! Namespaces of this machine's NVMe devices without the block layer.
//!
//! [`NvmeNamespace`] is an open character device, `/dev/ngXnY`. What is read and written of it on a
//! reactor ([`Reactor::add_nvme_namespace`](crate::Reactor)) becomes commands of the device, which
//! io_uring hands over (`IORING_OP_URING_CMD`, Linux 5.19). Identify and log pages are read with
//! ioctls, which block.
//!
//! The layouts are those of `linux/nvme_ioctl.h`, the commands those of the NVM command set.

use crate::driver::step::KernelRequest;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// `NVME_IOCTL_ID`, and those with a structure of 72 bytes: `NVME_IOCTL_ADMIN_CMD`,
/// `NVME_IOCTL_IO_CMD` and `NVME_URING_CMD_IO`.
const ID: Opcode = rustix::ioctl::opcode::none(b'N', 0x40);
const COMMAND_BYTES: usize = 72;
const ADMIN_CMD: Opcode = rustix::ioctl::opcode::read_write::<[u8; COMMAND_BYTES]>(b'N', 0x41);
const IO_CMD: Opcode = rustix::ioctl::opcode::read_write::<[u8; COMMAND_BYTES]>(b'N', 0x43);
pub(crate) const URING_CMD_IO: u32 = 0xc048_4e80;

const IDENTIFY: u8 = 0x06;
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY_BYTES: usize = 4096;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// Bits of dword 12 of these commands: FUA, PRACT, the checks of guard and reference tag, and
/// Deallocate; and of dword 11 of Dataset Management.
const FUA: u32 = 1 << 30;
const PRACT: u32 = 1 << 29;
const PRCHK_GUARD: u32 = 1 << 28;
const PRCHK_REFERENCE: u32 = 1 << 26;
const DEAC: u32 = 1 << 25;
const AD: u32 = 1 << 2;
/// Retain Asynchronous Event, of dword 10 of Get Log Page.
const RAE: u32 = 1 << 15;

/// Most blocks of a command: its count has 16 bits and is 0's based.
const BLOCKS_MAX: u64 = 1 << 16;

/// A namespace of a device of this machine.
#[derive(Clone, Debug)]
pub struct NvmeNamespace {
    file: Arc<File>,
    nsid: u32,
}

/// How a namespace takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeFormat {
    /// The size of a block as a power of two.
    pub block_shift: u32,
    /// Most bytes of a command with data: at least a block, and a multiple of it.
    pub transfer_bytes_max: u64,
    /// The type of the protection information that the device adds, checks and removes (PRACT);
    /// 0 if there is none.
    pub protection_type: u8,
    /// Whether it has Write Zeroes.
    pub writes_zeroes: bool,
    /// Most bytes of a Write Zeroes command: at least a block, and a multiple of it.
    pub zeroes_bytes_max: u64,
    /// Whether Write Zeroes may deallocate (DEAC), after which the blocks read as zeroes.
    pub deallocates_zeroes: bool,
}

impl NvmeFormat {
    /// Whether commands of the largest sizes are of whole blocks, so that what a command has
    /// transferred is what was asked of it.
    pub(crate) fn is_valid(&self) -> bool {
        let is_whole = |bytes: u64| bytes > 0 && bytes & ((1 << self.block_shift) - 1) == 0;
        self.block_shift < u64::BITS
            && is_whole(self.transfer_bytes_max)
            && is_whole(self.zeroes_bytes_max)
    }
}

/// What a reactor knows of a namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commands {
    pub(crate) nsid: u32,
    pub(crate) format: NvmeFormat,
}

/// The range of a Dataset Management command, in memory until the command has completed.
pub(crate) type DeallocatedRange = [u8; 16];

impl NvmeNamespace {
    /// Opens its node, the character device or the block device.
    ///
    /// # Errors
    /// There is none, or only root may open it; `ENOTTY`: it is no NVMe namespace.
    pub fn open(path: &Path, write: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(write).open(path)?;
        // SAFETY: the call takes no argument.
        let nsid = unsafe { rustix::ioctl::ioctl(&file, Id) }?;
        let nsid = u32::try_from(nsid).map_err(|_| Errno::NOTTY)?;
        Ok(Self { file: Arc::new(file), nsid })
    }

    /// Its NSID.
    #[must_use]
    pub const fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The open node.
    #[must_use]
    pub const fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Identify with this CNS; `nsid` 0 is none.
    ///
    /// # Errors
    /// The device does not answer, or has no such structure: the error names the status.
    pub fn identify(&self, cns: u8, nsid: u32) -> io::Result<[u8; IDENTIFY_BYTES]> {
        let mut data = [0; IDENTIFY_BYTES];
        self.admin(IDENTIFY, nsid, [cns.into(), 0, 0, 0], &mut data)?;
        Ok(data)
    }

    /// Bytes of a log page of the controller from an offset, both multiples of four; its event
    /// stays if that is to be retained (RAE). `specific` is the parameter of the page (LSP).
    ///
    /// # Errors
    /// As for [`identify`](Self::identify).
    pub fn log_page(
        &self,
        page: u8,
        specific: u8,
        offset: u64,
        bytes: usize,
        retain_event: bool,
    ) -> io::Result<Vec<u8>> {
        if bytes == 0 || !bytes.is_multiple_of(4) || !offset.is_multiple_of(4) {
            return Err(Errno::INVAL.into());
        }
        let mut data = vec![0; bytes];
        let mut at = offset;
        // No more than any controller transfers with a command.
        let count = bytes.div_ceil(IDENTIFY_BYTES);
        for (number, piece) in data.chunks_mut(IDENTIFY_BYTES).enumerate() {
            // The last command ends the event.
            let retains = retain_event || number + 1 < count;
            let dwords = log_dwords(page, specific, at, piece.len(), retains)?;
            self.admin(GET_LOG_PAGE, u32::MAX, dwords, piece)?;
            at += piece.len() as u64;
        }
        Ok(data)
    }

    /// An admin command with these dwords from 10 on that fills `data` and no more: Identify always
    /// has 4 KiB, and those of Get Log Page say how much it has.
    fn admin(&self, opcode: u8, nsid: u32, dwords: [u32; 4], data: &mut [u8]) -> io::Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| Errno::INVAL)?;
        let mut command = encoded(opcode, nsid, data.as_mut_ptr(), length);
        for (at, dword) in (40..).step_by(4).zip(dwords) {
            crate::ublk::put(&mut command, at, &dword.to_ne_bytes());
        }
        // SAFETY: the structure has the layout that the call takes, and `data` the length that it
        // says; both live until the call returns, when the device has completed the command.
        answered(unsafe { rustix::ioctl::ioctl(&self.file, Call::<ADMIN_CMD>(command)) }?)
    }

    /// Makes durable what has been written.
    ///
    /// # Errors
    /// The device does not answer, or cannot.
    pub fn flush(&self) -> io::Result<()> {
        let command = encoded(FLUSH, self.nsid, std::ptr::null(), 0);
        // SAFETY: the structure has the layout that the call takes, and points to nothing.
        answered(unsafe { rustix::ioctl::ioctl(&self.file, Call::<IO_CMD>(command)) }?)
    }
}

/// Dwords 10 to 13 of Get Log Page.
fn log_dwords(
    id: u8,
    specific: u8,
    offset: u64,
    bytes: usize,
    retain_event: bool,
) -> io::Result<[u32; 4]> {
    let count = u32::try_from(bytes / 4 - 1).map_err(|_| Errno::INVAL)?;
    let low = |number: u64| u32::try_from(number & 0xffff_ffff).unwrap_or(0);
    let retain = if retain_event { RAE } else { 0 };
    let dword10 =
        u32::from(id) | (u32::from(specific) & 0x7f) << 8 | retain | (count & 0xffff) << 16;
    Ok([dword10, count >> 16, low(offset), low(offset >> 32)])
}

fn answered(status: IoctlOutput) -> io::Result<()> {
    match status {
        0 => Ok(()),
        status => Err(io::Error::other(format!("the device answers with status {status:#x}"))),
    }
}

struct Id;

// SAFETY: the call returns a number, and reads and writes no memory.
unsafe impl Ioctl for Id {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        ID
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

struct Call<const OPCODE: Opcode>([u8; COMMAND_BYTES]);

// SAFETY: the call reads and writes a structure of this size; what that points to is the concern of
// who makes it.
unsafe impl<const OPCODE: Opcode> Ioctl for Call<OPCODE> {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

/// The common part of `struct nvme_passthru_cmd` and `struct nvme_uring_cmd`.
fn encoded(opcode: u8, nsid: u32, memory: *const u8, length: u32) -> [u8; COMMAND_BYTES] {
    let mut command = [0; COMMAND_BYTES];
    command[0] = opcode;
    crate::ublk::put(&mut command, 4, &nsid.to_ne_bytes());
    let address = if length == 0 { 0 } else { memory.expose_provenance() as u64 };
    crate::ublk::put(&mut command, 24, &address.to_ne_bytes());
    crate::ublk::put(&mut command, 36, &length.to_ne_bytes());
    command
}

impl Commands {
    /// Whether a range is one of whole blocks.
    pub(crate) fn has_whole_blocks(&self, offset: u64, length: u64) -> bool {
        (offset | length) & ((1 << self.format.block_shift) - 1) == 0
    }

    /// The command for a step and how many bytes of it that covers; `unmaps` says whether zeroed
    /// blocks may be deallocated, `range` is for the blocks that are.
    pub(crate) fn command(
        &self,
        step: KernelRequest,
        unmaps: bool,
        range: &mut DeallocatedRange,
    ) -> ([u8; 80], u64) {
        let shift = self.format.block_shift;
        // The tag of types 1 and 2 is the low half of the block's address, as Linux writes it.
        let (protection, has_tag) = match self.format.protection_type {
            0 => (0, false),
            3 => (PRACT | PRCHK_GUARD, false),
            _ => (PRACT | PRCHK_GUARD | PRCHK_REFERENCE, true),
        };
        let most = self.format.transfer_bytes_max;
        let (opcode, memory, offset, length, dword12) = match step {
            KernelRequest::Read { memory, len, offset } => {
                (READ, memory.cast_const(), offset, most.min(len as u64), protection)
            }
            KernelRequest::Write { memory, len, offset, durable } => {
                let fua = if durable { FUA } else { 0 };
                (WRITE, memory, offset, most.min(len as u64), protection | fua)
            }
            KernelRequest::DeviceZero { offset, length } => {
                let deallocate = if unmaps && self.format.deallocates_zeroes { DEAC } else { 0 };
                let length = length.min(self.format.zeroes_bytes_max).min(BLOCKS_MAX << shift);
                let protection = protection & PRACT;
                (WRITE_ZEROES, std::ptr::null(), offset, length, protection | deallocate)
            }
            KernelRequest::DeviceDiscard { offset, length } => {
                return self.deallocate(offset, length, range);
            }
            _ => return (padded(&encoded(FLUSH, self.nsid, std::ptr::null(), 0)), 0),
        };
        let data = if memory.is_null() { 0 } else { u32::try_from(length).unwrap_or(0) };
        let mut command = encoded(opcode, self.nsid, memory, data);
        let blocks = u32::try_from((length >> shift).saturating_sub(1)).unwrap_or(0);
        crate::ublk::put(&mut command, 40, &(offset >> shift).to_le_bytes());
        crate::ublk::put(&mut command, 48, &(dword12 | blocks).to_ne_bytes());
        if has_tag {
            let low = u32::try_from(offset >> shift & 0xffff_ffff).unwrap_or(0);
            crate::ublk::put(&mut command, 56, &low.to_ne_bytes());
        }
        (padded(&command), length)
    }

    fn deallocate(
        &self,
        offset: u64,
        length: u64,
        range: &mut DeallocatedRange,
    ) -> ([u8; 80], u64) {
        let shift = self.format.block_shift;
        let blocks = u32::try_from(length >> shift).unwrap_or(u32::MAX);
        range[4..8].copy_from_slice(&blocks.to_le_bytes());
        range[8..].copy_from_slice(&(offset >> shift).to_le_bytes());
        let mut command = encoded(DATASET_MANAGEMENT, self.nsid, range.as_ptr(), 16);
        crate::ublk::put(&mut command, 44, &AD.to_ne_bytes());
        (padded(&command), u64::from(blocks) << shift)
    }
}

fn padded(command: &[u8; COMMAND_BYTES]) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[..COMMAND_BYTES].copy_from_slice(command);
    bytes
}

/// What the block layer makes of a status (type and code), as far as it means something here.
pub(crate) fn error_of(status: i32) -> Errno {
    match status & 0x7ff {
        0x001 | 0x002 => Errno::OPNOTSUPP,
        0x00b => Errno::NODEV,
        0x080 => Errno::NXIO,
        0x081 => Errno::NOSPC,
        0x020 | 0x182 => Errno::ROFS,
        0x282..=0x284 => Errno::ILSEQ,
        code if code >> 8 == 2 => Errno::NODATA,
        // What the kernel says of a controller that is reset or gone.
        code if code >> 8 == 3 => Errno::NOLINK,
        _ => Errno::PROTO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        let format = NvmeFormat {
            block_shift: 12,
            transfer_bytes_max: 64 << 10,
            protection_type: 0,
            writes_zeroes: true,
            zeroes_bytes_max: u64::MAX << 12,
            deallocates_zeroes: true,
        };
        Commands { nsid: 7, format }
    }

    fn field<const N: usize>(command: &[u8; 80], at: usize) -> [u8; N] {
        command[at..at + N].try_into().unwrap()
    }

    #[test]
    fn calls_have_the_numbers_of_the_kernel() {
        assert_eq!((ID, ADMIN_CMD, IO_CMD), (0x4e40, 0xc048_4e41, 0xc048_4e43));
    }

    #[test]
    fn a_transfer_is_a_command_of_as_many_blocks_as_the_device_takes() {
        let memory = std::ptr::without_provenance_mut(0x1122_3344_5566_7000);
        let step = KernelRequest::Write { memory, len: 1 << 20, offset: 3 << 12, durable: true };
        let (command, covered) = commands().command(step, false, &mut [0; 16]);
        assert_eq!(covered, 64 << 10);
        assert_eq!(command[..8], [&[1, 0, 0, 0][..], &7_u32.to_ne_bytes()].concat());
        assert_eq!(u64::from_ne_bytes(field(&command, 24)), 0x1122_3344_5566_7000);
        assert_eq!(u32::from_ne_bytes(field(&command, 36)), 64 << 10);
        assert_eq!(u64::from_ne_bytes(field(&command, 40)), 3);
        assert_eq!(u32::from_ne_bytes(field(&command, 48)), 1 << 30 | 15);
    }

    #[test]
    fn only_whole_blocks_are_valid() {
        assert!(commands().format.is_valid());
        for bytes in [0, 512, 4096 + 512] {
            let valid = commands().format;
            assert!(!NvmeFormat { transfer_bytes_max: bytes, ..valid }.is_valid());
            assert!(!NvmeFormat { zeroes_bytes_max: bytes, ..valid }.is_valid());
        }
    }

    #[test]
    fn protection_information_is_made_and_checked_by_the_device() {
        let memory = std::ptr::without_provenance_mut(4096);
        let step = KernelRequest::Read { memory, len: 4096, offset: (5 << 32 | 9) << 12 };
        for (protection_type, dword12, tag) in [(0, 0, 0), (1, 0x3400_0000, 9), (3, 0x3000_0000, 0)]
        {
            let mut protected = commands();
            protected.format.protection_type = protection_type;
            let (command, covered) = protected.command(step, false, &mut [0; 16]);
            assert_eq!((command[0], covered), (2, 4096));
            assert_eq!(u32::from_ne_bytes(field(&command, 48)), dword12);
            assert_eq!(u32::from_ne_bytes(field(&command, 56)), tag);
        }
    }

    #[test]
    fn a_log_page_is_read_from_an_offset() {
        let dwords = log_dwords(2, 0, 0, 512, false).unwrap();
        assert_eq!(dwords, [127 << 16 | 2, 0, 0, 0]);
        let dwords = log_dwords(0xca, 3, 5 << 32 | 8, 1 << 20, true).unwrap();
        assert_eq!(dwords, [0xffff << 16 | 1 << 15 | 3 << 8 | 0xca, 3, 8, 5]);
    }

    #[test]
    fn a_status_is_what_the_block_layer_makes_of_it() {
        for (status, errno) in [
            (0x4002, Errno::OPNOTSUPP), // DNR
            (0x281, Errno::NODATA),
            (0x284, Errno::ILSEQ),
            (0x371, Errno::NOLINK),
            (0x00b, Errno::NODEV),
            (0x082, Errno::PROTO),
        ] {
            assert_eq!(error_of(status), errno, "{status:#x}");
        }
    }

    #[test]
    fn blocks_are_zeroed_and_deallocated_without_data() {
        let step = KernelRequest::DeviceZero { offset: 1 << 12, length: 1 << 40 };
        let (command, covered) = commands().command(step, true, &mut [0; 16]);
        assert_eq!((command[0], covered), (8, 1 << 28));
        assert_eq!(command[24..40], [0; 16]);
        assert_eq!(u32::from_ne_bytes(field(&command, 48)), 1 << 25 | 0xffff);
        let mut bounded = commands();
        bounded.format.zeroes_bytes_max = 3 << 12;
        bounded.format.deallocates_zeroes = false;
        let (command, covered) = bounded.command(step, true, &mut [0; 16]);
        assert_eq!((command[0], covered), (8, 3 << 12));
        assert_eq!(u32::from_ne_bytes(field(&command, 48)), 2);
        let mut range = [0; 16];
        let step = KernelRequest::DeviceDiscard { offset: 2 << 12, length: 5 << 12 };
        let (command, covered) = commands().command(step, false, &mut range);
        assert_eq!((command[0], covered), (9, 5 << 12));
        assert_eq!(u32::from_ne_bytes(field(&command, 44)), 4);
        assert_eq!(range[4..8], 5_u32.to_le_bytes());
        assert_eq!(range[8..], 2_u64.to_le_bytes());
        let (command, covered) = commands().command(KernelRequest::Sync, false, &mut range);
        assert_eq!((command[0], covered), (0, 0));
    }
}
