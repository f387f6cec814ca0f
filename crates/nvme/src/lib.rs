//! weft-nvme
