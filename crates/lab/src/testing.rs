//! Records for tests.

use crate::{
    histogram::Latency,
    results::{Configuration, Direction, LatencyRecord, Record, Role, Value},
};

/// A record of one second of reads, each with a latency of `us`.
pub(crate) fn record(role: Role, settings: &[(&str, Value)], iops: f64, us: u64) -> Record {
    let mut configuration = Configuration::new();
    let mut cell = format!("{role:?}");
    for (key, value) in settings {
        configuration.insert((*key).to_owned(), value.clone());
        cell += &format!(" {key}={value}");
    }
    let mut latency = Latency::new();
    latency.record_times(us * 1000, 10_000);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
    let requests = iops.round() as u64;
    let mut record = Record::new("made-up", &cell, role, configuration);
    record.read = Some(Direction {
        requests,
        bytes: 4096 * requests,
        seconds: 1.0,
        latency: LatencyRecord::of(&latency),
        ..Direction::default()
    });
    record
}

/// Three repeats of each, with IOPS that differ by 1 %.
pub(crate) fn repeated(records: &[Record]) -> Vec<Record> {
    let repeat = |number: u32, share: f64| {
        records.iter().cloned().map(move |mut record| {
            record.repeat = number;
            for direction in record.read.iter_mut().chain(&mut record.write) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "whole"
                )]
                let requests = (direction.requests as f64 * share).round() as u64;
                direction.requests = requests;
            }
            record
        })
    };
    repeat(1, 0.99).chain(repeat(2, 1.0)).chain(repeat(3, 1.01)).collect()
}
