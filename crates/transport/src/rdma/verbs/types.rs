//! Plain types of the verbs, independent of the device.

use std::{fmt, io};

/// The maximum length of private data that a message of the connection manager delivers.
pub(crate) const PRIVATE_DATA_BYTES: usize = 255;

/// Scatter/gather elements of a work request. A receive has two: the command, and its in-capsule
/// data on a page of its own.
pub(crate) const PIECES: usize = 2;

/// What soft-iWARP copies into the header of a message of one piece (MAX_HDR_INLINE of siw).
pub(crate) const SOFT_IWARP_SHORT_BYTES: u32 = 32;

/// The properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its name in the kernel.
    pub name: String,
    /// Its transport.
    pub kind: DeviceKind,
    /// Work requests of a queue (`max_qp_wr`).
    pub queue_depth_max: u32,
    /// Queue pairs (`max_qp`).
    pub queue_pairs_max: u32,
    /// Entries of a completion queue (`max_cqe`).
    pub completion_entries_max: u32,
    /// Scatter/gather elements of a work request (`max_sge`).
    pub pieces_max: u32,
    /// Outstanding RDMA READs of a queue pair as initiator (`max_qp_init_rd_atom`).
    pub initiator_depth_max: u8,
    /// Outstanding RDMA READs of the peer that a queue pair can serve (`max_qp_rd_atom`).
    pub responder_resources_max: u8,
    /// Whether it supports SEND with invalidate (`IBV_DEVICE_MEM_MGT_EXTENSIONS`).
    pub send_with_invalidate: bool,
    /// Whether it has memory windows of type 2B (`IBV_DEVICE_MEM_WINDOW_TYPE_2B`).
    pub memory_windows: bool,
    /// Whether it is Linux' soft-RoCE (rxe). Its driver dereferences a null pointer when it
    /// invalidates a memory window that is not bound (`rxe_invalidate_mw` of Linux 6.12, seen under
    /// load). It also reports an invalidated key by the kernel's flag.
    pub soft_roce: bool,
    /// Whether it is Linux' soft-iWARP (siw), which deviates from the verbs:
    /// - an inline SEND cannot invalidate a key;
    /// - an unsignalled WRITE lends its pages to TCP, which may read them after later work has
    ///   completed; a signalled one is copied;
    /// - work completes while an earlier READ is outstanding;
    /// - on the side that accepts a connection, the first message may not be noticed until another
    ///   arrives.
    pub soft_iwarp: bool,
}

/// The transport of a device.
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

/// The rights to a memory region, besides local read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    /// Local writes: by receives and by RDMA READs of this side.
    pub(crate) local_write: bool,
    /// The peer may read it.
    pub(crate) remote_read: bool,
    /// The peer may write to it.
    pub(crate) remote_write: bool,
    /// Memory windows may be bound to parts of it.
    pub(crate) bind: bool,
}

/// How a host gives the controller access to a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAccess {
    /// A memory window of type 2B gives its own queue pair access to the command's buffer while the
    /// command is in flight.
    Window,
    /// Data is copied to and from memory that only this connection uses, in a protection domain of
    /// its own.
    Lease,
    /// All registered memory is accessible, at any time, to every controller that this reactor is
    /// connected to over that device.
    Wide,
}

impl RemoteAccess {
    /// The name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Lease => "lease",
            Self::Wide => "wide",
        }
    }

    /// The access of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Window, Self::Lease, Self::Wide].into_iter().find(|one| one.name() == name)
    }
}

impl Attributes {
    /// The narrowest access that the device supports, except windows where they can crash the
    /// kernel.
    #[must_use]
    pub const fn narrowest_access(&self) -> RemoteAccess {
        let windows = self.memory_windows && !self.soft_roce;
        if windows { RemoteAccess::Window } else { RemoteAccess::Lease }
    }

    /// Whether the sink of an RDMA READ must be remotely writable: iWARP adapters respond to a READ
    /// by writing. Soft-iWARP distinguishes responses, and needs only local rights.
    pub(crate) fn sink_is_remote(&self) -> bool {
        self.kind == DeviceKind::Iwarp && !self.soft_iwarp
    }
}

/// A failed registration of memory with a device.
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

/// A scatter/gather element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// The local key of its region.
    pub(crate) key: u32,
}

/// One or two elements; an empty one ends the list.
pub(crate) type Pieces = [Piece; PIECES];

/// The operation of a send queue work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOperation {
    /// SEND.
    Send,
    /// SEND_WITH_INV: invalidates the peer's key when the message arrives.
    SendInvalidate {
        /// The peer's key.
        key: u32,
    },
    /// RDMA READ: from the peer's memory to local memory.
    Read {
        /// The peer's address.
        address: u64,
        /// The peer's key.
        key: u32,
    },
    /// RDMA WRITE: from local memory to the peer's.
    Write {
        /// The peer's address.
        address: u64,
        /// The peer's key.
        key: u32,
    },
    /// Binds a memory window of this queue pair, as set by `prepare_window`.
    Bind {
        /// Its number.
        window: u16,
    },
    /// Invalidates a memory window of this queue pair.
    Invalidate {
        /// Its key.
        key: u32,
    },
}

/// A work request of the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendWork {
    /// Returned with its completion.
    pub(crate) work: u64,
    pub(crate) operation: SendOperation,
    pub(crate) pieces: Pieces,
    /// Whether it is signalled. A failure is always reported.
    pub(crate) signalled: bool,
    /// Whether the data is copied by the post, after which its memory is free (at most
    /// [`QueuePairLimits::inline_bytes`]).
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
    /// Returned with its completion.
    pub(crate) work: u64,
    pub(crate) pieces: Pieces,
}

/// The sizes of a queue pair to create. All its work completes in one completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuePairOptions {
    pub(crate) send_depth: u32,
    pub(crate) receive_depth: u32,
    /// Wanted bytes of inline data; the device may support fewer.
    pub(crate) inline_bytes: u32,
    /// Its memory windows.
    pub(crate) windows: u16,
}

/// What a memory window gives access to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowRange {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// Remote write; otherwise remote read.
    pub(crate) written: bool,
}

/// The actual sizes of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuePairLimits {
    /// The queue pair's number, as in [`WorkCompletion::queue_pair`].
    pub(crate) number: u32,
    pub(crate) inline_bytes: u32,
}

/// A work completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkCompletion {
    pub(crate) work: u64,
    pub(crate) queue_pair: u32,
    pub(crate) status: WorkStatus,
    /// Bytes received, for a successful receive.
    pub(crate) bytes: u32,
    /// The key that the peer's SEND has invalidated.
    pub(crate) invalidated: Option<u32>,
}

/// The status of a work completion (`ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkStatus(pub u32);

impl WorkStatus {
    /// `IBV_WC_SUCCESS`.
    pub const SUCCESS: Self = Self(0);
    /// A message is longer than its receive.
    pub const LOCAL_LENGTH: Self = Self(1);
    /// A scatter/gather element is not within registered memory.
    pub const LOCAL_PROTECTION: Self = Self(4);
    /// The queue pair had failed before.
    pub const FLUSHED: Self = Self(5);
    /// The peer found the request invalid.
    pub const REMOTE_INVALID_REQUEST: Self = Self(9);
    /// The request has no right to access the peer's memory.
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer failed to execute the request.
    pub const REMOTE_OPERATION: Self = Self(11);
    /// The peer does not respond.
    pub const RETRIES_EXCEEDED: Self = Self(12);
    /// The peer posted no receive within the retries.
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
            Self::RETRIES_EXCEEDED => "the peer does not respond",
            Self::RECEIVER_NOT_READY => "the peer's receive queue stayed empty",
            Self(other) => return write!(formatter, "work completion status {other}"),
        };
        formatter.write_str(text)
    }
}

/// A fault of a device that is reported asynchronously.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceFault {
    /// A queue pair (`IBV_EVENT_QP_FATAL`).
    QueuePair,
    /// A queue pair, after an invalid request of the peer (`IBV_EVENT_QP_REQ_ERR`).
    Request,
    /// A queue pair, after an invalid access of the peer (`IBV_EVENT_QP_ACCESS_ERR`).
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
            Self::Request => "the peer's request was invalid",
            Self::Access => "the peer accessed memory without the right to it",
            Self::CompletionQueue => "a completion queue has failed",
            Self::Device => "the device has failed",
        })
    }
}

/// An asynchronous event of a device (`ibv_async_event`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
    /// The queue pair of this number has failed.
    QueuePair(u32, DeviceFault),
    /// The completion queue of this key has failed.
    CompletionQueue(u64),
    /// The device has failed as a whole.
    Fatal,
    /// A port came up or went down. Its connections may survive within their time-outs.
    Port { port: u8, active: bool },
}

/// Private data of the connection manager's messages.
#[derive(Clone, Copy)]
pub(crate) struct PrivateData {
    bytes: [u8; PRIVATE_DATA_BYTES],
    length: u8,
}

impl PrivateData {
    /// Copies up to [`PRIVATE_DATA_BYTES`] bytes.
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

/// The parameters of a connection request or its reply (`rdma_conn_param`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) private_data: PrivateData,
    /// Outstanding RDMA READs of the peer that this side can serve.
    pub(crate) responder_resources: u8,
    /// Outstanding RDMA READs of this side.
    pub(crate) initiator_depth: u8,
}

/// An event of the connection manager for one endpoint or listener, with requests of this type.
#[derive(Debug)]
pub(crate) struct ManagerEvent<I> {
    /// The key of the endpoint or, for a request, of the listener.
    pub(crate) key: u64,
    pub(crate) event: CmEvent<I>,
}

impl<I> ManagerEvent<I> {
    /// The same with another type of request.
    pub(crate) fn map<J>(self, into: impl FnOnce(I) -> J) -> ManagerEvent<J> {
        let event = match self.event {
            CmEvent::AddressResolved => CmEvent::AddressResolved,
            CmEvent::RouteResolved => CmEvent::RouteResolved,
            CmEvent::Requested { incoming, parameters } => {
                CmEvent::Requested { incoming: into(incoming), parameters }
            }
            CmEvent::Established { parameters } => CmEvent::Established { parameters },
            CmEvent::Rejected { reason, private_data } => {
                CmEvent::Rejected { reason, private_data }
            }
            CmEvent::Failed { step, error } => CmEvent::Failed { step, error },
            CmEvent::Disconnected => CmEvent::Disconnected,
            CmEvent::DeviceRemoved => CmEvent::DeviceRemoved,
            CmEvent::AddressChanged => CmEvent::AddressChanged,
        };
        ManagerEvent { key: self.key, event }
    }
}

/// The kind of an event of the connection manager.
#[derive(Debug)]
pub(crate) enum CmEvent<I> {
    /// The peer's address, and so the device, is resolved.
    AddressResolved,
    /// The route is resolved: the queue pair can be created and `connect` called.
    RouteResolved,
    /// A connection request to a listener.
    Requested {
        /// To be adopted, accepted or rejected.
        incoming: I,
        /// The peer's parameters from this side's view, as rdma_cm reports them: `initiator_depth`
        /// READs the peer can serve, `responder_resources` it wants served.
        parameters: Parameters,
    },
    /// The connection is established. On the side that accepted, the parameters are empty.
    Established {
        /// The peer's parameters.
        parameters: Parameters,
    },
    /// The peer has rejected the connection.
    Rejected {
        /// The connection manager's reason.
        reason: i32,
        /// The peer's private data.
        private_data: PrivateData,
    },
    /// The connection could not be established.
    Failed {
        /// The step that failed, in words.
        step: &'static str,
        /// The error number, positive.
        error: i32,
    },
    /// The connection has ended: by the peer, or by `disconnect`.
    Disconnected,
    /// The device is being removed.
    DeviceRemoved,
    /// The local address has moved to another device.
    AddressChanged,
}

/// A post that failed, perhaps after a part of its chain.
#[derive(Debug)]
pub(crate) struct PostError {
    /// How many requests were posted.
    pub(crate) posted: usize,
    /// The error of the next one.
    pub(crate) error: io::Error,
}
