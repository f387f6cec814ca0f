//! A queue whose host has to authenticate itself: what it sends until it has, and the exchanges.

use std::sync::Arc;

use weft_nvme::authentication::SecureChannel;
use weft_nvme::fabrics::{Authentication, ConnectResult, PropertySet};
use weft_nvme::log_page::{GetLogPage, LogPageId};
use weft_nvme::property::Offset;
use weft_nvme::{AdminOpcode, Command, Completion, FabricsType, Status};
use weft_nvmf::auth::target::{AuthState, Authenticator, ReceiveAnswer, WorkDone, message_length};
use weft_nvmf::auth::{GeneratedPsk, Group, HashFunction, Names, Policy, Random};
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::keys::{TlsIdentity, TlsMode, TlsPsk};
use weft_nvmf::reservation::HostId;
use weft_nvmf::subsystem::SubsystemView;
use weft_reactor::{Buffer, Token};
use weft_transport::target::{CapsuleData, Event};
use weft_transport::{CloseReason, Slot};

use super::connection::{Connection, Role};
use super::core::Core;
use super::owners::{AUTHENTICATION_TIMERS, KEY_TIMER, timer};
use crate::shared::ids::ConnectionId;
use crate::shared::limits::{FAILURE_DELAY, KEY_WAIT};
use crate::shared::powers::Job;

/// The exchanges of a queue.
#[derive(Debug)]
pub(crate) struct Guard {
    authenticator: Authenticator,
    names: Names,
    /// The Authentication Send whose message is being transferred.
    fetching: Option<Slot>,
    /// The Authentication Receive that waits for a power.
    waiting: Option<PendingReceive>,
    /// What the exchange has agreed on.
    choice: Option<(HashFunction, Group)>,
    /// A timer runs: for the first exchange, for one that has begun since, or until a failure is
    /// told.
    is_timed: bool,
    /// It counts as a queue whose host is not authenticated.
    is_pending: bool,
    /// The host waits for the answer that it has failed, or has waited.
    is_failing: bool,
    /// The host has to make a key of TLS here.
    requires_channel: bool,
    /// It has made one, for connections that come after this one.
    made_channel: bool,
    /// What a power that is being computed is for.
    alive: Arc<()>,
    /// Of an admin queue: the Host Identifier that is to be the host's.
    host_id: Option<HostId>,
}

/// An Authentication Receive.
#[derive(Debug, Clone, Copy)]
struct PendingReceive {
    slot: Slot,
    command_id: u16,
    length: u32,
}

impl Guard {
    /// Of a host that may ask for this secure channel, and may have to.
    fn new(request: &ConnectRequest, channel: SecureChannel, requires_channel: bool) -> Self {
        let names = Names { host: request.host, subsystem: request.subsystem };
        Self {
            authenticator: Authenticator::new(names.clone(), channel),
            names,
            requires_channel,
            made_channel: false,
            fetching: None,
            waiting: None,
            choice: None,
            is_timed: false,
            is_pending: true,
            is_failing: false,
            alive: Arc::new(()),
            host_id: (request.queue_id == 0).then_some(request.host_id),
        }
    }

    /// Of an admin queue over TLS with a key that the host's authentication has made.
    fn over_channel(request: &ConnectRequest) -> Self {
        let guard = Self::new(request, SecureChannel::NONE, false);
        let authenticator = Authenticator::over_channel(guard.names.clone());
        Self { authenticator, is_pending: false, ..guard }
    }

    /// Keeps a key of TLS that the exchange has made on this queue: for the connections that the
    /// host makes next, or in place of the one that this queue has.
    fn keep(&mut self, generated: &GeneratedPsk, queue: (ConnectionId, bool), core: &mut Core) {
        let (id, holds_key) = queue;
        let (host, subsystem) = (&self.names.host, &self.names.subsystem);
        let Some(psk) = TlsPsk::generated(generated, host.as_str(), subsystem.as_str()) else {
            return;
        };
        log::debug!("{} has made a key of TLS, {}", self.names.host, psk.identity);
        if holds_key {
            return core.snapshot.generated.replace(id, psk);
        }
        self.made_channel = true;
        let now = core.reactor.turn_time();
        let until = now.saturating_add(KEY_WAIT);
        core.snapshot.generated.add(psk, core.id, now, until);
        core.reactor.set_timer(Token::new(KEY_TIMER, 0), until);
    }

    /// Whether the host is to use a key of TLS that its authentication makes here, on connections
    /// that come after this one.
    fn wants_channel(&self) -> bool {
        self.requires_channel || self.made_channel
    }

    /// Whether a command of an authenticated host is served on this queue: where TLS is to come,
    /// whoever is between host and target can send commands in the host's place, so that only those
    /// are served with which a host enables and identifies the controller before it connects anew.
    /// Linux gives up without the ANA log page, and reads the effects of commands only once.
    fn serves(&self, command: &Command) -> bool {
        if !self.wants_channel() {
            return true;
        }
        match command.fabrics_type() {
            Some(FabricsType::PROPERTY_GET) => true,
            Some(FabricsType::PROPERTY_SET) => {
                PropertySet::from_command(command).offset == Offset::CONTROLLER_CONFIGURATION
            }
            Some(_) => false,
            None => match AdminOpcode(command.opcode) {
                AdminOpcode::IDENTIFY => true,
                AdminOpcode::GET_LOG_PAGE => {
                    let page = GetLogPage::from_command(command).log_page;
                    page == LogPageId::ASYMMETRIC_NAMESPACE_ACCESS
                        || page == LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS
                }
                _ => false,
            },
        }
    }

    fn is_authenticated(&self) -> bool {
        self.authenticator.standing() == AuthState::Authenticated
    }
}

impl Connection {
    /// From now on the host has to authenticate itself, if it has a key.
    pub(super) fn begin_guard(
        &mut self,
        request: &ConnectRequest,
        view: &SubsystemView,
        core: &mut Core,
    ) -> Result<(), ConnectError> {
        let is_admin = request.queue_id == 0;
        let identity = self.transport.tls_identity();
        if let Some(identity) = identity.as_deref().filter(|one| TlsIdentity::is_generated(one)) {
            // The host has authenticated itself when it made the key, with all of its queues.
            return if is_admin { self.begin_channel(identity, request, core) } else { Ok(()) };
        }
        let Some(policy) = view.policies.get(&request.host) else { return Ok(()) };
        let channel = match (&identity, core.snapshot.tls_mode(self.endpoints.port_id)) {
            (None, TlsMode::Allowed) if is_admin => SecureChannel::NEW_TLS_PSK,
            _ => SecureChannel::NONE,
        };
        let requires_channel = policy.requires_channel && identity.is_none();
        if requires_channel && channel == SecureChannel::NONE {
            return Err(ConnectError::status(Status::CONNECT_INVALID_HOST.with_dnr()));
        }
        let address = self.endpoints.peer.ip();
        if !core.directory.pending(|pending| pending.admit(address)) {
            return Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        }
        self.guard = Some(Box::new(Guard::new(request, channel, requires_channel)));
        self.time_exchange(core);
        Ok(())
    }

    /// An admin queue over TLS with a key that the host's authentication has made.
    fn begin_channel(
        &mut self,
        identity: &str,
        request: &ConnectRequest,
        core: &Core,
    ) -> Result<(), ConnectError> {
        if !core.snapshot.generated.claim(identity, self.id) {
            // It was given up since the handshake: the host may make another one.
            return Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        }
        self.holds_key = true;
        self.guard = Some(Box::new(Guard::over_channel(request)));
        Ok(())
    }

    /// Whether an I/O queue may belong to this admin queue: the queues of a controller all have TLS
    /// or none has, and none has not if the host has made a key of TLS here, or has to.
    pub(super) fn admits_queue(&self, has_tls: bool) -> bool {
        // Its owner answers.
        if matches!(&self.role, Role::Admin(admin) if admin.is_closed()) {
            return true;
        }
        let own = self.transport.tls_identity().is_some();
        let wants_tls = self.guard.as_ref().is_some_and(|guard| guard.wants_channel());
        own == has_tls && (own || !wants_tls)
    }

    /// The completion of an accepted Connect: it asks the host to authenticate itself if it has to.
    pub(super) fn require_authentication(&self, connected: Completion) -> Completion {
        let Some(guard) = self.guard.as_ref().filter(|guard| !guard.is_authenticated()) else {
            return connected;
        };
        let result = ConnectResult(connected.dword0())
            .with_authentication_required(true)
            .with_secure_channel_required(guard.requires_channel);
        connected.with_dword0(result.0)
    }

    /// Whether its host has to authenticate itself, and has not done so.
    pub(super) fn is_untrusted(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.is_authenticated())
    }

    /// Takes the events of exchanges, and refuses commands of a host that is not authenticated yet,
    /// or is to come back over TLS.
    /// Not inlined, so that connections without a guard have one test for each event.
    #[inline(never)]
    pub(super) fn guard(&mut self, event: Event, core: &mut Core) -> Option<Event> {
        let Some(guard) = &mut self.guard else { return Some(event) };
        match event {
            Event::Command { slot, data } => {
                let command = self.transport.command(slot).copied()?;
                match command.fabrics_type() {
                    Some(FabricsType::AUTHENTICATION_SEND) => {
                        self.authentication_send(slot, &command, data, core);
                    }
                    Some(FabricsType::AUTHENTICATION_RECEIVE) => {
                        self.authentication_receive(slot, &command, core);
                    }
                    _ if guard.is_authenticated() && guard.serves(&command) => {
                        return Some(Event::Command { slot, data });
                    }
                    _ => {
                        self.arrived();
                        // As the Linux target: the host has to do something else first.
                        let status = Status::AUTHENTICATION_REQUIRED.with_dnr();
                        self.answer(slot, command.command_id.get(), status);
                    }
                }
                None
            }
            Event::Data { slot, buffer, result } if guard.fetching == Some(slot) => {
                guard.fetching = None;
                let command_id = self.transport.command(slot)?.command_id.get();
                match result {
                    Ok(()) => self.take_message(slot, command_id, &buffer, core),
                    Err(_) => self.answer(slot, command_id, Status::TRANSIENT_TRANSPORT_ERROR),
                }
                None
            }
            other => Some(other),
        }
    }

    /// A power that an exchange needs has been computed.
    pub(crate) fn handle_power(&mut self, done: WorkDone, core: &mut Core) {
        let Some(guard) = &mut self.guard else { return };
        guard.authenticator.finish(done);
        if let Some(PendingReceive { slot, command_id, length }) = guard.waiting.take() {
            self.give_message(PendingReceive { slot, command_id, length }, core);
        }
        self.end_exchange_step(core);
    }

    /// An exchange was not completed in time, or a failure is to be told now.
    pub(crate) fn handle_authentication_timeout(&mut self, core: &mut Core) {
        let Some(guard) = &mut self.guard else { return };
        if !std::mem::take(&mut guard.is_timed) {
            return;
        }
        if let Some(receive) = guard.waiting.take_if(|_| guard.is_failing) {
            self.give_message(receive, core);
            return self.end_exchange_step(core);
        }
        let (peer, host) = (self.endpoints.peer, guard.names.host);
        let what = format_args!("{peer}: {host} did not authenticate itself in time");
        core.count_failed_authentication(what, 1);
        self.close(CloseReason::Requested("the host did not authenticate itself in time"), core);
    }

    /// The connection has ended, and its exchanges with it.
    pub(super) fn drop_guard(&mut self, core: &mut Core) {
        self.end_pending(core);
        if self.guard.take().is_some() {
            core.reactor.clear_timer(timer(AUTHENTICATION_TIMERS, self.id));
        }
    }

    fn end_pending(&mut self, core: &Core) {
        if let Some(guard) = &mut self.guard
            && std::mem::take(&mut guard.is_pending)
        {
            let address = self.endpoints.peer.ip();
            core.directory.pending(|pending| pending.remove(address));
        }
    }

    fn time_exchange(&mut self, core: &mut Core) {
        let Some(guard) = &mut self.guard else { return };
        if !std::mem::replace(&mut guard.is_timed, true) {
            let at = core.reactor.turn_time().saturating_add(core.snapshot.limits.connect_timeout);
            core.reactor.set_timer(timer(AUTHENTICATION_TIMERS, self.id), at);
        }
    }

    fn authentication_send(
        &mut self,
        slot: Slot,
        command: &Command,
        data: CapsuleData,
        core: &mut Core,
    ) {
        self.arrived();
        let command_id = command.command_id.get();
        let length = message_length(&Authentication::from_command(command));
        let outcome = match (length, data.into_result()) {
            (Err(status), _) | (_, Err(status)) => Err(status),
            (Ok(length), Ok(None)) => self.fetch_message(slot, command, length, core),
            (Ok(length), Ok(Some(data))) => match data.get(..length as usize) {
                Some(bytes) => {
                    self.take_message(slot, command_id, bytes, core);
                    Ok(())
                }
                None => Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()),
            },
        };
        if let Err(status) = outcome {
            self.answer(slot, command_id, status);
        }
    }

    fn fetch_message(
        &mut self,
        slot: Slot,
        command: &Command,
        length: u32,
        core: &mut Core,
    ) -> Result<(), Status> {
        self.check_transfer(command, length)?;
        let guard = self.guard.as_mut().filter(|guard| guard.fetching.is_none());
        let guard = guard.ok_or(Status::COMMAND_SEQUENCE_ERROR.with_dnr())?;
        let buffer =
            core.schedule.memory.take_admin(length as usize).ok_or(Status::INTERNAL_ERROR)?;
        guard.fetching = Some(slot);
        self.transport.receive(slot, buffer);
        Ok(())
    }

    fn check_transfer(&self, command: &Command, length: u32) -> Result<(), Status> {
        let transfer = self.transport.transfer(command)?;
        let fits = transfer.bytes >= length;
        fits.then_some(()).ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
    }

    /// Takes a message that the host has sent.
    fn take_message(&mut self, slot: Slot, command_id: u16, bytes: &[u8], core: &mut Core) {
        let policy = self.policy(core);
        let Some(guard) = &mut self.guard else { return };
        let Ok(random) = weft_reactor::system::random_bytes() else {
            return self.answer(slot, command_id, Status::INTERNAL_ERROR);
        };
        guard.authenticator.send(bytes, policy.as_ref(), &Random::new(random));
        self.answer(slot, command_id, Status::SUCCESS);
        self.end_exchange_step(core);
    }

    /// What the host has to prove as of now: its secret may have changed since it connected.
    fn policy(&self, core: &Core) -> Option<Arc<Policy>> {
        let names = &self.guard.as_ref()?.names;
        let view = core.snapshot.view(&names.subsystem, &self.endpoints, &names.host)?;
        view.policies.get(&names.host).cloned()
    }

    fn authentication_receive(&mut self, slot: Slot, command: &Command, core: &mut Core) {
        self.arrived();
        let command_id = command.command_id.get();
        let length = message_length(&Authentication::from_command(command)).and_then(|length| {
            self.check_transfer(command, length)?;
            Ok(length)
        });
        match length {
            Ok(length) => self.give_message(PendingReceive { slot, command_id, length }, core),
            Err(status) => self.answer(slot, command_id, status),
        }
        self.end_exchange_step(core);
    }

    /// Gives the host the message that it fetches, as soon as there is one.
    fn give_message(&mut self, receive: PendingReceive, core: &mut Core) {
        let PendingReceive { slot, command_id, length } = receive;
        let Some(guard) = &mut self.guard else { return };
        if guard.waiting.is_some() {
            return self.answer(slot, command_id, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        if guard.authenticator.is_failing() && !guard.is_failing {
            guard.is_failing = true;
            guard.waiting = Some(receive);
            guard.is_timed = true;
            let at = core.reactor.turn_time().saturating_add(FAILURE_DELAY);
            return core.reactor.set_timer(timer(AUTHENTICATION_TIMERS, self.id), at);
        }
        let Some(mut buffer) = core.schedule.memory.take_admin(length as usize) else {
            return self.answer(slot, command_id, Status::INTERNAL_ERROR);
        };
        match guard.authenticator.receive(length) {
            ReceiveAnswer::Pending => guard.waiting = Some(receive),
            ReceiveAnswer::Message(bytes) => {
                fill(&mut buffer, &bytes);
                if let Some(completion) = self.completion(command_id, Status::SUCCESS) {
                    self.transport.send(slot, buffer, completion);
                }
            }
        }
    }

    /// After each step of an exchange: passes on its work, and ends what has failed.
    fn end_exchange_step(&mut self, core: &mut Core) {
        let Some(guard) = &mut self.guard else { return };
        guard.choice = guard.authenticator.choice().or(guard.choice);
        if let Some(work) = guard.authenticator.take_work()
            && let Some(post) = core.posts.get(core.id).cloned()
        {
            let alive = Arc::downgrade(&guard.alive);
            let job = Job { work, connection: self.id, post, alive };
            if let Some(done) = core.directory.powers().compute(job) {
                return self.handle_power(done, core);
            }
        }
        match guard.authenticator.standing() {
            AuthState::Failed(reason) => {
                let (peer, host) = (self.endpoints.peer, guard.names.host);
                let what = format_args!(
                    "{peer}: {host} was not authenticated: {reason}: compare the host's key with \
                     the one here"
                );
                core.count_failed_authentication(what, 1);
                self.close(CloseReason::Requested("the host was not authenticated"), core);
            }
            AuthState::Authenticated if !guard.authenticator.is_under_way() => {
                if let Some(generated) = guard.authenticator.take_generated_psk() {
                    guard.keep(&generated, (self.id, self.holds_key), core);
                }
                if std::mem::take(&mut guard.is_timed) {
                    if let Some((hash, group)) = guard.choice {
                        core.directory.queue_authenticated(self.id, hash, group);
                    }
                    core.directory.pending(|pending| pending.note(true));
                    core.reactor.clear_timer(timer(AUTHENTICATION_TIMERS, self.id));
                    log::debug!("{}: {} is authenticated", self.endpoints.peer, guard.names.host);
                    self.end_pending(core);
                    self.claim_when_authenticated(core);
                }
            }
            AuthState::Authenticated | AuthState::Unauthenticated => self.time_exchange(core),
        }
    }

    /// The host is who it says: its Host Identifier is to be its own, unless another host has
    /// connected with it since this one's Connect.
    fn claim_when_authenticated(&mut self, core: &mut Core) {
        let Some(guard) = &mut self.guard else { return };
        let (Some(host_id), names) = (guard.host_id.take(), guard.names.clone()) else { return };
        let view = core.snapshot.view(&names.subsystem, &self.endpoints, &names.host);
        let claimed = view.map(|view| self.claim_host_id(&names.host, &host_id, &view, core));
        if let Some(Err(_)) = claimed {
            let what = "another host has connected with its Host Identifier";
            self.close(CloseReason::Requested(what), core);
        }
    }

    /// A command has come that is answered here and not by the queue's role.
    fn arrived(&mut self) {
        match &mut self.role {
            Role::Admin(admin) => admin.arrived(),
            Role::Io(io) => io.arrived(),
            Role::Unconnected { .. } | Role::Connecting(_) | Role::Gone => {}
        }
    }

    fn completion(&mut self, command_id: u16, status: Status) -> Option<Completion> {
        match &mut self.role {
            Role::Admin(admin) => Some(admin.completion(command_id, status)),
            Role::Io(io) => Some(io.completion(command_id, status)),
            Role::Unconnected { .. } | Role::Connecting(_) | Role::Gone => None,
        }
    }

    fn answer(&mut self, slot: Slot, command_id: u16, status: Status) {
        if let Some(completion) = self.completion(command_id, status) {
            self.transport.complete(slot, completion);
        }
    }
}

/// Hosts expect as many bytes as they have asked for; after the message come zeros.
fn fill(buffer: &mut Buffer, message: &[u8]) {
    let bytes = buffer.bytes_mut();
    let (start, rest) = bytes.split_at_mut(message.len().min(bytes.len()));
    start.copy_from_slice(message.get(..start.len()).unwrap_or_default());
    rest.fill(0);
}
