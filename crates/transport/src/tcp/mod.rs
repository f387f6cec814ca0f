//! TCP: sessions over a stream of bytes.

pub(crate) mod host;
mod layer;
mod link;
pub(crate) mod target;
