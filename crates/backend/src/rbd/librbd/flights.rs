//! Operations in flight, with their memory.
//!
//! # Why no completion is lost, and no memory is used after it was freed
//!
//! Each operation has a slot. The callback stores the result in the slot's place, sets the slot's
//! bit in `ready` (release), then `news` (release), and wakes the reactor. The reactor's thread
//! clears `news` (acquire), then takes the bits (acquire): a bit that it does not see was set
//! before a `news` that is still to be seen. A slot is used again only after its bit was taken, so
//! that its place has one writer at a time.
//!
//! A slot owns what librbd has pointers to: the data, the expected data of a compare-and-write, and
//! the callback's argument. They are touched only when the slot's bit has been taken. If the slots
//! are dropped earlier, those that are in flight are forgotten with their memory: a [`Buffer`]
//! keeps its pool's mapping alive.

use super::Image;
use super::library::{Handle, WRITE_FUA, ZEROES_THICK};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::{fmt, ptr};
use weft_reactor::{Buffer, Waker};

/// An operation on an image, in bytes.
#[derive(Debug)]
pub(in crate::rbd) enum Io {
    Read { offset: u64, into: Buffer },
    Write { offset: u64, from: Buffer, durable: bool },
    Flush,
    WriteZeroes { offset: u64, len: usize, thick: bool, durable: bool },
    Discard { offset: u64, len: u64 },
    CompareAndWrite { offset: u64, expected: Buffer, new: Buffer, durable: bool },
}

/// The results that librbd's threads have stored.
#[derive(Debug)]
pub(in crate::rbd) struct Completions {
    results: Box<[AtomicI64]>,
    /// A bit for each slot whose result is there.
    ready: Box<[AtomicU64]>,
    /// Set after any bit of any handle on the same reactor.
    news: Arc<AtomicBool>,
    waker: Waker,
}

/// The operations of one handle.
pub(in crate::rbd) struct Flights {
    image: Arc<Image>,
    completions: Arc<Completions>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The bits of a word of `ready` that were taken and not handed out, and which word it is.
    taken: (usize, u64),
}

struct Slot {
    argument: Arc<Argument>,
    data: Option<Buffer>,
    expected: Option<Buffer>,
    busy: bool,
}

/// What a callback gets.
struct Argument {
    completions: Arc<Completions>,
    slot: usize,
    /// Where a compare-and-write says what differs, which nobody asks for.
    mismatch: AtomicU64,
    get: unsafe extern "C" fn(Handle) -> isize,
    release: unsafe extern "C" fn(Handle),
}

/// An operation that has ended.
#[derive(Debug)]
pub(in crate::rbd) struct FlightResult {
    pub(in crate::rbd) slot: usize,
    /// 0 or a number of bytes, or a negative error number.
    pub(in crate::rbd) result: i64,
    /// What was read into or written.
    pub(in crate::rbd) data: Option<Buffer>,
}

impl Completions {
    pub(in crate::rbd) fn new(slots: usize, news: Arc<AtomicBool>, waker: Waker) -> Arc<Self> {
        let results = (0..slots).map(|_| AtomicI64::new(0)).collect();
        let ready = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { results, ready, news, waker })
    }

    /// Whether there are results that were not taken.
    pub(in crate::rbd) fn any(&self) -> bool {
        self.ready.iter().any(|word| word.load(Relaxed) != 0)
    }

    fn complete(&self, slot: usize, result: i64) {
        if let (Some(place), Some(word)) = (self.results.get(slot), self.ready.get(slot / 64)) {
            place.store(result, Relaxed);
            word.fetch_or(1 << (slot % 64), Release);
        }
        self.news.store(true, Release);
        self.waker.wake();
    }
}

/// Called by librbd when an operation has ended.
unsafe extern "C" fn landed(completion: Handle, argument: *mut c_void) {
    // SAFETY: the argument that `Flights::start` gave, which is there until this slot's bit is set.
    let argument = unsafe { &*argument.cast::<Argument>().cast_const() };
    // SAFETY: the completion has ended, and this callback is the only one that has it.
    let result = unsafe { (argument.get)(completion) };
    // SAFETY: as above; it is not used any more.
    unsafe { (argument.release)(completion) };
    // Once the bit is set the argument may have another use.
    let completions = Arc::clone(&argument.completions);
    completions.complete(argument.slot, result as i64);
}

impl Flights {
    pub(in crate::rbd) fn new(image: Arc<Image>, completions: Arc<Completions>) -> Self {
        let functions = image.functions();
        let slot = |slot| Slot {
            argument: Arc::new(Argument {
                completions: Arc::clone(&completions),
                slot,
                mismatch: AtomicU64::new(0),
                get: functions.rbd_aio_get_return_value,
                release: functions.rbd_aio_release,
            }),
            data: None,
            expected: None,
            busy: false,
        };
        let count = completions.results.len();
        let slots = (0..count).map(slot).collect();
        Self { image, completions, slots, free: (0..count).rev().collect(), taken: (0, 0) }
    }

    /// Whether an operation can be started.
    pub(in crate::rbd) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Starts an operation while there is room, and returns its slot, or a negative error number.
    pub(in crate::rbd) fn start(&mut self, io: Io) -> Result<usize, i64> {
        let no_memory = i64::from(-rustix::io::Errno::NOMEM.raw_os_error());
        let index = self.free.pop().ok_or(no_memory)?;
        let Some(slot) = self.slots.get_mut(index) else { return Err(no_memory) };
        let functions = self.image.functions();
        let argument = Arc::as_ptr(&slot.argument);
        let mut completion = ptr::null_mut();
        // SAFETY: `landed` takes a pointer to an `Argument`, which the slot keeps until the
        // operation has ended; the function stores a handle.
        let made = unsafe {
            let argument = argument.cast_mut().cast();
            (functions.rbd_aio_create_completion)(argument, landed, &raw mut completion)
        };
        let started = if made < 0 { made } else { slot.submit(&self.image, io, completion) };
        if started < 0 {
            if made >= 0 {
                // SAFETY: the operation was not started, so that nobody else has the completion.
                unsafe { (functions.rbd_aio_release)(completion) };
            }
            (slot.data, slot.expected) = (None, None);
            self.free.push(index);
            return Err(started.into());
        }
        slot.busy = true;
        Ok(index)
    }

    /// The next operation that has ended. Its slot is free.
    pub(in crate::rbd) fn next_landed(&mut self) -> Option<FlightResult> {
        let Self { completions, slots, taken: (word, bits), .. } = self;
        if *bits == 0 {
            let mut words = completions.ready.iter().map(|word| word.swap(0, AcqRel));
            let at = words.position(|found| {
                *bits = found;
                found != 0
            })?;
            *word = at;
        }
        let index = *word * 64 + bits.trailing_zeros() as usize;
        *bits &= *bits - 1;
        let (slot, result) = (slots.get_mut(index)?, completions.results.get(index)?);
        let (result, data) = (result.load(Relaxed), slot.data.take());
        if result < 0 {
            self.image.note(result);
        }
        (slot.expected, slot.busy) = (None, false);
        self.free.push(index);
        Some(FlightResult { slot: index, result, data })
    }

    /// Whether any operation is in flight.
    pub(in crate::rbd) fn any(&self) -> bool {
        self.free.len() < self.slots.len()
    }
}

fn operation_flags(durable: bool) -> c_int {
    if durable { WRITE_FUA } else { 0 }
}

impl Slot {
    /// Starts an operation whose memory the slot then owns.
    fn submit(&mut self, image: &Image, io: Io, completion: Handle) -> c_int {
        let (rbd, functions) = (image.handle(), image.functions());
        // SAFETY, for all of these: the image is open as long as there is a handle of it, and the
        // completion was made for this operation. The data is memory of this slot: it stays where
        // it is, as long as it is, and untouched until the operation has ended (see above).
        match io {
            Io::Read { offset, into } => {
                let into = self.data.insert(into).bytes_mut();
                let (at, len) = (into.as_mut_ptr().cast(), into.len());
                // SAFETY: see above; this is the only handle of the memory.
                unsafe { (functions.rbd_aio_read)(rbd, offset, len, at, completion) }
            }
            Io::Write { offset, from, durable } => {
                let from = &**self.data.insert(from);
                let flags = operation_flags(durable);
                let (at, len) = (from.as_ptr().cast(), from.len());
                // SAFETY: see above.
                unsafe { (functions.rbd_aio_write2)(rbd, offset, len, at, completion, flags) }
            }
            // SAFETY: see above.
            Io::Flush => unsafe { (functions.rbd_aio_flush)(rbd, completion) },
            Io::WriteZeroes { offset, len, thick, durable } => {
                let zeroes = if thick { ZEROES_THICK } else { 0 };
                let flags = operation_flags(durable);
                let write_zeroes = functions.rbd_aio_write_zeroes;
                // SAFETY: see above.
                unsafe { write_zeroes(rbd, offset, len, completion, zeroes, flags) }
            }
            Io::Discard { offset, len } => {
                // SAFETY: see above.
                unsafe { (functions.rbd_aio_discard)(rbd, offset, len, completion) }
            }
            Io::CompareAndWrite { offset, expected, new, durable } => {
                let (expected, new) = (self.expected.insert(expected), self.data.insert(new));
                let (expected, len) = (expected.as_ptr().cast(), new.len().min(expected.len()));
                let (new, mismatch) = (new.as_ptr().cast(), self.argument.mismatch.as_ptr());
                let flags = operation_flags(durable);
                // SAFETY: see above; both are at least that long.
                unsafe {
                    (functions.rbd_aio_compare_and_write)(
                        rbd, offset, len, expected, new, completion, mismatch, flags,
                    )
                }
            }
        }
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        // What was completed meanwhile can be freed.
        while self.next_landed().is_some() {}
        for slot in self.slots.drain(..).filter(|slot| slot.busy) {
            std::mem::forget(slot);
        }
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.slots.len() - self.free.len();
        f.debug_struct("Flights").field("in_flight", &in_flight).finish_non_exhaustive()
    }
}
