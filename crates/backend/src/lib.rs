//! Block devices: what a target serves as a namespace, and what a load can drive directly.
//!
//! A device is two things. A [`DeviceFactory`] is the device itself: one object, shared by all
//! threads, that knows its size and its identity. It opens a [`BlockDevice`] on each reactor that
//! uses it: a handle that belongs to that reactor's thread, takes [`Request`]s and returns
//! [`RequestCompletion`]s. [`DeviceSpec`] is a device as data, from a file or a command line.
//!
//! The devices: [`memory`], [`null`], [`file`](mod@file), [`block`]. Around any of them:
//! [`delay`], [`fault`]. A remote namespace is a device too; it lives with the host.
//!
//! # What this layer must never know
//!
//! NVMe. There are no commands, statuses or namespace ids here, only blocks, requests and
//! [`Failure`]s in words of its own ([`Failure::Remote`] carries a number that it does not read).
//! It knows no sockets and no hosts, and all its I/O, time and memory is the reactor's.
//!
//! # Invariants
//!
//! - Every request ends in exactly one completion, also when the device is closed, and its buffer
//!   comes back with it.
//! - The reactor's thread is never blocked by a device (a memory device copies, which is its I/O),
//!   and the way of a read or a write has no lock and no allocation once its tables have grown.
//! - Nothing that is read shows what somebody else left in a buffer.
//! - The geometry says what is true: an operation that it does not announce is refused, and
//!   atomicity is promised only where it holds. A compare-and-write excludes the writes of every
//!   reactor to its blocks.
//! - A device is as large as its geometry says at that moment: handles that are open follow a
//!   resize, and a request beyond the end fails without having done anything.

pub mod block;
pub mod bytes;
mod claim;
pub mod delay;
mod device;
pub mod duration;
mod engine;
mod exclusion;
mod failure;
pub mod fault;
pub mod file;
mod geometry;
pub mod memory;
pub mod null;
mod request;
mod spec;

pub use device::{BlockDevice, DEVICE_TAGS, DeviceFactory, OpenError, ResizeError};
pub use failure::{Direction, Failure, ParseFailureError};
pub use fault::{Effect, FaultRule};
pub use geometry::{Capabilities, Geometry, is_block_size};
pub use request::{Operation, OperationKind, Request, RequestCompletion};
pub use spec::{BLOCK_BYTES_DEFAULT, DeviceSpec, ParseSpecError, nearest, split_path};
