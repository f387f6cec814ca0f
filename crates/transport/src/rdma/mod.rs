//! RDMA: capsules as messages, data by RDMA READ and WRITE.
//!
//! [`verbs`] is the seam to devices and the connection manager. An `engine` is what the
//! connections of one reactor share: completion queues, registered memory, news. A `pair` is one
//! queue pair with its books of what is posted; on it stand the two sides, `target` and `host`.

mod engine;
pub(crate) mod host;
mod listen;
mod pair;
pub(crate) mod target;
pub mod verbs;

pub use listen::{Incoming, Listener};
pub use verbs::{Attributes, DeviceKind, Provider, WorkStatus, software};

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
