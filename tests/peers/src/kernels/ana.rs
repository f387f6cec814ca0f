//! Linux' host with native multipath in the guest, weft's target on two ports outside, whose
//! access states (ANA) are changed under load.

use super::bench::{Bench, NQN};
use super::suite::{Suite, SuiteTest, inside, long, step};
use crate::guest::Kernel;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

pub(super) const SUITE: Suite = Suite {
    name: "ana",
    script: "ana.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp"],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    inside("identified"),
    step("states_change_under_load", |bench| states_change_under_load(bench, CHANGES)),
    long("a_thousand_changes", |bench| states_change_under_load(bench, 1000)),
    step("a_port_is_cut", a_port_is_cut),
    long("namespaces_are_remapped", namespaces_are_remapped),
    inside("without_multipath"),
];

/// How often the states change: each pair of states twice. Each time takes as long as the host
/// reads a log page.
const CHANGES: usize = 12;

fn setup(bench: &mut Bench) -> Result<()> {
    let second = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    fs::write(bench.folder.join("second"), second.to_string())?;
    File::create(bench.file())?.set_len(64 << 20)?;
    configure(bench, &[false, true])?;
    let control = control(bench);
    bench.start_target_with(&["--control", &control])
}

/// Writes the target's configuration with these ports: the first, the second.
fn configure(bench: &Bench, ports: &[bool]) -> Result<()> {
    let mut text = String::new();
    for second in ports {
        let (id, url) = (1 + u16::from(*second), url(bench, *second)?);
        text += &format!("[[port]]\nid = {id}\nlisten = \"{url}\"\n\n");
    }
    text += &format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\nana-reporting = true\n\n\
         [[subsystem.namespace]]\nmemory = \"64MiB\"\nana-group = 1\n\n\
         [[subsystem.namespace]]\nfile = \"{}\"\nana-group = 2\n",
        bench.file().display()
    );
    Ok(fs::write(bench.configuration(), text)?)
}

/// The control socket. Its path is short: the system allows 107 bytes.
fn control(bench: &Bench) -> String {
    format!("unix:{}", std::env::temp_dir().join(format!("weft-ana-{}", bench.port)).display())
}

fn url(bench: &Bench, second: bool) -> Result<String> {
    let port = match second {
        true => fs::read_to_string(bench.folder.join("second")).context("the second port")?,
        false => bench.port.to_string(),
    };
    Ok(format!("tcp://127.0.0.1:{port}"))
}

fn ctl(bench: &mut Bench, arguments: &[&str]) -> Result<()> {
    let control = control(bench);
    bench.weft(&[&["ctl", "--control", &control], arguments].concat()).map(drop)
}

/// Sets the states of the two ports, of one group or of all. The port that is reached comes
/// first, so that the host always has a path.
fn set(bench: &mut Bench, states: [&str; 2], group: Option<&str>) -> Result<()> {
    let mut order = [false, true];
    order.sort_by_key(|second| !states[usize::from(*second)].contains("optimized"));
    for second in order {
        let url = url(bench, second)?;
        let mut arguments = vec!["ana", "set", NQN, &url, states[usize::from(second)]];
        arguments.extend(group.into_iter().flat_map(|group| ["--group", group]));
        ctl(bench, &arguments)?;
    }
    Ok(())
}

/// The states of two ports change again and again while fio writes and verifies.
fn states_change_under_load(bench: &mut Bench, changes: usize) -> Result<()> {
    bench.guest("start_load")?;
    let pairs = [
        ["inaccessible", "optimized"],
        ["optimized", "inaccessible"],
        ["non-optimized", "optimized"],
        ["optimized", "change"],
        ["persistent-loss", "non-optimized"],
        ["optimized", "non-optimized"],
    ];
    for round in 0..changes {
        let group = [None, Some("1"), Some("2")][round / 2 % 3];
        set(bench, pairs[round % pairs.len()], group)?;
        sleep(Duration::from_millis(150));
    }
    // No path for a while: commands wait, and none fails.
    set(bench, ["inaccessible", "inaccessible"], None)?;
    bench.guest("states inaccessible inaccessible")?;
    set(bench, ["non-optimized", "inaccessible"], None)?;
    bench.guest("states non-optimized inaccessible")?;
    set(bench, ["optimized", "optimized"], None)?;
    bench.guest("states optimized optimized; states optimized optimized 2; end_load").map(drop)
}

/// One port is taken away and comes back while fio writes and verifies.
fn a_port_is_cut(bench: &mut Bench) -> Result<()> {
    bench.guest("start_load")?;
    for second in [false, true] {
        configure(bench, &[!second])?;
        bench.reload_target()?;
        sleep(Duration::from_secs(2));
        configure(bench, &[false, true])?;
        bench.reload_target()?;
        // The host comes back after its reconnect delay.
        bench.guest("states optimized optimized")?;
    }
    bench.guest("end_load").map(drop)
}

/// Another namespace comes and goes by the same number, quickly, each time with another UUID and
/// size, beside two that are used.
fn namespaces_are_remapped(bench: &mut Bench) -> Result<()> {
    const ROUNDS: usize = 30;
    bench.guest("start_load")?;
    for round in 1..=ROUNDS {
        let (uuid, size) = (format!("77656674-0000-4000-8000-{round:012}"), format!("{round}MiB"));
        let device = ["--memory", &size, "--nsid", "3", "--uuid", &uuid];
        if round == ROUNDS {
            // Linux lets go of a namespace that it finds replaced, and takes the new one with the
            // next change.
            bench.guest("within 20 is_gone 3")?;
        }
        ctl(bench, &[&["namespace", "add", NQN], &device[..]].concat())?;
        sleep(Duration::from_millis(20 * (round as u64 % 8)));
        if round < ROUNDS {
            ctl(bench, &["namespace", "remove", NQN, "3"])?;
        }
    }
    bench.guest(&format!("is_mapped 3 77656674-0000-4000-8000-{ROUNDS:012} {ROUNDS}; end_load"))?;
    ctl(bench, &["namespace", "remove", NQN, "3"])
}
