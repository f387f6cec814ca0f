//! The steps that make a controller usable, in the order of the specification's controller
//! initialisation over Fabrics.
//!
//! | step | command | goes on when |
//! |---|---|---|
//! | `ConnectAdmin` | Connect, queue 0 | success |
//! | `Authenticate` | Authentication Send and Receive | where Connect asks for it, until done |
//! | `ReadCapabilities` | Property Get CAP | a command set that is known |
//! | `ReadVersion` | Property Get VS | |
//! | `Enable` | Property Set CC.EN | |
//! | `AwaitReady` | Property Get CSTS | RDY within CAP.TO, not CFS; else again in a moment |
//! | `IdentifyController` | Identify, CNS 01h | it fits what Fabrics asks of a controller |
//! | `IdentifyNvmController` | Identify, CNS 06h | NVM controllers from 2.0 on; may be refused |
//! | `SetQueueCount` | Set Features 07h | NVM controllers; at least one queue |
//! | `SetEventConfiguration` | Set Features 0Bh | where OAES offers something; may be refused |
//! | the steps of [`Scan`] | | NVM controllers |
//!
//! An authentication that has made a key of TLS has the steps begin again over TLS.

use core::time::Duration;
use std::sync::Arc;

use crate::auth::GeneratedPsk;
use weft_nvme::fabrics::{
    CONTROLLER_ID_DYNAMIC, CONTROLLER_ID_MAX, Connect, ConnectAttributes, ConnectData,
    ConnectResult, PropertyGet, PropertySet, PropertySize,
};
use weft_nvme::property::{
    Capabilities, CommandSetSelected, ControllerConfiguration, ControllerStatus, Offset, Version,
};
use weft_nvme::{Command, Completion, Wire};

use super::admin_queue::AdminData;
use super::authenticate::{AuthenticationProgress, Credentials, QueueAuthentication};
use super::config::{ControllerKind, HostConfig};
use super::problem::{HostStep, Problem, refused};
use super::scan::{Scan, ScanResult};
use super::snapshot::{ControllerInfo, ControllerSnapshot};
use super::{admin_commands, limits};

type Request = (Command, AdminData);

/// What an input led to.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing yet.
    Wait,
    /// The next command.
    Submit(HostStep, Request),
    /// The authentication has made a key of TLS: the steps begin again over TLS with it.
    Secured(Box<GeneratedPsk>),
    /// The controller is ready; whether its admin queue had to be authenticated.
    Done { snapshot: Box<ControllerSnapshot>, is_authenticated: bool },
    /// It is not going to be.
    Failed(Problem),
}

impl From<Problem> for Progress {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

/// One run through the steps.
#[derive(Debug)]
pub(super) struct Initialise {
    step: HostStep,
    controller: ControllerInfo,
    ready_until: Duration,
    ready_timeout: Duration,
    poll_at: Option<Duration>,
    scan: Option<Scan>,
    authentication: Option<Box<QueueAuthentication>>,
    is_authenticated: bool,
    /// The connection has TLS with a key that an authentication has made.
    has_channel: bool,
}

impl Initialise {
    pub(super) fn new(config: &HostConfig, has_channel: bool) -> Self {
        Self {
            step: HostStep::ConnectAdmin,
            controller: ControllerInfo::unknown(config),
            ready_until: Duration::MAX,
            ready_timeout: Duration::ZERO,
            poll_at: None,
            scan: None,
            authentication: None,
            is_authenticated: false,
            has_channel,
        }
    }

    /// The first command: Connect of the admin queue.
    pub(super) fn first(&mut self, config: &HostConfig) -> Request {
        let without = self.controller.flow_control_disabled;
        connect(config, 0, limits::ADMIN_QUEUE_ENTRIES, CONTROLLER_ID_DYNAMIC, without)
    }

    pub(super) const fn deadline(&self) -> Option<Duration> {
        self.poll_at
    }

    pub(super) fn handle_deadline(&mut self, now: Duration) -> Progress {
        if self.poll_at.is_none_or(|at| at > now) {
            return Progress::Wait;
        }
        self.poll_at = None;
        Progress::Submit(HostStep::AwaitReady, read_status())
    }

    pub(super) fn handle_completion(
        &mut self,
        config: &HostConfig,
        completion: &Completion,
        data: &[u8],
        now: Duration,
    ) -> Progress {
        if self.scan.is_some() {
            return self.handle_scan_completion(completion, data);
        }
        if let Some(authentication) = &mut self.authentication {
            let progress = authentication.handle_completion(completion, data);
            return self.authenticated(progress);
        }
        let may_be_refused =
            matches!(self.step, HostStep::IdentifyNvmController | HostStep::SetEventConfiguration);
        if !completion.status().is_success() && !may_be_refused {
            return refused(self.step, completion).into();
        }
        match self.step {
            HostStep::ConnectAdmin => self.connected(config, completion),
            HostStep::ReadCapabilities => self.capabilities(completion),
            HostStep::ReadVersion => self.version(completion),
            HostStep::Enable => self.enabled(now),
            HostStep::AwaitReady => self.status(completion, now),
            HostStep::IdentifyController => self.identified(config, data),
            HostStep::IdentifyNvmController => {
                if completion.status().is_success() {
                    self.controller.set_nvm_limits(data);
                }
                self.ask_queue_count(config)
            }
            HostStep::SetQueueCount => self.queue_count(config, completion),
            _ => self.begin_scan(),
        }
    }

    fn go(&mut self, step: HostStep, request: Request) -> Progress {
        self.step = step;
        Progress::Submit(step, request)
    }

    fn invalid_response(&self, what: &'static str) -> Progress {
        Progress::Failed(Problem::InvalidResponse { step: self.step, what })
    }

    fn connected(&mut self, config: &HostConfig, completion: &Completion) -> Progress {
        let result = ConnectResult(completion.dword0());
        if result.controller_id() > CONTROLLER_ID_MAX {
            return self.invalid_response("the controller identifier is a reserved one");
        }
        self.controller.controller_id = result.controller_id();
        let credentials = config.credentials.as_ref();
        match QueueAuthentication::after_connect(config, credentials, result, self.has_channel) {
            Ok(Some(authentication)) => {
                let first = authentication.first();
                self.authentication = Some(Box::new(authentication));
                self.go(HostStep::Authenticate, first)
            }
            Ok(None) => self.read_capabilities(),
            Err(problem) => problem.into(),
        }
    }

    fn authenticated(&mut self, progress: AuthenticationProgress) -> Progress {
        match progress {
            AuthenticationProgress::Submit(next) => self.go(HostStep::Authenticate, next),
            AuthenticationProgress::Done => {
                self.is_authenticated = true;
                match self.authentication.take().map(|own| own.finish()).transpose() {
                    Ok(Some(Some(generated))) => Progress::Secured(Box::new(generated)),
                    Ok(_) => self.read_capabilities(),
                    Err(problem) => problem.into(),
                }
            }
            AuthenticationProgress::Failed(problem) => problem.into(),
        }
    }

    fn read_capabilities(&mut self) -> Progress {
        self.go(HostStep::ReadCapabilities, read_property(Offset::CONTROLLER_CAPABILITIES))
    }

    fn capabilities(&mut self, completion: &Completion) -> Progress {
        let capabilities = Capabilities(completion.result.get());
        let usable = capabilities.nvm_command_set()
            || capabilities.io_command_sets()
            || (capabilities.no_io_command_set()
                && self.controller.kind == ControllerKind::Discovery);
        if !usable {
            return self.invalid_response("CAP.CSS offers no command set that is known here");
        }
        self.controller.capabilities = capabilities;
        self.go(HostStep::ReadVersion, read_property(Offset::VERSION))
    }

    fn version(&mut self, completion: &Completion) -> Progress {
        self.controller.version = Version(completion.dword0());
        let capabilities = self.controller.capabilities;
        let command_set = if capabilities.io_command_sets() {
            CommandSetSelected::ALL_SUPPORTED
        } else if capabilities.nvm_command_set() {
            CommandSetSelected::NVM
        } else {
            CommandSetSelected::ADMIN_ONLY
        };
        let configuration = ControllerConfiguration(0)
            .with_enable(true)
            .with_command_set_selected(command_set)
            .with_memory_page_size(capabilities.memory_page_size_minimum())
            .with_submission_queue_entry_size(ControllerConfiguration::SUBMISSION_QUEUE_ENTRY_SIZE)
            .with_completion_queue_entry_size(ControllerConfiguration::COMPLETION_QUEUE_ENTRY_SIZE);
        self.controller.configuration = configuration;
        let offset = Offset::CONTROLLER_CONFIGURATION;
        let set = PropertySet::new(offset, PropertySize::Four, u64::from(configuration.0));
        self.go(HostStep::Enable, (set.to_command(), AdminData::None))
    }

    fn enabled(&mut self, now: Duration) -> Progress {
        let claimed = Duration::from_millis(self.controller.capabilities.timeout_ms().into());
        self.ready_timeout = claimed.max(limits::READY_TIMEOUT_MIN);
        self.ready_until = now.saturating_add(self.ready_timeout);
        self.go(HostStep::AwaitReady, read_status())
    }

    fn status(&mut self, completion: &Completion, now: Duration) -> Progress {
        let status = ControllerStatus(completion.dword0());
        if status.fatal() {
            return Problem::Fatal.into();
        }
        if status.ready() {
            return self.go(HostStep::IdentifyController, admin_commands::identify_controller());
        }
        if now >= self.ready_until {
            return Problem::NotReady(self.ready_timeout).into();
        }
        self.poll_at = Some(now.saturating_add(limits::READY_POLL).min(self.ready_until));
        Progress::Wait
    }

    fn identified(&mut self, config: &HostConfig, data: &[u8]) -> Progress {
        if let Err(what) = self.controller.set_identity(data, config) {
            return self.invalid_response(what);
        }
        if self.controller.kind == ControllerKind::Discovery {
            return self.request_events();
        }
        if self.controller.version >= Version::V2_0 {
            return self
                .go(HostStep::IdentifyNvmController, admin_commands::identify_nvm_controller());
        }
        self.ask_queue_count(config)
    }

    fn ask_queue_count(&mut self, config: &HostConfig) -> Progress {
        self.go(HostStep::SetQueueCount, admin_commands::set_queue_count(config.io_queues))
    }

    fn queue_count(&mut self, config: &HostConfig, completion: &Completion) -> Progress {
        let granted = admin_commands::granted_queues(completion.dword0());
        self.controller.io_queues = granted.min(config.io_queues);
        self.request_events()
    }

    fn request_events(&mut self) -> Progress {
        match admin_commands::set_event_configuration(self.controller.events_offered()) {
            Some(request) => self.go(HostStep::SetEventConfiguration, request),
            None => self.begin_scan(),
        }
    }

    fn begin_scan(&mut self) -> Progress {
        if self.controller.kind == ControllerKind::Discovery {
            return self.done(ScanResult::default());
        }
        let scan = self.scan.insert(Scan::new(&self.controller, false));
        match scan.poll_command() {
            Some((step, request)) => Progress::Submit(step, request),
            None => self.done(ScanResult::default()),
        }
    }

    fn handle_scan_completion(&mut self, completion: &Completion, data: &[u8]) -> Progress {
        let Some(scan) = &mut self.scan else { return Progress::Wait };
        if let Err(problem) = scan.handle_completion(completion, data) {
            return problem.into();
        }
        if let Some((step, request)) = scan.poll_command() {
            return Progress::Submit(step, request);
        }
        let found = self.scan.take().map(Scan::finish).unwrap_or_default();
        self.done(found)
    }

    fn done(&mut self, found: ScanResult) -> Progress {
        let controller = Arc::new(self.controller.clone());
        let snapshot = Box::new(ControllerSnapshot {
            generation: 0,
            controller,
            namespaces: found.namespaces,
            unusable: found.unusable,
            access: found.access,
        });
        Progress::Done { snapshot, is_authenticated: self.is_authenticated }
    }
}

fn read_property(offset: Offset) -> Request {
    let size = offset.size().unwrap_or(PropertySize::Four);
    (PropertyGet::new(offset, size).to_command(), AdminData::None)
}

/// A Connect with its data.
pub(super) fn connect(
    config: &HostConfig,
    queue_id: u16,
    queue_entries: u16,
    controller_id: u16,
    disable_flow_control: bool,
) -> Request {
    let keep_alive_ms = u32::try_from(config.keep_alive_timeout.as_millis()).unwrap_or(u32::MAX);
    let connect = Connect {
        record_format: weft_nvme::fabrics::RECORD_FORMAT,
        queue_id,
        submission_queue_size: queue_entries.saturating_sub(1),
        attributes: ConnectAttributes(0).with_disable_flow_control(disable_flow_control),
        keep_alive_timeout_ms: if queue_id == 0 { keep_alive_ms } else { 0 },
    };
    let data = ConnectData::new(config.host_id, controller_id, &config.subsystem, &config.host);
    (connect.to_command(), AdminData::ToController(data.bytes().to_vec()))
}

/// The Connect of an I/O queue to a controller that is live.
#[must_use]
pub fn connect_queue(
    config: &HostConfig,
    snapshot: &ControllerSnapshot,
    queue_id: u16,
) -> (Command, AdminData) {
    let controller = &snapshot.controller;
    let without = controller.flow_control_disabled;
    connect(config, queue_id, controller.queue_entries, controller.controller_id, without)
}

/// What a controller answered to the Connect of an I/O queue: that it can be used, or that it has
/// to be authenticated first, with these credentials. The controller identifier in it is not looked
/// at: old kernels answer zero.
pub fn check_queue_connected(
    config: &HostConfig,
    credentials: Option<&Credentials>,
    queue_id: u16,
    completion: &Completion,
) -> Result<Option<QueueAuthentication>, Problem> {
    if !completion.status().is_success() {
        return Err(refused(HostStep::ConnectQueue(queue_id), completion));
    }
    // A controller that is live has its secure channel, if the host makes one.
    let result = ConnectResult(completion.dword0());
    QueueAuthentication::after_connect(config, credentials, result, true)
}

/// The command that reads CSTS.
pub(super) fn read_status() -> (Command, AdminData) {
    let get = PropertyGet::new(Offset::CONTROLLER_STATUS, PropertySize::Four);
    (get.to_command(), AdminData::None)
}
