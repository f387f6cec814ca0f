//! Published numbers of other systems, for comparison with new measurements.
//!
//! The data is `reference/published.toml`, embedded in the binary: one entry for each number with
//! the settings of its measurement, and the hardware for each document.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::results::{Configuration, key};

const TEXT: &str = include_str!("../reference/published.toml");

/// Everything that was transcribed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The documents.
    pub source: BTreeMap<String, Source>,
    /// The numbers.
    #[serde(rename = "result")]
    pub results: Vec<PublishedResult>,
}

/// A document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its title.
    pub title: String,
    /// The hardware.
    pub testbed: String,
    /// How it was measured.
    pub method: String,
    /// Its transports by the names that `docs/studies.md` gives their links.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Whether its local device is memory, as ours is where none is given.
    #[serde(default)]
    pub memory: bool,
}

/// A number. Settings that were not published are absent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedResult {
    /// The document.
    pub source: String,
    /// The table, figure or section that it stands in.
    pub figure: String,
    /// The study.
    pub study: String,
    /// The transport, as the document names it.
    pub transport: Option<String>,
    /// The device, or the machine.
    pub device: Option<String>,
    /// fio's name of the pattern; several separated by commas.
    pub pattern: Option<String>,
    /// Bytes of a request.
    pub bs_bytes: Option<u64>,
    /// Queue depth.
    pub qd: Option<u64>,
    /// Jobs.
    pub jobs: Option<u64>,
    /// Cores.
    pub cores: Option<u64>,
    /// What was measured.
    pub metric: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Other settings, as the study's plan names them.
    #[serde(default)]
    pub settings: Configuration,
    /// The document's own settings in place of one that stands for them, by its name; they count
    /// where cells have them.
    #[serde(default)]
    pub printed: BTreeMap<String, Configuration>,
    /// Whether the others of its kind are relative to it.
    #[serde(default)]
    pub base: bool,
    /// The plan's transports that a difference lies between, the lower first.
    pub between: Option<[String; 2]>,
    /// A reservation or explanation for readers.
    pub note: Option<String>,
}

/// The published numbers.
#[must_use]
pub fn published() -> &'static Published {
    static PUBLISHED: OnceLock<Published> = OnceLock::new();
    PUBLISHED.get_or_init(|| {
        toml::from_str(TEXT)
            .unwrap_or_else(|error| unreachable!("the data is part of the program: {error}"))
    })
}

impl Published {
    /// The numbers of a study, by the name that plans use.
    pub fn of_study<'a>(&'a self, study: &'a str) -> impl Iterator<Item = &'a PublishedResult> {
        self.results.iter().filter(move |result| result.study == study)
    }
}

impl PublishedResult {
    /// Our metric of it; none if it is made of several numbers.
    pub(crate) fn ours(&self) -> Option<&str> {
        Some(match self.metric.as_str() {
            "iops" | "iops_max" => "iops",
            "iops_saturation" => "saturation",
            "bandwidth" | "bandwidth_peak" => "bandwidth",
            "lat_mean" => "mean",
            "lat_added" => "delta",
            "concurrency_max" => "concurrency",
            "latency_interference" => "latency-interference",
            "throughput_sustained" => "throughput-sustained",
            "host_cpu" => "host-machine-cpu",
            "target_cpu" => "target-machine-cpu",
            percentile => percentile.strip_prefix("lat_")?,
        })
    }

    /// The number in the units of this crate: nanoseconds, bytes a second, requests a second;
    /// shares and factors unchanged, percentages in percent.
    #[must_use]
    pub fn plain_value(&self) -> f64 {
        self.value
            * match self.unit.as_str() {
                "s" => 1e9,
                "ms" => 1e6,
                "us" => 1e3,
                "MiB/s" => 1_048_576.0,
                "MB/s" => 1e6,
                "Gb/s" => 1e9 / 8.0,
                "KIOPS" => 1e3,
                _ => 1.0,
            }
    }

    /// The background load in percent.
    #[must_use]
    pub fn load_percent(&self) -> Option<u64> {
        self.settings.get(key::LOAD_PERCENT)?.as_integer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::builtin;

    #[test]
    fn every_number_has_a_document_and_a_known_unit() {
        let published = published();
        assert_eq!(published.results.len(), 172);
        const UNITS: [&str; 19] = [
            "s",
            "ms",
            "us",
            "MiB/s",
            "MB/s",
            "Gb/s",
            "KIOPS",
            "IOPS",
            "%",
            "x",
            "fraction",
            "bytes",
            "cores",
            "processes",
            "qd",
            "x local qd1 IOPS",
            "B/s",
            "ns",
            "times",
        ];
        for result in &published.results {
            assert!(published.source.contains_key(&result.source), "{result:?}");
            assert!(UNITS.contains(&result.unit.as_str()), "{result:?}");
            assert!(result.plain_value().is_finite() && result.value > 0.0, "{result:?}");
        }
    }

    #[test]
    fn every_study_with_published_numbers_is_built_in() {
        for result in &published().results {
            assert!(builtin::find(&result.study).is_some(), "{}", result.study);
        }
    }

    #[test]
    fn units_are_converted() {
        let of = |unit: &str| {
            let mut result = published().results[0].clone();
            (result.value, result.unit) = (2.0, unit.to_owned());
            result.plain_value()
        };
        assert_eq!((of("us"), of("KIOPS"), of("Gb/s"), of("x")), (2e3, 2e3, 2.5e8, 2.0));
    }

    #[test]
    fn the_background_load_is_a_setting() {
        let loads: Vec<Option<u64>> = published()
            .of_study("target-interference")
            .map(PublishedResult::load_percent)
            .collect();
        let expected: [u64; 8] = [20, 60, 80, 10, 20, 40, 50, 60];
        assert_eq!(loads, expected.map(Some));
        let host = published().of_study("host-interference");
        assert!(host.map(PublishedResult::load_percent).all(|load| load.is_none()));
        assert_eq!(published().of_study("host-interference").count(), 2);
    }
}
