//! weft-backend
