//! Bytes coming in and going out.

use super::{Kind, Receive, Send, Socket, Sockets, refuse};
use crate::driver::poller::Poller;
use crate::message::{Message, PIECES_MAX};
use crate::operation::{Operation, Outcome, ReactorCompletion, SocketId, Token};
use crate::slab::Key;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

impl Sockets {
    pub(super) fn receive(
        &mut self,
        token: Token,
        socket: SocketId,
        operation: Operation,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(socket.0) else {
            return refuse(token, operation, Errno::BADF, ready);
        };
        if stream.receive.is_some() {
            return refuse(token, operation, Errno::ALREADY, ready);
        }
        let into = match operation {
            Operation::ReceiveInto { buffer, range, .. } => Some((buffer, range)),
            _ => None,
        };
        stream.receive = Some(Receive { token, into });
        if stream.readable {
            self.runnable.push(socket.0);
        }
        self.tokens.insert(token, socket.0);
    }

    pub(super) fn try_receive<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        now: Duration,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let Some(Socket { kind: Kind::Stream(stream), descriptor, watched, express }) =
            self.table.get_mut(key)
        else {
            return;
        };
        let Some(receive) = &mut stream.receive else { return };
        let bytes = match &mut receive.into {
            Some((buffer, range)) => &mut buffer.bytes_mut()[range.clone()],
            None => {
                if self.spare.is_none() {
                    self.spare = self.pool.take_largest(self.receive_bytes);
                }
                match &mut self.spare {
                    Some(buffer) => buffer.bytes_mut(),
                    None => return self.starved.push(key),
                }
            }
        };
        let wanted = bytes.len();
        let result = loop {
            match rustix::net::recv(&*descriptor, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((count, _)) => break Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => break Err(error),
            }
        };
        if let Err(Errno::AGAIN) = result {
            // Even of an ended stream there is an edge to come: its last bytes.
            stream.readable = false;
            self.ensure_watched(poller, key, ready);
            return;
        }
        // Less than was asked for means that the kernel has no more, and the next bytes come with
        // an edge; but not after the end, not if nobody watches for it yet, and not before a record
        // of another type.
        stream.readable = stream.ended || stream.records || !*watched || result == Ok(wanted);
        // An express stream is reported by a poller of its own.
        if !*express {
            self.hot.had_bytes(key, now);
        }
        let Some(receive) = stream.receive.take() else { return };
        let outcome = match (result, receive.into) {
            (Ok(len), Some((buffer, _))) => Outcome::ReceivedInto { buffer, len },
            (Ok(len), None) => {
                let Some(mut buffer) = self.spare.take() else { return };
                self.pool.fit(&mut buffer, len);
                Outcome::Received { buffer, len }
            }
            (Err(error), into) => {
                let buffer = into.map(|(buffer, _)| buffer);
                Outcome::Failed { error: error.into(), buffer, message: None }
            }
        };
        self.finish(receive.token, outcome, ready);
    }

    pub(super) fn send<P: Poller>(
        &mut self,
        poller: &mut P,
        token: Token,
        operation: Operation,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let Operation::Send { socket, .. } = operation else { return };
        let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(socket.0) else {
            return refuse(token, operation, Errno::BADF, ready);
        };
        if stream.send.is_some() {
            return refuse(token, operation, Errno::ALREADY, ready);
        }
        let Operation::Send { mut message, .. } = operation else { return };
        message.rewind();
        stream.send = Some(Send { token, message });
        if !stream.writable || !self.try_send(poller, socket.0, ready) {
            self.tokens.insert(token, socket.0);
        }
    }

    /// Sends what the kernel takes. Whether the operation is over.
    pub(super) fn try_send<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        ready: &mut Vec<ReactorCompletion>,
    ) -> bool {
        let Some(socket) = self.table.get(key) else { return true };
        let most = self.slice_of(socket);
        let Some(Socket { kind: Kind::Stream(stream), descriptor, .. }) = self.table.get_mut(key)
        else {
            return true;
        };
        let Some(send) = &mut stream.send else { return true };
        let result = send_slice(descriptor, &mut send.message, most);
        if let Err(Errno::AGAIN) = result {
            stream.writable = false;
            return !self.ensure_watched(poller, key, ready);
        }
        if result.is_ok() && send.message.unsent() > 0 {
            self.sliced.push_back(key);
            return false;
        }
        let Some(Send { token, message }) = stream.send.take() else { return true };
        let outcome = match result {
            Ok(()) => Outcome::Sent { message },
            Err(error) => {
                Outcome::Failed { error: error.into(), buffer: None, message: Some(message) }
            }
        };
        self.finish(token, outcome, ready);
        true
    }
}

/// Sends until nothing is left, at least `most` bytes were sent, or the kernel takes no more, which
/// leaves EAGAIN behind: only a socket that has said so raises an edge when there is room again.
fn send_slice(descriptor: &OwnedFd, message: &mut Message, most: usize) -> Result<(), Errno> {
    let mut left = most;
    while message.unsent() > 0 && left > 0 {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match message.last_piece() {
            Some(piece) => rustix::net::send(descriptor, &piece[..piece.len().min(left)], flags),
            None => send_pieces(descriptor, message, left, flags),
        };
        match sent {
            Ok(count) => {
                message.advance(count);
                left = left.saturating_sub(count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send_pieces(
    descriptor: &OwnedFd,
    message: &Message,
    most: usize,
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let mut slices = [const { MaybeUninit::uninit() }; PIECES_MAX];
    let pieces = message.gather(&mut slices, most);
    rustix::net::sendmsg(descriptor, pieces, &mut SendAncillaryBuffer::default(), flags)
}
