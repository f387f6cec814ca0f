//! Writing PDUs: headers with their digest and padding.

use weft_nvme::tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DIGEST_LENGTH, Data, HEADER_LENGTH_MAX, Kind,
    ReadyToTransfer, TerminateRequest,
};
use weft_nvme::wire::{U16, U32};
use weft_nvme::{Command, Completion, Wire};

use super::digest;
use super::error::FatalError;

/// Where a session writes the bytes that it has to send.
pub trait Sink {
    /// Appends `bytes` to what is to be sent.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The header of H2CData, C2HData or R2T: which bytes of which command it is about.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DataPdu {
    /// Command Capsule CID (CCCID).
    pub command_id: u16,
    /// Transfer Tag (TTAG); zero in C2HData.
    pub transfer_tag: u16,
    /// Data Offset (DATAO, R2TO).
    pub offset: u32,
    /// Data Length (DATAL, R2TL).
    pub length: u32,
    /// LAST_PDU; not in R2T.
    pub last: bool,
    /// SUCCESS; only in C2HData.
    pub success: bool,
}

/// The format of sent PDUs, negotiated in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoder {
    header_digest: bool,
    data_digest: bool,
    alignment: usize,
}

/// Room for the longest header with digest and padding, or for a whole termination request.
const SCRATCH_BYTES: usize = 160;

impl Encoder {
    /// An encoder for what the handshake has agreed; `alignment` is the receiver's, in bytes.
    #[must_use]
    pub const fn new(header_digest: bool, data_digest: bool, alignment: usize) -> Self {
        Self { header_digest, data_digest, alignment }
    }

    /// The digest that follows `payload`, if the connection has data digests.
    #[must_use]
    pub fn data_digest(&self, payload: &[u8]) -> Option<[u8; 4]> {
        self.data_digest.then(|| digest::of(payload))
    }

    /// CapsuleCmd; `data_length` bytes of in-capsule data are to follow.
    pub fn put_command(&self, command: &Command, data_length: u32, sink: &mut impl Sink) {
        let (common, end) = self.common(Kind::CapsuleCommand, data_length);
        self.put(&CapsuleCommand { common, command: *command }, end, sink);
    }

    /// CapsuleResp.
    pub fn put_response(&self, completion: &Completion, sink: &mut impl Sink) {
        let (common, end) = self.common(Kind::CapsuleResponse, 0);
        self.put(&CapsuleResponse { common, completion: *completion }, end, sink);
    }

    /// H2CData or C2HData; `pdu.length` bytes are to follow.
    pub fn put_data(&self, kind: Kind, pdu: &DataPdu, sink: &mut impl Sink) {
        let (mut common, end) = self.common(kind, pdu.length);
        common.flags = common.flags.with_last(pdu.last).with_success(pdu.success);
        let header = Data {
            common,
            command_id: U16::new(pdu.command_id),
            transfer_tag: U16::new(pdu.transfer_tag),
            offset: U32::new(pdu.offset),
            length: U32::new(pdu.length),
            reserved: [0; 4],
        };
        self.put(&header, end, sink);
    }

    /// R2T.
    pub fn put_ready_to_transfer(&self, pdu: &DataPdu, sink: &mut impl Sink) {
        let (common, end) = self.common(Kind::ReadyToTransfer, 0);
        let header = ReadyToTransfer {
            common,
            command_id: U16::new(pdu.command_id),
            transfer_tag: U16::new(pdu.transfer_tag),
            offset: U32::new(pdu.offset),
            length: U32::new(pdu.length),
            reserved: [0; 4],
        };
        self.put(&header, end, sink);
    }

    /// The common header of a PDU with `data_length` bytes of data, and where the data begins.
    fn common(&self, kind: Kind, data_length: u32) -> (CommonHeader, usize) {
        let mut common = CommonHeader::bare(kind);
        let mut end = usize::from(kind.header_length());
        if self.header_digest {
            common.flags = common.flags.with_header_digest(true);
            end += DIGEST_LENGTH;
        }
        let mut length = data_length;
        if data_length > 0 {
            end = end.next_multiple_of(self.alignment);
            // At most 144 (a header of 76 bytes aligned to 72): fits in PDO.
            common.data_offset = u8::try_from(end).unwrap_or(u8::MAX);
            if self.data_digest {
                common.flags = common.flags.with_data_digest(true);
                length = length.saturating_add(4);
            }
        }
        let header_length = u32::try_from(end).unwrap_or(u32::MAX);
        common.pdu_length = U32::new(length.saturating_add(header_length));
        (common, end)
    }

    /// Writes `header`, its digest, and zeros up to `end`.
    fn put<H: Wire>(&self, header: &H, end: usize, sink: &mut impl Sink) {
        let mut scratch = [0u8; SCRATCH_BYTES];
        let bytes = header.bytes();
        let (head, tail) = scratch.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        if self.header_digest {
            tail[..DIGEST_LENGTH].copy_from_slice(&digest::of(bytes));
        }
        sink.put(&scratch[..end]);
    }
}

/// H2CTermReq or C2HTermReq: `error`, and the header in which it was found.
pub fn put_termination(kind: Kind, error: &FatalError, header: &[u8], sink: &mut impl Sink) {
    let header = &header[..header.len().min(HEADER_LENGTH_MAX)];
    let request = TerminateRequest::new(kind, error.status, error.information, header.len());
    let mut scratch = [0u8; SCRATCH_BYTES];
    let end = TerminateRequest::SIZE + header.len();
    scratch[..TerminateRequest::SIZE].copy_from_slice(request.bytes());
    scratch[TerminateRequest::SIZE..end].copy_from_slice(header);
    sink.put(&scratch[..end]);
}
