//! One host's association with one controller, from the first connection to the last.
//!
//! ```text
//!            start          opened            snapshot complete
//!   Idle ──────────▶ Opening ──────▶ Initialising ──────────────▶ Live ──── shut_down ─┐
//!                     ▲    │ failed     │ failed                  │  │ ▲                │
//!                     │    ▼            ▼                    lost │  │ └─ (rescan)      │
//!                     │   first time: Ended                       │  │ reset            │
//!                  at │    │            │                         │  ▼                  ▼
//!                     │    ▼ again      ▼ again                   │ Stopping ◀────── (Ended after
//!                   Waiting ◀─────────────────────────────────────┘  │ (Opening)      a shutdown)
//!                     │ given up                                     │
//!                     ▼                                              ▼
//!                   Ended ◀──────────────────────────────────────────┘
//! ```
//!
//! The association owns the admin queue and decides for the whole controller. I/O queues may be on
//! other threads; [`Action`]s tell them when to connect (`Live`), when to close their connections
//! (`Suspend`), when waiting requests fail (`FailIo`), and that the association has ended
//! (`Ended`). They report a lost connection with [`Association::handle_queue_lost`]; the generation
//! keeps an old report from ending a new controller. As in the Linux host, one lost queue is a lost
//! controller: the state of the association at the target is unknown from then on.

mod access;
mod again;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::auth::GeneratedPsk;
use weft_nvme::event::{EventType, NoticeInformation};
use weft_nvme::fabrics::{PropertySet, PropertySize};
use weft_nvme::property::{
    ControllerConfiguration, ControllerStatus, Offset, ShutdownNotification, ShutdownStatus,
};
use weft_nvme::{AdminOpcode, Command, Completion};

use super::admin_queue::{AdminCommand, AdminData, AdminQueue, Outstanding, Purpose};
use super::authenticate::Credentials;
use super::config::{ControllerKind, HostConfig};
use super::event::Event;
use super::initialise::{Initialise, Progress, read_status};
use super::keep_alive::{KeepAlive, KeepAliveAction};
use super::limits;
use super::problem::{HostStep, Problem, Side};
use super::reconnect::{Outage, ReconnectAction};
use super::scan::{Scan, ScanResult};
use super::snapshot::{Change, ControllerSnapshot};
use again::Reauthentication;

/// What the caller has to do, in this order.
#[derive(Debug)]
pub enum Action {
    /// Open the transport connection of the admin queue.
    Open,
    /// The next one that is opened has TLS with this key, and so have those of I/O queues: until
    /// one is opened without this before it.
    Secure(Box<GeneratedPsk>),
    /// Send a command on it.
    Submit(AdminCommand),
    /// Close it, if it is still open; its events are ignored from now on.
    Close,
    /// I/O queues may connect to this controller.
    Live(Arc<ControllerSnapshot>),
    /// The namespaces changed; the I/O queues go on.
    Changed(Arc<ControllerSnapshot>),
    /// The controller has been authenticated again, and I/O queues are, with these credentials:
    /// those whose Connect has led to an exchange.
    Authenticate(Option<Credentials>),
    /// Connections of I/O queues that are opened from now on have TLS with this key. Those that are
    /// there stay.
    Renew(Box<GeneratedPsk>),
    /// I/O queues close their connections. Commands in flight may have been executed; waiting
    /// requests go on waiting.
    Suspend,
    /// Waiting and new I/O fails from now until the next `Live`.
    FailIo,
    /// A user's admin command ended.
    Answer {
        /// The user's tag.
        tag: u64,
        /// The completion and what the controller sent, or why there is none.
        result: Result<(Completion, Vec<u8>), Problem>,
    },
    /// Something that the user may want to know.
    Event(Event),
    /// The association has ended, because of a problem or at the user's request. The last action.
    Ended(Option<Problem>),
}

#[derive(Debug)]
enum Phase {
    Idle,
    Opening { since: Duration, until: Duration },
    Initialising(Box<Initialise>),
    Live,
    Waiting { at: Duration },
    Stopping(Stop),
    Ended,
}

/// An orderly end: disable or shut down, and wait until CSTS says that it is complete.
#[derive(Debug, Clone, Copy)]
struct Stop {
    /// Reconnect afterwards.
    reset: bool,
    until: Duration,
    poll_at: Option<Duration>,
}

#[derive(Debug)]
struct UserCommand {
    tag: u64,
    command: Command,
    data: AdminData,
}

/// The state machine; see the module.
#[derive(Debug)]
pub struct Association {
    config: HostConfig,
    phase: Phase,
    /// The connection of the admin queue has TLS with a key that an authentication has made.
    has_channel: bool,
    generation: u32,
    queue: AdminQueue,
    users: VecDeque<UserCommand>,
    keep_alive: Option<KeepAlive>,
    outage: Option<Outage>,
    snapshot: Option<Arc<ControllerSnapshot>>,
    live_since: Duration,
    scan: Option<Scan>,
    scan_again: bool,
    /// Whether [`Action::Changed`] follows the scan even if nothing has changed.
    scan_is_told: bool,
    reauthentication: Reauthentication,
    /// When the controller is reset if a namespace is still between two access states.
    stuck_at: Option<Duration>,
    actions: VecDeque<Action>,
}

impl Association {
    /// An association that has not been started.
    #[must_use]
    pub const fn new(config: HostConfig) -> Self {
        Self {
            config,
            phase: Phase::Idle,
            has_channel: false,
            generation: 0,
            queue: AdminQueue::new(),
            users: VecDeque::new(),
            keep_alive: None,
            outage: None,
            snapshot: None,
            live_since: Duration::ZERO,
            scan: None,
            scan_again: false,
            scan_is_told: false,
            reauthentication: Reauthentication::new(),
            stuck_at: None,
            actions: VecDeque::new(),
        }
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &HostConfig {
        &self.config
    }

    /// The number of the present or last controller: each `Live` has its own.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the controller can be used now.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Whether the association has ended.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// The controller and its namespaces, as of the last time it was live.
    #[must_use]
    pub const fn snapshot(&self) -> Option<&Arc<ControllerSnapshot>> {
        self.snapshot.as_ref()
    }

    /// Starts connecting.
    pub fn start(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Idle) {
            self.open(now);
        }
    }

    /// The transport connection of the admin queue is there.
    pub fn handle_opened(&mut self, now: Duration) {
        if !matches!(self.phase, Phase::Opening { .. }) {
            return;
        }
        let mut initialise = Box::new(Initialise::new(&self.config, self.has_channel));
        let first = initialise.first(&self.config);
        self.phase = Phase::Initialising(initialise);
        self.submit(Purpose::Initialise, HostStep::ConnectAdmin, first, now);
    }

    /// A command on the admin queue was completed. `data` is what the controller sent for it.
    pub fn handle_completion(
        &mut self,
        tag: u16,
        completion: &Completion,
        data: Vec<u8>,
        now: Duration,
    ) {
        let Some(outstanding) = self.queue.take(tag) else { return };
        if !matches!(outstanding.purpose, Purpose::Event | Purpose::KeepAlive) {
            self.handle_traffic();
        }
        match outstanding.purpose {
            Purpose::Initialise => self.handle_initialise_completion(completion, &data, now),
            Purpose::Authenticate => self.handle_exchange_completion(completion, &data, now),
            Purpose::Scan => self.handle_scan_completion(completion, &data, now),
            Purpose::KeepAlive => self.handle_keep_alive_completion(completion, now),
            Purpose::Event => self.handle_event_completion(completion, now),
            Purpose::Stop => self.handle_stop_completion(outstanding.step, completion, now),
            Purpose::User(tag) => {
                let result = Ok((*completion, data));
                self.actions.push_back(Action::Answer { tag, result });
            }
        }
        self.submit_users(now);
    }

    /// The data of an admin command had a wrong data digest. A user's command fails; for any other
    /// the controller is reconnected, which repeats it.
    pub fn handle_broken(&mut self, tag: u16, now: Duration) {
        let Some(outstanding) = self.queue.take(tag) else { return };
        let problem = Problem::Transport {
            side: Side::Io,
            reason: format!("the data digest of the answer to {} is wrong", outstanding.step),
        };
        if let Purpose::User(tag) = outstanding.purpose {
            self.actions.push_back(Action::Answer { tag, result: Err(problem) });
        } else {
            self.handle_loss(problem, now);
        }
    }

    /// The transport connection of the admin queue was closed, or could not be opened.
    pub fn handle_closed(&mut self, side: Side, reason: String, now: Duration) {
        match self.phase {
            Phase::Opening { .. } | Phase::Initialising(_) | Phase::Live => {
                self.handle_loss(Problem::Transport { side, reason }, now);
            }
            Phase::Stopping(stop) => self.finish_stop(stop, now),
            Phase::Idle | Phase::Waiting { .. } | Phase::Ended => {}
        }
    }

    /// An I/O queue of this generation lost its connection, or could not connect.
    pub fn handle_queue_lost(
        &mut self,
        generation: u32,
        queue: u16,
        problem: Problem,
        now: Duration,
    ) {
        if generation != self.generation || !self.is_live() {
            return;
        }
        if problem.is_final() {
            // Another association would be refused the same queue.
            self.actions.push_back(Action::Event(Event::QueueRefused { queue, problem }));
        } else {
            self.handle_loss(Problem::QueueLost { queue, problem: Box::new(problem) }, now);
        }
    }

    /// Commands were completed on an I/O queue; counts as Keep Alive with a controller that has
    /// traffic-based keep alive.
    pub fn handle_traffic(&mut self) {
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.handle_traffic();
        }
    }

    /// When [`Association::handle_deadline`] has to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let phase = match &self.phase {
            Phase::Idle | Phase::Live | Phase::Ended => None,
            Phase::Opening { until, .. } => Some(*until),
            Phase::Initialising(initialise) => initialise.deadline(),
            Phase::Waiting { at } => Some(*at),
            Phase::Stopping(stop) => Some(stop.poll_at.unwrap_or(stop.until).min(stop.until)),
        };
        let keep_alive =
            self.keep_alive.as_ref().filter(|_| self.is_live()).map(KeepAlive::deadline);
        let fail_io = self.outage.as_ref().and_then(Outage::fail_io_at);
        let other = [self.stuck_at, self.reauthentication.due()];
        let other = other.into_iter().flatten().filter(|_| self.is_live()).min();
        [phase, keep_alive, fail_io, other, self.queue.deadline()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_deadline(&mut self, now: Duration) {
        if self.outage.as_mut().is_some_and(|outage| outage.starts_failing_io(now)) {
            self.actions.push_back(Action::FailIo);
        }
        if let Some(problem) = self.queue.overdue(now) {
            return match self.phase {
                Phase::Stopping(stop) => self.finish_stop(stop, now),
                _ => self.handle_loss(problem, now),
            };
        }
        match &mut self.phase {
            Phase::Idle | Phase::Ended => {}
            Phase::Opening { since, until } if *until <= now => {
                let waited = until.saturating_sub(*since);
                self.handle_loss(Problem::TimedOut { step: HostStep::Open, waited }, now);
            }
            Phase::Opening { .. } => {}
            Phase::Initialising(initialise) => {
                let progress = initialise.handle_deadline(now);
                self.apply(progress, now);
            }
            Phase::Live if self.stuck_at.is_some_and(|at| at <= now) => {
                self.actions.push_back(Action::Event(Event::AccessStuck));
                self.stop(true, now);
            }
            Phase::Live => {
                self.handle_keep_alive_deadline(now);
                self.handle_authentication_deadline(now);
            }
            Phase::Waiting { at } if *at <= now => {
                if let Some(outage) = &mut self.outage {
                    outage.attempt();
                }
                self.open(now);
            }
            Phase::Waiting { .. } => {}
            Phase::Stopping(stop) => {
                let mut stop = *stop;
                if stop.until <= now {
                    self.finish_stop(stop, now);
                } else if stop.poll_at.is_some_and(|at| at <= now) {
                    stop.poll_at = None;
                    self.phase = Phase::Stopping(stop);
                    self.submit(Purpose::Stop, HostStep::AwaitReady, read_status(), now);
                }
            }
        }
    }

    /// Submits a user's admin command. It waits while the controller is not live.
    pub fn submit_user(&mut self, tag: u64, command: Command, data: AdminData, now: Duration) {
        if self.is_ended() {
            let result = Err(Problem::Impossible("the controller is disconnected".into()));
            self.actions.push_back(Action::Answer { tag, result });
            return;
        }
        self.users.push_back(UserCommand { tag, command, data });
        self.submit_users(now);
    }

    /// Disables the controller and connects again; I/O waits meanwhile.
    pub fn reset(&mut self, now: Duration) {
        match self.phase {
            Phase::Live => self.stop(true, now),
            Phase::Waiting { .. } => {
                if let Some(outage) = &mut self.outage {
                    outage.attempt();
                }
                self.open(now);
            }
            _ => {}
        }
    }

    /// Shuts the controller down and ends.
    pub fn shut_down(&mut self, now: Duration) {
        match self.phase {
            Phase::Live => self.stop(false, now),
            Phase::Stopping(ref mut stop) => stop.reset = false,
            Phase::Ended => {}
            _ => self.end(None),
        }
    }

    /// Scans the namespaces again.
    pub fn rescan(&mut self, now: Duration) {
        self.begin_scan(false, now);
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn open(&mut self, now: Duration) {
        // Each attempt makes keys of its own.
        self.has_channel = false;
        self.begin_opening(now);
    }

    fn begin_opening(&mut self, now: Duration) {
        let until = now.saturating_add(self.patience(self.config.open_timeout, now));
        self.phase = Phase::Opening { since: now, until };
        self.actions.push_back(Action::Open);
    }

    /// How long a step of an attempt to connect may take: not beyond the time at which the
    /// controller is given up.
    fn patience(&self, most: Duration, now: Duration) -> Duration {
        let ends_at = self.outage.as_ref().and_then(Outage::ends_at);
        let left = ends_at.map(|end| end.saturating_sub(now).max(limits::LAST_ATTEMPT));
        most.min(left.unwrap_or(Duration::MAX))
    }

    fn submit(
        &mut self,
        purpose: Purpose,
        step: HostStep,
        command: (Command, AdminData),
        now: Duration,
    ) {
        let timeout = match purpose {
            Purpose::Event => None,
            Purpose::Initialise => Some(self.patience(self.config.admin_timeout, now)),
            _ => Some(self.config.admin_timeout),
        };
        // There is at most one outstanding command of each purpose, and a tag for each.
        let outstanding = Outstanding { purpose, step, sent_at: now, timeout };
        if let Some(command) = self.queue.submit(outstanding, command) {
            self.actions.push_back(Action::Submit(command));
        }
    }

    fn submit_users(&mut self, now: Duration) {
        while self.is_live() && self.queue.has_room_for_user() {
            let Some(user) = self.users.pop_front() else { return };
            let command = (user.command, user.data);
            self.submit(Purpose::User(user.tag), HostStep::UserCommand, command, now);
        }
    }

    fn handle_initialise_completion(
        &mut self,
        completion: &Completion,
        data: &[u8],
        now: Duration,
    ) {
        if let Phase::Initialising(initialise) = &mut self.phase {
            let progress = initialise.handle_completion(&self.config, completion, data, now);
            self.apply(progress, now);
        }
    }

    fn apply(&mut self, progress: Progress, now: Duration) {
        match progress {
            Progress::Failed(problem)
                if self.config.disable_flow_control && problem.is_of_attributes() =>
            {
                self.config.disable_flow_control = false;
                self.close_admin_queue(&problem);
                self.open(now);
            }
            Progress::Wait => {}
            Progress::Submit(step, command) => {
                self.submit(Purpose::Initialise, step, command, now);
            }
            Progress::Failed(problem) => self.handle_loss(problem, now),
            Progress::Secured(generated) => {
                self.close_admin_queue(&Problem::Reset);
                self.actions.push_back(Action::Secure(generated));
                self.has_channel = true;
                self.begin_opening(now);
            }
            Progress::Done { snapshot, is_authenticated } => {
                self.become_live(*snapshot, now);
                self.begin_reauthentication(is_authenticated, now);
            }
        }
    }

    fn become_live(&mut self, mut snapshot: ControllerSnapshot, now: Duration) {
        self.generation = self.generation.wrapping_add(1);
        snapshot.generation = self.generation;
        let controller = Arc::clone(&snapshot.controller);
        self.keep_alive =
            KeepAlive::new(self.config.keep_alive_timeout, controller.traffic_keeps_alive, now);
        self.phase = Phase::Live;
        self.live_since = now;
        let attempts = self.outage.take().map_or(0, |outage| outage.attempts());
        let changes = match &self.snapshot {
            Some(before) => snapshot.changes_since(before),
            None => Vec::new(),
        };
        let snapshot = Arc::new(snapshot);
        let before = self.snapshot.replace(Arc::clone(&snapshot));
        self.await_access(now);
        self.actions.push_back(Action::Live(Arc::clone(&snapshot)));
        let controller_id = controller.controller_id;
        self.actions.push_back(Action::Event(Event::Connected { controller_id, attempts }));
        self.report_changes(changes);
        self.report_unusable(before.as_deref(), &snapshot);
        let admin_commands = limits::ASYNCHRONOUS_EVENT_REQUESTS;
        for _ in 0..admin_commands {
            self.submit(Purpose::Event, HostStep::AwaitEvent, await_event(), now);
        }
        self.submit_users(now);
    }

    fn report_changes(&mut self, changes: Vec<(u32, Change)>) {
        let events = changes.into_iter().map(|(nsid, change)| Event::Namespace { nsid, change });
        self.actions.extend(events.map(Action::Event));
    }

    /// Reports namespaces that are left out, once each.
    fn report_unusable(&mut self, before: Option<&ControllerSnapshot>, now: &ControllerSnapshot) {
        for (&nsid, &why) in &now.unusable {
            if before.is_none_or(|before| before.unusable.get(&nsid) != Some(&why)) {
                self.actions.push_back(Action::Event(Event::NamespaceUnusable { nsid, why }));
            }
        }
    }

    fn begin_scan(&mut self, read_log: bool, now: Duration) {
        if !self.is_live() || self.config.kind == ControllerKind::Discovery {
            return;
        }
        if self.scan.is_some() {
            self.scan_again = true;
            return;
        }
        let Some(snapshot) = &self.snapshot else { return };
        let mut scan = Scan::new(&snapshot.controller, read_log);
        if let Some((step, command)) = scan.poll_command() {
            self.scan = Some(scan);
            self.submit(Purpose::Scan, step, command, now);
        }
    }

    fn handle_scan_completion(&mut self, completion: &Completion, data: &[u8], now: Duration) {
        let Some(scan) = &mut self.scan else { return };
        if let Err(problem) = scan.handle_completion(completion, data) {
            // The old snapshot stays: a controller that cannot list its namespaces may still
            // serve them.
            self.scan = None;
            self.scan_again = false;
            if core::mem::take(&mut self.scan_is_told)
                && let Some(snapshot) = self.snapshot.clone()
            {
                self.actions.push_back(Action::Changed(snapshot));
            }
            self.actions.push_back(Action::Event(Event::ScanFailed(problem)));
            return;
        }
        if let Some((step, command)) = scan.poll_command() {
            return self.submit(Purpose::Scan, step, command, now);
        }
        if let (Some(scan), Some(before)) = (self.scan.take(), self.snapshot.clone()) {
            let ScanResult { namespaces, unusable, access } = scan.finish();
            let snapshot = ControllerSnapshot { namespaces, unusable, access, ..(*before).clone() };
            let changes = snapshot.changes_since(&before);
            let asked = core::mem::take(&mut self.scan_is_told);
            let differs = snapshot.unusable != before.unusable || snapshot.access != before.access;
            if !changes.is_empty() || differs || asked {
                let snapshot = Arc::new(snapshot);
                self.snapshot = Some(Arc::clone(&snapshot));
                self.actions.push_back(Action::Changed(Arc::clone(&snapshot)));
                self.await_access(now);
                self.report_changes(changes);
                self.report_access(&before, &snapshot);
                self.report_unusable(Some(&before), &snapshot);
            }
        }
        if core::mem::take(&mut self.scan_again) {
            self.begin_scan(false, now);
        }
    }

    fn handle_keep_alive_completion(&mut self, completion: &Completion, now: Duration) {
        let status = completion.status();
        if !status.is_success() && self.is_live() {
            let step = HostStep::KeepAlive;
            return self.handle_loss(Problem::Refused { step, status, parameter: None }, now);
        }
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.handle_answer(now);
        }
    }

    fn handle_keep_alive_deadline(&mut self, now: Duration) {
        let Some(keep_alive) = &mut self.keep_alive else { return };
        match keep_alive.handle_deadline(now) {
            KeepAliveAction::Wait => {}
            KeepAliveAction::Send => {
                let command = (Command::new(AdminOpcode::KEEP_ALIVE), AdminData::None);
                self.submit(Purpose::KeepAlive, HostStep::KeepAlive, command, now);
            }
            KeepAliveAction::Expired => {
                let waited = self.config.keep_alive_timeout;
                self.handle_loss(Problem::TimedOut { step: HostStep::KeepAlive, waited }, now);
            }
        }
    }

    fn handle_event_completion(&mut self, completion: &Completion, now: Duration) {
        if !self.is_live() || !completion.status().is_success() {
            // A refused request is not repeated: the controller does not want it.
            return;
        }
        let event = weft_nvme::event::Event(completion.dword0());
        match event.as_notice() {
            Some(NoticeInformation::NAMESPACE_ATTRIBUTE_CHANGED) => self.begin_scan(true, now),
            Some(NoticeInformation::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE)
                if self.config.multipath =>
            {
                self.begin_access_scan(now);
            }
            Some(NoticeInformation::DISCOVERY_LOG_PAGE_CHANGE) => {
                self.actions.push_back(Action::Event(Event::DiscoveryChanged));
            }
            _ => self.actions.push_back(Action::Event(Event::Asynchronous(event))),
        }
        debug_assert!(event.as_notice().is_none() || event.event_type() == EventType::NOTICE);
        self.submit(Purpose::Event, HostStep::AwaitEvent, await_event(), now);
    }

    fn stop(&mut self, reset: bool, now: Duration) {
        let configuration = self.snapshot.as_ref().map_or(0, |p| p.controller.configuration.0);
        let configuration = ControllerConfiguration(configuration);
        let configuration = if reset {
            configuration.with_enable(false)
        } else {
            configuration.with_shutdown_notification(ShutdownNotification::NORMAL)
        };
        let until = now.saturating_add(limits::SHUTDOWN_TIMEOUT);
        self.phase = Phase::Stopping(Stop { reset, until, poll_at: None });
        self.keep_alive = None;
        self.reauthentication = Reauthentication::new();
        self.drop_scan();
        if reset {
            self.outage = Some(Outage::begin(self.config.reconnect, Duration::MAX, now));
        }
        self.actions.push_back(Action::Suspend);
        let set = PropertySet::new(
            Offset::CONTROLLER_CONFIGURATION,
            PropertySize::Four,
            u64::from(configuration.0),
        );
        let command = (set.to_command(), AdminData::None);
        self.submit(Purpose::Stop, HostStep::Stop, command, now);
    }

    fn handle_stop_completion(&mut self, step: HostStep, completion: &Completion, now: Duration) {
        let Phase::Stopping(mut stop) = self.phase else { return };
        if !completion.status().is_success() {
            return self.finish_stop(stop, now);
        }
        let done = step == HostStep::AwaitReady && {
            let status = ControllerStatus(completion.dword0());
            if stop.reset {
                !status.ready()
            } else {
                status.shutdown_status() == ShutdownStatus::COMPLETE
            }
        };
        if done {
            return self.finish_stop(stop, now);
        }
        if step == HostStep::AwaitReady {
            stop.poll_at = Some(now.saturating_add(limits::READY_POLL));
            self.phase = Phase::Stopping(stop);
        } else {
            self.submit(Purpose::Stop, HostStep::AwaitReady, read_status(), now);
        }
    }

    fn finish_stop(&mut self, stop: Stop, now: Duration) {
        if !stop.reset {
            return self.end(None);
        }
        self.close_admin_queue(&Problem::Reset);
        if let Some(outage) = &mut self.outage {
            outage.attempt();
        }
        self.open(now);
    }

    /// The controller, or the attempt to reach it, is lost.
    fn handle_loss(&mut self, problem: Problem, now: Duration) {
        let was_live = self.is_live();
        let is_first = !was_live && self.outage.is_none();
        if is_first && (problem.is_final() || !self.config.multipath) {
            // The first attempt failed: the user is told at once.
            return self.end(Some(problem));
        }
        self.close_admin_queue(&problem);
        let begins = was_live || is_first;
        if begins {
            let live_for =
                if is_first { Duration::ZERO } else { now.saturating_sub(self.live_since) };
            self.outage = Some(Outage::begin(self.config.reconnect, live_for, now));
        }
        let Some(outage) = &mut self.outage else { return };
        let next = if problem.is_final() && !was_live {
            ReconnectAction::GiveUp
        } else {
            outage.next(now)
        };
        let retry_in = match next {
            ReconnectAction::Attempt(at) => Some(at.saturating_sub(now)),
            ReconnectAction::GiveUp => None,
        };
        let event = if was_live {
            Event::Lost { problem: problem.clone(), retry_in }
        } else {
            let attempts = outage.attempts();
            Event::AttemptFailed { problem: problem.clone(), attempts, retry_in }
        };
        // The reason first: whoever sees that the controller is lost can tell why.
        self.actions.push_back(Action::Event(event));
        if begins {
            self.actions.push_back(Action::Suspend);
        }
        if self.outage.as_mut().is_some_and(|outage| outage.starts_failing_io(now)) {
            self.actions.push_back(Action::FailIo);
        }
        match next {
            ReconnectAction::Attempt(at) => self.phase = Phase::Waiting { at },
            ReconnectAction::GiveUp => self.end(Some(problem)),
        }
    }

    /// Closes the admin queue's connection; users' commands that were on it may or may not have
    /// been executed.
    fn close_admin_queue(&mut self, problem: &Problem) {
        self.keep_alive = None;
        self.reauthentication = Reauthentication::new();
        self.drop_scan();
        for Outstanding { purpose, .. } in self.queue.drain() {
            if let Purpose::User(tag) = purpose {
                let result = Err(problem.clone());
                self.actions.push_back(Action::Answer { tag, result });
            }
        }
        self.actions.push_back(Action::Close);
    }

    fn drop_scan(&mut self) {
        self.scan = None;
        self.scan_again = false;
        self.scan_is_told = false;
        self.stuck_at = None;
    }

    fn end(&mut self, problem: Option<Problem>) {
        let words = || Problem::Impossible("the controller is disconnected".into());
        let reason = problem.clone().unwrap_or_else(words);
        self.close_admin_queue(&reason);
        for user in core::mem::take(&mut self.users) {
            let result = Err(reason.clone());
            self.actions.push_back(Action::Answer { tag: user.tag, result });
        }
        self.outage = None;
        self.phase = Phase::Ended;
        self.actions.push_back(Action::Ended(problem));
    }
}

fn await_event() -> (Command, AdminData) {
    (Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST), AdminData::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fuzzing::peer::PeerNamespace;
    use crate::host::fuzzing::{AssociationRun, config};
    use weft_nvme::Status;
    use weft_nvme::event::Event as AsynchronousEvent;
    use weft_nvme::fabrics::InvalidParameter;
    use weft_nvme::status::StatusCode;

    const MINUTE: Duration = Duration::from_secs(60);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Answers until nothing is on the wire but what the controller keeps.
    fn settle(run: &mut AssociationRun) -> Vec<HostStep> {
        let mut steps = Vec::new();
        for _ in 0..200 {
            let kept = run.wire.iter().all(|command| {
                command.command.admin_opcode() == AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST
            });
            if run.open && kept && run.live {
                break;
            }
            if let Phase::Initialising(_) = run.association.phase {
                let outstanding = run.wire.front().map(|command| command.tag);
                steps.extend(outstanding.and_then(|tag| run.association.queue.step_of(tag)));
            }
            run.answer_next();
            run.collect();
            if run.wire.is_empty() && !run.live {
                run.pass(limits::READY_POLL);
            }
        }
        steps
    }

    fn live() -> AssociationRun {
        let mut run = AssociationRun::new(config());
        run.association.start(run.now);
        run.collect();
        settle(&mut run);
        assert!(run.live, "{:?}", run.ended);
        run.events.clear();
        run
    }

    #[test]
    fn the_steps_come_in_the_order_of_the_table() {
        let mut run = AssociationRun::new(config());
        run.association.start(run.now);
        run.collect();
        let steps = settle(&mut run);
        assert_eq!(
            steps,
            [
                HostStep::ConnectAdmin,
                HostStep::ReadCapabilities,
                HostStep::ReadVersion,
                HostStep::Enable,
                HostStep::AwaitReady,
                HostStep::AwaitReady,
                HostStep::IdentifyController,
                HostStep::IdentifyNvmController,
                HostStep::SetQueueCount,
                HostStep::SetEventConfiguration,
                HostStep::ListNamespaces,
                HostStep::IdentifyNamespace(1),
                HostStep::DescribeNamespace(1),
                HostStep::IdentifyNamespace(7),
                HostStep::DescribeNamespace(7),
            ]
        );
        let snapshot = Arc::clone(run.association.snapshot().unwrap());
        let controller = &snapshot.controller;
        assert_eq!((controller.controller_id, controller.io_queues), (5, 4));
        assert_eq!((controller.queue_entries, controller.in_capsule_bytes), (64, 8192));
        assert_eq!(controller.transfer_bytes_max, Some(8192));
        let namespace = &snapshot.namespaces[&1];
        assert_eq!((namespace.block_bytes, namespace.blocks), (512, 1000));
        assert_eq!(namespace.identity.uuid, Some([1; 16]));
        assert_eq!(namespace.limits.transfer, 16);
        assert_eq!(run.events, [Event::Connected { controller_id: 5, attempts: 0 }]);
        assert_eq!(run.wire.len(), 1, "one Asynchronous Event Request is outstanding");
    }

    #[test]
    fn a_first_failure_is_reported_at_once() {
        let mut run = AssociationRun::new(config());
        run.association.start(run.now);
        run.collect();
        run.close();
        run.collect();
        let problem = run.ended.flatten().expect("a problem");
        assert_eq!(
            (problem.to_string().as_str(), problem.side()),
            ("the peer hung up", Side::Peer)
        );
        let mut run = AssociationRun::new(config());
        run.association.start(run.now);
        run.collect();
        run.pass(MINUTE);
        let problem = run.ended.flatten().expect("a problem").to_string();
        assert!(problem.contains("did not answer within 3s: opening"), "{problem}");
        assert!(problem.ends_with("does an NVMe-oF target listen there?"), "{problem}");
    }

    #[test]
    fn a_controller_that_never_becomes_ready_is_told() {
        let mut run = AssociationRun::new(config());
        run.peer.ready_after = u32::MAX;
        run.association.start(run.now);
        run.collect();
        for _ in 0..200 {
            run.answer_next();
            run.collect();
            if run.wire.is_empty() {
                run.pass(ms(50));
            }
        }
        let problem = run.ended.flatten().expect("a problem").to_string();
        assert!(problem.contains("did not become ready within 2s"), "{problem}");
    }

    #[test]
    fn a_lost_controller_is_reconnected() {
        let mut run = live();
        run.pass(ms(2400));
        run.close();
        run.collect();
        assert!(!run.live && !run.open);
        assert!(
            matches!(&run.events[..], [Event::Lost { retry_in: Some(at), .. }] if *at == ms(100))
        );
        run.pass(ms(100));
        assert_eq!(run.opens, 2);
        run.close();
        run.collect();
        run.pass(ms(1999));
        assert_eq!((run.opens, run.fail_io), (2, 0));
        run.pass(ms(1));
        assert_eq!(run.opens, 3);
        settle(&mut run);
        assert_eq!(run.association.generation(), 2);
        let connected = Event::Connected { controller_id: 5, attempts: 2 };
        assert_eq!(run.events.last(), Some(&connected));
    }

    #[test]
    fn the_reason_of_a_loss_is_there_before_its_state() {
        let mut first = AssociationRun::new(HostConfig { multipath: true, ..config() });
        first.association.start(first.now);
        first.collect();
        for mut run in [first, live()] {
            run.close();
            let actions: Vec<_> = std::iter::from_fn(|| run.association.poll_action()).collect();
            let place = |of: fn(&Action) -> bool| actions.iter().position(of);
            let told = place(|action| {
                matches!(action, Action::Event(Event::AttemptFailed { .. } | Event::Lost { .. }))
            });
            let suspended = place(|action| matches!(action, Action::Suspend));
            assert!(told.is_some() && told < suspended, "{actions:?}");
        }
    }

    #[test]
    fn waiting_io_fails_and_at_last_the_controller_is_given_up() {
        let mut run = live();
        run.close();
        run.collect();
        while run.ended.is_none() {
            run.pass(ms(500));
            if run.open {
                run.close();
                run.collect();
            }
            let lost_for = run.now.saturating_sub(Duration::from_secs(1000));
            assert!(lost_for < 2 * MINUTE, "it is never given up");
        }
        assert_eq!(run.fail_io, 1);
        assert!((25..=31).contains(&run.opens), "{} attempts in a minute", run.opens);
        assert!(matches!(run.ended, Some(Some(Problem::Transport { .. }))));
    }

    #[test]
    fn an_attempt_that_nobody_answers_ends_when_the_controller_is_given_up() {
        let mut short = config();
        short.reconnect.ctrl_loss_tmo = Some(Duration::from_secs(2));
        let mut run = AssociationRun::new(short);
        run.association.start(run.now);
        run.collect();
        settle(&mut run);
        run.pass(ms(2400));
        run.close();
        run.collect();
        run.pass(ms(100));
        assert_eq!(run.opens, 2);
        // It would have three seconds.
        run.pass(ms(1899));
        assert!(run.ended.is_none());
        run.pass(ms(1));
        let problem = run.ended.flatten().expect("a problem");
        let waited = ms(1900);
        assert_eq!(problem, Problem::TimedOut { step: HostStep::Open, waited });
    }

    #[test]
    fn keep_alive_goes_out_and_its_silence_is_a_loss() {
        let mut run = live();
        run.pass(ms(2500));
        assert_eq!(run.wire.len(), 2);
        assert_eq!(run.wire[1].command.admin_opcode(), AdminOpcode::KEEP_ALIVE);
        run.answer_next();
        run.collect();
        run.pass(ms(2500));
        assert_eq!(run.wire.len(), 2, "the next one");
        run.pass(ms(4999));
        assert!(run.live);
        run.pass(ms(1));
        assert!(!run.live);
        let Event::Lost { problem, .. } = &run.events[0] else { panic!("{:?}", run.events) };
        let silent =
            Problem::TimedOut { step: HostStep::KeepAlive, waited: Duration::from_secs(5) };
        assert_eq!(*problem, silent);
    }

    #[test]
    fn traffic_stands_in_for_keep_alive_where_the_controller_counts_it() {
        let mut run = AssociationRun::new(config());
        run.peer.traffic_keeps_alive = true;
        run.association.start(run.now);
        run.collect();
        settle(&mut run);
        for _ in 0..10 {
            run.association.handle_traffic();
            run.pass(ms(1250));
            assert_eq!(run.wire.len(), 1, "only the event request");
        }
        for _ in 0..10 {
            run.pass(ms(1250));
            assert_eq!(run.wire.len(), 2, "its own answer is no traffic");
            run.answer_next();
            run.collect();
        }
    }

    fn notify(run: &mut AssociationRun) {
        let at = run.wire.iter().position(|command| {
            command.command.admin_opcode() == AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST
        });
        let command = run.wire.remove(at.expect("an event request")).unwrap();
        let event = AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED;
        let completion = Completion::new(0, Status::SUCCESS).with_result(event.0.into());
        run.complete(&command, &completion, Vec::new());
        run.collect();
        settle(run);
    }

    #[test]
    fn namespaces_come_go_grow_and_are_replaced() {
        let mut run = live();
        run.peer.namespaces.remove(&7);
        run.peer.namespaces.insert(2, PeerNamespace { blocks: 5, uuid: 2 });
        run.peer.namespaces.get_mut(&1).unwrap().blocks = 2000;
        notify(&mut run);
        let change = |nsid, change| Event::Namespace { nsid, change };
        assert_eq!(
            run.events,
            [change(1, Change::Changed), change(7, Change::Removed), change(2, Change::Added)]
        );
        run.events.clear();
        run.peer.namespaces.get_mut(&1).unwrap().uuid = 99;
        notify(&mut run);
        assert_eq!(run.events, [change(1, Change::Replaced)]);
        run.events.clear();
        notify(&mut run);
        assert_eq!(run.events, [], "nothing changed");
        assert_eq!(run.wire.len(), 1, "the event request is outstanding again");
    }

    #[test]
    fn a_namespace_replaced_during_an_outage_is_told() {
        let mut run = live();
        run.close();
        run.collect();
        run.peer.namespaces.get_mut(&7).unwrap().uuid = 8;
        run.pass(ms(2000));
        settle(&mut run);
        let replaced = Event::Namespace { nsid: 7, change: Change::Replaced };
        assert!(run.events.contains(&replaced), "{:?}", run.events);
    }

    #[test]
    fn a_reset_disables_the_controller_and_comes_back() {
        let mut run = live();
        run.submit_user(3);
        run.association.reset(run.now);
        run.collect();
        assert!(!run.live && run.open, "I/O stops, the admin queue does not yet");
        settle(&mut run);
        assert!(run.live);
        assert_eq!((run.opens, run.association.generation()), (2, 2));
    }

    #[test]
    fn a_shutdown_tells_the_controller() {
        let mut run = live();
        run.association.shut_down(run.now);
        run.collect();
        let set = PropertySet::from_command(&run.wire.back().unwrap().command);
        assert_eq!(set.offset, Offset::CONTROLLER_CONFIGURATION);
        assert_eq!(set.value & 0xc000, 0x4000, "a normal shutdown");
        run.answer_next();
        run.collect();
        run.answer_next();
        run.collect();
        assert_eq!(run.ended, Some(None));
        let mut silent = live();
        silent.association.shut_down(silent.now);
        silent.collect();
        silent.pass(limits::SHUTDOWN_TIMEOUT);
        assert_eq!(silent.ended, Some(None), "a silent controller does not hold it up");
    }

    #[test]
    fn an_old_queue_does_not_end_a_new_controller() {
        let mut run = live();
        let lost = || Problem::Transport { side: Side::Io, reason: "reset".into() };
        run.association.handle_queue_lost(0, 1, lost(), run.now);
        run.collect();
        assert!(run.live);
        let status = Status::INVALID_QUEUE_ID.with_dnr();
        let refused = Problem::Refused { step: HostStep::ConnectQueue(9), status, parameter: None };
        run.association.handle_queue_lost(1, 9, refused.clone(), run.now);
        run.collect();
        assert!(run.live, "a queue that is refused for good is not worth a new association");
        assert_eq!(run.events, [Event::QueueRefused { queue: 9, problem: refused }]);
        run.association.handle_queue_lost(1, 1, lost(), run.now);
        run.collect();
        assert!(!run.live);
    }

    #[test]
    fn an_io_queue_whose_controller_has_ended_ends_the_association() {
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        let refused = |step| {
            let parameter = Some(InvalidParameter::CONTROLLER_ID);
            Problem::Refused { step, status, parameter }
        };
        assert!(refused(HostStep::ConnectAdmin).is_final(), "this host asks for no controller");
        let mut run = live();
        let problem = refused(HostStep::ConnectQueue(2));
        run.association.handle_queue_lost(1, 2, problem.clone(), run.now);
        run.collect();
        assert!(!run.live && !run.open);
        let Some(Event::Lost { problem: lost, retry_in: Some(_) }) = run.events.last() else {
            panic!("{:?}", run.events)
        };
        assert_eq!(*lost, Problem::QueueLost { queue: 2, problem: Box::new(problem) });
    }

    #[test]
    fn an_io_queue_that_is_not_authenticated_again_ends_the_association() {
        let wrong = || Problem::Authentication(crate::auth::host::Problem::WrongController);
        let mut run = live();
        run.association.handle_queue_authenticated(1, 2, Ok(()), run.now);
        run.association.handle_queue_authenticated(0, 2, Err(wrong()), run.now);
        run.collect();
        assert!(run.live, "an old report");
        assert_eq!(run.events, [Event::Authenticated { queue: 2 }]);
        run.association.handle_queue_authenticated(1, 2, Err(wrong()), run.now);
        run.collect();
        assert!(!run.live && !run.open);
        let Some(Event::Lost { problem, retry_in: Some(_) }) = run.events.last() else {
            panic!("{:?}", run.events)
        };
        assert_eq!(*problem, Problem::QueueLost { queue: 2, problem: Box::new(wrong()) });
    }

    #[test]
    fn a_controller_that_insists_on_flow_control_gets_it() {
        let mut run = AssociationRun::new(config());
        run.association.start(run.now);
        run.collect();
        run.answer_next();
        run.collect();
        let connect = run.wire.pop_front().unwrap();
        let attributes = |command: &Command| {
            weft_nvme::fabrics::Connect::from_command(command).attributes.disable_flow_control()
        };
        assert!(attributes(&connect.command));
        run.complete(&connect, &InvalidParameter::ATTRIBUTES.refuse(0), Vec::new());
        run.collect();
        run.answer_next();
        run.collect();
        assert!(!attributes(&run.wire.front().unwrap().command));
        settle(&mut run);
        assert!(run.live);
        assert!(!run.association.snapshot().unwrap().controller.flow_control_disabled);
    }

    #[test]
    fn a_refused_connect_names_the_parameter() {
        let mut run = AssociationRun::new(config());
        run.association.start(run.now);
        run.collect();
        run.answer_next();
        run.collect();
        let connect = run.wire.pop_front().unwrap();
        let parameter = InvalidParameter::SUBSYSTEM_NQN;
        run.complete(&connect, &parameter.refuse(0), Vec::new());
        run.collect();
        let problem = run.ended.flatten().expect("a problem");
        assert!(problem.to_string().contains("no subsystem of this NQN"), "{problem}");
        let Problem::Refused { status, .. } = problem else { panic!("{problem}") };
        assert_ne!(status.code(), StatusCode::SUCCESS);
    }
}
