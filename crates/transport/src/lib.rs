//! weft-transport
