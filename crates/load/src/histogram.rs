//! Histograms of latency.

mod record;

pub use record::{LatencyRecord, LatencyRecordError};

use hdrhistogram::Histogram;

use serde::{Deserialize, Serialize};

use crate::limits::{LATENCY_NS_MAX, SAMPLES_BEYOND};

/// Latencies in an HDR histogram (three significant digits, 1 ns to an hour), with exact sum,
/// minimum and maximum.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "LatencyRecord", try_from = "LatencyRecord")]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl From<Latency> for LatencyRecord {
    fn from(latency: Latency) -> Self {
        Self::of(&latency)
    }
}

impl TryFrom<LatencyRecord> for Latency {
    type Error = LatencyRecordError;

    fn try_from(record: LatencyRecord) -> Result<Self, LatencyRecordError> {
        record.latency()
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .unwrap_or_else(|error| unreachable!("the bounds are constants: {error}"));
        Self { histogram, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
        self.sum_ns += u128::from(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Records the same latency several times.
    pub fn record_times(&mut self, latency_ns: u64, times: u64) {
        if times > 0 {
            self.histogram.saturating_record_n(latency_ns, times);
            self.sum_ns += u128::from(latency_ns) * u128::from(times);
            self.min_ns = self.min_ns.min(latency_ns);
            self.max_ns = self.max_ns.max(latency_ns);
        }
    }

    /// Adds all values of another histogram. An empty one costs nothing: each job has two
    /// histograms of 256 KiB, and one of them is empty unless the job both reads and writes.
    pub fn add(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        if self.histogram.add(&other.histogram).is_err() {
            unreachable!("all have the same bounds");
        }
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        if self.count() == 0 {
            return;
        }
        self.histogram.reset();
        (self.sum_ns, self.min_ns, self.max_ns) = (0, u64::MAX, 0);
    }

    /// How many values were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The minimum; 0 if there is none.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min_ns }
    }

    /// The maximum.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The arithmetic mean, exact.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// The standard deviation, to the histogram's precision.
    #[must_use]
    pub fn stddev_ns(&self) -> f64 {
        if self.count() < 2 { 0.0 } else { self.histogram.stdev() }
    }

    /// A percentile (0 to 100), or none if fewer than ten samples lie beyond it: such a number
    /// would depend on a few outliers.
    #[must_use]
    pub fn percentile_ns(&self, percentile: f64) -> Option<u64> {
        let beyond = self.count() as f64 * (1.0 - percentile / 100.0);
        // 10 samples minus a rounding error still count as 10.
        if beyond < SAMPLES_BEYOND - 1e-6 {
            return None;
        }
        let value = self.histogram.value_at_quantile(percentile / 100.0);
        Some(value.clamp(self.min_ns(), self.max_ns))
    }

    /// The number of values above `low_ns` and up to `high_ns`, to the histogram's precision.
    #[must_use]
    pub fn count_between(&self, low_ns: u64, high_ns: u64) -> u64 {
        if self.count() == 0 || high_ns <= low_ns {
            return 0;
        }
        self.histogram.count_between(low_ns.saturating_add(1), high_ns)
    }

    /// The histogram, and the exact sum beside it.
    pub(crate) fn parts(&self) -> (&Histogram<u64>, u128) {
        (&self.histogram, self.sum_ns)
    }

    /// The reverse of [`Latency::parts`]; none if the histogram has other bounds.
    pub(crate) fn from_parts(
        histogram: &Histogram<u64>,
        sum_ns: u128,
        min_ns: u64,
        max_ns: u64,
    ) -> Option<Self> {
        let mut latency = Self::new();
        latency.histogram.add(histogram).ok()?;
        (latency.sum_ns, latency.min_ns, latency.max_ns) = (sum_ns, min_ns, max_ns);
        Some(latency)
    }

    /// Every recorded value and its count, in ascending order.
    pub fn raw(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        values.into_iter().for_each(|value| latency.record(value));
        latency
    }

    #[test]
    fn an_empty_one_has_no_percentiles() {
        let latency = Latency::new();
        assert_eq!((latency.count(), latency.min_ns(), latency.max_ns()), (0, 0, 0));
        assert_eq!((latency.mean_ns(), latency.stddev_ns()), (0.0, 0.0));
        assert_eq!(latency.percentile_ns(50.0), None);
        assert_eq!(latency.count_between(0, u64::MAX), 0);
    }

    #[test]
    fn sum_minimum_and_maximum_are_exact() {
        let latency = of([1_000_003, 2_000_001, 123_456_789]);
        assert_eq!((latency.min_ns(), latency.max_ns()), (1_000_003, 123_456_789));
        assert!((latency.mean_ns() - 126_456_793.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn percentiles_are_those_of_the_samples_to_three_digits() {
        let latency = of((1..=100_000).map(|n| n * 100));
        for (percentile, exact) in
            [(1.0, 100_000.0), (50.0, 5e6), (90.0, 9e6), (99.0, 9.9e6), (99.99, 9.999e6)]
        {
            let value = latency.percentile_ns(percentile).expect("resolved") as f64;
            assert!((value / exact - 1.0).abs() < 1e-3, "{percentile}: {value}");
        }
        assert!((latency.stddev_ns() / 2_886_751.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        for (count, resolved) in [(19, None), (20, Some(50.0)), (999, Some(90.0))] {
            let latency = of((0..count).map(|n| 1000 + n));
            let highest =
                [50.0, 90.0, 99.0].into_iter().rfind(|p| latency.percentile_ns(*p).is_some());
            assert_eq!(highest, resolved, "{count}");
        }
        assert!(of(0..1_000).percentile_ns(99.0).is_some());
        assert!(of(0..99_999).percentile_ns(99.99).is_none());
        assert!(of(0..100_000).percentile_ns(99.99).is_some());
        assert_eq!(of(0..1_000_000).percentile_ns(100.0), None);
    }

    #[test]
    fn histograms_are_added_and_cleared() {
        let mut both = of([100, 200]);
        both.add(&of([50, 1_000]));
        assert_eq!((both.count(), both.min_ns(), both.max_ns()), (4, 50, 1_000));
        assert!((both.mean_ns() - 337.5).abs() < 1e-9);
        let raw: Vec<(u64, u64)> = both.raw().collect();
        assert_eq!(raw, [(50, 1), (100, 1), (200, 1), (1_000, 1)]);
        both.clear();
        assert_eq!((both.count(), both.min_ns(), both.max_ns()), (0, 0, 0));
    }

    #[test]
    fn one_latency_is_recorded_several_times() {
        let mut latency = of([100]);
        latency.record_times(300, 3);
        latency.record_times(1, 0);
        assert_eq!((latency.count(), latency.min_ns(), latency.max_ns()), (4, 100, 300));
        assert!((latency.mean_ns() - 250.0).abs() < 1e-9);
    }

    #[test]
    fn values_beyond_an_hour_are_counted_as_an_hour() {
        let latency = of([u64::MAX, 1]);
        assert_eq!((latency.count(), latency.max_ns()), (2, u64::MAX));
    }
}
