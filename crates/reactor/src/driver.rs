//! The interface between a reactor and its driver.
//!
//! Two drivers use the kernel ([`kernel`]: the same sockets over [`uring`] or [`epoll`]), one is
//! simulated ([`crate::simulation`]).

pub(crate) mod choice;
pub(crate) mod epoll;
pub(crate) mod files;
pub(crate) mod kernel;
pub(crate) mod poller;
pub(crate) mod sockets;
pub(crate) mod step;
pub(crate) mod threads;
pub(crate) mod uring;

use crate::operation::{FileId, ListenerId, Operation, ReactorCompletion, SocketId, Token};
use crate::passthrough::Commands;
use crate::records::Records;
use crate::socket::{Life, Marking};
use crate::source::ReadyFlag;
use crate::stream::{FileSource, Stream};
use crate::ublk::Queue;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a turn may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It takes what is there and returns.
    Look,
    /// If there is nothing, it waits for an event, a wake-up or this time.
    Block(Option<Duration>),
}

/// Executes operations. Completions are appended to `ready`.
pub(crate) trait Driver: Debug {
    fn name(&self) -> &'static str;
    fn now(&self) -> Duration;
    /// Whether time passes only by waiting.
    fn is_virtual(&self) -> bool {
        false
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<ListenerId>;
    fn listener_address(&self, listener: ListenerId) -> io::Result<SocketAddr>;
    fn socket_address(&self, socket: SocketId) -> io::Result<SocketAddr>;
    fn peer_address(&self, socket: SocketId) -> io::Result<SocketAddr>;
    /// How what a socket sends is marked.
    fn marking(&self, _socket: SocketId) -> io::Result<Marking> {
        Ok(Marking::default())
    }
    /// The records of a stream whose TLS is the kernel's.
    fn records(&mut self, _socket: SocketId) -> io::Result<Records<'_>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn has_hung_up(&self, socket: SocketId) -> bool;
    /// Whether something of the peer has come within this time.
    fn life_within(&self, socket: SocketId, time: Duration) -> Life;
    fn add_stream(&mut self, stream: Stream) -> io::Result<SocketId>;
    /// `None` if there is no such socket or something is in flight on it.
    fn take_stream(&mut self, socket: SocketId) -> Option<Stream>;
    /// Closing the socket will discard what has not reached the peer.
    fn discard_unsent(&mut self, socket: SocketId);
    fn close(&mut self, socket: SocketId, ready: &mut Vec<ReactorCompletion>);
    fn close_listener(&mut self, listener: ListenerId, ready: &mut Vec<ReactorCompletion>);

    /// Sets the flag whenever the descriptor may have become readable.
    fn watch(&mut self, descriptor: OwnedFd, ready_flag: ReadyFlag) -> io::Result<()>;
    /// A source has to be polled often: the kernel can be polled less often meanwhile.
    fn set_hot(&mut self, _hot: bool) {}

    fn add_file(&mut self, file: FileSource, direct: bool) -> FileId;
    /// The same of a block device, of which completions are polled.
    fn add_polled_file(&mut self, _file: FileSource) -> io::Result<FileId> {
        Err(unpolled())
    }
    /// A namespace without the block layer.
    fn add_nvme_namespace(&mut self, _file: Arc<File>, _commands: Commands) -> io::Result<FileId> {
        Err(uncommanded())
    }
    /// A queue of a ublk device.
    fn add_ublk_queue(&mut self, _queue: &Queue) -> io::Result<FileId> {
        Err(unserved())
    }
    fn remove_file(&mut self, file: FileId);

    /// Begins an operation; one that is express is apart from the others if it can be.
    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
        is_express: bool,
        ready: &mut Vec<ReactorCompletion>,
    );
    fn cancel(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>);

    /// Continues all operations that can make progress. Never blocks if something completed.
    fn turn(&mut self, now: Duration, wait: Wait, ready: &mut Vec<ReactorCompletion>);

    /// Watches a socket apart from the others, or no longer.
    fn set_express(
        &mut self,
        socket: SocketId,
        is_express: bool,
        ready: &mut Vec<ReactorCompletion>,
    ) -> io::Result<()>;
    /// How many sockets are watched apart, and operations on files besides.
    fn express(&self) -> usize;
    /// Hands over what was submitted as express and not handed to the kernel yet.
    fn hand_over_express(&mut self) {}
    /// Whether something that is apart may have something, as cheaply as that can be known.
    fn has_express(&mut self) -> bool;
    /// Continues what is pending on them.
    fn poll_express(&mut self, ready: &mut Vec<ReactorCompletion>);
    /// Sends the next slice of a send of another socket. Whether more are left.
    fn continue_sends(&mut self, ready: &mut Vec<ReactorCompletion>) -> bool;

    /// No further turn follows at once: releases what was kept for it.
    fn release_idle(&mut self) {}

    /// The earliest deadline of the reactor's timers changed. Only a driver with
    /// virtual time uses it.
    fn note_deadline(&mut self, _deadline: Option<Duration>) {}
}

/// What a driver says that cannot serve a device.
pub(crate) fn unserved() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "only io_uring serves ublk devices")
}

/// What a driver says that has no commands of devices.
pub(crate) fn uncommanded() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "only io_uring has the commands of NVMe devices")
}

/// What a driver says that cannot poll a device.
pub(crate) fn unpolled() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "only io_uring polls the completions of a device")
}
