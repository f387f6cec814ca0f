//! The host's side of a connection.
//!
//! A slot is busy from [`Session::submit`] to [`SessionEvent::Completed`]. Between them, data comes
//! or goes:
//!
//! ```text
//!   FromController: C2HData ... C2HData(LAST) CapsuleResp     or  ... C2HData(LAST, SUCCESS)
//!   ToController:   R2T -> H2CData ... H2CData(LAST), again for each R2T, CapsuleResp
//! ```

use std::collections::VecDeque;

use weft_nvme::command::Flags;
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{Direction, Fes, Kind};
use weft_nvme::wire::U16;
use weft_nvme::{Command, Completion, Status, Wire};

use super::encode::{self, DataPdu, Encoder, Sink};
use super::error::FatalError;
use super::framing::{Framing, Header, Parameters, Progress};
use super::handshake::{HostParameters, Negotiated};
use super::limits::{ADMIN_IN_CAPSULE_BYTES, MAXIMUM_R2T_DEFAULT, SLOT_BITS, SLOTS_MAX};

/// Byte offsets of header fields that are checked here.
const FLAGS: u32 = 1;
const COMMAND_ID: u32 = 8;
const LENGTH: u32 = 16;
const COMPLETION_COMMAND_ID: u32 = 20;

/// Configuration of the host's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Its parameters in the handshake.
    pub parameters: HostParameters,
    /// Commands that it has in flight at most (up to [`SLOTS_MAX`]).
    pub depth: u16,
    /// Data that it sends within a capsule, until [`Session::set_in_capsule_bytes`].
    pub in_capsule_bytes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            parameters: HostParameters {
                header_digest: false,
                data_digest: false,
                host_data_alignment: 0,
                maximum_r2t: MAXIMUM_R2T_DEFAULT,
            },
            depth: 128,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
        }
    }
}

/// Which way a command's data goes, and how much there is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// None.
    None,
    /// From the host to the controller.
    ToController(u32),
    /// From the controller to the host.
    FromController(u32),
}

/// A command that was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmittedCommand {
    /// The command's slot, until [`SessionEvent::Completed`].
    pub slot: u16,
    /// Whether all of its data is to follow the header now, with its digest.
    pub in_capsule: bool,
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent<'a> {
    /// Nothing more: all input has been taken.
    Starved,
    /// ICResp: commands may be submitted.
    Ready(Negotiated),
    /// A piece of a command's data.
    Data {
        /// The command's slot.
        slot: u16,
        /// Where the piece belongs in the command's buffer.
        offset: u32,
        /// The bytes, as they lie in the input.
        piece: &'a [u8],
    },
    /// A command is done; its slot is free.
    Completed {
        /// The command's slot.
        slot: u16,
        /// The completion queue entry.
        completion: Completion,
        /// Bytes of data that came for it, from the first one on without a gap.
        received: u32,
        /// Whether every data digest was right. If not, the data is invalid, whatever the status.
        intact: bool,
    },
    /// The controller terminates the connection.
    Terminated {
        /// Fatal Error Status (FES).
        status: Fes,
        /// Fatal Error Information (FEI).
        information: u32,
    },
}

/// An R2T that is to be answered with H2CData.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The command's slot.
    pub slot: u16,
    /// Transfer Tag (TTAG).
    transfer_tag: u16,
    /// Where the data begins in the command's buffer.
    pub offset: u32,
    /// How much of it is asked for.
    pub length: u32,
    generation: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitingResponse,
    Ready,
    Ended,
}

#[derive(Debug)]
struct Slot {
    busy: bool,
    /// Counts the commands that the slot has had; the low bits are in the command identifier.
    generation: u16,
    data: Data,
    /// Bytes received (FromController), or asked for or sent in the capsule (ToController).
    done: u32,
    /// LAST_PDU has been seen.
    last: bool,
    intact: bool,
    /// R2Ts that wait in the queue of transfers.
    outstanding: u32,
}

/// What the data that comes in belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    /// No command: the data of a termination request.
    None,
    Transfer {
        slot: u16,
        header: DataPdu,
    },
}

/// The host's side of one connection.
#[derive(Debug)]
pub struct Session {
    config: Config,
    phase: Phase,
    framing: Framing,
    encoder: Encoder,
    negotiated: Option<Negotiated>,
    slots: Vec<Slot>,
    free: Vec<u16>,
    transfers: VecDeque<Transfer>,
    current: Current,
}

impl Session {
    /// A session that has yet to send ICReq.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let depth = config.depth.clamp(1, SLOTS_MAX);
        let slot = |_| Slot {
            busy: false,
            generation: 0,
            data: Data::None,
            done: 0,
            last: false,
            intact: true,
            outstanding: 0,
        };
        Self {
            config,
            phase: Phase::AwaitingResponse,
            framing: Framing::new(Direction::ControllerToHost),
            encoder: Encoder::new(false, false, 4),
            negotiated: None,
            slots: (0..depth).map(slot).collect(),
            free: (0..depth).rev().collect(),
            transfers: VecDeque::with_capacity(usize::from(depth)),
            current: Current::None,
        }
    }

    /// Sends ICReq.
    pub fn start(&mut self, sink: &mut impl Sink) {
        sink.put(self.config.parameters.request().bytes());
    }

    /// The negotiated parameters, after the handshake.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Data up to this length goes within the capsule from now on (from IOCCSZ).
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.config.in_capsule_bytes = bytes;
    }

    /// Commands that may be submitted now.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        if self.phase == Phase::Ready { self.free.len() } else { 0 }
    }

    /// Commands that have a slot.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slots of all commands in flight, lowest first.
    pub fn busy_slots(&self) -> impl Iterator<Item = u16> + '_ {
        (0u16..).zip(&self.slots).filter(|(_, entry)| entry.busy).map(|(slot, _)| slot)
    }

    /// The command identifier of a slot's command, if it has one.
    #[must_use]
    pub fn command_id(&self, slot: u16) -> Option<u16> {
        let entry = self.slots.get(usize::from(slot)).filter(|entry| entry.busy)?;
        Some(command_id(slot, entry.generation))
    }

    /// CapsuleCmd for `command`, with its command identifier and SGL filled in. None if there is
    /// no free slot or the connection is not ready.
    pub fn submit(
        &mut self,
        mut command: Command,
        data: Data,
        sink: &mut impl Sink,
    ) -> Option<SubmittedCommand> {
        if self.phase != Phase::Ready {
            return None;
        }
        let slot = self.free.pop()?;
        let entry = self.slots.get_mut(usize::from(slot))?;
        entry.busy = true;
        entry.generation = entry.generation.wrapping_add(1);
        entry.data = data;
        entry.done = 0;
        entry.last = false;
        entry.intact = true;
        entry.outstanding = 0;
        command.command_id = U16::new(command_id(slot, entry.generation));
        command.flags = Flags::SGL.with_fused(command.flags.fused());
        let (descriptor, capsule) = match data {
            Data::ToController(length) if length <= self.config.in_capsule_bytes => {
                entry.done = length;
                (Descriptor::in_capsule(0, length), length)
            }
            Data::ToController(length) | Data::FromController(length) => {
                (Descriptor::transport(length), 0)
            }
            Data::None => (Descriptor::transport(0), 0),
        };
        command.data_pointer = descriptor;
        self.encoder.put_command(&command, capsule, sink);
        Some(SubmittedCommand { slot, in_capsule: capsule > 0 })
    }

    /// The digest that follows `payload`, if the connection has data digests.
    #[must_use]
    pub fn data_digest(&self, payload: &[u8]) -> Option<[u8; 4]> {
        self.encoder.data_digest(payload)
    }

    /// The next R2T to be answered, in pieces of [`Session::h2c_data_bytes`] and all of them now.
    pub fn poll_transfer(&mut self) -> Option<Transfer> {
        loop {
            let transfer = self.transfers.pop_front()?;
            let entry = self.slots.get_mut(usize::from(transfer.slot))?;
            // The controller may have completed the command without awaiting its data.
            if entry.busy && entry.generation == transfer.generation {
                entry.outstanding -= 1;
                return Some(transfer);
            }
        }
    }

    /// Data of one H2CData PDU at most (MAXH2CDATA).
    #[must_use]
    pub fn h2c_data_bytes(&self) -> u32 {
        self.negotiated.map_or(4, |negotiated| negotiated.maximum_h2c_data)
    }

    /// H2CData for `length` bytes of a transfer from `done` on; the payload and then its
    /// [`Session::data_digest`] are to follow.
    pub fn put_data(&self, transfer: &Transfer, done: u32, length: u32, sink: &mut impl Sink) {
        let pdu = DataPdu {
            command_id: command_id(transfer.slot, transfer.generation),
            transfer_tag: transfer.transfer_tag,
            offset: transfer.offset + done,
            length,
            last: done + length == transfer.length,
            success: false,
        };
        self.encoder.put_data(Kind::H2CData, &pdu, sink);
    }

    /// Takes input up to the next event.
    ///
    /// To be called until it returns [`SessionEvent::Starved`]. After an error or
    /// [`SessionEvent::Terminated`] all input is ignored.
    pub fn handle_input<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<SessionEvent<'a>, FatalError> {
        loop {
            if self.phase == Phase::Ended {
                *input = &[];
                return Ok(SessionEvent::Starved);
            }
            let received = match self.framing.next(input) {
                Ok(Progress::Starved) => return Ok(SessionEvent::Starved),
                Ok(Progress::Header(header)) => self.handle_header(header),
                Ok(Progress::Data { offset, piece }) => Ok(self.handle_data(offset, piece)),
                Ok(Progress::End { intact }) => Ok(self.handle_end(intact)),
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
            Current::Transfer { slot, header } => Some((slot, header.offset + done, remaining)),
        }
    }

    /// The next bytes of data were received straight to where [`Session::direct`] said.
    pub fn handle_direct(&mut self, piece: &[u8]) {
        self.framing.handle_direct(piece);
    }

    /// H2CTermReq for `error`, which was just found. All further input is ignored.
    pub fn terminate(&mut self, error: &FatalError, sink: &mut impl Sink) {
        self.phase = Phase::Ended;
        encode::put_termination(Kind::H2CTerminateRequest, error, self.framing.header(), sink);
    }

    fn handle_header<'a>(
        &mut self,
        header: Header,
    ) -> Result<Option<SessionEvent<'a>>, FatalError> {
        match (self.phase, header) {
            (_, Header::Terminate { status, information }) => {
                self.phase = Phase::Ended;
                self.current = Current::None;
                Ok(Some(SessionEvent::Terminated { status, information }))
            }
            (Phase::AwaitingResponse, Header::Response) => self.handle_response().map(Some),
            (Phase::AwaitingResponse, _) => Err(FatalError::sequence("a PDU came before ICResp")),
            (_, Header::Response) => Err(FatalError::sequence("a second ICResp came")),
            (_, Header::Completion(completion)) => self.handle_completion(completion).map(Some),
            (_, Header::Data(data)) => self.handle_data_header(data).map(|()| None),
            (_, Header::ReadyToTransfer(pdu)) => self.handle_ready_to_transfer(pdu).map(|()| None),
            (_, Header::Request | Header::Command { .. }) => {
                Err(FatalError::field(0, "PDU type is one that only this side sends"))
            }
        }
    }

    fn handle_response<'a>(&mut self) -> Result<SessionEvent<'a>, FatalError> {
        let negotiated = self.config.parameters.accept(self.framing.layout()?)?;
        self.framing.set_parameters(Parameters {
            header_digest: negotiated.header_digest,
            data_digest: negotiated.data_digest,
            alignment: negotiated.host_alignment,
        });
        self.encoder = Encoder::new(
            negotiated.header_digest,
            negotiated.data_digest,
            negotiated.controller_alignment,
        );
        self.negotiated = Some(negotiated);
        self.phase = Phase::Ready;
        Ok(SessionEvent::Ready(negotiated))
    }

    fn handle_completion<'a>(
        &mut self,
        completion: Completion,
    ) -> Result<SessionEvent<'a>, FatalError> {
        let slot = self
            .find(completion.command_id.get())
            .ok_or(FatalError::field(COMPLETION_COMMAND_ID, "no such command is in flight"))?;
        Ok(self.complete(slot, completion))
    }

    fn handle_data_header(&mut self, data: DataPdu) -> Result<(), FatalError> {
        let slot = self
            .find(data.command_id)
            .ok_or(FatalError::field(COMMAND_ID, "no such command is in flight"))?;
        let entry = &self.slots[usize::from(slot)];
        let Data::FromController(total) = entry.data else {
            return Err(FatalError::out_of_range("C2HData for a command that reads nothing"));
        };
        if entry.last {
            return Err(FatalError::sequence("C2HData after the command's last"));
        }
        if data.offset != entry.done {
            return Err(FatalError::out_of_range("C2HData does not follow the previous one"));
        }
        if data.length > total - entry.done {
            return Err(FatalError::out_of_range("C2HData goes beyond the command's buffer"));
        }
        if data.success && !data.last {
            return Err(FatalError::field(FLAGS, "SUCCESS without LAST_PDU"));
        }
        self.current = Current::Transfer { slot, header: data };
        Ok(())
    }

    fn handle_ready_to_transfer(&mut self, pdu: DataPdu) -> Result<(), FatalError> {
        let DataPdu { command_id, transfer_tag, offset, length, .. } = pdu;
        let slot = self
            .find(command_id)
            .ok_or(FatalError::field(COMMAND_ID, "no such command is in flight"))?;
        let maximum = self.negotiated.map_or(1, |negotiated| negotiated.maximum_r2t);
        let entry = &mut self.slots[usize::from(slot)];
        let Data::ToController(total) = entry.data else {
            return Err(FatalError::out_of_range("R2T for a command that writes nothing"));
        };
        if length == 0 {
            return Err(FatalError::field(LENGTH, "R2T asks for nothing"));
        }
        if entry.outstanding >= maximum {
            return Err(FatalError::limit("more R2Ts outstanding than MAXR2T"));
        }
        if offset != entry.done {
            return Err(FatalError::out_of_range("R2T does not follow the previous one"));
        }
        if length > total - entry.done {
            return Err(FatalError::out_of_range("R2T goes beyond the command's data"));
        }
        entry.done += length;
        entry.outstanding += 1;
        let generation = entry.generation;
        self.transfers.push_back(Transfer { slot, transfer_tag, offset, length, generation });
        Ok(())
    }

    fn handle_data<'a>(&mut self, done: u32, piece: &'a [u8]) -> Option<SessionEvent<'a>> {
        match self.current {
            Current::None => None,
            Current::Transfer { slot, header } => {
                Some(SessionEvent::Data { slot, offset: header.offset + done, piece })
            }
        }
    }

    fn handle_end<'a>(&mut self, intact: bool) -> Option<SessionEvent<'a>> {
        let current = std::mem::replace(&mut self.current, Current::None);
        let Current::Transfer { slot, header } = current else { return None };
        let entry = self.slots.get_mut(usize::from(slot))?;
        entry.done += header.length;
        entry.last = header.last;
        entry.intact &= intact;
        if !header.success {
            return None;
        }
        let completion = Completion::new(header.command_id, Status::SUCCESS);
        Some(self.complete(slot, completion))
    }

    /// The slot of the command in flight that has this identifier, generation included.
    fn find(&self, id: u16) -> Option<u16> {
        let slot = id & SLOTS_MAX;
        self.command_id(slot).filter(|current| *current == id).map(|_| slot)
    }

    fn complete<'a>(&mut self, slot: u16, completion: Completion) -> SessionEvent<'a> {
        let entry = &mut self.slots[usize::from(slot)];
        entry.busy = false;
        let received = match entry.data {
            Data::FromController(_) => entry.done,
            Data::None | Data::ToController(_) => 0,
        };
        let intact = entry.intact;
        self.free.push(slot);
        SessionEvent::Completed { slot, completion, received, intact }
    }
}

/// Slot and generation as a command identifier; never FFFFh, since no slot is FFFh.
fn command_id(slot: u16, generation: u16) -> u16 {
    slot | generation << SLOT_BITS
}
