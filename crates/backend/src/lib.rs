//! Block devices: the namespaces of a target, and devices that a load uses directly.
//!
//! A [`DeviceFactory`] is the device itself: one object for all threads, with its size and
//! identity. It opens a [`BlockDevice`] on each reactor: a handle of that reactor's thread, which
//! takes [`Request`]s and returns [`RequestCompletion`]s. A [`DeviceSpec`] describes a device in a
//! configuration file or on the command line.
//!
//! The devices: [`memory`], [`null`], [`file`](mod@file), [`block`], [`rbd`]. Wrappers around any
//! of them: [`delay`], [`fault`], [`uncorrectable`]. A remote namespace is a device too; crate
//! `weft-host` has it.
//!
//! This layer is independent of NVMe: it has blocks, requests and [`Failure`]s, no commands,
//! statuses or namespace identifiers ([`Failure::Remote`] carries a status without interpreting
//! it), no sockets and no hosts. All I/O, time and memory comes from the reactor.
//!
//! # Invariants
//!
//! - Every request ends in exactly one completion, which returns its buffer, also when the device
//!   is closed.
//! - A device never blocks the reactor's thread (a memory device copies, which is its I/O). Reads
//!   and writes take no lock, and allocate nothing once the tables have grown.
//! - A read never returns what a buffer held before.
//! - The geometry is accurate: an operation that it does not announce is refused, and atomicity is
//!   announced only where it holds. A compare-and-write excludes the writes of every reactor to its
//!   blocks.
//! - Open handles follow a resize; a request beyond the end fails without effect.

pub mod block;
pub mod bytes;
mod claim;
pub mod delay;
mod device;
pub mod duration;
mod engine;
mod error;
mod exclusion;
mod failure;
pub mod fault;
pub mod file;
pub mod files;
mod geometry;
mod limits;
pub mod memory;
pub mod null;
mod nvme;
mod quantity;
pub mod rbd;
mod request;
mod shared;
mod spec;
mod storage;
pub mod uncorrectable;
mod watch;
mod wrapper;

/// What tests/ordering has loom's own of, in the modules that it compiles.
mod sync {
    pub(crate) use std::sync::atomic;
}

pub use claim::{OwnFile, lock_devices, unlock_devices};
pub use device::{BlockDevice, DEVICE_TAGS, DeviceFactory};
pub use error::{OpenError, ResizeError};
pub use failure::{Direction, Failure, ParseFailureError};
pub use fault::{Effect, FaultRule};
pub use file::missing_file;
pub use geometry::{BLOCK_BYTES_DEFAULT, Capabilities, Geometry, is_block_size};
pub use request::{Operation, OperationKind, Request, RequestCompletion};
pub use shared::ResizeCallback;
pub use spec::{DeviceSpec, ParseSpecError, meant, nearest, split_path};
pub use storage::{Storage, StorageId};
