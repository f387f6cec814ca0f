//! The text formats of Prometheus and OpenMetrics.

use std::fmt::{Display, Write};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format, 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A text that grows by one metric after the other.
#[derive(Debug)]
pub(super) struct Exposition {
    format: Format,
    text: String,
}

impl Format {
    /// Whether a client that sends this `Accept` takes OpenMetrics.
    pub(super) fn is_open_metrics(accept: &str) -> bool {
        accept.split(',').any(|one| {
            let mut words = one.split(';').map(str::trim);
            words.next() == Some("application/openmetrics-text")
                && words.all(|word| !matches!(word.strip_prefix("q="), Some("0" | "0.0")))
        })
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Exposition {
    pub(super) const fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// Begins a metric. The name of a counter ends with `_total`.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind_name = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // OpenMetrics names a counter without the suffix that its samples have.
        let name = match self.format {
            Format::Text => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind_name}\n"));
    }

    /// A value of the metric.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push_str(if index == 0 { "{" } else { "," });
            self.put(format_args!("{label}=\"{}\"", escaped(value)));
        }
        self.text.push_str(if labels.is_empty() { "" } else { "}" });
        self.put(format_args!(" {value}\n"));
    }

    /// A histogram's values: `buckets` has one number for each bound, in seconds, and that beyond.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        buckets: &[u64],
        sum: f64,
    ) {
        let mut count = 0;
        let mut labels: Vec<(&str, &str)> = labels.to_vec();
        let bounds = bounds.iter().map(|bound| self.bound(*bound));
        let bounds: Vec<String> = bounds.chain(["+Inf".to_owned()]).collect();
        for (bound, commands) in bounds.iter().zip(buckets) {
            count += commands;
            labels.push(("le", bound));
            self.sample(&format!("{name}_bucket"), &labels, count);
            labels.pop();
        }
        self.sample(&format!("{name}_sum"), &labels, sum);
        self.sample(&format!("{name}_count"), &labels, count);
    }

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// A bound as Prometheus' own clients write it, so that series of several programs agree.
    fn bound(&self, seconds: f64) -> String {
        let text = match self.format {
            Format::Text if seconds.fract() == 0.0 => format!("{seconds}"),
            _ => format!("{seconds:?}"),
        };
        match text.split_once("e-") {
            Some((digits, exponent)) if exponent.len() == 1 => format!("{digits}e-0{exponent}"),
            _ => text,
        }
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(what);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposed(format: Format) -> String {
        let mut text = Exposition::new(format);
        text.family("weft_reads_total", Kind::Counter, "Reads.");
        text.sample("weft_reads_total", &[("host", "a\"b\\c\nd")], 3);
        text.family("weft_seconds", Kind::Histogram, "Time.");
        text.histogram("weft_seconds", &[("nsid", "1")], &[5e-5, 0.001, 1.0], &[1, 0, 2, 4], 8.5);
        text.finish()
    }

    #[test]
    fn prometheus_text() {
        let expected = "# HELP weft_reads_total Reads.\n# TYPE weft_reads_total counter\n\
            weft_reads_total{host=\"a\\\"b\\\\c\\nd\"} 3\n\
            # HELP weft_seconds Time.\n# TYPE weft_seconds histogram\n\
            weft_seconds_bucket{nsid=\"1\",le=\"5e-05\"} 1\n\
            weft_seconds_bucket{nsid=\"1\",le=\"0.001\"} 1\n\
            weft_seconds_bucket{nsid=\"1\",le=\"1\"} 3\n\
            weft_seconds_bucket{nsid=\"1\",le=\"+Inf\"} 7\n\
            weft_seconds_sum{nsid=\"1\"} 8.5\nweft_seconds_count{nsid=\"1\"} 7\n";
        assert_eq!(exposed(Format::Text), expected);
    }

    #[test]
    fn open_metrics_names_counters_without_suffix_and_ends() {
        let text = exposed(Format::OpenMetrics);
        assert!(text.contains("# TYPE weft_reads counter\nweft_reads_total{"), "{text}");
        assert!(text.contains("le=\"1.0\"") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn open_metrics_is_given_to_who_asks_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1";
        assert!(Format::is_open_metrics(prometheus));
        assert!(!Format::is_open_metrics("text/plain, */*"));
        assert!(!Format::is_open_metrics("application/openmetrics-text;q=0"));
    }
}
