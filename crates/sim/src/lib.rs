//! weft-sim
