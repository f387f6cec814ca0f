//! How long requests are: fio's `bs`, `bsrange` and `bssplit`.

use crate::random::Random;

/// The lengths of the requests of one direction, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All are of one length.
    Fixed(u32),
    /// Multiples of the least, up to the most; each as likely as the other.
    Range(u32, u32),
    /// Lengths, and of a hundred requests how many have each. What is missing to a hundred is the
    /// last one's.
    Split(Vec<(u32, u32)>),
}

impl Sizes {
    /// The shortest.
    #[must_use]
    pub fn min(&self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::Range(bytes, _) => *bytes,
            Self::Split(parts) => parts.iter().map(|(bytes, _)| *bytes).min().unwrap_or(0),
        }
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::Range(_, bytes) => *bytes,
            Self::Split(parts) => parts.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
        }
    }

    /// All of them.
    pub fn lengths(&self) -> Vec<u32> {
        match self {
            Self::Fixed(bytes) => vec![*bytes],
            Self::Range(min, max) => vec![*min, *max],
            Self::Split(parts) => parts.iter().map(|(bytes, _)| *bytes).collect(),
        }
    }

    /// The longest that is not longer than `room`.
    #[must_use]
    pub fn fitting(&self, room: u64) -> u64 {
        let unit = u64::from(self.min()).max(1);
        match self {
            Self::Fixed(_) | Self::Range(..) => room - room % unit,
            Self::Split(parts) => {
                let lengths = parts.iter().map(|(bytes, _)| u64::from(*bytes));
                lengths.filter(|bytes| *bytes <= room).max().unwrap_or(unit)
            }
        }
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(bytes) => f64::from(*bytes),
            Self::Range(min, max) => f64::midpoint(f64::from(*min), f64::from(*max)),
            Self::Split(parts) => {
                let mut left = 100;
                let mut mean = 0.0;
                for (index, (bytes, percent)) in parts.iter().enumerate() {
                    let percent = if index + 1 == parts.len() { left } else { *percent };
                    mean += f64::from(*bytes) * f64::from(percent) / 100.0;
                    left = left.saturating_sub(percent);
                }
                mean
            }
        }
    }

    /// The next request's.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range(min, max) => {
                let bytes = u64::from(*min) + random.below(u64::from(*max));
                let whole = bytes - bytes % u64::from((*min).max(1));
                u32::try_from(whole).unwrap_or(*max).min(*max)
            }
            Self::Split(parts) => {
                let at = random.below(100);
                let mut sum = 0;
                let found = parts.iter().find(|(_, percent)| {
                    sum += u64::from(*percent);
                    at < sum
                });
                found.or(parts.last()).map_or(0, |(bytes, _)| *bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn shares(sizes: &Sizes) -> BTreeMap<u32, f64> {
        let mut random = Random::new(5, 0);
        let mut counts = BTreeMap::new();
        for _ in 0..1_000_000 {
            *counts.entry(sizes.draw(&mut random)).or_insert(0.0) += 1e-6;
        }
        counts
    }

    #[test]
    fn lengths_come_as_often_as_they_should() {
        let split = Sizes::Split(vec![(4096, 60), (512, 10), (65_536, 20)]);
        for (sizes, expected) in [
            (Sizes::Fixed(4096), vec![(4096, 1.0)]),
            (Sizes::Range(1024, 4096), [1024, 2048, 3072, 4096].map(|b| (b, 0.25)).to_vec()),
            // As in fio: what is beyond the last whole multiple falls to the longest.
            (Sizes::Range(4096, 10_240), vec![(4096, 0.4), (8192, 0.4), (10_240, 0.2)]),
            // What is missing to a hundred is the last one's.
            (split, vec![(512, 0.1), (4096, 0.6), (65_536, 0.3)]),
        ] {
            let found = shares(&sizes);
            assert!(found.keys().copied().eq(expected.iter().map(|(bytes, _)| *bytes)));
            let distance: f64 =
                expected.iter().map(|(bytes, share)| (found[bytes] - share).abs()).sum();
            assert!(distance / 2.0 < 0.002, "{sizes:?}: {found:?}");
            assert_eq!(sizes.min(), expected[0].0);
            assert_eq!(Some(sizes.max()), expected.last().map(|(bytes, _)| *bytes));
        }
    }

    #[test]
    fn the_mean_is_that_of_the_requests() {
        for sizes in [
            Sizes::Range(1024, 4096),
            Sizes::Split(vec![(4096, 60), (512, 10), (65_536, 20)]),
            Sizes::Fixed(8192),
        ] {
            let mean: f64 = shares(&sizes).iter().map(|(b, share)| f64::from(*b) * share).sum();
            assert!((mean / sizes.mean() - 1.0).abs() < 0.01, "{sizes:?}: {mean}");
        }
    }
}
