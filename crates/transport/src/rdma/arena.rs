//! Memory that one connection uses with its device, in a protection domain of its own, for devices
//! on which a key cannot be bound to one command.
//!
//! The peer can access fixed slots, each a buffer of the pool with a region of its own. There are
//! as many as were in use at the same time. Data is copied in and out. When the connection has been
//! idle or ends, each slot is deregistered and its buffer freed.

use std::io;

use weft_reactor::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, Buffer, Pool};

use super::engine::{number, short};
use super::verbs::{Access, Domain, Piece, Region};
use crate::CloseReason;

/// The number of slot sizes: powers of two from the smallest buffer to the largest.
const ORDERS: usize = (BUFFER_BYTES_MAX / BUFFER_BYTES_MIN).ilog2() as usize + 1;

#[derive(Debug)]
pub(crate) struct Arena {
    /// Unused slots, by size.
    free: [Vec<Slot>; ORDERS],
    access: Access,
    pool: Pool,
    domain: Domain,
    /// Whether a slot was taken since the last [`Arena::release_idle`].
    used: bool,
}

/// A buffer that work requests can use, by its own region or by that of its part of the pool.
#[derive(Debug)]
pub(crate) struct Slot {
    // Dropped first: it is deregistered before the buffer returns to the pool.
    region: Option<Region>,
    buffer: Buffer,
}

impl Arena {
    pub(crate) fn new(domain: Domain, access: Access, pool: Pool) -> Self {
        Self { free: Default::default(), access, pool, domain, used: false }
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Registers a buffer for local access only.
    pub(crate) fn name(&self, buffer: Buffer) -> io::Result<Slot> {
        self.register(buffer, Access { local_write: true, ..Access::default() })
    }

    /// Takes a slot of this many bytes. The error is that of this side, or `None` if the pool is
    /// empty for now.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Slot, Option<CloseReason>> {
        self.used = true;
        if let Some(mut slot) = self.free.get_mut(order(bytes)).and_then(Vec::pop) {
            slot.buffer.set_len(bytes);
            return Ok(slot);
        }
        let mut buffer = self.pool.take(bytes).ok_or(None)?;
        // The peer must not see the previous content.
        buffer.set_len(buffer.capacity());
        buffer.fill(0);
        let mut slot = self.register(buffer, self.access).map_err(|error| {
            log::debug!("{error}");
            Some(CloseReason::from(&error))
        })?;
        slot.buffer.set_len(bytes);
        Ok(slot)
    }

    /// Takes a slot back that no work request uses.
    pub(crate) fn give(&mut self, slot: Slot) {
        if slot.region.is_some()
            && let Some(free) = self.free.get_mut(order(slot.buffer.capacity()))
        {
            free.push(slot);
        }
    }

    /// Frees the unused slots, if none was taken since the last call.
    pub(crate) fn release_idle(&mut self) {
        if !std::mem::take(&mut self.used) {
            self.free.iter_mut().for_each(Vec::clear);
        }
    }

    fn register(&self, buffer: Buffer, access: Access) -> io::Result<Slot> {
        let offset = buffer.address().wrapping_sub(self.pool.address());
        let region = self.domain.register(&self.pool, offset, buffer.capacity(), access)?;
        Ok(Slot { region: Some(region), buffer })
    }
}

impl Slot {
    /// A buffer without a region of its own.
    pub(crate) fn of_pool(buffer: Buffer) -> Self {
        Self { region: None, buffer }
    }

    /// The buffer, which must not be accessible to the peer.
    pub(crate) fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Whether it has a region of its own.
    pub(crate) fn is_own(&self) -> bool {
        self.region.is_some()
    }

    /// Takes the data, which must not be accessible to the peer, and leaves an empty buffer of the
    /// same length. A slot with a region keeps its buffer, and the data is copied.
    pub(crate) fn exchange(&mut self, mut fresh: Buffer) -> Buffer {
        if self.region.is_some() {
            fresh.copy_from_slice(&self.buffer);
            return fresh;
        }
        std::mem::replace(&mut self.buffer, fresh)
    }

    /// Copies bytes to the start, while the peer may access them.
    pub(crate) fn store(&mut self, bytes: &[u8]) {
        self.buffer.store(bytes);
    }

    /// Copies the first bytes out, while the peer may write them.
    pub(crate) fn load(&self, into: &mut [u8]) {
        self.buffer.load(into);
    }

    /// A scatter/gather element of its own region, for work requests of this side.
    pub(crate) fn piece(&self, start: usize, length: usize) -> io::Result<Piece> {
        let key = self.region.as_ref().ok_or(io::ErrorKind::InvalidInput)?.local_key();
        let address = self.buffer.address().saturating_add(start);
        Ok(Piece { address: number(address)?, bytes: short(length)?, key })
    }

    /// The remote key.
    pub(crate) fn remote_key(&self) -> u32 {
        self.region.as_ref().map_or(0, Region::remote_key)
    }
}

fn order(bytes: usize) -> usize {
    let pages = bytes.div_ceil(BUFFER_BYTES_MIN).max(1);
    usize::try_from(pages.next_power_of_two().trailing_zeros()).unwrap_or(ORDERS)
}
