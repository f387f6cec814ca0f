//! Histograms in text form.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

use super::Latency;

/// A complete histogram of latencies in HDR's V2 format, base64, which other tools can read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyRecord {
    /// How many.
    pub count: u64,
    /// Their exact sum in ns, which gives the exact mean.
    pub sum_ns: u64,
    /// The exact minimum.
    pub min_ns: u64,
    /// The exact maximum.
    pub max_ns: u64,
    /// The histogram (three significant digits, ns); empty if nothing was recorded.
    pub hdr_v2: String,
}

/// Why a histogram cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyRecordError(String);

impl fmt::Display for LatencyRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a histogram cannot be read: {}", self.0)
    }
}

impl std::error::Error for LatencyRecordError {}

impl LatencyRecord {
    /// The record of these latencies.
    #[must_use]
    pub fn of(latency: &Latency) -> Self {
        if latency.count() == 0 {
            return Self::default();
        }
        let (histogram, sum_ns) = latency.parts();
        let mut bytes = Vec::new();
        // Writing to memory fails only for lack of memory, which is not reported as an error.
        if let Err(error) = V2Serializer::new().serialize(histogram, &mut bytes) {
            unreachable!("a histogram within its bounds is serializable: {error:?}");
        }
        Self {
            count: latency.count(),
            sum_ns: u64::try_from(sum_ns).unwrap_or(u64::MAX),
            min_ns: latency.min_ns(),
            max_ns: latency.max_ns(),
            hdr_v2: STANDARD.encode(bytes),
        }
    }

    /// The latencies.
    ///
    /// # Errors
    /// The text is not a histogram, or the numbers beside it do not match it.
    pub fn latency(&self) -> Result<Latency, LatencyRecordError> {
        if self.count == 0 {
            return Ok(Latency::new());
        }
        let fault = |what: String| LatencyRecordError(what);
        let bytes = STANDARD.decode(&self.hdr_v2).map_err(|error| fault(error.to_string()))?;
        let read: Result<Histogram<u64>, _> = Deserializer::new().deserialize(&mut &bytes[..]);
        let histogram = read.map_err(|error| fault(format!("{error:?}")))?;
        if histogram.len() != self.count {
            return Err(fault(format!("it holds {}, not {}", histogram.len(), self.count)));
        }
        Latency::from_parts(&histogram, u128::from(self.sum_ns), self.min_ns, self.max_ns)
            .ok_or_else(|| fault("its values are out of range".to_owned()))
    }

    /// The exact mean.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back() {
        let mut latency = Latency::new();
        for n in 0..100_000u64 {
            latency.record(500 + n * n % 1_000_003);
        }
        latency.record(u64::MAX >> 20);
        let record = LatencyRecord::of(&latency);
        let read = record.latency().expect("a histogram");
        assert_eq!(read.raw().collect::<Vec<_>>(), latency.raw().collect::<Vec<_>>());
        assert_eq!((read.count(), read.min_ns()), (latency.count(), latency.min_ns()));
        assert_eq!(read.max_ns(), latency.max_ns());
        assert_eq!(read.mean_ns(), latency.mean_ns());
        assert_eq!(read.percentile_ns(99.9), latency.percentile_ns(99.9));
    }

    #[test]
    fn an_empty_one_is_short() {
        let record = LatencyRecord::of(&Latency::new());
        assert_eq!(record, LatencyRecord::default());
        assert_eq!(record.latency().expect("empty").count(), 0);
    }

    #[test]
    fn truncated_or_mismatched_records_are_refused() {
        let mut latency = Latency::new();
        (0..50).for_each(|n| latency.record(1000 * n + 7));
        let whole = LatencyRecord::of(&latency);
        for length in 0..whole.hdr_v2.len() {
            let cut = LatencyRecord { hdr_v2: whole.hdr_v2[..length].to_owned(), ..whole.clone() };
            assert!(cut.latency().is_err(), "{length}");
        }
        assert!(LatencyRecord { count: 51, ..whole.clone() }.latency().is_err());
        let other = LatencyRecord { hdr_v2: "!".to_owned(), ..whole };
        assert!(other.latency().is_err());
    }
}
