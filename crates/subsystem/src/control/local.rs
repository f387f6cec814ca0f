//! A target without threads: its owner gives it reactors and calls its turns.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use weft_backend::{DeviceFactory, DeviceSpec};
use weft_reactor::{Reactor, WaitLimit};

use crate::config::Config;
use crate::control::catalogue::Catalogue;
use crate::control::reader::StatisticsReader;
use crate::group::Group;
use crate::shared::directory::Directory;
use crate::shared::error::TargetError;
use crate::shared::message::Message;
use crate::shared::powers::Powers;
use crate::shared::rate_limits::RateLimits;
use crate::shared::round::{Round, Waiter};
use crate::shared::snapshot::Scope;

/// A target that runs on its caller's thread: for simulations with virtual time and an order that
/// depends on a seed, and for programs with a loop of their own.
#[derive(Debug)]
pub struct LocalTarget {
    catalogue: Catalogue,
    directory: Arc<Directory>,
    groups: Vec<Group>,
    posts: Vec<weft_reactor::MailboxSender<Message>>,
}

impl LocalTarget {
    /// A target of one poll group for each of these reactors.
    ///
    /// # Errors
    /// One sentence that names what is not available.
    pub fn new(config: &Config, reactors: Vec<Reactor>) -> Result<Self, TargetError> {
        Self::with_devices(config, reactors, Vec::new())
    }

    /// The same with devices that the caller has made: a namespace whose spec is one of these has
    /// that device. For devices that no configuration can name, such as a simulated file.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_devices(
        config: &Config,
        reactors: Vec<Reactor>,
        devices: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>,
    ) -> Result<Self, TargetError> {
        let mut catalogue = Catalogue::new(devices);
        let (snapshot, _) = catalogue.empty(config)?;
        let directory = Directory::new(
            Arc::new(snapshot),
            config.express_groups(reactors.len()),
            config.io_metrics.clone(),
            Powers::AtOnce,
        );
        let mut posts = Vec::new();
        let mut parts = Vec::new();
        for mut reactor in reactors {
            weft_transport::rdma::set_provider(&mut reactor, config.rdma.clone());
            let (post, mailbox) = reactor.mailbox();
            posts.push(post);
            parts.push((reactor, mailbox));
        }
        let mut groups = Vec::new();
        for (id, (reactor, mailbox)) in parts.into_iter().enumerate() {
            let directory = Arc::clone(&directory);
            groups.push(Group::new(id, reactor, mailbox, posts.clone(), directory));
        }
        let mut target = Self { catalogue, directory, groups, posts };
        target.reload(config)?;
        Ok(target)
    }

    /// One turn of every group. `false`: the target has stopped and nothing is left of it.
    pub fn turn(&mut self) -> bool {
        let mut alive = false;
        for group in &mut self.groups {
            alive |= group.turn(WaitLimit::NoWait);
        }
        alive
    }

    /// Serves another configuration from the next turn on.
    ///
    /// # Errors
    /// One sentence that names what is not available; then the target continues as before.
    pub fn reload(&mut self, config: &Config) -> Result<(), TargetError> {
        self.change(config).map(drop)
    }

    /// The same; what is returned says when the change is answered, as a step is by
    /// [`Target::step`](crate::Target::step).
    ///
    /// # Errors
    /// As [`Self::reload`].
    pub fn change(&mut self, config: &Config) -> Result<Receiver<()>, TargetError> {
        let mut config = config.clone();
        let plan = self.catalogue.plan(&mut config, Scope::All)?;
        let needs = plan.needs();
        let prepared = self
            .groups
            .iter_mut()
            .flat_map(|group| needs.as_ref().map(|needs| group.prepare(needs)));
        let prepared = prepared.collect::<Result<Vec<_>, _>>().and_then(|addresses| {
            let addresses = addresses.into_iter().flatten().collect();
            let snapshot = self.catalogue.apply(&config, plan, &addresses)?;
            Ok((snapshot, addresses))
        });
        let (mut snapshot, addresses) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.groups.iter_mut().for_each(Group::rollback);
                return Err(error);
            }
        };
        let (before, limits) = (self.directory.snapshot(), config.served_rate_limits());
        let now = self.groups.first().map(Group::now).unwrap_or_default();
        snapshot.rate_limits =
            RateLimits::replace(&before.rate_limits, &limits, self.groups.len(), now);
        self.directory.set_listening(addresses);
        let snapshot = self.directory.replace_snapshot(snapshot, &Scope::All);
        let (done, is_done) = channel();
        let settled = Round::new(self.posts.len(), Waiter::Thread(done));
        Round::begin(&self.posts, Waiter::None, |round| Message::Reload {
            snapshot: Arc::clone(&snapshot),
            ports: true,
            round,
            settled: Arc::clone(&settled),
        });
        Ok(is_done)
    }

    /// What says when no I/O command is in flight.
    #[must_use]
    pub fn when_idle(&self) -> Receiver<()> {
        let (done, is_done) = channel();
        Round::begin(&self.posts, Waiter::Thread(done), |round| Message::Idle { round });
        is_done
    }

    /// Where the target listens, by port.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<u16, SocketAddr> {
        self.directory.listening()
    }

    /// Bytes of buffers in use.
    #[must_use]
    pub fn buffers_in_use(&self) -> usize {
        self.groups.iter().map(Group::buffers_in_use).sum()
    }

    /// Reads the target's counters.
    #[must_use]
    pub fn watch(&self) -> StatisticsReader {
        StatisticsReader::new(Arc::clone(&self.directory), Vec::new())
    }

    /// Closes everything; the target has stopped when [`Self::turn`] returns `false`.
    pub fn stop(&mut self) {
        for post in &self.posts {
            post.post(Message::Stop);
        }
    }
}
