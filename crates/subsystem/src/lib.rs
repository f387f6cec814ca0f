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
//! * [`config`]: what is wished, as data, and the forms in which people write it.
//! * `control`: what is decided. [`Target`] starts, reloads and stops; [`steps`] change one object;
//!   the catalogue makes snapshots of what is served.
//! * `group`: what happens: poll groups, with a thread each. [`LocalTarget`] has them without.
//! * `shared`: what groups and `control` both know: messages, rounds, the snapshot, the directory.
//!
//! ARCHITECTURE.md has a table of which may use which.
//!
//! # Invariants
//!
//! * A queue is owned by one group; other groups reach it by message.
//! * Until a device has completed the commands of an ended connection, the host's next Connect to
//!   that subsystem is not answered. A command of an earlier connection that was not begun before
//!   that Connect is never begun.
//! * A peer costs others at most their share of the machine.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod config;
mod control;
mod group;
mod shared;

/// What tests/ordering has loom's own of, in the modules that it compiles.
mod sync {
    pub(crate) use std::sync::atomic;
}

pub use config::{IoMetricsConfig, key_file};
pub use control::check::{CheckedNamespace, CheckedTarget, check};
pub use control::local::LocalTarget;
pub use control::managed::Changes;
pub use control::reader::StatisticsReader;
pub use control::settled::Settlement;
pub use control::steps;
pub use control::target::{ServedNamespace, Target};
pub use shared::classes::{ClassReason, ServedClass};
pub use shared::directory::{
    ConnectedController, ConnectedQueue, EXIT_CODE_OF_A_FAILED_GROUP, QueueAuthentication,
};
pub use shared::error::TargetError;
pub use shared::io_metrics::ErrorClass;
pub use shared::message::NamespaceRequest;
pub use shared::pending::AuthenticationStatistics;
pub use shared::snapshot::NamespaceState;
pub use shared::statistics::DeviceStatistics;
pub use shared::trace::{TraceConfig, TracedGroup};
pub use weft_backend::files::replace_file;
pub use weft_nvmf::subsystem::DeviceTimes;
