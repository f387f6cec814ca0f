//! weft's host in the guest as a block device of its kernel (ublk), weft's target outside.

use super::bench::{Bench, NQN};
use super::{Suite, long, step};
use crate::guest::Kernel;
use anyhow::Result;
use std::fs::{self, File};
use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

/// With Debian's own kernel.
pub(super) const SUITE: Suite = Suite {
    name: "attach",
    script: "attach.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["ublk_drv"],
    setup,
    steps: &[
        step("missing", |bench| bench.guest("missing").map(drop)),
        step("geometry", |bench| bench.guest("geometry").map(drop)),
        step("data", |bench| bench.guest("data").map(drop)),
        step("file_system", |bench| bench.guest("file_system").map(drop)),
        step("recovery", |bench| bench.guest("recovery").map(drop)),
        step("given_up", |bench| bench.guest("given_up").map(drop)),
        long("target_killed_under_load", target_killed_under_load),
        long("two_paths", two_paths),
        step("not_resized", not_resized),
    ],
};

/// With a kernel that resizes.
pub(super) const NEWER: Suite = Suite {
    name: "attach_newer",
    kernel: Kernel::Backports,
    steps: &[step("resized", resized), step("recovery", |bench| bench.guest("recovery").map(drop))],
    ..SUITE
};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 96 * MIB;
const GROWN_BYTES: u64 = 128 * MIB;

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("prepare")?;
    File::create(bench.file())?.set_len(FILE_BYTES)?;
    bench.configure("")?;
    bench.start_target()
}

/// The target is killed under load and restarted: the device's users see a pause.
fn target_killed_under_load(bench: &mut Bench) -> Result<()> {
    bench.guest("loaded 2")?;
    bench.kill_target();
    sleep(Duration::from_secs(1));
    bench.start_target()?;
    bench.guest("finished").map(drop)
}

/// One of two ports is taken away under load, then the other one.
fn two_paths(bench: &mut Bench) -> Result<()> {
    let second = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let ports = [bench.port, second];
    let configure = |bench: &Bench, ports: &[u16]| {
        let mut text = String::new();
        for (id, port) in (1..).zip(ports) {
            text += &format!("[[port]]\nid = {id}\nlisten = \"tcp://127.0.0.1:{port}\"\n\n");
        }
        text += &format!(
            "[[subsystem]]\nnqn = \"{NQN}\"\n\n[[subsystem.namespace]]\nnsid = 2\n\
             file = \"{}\"\nblock-size = 4096\n",
            bench.file().display()
        );
        fs::write(bench.configuration(), text)
    };
    configure(bench, &ports)?;
    bench.stop_target()?;
    bench.start_target()?;
    bench.guest(&format!("two_paths {second}"))?;
    for left in [second, bench.port] {
        configure(bench, &[left])?;
        bench.reload_target()?;
        sleep(Duration::from_secs(2));
        configure(bench, &ports)?;
        bench.reload_target()?;
        sleep(Duration::from_secs(2));
    }
    bench.guest("finished")?;
    bench.configure("")?;
    bench.stop_target()?;
    bench.start_target()
}

/// The namespace's file grows.
fn grow(bench: &mut Bench) -> Result<()> {
    File::options().write(true).open(bench.file())?.set_len(GROWN_BYTES)?;
    bench.reload_target()
}

fn resized(bench: &mut Bench) -> Result<()> {
    bench.guest("before_resize")?;
    grow(bench)?;
    bench.guest(&format!("resized {GROWN_BYTES}; stop; kernel_is_content")).map(drop)
}

/// A kernel that cannot resize says so, and a new device has the new size.
fn not_resized(bench: &mut Bench) -> Result<()> {
    bench.guest("not_resized")?;
    grow(bench)?;
    bench.guest(&format!("says_not_resized {GROWN_BYTES}")).map(drop)
}
