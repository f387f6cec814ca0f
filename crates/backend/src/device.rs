//! The seam: a device on one reactor, and the factory that opens it on each.

use crate::{Failure, Geometry, Request, RequestCompletion};
use core::{
    fmt,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};
use std::{io, path::PathBuf};
use weft_reactor::{Owner, Reactor};

/// How many tags of its owner's tokens the innermost device may use; its wrappers use others.
pub const DEVICE_TAGS: u32 = 1 << 27;

/// A block device as one reactor sees it.
///
/// It belongs to that reactor's thread and to the owner it was opened for: the embedding loop hands
/// it every reactor completion of that owner. Its life in a turn of the loop:
///
/// 1. `handle` for each of its reactor completions, `submit` for each new request, in any order;
/// 2. `flush` once;
/// 3. `poll_completion` until nothing is left (may be called at any other time too).
///
/// A turn in which it was neither handed anything nor the reactor called may leave it out.
///
/// Every request gets exactly one [`RequestCompletion`], in no particular order; requests that
/// overlap each other while both are in flight are executed in no particular order either.
///
/// A flush or durable write that failed stays failed: the operating system reports lost writes
/// only once to each open file. So all later ones fail on every handle, until the device is opened
/// by another factory; reads and other writes go on.
pub trait BlockDevice: fmt::Debug {
    /// What the device is like. Follows a resize with the next `submit` or `flush`.
    fn geometry(&self) -> &Geometry;

    /// Takes a request on. Never fails: what is wrong with it comes as its completion.
    fn submit(&mut self, reactor: &mut Reactor, request: Request);

    /// A read or write of these blocks is likely to come next; they may not even exist.
    fn prefetch_hint(&mut self, block: u64, blocks: u32) {
        let _ = (block, blocks);
    }

    /// Takes a completion of the reactor whose token has this device's owner.
    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion);

    /// The end of a turn: sends what was gathered, tries again what had to wait.
    fn flush(&mut self, reactor: &mut Reactor);

    /// The next request that ended.
    fn poll_completion(&mut self) -> Option<RequestCompletion>;

    /// Requests taken on whose completion was not yet polled.
    fn in_flight(&self) -> usize;

    /// Stops taking requests. Those that the device already works on end as they end, those that
    /// wait end with [`Failure::Gone`](crate::Failure::Gone); go on with `handle` and
    /// `poll_completion` until `in_flight` is 0. May be called again.
    fn close(&mut self, reactor: &mut Reactor);
}

/// A namespace's device before it is opened: one for all reactors.
pub trait DeviceFactory: Send + Sync + fmt::Debug {
    /// Opens the device on a reactor, for an owner that nothing else on that reactor uses.
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError>;

    /// What the device is like now.
    fn geometry(&self) -> Geometry;

    /// Whether what was written is still there after this process ended.
    fn survives_restart(&self) -> bool;

    /// A text that names the same device in the next run, and no other: a canonical path, or kind
    /// and size. Identifiers are derived from it.
    fn identity(&self) -> String;

    /// Gives the device another size. Open handles follow.
    fn resize(&self, bytes: u64) -> Result<(), ResizeError>;

    /// Looks whether the device changed its size by itself.
    fn refresh(&self) -> io::Result<Geometry> {
        Ok(self.geometry())
    }

    /// Makes all completed writes durable, blocking: for the end of the process.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether a flush or durable write has failed: since then they all do.
    fn has_lost_writes(&self) -> bool {
        false
    }

    /// How many wrappers are around the innermost device.
    ///
    /// A device and its wrappers share an owner, so they share the tags of its tokens: the
    /// innermost device keeps its tags below [`DEVICE_TAGS`], and the wrapper on layer n uses
    /// those from n times that number on.
    fn layers(&self) -> u8 {
        0
    }
}

/// Whether writes that a device took were lost before they were durable; all its handles share it.
#[derive(Debug, Default)]
pub(crate) struct LostWrites(AtomicBool);

impl LostWrites {
    pub(crate) fn any(&self) -> bool {
        self.0.load(Acquire)
    }

    /// What a flush or durable write comes to that the device has ended with `result`.
    pub(crate) fn flush_result(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        match result {
            Ok(()) if self.any() => Err(Failure::MediaWrite),
            Err(Failure::MediaWrite | Failure::NoSpace | Failure::Device(_)) => {
                self.0.store(true, Release);
                result
            }
            _ => result,
        }
    }
}

/// Why a device could not be opened or made.
#[derive(Debug)]
pub enum OpenError {
    /// The operating system refused.
    System {
        /// What was tried.
        doing: &'static str,
        /// With which file, if any.
        path: Option<PathBuf>,
        /// Its answer.
        error: io::Error,
    },
    /// What was asked for makes no sense or cannot be had; says what would.
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

/// Why a device kept its size.
#[derive(Debug)]
pub enum ResizeError {
    /// This kind of device has the size that it has.
    Unsupported,
    /// The size is no whole number of blocks, or none.
    NotWholeBlocks {
        /// The size asked for.
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
                write!(f, "{bytes} bytes are no whole number of blocks of {block_bytes} bytes")
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

/// Checks a new size: whole blocks, and at least one.
pub(crate) fn check_size(bytes: u64, block_bytes: u32) -> Result<(), ResizeError> {
    if bytes == 0 || !bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(ResizeError::NotWholeBlocks { bytes, block_bytes });
    }
    Ok(())
}
