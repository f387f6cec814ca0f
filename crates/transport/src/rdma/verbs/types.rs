//! Plain types of the verbs, the same over every device.

use std::fmt;
use std::io;

/// Bytes of private data that a message of the connection manager can carry to us, at most.
pub(crate) const PRIVATE_DATA_BYTES: usize = 255;

/// Pieces of local memory that one work request can name. A receive has two: the command, and its
/// in-capsule data on a page of its own.
pub(crate) const PIECES: usize = 2;

/// What soft-iWARP copies into the header of a message of one piece (MAX_HDR_INLINE of siw).
pub(crate) const SOFT_IWARP_SHORT_BYTES: u32 = 32;

/// What a device is and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its name, as the kernel has it.
    pub name: String,
    /// What carries it.
    pub kind: DeviceKind,
    /// Work requests of a queue (`max_qp_wr`).
    pub queue_depth_max: u32,
    /// Queue pairs (`max_qp`).
    pub queue_pairs_max: u32,
    /// Entries of a completion queue (`max_cqe`).
    pub completion_entries_max: u32,
    /// Pieces of memory of a work request (`max_sge`).
    pub pieces_max: u32,
    /// RDMA READs that a queue pair may have outstanding as their initiator
    /// (`max_qp_init_rd_atom`).
    pub initiator_depth_max: u8,
    /// RDMA READs of the peer that a queue pair can serve at a time (`max_qp_rd_atom`).
    pub responder_resources_max: u8,
    /// Whether a send can invalidate a key of the peer's (`IBV_DEVICE_MEM_MGT_EXTENSIONS`).
    pub send_with_invalidate: bool,
    /// Whether it has memory windows of type 2B (`IBV_DEVICE_MEM_WINDOW_TYPE_2B`).
    pub memory_windows: bool,
    /// Whether it is Linux' soft-RoCE (rxe). Its driver dereferences a null pointer when it
    /// invalidates a memory window that is not open (`rxe_invalidate_mw` of Linux 6.12), which was
    /// seen under load. It also tells of an invalidated key by the kernel's own number.
    pub soft_roce: bool,
    /// Whether it is Linux' soft-iWARP (siw), which differs from what the verbs promise:
    /// - what is sent inline cannot invalidate a key;
    /// - an unsignalled WRITE lends its pages to TCP, which may read them when later work has
    ///   ended; a signalled one is copied;
    /// - work is done while a READ posted before it is under way;
    /// - on the side that accepts a connection, the first message can lie until something follows.
    pub soft_iwarp: bool,
}

/// What carries a device's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Converged Ethernet.
    Roce,
    /// iWARP: the sink of an RDMA READ needs remote write access there.
    Iwarp,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Iwarp => "iWARP",
        })
    }
}

/// What may be done with a region of memory besides reading it locally.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    /// Receives and RDMA READs of our own may write to it.
    pub(crate) local_write: bool,
    /// The peer may read it.
    pub(crate) remote_read: bool,
    /// The peer may write to it.
    pub(crate) remote_write: bool,
    /// Memory windows may be bound to parts of it.
    pub(crate) bind: bool,
}

/// How a host opens the memory of a command to its controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAccess {
    /// A memory window of type 2B opens the command's buffer, while the command is in flight, to
    /// its own queue pair.
    Window,
    /// Data is copied to and from memory that only this connection uses, in a protection domain of
    /// its own.
    Lease,
    /// All memory that is registered is open, at any time, to every controller that this reactor
    /// is connected to over that device.
    Wide,
}

impl RemoteAccess {
    /// As options and reports name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Lease => "lease",
            Self::Wide => "wide",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Window, Self::Lease, Self::Wide].into_iter().find(|one| one.name() == name)
    }
}

impl Attributes {
    /// The narrowest that the device has; but no windows where they can take the kernel down.
    #[must_use]
    pub const fn narrowest_access(&self) -> RemoteAccess {
        let windows = self.memory_windows && !self.soft_roce;
        if windows { RemoteAccess::Window } else { RemoteAccess::Lease }
    }

    /// Whether the sink of an RDMA READ has to be open to the peer: iWARP's adapters answer READs
    /// by writing. Soft-iWARP knows which answer is which, and asks only for local rights.
    pub(crate) fn sink_is_remote(&self) -> bool {
        self.kind == DeviceKind::Iwarp && !self.soft_iwarp
    }
}

/// Memory that could not be registered with a device.
#[derive(Debug)]
pub(crate) struct NotRegistered {
    pub(crate) device: String,
    pub(crate) bytes: usize,
    pub(crate) error: io::Error,
}

impl From<NotRegistered> for io::Error {
    fn from(failed: NotRegistered) -> Self {
        Self::new(failed.error.kind(), failed)
    }
}

impl fmt::Display for NotRegistered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} bytes cannot be registered with {} (is RLIMIT_MEMLOCK, `ulimit -l`, large \
             enough?): {}",
            self.bytes, self.device, self.error
        )
    }
}

impl std::error::Error for NotRegistered {}

/// A piece of registered local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// The local key of its region.
    pub(crate) key: u32,
}

/// One or two pieces; an empty one ends the list.
pub(crate) type Pieces = [Piece; PIECES];

/// What a work request of the send queue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOperation {
    /// SEND.
    Send,
    /// SEND_WITH_INV: the peer's key is void when it gets the message.
    SendInvalidate {
        /// The peer's key.
        key: u32,
    },
    /// RDMA READ: the peer's memory into ours.
    Read {
        /// The peer's address.
        address: u64,
        /// The peer's key.
        key: u32,
    },
    /// RDMA WRITE: our memory into the peer's.
    Write {
        /// The peer's address.
        address: u64,
        /// The peer's key.
        key: u32,
    },
    /// Opens a memory window of this queue pair, as its endpoint was told by `prepare_window`.
    Bind {
        /// Which.
        window: u16,
    },
    /// Closes a memory window of this queue pair.
    Invalidate {
        /// Its key.
        key: u32,
    },
}

/// A work request of the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendWork {
    /// Comes back with its completion.
    pub(crate) work: u64,
    pub(crate) operation: SendOperation,
    pub(crate) pieces: Pieces,
    /// Whether it completes visibly also if it succeeds. A failure is always reported.
    pub(crate) signalled: bool,
    /// Whether the bytes are taken at once, so that their memory is free when posting returns
    /// (at most [`QueuePairLimits::inline_bytes`]).
    pub(crate) inline: bool,
}

impl SendWork {
    /// A work request without memory.
    pub(crate) fn of(operation: SendOperation) -> Self {
        Self { work: 0, operation, pieces: Pieces::default(), signalled: false, inline: false }
    }
}

/// A work request of the receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceiveWork {
    /// Comes back with its completion.
    pub(crate) work: u64,
    pub(crate) pieces: Pieces,
}

/// Sizes of a queue pair that is to be made. All its work completes in one completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuePairOptions {
    pub(crate) send_depth: u32,
    pub(crate) receive_depth: u32,
    /// Bytes that should be sendable inline; a device that cannot gives fewer.
    pub(crate) inline_bytes: u32,
    /// Memory windows that belong to it.
    pub(crate) windows: u16,
}

/// What a memory window is to open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// For the peer to write; otherwise to read.
    pub(crate) written: bool,
}

/// What a queue pair has come out as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuePairLimits {
    /// The queue pair's number, as in [`WorkCompletion::queue_pair`].
    pub(crate) number: u32,
    pub(crate) inline_bytes: u32,
}

/// The end of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkCompletion {
    pub(crate) work: u64,
    pub(crate) queue_pair: u32,
    pub(crate) status: WorkStatus,
    /// Bytes received, for a receive that succeeded.
    pub(crate) bytes: u32,
    /// The key that the peer has invalidated with its send.
    pub(crate) invalidated: Option<u32>,
}

/// The status of a work completion (`ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkStatus(pub u32);

impl WorkStatus {
    /// It is done.
    pub const SUCCESS: Self = Self(0);
    /// A message is longer than its receive has room.
    pub const LOCAL_LENGTH: Self = Self(1);
    /// The local memory is not what the work request says.
    pub const LOCAL_PROTECTION: Self = Self(4);
    /// The queue pair had failed already.
    pub const FLUSHED: Self = Self(5);
    /// The peer says that the request makes no sense to it.
    pub const REMOTE_INVALID_REQUEST: Self = Self(9);
    /// The peer's memory may not be accessed like that.
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer failed to carry the request out.
    pub const REMOTE_OPERATION: Self = Self(11);
    /// The peer does not answer.
    pub const RETRIES_EXCEEDED: Self = Self(12);
    /// The peer had posted no receive, for too long.
    pub const RECEIVER_NOT_READY: Self = Self(13);
}

impl fmt::Display for WorkStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::SUCCESS => "success",
            Self::LOCAL_LENGTH => "local length error",
            Self::LOCAL_PROTECTION => "local protection error",
            Self::FLUSHED => "flushed with its queue pair",
            Self::REMOTE_INVALID_REQUEST => "remote invalid request",
            Self::REMOTE_ACCESS => "remote access error",
            Self::REMOTE_OPERATION => "remote operation error",
            Self::RETRIES_EXCEEDED => "the peer does not answer",
            Self::RECEIVER_NOT_READY => "the peer's receive queue stayed empty",
            Self(other) => return write!(formatter, "work completion status {other}"),
        };
        formatter.write_str(text)
    }
}

/// What has failed of a device, as it says by itself and not in answer to any work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceFault {
    /// A queue pair (`IBV_EVENT_QP_FATAL`).
    QueuePair,
    /// A queue pair, for the peer's request made no sense (`IBV_EVENT_QP_REQ_ERR`).
    Request,
    /// A queue pair, for the peer wanted to access what it may not (`IBV_EVENT_QP_ACCESS_ERR`).
    Access,
    /// A completion queue, and with it all its queue pairs (`IBV_EVENT_CQ_ERR`).
    CompletionQueue,
    /// The whole device (`IBV_EVENT_DEVICE_FATAL`).
    Device,
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::QueuePair => "the queue pair has failed",
            Self::Request => "the peer's request made no sense",
            Self::Access => "the peer wanted to access memory that it may not",
            Self::CompletionQueue => "a completion queue has failed",
            Self::Device => "the device has failed",
        })
    }
}

/// Something that a device says by itself (`ibv_async_event`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
    /// The queue pair of this number has failed.
    QueuePair(u32, DeviceFault),
    /// The completion queue of this key has failed.
    CompletionQueue(u64),
    /// The device has failed: nothing on it works any more.
    Fatal,
    /// A port is there, or no longer. Connections over it live or die by their own time-outs.
    Port { port: u8, active: bool },
}

/// Private data of the connection manager's messages.
#[derive(Clone, Copy)]
pub(crate) struct PrivateData {
    bytes: [u8; PRIVATE_DATA_BYTES],
    length: u8,
}

impl PrivateData {
    /// The first [`PRIVATE_DATA_BYTES`] of these bytes.
    pub(crate) fn new(from: &[u8]) -> Self {
        let mut this = Self { bytes: [0; PRIVATE_DATA_BYTES], length: 0 };
        for (place, byte) in this.bytes.iter_mut().zip(from) {
            *place = *byte;
            this.length = this.length.saturating_add(1);
        }
        this
    }

    /// The bytes. Some providers pad them with zeroes to the message's full length.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PrivateData").field(&self.bytes()).finish()
    }
}

/// What the two sides tell each other when they connect (`rdma_conn_param`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) private_data: PrivateData,
    /// RDMA READs of the peer that this side can serve at a time.
    pub(crate) responder_resources: u8,
    /// RDMA READs that this side will have outstanding.
    pub(crate) initiator_depth: u8,
}

/// Something that the connection manager says about one endpoint or listener.
#[derive(Debug)]
pub(crate) struct ManagerEvent {
    /// The key of the endpoint or, for a request, of the listener.
    pub(crate) key: u64,
    pub(crate) event: CmEvent,
}

/// What the connection manager says.
#[derive(Debug)]
pub(crate) enum CmEvent {
    /// The peer's address is known, and with it the device.
    AddressResolved,
    /// The way there is known: the queue pair can be made and `connect` be called.
    RouteResolved,
    /// Somebody wants to connect to a listener.
    Requested {
        /// To be adopted, accepted or rejected.
        incoming: super::Incoming,
        /// What the peer says, turned round to this side as rdma_cm does it: `initiator_depth`
        /// READs it can serve for us, `responder_resources` it wants us to serve for it.
        parameters: Parameters,
    },
    /// The connection stands. On the side that accepted, the parameters are empty.
    Established {
        /// What the peer says.
        parameters: Parameters,
    },
    /// The peer does not want the connection.
    Rejected {
        /// The manager's own reason.
        reason: i32,
        /// What the peer says about it.
        private_data: PrivateData,
    },
    /// The connection cannot be made.
    Failed {
        /// Which step failed, in words.
        step: &'static str,
        /// The error number, positive.
        error: i32,
    },
    /// The peer has disconnected, or `disconnect` is done.
    Disconnected,
    /// The device goes away.
    DeviceRemoved,
    /// The local address has moved to another device.
    AddressChanged,
}

/// Not everything was posted.
#[derive(Debug)]
pub(crate) struct PostError {
    /// How many of the chain were.
    pub(crate) posted: usize,
    /// Why the next one was not.
    pub(crate) error: io::Error,
}
