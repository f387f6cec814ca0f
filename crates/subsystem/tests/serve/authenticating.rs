//! Hosts that have to authenticate themselves, and peers that do not go about it as they should.

use std::sync::Arc;
use std::time::Duration;

use weft_nvme::authentication::FailureReason;
use weft_nvme::fabrics::{Authentication, ConnectResult, PropertyGet, PropertySize};
use weft_nvme::property::Offset;
use weft_nvme::{AdminOpcode, Command, FabricsType, NvmOpcode, Status};
#[cfg(feature = "tls")]
use weft_nvme::{fabrics::PropertySet, log_page::LogPageId};
use weft_nvmf::auth::host::{Authenticator, HostAction, Problem};
use weft_nvmf::auth::{Group, HashFunction, Names, Policy, Random};
use weft_reactor::system::random_bytes;
use weft_target::Target;
use weft_target::config::{Config, HostKeys};
use weft_transport::host::{HostData, HostEvent, HostOptions};

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::{
    HOST, OTHER_HOST, SUBSYSTEM, address, config, on_each_transport, start, wait_until,
};

const KEY: &str = "DHHC-1:01:MjM0NTY3ODk6Ozw9Pj9AQUJDREVGR0hJSktMTU5PUFGALiae:";
const OTHER_KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";
const REQUIRED: Status = Status::AUTHENTICATION_REQUIRED.with_dnr();

/// A file with a key.
fn key_file(key: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), key).expect("it is written");
    file
}

/// The usual target, at which the usual host has a key and the other one has none.
fn guarded(key: &tempfile::NamedTempFile) -> Config {
    let mut config = config(&["memory:1MiB"]);
    let subsystem = &mut config.subsystems[0];
    subsystem.allowed_hosts = Some(vec![HOST.to_owned(), OTHER_HOST.to_owned()]);
    let path = key.path().to_str().expect("a path").to_owned();
    subsystem.host_keys = vec![HostKeys { dhchap_key: Some(path), ..HostKeys::new(HOST) }];
    config
}

fn policy(key: &str) -> Policy {
    Policy::new(key.parse().expect("a key"), None)
}

fn exchange(policy: Policy) -> Authenticator {
    let name = |text: &str| text.parse().expect("a name");
    let names = Names { host: name(HOST), subsystem: name(SUBSYSTEM) };
    Authenticator::new(names, Arc::new(policy), 7)
}

fn command(fabrics_type: FabricsType, length: u32) -> Command {
    let protocol = Authentication::PROTOCOL_NVME;
    Authentication { protocol_specific0: 1, protocol_specific1: 1, protocol, length }
        .to_command(fabrics_type)
}

fn send(peer: &mut Peer, message: &[u8]) -> Status {
    let length = u32::try_from(message.len()).expect("a length");
    peer.run_with(command(FabricsType::AUTHENTICATION_SEND, length), message).status()
}

fn receive(peer: &mut Peer, length: u32) -> Vec<u8> {
    let command = command(FabricsType::AUTHENTICATION_RECEIVE, length);
    peer.run_for(command, length as usize).bytes().to_vec()
}

/// Runs an exchange; `change` may change each message that the host sends.
fn run(peer: &mut Peer, policy: Policy, change: impl Fn(usize, &mut Vec<u8>)) -> Option<Problem> {
    run_exchange(peer, exchange(policy), change)
}

fn run_exchange(
    peer: &mut Peer,
    mut exchange: Authenticator,
    change: impl Fn(usize, &mut Vec<u8>),
) -> Option<Problem> {
    let mut next = HostAction::Send(exchange.start());
    let mut sent = 0;
    loop {
        next = match next {
            HostAction::Send(mut message) => {
                change(sent, &mut message);
                sent += 1;
                assert!(send(peer, &message).is_success(), "the answer says what is wrong");
                exchange.sent()
            }
            HostAction::Receive(length) => {
                let random = Random::new(random_bytes().expect("random bytes"));
                exchange.received(&receive(peer, length), &random)
            }
            HostAction::Done => return None,
            HostAction::Failed(problem, _) => return Some(problem),
        };
    }
}

fn authenticate(peer: &mut Peer) {
    assert_eq!(run(peer, policy(KEY), |_, _| {}), None);
}

/// A queue that its host has connected, and the controller.
fn connect(target: &Target, fields: &ConnectFields) -> (Peer, u16) {
    let address = address(target);
    let mut peer = Peer::open(address, fields.options(address, HostOptions::default()));
    let result = ConnectResult(peer.connect(fields).succeeded().completion.dword0());
    assert!(result.authentication_required() && !result.secure_channel_required());
    (peer, result.controller_id())
}

fn read_version() -> Command {
    PropertyGet::new(Offset::VERSION, PropertySize::Four).to_command()
}

#[test]
fn a_queue_serves_nothing_before_it_is_authenticated() {
    let key = key_file(KEY);
    on_each_transport(&guarded(&key), |target| {
        let (mut admin, controller) = connect(target, &ConnectFields::admin());
        for opcode in 0..=u8::MAX {
            let answer = admin.run(Command::new(AdminOpcode(opcode)), HostData::None);
            assert_eq!(answer.status(), REQUIRED, "{opcode:#x}");
        }
        assert_eq!(admin.run(read_version(), HostData::None).status(), REQUIRED);
        let set = admin.set_feature(weft_nvme::feature::FeatureId(7), 0, 1);
        assert_eq!(set.status(), REQUIRED);
        // The controller cannot be enabled, so it has no I/O queues either.
        let mut io = Peer::open(
            address(target),
            ConnectFields::io(controller, 1).options(address(target), HostOptions::default()),
        );
        assert!(!io.connect(&ConnectFields::io(controller, 1)).status().is_success());

        authenticate(&mut admin);
        admin.run(read_version(), HostData::None).succeeded();
        admin.enable();
        let (mut io, _) = connect(target, &ConnectFields::io(controller, 1));
        assert_eq!(io.read(1, 0, 1, 4096).status(), REQUIRED);
        assert_eq!(io.write(1, 0, 1, &[1; 4096]).status(), REQUIRED);
        let flush = read_write(NvmOpcode::FLUSH, 1, 0, 1);
        assert_eq!(io.run(flush, HostData::None).status(), REQUIRED);
        authenticate(&mut io);
        assert_eq!(io.read(1, 0, 1, 4096).bytes(), [0; 4096], "nothing was written");
        io.write(1, 0, 1, &[1; 4096]).succeeded();
    });
}

/// Who has not shown that it is the host that it says cannot keep an identifier from that host.
#[test]
fn only_an_authenticated_host_has_its_identifier() {
    let key = key_file(KEY);
    let mut config = guarded(&key);
    let path = config.subsystems[0].host_keys[0].dhchap_key.clone();
    let other = HostKeys { dhchap_key: path, ..HostKeys::new(OTHER_HOST) };
    config.subsystems[0].host_keys.push(other);
    let target = start(config);
    let borrowed = ConnectFields {
        host_id: crate::support::HOST_ID,
        ..ConnectFields::admin().of_other_host()
    };
    let (mut other, _) = connect(&target, &borrowed);
    let (mut admin, _) = connect(&target, &ConnectFields::admin());
    authenticate(&mut admin);
    // It has the key of the host that it says, but another one has the identifier by now.
    let name = |text: &str| text.parse().expect("a name");
    let names = Names { host: name(OTHER_HOST), subsystem: name(SUBSYSTEM) };
    run_exchange(&mut other, Authenticator::new(names, Arc::new(policy(KEY)), 7), |_, _| {});
    other.until_closed();
    let answer = Peer::open(address(&target), HostOptions::default()).connect(&borrowed);
    assert_eq!(answer.status(), Status::CONNECT_INVALID_PARAMETERS.with_dnr());
    admin.run(read_version(), HostData::None).succeeded();
    let counted = target.watch().authentications();
    assert_eq!((counted.succeeded, counted.failed), (2, 0), "both are who they say");
}

#[test]
fn a_host_without_a_key_needs_none() {
    let key = key_file(KEY);
    let target = start(guarded(&key));
    let fields = ConnectFields::admin().of_other_host();
    let (mut peer, _) = Peer::admin_as(address(&target), &fields);
    let message = exchange(policy(KEY)).start();
    assert_eq!(send(&mut peer, &message).code(), Status::INVALID_OPCODE.code());
    target.stop().expect("a clean stop");
}

/// The status of the failure that a host receives, and the end of the connection.
fn ends_with(peer: &mut Peer, policy: Policy, change: impl Fn(usize, &mut Vec<u8>)) -> Problem {
    let problem = run(peer, policy, change).expect("a failure");
    peer.until_closed();
    problem
}

#[test]
fn what_is_wrong_in_an_exchange_ends_the_connection() {
    let key = key_file(KEY);
    let target = start(guarded(&key));
    let connect = || connect(&target, &ConnectFields::admin()).0;
    let refused = Problem::Refused;

    let problem = ends_with(&mut connect(), policy(OTHER_KEY), |_, _| {});
    assert_eq!(problem, refused(FailureReason::FAILED), "another key");
    let both = Policy::new(KEY.parse().expect("a key"), Some(KEY.parse().expect("a key")));
    let problem = ends_with(&mut connect(), both, |_, _| {});
    assert_eq!(problem, refused(FailureReason::FAILED), "the controller has no key");
    // The secure channel, a list of nothing, a response and its transaction.
    for (message, at, reason) in [
        (0, 6, FailureReason::CONCATENATION_MISMATCH),
        (0, 8, FailureReason::PROTOCOL_NOT_USABLE),
        (0, 10, FailureReason::HASH_NOT_USABLE),
        (0, 11, FailureReason::GROUP_NOT_USABLE),
        (0, 0, FailureReason::INCORRECT_MESSAGE),
        (1, 4, FailureReason::INCORRECT_MESSAGE),
        (1, 6, FailureReason::INCORRECT_PAYLOAD),
        (1, 16, FailureReason::FAILED),
    ] {
        let problem = ends_with(&mut connect(), policy(KEY), |sent, bytes| {
            if sent == message {
                // A number of items becomes none, anything else becomes another.
                bytes[at] = if (sent, at > 9) == (0, true) { 0 } else { bytes[at] ^ 2 };
            }
        });
        assert_eq!(problem, refused(reason), "byte {at} of message {message}");
    }
    target.stop().expect("a clean stop");
}

#[test]
fn commands_of_an_exchange_are_checked() {
    let key = key_file(KEY);
    let target = start(guarded(&key));
    let (mut peer, _) = connect(&target, &ConnectFields::admin());
    let message = exchange(policy(KEY)).start();
    let length = u32::try_from(message.len()).expect("a length");
    let invalid = Status::INVALID_FIELD.with_dnr();
    let protocol = Authentication::PROTOCOL_NVME;
    for (protocol, specific, length) in
        [(0, 1, length), (protocol, 0, length), (protocol, 1, 0), (protocol, 1, 4097)]
    {
        let wrong = Authentication {
            protocol_specific0: specific,
            protocol_specific1: 1,
            protocol,
            length,
        };
        let sent = peer.run_with(wrong.to_command(FabricsType::AUTHENTICATION_SEND), &message);
        assert_eq!(sent.status(), invalid);
        let fetched = peer.run_for(wrong.to_command(FabricsType::AUTHENTICATION_RECEIVE), 4096);
        assert_eq!(fetched.status(), invalid);
    }
    let longer = command(FabricsType::AUTHENTICATION_SEND, length + 1);
    let status = peer.run_with(longer, &message).status();
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    let longer = command(FabricsType::AUTHENTICATION_RECEIVE, 512);
    let status = peer.run_for(longer, 256).status();
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    // None of these has disturbed the exchange.
    authenticate(&mut peer);
    peer.enable();
    target.stop().expect("a clean stop");
}

#[test]
fn messages_that_are_fetched_are_taken_as_well() {
    let key = key_file(KEY);
    let target = start(guarded(&key));
    let (mut peer, _) = connect(&target, &ConnectFields::admin());
    peer.connection.set_in_capsule_bytes(0);
    authenticate(&mut peer);
    peer.enable();
    target.stop().expect("a clean stop");
}

#[test]
fn a_host_that_does_not_authenticate_itself_is_disconnected() {
    let key = key_file(KEY);
    let mut config = guarded(&key);
    // Time enough to authenticate on a busy machine.
    config.limits.connect_timeout = Duration::from_secs(2);
    let target = start(config);
    let (mut silent, _) = connect(&target, &ConnectFields::admin());
    let (mut busy, _) = connect(&target, &ConnectFields::admin());
    let (mut half, _) = connect(&target, &ConnectFields::admin());
    assert!(send(&mut half, &exchange(policy(KEY)).start()).is_success());
    let (mut done, _) = connect(&target, &ConnectFields::admin());
    authenticate(&mut done);
    done.enable();
    // Other commands do not buy it time.
    let began = weft_reactor::monotonic_time();
    loop {
        let slot = busy.submit(read_version(), HostData::None);
        match busy.next_event() {
            HostEvent::Completed { slot: completed, .. } if completed == slot => {}
            HostEvent::Closed { .. } => break,
            other => panic!("{other:?}"),
        }
        assert!(weft_reactor::monotonic_time() - began < crate::support::LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    silent.until_closed();
    half.until_closed();
    done.run(read_version(), HostData::None).succeeded();
    target.stop().expect("a clean stop");
}

#[test]
fn a_queue_is_authenticated_again_while_it_is_used() {
    let key = key_file(KEY);
    let mut target = start(guarded(&key));
    let (mut admin, controller) = connect(&target, &ConnectFields::admin());
    authenticate(&mut admin);
    admin.enable();
    let (mut io, _) = connect(&target, &ConnectFields::io(controller, 1));
    authenticate(&mut io);
    // Reads go on between the messages of an exchange.
    let mut again = exchange(policy(KEY));
    assert!(send(&mut io, &again.start()).is_success());
    io.read(1, 0, 1, 4096).succeeded();
    let HostAction::Receive(length) = again.sent() else { panic!("a challenge comes next") };
    let random = Random::new(random_bytes().expect("random bytes"));
    let HostAction::Send(reply) = again.received(&receive(&mut io, length), &random) else {
        panic!("a reply comes next")
    };
    io.read(1, 0, 1, 4096).succeeded();
    assert!(send(&mut io, &reply).is_success());
    let HostAction::Receive(length) = again.sent() else { panic!("a result comes next") };
    assert_eq!(again.received(&receive(&mut io, length), &random), HostAction::Done);
    io.read(1, 0, 1, 4096).succeeded();

    // With another key, the old one ends the queue that tries it, and no other.
    std::fs::write(key.path(), OTHER_KEY).expect("it is written");
    target.reload(target.config().clone()).expect("a reload");
    io.read(1, 0, 1, 4096).succeeded();
    assert_eq!(run(&mut admin, policy(OTHER_KEY), |_, _| {}), None);
    io.read(1, 0, 1, 4096).succeeded();
    let problem = ends_with(&mut io, policy(KEY), |_, _| {});
    assert_eq!(problem, Problem::Refused(FailureReason::FAILED));
    assert_eq!(run(&mut admin, policy(OTHER_KEY), |_, _| {}), None);
    target.stop().expect("a clean stop");
}

/// What waits for a power when its connection ends is dropped.
#[test]
fn hosts_that_leave_in_the_middle_disturb_nobody() {
    let key = key_file(KEY);
    let target = start(guarded(&key));
    let only = |group| {
        let (hashes, groups) = ([HashFunction::Sha256].into(), [group].into());
        Policy { hashes, groups, ..policy(KEY) }
    };
    for _ in 0..50 {
        let (mut peer, _) = connect(&target, &ConnectFields::admin());
        assert!(send(&mut peer, &exchange(only(Group::Ffdhe8192)).start()).is_success());
    }
    let (mut peer, _) = connect(&target, &ConnectFields::admin());
    authenticate(&mut peer);
    peer.enable();
    target.stop().expect("a clean stop");
}

#[test]
fn hosts_that_are_not_authenticated_are_bounded_and_counted() {
    let key = key_file(KEY);
    let target = start(guarded(&key));
    let watch = target.watch();
    let mut waiting: Vec<_> = (0..256).map(|_| connect(&target, &ConnectFields::admin())).collect();
    let fields = ConnectFields::admin();
    let mut more = Peer::open(address(&target), HostOptions::default());
    assert_eq!(more.connect(&fields).status(), Status::CONNECT_CONTROLLER_BUSY, "it may retry");
    // A host that need not authenticate itself is none of these.
    Peer::admin_as(address(&target), &ConnectFields::admin().of_other_host());
    let (mut one, _) = waiting.pop().expect("one");
    authenticate(&mut one);
    let (mut other, _) = waiting.pop().expect("one");
    ends_with(&mut other, policy(OTHER_KEY), |_, _| {});
    assert!(more.connect(&fields).status().is_success(), "there is room again");
    let now = watch.authentications();
    assert_eq!((now.waiting, now.succeeded, now.failed, now.refused), (255, 1, 1, 1));
    drop(waiting);
    drop(more);
    wait_until("all have left", || watch.authentications().waiting == 0);
    target.stop().expect("a clean stop");
}

/// Who comes to a port that requires TLS and says nothing holds no more than 256 connections of an
/// address, and who does not speak TLS is counted.
#[cfg(feature = "tls")]
#[test]
fn handshakes_with_tls_are_bounded_and_failed_ones_counted() {
    let key = key_file(KEY);
    let mut config = guarded(&key);
    config.ports[0].tls = weft_nvmf::keys::TlsMode::Required;
    let target = start(config);
    let (watch, address) = (target.watch(), address(&target));
    let open = || std::net::TcpStream::connect(address).expect("a connection");
    let ends = |mut stream: std::net::TcpStream| {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a time");
        match std::io::Read::read(&mut stream, &mut [0; 16]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    let silent: Vec<_> = (0..256).map(|_| open()).collect();
    wait_until("all have come", || watch.authentications().waiting == 256);
    assert!(ends(open()), "one more is closed");
    drop(silent);
    wait_until("all have left", || watch.authentications().waiting == 0);
    let mut clear = open();
    std::io::Write::write_all(&mut clear, &[0; 128]).expect("sent");
    assert!(ends(clear));
    wait_until("it is counted", || watch.authentications().failed == 1);
    let now = watch.authentications();
    assert_eq!((now.waiting, now.succeeded, now.refused), (0, 0, 1));
    target.stop().expect("a clean stop");
}

/// As many of one kind as an address may have keep none of the other kind out.
#[cfg(feature = "tls")]
#[test]
fn handshakes_with_tls_and_queues_without_keep_each_other_out_of_nothing() {
    let key = key_file(KEY);
    let mut config = guarded(&key);
    let clear = crate::support::port(config.ports[0].id + 1, "127.0.0.1:0");
    config.ports.push(clear);
    config.ports[0].tls = weft_nvmf::keys::TlsMode::Required;
    let (tls, clear) = (config.ports[0].id, config.ports[1].id);
    let target = start(config);
    let watch = target.watch();
    let at = |port: u16| target.addresses()[&port];
    let open = || std::net::TcpStream::connect(at(tls)).expect("a connection");
    let silent: Vec<_> = (0..256).map(|_| open()).collect();
    wait_until("all have come", || watch.authentications().waiting == 256);
    let fields = ConnectFields::admin();
    let connect = || {
        let mut peer = Peer::open(at(clear), HostOptions::default());
        assert!(peer.connect(&fields).status().is_success());
        peer
    };
    let mut peers: Vec<_> = (0..256).map(|_| connect()).collect();
    assert_eq!(watch.authentications().waiting, 512, "both count");
    authenticate(&mut peers[0]);
    drop(silent);
    wait_until("these have left", || watch.authentications().waiting == 255);
    peers.push(connect());
    let late = open();
    wait_until("it has come", || watch.authentications().waiting == 257);
    assert_eq!(watch.authentications().refused, 0);
    drop((late, peers));
    target.stop().expect("a clean stop");
}

/// A host that has made a key of TLS, or has to, gets no I/O queue without TLS; and who has to make
/// one is not served without.
#[cfg(feature = "tls")]
#[test]
fn no_io_queue_is_in_the_clear_beside_a_key_of_tls() {
    let key = key_file(KEY);
    for (required, makes) in [(false, false), (false, true), (true, true), (true, false)] {
        let mut config = guarded(&key);
        config.ports[0].tls = weft_nvmf::keys::TlsMode::Allowed;
        config.subsystems[0].host_keys[0].dhchap_concat = required;
        let target = start(config);
        let address = address(&target);
        let open = |fields: &ConnectFields| {
            Peer::open(address, fields.options(address, HostOptions::default()))
        };
        let fields = ConnectFields::admin();
        let mut admin = open(&fields);
        let result = ConnectResult(admin.connect(&fields).succeeded().completion.dword0());
        assert!(result.authentication_required());
        assert_eq!(result.secure_channel_required(), required);
        let mut exchange = exchange(policy(KEY));
        if makes {
            exchange = exchange.with_secure_channel();
        }
        let problem = run_exchange(&mut admin, exchange, |_, _| {});
        if required && !makes {
            let mismatch = FailureReason::CONCATENATION_MISMATCH;
            assert_eq!(problem, Some(Problem::Refused(mismatch)));
            continue;
        }
        assert_eq!(problem, None);
        admin.enable();
        if makes {
            serves_what_comes_before_tls(&mut admin);
        }
        let fields = ConnectFields::io(result.controller_id(), 1);
        let status = open(&fields).connect(&fields).status();
        match makes {
            true => assert_eq!(status, Status::CONNECT_INVALID_HOST.with_dnr()),
            false => assert!(status.is_success(), "{status}"),
        }
    }
}

/// Of all commands those with which a host enables its controller, before it comes back over TLS.
#[cfg(feature = "tls")]
fn serves_what_comes_before_tls(admin: &mut Peer) {
    for opcode in 0..=u8::MAX {
        let status = admin.run(Command::new(AdminOpcode(opcode)), HostData::None).status();
        let is_served = AdminOpcode(opcode) == AdminOpcode::IDENTIFY;
        assert_eq!(status == REQUIRED, !is_served, "{opcode:#x}: {status}");
    }
    for page in 0..=u8::MAX {
        let get = weft_nvme::log_page::GetLogPage::new(LogPageId(page), 0, 512).to_command();
        let status = admin.run_for(get, 512).status();
        let is_served =
            [LogPageId::ASYMMETRIC_NAMESPACE_ACCESS, LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS];
        assert_eq!(status == REQUIRED, !is_served.contains(&LogPageId(page)), "{page:#x}");
    }
    for fabrics_type in 0..=u8::MAX {
        let command = Command::fabrics(FabricsType(fabrics_type));
        let status = admin.run(command, HostData::None).status();
        let is_served = [
            FabricsType::PROPERTY_GET,
            FabricsType::AUTHENTICATION_SEND,
            FabricsType::AUTHENTICATION_RECEIVE,
        ];
        let is_served = is_served.contains(&FabricsType(fabrics_type));
        assert_eq!(status == REQUIRED, !is_served, "{fabrics_type:#x}: {status}");
    }
    for offset in 0..0x100 {
        let set = PropertySet::new(Offset(offset), PropertySize::Four, 0x4e56_4d65);
        if Offset(offset) != Offset::CONTROLLER_CONFIGURATION {
            assert_eq!(admin.run(set.to_command(), HostData::None).status(), REQUIRED);
        }
    }
    admin.run(read_version(), HostData::None).succeeded();
    let identify = weft_nvme::identify::Identify::new(weft_nvme::identify::Cns::CONTROLLER, 0);
    admin.run_for(identify.to_command(), 4096).succeeded();
    admin.enable();
}

/// Keys of TLS are in no view, but a reload says whose are others, and nothing of the keys.
#[test]
fn a_reload_says_whose_keys_of_tls_have_changed() {
    const PSK: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    const OTHER: &str = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let key = key_file(PSK);
    let path = key.path().to_str().expect("a path").to_owned();
    let mut config = guarded(&key_file(KEY));
    config.subsystems[0].host_keys =
        vec![HostKeys { psk: vec![path.clone()], ..HostKeys::new(HOST) }];
    let mut target = start(config);
    let mut reload = |change: &dyn Fn(&mut HostKeys)| {
        let mut config = target.config().clone();
        change(&mut config.subsystems[0].host_keys[0]);
        target.reload(config).expect("a reload")
    };
    let says = |what: &str| vec![format!("subsystem {SUBSYSTEM}: host {HOST} {what}")];
    assert_eq!(reload(&|_| {}), Vec::<String>::new());
    std::fs::write(key.path(), OTHER).expect("it is written");
    assert_eq!(reload(&|_| {}), says("has other keys of TLS"));
    assert_eq!(reload(&|keys| keys.psk_compat = true), says("has other keys of TLS"));
    assert_eq!(reload(&|keys| keys.psk.clear()), says("has no key of TLS any more"));
    assert_eq!(reload(&|keys| keys.psk.push(path.clone())), says("has keys of TLS"));
    target.stop().expect("a clean stop");
}
