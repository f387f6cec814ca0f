//! Failures of requests, and their mapping from errno.

use core::fmt;
use core::str::FromStr;
use rustix::io::Errno;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io;

/// Why a request failed.
///
/// Independent of any protocol: the target maps it to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Blocks beyond the device's current end. Nothing was done.
    OutOfRange,
    /// The device or its medium is read-only. Nothing was done.
    ReadOnly,
    /// A compare found other data.
    Mismatch,
    /// The file system or pool under the device is full.
    NoSpace,
    /// The device does not support the operation. Nothing was done.
    Unsupported,
    /// The medium could not be read.
    MediaRead,
    /// The medium could not be written; the content of the blocks is undefined.
    MediaWrite,
    /// The device is closed or was removed.
    Gone,
    /// Aborted on request before it was done.
    Aborted,
    /// The connection to a remote device was lost; the request may have been executed.
    PathLost,
    /// Any other error number of the operating system.
    Device(i32),
    /// A remote device answered with this NVMe status (the 15 bits without the phase tag).
    Remote(u16),
}

/// The direction of a request, to interpret `EIO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data was read from the medium.
    Read,
    /// Data was written to the medium, or made durable.
    Write,
}

impl Failure {
    /// Maps an I/O error.
    pub fn from_io(error: &io::Error, direction: Direction) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            // The file was truncated after the request's range had been checked.
            return Self::OutOfRange;
        }
        match error.raw_os_error() {
            Some(number) => Self::from_errno(number, direction),
            None => Self::Device(Errno::IO.raw_os_error()),
        }
    }

    /// Maps an error number, including those of the block layer (`ENODATA` for a medium error,
    /// `EILSEQ` for protection information, `EREMOTEIO` for the target).
    pub fn from_errno(number: i32, direction: Direction) -> Self {
        match Errno::from_raw_os_error(number) {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            Errno::IO | Errno::REMOTEIO | Errno::NODATA | Errno::ILSEQ | Errno::BADMSG => {
                match direction {
                    Direction::Read => Self::MediaRead,
                    Direction::Write => Self::MediaWrite,
                }
            }
            Errno::ROFS => Self::ReadOnly,
            Errno::PERM | Errno::ACCESS if direction == Direction::Write => Self::ReadOnly,
            Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::STALE | Errno::SHUTDOWN => {
                Self::Gone
            }
            Errno::OPNOTSUPP | Errno::NOSYS => Self::Unsupported,
            Errno::CANCELED => Self::Aborted,
            _ => Self::Device(number),
        }
    }
}

const NAMES: [(Failure, &str); 10] = [
    (Failure::OutOfRange, "out-of-range"),
    (Failure::ReadOnly, "read-only"),
    (Failure::Mismatch, "mismatch"),
    (Failure::NoSpace, "no-space"),
    (Failure::Unsupported, "unsupported"),
    (Failure::MediaRead, "media-read"),
    (Failure::MediaWrite, "media-write"),
    (Failure::Gone, "gone"),
    (Failure::Aborted, "aborted"),
    (Failure::PathLost, "path-lost"),
];

/// The name used in configurations: `media-read`, `no-space`, `errno-5`, `status-0x281`.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(number) => write!(f, "errno-{number}"),
            Self::Remote(status) => write!(f, "status-{status:#x}"),
            named => {
                let name = NAMES.iter().find(|(failure, _)| failure == named);
                f.write_str(name.map_or("failure", |(_, name)| name))
            }
        }
    }
}

impl core::error::Error for Failure {}

impl FromStr for Failure {
    type Err = ParseFailureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseFailureError { text: text.to_owned() };
        if let Some((failure, _)) = NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*failure);
        }
        if let Some(number) = text.strip_prefix("errno-") {
            return number.parse().map(Self::Device).map_err(|_| error());
        }
        let status = text.strip_prefix("status-").ok_or_else(error)?;
        let status = match status.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => status.parse(),
        };
        status.map(Self::Remote).map_err(|_| error())
    }
}

/// A text that is not the name of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFailureError {
    text: String,
}

impl fmt::Display for ParseFailureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a failure (", self.text)?;
        for (_, name) in NAMES {
            write!(f, "{name}, ")?;
        }
        f.write_str("errno-N, status-0xN)")
    }
}

impl core::error::Error for ParseFailureError {}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_become_failures() {
        use Direction::{Read, Write};
        for (errno, read, write) in [
            (Errno::NOSPC, Failure::NoSpace, Failure::NoSpace),
            (Errno::DQUOT, Failure::NoSpace, Failure::NoSpace),
            (Errno::FBIG, Failure::NoSpace, Failure::NoSpace),
            (Errno::IO, Failure::MediaRead, Failure::MediaWrite),
            (Errno::REMOTEIO, Failure::MediaRead, Failure::MediaWrite),
            (Errno::NODATA, Failure::MediaRead, Failure::MediaWrite),
            (Errno::ILSEQ, Failure::MediaRead, Failure::MediaWrite),
            (Errno::BADMSG, Failure::MediaRead, Failure::MediaWrite),
            (Errno::ROFS, Failure::ReadOnly, Failure::ReadOnly),
            (Errno::PERM, Failure::Device(1), Failure::ReadOnly),
            (Errno::NODEV, Failure::Gone, Failure::Gone),
            (Errno::NXIO, Failure::Gone, Failure::Gone),
            (Errno::STALE, Failure::Gone, Failure::Gone),
            (Errno::OPNOTSUPP, Failure::Unsupported, Failure::Unsupported),
            (Errno::NOSYS, Failure::Unsupported, Failure::Unsupported),
            (Errno::CANCELED, Failure::Aborted, Failure::Aborted),
            (Errno::INVAL, Failure::Device(22), Failure::Device(22)),
            (Errno::NOMEM, Failure::Device(12), Failure::Device(12)),
        ] {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(Failure::from_io(&error, Read), read, "{errno:?} reading");
            assert_eq!(Failure::from_io(&error, Write), write, "{errno:?} writing");
        }
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(Failure::from_io(&eof, Read), Failure::OutOfRange);
        let nameless = io::Error::other("no number");
        assert_eq!(Failure::from_io(&nameless, Write), Failure::Device(5));
    }

    #[test]
    fn names_read_back() {
        let others = [Failure::Device(5), Failure::Device(-1), Failure::Remote(0x281)];
        for failure in NAMES.iter().map(|(failure, _)| *failure).chain(others) {
            assert_eq!(failure.to_string().parse(), Ok(failure));
        }
        assert_eq!("status-641".parse(), Ok(Failure::Remote(0x281)));
        for text in ["", "media", "errno-", "errno-x", "status-0x10000", "Gone"] {
            assert!(text.parse::<Failure>().is_err(), "{text}");
        }
    }
}
