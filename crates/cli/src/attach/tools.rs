//! What `weft attach` and `weft detach` have in common.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::io::Errno;
use weft_reactor::ublk::{Control, DeviceInfo};

use crate::failure::Failure;

/// What the upper half of a device's mark is: it is one of weft.
const MARK: u64 = 0x7765_6674;

/// Opens the control device, or says what is missing.
pub(crate) fn open_control() -> Result<Control, Failure> {
    Control::open().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::because(
            "there is no /dev/ublk-control: load the module (modprobe ublk_drv; Linux 6.5)",
        ),
        io::ErrorKind::PermissionDenied => Failure::because(
            "block devices are made by root alone (CAP_SYS_ADMIN), where io_uring is allowed",
        ),
        _ => Failure::io("use", &"/dev/ublk-control", &error),
    })
}

/// The kernel refuses something.
pub(crate) fn refused(what: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Failure::because("block devices are made by root alone (CAP_SYS_ADMIN)")
        }
        _ => Failure::Because(format!("the kernel refuses {what}: {error}")),
    }
}

/// The path of a device.
pub(crate) fn block_device(id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{id}"))
}

/// The mark of a device that is this namespace.
pub(crate) fn mark(identity: &str) -> u64 {
    // FNV-1a: the same in every version of this program.
    let hash = identity
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    MARK << 32 | u64::from(hash)
}

/// A device that `weft attach` has made.
pub(crate) fn own_device(control: &mut Control, id: u32) -> Result<DeviceInfo, Failure> {
    let path = block_device(id);
    match control.info(id) {
        Ok(info) if info.mark >> 32 == MARK => Ok(info),
        Ok(_) => Err(Failure::Because(format!("{} is not of weft attach", path.display()))),
        Err(error) if is_missing(&error) => {
            Err(Failure::Because(format!("there is no device {}", path.display())))
        }
        Err(error) => Err(refused("to say what the device is", &error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    [Errno::NODEV, Errno::NOENT].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

/// Makes sure that nobody uses the device, and that what was written to it is in the namespace.
/// While the file is open nobody can use the device exclusively, as a mount does. With `force` it
/// may be in use.
pub(crate) fn hold(id: u32, force: bool) -> Result<Option<File>, String> {
    let path = block_device(id);
    let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
    match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Ok(file) => match file.sync_all() {
            Ok(()) => Ok(Some(file)),
            Err(_) if force => Ok(None),
            Err(error) => Err(format!("{} cannot be flushed: {error}", path.display())),
        },
        Err(_) if force => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            Err(format!("{} is in use", path.display()))
        }
        Err(error) => Err(format!("cannot open {}: {error}", path.display())),
    }
}

/// Removes a device; another process may do that at the same time.
pub(crate) fn delete(control: &mut Control, id: u32) -> Result<(), Failure> {
    match control.delete(id) {
        Err(error) if !is_missing(&error) => Err(refused("to remove the device", &error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_namespace_and_of_weft() {
        let one = mark("uuid.77656674-0000-4000-8000-00000000beef");
        // Devices of earlier versions are recovered: this number never changes.
        assert_eq!(
            one,
            0x7765_6674_0000_0000 | u64::from(fnv("uuid.77656674-0000-4000-8000-00000000beef"))
        );
        assert_ne!(one, mark("uuid.77656674-0000-4000-8000-00000000bee0"));
    }

    fn fnv(text: &str) -> u32 {
        let mut hash: u64 = 2_166_136_261;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)) * 16_777_619 % (1 << 32);
        }
        u32::try_from(hash).expect("32 bits")
    }
}
