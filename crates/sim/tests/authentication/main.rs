//! DH-HMAC-CHAP between this target and this host, over loopback sockets.

mod keys;

use std::time::Duration;

use weft_host::{Controller, Error, Options};
use weft_nvme::authentication::FailureReason;
use weft_nvmf::auth::{Group, HashFunction, host};
use weft_nvmf::host::{Event, Problem, Side};
use weft_target::Target;
use weft_target::config::{Config, HostKeys, Listen, Namespace, Port, Subsystem};

use keys::{KEYS, Keys};

const SUBSYSTEM: &str = "nqn.2024-01.io.weft:secret";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const LONG: Duration = Duration::from_secs(20);

/// A target with these hosts, each with its keys, at this address.
fn config(address: &str, hosts: Vec<HostKeys>) -> Config {
    let mut subsystem = Subsystem::new(SUBSYSTEM);
    let device = "memory:1MiB".parse().expect("a device");
    // The same one when the target comes back.
    subsystem.namespaces = vec![Namespace { uuid: Some([7; 16]), ..Namespace::new(1, device) }];
    subsystem.allowed_hosts = Some(hosts.iter().map(|keys| keys.nqn.clone()).collect());
    subsystem.host_keys = hosts;
    Config {
        ports: vec![Port::new(1, Listen::tcp(address.parse().expect("an address")))],
        subsystems: vec![subsystem],
        ..Config::default()
    }
}

fn start(hosts: Vec<HostKeys>) -> Target {
    Target::start(config("127.0.0.1:0", hosts)).expect("a target")
}

fn options(target: &Target, host: &str) -> Options {
    let address = target.addresses().into_values().next().expect("a port");
    let address = format!("nvme-tcp://{address}/{SUBSYSTEM}").parse().expect("an address");
    let mut options = Options::new(address).with_host_nqn(host.parse().expect("a name"));
    options.reconnect_delay = Duration::from_millis(20);
    options.nr_io_queues = 2;
    options
}

/// The host's keys, by their places in [`KEYS`].
fn with_keys(options: Options, host: usize, controller: Option<usize>) -> Options {
    let secret = |key: usize| Some(KEYS[key].parse().expect("a key"));
    Options {
        dhchap_secret: secret(host),
        dhchap_ctrl_secret: controller.and_then(secret),
        ..options
    }
}

/// Keys at the target, likewise.
fn keys_at_target(keys: &Keys, host: usize, controller: Option<usize>) -> HostKeys {
    HostKeys {
        dhchap_key: Some(keys.path(host)),
        dhchap_ctrlr_key: controller.map(|key| keys.path(key)),
        ..HostKeys::new(HOST)
    }
}

#[track_caller]
fn uses_namespace(controller: &Controller) {
    let namespace = controller.namespace(1).expect("a namespace");
    let data = vec![0x5a; namespace.block_bytes() as usize];
    namespace.write(0, &data).expect("it is written");
    let mut read = vec![0; data.len()];
    namespace.read(0, &mut read).expect("it is read");
    assert_eq!(read, data);
}

#[track_caller]
fn refused(options: &Options) -> Problem {
    match weft_host::connect(options).expect_err("it is refused") {
        Error::Controller { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn every_hash_function_and_group_on_every_queue() {
    let keys = Keys::new();
    let mut cases = Vec::new();
    for hash in HashFunction::ALL {
        for group in Group::ALL {
            for mutual in [false, true] {
                let number = cases.len();
                let host = format!("nqn.2024-01.io.weft:host-{number}");
                let (own, controllers) = (number % KEYS.len(), (number + 1) % KEYS.len());
                cases.push((host, hash, group, own, mutual.then_some(controllers)));
            }
        }
    }
    let hosts = cases.iter().map(|(host, hash, group, own, controllers)| HostKeys {
        nqn: host.clone(),
        dhchap_hashes: vec![*hash],
        dhchap_groups: vec![*group],
        ..keys_at_target(&keys, *own, *controllers)
    });
    let target = start(hosts.collect());
    assert_eq!(cases.len(), 36);
    for (host, hash, group, own, controllers) in &cases {
        let options = with_keys(options(&target, host), *own, *controllers);
        let controller = weft_host::connect(&options);
        let controller = controller.unwrap_or_else(|error| panic!("{hash} {group}: {error}"));
        uses_namespace(&controller);
        controller.disconnect().expect("it ends");
    }
    target.stop().expect("a clean stop");
}

#[test]
fn a_host_without_the_right_keys_is_refused_for_good() {
    let keys = Keys::new();
    let target = start(vec![keys_at_target(&keys, 0, Some(1))]);
    let host = options(&target, HOST);

    let problem = refused(&host);
    assert_eq!(problem, Problem::AuthenticationRequired);
    let failed = host::Problem::Refused(FailureReason::FAILED);
    let problem = refused(&with_keys(host.clone(), 2, None));
    assert_eq!(problem, Problem::Authentication(failed), "another key");
    assert_eq!((problem.is_final(), problem.side()), (true, Side::Local));
    let problem = refused(&with_keys(host.clone(), 0, Some(3)));
    assert_eq!(problem, Problem::Authentication(host::Problem::WrongController));
    assert_eq!((problem.is_final(), problem.side()), (true, Side::Peer));

    for controllers in [None, Some(1)] {
        let right = weft_host::connect(&with_keys(host.clone(), 0, controllers));
        uses_namespace(&right.expect("the right keys"));
    }
    target.stop().expect("a clean stop");
}

#[test]
fn a_controller_without_its_key_is_refused() {
    let keys = Keys::new();
    let target = start(vec![keys_at_target(&keys, 0, None)]);
    let problem = refused(&with_keys(options(&target, HOST), 0, Some(1)));
    let failed = host::Problem::Refused(FailureReason::FAILED);
    assert_eq!(problem, Problem::Authentication(failed));
    target.stop().expect("a clean stop");

    // One that asks for no authentication may be anybody's.
    let target = start(vec![HostKeys::new(HOST)]);
    let problem = refused(&with_keys(options(&target, HOST), 0, Some(1)));
    assert_eq!(problem, Problem::ControllerNotAuthenticated);
    uses_namespace(&weft_host::connect(&with_keys(options(&target, HOST), 0, None)).expect("one"));
    target.stop().expect("a clean stop");
}

#[test]
fn a_host_authenticates_itself_again_when_it_reconnects() {
    let keys = Keys::new();
    let target = start(vec![keys_at_target(&keys, 0, Some(1))]);
    let address = target.addresses()[&1].to_string();
    let controller = weft_host::connect(&with_keys(options(&target, HOST), 0, Some(1)));
    let controller = controller.expect("a controller");
    uses_namespace(&controller);

    target.stop().expect("a clean stop");
    let same = config(&address, vec![keys_at_target(&keys, 0, Some(1))]);
    let target = Target::start(same).expect("a target");
    uses_namespace(&controller);

    target.stop().expect("a clean stop");
    let other = config(&address, vec![keys_at_target(&keys, 2, Some(1))]);
    let target = Target::start(other).expect("a target");
    loop {
        let event = controller.next_event(LONG).expect("an event");
        if let Event::AttemptFailed { problem: Problem::Authentication(_), retry_in, .. } = event {
            assert_eq!(retry_in, None, "another attempt cannot succeed");
            break;
        }
    }
    target.stop().expect("a clean stop");
}

/// A reload reads the files again; nobody is disconnected, and the next Connect needs the new key.
#[test]
fn keys_change_without_disconnecting_anybody() {
    let keys = Keys::new();
    let mut target = start(vec![keys_at_target(&keys, 0, None)]);
    let old = weft_host::connect(&with_keys(options(&target, HOST), 0, None)).expect("one");
    uses_namespace(&old);

    keys.write(0, KEYS[2]);
    let config = target.config().clone();
    let changes = target.reload(config.clone()).expect("a reload");
    assert_eq!(changes, [format!("subsystem {SUBSYSTEM}: host {HOST} has other keys")]);
    uses_namespace(&old);
    refused(&with_keys(options(&target, HOST), 0, None));
    let new = weft_host::connect(&with_keys(options(&target, HOST), 2, None)).expect("one");
    uses_namespace(&new);

    // What cannot be read changes nothing.
    keys.write(0, "DHHC-1:00:nonsense:");
    let error = target.reload(config).expect_err("no key").to_string();
    assert!(error.contains("holds no usable key") && !error.contains("nonsense"), "{error}");
    uses_namespace(&weft_host::connect(&with_keys(options(&target, HOST), 2, None)).expect("one"));
    target.stop().expect("a clean stop");
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let keys = Keys::new();
    keys.set_mode(0, 0o640);
    let config = config("127.0.0.1:0", vec![keys_at_target(&keys, 0, None)]);
    let error = Target::start(config).expect_err("refused").to_string();
    assert!(error.contains("chmod 600") && error.contains(HOST), "{error}");
}
