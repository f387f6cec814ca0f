//! A peer that says whatever a test wants on a socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{
    CapsuleCommand, CommonHeader, Data, DigestOptions, Fes, InitializeConnectionRequest, Kind,
    PduType, ReadyToTransfer, TerminateRequest,
};
use weft_nvme::wire::{U16, U32};
use weft_nvme::{Command, Completion, Wire};
use weft_nvmf::tcp::digest;

use super::peer::{ConnectFields, enabled};
use super::{LONG, log, wait_until};
use weft_nvme::fabrics::{PropertyGet, PropertySet, PropertySize};
use weft_nvme::property::{ControllerConfiguration, Offset};

/// A socket, and what its connection has agreed to.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: TcpStream,
    digests: DigestOptions,
    /// Where the log was when the connection began: its port may have been another's before.
    log_start: usize,
}

/// A PDU that came, without its digests, which have been checked.
#[derive(Debug)]
pub(crate) struct Pdu {
    pub(crate) common: CommonHeader,
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    #[track_caller]
    pub(crate) fn completion(&self) -> Completion {
        assert_eq!(self.common.pdu_type, PduType::CAPSULE_RESPONSE);
        Completion::read(&self.header[8..]).expect("a completion")
    }

    #[track_caller]
    pub(crate) fn ready_to_transfer(&self) -> ReadyToTransfer {
        assert_eq!(self.common.pdu_type, PduType::READY_TO_TRANSFER);
        ReadyToTransfer::read(&self.header).expect("R2T")
    }
}

/// A termination that came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Termination {
    pub(crate) status: Fes,
    pub(crate) information: u32,
    /// The header that an error names, as it comes back.
    pub(crate) header: Vec<u8>,
}

impl Raw {
    /// A connection on which nothing has been said.
    pub(crate) fn open(address: SocketAddr) -> Self {
        let log_start = log::length();
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        stream.set_write_timeout(Some(LONG)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, digests: DigestOptions(0), log_start }
    }

    /// A connection whose handshake is done.
    pub(crate) fn shaken_hands(address: SocketAddr, digests: DigestOptions, r2ts: u32) -> Self {
        let mut raw = Self::open(address);
        raw.send(InitializeConnectionRequest::new(0, digests, r2ts - 1).bytes());
        let answer = raw.receive();
        assert_eq!(answer.common.pdu_type, PduType::INITIALIZE_CONNECTION_RESPONSE);
        raw.digests = DigestOptions(answer.header[11]);
        assert_eq!(raw.digests, digests, "digests are granted as asked");
        raw
    }

    /// Whether ICResp comes, if there is to be one before the socket's time is up.
    pub(crate) fn is_answered(&mut self) -> bool {
        let mut response = [0; 128];
        self.stream.read_exact(&mut response).is_ok()
    }

    /// An admin queue whose controller is enabled.
    pub(crate) fn admin(address: SocketAddr) -> (Self, u16) {
        let mut raw = Self::shaken_hands(address, DigestOptions(0), 1);
        let controller = raw.connect(&ConnectFields::admin());
        raw.configure(1, enabled());
        (raw, controller)
    }

    /// Property Set of Controller Configuration.
    #[track_caller]
    pub(crate) fn configure(&mut self, command_id: u16, value: ControllerConfiguration) {
        let offset = Offset::CONTROLLER_CONFIGURATION;
        let set = PropertySet::new(offset, PropertySize::Four, value.0.into()).to_command();
        self.succeeds(command_id, set);
    }

    /// Property Get of four bytes.
    #[track_caller]
    pub(crate) fn property(&mut self, command_id: u16, offset: Offset) -> u64 {
        let get = PropertyGet::new(offset, PropertySize::Four).to_command();
        self.succeeds(command_id, get).result.get()
    }

    /// Runs a command without data; the next that comes is its success.
    #[track_caller]
    fn succeeds(&mut self, command_id: u16, command: Command) -> Completion {
        self.command(command.with_command_id(command_id), &[]);
        let completion = self.receive().completion();
        assert_eq!(completion.command_id.get(), command_id);
        assert!(completion.status().is_success(), "{}", completion.status());
        completion
    }

    /// An I/O queue.
    pub(crate) fn io(address: SocketAddr, fields: &ConnectFields, digests: DigestOptions) -> Self {
        let mut raw = Self::shaken_hands(address, digests, 1);
        raw.connect(fields);
        raw
    }

    /// Connects; the controller's identifier.
    pub(crate) fn connect(&mut self, fields: &ConnectFields) -> u16 {
        let data = fields.data();
        self.command(fields.command().with_command_id(0), data.bytes());
        let completion = self.receive().completion();
        assert!(completion.status().is_success(), "{}", completion.status());
        u16::try_from(completion.dword0() & 0xffff).expect("16 bits")
    }

    /// What the target's log warns of about this connection, once there is anything.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let name = format!("WARN: {}: ", self.stream.local_addr().expect("an address"));
        wait_until("a line in the log", || !log::since(self.log_start, &name).is_empty());
        log::since(self.log_start, &name)
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the target takes it");
    }

    /// Sends what the target may have stopped taking.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        // The connection may be reset meanwhile: that is what the caller is about to see.
        drop(self.stream.write_all(bytes));
    }

    /// Sends a command with in-capsule data.
    pub(crate) fn command(&mut self, command: Command, data: &[u8]) {
        let capsule = self.capsule(command, data);
        self.send(&capsule);
    }

    /// A command capsule with in-capsule data.
    pub(crate) fn capsule(&self, command: Command, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).expect("short");
        let command = match data.is_empty() {
            true => command,
            false => command.with_data_pointer(Descriptor::in_capsule(0, length)),
        };
        let common = CommonHeader::bare(Kind::CapsuleCommand);
        let header = CapsuleCommand { common, command };
        self.pdu(header.bytes(), data)
    }

    /// H2CData.
    pub(crate) fn data(&self, to: &ReadyToTransfer, at: u32, data: &[u8], last: bool) -> Vec<u8> {
        let mut common = CommonHeader::bare(Kind::H2CData);
        common.flags = common.flags.with_last(last);
        let header = Data {
            common,
            command_id: to.command_id,
            transfer_tag: to.transfer_tag,
            offset: U32::new(at),
            length: U32::new(u32::try_from(data.len()).expect("short")),
            reserved: [0; 4],
        };
        self.pdu(header.bytes(), data)
    }

    /// A PDU of this header and data, with the flags, lengths and digests that belong to it.
    fn pdu(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut common = CommonHeader::read(header).expect("a common header");
        let digest_bytes = if self.digests.header() { 4 } else { 0 };
        let trailer = if self.digests.data() && !data.is_empty() { 4 } else { 0 };
        let data_offset = header.len() + digest_bytes;
        common.flags = common.flags.with_header_digest(self.digests.header());
        if !data.is_empty() {
            common.flags = common.flags.with_data_digest(self.digests.data());
            common.data_offset = u8::try_from(data_offset).expect("short");
        }
        common.pdu_length =
            U32::new(u32::try_from(data_offset + data.len() + trailer).expect("short"));
        let mut pdu = header.to_vec();
        pdu[..8].copy_from_slice(common.bytes());
        if self.digests.header() {
            pdu.extend_from_slice(&digest::of(&pdu));
        }
        pdu.extend_from_slice(data);
        if trailer > 0 {
            pdu.extend_from_slice(&digest::of(data));
        }
        pdu
    }

    /// The next PDU. Its digests fit.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Pdu {
        self.try_receive().expect("a PDU")
    }

    /// The next PDU, or `None` if the connection has ended.
    #[track_caller]
    pub(crate) fn try_receive(&mut self) -> Option<Pdu> {
        let mut common = [0; 8];
        match self.stream.read_exact(&mut common) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                return None;
            }
            Err(error) => panic!("no PDU: {error}"),
        }
        let common = CommonHeader::read(&common).expect("8 bytes");
        let mut rest = vec![0; common.pdu_length.get() as usize - 8];
        self.stream.read_exact(&mut rest).expect("the whole PDU");
        let mut whole = common.bytes().to_vec();
        whole.append(&mut rest);
        let length = usize::from(common.header_length);
        let header = whole[..length].to_vec();
        let mut data_at = length;
        if common.flags.header_digest() {
            assert_eq!(whole[length..length + 4], digest::of(&header), "header digest");
            data_at += 4;
        }
        if common.data_offset > 0 {
            data_at = usize::from(common.data_offset);
        }
        let mut data = whole.split_off(data_at);
        if common.flags.data_digest() {
            let trailer = data.split_off(data.len() - 4);
            assert_eq!(trailer, digest::of(&data), "data digest");
        }
        Some(Pdu { common, header, data })
    }

    /// Waits for the connection to be terminated, and for its end.
    #[track_caller]
    pub(crate) fn termination(&mut self) -> Termination {
        let pdu = loop {
            let pdu = self.receive();
            if pdu.common.pdu_type == PduType::C2H_TERMINATE_REQUEST {
                break pdu;
            }
        };
        let request = TerminateRequest::read(&pdu.header).expect("a termination");
        let termination = Termination {
            status: request.status(),
            information: request.fatal_error_information.get(),
            header: pdu.data,
        };
        // The target waits for its peer to hang up, so that the termination is not lost.
        self.stream.shutdown(std::net::Shutdown::Write).expect("half an end");
        assert!(self.is_ended(), "nothing follows a termination");
        termination
    }

    /// Waits for the end of the connection. `false`: something came before it.
    #[track_caller]
    pub(crate) fn is_ended(&mut self) -> bool {
        self.try_receive().is_none()
    }
}

/// A transfer tag that nobody gave out.
pub(crate) fn made_up_transfer(command_id: u16) -> ReadyToTransfer {
    ReadyToTransfer {
        common: CommonHeader::bare(Kind::ReadyToTransfer),
        command_id: U16::new(command_id),
        transfer_tag: U16::new(0x0fff),
        offset: U32::ZERO,
        length: U32::ZERO,
        reserved: [0; 4],
    }
}
