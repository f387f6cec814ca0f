//! weft-target
