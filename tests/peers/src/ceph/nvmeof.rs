//! Ceph's own gateway daemon, ceph-nvmeof, with weft in place of SPDK's target: what its command
//! line client asks for is served, and served again after the target or the daemon has died.

use super::served::{Scene, VERIFIED};
use crate::process::{Process, tail, within};
use crate::prometheus::get;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::python::{self, succeeded};

/// The daemon, and SPDK's client of its time, with all that they import. The versions of grpcio and
/// cryptography are newer than what the daemon asks for, as newer Pythons need them.
const PACKAGES: &[&str] = &[
    "ceph-nvmeof==1.5.1",
    "spdk==25.5",
    "grpcio==1.67.1",
    "protobuf==4.25.9",
    "prometheus_client==0.19.0",
    "PyYAML==6.0.3",
    "tabulate==0.9.0",
    "cryptography==46.0.6",
    "cffi==2.0.0",
    "pycparser==2.23",
];
const VERSION: &str = "1.5.1";

const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f7f-4856-b0b3-51e60b8de349";
const FIRST_KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// The whole life of a gateway.
pub(super) fn operates(scene: &Scene) -> Result<()> {
    let gateway = Gateway::new(scene)?;
    let mut daemon = gateway.start("first")?;
    let key = serve(&gateway).with_context(|| daemon.last_words())?;
    let errors: Vec<String> =
        daemon.process.output().lines().filter(is_error).map(str::to_owned).collect();
    ensure!(errors.is_empty(), "the daemon's errors: {errors:#?}");
    // It takes the death of its target for its own.
    kill_process(daemon.target()?, Signal::KILL)?;
    daemon.process.wait(PATIENCE)?;
    drop(daemon);
    // All is in the cluster.
    let daemon = gateway.start("second")?;
    end(&gateway, &key).with_context(|| daemon.last_words())?;
    let target = daemon.target()?;
    daemon.process.stop()?;
    ensure!(test_kill_process(target).is_err(), "the daemon has ended, and its target runs on");
    Ok(())
}

/// Makes a namespace for hosts, then for one host with a key; returns its file.
fn serve(gateway: &Gateway<'_>) -> Result<PathBuf> {
    let port = gateway.ports.hosts.to_string();
    gateway.cli("gw info")?;
    gateway.cli(&format!("subsystem add --subsystem {NQN} --no-group-append"))?;
    gateway.cli(&format!(
        "namespace add --subsystem {NQN} --rbd-pool rbd --rbd-image gateway --size 16MB \
         --rbd-create-image --load-balancing-group 1"
    ))?;
    gateway.cli(&format!(
        "listener add --subsystem {NQN} --host-name gateway --traddr 127.0.0.1 --trsvcid {port}"
    ))?;
    gateway.cli(&format!("host add --subsystem {NQN} --host-nqn *"))?;
    within(PATIENCE, "the daemon's discovery service lists the subsystem", || {
        let discovery = format!("tcp://127.0.0.1:{}", gateway.ports.discovery);
        let listed = succeeded(gateway.scene.command().args(["discover", &discovery]))?;
        ensure!(listed.contains(NQN) && listed.contains(&port), "{listed}");
        Ok(())
    })?;
    let refused = gateway.weft("read", &["--block-count", "1"]).expect_err("it is inaccessible");
    ensure!(format!("{refused:#}").contains("Inaccessible"), "{refused:#}");
    gateway.states(&["1=OPTIMIZED", "2=OPTIMIZED"])?;
    while_in_use(gateway)?;
    let (data, bytes) = gateway.scene.data(9, MIB)?;
    gateway.weft("write", &["--data", &data.display().to_string()])?;
    ensure!(gateway.scene.cluster.contents("gateway", MIB)? == bytes, "the image has other data");
    with_key(gateway)
}

/// What an operator does while a host writes.
fn while_in_use(gateway: &Gateway<'_>) -> Result<()> {
    let load = gateway.scene.load(&gateway.url(), VERIFIED)?;
    within(PATIENCE, "the daemon lists the host as connected", || {
        let listed = gateway.cli(&format!("connection list --subsystem {NQN}"))?;
        ensure!(listed.contains("Yes"), "{listed}");
        Ok(())
    })?;
    let namespace = format!("--subsystem {NQN} --nsid 1");
    gateway.cli(&format!("namespace set_qos {namespace} --rw-ios-per-second 5000"))?;
    gateway.cli(&format!("namespace resize {namespace} --size 32MB"))?;
    gateway.cli(&format!(
        "namespace change_load_balancing_group {namespace} --load-balancing-group 2"
    ))?;
    gateway.cli(&format!("namespace get_io_stats {namespace}"))?;
    gateway.cli(&format!("gw listener_info --subsystem {NQN}"))?;
    gateway.cli("spdk_log_level set --level DEBUG")?;
    gateway.cli("spdk_log_level disable")?;
    let listed = gateway.cli(&format!("namespace list {namespace}"))?;
    ensure!(listed.contains("32 MiB") && listed.contains("5000"), "{listed}");
    within(PATIENCE, "the daemon's exporter counts the writes", || {
        let metrics = get(&format!("127.0.0.1:{}", gateway.ports.metrics), "/metrics", "")?;
        let written = |line: &&str| line.starts_with("ceph_nvmeof_bdev_writes_completed_total{");
        let line = metrics.lines().find(written).context("no counter of writes")?;
        ensure!(!line.ends_with(" 0.0"), "{line}");
        Ok(())
    })?;
    load.ends_well()
}

/// Only the host that has the key, and that was shown the namespace, reads it.
fn with_key(gateway: &Gateway<'_>) -> Result<PathBuf> {
    let namespace = format!("--subsystem {NQN} --nsid 1");
    gateway.cli(&format!("namespace change_visibility {namespace} --auto-visible no --force"))?;
    let hidden = gateway.weft("read", &["--block-count", "1"]).expect_err("it is hidden");
    ensure!(format!("{hidden:#}").contains("no namespace"), "{hidden:#}");
    gateway.cli(&format!("host del --subsystem {NQN} --host-nqn *"))?;
    let file = gateway.scene.folder.join("gateway.key");
    let _ = fs::remove_file(&file);
    succeeded(gateway.scene.command().args(["key", "generate", "dhchap"]).arg(&file))?;
    let key = fs::read_to_string(&file)?;
    let host = format!("--subsystem {NQN} --host-nqn {HOST}");
    // Another one at first.
    gateway.cli(&format!("host add {host} --dhchap-key {FIRST_KEY}"))?;
    gateway.cli(&format!("host change_key {host} --dhchap-key {}", key.trim()))?;
    gateway.cli(&format!("namespace add_host {namespace} --host-nqn {HOST}"))?;
    let refused = gateway.weft("read", &["--hostnqn", HOST, "--block-count", "1"]);
    ensure!(refused.is_err(), "a host without the key reads the namespace");
    Ok(file)
}

/// Reads what was written, and removes everything.
fn end(gateway: &Gateway<'_>, key: &Path) -> Result<()> {
    gateway.states(&["1=OPTIMIZED", "2=OPTIMIZED"])?;
    let (_, bytes) = gateway.scene.data(9, MIB)?;
    let key = key.display().to_string();
    let size = MIB.to_string();
    let words = ["--hostnqn", HOST, "--dhchap-secret-file", &key, "--data-size", &size];
    ensure!(gateway.weft("read", &words)? == bytes, "the namespace has other data");
    let host = format!("--subsystem {NQN} --host-nqn {HOST}");
    gateway.cli(&format!("namespace del_host --nsid 1 {host}"))?;
    gateway.cli(&format!("host del {host}"))?;
    gateway.cli(&format!("namespace del --subsystem {NQN} --nsid 1"))?;
    gateway.cli(&format!(
        "listener del --subsystem {NQN} --host-name gateway --traddr 127.0.0.1 --trsvcid {}",
        gateway.ports.hosts
    ))?;
    gateway.cli(&format!("subsystem del --subsystem {NQN}"))?;
    Ok(())
}

fn is_error(line: &&str) -> bool {
    [" ERROR ", " CRITICAL ", "Traceback"].iter().any(|word| line.contains(word))
}

#[derive(Debug)]
struct Ports {
    operators: u16,
    hosts: u16,
    discovery: u16,
    metrics: u16,
}

/// Where a daemon has its files and ports.
#[derive(Debug)]
struct Gateway<'a> {
    scene: &'a Scene,
    python: PathBuf,
    ports: Ports,
    /// The script that starts the daemon.
    script: PathBuf,
    config: PathBuf,
    /// The folder of the control socket, whose path is short.
    sockets: PathBuf,
}

impl<'a> Gateway<'a> {
    fn new(scene: &'a Scene) -> Result<Self> {
        let python = python::install_exactly(&scene.root, PACKAGES)?.join("python3");
        let listeners: Vec<_> =
            (0..4).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let ports: Vec<u16> =
            listeners.iter().map(|one| Ok(one.local_addr()?.port())).collect::<Result<_>>()?;
        let ports =
            Ports { operators: ports[0], hosts: ports[1], discovery: ports[2], metrics: ports[3] };
        let folder = scene.folder.join("gateway");
        fs::create_dir_all(&folder)?;
        let (script, config) = (folder.join("nvmeof.py"), folder.join("gateway.conf"));
        fs::write(&script, include_str!("nvmeof.py"))?;
        let sockets = std::env::temp_dir().join(format!("weft-nvmeof-{}", std::process::id()));
        let gateway = Self { scene, python, ports, script, config, sockets };
        fs::write(&gateway.config, gateway.configuration(&folder)?)?;
        Ok(gateway)
    }

    /// As far as it differs from the daemon's own example: other ports, nothing of the monitor's.
    fn configuration(&self, folder: &Path) -> Result<String> {
        // With which it encrypts the keys of hosts in the cluster.
        let encryption = folder.join("encryption.key");
        fs::write(&encryption, "d2VmdCB0ZXN0cyBjZXBoLW52bWVvZiB3aXRoIHRoaXM=\n")?;
        let target = self.scene.root.join("packaging/nvmf_tgt").canonicalize()?;
        let (ports, conf) = (&self.ports, self.scene.cluster.configuration());
        Ok(format!(
            "[gateway]\nname = gateway\ngroup =\naddr = 127.0.0.1\nport = {}\n\
             enable_auth = False\noverride_hostname = gateway\nenable_monitor_client = False\n\
             state_update_notify = True\nstate_update_interval_sec = 5\n\
             encryption_key = {}\nprometheus_exporter_ssl = False\nprometheus_port = {}\n\
             prometheus_bdev_pools = rbd\nprometheus_stats_interval = 1\n\
             [gateway-logs]\nlog_level = debug\nlog_files_enabled = False\n\
             [discovery]\naddr = 127.0.0.1\nport = {}\n\
             [ceph]\npool = rbd\nconfig_file = {conf}\nid = weft\n\
             [mtls]\n\
             [spdk]\nbdevs_per_cluster = 32\nmem_size = 1024\ntgt_path = {}\n\
             rpc_socket_dir = {}\ntimeout = 30.0\n\
             transport_tcp_options = \
             {{\"in_capsule_data_size\": 8192, \"max_io_qpairs_per_ctrlr\": 7}}\n",
            ports.operators,
            encryption.display(),
            ports.metrics,
            ports.discovery,
            target.display(),
            self.sockets.display(),
        ))
    }

    fn python(&self) -> Command {
        let mut command = Command::new(&self.python);
        self.scene.cluster.with_python(&mut command);
        command.env("NVMEOF_VERSION", VERSION).env("HOSTNAME", "gateway");
        command.env("WEFT", &self.scene.weft);
        command
    }

    /// Starts the daemon, which starts its target.
    fn start(&self, name: &str) -> Result<Daemon> {
        let mut command = self.python();
        command.arg(&self.script).arg("daemon").arg(&self.config).process_group(0);
        let log = self.scene.folder.join("gateway").join(format!("{name}.log"));
        let process = Process::start(&mut command, &log)?;
        let group = Group(process.pid()?);
        let mut daemon = Daemon { process, log, _group: group };
        daemon.process.wait_for("Prometheus exporter running", PATIENCE)?;
        Ok(daemon)
    }

    /// What the daemon's command line client says.
    fn cli(&self, words: &str) -> Result<String> {
        let port = self.ports.operators.to_string();
        let mut command = self.python();
        command.args(["-m", "control.cli", "--server-address", "127.0.0.1", "--server-port"]);
        let output = command.arg(port).args(words.split(' ')).output()?;
        // It says all on standard error.
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{words}: {}: {told}", output.status);
        Ok(told)
    }

    /// Says what the monitor says: the states of groups.
    fn states(&self, states: &[&str]) -> Result<()> {
        let address = format!("127.0.0.1:{}", self.ports.operators);
        let mut command = self.python();
        command.arg(&self.script).args(["states", &address, NQN]).args(states);
        succeeded(&mut command).map(drop)
    }

    fn url(&self) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", self.ports.hosts)
    }

    /// The output of a command of weft on the namespace.
    fn weft(&self, command: &str, words: &[&str]) -> Result<Vec<u8>> {
        let output = self.scene.command().args([command, &self.url()]).args(words).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "weft {command}: {told}");
        Ok(output.stdout)
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.sockets);
    }
}

/// A daemon that runs.
#[derive(Debug)]
struct Daemon {
    process: Process,
    log: PathBuf,
    _group: Group,
}

impl Daemon {
    /// The process of the target.
    fn target(&self) -> Result<Pid> {
        let log = self.process.output();
        let (_, after) = log.split_once("SPDK process id: ").context("no target was started")?;
        let pid = after.lines().next().unwrap_or_default().parse()?;
        Pid::from_raw(pid).context("no process")
    }

    fn last_words(&self) -> String {
        tail(&self.log, 20)
    }
}

/// The processes that a daemon has started: its target and its discovery service, which the daemon
/// could not end if it was killed.
#[derive(Debug)]
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // There is none where the daemon has ended them.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}
