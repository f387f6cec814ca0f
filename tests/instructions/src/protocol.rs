//! Both ends of a connection and the queue, directly connected: the cost of codec and protocol
//! without sockets, buffers and devices. Payload is passed on and never copied.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use weft_nvme::fabrics::{CONTROLLER_ID_DYNAMIC, PropertySet, PropertySize};
use weft_nvme::nvm::ReadWrite;
use weft_nvme::property::Offset;
use weft_nvme::{Command, Nqn, NvmOpcode, Status};
use weft_nvmf::connect::ConnectRequest;
use weft_nvmf::controller::Controller;
use weft_nvmf::queue::{DeviceCommand, IoAction, IoQueue, Transfer};
use weft_nvmf::subsystem::{
    ControllerModel, NamespaceCapabilities, NamespaceHints, NamespaceView, SubsystemKind,
    SubsystemLimits, SubsystemShared, SubsystemView,
};
use weft_nvmf::tcp::encode::{DataPdu, Sink};
use weft_nvmf::tcp::{host, target};
use weft_nvmf::visibility::Visibility;

const BLOCK_BYTES: u32 = 4096;
const DEPTH: u16 = 32;
/// Commands of one turn, as on a loaded connection.
const TURN: usize = 16;
const CONTROLLER_ID: u16 = 1;
static PAYLOAD: [u8; 1 << 17] = [0x5a; 1 << 17];

/// The commands, and the settings of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    pub(crate) opcode: NvmOpcode,
    pub(crate) blocks: u32,
    pub(crate) flow_control: bool,
    pub(crate) digests: bool,
    pub(crate) queues: u16,
}

impl Script {
    pub(crate) const READ: Self =
        Self { opcode: NvmOpcode::READ, blocks: 1, flow_control: true, digests: false, queues: 1 };
    pub(crate) const WRITE: Self = Self { opcode: NvmOpcode::WRITE, ..Self::READ };
}

/// Runs `count` commands, turn by turn, over each queue in its turn.
pub(crate) fn run(script: &Script, count: usize) {
    let view = view();
    let mut controller = controller(&view, script);
    let mut pairs: Vec<ProtocolPair> = (1..=script.queues)
        .map(|id| ProtocolPair::new(id, &mut controller, &view, script))
        .collect();
    let mut left = count;
    while left > 0 {
        for pair in &mut pairs {
            let commands = left.min(TURN);
            left -= commands;
            pair.turn(script, commands);
        }
    }
    let done: usize = pairs.iter().map(|pair| pair.completed).sum();
    assert_eq!(done, count, "every command is completed");
}

/// The output of one side: bytes of headers, and payload that is only counted.
#[derive(Debug, Default)]
struct Wire {
    bytes: Vec<u8>,
    /// Position and length of payloads.
    payloads: Vec<(usize, u32)>,
}

impl Sink for Wire {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

impl Wire {
    fn put_payload(&mut self, length: u32, digest: Option<[u8; 4]>) {
        self.payloads.push((self.bytes.len(), length));
        if let Some(digest) = digest {
            self.put(&digest);
        }
    }

    /// Header bytes, each run with the payload that follows it.
    fn runs(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let starts = std::iter::once(0).chain(self.payloads.iter().map(|(at, _)| *at));
        let ends = self.payloads.iter().copied().chain([(self.bytes.len(), 0)]);
        starts.zip(ends).map(|(start, (end, length))| (&self.bytes[start..end], length))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.payloads.clear();
    }
}

fn payload(length: u32) -> &'static [u8] {
    &PAYLOAD[..length as usize]
}

/// A host's end, a target's end and the queue.
#[derive(Debug)]
struct ProtocolPair {
    host: host::Session,
    target: target::Session,
    queue: IoQueue,
    /// Commands that wait for their data, by slot of the target's end.
    waiting: Vec<Option<DeviceCommand>>,
    to_target: Wire,
    to_host: Wire,
    completed: usize,
}

impl ProtocolPair {
    fn new(id: u16, controller: &mut Controller, view: &SubsystemView, script: &Script) -> Self {
        let grant = controller.attach_queue(&request(id, script, view.nqn)).expect("a queue");
        let mut host = host::Config { depth: DEPTH, ..host::Config::default() };
        host.parameters.header_digest = script.digests;
        host.parameters.data_digest = script.digests;
        let mut pair = Self {
            host: host::Session::new(host),
            target: target::Session::new(target::Config::default()),
            queue: IoQueue::new(grant, view),
            waiting: vec![None; usize::from(DEPTH)],
            to_target: Wire::default(),
            to_host: Wire::default(),
            completed: 0,
        };
        pair.target.set_queue(1, DEPTH, script.flow_control);
        pair.host.start(&mut pair.to_target);
        pair.serve();
        pair.finish();
        assert!(pair.host.negotiated().is_some(), "the handshake is done");
        pair.host.set_in_capsule_bytes(8192);
        pair
    }

    /// Sends `commands` commands, and passes everything on until all have completed.
    fn turn(&mut self, script: &Script, commands: usize) {
        let length = script.blocks * BLOCK_BYTES;
        let data = match script.opcode {
            NvmOpcode::READ => host::Data::FromController(length),
            _ => host::Data::ToController(length),
        };
        for number in 0..commands {
            let command = ReadWrite::new(number as u64 * 8, script.blocks)
                .expect("a count")
                .to_command(script.opcode, 1);
            let sent = self.host.submit(command, data, &mut self.to_target).expect("a free slot");
            if sent.in_capsule {
                let digest = self.host.data_digest(payload(length));
                self.to_target.put_payload(length, digest);
            }
        }
        while !self.to_target.bytes.is_empty() {
            self.serve();
            self.finish();
        }
    }

    /// The target processes the host's output.
    fn serve(&mut self) {
        let sent = std::mem::take(&mut self.to_target);
        for (mut bytes, mut data) in sent.runs() {
            loop {
                self.hear(&mut bytes);
                let Some((_, _, rest)) = self.target.direct().filter(|_| data > 0) else { break };
                let piece = rest.min(data);
                self.target.handle_direct(payload(piece));
                data -= piece;
            }
        }
        self.to_target = sent;
        self.to_target.clear();
    }

    fn hear(&mut self, bytes: &mut &[u8]) {
        use target::SessionEvent;
        loop {
            let received = self.target.handle_input(bytes, &mut self.to_host);
            match received.expect("a good host") {
                SessionEvent::Starved => return,
                SessionEvent::Command { slot, data_length } => {
                    let command = *self.target.command().expect("it has just come");
                    self.begin(slot, &command, data_length);
                }
                SessionEvent::CapsuleEnd { slot, intact }
                | SessionEvent::TransferEnd { slot, intact } => {
                    assert!(intact, "a good digest");
                    self.end(slot);
                }
                SessionEvent::Initialized(_) | SessionEvent::Data { .. } => {}
                SessionEvent::Terminated { .. } => unreachable!("the host does not terminate"),
            }
        }
    }

    fn begin(&mut self, slot: u16, command: &Command, data_length: u32) {
        let IoAction::Device(device) = self.queue.handle_command(command) else {
            unreachable!("a good command goes to its device")
        };
        self.waiting[usize::from(slot)] = Some(device);
        match device.transfer {
            Transfer::FromHost(length) if data_length == 0 => {
                self.target.request_data(slot, length, &mut self.to_host);
            }
            Transfer::FromHost(_) => {}
            _ => self.end(slot),
        }
    }

    /// The device, which does nothing, completes.
    fn end(&mut self, slot: u16) {
        let device = self.waiting[usize::from(slot)].take().expect("a command");
        let completion = self.queue.complete_device(&device, Status::SUCCESS);
        let mut answered = false;
        if let Transfer::ToHost(length) = device.transfer {
            let most = self.target.c2h_data_bytes();
            let mut offset = 0;
            while offset < length {
                let piece = most.min(length - offset);
                let last = offset + piece == length;
                answered = last && self.target.success_suffices(&completion);
                let (length, success) = (piece, answered);
                let pdu = DataPdu { offset, length, last, success, ..DataPdu::default() };
                self.target.put_data(slot, pdu, &mut self.to_host);
                self.to_host.put_payload(piece, self.target.data_digest(payload(piece)));
                offset += piece;
            }
        }
        if !answered {
            self.target.put_response(&completion, &mut self.to_host);
        }
        self.target.release(slot);
    }

    /// The host processes the target's output.
    fn finish(&mut self) {
        let sent = std::mem::take(&mut self.to_host);
        for (mut bytes, mut data) in sent.runs() {
            loop {
                self.learn(&mut bytes);
                let Some((_, _, rest)) = self.host.direct().filter(|_| data > 0) else { break };
                let piece = rest.min(data);
                self.host.handle_direct(payload(piece));
                data -= piece;
            }
        }
        self.to_host = sent;
        self.to_host.clear();
        while let Some(transfer) = self.host.poll_transfer() {
            let mut done = 0;
            while done < transfer.length {
                let piece = self.host.h2c_data_bytes().min(transfer.length - done);
                self.host.put_data(&transfer, done, piece, &mut self.to_target);
                self.to_target.put_payload(piece, self.host.data_digest(payload(piece)));
                done += piece;
            }
        }
    }

    fn learn(&mut self, bytes: &mut &[u8]) {
        use host::SessionEvent;
        loop {
            match self.host.handle_input(bytes).expect("a good target") {
                SessionEvent::Starved => return,
                SessionEvent::Completed { completion, intact, .. } => {
                    assert!(completion.status().is_success() && intact, "{completion:?}");
                    self.completed += 1;
                }
                SessionEvent::Ready(_) | SessionEvent::Data { .. } => {}
                SessionEvent::Terminated { .. } => unreachable!("the target does not terminate"),
            }
        }
    }
}

fn view() -> Arc<SubsystemView> {
    let namespace = NamespaceView {
        nsid: 1,
        block_bytes: BLOCK_BYTES,
        blocks: 1 << 20,
        uuid: [1; 16],
        nguid: [2; 16],
        eui64: [0; 8],
        capabilities: NamespaceCapabilities::default(),
        hints: NamespaceHints::default(),
        write_protected: false,
        lost_writes: false,
        detached: false,
        device: 1,
        ana_group: 1,
        owner_change: 0,
    };
    Arc::new(SubsystemView {
        nqn: Nqn::try_from("nqn.2024-01.io.weft:counted").expect("a name"),
        kind: SubsystemKind::Nvm,
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        namespaces: [namespace].into_iter().collect(),
        owner_changes: 0,
        allowed_hosts: None,
        ana: None,
        policies: Arc::default(),
        controller_model: ControllerModel::Dynamic,
        limits: SubsystemLimits::default(),
        shared: SubsystemShared::new(),
        visibility: Visibility::default(),
        host_namespaces: None,
    })
}

fn controller(view: &Arc<SubsystemView>, script: &Script) -> Controller {
    let now = Duration::from_secs(1);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let request = request(0, script, view.nqn);
    let mut controller = Controller::new(Arc::clone(view), &request, CONTROLLER_ID, local, now);
    let enable =
        PropertySet::new(Offset::CONTROLLER_CONFIGURATION, PropertySize::Four, 0x0046_0001);
    controller.handle_command(&enable.to_command(), &[], now);
    assert!(controller.is_ready(), "the controller is enabled");
    controller
}

fn request(queue_id: u16, script: &Script, subsystem: Nqn) -> ConnectRequest {
    ConnectRequest {
        command_id: 0,
        queue_id,
        entries: u32::from(DEPTH),
        flow_control: script.flow_control,
        priority: 0,
        keep_alive_timeout_ms: 0,
        host_id: [1; 16],
        controller_id: if queue_id == 0 { CONTROLLER_ID_DYNAMIC } else { CONTROLLER_ID },
        subsystem,
        host: Nqn::try_from("nqn.2014-08.org.nvmexpress:uuid:counted").expect("a name"),
    }
}
