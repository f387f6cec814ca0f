//! weft's host in the guest as a block device of its kernel (ublk), weft's target outside.

use super::bench::{Bench, NQN};
use super::pairings::records;
use super::suite::{Suite, inside, long, step};
use crate::guest::Kernel;
use crate::guest::machine::has_kvm;
use anyhow::{Result, ensure};
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
        inside("missing"),
        inside("geometry"),
        inside("data"),
        inside("express").long(),
        inside("file_system"),
        inside("recovery"),
        inside("given_up"),
        long("target_killed_under_load", target_killed_under_load),
        long("two_paths", two_paths),
        step("not_resized", not_resized),
        long("beside_linux", beside_linux),
    ],
};

/// With a kernel that resizes.
pub(super) const NEWER: Suite = Suite {
    name: "attach_newer",
    kernel: Kernel::Backports,
    steps: &[long("resized", resized), inside("recovery").long()],
    ..SUITE
};

/// Latency at depth 1 and IOPS at depth 32 beside Linux' own host: most and least.
const BARS: (f64, f64) = (1.3, 0.8);
/// Without KVM: what a process does costs more there beside what the kernel does, and varies.
const BARS_EMULATED: (f64, f64) = (5.0, 0.2);

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 96 * MIB;
const GROWN_BYTES: u64 = 128 * MIB;

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    File::create(bench.file())?.set_len(FILE_BYTES)?;
    bench.configure("")?;
    bench.start_target()
}

/// The study of ublk beside the kernel's own host: latency at depth 1, and IOPS at depth 32.
fn beside_linux(bench: &mut Bench) -> Result<()> {
    bench.guest("beside_linux")?;
    let records = records(&bench.folder.join("beside"))?;
    let iops = |transport: &str, depth: u64| {
        let of_cell = records.iter().filter(|record| {
            let settings = &record["configuration"];
            settings["transport"] == transport && settings["depth"] == depth
        });
        let sum = |key| of_cell.clone().filter_map(|r| r["read"][key].as_f64()).sum::<f64>();
        sum("requests") / sum("seconds")
    };
    let ratio = |depth| iops("local", depth) / iops("tcp", depth);
    let (latency, rate) = (1.0 / ratio(1), ratio(32));
    println!(
        "depth 1: {:.0} µs by ublk, {:.0} by Linux' host, {latency:.2} times; \
         depth 32: {:.0} IOPS and {:.0}, {rate:.2} times",
        1e6 / iops("local", 1),
        1e6 / iops("tcp", 1),
        iops("local", 32),
        iops("tcp", 32),
    );
    let (latency_max, rate_min) = if has_kvm() { BARS } else { BARS_EMULATED };
    ensure!(latency <= latency_max, "the latency is {latency:.2} times that of Linux' host");
    ensure!(rate >= rate_min, "the IOPS are {rate:.2} times those of Linux' host");
    Ok(())
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
