//! A controller with a thread of its own, for users without a reactor: every call blocks until its
//! response has arrived.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_nvme::log_page::{GetLogPage, LogPageId};
use weft_nvme::{Command, Completion, Status};
use weft_nvmf::auth::Secret;
use weft_nvmf::host::{
    AdminData, ControllerInfo, ControllerKind, DiscoveryLog, DiscoveryReader, Event, HostStep,
    NamespaceInfo, Problem,
};

use crate::device::NamespaceFactory;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::options::Options;
use crate::shared::{ConnectionEnds, ControllerState, Shared};
use crate::worker::{self, Call, Calls};
use crate::{limits, sources};

/// Connects to the NVM subsystem that the options name, and waits until it can be used. Of several
/// endpoints it is the first that can be connected; [`crate::Multipath`] uses all of them.
///
/// ```no_run
/// let address = "nvme-tcp://192.0.2.7:4420/nqn.2024-01.io.example:disk".parse()?;
/// let controller = weft_host::connect(&weft_host::Options::new(address))?;
/// let disk = controller.namespace(1)?;
/// let mut block = vec![0; disk.block_bytes() as usize];
/// disk.read(0, &mut block)?;
/// controller.disconnect()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect(options: &Options) -> Result<Controller, Error> {
    Controller::start_any(options, ControllerKind::Nvm)
}

/// Connects to a discovery controller: the subsystem that the options name, or else the
/// well-known one. Keep it to be notified of changes ([`Event::DiscoveryChanged`]).
pub fn connect_discovery(options: &Options) -> Result<Controller, Error> {
    let options = &Options { discovery: false, ..options.clone() };
    Controller::start_any(options, ControllerKind::Discovery)
}

/// Reads the Discovery log page of the controller at this address, and disconnects.
pub fn discover(options: &Options) -> Result<DiscoveryLog, Error> {
    let mut options = options.clone();
    if !options.address.is_discovery() {
        options.address.subnqn = None;
    }
    // A short connection needs no Keep Alive and no reconnection.
    options.keep_alive_tmo = Duration::ZERO;
    options.ctrl_loss_tmo = Some(Duration::ZERO);
    let controller = connect_discovery(&options)?;
    let log = controller.discovery_log();
    controller.disconnect()?;
    log
}

/// The result of an admin command.
#[derive(Debug, Clone)]
pub struct AdminResponse {
    /// The completion; its status may be an error.
    pub completion: Completion,
    /// What the controller sent.
    pub data: Vec<u8>,
}

/// See [`Controller::admin_command`].
fn admin_command(
    shared: &Shared,
    calls: &Calls,
    command: Command,
    data: AdminData,
) -> Result<AdminResponse, Error> {
    let length = match &data {
        AdminData::None => 0,
        AdminData::ToController(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        AdminData::FromController(length) => *length,
    };
    if length > limits::ADMIN_DATA_MAX {
        return Err(Error::Invalid(format!(
            "{length} bytes are more than one admin command carries here ({})",
            limits::ADMIN_DATA_MAX
        )));
    }
    let (reply, answer) = mpsc::channel();
    calls.post(Call::Admin { command, data, reply })?;
    let result = answer.recv().map_err(|_| Error::Stopped)?;
    let (completion, data) = result.map_err(|problem| shared.error(problem))?;
    Ok(AdminResponse { completion, data })
}

/// See [`Controller::admin_command_checked`].
pub(crate) fn admin_command_checked(
    shared: &Shared,
    calls: &Calls,
    command: Command,
    data: AdminData,
) -> Result<AdminResponse, Error> {
    let answer = admin_command(shared, calls, command, data)?;
    let status: Status = answer.completion.status();
    if status.is_success() {
        return Ok(answer);
    }
    let step = HostStep::UserCommand;
    Err(shared.error(Problem::Refused { step, status, parameter: None }))
}

/// A connected controller. Dropping it disconnects; [`Controller::disconnect`] also returns
/// the result. It can be used from several threads at a time.
#[derive(Debug)]
pub struct Controller {
    shared: Arc<Shared>,
    calls: Calls,
    thread: Option<JoinHandle<()>>,
}

impl Controller {
    /// At the first endpoint that can be connected.
    fn start_any(options: &Options, kind: ControllerKind) -> Result<Self, Error> {
        let endpoints = match options.discovery {
            true => sources::ports(options)?,
            false => options.address.endpoints().collect(),
        };
        let mut first_error = None;
        for address in endpoints {
            let options = Options { address, discovery: false, ..options.clone() };
            match Self::start(&options, kind) {
                Ok(controller) => return Ok(controller),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        Err(first_error.unwrap_or(Error::Stopped))
    }

    fn start(options: &Options, kind: ControllerKind) -> Result<Self, Error> {
        let controller = Self::begin(options, kind)?;
        match controller.shared.wait_for_first() {
            ControllerState::Ended(Some(problem)) => Err(controller.shared.error(problem)),
            ControllerState::Ended(None) => Err(Error::Stopped),
            _ => Ok(controller),
        }
    }

    /// Starts to connect.
    pub(crate) fn begin(options: &Options, kind: ControllerKind) -> Result<Self, Error> {
        let (started, hear) = mpsc::channel();
        let thread_options = options.clone();
        let thread = std::thread::Builder::new()
            .name("weft-host".into())
            .spawn(move || worker::run(&thread_options, kind, &started))
            .map_err(|error| Error::Invalid(format!("cannot start a thread: {error}")))?;
        // The worker answers or ends; a worker that ended without an answer has panicked.
        let (shared, calls) = hear.recv().map_err(|_| Error::Stopped)??;
        Ok(Self { shared, calls, thread: Some(thread) })
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The state of the controller.
    #[must_use]
    pub fn state(&self) -> ControllerState {
        self.shared.state()
    }

    /// Both ends of the last connection.
    #[must_use]
    pub fn ends(&self) -> Option<ConnectionEnds> {
        self.shared.ends()
    }

    /// Identifiers, capabilities and limits of the controller.
    pub fn info(&self) -> Result<Arc<ControllerInfo>, Error> {
        let snapshot = self.shared.snapshot().ok_or(Error::Stopped)?;
        Ok(Arc::clone(&snapshot.controller))
    }

    /// The active namespaces, by identifier.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Arc<NamespaceInfo>> {
        let snapshot = self.shared.snapshot();
        snapshot.map(|snapshot| snapshot.namespaces.values().cloned().collect()).unwrap_or_default()
    }

    /// A namespace to be read and written with blocking calls.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, Error> {
        let factory = self.factory(nsid)?;
        Ok(Namespace::new(Arc::clone(&self.shared), self.calls.clone(), factory))
    }

    /// A namespace as a block device, to be opened on the reactors of the caller: the fastest
    /// interface.
    pub fn factory(&self, nsid: u32) -> Result<NamespaceFactory, Error> {
        NamespaceFactory::new(&self.shared, nsid)
    }

    /// Sends an admin command and waits for its completion, whatever its status. The command's
    /// identifier and SGL are filled in. During a reconnection the call waits.
    pub fn admin_command(&self, command: Command, data: AdminData) -> Result<AdminResponse, Error> {
        admin_command(&self.shared, &self.calls, command, data)
    }

    /// As [`Controller::admin_command`]; any status but success is an error.
    pub fn admin_command_checked(
        &self,
        command: Command,
        data: AdminData,
    ) -> Result<AdminResponse, Error> {
        admin_command_checked(&self.shared, &self.calls, command, data)
    }

    /// So many bytes of a log page from this offset, in as many commands as that takes. The
    /// event that the log page belongs to is cleared by the last of them.
    pub fn log_page(&self, get: GetLogPage, length: u32) -> Result<Vec<u8>, Error> {
        let piece = u32::try_from(weft_nvmf::host::limits::LOG_PIECE_BYTES).unwrap_or(u32::MAX);
        let mut bytes = Vec::new();
        let mut done = 0;
        while done < length {
            let now = (length - done).min(piece);
            let part = GetLogPage::new(get.log_page, get.offset + u64::from(done), now);
            let retain_event = get.retain_event || done + now < length;
            let part = GetLogPage {
                retain_event,
                offset: part.offset,
                dwords_0s_based: part.dwords_0s_based,
                ..get
            };
            let room = u32::try_from(part.length()).unwrap_or(u32::MAX);
            let data = AdminData::FromController(room);
            let answer = self.admin_command_checked(part.to_command(), data)?;
            let wanted = answer.data.get(..now as usize).unwrap_or(&answer.data);
            bytes.extend_from_slice(wanted);
            if wanted.len() < now as usize {
                break;
            }
            done += now;
        }
        Ok(bytes)
    }

    /// The head of a log page of the whole controller.
    pub fn get_log_page(&self, log_page: LogPageId, length: u32) -> Result<Vec<u8>, Error> {
        let all = weft_nvme::command::NAMESPACE_ID_BROADCAST;
        let get = GetLogPage { namespace_id: all, ..GetLogPage::new(log_page, 0, 4) };
        self.log_page(get, length)
    }

    /// The Discovery log page, of a discovery controller.
    pub fn discovery_log(&self) -> Result<DiscoveryLog, Error> {
        let mut reader = DiscoveryReader::new();
        while let Some((command, data)) = reader.poll_command() {
            let answer = self.admin_command(command, data)?;
            reader
                .handle_completion(&answer.completion, &answer.data)
                .map_err(|problem| self.shared.error(problem))?;
        }
        reader.finish().ok_or(Error::Stopped)
    }

    /// The oldest event that was not returned yet; waits for one at most this long. `None` also
    /// when the controller has ended and all events were returned.
    #[must_use]
    pub fn next_event(&self, patience: Duration) -> Option<Event> {
        self.shared.next_event(patience)
    }

    /// Resets the controller and returns at once; I/O waits until it is back
    /// ([`Event::Connected`]).
    pub fn reset(&self) {
        // A controller that has ended needs none.
        let _ = self.calls.post(Call::Reset);
    }

    /// Authenticates all queues again and returns at once; I/O goes on, and the result of each
    /// queue comes as an event ([`Event::Authenticated`]). One that fails ends the connection
    /// ([`Event::Lost`]). A controller that has asked for no authentication is not asked for any.
    pub fn authenticate_again(&self) {
        // A controller that has ended needs none.
        let _ = self.calls.post(Call::Authenticate(None));
    }

    /// Uses these secrets from now on, the host's and, if it has to prove that it has that, the
    /// controller's, and authenticates all queues again with them, as
    /// [`Controller::authenticate_again`] does.
    pub fn set_secrets(&self, own: Secret, controllers: Option<Secret>) {
        // A controller that has ended needs none.
        let _ = self.calls.post(Call::Authenticate(Some(Box::new((own, controllers)))));
    }

    /// Rescans the namespaces and returns at once; changes come as events. Controllers that send
    /// events need no rescan.
    pub fn rescan(&self) {
        // A controller that has ended has none.
        let _ = self.calls.post(Call::Rescan);
    }

    /// Shuts the controller down and closes all connections. Requests in flight, on any
    /// reactor, fail.
    pub fn disconnect(mut self) -> Result<(), Error> {
        self.stop();
        match self.shared.state() {
            ControllerState::Ended(Some(problem)) => Err(self.shared.error(problem)),
            _ => Ok(()),
        }
    }

    /// As [`Controller::disconnect`], but returns at once.
    pub(crate) fn end(&self) {
        // A controller that has ended needs no end.
        let _ = self.calls.post(Call::Stop);
    }

    fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that does not answer has stopped.
            let _ = self.calls.post(Call::Stop);
            if thread.join().is_err() {
                log::error!("{}: the host's thread panicked", self.shared.options.address);
            }
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop();
    }
}
