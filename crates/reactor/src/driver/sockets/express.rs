//! Express sockets, which are served between the work for others, and the sends of the others in
//! slices meanwhile.

use super::{Kind, Socket, Sockets};
use crate::driver::poller::Poller;
use crate::limits::SEND_SLICE_BYTES;
use crate::operation::ReactorCompletion;
use crate::slab::Key;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

impl Sockets {
    /// How many sockets are express.
    pub(crate) const fn express(&self) -> usize {
        self.express
    }

    /// Has a poller of their own report a stream, beside the one of all sockets.
    pub(crate) fn enter_express<P: Poller>(&mut self, poller: &mut P, key: Key) -> io::Result<()> {
        let Some(socket) = self.table.get_mut(key) else { return Err(Errno::BADF.into()) };
        if !socket.express && matches!(socket.kind, Kind::Stream(_)) {
            poller.watch(socket.descriptor.as_fd(), key)?;
            socket.express = true;
            self.express += 1;
        }
        Ok(())
    }

    /// Undoes that.
    pub(crate) fn leave_express<P: Poller>(&mut self, poller: &mut P, key: Key) {
        let Some(socket) = self.table.get_mut(key) else { return };
        if !std::mem::take(&mut socket.express) {
            return;
        }
        self.express -= 1;
        poller.unwatch(socket.descriptor.as_fd(), key);
        // What the poller had to report is not known: both directions are tried.
        let Kind::Stream(stream) = &mut socket.kind else { return };
        (stream.readable, stream.writable) = (true, true);
        if stream.receive.is_some() {
            self.runnable.push(key);
        }
        if stream.send.is_some() {
            self.sliced.push_back(key);
        }
    }

    /// The watch of an express stream is over: begins another. Without it the stream is served with
    /// the others.
    pub(crate) fn watch_express_again<P: Poller>(&mut self, poller: &mut P, key: Key) {
        let Some(socket) = self.table.get_mut(key) else { return };
        if socket.express && poller.watch(socket.descriptor.as_fd(), key).is_err() {
            socket.express = false;
            self.express -= 1;
        }
    }

    /// Sends the next slice of a message. Whether more are left.
    pub(crate) fn continue_sends<P: Poller>(
        &mut self,
        poller: &mut P,
        ready: &mut Vec<ReactorCompletion>,
    ) -> bool {
        if let Some(key) = self.sliced.pop_front() {
            self.try_send(poller, key, ready);
        }
        !self.sliced.is_empty()
    }

    /// How much of a message is sent at once.
    pub(super) const fn slice_of(&self, socket: &Socket) -> usize {
        let is_whole = self.express == 0 || socket.express;
        if is_whole { usize::MAX } else { SEND_SLICE_BYTES }
    }
}
