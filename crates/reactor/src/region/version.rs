//! The version of a block: odd while a writer changes the block.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{hint, thread};

/// How often a busy block's version is read before the thread yields: its writer may have lost its
/// CPU.
const SPINS: u32 = 200;

/// Runs `copy` until the block did not change meanwhile.
pub(crate) fn read(version: &AtomicU32, mut copy: impl FnMut()) {
    let mut patience = SpinThenYield::new();
    loop {
        let before = version.load(Ordering::Acquire);
        if before & 1 == 0 {
            copy();
            // The copy's reads come before this read of the version.
            fence(Ordering::Acquire);
            if version.load(Ordering::Relaxed) == before {
                return;
            }
        }
        patience.wait();
    }
}

/// Makes a block's version odd; returns the one before.
pub(crate) fn lock(version: &AtomicU32) -> u32 {
    let mut patience = SpinThenYield::new();
    loop {
        let before = version.load(Ordering::Relaxed);
        if before & 1 == 0
            && version
                .compare_exchange_weak(before, before | 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            // The odd version comes before the writes that it announces.
            fence(Ordering::Release);
            return before;
        }
        patience.wait();
    }
}

/// Makes it even again.
pub(crate) fn unlock(version: &AtomicU32, even: u32) {
    version.store(even, Ordering::Release);
}

struct SpinThenYield(u32);

impl SpinThenYield {
    fn new() -> Self {
        Self(0)
    }

    fn wait(&mut self) {
        if self.0 < SPINS {
            self.0 += 1;
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
