//! The private data of the connection manager's messages.

use core::fmt;

use weft_nvme::Wire;
use weft_nvme::rdma::{
    AcceptPrivateData, RECORD_FORMAT, RejectPrivateData, RejectStatus, RequestPrivateData,
};
use weft_nvme::wire::U16;

/// Entries of the smallest queue that there can be (SQSIZE is 0's based and not 0).
pub const QUEUE_ENTRIES_MIN: u16 = 2;

/// What a host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Queue identifier: 0 for the admin queue.
    pub queue_id: u16,
    /// Entries of the submission queue: capsules that the host may have outstanding.
    pub entries: u16,
    /// Receives that the host posts: responses that may be on their way to it.
    pub host_receives: u16,
    /// The controller that an I/O queue is for; 0 if the host gives none.
    pub controller_id: u16,
}

impl Request {
    /// What a host sends.
    #[must_use]
    pub fn to_wire(&self) -> RequestPrivateData {
        RequestPrivateData {
            record_format: U16::new(RECORD_FORMAT),
            queue_id: U16::new(self.queue_id),
            host_receive_queue_size: U16::new(self.host_receives),
            host_send_queue_size: U16::new(self.entries.saturating_sub(1)),
            controller_id: U16::new(self.controller_id),
            ..Default::default()
        }
    }

    /// Checks what a host sent, for a target whose queues have at most `entries_max` entries.
    pub fn parse(bytes: &[u8], entries_max: u16) -> Result<Self, RejectStatus> {
        // Providers pad the private data: more than the record is accepted.
        let wire = RequestPrivateData::read(bytes)
            .map_err(|_| RejectStatus::INVALID_PRIVATE_DATA_LENGTH)?;
        if wire.record_format.get() != RECORD_FORMAT {
            return Err(RejectStatus::INVALID_RECORD_FORMAT);
        }
        let queue_id = wire.queue_id.get();
        if queue_id == u16::MAX {
            return Err(RejectStatus::INVALID_QUEUE_ID);
        }
        let entries = wire.host_send_queue_size.get().checked_add(1);
        let entries = entries
            .filter(|entries| (QUEUE_ENTRIES_MIN..=entries_max).contains(entries))
            .ok_or(RejectStatus::INVALID_HOST_SEND_QUEUE_SIZE)?;
        let host_receives = wire.host_receive_queue_size.get();
        // Some hosts count from zero here as well: one less than the queue's entries is enough, as
        // no more capsules than that can be outstanding.
        if host_receives < entries - 1 {
            return Err(RejectStatus::INVALID_HOST_RECEIVE_QUEUE_SIZE);
        }
        let controller_id = wire.controller_id.get();
        Ok(Self { queue_id, entries, host_receives, controller_id })
    }
}

/// What a target answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Receives that the target has posted: capsules that may be on their way to it.
    pub controller_receives: u16,
}

impl Reply {
    /// What a target sends.
    #[must_use]
    pub fn to_wire(&self) -> AcceptPrivateData {
        AcceptPrivateData {
            record_format: U16::new(RECORD_FORMAT),
            controller_receive_queue_size: U16::new(self.controller_receives),
            ..Default::default()
        }
    }

    /// Checks what a target sent.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let wire = AcceptPrivateData::read(bytes).map_err(|_| Refusal::ShortReply)?;
        if wire.record_format.get() != RECORD_FORMAT {
            return Err(Refusal::ReplyFormat(wire.record_format.get()));
        }
        match wire.controller_receive_queue_size.get() {
            0 => Err(Refusal::NoReceives),
            controller_receives => Ok(Self { controller_receives }),
        }
    }
}

/// Why a connection was refused, from the private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The reply is shorter than its record.
    ShortReply,
    /// The reply has another record format.
    ReplyFormat(u16),
    /// The target has no room for a capsule.
    NoReceives,
    /// The target rejected the queue.
    Rejected(RejectStatus),
}

impl Refusal {
    /// Reads a rejection; `None` without private data, as when there is no listener.
    #[must_use]
    pub fn of_rejection(bytes: &[u8]) -> Option<Self> {
        let wire = RejectPrivateData::read(bytes).ok()?;
        let reason = wire.reason();
        (reason.0 != 0).then_some(Self::Rejected(reason))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortReply => formatter.write_str("the target's reply has no NVMe record"),
            Self::ReplyFormat(format) => {
                write!(formatter, "the target's reply has record format {format}")
            }
            Self::NoReceives => formatter.write_str("the target has a receive queue of size 0"),
            Self::Rejected(reason) => write!(formatter, "the target rejects the queue: {reason}"),
        }
    }
}

impl core::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(change: impl FnOnce(&mut RequestPrivateData)) -> Vec<u8> {
        let request = Request { queue_id: 1, entries: 128, host_receives: 128, controller_id: 5 };
        let mut wire = request.to_wire();
        change(&mut wire);
        wire.bytes().to_vec()
    }

    #[test]
    fn a_request_comes_back_padded_or_not() {
        let mut bytes = wire(|_| {});
        let request = Request::parse(&bytes, 1024).unwrap();
        assert_eq!((request.queue_id, request.entries), (1, 128));
        assert_eq!((request.host_receives, request.controller_id), (128, 5));
        bytes.resize(56, 0);
        assert_eq!(Request::parse(&bytes, 1024), Ok(request));
        for length in 0..32 {
            let error = Request::parse(&bytes[..length], 1024).unwrap_err();
            assert_eq!(error, RejectStatus::INVALID_PRIVATE_DATA_LENGTH);
        }
    }

    #[test]
    fn a_request_is_refused_with_the_reason_that_fits() {
        for (bytes, reason) in [
            (wire(|w| w.record_format = U16::new(1)), RejectStatus::INVALID_RECORD_FORMAT),
            (wire(|w| w.queue_id = U16::new(0xffff)), RejectStatus::INVALID_QUEUE_ID),
            (
                wire(|w| w.host_send_queue_size = U16::new(0)),
                RejectStatus::INVALID_HOST_SEND_QUEUE_SIZE,
            ),
            (
                wire(|w| w.host_send_queue_size = U16::new(1024)),
                RejectStatus::INVALID_HOST_SEND_QUEUE_SIZE,
            ),
            (
                wire(|w| w.host_send_queue_size = U16::new(0xffff)),
                RejectStatus::INVALID_HOST_SEND_QUEUE_SIZE,
            ),
            (
                wire(|w| w.host_receive_queue_size = U16::new(126)),
                RejectStatus::INVALID_HOST_RECEIVE_QUEUE_SIZE,
            ),
        ] {
            assert_eq!(Request::parse(&bytes, 1024), Err(reason));
        }
        assert!(Request::parse(&wire(|w| w.host_send_queue_size = U16::new(1023)), 1024).is_err());
        let entries = wire(|w| {
            w.host_send_queue_size = U16::new(1023);
            w.host_receive_queue_size = U16::new(1024);
        });
        assert_eq!(Request::parse(&entries, 1024).unwrap().entries, 1024);
    }

    #[test]
    fn a_reply_has_room_for_capsules() {
        let reply = Reply { controller_receives: 128 };
        let mut bytes = reply.to_wire().bytes().to_vec();
        assert_eq!(Reply::parse(&bytes), Ok(reply));
        assert_eq!(Reply::parse(&bytes[..31]), Err(Refusal::ShortReply));
        bytes[2] = 0;
        assert_eq!(Reply::parse(&bytes), Err(Refusal::NoReceives));
        bytes[0] = 3;
        assert_eq!(Reply::parse(&bytes), Err(Refusal::ReplyFormat(3)));
    }

    #[test]
    fn a_rejection_may_say_why() {
        let mut bytes = RejectPrivateData::new(RejectStatus::NO_RESOURCES).bytes().to_vec();
        bytes.resize(148, 0);
        let problem = Refusal::of_rejection(&bytes).unwrap();
        assert_eq!(problem, Refusal::Rejected(RejectStatus::NO_RESOURCES));
        assert!(problem.to_string().contains("No Resources"), "{problem}");
        assert_eq!(Refusal::of_rejection(&[]), None);
        assert_eq!(Refusal::of_rejection(&[0; 148]), None);
    }
}
