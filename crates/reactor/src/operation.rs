//! The operations of a reactor and their completions.
//!
//! # The cancellation contract
//!
//! 1. Every operation that was submitted ends in exactly one final completion, which carries the
//!    token it was submitted with. [`Operation::Accept`] alone yields [`Outcome::Accepted`] any
//!    number of times before its final completion ([`Outcome::Failed`] or
//!    [`Outcome::Cancelled`]).
//! 2. From `submit` until that completion the buffer and the message belong to the operation:
//!    the kernel may read or write them at any moment. They come back with the completion,
//!    whatever its outcome; nothing else gives them back earlier.
//! 3. [`Reactor::cancel`](crate::Reactor::cancel) is a request, not an end. What can be withdrawn
//!    completes as [`Outcome::Cancelled`]; what has already begun completes as usual.
//! 4. Closing a socket or a listener completes all that is pending on it as `Cancelled`. A file
//!    may be removed while operations on it run: they keep it open and complete as usual.
//! 5. Dropping the reactor waits for the operations that the kernel still has. Nothing completes
//!    after that.
//!
//! A token names at most one operation in flight. That is the caller's duty: with a token used
//! twice each operation still completes once, but `cancel` reaches only one of them.

use crate::message::Message;
use crate::pool::Buffer;
use crate::slab::Key;
use crate::socket::Marking;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// The owner of a token on this reactor, who gets its completions. The embedding loop chooses the
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u32);

/// Identifies an operation or a timer: its owner, and the owner's own number for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Who gets the completion.
    pub owner: Owner,
    /// The owner's own number.
    pub tag: u32,
}

impl Token {
    /// A token of `owner` with the number `tag`.
    pub const fn new(owner: Owner, tag: u32) -> Self {
        Self { owner, tag }
    }
}

/// A listening socket of one reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) Key);

/// A stream socket of one reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub(crate) Key);

/// A file or block device of one reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) Key);

/// A listener or a stream socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A listening socket.
    Listener(ListenerId),
    /// A stream socket.
    Socket(SocketId),
}

impl From<ListenerId> for Endpoint {
    fn from(listener: ListenerId) -> Self {
        Self::Listener(listener)
    }
}

impl From<SocketId> for Endpoint {
    fn from(socket: SocketId) -> Self {
        Self::Socket(socket)
    }
}

/// Something to do. The contract in [`crate::operation`] says who owns its memory until when.
#[derive(Debug)]
pub enum Operation {
    /// Accept connections until cancelled, closed or failed: [`Outcome::Accepted`] for each.
    /// Where descriptors or memory have run out it fails once; the owner decides when to submit
    /// it again.
    Accept {
        /// Where to accept.
        listener: ListenerId,
    },
    /// Open a connection; [`Outcome::Connected`].
    Connect {
        /// The peer.
        address: SocketAddr,
        /// The address to come from; any if `None`.
        local: Option<SocketAddr>,
        /// Give up (`TimedOut`) after this long; the kernel's own limit if `None`.
        timeout: Option<Duration>,
        /// How what is sent is marked.
        marking: Marking,
    },
    /// Wait for bytes and put them in a buffer of the pool; [`Outcome::Received`]. No buffer is
    /// held while nothing has arrived, and while the pool is empty the operation waits.
    /// One receive (of either kind) per socket at a time.
    Receive {
        /// Where from.
        socket: SocketId,
    },
    /// Receive straight into `buffer[range]`; [`Outcome::ReceivedInto`], perhaps short. The
    /// buffer must not be shared and the range not empty.
    ReceiveInto {
        /// Where from.
        socket: SocketId,
        /// Where to.
        buffer: Buffer,
        /// Which part of the buffer.
        range: Range<usize>,
    },
    /// Send all of a message; [`Outcome::Sent`] when the kernel has taken the last byte. One send
    /// per socket at a time.
    Send {
        /// Where to.
        socket: SocketId,
        /// What.
        message: Message,
    },
    /// Read `range.len()` bytes at `offset` into `buffer[range]`; [`Outcome::Transferred`] when
    /// all are there. An end of file before that is the error `UnexpectedEof`. The buffer must not
    /// be shared.
    Read {
        /// From which file.
        file: FileId,
        /// From where, in bytes.
        offset: u64,
        /// Where to.
        buffer: Buffer,
        /// Which part of the buffer.
        range: Range<usize>,
    },
    /// Write `buffer[range]` at `offset`; [`Outcome::Transferred`] when all is written.
    Write {
        /// To which file.
        file: FileId,
        /// To where, in bytes.
        offset: u64,
        /// Where from.
        buffer: Buffer,
        /// Which part of the buffer.
        range: Range<usize>,
        /// Complete only when the data would survive a loss of power.
        durable: bool,
    },
    /// Make all writes that have completed durable; [`Outcome::Done`].
    Sync {
        /// Which file.
        file: FileId,
    },
    /// Discard the bytes: on a file they read as zeroes afterwards and take no space; what they
    /// read as on a device is the device's choice; [`Outcome::Done`].
    Discard {
        /// Which file.
        file: FileId,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Make the bytes read as zeroes; [`Outcome::Done`].
    WriteZeroes {
        /// Which file.
        file: FileId,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Whether their space may be given up.
        unmap: bool,
    },
    /// Lend the kernel a buffer for a tag of a [`ublk`](crate::ublk) queue, with the result of the
    /// tag's last request; [`Outcome::Transferred`] when the tag has a request. The data of a write
    /// are in the buffer then; those of a read are taken out of it by the tag's next operation.
    /// The buffer has room for [`Queue::buffer_bytes`](crate::ublk::Queue::buffer_bytes) and must
    /// not be shared. It fails with `ENODEV` when the device is stopped.
    FetchUblk {
        /// The queue.
        file: FileId,
        /// The tag.
        tag: u16,
        /// The result of its last request: bytes, or a negative error number; `None` at first.
        result: Option<i32>,
        /// Where the data is.
        buffer: Buffer,
    },
}

/// The end of an operation, a timer that is due, or events of a source.
#[derive(Debug)]
pub struct ReactorCompletion {
    /// The token it was submitted with.
    pub token: Token,
    /// What happened.
    pub outcome: Outcome,
}

/// The result of an operation.
#[derive(Debug)]
pub enum Outcome {
    /// A connection came in. More may follow.
    Accepted {
        /// The new connection.
        socket: SocketId,
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The connection is established.
    Connected {
        /// The new connection.
        socket: SocketId,
    },
    /// Bytes arrived; `len` 0 is the end of the stream.
    Received {
        /// Holds the bytes; its own length is `len` too.
        buffer: Buffer,
        /// How many bytes.
        len: usize,
    },
    /// Bytes arrived; `len` 0 is the end of the stream.
    ReceivedInto {
        /// The operation's buffer.
        buffer: Buffer,
        /// How many bytes, counted from the start of the operation's range.
        len: usize,
    },
    /// The kernel has taken all of it.
    Sent {
        /// For reuse: [`Message::clear`] keeps its memory.
        message: Message,
    },
    /// All bytes were read or written.
    Transferred {
        /// The operation's buffer.
        buffer: Buffer,
    },
    /// Done.
    Done,
    /// A timer is due.
    Timer,
    /// A [`Source`](crate::Source) has events for the token's owner.
    SourceEvents,
    /// Withdrawn, by `cancel` or because its socket was closed. A message may be partly sent.
    Cancelled {
        /// The operation's buffer, if it had one.
        buffer: Option<Buffer>,
        /// The operation's message, if it had one.
        message: Option<Message>,
    },
    /// Failed.
    Failed {
        /// Why.
        error: io::Error,
        /// The operation's buffer, if it had one.
        buffer: Option<Buffer>,
        /// The operation's message, if it had one.
        message: Option<Message>,
    },
}

impl Outcome {
    /// A failure without buffer or message.
    pub(crate) fn failed(error: impl Into<io::Error>) -> Self {
        Self::Failed { error: error.into(), buffer: None, message: None }
    }

    /// Whether the operation ends with this; only `Accepted` does not end it.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Accepted { .. })
    }
}

impl Operation {
    /// Ends an operation before it began: its memory comes back with the outcome.
    pub(crate) fn refuse(self, error: impl Into<io::Error>) -> Outcome {
        let error = error.into();
        match self {
            Self::Send { message, .. } => {
                Outcome::Failed { error, buffer: None, message: Some(message) }
            }
            Self::ReceiveInto { buffer, .. }
            | Self::Read { buffer, .. }
            | Self::Write { buffer, .. }
            | Self::FetchUblk { buffer, .. } => {
                Outcome::Failed { error, buffer: Some(buffer), message: None }
            }
            Self::Accept { .. }
            | Self::Connect { .. }
            | Self::Receive { .. }
            | Self::Sync { .. }
            | Self::Discard { .. }
            | Self::WriteZeroes { .. } => Outcome::failed(error),
        }
    }

    /// The caller's mistake about memory, if there is one: a range outside the buffer, or a buffer
    /// that is to be written while another handle may be reading it.
    pub(crate) fn invalid_memory(&self) -> Option<io::Error> {
        let (buffer, range, filled) = match self {
            Self::ReceiveInto { buffer, range, .. } | Self::Read { buffer, range, .. } => {
                (buffer, range, true)
            }
            Self::Write { buffer, range, .. } => (buffer, range, false),
            Self::FetchUblk { buffer, .. } if buffer.is_shared() => {
                return Some(invalid("buffer to be filled is shared"));
            }
            _ => return None,
        };
        if range.start > range.end || range.end > buffer.len() {
            return Some(invalid("range outside the buffer"));
        }
        if range.is_empty() && matches!(self, Self::ReceiveInto { .. }) {
            return Some(invalid("empty range to receive into"));
        }
        if filled && buffer.is_shared() {
            return Some(invalid("buffer to be filled is shared"));
        }
        None
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
