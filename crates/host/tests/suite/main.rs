//! The host against a small controller of the tests' own: over loopback with blocking calls and
//! with devices on several threads, and in a seeded world.

mod blocking;
mod controller;
mod queues;
mod running;
mod simulation;
