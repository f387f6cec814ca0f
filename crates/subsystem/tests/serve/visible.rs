//! Namespaces that only some hosts of a subsystem see.

use weft_nvme::event::Event;
use weft_nvme::identify::{Cns, Identify};
use weft_nvme::log_page::LogPageId;
use weft_nvme::{Command, Status};
use weft_target::Target;
use weft_target::steps::{NamespaceVisibility, Step, StepErrorKind};
use weft_transport::host::HostOptions;

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{HOST, OTHER_HOST, SUBSYSTEM, address, config_of_two_groups, pattern, start};

const BLOCK: usize = 4096;

/// The identifiers of the namespaces that a host finds.
fn seen(admin: &mut Peer) -> Vec<u32> {
    let command = Identify::new(Cns::ACTIVE_NAMESPACE_LIST, 0).to_command();
    let answer = admin.run_for(command, 4096).succeeded();
    let words = answer.bytes().chunks(4);
    let words = words.map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
    words.take_while(|nsid| *nsid != 0).collect()
}

/// Whether a host finds a namespace by its number.
fn identified(admin: &mut Peer, nsid: u32) -> bool {
    let command: Command = Identify::new(Cns::NAMESPACE, nsid).to_command();
    let answer = admin.run_for(command, 4096).succeeded();
    // One that is not active is all zero.
    answer.bytes().iter().any(|byte| *byte != 0)
}

fn set(target: &mut Target, nsid: u32, visible: NamespaceVisibility) {
    let step = Step::SetVisible { nqn: SUBSYSTEM.to_owned(), nsid, visible };
    target.step(&step).unwrap_or_else(|error| panic!("{step:?}: {error}"));
}

fn other_host(target: &Target) -> (Peer, Peer) {
    let fields = ConnectFields::admin().of_other_host();
    let (admin, controller) = Peer::admin_as(address(target), &fields);
    let fields = ConnectFields::io(controller, 1).of_other_host();
    (admin, Peer::io_as(address(target), &fields, HostOptions::default()))
}

#[track_caller]
fn hears(admin: &mut Peer, request: weft_transport::Slot, nsid: u32) {
    let answer = admin.wait_for(request).succeeded();
    assert_eq!(Event(answer.completion.dword0()), Event::NAMESPACE_ATTRIBUTE_CHANGED);
    let page = admin.log_page(LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 4096);
    assert_eq!(page[..8], [nsid.to_le_bytes(), [0; 4]].concat());
}

#[test]
fn a_namespace_is_there_only_for_hosts_that_see_it() {
    let mut config = config_of_two_groups(&["memory:1MiB", "memory:1MiB"]);
    config.subsystems[0].namespaces[1].visible_to = Some(vec![OTHER_HOST.to_owned()]);
    let mut target = start(config);
    let (mut admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    let (mut other, mut others) = other_host(&target);
    assert_eq!((seen(&mut admin), seen(&mut other)), (vec![1], vec![1, 2]));
    assert_eq!((identified(&mut admin, 2), identified(&mut other, 2)), (false, true));
    let bytes = pattern(BLOCK, 3);
    others.write(2, 0, 1, &bytes).succeeded();
    let refused = Status::INVALID_NAMESPACE.with_dnr();
    assert_eq!(io.read(2, 0, 1, BLOCK).status(), refused);
    assert_eq!(io.write(2, 0, 1, &bytes).status(), refused);

    // It is shown to one more host, which is told; the other one has nothing to hear.
    let (event, quiet) = (admin.begin_event_request(), other.begin_event_request());
    let mut queues = [io, Peer::io(address(&target), controller, 2)];
    set(&mut target, 2, NamespaceVisibility::To(HOST.to_owned()));
    hears(&mut admin, event, 2);
    assert_eq!(seen(&mut admin), [1, 2]);
    for io in &mut queues {
        assert!(io.read(2, 0, 1, BLOCK).bytes() == bytes, "the contents are the same");
    }
    let event = admin.begin_event_request();
    set(&mut target, 2, NamespaceVisibility::NotTo(HOST.to_owned()));
    hears(&mut admin, event, 2);
    assert_eq!(seen(&mut admin), [1]);
    for io in &mut queues {
        assert_eq!(io.read(2, 0, 1, BLOCK).status(), refused);
        io.read(1, 0, 1, BLOCK).succeeded();
    }
    assert!(others.read(2, 0, 1, BLOCK).bytes() == bytes);
    assert!(!other.is_answered(quiet, std::time::Duration::from_millis(50)));

    // To all, and from then on hosts are not listed.
    let event = admin.begin_event_request();
    set(&mut target, 2, NamespaceVisibility::ToAll);
    hears(&mut admin, event, 2);
    let step = Step::SetVisible {
        nqn: SUBSYSTEM.to_owned(),
        nsid: 2,
        visible: NamespaceVisibility::NotTo(OTHER_HOST.to_owned()),
    };
    let error = target.step(&step).expect_err("every host sees it");
    assert_eq!(error.kind, StepErrorKind::Invalid, "{error}");
    set(&mut target, 2, NamespaceVisibility::ToListed);
    assert_eq!((seen(&mut admin), seen(&mut other)), (vec![1], vec![1]));
    for (nsid, host) in [(3, OTHER_HOST), (2, "a b")] {
        let visible = NamespaceVisibility::To(host.to_owned());
        let step = Step::SetVisible { nqn: SUBSYSTEM.to_owned(), nsid, visible };
        target.step(&step).expect_err("no such namespace, or no name of a host");
    }
    assert_eq!(target.config().subsystems[0].namespaces[1].visible_to, Some(Vec::new()));
    target.stop().expect("a clean stop");
}

#[test]
fn a_reload_shows_a_namespace_to_other_hosts() {
    let config = config_of_two_groups(&["memory:1MiB", "memory:1MiB"]);
    let mut target = start(config.clone());
    let (mut admin, _) = Peer::admin(address(&target));
    assert_eq!(seen(&mut admin), [1, 2]);
    let with = |hosts: Option<&[&str]>| {
        let mut config = config.clone();
        let hosts = hosts.map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect());
        config.subsystems[0].namespaces[1].visible_to = hosts;
        config
    };
    let event = admin.begin_event_request();
    let lines = target.reload(with(Some(&[OTHER_HOST]))).expect("a reload");
    assert_eq!(lines, [format!("namespace 2 of {SUBSYSTEM} is seen by {OTHER_HOST} only")]);
    hears(&mut admin, event, 2);
    assert_eq!(seen(&mut admin), [1]);
    let lines = target.reload(with(Some(&[]))).expect("a reload");
    assert_eq!(lines, [format!("namespace 2 of {SUBSYSTEM} is seen by no host")]);
    let lines = target.reload(with(None)).expect("a reload");
    assert_eq!(lines, [format!("namespace 2 of {SUBSYSTEM} is seen by every host")]);
    assert_eq!(seen(&mut admin), [1, 2]);
    target.stop().expect("a clean stop");
}

/// More than the hosts of one turn: those that are told later know of the change before their next
/// command.
#[test]
fn each_of_many_hosts_is_told_and_knows_at_its_next_command() {
    let devices = vec!["null:1MiB"; 200];
    let mut target = start(config_of_two_groups(&devices));
    let mut hosts: Vec<Peer> = (0..40).map(|_| Peer::admin(address(&target)).0).collect();
    let events: Vec<_> = hosts.iter_mut().map(Peer::begin_event_request).collect();
    set(&mut target, 7, NamespaceVisibility::ToListed);
    for (admin, event) in hosts.iter_mut().zip(events) {
        assert!(!identified(admin, 7));
        hears(admin, event, 7);
    }
    target.stop().expect("a clean stop");
}
