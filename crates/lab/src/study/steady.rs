//! Detects steady state by fio's two criteria.

use std::collections::VecDeque;

use super::plan::Measure;

/// Fewest windows for a decision.
pub const WINDOWS_MIN: usize = 4;

/// Windows that are considered while waiting for steady state: 4 s of them.
const WINDOWS_AWAITED: usize = 8;

/// The variation of IOPS over some windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// Slope of the regression line (least squares), in percent of the mean per second.
    pub slope_percent_per_s: f64,
    /// Largest distance of a window from the mean, in percent of it.
    pub deviation_percent: f64,
}

impl Steadiness {
    /// Of windows of equal length.
    #[must_use]
    pub fn of(windows: &[f64], window_s: f64) -> Option<Self> {
        let count = windows.len() as f64;
        let mean = windows.iter().sum::<f64>() / count;
        if windows.len() < WINDOWS_MIN || mean <= 0.0 {
            return None;
        }
        let middle = (count - 1.0) / 2.0;
        let mut both = 0.0;
        let mut squares = 0.0;
        let mut deviation: f64 = 0.0;
        for (index, window) in windows.iter().enumerate() {
            let x = index as f64 - middle;
            both += x * (window - mean);
            squares += x * x;
            deviation = deviation.max((window - mean).abs());
        }
        Some(Self {
            slope_percent_per_s: 100.0 * both / squares / window_s / mean,
            deviation_percent: 100.0 * deviation / mean,
        })
    }

    /// Whether both criteria are met.
    #[must_use]
    pub fn is_steady(&self, measure: &Measure) -> bool {
        self.slope_percent_per_s.abs() <= measure.slope_percent_per_s
            && self.deviation_percent <= measure.deviation_percent
    }
}

/// Waits for steady state, window by window.
#[derive(Clone, Debug, Default)]
pub struct SteadyStateDetector {
    windows: VecDeque<f64>,
}

impl SteadyStateDetector {
    /// Adds a window; whether the last windows are steady.
    pub fn take(&mut self, iops: f64, window_s: f64, measure: &Measure) -> bool {
        if self.windows.len() == WINDOWS_AWAITED {
            self.windows.pop_front();
        }
        self.windows.push_back(iops);
        self.windows.len() == WINDOWS_AWAITED
            && Steadiness::of(self.windows.make_contiguous(), window_s)
                .is_some_and(|steadiness| steadiness.is_steady(measure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_and_deviation_match_fios_definition() {
        let flat = Steadiness::of(&[100.0; 10], 0.5).expect("enough windows");
        assert_eq!((flat.slope_percent_per_s, flat.deviation_percent), (0.0, 0.0));
        // 10 more every half second about a mean of 120: 20 a second are 16.7 %.
        let rising = Steadiness::of(&[100.0, 110.0, 120.0, 130.0, 140.0], 0.5).expect("enough");
        assert!((rising.slope_percent_per_s - 100.0 * 20.0 / 120.0).abs() < 1e-9);
        assert!((rising.deviation_percent - 100.0 * 20.0 / 120.0).abs() < 1e-9);
        let dip = Steadiness::of(&[100.0, 100.0, 40.0, 100.0, 100.0], 0.5).expect("enough");
        assert!(dip.slope_percent_per_s.abs() < 1e-9, "a dip in the middle has no slope");
        assert!(dip.deviation_percent > 50.0);
        assert_eq!(Steadiness::of(&[1.0, 2.0, 3.0], 0.5), None);
        assert_eq!(Steadiness::of(&[0.0; 9], 0.5), None);
    }

    #[test]
    fn a_ramp_is_not_steady() {
        let measure = Measure::default();
        let mut awaiting = SteadyStateDetector::default();
        let mut ramp = (0..12).map(|n| 10_000.0 * f64::from(n));
        assert!(!ramp.any(|iops| awaiting.take(iops, 0.5, &measure)));
        let waited = (0..20).position(|_| awaiting.take(120_000.0, 0.5, &measure));
        assert!(waited.is_some_and(|windows| (4..=8).contains(&windows)), "{waited:?}");
    }
}
