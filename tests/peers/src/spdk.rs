//! SPDK's own clients operate the target: `spdk-rpc` and `spdk-cli`, from PyPI.
//!
//! Without them, or without a network for the first run, the stage fails: it is never skipped.

use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::cargo;
use xtask::python::{self, succeeded};
use xtask::report::Report;

/// The version that the target is tested with.
const PACKAGE: &str = "spdk[cli]==26.9";

pub(crate) const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f7f-4856-b0b3-51e60b8de349";

/// Runs the life of a target through SPDK's clients.
pub(crate) fn run(root: &Path, report: &mut Report) {
    let mut client = None;
    report.check("SPDK's clients from PyPI", || {
        client = Some(python::install(root, PACKAGE, "spdk-cli")?);
        Ok(())
    });
    let Some(client) = client else { return };
    let mut life = |name: &str, check: fn(&OperatedTarget) -> Result<()>| {
        report.check(name, || {
            let operated = OperatedTarget::start(root, &client)?;
            let log = operated.folder.join("log");
            check(&operated).with_context(|| std::fs::read_to_string(log).unwrap_or_default())
        });
    };
    life("spdk-rpc builds, shows, changes, saves and loads a target", rpc);
    life("spdk-cli builds and shows a target", cli);
}

/// A target that started with nothing to serve.
pub(crate) struct OperatedTarget {
    weft: PathBuf,
    client: PathBuf,
    folder: PathBuf,
    process: RefCell<Option<Process>>,
}

impl OperatedTarget {
    /// `client` is the folder of SPDK's clients.
    pub(crate) fn start(root: &Path, client: &Path) -> Result<Self> {
        let weft = cargo::build_binary(root)?;
        // The path of a socket is short.
        let folder = std::env::temp_dir().join(format!("weft-spdk-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let process = RefCell::new(Some(target(&weft, &folder)?));
        Ok(Self { weft, client: client.to_owned(), folder, process })
    }

    /// Where it is controlled.
    pub(crate) fn control(&self) -> String {
        format!("unix:{}", self.folder.join("control").display())
    }

    /// A folder of its own.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends the target and starts another one, which serves nothing.
    fn restart(&self) -> Result<()> {
        self.process.take().context("no target")?.stop()?;
        self.process.replace(Some(target(&self.weft, &self.folder)?));
        Ok(())
    }

    fn command(&self, program: &str, words: &str) -> Command {
        let mut command = Command::new(self.client.join(program));
        command.arg("-s").arg(self.folder.join("control")).args(words.split_whitespace());
        command
    }

    /// The result of a call; a word is a text.
    fn rpc(&self, words: &str) -> Result<Value> {
        let text = succeeded(&mut self.command("spdk-rpc", words))?;
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| text.trim().into()))
    }

    /// A call that must fail with this error.
    fn refused(&self, words: &str, part: &str) -> Result<()> {
        let Err(error) = self.rpc(words) else { bail!("{words}: it did not fail") };
        ensure!(error.to_string().contains(part), "{words}: {error}");
        Ok(())
    }
}

impl Drop for OperatedTarget {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn target(weft: &Path, folder: &Path) -> Result<Process> {
    let mut command = Command::new(weft);
    command.args(["target", "--control"]);
    command.arg(format!("unix:{}", folder.join("control").display()));
    let mut target = Process::start(&mut command, &folder.join("log"))?;
    target.wait_for("control on", Duration::from_secs(20))?;
    Ok(target)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn equal(what: &str, found: &Value, expected: &Value) -> Result<()> {
    ensure!(found == expected, "{what} is {found}, not {expected}");
    Ok(())
}

/// From nothing to a namespace under load, which is resized, saved, and loaded by a new process.
fn rpc(operated: &OperatedTarget) -> Result<()> {
    let port = free_port()?;
    build(operated, port)?;
    refusals(operated, port)?;
    let url = |nsid: u32| format!("nvme-tcp://127.0.0.1:{port}/{NQN}?nsid={nsid}");
    let mut load = Command::new(&operated.weft);
    load.args(["bench", "--runtime", "300", "--rw", "randread", "--hostnqn", HOST, &url(1)]);
    let mut load = Process::start(&mut load, &operated.folder.join("load.log"))?;
    under_load(operated)?;
    load.signal(Signal::INT)?;
    let status = load.wait(Duration::from_secs(20))?;
    // It was interrupted.
    ensure!(status.code() == Some(130), "the load failed: {status}: {}", load.output());
    iostat(operated)?;
    save_and_load(operated)?;
    let listed = succeeded(Command::new(&operated.weft).args([
        "list",
        &format!("nvme-tcp://127.0.0.1:{port}"),
        "--hostnqn",
        HOST,
    ]))?;
    ensure!(listed.contains("nsid=5") && listed.contains("2 GiB"), "{listed}");
    unmake(operated, port)
}

/// Creates everything there is to create.
fn build(operated: &OperatedTarget, port: u16) -> Result<()> {
    let file = operated.folder.join("disk.img");
    File::create(&file)?.set_len(64 << 20)?;
    let other = operated.folder.join("other.img");
    File::create(&other)?.set_len(32 << 20)?;
    let methods = operated.rpc("rpc_get_methods")?;
    let has = |name: &str| methods.as_array().is_some_and(|all| all.contains(&name.into()));
    ensure!(
        has("bdev_set_qos_limit") && !has("bdev_enable_histogram"),
        "the methods are {methods}"
    );
    equal("transports", &operated.rpc("nvmf_get_transports")?, &json!([]))?;
    operated.rpc("nvmf_create_transport -t TCP")?;
    equal("a name", &operated.rpc("bdev_null_create N0 1024 512")?, &json!("N0"))?;
    equal("a name", &operated.rpc("bdev_malloc_create -b M0 64 512")?, &json!("M0"))?;
    operated.rpc(&format!("bdev_aio_create {} A0 512", file.display()))?;
    operated.rpc(&format!("bdev_uring_create {} U0", other.display()))?;
    operated.rpc(&format!("nvmf_create_subsystem {NQN} -s SPDK001 -d Model -m 8"))?;
    for bdev in ["N0", "A0", "U0", "M0 -n 5"] {
        operated.rpc(&format!("nvmf_subsystem_add_ns {NQN} {bdev}"))?;
    }
    let at = format!("-t TCP -a 127.0.0.1 -s {port} -f ipv4");
    operated.rpc(&format!("nvmf_subsystem_add_listener {NQN} {at}"))?;
    operated.rpc(&format!("nvmf_subsystem_add_listener discovery {at}"))?;
    operated.rpc(&format!("nvmf_subsystem_add_host {NQN} {HOST}"))?;
    let shown = operated.rpc("nvmf_get_subsystems")?;
    let address = json!({
        "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port.to_string(),
    });
    for subsystem in [&shown[0], &shown[1]] {
        equal("an address", &subsystem["listen_addresses"], &json!([address]))?;
    }
    equal("the hosts", &shown[1]["hosts"], &json!([{ "nqn": HOST }]))?;
    refer(operated)?;
    equal("the namespaces", &shown[1]["max_namespaces"], &json!(8))?;
    let namespaces = ["N0", "A0", "U0", "M0"].iter().zip([1, 2, 3, 5]);
    for (place, (bdev, nsid)) in namespaces.enumerate() {
        let found = &shown[1]["namespaces"][place];
        let found = json!([found["bdev_name"], found["nsid"]]);
        equal("a namespace", &found, &json!([bdev, nsid]))?;
    }
    Ok(())
}

/// A referral, with SPDK's own answer.
fn refer(operated: &OperatedTarget) -> Result<()> {
    let at = "-t TCP -a 127.0.0.1 -f ipv4 -s";
    for port in ["8009", "8010"] {
        operated.rpc(&format!("nvmf_discovery_add_referral {at} {port}"))?;
    }
    operated.rpc(&format!("nvmf_discovery_remove_referral {at} 8010"))?;
    let address =
        json!({ "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "8009" });
    let nqn = "nqn.2014-08.org.nvmexpress.discovery";
    let answer = json!([{ "address": address, "secure_channel": false, "subnqn": nqn }]);
    equal("the referrals", &operated.rpc("nvmf_discovery_get_referrals")?, &answer)
}

/// The names of SPDK's counters of a block device, of which the load has filled some.
fn iostat(operated: &OperatedTarget) -> Result<()> {
    let found = operated.rpc("bdev_get_iostat --names N0")?;
    let bdev = found["bdevs"][0].as_object().context("no counters")?;
    let count = |name: &str| bdev.get(name).and_then(Value::as_u64);
    for name in ["num_read_ops", "read_latency_ticks", "max_read_latency_ticks"] {
        ensure!(count(name) > Some(0), "{name} counts nothing: {found}");
    }
    for kind in ["read", "write", "unmap", "copy"] {
        for name in [format!("num_{kind}_ops"), format!("min_{kind}_latency_ticks")] {
            ensure!(count(&name).is_some(), "{name} is missing: {found}");
        }
    }
    let threads = operated.rpc("thread_get_stats")?;
    ensure!(threads["threads"][0]["busy"].as_u64() > Some(0), "no busy thread: {threads}");
    Ok(())
}

/// What SPDK refuses is refused with its error code.
fn refusals(operated: &OperatedTarget, port: u16) -> Result<()> {
    let at = format!("-t TCP -a 127.0.0.1 -s {port} -f ipv4");
    for (words, code) in [
        ("nvmf_create_transport -t TCP".to_owned(), "-32603"),
        ("bdev_get_bdevs -b nothere".to_owned(), "-19"),
        (format!("nvmf_create_subsystem {NQN} -a"), "-32603"),
        (format!("nvmf_subsystem_add_ns {NQN} nothere"), "-32602"),
        (format!("nvmf_subsystem_add_listener {NQN} {at}"), "-32602"),
        (format!("nvmf_subsystem_add_host {NQN} {HOST}1 --psk key0"), "-32602"),
        (format!("nvmf_subsystem_remove_ns {NQN} 77"), "-32602"),
        ("bdev_malloc_delete M9".to_owned(), "-19"),
        ("bdev_set_qos_limit M9 --rw-ios-per-sec 1000".to_owned(), "-19"),
        ("bdev_enable_histogram M0 --histogram".to_owned(), "-32601"),
    ] {
        operated.refused(&words, &format!("\"code\": {code}"))?;
    }
    Ok(())
}

/// Changes while a host reads.
fn under_load(operated: &OperatedTarget) -> Result<()> {
    let queues = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let queues = operated.rpc(&format!("nvmf_subsystem_get_qpairs {NQN}")).ok()?;
        (queues.as_array()?.len() >= 2).then_some(queues)
    });
    let queues = queues.context("the load has no queues")?;
    equal("a host", &queues[1]["hostnqn"], &json!(HOST))?;
    let controllers = operated.rpc(&format!("nvmf_subsystem_get_controllers {NQN}"))?;
    equal("a controller's host", &controllers[0]["hostnqn"], &json!(HOST))?;
    operated.rpc("bdev_null_resize N0 2048")?;
    operated.rpc("bdev_set_qos_limit N0 --rw-ios-per-sec 12345 --w-mbytes-per-sec 70")?;
    operated.rpc("bdev_set_qos_limit N0 --w-mbytes-per-sec 0 --r-mbytes-per-sec 9")?;
    let limits = json!({
        "rw_ios_per_sec": 12345, "rw_mbytes_per_sec": 0,
        "r_mbytes_per_sec": 9, "w_mbytes_per_sec": 0,
    });
    let limited = operated.rpc("bdev_get_bdevs -b N0")?;
    equal("the limits", &limited[0]["assigned_rate_limits"], &limits)?;
    let bdev = operated.rpc("bdev_get_bdevs -b N0")?;
    equal("a size", &bdev[0]["num_blocks"], &json!(4_194_304))?;
    let stats = operated.rpc("nvmf_get_stats")?;
    equal("admin queues", &stats["poll_groups"][0]["current_admin_qpairs"], &json!(1))?;
    let heard = operated.rpc("notify_get_notifications")?;
    let resized = json!("bdev_resize");
    let any = heard.as_array().is_some_and(|all| all.iter().any(|one| one["type"] == resized));
    ensure!(any, "the resize is no notification: {heard}");
    Ok(())
}

/// A new process makes the same from what was saved.
fn save_and_load(operated: &OperatedTarget) -> Result<()> {
    let (saved, shown) = (operated.rpc("save_config")?, operated.rpc("nvmf_get_subsystems")?);
    let file = operated.folder.join("saved.json");
    std::fs::write(&file, saved.to_string())?;
    operated.restart()?;
    equal("a new target", &operated.rpc("bdev_get_bdevs")?, &json!([]))?;
    operated.rpc(&format!("load_config -j {}", file.display()))?;
    equal("what was loaded", &operated.rpc("save_config")?, &saved)?;
    equal("what is shown", &operated.rpc("nvmf_get_subsystems")?, &shown)
}

fn unmake(operated: &OperatedTarget, port: u16) -> Result<()> {
    let at = format!("-t TCP -a 127.0.0.1 -s {port} -f ipv4");
    operated.rpc(&format!("nvmf_subsystem_remove_ns {NQN} 5"))?;
    operated.rpc("bdev_malloc_delete M0")?;
    operated.rpc(&format!("nvmf_subsystem_remove_host {NQN} {HOST}"))?;
    operated.rpc(&format!("nvmf_subsystem_allow_any_host {NQN} --allow-any-host"))?;
    operated.rpc(&format!("nvmf_subsystem_remove_listener {NQN} {at}"))?;
    operated.rpc(&format!("nvmf_delete_subsystem {NQN}"))?;
    for call in ["bdev_null_delete N0", "bdev_aio_delete A0", "bdev_uring_delete U0"] {
        operated.rpc(call)?;
    }
    equal("what is left", &operated.rpc("bdev_get_bdevs")?, &json!([]))
}

/// SPDK's shell makes objects and shows them.
fn cli(operated: &OperatedTarget) -> Result<()> {
    let port = free_port()?;
    for words in [
        "/bdevs/malloc create 32 512 Malloc1".to_owned(),
        "/nvmf/transport create tcp".to_owned(),
        format!("/nvmf/subsystem create {NQN} SPDK001 max_namespaces=4 allow_any_host=True"),
        format!("/nvmf/subsystem/{NQN}/namespaces create Malloc1 1"),
        format!("/nvmf/subsystem/{NQN}/listen_addresses create tcp 127.0.0.1 {port} IPv4"),
    ] {
        succeeded(&mut operated.command("spdk-cli", &words))?;
    }
    let shown = succeeded(&mut operated.command("spdk-cli", "ls"))?;
    for part in ["Malloc1", "Claimed", NQN, &format!("127.0.0.1:{port}"), "Transports: 1"] {
        ensure!(shown.contains(part), "spdk-cli does not show {part}: {shown}");
    }
    succeeded(&mut operated.command("spdk-cli", "/bdevs/malloc delete Malloc1"))?;
    equal("what is left", &operated.rpc("bdev_get_bdevs")?, &json!([]))
}
