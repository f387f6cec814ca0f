//! Reads results of schema 1.
//!
//! Its records have no `connection`; those of given targets hold settings that were not applied;
//! and a raw link was always measured as TCP over loopback, whatever `transport` said.

use super::{Connection, Environment, Mark, Record, Role, Status, Value, key};
use crate::study::given;

/// The last schema that is converted here.
const BEFORE: u32 = 1;

/// Makes an environment what this build would have written.
pub(super) fn environment(environment: &mut Environment) {
    for probe in environment.link.iter_mut().filter(|probe| probe.connection.is_none()) {
        probe.connection = Some(Connection::over_loopback("tcp"));
    }
}

/// Makes a record what this build would have written.
pub(super) fn record(record: &mut Record, environment: &Environment) {
    if record.schema > BEFORE {
        return;
    }
    let transport = record.configuration.get(key::TRANSPORT).and_then(Value::as_text);
    let transport = transport.unwrap_or_default().to_owned();
    if record.configuration.contains_key(key::TARGET) {
        given::keep_applied(&mut record.configuration);
        record.mark(Mark::DeviceUnknown);
    }
    if !record.is_measured() {
        return;
    }
    match (record.role, transport.as_str()) {
        (Role::Link, "tcp") => record.connection = Some(Connection::over_loopback("tcp")),
        (Role::Link, other) => {
            let reason = format!("it was measured over loopback TCP and labelled {other}");
            record.status = Status::Void { reason };
            return;
        }
        (_, "tcp" | "loopback") if record.has(Mark::Loopback) => {
            record.connection = Some(Connection::over_loopback(&transport));
        }
        _ => {}
    }
    record.mark_above_floor(&environment.link);
}
