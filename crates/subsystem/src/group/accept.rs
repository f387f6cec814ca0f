//! Connections that come: accepted, given to a group, or refused.

use std::net::{IpAddr, SocketAddr};

use weft_nvmf::connect::ConnectRequest;
use weft_reactor::{ReactorCompletion, SocketId};
use weft_transport::target::TargetConnection;
use weft_transport::tls::TlsMode;
use weft_transport::{CloseReason, Incoming, Slot};

use super::connection::Connection;
use super::listen::ListenerEvent;
use super::owners::{CONNECTIONS, transport_tag};
use super::{Group, Message};
use crate::shared::classes::ClassSource;
use crate::shared::message::{Endpoints, MovedConnection};

impl Group {
    pub(super) fn handle_listener(&mut self, completion: ReactorCompletion) {
        match self.listeners.handle(completion, &mut self.core) {
            ListenerEvent::Accepted { socket, peer, port_id } => self.accept(socket, peer, port_id),
            // The descriptor of an evicted connection is free at once. Each new connection evicts
            // one, so this ends.
            ListenerEvent::Incoming { index } => {
                while let Some((incoming, port_id)) =
                    self.listeners.next_incoming(index, &mut self.core)
                {
                    match port_id {
                        Some(port_id) => self.place(incoming, port_id),
                        None => incoming.refuse(),
                    }
                }
            }
            ListenerEvent::NoDescriptor { index, .. } if self.evict_unconnected() => {
                self.listeners.retry(index, &mut self.core);
            }
            ListenerEvent::NoDescriptor { index, error } => {
                self.listeners.log_refused(&error, &self.core);
                self.listeners.pause(index, &mut self.core);
            }
            ListenerEvent::Nothing => {}
        }
    }

    /// Accepts a new connection, and evicts one without Connect if there is no room.
    fn accept(&mut self, socket: SocketId, peer: SocketAddr, port_id: u16) {
        // A connection without a local address has been reset already.
        let local = self.core.reactor.local_address(socket);
        let (true, Ok(local)) = (self.has_room(peer), local) else {
            return self.core.reactor.close(socket);
        };
        let address = peer.ip().to_canonical();
        // Where TLS is allowed, it is not known yet who will use it.
        let is_pending = self.core.snapshot.tls_mode(port_id) != TlsMode::Off;
        if is_pending && !self.admit_handshake(address) {
            return self.core.reactor.close(socket);
        }
        let id = self.connections.reserve(self.core.id);
        // At a listener on [::] a host of IPv4 has a mapped address.
        let peer = SocketAddr::new(address, peer.port());
        let endpoints = Endpoints { peer, local, port_id, has_tls: false };
        let (tag, limits) = (transport_tag(id), self.core.snapshot.transport);
        let reactor = &mut self.core.reactor;
        let mut transport = TargetConnection::accept(reactor, CONNECTIONS, tag, socket, limits);
        self.core.snapshot.secure(reactor, &mut transport, port_id);
        self.core.directory.connection_came();
        let connection = Connection::new(id, endpoints, transport, false);
        self.add(Connection { is_pending, ..connection });
        self.listeners.unconnected.add(address, id);
        let connections = &self.connections;
        self.listeners.unconnected.prune(2 * connections.len(), |id| {
            connections.get(id).is_some_and(Connection::may_be_unconnected)
        });
    }

    /// Whether another handshake with TLS may begin with this address; the oldest one of this group
    /// goes if there are too many in all.
    fn admit_handshake(&mut self, address: IpAddr) -> bool {
        let directory = &self.core.directory;
        if directory.handshakes(|handshakes| handshakes.needs_place(address)) {
            self.evict_handshake();
        }
        let may_come = self.core.directory.handshakes(|handshakes| handshakes.admit(address));
        if !may_come {
            let what = format_args!("too many are in their handshake with TLS beside {address}");
            self.listeners.log_refused(&what, &self.core);
        }
        may_come
    }

    /// Ends a connection of this group whose handshake with TLS is not over, if there is one. It no
    /// longer counts.
    fn evict_handshake(&mut self) {
        let connections = &self.connections;
        let is_one = |id| connections.get(id).is_some_and(|one| one.is_pending);
        if let Some(id) = self.listeners.unconnected.take(is_one) {
            self.with_id(id, |connection, core| {
                connection.end_handshake(core);
                let reason = CloseReason::Requested("evicted to make room for another");
                connection.transport.abort(&mut core.reactor, reason);
            });
        }
    }

    /// Chooses the group of a queue, which cannot move after it was made: of rules only those for
    /// all hosts of the port are known to apply.
    fn place(&mut self, incoming: Incoming, port_id: u16) {
        if !self.has_room(incoming.peer_address()) {
            return incoming.refuse();
        }
        self.core.directory.connection_came();
        let rules = &self.core.snapshot.qos_rules;
        let is_ruled_express = ClassSource::is_ruled_express(rules, ("", ""), port_id);
        let group = self.core.directory.place_queue(is_ruled_express);
        match self.core.posts.get(group).cloned() {
            Some(post) if group != self.core.id => {
                post.post(Message::Incoming { incoming: Box::new(incoming), port_id });
            }
            _ => self.accept_incoming(incoming, port_id),
        }
    }

    /// Accepts a queue that a host asks for; it counts as one of this group's already.
    pub(super) fn accept_incoming(&mut self, incoming: Incoming, port_id: u16) {
        let id = self.connections.reserve(self.core.id);
        let (peer, local) = (incoming.peer_address(), incoming.local_address());
        let endpoints = Endpoints { peer, local, port_id, has_tls: false };
        let (tag, limits) = (transport_tag(id), self.core.snapshot.transport);
        let reactor = &mut self.core.reactor;
        let accept = TargetConnection::accept_incoming;
        let transport = accept(reactor, CONNECTIONS, tag, incoming, limits);
        self.add(Connection::new(id, endpoints, transport, true));
    }

    /// Adds a connection, whose events are polled in this turn.
    pub(super) fn add(&mut self, mut connection: Connection) {
        connection.mark_active(&mut self.core);
        self.connections.put(Box::new(connection));
    }

    /// Whether the target has room for another connection; one without Connect may be evicted.
    fn has_room(&mut self, peer: SocketAddr) -> bool {
        let most = self.core.snapshot.connections_max;
        let has_room = self.core.directory.connections() < most || self.evict_unconnected();
        if !has_room {
            let what = format_args!("{most} are served already, {peer} is refused");
            self.listeners.log_refused(&what, &self.core);
        }
        has_room
    }

    /// Evicts a connection that has not completed Connect. Returns whether there was one.
    fn evict_unconnected(&mut self) -> bool {
        while let Some(id) = self.listeners.unconnected.pop() {
            if self.connections.get(id).is_some_and(Connection::is_unconnected) {
                return self.with_id(id, |connection, core| {
                    let reason = CloseReason::Requested("evicted to make room for another");
                    connection.transport.abort(&mut core.reactor, reason);
                });
            }
        }
        false
    }

    /// Moves a connection with its Connect to the group of its queue.
    pub(super) fn move_to_group(
        &mut self,
        connection: Box<Connection>,
        group: usize,
        slot: Slot,
        request: ConnectRequest,
    ) {
        let id = connection.id;
        let post = match self.core.posts.get(group) {
            Some(post) if slot == Slot(0) => post.clone(),
            // Not the connection's first command: the connection cannot move, so it is answered
            // here.
            _ => return self.answer_here(connection, slot, request, group),
        };
        let copied = connection.copied;
        match MovedConnection::detach(*connection, &request, &mut self.core) {
            Ok(moved) => {
                self.core.schedule.memory.recount_copied(copied, 0);
                post.post(Message::TakeOver(Box::new(moved)));
                self.connections.free(id);
            }
            Err(connection) => self.answer_here(connection, slot, request, group),
        }
    }

    /// Answers a Connect here that another group would have answered.
    fn answer_here(
        &mut self,
        mut connection: Box<Connection>,
        slot: Slot,
        request: ConnectRequest,
        group: usize,
    ) {
        self.core.directory.unplace_queue(group);
        connection.begin_connecting(slot, request);
        connection.proceed(&mut self.core);
        // Its other events are to be handled, too.
        self.core.schedule.arrived(connection.id.index);
        self.connections.put(connection);
    }
}
