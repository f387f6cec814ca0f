//! A set of small numbers that finds its lowest one in a few steps, whatever its size.

/// Numbers below a bound.
#[derive(Debug)]
pub(super) struct BitSet {
    /// The first level has a bit for each number, every further one a bit for each word of the
    /// level below that is not zero. The last is a single word.
    levels: Box<[Box<[u64]>]>,
}

impl BitSet {
    pub(super) fn below(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words].into_boxed_slice());
            if words == 1 {
                return Self { levels: levels.into_boxed_slice() };
            }
            words = words.div_ceil(64);
        }
    }

    pub(super) fn insert(&mut self, mut number: usize) {
        for level in &mut self.levels {
            let word = &mut level[number / 64];
            let before = *word;
            *word |= 1 << (number % 64);
            if before != 0 {
                return;
            }
            number /= 64;
        }
    }

    pub(super) fn remove(&mut self, mut number: usize) {
        for level in &mut self.levels {
            let word = &mut level[number / 64];
            *word &= !(1 << (number % 64));
            if *word != 0 {
                return;
            }
            number /= 64;
        }
    }

    pub(super) fn lowest(&self) -> Option<usize> {
        self.levels.iter().rev().try_fold(0, |word, level| {
            let bits = level[word];
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_lowest_is_found(
            bound in prop_oneof![
                Just(1), Just(64), Just(65), Just(4096), Just(4097), 1..300_000_usize
            ],
            steps in proptest::collection::vec((any::<bool>(), any::<usize>()), 1..200),
        ) {
            let (mut bitset, mut model) = (BitSet::below(bound), BTreeSet::new());
            for (add, pick) in steps {
                if add {
                    bitset.insert(pick % bound);
                    model.insert(pick % bound);
                } else if let Some(number) = model.iter().nth(pick % model.len().max(1)).copied() {
                    bitset.remove(number);
                    model.remove(&number);
                }
                prop_assert_eq!(bitset.lowest(), model.first().copied());
            }
        }
    }
}
