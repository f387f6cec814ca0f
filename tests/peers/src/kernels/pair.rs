//! Linux' host with native multipath and an ext4 in the guest; outside a pair of weft's targets,
//! of which one is cut off, killed, stopped and handed over.

use super::bench::{Bench, NQN};
use super::suite::{Suite, SuiteTest, long, step};
use crate::guest::Kernel;
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::packages;

pub(super) const SUITE: Suite = Suite {
    name: "pair",
    script: "pair.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp"],
    setup: |_| Ok(()),
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    step("cut_off_killed_and_handed_over", cut_off_killed_and_handed_over),
    long("stopped_for_a_minute", stopped_for_a_minute),
    long("stopped_for_a_minute_with_etcd", stopped_with_etcd),
];

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a member is stopped.
const STOPPED: Duration = Duration::from_secs(60);

/// A port of the primary goes, the primary is killed, comes back, and has it handed over.
fn cut_off_killed_and_handed_over(bench: &mut Bench) -> Result<()> {
    let mut pair = TargetPair::start(bench, lock_file)?;
    bench.guest("begin")?;
    pair.configure(bench, 0, &[0])?;
    pair.reload(0)?;
    bench.guest("goes_on")?;
    pair.configure(bench, 0, &[0, 1])?;
    pair.reload(0)?;
    bench.guest("within 30 all_live")?;
    for from in [0, 1] {
        pair.members[from] = None;
        pair.wait_until_primary(bench, 1 - from)?;
        bench.guest("goes_on")?;
        pair.run(bench, from)?;
        bench.guest("within 30 all_live")?;
    }
    pair.ctl(bench, 0, &["hand-over"])?;
    pair.wait_until_primary(bench, 1)?;
    bench.guest("goes_on; end").map(drop)
}

/// A primary that is stopped keeps its lock: hosts wait until it goes on.
fn stopped_for_a_minute(bench: &mut Bench) -> Result<()> {
    let pair = TargetPair::start(bench, lock_file)?;
    bench.guest("begin")?;
    pair.member(0)?.signal(Signal::STOP)?;
    sleep(STOPPED);
    ensure!(!pair.is_primary(bench, 1)?, "the other one serves beside one that may go on");
    pair.member(0)?.signal(Signal::CONT)?;
    bench.guest("goes_on; end").map(drop)
}

/// With a lease the other one takes over, and the one that is stopped has died when it is to go on.
fn stopped_with_etcd(bench: &mut Bench) -> Result<()> {
    let program = packages::extract(&bench.root, "etcd-server", "etcd")?;
    let (client, peer) = (free_port()?, free_port()?);
    let url = |port| format!("http://127.0.0.1:{port}");
    let mut command = Command::new(program);
    command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
    command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
    command.args(["--initial-cluster", &format!("default={}", url(peer)), "--data-dir"]);
    command.arg(bench.folder.join("etcd"));
    let mut etcd = Process::start(&mut command, &bench.folder.join("etcd.log"))?;
    etcd.wait_for("ready to serve client requests", PATIENCE)?;
    let mut pair =
        TargetPair::start(bench, |_| format!("etcd = [\"{}\"]\nttl = \"5s\"", url(client)))?;
    bench.guest("begin")?;
    pair.member(0)?.signal(Signal::STOP)?;
    pair.wait_until_primary(bench, 1)?;
    bench.guest("goes_on")?;
    sleep(STOPPED);
    bench.guest("goes_on")?;
    let mut stopped = pair.members[0].take().context("it was started")?;
    let status = stopped.wait(Duration::from_secs(1))?;
    ensure!(!status.success(), "the one that was stopped has ended well: {status}");
    pair.run(bench, 0)?;
    bench.guest("within 30 all_live; goes_on; end").map(drop)
}

fn lock_file(bench: &Bench) -> String {
    format!("lock-file = {:?}", bench.folder.join("lock"))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Two targets of two ports each, the first one primary.
struct TargetPair {
    arbiter: String,
    ports: [[u16; 2]; 2],
    members: [Option<Process>; 2],
}

impl TargetPair {
    fn start(bench: &mut Bench, arbiter: impl FnOnce(&Bench) -> String) -> Result<Self> {
        let port = free_port;
        let ports = [[port()?, port()?], [port()?, port()?]];
        File::create(bench.file())?.set_len(64 << 20)?;
        let words: Vec<String> = ports.iter().flatten().map(u16::to_string).collect();
        fs::write(bench.folder.join("ports"), words.join(" "))?;
        let mut pair = Self { arbiter: arbiter(bench), ports, members: [None, None] };
        for member in [0, 1] {
            pair.configure(bench, member, &[0, 1])?;
            pair.run(bench, member)?;
        }
        pair.wait_until_primary(bench, 0)?;
        Ok(pair)
    }

    fn path(bench: &Bench, member: usize, what: &str) -> PathBuf {
        bench.folder.join(format!("member{member}.{what}"))
    }

    /// The control socket. Its path is short: the system allows 107 bytes.
    fn control(bench: &Bench, member: usize) -> String {
        let name = format!("weft-pair-{}-{member}", bench.port);
        format!("unix:{}", std::env::temp_dir().join(name).display())
    }

    /// Writes a member's configuration with some of its ports.
    fn configure(&self, bench: &Bench, member: usize, ports: &[usize]) -> Result<()> {
        let mut text = format!("[pair]\nmember = {}\n{}\n", member + 1, self.arbiter);
        for port in ports {
            let (id, port) = (2 * member + port + 1, self.ports[member][*port]);
            text += &format!("[[port]]\nid = {id}\nlisten = \"tcp://127.0.0.1:{port}\"\n");
        }
        text += &format!(
            "[[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nfile = \"{}\"\n",
            bench.file().display()
        );
        Ok(fs::write(Self::path(bench, member, "toml"), text)?)
    }

    fn run(&mut self, bench: &Bench, member: usize) -> Result<()> {
        let mut command = bench.weft_command();
        command.arg("target").arg("--config").arg(Self::path(bench, member, "toml"));
        command.args(["--control", &Self::control(bench, member)]);
        let mut target = Process::start(&mut command, &Self::path(bench, member, "log"))?;
        target.wait_for("nvme connect", PATIENCE)?;
        self.members[member] = Some(target);
        Ok(())
    }

    fn member(&self, member: usize) -> Result<&Process> {
        self.members[member].as_ref().context("it does not run")
    }

    fn reload(&self, member: usize) -> Result<()> {
        self.member(member)?.signal(Signal::HUP)
    }

    fn ctl(&self, bench: &mut Bench, member: usize, words: &[&str]) -> Result<Vec<u8>> {
        let control = Self::control(bench, member);
        bench.weft(&[&["ctl", "--control", &control, "pair"], words].concat())
    }

    fn is_primary(&self, bench: &mut Bench, member: usize) -> Result<bool> {
        let shown = self.ctl(bench, member, &["show", "-o", "json"])?;
        let shown: serde_json::Value = serde_json::from_slice(&shown)?;
        Ok(shown["role"] == "primary")
    }

    fn wait_until_primary(&self, bench: &mut Bench, member: usize) -> Result<()> {
        let begin = Instant::now();
        while !self.is_primary(bench, member)? {
            if begin.elapsed() > PATIENCE {
                bail!("member {} does not become primary", member + 1);
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}
