//! weft-lab
