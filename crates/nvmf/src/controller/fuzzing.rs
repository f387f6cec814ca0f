//! A harness that reads bytes as a sequence of actions upon one controller, and holds it to its
//! invariants: nothing panics, every command is answered exactly once or ends with the
//! controller, data has the length that the command speaks of, and once the controller has ended
//! nothing more is asked of anybody. Fuzz targets and property tests share it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use weft_nvme::command::Flags;
use weft_nvme::fabrics::{PropertyGet, PropertySet, PropertySize};
use weft_nvme::property::Offset;
use weft_nvme::sgl::Descriptor;
use weft_nvme::{AdminOpcode, Command, Completion, Nqn, Status, Wire};

use super::{AdminReply, Controller, ControllerEvent, Effect};
use crate::connect::ConnectRequest;
use crate::discovery::{DiscoveryEntry, DiscoveryView, EntryKind};
use crate::queue::IoQueue;
use crate::queue::fuzzing::{Input, view as io_view};
use crate::subsystem::{HostNamespaces, Namespaces, SubsystemKind, SubsystemView};

/// Reads `data` as actions and carries them out. Panics if an invariant is broken.
pub fn actions(data: &[u8]) {
    let mut input = Input { rest: data };
    let mut harness = Harness::new(input.byte());
    while !input.rest.is_empty() {
        harness.act(&mut input);
    }
    harness.finish();
}

struct Harness {
    controller: Controller,
    is_discovery: bool,
    queues: BTreeMap<u16, IoQueue>,
    /// Commands whose answer is to come as an effect.
    waiting: BTreeSet<u16>,
    aborts: Vec<u16>,
    setting: Vec<u16>,
    next_id: u16,
    now: Duration,
    ended: bool,
}

impl Harness {
    fn new(seed: u8) -> Self {
        let is_discovery = seed.is_multiple_of(4);
        let view = Arc::new(make_view(is_discovery, seed));
        let request = request(0, seed, &view.nqn);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let now = Duration::from_secs(1);
        let controller = Controller::new(view, &request, CONTROLLER_ID, local, now);
        assert!(controller.connect_completion().status().is_success());
        Self {
            controller,
            is_discovery,
            queues: BTreeMap::new(),
            waiting: BTreeSet::new(),
            aborts: Vec::new(),
            setting: Vec::new(),
            next_id: 0,
            now,
            ended: false,
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..=6 => self.submit(admin_command(input), input),
            7 => self.configure(input),
            8 => self.give_up_requests(input),
            9 => self.attach(input),
            10 => self.detach(input),
            11 => self.pass_time(input),
            12 => self.replace_view(input),
            13 => self.answer(input),
            14 => self.traffic(input),
            _ => self.event(input),
        }
        self.drain();
    }

    fn submit(&mut self, command: Command, input: &mut Input<'_>) {
        self.next_id = self.next_id.wrapping_add(1);
        let command = command.with_command_id(self.next_id);
        if self.waiting.contains(&self.next_id) {
            return;
        }
        if input.byte().is_multiple_of(16) {
            let done = self.controller.reject(&command, Status::TRANSIENT_TRANSPORT_ERROR);
            assert_eq!(done.command_id, command.command_id);
            return;
        }
        let mut reply = self.controller.handle_command(&command, &[], self.now);
        if let AdminReply::NeedData(length) = reply {
            let length = usize::try_from(length).expect("small");
            let data: Vec<u8> = (0..length).map(|_| input.byte() % 3).collect();
            reply = self.controller.handle_command(&command, &data, self.now);
            assert!(!matches!(reply, AdminReply::NeedData(_)), "data is asked for once");
        }
        match reply {
            AdminReply::Complete(done) => assert_eq!(done.command_id, command.command_id),
            AdminReply::Data { bytes, completion } => {
                assert_eq!(completion.command_id, command.command_id);
                assert!(completion.status().is_success());
                let described = command.data_pointer.location().expect("checked").length();
                assert_eq!(bytes.len(), usize::try_from(described).expect("small"));
            }
            AdminReply::Pending => {
                self.waiting.insert(self.next_id);
            }
            AdminReply::NeedData(_) => {}
        }
    }

    /// The host gives its event requests up and uses the identifier of one again.
    fn give_up_requests(&mut self, input: &mut Input<'_>) {
        let events = &self.controller.events;
        let requests: Vec<u16> =
            self.waiting.iter().copied().filter(|id| events.is_waiting(*id)).collect();
        let Some(id) = requests.get(usize::from(input.byte()) % requests.len().max(1)) else {
            return;
        };
        let get = PropertyGet::new(Offset::CONTROLLER_STATUS, PropertySize::Four);
        let command = get.to_command().with_command_id(*id);
        let reply = self.controller.handle_command(&command, &[], self.now);
        assert!(matches!(reply, AdminReply::Complete(done) if done.command_id.get() == *id));
        self.waiting.retain(|id| !requests.contains(id));
    }

    fn configure(&mut self, input: &mut Input<'_>) {
        let values = [0x0046_0061, 0x0046_0061, 0, 0x0046_4061, 0x0046_8061, 0x0046_0060];
        let known = usize::from(input.byte());
        let value = match values.get(known % 8) {
            Some(value) => *value,
            None => u32::from_le_bytes(input.bytes()),
        };
        let offset = Offset::CONTROLLER_CONFIGURATION;
        let set = PropertySet::new(offset, PropertySize::Four, value.into());
        self.submit(set.to_command(), &mut Input { rest: &[1] });
    }

    fn attach(&mut self, input: &mut Input<'_>) {
        let queue_id = u16::from(input.byte() % 6);
        let request = request(queue_id, input.byte(), &self.controller.view.nqn);
        match self.controller.attach_queue(&request) {
            Ok(grant) => {
                assert!(self.controller.is_ready() && !self.ended && !self.is_discovery);
                assert!(grant.completion().status().is_success());
                let queue = IoQueue::new(grant, &self.controller.view);
                let old = self.queues.insert(queue_id, queue);
                assert!(old.is_none(), "a queue is attached once");
            }
            Err(error) => assert!(!error.completion(1).status().is_success()),
        }
    }

    fn detach(&mut self, input: &mut Input<'_>) {
        let queue_id = u16::from(input.byte() % 6);
        self.queues.remove(&queue_id);
        self.controller.detach_queue(queue_id);
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        let seconds = Duration::from_secs(input.byte().into());
        let target = self.now + seconds;
        while let Some(deadline) = self.controller.deadline().filter(|at| *at <= target) {
            self.now = self.now.max(deadline);
            self.controller.handle_deadline(self.now);
            let next = self.controller.deadline();
            assert!(next.is_none_or(|next| next > self.now), "a deadline moves on");
        }
        self.now = target;
        self.controller.handle_deadline(self.now);
    }

    fn replace_view(&mut self, input: &mut Input<'_>) {
        let mut view = make_view(self.is_discovery, input.byte());
        if input.byte().is_multiple_of(32) {
            view.allowed_hosts = Some(Arc::default());
        }
        for queue in self.queues.values_mut() {
            queue.replace_view(&view);
        }
        self.controller.replace_view(Arc::new(view));
    }

    /// Answers what the controller asked of the target, or what it never asked.
    fn answer(&mut self, input: &mut Input<'_>) {
        let aborted = input.byte().is_multiple_of(2);
        let status = if aborted { Status::SUCCESS } else { Status::INTERNAL_ERROR };
        let event = match (self.aborts.pop(), self.setting.pop()) {
            (Some(abort_id), _) => ControllerEvent::AbortDone { abort_id, aborted },
            (_, Some(command_id)) => ControllerEvent::FeatureDone { command_id, status },
            _ => ControllerEvent::AbortDone { abort_id: u16::from(input.byte()), aborted },
        };
        self.controller.handle_event(event);
    }

    fn traffic(&mut self, input: &mut Input<'_>) {
        let wanted = usize::from(input.byte());
        let count = self.queues.len().max(1);
        if let Some(queue) = self.queues.values_mut().nth(wanted % count) {
            queue.handle_command(&Command::new(input.byte()));
        }
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let event = match input.byte() % 64 {
            0 => ControllerEvent::AdminQueueLost,
            1 => ControllerEvent::Fatal,
            _ => return,
        };
        self.controller.handle_event(event);
    }

    fn drain(&mut self) {
        while let Some(effect) = self.controller.poll_effect() {
            assert!(!self.ended, "nothing comes after the end: {effect:?}");
            match effect {
                Effect::Complete(completion) => self.answered(completion),
                Effect::EndQueues(_) => {}
                Effect::Discard { command_id } => _ = self.waiting.remove(&command_id),
                Effect::Abort { abort_id, queue_id, .. } => {
                    assert!(self.queues.contains_key(&queue_id));
                    self.aborts.push(abort_id);
                }
                Effect::SetWriteProtect { command_id, nsid, .. } => {
                    assert!(self.controller.view.namespaces.get(nsid).is_some());
                    self.setting.push(command_id);
                }
                Effect::SetPersistence { command_id, nsid, .. } => {
                    assert!(self.controller.view.namespaces.get(nsid).is_some());
                    self.setting.push(command_id);
                }
                Effect::ChangeNamespaces { command_id, .. } => {
                    assert!(self.controller.view.host_namespaces.is_some());
                    self.setting.push(command_id);
                }
                Effect::ResetSubsystem => {}
                Effect::Register { command_id, change } => {
                    assert!(self.is_discovery && !change.entries.is_empty());
                    self.setting.push(command_id);
                }
                Effect::Close(_) => self.ended = true,
            }
        }
        assert!(!self.ended || self.controller.deadline().is_none(), "the end is the end");
    }

    fn answered(&mut self, completion: Completion) {
        let known = self.waiting.remove(&completion.command_id.get());
        assert!(known, "a command is answered once: {completion:?}");
    }

    /// Everything that waits is answered once the host resets the controller and the target has
    /// answered, or the controller has ended.
    fn finish(mut self) {
        let rest = [0; 8];
        for value in [0x0046_0061, 0] {
            let offset = Offset::CONTROLLER_CONFIGURATION;
            let set = PropertySet::new(offset, PropertySize::Four, value);
            self.submit(set.to_command(), &mut Input { rest: &[1] });
            self.drain();
        }
        while !(self.aborts.is_empty() && self.setting.is_empty()) {
            self.answer(&mut Input { rest: &rest });
            self.drain();
        }
        assert!(self.ended || self.waiting.is_empty(), "left: {:?}", self.waiting);
    }
}

const CONTROLLER_ID: u16 = 3;

fn request(queue_id: u16, seed: u8, subsystem: &Nqn) -> ConnectRequest {
    ConnectRequest {
        command_id: 0,
        queue_id,
        entries: 32 + u32::from(seed),
        flow_control: seed.is_multiple_of(2),
        priority: seed % 4,
        keep_alive_timeout_ms: u32::from(seed) * 500,
        host_id: [1; 16],
        controller_id: if queue_id == 0 { 0xffff } else { CONTROLLER_ID },
        subsystem: *subsystem,
        host: Nqn::try_from("nqn.2014-08.org.nvmexpress:uuid:fuzz").expect("a name"),
    }
}

fn make_view(is_discovery: bool, state: u8) -> SubsystemView {
    let mut view = io_view(state);
    view.limits.max_io_queues = 4;
    if is_discovery {
        let listener = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let entry = DiscoveryEntry::tcp(EntryKind::Nvm, view.nqn, listener, 4420);
        let entries = vec![entry; usize::from(state % 3)].into();
        let discovery = DiscoveryView {
            generation: state.into(),
            entries,
            is_centralized: state.is_multiple_of(2),
            ..DiscoveryView::default()
        };
        view.kind = SubsystemKind::Discovery(Arc::new(discovery));
        view.namespaces = Namespaces::default();
    } else if state.is_multiple_of(3) {
        let (allocated, made) = (view.namespaces.clone(), [2].into());
        let own = HostNamespaces { allocated, made, capacity_bytes: 1 << 30 };
        view.host_namespaces = Some(Arc::new(own));
    }
    view
}

/// A command that is mostly sensible, with a few bytes of it changed at will.
fn admin_command(input: &mut Input<'_>) -> Command {
    let [opcode, page, length, changes] = input.bytes();
    let known = [
        AdminOpcode::IDENTIFY,
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST,
        AdminOpcode::ABORT,
        AdminOpcode::KEEP_ALIVE,
        AdminOpcode::FABRICS,
        AdminOpcode::NAMESPACE_MANAGEMENT,
        AdminOpcode::NAMESPACE_ATTACHMENT,
    ];
    let opcode = known.get(usize::from(opcode % 16)).map_or(opcode, |known| known.0);
    let length = [4096, 512, 16, 64, 1024, 4].get(usize::from(length % 8)).copied().unwrap_or(8);
    let mut command = Command::new(opcode)
        .with_flags(Flags::SGL)
        .with_namespace_id(u32::from(changes % 3))
        .with_data_pointer(Descriptor::transport(length))
        .with_cdw10(u32::from(page));
    if opcode == AdminOpcode::GET_LOG_PAGE.0 {
        let get =
            weft_nvme::log_page::GetLogPage::new(weft_nvme::log_page::LogPageId(page), 0, length);
        command.cdw10 = get.to_command().cdw10;
    }
    if opcode == AdminOpcode::ABORT.0 {
        command.cdw10 = u32::from(page % 6).into();
    }
    if let Ok(mut bytes) = <[u8; 64]>::try_from(command.bytes()) {
        for _ in 0..changes % 4 {
            let [place, value] = input.bytes();
            if let Some(byte) = bytes.get_mut(usize::from(place % 64)) {
                *byte = value;
            }
        }
        command = Command::read(&bytes).unwrap_or_default();
    }
    command
}
