//! A buffer that another thread may read or fill while its owner does other work.
//!
//! Buffers stay on their thread, but another thread may access the bytes of a buffer that is lent
//! to it, as an adapter accesses registered memory. A loan has two ends, which are made once and
//! used for one buffer after another, so that lending costs neither an allocation nor a lock.
//!
//! # Why no byte is read while it is written
//!
//! The variable `state` says which end may access the buffer. Only the lender changes it from
//! `AT_HOME` to `LENT` and back, only the borrower from `LENT` to `IN_USE` and back. The borrower
//! copies while it is `IN_USE`; the lender takes its buffer back by changing it from `LENT` to
//! `AT_HOME`, which fails while it is `IN_USE`. Each step is a release that the other end's next
//! step acquires, so that each end sees what the other one has written.

use super::Buffer;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};

const AT_HOME: u8 = 0;
const LENT: u8 = 1;
const IN_USE: u8 = 2;

/// How often a waiting lender reads the state before it yields: a copy may be 4 MiB long, and the
/// borrower's thread may have lost its processor.
const PATIENCE: u32 = 1000;

#[derive(Debug, Default)]
struct Shared {
    state: AtomicU8,
    writable: AtomicBool,
    pointer: AtomicPtr<u8>,
    len: AtomicUsize,
}

/// Both ends of a loan.
#[must_use]
pub fn loan() -> (Lender, Borrower) {
    let shared = Arc::new(Shared::default());
    (Lender { shared: Arc::clone(&shared), buffer: None }, Borrower { shared })
}

/// The end of the thread that owns the buffers.
pub struct Lender {
    shared: Arc<Shared>,
    buffer: Option<Buffer>,
}

/// The end of the other thread. It has access to a buffer only while one is lent.
pub struct Borrower {
    shared: Arc<Shared>,
}

impl Lender {
    /// Lends a buffer to be read.
    ///
    /// # Panics
    /// If there is one lent already.
    pub fn lend(&mut self, buffer: Buffer) {
        self.put(buffer, false);
    }

    /// Lends a buffer to be filled.
    ///
    /// # Panics
    /// If there is one lent already, or if this one is shared: the owner of the other handle
    /// relies on its contents.
    pub fn lend_to_fill(&mut self, buffer: Buffer) {
        assert!(!buffer.is_shared(), "a shared buffer cannot be written");
        self.put(buffer, true);
    }

    fn put(&mut self, buffer: Buffer, writable: bool) {
        assert!(self.buffer.is_none(), "one buffer is lent at a time");
        self.shared.pointer.store(buffer.pointer(), Ordering::Relaxed);
        self.shared.len.store(buffer.len(), Ordering::Relaxed);
        self.shared.writable.store(writable, Ordering::Relaxed);
        self.buffer = Some(buffer);
        self.shared.state.store(LENT, Ordering::Release);
    }

    /// Takes the buffer back, after a copy that is being made. From now on the borrower has no
    /// access to it.
    pub fn take_back(&mut self) -> Option<Buffer> {
        self.buffer.as_ref()?;
        let mut looks = 0;
        while !self.shared.change(LENT, AT_HOME) {
            looks += 1;
            if looks < PATIENCE {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        self.buffer.take()
    }
}

impl Borrower {
    /// Copies the first bytes of the buffer, as many as `into` holds. `None`: there is none, or it
    /// is shorter.
    pub fn read(&mut self, into: &mut [u8]) -> Option<()> {
        self.with(into.len(), false, |pointer| {
            // SAFETY: while the loan is `IN_USE` its lender holds the buffer and does not give it
            // back, so that these bytes stay mapped, and nobody writes to them: the lender keeps
            // a handle, and writing needs the only one. There are as many as `into` holds, which
            // is this thread's own and no part of them.
            unsafe { std::ptr::copy_nonoverlapping(pointer, into.as_mut_ptr(), into.len()) }
        })
    }

    /// Puts bytes at the beginning of the buffer. `None`: there is none to be filled, or it is
    /// shorter.
    pub fn write(&mut self, from: &[u8]) -> Option<()> {
        self.with(from.len(), true, |pointer| {
            // SAFETY: as in `read`; the buffer was lent to be filled, and the lender's is the only
            // handle, which it does not use meanwhile: nobody else reads or writes these bytes.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), pointer, from.len()) }
        })
    }

    fn with(&mut self, len: usize, write: bool, copy: impl FnOnce(*mut u8)) -> Option<()> {
        if !self.shared.change(LENT, IN_USE) {
            return None;
        }
        let fits = len <= self.shared.len.load(Ordering::Relaxed);
        let allowed = fits && (!write || self.shared.writable.load(Ordering::Relaxed));
        if allowed {
            copy(self.shared.pointer.load(Ordering::Relaxed));
        }
        self.shared.state.store(LENT, Ordering::Release);
        allowed.then_some(())
    }
}

impl Shared {
    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Borrower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrower").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn only_what_is_lent_is_reached_and_only_as_it_was_lent() {
        let pool = Pool::new(1).unwrap();
        let (mut lender, mut borrower) = loan();
        assert_eq!((borrower.read(&mut [0; 4]), borrower.write(&[1])), (None, None));
        let mut buffer = pool.take(8).unwrap();
        buffer.copy_from_slice(b"abcdefgh");
        lender.lend(buffer);
        let mut got = [0; 4];
        assert!(borrower.read(&mut got).is_some());
        assert_eq!(&got, b"abcd");
        assert_eq!(borrower.read(&mut [0; 9]), None, "it is shorter");
        assert_eq!(borrower.write(b"x"), None, "it was lent to be read");
        let buffer = lender.take_back().unwrap();
        assert_eq!(&buffer[..], b"abcdefgh");
        assert_eq!(borrower.read(&mut got), None, "it was taken back");
        lender.lend_to_fill(buffer);
        assert!(borrower.write(b"XY").is_some());
        assert_eq!(borrower.write(&[0; 9]), None);
        assert_eq!(&lender.take_back().unwrap()[..], b"XYcdefgh");
        assert!(lender.take_back().is_none());
    }

    #[test]
    fn a_lender_that_goes_leaves_nothing_behind() {
        let pool = Pool::new(1).unwrap();
        let (mut lender, mut borrower) = loan();
        lender.lend(pool.take(8).unwrap());
        drop(lender);
        assert_eq!(borrower.read(&mut [0; 1]), None);
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    #[should_panic(expected = "shared")]
    fn a_shared_buffer_is_not_lent_to_be_filled() {
        let pool = Pool::new(1).unwrap();
        let buffer = pool.take(8).unwrap();
        let _other = buffer.share();
        loan().0.lend_to_fill(buffer);
    }

    /// The borrower writes whole buffers of one number each; whenever the lender takes it back,
    /// it holds one number only.
    #[test]
    fn a_buffer_that_is_taken_back_is_not_half_written() {
        let pool = Pool::new(1).unwrap();
        let (mut lender, mut borrower) = loan();
        let over = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut from, mut written) = (vec![0u8; 16_384], 0);
                for number in (0..=u8::MAX).cycle() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    from.fill(number);
                    written += u32::from(borrower.write(&from).is_some());
                }
                written
            });
            let mut buffer = pool.take(16_384).unwrap();
            buffer.fill(0);
            let mut seen = std::collections::BTreeSet::new();
            while seen.len() < 100 {
                lender.lend_to_fill(buffer);
                std::thread::yield_now();
                buffer = lender.take_back().unwrap();
                assert!(buffer.iter().all(|byte| *byte == buffer[0]), "half written");
                seen.insert(buffer[0]);
            }
            over.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert!(written >= 99);
    }
}
