//! The random numbers of a simulation.

/// xoshiro256** by Blackman and Vigna, its state filled by SplitMix64 from one number, as its
/// authors advise. The same seed always gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The sequence that belongs to `seed`.
    pub fn new(mut seed: u64) -> Self {
        let state = std::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = seed;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        });
        Self { state }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `end`, or 0 if there is none. (The bias is `end` in 2^64.)
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // No number is drawn for what cannot happen: switching off one kind of fault leaves the
        // others unchanged.
        if probability <= 0.0 {
            return false;
        }
        let unit = self.below(1 << 53);
        #[allow(clippy::cast_precision_loss)] // 53 bits fit
        let unit = unit as f64 / (1u64 << 53) as f64;
        unit < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of SplitMix64 with seed 1234567, as given by its authors' code.
    #[test]
    fn the_state_is_filled_by_splitmix() {
        let random = Random::new(1_234_567);
        assert_eq!(
            random.state,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431
            ]
        );
    }

    /// The first numbers of xoshiro256** from the state 1, 2, 3, 4.
    #[test]
    fn the_sequence_is_that_of_xoshiro() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let numbers: Vec<_> = (0..4).map(|_| random.next_u64()).collect();
        assert_eq!(numbers, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn chances_are_about_right() {
        let mut random = Random::new(3);
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2300..2700).contains(&hits), "{hits}");
        assert!(!random.chance(0.0));
        assert!(random.chance(1.0));
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert_eq!(random.below(0), 0);
    }
}
