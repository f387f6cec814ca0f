//! NVMe over RDMA: what the two sides agree on when they connect, and where a command's data is.
//!
//! There is no framing here: a capsule is a message, and data moves by RDMA READ and WRITE
//! between memory that the host describes and memory of the controller's choice. What is left to
//! a session are three things without state, and so they are functions: the private data of the
//! connection manager's messages ([`Request`], [`Reply`]), the data pointer and the descriptors
//! it leads to ([`data_of`]), and which piece of local memory goes where ([`Remote::parts`]).
//! Who posts what and when is the transport's business, because it depends on the queue pair.

mod connect;
mod data;

pub use connect::{QUEUE_ENTRIES_MIN, Refusal, Reply, Request};
pub use data::{Data, Remote, RemoteTransfer, data_of};
