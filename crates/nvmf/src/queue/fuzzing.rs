//! A harness that reads bytes as a sequence of actions upon one queue, and holds the queue to
//! its invariants: nothing panics, every command is answered exactly once, and whatever goes to
//! a device is within the namespace. Fuzz targets and property tests share it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weft_nvme::log_page::AsymmetricNamespaceAccessState as State;
use weft_nvme::{Command, Completion, Nqn, Status, Wire};

use super::{
    ControllerShared, DeviceCommand, DeviceOperation, IoAction, IoQueue, QueueGrant, QueueShared,
    Transfer,
};
use crate::ana::GroupStates;
use crate::subsystem::{
    ControllerModel, NamespaceCapabilities, NamespaceHints, NamespaceView, SubsystemKind,
    SubsystemLimits, SubsystemShared, SubsystemView,
};
use crate::visibility::Visibility;

/// Reads `data` as actions and carries them out. Panics if an invariant is broken.
pub fn actions(data: &[u8]) {
    let mut input = Input { rest: data };
    let mut harness = Harness::new(input.byte());
    while !input.rest.is_empty() {
        harness.act(&mut input);
    }
    harness.finish();
}

/// The bytes that are still to be read; zeros once there are none.
pub(crate) struct Input<'data> {
    pub(crate) rest: &'data [u8],
}

impl Input<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((byte, rest)) => {
                self.rest = rest;
                *byte
            }
            None => 0,
        }
    }

    pub(crate) fn bytes<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        std::array::from_fn(|_| self.byte())
    }

    /// A command that is mostly sensible, with a few bytes of it changed at will.
    fn command(&mut self, command_id: u16) -> Command {
        let [opcode, flags, nsid, block, blocks, changes] = self.bytes();
        let opcode = [0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c, 0x04, 0x7f, opcode]
            [usize::from(opcode) % 10];
        let blocks = u32::from(blocks % 16);
        let length = match opcode {
            0x09 => (blocks + 1) * 16,
            _ => (blocks + 1) * 512,
        };
        let pointer = weft_nvme::sgl::Descriptor::transport(length);
        let mut command = Command::new(opcode)
            .with_flags(weft_nvme::command::Flags(0x40 | (flags & 3)))
            .with_namespace_id(u32::from(nsid % 4))
            .with_data_pointer(pointer)
            .with_cdw10(u32::from(block))
            .with_cdw12(blocks);
        if opcode == 0x09 {
            command.cdw10 = blocks.into();
            command.cdw11 = 4.into();
        }
        if let Ok(bytes) = <[u8; 64]>::try_from(command.bytes()) {
            let mut bytes = bytes;
            for _ in 0..changes % 4 {
                let [place, value] = self.bytes();
                bytes[usize::from(place) % 64] = value;
            }
            command = Command::read(&bytes).unwrap_or_default();
        }
        command.with_command_id(command_id)
    }
}

struct Harness {
    queue: IoQueue,
    shared: Arc<QueueShared>,
    view: SubsystemView,
    /// Commands that are not answered, by identifier, with what a device has of them.
    waiting: BTreeMap<u16, Option<DeviceCommand>>,
    pairs: VecDeque<(DeviceCommand, DeviceCommand)>,
    next_id: u16,
}

impl Harness {
    fn new(seed: u8) -> Self {
        let view = view(seed);
        let shared = Arc::new(QueueShared::default());
        let grant = QueueGrant {
            queue_id: 1,
            entries: 2 + u32::from(seed),
            flow_control: seed.is_multiple_of(2),
            priority: None,
            port_id: 1,
            controller_id: 1,
            command_id: 0,
            shared: Arc::clone(&shared),
            controller: ControllerShared::new(&view, [1; 16]),
            limits: view.limits,
        };
        let queue = IoQueue::new(grant, &view);
        let (waiting, pairs) = (BTreeMap::new(), VecDeque::new());
        Self { queue, shared, view, waiting, pairs, next_id: 0 }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0..=3 => self.submit(input),
            4 => self.reject(input),
            5 => self.complete(input),
            6 => self.complete_pair(input),
            _ => self.change(input),
        }
        while let Some(completion) = self.queue.poll_completion() {
            self.answered(completion);
        }
        let held = self.waiting.len() as u64;
        assert_eq!(self.shared.in_flight(), held, "the words count what is not answered");
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        self.next_id = self.next_id.wrapping_add(1);
        let command = input.command(self.next_id);
        self.waiting.insert(self.next_id, None);
        match self.queue.handle_command(&command) {
            IoAction::Complete(completion) | IoAction::Disconnect(completion) => {
                self.answered(completion);
            }
            IoAction::Device(device) => self.give(device),
            IoAction::Fused { compare, write } => {
                assert_eq!(compare.operation.range(), write.operation.range());
                self.give(compare);
                self.give(write);
                self.pairs.push_back((compare, write));
            }
            IoAction::FlushAll { command_id } | IoAction::Held { command_id } => {
                assert_eq!(command_id, self.next_id);
            }
        }
    }

    fn reject(&mut self, input: &mut Input<'_>) {
        self.next_id = self.next_id.wrapping_add(1);
        let command = input.command(self.next_id);
        self.waiting.insert(self.next_id, None);
        let completion = self.queue.reject(&command, Status::TRANSIENT_TRANSPORT_ERROR);
        assert!(!completion.status().is_success());
        self.answered(completion);
    }

    fn give(&mut self, device: DeviceCommand) {
        let namespace = self.view.namespaces.get(device.nsid).expect("an active namespace");
        assert_eq!(namespace.device, device.device);
        assert!(!(device.operation.modifies() && namespace.is_write_protected()));
        if let Some((block, blocks)) = device.operation.range() {
            let end = block.checked_add(u64::from(blocks)).expect("no overflow");
            assert!(end <= namespace.blocks);
            if let Transfer::ToHost(bytes) | Transfer::FromHost(bytes) = device.transfer {
                assert_eq!(bytes, blocks * namespace.block_bytes);
                assert!(bytes <= self.view.limits.transfer_bytes_max());
            }
        }
        assert_eq!(self.queue.recheck(&device), Ok(()));
        let known = self.waiting.insert(device.command_id, Some(device));
        assert_eq!(known, Some(None), "a command goes to a device once");
    }

    fn complete(&mut self, input: &mut Input<'_>) {
        let paired = |id: u16| {
            self.pairs.iter().any(|(one, two)| one.command_id == id || two.command_id == id)
        };
        let found = self.waiting.iter().find(|(id, device)| device.is_some() && !paired(**id));
        let Some((_, Some(device))) = found else { return };
        let device = *device;
        let mut status = match input.byte() % 3 {
            0 => Status::WRITE_FAULT,
            _ => Status::SUCCESS,
        };
        if let DeviceOperation::Deallocate { ranges } = device.operation {
            let data: Vec<u8> = (0..ranges).flat_map(|_| input.bytes::<16>()).collect();
            match self.queue.handle_ranges(&device, &data) {
                Ok(list) => assert!(list.len() <= usize::from(ranges)),
                Err(refused) => status = refused,
            }
        }
        if let DeviceOperation::Reserve(operation) = device.operation {
            let data: [u8; 16] = input.bytes();
            let Transfer::FromHost(length) = device.transfer else { panic!("keys come as data") };
            let data = data.get(..length as usize).expect("at most two keys");
            assert!(operation.request(data).is_ok());
        }
        let completion = self.queue.complete_device(&device, status);
        self.answered(completion);
    }

    fn complete_pair(&mut self, input: &mut Input<'_>) {
        let Some((compare, write)) = self.pairs.pop_front() else {
            let id = self.waiting.keys().next().copied().unwrap_or(0);
            if let Some(completion) = self.queue.abort_held(id) {
                self.answered(completion);
            }
            return;
        };
        let status = match input.byte() % 2 {
            0 => Status::COMPARE_FAILURE.with_dnr(),
            _ => Status::SUCCESS,
        };
        for completion in self.queue.complete_fused(&compare, &write, status) {
            assert_eq!(completion.status().is_success(), status.is_success());
            self.answered(completion);
        }
    }

    fn change(&mut self, input: &mut Input<'_>) {
        self.view = view(input.byte());
        self.queue.replace_view(&self.view);
        assert_eq!(self.queue.namespaces(), &self.view.namespaces);
    }

    fn answered(&mut self, completion: Completion) {
        let known = self.waiting.remove(&completion.command_id.get());
        assert!(known.is_some(), "a command is answered once: {completion:?}");
    }

    /// What a device has completes, a held command is flushed out by another: all is answered.
    fn finish(mut self) {
        while !self.pairs.is_empty() {
            self.complete_pair(&mut Input { rest: &[1] });
        }
        let left: Vec<_> = self.waiting.iter().map(|(id, device)| (*id, *device)).collect();
        for (command_id, device) in left {
            let completion = match (device, self.queue.abort_held(command_id)) {
                (_, Some(completion)) => completion,
                (Some(device), None) => self.queue.complete_device(&device, Status::SUCCESS),
                (None, None) => self.queue.complete(command_id, Status::SUCCESS),
            };
            self.answered(completion);
        }
        assert_eq!(self.shared.in_flight(), 0);
    }
}

/// A view in one of 256 states: namespaces there or not, protected or not, larger or smaller.
pub(crate) fn view(state: u8) -> SubsystemView {
    let bit = |place: u32| state.checked_shr(place).unwrap_or(0) % 2 == 1;
    let namespace = |nsid: u32| NamespaceView {
        nsid,
        block_bytes: 512,
        blocks: if bit(nsid) { 64 } else { 200 },
        uuid: [1; 16],
        nguid: [2; 16],
        eui64: [0; 8],
        capabilities: NamespaceCapabilities {
            read_only: false,
            volatile_cache: bit(3),
            deallocate: !bit(4),
            reads_zeroes: true,
            write_zeroes_deallocates: bit(4),
            persistent_reservations: false,
            write_uncorrectable: bit(5),
        },
        hints: NamespaceHints { compare_and_write_blocks: 8, ..NamespaceHints::default() },
        write_protected: bit(nsid + 4),
        lost_writes: false,
        detached: false,
        device: nsid,
        ana_group: nsid % 2 + 1,
        owner_change: 0,
    };
    let nsids = [1, 2, 3].into_iter().filter(|nsid| !bit(*nsid - 1) || *nsid == 1);
    let group = if bit(7) { State::INACCESSIBLE } else { State::CHANGE };
    let ana = [(1, GroupStates::from_iter([(2, group)]))].into_iter();
    SubsystemView {
        nqn: Nqn::try_from("nqn.2024-01.io.weft:fuzz").expect("a name"),
        kind: SubsystemKind::Nvm,
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        namespaces: nsids.map(namespace).collect(),
        owner_changes: 0,
        visibility: Visibility::default(),
        host_namespaces: None,
        allowed_hosts: None,
        ana: bit(6).then(|| Arc::new(ana.collect())),
        policies: Arc::default(),
        controller_model: ControllerModel::Dynamic,
        limits: SubsystemLimits { mdts_bytes: 8192, ..SubsystemLimits::default() },
        shared: SubsystemShared::new(),
    }
}
