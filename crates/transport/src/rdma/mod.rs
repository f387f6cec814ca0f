//! RDMA: capsules as messages, data by RDMA READ and WRITE.
//!
//! [`verbs`] is the seam to devices and the connection manager. An `engine` is what the
//! connections of one reactor share: completion queues, registered memory, events. A `pair` is one
//! queue pair with its books of what is posted; on it stand the two sides, `target` and `host`.
//!
//! # Memory
//!
//! The reactor's pool is what is registered: in pieces of the largest buffer, each when something
//! in it is first named, once for each side and device, until the device goes. These regions give
//! the peer no rights: a host opens the buffer of a command by a memory window. Where the device
//! has none, and where an iWARP target reads, data is copied through an `arena` that is one
//! connection's alone. [`RemoteAccess`] has the ways, and one for those who trust their fabric.
//!
//! A request whose data lies in a buffer of the pool costs no registration. Data that lies
//! elsewhere is copied into the pool first, which is what the host's blocking calls do: the pool is
//! their bounce buffer. There is no registration cache; it would have to learn of every mapping
//! that goes, and without that a device writes to memory that is somebody else's by then.
//!
//! Limits: a buffer is no longer than 4 MiB, all that is in flight fits into the pool, and
//! RLIMIT_MEMLOCK has room for every piece that was ever in use.

mod arena;
mod engine;
pub(crate) mod host;
mod listen;
mod pair;
pub(crate) mod target;
pub mod verbs;

pub use listen::{Incoming, Listener};
#[cfg(feature = "software")]
pub use verbs::software;
pub use verbs::{Attributes, DeviceFault, DeviceKind, Provider, RemoteAccess, WorkStatus};

use std::rc::Rc;

use weft_reactor::Reactor;

/// Says where the RDMA devices of a reactor come from, before its first listener or connection.
/// Unless it is said, they are this machine's.
pub fn set_provider(reactor: &mut Reactor, provider: Provider) {
    reactor.attach(Rc::new(provider));
}

/// The same, unless it has been said before.
pub fn ensure_provider(reactor: &mut Reactor, provider: &Provider) {
    if reactor.attachment::<Provider>().is_none() {
        set_provider(reactor, provider.clone());
    }
}

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod tests;
