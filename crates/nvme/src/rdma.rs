//! NVMe/RDMA: the private data of the connection manager's messages.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Reserved, U16};

/// Record Format (RECFMT).
pub const RECORD_FORMAT: u16 = 0;

/// RDMA_CM_REQUEST Private Data (32 bytes).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct RequestPrivateData {
    /// Record Format (RECFMT).
    pub record_format: U16,
    /// Queue ID (QID): 0 for the admin queue.
    pub queue_id: U16,
    /// RDMA QP Host Receive Queue Size (HRQSIZE), in entries.
    pub host_receive_queue_size: U16,
    /// RDMA QP Host Send Queue Size (HSQSIZE), 0's based.
    pub host_send_queue_size: U16,
    /// Controller ID (CNTLID); hosts of before it was defined send zero.
    pub controller_id: U16,
    /// Reserved.
    pub reserved: Reserved<22>,
}

assert_layout!(RequestPrivateData, size 32, record_format at 0, queue_id at 2,
    host_receive_queue_size at 4, host_send_queue_size at 6, controller_id at 8, reserved at 10);

/// RDMA_CM_ACCEPT Private Data (32 bytes).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct AcceptPrivateData {
    /// Record Format (RECFMT).
    pub record_format: U16,
    /// RDMA QP Controller Receive Queue Size (CRQSIZE), in entries.
    pub controller_receive_queue_size: U16,
    /// Reserved.
    pub reserved: Reserved<28>,
}

assert_layout!(AcceptPrivateData, size 32, record_format at 0,
    controller_receive_queue_size at 2, reserved at 4);

/// RDMA_CM_REJECT Private Data (4 bytes).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct RejectPrivateData {
    /// Record Format (RECFMT).
    pub record_format: U16,
    /// Status (STS), see [`RejectPrivateData::reason`].
    pub status: U16,
}

assert_layout!(RejectPrivateData, size 4, record_format at 0, status at 2);

impl RejectPrivateData {
    /// A rejection for this reason.
    #[must_use]
    pub const fn new(status: RejectStatus) -> Self {
        Self { record_format: U16::new(RECORD_FORMAT), status: U16::new(status.0) }
    }

    /// Why the connection was rejected.
    #[must_use]
    pub const fn reason(&self) -> RejectStatus {
        RejectStatus(self.status.get())
    }
}

code_space! {
    /// Status (STS) of an RDMA_CM_REJECT.
    pub struct RejectStatus(pub u16);
    INVALID_PRIVATE_DATA_LENGTH = 0x01, "Invalid Private Data Length";
    INVALID_RECORD_FORMAT = 0x02, "Invalid RECFMT";
    INVALID_QUEUE_ID = 0x03, "Invalid QID";
    INVALID_HOST_SEND_QUEUE_SIZE = 0x04, "Invalid HSQSIZE";
    INVALID_HOST_RECEIVE_QUEUE_SIZE = 0x05, "Invalid HRQSIZE";
    NO_RESOURCES = 0x06, "No Resources";
    INVALID_IRD = 0x07, "Invalid IRD";
    INVALID_ORD = 0x08, "Invalid ORD";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex, hex_padded};

    /// `struct nvme_rdma_cm_req` of Linux, I/O queue 1 of 128 entries: HRQSIZE is the size,
    /// HSQSIZE one less.
    #[test]
    fn request() {
        let vector = hex_padded("0000 0100 8000 7f00 0500", 32);
        check_truncations::<RequestPrivateData>(&vector);
        let request = RequestPrivateData {
            queue_id: U16::new(1),
            host_receive_queue_size: U16::new(128),
            host_send_queue_size: U16::new(127),
            controller_id: U16::new(5),
            ..Default::default()
        };
        assert_eq!(request.bytes(), vector);
    }

    /// `struct nvme_rdma_cm_rep` and `struct nvme_rdma_cm_rej` of Linux.
    #[test]
    fn accept_and_reject() {
        let vector = hex_padded("0000 8000", 32);
        check_truncations::<AcceptPrivateData>(&vector);
        let accept = AcceptPrivateData {
            controller_receive_queue_size: U16::new(128),
            ..Default::default()
        };
        assert_eq!(accept.bytes(), vector);
        let vector = hex("0000 0300");
        check_truncations::<RejectPrivateData>(&vector);
        let reject = RejectPrivateData::new(RejectStatus::INVALID_QUEUE_ID);
        assert_eq!(reject.bytes(), vector);
        assert_eq!(reject.reason(), RejectStatus::INVALID_QUEUE_ID);
    }
}
