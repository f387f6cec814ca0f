//! Fixed sequences of commands, for counting instructions.
//!
//! `instructions SCENARIO COUNT` runs COUNT commands through the protocol without output;
//! `instructions` alone lists the scenarios. The cost beside the commands (start, connect) is the
//! same for every COUNT, so the difference of two runs is the cost of the commands alone. `cargo
//! xtask instructions` computes these differences and compares them with the record.

mod protocol;

use std::process::ExitCode;

/// A scenario, by the name under which its cost is recorded.
struct Scenario {
    name: &'static str,
    run: fn(usize),
}

/// All scenarios.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "read-4k", run: |count| protocol::run(&protocol::Script::READ, count) },
    Scenario {
        name: "read-4k-success",
        run: |count| {
            protocol::run(
                &protocol::Script { flow_control: false, ..protocol::Script::READ },
                count,
            )
        },
    },
    Scenario {
        name: "read-4k-digests",
        run: |count| {
            protocol::run(&protocol::Script { digests: true, ..protocol::Script::READ }, count)
        },
    },
    Scenario {
        name: "read-128k",
        run: |count| {
            protocol::run(&protocol::Script { blocks: 32, ..protocol::Script::READ }, count)
        },
    },
    Scenario { name: "write-4k", run: |count| protocol::run(&protocol::Script::WRITE, count) },
    Scenario {
        name: "write-128k",
        run: |count| {
            protocol::run(&protocol::Script { blocks: 32, ..protocol::Script::WRITE }, count)
        },
    },
    Scenario {
        name: "read-4k-two-queues",
        run: |count| {
            protocol::run(&protocol::Script { queues: 2, ..protocol::Script::READ }, count)
        },
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => {
            SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
            ExitCode::SUCCESS
        }
        [name, count] => {
            let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
            match (scenario, count.parse()) {
                (Some(scenario), Ok(count)) => {
                    (scenario.run)(count);
                    ExitCode::SUCCESS
                }
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("instructions [SCENARIO COUNT]: without arguments it lists the scenarios");
    ExitCode::from(2)
}
