//! Rank tests: whether one set of values tends to be smaller than another, whatever their
//! distribution.

/// As many arrangements as are looked at one by one; beyond that the normal approximation is good.
const ARRANGEMENTS_MAX: u64 = 20_000;

/// The upper tail of the normal distribution.
pub(super) fn normal_tail(z: f64) -> f64 {
    0.5 * libm::erfc(z / std::f64::consts::SQRT_2)
}

/// The normal's quantile that leaves `tail` above it, by bisection: this is not on any hot path.
pub(super) fn normal_quantile(tail: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 10.0);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if normal_tail(middle) > tail { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// In how many ways `some` can be taken from `all`; saturates.
pub(super) fn arrangements(some: usize, all: usize) -> u64 {
    let mut ways = 1u64;
    for taken in 0..some.min(all - some.min(all)) {
        let Some(more) = ways.checked_mul((all - taken) as u64) else { return u64::MAX };
        ways = more / (taken as u64 + 1);
    }
    ways
}

/// Values with their midranks, and the sum of t³ − t over ties.
fn midranks(values: &[f64]) -> (Vec<f64>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0.0; values.len()];
    let mut ties = 0.0;
    let mut start = 0;
    while start < order.len() {
        let value = values[order[start]];
        let same = order[start..].iter().take_while(|index| values[**index] == value).count();
        let rank = start as f64 + (same as f64 + 1.0) / 2.0;
        order[start..start + same].iter().for_each(|index| ranks[*index] = rank);
        ties += (same as f64).powi(3) - same as f64;
        start += same;
    }
    (ranks, ties)
}

/// The rank statistic of a sample beside another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranked {
    /// Probability of a rank sum as small as this one, or smaller, if there is no difference.
    pub(super) p_smaller: f64,
    /// Mann and Whitney's U of the first sample, less its expectation.
    pub(super) excess: f64,
    /// The variance of U if there is no difference.
    pub(super) variance: f64,
}

/// Whether `values` tend to be smaller than `others` (Mann, Whitney and Wilcoxon): exact over all
/// arrangements where those are few, ties included.
pub(super) fn rank(values: &[f64], others: &[f64]) -> Ranked {
    let (mine, all) = (values.len(), values.len() + others.len());
    if values.is_empty() || others.is_empty() {
        return Ranked { p_smaller: 1.0, excess: 0.0, variance: 0.0 };
    }
    let joined: Vec<f64> = values.iter().chain(others).copied().collect();
    let (ranks, ties) = midranks(&joined);
    let sum: f64 = ranks[..mine].iter().sum();
    let (m, n) = (mine as f64, others.len() as f64);
    let total = m + n;
    let expected = m * (total + 1.0) / 2.0;
    let spread = total + 1.0 - ties / (total * (total - 1.0));
    let variance = m * n / 12.0 * spread;
    let excess = sum - expected;
    let p_smaller = if arrangements(mine, all) <= ARRANGEMENTS_MAX {
        exact(&ranks, mine, sum)
    } else if variance > 0.0 {
        // Half a rank for the steps of the statistic.
        normal_tail(-(excess + 0.5) / variance.sqrt())
    } else {
        1.0
    };
    Ranked { p_smaller, excess, variance }
}

/// The share of arrangements whose rank sum is at most `sum`.
fn exact(ranks: &[f64], some: usize, sum: f64) -> f64 {
    let (mut small, mut all) = (0u64, 0u64);
    let mut taken: Vec<usize> = (0..some).collect();
    loop {
        let this: f64 = taken.iter().map(|index| ranks[*index]).sum();
        all += 1;
        small += u64::from(this <= sum + 1e-9);
        // The next combination in the order of the alphabet.
        let last = ranks.len() - some;
        let Some(place) = (0..some).rev().find(|place| taken[*place] < last + place) else { break };
        taken[place] += 1;
        for later in place + 1..some {
            taken[later] = taken[later - 1] + 1;
        }
    }
    small as f64 / all as f64
}

/// Values with how often each occurred, in ascending order.
pub(super) type Counted = Vec<(f64, f64)>;

/// Whether values of one histogram tend to be larger than those of another: the same test on
/// counts, as if only `independent` of each had been independent of each other.
pub(super) fn rank_counts(values: &Counted, others: &Counted, independent: (f64, f64)) -> f64 {
    let total = |counted: &Counted| counted.iter().map(|(_, times)| times).sum::<f64>();
    let (m, n) = (total(values), total(others));
    let (m_counts, n_counts) = (independent.0.min(m), independent.1.min(n));
    if m_counts < 1.0 || n_counts < 1.0 {
        return 1.0;
    }
    // Pairs in which the value is the larger one; half of those in which they are the same.
    let mut larger = 0.0;
    let mut below = 0.0;
    let mut next = others.iter().peekable();
    for (value, times) in values {
        while let Some((_, passed)) = next.next_if(|(other, _)| other < value) {
            below += passed;
        }
        let same = next.peek().filter(|(other, _)| other == value).map_or(0.0, |(_, same)| *same);
        larger += times * (below + same / 2.0);
    }
    let share = larger / (m * n);
    let deviation = ((m_counts + n_counts + 1.0) / (12.0 * m_counts * n_counts)).sqrt();
    normal_tail((share - 0.5) / deviation)
}

/// Holm's adjustment: each p as it counts among all of them.
pub(super) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|one, other| p[*one].total_cmp(&p[*other]));
    let mut adjusted = vec![1.0; p.len()];
    let mut most: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        most = most.max((p[index] * (p.len() - place) as f64).min(1.0));
        adjusted[index] = most;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_probabilities_are_those_of_the_tables() {
        // Three below three: one of 20 arrangements; four below four: one of 70.
        assert!((rank(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).p_smaller - 1.0 / 20.0).abs() < 1e-12);
        let four = rank(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]);
        assert!((four.p_smaller - 1.0 / 70.0).abs() < 1e-12);
        // U = 4 of 16: tables give 12 of 70 arrangements.
        let some = rank(&[1.0, 3.0, 4.0, 6.0], &[2.0, 5.0, 7.0, 8.0]);
        assert!((some.p_smaller - 12.0 / 70.0).abs() < 1e-12, "{}", some.p_smaller);
        assert_eq!(rank(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]).p_smaller, 1.0);
    }

    #[test]
    fn ties_take_the_middle_of_their_ranks() {
        assert_eq!(midranks(&[2.0, 1.0, 2.0, 3.0]), (vec![2.5, 1.0, 2.5, 4.0], 6.0));
        assert_eq!(rank(&[5.0, 5.0], &[5.0, 5.0]).p_smaller, 1.0);
    }

    #[test]
    fn the_normal_approximation_meets_the_exact_test() {
        let low: Vec<f64> = (0..8).map(|n| f64::from(n) * 1.3).collect();
        let high: Vec<f64> = (0..8).map(|n| 2.05 + f64::from(n) * 1.2).collect();
        let exact_p = rank(&low, &high).p_smaller;
        let Ranked { excess, variance, .. } = rank(&low, &high);
        let normal = normal_tail(-(excess + 0.5) / variance.sqrt());
        assert!(arrangements(8, 16) <= ARRANGEMENTS_MAX);
        assert!((exact_p - normal).abs() < 0.01, "{exact_p} {normal}");
    }

    #[test]
    fn tails_and_quantiles_of_the_normal() {
        assert!((normal_tail(1.6449) - 0.05).abs() < 1e-5);
        assert!((normal_tail(6.0) / 9.866e-10 - 1.0).abs() < 1e-3);
        assert!((normal_quantile(0.025) - 1.95996).abs() < 1e-4);
    }

    #[test]
    fn histograms_are_held_against_each_other() {
        let of = |shift: f64| -> Counted {
            (0..100).map(|n| (100.0 + f64::from(n) + shift, 1000.0)).collect()
        };
        assert!(rank_counts(&of(20.0), &of(0.0), (1e3, 1e3)) < 1e-6);
        assert!(rank_counts(&of(-20.0), &of(0.0), (1e3, 1e3)) > 0.999);
        assert!((rank_counts(&of(0.0), &of(0.0), (1e3, 1e3)) - 0.5).abs() < 1e-9);
        // What is independent decides, not what was counted.
        let few = rank_counts(&of(5.0), &of(0.0), (20.0, 20.0));
        let many = rank_counts(&of(5.0), &of(0.0), (5e4, 5e4));
        assert!(few > 0.2 && many < 1e-9, "{few} {many}");
        assert_eq!(rank_counts(&Counted::new(), &of(0.0), (1e3, 1e3)), 1.0);
    }

    #[test]
    fn holm_counts_how_many_were_asked() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12);
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn arrangements_are_counted() {
        assert_eq!((arrangements(3, 6), arrangements(8, 16)), (20, 12_870));
        assert_eq!(arrangements(0, 5), 1);
        assert_eq!(arrangements(100, 200), u64::MAX);
    }
}
