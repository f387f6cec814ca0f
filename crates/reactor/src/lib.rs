//! weft-reactor
