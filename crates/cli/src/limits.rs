//! The most that users, peers and this program's own targets may have of a command.

use std::time::Duration;

/// Connections to the metrics at a time; one more closes the oldest, which may have asked for
/// nothing.
pub(crate) const METRICS_CONNECTIONS_MAX: usize = 8;

/// Time of a request of the metrics, from accept to the last byte of the answer.
pub(crate) const METRICS_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request of the metrics.
pub(crate) const METRICS_REQUEST_BYTES_MAX: usize = 16 << 10;

/// Headers of a request of the metrics.
pub(crate) const METRICS_HEADERS_MAX: usize = 64;

/// Notifications that a target keeps for those who ask.
pub(crate) const NOTIFICATIONS_MAX: usize = 1024;

/// Commands of a part of a trace: one of two megabytes at most.
pub(crate) const TRACE_PART_COMMANDS: usize = 20_000;

/// How long a caller of `reload` waits for its outcome.
pub(crate) const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of an object of etcd's stream.
pub(crate) const GATEWAY_LINE_BYTES_MAX: u64 = 64 << 10;

/// How long an answer of the control socket may take: a change waits for every poll group.
pub(crate) const CONTROL_TIMEOUT: Duration = Duration::from_secs(60);

/// A completion in a shell that takes longer is in the way.
pub(crate) const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long after its end, which every group sees to by itself, a trace may come.
pub(crate) const TRACE_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a controller's persistent event log that are read.
pub(crate) const PERSISTENT_LOG_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a request of an attached device: the kernel splits longer ones.
pub(crate) const ATTACH_REQUEST_BYTES_MAX: u32 = 512 << 10;

/// How long a target of a study may take to stop.
pub(crate) const CHILD_STOP_TIMEOUT: Duration = Duration::from_secs(20);
