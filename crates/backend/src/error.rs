//! Why a device could not be opened, created or resized.

use core::fmt;
use std::io;
use std::path::PathBuf;

/// Why a device could not be opened or created.
#[derive(Debug)]
pub enum OpenError {
    /// The operating system refused.
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The file, if any.
        path: Option<PathBuf>,
        /// The error.
        error: io::Error,
    },
    /// The options are invalid or not supported; the text says what to do.
    Invalid(String),
}

impl OpenError {
    pub(crate) fn system(doing: &'static str, path: &std::path::Path, error: io::Error) -> Self {
        Self::System { doing, path: Some(path.to_owned()), error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { doing, path: Some(path), error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())
            }
            Self::System { doing, path: None, error } => write!(f, "cannot {doing}: {error}"),
            Self::Invalid(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            Self::Invalid(_) => None,
        }
    }
}

/// Why a device could not be resized.
#[derive(Debug)]
pub enum ResizeError {
    /// This kind of device cannot be resized.
    Unsupported,
    /// The size is zero or not a whole number of blocks.
    NotWholeBlocks {
        /// The requested size.
        bytes: u64,
        /// The device's block size.
        block_bytes: u32,
    },
    /// The operating system refused.
    System(io::Error),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("this device cannot be resized"),
            Self::NotWholeBlocks { bytes, block_bytes } => {
                write!(f, "{bytes} bytes is not a whole number of blocks of {block_bytes} bytes")?;
                let unit = " (a size has a unit, like 64MiB)";
                f.write_str(if bytes < &u64::from(*block_bytes) { unit } else { "" })
            }
            Self::System(error) => write!(f, "cannot resize: {error}"),
        }
    }
}

impl core::error::Error for ResizeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::Unsupported | Self::NotWholeBlocks { .. } => None,
        }
    }
}

/// Checks a new size: a whole number of blocks, and at least one.
pub(crate) fn check_size(bytes: u64, block_bytes: u32) -> Result<(), ResizeError> {
    if bytes == 0 || !bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(ResizeError::NotWholeBlocks { bytes, block_bytes });
    }
    Ok(())
}
