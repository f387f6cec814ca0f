//! Cases about files.
