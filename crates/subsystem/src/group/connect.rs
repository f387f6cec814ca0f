//! From Connect to a queue: which host is allowed, which group gets the queue, and what it waits
//! for.

use std::sync::Arc;

use uuid::Uuid;
use weft_nvme::fabrics::InvalidParameter;
use weft_nvme::{Command, Nqn, Status};
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::controller::Controller;
use weft_nvmf::queue::QueueGrant;
use weft_nvmf::reservation::HostId;
use weft_nvmf::subsystem::{SubsystemKind, SubsystemView};
use weft_transport::Slot;

use super::admin::Admin;
use super::connection::{Connection, Placement, Role, StaleCheck};
use super::core::{Context, Core};
use super::io::Io;
use super::owners::{DRAIN_TIMERS, timer};
use crate::shared::classes::{ClassSource, ClassWord};
use crate::shared::directory::{ConnectedQueue, QueueAuthentication};
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::message::Message;
use crate::shared::round::{Round, Waiter};
use crate::shared::tls;

impl Connection {
    /// Handles a Connect without data in its capsule.
    pub(super) fn fetch_connect(
        &mut self,
        slot: Slot,
        command: Command,
        core: &mut Core,
    ) -> Placement {
        let wanted = match ConnectRequest::data_bytes(&command) {
            Ok(bytes) => {
                self.transport.transfer(&command).map(|_| bytes).map_err(ConnectError::status)
            }
            Err(error) => Err(error),
        };
        let buffer = wanted.and_then(|bytes| {
            core.schedule
                .memory
                .take_admin(bytes as usize)
                .ok_or(ConnectError::status(Status::INTERNAL_ERROR))
        });
        match (buffer, &mut self.role) {
            (Ok(buffer), Role::Unconnected { fetching: fetching @ false }) => {
                *fetching = true;
                self.transport.receive(slot, buffer);
            }
            (Ok(_), _) => {
                self.refuse(
                    slot,
                    &command,
                    ConnectError::status(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
                );
            }
            (Err(error), _) => self.refuse(slot, &command, error),
        }
        Placement::Stay
    }

    /// Handles a Connect with its data: checks it and chooses the group for the queue.
    pub(super) fn connect(
        &mut self,
        slot: Slot,
        command: Command,
        data: &[u8],
        core: &mut Core,
    ) -> Placement {
        let request = match ConnectRequest::parse(&command, data) {
            Ok(request) => request,
            Err(error) => {
                self.refuse(slot, &command, error);
                return Placement::Stay;
            }
        };
        self.endpoints.has_tls = self.transport.tls_identity().is_some();
        if let Err(error) = self.check(&request, core) {
            let (peer, ConnectRequest { host, subsystem, .. }) = (self.endpoints.peer, &request);
            let what = format_args!("{peer}: {host} is refused at {subsystem}: {error}");
            core.say_fault(log::Level::Info, what);
            self.refuse(slot, &command, error);
            return Placement::Stay;
        }
        let placed = self.placed || !self.transport.is_movable();
        let group = match placed {
            true => core.id,
            false => core.directory.place_queue(self.is_ruled_express(&request, core)),
        };
        if group != core.id {
            return Placement::Move { group, slot, request: Box::new(request) };
        }
        // A connection that cannot move was placed when it was accepted; a second Connect was not.
        self.placed |= !placed;
        self.begin_connecting(slot, request);
        self.proceed(core);
        Placement::Stay
    }

    /// Whether a rule gives this queue the class latency.
    fn is_ruled_express(&self, request: &ConnectRequest, core: &Core) -> bool {
        let names = (request.host.as_str(), request.subsystem.as_str());
        request.queue_id > 0
            && ClassSource::is_ruled_express(
                &core.snapshot.qos_rules,
                names,
                self.endpoints.port_id,
            )
    }

    /// Continues a Connect that this group answers.
    pub(crate) fn proceed(&mut self, core: &mut Core) {
        let Role::Connecting(connecting) = &mut self.role else { return };
        let request = connecting.request.clone();
        if request.queue_id == 0 {
            match connecting.stale_check {
                StaleCheck::Needed => {
                    connecting.stale_check =
                        StaleCheck::Pending(begin_stale_check(&request, self.id, core));
                    let at = core.reactor.now().saturating_add(core.snapshot.limits.drain_timeout);
                    core.reactor.set_timer(timer(DRAIN_TIMERS, self.id), at);
                }
                StaleCheck::Pending(_) => {}
                StaleCheck::Done => self.connect_when_drained(&request, core),
            }
            return;
        }
        match core.directory.owner(&request.subsystem, request.controller_id) {
            Some(owner) => {
                let has_tls = self.transport.tls_identity().is_some();
                let (queue, request) = (self.id, Box::new(request));
                core.post(owner, Message::Attach { owner, queue, has_tls, request });
            }
            None => self.answer_if_refused(Err(ConnectError::unknown_controller()), core),
        }
    }

    /// Every group has checked for stale connections of the host.
    pub(crate) fn handle_stale_checked(&mut self, stale_check: u64, core: &mut Core) {
        match &mut self.role {
            Role::Connecting(connecting)
                if connecting.stale_check == StaleCheck::Pending(stale_check) =>
            {
                connecting.stale_check = StaleCheck::Done;
                self.proceed(core);
            }
            _ => {}
        }
    }

    /// Continues an admin queue as soon as the host's earlier commands have completed.
    fn connect_when_drained(&mut self, request: &ConnectRequest, core: &mut Core) {
        let host = HostKey::of(request);
        if core.directory.has_drained(&host, self.id) {
            let outcome = self.create_controller(request, host, core);
            self.answer_if_refused(outcome, core);
        }
    }

    /// Stops waiting for the host's earlier commands.
    pub(super) fn cancel_drain_wait(&self, core: &Core) {
        if let Role::Connecting(connecting) = &self.role {
            core.directory.cancel_drain_wait(&HostKey::of(&connecting.request), self.id);
        }
    }

    /// The host's earlier commands did not complete in time: it may try again.
    pub(crate) fn handle_drain_timeout(&mut self, core: &mut Core) {
        if matches!(&self.role, Role::Connecting(connecting) if connecting.request.queue_id == 0) {
            self.cancel_drain_wait(core);
            let busy = ConnectError::status(Status::CONNECT_CONTROLLER_BUSY);
            self.answer_if_refused(Err(busy), core);
        }
    }

    /// The controller's owner has answered for this I/O queue.
    pub(crate) fn handle_attached(
        &mut self,
        owner: ConnectionId,
        result: Result<Box<QueueGrant>, ConnectError>,
        core: &mut Core,
    ) {
        let Role::Connecting(connecting) = &self.role else {
            release_grant(owner, result, core);
            return;
        };
        let (slot, request) = (connecting.slot, connecting.request.clone());
        let view = core.snapshot.connected(&request.subsystem, &self.endpoints, &request.host);
        // The owner's group may not know yet that the host is no longer allowed.
        let view = view.and_then(|view| request.check_host(&view).map(|()| view));
        match (result, view) {
            (Ok(grant), Ok(view)) => {
                if let Err(error) = self.begin_guard(&request, &view, core) {
                    release_grant(owner, Ok(grant), core);
                    return self.answer_if_refused(Err(error), core);
                }
                self.transport.set_queue(
                    request.queue_id,
                    depth(request.entries),
                    request.flow_control,
                );
                let connected = self.require_authentication(grant.completion());
                self.transport.complete(slot, connected);
                let endpoints = self.endpoints;
                let mut io = Io::new(self.id, endpoints, *grant, &request, &view, owner, core);
                let class = Some(io.class.shown());
                self.register(&request, request.controller_id, class, core);
                io.trace(core);
                self.role = Role::Io(Box::new(io));
                self.bound_capsules(core);
            }
            (Ok(grant), Err(error)) => {
                release_grant(owner, Ok(grant), core);
                self.answer_if_refused(Err(error), core);
            }
            (Err(error), _) => self.answer_if_refused(Err(error), core),
        }
    }

    /// Refuses a command of a connection without a queue.
    pub(super) fn refuse(&mut self, slot: Slot, command: &Command, error: ConnectError) {
        self.transport.complete(slot, error.completion(command.command_id.get()));
    }

    fn check(&self, request: &ConnectRequest, core: &Core) -> Result<(), ConnectError> {
        if core.is_stopping {
            return Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        }
        let view = core.snapshot.connected(&request.subsystem, &self.endpoints, &request.host)?;
        let mode = core.snapshot.tls_mode(self.endpoints.port_id);
        tls::check_connect(self.transport.tls_identity().as_deref(), mode, request)?;
        if request.queue_id == 0 { request.check_admin(&view) } else { Ok(()) }
    }

    /// Makes the controller of an admin queue.
    fn create_controller(
        &mut self,
        request: &ConnectRequest,
        host: HostKey,
        core: &mut Core,
    ) -> Result<(), ConnectError> {
        let Role::Connecting(connecting) = &self.role else { return Ok(()) };
        let slot = connecting.slot;
        core.reactor.clear_timer(timer(DRAIN_TIMERS, self.id));
        let view = core.snapshot.connected(&request.subsystem, &self.endpoints, &request.host)?;
        request.check_admin(&view)?;
        let mut request = request.clone();
        request.keep_alive_timeout_ms =
            view.keep_alive_timeout_ms(request.keep_alive_timeout_ms)
                .ok_or(ConnectError::status(Status::KEEP_ALIVE_TIMEOUT_INVALID.with_dnr()))?;
        self.begin_guard(&request, &view, core)?;
        self.claim_host_id(&request.host, &request.host_id, &view, core)?;
        let address = self.endpoints.peer.ip();
        let controller_id =
            core.directory.register_controller(&request, &view, self.id, address)?;
        let now = core.reactor.now();
        let local = self.endpoints.local.ip();
        let controller = Controller::new(Arc::clone(&view), &request, controller_id, local, now);
        let keyed = self.transport.is_keyed();
        let controller = if keyed { controller.over_rdma() } else { controller };
        let controller = controller.at_port(self.endpoints.port_id);
        self.transport.set_queue(request.queue_id, depth(request.entries), request.flow_control);
        let connected = self.require_authentication(controller.connect_completion());
        self.transport.complete(slot, connected);
        let (peer, host_nqn, nqn) = (self.endpoints.peer, request.host, view.nqn);
        core.say_host(
            log::Level::Info,
            format_args!("{peer}: {host_nqn} connected to {nqn} as controller {controller_id}"),
        );
        self.register(&request, controller_id, None, core);
        let subsystem = view.nqn;
        let mut admin = Admin::new(self.id, controller, subsystem, self.endpoints, host);
        admin.run_effects(&mut Context { transport: &mut self.transport, core });
        self.role = Role::Admin(Box::new(admin));
        Ok(())
    }

    /// Has the Host Identifier belong to the host of this admin queue, if that is who it says.
    pub(super) fn claim_host_id(
        &mut self,
        host: &Nqn,
        id: &HostId,
        view: &SubsystemView,
        core: &mut Core,
    ) -> Result<(), ConnectError> {
        if !matches!(view.kind, SubsystemKind::Nvm) {
            return Ok(());
        }
        let peer = self.endpoints.peer;
        let claim = view.shared.reservations().claim(id, host).map_err(|owner| {
            let (nqn, id) = (view.nqn, Uuid::from_bytes(*id));
            let what = format_args!(
                "{peer}: {host} is refused at {nqn}: its Host Identifier {id} is that of {owner}, \
                 which is connected or has registered; give each host an identifier of its own"
            );
            core.say_fault(log::Level::Warn, what);
            ConnectError::invalid(InvalidParameter::HOST_ID)
        })?;
        if !self.is_untrusted() {
            self.host_id_claim = Some(claim);
        }
        Ok(())
    }

    /// Enters the queue of an accepted Connect into the directory.
    fn register(
        &self,
        request: &ConnectRequest,
        controller_id: u16,
        class: Option<Arc<ClassWord>>,
        core: &mut Core,
    ) {
        let queue = ConnectedQueue {
            subsystem: request.subsystem.as_str().to_owned(),
            controller_id,
            queue_id: request.queue_id,
            host: request.host.as_str().to_owned(),
            host_id: request.host_id,
            group: core.id,
            port_id: self.endpoints.port_id,
            local: self.endpoints.local,
            peer: self.endpoints.peer,
            authentication: self.is_untrusted().then_some(QueueAuthentication::Negotiating),
            tls_records: self.transport.tls_records(),
            class: None,
        };
        if let Some(records) = queue.tls_records {
            let level = if queue.queue_id == 0 { log::Level::Info } else { log::Level::Debug };
            let (peer, queue) = (queue.peer, queue.queue_id);
            let place = records.place();
            core.say_host(level, format_args!("{peer}: TLS, queue {queue}: records of {place}"));
        }
        core.directory.queue_connected(self.id, queue, class);
    }

    /// Refuses a Connect that waited; the connection may send another one.
    fn answer_if_refused(&mut self, outcome: Result<(), ConnectError>, core: &mut Core) {
        let Err(error) = outcome else { return };
        self.drop_guard(core);
        let Role::Connecting(connecting) = &self.role else { return };
        let (slot, command_id) = (connecting.slot, connecting.request.command_id);
        core.reactor.clear_timer(timer(DRAIN_TIMERS, self.id));
        self.transport.complete(slot, error.completion(command_id));
        self.role = Role::Unconnected { fetching: false };
        self.host_id_claim = None;
        if std::mem::take(&mut self.placed) {
            core.directory.unplace_queue(core.id);
        }
    }
}

/// Has every group check for connections that the host of this Connect has closed, or on which it
/// does not answer any more.
///
/// A group notices a closed connection when it reads from it; a busy group may do so after the
/// host's next Connect has reached another group.
fn begin_stale_check(request: &ConnectRequest, connection: ConnectionId, core: &mut Core) -> u64 {
    core.stale_checks += 1;
    let stale_check = core.stale_checks;
    let host = Arc::new(HostKey::of(request));
    let waiter = Waiter::Connect { connection, stale_check };
    let message = |round| Message::StaleCheck { host: Arc::clone(&host), round };
    Round::begin(&core.posts, waiter, message);
    stale_check
}

/// A queue was granted to a connection that has ended.
pub(super) fn release_grant(
    owner: ConnectionId,
    result: Result<Box<QueueGrant>, ConnectError>,
    core: &Core,
) {
    if let Ok(grant) = result {
        core.post(owner, Message::QueueEnded { owner, queue_id: grant.queue_id });
    }
}

/// Commands that a queue may have in flight: one fewer than its entries, but all of them without SQ
/// flow control.
fn depth(entries: u32) -> u16 {
    u16::try_from(entries).unwrap_or(u16::MAX)
}
