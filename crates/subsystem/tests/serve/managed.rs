//! Namespaces that hosts make, attach and delete.

use std::sync::{Arc, Mutex};

use weft_nvme::event::Event;
use weft_nvme::identify::{self, Cns, ControllerList, FormattedLbaSize, Identify, NamespaceList};
use weft_nvme::wire::{U32, U64};
use weft_nvme::{AdminOpcode, Command, Status, Wire};
use weft_target::config::{Config, HostNamespaces, State};
use weft_target::steps::{Step, StepError, StepOutcome};
use weft_target::{Changes, Target};
use weft_transport::host::HostData;

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{HOST, address, config_of_two_groups, pattern, start};

const BLOCK: usize = 4096;

/// Steps of a target that keeps its state as often as it is told that it can.
struct Steps<F> {
    step: F,
    kept: Box<dyn FnMut() -> bool>,
}

impl<F: FnMut(&Step) -> Result<StepOutcome, StepError>> Changes for Steps<F> {
    fn step(&mut self, step: &Step) -> Result<StepOutcome, StepError> {
        (self.step)(step)
    }

    fn keep(&mut self) -> Result<(), StepError> {
        (self.kept)().then_some(()).ok_or_else(|| StepError::failed("the disk is full"))
    }
}

fn kept<F>(step: F) -> Steps<F> {
    Steps { step, kept: Box::new(|| true) }
}

/// A target whose hosts may make namespaces, with somebody who makes them.
fn managed(folder: Option<std::path::PathBuf>) -> Arc<Mutex<Target>> {
    let mut config: Config = config_of_two_groups(&["memory:1MiB"]);
    config.subsystems[0].host_namespaces =
        Some(HostNamespaces { capacity: 8 << 20, folder, rbd: None });
    let target = start(config);
    let requests = target.namespace_requests();
    let target = Arc::new(Mutex::new(target));
    let operated = Arc::downgrade(&target);
    std::thread::spawn(move || {
        for request in requests {
            let Some(target) = operated.upgrade() else { return };
            let subsystem = target.lock().expect("no panic").config().subsystems[0].clone();
            let step = |step: &Step| {
                target.lock().map_err(|_| StepError::failed("it has ended"))?.step(step)
            };
            let result = request.carry_out(&subsystem, &mut kept(step));
            request.answer(result);
        }
    });
    target
}

fn list(admin: &mut Peer, cns: Cns) -> Vec<u32> {
    let answer = admin.run_for(Identify::new(cns, 0).to_command(), 4096).succeeded();
    NamespaceList::read(answer.bytes()).expect("4096 bytes").iter().collect()
}

fn create(admin: &mut Peer, blocks: u64) -> Result<u32, Status> {
    let mut wanted = identify::Namespace::zeroed();
    (wanted.size, wanted.capacity) = (U64::new(blocks), U64::new(blocks));
    wanted.formatted_lba_size = FormattedLbaSize(1);
    let answer = admin.run_with(Command::new(AdminOpcode::NAMESPACE_MANAGEMENT), wanted.bytes());
    match answer.status() {
        Status::SUCCESS => Ok(answer.completion.dword0()),
        status => Err(status),
    }
}

fn attach(admin: &mut Peer, nsid: u32, select: u32, controller: u16) -> Status {
    let mut command = Command::new(AdminOpcode::NAMESPACE_ATTACHMENT).with_namespace_id(nsid);
    command.cdw10 = U32::new(select);
    admin.run_with(command, ControllerList::new([controller]).bytes()).status()
}

fn delete(admin: &mut Peer, nsid: u32) -> Status {
    let mut command = Command::new(AdminOpcode::NAMESPACE_MANAGEMENT).with_namespace_id(nsid);
    command.cdw10 = U32::new(1);
    admin.run(command, HostData::None).status()
}

fn on_a_target(folder: Option<&std::path::Path>) {
    let target = managed(folder.map(std::path::Path::to_owned));
    let at = address(&target.lock().expect("no panic"));
    let (mut admin, controller) = Peer::admin(at);
    let mut io = Peer::io(at, controller, 1);
    let (mut other, others) = Peer::admin_as(at, &ConnectFields::admin().of_other_host());
    assert_eq!(
        create(&mut admin, 1025 + 1024),
        Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.with_dnr())
    );
    assert_eq!(create(&mut admin, 1024), Ok(2));
    assert_eq!(create(&mut other, 512), Ok(3));
    let files = || folder.map(|folder| std::fs::read_dir(folder).expect("a folder").count());
    assert_eq!(files(), folder.map(|_| 2));
    assert_eq!(list(&mut admin, Cns::ALLOCATED_NAMESPACE_LIST), [1, 2, 3]);
    assert_eq!(list(&mut admin, Cns::ACTIVE_NAMESPACE_LIST), [1]);
    let bytes = pattern(BLOCK, 5);
    let missing = Status::INVALID_NAMESPACE.with_dnr();
    assert_eq!(io.write(2, 0, 1, &bytes).status(), missing, "it is not attached");

    // The other host attaches it to the first one's controller, which hears of it.
    let event = admin.begin_event_request();
    assert_eq!(attach(&mut other, 2, 0, controller), Status::SUCCESS);
    let told = admin.wait_for(event).succeeded().completion.dword0();
    assert_eq!(Event(told), Event::NAMESPACE_ATTRIBUTE_CHANGED);
    assert_eq!(list(&mut admin, Cns::ACTIVE_NAMESPACE_LIST), [1, 2]);
    assert_eq!(list(&mut other, Cns::ACTIVE_NAMESPACE_LIST), [1]);
    io.write(2, 1023, 1, &bytes).succeeded();
    assert!(io.read(2, 1023, 1, BLOCK).bytes() == bytes);
    let again = attach(&mut admin, 2, 0, controller);
    assert_eq!(again, Status::NAMESPACE_ALREADY_ATTACHED.with_dnr());
    assert_eq!(attach(&mut admin, 2, 0, 999), Status::CONTROLLER_LIST_INVALID.with_dnr());
    let shown =
        target.lock().expect("no panic").config().subsystems[0].namespaces[1].visible_to.clone();
    assert_eq!(shown, Some(vec![HOST.to_owned()]));

    assert_eq!(attach(&mut admin, 2, 1, controller), Status::SUCCESS);
    assert_eq!(io.read(2, 1023, 1, BLOCK).status(), missing, "it is detached");
    assert_eq!(attach(&mut admin, 2, 0, controller), Status::SUCCESS);
    assert!(io.read(2, 1023, 1, BLOCK).bytes() == bytes, "and its contents are there");
    assert_eq!(attach(&mut admin, 2, 0, others), Status::SUCCESS);
    assert_eq!(delete(&mut admin, 1), Status::OPERATION_DENIED.with_dnr());
    assert_eq!(delete(&mut admin, 2), Status::SUCCESS);
    assert_eq!(io.read(2, 0, 1, BLOCK).status(), missing);
    assert_eq!(files(), folder.map(|_| 1));
    assert_eq!(create(&mut admin, 1536), Ok(2), "what is deleted is free again");
    assert_eq!(delete(&mut other, u32::MAX), Status::SUCCESS);
    assert_eq!(list(&mut admin, Cns::ALLOCATED_NAMESPACE_LIST), [1]);
    assert_eq!(files(), folder.map(|_| 0));
}

#[test]
fn hosts_make_namespaces_in_memory() {
    on_a_target(None);
}

#[test]
fn hosts_make_namespaces_in_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    on_a_target(Some(folder.path()));
}

#[test]
fn what_does_not_become_a_namespace_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config: Config = config_of_two_groups(&["memory:1MiB"]);
    let own = Some(folder.path().to_owned());
    config.subsystems[0].host_namespaces =
        Some(HostNamespaces { capacity: 8 << 20, folder: own, rbd: None });
    let target = start(config);
    let requests = target.namespace_requests();
    let (mut admin, _) = Peer::admin(address(&target));
    let subsystem = target.config().subsystems[0].clone();
    let target = Mutex::new(target);
    let count = || std::fs::read_dir(folder.path()).expect("a folder").count();
    let counted = std::thread::scope(|scope| {
        let (target, count) = (&target, &count);
        let manager = scope.spawn(move || {
            let request = requests.recv().expect("a request");
            let mut counted = None;
            let step = |step: &Step| match step {
                Step::AddNamespace { .. } => {
                    counted = Some(count());
                    Err(StepError::failed("as a test"))
                }
                other => target.lock().expect("no panic").step(other),
            };
            let result = request.carry_out(&subsystem, &mut kept(step));
            request.answer(result);
            counted
        });
        assert_eq!(create(&mut admin, 256), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
        manager.join().expect("no panic")
    });
    assert_eq!((counted, count()), (Some(1), 0), "it was there, and is deleted");
    assert!(target.lock().expect("no panic").config().operated.bdevs.is_empty());
}

/// Whichever change it is, and whichever of its states cannot be written: all of it is made and
/// kept, or nothing. A file is there as long as a state may name it.
#[test]
fn a_change_of_a_host_that_cannot_be_kept_is_not_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config: Config = config_of_two_groups(&["memory:1MiB"]);
    let own = Some(folder.path().to_owned());
    config.subsystems[0].host_namespaces =
        Some(HostNamespaces { capacity: 8 << 20, folder: own, rbd: None });
    let target = start(config);
    let requests = target.namespace_requests();
    let (mut admin, controller) = Peer::admin(address(&target));
    let target = Arc::new(Mutex::new(target));
    let (operated, limit) = (Arc::downgrade(&target), Arc::new(Mutex::new(usize::MAX)));
    let left = Arc::clone(&limit);
    std::thread::spawn(move || {
        for request in requests {
            let Some(target) = operated.upgrade() else { return };
            let subsystem = target.lock().expect("no panic").config().subsystems[0].clone();
            let step = |step: &Step| target.lock().expect("no panic").step(step);
            let left = Arc::clone(&left);
            let kept = Box::new(move || {
                let mut left = left.lock().expect("no panic");
                *left = left.saturating_sub(1);
                *left > 0
            });
            request.answer(request.carry_out(&subsystem, &mut Steps { step, kept }));
        }
    });
    let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
    let served = || target.lock().expect("no panic").config().clone();
    let fails_after = |states: usize| *limit.lock().expect("no panic") = states.saturating_add(1);
    let refused = Status::NAMESPACE_INSUFFICIENT_CAPACITY;
    let before = served();
    fails_after(0);
    assert_eq!(create(&mut admin, 256), Err(refused));
    assert_eq!((served(), files()), (before, 0));
    fails_after(usize::MAX);
    let nsid = create(&mut admin, 256).expect("there is room");
    let before = served();
    fails_after(0);
    assert_eq!(attach(&mut admin, nsid, 0, controller), refused);
    assert_eq!(served(), before, "not attached");
    assert_eq!(delete(&mut admin, nsid), refused);
    assert_eq!((served(), files()), (before, 1));
    fails_after(usize::MAX);
    assert_eq!(attach(&mut admin, nsid, 0, controller), Status::SUCCESS);
    let attached = served();
    fails_after(0);
    assert_eq!(attach(&mut admin, nsid, 1, controller), refused);
    assert_eq!(served(), attached, "still attached");
    fails_after(1);
    assert_eq!(delete(&mut admin, nsid), refused);
    assert_eq!(files(), 1, "a state may still name it");
}

/// However many are under way when one is asked for.
#[test]
fn hosts_that_ask_at_once_have_no_more_than_there_is() {
    let target = managed(None);
    let at = address(&target.lock().expect("no panic"));
    let fields = [ConnectFields::admin(), ConnectFields::admin().of_other_host()];
    let mut peers = fields.map(|fields| Peer::admin_as(at, &fields).0);
    let mut wanted = identify::Namespace::zeroed();
    (wanted.size, wanted.capacity) = (U64::new(600), U64::new(600));
    wanted.formatted_lba_size = FormattedLbaSize(1);
    let command = Command::new(AdminOpcode::NAMESPACE_MANAGEMENT);
    let slots = peers.each_mut().map(|peer| {
        [(); 12].map(|()| peer.submit(command, HostData::ToController(peer.buffer(wanted.bytes()))))
    });
    let mut made = 0;
    for (peer, slots) in peers.iter_mut().zip(slots) {
        for slot in slots {
            match peer.wait_for(slot).status() {
                Status::SUCCESS => made += 1,
                status => {
                    assert_eq!(status, Status::NAMESPACE_INSUFFICIENT_CAPACITY.with_dnr());
                }
            }
        }
    }
    assert_eq!(made, 3, "of 2048 blocks");
}

#[test]
fn without_somebody_who_makes_them_hosts_are_told() {
    let mut config = config_of_two_groups(&["memory:1MiB"]);
    config.subsystems[0].host_namespaces =
        Some(HostNamespaces { capacity: 1 << 20, folder: None, rbd: None });
    let target = start(config);
    let (mut admin, _) = Peer::admin(address(&target));
    assert_eq!(create(&mut admin, 1), Err(Status::INTERNAL_ERROR));
    target.stop().expect("a clean stop");
}

/// The state file has them, and the next target serves them as they were.
#[test]
fn what_hosts_have_made_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = managed(Some(folder.path().to_owned()));
    let at = address(&target.lock().expect("no panic"));
    let (mut admin, controller) = Peer::admin(at);
    assert_eq!(create(&mut admin, 256), Ok(2));
    assert_eq!(create(&mut admin, 256), Ok(3));
    assert_eq!(attach(&mut admin, 2, 0, controller), Status::SUCCESS);
    let mut io = Peer::io(at, controller, 1);
    let bytes = pattern(BLOCK, 9);
    io.write(2, 0, 1, &bytes).succeeded();
    drop((io, admin));
    let target = Arc::into_inner(target).expect("one").into_inner().expect("no panic");
    let settings = target.config().clone();
    let state = State { config: target.config_with_uuids(), applied: settings.clone() };
    let text = state.to_text().expect("text");
    target.stop().expect("a clean stop");

    let state = State::parse(&text, &settings).expect("what was written");
    assert_eq!(state.config.subsystems[0].host_namespaces, settings.subsystems[0].host_namespaces);
    let target = start(state.config);
    let (mut admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    assert_eq!(list(&mut admin, Cns::ACTIVE_NAMESPACE_LIST), [1, 2]);
    assert_eq!(list(&mut admin, Cns::ALLOCATED_NAMESPACE_LIST), [1, 2, 3]);
    assert!(io.read(2, 0, 1, BLOCK).bytes() == bytes);
    assert_eq!(delete(&mut admin, 1), Status::OPERATION_DENIED.with_dnr());
    target.stop().expect("a clean stop");
}
