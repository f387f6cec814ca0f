//! Evaluates the runs.

use super::fio::Measurement;
use std::fmt;

/// IOPS may differ by this share.
const IOPS_WITHIN: f64 = 0.05;

/// p99 may differ by this share, or by as much as fio differs from itself.
const P99_WITHIN: f64 = 0.10;

/// A timer may be late by this time, and a request without a delay take as long.
const LATE_US: f64 = 25.0;

/// A run of weft between two of fio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedPair {
    pub(crate) ours: Measurement,
    pub(crate) fio: Measurement,
    pub(crate) again: Measurement,
}

impl fmt::Display for ComparedPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, fio, again } = self;
        write!(
            f,
            "weft {:.0} IOPS, p99 {:.0} µs; fio {:.0} IOPS, p99 {:.0} µs, and {:.0} IOPS, p99 \
             {:.0} µs",
            ours.iops, ours.p99_us, fio.iops, fio.p99_us, again.iops, again.p99_us
        )
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    what: String,
    found: String,
    bar: String,
    holds: bool,
}

impl Verdict {
    pub(crate) fn at_least(what: &str, found: f64, least: f64) -> Self {
        Self {
            what: what.to_owned(),
            found: format!("{found:.0}"),
            bar: format!("at least {least:.0}"),
            holds: found >= least,
        }
    }

    /// Whether a delay was measured.
    pub(crate) fn delay(delay_us: f64, measured: &Measurement) -> Self {
        let most = delay_us * 1.05 + LATE_US;
        Self {
            what: format!("p50 with a delay of {delay_us} µs, µs"),
            found: format!("{:.1}", measured.p50_us),
            bar: format!("{delay_us} to {most:.0}, none faster"),
            // A histogram's buckets are as wide as a thousandth of their values.
            holds: measured.least_us >= delay_us * 0.998
                && measured.p50_us >= delay_us * 0.998
                && measured.p50_us <= most,
        }
    }

    pub(crate) const fn holds(&self) -> bool {
        self.holds
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds { "ok  " } else { "MISS" };
        write!(f, "{mark} {}: {} ({})", self.what, self.found, self.bar)
    }
}

/// The results of the pairs of one depth.
pub(crate) fn pairs(depth: u32, pairs: &[ComparedPair]) -> Vec<Verdict> {
    let of = |what: &dyn Fn(&Measurement) -> f64| {
        let ratios = |upper: &dyn Fn(&ComparedPair) -> Measurement| {
            let ratio = |pair: &ComparedPair| what(&upper(pair)) / what(&pair.fio);
            pairs.iter().map(ratio).collect::<Vec<f64>>()
        };
        (ratios(&|pair| pair.ours), ratios(&|pair| pair.again))
    };
    let (iops, iops_fio) = of(&|measured| measured.iops);
    let (p99, p99_fio) = of(&|measured| measured.p99_us);
    let p99_within = spread(&p99_fio).max(P99_WITHIN);
    vec![
        within(&format!("IOPS at depth {depth}"), &iops, &iops_fio, IOPS_WITHIN),
        within(&format!("p99 at depth {depth}"), &p99, &p99_fio, p99_within),
    ]
}

fn within(what: &str, ratios: &[f64], fio: &[f64], share: f64) -> Verdict {
    let middle = median(ratios);
    let (least, most) = ends(ratios);
    Verdict {
        what: format!("{what}, weft / fio, median of {} pairs", ratios.len()),
        found: format!("{middle:.3} ({least:.3} to {most:.3})"),
        bar: format!(
            "1 ± {share:.3}; fio / fio {:.3}, four of five within ± {:.3}",
            median(fio),
            spread(fio)
        ),
        holds: (middle - 1.0).abs() <= share,
    }
}

/// The largest distance from 1 of four of five ratios, so that an outlier does not widen it.
fn spread(ratios: &[f64]) -> f64 {
    let mut distances: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
    distances.sort_by(f64::total_cmp);
    let at = (distances.len() * 4).div_ceil(5).saturating_sub(1);
    distances.get(at).copied().unwrap_or(0.0)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = values.get(half).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = half.checked_sub(1).and_then(|at| values.get(at)).copied();
    lower.map_or(f64::NAN, |lower| (lower + upper) / 2.0)
}

fn ends(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(iops: f64, p99_us: f64) -> Measurement {
        Measurement { iops, p99_us, ..Measurement::default() }
    }

    fn verdicts(ours: (f64, f64), again: (f64, f64)) -> Vec<bool> {
        let pair = ComparedPair {
            ours: of(ours.0, ours.1),
            fio: of(1000.0, 100.0),
            again: of(again.0, again.1),
        };
        pairs(1, &[pair; 10]).iter().map(Verdict::holds).collect()
    }

    #[test]
    fn close_values_agree_and_distant_ones_do_not() {
        assert_eq!(verdicts((1049.0, 109.0), (1000.0, 100.0)), [true, true]);
        assert_eq!(verdicts((1051.0, 111.0), (1000.0, 100.0)), [false, false]);
        assert_eq!(verdicts((949.0, 89.0), (1000.0, 100.0)), [false, false]);
        assert_eq!(verdicts((949.0, 120.0), (900.0, 125.0)), [false, true], "fio's own spread");
        assert!(pairs(1, &[]).iter().all(|verdict| !verdict.holds()), "no pairs, no agreement");
    }

    #[test]
    fn an_outlier_does_not_widen_the_spread() {
        let mut ratios = vec![1.01; 9];
        ratios.push(3.0);
        assert!((spread(&ratios) - 0.01).abs() < 1e-9);
        ratios[0] = 2.0;
        assert!((spread(&ratios) - 0.01).abs() < 1e-9);
        ratios[1] = 1.5;
        assert!((spread(&ratios) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_delay_is_measured_or_missed() {
        let found = |least_us, p50_us| {
            let measured = Measurement { least_us, p50_us, ..Measurement::default() };
            Verdict::delay(200.0, &measured).holds()
        };
        assert!(found(200.1, 203.0));
        assert!(!found(150.0, 203.0), "one was faster than the delay");
        assert!(!found(200.1, 300.0));
    }
}
