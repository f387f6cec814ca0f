//! A target as its user sees it: started, reconfigured, stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_backend::OpenError;
use weft_reactor::{DriverKind, Mailbox, Postbox, Reactor};

use crate::catalogue::Catalogue;
use weft_transport::rdma::{Provider, set_provider};

use crate::config::{Config, Listen, Port};
use crate::directory::Directory;
use crate::group::{Group, Message};
use crate::round::{Round, Waiter};
use crate::statistics::Watch;

/// How long a reconfiguration may take until every group serves it. A group that does not answer
/// in this time is stuck.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long commands that are under way may take when the target stops, however long a host's next
/// Connect would wait for them: whoever stops a service kills it if it does not end.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// A target that runs: its threads, until it is stopped or dropped.
#[derive(Debug)]
pub struct Target {
    config: Config,
    catalogue: Catalogue,
    directory: Arc<Directory>,
    posts: Vec<Postbox<Message>>,
    threads: Vec<JoinHandle<()>>,
    addresses: BTreeMap<u16, SocketAddr>,
}

/// Why a target cannot start, or cannot be reconfigured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError {
    what: String,
}

impl TargetError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    pub(crate) fn device(nqn: &str, nsid: u32, error: &OpenError) -> Self {
        Self::new(format!("namespace {nsid} of {nqn}: {error}"))
    }

    pub(crate) fn namespace(nqn: &str, nsid: u32, error: &str) -> Self {
        Self::new(format!("namespace {nsid} of {nqn}: {error}"))
    }

    pub(crate) fn listen(address: Listen, error: &std::io::Error) -> Self {
        Self::new(format!("cannot listen on {address}: {error}"))
    }

    pub(crate) fn name(name: &str, error: &impl fmt::Display) -> Self {
        Self::new(format!("{name:?} is no NVMe qualified name: {error}"))
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for TargetError {}

/// What a group's thread says when it is ready to go: its mailbox; or why not.
type Ready = Result<Postbox<Message>, TargetError>;

/// What a group's thread is told then.
struct Go {
    posts: Vec<Postbox<Message>>,
    directory: Arc<Directory>,
}

impl Target {
    /// Starts a target: opens its devices, starts its groups, listens.
    ///
    /// # Errors
    /// One sentence that says what cannot be had: a device, an address, a processor.
    pub fn start(config: Config) -> Result<Self, TargetError> {
        if let Err(error) = weft_reactor::raise_descriptor_limit() {
            log::warn!("the limit of open descriptors cannot be raised: {error}");
        }
        let mut catalogue = Catalogue::new();
        let snapshot = Arc::new(catalogue.snapshot(&config, &BTreeMap::new())?);
        let groups = config.groups();
        let directory = Directory::new(Arc::clone(&snapshot), groups);
        let mut target = Self {
            catalogue,
            directory,
            posts: Vec::new(),
            threads: Vec::new(),
            addresses: BTreeMap::new(),
            config,
        };
        let listening = match target.spawn(groups) {
            Ok(listening) => listening,
            Err(error) => {
                target.give_up();
                return Err(error);
            }
        };
        target.addresses = listening;
        // Now that the kernel has chosen the ports that were left open, discovery can show them.
        target.publish(target.config.clone())?;
        Ok(target)
    }

    /// Serves another configuration. Connections stay as far as what they use is still served.
    ///
    /// # Errors
    /// One sentence that says what cannot be had. If that is a device or a name, the target goes
    /// on as before; if it is an address, everything else is served as asked.
    pub fn reload(&mut self, config: Config) -> Result<(), TargetError> {
        if (&config.cpus, config.threads) != (&self.config.cpus, self.config.threads) {
            log::warn!("other processors or threads are used only after a restart");
        }
        self.publish(config.clone())?;
        let before = self.addresses.clone();
        self.addresses = self.directory.listening();
        if before != self.addresses {
            self.publish(config)?;
        }
        let deaf = |port: &&Port| !self.addresses.contains_key(&port.id);
        match self.config.ports.iter().find(deaf) {
            Some(port) => Err(TargetError::new(format!("cannot listen on {}", port.listen))),
            None => Ok(()),
        }
    }

    /// Where the target listens, by port.
    #[must_use]
    pub fn addresses(&self) -> &BTreeMap<u16, SocketAddr> {
        &self.addresses
    }

    /// What reads the target's counters.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::new(Arc::clone(&self.directory), self.config.cpus.clone())
    }

    /// The configuration that is served.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Stops in good order: commands under way are finished and answered, devices are synced.
    ///
    /// # Errors
    /// One sentence for what did not go well; the target has stopped all the same.
    pub fn stop(mut self) -> Result<(), TargetError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), TargetError> {
        if self.threads.is_empty() {
            return Ok(());
        }
        let patience = self.config.limits.drain_timeout.min(DRAIN_TIMEOUT_MAX);
        let drained = self.round(|round| Message::Drain { round }, patience);
        for post in &self.posts {
            post.post(Message::Stop);
        }
        let mut failed = Vec::new();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                failed.push("a poll group failed".to_owned());
            }
        }
        if !drained {
            failed.push("some commands did not finish in time".to_owned());
        }
        failed.extend(self.catalogue.sync());
        match failed.is_empty() {
            true => Ok(()),
            false => Err(TargetError::new(failed.join("; "))),
        }
    }

    /// Ends what has been started of a target that cannot start: nobody is served yet.
    fn give_up(&mut self) {
        for post in &self.posts {
            post.post(Message::Stop);
        }
        for thread in self.threads.drain(..) {
            // Why it failed has been said already.
            drop(thread.join());
        }
    }

    /// Starts the groups. Returns where they listen.
    fn spawn(&mut self, groups: usize) -> Result<BTreeMap<u16, SocketAddr>, TargetError> {
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
        let mut posts: Vec<Option<Postbox<Message>>> = vec![None; groups];
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
            drop(go.send(Go { posts, directory: Arc::clone(&self.directory) }));
        }
        for _ in 0..groups {
            let (_, outcome): (usize, Ready) = received(&is_ready)?;
            outcome?;
        }
        Ok(self.directory.listening())
    }

    fn publish(&mut self, config: Config) -> Result<(), TargetError> {
        let snapshot = self.catalogue.snapshot(&config, &self.addresses)?;
        let snapshot = self.directory.replace_snapshot(snapshot);
        self.config = config;
        let message = |round| Message::Publish { snapshot: Arc::clone(&snapshot), round };
        if self.round(message, ROUND_TIMEOUT) {
            Ok(())
        } else {
            Err(TargetError::new("a poll group does not answer"))
        }
    }

    /// Tells every group, and waits until each has acknowledged. `false`: not all did in time.
    fn round(&self, message: impl Fn(Arc<Round>) -> Message, timeout: Duration) -> bool {
        let (done, is_done) = channel();
        let round = Arc::new(Round::new(self.posts.len(), Waiter::Thread(done)));
        for post in &self.posts {
            post.post(message(Arc::clone(&round)));
        }
        is_done.recv_timeout(timeout).is_ok()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::error!("the target did not stop well: {error}");
        }
    }
}

fn received<T>(from: &Receiver<T>) -> Result<T, TargetError> {
    from.recv().map_err(|mpsc::RecvError| TargetError::new("a poll group failed to start"))
}

fn reactor_config(config: &Config, group: usize) -> weft_reactor::Config {
    weft_reactor::Config {
        driver: match config.driver {
            DriverKind::Auto => DriverKind::Auto,
            DriverKind::Uring => DriverKind::Uring,
            DriverKind::Epoll => DriverKind::Epoll,
        },
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
    when: &Receiver<Go>,
) {
    let mut reactor = match Reactor::new(config) {
        Ok(reactor) => reactor,
        Err(error) => return drop(ready.send((id, Err(TargetError::new(error.to_string()))))),
    };
    set_provider(&mut reactor, rdma);
    let (post, mailbox) = reactor.mailbox();
    drop(ready.send((id, Ok(post.clone()))));
    // Without a word the start has failed elsewhere.
    let Ok(go) = when.recv() else { return };
    match start_group(id, reactor, mailbox, go) {
        Ok(mut group) => {
            drop(ready.send((id, Ok(post))));
            group.run();
        }
        Err(error) => drop(ready.send((id, Err(error)))),
    }
}

fn start_group(
    id: usize,
    reactor: Reactor,
    mailbox: Mailbox<Message>,
    go: Go,
) -> Result<Group, TargetError> {
    let mut group = Group::new(id, reactor, mailbox, go.posts, go.directory)
        .map_err(|error| TargetError::new(error.to_string()))?;
    if id == 0 {
        group.listen().map_err(|(address, error)| TargetError::listen(address, &error))?;
    }
    Ok(group)
}
