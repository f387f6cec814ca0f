//! Rank tests: whether one set of values tends to be smaller than another, whatever their
//! distribution.

/// So many values are arranged in every way, whose number is below 2⁶¹; beyond that the normal
/// approximation is good, and errs to the side of too large a p.
const EXACT_MAX: usize = 62;

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

/// In how many ways `some` can be taken from `all`.
pub(super) fn ways(some: usize, all: usize) -> f64 {
    (0..some.min(all - some.min(all)))
        .fold(1.0, |ways, taken| ways * (all - taken) as f64 / (taken + 1) as f64)
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

/// Whether `values` tend to be smaller than `others` (Mann, Whitney and Wilcoxon): exact over all
/// arrangements, ties included, unless there are very many values.
/// The probability of a rank sum as small as this one, or smaller, if there is no difference.
pub(super) fn rank(values: &[f64], others: &[f64]) -> f64 {
    let (mine, all) = (values.len(), values.len() + others.len());
    if values.is_empty() || others.is_empty() {
        return 1.0;
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
    let least = m * (m + 1.0) / 2.0;
    if all <= EXACT_MAX {
        if ties > 0.0 {
            tied(&ranks, mine, sum)
        } else {
            untied(mine, others.len(), doubled(sum - least) / 2)
        }
    } else if variance > 0.0 {
        // Half a rank for the steps of the statistic.
        normal_tail(-(excess + 0.5) / variance.sqrt())
    } else {
        1.0
    }
}

/// The share of arrangements whose U is at most `most`, without ties. The coefficients of
/// Gauss's binomial count the arrangements of each U; it is multiplied up factor by factor.
fn untied(some: usize, others: usize, most: usize) -> f64 {
    // The distribution is symmetrical: the shorter tail is counted.
    let longer = (some * others).saturating_sub(most + 1);
    if most >= some * others {
        return 1.0;
    }
    if longer < most {
        return 1.0 - untied(some, others, longer);
    }
    let mut counts = vec![0i64; most + 1];
    counts[0] = 1;
    for factor in 1..=some {
        let (above, below) = (others + factor, factor);
        for u in (above..=most).rev() {
            counts[u] -= counts[u - above];
        }
        for u in below..=most {
            counts[u] += counts[u - below];
        }
    }
    let small: i64 = counts.iter().sum();
    small as f64 / ways(some, some + others)
}

/// The share of arrangements whose rank sum is at most `sum`: the arrangements of each sum are
/// counted rank by rank. Ranks are doubled, since those of ties may be halves.
fn tied(ranks: &[f64], some: usize, sum: f64) -> f64 {
    let most = doubled(sum);
    let width = most + 1;
    let mut counts = vec![0.0; (some + 1) * width];
    counts[0] = 1.0;
    for rank in ranks.iter().map(|rank| doubled(*rank)) {
        for taken in (1..=some).rev() {
            for sum in (rank..=most).rev() {
                counts[taken * width + sum] += counts[(taken - 1) * width + sum - rank];
            }
        }
    }
    counts[some * width..].iter().sum::<f64>() / ways(some, ranks.len())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank or their sum")]
fn doubled(rank: f64) -> usize {
    (2.0 * rank).round() as usize
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
        assert!((rank(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]) - 1.0 / 20.0).abs() < 1e-12);
        let four = rank(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]);
        assert!((four - 1.0 / 70.0).abs() < 1e-12);
        // U = 4 of 16: tables give 12 of 70 arrangements.
        let some = rank(&[1.0, 3.0, 4.0, 6.0], &[2.0, 5.0, 7.0, 8.0]);
        assert!((some - 12.0 / 70.0).abs() < 1e-12, "{}", some);
        assert_eq!(rank(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]), 1.0);
    }

    #[test]
    fn ties_take_the_middle_of_their_ranks() {
        assert_eq!(midranks(&[2.0, 1.0, 2.0, 3.0]), (vec![2.5, 1.0, 2.5, 4.0], 6.0));
        assert_eq!(rank(&[5.0, 5.0], &[5.0, 5.0]), 1.0);
    }

    #[test]
    fn the_normal_approximation_meets_the_exact_test() {
        let low: Vec<f64> = (0..8).map(|n| f64::from(n) * 1.3).collect();
        let high: Vec<f64> = (0..8).map(|n| 2.05 + f64::from(n) * 1.2).collect();
        let exact = rank(&low, &high);
        // 64 pairs, of which U counts those in which the value is the larger one.
        let larger = |low: &f64| high.iter().filter(|high| low > high).count();
        let u = low.iter().map(larger).sum::<usize>() as f64;
        let normal = normal_tail(-(u - 32.0 + 0.5) / (64.0f64 * 17.0 / 12.0).sqrt());
        assert!((exact - normal).abs() < 0.01, "{exact} {normal}");
        // At the greatest number that is arranged in every way its p is a little larger.
        let many: Vec<f64> = (0..31).map(f64::from).collect();
        let above: Vec<f64> = many.iter().map(|value| value + 8.1).collect();
        let exact = rank(&many, &above);
        let u = (0..31).map(|low| (0..31).filter(|high| low > high + 8).count()).sum::<usize>();
        let half = 31.0 * 31.0 / 2.0;
        let normal = normal_tail(-(u as f64 - half + 0.5) / (half * 63.0 / 6.0).sqrt());
        assert!((exact..1.3 * exact).contains(&normal), "{exact} {normal}");
    }

    #[test]
    fn ties_are_counted_as_every_other_arrangement() {
        // Of the 20 arrangements of 1, 2, 2, 3, 3, 4 six have a midrank sum of at most 8.5:
        // 1 2 2 (1.0 + 2.5 + 2.5) and, with 3 at 4.5, four of 1 2 3 (8.0).
        let found = rank(&[1.0, 2.0, 3.0], &[2.0, 3.0, 4.0]);
        assert!((found - 5.0 / 20.0).abs() < 1e-12, "{found}");
        // Without ties both ways of counting agree.
        let ranks: Vec<f64> = (1..=14).map(f64::from).collect();
        for sum in [28usize, 33, 40] {
            let (one, other) = (tied(&ranks, 7, sum as f64), untied(7, 7, sum - 28));
            assert!((one - other).abs() < 1e-12, "{sum}: {one} {other}");
        }
    }

    #[test]
    fn tails_and_quantiles_of_the_normal() {
        assert!((normal_tail(1.6449) - 0.05).abs() < 1e-5);
        assert!((normal_tail(6.0) / 9.866e-10 - 1.0).abs() < 1e-3);
        assert!((normal_quantile(0.025) - 1.95996).abs() < 1e-4);
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
        assert_eq!((ways(3, 6), ways(8, 16), ways(0, 5)), (20.0, 12_870.0, 1.0));
    }
}
