//! What others read of a target's counters.

use std::sync::Arc;
use std::time::Duration;

use weft_rpc::machine::{self, Machine};
use weft_statistics::{Group, Hosts, RateLimit, Statistics, ns};

use crate::shared::directory::{ConnectedController, ConnectedQueue, Directory};
use crate::shared::pending::AuthenticationStatistics;
use crate::shared::snapshot::NamespaceState;
use crate::shared::statistics::DeviceStatistics;

/// Reads a target's counters, from any thread, also after the target has stopped.
#[derive(Clone, Debug)]
pub struct StatisticsReader {
    directory: Arc<Directory>,
    cpus: Vec<usize>,
}

impl StatisticsReader {
    pub(crate) fn new(directory: Arc<Directory>, cpus: Vec<usize>) -> Self {
        Self { directory, cpus }
    }

    /// How long the commands of each host took, if that is measured. `now` is the time of the
    /// groups' reactors.
    #[must_use]
    pub fn io_metrics(&self, now: Duration) -> Option<Hosts> {
        self.directory.io_metrics().map(|metrics| metrics.read(now))
    }

    /// When the target was started, on the machine's monotonic clock.
    #[must_use]
    pub fn started(&self) -> Duration {
        self.directory.started()
    }

    /// Whether it is measured how long commands take.
    #[must_use]
    pub fn measures_io(&self) -> bool {
        self.directory.io_metrics().is_some()
    }

    /// Whether hosts can connect at a port.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        !self.directory.listening().is_empty()
    }

    /// The namespaces of all subsystems. Looks at every file.
    #[must_use]
    pub fn namespaces(&self) -> Vec<NamespaceState> {
        self.directory.snapshot().namespace_states()
    }

    /// Connections that are served at most: as many as are configured, or as there are descriptors
    /// for.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.directory.snapshot().connections_max
    }

    /// The controllers of all subsystems.
    #[must_use]
    pub fn controllers(&self) -> Vec<ConnectedController> {
        self.directory.connected_controllers(None)
    }

    /// The queues of all subsystems.
    #[must_use]
    pub fn queues(&self) -> Vec<ConnectedQueue> {
        self.directory.connected_queues(None)
    }

    /// The admin and the I/O queues that hosts have connected since the start, by group.
    #[must_use]
    pub fn queues_that_came(&self) -> Vec<(u64, u64)> {
        self.directory.queues_that_came()
    }

    /// What has become of authentications since the start.
    #[must_use]
    pub fn authentications(&self) -> AuthenticationStatistics {
        let queues = self.directory.pending(|queues| queues.statistics());
        queues + self.directory.handshakes(|handshakes| handshakes.statistics())
    }

    /// What rate limits have held up, by bucket.
    #[must_use]
    pub fn rate_limits(&self) -> Vec<RateLimit> {
        self.directory.snapshot().rate_limits.statistics()
    }

    /// What was done at a namespace's device, by all groups together.
    #[must_use]
    pub fn device(&self, subsystem: &str, nsid: u32) -> DeviceStatistics {
        let mut sum = DeviceStatistics::default();
        let snapshot = self.directory.snapshot();
        let view = snapshot.subsystems.get(subsystem);
        if let Some(namespace) = view.and_then(|view| view.namespaces.get(nsid)) {
            for words in self.directory.words() {
                words.add_device(namespace.device, &mut sum);
            }
        }
        sum
    }

    /// All of it, as the control socket reports it.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let now = weft_reactor::monotonic_time();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let threads = machine::threads("weft-group-");
        let mut groups = self.read(now);
        for group in &mut groups {
            let name = format!("weft-group-{}", group.group);
            let thread = threads.iter().find(|thread| thread.name == name).cloned();
            group.thread = thread.unwrap_or_default();
        }
        Statistics {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel.trim().to_owned(),
            process_id: std::process::id(),
            time_ns: ns(now),
            started_ns: ns(self.started()),
            connections_max: self.connections_max() as u64,
            connections_configured: self.directory.snapshot().limits.connections as u64,
            groups,
            hosts: self.io_metrics(now),
            rate_limits: self.rate_limits(),
            machine: Machine::read(),
        }
    }

    /// The counters of every group, of the namespaces that are served now, without those of its
    /// thread. `now` is the time of the groups' reactors.
    #[must_use]
    pub fn read(&self, now: Duration) -> Vec<Group> {
        let snapshot = self.directory.snapshot();
        let queues = self.directory.queues();
        let groups = self.directory.words().iter().enumerate().map(|(group, words)| {
            let cpu = self.cpus.get(group).copied();
            let queues = queues.get(group).copied().unwrap_or(0);
            words.read(group, cpu, queues, &snapshot.subsystems, now)
        });
        groups.collect()
    }
}
