//! Accepting and making connections.

use super::{Kind, Socket, Sockets, Stream, polls};
use crate::driver::poller::Poller;
use crate::limits::ACCEPTS_PER_TURN;
use crate::operation::{Operation, Outcome, ReactorCompletion, SocketId, Token};
use crate::slab::Key;
use crate::socket::{
    choose_congestion_control, connect_unpaced, internet_address, keep_alive, set_reset_at_close,
    tcp_socket,
};
use crate::system::monotonic_time;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

impl Sockets {
    pub(super) fn try_accept<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(socket) = self.table.get_mut(key) else { return };
            let Kind::Listener(listener) = &mut socket.kind else { return };
            let Some(token) = listener.accept else { return };
            if !listener.readable {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&socket.descriptor, flags) {
                Ok((descriptor, peer)) => self.accepted(token, descriptor, peer, ready),
                Err(Errno::AGAIN) => {
                    listener.readable = false;
                    self.ensure_watched(poller, key, ready);
                    return;
                }
                // The kernel takes a descriptor first: without a free one it fails even if no
                // connection waits.
                Err(Errno::MFILE | Errno::NFILE)
                    if !polls(&socket.descriptor, PollFlags::IN | PollFlags::ERR) =>
                {
                    listener.readable = false;
                    self.ensure_watched(poller, key, ready);
                    return;
                }
                // The connection ended before it was accepted, or its network has an error
                // (accept(2) asks to treat these like EAGAIN); the next one may be fine.
                Err(
                    Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::NETDOWN
                    | Errno::PROTO
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::NONET
                    | Errno::HOSTUNREACH
                    | Errno::OPNOTSUPP
                    | Errno::NETUNREACH,
                ) => {}
                // Descriptors or memory ran out. The bit stays set: connections in the
                // backlog cause no further edge.
                Err(error) => {
                    listener.accept = None;
                    return self.finish(token, Outcome::failed(error), ready);
                }
            }
        }
        self.runnable.push(key);
    }

    fn accepted(
        &mut self,
        token: Token,
        descriptor: OwnedFd,
        peer: Option<rustix::net::SocketAddrAny>,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let _ = rustix::net::sockopt::set_tcp_nodelay(&descriptor, true);
        choose_congestion_control(&descriptor);
        keep_alive(&descriptor);
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let peer = peer.and_then(|peer| internet_address(peer).ok()).unwrap_or(unknown);
        let socket = SocketId(self.table.insert(Socket {
            descriptor,
            watched: false,
            express: false,
            kind: Stream::fresh(),
        }));
        ready.push(ReactorCompletion { token, outcome: Outcome::Accepted { socket, peer } });
    }

    pub(super) fn connect<P: Poller>(
        &mut self,
        poller: &mut P,
        token: Token,
        operation: &Operation,
        ready: &mut Vec<ReactorCompletion>,
    ) -> io::Result<()> {
        let &Operation::Connect { address, local, timeout, marking } = operation else {
            return Ok(());
        };
        let descriptor = tcp_socket(&address)?;
        let _ = rustix::net::sockopt::set_tcp_nodelay(&descriptor, true);
        set_reset_at_close(&descriptor, true);
        connect_unpaced(&descriptor, local, address);
        marking.apply(&descriptor, &address)?;
        if let Some(local) = local {
            rustix::net::bind(&descriptor, &local)?;
        }
        let is_connected = match rustix::net::connect(&descriptor, &address) {
            Ok(()) => true,
            Err(Errno::INPROGRESS | Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        if is_connected {
            choose_congestion_control(&descriptor);
        }
        let kind = if is_connected { Stream::fresh() } else { Kind::Connecting { token } };
        let key = self.table.insert(Socket { descriptor, watched: false, express: false, kind });
        if is_connected {
            let outcome = Outcome::Connected { socket: SocketId(key) };
            ready.push(ReactorCompletion { token, outcome });
            return Ok(());
        }
        self.tokens.insert(token, key);
        if let Some(timeout) = timeout {
            self.connect_limits.set(key, monotonic_time().saturating_add(timeout));
        }
        self.ensure_watched(poller, key, ready);
        Ok(())
    }

    pub(super) fn try_connected<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let Some(socket) = self.table.get_mut(key) else { return };
        let Kind::Connecting { token } = socket.kind else { return };
        let verdict = match rustix::net::sockopt::socket_error(&socket.descriptor) {
            Ok(verdict) => verdict,
            Err(error) => Err(error),
        };
        if let Err(error) = verdict {
            return self.connect_failed(poller, key, error, ready);
        }
        // Not an error, and not connected either: the first edge of a watch may be this.
        if rustix::net::getpeername(&socket.descriptor).is_err() {
            return;
        }
        choose_congestion_control(&socket.descriptor);
        socket.kind = Stream::fresh();
        self.connect_limits.clear(key);
        self.finish(token, Outcome::Connected { socket: SocketId(key) }, ready);
    }

    pub(super) fn connect_failed<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        error: Errno,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let Some(socket) = self.table.get(key) else { return };
        let Kind::Connecting { token } = socket.kind else { return };
        if socket.watched {
            poller.unwatch(socket.descriptor.as_fd(), key);
        }
        self.table.remove(key);
        self.connect_limits.clear(key);
        self.finish(token, Outcome::failed(error), ready);
    }
}
