//! SPDK's process: its socket, and its end.

use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_reactor::monotonic_time;
use weft_rpc::{Address, CallError, Client};

/// How long it may take to end.
const END: Duration = Duration::from_secs(10);

/// How often that is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// SPDK's error for an object that is not there: -ENODEV.
const NO_DEVICE: i64 = -19;

/// When a process began, in ticks since the machine's start; none if it has ended.
pub(super) fn began(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may contain anything; fields are counted from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!["Z", "X"].contains(&state)).then_some(began)
}

/// Ends a process, unless its number is another's by now.
pub(in crate::study) fn end(id: u32, known: u64) -> Result<(), String> {
    let is_it = || began(id) == Some(known);
    let signal = |signal| {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| kill_process(pid, signal)).map_err(|error| error.to_string())
    };
    for sent in [Signal::TERM, Signal::KILL] {
        if !is_it() {
            return Ok(());
        }
        signal(sent)?;
        let end = monotonic_time() + END;
        while is_it() && monotonic_time() < end {
            thread::sleep(LOOK);
        }
    }
    if is_it() { Err("it does not end".to_owned()) } else { Ok(()) }
}

pub(super) fn open(socket: &Path) -> io::Result<Client> {
    Client::connect(&Address::Unix(socket.to_owned()), None, ANSWER)
}

pub(super) fn call(client: &mut Client, method: &str, params: Value) -> Result<Value, String> {
    let answer = client.call_named(method, params);
    answer.map_err(|error| format!("SPDK's target: {method}: {error}"))
}

/// Deletes an object; one that is gone already, with its target or without, counts as deleted.
pub(in crate::study) fn delete(socket: &Path, method: &str, params: &Value) -> io::Result<()> {
    let mut client = match open(socket) {
        // It removes its socket at its end, unless it was killed.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            return Ok(());
        }
        client => client?,
    };
    match client.call_named(method, params.clone()) {
        Err(CallError::Error(error))
            if error.code.0 == NO_DEVICE || error.message.contains("not found") =>
        {
            Ok(())
        }
        Err(error) => Err(io::Error::other(error.to_string())),
        Ok(_) => Ok(()),
    }
}
