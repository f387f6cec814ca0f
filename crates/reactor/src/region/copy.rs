//! Copies between private memory and memory that other threads may be writing.
//!
//! Such a copy may yield any mixture of old and new bytes; the version check around it decides
//! whether it counts. In Rust a plain copy of memory that is being written is undefined behaviour,
//! even if it is checked afterwards. So the copy is inline assembly on x86-64, of which the
//! compiler assumes only that it reads and writes memory: `rep movsb`, as fast as any copy within
//! the cache, or loads and stores for short copies, where the start of `rep movsb` would dominate.
//! On Arm it is pairs of 16 byte registers. On other machines it is done in relaxed atomic words.

#[cfg(target_arch = "aarch64")]
pub(crate) use by_pairs::{fill, load, prefetch, store};
#[cfg(target_arch = "x86_64")]
pub(crate) use by_string_instruction::{fill, load, prefetch, store};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use by_words::{fill, load, prefetch, store};

#[cfg(target_arch = "x86_64")]
mod by_string_instruction {
    use std::arch::asm;
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

    const LINE_BYTES: usize = 64;
    /// Up to this many bytes are copied a cache line at a time.
    const LINES_BYTES_MAX: usize = 1024;

    /// Begins to fetch `len` bytes into the cache, its second level: what several requests wait for
    /// does not fit into the first. A prefetch is no read: any address is allowed.
    #[inline]
    pub(crate) fn prefetch(from: *const u8, len: usize) {
        for at in (0..len).step_by(LINE_BYTES) {
            // SAFETY: a prefetch has no effect but on time, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(at).cast()) };
        }
    }

    /// Copies `len` bytes out of shared memory.
    ///
    /// # Safety
    /// `from` must be valid for reads (others may write it meanwhile) and `to` for writes by the
    /// caller alone.
    pub(crate) unsafe fn load(from: *const u8, to: *mut u8, len: usize) {
        if (1..=LINES_BYTES_MAX).contains(&len) && len.is_multiple_of(LINE_BYTES) {
            // SAFETY: the caller guarantees both ranges; there are whole lines, and some.
            return unsafe { load_lines(from, to, len) };
        }
        // SAFETY: the caller guarantees both ranges. The direction flag is clear between
        // statements, so the copy runs upwards; only the three registers change.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// As [`load`], for a multiple of a line's bytes that is not zero.
    ///
    /// # Safety
    /// As for [`load`].
    unsafe fn load_lines(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller guarantees both ranges, and a line of `len` is done in each round;
        // these registers change, and flags.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {left}, 64",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) len => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack)
            );
        }
    }

    /// Copies `len` bytes into shared memory.
    ///
    /// # Safety
    /// `from` must be valid for reads and not be written meanwhile, `to` valid for writes (others
    /// may read it meanwhile but not write it).
    pub(crate) unsafe fn store(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's guarantees include those of `load`.
        unsafe { load(from, to, len) }
    }

    /// Sets `len` bytes of shared memory to zero.
    ///
    /// # Safety
    /// `to` must be valid for writes; others may read it meanwhile but not write it.
    pub(crate) unsafe fn fill(to: *mut u8, len: usize) {
        // SAFETY: as in `load`.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") len => _,
                inout("rdi") to => _,
                in("al") 0u8,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod by_pairs {
    use super::by_words;
    use std::arch::asm;

    const LINE_BYTES: usize = 64;

    /// As its namesake on x86-64.
    #[inline]
    pub(crate) fn prefetch(from: *const u8, len: usize) {
        for at in (0..len).step_by(LINE_BYTES) {
            // SAFETY: a prefetch has no effect but on time, whatever the address.
            unsafe {
                asm!(
                    "prfm pldl2keep, [{line}]",
                    line = in(reg) from.wrapping_add(at),
                    options(readonly, nostack, preserves_flags)
                );
            }
        }
    }

    /// As its namesake on x86-64.
    ///
    /// # Safety
    /// As its namesake on x86-64.
    pub(crate) unsafe fn load(from: *const u8, to: *mut u8, len: usize) {
        let lines = len - len % LINE_BYTES;
        // SAFETY: the caller guarantees both ranges, of which these are parts.
        unsafe {
            copy_lines(from, to, lines);
            by_words::load(from.add(lines), to.add(lines), len - lines);
        }
    }

    /// As its namesake on x86-64.
    ///
    /// # Safety
    /// As its namesake on x86-64.
    pub(crate) unsafe fn store(from: *const u8, to: *mut u8, len: usize) {
        let lines = len - len % LINE_BYTES;
        // SAFETY: as in `load`.
        unsafe {
            copy_lines(from, to, lines);
            by_words::store(from.add(lines), to.add(lines), len - lines);
        }
    }

    /// Copies a multiple of a line's bytes.
    ///
    /// # Safety
    /// As for [`load`] or [`store`].
    unsafe fn copy_lines(from: *const u8, to: *mut u8, len: usize) {
        if len == 0 {
            return;
        }
        // SAFETY: the caller guarantees both ranges, and a line of `len` is done in each round;
        // these registers change, and flags.
        unsafe {
            asm!(
                "2:",
                "ldp {a:q}, {b:q}, [{from}], #32",
                "ldp {c:q}, {d:q}, [{from}], #32",
                "subs {left}, {left}, #64",
                "stp {a:q}, {b:q}, [{to}], #32",
                "stp {c:q}, {d:q}, [{to}], #32",
                "b.ne 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) len => _,
                a = out(vreg) _,
                b = out(vreg) _,
                c = out(vreg) _,
                d = out(vreg) _,
                options(nostack)
            );
        }
    }

    /// As its namesake on x86-64.
    ///
    /// # Safety
    /// As its namesake on x86-64.
    pub(crate) unsafe fn fill(to: *mut u8, len: usize) {
        let lines = len - len % LINE_BYTES;
        // SAFETY: the caller guarantees the range, and a line of `lines` is done in each round;
        // these registers change, and flags.
        unsafe {
            if lines > 0 {
                asm!(
                    "2:",
                    "stp xzr, xzr, [{to}], #16",
                    "stp xzr, xzr, [{to}], #16",
                    "stp xzr, xzr, [{to}], #16",
                    "stp xzr, xzr, [{to}], #16",
                    "subs {left}, {left}, #64",
                    "b.ne 2b",
                    to = inout(reg) to => _,
                    left = inout(reg) lines => _,
                    options(nostack)
                );
            }
            by_words::fill(to.add(lines), len - lines);
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), test))]
mod by_words {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    const WORD: usize = size_of::<u64>();

    /// As its namesake on x86-64; here it does nothing.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn prefetch(_from: *const u8, _len: usize) {}

    /// How many bytes lie before the first aligned word, and how many words follow.
    fn split(address: usize, len: usize) -> (usize, usize) {
        let head = address.wrapping_neg() % WORD;
        let head = head.min(len);
        (head, (len - head) / WORD)
    }

    /// As its namesake on x86-64.
    ///
    /// # Safety
    /// As its namesake on x86-64.
    pub(crate) unsafe fn load(from: *const u8, to: *mut u8, len: usize) {
        let (head, words) = split(from.addr(), len);
        let tail = head + words * WORD;
        // SAFETY: all offsets are below `len`, within which the caller guarantees both ranges;
        // the words begin where `from` is aligned for them. Shared memory is only accessed
        // atomically, here and by its writers.
        unsafe {
            for at in (0..head).chain(tail..len) {
                let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
                to.add(at).write(byte);
            }
            for at in (head..tail).step_by(WORD) {
                let word = from.add(at).cast_mut().cast::<u64>();
                let word = AtomicU64::from_ptr(word).load(Ordering::Relaxed);
                to.add(at).cast::<u64>().write_unaligned(word);
            }
        }
    }

    /// As its namesake on x86-64.
    ///
    /// # Safety
    /// As its namesake on x86-64.
    pub(crate) unsafe fn store(from: *const u8, to: *mut u8, len: usize) {
        let (head, words) = split(to.addr(), len);
        let tail = head + words * WORD;
        // SAFETY: as in `load`, with the roles changed.
        unsafe {
            for at in (0..head).chain(tail..len) {
                AtomicU8::from_ptr(to.add(at)).store(from.add(at).read(), Ordering::Relaxed);
            }
            for at in (head..tail).step_by(WORD) {
                let word = from.add(at).cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(to.add(at).cast()).store(word, Ordering::Relaxed);
            }
        }
    }

    /// As its namesake on x86-64.
    ///
    /// # Safety
    /// As its namesake on x86-64.
    pub(crate) unsafe fn fill(to: *mut u8, len: usize) {
        let (head, words) = split(to.addr(), len);
        let tail = head + words * WORD;
        // SAFETY: as in `load`, with the roles changed.
        unsafe {
            for at in (0..head).chain(tail..len) {
                AtomicU8::from_ptr(to.add(at)).store(0, Ordering::Relaxed);
            }
            for at in (head..tail).step_by(WORD) {
                AtomicU64::from_ptr(to.add(at).cast()).store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    type Copy = unsafe fn(*const u8, *mut u8, usize);
    type Fill = unsafe fn(*mut u8, usize);

    /// At every alignment and length around the word size, and lengths around whole lines, nothing
    /// but the range changes.
    fn check(load: Copy, store: Copy, fill: Fill) {
        let lines = [63, 64, 65, 128, 500, 512, 1023, 1024, 1025, 1088];
        for start in 0..9 {
            for len in (0..40).chain(lines) {
                let source: Vec<u8> = (1..=251).cycle().take(1200).collect();
                for copy in [load, store] {
                    let mut target = [0xee; 1200];
                    // SAFETY: both ranges lie inside their vectors.
                    unsafe { copy(source[start..].as_ptr(), target[3..].as_mut_ptr(), len) };
                    assert_eq!(target[3..3 + len], source[start..start + len]);
                    assert!(target[..3].iter().chain(&target[3 + len..]).all(|it| *it == 0xee));
                }
                let mut target = source.clone();
                // SAFETY: the range lies inside the vector.
                unsafe { fill(target[start..].as_mut_ptr(), len) };
                assert!(target[start..start + len].iter().all(|it| *it == 0));
                assert_eq!(target[..start], source[..start]);
                assert_eq!(target[start + len..], source[start + len..]);
            }
        }
    }

    #[test]
    fn all_ways_copy_alike() {
        check(super::load, super::store, super::fill);
        check(super::by_words::load, super::by_words::store, super::by_words::fill);
    }
}
