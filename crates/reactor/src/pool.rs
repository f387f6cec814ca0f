//! The reactor's buffers: page-aligned, contiguous, from one mapping whose pages are allocated when
//! they are first touched.
//!
//! A payload is in one buffer because O_DIRECT and RDMA verbs work best that way. Handles are
//! counted in a side table without atomics: a pool and its buffers stay on their thread. A buffer
//! keeps the bytes of its last user; it has to be filled before it is sent.

mod bitset;
mod buddy;
mod loan;

pub use loan::{Borrower, Lender, loan};

use crate::limits::RECEIVE_BYTES_MIN;
use crate::mapping::{Mapping, PAGE_BYTES};
use crate::region::copy;
use buddy::{Buddy, CHUNK_PAGES, ORDERS};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::{fmt, io};

/// The largest buffer: 4 MiB.
pub const BUFFER_BYTES_MAX: usize = CHUNK_PAGES as usize * PAGE_BYTES;
/// The smallest buffer, and the alignment of all: 4 KiB.
pub const BUFFER_BYTES_MIN: usize = PAGE_BYTES;

/// A handle on a reactor's buffers; all clones are the same pool.
#[derive(Clone)]
pub struct Pool {
    inner: Rc<Inner>,
}

struct Inner {
    mapping: Mapping,
    buddy: RefCell<Buddy>,
    /// Handles on the block that starts at each page.
    handles: Box<[Cell<u32>]>,
    reserve: Cell<usize>,
    misses: Cell<u64>,
}

impl Pool {
    /// A pool of at least `bytes`, rounded up to whole largest buffers. Only address space is
    /// taken; memory comes as buffers are first touched.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let chunks = bytes.div_ceil(BUFFER_BYTES_MAX).max(1);
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "pool too large");
        let pages = chunks.checked_mul(CHUNK_PAGES as usize).ok_or_else(too_large)?;
        if pages >= u32::MAX as usize {
            return Err(too_large());
        }
        let chunks = u32::try_from(chunks).map_err(|_| too_large())?;
        let inner = Inner {
            mapping: Mapping::reserve(pages * PAGE_BYTES)?,
            buddy: RefCell::new(Buddy::new(chunks)),
            handles: vec![Cell::new(0); pages].into_boxed_slice(),
            reserve: Cell::new(0),
            misses: Cell::new(0),
        };
        Ok(Self { inner: Rc::new(inner) })
    }

    /// A buffer of exactly `len` bytes (at most [`BUFFER_BYTES_MAX`]), unless that would cut into
    /// the reserve. Its contents are undefined but initialised.
    pub fn take(&self, len: usize) -> Option<Buffer> {
        self.take_leaving(self.inner.reserve.get(), len)
    }

    /// As [`take`](Self::take), but may use the reserve: for queues that must make progress
    /// when bulk transfers have taken the rest (admin queues, shallow queues).
    pub fn take_reserved(&self, len: usize) -> Option<Buffer> {
        self.take_order(order_of(len)?, len)
    }

    /// Takes a buffer of `len` bytes, or the largest that there is. The smallest may come from the
    /// reserve: those who have taken the rest may be waiting for the very bytes that are to be
    /// received.
    pub(crate) fn take_largest(&self, mut len: usize) -> Option<Buffer> {
        loop {
            if let Some(buffer) = self.take(len) {
                return Some(buffer);
            }
            if len <= RECEIVE_BYTES_MIN {
                return self.take_reserved(len);
            }
            len = (len / 4).max(RECEIVE_BYTES_MIN);
        }
    }

    /// Makes a receive buffer as long as what it received, and as small where memory is short: a
    /// crowd of small requests must not sit on all of it.
    pub(crate) fn fit(&self, buffer: &mut Buffer, len: usize) {
        buffer.set_len(len);
        if self.available() < self.capacity() / 2 {
            buffer.shrink_to_fit();
        }
    }

    /// As [`take`](Self::take), with a reserve of the caller's choice.
    pub fn take_leaving(&self, reserve: usize, len: usize) -> Option<Buffer> {
        let order = order_of(len)?;
        if self.available() < reserve.saturating_add(PAGE_BYTES << order) {
            self.miss();
            return None;
        }
        self.take_order(order, len)
    }

    /// Keeps the last `bytes` for [`take_reserved`](Self::take_reserved); `usize::MAX` keeps all.
    pub fn set_reserve(&self, bytes: usize) {
        self.inner.reserve.set(bytes);
    }

    /// Bytes that are free now, the reserve included. They may be fragmented.
    pub fn available(&self) -> usize {
        self.inner.buddy.borrow().free_pages() as usize * PAGE_BYTES
    }

    /// How often a buffer could not be taken for lack of memory.
    pub fn misses(&self) -> u64 {
        self.inner.misses.get()
    }

    fn miss(&self) {
        self.inner.misses.set(self.inner.misses.get().wrapping_add(1));
    }

    /// Bytes of the whole pool.
    pub fn capacity(&self) -> usize {
        self.inner.mapping.bytes()
    }

    /// The address of the pool's memory, to register it with a device. It
    /// stays there, [`capacity`](Self::capacity) bytes long, for as long as there is a handle on
    /// the pool or a buffer of it.
    pub fn address(&self) -> usize {
        self.inner.mapping.base().as_ptr().expose_provenance()
    }

    fn take_order(&self, order: usize, len: usize) -> Option<Buffer> {
        let Some(page) = self.inner.buddy.borrow_mut().take(order) else {
            self.miss();
            return None;
        };
        self.inner.handles[page as usize].set(1);
        Some(Buffer { pool: Rc::clone(&self.inner), page, extent: Extent::new(len, order) })
    }
}

/// The smallest order that holds `len` bytes.
fn order_of(len: usize) -> Option<usize> {
    let pages = len.max(1).div_ceil(PAGE_BYTES).checked_next_power_of_two()?;
    let order = pages.trailing_zeros() as usize;
    (order < ORDERS).then_some(order)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("capacity", &self.capacity())
            .field("available", &self.available())
            .field("reserve", &self.inner.reserve.get())
            .finish()
    }
}

/// A handle on bytes of a [`Pool`]; the block goes back with the last handle.
///
/// Two words long, so that it is passed in registers: a command's buffer is moved a dozen times.
pub struct Buffer {
    pool: Rc<Inner>,
    page: u32,
    extent: Extent,
}

/// The length of a buffer and the order of its block.
#[derive(Clone, Copy)]
struct Extent(u32);

/// Bits of an [`Extent`] for the length.
const LEN_BITS: u32 = 24;
const _: () = assert!(BUFFER_BYTES_MAX < 1 << LEN_BITS && ORDERS <= 1 << (32 - LEN_BITS));

impl Extent {
    #[allow(clippy::cast_possible_truncation, reason = "both are as small as asserted above")]
    fn new(len: usize, order: usize) -> Self {
        debug_assert!(len <= PAGE_BYTES << order && order < ORDERS);
        Self(len as u32 | (order as u32) << LEN_BITS)
    }

    fn len(self) -> usize {
        (self.0 & ((1 << LEN_BITS) - 1)) as usize
    }

    fn order(self) -> usize {
        (self.0 >> LEN_BITS) as usize
    }
}

impl Buffer {
    /// Another handle on the same bytes. While there are two, writing is not allowed.
    #[must_use]
    pub fn share(&self) -> Self {
        let handles = &self.pool.handles[self.page as usize];
        handles.set(handles.get().checked_add(1).expect("fewer than 2^32 handles"));
        Self { pool: Rc::clone(&self.pool), ..*self }
    }

    /// Whether another handle on these bytes exists.
    pub fn is_shared(&self) -> bool {
        self.pool.handles[self.page as usize].get() > 1
    }

    /// Its capacity in bytes.
    pub fn capacity(&self) -> usize {
        PAGE_BYTES << self.extent.order()
    }

    /// Makes the buffer `len` bytes long, within its capacity. Other handles keep their length.
    ///
    /// # Panics
    /// If `len` is larger than the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a buffer cannot be longer than its capacity");
        self.extent = Extent::new(len, self.extent.order());
    }

    /// Returns the memory beyond its length to the pool, in whole blocks; the bytes are not moved.
    /// Does nothing while the buffer is shared.
    pub fn shrink_to_fit(&mut self) {
        let Some(order) = order_of(self.len()) else { return };
        if self.is_shared() || order >= self.extent.order() {
            return;
        }
        self.pool.buddy.borrow_mut().shrink(self.page, order);
        self.extent = Extent::new(self.len(), order);
    }

    /// The bytes, to be written.
    ///
    /// # Panics
    /// If the buffer is shared: the owner of the other handle relies on its contents.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.is_shared(), "a shared buffer cannot be written");
        // SAFETY: the block lies inside the mapping, which the `Rc` keeps alive; its memory is
        // initialised (anonymous pages read as zeroes). This is the only handle, and it is
        // borrowed mutably, so nothing else in the program accesses the block. The kernel does so
        // only while an operation owns the handle.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.extent.len()) }
    }

    /// Copies the first bytes out, as many as there is room for, while a device may write them.
    pub fn load(&self, into: &mut [u8]) {
        let len = self.len_of(into.len());
        // SAFETY: the block lies inside the mapping and `len` bytes of it are this buffer's; `into`
        // is the caller's alone. This copy allows concurrent writes.
        unsafe { copy::load(self.pointer(), into.as_mut_ptr(), len) }
    }

    /// Copies bytes to the beginning, as many as there is room for, while a device may read them.
    ///
    /// # Panics
    /// If the buffer is shared: the owner of the other handle relies on its contents.
    pub fn store(&mut self, from: &[u8]) {
        assert!(!self.is_shared(), "a shared buffer cannot be written");
        // SAFETY: as in `load`; this is the only handle, so nobody else in the program writes.
        unsafe { copy::store(from.as_ptr(), self.pointer(), self.len_of(from.len())) }
    }

    fn len_of(&self, len: usize) -> usize {
        len.min(self.extent.len())
    }

    /// The address of the bytes, to name them to a device.
    pub fn address(&self) -> usize {
        self.pointer().expose_provenance()
    }

    /// The address of the bytes, for the kernel.
    pub(crate) fn pointer(&self) -> *mut u8 {
        // SAFETY: the allocator yields blocks inside the mapping, which has that many pages.
        unsafe { self.pool.mapping.base().as_ptr().add(self.page as usize * PAGE_BYTES) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`; writing needs the only handle, mutably borrowed or owned by
        // an operation, so while this borrow lives nobody writes.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.extent.len()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let handles = &self.pool.handles[self.page as usize];
        handles.set(handles.get() - 1);
        if handles.get() == 0 {
            self.pool.buddy.borrow_mut().give(self.page);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("page", &self.page)
            .field("len", &self.extent.len())
            .field("shared", &self.is_shared())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buffers_are_aligned_and_of_their_length() {
        let pool = Pool::new(1).unwrap();
        assert_eq!(pool.capacity(), BUFFER_BYTES_MAX);
        for len in [0, 1, 4096, 4097, 262_144, BUFFER_BYTES_MAX] {
            let buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.pointer().addr() % PAGE_BYTES, 0);
            assert!(buffer.capacity() >= len);
        }
        assert!(pool.take(BUFFER_BYTES_MAX + 1).is_none());
        assert!(pool.take(usize::MAX).is_none());
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    fn the_reserve_is_for_those_who_ask_for_it() {
        let pool = Pool::new(BUFFER_BYTES_MAX).unwrap();
        pool.set_reserve(BUFFER_BYTES_MAX / 2);
        let half = pool.take(BUFFER_BYTES_MAX / 2).unwrap();
        assert!(pool.take(1).is_none());
        let reserved = pool.take_reserved(BUFFER_BYTES_MAX / 2).unwrap();
        assert!(pool.take_reserved(1).is_none());
        drop(half);
        assert!(pool.take(1).is_none());
        drop(reserved);
        assert!(pool.take(1).is_some());
    }

    #[test]
    fn the_last_handle_returns_the_block() {
        let pool = Pool::new(1).unwrap();
        let mut first = pool.take(100).unwrap();
        first.fill(7);
        let second = first.share();
        assert!(first.is_shared());
        drop(first);
        assert_ne!(pool.available(), pool.capacity());
        assert!(second.iter().all(|byte| *byte == 7));
        assert!(!second.is_shared());
        drop(second);
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    fn what_a_buffer_does_not_need_can_go_back() {
        let pool = Pool::new(1).unwrap();
        let mut buffer = pool.take(262_144).unwrap();
        buffer[..5000].fill(9);
        buffer.set_len(5000);
        let other = buffer.share();
        buffer.shrink_to_fit();
        assert_eq!(buffer.capacity(), 262_144);
        drop(other);
        buffer.shrink_to_fit();
        assert_eq!(buffer.capacity(), 8192);
        assert_eq!(pool.available(), pool.capacity() - 8192);
        let mut rest = pool.take(131_072).unwrap();
        rest.fill(1);
        assert!(buffer.iter().all(|byte| *byte == 9));
        drop((buffer, rest));
        assert!(pool.take(BUFFER_BYTES_MAX).is_some());
    }

    #[test]
    #[should_panic(expected = "shared")]
    fn a_shared_buffer_is_not_written() {
        let pool = Pool::new(1).unwrap();
        let mut first = pool.take(100).unwrap();
        let _second = first.share();
        first.bytes_mut()[0] = 1;
    }

    #[test]
    fn a_buffer_outlives_its_pool_handle() {
        let mut buffer = Pool::new(1).unwrap().take(10).unwrap();
        buffer.fill(3);
        assert_eq!(&buffer[..], [3; 10]);
    }

    /// Compares slices, which takes a fraction of the time of bytes.
    fn is_all(bytes: &[u8], mark: u8) -> bool {
        bytes[0] == mark && bytes[1..] == bytes[..bytes.len() - 1]
    }

    proptest! {
        #[test]
        fn contents_stay_apart(
            steps in proptest::collection::vec((1..600_000usize, any::<u8>(), any::<bool>()), 1..60)
        ) {
            let pool = Pool::new(2 * BUFFER_BYTES_MAX).unwrap();
            let mut held: Vec<(Buffer, u8)> = Vec::new();
            for (len, mark, give) in steps {
                if give && !held.is_empty() {
                    let (buffer, mark) = held.swap_remove(len % held.len());
                    prop_assert!(is_all(&buffer, mark));
                } else if let Some(mut buffer) = pool.take(len) {
                    buffer.fill(mark);
                    held.push((buffer, mark));
                }
            }
            for (buffer, mark) in held.drain(..) {
                prop_assert!(is_all(&buffer, mark));
            }
            prop_assert_eq!(pool.available(), pool.capacity());
        }
    }
}
