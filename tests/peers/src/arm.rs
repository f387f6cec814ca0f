//! Tests of the crates as a processor of Arm executes them, which QEMU emulates program by program.
//!
//! The emulation has no io_uring, so the tests run over epoll. It reorders little: what orderings
//! are enough is shown by docs/memory-ordering.md and the tests with loom.

use crate::guest::{arm, output};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::cargo::{cargo_command, count_tests, need_target, target_folder};
use xtask::packages;
use xtask::report::Report;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Programs or files, with their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/libc.so", "libc6-dev-arm64-cross"),
];

/// Wire formats, the protocol, the reactor with its shared memory, and devices: what depends on the
/// order of bytes and of memory.
const QUICK: &[&str] = &["weft-nvme", "weft-nvmf", "weft-reactor", "weft-backend"];

/// Tests that cannot pass there, and what the emulation lacks.
const LACKING: &[(&str, &str)] = &[
    ("a_call_that_has_arrived_before_the_wait_ends_it", "io_uring"),
    ("a_peer_on_another_machine_gets_the_choice_of_the_system", "TCP_CONGESTION"),
    ("both_ends_on_one_machine_do_without_pacing", "TCP_CONGESTION"),
    ("a_process_is_killed_in_time_even_if_it_is_stopped", "processes that start themselves"),
];

/// The same of the larger tests: those that start themselves, or an example, as a process.
const LACKING_OF_ALL: &[&str] = &[
    "devices::a_full_disk_is_no_space",
    "each_example_runs_beside_the_target",
    "running_out_of_descriptors::",
    "failure::a_group_that_panics_takes_the_process_with_it",
    "flood::a_child_that_stops_closes_its_connections",
    "flood::a_few_descriptors_are_enough",
    "flood::a_full_target_refuses_connections_until_one_ends",
    "flood::a_host_that_reads_no_responses_is_not_read_from",
    "flood::idle_hosts_cost_next_to_nothing",
    "flood::running_out_of_descriptors_neither_stops_nor_spins",
    "flood::ten_thousand_unconnected_peers_cost_little_and_delay_no_host",
    "flood::unread_small_responses_are_bounded",
    "groups::queues_are_spread",
];

/// Those with connections and processes of their own. What starts the binary or fio is left out.
const MORE: &[&str] =
    &["weft-transport", "weft-rpc", "weft-statistics", "weft-target", "weft-host", "weft-sim"];

/// Ciphers and powers modulo long primes, which take the emulation a minute.
const LONG: &str = "auth::";

/// Builds and runs the tests; with `all` those of the larger crates, too.
pub(crate) fn run(root: &Path, report: &mut Report, all: bool) -> Result<()> {
    if std::env::consts::ARCH == "aarch64" {
        return Ok(()); // All tests are those.
    }
    let emulator = match tools(root) {
        Ok(emulator) => emulator,
        Err(error) => {
            println!("!!! nothing can be built and run as on Arm here: these tests are skipped");
            report.lacks("tests of the crates on Arm", 1, &format!("{error:#}"));
            return Ok(());
        }
    };
    let mut command = cross(root);
    command.args(["test", "--no-fail-fast", "--target", TARGET]);
    let more: &[&str] = if all { MORE } else { &[] };
    for package in QUICK.iter().chain(more) {
        command.args(["--package", package]);
    }
    if !all {
        command.arg("--lib");
        // To optimize takes longer than these tests do without it.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    }
    command.arg("--");
    if !all {
        command.args(["--skip", LONG]);
    }
    let of_all = LACKING_OF_ALL.iter().map(|test| (*test, "processes that start themselves"));
    for (test, lacking) in LACKING.iter().copied().chain(of_all.filter(|_| all)) {
        report.skip(test, 1, &format!("QEMU's emulation of programs has no {lacking}"));
        command.args(["--skip", test]);
    }
    let runner = format!("{} -L /usr/aarch64-linux-gnu", emulator.display());
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    command.env("WEFT_DRIVER", "epoll");
    count_tests(report, "cargo test on Arm", &mut command)
}

/// QEMU's emulator of programs, a linker and the standard library.
fn tools(root: &Path) -> Result<PathBuf> {
    packages::need("tests run as on Arm", PROGRAMS)?;
    need_target(root, TARGET)?;
    arm::user_emulator()
}

/// The binary, stripped, in `folder`; without TLS, whose library is written in C.
pub(crate) fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    packages::need("the binary is built for Arm", PROGRAMS)?;
    need_target(root, TARGET)?;
    let mut command = cross(root);
    command.args(["build", "--quiet", "--package", "weft-nvmeof", "--target", TARGET]);
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    let (from, to) = (target_folder(root).join(TARGET).join("debug/weft"), folder.join("weft-arm"));
    output(Command::new("aarch64-linux-gnu-strip").arg("-o").arg(&to).arg(from))?;
    Ok(to)
}

fn cross(root: &Path) -> Command {
    let mut command = cargo_command(root);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command
}
