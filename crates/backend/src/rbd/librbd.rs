//! The binding of librbd and librados.
//!
//! Both libraries are loaded when they are first needed, so that the same binary runs without them.
//! The types here close their C objects in the right order: an image before its I/O context, that
//! before its connection. All of them may be used by several threads, as librbd's objects may.
//!
//! librbd calls back from threads of its own. It may use the memory of an operation until then,
//! however long that takes, so that memory belongs to this module ([`Flights`]), and is never freed
//! if its operation does not end before its owner does.

#![allow(unsafe_code)]

mod cluster;
mod flights;
mod image;
mod library;
#[cfg(test)]
pub(super) mod software;

pub(super) use cluster::Cluster;
pub(super) use flights::{Completions, FlightResult, Flights, Io};
pub(super) use image::{ChangeCallback, Image, in_background, wait_until_closed};
