//! One association against a controller that does anything at all.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_nvme::event::Event as AsynchronousEvent;
use weft_nvme::{AdminOpcode, Command, Completion, Status};

use super::FuzzInput;
use super::peer::{Peer, PeerNamespace};
use crate::host::admin_queue::{AdminCommand, AdminData};
use crate::host::association::{Action, Association};
use crate::host::config::{ControllerKind, HostConfig};
use crate::host::problem::{Problem, Side};
use crate::host::reconnect::ReconnectPolicy;

/// An association, the controller, and what the harness knows of both.
#[derive(Debug)]
pub(crate) struct AssociationRun {
    pub(crate) association: Association,
    pub(crate) peer: Peer,
    pub(crate) now: Duration,
    /// Commands on the wire, oldest first.
    pub(crate) wire: VecDeque<AdminCommand>,
    tags: BTreeSet<u16>,
    pub(crate) open: bool,
    pub(crate) opens: u32,
    pub(crate) live: bool,
    pub(crate) ended: Option<Option<Problem>>,
    pub(crate) fail_io: u32,
    users: BTreeMap<u64, bool>,
    pub(crate) events: Vec<crate::host::Event>,
}

/// A host as most are: keep-alive of 5 s, tries for a minute.
pub(crate) fn config() -> HostConfig {
    let nqn = |text: &str| text.parse().expect("a good name");
    HostConfig {
        multipath: false,
        subsystem: nqn("nqn.2024-01.io.example:subsystem"),
        host: nqn("nqn.2024-01.io.example:host"),
        host_id: [9; 16],
        kind: ControllerKind::Nvm,
        keep_alive_timeout: Duration::from_secs(5),
        io_queues: 8,
        queue_entries: 64,
        disable_flow_control: true,
        reconnect: ReconnectPolicy {
            reconnect_delay: Duration::from_secs(2),
            ctrl_loss_tmo: Some(Duration::from_secs(60)),
            attempts_max: None,
            fast_io_fail_tmo: Some(Duration::from_secs(5)),
        },
        open_timeout: Duration::from_secs(3),
        admin_timeout: Duration::from_secs(10),
        credentials: None,
        authenticate_every: None,
    }
}

/// Runs an association through any order of answers, losses, time and wishes of the user. Checks
/// that commands go out only on an open connection and under tags of their own, that I/O queues
/// hear `Live` and `Suspend` in turn, that each user's command is answered exactly once, that no
/// deadline stays in the past, and that a shutdown always comes to its end.
pub fn run_association(actions: &[u8]) {
    let mut run = AssociationRun::new(config());
    let mut fuzz_input = FuzzInput::new(actions);
    run.association.start(run.now);
    run.collect();
    while !fuzz_input.is_empty() {
        run.step(&mut fuzz_input);
        run.collect();
    }
    run.finish_run();
}

impl AssociationRun {
    pub(crate) fn new(config: HostConfig) -> Self {
        Self {
            association: Association::new(config),
            peer: Peer::new(),
            now: Duration::from_secs(1000),
            wire: VecDeque::new(),
            tags: BTreeSet::new(),
            open: false,
            opens: 0,
            live: false,
            ended: None,
            fail_io: 0,
            users: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    fn step(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        match fuzz_input.below(16) {
            0 => self.answer_many(),
            1..=5 => self.answer_next(),
            6 => self.answer_badly(fuzz_input),
            7 => self.close(),
            8 | 9 => {
                let milliseconds = u64::from(fuzz_input.byte()) * u64::from(fuzz_input.byte());
                self.pass(Duration::from_millis(milliseconds));
            }
            10 => {
                let tag = self.users.len() as u64;
                self.submit_user(tag);
            }
            11 => self.association.reset(self.now),
            12 => {
                let generation =
                    self.association.generation().wrapping_sub(u32::from(fuzz_input.byte() % 2));
                let problem = Problem::Transport { side: Side::Io, reason: "cut".into() };
                self.association.handle_queue_lost(generation, 1, problem, self.now);
            }
            13 => self.event(fuzz_input),
            14 => {
                let nsid = u32::from(fuzz_input.byte() % 4) + 1;
                let namespace =
                    PeerNamespace { blocks: fuzz_input.byte().into(), uuid: fuzz_input.byte() };
                if self.peer.namespaces.remove(&nsid).is_none() {
                    self.peer.namespaces.insert(nsid, namespace);
                }
            }
            _ => match fuzz_input.below(32) {
                0 => self.association.shut_down(self.now),
                1 => self.association.handle_traffic(),
                _ => self.association.rescan(self.now),
            },
        }
    }

    /// The controller answers the oldest command that it does not keep; where there is none, the
    /// connection comes about.
    pub(crate) fn answer_next(&mut self) {
        let next = self.wire.iter().position(|command| !Peer::is_held(&command.command));
        match next.and_then(|next| self.wire.remove(next)) {
            Some(command) => {
                let (completion, data) = self.peer.answer(&command.command);
                self.complete(&command, &completion, data);
            }
            None if self.open => self.association.handle_opened(self.now),
            None => {}
        }
    }

    /// Enough for a controller to come up.
    fn answer_many(&mut self) {
        for _ in 0..30 {
            self.answer_next();
            self.collect();
            self.pass(Duration::from_millis(10));
        }
    }

    pub(crate) fn complete(
        &mut self,
        command: &AdminCommand,
        completion: &Completion,
        data: Vec<u8>,
    ) {
        self.tags.remove(&command.tag);
        self.association.handle_completion(command.tag, completion, data, self.now);
    }

    fn answer_badly(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        let Some(command) = self.wire.pop_front() else {
            // An answer to nothing.
            let completion = Completion::new(0, Status::SUCCESS);
            self.association.handle_completion(
                fuzz_input.byte().into(),
                &completion,
                Vec::new(),
                self.now,
            );
            return;
        };
        if fuzz_input.below(8) == 0 {
            self.tags.remove(&command.tag);
            self.association.handle_broken(command.tag, self.now);
            return;
        }
        let (completion, mut data) = self.peer.answer(&command.command);
        let completion = match fuzz_input.below(4) {
            0 => Completion::new(0, Status(u16::from(fuzz_input.byte()) << 4 | 0x3)),
            1 => completion.with_result(u64::from_le_bytes([fuzz_input.byte(); 8])),
            _ => completion,
        };
        match fuzz_input.below(3) {
            0 => data.truncate(usize::from(fuzz_input.byte()) * 8),
            1 => {
                let length = data.len().max(1);
                let at = fuzz_input.below(256) * fuzz_input.below(17) % length;
                if let Some(place) = data.get_mut(at) {
                    *place = fuzz_input.byte();
                }
            }
            _ => {}
        }
        self.complete(&command, &completion, data);
    }

    pub(crate) fn close(&mut self) {
        if self.open {
            self.drop_connection();
            self.association.handle_closed(Side::Peer, "the peer hung up".into(), self.now);
        }
    }

    fn drop_connection(&mut self) {
        self.open = false;
        self.wire.clear();
        self.tags.clear();
    }

    fn event(&mut self, fuzz_input: &mut FuzzInput<'_>) {
        let kept = self.wire.iter().position(|command| Peer::is_held(&command.command));
        let Some(command) = kept.and_then(|kept| self.wire.remove(kept)) else { return };
        let event = match fuzz_input.below(3) {
            0 => AsynchronousEvent(u32::from(fuzz_input.byte())),
            1 => AsynchronousEvent::DISCOVERY_LOG_PAGE_CHANGE,
            _ => AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED,
        };
        let completion = Completion::new(0, Status::SUCCESS).with_result(event.0.into());
        self.complete(&command, &completion, Vec::new());
    }

    pub(crate) fn submit_user(&mut self, tag: u64) {
        assert!(self.users.insert(tag, false).is_none());
        let command = Command::new(AdminOpcode(0xc1));
        self.association.submit_user(tag, command, AdminData::None, self.now);
    }

    /// Time passes, deadline by deadline.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.association.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.association.handle_deadline(self.now);
            self.collect();
            let next = self.association.deadline();
            assert!(next.is_none_or(|next| next > self.now), "a deadline stays in the past");
        }
        self.now = end;
    }

    /// Everything that the association wants done.
    pub(crate) fn collect(&mut self) {
        while let Some(action) = self.association.poll_action() {
            if let Action::Answer { tag, .. } = &action {
                let told = self.users.get_mut(tag).expect("a tag that was given");
                assert!(!core::mem::replace(told, true), "user's command {tag} is told twice");
                continue;
            }
            assert!(self.ended.is_none(), "{action:?} after the end");
            match action {
                Action::Open => {
                    assert!(!self.open, "opened twice");
                    self.open = true;
                    self.opens += 1;
                }
                Action::Authenticate(_) | Action::Renew(_) => {
                    assert!(self.live, "an exchange while it is away");
                }
                Action::Secure(_) => assert!(!self.open, "the key is for the next connection"),
                Action::Submit(command) => {
                    assert!(self.open, "{command:?} without a connection");
                    assert!(self.tags.insert(command.tag), "{command:?} under a tag in use");
                    assert!(self.tags.len() < 32, "the admin queue overflows");
                    self.wire.push_back(command);
                }
                Action::Close => self.drop_connection(),
                Action::Live(snapshot) => {
                    assert!(!core::mem::replace(&mut self.live, true), "live twice");
                    assert_eq!(snapshot.generation, self.association.generation());
                }
                Action::Changed(_) => assert!(self.live, "a change while it is away"),
                Action::Suspend => {
                    assert!(core::mem::replace(&mut self.live, false), "suspended while away");
                }
                Action::FailIo => {
                    assert!(!self.live, "I/O fails although the controller is there");
                    self.fail_io += 1;
                }
                Action::Event(event) => self.events.push(event),
                Action::Ended(problem) => {
                    self.live = false;
                    self.ended = Some(problem);
                }
                Action::Answer { .. } => {}
            }
        }
    }

    fn finish_run(&mut self) {
        self.association.shut_down(self.now);
        self.collect();
        for _ in 0..10_000 {
            if self.ended.is_some() {
                break;
            }
            self.answer_next();
            self.collect();
            self.pass(Duration::from_millis(100));
        }
        assert!(self.ended.is_some(), "the shutdown never ends");
        assert!(!self.open && self.association.is_ended());
        assert!(self.users.values().all(|told| *told), "a user's command was not told");
        assert_eq!(self.association.deadline(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_association_keeps_its_limits(
            actions in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            run_association(&actions);
        }
    }
}
