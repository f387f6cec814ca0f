//! The wire types of NVM Express: commands, completions, log pages and PDUs as bytes and as values.
//!
//! # The layer
//!
//! This is the lowest layer of weft. It turns bytes into values and values into bytes, and does
//! nothing else. It has no sockets, clocks, threads or devices, and does not know the order of
//! messages: which command is allowed when is decided in the layer above (`weft-nvmf`). It is
//! `no_std`, has no `unsafe`, and allocates nothing.
//!
//! # Three kinds of type
//!
//! **Layouts** are `repr(C)` structs of byte arrays and explicit little-endian integers. Their
//! alignment is one, they have no hidden padding, and every bit pattern is valid, so a layout can
//! be viewed in place at any offset of a receive buffer ([`Wire::view`]). The size of each layout
//! and the offset of each field wider than a byte are asserted at compile time. Examples:
//! [`Command`], [`Completion`], [`identify::Controller`], [`tcp::CommonHeader`].
//!
//! **Code spaces** are open newtypes over an integer with a constant for each value that the
//! specification names: opcodes, status codes, feature identifiers, log page identifiers. An
//! unknown value survives a round trip and prints as its number. What the other side may send is
//! never a closed `enum`.
//!
//! **Parsed values** are made from layouts: [`sgl::Location`] for an SGL descriptor, [`Nqn`] for a
//! name, [`fabrics::Connect`] or [`nvm::ReadWrite`] for the command dwords of one opcode. They hold
//! native integers, and where a layout can be wrong the parse returns an error; a parsed value is
//! never invalid.
//!
//! # Invariants
//!
//! * Nothing that arrives from a peer can make a function in this crate panic.
//! * Every bit position is written once, in the declaration of its accessor.
//!   Setters mask what they are given, so a value that is too wide never spills over into its
//!   neighbour.
//! * "0's based" counts are converted here: a method named `count` or `length` returns
//!   a true count.
//! * Reserved bytes are sent as zero and ignored on receipt.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`opcode`], [`command`], [`completion`], [`status`] | queue entries |
//! | [`sgl`] | where a command's data lies |
//! | [`property`] | the controller's properties (registers, were it on PCI Express) |
//! | [`identify`], [`feature`], [`log_page`], [`event`], [`abort`] | admin commands |
//! | [`nvm`], [`reservation`] | I/O commands |
//! | [`nqn`], [`fabrics`], [`tcp`], [`rdma`] | NVMe over Fabrics and its two transports |
//! | [`authentication`] | the messages of in-band authentication |
//!
//! The facts follow NVM Express Base 2.1, the NVM Command Set 1.1 and the TCP transport 1.1, and
//! were held against `include/linux/nvme.h`, `nvme-tcp.h` and `nvme-rdma.h` of the Linux kernel,
//! against libnvme's `types.h` and against SPDK's `nvme_spec.h` and `nvmf_spec.h`.

#![no_std]

#[cfg(test)]
extern crate std;

#[macro_use]
mod macros;

pub mod abort;
pub mod authentication;
pub mod command;
pub mod completion;
pub mod discovery_information;
pub mod event;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log_page;
pub mod nqn;
pub mod nvm;
pub mod opcode;
pub mod property;
pub mod rdma;
pub mod reservation;
pub mod sgl;
pub mod status;
pub mod tcp;
pub mod wire;

pub use command::Command;
pub use completion::Completion;
pub use nqn::Nqn;
pub use opcode::{AdminOpcode, FabricsType, NvmOpcode};
pub use status::Status;
pub use wire::{TruncationError, Wire};
