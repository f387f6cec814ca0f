//! fio's random map: every place once, in an order that cannot be told from a random one.
//!
//! fio remembers in a bitmap where it has been. A permutation needs no memory: the n-th place of a
//! pass is computed from n. It is one of the smallest power of two that holds all places; what
//! falls beyond them is put through again, which is less than twice on average.

use crate::random::Random;

/// Rounds of mixing.
const ROUNDS: usize = 3;

/// The places 0 to n - 1 in a random order, again and again in another one.
#[derive(Clone, Debug)]
pub struct Permutation {
    places: u64,
    next: u64,
    bits: u32,
    /// What each round adds and multiplies by; all are steps that can be undone, so that no two
    /// places become one.
    keys: [(u64, u64); ROUNDS],
    random: Random,
}

impl Permutation {
    /// Of so many places, which are one at least.
    #[must_use]
    pub fn new(places: u64, random: Random) -> Self {
        let places = places.max(1);
        let bits = (u64::BITS - (places - 1).leading_zeros()).max(1);
        let mut permutation = Self { places, next: 0, bits, keys: [(0, 1); ROUNDS], random };
        permutation.restart();
        permutation
    }

    /// Begins a pass, in another order.
    pub fn restart(&mut self) {
        self.next = 0;
        let random = &mut self.random;
        self.keys = std::array::from_fn(|_| (random.word(), random.word() | 1));
    }

    /// The next place.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        if self.next >= self.places {
            self.restart();
        }
        let place = self.place(self.next);
        self.next += 1;
        place
    }

    #[inline]
    fn place(&self, index: u64) -> u64 {
        let mask = u64::MAX >> (u64::BITS - self.bits);
        let shift = self.bits.div_ceil(2);
        let mut value = index;
        loop {
            for (add, multiply) in self.keys {
                value = value.wrapping_add(add) & mask;
                value ^= value >> shift;
                value = value.wrapping_mul(multiply) & mask;
            }
            value ^= value >> shift;
            if value < self.places {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(permutation: &mut Permutation, places: u64) -> Vec<u64> {
        (0..places).map(|_| permutation.draw()).collect()
    }

    #[test]
    fn every_place_comes_once_in_each_pass_and_passes_differ() {
        for places in [1, 2, 3, 5, 64, 1_000, 4_097] {
            let mut permutation = Permutation::new(places, Random::new(1, 0));
            let (first, second) = (pass(&mut permutation, places), pass(&mut permutation, places));
            for order in [&first, &second] {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..places), "{places}");
            }
            assert!(places < 64 || first != second, "{places}");
        }
    }

    /// Half of all neighbours in a random order go up, and a third of the distance of all places
    /// lies between them.
    #[test]
    fn neighbours_have_nothing_to_do_with_each_other() {
        let places = 100_000;
        for seed in 0..20 {
            let mut permutation = Permutation::new(places, Random::new(seed, 0));
            let order = pass(&mut permutation, places);
            let up = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!((49_000..51_000).contains(&up), "{seed}: {up}");
            let distance: u64 = order.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
            let mean = distance as f64 / places as f64 / places as f64;
            assert!((mean - 1.0 / 3.0).abs() < 0.01, "{seed}: {mean}");
            // No part of the region is left for later.
            let low = order[..10_000].iter().filter(|place| **place < 10_000).count();
            assert!((850..1_150).contains(&low), "{seed}: {low}");
        }
    }
}
