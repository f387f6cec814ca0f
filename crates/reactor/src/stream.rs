//! Streams and files that reactors take over or pass on.

use crate::simulation::{Detached, SimulatedFile};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A connection that belongs to no reactor: between two of them, or from the standard library.
#[derive(Debug)]
pub struct Stream(pub(crate) StreamKind);

#[derive(Debug)]
pub(crate) enum StreamKind {
    Kernel {
        descriptor: OwnedFd,
        /// Its TLS is the kernel's.
        records: bool,
    },
    Simulated(Detached),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::from(OwnedFd::from(stream))
    }
}

impl From<OwnedFd> for Stream {
    fn from(descriptor: OwnedFd) -> Self {
        Self(StreamKind::Kernel { descriptor, records: false })
    }
}

/// A file of the kernel or of a simulated world.
#[derive(Clone, Debug)]
pub struct FileSource(pub(crate) FileKind);

#[derive(Clone, Debug)]
pub(crate) enum FileKind {
    Kernel(Arc<File>),
    Simulated(SimulatedFile),
}

impl From<Arc<File>> for FileSource {
    fn from(file: Arc<File>) -> Self {
        Self(FileKind::Kernel(file))
    }
}

impl From<File> for FileSource {
    fn from(file: File) -> Self {
        Self(FileKind::Kernel(Arc::new(file)))
    }
}

impl From<SimulatedFile> for FileSource {
    fn from(file: SimulatedFile) -> Self {
        Self(FileKind::Simulated(file))
    }
}
