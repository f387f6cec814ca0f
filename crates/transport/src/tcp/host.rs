//! The host side: a session and the buffers of its commands.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use weft_nvme::{Command, Completion};
use weft_nvmf::tcp::handshake::HostParameters;
use weft_nvmf::tcp::host::{Config, Data, Session, SessionEvent, Transfer};
use weft_nvmf::tcp::{FatalError, Negotiated, Sink};
use weft_reactor::{Buffer, Marking, Operation, Owner, Reactor};

use super::layer::Layer;
use super::link::{Direct, Input, Link, LinkEvent};
use super::security::Security;
use crate::host::{HostData, HostEvent, HostOptions, NotSubmitted};
use crate::limits::DIRECT_RECEIVE_BYTES;
use crate::tls::{TlsConnector, TlsFault, TlsRecords};
use crate::{CloseReason, DataDigestError, Slot};

#[derive(Debug)]
pub(crate) struct TcpHostConnection {
    link: Link,
    session: Session,
    /// The buffers of commands in flight.
    buffers: Vec<Option<Buffer>>,
    events: VecDeque<HostEvent>,
    options: HostOptions,
    /// ICResp has come, and the records are going to be the kernel's before anything else is sent.
    ready: Option<Negotiated>,
    /// Why the connection ends, until that is reported.
    reason: Option<CloseReason>,
}

impl TcpHostConnection {
    pub(crate) fn connect(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        address: SocketAddr,
        options: HostOptions,
    ) -> Self {
        let session = Session::new(Config {
            parameters: HostParameters {
                header_digest: options.header_digest,
                data_digest: options.data_digest,
                host_data_alignment: 0,
                maximum_r2t: options.maximum_r2t,
            },
            depth: options.queue_depth,
            in_capsule_bytes: options.in_capsule_bytes,
        });
        let depth = usize::from(options.queue_depth.max(1));
        let mut buffers = Vec::new();
        buffers.resize_with(depth, || None);
        let mut link = Link::new(owner, tag, None);
        let HostOptions { local, marking, .. } = options;
        let timeout = Some(options.timeout);
        link.connect(reactor, Operation::Connect { address, local, timeout, marking });
        link.set_deadline(reactor, options.timeout);
        let events = VecDeque::with_capacity(depth);
        Self { link, session, buffers, events, options, ready: None, reason: None }
    }

    /// Uses TLS for it, before it is connected.
    pub(crate) fn secure(&mut self, connector: &TlsConnector) -> Result<(), TlsFault> {
        self.link.set_layer(Layer::connect(connector)?);
        Ok(())
    }

    pub(crate) fn tls_records(&self) -> Option<TlsRecords> {
        self.link.security().map(Security::records)
    }

    pub(crate) fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        reactor.local_address(self.link.socket()?)
    }

    pub(crate) fn marking(&self, reactor: &Reactor) -> Option<Marking> {
        reactor.marking(self.link.socket().ok()?).ok()
    }

    pub(crate) fn negotiated(&self) -> Option<&Negotiated> {
        self.session.negotiated()
    }

    pub(crate) fn free_slots(&self) -> usize {
        if self.link.is_open() { self.session.free_slots() } else { 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    pub(crate) fn command_id(&self, slot: Slot) -> Option<u16> {
        self.session.command_id(slot.0)
    }

    pub(crate) fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.session.set_in_capsule_bytes(bytes);
    }

    pub(crate) fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        match self.link.handle(reactor, completion) {
            LinkEvent::Nothing | LinkEvent::Chore => {}
            LinkEvent::Sent => self.hand_over(reactor),
            LinkEvent::Connected => {
                self.session.start(&mut self.link.outgoing);
                self.flush(reactor);
            }
            LinkEvent::Input => self.process(reactor),
            LinkEvent::Direct(direct) => {
                self.handle_direct(direct);
                self.process(reactor);
            }
            LinkEvent::Deadline => {
                if self.session.negotiated().is_none() {
                    self.lose(reactor, CloseReason::HandshakeTimeout);
                }
            }
            LinkEvent::Lost(reason) => self.lose(reactor, reason),
        }
        self.raise_closed();
    }

    pub(crate) fn submit(
        &mut self,
        command: Command,
        data: HostData,
    ) -> Result<Slot, NotSubmitted> {
        let Some(described) = describe(&data).filter(|_| self.link.is_open()) else {
            return Err(data.into());
        };
        let outgoing = &mut self.link.outgoing;
        let Some(submitted) = self.session.submit(command, described, outgoing) else {
            return Err(data.into());
        };
        let buffer = match data {
            HostData::None => None,
            HostData::FromController(buffer) | HostData::ToController(buffer) => Some(buffer),
        };
        if let Some(buffer) = buffer.as_ref().filter(|_| submitted.in_capsule) {
            outgoing.payload(buffer, 0, buffer.len());
            if let Some(digest) = self.session.data_digest(buffer) {
                outgoing.put(&digest);
            }
        }
        if let Some(place) = self.buffers.get_mut(usize::from(submitted.slot)) {
            *place = buffer;
        }
        Ok(Slot(submitted.slot))
    }

    pub(crate) fn set_express(&self, reactor: &mut Reactor, is_express: bool) -> io::Result<()> {
        reactor.set_express(self.link.socket()?, is_express)
    }

    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        if !self.link.is_open() {
            return;
        }
        while let Some(transfer) = self.session.poll_transfer() {
            self.put_transfer(&transfer);
        }
        self.link.send(reactor);
        if self.ready.is_some() || self.link.is_receiving() || self.link.socket().is_err() {
            return;
        }
        // What comes over TLS is decrypted into a command's buffer, not received into it.
        let direct = if self.link.layer().is_none() { self.direct() } else { None };
        match direct {
            Some(direct) => self.link.receive_into(reactor, direct),
            None => self.link.receive(reactor),
        }
    }

    pub(crate) fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        if self.session.in_flight() > 0 {
            self.lose(reactor, reason);
        } else {
            self.begin_close(reactor, reason, false);
        }
        self.raise_closed();
    }

    /// Processes all received input.
    fn process(&mut self, reactor: &mut Reactor) {
        self.process_input(reactor);
        // What was received over TLS is one piece of input after another.
        while self.link.has_more() && self.link.is_open() {
            let direct = self.direct();
            match self.link.open(reactor, direct) {
                LinkEvent::Direct(direct) => self.handle_direct(direct),
                LinkEvent::Lost(reason) => self.lose(reactor, reason),
                _ => {}
            }
            self.process_input(reactor);
        }
        self.hand_over(reactor);
    }

    /// Once ICReq is sent and ICResp has come neither end has more to say: the kernel gets the
    /// records if it is to have them.
    fn hand_over(&mut self, reactor: &mut Reactor) {
        if self.ready.is_none() || !self.link.is_flushed() {
            return;
        }
        match self.link.hand_over(reactor) {
            Ok(()) => self.start(reactor),
            Err(reason) => self.lose(reactor, reason),
        }
    }

    fn start(&mut self, reactor: &mut Reactor) {
        self.link.clear_deadline(reactor);
        let negotiated = self.ready.take();
        self.events.push_back(HostEvent::Ready { negotiated });
    }

    /// Data was received directly into a command's buffer.
    fn handle_direct(&mut self, Direct { slot, buffer, range }: Direct) {
        self.session.handle_direct(buffer.get(range).unwrap_or_default());
        self.put_back(slot, buffer);
    }

    fn process_input(&mut self, reactor: &mut Reactor) {
        let input = self.link.input.take();
        let mut bytes = input.as_ref().map_or(&[][..], Input::bytes);
        while self.link.is_open() {
            match self.session.handle_input(&mut bytes) {
                Ok(SessionEvent::Starved) => break,
                Ok(received) => self.handle_received(reactor, received),
                Err(fault) => self.fail(reactor, &fault),
            }
        }
        self.link.keep_input(input, 0);
    }

    fn handle_received(&mut self, reactor: &mut Reactor, received: SessionEvent<'_>) {
        match received {
            SessionEvent::Starved => {}
            SessionEvent::Ready(negotiated) => {
                self.ready = Some(negotiated);
                if !self.link.is_for_kernel() {
                    self.start(reactor);
                }
            }
            SessionEvent::Data { slot, offset, piece } => self.store(slot, offset, piece),
            SessionEvent::Completed { slot, completion, received, intact } => {
                self.handle_completed(slot, completion, received, intact);
            }
            SessionEvent::Terminated { status, information } => {
                self.lose(reactor, CloseReason::PeerTerminated { status, information });
            }
        }
    }

    fn handle_completed(&mut self, slot: u16, completion: Completion, received: u32, intact: bool) {
        let place = self.buffers.get_mut(usize::from(slot));
        // The reactor is still sending from a shared buffer, which returns to the pool by itself.
        let buffer = place.and_then(Option::take).filter(|buffer| !buffer.is_shared());
        let slot = Slot(slot);
        self.events.push_back(if intact {
            HostEvent::Completed { slot, completion, buffer, received }
        } else {
            HostEvent::Failed { slot, buffer, why: DataDigestError }
        });
    }

    fn store(&mut self, slot: u16, offset: u32, piece: &[u8]) {
        let place = self.buffers.get_mut(usize::from(slot)).and_then(Option::as_mut);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(place) = place
            .and_then(|buffer| buffer.bytes_mut().get_mut(start..start.saturating_add(piece.len())))
        {
            place.copy_from_slice(piece);
        }
    }

    /// The buffer and range to receive the rest of a PDU's data into directly, if it is long
    /// enough.
    fn direct(&mut self) -> Option<Direct> {
        let (slot, offset, remaining) = self.session.direct()?;
        let start = usize::try_from(offset).ok()?;
        let len = usize::try_from(remaining).ok()?;
        if len < DIRECT_RECEIVE_BYTES {
            return None;
        }
        let place = self.buffers.get_mut(usize::from(slot))?;
        let buffer = place.take_if(|buffer| start + len <= buffer.len())?;
        Some(Direct { slot, buffer, range: start..start + len })
    }

    /// Queues the H2CData PDUs for an R2T.
    fn put_transfer(&mut self, transfer: &Transfer) {
        let place = self.buffers.get(usize::from(transfer.slot)).and_then(Option::as_ref);
        let Some(buffer) = place else { return };
        let outgoing = &mut self.link.outgoing;
        let mut done = 0;
        while done < transfer.length {
            let length = (transfer.length - done).min(self.session.h2c_data_bytes());
            self.session.put_data(transfer, done, length, outgoing);
            // In range: the session has checked the R2T against the buffer's length.
            let start = usize::try_from(transfer.offset + done).unwrap_or(usize::MAX);
            let end = start + usize::try_from(length).unwrap_or(0);
            outgoing.payload(buffer, start, end);
            if let Some(digest) = self.session.data_digest(&buffer[start..end]) {
                outgoing.put(&digest);
            }
            done += length;
        }
    }

    fn put_back(&mut self, slot: u16, buffer: Buffer) {
        if let Some(place) = self.buffers.get_mut(usize::from(slot)) {
            *place = Some(buffer);
        }
    }

    /// The controller broke the protocol: sends a termination.
    fn fail(&mut self, reactor: &mut Reactor, fault: &FatalError) {
        self.session.terminate(fault, &mut self.link.outgoing);
        self.begin_close(reactor, CloseReason::Protocol(*fault), true);
    }

    /// The connection is lost, or closed with commands in flight. Some of these are retried on
    /// another connection, so nothing unsent here may reach the controller later.
    fn lose(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        if self.link.is_open() {
            // A controller that has got as far as ICReq answers it, if only with a termination.
            let is_handshake =
                self.link.security().is_some() && self.session.negotiated().is_none();
            self.reason = Some(match reason {
                CloseReason::PeerTerminated { .. } => reason,
                _ if is_handshake && reason.is_by_peer() => CloseReason::Tls(TlsFault::Ended),
                _ => reason,
            });
            self.link.abort(reactor);
        }
    }

    fn begin_close(&mut self, reactor: &mut Reactor, reason: CloseReason, linger: bool) {
        if self.link.is_open() {
            self.reason = Some(reason);
            self.link.begin_close(reactor, linger, self.options.close_timeout);
        }
    }

    /// Reports the end once no operation is in flight.
    fn raise_closed(&mut self) {
        if !self.link.is_finished() {
            return;
        }
        let Some(reason) = self.reason.take() else { return };
        if let Some((slot, buffer)) = self.link.returned.take() {
            self.put_back(slot, buffer);
        }
        let buffers = &mut self.buffers;
        let in_flight = self
            .session
            .busy_slots()
            .map(|slot| (Slot(slot), buffers.get_mut(usize::from(slot)).and_then(Option::take)));
        let in_flight = in_flight.collect();
        self.events.push_back(HostEvent::Closed { reason, in_flight });
    }
}

/// A command's data for the session; none if it is longer than any command's.
fn describe(data: &HostData) -> Option<Data> {
    Some(match data {
        HostData::None => Data::None,
        HostData::ToController(buffer) => Data::ToController(u32::try_from(buffer.len()).ok()?),
        HostData::FromController(buffer) => Data::FromController(u32::try_from(buffer.len()).ok()?),
    })
}
