//! Starts, reconfigures and stops a target.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_backend::{DeviceFactory, DeviceSpec, ResizeCallback};
use weft_nvme::Nqn;
use weft_nvme::log_page::DiscoveryEntry;
use weft_nvmf::registration::Record;
use weft_reactor::{MailboxSender, Reactor, monotonic_time};
use weft_transport::rdma::{Provider, set_provider};

use crate::config::index::Index;
use crate::config::{Config, Namespace, RateLimit};
use crate::control::catalogue::Catalogue;
use crate::control::catalogue::plan::Plan;
use crate::control::changes;
use crate::control::check::check_processors;
use crate::control::events::EventLogs;
use crate::control::reader::StatisticsReader;
use crate::control::settled::{RetiredDevices, Settlement};
use crate::control::steps::{Savepoint, Step, StepError, StepOutcome};
use crate::group::Group;
use crate::shared::directory::{ConnectedController, ConnectedQueue, Directory};
use crate::shared::error::TargetError;
use crate::shared::message::{Message, NamespaceRequest};
use crate::shared::powers::Powers;
use crate::shared::rate_limits::RateLimits;
use crate::shared::round::{Round, Waiter};
use crate::shared::snapshot::{Changes, Devices, Requirements, Scope, Snapshot};
use crate::shared::trace::{Trace, TraceConfig, TracedGroup};

/// How long a reconfiguration may take until every group serves it. A group that does not answer
/// in this time is stuck.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a wait for a group checks whether one has failed.
const FAILURE_CHECK: Duration = Duration::from_millis(50);

/// How long an address in use is tried again: after a process was killed the kernel takes some tens
/// of milliseconds until its sockets are gone, as its rings have to end first.
const LISTEN_PATIENCE: Duration = Duration::from_secs(2);
const LISTEN_RETRY: Duration = Duration::from_millis(20);

/// How long commands in flight may take when the target stops, however long a host's next Connect
/// would wait for them: supervisors kill a service that does not end.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// How long the groups have to say afterwards whether a device still has commands.
const DRAIN_TIMEOUT_REST: Duration = Duration::from_millis(500);

/// A running target: its threads, until it is stopped or dropped.
#[derive(Debug)]
pub struct Target {
    config: Config,
    index: Index,
    catalogue: Catalogue,
    directory: Arc<Directory>,
    posts: Vec<MailboxSender<Message>>,
    threads: Vec<JoinHandle<()>>,
    /// What is not yet given to other namespaces.
    leaving: RetiredDevices,
}

/// A namespace as hosts see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedNamespace {
    /// UUID.
    pub uuid: [u8; 16],
    /// NGUID.
    pub nguid: [u8; 16],
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks.
    pub blocks: u64,
}

/// What was made of a configuration and is not served yet.
#[derive(Debug)]
struct PreparedChange {
    snapshot: Snapshot,
    scope: Scope,
    ports: bool,
    addresses: BTreeMap<u16, SocketAddr>,
}

/// The result of a group's start: its mailbox, or why it failed.
type Ready = Result<MailboxSender<Message>, TargetError>;

/// What a group's thread gets then.
struct GroupContext {
    posts: Vec<MailboxSender<Message>>,
    directory: Arc<Directory>,
}

impl Target {
    /// Starts a target: starts its groups, opens its devices, listens. An address that is in use is
    /// tried again for two seconds.
    ///
    /// # Errors
    /// One sentence that names what is not available: a device, an address, a processor.
    pub fn start(config: Config) -> Result<Self, TargetError> {
        Self::with_devices(config, Vec::new())
    }

    /// The same with devices that the caller has made: a namespace whose spec is one of these has
    /// that device.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn with_devices(
        config: Config,
        devices: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>,
    ) -> Result<Self, TargetError> {
        let mut catalogue = Catalogue::new(devices);
        catalogue.keep_events(EventLogs::new(config.events_file.as_deref())?);
        let mut target = Self::empty(&config, catalogue)?;
        match target.reload(config) {
            Ok(_) => Ok(target),
            Err(error) => {
                target.end_groups();
                Err(error)
            }
        }
    }

    /// Does what a start does up to where hosts would be served, with devices that are only looked
    /// at, and undoes it. The namespaces of the configuration have their numbers then.
    pub(crate) fn try_out(config: &mut Config) -> Result<Catalogue, TargetError> {
        config.events_file.as_deref().map_or(Ok(()), EventLogs::check)?;
        let mut target = Self::empty(config, Catalogue::on_trial())?;
        let tried = target.prepare_all(config);
        target.end_groups();
        tried.map(|()| std::mem::replace(&mut target.catalogue, Catalogue::on_trial()))
    }

    fn prepare_all(&mut self, config: &mut Config) -> Result<(), TargetError> {
        let plan = self.catalogue.plan(config, Scope::All)?;
        self.prepare_patiently(&plan)?;
        self.rollback();
        self.catalogue.apply(config, plan, &BTreeMap::new()).map(drop)
    }

    /// A target whose groups have nothing to serve yet.
    fn empty(config: &Config, mut catalogue: Catalogue) -> Result<Self, TargetError> {
        if let Err(error) = weft_reactor::raise_descriptor_limit() {
            log::warn!("the limit of open descriptors cannot be raised: {error}");
        }
        check_processors(config)?;
        let (snapshot, empty) = catalogue.empty(config)?;
        let groups = config.groups();
        let mut target = Self {
            catalogue,
            directory: Directory::new(
                Arc::new(snapshot),
                config.express_groups(groups),
                config.io_metrics.clone(),
                Powers::threaded(&config.cpus),
            ),
            posts: Vec::new(),
            threads: Vec::new(),
            leaving: RetiredDevices::default(),
            config: empty,
            index: Index::default(),
        };
        match target.spawn(groups) {
            Ok(()) => Ok(target),
            Err(error) => {
                target.end_groups();
                Err(error)
            }
        }
    }

    /// Serves another configuration. Connections stay if what they use is still served. Returns one
    /// line for each change, once no device has a command that the change forbids.
    ///
    /// # Errors
    /// One sentence that names what is not available: then the target continues as before, in every
    /// group. Or [`Settlement::wait`] has failed: the change is made.
    pub fn reload(&mut self, config: Config) -> Result<Vec<String>, TargetError> {
        let (lines, settled) = self.begin_reload(config)?;
        settled.wait().map(|()| lines)
    }

    /// The same without waiting for commands, but for those of namespaces whose device another one
    /// gets: they are taken away first.
    ///
    /// # Errors
    /// One sentence that names what is not available. The target continues as before, in every
    /// group; or a device still has commands of a namespace that was taken away.
    pub fn begin_reload(
        &mut self,
        config: Config,
    ) -> Result<(Vec<String>, Settlement), TargetError> {
        let (old, before) = (self.config.clone(), self.directory.snapshot());
        let psks = self.catalogue.psks().clone();
        let mut config = config;
        let plan = self.catalogue.plan(&mut config, Scope::All)?;
        let moved = self.catalogue.moved(&plan);
        let settled = if moved.is_empty() {
            self.carry_out(config, plan)?
        } else {
            // Nothing is taken from a namespace if the rest is not possible.
            self.check_leaving(&plan)?;
            self.prepare_patiently(&plan)?;
            self.rollback();
            drop(plan);
            let mut without = self.config.clone();
            for subsystem in &mut without.subsystems {
                let is_moved = |nsid| moved.contains(&(subsystem.nqn.clone(), nsid));
                subsystem.namespaces.retain(|namespace| !is_moved(namespace.nsid));
            }
            let plan = self.catalogue.plan(&mut without, Scope::All)?;
            self.carry_out(without, plan)?.wait().map_err(|error| {
                TargetError::new(format!(
                    "namespaces whose device another one is to have were taken away, and nothing \
                     else was done; reload again later: {error}"
                ))
            })?;
            let plan = self.catalogue.plan(&mut config, Scope::All)?;
            self.carry_out(config, plan)?
        };
        let snapshot = self.directory.snapshot();
        let after = (&self.config, &*snapshot, self.catalogue.psks());
        Ok((changes::between((&old, &before, &psks), after), settled))
    }

    /// Serves a configuration by its plan, which gives no device to another namespace.
    fn carry_out(&mut self, config: Config, plan: Plan) -> Result<Settlement, TargetError> {
        let change = self.make(&config, plan)?;
        (self.index, self.config) = (Index::of(&config), config);
        let limits = self.config.served_rate_limits();
        self.serve(change, Some(limits))
    }

    /// Makes one change: it is checked as a whole, and made by every group or by none. Returns once
    /// no device has a command that the change forbids.
    ///
    /// # Errors
    /// The change is not possible: then the target continues as before. Or [`Settlement::wait`] has
    /// failed: the change is made.
    pub fn step(&mut self, step: &Step) -> Result<StepOutcome, StepError> {
        let (made, settled) = self.begin_step(step)?;
        settled.wait().map_err(|error| StepError::failed(error.to_string()))?;
        Ok(made)
    }

    /// The same without waiting for commands.
    ///
    /// # Errors
    /// The change is not possible; the target continues as before.
    pub fn begin_step(&mut self, step: &Step) -> Result<(StepOutcome, Settlement), StepError> {
        // It is changed in place and changed back if the step is not possible: a copy would cost
        // what all other objects cost.
        let mut config = std::mem::take(&mut self.config);
        let mut saved = Savepoint::before(step, &mut config, &self.index);
        let made = self.try_step(step, &mut config, &mut saved);
        let (made, change) = match made {
            Ok(made) => made,
            Err(error) => {
                saved.restore(&mut config);
                self.config = config;
                return Err(error);
            }
        };
        saved.note(&config, &mut self.index);
        self.config = config;
        let limits = saved.concerns_rate_limits(&self.config).then(|| {
            let user = |bdev: &str| self.index.user_of(&self.config, bdev);
            self.config.served_rate_limits_of(user)
        });
        let settled = self.serve(change, limits);
        Ok((made, settled.map_err(|error| StepError::failed(error.to_string()))?))
    }

    /// Makes a change in the configuration and in the catalogue.
    fn try_step(
        &mut self,
        step: &Step,
        config: &mut Config,
        saved: &mut Savepoint,
    ) -> Result<(StepOutcome, PreparedChange), StepError> {
        let (made, scope) = step.apply(config, &self.index)?;
        saved.made(step, made);
        saved.prune_limits(config, &self.index);
        saved.check(config, &self.index).map_err(|error| StepError::invalid(error.sentence()))?;
        let scope = saved.narrowed(scope);
        let plan = self.catalogue.plan(config, scope);
        let change = plan.and_then(|plan| self.make(config, plan));
        Ok((made, change.map_err(|error| StepError::failed(error.to_string()))?))
    }

    /// The namespace that uses a block device, with the name of its subsystem.
    #[must_use]
    pub fn user_of(&self, bdev: &str) -> Option<(&str, &Namespace)> {
        self.index.user_of(&self.config, bdev)
    }

    /// Makes what is served of another configuration by its plan. If it fails, nothing has changed.
    fn make(&mut self, config: &Config, plan: Plan) -> Result<PreparedChange, TargetError> {
        self.check_leaving(&plan)?;
        let addresses = self.prepare_patiently(&plan)?;
        let (scope, ports) = (plan.scope(), plan.changes_ports());
        match self.catalogue.apply(config, plan, &addresses) {
            Ok(snapshot) => Ok(PreparedChange { snapshot, scope, ports, addresses }),
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    /// No device of the plan still has commands of a namespace that was taken away.
    fn check_leaving(&self, plan: &Plan) -> Result<(), TargetError> {
        match plan.opened.iter().find(|device| self.leaving.has(&device.factory)) {
            Some(device) => Err(TargetError::new(format!(
                "{} still has commands of the namespace that it was; try again when they have \
                 ended",
                device.factory.identity()
            ))),
            None => Ok(()),
        }
    }

    /// Has every group serve what was made; no rate limits: they are as before.
    fn serve(
        &mut self,
        change: PreparedChange,
        limits: Option<Vec<RateLimit>>,
    ) -> Result<Settlement, TargetError> {
        let PreparedChange { mut snapshot, scope, ports, addresses } = change;
        let before = self.directory.snapshot();
        snapshot.rate_limits = match limits {
            None => Arc::clone(&before.rate_limits),
            Some(limits) => {
                let (groups, now) = (self.posts.len(), monotonic_time());
                RateLimits::replace(&before.rate_limits, &limits, groups, now)
            }
        };
        let same_rules = Arc::ptr_eq(&before.rate_limits, &snapshot.rate_limits)
            && before.qos_rules == snapshot.qos_rules;
        if same_rules && snapshot.changes.as_ref().is_some_and(Changes::is_empty) {
            return Ok(Settlement::at_once());
        }
        self.directory.set_listening(addresses);
        let snapshot = self.directory.replace_snapshot(snapshot, &scope);
        let (done, is_done) = channel();
        let settled = Round::new(self.posts.len(), Waiter::Thread(done));
        self.leaving.note(&before, &snapshot, &settled);
        let message = |round| {
            let (snapshot, settled) = (Arc::clone(&snapshot), Arc::clone(&settled));
            Message::Reload { snapshot, ports, round, settled }
        };
        let made = self.round(message, ROUND_TIMEOUT);
        // Not by a group: what is no longer served is freed here.
        drop(before);
        made.map(|()| Settlement::when(is_done, self.config.limits.drain_timeout))
    }

    /// Has every group open what a plan needs; an address in use is tried again for a while.
    /// Returns where the target would listen.
    fn prepare_patiently(&self, plan: &Plan) -> Result<BTreeMap<u16, SocketAddr>, TargetError> {
        let Some(needs) = plan.needs() else { return Ok(self.directory.listening()) };
        let began = monotonic_time();
        loop {
            match self.prepare(Arc::clone(&needs)) {
                Err(error)
                    if error.is_address_in_use && monotonic_time() - began < LISTEN_PATIENCE =>
                {
                    std::thread::sleep(LISTEN_RETRY);
                }
                Ok(_) if !plan.changes_ports() => return Ok(self.directory.listening()),
                outcome => return outcome,
            }
        }
    }

    /// The process ends at once, with an exit code, when a poll group fails. Without this the other
    /// groups end and answer nothing more, and the target says so when it is reloaded or stopped.
    pub fn exit_on_failure(&self) {
        self.directory.exit_on_failure();
    }

    /// Where the target listens, by port.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<u16, SocketAddr> {
        self.directory.listening()
    }

    /// What other targets and hosts have registered with the discovery subsystem.
    #[must_use]
    pub fn registrations(&self) -> Vec<(Nqn, Record)> {
        self.directory.registrations()
    }

    /// What a Centralized Discovery controller is told that is reached from this address.
    #[must_use]
    pub fn to_register(&self, local: IpAddr) -> Vec<DiscoveryEntry> {
        let snapshot = self.directory.snapshot();
        snapshot.discovery.discovery().map(|view| view.to_register(local)).unwrap_or_default()
    }

    /// The controllers of all subsystems, or of one.
    #[must_use]
    pub fn controllers(&self, nqn: Option<&str>) -> Vec<ConnectedController> {
        self.directory.connected_controllers(nqn)
    }

    /// The queues that hosts have connected, of all subsystems or of one.
    #[must_use]
    pub fn queues(&self, nqn: Option<&str>) -> Vec<ConnectedQueue> {
        self.directory.connected_queues(nqn)
    }

    /// The UUID, NGUID and size of a namespace as hosts see it.
    #[must_use]
    pub fn namespace(&self, nqn: &str, nsid: u32) -> Option<ServedNamespace> {
        let snapshot = self.directory.snapshot();
        let namespace = snapshot.subsystems.get(nqn)?.namespaces.get(nsid)?;
        Some(ServedNamespace {
            uuid: namespace.uuid,
            nguid: namespace.nguid,
            block_bytes: namespace.block_bytes,
            blocks: namespace.blocks,
        })
    }

    /// The device of a namespace, for use beside its hosts.
    #[must_use]
    pub fn device(&self, nqn: &str, nsid: u32) -> Option<Arc<dyn DeviceFactory>> {
        let snapshot = self.directory.snapshot();
        let namespace = snapshot.subsystems.get(nqn)?.namespaces.get(nsid)?;
        snapshot.factory(namespace.device).cloned()
    }

    /// Whether this process has made the file or image of a namespace, empty.
    #[must_use]
    pub fn is_created(&self, nqn: &str, nsid: u32) -> bool {
        let device = self.device(nqn, nsid);
        device.is_some_and(|one| one.storage().is_some_and(|storage| storage.is_created()))
    }

    /// Block size and blocks of a block device that has a name.
    #[must_use]
    pub fn bdev_size(&self, name: &str) -> Option<(u32, u64)> {
        self.catalogue.bdev_size(name)
    }

    /// Calls this, from any thread, after a device has changed its size by itself, or its file may
    /// no longer be where it was. Hosts know of it after [`Self::look_at_files`], and once the
    /// devices that [`Self::resized`] names are scanned again.
    pub fn when_resized(&mut self, resized: ResizeCallback) {
        self.catalogue.when_resized(resized);
    }

    /// Reads the sizes of all devices again, in case that other programs have changed them.
    pub fn read_sizes(&self) {
        self.catalogue.read_sizes();
    }

    /// The block devices of namespaces that have another size than hosts know.
    #[must_use]
    pub fn resized(&self) -> Vec<String> {
        self.catalogue.resized()
    }

    /// What hosts ask for by Namespace Management from now on. Without somebody who answers, they
    /// are told of an internal error.
    pub fn namespace_requests(&self) -> Receiver<NamespaceRequest> {
        let (sender, receiver) = channel();
        self.directory.set_manager(sender);
        receiver
    }

    /// Reads the target's counters.
    #[must_use]
    pub fn watch(&self) -> StatisticsReader {
        StatisticsReader::new(Arc::clone(&self.directory), self.config.cpus.clone())
    }

    /// Has every poll group record its commands for a while.
    ///
    /// # Errors
    /// An earlier trace is not over.
    pub fn start_trace(&self, config: TraceConfig) -> Result<(), TargetError> {
        let trace = Arc::new(Trace::new(config, self.posts.len()));
        if !self.directory.begin_trace(Arc::clone(&trace)) {
            return Err(TargetError::new("a trace is being recorded already: wait for its end"));
        }
        for post in &self.posts {
            post.post(Message::Trace { trace: Arc::clone(&trace) });
        }
        Ok(())
    }

    /// What every poll group has recorded, or none while they record. It is given away once.
    ///
    /// # Errors
    /// No trace was started since the last one was given away.
    pub fn take_trace(&self) -> Result<Option<Vec<TracedGroup>>, TargetError> {
        let none = || TargetError::new("there is no trace: start one first");
        self.directory.take_trace().ok_or_else(none)
    }

    /// The configuration that is served.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The configuration with the UUID of every namespace whose contents outlive this process, so
    /// that it keeps them whatever becomes of its size or path.
    #[must_use]
    pub fn config_with_uuids(&self) -> Config {
        let mut config = self.config.clone();
        for subsystem in &mut config.subsystems {
            for namespace in &mut subsystem.namespaces {
                let lasting = || self.catalogue.lasting_uuid(&subsystem.nqn, namespace.nsid);
                namespace.uuid = namespace.uuid.or_else(lasting);
            }
        }
        config
    }

    /// Gives hosts access to the namespaces, or none: then they see them in the access state
    /// Inaccessible. What no device has of their commands ends with that state; what devices have
    /// goes on ([`Self::wait_until_idle`]).
    ///
    /// # Errors
    /// As [`Self::begin_reload`].
    pub fn stand_by(&mut self, is_standby: bool) -> Result<(), TargetError> {
        let config = Config { is_standby, ..self.config.clone() };
        self.begin_reload(config).map(drop)
    }

    /// Waits until no I/O command is in flight, and no change of reservations.
    ///
    /// # Errors
    /// A command takes longer than this.
    pub fn wait_until_idle(&self, patience: Duration) -> Result<(), TargetError> {
        if self.round(|round| Message::Idle { round }, patience).is_err() {
            let what = format!("commands in flight have not ended within {patience:?}");
            return Err(TargetError::new(what));
        }
        match self.directory.reserver().wait(patience) {
            true => Ok(()),
            false => {
                let what = format!("reservations were not written within {patience:?}");
                Err(TargetError::new(what))
            }
        }
    }

    /// Has devices store what they have cached.
    ///
    /// # Errors
    /// One of them cannot, now or earlier, so that writes are lost: hosts are told, and their
    /// flushes fail from now on.
    pub fn sync(&self) -> Result<(), TargetError> {
        let failed = self.catalogue.sync();
        if self.directory.snapshot().misses_lost_writes() {
            self.publish(|before| before.with_lost_writes(monotonic_time()))?;
        }
        none_failed(&failed)
    }

    /// Looks whether the files of namespaces are still where they were opened. Of one that is not,
    /// and was, hosts and the log are told; [`Self::when_resized`] says when to look.
    ///
    /// # Errors
    /// A group does not answer.
    pub fn look_at_files(&self) -> Result<(), TargetError> {
        let before = self.directory.snapshot();
        let Some(found) = before.newly_detached() else { return Ok(()) };
        self.publish(|before| before.with_detached(monotonic_time(), &found))
    }

    /// Has every group take another snapshot.
    fn publish(&self, next: impl Fn(&Snapshot) -> Snapshot) -> Result<(), TargetError> {
        let snapshot = self.directory.update(next);
        self.round(
            |round| Message::Publish { snapshot: Arc::clone(&snapshot), round },
            ROUND_TIMEOUT,
        )
    }

    /// Forgets the reservations that it knows, and reads those that persist: another target may
    /// have changed them since.
    ///
    /// # Errors
    /// A file of them cannot be read.
    pub fn read_reservations(&self) -> Result<(), TargetError> {
        self.catalogue.read_reservations(&self.config)
    }

    /// Stops gracefully: commands in flight are completed, devices are flushed.
    ///
    /// # Errors
    /// One sentence for what failed; the target has stopped nevertheless.
    pub fn stop(mut self) -> Result<(), TargetError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), TargetError> {
        if self.threads.is_empty() {
            return Ok(());
        }
        let patience = self.config.limits.drain_timeout.min(DRAIN_TIMEOUT_MAX);
        let drained = self.round(|round| Message::Drain { round }, patience);
        // What still waits for data of its host was not begun: the host sends it again.
        let devices_idle = drained
            .or_else(|_| self.round(|round| Message::DevicesIdle { round }, DRAIN_TIMEOUT_REST));
        self.end_groups();
        // The commands of a failed group are lost: nothing is reported as durable.
        if let Some(why) = self.directory.failure() {
            return Err(TargetError::new(why));
        }
        let mut failed = Vec::new();
        if devices_idle.is_err() {
            failed.push("some commands did not finish in time".to_owned());
        }
        failed.extend(self.catalogue.sync());
        failed.extend(self.catalogue.write_events().err());
        // Readers of statistics may remain, which must not keep devices open.
        self.directory.update(|snapshot| Snapshot { devices: Devices::new(), ..snapshot.clone() });
        none_failed(&failed)
    }

    /// Ends the groups. Why one has failed, or could not start, is known.
    fn end_groups(&mut self) {
        for post in &self.posts {
            post.post(Message::Stop);
        }
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }

    /// Starts the groups, which have nothing to serve yet.
    fn spawn(&mut self, groups: usize) -> Result<(), TargetError> {
        let (ready, is_ready) = channel();
        let mut going = Vec::new();
        for id in 0..groups {
            let (go, when) = channel();
            going.push(go);
            let config = reactor_config(&self.config, id);
            let rdma = self.config.rdma.clone();
            let ready = ready.clone();
            let thread = std::thread::Builder::new()
                .name(format!("weft-group-{id}"))
                .spawn(move || run_group(id, config, rdma, &ready, &when))
                .map_err(|error| TargetError::new(format!("cannot start a thread: {error}")))?;
            self.threads.push(thread);
        }
        let mut posts: Vec<Option<MailboxSender<Message>>> = vec![None; groups];
        for _ in 0..groups {
            let (id, outcome): (usize, Ready) = received(&is_ready)?;
            if let Some(place) = posts.get_mut(id) {
                *place = Some(outcome?);
            }
        }
        self.posts = posts.into_iter().flatten().collect();
        for go in going {
            let posts = self.posts.clone();
            // A thread that is gone is noticed below.
            drop(go.send(GroupContext { posts, directory: Arc::clone(&self.directory) }));
        }
        Ok(())
    }

    /// Has every group open what a reload needs. Returns where the target would listen.
    fn prepare(&self, needs: Arc<Requirements>) -> Result<BTreeMap<u16, SocketAddr>, TargetError> {
        let (done, is_done) = channel();
        for post in &self.posts {
            post.post(Message::Prepare { needs: Arc::clone(&needs), done: done.clone() });
        }
        let deadline = monotonic_time() + ROUND_TIMEOUT;
        let mut addresses = Ok(BTreeMap::new());
        for _ in &self.posts {
            let answer = self.answer(&is_done, deadline).and_then(|prepared| prepared);
            if let (Ok(addresses), Ok(more)) = (&mut addresses, &answer) {
                addresses.extend(more);
            } else if addresses.is_ok() {
                addresses = answer;
            }
        }
        if addresses.is_err() {
            self.rollback();
        }
        addresses
    }

    /// Undoes the preparation.
    fn rollback(&self) {
        for post in &self.posts {
            post.post(Message::Rollback);
        }
    }

    /// Sends a message to every group, and waits until each has acknowledged it.
    fn round(
        &self,
        message: impl Fn(Arc<Round>) -> Message,
        timeout: Duration,
    ) -> Result<(), TargetError> {
        let (done, is_done) = channel();
        Round::begin(&self.posts, Waiter::Thread(done), message);
        self.answer(&is_done, monotonic_time() + timeout)
    }

    /// Waits for the answer of a group, or for the failure of one.
    fn answer<T>(&self, from: &Receiver<T>, deadline: Duration) -> Result<T, TargetError> {
        loop {
            match from.recv_timeout(FAILURE_CHECK) {
                Ok(answer) => return Ok(answer),
                Err(_) => {
                    if let Some(why) = self.directory.failure() {
                        return Err(TargetError::new(why));
                    }
                    if monotonic_time() >= deadline {
                        return Err(TargetError::new("a poll group does not answer"));
                    }
                }
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::error!("the target did not stop cleanly: {error}");
        }
    }
}

fn none_failed(failed: &[String]) -> Result<(), TargetError> {
    if failed.is_empty() { Ok(()) } else { Err(TargetError::new(failed.join("; "))) }
}

fn received<T>(from: &Receiver<T>) -> Result<T, TargetError> {
    from.recv().map_err(|mpsc::RecvError| TargetError::new("a poll group failed to start"))
}

fn reactor_config(config: &Config, group: usize) -> weft_reactor::Config {
    weft_reactor::Config {
        driver: config.driver,
        pool_bytes: config.limits.pool_bytes,
        cpu: config.cpus.get(group).copied(),
        ..weft_reactor::Config::default()
    }
}

/// A group's thread.
fn run_group(
    id: usize,
    config: weft_reactor::Config,
    rdma: Provider,
    ready: &mpsc::Sender<(usize, Ready)>,
    when: &Receiver<GroupContext>,
) {
    let mut reactor = match Reactor::new(config) {
        Ok(reactor) => reactor,
        Err(error) => return drop(ready.send((id, Err(TargetError::new(error.to_string()))))),
    };
    set_provider(&mut reactor, rdma);
    let (post, mailbox) = reactor.mailbox();
    drop(ready.send((id, Ok(post))));
    // If the channel was closed, the start has failed elsewhere.
    let Ok(GroupContext { posts, directory }) = when.recv() else { return };
    let mut group = Group::new(id, reactor, mailbox, posts.clone(), Arc::clone(&directory));
    // A group that panicked is only dropped.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| group.run())) {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
        directory.fail(format!("poll group {id} has failed: {}", text.unwrap_or("it panicked")));
        for post in posts {
            post.post(Message::Fail);
        }
    }
}
