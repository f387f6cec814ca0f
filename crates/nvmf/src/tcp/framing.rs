//! Cutting a stream of bytes into PDUs.
//!
//! ```text
//!          8 bytes            HLEN, digest           PDO            all data
//! Common ----------> Header ----------------> Padding ----> Data ------------> DataDigest
//!    ^                  | no data                            | no data digest      | 4 bytes
//!    +------------------+------------------------------------+---- End <-----------+
//! ```
//!
//! A PDU without data yields its [`Header`] and nothing else. One with data yields its header,
//! pieces of data as they arrive, and an end with the result of the data digest.

use weft_nvme::tcp::{
    COMMON_HEADER_LENGTH, CapsuleCommand, CapsuleResponse, CommonHeader, DIGEST_LENGTH, Data,
    Direction, Fes, HEADER_LENGTH_MAX, Kind, PduType, ReadyToTransfer, TerminateRequest,
};
use weft_nvme::{Command, Completion, Wire};

use super::digest::{self, Digest};
use super::encode::DataPdu;
use super::error::FatalError;

/// Byte offsets of header fields that are checked here.
const PDU_TYPE: u32 = 0;
const FLAGS: u32 = 1;
const DATA_OFFSET: u32 = 3;
const PDU_LENGTH: u32 = 4;
const DATA_LENGTH: u32 = 16;

/// A header whose every field has been checked on its own and against the others.
///
/// What is large stays with the parser: [`Framing::layout`] reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// ICReq, an [`weft_nvme::tcp::InitializeConnectionRequest`].
    Request,
    /// ICResp, an [`weft_nvme::tcp::InitializeConnectionResponse`].
    Response,
    /// H2CTermReq or C2HTermReq.
    Terminate {
        /// Fatal Error Status (FES).
        status: Fes,
        /// Fatal Error Information (FEI).
        information: u32,
    },
    /// CapsuleCmd, a [`weft_nvme::tcp::CapsuleCommand`].
    Command {
        /// Bytes of in-capsule data.
        data_length: u32,
    },
    /// CapsuleResp.
    Completion(Completion),
    /// H2CData or C2HData. Offset and length do not overflow together.
    Data(DataPdu),
    /// R2T.
    ReadyToTransfer(DataPdu),
}

/// What the stream yields next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// Nothing: all input has been taken.
    Starved,
    /// The header of the next PDU.
    Header(Header),
    /// The next piece of the PDU's data, never empty.
    Data {
        /// Bytes of the PDU's data before this piece.
        offset: u32,
        /// The bytes, as they lie in the input.
        piece: &'a [u8],
    },
    /// The end of a PDU that had data.
    End {
        /// Whether the data digest fits the data, or there was none.
        intact: bool,
    },
}

/// The format of received PDUs, negotiated in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Header digests follow headers.
    pub header_digest: bool,
    /// Data digests follow data.
    pub data_digest: bool,
    /// Alignment of data (the receiver's HPDA or CPDA), in bytes.
    pub alignment: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Between PDUs.
    Start,
    /// Collecting the common header.
    Common,
    /// Collecting the rest of the header and its digest.
    Header(Shape),
    /// Skipping to PDO.
    Padding { left: usize },
    /// In the data.
    Data,
    /// Collecting the data digest.
    DataDigest { received: [u8; DIGEST_LENGTH], filled: usize },
    /// Behind the last byte of a PDU with data.
    End { intact: bool },
}

/// Where the parts of a PDU end, from its common header.
#[derive(Debug, Clone, Copy)]
struct Shape {
    kind: Kind,
    has_digest: bool,
    header_end: usize,
    padding: usize,
    data_length: u32,
}

/// A valid common header, and the shape of its PDU.
type CheckedHeader = ([u8; COMMON_HEADER_LENGTH], Shape);

/// How many of these are kept: enough for PDUs that come in turns.
const KNOWN: usize = 4;

/// The parser of one direction of a connection.
#[derive(Debug)]
pub struct Framing {
    direction: Direction,
    parameters: Parameters,
    state: State,
    /// The latest common header of each PDU type, mostly the same as the next. No two types of a
    /// direction with which commands are carried out share a place.
    known: [Option<CheckedHeader>; KNOWN],
    header: [u8; HEADER_LENGTH_MAX],
    filled: usize,
    offset: u32,
    remaining: u32,
    digested: bool,
    digest: Digest,
}

impl Framing {
    /// A parser of what is sent in `direction`, before the handshake.
    #[must_use]
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            parameters: Parameters { header_digest: false, data_digest: false, alignment: 4 },
            state: State::Start,
            known: [None; KNOWN],
            header: [0; HEADER_LENGTH_MAX],
            filled: 0,
            offset: 0,
            remaining: 0,
            digested: false,
            digest: Digest::new(),
        }
    }

    /// The format of PDUs from the next one on.
    pub fn set_parameters(&mut self, parameters: Parameters) {
        self.parameters = parameters;
        self.known = [None; KNOWN];
    }

    /// Takes input up to the next event.
    ///
    /// To be called until it returns [`Progress::Starved`], with an empty input too: the end of a
    /// PDU may be due without another byte. After an error its results are meaningless.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Progress<'a>, FatalError> {
        match self.state {
            State::Start if input.is_empty() => Ok(Progress::Starved),
            State::Data => Ok(self.next_piece(input)),
            State::End { intact } => {
                self.state = State::Start;
                Ok(Progress::End { intact })
            }
            State::DataDigest { received, filled } => {
                Ok(self.collect_data_digest(received, filled, input))
            }
            State::Start | State::Common | State::Header(_) => self.next_header(input),
            State::Padding { left } => Ok(self.skip_padding(left, input)),
        }
    }

    /// The command that this input begins with, if it is complete. Nothing is taken or checked.
    #[must_use]
    pub fn peek_command<'a>(&self, input: &'a [u8]) -> Option<&'a Command> {
        let capsule = CapsuleCommand::view(input).ok()?;
        let is_command = capsule.common.pdu_type == PduType::CAPSULE_COMMAND;
        (is_command && matches!(self.state, State::Start)).then_some(&capsule.command)
    }

    /// The position inside a PDU's data: bytes before it, and bytes still to be received.
    ///
    /// Only between a header or piece and the end, when no padding is in the way.
    #[must_use]
    pub fn direct(&self) -> Option<(u32, u32)> {
        match self.state {
            State::Data if self.remaining > 0 => Some((self.offset, self.remaining)),
            _ => None,
        }
    }

    /// The next bytes of data went past the parser to where they belong: `piece`, which is no
    /// longer than what [`Framing::direct`] said; what is beyond is ignored.
    pub fn handle_direct(&mut self, piece: &[u8]) {
        if self.direct().is_some() {
            let limit = usize::try_from(self.remaining).unwrap_or(usize::MAX);
            self.advance(&piece[..piece.len().min(limit)]);
        }
    }

    /// The header of the latest PDU, as a layout that must be the one of its type.
    pub fn layout<T: Wire>(&self) -> Result<&T, FatalError> {
        view(&self.header)
    }

    /// As much of the header of the current or the latest PDU as has come, for a termination
    /// request; without its digest.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        // HLEN may be what is wrong: the common header is in the request whatever it says.
        let length = match self.header.get(2) {
            Some(length) => usize::from(*length).max(COMMON_HEADER_LENGTH),
            None => self.filled,
        };
        &self.header[..self.filled.min(length)]
    }

    /// Collects a header and checks it.
    fn next_header<'a>(&mut self, input: &mut &'a [u8]) -> Result<Progress<'a>, FatalError> {
        let known = match self.state {
            State::Header(shape) => Some(shape),
            State::Start => {
                self.filled = 0;
                // Usually the header is complete and valid: then it is collected at once.
                self.expect(input)
            }
            _ => None,
        };
        let shape = match known {
            Some(shape) => shape,
            None if self.collect(COMMON_HEADER_LENGTH, input) => self.shape(self.layout()?)?,
            None => {
                self.state = State::Common;
                return Ok(Progress::Starved);
            }
        };
        if !self.collect(shape.header_end, input) {
            self.state = State::Header(shape);
            return Ok(Progress::Starved);
        }
        self.finish_header(shape).map(Progress::Header)
    }

    /// The shape of the PDU that the input begins with, if its common header is complete and valid.
    fn expect(&mut self, input: &[u8]) -> Option<Shape> {
        let bytes = input.first_chunk::<COMMON_HEADER_LENGTH>()?;
        let place = usize::from(bytes[0] >> 1) % KNOWN;
        if let Some((known, shape)) = &self.known[place]
            && known == bytes
        {
            return Some(*shape);
        }
        let shape = self.shape(CommonHeader::view(bytes).ok()?).ok()?;
        self.known[place] = Some((*bytes, shape));
        Some(shape)
    }

    /// Fills the header up to `wanted` bytes; false if there are not enough.
    fn collect(&mut self, wanted: usize, input: &mut &[u8]) -> bool {
        let taken = wanted.saturating_sub(self.filled).min(input.len());
        let (head, tail) = input.split_at(taken);
        self.header[self.filled..self.filled + taken].copy_from_slice(head);
        self.filled += taken;
        *input = tail;
        self.filled == wanted
    }

    /// Skips up to PDO, and goes on with the data.
    fn skip_padding<'a>(&mut self, left: usize, input: &mut &'a [u8]) -> Progress<'a> {
        let skipped = left.min(input.len());
        *input = &input[skipped..];
        if skipped < left {
            self.state = State::Padding { left: left - skipped };
            return Progress::Starved;
        }
        self.state = State::Data;
        self.next_piece(input)
    }

    /// Checks the common header against what was agreed.
    fn shape(&self, common: &CommonHeader) -> Result<Shape, FatalError> {
        let kind = Kind::check(common)
            .map_err(|error| FatalError::common_header(error, common.bytes()))?;
        if kind.direction() != self.direction {
            return Err(FatalError::field(PDU_TYPE, "PDU type is one that only this side sends"));
        }
        let has_digest = kind.has_header_digest() && self.parameters.header_digest;
        if kind.has_header_digest() && common.flags.header_digest() != has_digest {
            return Err(FatalError::field(FLAGS, "HDGSTF is not what was agreed"));
        }
        let header_length = usize::from(kind.header_length());
        let header_end = header_length + if has_digest { DIGEST_LENGTH } else { 0 };
        let length = usize::try_from(common.pdu_length.get()).unwrap_or(usize::MAX);
        let behind = length
            .checked_sub(header_end)
            .ok_or(FatalError::field(PDU_LENGTH, "PLEN has no room for the header digest"))?;
        let shape = Shape { kind, has_digest, header_end, padding: 0, data_length: 0 };
        if !kind.has_data() {
            // Kind::check has bounded it: zero, but for the header in a termination request.
            return Ok(Shape { data_length: u32::try_from(behind).unwrap_or(0), ..shape });
        }
        if behind == 0 {
            if kind.requires_data() {
                return Err(FatalError::field(PDU_LENGTH, "PLEN has no room for data"));
            }
            return Ok(shape);
        }
        if common.flags.data_digest() != self.parameters.data_digest {
            return Err(FatalError::field(FLAGS, "DDGSTF is not what was agreed"));
        }
        let data_offset = usize::from(common.data_offset);
        if data_offset < header_end || !data_offset.is_multiple_of(self.parameters.alignment) {
            return Err(FatalError::field(DATA_OFFSET, "PDO is inside the header or not aligned"));
        }
        let trailer = if self.parameters.data_digest { DIGEST_LENGTH } else { 0 };
        match length.checked_sub(data_offset + trailer).map(u32::try_from) {
            Some(Ok(data_length)) if data_length > 0 => {
                Ok(Shape { padding: data_offset - header_end, data_length, ..shape })
            }
            _ => Err(FatalError::field(PDU_LENGTH, "PLEN has no room for data behind PDO")),
        }
    }

    /// Checks the header's digest and parses it.
    fn finish_header(&mut self, shape: Shape) -> Result<Header, FatalError> {
        let header_length = usize::from(shape.kind.header_length());
        if shape.has_digest {
            let (header, digest) = self.header[..shape.header_end].split_at(header_length);
            if digest::of(header) != *digest {
                let mut received = [0; DIGEST_LENGTH];
                received.copy_from_slice(digest);
                return Err(FatalError::header_digest(received));
            }
        }
        let header = parse(shape.kind, &self.header, shape.data_length)?;
        self.offset = 0;
        self.remaining = shape.data_length;
        self.digested = shape.kind.has_data() && self.parameters.data_digest;
        self.state = match shape {
            Shape { data_length: 0, .. } => State::Start,
            Shape { padding: 0, .. } => State::Data,
            Shape { padding, .. } => State::Padding { left: padding },
        };
        Ok(header)
    }

    fn next_piece<'a>(&mut self, input: &mut &'a [u8]) -> Progress<'a> {
        let limit = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let (piece, rest) = input.split_at(limit.min(input.len()));
        if piece.is_empty() {
            return Progress::Starved;
        }
        *input = rest;
        let offset = self.offset;
        self.advance(piece);
        Progress::Data { offset, piece }
    }

    /// Counts `piece`, which is not longer than what remains, and digests it.
    fn advance(&mut self, piece: &[u8]) {
        if self.digested {
            self.digest.update(piece);
        }
        let length = u32::try_from(piece.len()).unwrap_or(u32::MAX).min(self.remaining);
        self.offset += length;
        self.remaining -= length;
        if self.remaining == 0 {
            self.state = if self.digested {
                State::DataDigest { received: [0; DIGEST_LENGTH], filled: 0 }
            } else {
                State::End { intact: true }
            };
        }
    }

    /// Fills the data digest, and ends the PDU.
    fn collect_data_digest<'a>(
        &mut self,
        mut received: [u8; DIGEST_LENGTH],
        filled: usize,
        input: &mut &'a [u8],
    ) -> Progress<'a> {
        let taken = (DIGEST_LENGTH - filled).min(input.len());
        let (head, tail) = input.split_at(taken);
        received[filled..filled + taken].copy_from_slice(head);
        *input = tail;
        let filled = filled + taken;
        if filled < DIGEST_LENGTH {
            self.state = State::DataDigest { received, filled };
            return Progress::Starved;
        }
        self.state = State::Start;
        Progress::End { intact: self.digest.finish() == received }
    }
}

/// Parses a header of which all bytes are there.
fn parse(kind: Kind, bytes: &[u8], data_length: u32) -> Result<Header, FatalError> {
    Ok(match kind {
        Kind::InitializeConnectionRequest => Header::Request,
        Kind::InitializeConnectionResponse => Header::Response,
        Kind::H2CTerminateRequest | Kind::C2HTerminateRequest => {
            let request: &TerminateRequest = view(bytes)?;
            Header::Terminate {
                status: request.status(),
                information: request.fatal_error_information.get(),
            }
        }
        Kind::CapsuleCommand => Header::Command { data_length },
        Kind::CapsuleResponse => Header::Completion(view::<CapsuleResponse>(bytes)?.completion),
        Kind::H2CData | Kind::C2HData => parse_data(view(bytes)?, data_length)?,
        Kind::ReadyToTransfer => {
            let request: &ReadyToTransfer = view(bytes)?;
            Header::ReadyToTransfer(DataPdu {
                command_id: request.command_id.get(),
                transfer_tag: request.transfer_tag.get(),
                offset: request.offset.get(),
                length: request.length.get(),
                ..DataPdu::default()
            })
        }
    })
}

fn parse_data(header: &Data, data_length: u32) -> Result<Header, FatalError> {
    let (offset, length) = (header.offset.get(), header.length.get());
    if length != data_length {
        return Err(FatalError::field(DATA_LENGTH, "DATAL is not the length of the data"));
    }
    if offset.checked_add(length).is_none() {
        return Err(FatalError::out_of_range("DATAO and DATAL overflow"));
    }
    Ok(Header::Data(DataPdu {
        command_id: header.command_id.get(),
        transfer_tag: header.transfer_tag.get(),
        offset,
        length,
        last: header.common.flags.last(),
        success: header.common.flags.success(),
    }))
}

/// A layout in the header buffer, which is as long as the longest of them.
fn view<T: Wire>(bytes: &[u8]) -> Result<&T, FatalError> {
    T::view(bytes).map_err(|_| FatalError::field(PDU_LENGTH, "header is truncated"))
}
