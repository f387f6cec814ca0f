//! Counters that a queue and its controller share across reactors, each written by one of them.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weft_nvme::Status;
use weft_nvme::feature::Arbitration;
use weft_nvme::status::{StatusCode, StatusCodeType};

use super::record::Record;
use crate::counters::add;
use crate::limits::{ERROR_ENTRIES, NSID_MAX};
use crate::reservation::{HostAccess, HostId};
use crate::subsystem::{NamespaceView, SubsystemView};

/// What one queue tells its controller: words that only the queue writes.
///
/// The queue adds with a plain load and store, since it is the only writer; readers on other
/// reactors see a value that was true a moment ago. Aligned so that no two queues share a cache
/// line (two lines: neighbouring lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueShared {
    commands: AtomicU64,
    completions: AtomicU64,
}

impl QueueShared {
    /// Commands that arrived so far: a change says that the host is alive.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Commands that arrived and are not yet answered.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let completions = self.completions.load(Ordering::Relaxed);
        self.commands().saturating_sub(completions)
    }

    pub(crate) fn count_command(&self) {
        add(&self.commands, 1);
    }

    pub(crate) fn count_completion(&self) {
        add(&self.completions, 1);
    }
}

/// What a controller and all its queues share.
#[derive(Debug)]
pub struct ControllerShared {
    /// Volatile Write Cache Enable: while it is off, every write is durable.
    write_cache: AtomicBool,
    copy_formats: AtomicU16,
    /// The feature Arbitration.
    arbitration: AtomicU32,
    errors: ErrorRing,
    /// The last change of owner before the controller was made.
    owner_changes: u64,
    /// By NSID the change of owner since then that the host has learned of by Identify.
    known: OnceLock<Box<[AtomicU64]>>,
    host_id: HostId,
    /// What reservations refuse to the host.
    access: Arc<HostAccess>,
}

impl ControllerShared {
    pub(crate) fn new(view: &SubsystemView, host_id: HostId) -> Arc<Self> {
        Arc::new(Self {
            write_cache: AtomicBool::new(true),
            copy_formats: AtomicU16::new(0),
            arbitration: AtomicU32::new(0),
            errors: ErrorRing::default(),
            owner_changes: view.owner_changes,
            known: OnceLock::new(),
            host_id,
            access: view.shared.reservations().access(&host_id),
        })
    }

    /// The Host Identifier.
    pub(crate) const fn host_id(&self) -> &HostId {
        &self.host_id
    }

    pub(crate) const fn access(&self) -> &Arc<HostAccess> {
        &self.access
    }

    pub(crate) fn owner_changes(&self) -> u64 {
        self.owner_changes
    }

    /// The host asks who this namespace is. Release: its commands come after the answer.
    pub(crate) fn note_identify(&self, namespace: &NamespaceView) {
        if namespace.owner_change > self.owner_changes {
            let known = || (0..=NSID_MAX).map(|_| AtomicU64::new(0)).collect();
            if let Some(known) = self.known.get_or_init(known).get(namespace.nsid as usize) {
                known.store(namespace.owner_change, Ordering::Release);
            }
        }
    }

    /// Whether the host has asked who this namespace is since its identifier has this owner.
    #[cold]
    pub(crate) fn has_identified(&self, namespace: &NamespaceView) -> bool {
        let known = self.known.get().and_then(|known| known.get(namespace.nsid as usize));
        known.is_some_and(|change| change.load(Ordering::Acquire) == namespace.owner_change)
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn set_write_cache(&self, enabled: bool) {
        self.write_cache.store(enabled, Ordering::Relaxed);
    }

    /// The optional copy descriptor formats that the host has enabled (CDFE).
    pub(crate) fn copy_formats(&self) -> u16 {
        self.copy_formats.load(Ordering::Relaxed)
    }

    pub(crate) fn set_copy_formats(&self, formats: u16) {
        self.copy_formats.store(formats, Ordering::Relaxed);
    }

    pub(crate) fn arbitration(&self) -> Arbitration {
        Arbitration(self.arbitration.load(Ordering::Relaxed))
    }

    pub(crate) fn set_arbitration(&self, value: Arbitration) {
        self.arbitration.store(value.0, Ordering::Relaxed);
    }

    pub(crate) fn errors(&self) -> &ErrorRing {
        &self.errors
    }
}

/// A command that failed, as the Error Information log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorRecord {
    /// 1 for the first error of the controller.
    pub(crate) count: u64,
    pub(crate) queue_id: u16,
    pub(crate) command_id: u16,
    pub(crate) status: Status,
    /// Byte of the command that is to blame; `None` if no one byte is.
    pub(crate) parameter: Option<u8>,
    pub(crate) lba: u64,
    pub(crate) nsid: u32,
    pub(crate) opcode: u8,
}

/// The last errors of a controller, written by all its queues.
///
/// Each slot has a version: odd while somebody writes it. A writer that finds a slot taken (64
/// more errors came while another was still writing) drops its record; a reader that finds one
/// changing leaves it out. Only failed commands come here.
#[derive(Debug)]
pub(crate) struct ErrorRing {
    count: AtomicU64,
    media_count: AtomicU64,
    slots: [Record<4>; ERROR_ENTRIES],
}

impl Default for ErrorRing {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            media_count: AtomicU64::new(0),
            slots: std::array::from_fn(|_| Record::default()),
        }
    }
}

impl ErrorRing {
    /// Errors so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Errors of the medium so far; that a Compare found a difference is none.
    pub(crate) fn media_count(&self) -> u64 {
        self.media_count.load(Ordering::Relaxed)
    }

    /// Adds a record; its count is given here.
    pub(crate) fn push(&self, record: ErrorRecord) {
        let media = record.status.status_code_type() == StatusCodeType::MEDIA_AND_DATA_INTEGRITY;
        if media && record.status.code() != StatusCode::COMPARE_FAILURE {
            self.media_count.fetch_add(1, Ordering::Relaxed);
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(slot) = self.slot(count) {
            slot.write(ErrorRecord { count, ..record }.to_words());
        }
    }

    /// The records that are there, the newest first.
    pub(crate) fn newest_first(&self) -> Vec<ErrorRecord> {
        let mut records: Vec<_> =
            self.slots.iter().filter_map(Record::read).map(ErrorRecord::from_words).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.count));
        records
    }

    fn slot(&self, count: u64) -> Option<&Record<4>> {
        let index = count % (ERROR_ENTRIES as u64);
        self.slots.get(usize::try_from(index).ok()?)
    }
}

impl ErrorRecord {
    fn to_words(self) -> [u64; 4] {
        let [queue0, queue1] = self.queue_id.to_le_bytes();
        let [command0, command1] = self.command_id.to_le_bytes();
        let [status0, status1] = self.status.0.to_le_bytes();
        let (located, byte) = match self.parameter {
            Some(byte) => (1, byte),
            None => (0, 0),
        };
        let [nsid0, nsid1, nsid2, nsid3] = self.nsid.to_le_bytes();
        [
            self.count,
            self.lba,
            u64::from_le_bytes([
                queue0, queue1, command0, command1, status0, status1, located, byte,
            ]),
            u64::from_le_bytes([nsid0, nsid1, nsid2, nsid3, self.opcode, 0, 0, 0]),
        ]
    }

    fn from_words([count, lba, codes, place]: [u64; 4]) -> Self {
        let [queue0, queue1, command0, command1, status0, status1, located, byte] =
            codes.to_le_bytes();
        let [nsid0, nsid1, nsid2, nsid3, opcode, ..] = place.to_le_bytes();
        Self {
            count,
            queue_id: u16::from_le_bytes([queue0, queue1]),
            command_id: u16::from_le_bytes([command0, command1]),
            status: Status(u16::from_le_bytes([status0, status1])),
            parameter: (located == 1).then_some(byte),
            lba,
            nsid: u32::from_le_bytes([nsid0, nsid1, nsid2, nsid3]),
            opcode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(command_id: u16) -> ErrorRecord {
        ErrorRecord {
            count: 0,
            queue_id: 0x1234,
            command_id,
            status: Status::LBA_OUT_OF_RANGE.with_dnr(),
            parameter: Some(0),
            lba: u64::MAX - 1,
            nsid: 0x0102_0304,
            opcode: 0x05,
        }
    }

    #[test]
    fn records_come_back_newest_first() {
        let ring = ErrorRing::default();
        assert_eq!(ring.newest_first(), vec![]);
        ring.push(record(1));
        ring.push(ErrorRecord { parameter: None, ..record(2) });
        let expected = vec![
            ErrorRecord { count: 2, parameter: None, ..record(2) },
            ErrorRecord { count: 1, ..record(1) },
        ];
        assert_eq!(ring.newest_first(), expected);
    }

    #[test]
    fn the_ring_keeps_the_last() {
        let ring = ErrorRing::default();
        for command_id in 1..=200 {
            ring.push(record(command_id));
        }
        assert_eq!(ring.count(), 200);
        let records = ring.newest_first();
        assert_eq!(records.len(), ERROR_ENTRIES);
        assert_eq!(records[0], ErrorRecord { count: 200, ..record(200) });
        assert_eq!(records[ERROR_ENTRIES - 1].count, 137);
    }

    #[test]
    fn records_of_several_writers_are_never_mixed() {
        let ring = Arc::new(ErrorRing::default());
        let writers: Vec<_> = (0..2u16)
            .map(|writer| {
                let ring = Arc::clone(&ring);
                std::thread::spawn(move || {
                    for _ in 0..2000 {
                        let one = ErrorRecord {
                            queue_id: writer,
                            lba: u64::from(writer),
                            nsid: u32::from(writer),
                            ..record(writer)
                        };
                        ring.push(one);
                    }
                })
            })
            .collect();
        for _ in 0..200 {
            for record in ring.newest_first() {
                assert_eq!(record.lba, u64::from(record.queue_id));
                assert_eq!(record.nsid, u32::from(record.command_id));
                assert_eq!(record.queue_id, record.command_id);
            }
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
        assert_eq!(ring.count(), 4000);
    }

    #[test]
    fn in_flight_is_what_is_not_answered() {
        let queue = QueueShared::default();
        queue.count_command();
        queue.count_command();
        queue.count_completion();
        assert_eq!((queue.commands(), queue.in_flight()), (2, 1));
    }
}
