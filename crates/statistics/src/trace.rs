//! The methods of a trace: what every command of a while went through.

use serde::{Deserialize, Serialize};
use weft_rpc::Method;

/// Has the target record its commands for a while.
#[derive(Clone, Copy, Debug)]
pub enum StartTrace {}

impl Method for StartTrace {
    const NAME: &'static str = "trace_start";
    type Params = TraceOptions;
    type Answer = bool;
}

/// Reads the next part of what was recorded, which is given away with the answer; null while it is
/// being recorded.
#[derive(Clone, Copy, Debug)]
pub enum ReadTrace {}

impl Method for ReadTrace {
    const NAME: &'static str = "trace_read";
    type Params = ();
    type Answer = Option<TracedCommands>;
}

/// What to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceOptions {
    /// For how long, in ms.
    pub time_ms: u64,
    /// The last commands of each poll group that are kept.
    pub commands: usize,
}

/// A part of a trace: commands of a poll group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedCommands {
    /// The poll group.
    pub group: usize,
    /// Its queues, to which commands refer by index; only in the first part of each group.
    pub queues: Vec<TracedQueue>,
    /// The commands, in the order of their completion.
    pub commands: Vec<TracedCommand>,
    /// Earlier commands of the group, which later ones have replaced; in each part the same.
    pub replaced: u64,
    /// Commands of queues for which the trace had no room.
    pub beyond: u64,
    /// Nothing follows: the trace has been read.
    pub is_last: bool,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedQueue {
    /// The host's name.
    pub host: String,
    /// The subsystem's name.
    pub subsystem: String,
    /// The queue's identifier.
    pub queue_id: u16,
}

/// A command, on the wire a list of these numbers: there may be a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Numbers", into = "Numbers")]
pub struct TracedCommand {
    /// The index of its queue.
    pub queue: u32,
    /// The command's opcode.
    pub opcode: u8,
    /// The command's NSID.
    pub nsid: u32,
    /// Bytes of its data.
    pub bytes: u32,
    /// The status field of its completion, without the phase tag.
    pub status: u16,
    /// The target has its capsule, in the turn that began then, in ns of the machine's monotonic
    /// clock.
    pub received_ns: u64,
    /// The turn of its tenant, connection or thread has come: it begins.
    pub taken_ns: u64,
    /// It has its memory and what rate limits grant; none if it completes without. From then on
    /// data that did not come in its capsule is fetched from the host.
    pub begun_ns: Option<u64>,
    /// Its device gets it; none if it completes without one.
    pub submitted_ns: Option<u64>,
    /// Its completion is given to the transport.
    pub completed_ns: u64,
    /// The turn's responses have been given to the socket or the adapter; none if the trace or the
    /// connection ended before.
    pub sent_ns: Option<u64>,
}

type Numbers = (u32, u8, u32, u32, u16, u64, u64, Option<u64>, Option<u64>, u64, Option<u64>);

impl From<Numbers> for TracedCommand {
    fn from(numbers: Numbers) -> Self {
        let (queue, opcode, nsid, bytes, status, ..) = numbers;
        let (.., received_ns, taken_ns, begun_ns, submitted_ns, completed_ns, sent_ns) = numbers;
        Self {
            queue,
            opcode,
            nsid,
            bytes,
            status,
            received_ns,
            taken_ns,
            begun_ns,
            submitted_ns,
            completed_ns,
            sent_ns,
        }
    }
}

impl From<TracedCommand> for Numbers {
    fn from(of: TracedCommand) -> Self {
        (
            of.queue,
            of.opcode,
            of.nsid,
            of.bytes,
            of.status,
            of.received_ns,
            of.taken_ns,
            of.begun_ns,
            of.submitted_ns,
            of.completed_ns,
            of.sent_ns,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_list_of_numbers() {
        let command = TracedCommand {
            queue: 1,
            opcode: 2,
            nsid: 3,
            bytes: 4096,
            status: 0,
            received_ns: 9,
            taken_ns: 10,
            begun_ns: Some(11),
            submitted_ns: None,
            completed_ns: 13,
            sent_ns: Some(14),
        };
        let text = serde_json::to_string(&command).expect("JSON");
        assert_eq!(text, "[1,2,3,4096,0,9,10,11,null,13,14]");
        assert_eq!(serde_json::from_str::<TracedCommand>(&text).expect("a command"), command);
    }
}
