//! Records as CSV.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Connection, Direction, Record, Status};

/// Percentiles of the table.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// The records as comma-separated values with a header. Unknown and unresolved values are
/// empty.
pub(super) fn table(records: &[Record]) -> String {
    let keys: BTreeSet<&str> =
        records.iter().flat_map(|record| record.configuration.keys()).map(String::as_str).collect();
    let values: BTreeSet<&str> =
        records.iter().flat_map(|record| record.values.keys()).map(String::as_str).collect();
    let mut head: Vec<String> =
        ["study", "cell", "role", "repeat", "status", "reason", "marks", "started_at_ms"]
            .map(str::to_owned)
            .to_vec();
    head.extend(["protocol", "link", "host_address", "target_address"].map(str::to_owned));
    head.extend(keys.iter().map(|key| (*key).to_owned()));
    head.extend(
        [
            "iops",
            "bytes_per_s",
            "read_iops",
            "write_iops",
            "requests",
            "seconds",
            "mean_us",
            "min_us",
            "max_us",
        ]
        .map(str::to_owned),
    );
    head.extend(PERCENTILES.map(|percentile| format!("p{percentile}_us")));
    head.extend(
        [
            "host_cpu_s",
            "target_cpu_s",
            "host_context_switches",
            "target_context_switches",
            "cpu_us_per_io",
        ]
        .map(str::to_owned),
    );
    head.extend(values.iter().map(|value| (*value).to_owned()));
    let mut text = String::new();
    line(&mut text, head.iter().map(String::as_str));
    for record in records {
        let fields = fields(record, &keys, &values);
        line(&mut text, fields.iter().map(String::as_str));
    }
    text
}

fn fields(record: &Record, keys: &BTreeSet<&str>, values: &BTreeSet<&str>) -> Vec<String> {
    let serialized_name = |value: &dyn serialized::SerializedName| value.serialized_name();
    let marks: Vec<String> = record.marks.iter().map(|mark| serialized_name(mark)).collect();
    let mut fields = vec![
        record.study.clone(),
        record.cell.clone(),
        serialized_name(&record.role),
        record.repeat.to_string(),
        status(&record.status).to_owned(),
        record.status.reason().unwrap_or_default().to_owned(),
        marks.join(" "),
        record.started_at_ms.to_string(),
    ];
    fields.extend(match &record.connection {
        None => [const { String::new() }; 4],
        Some(Connection { protocol, link, host, target, .. }) => {
            [protocol.clone(), link.clone(), host.to_string(), target.to_string()]
        }
    });
    let shown = |key: &&str| record.configuration.get(*key).map(ToString::to_string);
    fields.extend(keys.iter().map(|key| shown(key).unwrap_or_default()));
    fields.extend(measured(record));
    let number = |name: &&str| record.values.get(*name).map(|value| format!("{value}"));
    fields.extend(values.iter().map(|name| number(name).unwrap_or_default()));
    fields
}

fn measured(record: &Record) -> Vec<String> {
    let latency = record.latency();
    let requests: u64 = record.directions().map(|direction| direction.requests).sum();
    let seconds = record.directions().map(|direction| direction.seconds).fold(0.0, f64::max);
    let any = requests > 0;
    let some = |value: f64, digits: usize| match any {
        true => format!("{value:.digits$}"),
        false => String::new(),
    };
    let iops = |direction: &Option<Direction>| {
        direction.as_ref().map(|direction| format!("{:.1}", direction.iops())).unwrap_or_default()
    };
    let us = |ns: u64| some(ns as f64 / 1e3, 3);
    let mut fields = vec![
        some(record.iops(), 1),
        some(record.bytes_per_second(), 0),
        iops(&record.read),
        iops(&record.write),
        if any { requests.to_string() } else { String::new() },
        some(seconds, 6),
        some(latency.mean_ns() / 1e3, 3),
        us(latency.min_ns()),
        us(latency.max_ns()),
    ];
    fields.extend(
        PERCENTILES.map(|percentile| latency.percentile_ns(percentile).map(us).unwrap_or_default()),
    );
    let cpu = |side: &Option<super::Side>| side.as_ref().map(super::Side::cpu_seconds);
    let switches = |side: &Option<super::Side>| {
        side.as_ref().map(|side| side.context_switches().to_string()).unwrap_or_default()
    };
    let (host, target) = (cpu(&record.host), cpu(&record.target));
    let seconds_of = |cpu: Option<f64>| cpu.map(|cpu| format!("{cpu:.6}")).unwrap_or_default();
    fields.extend([seconds_of(host), seconds_of(target)]);
    fields.extend([switches(&record.host), switches(&record.target)]);
    let all = host.unwrap_or(0.0) + target.unwrap_or(0.0);
    fields.push(some(all * 1e6 / requests.max(1) as f64, 3));
    fields
}

const fn status(status: &Status) -> &'static str {
    match status {
        Status::Measured => "measured",
        Status::Skipped { .. } => "skipped",
        Status::Void { .. } => "void",
        Status::Failed { .. } => "failed",
    }
}

fn line<'a>(text: &mut String, fields: impl Iterator<Item = &'a str>) {
    for (index, field) in fields.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let written = if field.contains([',', '"', '\n', '\r']) {
            write!(text, "{comma}\"{}\"", field.replace('"', "\"\""))
        } else {
            write!(text, "{comma}{field}")
        };
        // Writing to a String cannot fail.
        debug_assert!(written.is_ok());
    }
    text.push('\n');
}

/// The serialized names of variants, so that both files use the same ones.
mod serialized {
    use crate::results::{Mark, Role};

    pub(super) trait SerializedName {
        fn serialized_name(&self) -> String;
    }

    fn plain(value: Result<serde_json::Value, serde_json::Error>) -> String {
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    impl SerializedName for Mark {
        fn serialized_name(&self) -> String {
            plain(serde_json::to_value(self))
        }
    }

    impl SerializedName for Role {
        fn serialized_name(&self) -> String {
            plain(serde_json::to_value(self))
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_load::Latency;

    use super::*;
    use crate::results::{Configuration, LatencyRecord, Mark, Role, Value, key};

    fn columns(text: &str) -> Vec<usize> {
        text.lines().map(|line| line.split(',').count()).collect()
    }

    #[test]
    fn every_line_has_a_field_for_every_column() {
        let configuration = Configuration::from([(key::DEPTH.to_owned(), Value::from(4u64))]);
        let mut first = Record::new("s", "depth=4", Role::Foreground, configuration);
        let mut latency = Latency::new();
        (0..1000).for_each(|n| latency.record(10_000 + n));
        first.read = Some(Direction {
            requests: 1000,
            bytes: 4_096_000,
            seconds: 2.0,
            latency: LatencyRecord::of(&latency),
            ..Direction::default()
        });
        let end = |text: &str| text.parse().expect("an address");
        let (host, target) = (end("10.0.0.1:40000"), end("10.0.0.2:4420"));
        first.connection = Some(Connection::new("tcp", host, target));
        first.marks = vec![Mark::SharedCores, Mark::OpenLoop];
        first.values.insert("x".to_owned(), 1.5);
        let mut second = Record::new("s", "other", Role::Plain, Configuration::new());
        // No completed request: the value must be 0, not -0.
        assert!(second.iops().is_sign_positive() && second.bytes_per_second().is_sign_positive());
        second.status = Status::Skipped { reason: "no RDMA device".to_owned() };
        let text = table(&[first, second]);
        let columns = columns(&text);
        assert_eq!(columns.len(), 3);
        assert!(columns.iter().all(|count| *count == columns[0]), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("depth,iops,bytes_per_s") && lines[0].ends_with(",x"), "{text}");
        let ends = "foreground,1,measured,,shared-cores open-loop,0,tcp,,10.0.0.1:40000,";
        assert!(lines[1].contains(ends), "{text}");
        assert!(lines[1].ends_with(",1.5"));
        assert!(lines[2].contains("plain,1,skipped,no RDMA device"));
    }

    #[test]
    fn special_characters_are_quoted() {
        let mut text = String::new();
        line(&mut text, ["a,b", "say \"x\"", "plain"].into_iter());
        assert_eq!(text, "\"a,b\",\"say \"\"x\"\"\",plain\n");
    }
}
