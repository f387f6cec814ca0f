//! What others read of a target's counters.

use std::sync::Arc;
use std::time::Duration;

use crate::shared::directory::{ConnectedController, ConnectedQueue, Directory};
use crate::shared::io_metrics::IoMetricsReading;
use crate::shared::rate_limits::RateLimitStatistics;
use crate::shared::snapshot::NamespaceState;
use crate::shared::statistics::GroupStatistics;
use crate::shared::strangers::AuthenticationStatistics;

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
    pub fn io_metrics(&self, now: Duration) -> Option<IoMetricsReading> {
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
        let queues = self.directory.strangers(|queues| queues.statistics());
        queues + self.directory.handshakes(|handshakes| handshakes.statistics())
    }

    /// What rate limits have held up, by bucket.
    #[must_use]
    pub fn rate_limits(&self) -> Vec<RateLimitStatistics> {
        self.directory.snapshot().rate_limits.statistics()
    }

    /// The counters of every group, of the namespaces that are served now. `now` is the time of
    /// the groups' reactors.
    #[must_use]
    pub fn read(&self, now: Duration) -> Vec<GroupStatistics> {
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
