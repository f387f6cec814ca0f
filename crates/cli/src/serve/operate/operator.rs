//! A target that is changed while it runs, and what its operators know of it.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weft_backend::files;
use weft_nvme::Status;
use weft_rpc::{Code, ErrorObject};
use weft_target::config::{self as served, Config};
use weft_target::steps::{Step, StepError, StepErrorKind, StepOutcome};
use weft_target::{Changes, NamespaceRequest, Settlement, StatisticsReader, Target, replace_file};

use super::error::{invalid, no_device};
use super::found::{bdevs, implied};
use crate::failure::Failure;
use crate::limits::NOTIFICATIONS_MAX;
use crate::serve::pair::Pair;

/// How often it is asked whether the change that a host has asked for is true.
const SETTLE_INTERVAL: Duration = Duration::from_millis(1);

/// A target and what its operators know of it.
#[derive(Debug)]
pub(in crate::serve) struct Operator {
    state: Mutex<State>,
    watch: StatisticsReader,
    /// Where every change is kept.
    kept_in: Option<PathBuf>,
    /// The pair that it is a member of.
    pair: OnceLock<Pair>,
    /// Set once the process is to end.
    stopping: OnceLock<()>,
    /// What is called after every change.
    changed: Mutex<Vec<ChangeObserver>>,
}

/// Somebody who is told that something has changed.
struct ChangeObserver(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for ChangeObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Changed")
    }
}

#[derive(Debug)]
pub(super) struct State {
    /// None once it stops.
    target: Option<Target>,
    pub(super) notifications: VecDeque<Notification>,
    notified: u64,
    /// The file, or the flags, that were applied last.
    applied: Config,
}

#[derive(Debug)]
pub(super) struct Notification {
    pub(super) kind: &'static str,
    pub(super) context: String,
    pub(super) id: u64,
}

/// A change that is made.
struct PendingChange {
    made: StepOutcome,
    /// It is answered after this, whether or not it could be kept.
    settled: Settlement,
    kept: Result<(), String>,
}

/// The steps of a request of a host.
struct HostChanges<'a> {
    operator: &'a Operator,
    state: &'a mut State,
    unsettled: Vec<Settlement>,
}

impl Changes for HostChanges<'_> {
    fn step(&mut self, step: &Step) -> Result<StepOutcome, StepError> {
        let (made, settled) = self.state.begin_step(step)?;
        self.unsettled.push(settled);
        Ok(made)
    }

    fn keep(&mut self) -> Result<(), StepError> {
        self.operator.changed().iter().for_each(|ChangeObserver(call)| call());
        self.operator.write(self.state).map_err(StepError::failed)
    }
}

impl Operator {
    /// The operator of a target, which keeps every change in a file if one is given.
    pub(in crate::serve) fn new(
        target: Target,
        applied: Config,
        kept_in: Option<PathBuf>,
    ) -> Result<Arc<Self>, String> {
        let watch = target.watch();
        let (notifications, notified) = (VecDeque::new(), 0);
        let mut state = State { target: Some(target), notifications, notified, applied };
        let text = state.text();
        let (pair, stopping, changed) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let state = Mutex::new(state);
        let operator = Arc::new(Self { state, watch, kept_in, pair, stopping, changed });
        match &operator.kept_in {
            Some(path) => keep(path, text).map(|()| operator).map_err(at_start),
            None => Ok(operator),
        }
    }

    /// Whether [`Self::new`] could keep the changes in this file, which stays as it is.
    pub(in crate::serve) fn can_keep_in(path: &Path) -> Result<(), String> {
        files::can_replace(path).map_err(|error| at_start(unwritable(path, &error)))
    }

    /// Reads the target's counters.
    pub(in crate::serve) const fn watch(&self) -> &StatisticsReader {
        &self.watch
    }

    /// It is a member of this pair.
    pub(in crate::serve) fn set_pair(&self, pair: Pair) {
        // There is one at most.
        let _ = self.pair.set(pair);
    }

    /// The pair that it is a member of.
    pub(in crate::serve) fn pair(&self) -> Option<&Pair> {
        self.pair.get()
    }

    /// The process is to end: hosts had better not come any more.
    pub(in crate::serve) fn begin_stop(&self) {
        // A second time changes nothing.
        let _ = self.stopping.set(());
    }

    /// Whether hosts may come, or why not. It waits for no change.
    pub(in crate::serve) fn readiness(&self) -> Result<(), &'static str> {
        match (self.stopping.get(), self.watch.is_listening()) {
            (Some(()), _) => Err("the target stops"),
            (None, false) => Err("no port is open yet"),
            (None, true) => Ok(()),
        }
    }

    /// Calls this after every change; it must not wait for the target.
    pub(in crate::serve) fn when_changed(&self, call: impl Fn() + Send + Sync + 'static) {
        self.changed().push(ChangeObserver(Box::new(call)));
    }

    /// Does something with the target.
    pub(in crate::serve) fn with<T>(
        &self,
        action: impl FnOnce(&mut Target) -> T,
    ) -> Result<T, ErrorObject> {
        let mut state = self.lock();
        let target = state.target.as_mut();
        target.map(action).ok_or_else(|| ErrorObject::new(Code(-1), "the target stops"))
    }

    /// Serves what a file, or the flags, have changed since they were applied last.
    pub(in crate::serve) fn reload(&self, mut config: Config) -> Result<Vec<String>, String> {
        self.check_kept()?;
        let mut state = self.lock();
        let before = state.bdev_sizes();
        let applied = state.applied.clone();
        let target = state.target.as_mut().ok_or("the target stops")?;
        let merged = target.config().merged(&applied, &config).map_err(|e| e.to_string())?;
        merged.check_consistent().map_err(|error| error.to_string())?;
        let (mut lines, settled) =
            target.begin_reload(merged).map_err(|error| error.to_string())?;
        config.number_as(&applied, target.config());
        state.applied = config;
        let after = state.bdev_sizes();
        state.notify(&before, &after);
        let kept = self.has_changed(&mut state);
        // Others may have something to ask or to change meanwhile.
        drop(state);
        if let Err(late) = settled.wait() {
            log::warn!("{late}");
            lines.push(late.to_string());
        }
        kept.map(|()| lines)
    }

    fn has_changed(&self, state: &mut State) -> Result<(), String> {
        self.changed().iter().for_each(|ChangeObserver(call)| call());
        let made = |error| {
            format!(
                "the change is made, but {error}: until it is, a restart brings back the last one"
            )
        };
        self.write(state).map_err(made).inspect_err(|error| log::error!("{error}"))
    }

    /// Whether a change can be kept; if not, none is made.
    fn check_kept(&self) -> Result<(), String> {
        let Some(path) = &self.kept_in else { return Ok(()) };
        files::can_replace(path)
            .map_err(|error| format!("nothing has changed, as {}", unwritable(path, &error)))
    }

    /// Writes what is served into the file that it is kept in, if there is one.
    fn write(&self, state: &mut State) -> Result<(), String> {
        self.kept_in.as_ref().map_or(Ok(()), |path| keep(path, state.text()))
    }

    /// Stops the target.
    pub(in crate::serve) fn stop(&self) -> Result<(), Failure> {
        let target = self.lock().target.take();
        target.map_or(Ok(()), |target| target.stop().map_err(Failure::because))
    }

    /// Reads the sizes of all devices again; [`Self::rescan`] tells hosts of changes.
    pub(in crate::serve) fn read_sizes(&self) {
        // A target that stops has no sizes.
        let _ = self.with(|target| target.read_sizes());
    }

    /// Tells hosts of devices that have changed their size by themselves, and of files that are not
    /// where they were.
    pub(in crate::serve) fn rescan(&self) {
        if let Ok(Err(error)) = self.with(|target| target.look_at_files()) {
            log::warn!("hosts cannot be told of files: {error}");
        }
        for name in self.with(|target| target.resized()).unwrap_or_default() {
            match self.bdev_step(&Step::RescanBdev { name: name.clone() }) {
                Ok(_) => log::info!("{name} has another size"),
                Err(error) => log::warn!("{name} has another size, which cannot be told: {error}"),
            }
        }
    }

    /// Makes the changes that hosts ask for by Namespace Management, on a thread of its own.
    pub(in crate::serve) fn serve_hosts(self: &Arc<Self>) -> Result<(), Failure> {
        let Ok(requests) = self.with(|target| target.namespace_requests()) else { return Ok(()) };
        let operator = Arc::clone(self);
        let run = move || operator.serve_requests(&requests);
        let started = std::thread::Builder::new().name("weft-namespaces".to_owned()).spawn(run);
        started.map(drop).map_err(Failure::because)
    }

    /// Serves these requests until there are no more, and answers each when its change is true. The
    /// next one does not wait for that.
    fn serve_requests(&self, requests: &Receiver<NamespaceRequest>) {
        let mut unsettled: Vec<(NamespaceRequest, u32, Vec<Settlement>)> = Vec::new();
        loop {
            let next = match unsettled.is_empty() {
                true => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => requests.recv_timeout(SETTLE_INTERVAL),
            };
            match next {
                Ok(request) => match self.serve_host(&request) {
                    (Ok(nsid), settled) => unsettled.push((request, nsid, settled)),
                    (Err(status), _) => request.answer(Err(status)),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            unsettled.retain_mut(|(request, nsid, settled)| {
                let mut result = Ok(*nsid);
                settled.retain(|change| match change.poll() {
                    Some(Err(late)) => {
                        log::warn!("{}: {}: {late}", request.host, request.change);
                        result = Err(Status::INTERNAL_ERROR);
                        false
                    }
                    outcome => outcome.is_none(),
                });
                let is_over = settled.is_empty() || result.is_err();
                if is_over {
                    request.answer(result);
                }
                !is_over
            });
        }
    }

    fn serve_host(&self, request: &NamespaceRequest) -> (Result<u32, Status>, Vec<Settlement>) {
        let (host, nqn) = (request.host, request.subsystem.as_str());
        // Nobody changes what it is about meanwhile.
        let mut state = self.lock();
        let config = state.target.as_ref().map(Target::config);
        let named = config.and_then(|config| config.subsystems.iter().find(|one| one.nqn == nqn));
        let Some(subsystem) = named.cloned() else {
            return (Err(Status::INTERNAL_ERROR), Vec::new());
        };
        let mut changes = HostChanges { operator: self, state: &mut state, unsettled: Vec::new() };
        let result = request.carry_out(&subsystem, &mut changes);
        let unsettled = changes.unsettled;
        drop(state);
        match &result {
            Ok(nsid) => log::info!("{host}: {nqn}: {} ({nsid})", request.change),
            Err(status) => log::warn!("{host}: {nqn}: {}: {status}", request.change),
        }
        (result, unsettled)
    }

    /// Makes one change, and waits until no device has a command that it forbids.
    pub(super) fn step(&self, step: &Step) -> Result<Result<StepOutcome, StepError>, ErrorObject> {
        let PendingChange { made, settled, kept } = match self.begin_step(step)? {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        if let Err(late) = settled.wait() {
            return Ok(Err(StepError::failed(late.to_string())));
        }
        kept.map_err(|error| ErrorObject::new(Code::INTERNAL_ERROR, error))?;
        Ok(Ok(made))
    }

    fn begin_step(&self, step: &Step) -> Result<Result<PendingChange, StepError>, ErrorObject> {
        let mut state = self.lock();
        if state.target.is_none() {
            return Err(ErrorObject::new(Code(-1), "the target stops"));
        }
        if !is_made_in_any_case(step) {
            self.check_kept().map_err(|error| ErrorObject::new(Code::INTERNAL_ERROR, error))?;
        }
        let (made, settled) = match state.begin_step(step) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        let kept = self.has_changed(&mut state);
        Ok(Ok(PendingChange { made, settled, kept }))
    }

    /// Makes one change to subsystems, with SPDK's errors.
    pub(super) fn nvmf_step(&self, step: &Step) -> Result<StepOutcome, ErrorObject> {
        self.step(step)?.map_err(|error| match error.kind {
            StepErrorKind::Failed => ErrorObject::new(Code::INTERNAL_ERROR, error),
            _ => invalid(error),
        })
    }

    /// Makes one change to block devices, with SPDK's errors.
    pub(super) fn bdev_step(&self, step: &Step) -> Result<StepOutcome, ErrorObject> {
        self.step(step)?.map_err(|error| match error.kind {
            StepErrorKind::NotFound => no_device(error),
            StepErrorKind::Exists => ErrorObject::new(Code(-17), format!("File exists: {error}")),
            StepErrorKind::Invalid => {
                ErrorObject::new(Code(-22), format!("Invalid argument: {error}"))
            }
            StepErrorKind::Failed => ErrorObject::new(Code::INTERNAL_ERROR, error),
        })
    }

    fn changed(&self) -> MutexGuard<'_, Vec<ChangeObserver>> {
        // Nothing fails while it is held.
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A change is made as a whole before the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes a step, and notes what became of block devices.
    fn begin_step(&mut self, step: &Step) -> Result<(StepOutcome, Settlement), StepError> {
        let before = self.sizes_concerned(step);
        let target = self.target.as_mut();
        let target = target.ok_or_else(|| StepError::failed("the target stops"))?;
        let begun = target.begin_step(step)?;
        let after = self.sizes_concerned(step);
        self.notify(&before, &after);
        Ok(begun)
    }

    /// The block devices and their sizes in blocks, to see what a change has made of them.
    fn bdev_sizes(&self) -> BTreeMap<String, u64> {
        let found = self.target.as_ref().map(bdevs).unwrap_or_default();
        found.into_iter().map(|bdev| (bdev.name, bdev.blocks)).collect()
    }

    /// The same of those that a step may make, change or remove.
    fn sizes_concerned(&self, step: &Step) -> BTreeMap<String, u64> {
        let Some(target) = &self.target else { return BTreeMap::new() };
        let config = target.config();
        let (name, nqn) = step.concerns(config);
        let used = name.as_ref().and_then(|name| target.user_of(name));
        let all = config.subsystems.iter().filter(|subsystem| Some(&*subsystem.nqn) == nqn);
        let all = all.flat_map(|subsystem| {
            subsystem.namespaces.iter().map(move |namespace| (subsystem.nqn.as_str(), namespace))
        });
        let implied = used.into_iter().chain(all).filter_map(|(nqn, namespace)| {
            implied(target, nqn, namespace).map(|bdev| (bdev.name, bdev.blocks))
        });
        let named = name.and_then(|name| Some((name.to_string(), target.bdev_size(&name)?.1)));
        implied.chain(named).collect()
    }

    /// Notes which block devices came, went or have another size.
    fn notify(&mut self, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) {
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        let mut changes: Vec<_> = gone.map(|name| ("bdev_unregister", name.clone())).collect();
        changes.extend(after.iter().filter_map(|(name, blocks)| match before.get(name) {
            None => Some(("bdev_register", name.clone())),
            Some(old) if old != blocks => Some(("bdev_resize", name.clone())),
            Some(_) => None,
        }));
        for (kind, context) in changes {
            let id = self.notified;
            self.notified += 1;
            self.notifications.push_back(Notification { kind, context, id });
        }
        let more = self.notifications.len().saturating_sub(NOTIFICATIONS_MAX);
        self.notifications.drain(..more);
    }

    /// The text of its state file.
    fn text(&mut self) -> Result<String, String> {
        let config = self.target.as_ref().map(Target::config_with_uuids);
        let config = config.unwrap_or_default();
        served::State { config, applied: self.applied.clone() }.to_text()
    }
}

/// Whether a step is made even if it cannot be kept: who takes something away needs it gone, and
/// what has become of a device is so already.
const fn is_made_in_any_case(step: &Step) -> bool {
    matches!(
        step,
        Step::RemoveHost { .. }
            | Step::RemoveNamespace { .. }
            | Step::RemoveListener { .. }
            | Step::DeleteSubsystem { .. }
            | Step::DeleteBdev { .. }
            | Step::AllowAnyHost { allow: false, .. }
            | Step::SetAnaState { .. }
            | Step::RescanBdev { .. }
    )
}

/// Replaces a state file.
fn keep(path: &Path, text: Result<String, String>) -> Result<(), String> {
    let write = |text: String| replace_file(path, text.as_bytes());
    let written = text.and_then(|text| write(text).map_err(|error| error.to_string()));
    written.map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("the state {} cannot be written: {error}", path.display())
}

/// What is to be done about it before anything is served.
fn at_start(error: String) -> String {
    format!("{error}: make room for it there, or give --state another file")
}
