//! weft-nvmf
