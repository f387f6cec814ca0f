//! Errors, each in one sentence, and which side caused them.

use std::fmt;

use weft_backend::Failure;
use weft_nvmf::host::{Problem, Side};

/// An error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An invalid or unsupported request; the text says what is allowed.
    Invalid(String),
    /// A host name that cannot be resolved.
    Resolve {
        /// The name.
        name: String,
        /// The resolver's message.
        reason: String,
    },
    /// The controller cannot be used, or not any more.
    Controller {
        /// Which one.
        address: String,
        /// Why.
        problem: Problem,
    },
    /// The controller has no such namespace.
    NoNamespace(u32),
    /// An offset or a length that is not a multiple of the block size.
    Unaligned {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u64,
        /// The block size.
        block_bytes: u32,
    },
    /// A request to a namespace failed.
    Request {
        /// The operation: "read", "flush".
        doing: &'static str,
        /// The namespace.
        nsid: u32,
        /// Why.
        failure: Failure,
    },
    /// A source range of a Copy was not copied, nor what comes after it. What comes before it was.
    Copy {
        /// Its namespace.
        nsid: u32,
        /// Its first block.
        slba: u64,
        /// Its number of blocks.
        nlb: u32,
        /// Why.
        failure: Failure,
    },
    /// The reactor could not be set up.
    Reactor(weft_reactor::SetupError),
    /// The thread of the controller has ended: it was disconnected, or it could not be started.
    Stopped,
}

impl Error {
    /// Which side caused it: this host, the controller, or the network between them.
    #[must_use]
    pub fn side(&self) -> Side {
        match self {
            Self::Controller { problem, .. } => problem.side(),
            Self::Request { failure, .. } | Self::Copy { failure, .. } => match failure {
                Failure::PathLost => Side::Io,
                Failure::OutOfRange | Failure::ReadOnly | Failure::Unsupported => Side::Local,
                _ => Side::Peer,
            },
            Self::NoNamespace(_) => Side::Peer,
            Self::Invalid(_)
            | Self::Resolve { .. }
            | Self::Unaligned { .. }
            | Self::Reactor(_)
            | Self::Stopped => Side::Local,
        }
    }

    /// The failure of a request, for callers that handle it.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        match self {
            Self::Request { failure, .. } | Self::Copy { failure, .. } => Some(*failure),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => formatter.write_str(what),
            Self::Resolve { name, reason } => {
                write!(formatter, "the host name '{name}' leads nowhere: {reason}")
            }
            Self::Controller { address, problem } => write!(formatter, "{address}: {problem}"),
            Self::NoNamespace(nsid) => write!(formatter, "the controller has no namespace {nsid}"),
            Self::Unaligned { offset, length, block_bytes } => write!(
                formatter,
                "{length} bytes at {offset} are no whole blocks: the block size is {block_bytes}"
            ),
            Self::Request { doing, nsid, failure } => {
                write!(formatter, "{doing} of namespace {nsid} failed: {}", words(*failure))
            }
            Self::Copy { nsid, slba, nlb, failure } => {
                let last = slba.saturating_add((*nlb).into()).saturating_sub(1);
                let what = format!("blocks {slba} to {last} of namespace {nsid}");
                write!(formatter, "{what} were not copied: {}", words(*failure))
            }
            Self::Reactor(error) => write!(formatter, "{error}"),
            Self::Stopped => formatter.write_str("the controller is disconnected"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Controller { problem, .. } => Some(problem),
            Self::Reactor(error) => Some(error),
            _ => None,
        }
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::OutOfRange => "it reaches beyond the end of the namespace".into(),
        Failure::ReadOnly => "the namespace is write protected".into(),
        Failure::Mismatch => "the blocks hold something else".into(),
        Failure::NoSpace => "the controller has no space left".into(),
        Failure::Unsupported => "the controller cannot do this".into(),
        Failure::MediaRead => "the controller could not read its medium".into(),
        Failure::MediaWrite => "the controller could not write its medium".into(),
        Failure::Gone => "the namespace is gone".into(),
        Failure::Aborted => "it was aborted".into(),
        Failure::PathLost => {
            "the connection was lost, it may or may not have been carried out".into()
        }
        Failure::Device(number) => std::io::Error::from_raw_os_error(number).to_string(),
        Failure::Remote(status) => {
            format!("the controller answered: {}", weft_nvme::Status(status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_one_sentence_and_names_a_side() {
        let request = |failure| Error::Request { doing: "read", nsid: 3, failure };
        for (error, text, side) in [
            (
                Error::Unaligned { offset: 512, length: 100, block_bytes: 4096 },
                "100 bytes at 512 are no whole blocks: the block size is 4096",
                Side::Local,
            ),
            (
                request(Failure::Remote(0x4002)),
                "read of namespace 3 failed: the controller answered: \
                 Invalid Field in Command, do not retry",
                Side::Peer,
            ),
            (
                request(Failure::PathLost),
                "read of namespace 3 failed: the connection was lost, \
                 it may or may not have been carried out",
                Side::Io,
            ),
            (Error::NoNamespace(7), "the controller has no namespace 7", Side::Peer),
            (
                Error::Controller { address: "nvme-tcp://h".into(), problem: Problem::Fatal },
                "nvme-tcp://h: the controller reports a fatal state (CSTS.CFS)",
                Side::Peer,
            ),
        ] {
            assert_eq!((error.to_string().as_str(), error.side()), (text, side));
        }
    }
}
