//! A device that discards all writes and reads as zeroes.
//!
//! It serves to measure everything around a device. A read does zero its buffer: all connections of
//! a reactor share the buffers, and a host must not see another host's data. Filling a buffer costs
//! a fraction of sending it.

use crate::error::check_size;
use crate::{
    BLOCK_BYTES_DEFAULT, BlockDevice, Capabilities, DeviceFactory, Failure, Geometry, OpenError,
    Operation, Request, RequestCompletion, ResizeError, bytes, geometry,
};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use weft_reactor::{Owner, Reactor};

/// A namespace without content.
#[derive(Debug)]
pub struct NullFactory {
    geometry: Geometry,
    blocks: Arc<AtomicU64>,
}

impl NullFactory {
    /// A device of this many bytes.
    pub fn new(bytes: u64, block_bytes: u32) -> Result<Self, OpenError> {
        let mut geometry = geometry::sized(bytes, block_bytes)?;
        // Every write is atomic, because reads always return zeroes.
        geometry.atomic_blocks = u32::MAX;
        geometry.compare_and_write_blocks = u32::MAX;
        geometry.capabilities = Capabilities {
            discard: true,
            discard_reads_zeroes: true,
            write_zeroes: true,
            durable_write: true,
            compare_and_write: true,
            ..Capabilities::default()
        };
        Ok(Self { blocks: Arc::new(AtomicU64::new(geometry.blocks)), geometry })
    }
}

impl DeviceFactory for NullFactory {
    fn open(&self, _: &mut Reactor, _: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        Ok(Box::new(NullDevice {
            geometry: self.geometry(),
            blocks: Arc::clone(&self.blocks),
            done: VecDeque::new(),
            closed: false,
        }))
    }

    fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks.load(Ordering::Acquire), ..self.geometry }
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        let block_bytes = self.geometry.block_bytes;
        let size = bytes::exact(self.geometry.bytes());
        match block_bytes {
            BLOCK_BYTES_DEFAULT => format!("null:{size}"),
            _ => format!("null:{size},block={block_bytes}"),
        }
    }

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        check_size(bytes, self.geometry.block_bytes)?;
        let blocks = bytes / u64::from(self.geometry.block_bytes);
        self.blocks.store(blocks, Ordering::Release);
        Ok(())
    }
}

#[derive(Debug)]
struct NullDevice {
    geometry: Geometry,
    blocks: Arc<AtomicU64>,
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

impl BlockDevice for NullDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, _: &mut Reactor, request: Request) {
        self.geometry.blocks = self.blocks.load(Ordering::Acquire);
        let checked = match self.closed {
            true => Err(Failure::Gone),
            false => request.operation.check(&self.geometry),
        };
        if let Err(failure) = checked {
            return self.done.push_back(request.refuse(failure));
        }
        let Request { tag, mut operation } = request;
        let result = match &mut operation {
            Operation::Read { into, .. } => {
                into.bytes_mut().fill(0);
                Ok(())
            }
            Operation::Compare { with: expected, .. }
            | Operation::CompareAndWrite { compare: expected, .. } => {
                let zero = expected.iter().all(|byte| *byte == 0);
                zero.then_some(()).ok_or(Failure::Mismatch)
            }
            _ => Ok(()),
        };
        self.done.push_back(RequestCompletion { tag, result, buffer: operation.into_buffer() });
    }

    fn handle(&mut self, _: &mut Reactor, _: weft_reactor::ReactorCompletion) {}

    fn flush(&mut self, _: &mut Reactor) {
        self.geometry.blocks = self.blocks.load(Ordering::Acquire);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn close(&mut self, _: &mut Reactor) {
        self.closed = true;
    }
}
