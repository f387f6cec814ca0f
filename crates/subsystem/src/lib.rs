//! A target: subsystems, namespaces and ports, served by poll groups.
//!
//! # The layer
//!
//! `weft-nvmf` has the protocol's rules, `weft-transport` moves bytes, `weft-backend` stores them.
//! This crate decides which queue a connection is, which group holds it, which device a command
//! goes to, and what happens when hosts, namespaces or ports are added or removed. It does not
//! depend on the form of PDUs or the working of devices, and takes the time from its reactor.
//!
//! # How it is divided
//!
//! * [`config`]: the configuration as data, and the forms in which people write it.
//! * `catalogue` makes a `snapshot` from it: immutable, the same for all groups.
//! * `group`: one thread each; accepting, connecting, admin queues, I/O queues.
//! * `nsids`: which namespace has which NSID, and which NSIDs must not change their owner.
//! * `index`: what only one namespace may have, and which one has it.
//! * `changes`: the changes of a reload, in words.
//! * `check`: the namespaces that a configuration would serve, without opening anything.
//! * `classes`: who decides whether a queue is served between the commands of others.
//! * `strangers`: hosts that have not authenticated themselves yet, and how many there may be.
//! * `powers`: the arithmetic of authentication, on a thread of its own.
//! * `directory`: the state that groups share when a host connects or leaves, behind a lock that
//!   the data path never takes.
//! * `drain`: the earlier commands of a host, which its next Connect waits for.
//! * `statistics`: the counters of each group; `io_metrics`: how long hosts' commands take.
//! * `tls`: which key a host's identity has; `generated`: keys that authentications have made.
//! * `trace`: what every command of a while went through, when that is asked for.
//! * [`steps`]: the changes of single objects at run time.
//! * [`key_file`]: files with keys.
//! * `rate_limits` and `bucket`: limits of rates, which all groups share.
//! * `reservations`: what one host changes for all of them, and the files in which that is kept.
//! * `round`: a change that every group makes and acknowledges. A reload has two: every group opens
//!   what it needs; only when all of them have is it served.
//! * [`Target`]: start, reload, stop. [`LocalTarget`]: the same without threads.
//!
//! # Invariants
//!
//! * A queue is owned by one group; other groups reach it by message.
//! * Until a device has completed the commands of an ended connection, the host's next Connect to
//!   that subsystem is not answered. A command of an earlier connection that was not begun before
//!   that Connect is never begun.
//! * A peer costs others at most their share of the machine.

pub mod config;
mod control;
mod group;
mod shared;

/// What tests/ordering has loom's own of, in the modules that it compiles.
mod sync {
    pub(crate) use std::sync::atomic;
}

pub use config::key_file;
pub use control::check::{CheckedNamespace, check};
pub use control::local::LocalTarget;
pub use control::managed::NamespaceRequest;
pub use control::settled::Settled;
pub use control::steps;
pub use control::target::{ServedNamespace, Target, TargetError};
pub use group::{LatencyState, LatencyTarget};
pub use shared::classes::{ClassReason, ServedClass};
pub use shared::directory::{
    ConnectedController, ConnectedQueue, EXIT_CODE_OF_A_FAILED_GROUP, QueueAuthentication,
};
pub use shared::io_metrics::{
    ErrorClass, HostIo, IoKind, IoMeasured, IoMetricsConfig, IoMetricsReading, Wait,
};
pub use shared::rate_limits::{RateLimitStatistics, ThrottledTenant};
pub use shared::statistics::{
    GroupStatistics, NamespaceState, NamespaceStatistics, StatisticsReader,
};
pub use shared::strangers::AuthenticationStatistics;
pub use shared::trace::{TraceConfig, TracedCommand, TracedGroup, TracedQueue};
pub use weft_backend::files::replace_file;
pub use weft_nvmf::subsystem::DeviceTimes;
