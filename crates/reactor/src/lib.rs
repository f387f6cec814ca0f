//! One thread's event loop, with the buffers, timers and system calls that it needs.
//!
//! # Its layer
//! The lowest one. A [`Reactor`] belongs to one thread. It takes [operations](Operation) (accept,
//! connect, receive, send, read, write, sync, discard, fetch a request of ublk), each with a
//! [`Token`], executes them and returns [completions](ReactorCompletion). It owns what they need:
//! the buffer [`Pool`], timers, [mailboxes](MailboxSender) by which other threads reach it, and the
//! [`SharedRegion`] that several reactors may read and write at once. Its three drivers behave
//! alike: io_uring; epoll with a few threads for files; and a deterministic one without a kernel
//! ([`simulation`]), whose runs can be repeated from their seed.
//!
//! # What it must not depend on
//! NVMe, or anything else about the bytes that it moves. Its users: tokens have meaning only to
//! them.
//!
//! # Invariants
//! - Every operation ends in exactly one final completion, and its memory belongs to it until
//!   then. The contract is written where [operations](operation) are defined.
//! - This is the only crate (beside the bindings of RDMA verbs and TLS) that says `unsafe`, and the
//!   only one that reads a clock. All others are given the time.
//! - Nothing is allocated per operation once the tables have grown to their size, and operations
//!   on sockets and rings take no lock.
//! - An idle connection holds no buffer and costs no work in a turn. An idle reactor sleeps in the
//!   kernel.
//! - A wake-up from another thread ends each wait; none is lost (the argument is in `mailbox.rs`).

mod driver;
mod limits;
mod loop_device;
mod mailbox;
mod mapping;
mod message;
pub mod operation;
mod passthrough;
mod pool;
mod private_file;
mod reactor;
mod records;
mod region;
mod setup;
pub mod simulation;
mod slab;
mod socket;
mod source;
mod stream;
pub mod system;
mod timers;
pub mod ublk;

/// What tests/ordering has loom's own of, in the modules that it compiles.
mod sync {
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
    pub(crate) use std::{hint, thread};
}

pub use limits::SEND_SLICE_BYTES;
pub use loop_device::LoopBacking;
pub use mailbox::{Mailbox, MailboxSender, Waker};
pub use message::Message;
pub use operation::{
    Endpoint, FileId, ListenerId, Operation, Outcome, Owner, ReactorCompletion, SocketId, Token,
};
pub use passthrough::{NvmeFormat, NvmeNamespace};
pub use pool::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, Borrower, Buffer, Lender, Pool, loan};
pub use private_file::{no_wait, open_regular, read_private_file};
pub use reactor::{Reactor, WaitLimit};
pub use records::{
    RecordDirection, RecordType, Records, check_kernel_cipher, check_kernel_records,
    kernel_replaces_keys,
};
pub use region::SharedRegion;
pub use setup::{Config, DRIVER_VARIABLE, DriverKind, RingMode, SetupError};
pub use socket::{Life, Marking, congestion_between};
pub use source::{ReadyFlag, Source};
pub use stream::{FileSource, Stream};
pub use system::{
    KillTimer, descriptor_limit, descriptors_in_use, interface_name, is_clock_synchronized,
    lease_time, monotonic_time, pin_current_thread, process_cpu_time, raise_descriptor_limit,
    real_time, set_descriptor_limit, thread_cpu_time,
};
