//! TCP: sessions over a stream of bytes.

pub(crate) mod host;
mod layer;
mod link;
mod security;
pub(crate) mod target;
