//! The controller's side of a connection.
//!
//! A slot goes through these states:
//!
//! ```text
//!          CapsuleCmd with data        end of data
//!   Free ---------------------> Capsule ---------> Owned --- release ---> Free
//!     |        CapsuleCmd without data               ^ |
//!     +----------------------------------------------+ | request_data (R2T)
//!                                                    | v
//!                                       last H2CData Receiving
//! ```

use weft_nvme::tcp::{CapsuleCommand, Direction, Fes, Kind};
use weft_nvme::{Command, Completion, Wire};

use super::encode::{self, DataPdu, Encoder, Sink};
use super::error::FatalError;
use super::framing::{Framing, Header, Parameters, Progress};
use super::handshake::{ControllerParameters, Negotiated};
use super::limits::{
    ADMIN_IN_CAPSULE_BYTES, C2H_DATA_BYTES_DEFAULT, IN_CAPSULE_BYTES_DEFAULT,
    MAXIMUM_H2C_DATA_DEFAULT, R2T_BYTES_DEFAULT, R2T_OUTSTANDING_MAX, SLOT_BITS,
    SLOTS_BEFORE_CONNECT, SLOTS_MAX,
};

/// Byte offsets of header fields that are checked here.
const FLAGS: u32 = 1;
const CAPSULE_COMMAND_ID: u32 = 10;
const DATA_COMMAND_ID: u32 = 8;
const TRANSFER_TAG: u32 = 10;

/// Words of a set of command identifiers.
const COMMAND_ID_WORDS: usize = (1 << 16) / 64;

/// Configuration of the controller's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Its parameters in the handshake.
    pub parameters: ControllerParameters,
    /// In-capsule data that it takes (never less than [`ADMIN_IN_CAPSULE_BYTES`]).
    pub in_capsule_bytes: u32,
    /// Data that it asks for with one R2T.
    pub r2t_bytes: u32,
    /// Data that it sends with one C2HData PDU.
    pub c2h_data_bytes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            parameters: ControllerParameters {
                header_digest: true,
                data_digest: true,
                controller_data_alignment: 0,
                maximum_h2c_data: MAXIMUM_H2C_DATA_DEFAULT,
            },
            in_capsule_bytes: IN_CAPSULE_BYTES_DEFAULT,
            r2t_bytes: R2T_BYTES_DEFAULT,
            c2h_data_bytes: C2H_DATA_BYTES_DEFAULT,
        }
    }
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent<'a> {
    /// Nothing more: all input has been taken.
    Starved,
    /// ICReq; ICResp has been written to the sink.
    Initialized(Negotiated),
    /// A command, which is [`Session::command`]. If it has in-capsule data, pieces and
    /// [`SessionEvent::CapsuleEnd`] follow.
    Command {
        /// The command's slot, until [`Session::release`].
        slot: u16,
        /// Bytes of in-capsule data.
        data_length: u32,
    },
    /// A piece of a command's data.
    Data {
        /// The command's slot.
        slot: u16,
        /// Where the piece belongs in the command's data.
        offset: u32,
        /// The bytes, as they lie in the input.
        piece: &'a [u8],
    },
    /// All in-capsule data of a command has come.
    CapsuleEnd {
        /// The command's slot.
        slot: u16,
        /// Whether the data digest fits.
        intact: bool,
    },
    /// All data that [`Session::request_data`] asked for has come.
    TransferEnd {
        /// The command's slot.
        slot: u16,
        /// Whether every data digest fits.
        intact: bool,
    },
    /// The host terminates the connection.
    Terminated {
        /// Fatal Error Status (FES).
        status: Fes,
        /// Fatal Error Information (FEI).
        information: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitingRequest,
    Ready,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotPhase {
    Free,
    Capsule,
    Owned,
    Receiving,
}

/// An R2T and how much of it has been answered.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    offset: u32,
    length: u32,
    received: u32,
}

#[derive(Debug)]
struct Slot {
    command_id: u16,
    phase: SlotPhase,
    intact: bool,
    length: u32,
    requested: u32,
    received: u32,
    outstanding: [Option<Request>; R2T_OUTSTANDING_MAX],
}

/// What the data that comes in belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    /// No command: the data of a termination request.
    None,
    Capsule {
        slot: u16,
    },
    Transfer {
        slot: u16,
        index: usize,
        offset: u32,
        length: u32,
    },
}

/// The controller's side of one connection.
#[derive(Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    framing: Framing,
    encoder: Encoder,
    negotiated: Option<Negotiated>,
    sq_flow_control: bool,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// The command identifiers in flight, if none may be used twice: a bit for each.
    command_ids: Vec<u64>,
    current: Current,
}

impl Session {
    /// A session that awaits ICReq.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut session = Self {
            config,
            phase: Phase::AwaitingRequest,
            framing: Framing::new(Direction::HostToController),
            encoder: Encoder::new(false, false, 4),
            negotiated: None,
            sq_flow_control: true,
            slots: Vec::new(),
            free: Vec::new(),
            command_ids: Vec::new(),
            current: Current::None,
        };
        session.add_slots(SLOTS_BEFORE_CONNECT);
        session
    }

    /// After Connect: which queue it is, how many commands may be in flight, and whether the queue
    /// uses SQ flow control (if it does not, a read's last C2HData stands for its completion as
    /// well).
    ///
    /// The number only grows, to [`SLOTS_MAX`] at most. On an I/O queue a command identifier that
    /// is in flight ends the session: the host could not tell the two commands apart, and a status
    /// or data could reach the wrong one. On the admin queue the controller decides: a host may
    /// have given up an Asynchronous Event Request that is still pending.
    pub fn set_queue(&mut self, queue_id: u16, depth: u16, sq_flow_control: bool) {
        self.sq_flow_control = sq_flow_control;
        self.add_slots(depth.min(SLOTS_MAX));
        if queue_id != 0 {
            self.command_ids.resize(COMMAND_ID_WORDS, 0);
        }
    }

    /// The negotiated parameters, after the handshake.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Commands that have a slot.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The submission queue entry of the latest [`SessionEvent::Command`], until more is taken.
    #[must_use]
    pub fn command(&self) -> Option<&Command> {
        self.framing.layout().ok().map(|capsule: &CapsuleCommand| &capsule.command)
    }

    /// The command that this input begins with, if it is complete. Nothing is taken or checked.
    #[must_use]
    pub fn peek_command<'a>(&self, input: &'a [u8]) -> Option<&'a Command> {
        self.framing.peek_command(input)
    }

    /// Takes input up to the next event; what is to be sent goes to `sink`.
    ///
    /// To be called until it returns [`SessionEvent::Starved`]. After an error or
    /// [`SessionEvent::Terminated`] all input is ignored.
    pub fn handle_input<'a>(
        &mut self,
        input: &mut &'a [u8],
        sink: &mut impl Sink,
    ) -> Result<SessionEvent<'a>, FatalError> {
        loop {
            if self.phase == Phase::Ended {
                *input = &[];
                return Ok(SessionEvent::Starved);
            }
            let received = match self.framing.next(input) {
                Ok(Progress::Starved) => return Ok(SessionEvent::Starved),
                Ok(Progress::Header(header)) => self.handle_header(header, sink),
                Ok(Progress::Data { offset, piece }) => Ok(self.handle_data(offset, piece)),
                Ok(Progress::End { intact }) => Ok(self.handle_end(intact, sink)),
                Err(error) => Err(error),
            };
            match received {
                Ok(Some(received)) => return Ok(received),
                Ok(None) => {}
                Err(error) => {
                    self.phase = Phase::Ended;
                    return Err(error);
                }
            }
        }
    }

    /// Where the next data that comes in belongs: slot, offset, and length of the rest of the
    /// PDU's data.
    #[must_use]
    pub fn direct(&self) -> Option<(u16, u32, u32)> {
        let (done, remaining) = self.framing.direct()?;
        match self.current {
            Current::None => None,
            Current::Capsule { slot } => Some((slot, done, remaining)),
            Current::Transfer { slot, offset, .. } => Some((slot, offset + done, remaining)),
        }
    }

    /// The next bytes of data were received straight to where [`Session::direct`] said.
    pub fn handle_direct(&mut self, piece: &[u8]) {
        self.framing.handle_direct(piece);
    }

    /// Asks for `length` bytes of a command's data, in as many R2Ts as it takes.
    /// [`SessionEvent::TransferEnd`] says that all of it has come; until then the slot must not be
    /// released.
    pub fn request_data(&mut self, slot: u16, length: u32, sink: &mut impl Sink) {
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else { return };
        debug_assert!(entry.phase == SlotPhase::Owned && length > 0);
        entry.phase = SlotPhase::Receiving;
        entry.intact = true;
        entry.length = length;
        entry.requested = 0;
        entry.received = 0;
        self.request_more(slot, sink);
    }

    /// Asks for no more of a command's data than has been asked for already. Returns whether
    /// [`SessionEvent::TransferEnd`] is still to come before the slot can be released.
    pub fn abandon(&mut self, slot: u16) -> bool {
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else { return false };
        entry.length = entry.requested;
        entry.phase == SlotPhase::Receiving
    }

    /// Data of one C2HData PDU at most.
    #[must_use]
    pub fn c2h_data_bytes(&self) -> u32 {
        self.config.c2h_data_bytes.max(4)
    }

    /// Whether the last C2HData PDU of a command may stand for `completion` as well: SQ flow
    /// control is off, and the completion holds nothing else that the host needs.
    #[must_use]
    pub fn success_suffices(&self, completion: &Completion) -> bool {
        !self.sq_flow_control && completion.status().is_success() && completion.result.get() == 0
    }

    /// C2HData for the command in `slot`, whose identifier is filled in; the payload and then its
    /// [`Session::data_digest`] are to follow.
    pub fn put_data(&self, slot: u16, pdu: DataPdu, sink: &mut impl Sink) {
        let Some(entry) = self.slots.get(usize::from(slot)) else { return };
        let pdu = DataPdu { command_id: entry.command_id, transfer_tag: 0, ..pdu };
        self.encoder.put_data(Kind::C2HData, &pdu, sink);
    }

    /// The digest that follows `payload`, if the connection has data digests.
    #[must_use]
    pub fn data_digest(&self, payload: &[u8]) -> Option<[u8; 4]> {
        self.encoder.data_digest(payload)
    }

    /// CapsuleResp.
    pub fn put_response(&self, completion: &Completion, sink: &mut impl Sink) {
        self.encoder.put_response(completion, sink);
    }

    /// The command is done: its slot and its command identifier are free.
    pub fn release(&mut self, slot: u16) {
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else { return };
        debug_assert!(entry.phase == SlotPhase::Owned);
        if entry.phase == SlotPhase::Free {
            return;
        }
        entry.phase = SlotPhase::Free;
        let command_id = entry.command_id;
        if let Some(word) = self.command_ids.get_mut(usize::from(command_id / 64)) {
            *word &= !(1 << (command_id % 64));
        }
        self.free.push(slot);
    }

    /// C2HTermReq for `error`, which was just found. All further input is ignored.
    pub fn terminate(&mut self, error: &FatalError, sink: &mut impl Sink) {
        self.phase = Phase::Ended;
        encode::put_termination(Kind::C2HTerminateRequest, error, self.framing.header(), sink);
    }

    fn add_slots(&mut self, depth: u16) {
        let first = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        self.slots.reserve_exact(usize::from(depth.saturating_sub(first)));
        self.free.reserve_exact(usize::from(depth.saturating_sub(first)));
        // The lowest slot is taken first.
        self.free.splice(0..0, (first..depth).rev());
        for _ in first..depth {
            self.slots.push(Slot {
                command_id: 0,
                phase: SlotPhase::Free,
                intact: true,
                length: 0,
                requested: 0,
                received: 0,
                outstanding: [None; R2T_OUTSTANDING_MAX],
            });
        }
    }

    fn handle_header<'a>(
        &mut self,
        header: Header,
        sink: &mut impl Sink,
    ) -> Result<Option<SessionEvent<'a>>, FatalError> {
        match (self.phase, header) {
            (_, Header::Terminate { status, information }) => {
                self.phase = Phase::Ended;
                self.current = Current::None;
                Ok(Some(SessionEvent::Terminated { status, information }))
            }
            (Phase::AwaitingRequest, Header::Request) => self.handle_request(sink).map(Some),
            (Phase::AwaitingRequest, _) => Err(FatalError::sequence("a PDU came before ICReq")),
            (_, Header::Request) => Err(FatalError::sequence("a second ICReq came")),
            (_, Header::Command { data_length }) => self.handle_command(data_length).map(Some),
            (_, Header::Data(data)) => self.handle_data_header(&data).map(|()| None),
            (_, Header::Response | Header::Completion(_) | Header::ReadyToTransfer { .. }) => {
                Err(FatalError::field(0, "PDU type is one that only this side sends"))
            }
        }
    }

    fn handle_request<'a>(&mut self, sink: &mut impl Sink) -> Result<SessionEvent<'a>, FatalError> {
        let (response, negotiated) = self.config.parameters.answer(self.framing.layout()?)?;
        sink.put(response.bytes());
        self.framing.set_parameters(Parameters {
            header_digest: negotiated.header_digest,
            data_digest: negotiated.data_digest,
            alignment: negotiated.controller_alignment,
        });
        self.encoder = Encoder::new(
            negotiated.header_digest,
            negotiated.data_digest,
            negotiated.host_alignment,
        );
        self.negotiated = Some(negotiated);
        self.phase = Phase::Ready;
        Ok(SessionEvent::Initialized(negotiated))
    }

    fn handle_command<'a>(&mut self, data_length: u32) -> Result<SessionEvent<'a>, FatalError> {
        let command_id = self.framing.layout::<CapsuleCommand>()?.command.command_id.get();
        if data_length > self.config.in_capsule_bytes.max(ADMIN_IN_CAPSULE_BYTES) {
            return Err(FatalError::limit("in-capsule data is longer than IOCCSZ allows"));
        }
        if let Some(word) = self.command_ids.get_mut(usize::from(command_id / 64)) {
            let bit = 1 << (command_id % 64);
            if *word & bit != 0 {
                return Err(FatalError::field(
                    CAPSULE_COMMAND_ID,
                    "command identifier is in flight",
                ));
            }
            *word |= bit;
        }
        let Some(slot) = self.free.pop() else {
            return Err(FatalError::sequence("more commands than the queue has entries"));
        };
        let entry = &mut self.slots[usize::from(slot)];
        entry.command_id = command_id;
        entry.phase = if data_length > 0 { SlotPhase::Capsule } else { SlotPhase::Owned };
        self.current = if data_length > 0 { Current::Capsule { slot } } else { Current::None };
        Ok(SessionEvent::Command { slot, data_length })
    }

    fn handle_data_header(&mut self, data: &DataPdu) -> Result<(), FatalError> {
        let slot = data.transfer_tag & SLOTS_MAX;
        let index = usize::from(data.transfer_tag >> SLOT_BITS);
        let unknown = FatalError::field(TRANSFER_TAG, "transfer tag is not one of an R2T");
        let entry = self.slots.get(usize::from(slot)).ok_or(unknown)?;
        if entry.phase != SlotPhase::Receiving {
            return Err(unknown);
        }
        let request = entry.outstanding.get(index).and_then(Option::as_ref).ok_or(unknown)?;
        if entry.command_id != data.command_id {
            return Err(FatalError::field(
                DATA_COMMAND_ID,
                "CCCID is not that of the transfer tag",
            ));
        }
        let maximum = self.negotiated.map_or(0, |negotiated| negotiated.maximum_h2c_data);
        if data.length > maximum {
            return Err(FatalError::limit("H2CData is longer than MAXH2CDATA"));
        }
        if data.offset != request.offset + request.received {
            return Err(FatalError::out_of_range("H2CData does not follow the previous one"));
        }
        let left = request.length - request.received;
        if data.length > left {
            return Err(FatalError::out_of_range("H2CData goes beyond what the R2T asked for"));
        }
        if data.last != (data.length == left) {
            return Err(FatalError::field(FLAGS, "LAST_PDU is not on the last PDU of the R2T"));
        }
        self.current = Current::Transfer { slot, index, offset: data.offset, length: data.length };
        Ok(())
    }

    fn handle_data<'a>(&mut self, done: u32, piece: &'a [u8]) -> Option<SessionEvent<'a>> {
        match self.current {
            Current::None => None,
            Current::Capsule { slot } => Some(SessionEvent::Data { slot, offset: done, piece }),
            Current::Transfer { slot, offset, .. } => {
                Some(SessionEvent::Data { slot, offset: offset + done, piece })
            }
        }
    }

    fn handle_end<'a>(&mut self, intact: bool, sink: &mut impl Sink) -> Option<SessionEvent<'a>> {
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => None,
            Current::Capsule { slot } => {
                let entry = self.slots.get_mut(usize::from(slot))?;
                entry.phase = SlotPhase::Owned;
                Some(SessionEvent::CapsuleEnd { slot, intact })
            }
            Current::Transfer { slot, index, length, .. } => {
                self.slots.get_mut(usize::from(slot))?.intact &= intact;
                self.finish_data(slot, index, length, sink)
            }
        }
    }

    /// Counts an H2CData PDU; what it completes may make room for the next R2T.
    fn finish_data<'a>(
        &mut self,
        slot: u16,
        index: usize,
        length: u32,
        sink: &mut impl Sink,
    ) -> Option<SessionEvent<'a>> {
        let entry = self.slots.get_mut(usize::from(slot))?;
        let outstanding = entry.outstanding.get_mut(index)?;
        let request = outstanding.as_mut()?;
        request.received += length;
        if request.received < request.length {
            return None;
        }
        entry.received += request.length;
        *outstanding = None;
        if entry.received < entry.length {
            self.request_more(slot, sink);
            return None;
        }
        entry.phase = SlotPhase::Owned;
        Some(SessionEvent::TransferEnd { slot, intact: entry.intact })
    }

    fn request_more(&mut self, slot: u16, sink: &mut impl Sink) {
        let limit = self.negotiated.map_or(1, |negotiated| negotiated.maximum_r2t);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(R2T_OUTSTANDING_MAX);
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else { return };
        for (index, outstanding) in (0u16..).zip(&mut entry.outstanding[..limit]) {
            let length = (entry.length - entry.requested).min(self.config.r2t_bytes.max(4));
            if length == 0 {
                return;
            }
            if outstanding.is_none() {
                let request = Request { offset: entry.requested, length, received: 0 };
                *outstanding = Some(request);
                entry.requested += length;
                let pdu = DataPdu {
                    command_id: entry.command_id,
                    transfer_tag: slot | index << SLOT_BITS,
                    offset: request.offset,
                    length,
                    ..DataPdu::default()
                };
                self.encoder.put_ready_to_transfer(&pdu, sink);
            }
        }
    }
}
