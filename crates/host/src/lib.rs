//! weft-host
