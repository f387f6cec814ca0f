//! The control device, and the character device of each block device.

use super::{DeviceInfo, Features, Parameters, Queue};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// The control device; the module `ublk_drv` makes it.
const CONTROL: &str = "/dev/ublk-control";

/// How long the node of a new device may take to appear, and how often it is looked for.
const NODE_TRIES: u32 = 200;
const NODE_DELAY: Duration = Duration::from_millis(10);

/// `_IOR` and `_IOWR` of the type 'u' with a structure of so many bytes (`asm-generic/ioctl.h`).
const fn encoded(writes: bool, number: u8, bytes: u32) -> u32 {
    let direction = if writes { 3 } else { 2 };
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number as u32
}

/// A command of the control device, whose structure (`struct ublksrv_ctrl_cmd`) has 32 bytes.
const fn command(writes: bool, number: u8) -> u32 {
    encoded(writes, number, 32)
}

const GET_DEV_INFO: u32 = command(false, 0x02);
const ADD_DEV: u32 = command(true, 0x04);
const DEL_DEV: u32 = command(true, 0x05);
const START_DEV: u32 = command(true, 0x06);
const STOP_DEV: u32 = command(true, 0x07);
const SET_PARAMS: u32 = command(true, 0x08);
const GET_PARAMS: u32 = command(false, 0x09);
const START_USER_RECOVERY: u32 = command(true, 0x10);
const END_USER_RECOVERY: u32 = command(true, 0x11);
const GET_FEATURES: u32 = command(false, 0x13);
const UPDATE_SIZE: u32 = command(true, 0x15);

/// Commands of a queue, whose structure (`struct ublksrv_io_cmd`) has 16 bytes.
pub(crate) const FETCH_REQ: u32 = encoded(true, 0x20, 16);
pub(crate) const COMMIT_AND_FETCH_REQ: u32 = encoded(true, 0x21, 16);

/// The control device. Its commands block.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("file", &self.file).finish_non_exhaustive()
    }
}

/// An open device, to be served by the threads of this process.
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) file: Arc<File>,
    pub(super) info: DeviceInfo,
}

impl Device {
    /// The device as it was when it was opened.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Maps one of its queues.
    ///
    /// # Errors
    /// There is no such queue, or the kernel refuses.
    pub fn queue(&self, number: u16) -> io::Result<Queue> {
        Queue::map(self, number)
    }
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// `NotFound`: the module is not loaded. `PermissionDenied`: only root may do this. Others: the
    /// kernel has no io_uring with large entries (Linux 5.19).
    pub fn open() -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(CONTROL)?;
        let ring = IoUring::builder().dontfork().build(2)?;
        Ok(Self { ring, file })
    }

    /// What this kernel can do.
    ///
    /// # Errors
    /// The kernel is older than Linux 6.5.
    pub fn features(&mut self) -> io::Result<Features> {
        let mut bytes = [0; 8];
        self.with_data(GET_FEATURES, u32::MAX, &mut bytes)?;
        Ok(Features(u64::from_ne_bytes(bytes)))
    }

    /// Makes a device; the number `u32::MAX` leaves the choice of a number to the kernel, which
    /// may limit other values, too.
    ///
    /// # Errors
    /// The kernel refuses: `AlreadyExists` if the number is taken.
    pub fn add(&mut self, info: &DeviceInfo) -> io::Result<DeviceInfo> {
        let mut bytes = info.to_bytes();
        self.with_data(ADD_DEV, info.id, &mut bytes)?;
        Ok(DeviceInfo::from_bytes(&bytes))
    }

    /// What is known of a device.
    ///
    /// # Errors
    /// There is none with that number, or it is one of an unprivileged user.
    pub fn info(&mut self, id: u32) -> io::Result<DeviceInfo> {
        let mut bytes = [0; DeviceInfo::BYTES];
        self.with_data(GET_DEV_INFO, id, &mut bytes)?;
        Ok(DeviceInfo::from_bytes(&bytes))
    }

    /// Opens the character device of a device, which only one process at a time can do.
    ///
    /// # Errors
    /// It is in use, or does not appear.
    pub fn device(&self, info: &DeviceInfo) -> io::Result<Device> {
        let path = node('c', info.id);
        let mut tries = 0;
        loop {
            match File::options().read(true).write(true).open(&path) {
                Ok(file) => return Ok(Device { file: Arc::new(file), info: *info }),
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < NODE_TRIES => {
                    tries += 1;
                    std::thread::sleep(NODE_DELAY);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Says what the medium is. Before the start.
    ///
    /// # Errors
    /// The kernel does not take such values, or the device is started.
    pub fn set_parameters(&mut self, id: u32, parameters: &Parameters) -> io::Result<()> {
        self.with_data(SET_PARAMS, id, &mut parameters.to_bytes())
    }

    /// What was said of the medium.
    ///
    /// # Errors
    /// There is no such device.
    pub fn parameters(&mut self, id: u32) -> io::Result<Parameters> {
        let mut bytes = Parameters::default().to_bytes();
        self.with_data(GET_PARAMS, id, &mut bytes)?;
        Ok(Parameters::from_bytes(&bytes))
    }

    /// Starts a device: its block device appears, and this process serves it. Waits until every tag
    /// of every queue has its first [`FetchUblk`](crate::Operation::FetchUblk), and until the
    /// kernel has read the partition table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&mut self, id: u32) -> io::Result<()> {
        self.with_word(START_DEV, id, u64::from(std::process::id()))
    }

    /// Takes over a device whose server has ended; [`end_recovery`](Self::end_recovery) follows as
    /// [`start`](Self::start) follows [`add`](Self::add).
    ///
    /// # Errors
    /// `ResourceBusy`: the kernel has not noticed the end of the old server.
    pub fn begin_recovery(&mut self, id: u32) -> io::Result<()> {
        self.with_word(START_USER_RECOVERY, id, 0)
    }

    /// See [`begin_recovery`](Self::begin_recovery).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn end_recovery(&mut self, id: u32) -> io::Result<()> {
        self.with_word(END_USER_RECOVERY, id, u64::from(std::process::id()))
    }

    /// Changes the size of a device that is served, in sectors of 512 bytes.
    ///
    /// # Errors
    /// It was made without [`Features::UPDATE_SIZE`].
    pub fn update_size(&mut self, id: u32, sectors: u64) -> io::Result<()> {
        self.with_word(UPDATE_SIZE, id, sectors)
    }

    /// Stops a device: the block device goes, and operations on its queues fail.
    ///
    /// # Errors
    /// There is no such device.
    pub fn stop(&mut self, id: u32) -> io::Result<()> {
        self.with_word(STOP_DEV, id, 0)
    }

    /// Removes a device, which it stops before. Waits until nobody has it open.
    ///
    /// # Errors
    /// There is no such device.
    pub fn delete(&mut self, id: u32) -> io::Result<()> {
        self.with_word(DEL_DEV, id, 0)
    }

    fn with_word(&mut self, operation: u32, id: u32, word: u64) -> io::Result<()> {
        self.submit(operation, id, &mut [], word)
    }

    fn with_data(&mut self, operation: u32, id: u32, data: &mut [u8]) -> io::Result<()> {
        self.submit(operation, id, data, 0)
    }

    /// Executes a command with data to read and write, and a word.
    fn submit(&mut self, operation: u32, id: u32, data: &mut [u8], word: u64) -> io::Result<()> {
        let mut bytes = [0; 80];
        let length = u16::try_from(data.len()).map_err(|_| Errno::INVAL)?;
        super::put(&mut bytes, 0, &id.to_ne_bytes());
        // No queue is meant.
        super::put(&mut bytes, 4, &u16::MAX.to_ne_bytes());
        super::put(&mut bytes, 6, &length.to_ne_bytes());
        if !data.is_empty() {
            let address = data.as_mut_ptr().expose_provenance() as u64;
            super::put(&mut bytes, 8, &address.to_ne_bytes());
        }
        super::put(&mut bytes, 16, &word.to_ne_bytes());
        let entry =
            opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), operation).cmd(bytes).build();
        // SAFETY: the command reads and writes `data`, whose length it has, until its completion,
        // which is waited for below; both descriptors are open for as long.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(completion) = self.ring.completion().next() {
                let result = completion.result();
                if result >= 0 {
                    return Ok(());
                }
                return Err(io::Error::from_raw_os_error(result.saturating_neg()));
            }
            match waited {
                Err(error) if error.raw_os_error() != Some(Errno::INTR.raw_os_error()) => {
                    // The kernel may still have the command: its memory stays.
                    std::process::abort();
                }
                _ => {}
            }
        }
    }
}

/// The node of a device: 'b', the block device, or 'c', the character device.
pub(super) fn node(kind: char, id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublk{kind}{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        // As `UBLK_U_CMD_ADD_DEV`, `UBLK_U_CMD_GET_DEV_INFO` and `UBLK_U_IO_FETCH_REQ` expand.
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(FETCH_REQ, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH_REQ, 0xc010_7521);
    }

    #[test]
    fn a_machine_without_the_module_is_told_from_one_without_the_right() {
        match Control::open() {
            Ok(_) => assert!(std::path::Path::new(CONTROL).exists()),
            Err(error) => assert!(
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
                "{error}"
            ),
        }
    }
}
