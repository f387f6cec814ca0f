//! Memory that one connection alone uses with its device, in a protection domain of its own: for
//! devices on which a key cannot be bound to one command.
//!
//! What a peer may reach is in fixed slots, each a buffer of the pool with a region of its own.
//! There are as many as were in use at a time; they go, first the region and then the buffer, when
//! the connection has been idle or ends. Data is copied in and out.

use std::io;

use weft_reactor::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, Buffer, Pool};

use super::engine::{number, short};
use super::verbs::{Access, Domain, Piece, Region};
use crate::CloseReason;

/// Sizes of slots: powers of two, from the smallest buffer's to the largest's.
const ORDERS: usize = (BUFFER_BYTES_MAX / BUFFER_BYTES_MIN).ilog2() as usize + 1;

#[derive(Debug)]
pub(crate) struct Arena {
    /// Slots that are not in use, by their size.
    free: [Vec<Slot>; ORDERS],
    access: Access,
    pool: Pool,
    domain: Domain,
    /// Whether a slot was taken since the last [`Arena::release_idle`].
    used: bool,
}

/// A buffer that work requests can name: by a region of its own, or by that of its part of the
/// pool.
#[derive(Debug)]
pub(crate) struct Slot {
    // First: it is deregistered before the buffer goes back to the pool.
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

    /// Registers a buffer for this side only.
    pub(crate) fn name(&self, buffer: Buffer) -> io::Result<Slot> {
        self.register(buffer, Access { local_write: true, ..Access::default() })
    }

    /// A slot of so many bytes. The error is what is wrong with this side; there is none if the
    /// pool is empty for now.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Slot, Option<CloseReason>> {
        self.used = true;
        if let Some(mut slot) = self.free.get_mut(order(bytes)).and_then(Vec::pop) {
            slot.buffer.set_len(bytes);
            return Ok(slot);
        }
        let mut buffer = self.pool.take(bytes).ok_or(None)?;
        // The peer is not to see what others have left there.
        buffer.set_len(buffer.capacity());
        buffer.fill(0);
        let mut slot = self.register(buffer, self.access).map_err(|error| {
            log::debug!("{error}");
            Some(CloseReason::from(&error))
        })?;
        slot.buffer.set_len(bytes);
        Ok(slot)
    }

    /// Takes a slot back that nothing names any more.
    pub(crate) fn give(&mut self, slot: Slot) {
        if slot.region.is_some()
            && let Some(free) = self.free.get_mut(order(slot.buffer.capacity()))
        {
            free.push(slot);
        }
    }

    /// Gives up the slots that are not in use, if none was taken since the last time.
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
    /// A buffer of the pool, registered or not.
    pub(crate) fn of_pool(buffer: Buffer) -> Self {
        Self { region: None, buffer }
    }

    /// The buffer, of which the peer can reach nothing.
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

    /// Takes what is in it, of which the peer can reach nothing, in exchange for an empty buffer of
    /// the same length: one that has a region stays, and its bytes are copied.
    pub(crate) fn exchange(&mut self, mut fresh: Buffer) -> Buffer {
        if self.region.is_some() {
            fresh.copy_from_slice(&self.buffer);
            return fresh;
        }
        std::mem::replace(&mut self.buffer, fresh)
    }

    /// Copies bytes to the beginning, while the peer may look or write.
    pub(crate) fn store(&mut self, bytes: &[u8]) {
        self.buffer.store(bytes);
    }

    /// Copies the first bytes out, while the peer may write.
    pub(crate) fn load(&self, into: &mut [u8]) {
        self.buffer.load(into);
    }

    /// Names bytes of it for this side's work requests, by its own region.
    pub(crate) fn piece(&self, start: usize, length: usize) -> io::Result<Piece> {
        let key = self.region.as_ref().ok_or(io::ErrorKind::InvalidInput)?.local_key();
        let address = self.buffer.address().saturating_add(start);
        Ok(Piece { address: number(address)?, bytes: short(length)?, key })
    }

    /// The key for the peer.
    pub(crate) fn remote_key(&self) -> u32 {
        self.region.as_ref().map_or(0, Region::remote_key)
    }
}

fn order(bytes: usize) -> usize {
    let pages = bytes.div_ceil(BUFFER_BYTES_MIN).max(1);
    usize::try_from(pages.next_power_of_two().trailing_zeros()).unwrap_or(ORDERS)
}
