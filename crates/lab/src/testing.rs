//! Records for tests.

use weft_load::Latency;

use crate::results::{
    Configuration, Core, Direction, LatencyRecord, Record, Role, Side, SideMachine, Status, Thread,
    Value, key, number,
};
use crate::study::capabilities::{Apart, Capabilities};
use crate::study::matrix::{self, Step, expand};
use crate::study::plan::Plan;
use crate::study::site;

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

/// A machine that can run every cell of the built-in studies but those over links.
pub(crate) fn large_machine() -> Capabilities {
    Capabilities {
        cpus: (0..64).collect(),
        own_target: true,
        rdma: true,
        tls: true,
        ..Capabilities::default()
    }
}

/// The same, with an agent and its loopback interface if the plan wants knobs.
pub(crate) fn machine_of(plan: &Plan) -> Capabilities {
    let apart = Apart {
        load_cpus: (0..64).collect(),
        one_machine: true,
        loads: 1,
        local: true,
        links: [(site::LOOPBACK.to_owned(), false)].into(),
        ..Apart::default()
    };
    let wants_knobs = plan.axes.contains_key(key::LOSS_PERCENT);
    Capabilities { apart: wants_knobs.then_some(apart), ..large_machine() }
}

/// Results of every cell of a plan: they differ from cell to cell. Those that cannot run are
/// skipped for the reason that the study gives.
pub(crate) fn made_up(plan: &Plan, capabilities: &Capabilities) -> Vec<Record> {
    let matrix = expand(plan, capabilities, &Configuration::new());
    let of = |(number, cell): (usize, &matrix::Cell)| {
        let settings: Vec<(&str, Value)> =
            cell.configuration.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let way = match cell.configuration.get(key::TRANSPORT).and_then(Value::as_text) {
            Some("local") => 1,
            Some(name) if name.starts_with("rdma") => 4,
            _ => 7,
        };
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let iops = 1e6 / f64::from(way) * (1.0 + f64::from(number) / 10.0);
        let mut record = record(cell.role, &settings, iops, u64::from(way * (10 + number)));
        record.cell.clone_from(&cell.id);
        if let Some(reason) = &cell.missing {
            record.status = Status::Skipped { reason: reason.clone() };
            return record;
        }
        let core = Core {
            user_s: 0.4,
            system_s: 0.2,
            softirq_s: 0.1,
            iowait_s: 0.1,
            idle_s: 0.2,
            ..Core::default()
        };
        let busy = Side {
            seconds: 1.0,
            threads: vec![Thread { user_s: 0.5, ..Thread::default() }],
            machine: SideMachine { cores: vec![core], ..SideMachine::default() },
            ..Side::default()
        };
        // Enough requests for the farthest percentile.
        let mut latency = Latency::new();
        latency.record_times(u64::from(way * (10 + number)) * 1000, 1_000_000);
        for direction in record.read.iter_mut() {
            direction.latency = LatencyRecord::of(&latency);
        }
        record.host = Some(busy.clone());
        record.target = Some(busy);
        record.values.insert(number::OFFERED_IOPS.to_owned(), iops);
        record
    };
    matrix.steps().flat_map(Step::cells).enumerate().map(of).collect()
}
