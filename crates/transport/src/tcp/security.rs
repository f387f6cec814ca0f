//! What TLS of a connection is: a layer of this program, or the kernel's.

use std::io;

use weft_reactor::{Message, Records};

use super::layer::{DetachedLayer, Layer};
use crate::CloseReason;
use crate::tls::{KernelRecords, TlsFault, TlsRecords};

/// Who has the records of a connection.
#[derive(Debug)]
pub(crate) enum Security {
    /// This program: the session's bytes go through the layer.
    Layer(Layer),
    /// The kernel: the session's bytes are sent and received as they are.
    Kernel(KernelRecords),
}

/// The state that moves to another reactor.
#[derive(Debug)]
pub(crate) enum DetachedSecurity {
    Layer(DetachedLayer),
    Kernel(KernelRecords),
}

impl Security {
    pub(crate) fn attach(detached: DetachedSecurity) -> Self {
        match detached {
            DetachedSecurity::Layer(layer) => Self::Layer(Layer::attach(layer)),
            DetachedSecurity::Kernel(kernel) => Self::Kernel(kernel),
        }
    }

    pub(crate) fn detach(self) -> DetachedSecurity {
        match self {
            Self::Layer(layer) => DetachedSecurity::Layer(layer.detach()),
            Self::Kernel(kernel) => DetachedSecurity::Kernel(kernel),
        }
    }

    pub(crate) fn layer(&self) -> Option<&Layer> {
        match self {
            Self::Layer(layer) => Some(layer),
            Self::Kernel(_) => None,
        }
    }

    pub(crate) fn layer_mut(&mut self) -> Option<&mut Layer> {
        match self {
            Self::Layer(layer) => Some(layer),
            Self::Kernel(_) => None,
        }
    }

    /// The identity of the PSK in use.
    pub(crate) fn identity(&self) -> Option<String> {
        match self {
            Self::Layer(layer) => layer.identity(),
            Self::Kernel(kernel) => kernel.identity(),
        }
    }

    /// Who has the records.
    pub(crate) const fn records(&self) -> TlsRecords {
        match self {
            Self::Layer(_) => TlsRecords::User,
            Self::Kernel(_) => TlsRecords::Kernel,
        }
    }

    /// Gives the kernel the records if they are to be its, if it has the cipher suite, and if
    /// nothing is under way. Otherwise the socket stays as it is.
    pub(crate) fn hand_over<'a>(
        &mut self,
        is_quiet: bool,
        kernel_has: impl FnOnce([u8; 2]) -> bool,
        records: impl FnOnce() -> io::Result<Records<'a>>,
    ) -> Result<(), TlsFault> {
        let Some(layer) = self.layer_mut().filter(|layer| layer.is_for_kernel()) else {
            return Ok(());
        };
        match layer.hand_over(is_quiet, kernel_has) {
            Ok(handed) => {
                let mut records = records()?;
                records.begin()?;
                *self = Self::Kernel(KernelRecords::begin(handed, &records)?);
            }
            Err(why) => {
                log::warn!("TLS: {why}, so that the records of this connection stay in user space")
            }
        }
        Ok(())
    }

    /// Encrypts what is queued, or prepares the kernel for it.
    pub(crate) fn seal<'a>(
        &mut self,
        messages: &mut Message,
        records: impl FnOnce() -> io::Result<Records<'a>>,
    ) -> Result<(), TlsFault> {
        match self {
            Self::Layer(layer) => layer.seal(messages),
            Self::Kernel(kernel) => kernel.prepare(messages.len(), records),
        }
    }

    /// Takes the record that has had a receive fail with this error, if there is one.
    pub(crate) fn take_record<'a>(
        &mut self,
        error: &io::Error,
        records: impl FnOnce() -> io::Result<Records<'a>>,
    ) -> Result<(), CloseReason> {
        match self {
            Self::Kernel(kernel) if error.raw_os_error() == Some(EIO) => {
                let records = records().map_err(|error| CloseReason::Tls(error.into()))?;
                kernel.receive(&records)
            }
            Self::Kernel(_) if error.raw_os_error() == Some(EBADMSG) => {
                Err(CloseReason::Tls(TlsFault::Library("a record is not what the peer has sent")))
            }
            _ => Err(CloseReason::from(error)),
        }
    }

    /// Has the kernel tell the peer that nothing more comes, after all that was sent.
    pub(crate) fn end<'a>(&mut self, records: impl FnOnce() -> io::Result<Records<'a>>) {
        if let (Self::Kernel(kernel), Ok(records)) = (self, records()) {
            kernel.end(&records);
        }
    }
}

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const EBADMSG: i32 = rustix::io::Errno::BADMSG.raw_os_error();
