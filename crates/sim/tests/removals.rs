//! A change that takes access away is answered once nothing that it forbids can be executed any
//! more: whoever has the blocks next finds that they do not change.

use std::time::Duration;

use weft_host::Options;
use weft_reactor::simulation::{Random, StorageConditions};
use weft_sim::{Client, SUBSYSTEM, Size, Testbed, Tune, run_a_tenth};
use weft_target::config::{Config, Listen, Port, RateLimit, RateLimitedCommands, Subsystem};

const BLOCKS: usize = 60;
const REQUESTS: u64 = 30;
const OTHER: &str = "nqn.2024-01.io.weft:other";
const BOUND: Duration = Duration::from_secs(60);
/// What was held up is over within this time.
const LATE: Duration = Duration::from_millis(1500);
const MS: Duration = Duration::from_millis(1);

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Host,
    Namespace,
    Subsystem,
    Listener,
}

fn as_usual(_: &mut Options) {}

fn remove(removal: Removal, config: &mut Config) {
    match removal {
        Removal::Host => config.subsystems[0].allowed_hosts = Some(vec![Testbed::host_name(1)]),
        Removal::Namespace => config.subsystems[0].namespaces.clear(),
        Removal::Subsystem => drop(config.subsystems.remove(0)),
        Removal::Listener => {
            let address = std::net::SocketAddr::new(Testbed::port_address(1), 4420);
            config.ports = vec![Port::new(2, Listen::tcp(address))];
        }
    }
}

/// Where the next owner finds the namespace.
fn give(removal: Removal, config: &mut Config, namespaces: &Subsystem) -> &'static str {
    match removal {
        Removal::Host | Removal::Listener => SUBSYSTEM,
        Removal::Namespace | Removal::Subsystem => {
            let mut other = Subsystem::new(OTHER);
            other.namespaces.clone_from(&namespaces.namespaces);
            config.subsystems.push(other);
            OTHER
        }
    }
}

fn work(testbed: &mut Testbed, client: &mut Client) {
    let enough = client.ended() + REQUESTS;
    while client.ended() < enough {
        client.begin(testbed);
        testbed.step();
        client.collect(testbed);
    }
}

fn finish(testbed: &mut Testbed, client: &mut Client) {
    Client::finish(std::slice::from_mut(client), testbed, BOUND);
}

fn check(testbed: &mut Testbed, client: &mut Client) {
    client.begin_check(testbed);
    finish(testbed, client);
}

/// Writes wait at the device, or for a limit.
fn hold_writes(testbed: &mut Testbed, client: &mut Client, random: &mut Random) {
    let mut below = |most| u32::try_from(random.below(most)).expect("small");
    if below(3) == 0 {
        let (rw, rate_iops) = (RateLimitedCommands::Write, Some(20 + u64::from(below(100))));
        let limit = RateLimit { rw, rate_iops, force: true, ..RateLimit::default() };
        testbed.set_rate_limits(vec![limit]);
    }
    let jitter = MS * below(600);
    testbed.world.set_storage(StorageConditions { jitter, ..StorageConditions::default() });
    let held = testbed.world.now() + MS * (1 + below(20));
    while testbed.world.now() < held {
        client.begin(testbed);
        testbed.step_within(held);
        client.collect(testbed);
    }
}

fn run(seed: u64, removal: Removal) {
    let tune = Tune { options: as_usual, resets_at_death: None };
    let size = Size { groups: 2, hosts: 2, queues: 2 };
    let mut testbed = Testbed::tuned(seed, "stored:1MiB", size, 1, tune);
    let mut client = Client::new(seed, 0, 0, BLOCKS);
    work(&mut testbed, &mut client);
    hold_writes(&mut testbed, &mut client, &mut Random::new(seed ^ 0x5b5b));
    let mut subsystem = None;
    let answer = testbed.change(|config| {
        subsystem = config.subsystems.first().cloned();
        remove(removal, config);
    });
    testbed.until_answered(&answer, |testbed| client.collect(testbed));
    client.collect(&mut testbed);
    testbed.kill_host(0);
    client.died();

    // What the next owner has begun is not held up.
    testbed.world.set_storage(StorageConditions::default());
    let mut next = SUBSYSTEM;
    let answer = testbed.change(|config| {
        next = give(removal, config, subsystem.as_ref().expect("a subsystem"));
        config.rate_limits.clear();
    });
    testbed.until_answered(&answer, |_| {});
    testbed.revive_host(1, next);
    while !testbed.open(1, 2) {
        testbed.step();
    }
    client.move_to(1);
    check(&mut testbed, &mut client);
    work(&mut testbed, &mut client);
    finish(&mut testbed, &mut client);
    let late = testbed.world.now() + LATE;
    while testbed.world.now() < late {
        testbed.step_within(late);
    }
    check(&mut testbed, &mut client);
    testbed.finish();
}

fn all(removal: Removal) {
    run_a_tenth(|seed| run(seed, removal));
}

#[test]
fn nothing_of_a_removed_host_is_executed_after_the_answer() {
    all(Removal::Host);
}

#[test]
fn nothing_of_a_removed_namespace_is_executed_after_the_answer() {
    all(Removal::Namespace);
}

#[test]
fn nothing_of_a_deleted_subsystem_is_executed_after_the_answer() {
    all(Removal::Subsystem);
}

#[test]
fn nothing_of_a_removed_listener_is_executed_after_the_answer() {
    all(Removal::Listener);
}
