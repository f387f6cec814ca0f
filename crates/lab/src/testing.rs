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
