//! RDMA: capsules as SENDs, data by RDMA READ and WRITE.
//!
//! [`verbs`] is the interface to devices and the connection manager. An `engine` is what the
//! connections of one reactor share: completion queues, registered memory, events. A `pair` is one
//! queue pair with a record of the posted work; `target` and `host` are the two sides. [`probe`]
//! measures the raw link.
//!
//! # Memory
//!
//! The reactor's pool is registered in pieces of the largest buffer, each when a buffer in it is
//! first used, once for each side and device, until the device is closed. These regions give the
//! peer no rights: a host opens a command's buffer by a memory window. On devices without windows,
//! and where an iWARP target reads, data is copied through an `arena` of the connection.
//! [`RemoteAccess`] lists the ways, including one for those who trust their fabric.
//!
//! A request whose data is in a buffer of the pool needs no registration. Other data is copied into
//! the pool first, which the host's blocking calls do. There is no registration cache: it would
//! have to learn of every `munmap`, and a missed one would let a device write to memory in other
//! use.
//!
//! Limits: a buffer is at most 4 MiB, the data in flight must fit into the pool, and RLIMIT_MEMLOCK
//! must allow for every piece ever in use.

mod arena;
mod command;
mod engine;
pub(crate) mod host;
mod listen;
mod pair;
pub mod probe;
pub(crate) mod target;
pub mod verbs;

pub use listen::{Incoming, Listener};
#[cfg(feature = "software")]
pub use verbs::software;
pub use verbs::{Attributes, DeviceFault, DeviceKind, Provider, RemoteAccess, WorkStatus};

use std::rc::Rc;

use weft_reactor::Reactor;

/// Sets where the RDMA devices of a reactor come from, before its first listener or connection. The
/// default is this machine's devices.
pub fn set_provider(reactor: &mut Reactor, provider: Provider) {
    reactor.attach(Rc::new(provider));
}

/// Sets it, unless it is set already.
pub fn ensure_provider(reactor: &mut Reactor, provider: &Provider) {
    if reactor.attachment::<Provider>().is_none() {
        set_provider(reactor, provider.clone());
    }
}

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod tests;
