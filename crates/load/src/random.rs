//! Random numbers that depend on the seed alone.
//!
//! xoshiro256++ of Blackman and Vigna, seeded through SplitMix64 as they recommend: about 1 ns for
//! each number and a period that no run exhausts. Every lane has a seed of its own, so jumps are
//! not needed.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// One step of SplitMix64: a well-mixed 64-bit value for each value of a counter.
#[must_use]
pub const fn split_mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// A generator for a seed and the number of the lane it is for.
    #[must_use]
    pub fn new(seed: u64, lane: u64) -> Self {
        let mut counter = seed ^ split_mix(lane);
        let state = core::array::from_fn(|_| {
            let word = split_mix(counter);
            counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word
        });
        Self { state }
    }

    /// The next 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let (c, d) = (c ^ a, d ^ b);
        let (b, a) = (b ^ c, a ^ d);
        self.state = [a, b, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// A number below `bound`, uniformly distributed to within 2⁻⁶⁴ of the bound.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.word()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Puts these into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(last);
            items.swap(last, other);
        }
    }

    /// A uniformly distributed number of [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        // A double holds 53 bits exactly.
        (self.word() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Exponentially distributed with mean 1: the time between events of a Poisson process.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // xoshiro256++ from the state 1, 2, 3, 4: computed by hand from its definition.
        let mut random = Random { state: [1, 2, 3, 4] };
        assert_eq!(random.word(), 41_943_041);
        assert_eq!(random.word(), 58_720_359);
        // SplitMix64 of seed 0 begins with this number in every implementation.
        assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn a_seed_fixes_the_sequence_and_lanes_differ() {
        let draw = |seed, lane| {
            let mut random = Random::new(seed, lane);
            [random.word(), random.word(), random.word()]
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(8, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut random = Random::new(1, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(random.below(10)).expect("below 10")] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(random.below(1), 0);
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn exponential_times_have_mean_and_deviation_one() {
        let mut random = Random::new(2, 0);
        let n = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = random.exponential();
            assert!(x >= 0.0 && x.is_finite());
            sum += x;
            squares += x * x;
        }
        let mean = sum / f64::from(n);
        let variance = squares / f64::from(n) - mean * mean;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((variance - 1.0).abs() < 0.06, "{variance}");
    }
}
