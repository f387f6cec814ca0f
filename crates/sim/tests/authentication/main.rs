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
    let mut config = config("127.0.0.1:0", hosts.collect());
    // The largest groups take their time on a busy machine.
    config.limits.connect_timeout = Duration::from_secs(600);
    let target = Target::start(config).expect("a target");
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

/// Waits for events until one is what is wanted.
#[track_caller]
fn wait_for(controller: &Controller, what: &str, is_it: impl Fn(&Event) -> bool) -> Event {
    let mut seen = Vec::new();
    loop {
        match controller.next_event(LONG) {
            Some(event) if is_it(&event) => return event,
            Some(event) => seen.push(event),
            None => panic!("no {what}: {seen:?}"),
        }
    }
}

/// Both queues were authenticated again, and nothing was lost meanwhile.
#[track_caller]
fn are_authenticated(controller: &Controller) {
    for wanted in [0, 1] {
        let event = wait_for(controller, "authentication", |event| {
            matches!(event, Event::Authenticated { .. } | Event::Lost { .. })
        });
        assert_eq!(event, Event::Authenticated { queue: wanted });
    }
}

#[test]
fn queues_in_use_are_authenticated_again() {
    let keys = Keys::new();
    let target = start(vec![keys_at_target(&keys, 0, Some(1))]);
    for every in [None, Some(Duration::from_secs(1))] {
        let host = with_keys(options(&target, HOST), 0, Some(1));
        let host = Options { dhchap_interval: every, ..host };
        let controller = weft_host::connect(&host).expect("a controller");
        uses_namespace(&controller);
        for _ in 0..2 {
            if every.is_none() {
                controller.authenticate_again();
            }
            // Requests go on between the commands of the exchanges.
            uses_namespace(&controller);
            are_authenticated(&controller);
            uses_namespace(&controller);
        }
        controller.disconnect().expect("it ends");
    }
    target.stop().expect("a clean stop");
}

/// The target has the new key first, then the host, which is connected all the time.
#[test]
fn a_host_changes_its_secrets_without_being_disconnected() {
    let keys = Keys::new();
    let mut target = start(vec![keys_at_target(&keys, 0, Some(1))]);
    let controller = weft_host::connect(&with_keys(options(&target, HOST), 0, Some(1)));
    let controller = controller.expect("a controller");
    uses_namespace(&controller);
    keys.write(0, KEYS[2]);
    keys.write(1, KEYS[3]);
    target.reload(target.config().clone()).expect("a reload");
    uses_namespace(&controller);
    let secret = |key: usize| KEYS[key].parse().expect("a key");
    controller.set_secrets(secret(2), Some(secret(3)));
    are_authenticated(&controller);
    uses_namespace(&controller);
    // The next connection has them, too.
    controller.reset();
    wait_for(&controller, "connection", |event| matches!(event, Event::Connected { .. }));
    uses_namespace(&controller);
    target.stop().expect("a clean stop");
}

#[test]
fn a_queue_that_is_not_authenticated_again_ends_the_association() {
    // Another key of the host, and another one of the controller.
    for (place, problem) in
        [(0, host::Problem::Refused(FailureReason::FAILED)), (1, host::Problem::WrongController)]
    {
        let keys = Keys::new();
        let mut target = start(vec![keys_at_target(&keys, 0, Some(1))]);
        let controller = weft_host::connect(&with_keys(options(&target, HOST), 0, Some(1)));
        let controller = controller.expect("a controller");
        uses_namespace(&controller);
        keys.write(place, KEYS[4]);
        target.reload(target.config().clone()).expect("a reload");
        uses_namespace(&controller);
        controller.authenticate_again();
        let lost = wait_for(&controller, "loss", |event| matches!(event, Event::Lost { .. }));
        let Event::Lost { problem: found, .. } = lost else { panic!("{lost:?}") };
        assert_eq!(found, Problem::Authentication(problem), "{found}");
        let failed = wait_for(&controller, "end", |event| {
            matches!(event, Event::AttemptFailed { retry_in: None, .. })
        });
        assert!(failed.to_string().contains(&problem.to_string()), "{failed}");
        controller.disconnect().expect_err("the problem");
        target.stop().expect("a clean stop");
    }
}

#[test]
fn a_controller_that_asks_for_no_authentication_is_not_asked_again() {
    let target = start(vec![HostKeys::new(HOST)]);
    let host = with_keys(options(&target, HOST), 0, None);
    let host = Options { dhchap_interval: Some(Duration::from_secs(1)), ..host };
    let controller = weft_host::connect(&host).expect("a controller");
    uses_namespace(&controller);
    controller.authenticate_again();
    wait_for(&controller, "first event", |event| matches!(event, Event::Connected { .. }));
    assert_eq!(controller.next_event(Duration::from_millis(1500)), None);
    uses_namespace(&controller);
    // From now on it would have to prove itself.
    let secret = |key: usize| KEYS[key].parse().expect("a key");
    controller.set_secrets(secret(0), Some(secret(1)));
    let lost = wait_for(&controller, "loss", |event| matches!(event, Event::Lost { .. }));
    assert!(matches!(lost, Event::Lost { problem: Problem::ControllerNotAuthenticated, .. }));
    target.stop().expect("a clean stop");
}

#[test]
fn an_interval_needs_a_secret_and_is_no_shorter_than_a_second() {
    let target = start(vec![HostKeys::new(HOST)]);
    let plain = options(&target, HOST);
    let keyed = with_keys(plain.clone(), 0, None);
    let (second, less) = (Duration::from_secs(1), Duration::from_millis(999));
    for (host, every) in [(plain, second), (keyed, less)] {
        let host = Options { dhchap_interval: Some(every), ..host };
        assert!(matches!(weft_host::connect(&host), Err(Error::Invalid(_))));
    }
    target.stop().expect("a clean stop");
}
