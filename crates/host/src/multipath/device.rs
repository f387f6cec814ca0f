//! A namespace as one block device over several controllers, on one reactor.
//!
//! Each path has a queue, which returns what it cannot do ([`RequestEnd::Back`]). A request that
//! was not sent, or was refused, takes another path at once, or waits until there is one. One that
//! was in flight when its path was lost may still be executed there: if it changes the medium it is
//! kept until that cannot happen any more (`queue::path`), and then sent by another path, or fails
//! if it must not be executed twice. So a caller never sees the end of a write that may be executed
//! later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weft_backend::{BlockDevice, Failure, Geometry, Operation, Request, RequestCompletion};
use weft_nvme::log_page::AsymmetricNamespaceAccessState as Access;
use weft_nvmf::host::{ControllerSnapshot, NamespaceInfo};
use weft_reactor::{Outcome, Owner, Reactor, Token};

use super::IoPolicy;
use super::paths::AddedPaths;
use super::policy::{BEST, Candidate, Chooser, Latency};
use crate::device::geometry;
use crate::limits;
use crate::queue::{Outlook, QueuePair, RequestEnd, ReturnReason, is_of_access};
use crate::shared::Shared;

/// One path of a device.
#[derive(Debug)]
pub(super) struct Path {
    queue: QueuePair,
    /// What was last known of the controller, and of the namespace there if it is the same.
    snapshot: Option<Arc<ControllerSnapshot>>,
    namespace: Option<Arc<NamespaceInfo>>,
    /// How good the access is, the smaller the better; `None`: not now.
    rank: Option<u8>,
    /// Nothing is sent until then, because it was refused.
    avoid_until: Duration,
    latency: Latency,
}

/// A request whose old commands may still be executed on a path.
#[derive(Debug)]
struct Fenced {
    request: Request,
    until: Duration,
}

/// A request that waits for a path.
#[derive(Debug)]
struct WaitingRequest {
    request: Request,
    /// Whether it may have been executed already.
    was_sent: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct MultipathDevice {
    owner: Owner,
    /// One that has ended stays until another takes its place.
    paths: Vec<Path>,
    added: AddedPaths,
    chooser: Chooser,
    is_express: bool,
    /// The namespace that the device is for.
    namespace: Arc<NamespaceInfo>,
    geometry: Geometry,
    waiting: VecDeque<WaitingRequest>,
    fenced: Vec<Fenced>,
    completions: VecDeque<RequestCompletion>,
    timer_at: Option<Duration>,
    gone: bool,
    closed: bool,
}

impl Path {
    pub(super) fn new(queue: QueuePair) -> Self {
        Self {
            queue,
            snapshot: None,
            namespace: None,
            rank: None,
            avoid_until: Duration::ZERO,
            latency: Latency::default(),
        }
    }

    fn candidate(&self, now: Duration) -> Option<Candidate> {
        let rank = self.rank.filter(|_| self.queue.is_usable() && self.avoid_until <= now)?;
        Some(Candidate { rank, load: self.queue.load(), latency: self.latency.average() })
    }

    /// Takes over what is known of the namespace now; whether that is new.
    fn update(&mut self, device: &NamespaceInfo) -> bool {
        let Some(snapshot) = self.queue.snapshot() else { return false };
        if self.snapshot.as_ref().is_some_and(|known| Arc::ptr_eq(known, snapshot)) {
            return false;
        }
        let namespace = snapshot.namespaces.get(&device.nsid).filter(|now| now.is_same(device));
        self.namespace = namespace.cloned();
        self.rank = match snapshot.access.of(device.nsid) {
            _ if namespace.is_none() => None,
            Some(Access::OPTIMIZED) => Some(BEST),
            Some(Access::NON_OPTIMIZED) => Some(BEST + 1),
            _ => None,
        };
        self.snapshot = Some(Arc::clone(snapshot));
        true
    }

    fn geometry(&self) -> Option<Geometry> {
        let (snapshot, namespace) = (self.snapshot.as_ref()?, self.namespace.as_ref()?);
        Some(geometry(&snapshot.controller, namespace))
    }
}

impl MultipathDevice {
    pub(super) fn new(
        owner: Owner,
        paths: Vec<Path>,
        added: AddedPaths,
        policy: IoPolicy,
        namespace: Arc<NamespaceInfo>,
        geometry: Geometry,
    ) -> Self {
        let mut device = Self {
            owner,
            paths,
            added,
            chooser: Chooser::new(policy),
            is_express: false,
            namespace,
            geometry,
            waiting: VecDeque::new(),
            fenced: Vec::new(),
            completions: VecDeque::new(),
            timer_at: None,
            gone: false,
            closed: false,
        };
        device.update();
        device
    }

    /// Opens a queue at a path that was added.
    fn add(&mut self, reactor: &mut Reactor, shared: &Arc<Shared>) {
        let address = &shared.options.address;
        let is_free = |path: &Path| path.queue.is_over();
        let number = self.paths.iter().position(is_free).unwrap_or(self.paths.len());
        let tag = u32::try_from(number).ok().filter(|tag| *tag < limits::PATHS_MAX);
        let opened = match tag {
            Some(tag) => QueuePair::open_path(shared, reactor, self.owner, tag),
            None => Err(format!("a device has {} paths", limits::PATHS_MAX)),
        };
        match opened {
            Ok(mut queue) => {
                queue.set_express(reactor, self.is_express);
                let path = Path::new(queue);
                match self.paths.get_mut(number) {
                    Some(place) => *place = path,
                    None => self.paths.push(path),
                }
            }
            Err(why) => log::warn!("{address}: {why}"),
        }
    }

    /// Takes over what the paths know of the namespace.
    fn update(&mut self) {
        let mut changed = None;
        for (number, path) in self.paths.iter_mut().enumerate() {
            if path.update(&self.namespace) {
                changed = Some(number);
            }
        }
        let Some(changed) = changed else { return };
        // The latest news has the size; what requests may do, every path has to be able to.
        let latest = self.paths[changed].geometry();
        let others = self.paths.iter().filter_map(Path::geometry);
        match latest.or_else(|| self.paths.iter().find_map(Path::geometry)) {
            Some(first) => self.geometry = others.fold(first, narrow),
            None => self.gone |= self.paths.iter().any(|path| path.snapshot.is_some()),
        }
    }

    /// The path of the next request.
    fn choose(&mut self, now: Duration) -> Option<usize> {
        let paths = &self.paths;
        self.chooser.choose(paths.len(), |number| paths[number].candidate(now))
    }

    /// Sends a request by a path that can be used, or returns it.
    fn send(&mut self, request: Request, now: Duration) -> Option<Request> {
        let Some(chosen) = self.choose(now) else { return Some(request) };
        let path = &mut self.paths[chosen];
        let Some(namespace) = &path.namespace else { return Some(request) };
        path.queue.submit(namespace, request);
        None
    }

    /// Takes what has ended on the paths.
    fn collect(&mut self, reactor: &Reactor) {
        (0..self.paths.len()).for_each(|number| self.collect_from(number, reactor));
    }

    fn collect_from(&mut self, number: usize, reactor: &Reactor) {
        let now = reactor.turn_time();
        let mut count = 0;
        while let Some(ended) = self.paths[number].queue.poll_ended(reactor.pool()) {
            count += 1;
            match ended {
                RequestEnd::Done(completion) => self.completions.push_back(completion),
                RequestEnd::Back(request, why) => self.take_back(number, request, why, now),
            }
        }
        if self.chooser.measures_latency() {
            let path = &mut self.paths[number];
            path.latency.note(now, path.queue.load(), count);
        }
    }

    fn take_back(&mut self, number: usize, request: Request, why: ReturnReason, now: Duration) {
        let path = &mut self.paths[number];
        let mut was_sent = false;
        match why {
            ReturnReason::NotSent => {}
            ReturnReason::Refused(status) => {
                // Even if the access state says something else.
                path.avoid_until = now.saturating_add(limits::RETRY_DELAY);
                if is_of_access(status) {
                    path.queue.reread_access();
                }
            }
            ReturnReason::Unknown if changes_nothing(&request.operation) => was_sent = true,
            ReturnReason::Unknown => {
                let until = path.queue.fence();
                return self.fenced.push(Fenced { request, until });
            }
        }
        self.waiting.push_back(WaitingRequest { request, was_sent });
    }

    /// Takes the requests whose fence is over.
    fn release(&mut self, now: Duration) {
        let mut number = 0;
        while let Some(fenced) = self.fenced.get(number) {
            if fenced.until > now {
                number += 1;
                continue;
            }
            let Fenced { request, .. } = self.fenced.swap_remove(number);
            if is_executed_once(&request.operation) || self.closed {
                self.completions.push_back(request.refuse(Failure::PathLost));
            } else {
                self.waiting.push_back(WaitingRequest { request, was_sent: true });
            }
        }
    }

    /// Sends what waits, if there is a path now; whether something was sent.
    fn send_waiting(&mut self, now: Duration) -> bool {
        let before = self.waiting.len();
        while let Some(WaitingRequest { request, was_sent }) = self.waiting.pop_front() {
            if let Some(request) = self.send(request, now) {
                self.waiting.push_front(WaitingRequest { request, was_sent });
                break;
            }
        }
        if let Some(failure) = self.hopeless() {
            for WaitingRequest { request, was_sent } in self.waiting.drain(..) {
                let failure = if was_sent { Failure::PathLost } else { failure };
                self.completions.push_back(request.refuse(failure));
            }
            return false;
        }
        self.waiting.len() < before
    }

    /// The failure of requests for which no path is there, nor to be waited for.
    fn hopeless(&self) -> Option<Failure> {
        if self.gone || self.closed {
            return Some(Failure::Gone);
        }
        let mut failing = false;
        for path in &self.paths {
            match path.queue.outlook() {
                Outlook::Hope => return None,
                Outlook::Failing => failing = true,
                Outlook::Ended => {}
            }
        }
        Some(if failing { Failure::PathLost } else { Failure::Gone })
    }

    /// Sets the timer for the next fence that is over, or path that is not avoided any more.
    fn set_timer(&mut self, reactor: &mut Reactor) {
        let now = reactor.turn_time();
        let fences = self.fenced.iter().map(|one| one.until);
        let avoided = self.paths.iter().map(|path| path.avoid_until).filter(|until| *until > now);
        let avoided = avoided.take(if self.waiting.is_empty() { 0 } else { self.paths.len() });
        let Some(at) = fences.chain(avoided).min() else { return };
        if self.timer_at.is_none_or(|set| at < set) {
            self.timer_at = Some(at);
            reactor.set_timer(Token::new(self.owner, limits::MULTIPATH_TIMER_TAG), at);
        }
    }
}

impl BlockDevice for MultipathDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        let checked = match self.gone || self.closed {
            true => Err(Failure::Gone),
            false => request.operation.check(&self.geometry),
        };
        if let Err(failure) = checked {
            return self.completions.push_back(request.refuse(failure));
        }
        if let Some(request) = self.send(request, reactor.turn_time()) {
            self.waiting.push_back(WaitingRequest { request, was_sent: false });
        }
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        if completion.token.tag == limits::MULTIPATH_TIMER_TAG {
            if matches!(completion.outcome, Outcome::Timer) {
                self.timer_at = None;
            }
            return;
        }
        let number = (completion.token.tag / limits::PATH_TAGS) as usize;
        if let Some(path) = self.paths.get_mut(number) {
            path.queue.handle(reactor, completion);
            // What has come is there before the flush, which sends the requests that follow it.
            self.collect_from(number, reactor);
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        let now = reactor.turn_time();
        while let Some(shared) = self.added.take() {
            if !self.closed {
                self.add(reactor, &shared);
            }
        }
        self.paths.iter_mut().for_each(|path| path.queue.flush(reactor));
        self.collect(reactor);
        self.update();
        if !self.fenced.is_empty() {
            self.release(now);
        }
        if !self.waiting.is_empty() && self.send_waiting(now) {
            self.paths.iter_mut().for_each(|path| path.queue.flush(reactor));
            self.collect(reactor);
        }
        self.set_timer(reactor);
    }

    fn set_express(&mut self, reactor: &mut Reactor, is_express: bool) {
        self.is_express = is_express;
        for path in &mut self.paths {
            path.queue.set_express(reactor, is_express);
        }
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.completions.pop_front()
    }

    fn in_flight(&self) -> usize {
        let on_paths: usize = self.paths.iter().map(|path| path.queue.in_flight()).sum();
        on_paths + self.waiting.len() + self.fenced.len() + self.completions.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        self.paths.iter_mut().for_each(|path| path.queue.close(reactor));
        self.collect(reactor);
        self.send_waiting(reactor.turn_time());
        self.set_timer(reactor);
    }
}

/// What both can do. The size is that of the first.
fn narrow(first: Geometry, other: Geometry) -> Geometry {
    let mut capabilities = first.capabilities;
    let others = other.capabilities;
    capabilities.volatile_cache |= others.volatile_cache;
    capabilities.discard &= others.discard;
    capabilities.discard_reads_zeroes &= others.discard_reads_zeroes;
    capabilities.write_zeroes &= others.write_zeroes;
    capabilities.compare_and_write &= others.compare_and_write;
    capabilities.write_uncorrectable &= others.write_uncorrectable;
    Geometry {
        atomic_blocks: first.atomic_blocks.min(other.atomic_blocks),
        compare_and_write_blocks: first
            .compare_and_write_blocks
            .min(other.compare_and_write_blocks),
        capabilities,
        ..first
    }
}

/// Whether an old command of the operation does no harm when it is executed late.
const fn changes_nothing(operation: &Operation) -> bool {
    use Operation::{Compare, Flush, Read, Verify};
    matches!(operation, Read { .. } | Compare { .. } | Verify { .. } | Flush)
}

/// Whether the operation must not be executed twice.
const fn is_executed_once(operation: &Operation) -> bool {
    matches!(operation, Operation::CompareAndWrite { .. })
}
