//! The interface between the driver over the kernel and what reports readiness to it.

use crate::driver::files::FileOperation;
use crate::driver::{Wait, uncommanded, unpolled};
use crate::operation::{ReactorCompletion, Token};
use crate::slab::Key;
use rustix::event::Timespec;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What the kernel reported about a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) key: Key,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has ended the stream, or the connection is broken: no further edge may come.
    pub(crate) ended: bool,
    /// More reports may follow. Otherwise the watch is over and has to be set up anew.
    pub(crate) is_watched: bool,
}

/// Where readiness and the completions of file operations come from.
pub(crate) trait Poller: Debug {
    const NAME: &'static str;

    /// Whether it has the commands of devices (IORING_OP_URING_CMD).
    const HAS_COMMANDS: bool = false;

    /// From now on every edge of the descriptor's readiness is reported under `key`, beginning
    /// with its present state.
    fn watch(&mut self, descriptor: BorrowedFd<'_>, key: Key) -> io::Result<()>;

    /// Undoes [`watch`](Self::watch). Reports that are pending may still come.
    fn unwatch(&mut self, descriptor: BorrowedFd<'_>, key: Key);

    fn submit_file(&mut self, operation: FileOperation, ready: &mut Vec<ReactorCompletion>);
    fn cancel_file(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>);

    /// Makes ready for operations on polled files.
    fn prepare_polling(&mut self) -> io::Result<()> {
        Err(unpolled())
    }

    /// Makes ready for namespaces without the block layer.
    fn prepare_commands(&mut self) -> io::Result<()> {
        Err(uncommanded())
    }

    /// Whether a poller that watches express sockets has operations on files as well.
    const HAS_EXPRESS_FILES: bool = false;

    /// How many operations on files it has.
    fn files_in_flight(&self) -> usize {
        0
    }

    /// Hands over what was submitted and not handed to the kernel yet.
    fn hand_over(&mut self) {}

    /// Whether a poll would find something, as far as is known without a system call.
    fn has_ready(&mut self) -> bool;

    /// Another poller, that watches sockets only.
    fn for_express(&self) -> io::Result<Self>
    where
        Self: Sized;

    /// Whether a poll of a poller that watches sockets only would find something.
    fn is_reported(&mut self) -> bool;

    /// Takes the kernel's reports, after waiting for one if `wait` says so.
    fn poll(
        &mut self,
        now: Duration,
        wait: Wait,
        readiness: &mut Vec<Ready>,
        ready: &mut Vec<ReactorCompletion>,
    );
}

/// A duration as the kernel takes it; a longer one becomes the longest.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
