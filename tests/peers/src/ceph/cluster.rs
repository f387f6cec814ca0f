//! A Ceph cluster of one node: a monitor and an OSD on a file, with a configuration of their own.

use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::packages;
use xtask::python::succeeded;

/// What a cluster is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Steps,
    Bars,
}

impl Purpose {
    /// How long a client may be silent: briefly, so that steps in which one dies take less time; or
    /// Ceph's default, as on a busy machine a client that works can be silent for longer than that.
    const fn watch_s(self) -> u32 {
        match self {
            Self::Steps => 5,
            Self::Bars => 30,
        }
    }

    /// The size of the OSD's file, which has holes. Small writes at full speed make its log grow by
    /// pieces of hundreds of MiB, and it ends when there is no room for one.
    const fn osd_bytes(self) -> u64 {
        match self {
            Self::Steps => 2 << 30,
            Self::Bars => 32 << 30,
        }
    }
}

/// Ceph's programs, extracted.
#[derive(Debug)]
pub(super) struct Programs(PathBuf);

impl Programs {
    pub(super) fn of_debian(root: &Path) -> Result<Self> {
        // The last one is for ceph-nvmeof: PyPI has only its source in C.
        let packages =
            ["ceph-mon", "ceph-osd", "ceph-common", "librbd1", "librados2", "python3-netifaces"];
        packages::extract_with_dependencies(root, "ceph/programs", &packages)?
            .canonicalize()
            .map(Self)
            .context("no programs")
    }

    fn libraries(&self) -> String {
        format!("{}/usr/lib/{}-linux-gnu", self.0.display(), std::env::consts::ARCH)
    }

    /// Ceph's own library is in a folder that the others name by its path on a system.
    fn library_path(&self) -> String {
        let libraries = self.libraries();
        let system = format!("{}/lib/{}-linux-gnu", self.0.display(), std::env::consts::ARCH);
        format!("{libraries}:{libraries}/ceph:{system}")
    }
}

/// A cluster, which ends with this value.
#[derive(Debug)]
pub(super) struct Cluster {
    programs: Programs,
    folder: PathBuf,
    _monitor: Process,
    /// None: it is down.
    osd: RefCell<Option<Process>>,
}

impl Cluster {
    /// Starts a new one, with the pool `rbd`.
    pub(super) fn start(programs: Programs, folder: PathBuf, purpose: Purpose) -> Result<Self> {
        let _ = fs::remove_dir_all(&folder);
        for name in ["mon", "osd"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let id = uuid()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        fs::write(folder.join("ceph.conf"), configuration(&programs, &folder, &id, port, purpose))?;
        let tool =
            |name: &str, words: &[&str]| succeeded(command(&programs, &folder, name).args(words));
        let keyring = folder.join("keyring").display().to_string();
        tool("ceph-authtool", &["--create-keyring", &keyring])?;
        for (name, of_monitor, of_osd) in [
            ("mon.", "allow *", ""),
            ("client.admin", "allow *", "allow *"),
            ("osd.0", "allow profile osd", "allow *"),
            // What an operator gives a gateway.
            ("client.weft", "profile rbd", "profile rbd"),
        ] {
            let caps = ["--cap", "mon", of_monitor, "--cap", "osd", of_osd];
            let caps = if of_osd.is_empty() { &caps[..3] } else { &caps };
            tool("ceph-authtool", &[&[&keyring, "--gen-key", "-n", name], caps].concat())?;
        }
        let map = folder.join("monmap").display().to_string();
        let address = format!("[v2:127.0.0.1:{port}]");
        tool("monmaptool", &["--create", "--addv", "a", &address, "--fsid", &id, &map])?;
        tool("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map, "--keyring", &keyring])?;
        let mut monitor = daemon(&programs, &folder, "ceph-mon", "a")?;
        let osd = uuid()?;
        let created = tool("ceph", &["--connect-timeout", "60", "osd", "new", &osd]);
        if created.is_err() {
            // The client knows only that nobody answers.
            ensure_runs(&mut monitor, "the monitor")?;
        }
        created?;
        let cluster = Self { programs, folder, _monitor: monitor, osd: RefCell::default() };
        let made = ["-i", "0", "--mkfs", "--osd-uuid", &osd];
        succeeded(cluster.command("ceph-osd").args(made))?;
        cluster.ceph("osd crush add osd.0 1.0 root=default host=node")?;
        cluster.start_osd()?;
        cluster.make_pool("rbd")?;
        Ok(cluster)
    }

    /// Another cluster.
    pub(super) fn another(&self, folder: PathBuf) -> Result<Self> {
        Self::start(Programs(self.programs.0.clone()), folder, Purpose::Steps)
    }

    /// The configuration, which clients need as well.
    pub(super) fn configuration(&self) -> String {
        self.folder.join("ceph.conf").display().to_string()
    }

    /// The keys, of `client.weft` among others.
    pub(super) fn keyring(&self) -> String {
        self.folder.join("keyring").display().to_string()
    }

    /// One of Ceph's programs.
    pub(super) fn command(&self, name: &str) -> Command {
        command(&self.programs, &self.folder, name)
    }

    /// Has a program find Ceph's libraries.
    pub(super) fn with_libraries(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", self.programs.library_path());
    }

    /// Has a program in Python find Ceph's modules as well.
    pub(super) fn with_python(&self, command: &mut Command) {
        with_environment(&self.programs, &self.folder, command);
    }

    /// The output of `ceph WORDS`.
    pub(super) fn ceph(&self, words: &str) -> Result<String> {
        succeeded(self.command("ceph").args(words.split(' ')))
    }

    /// The output of `rbd WORDS`.
    pub(super) fn rbd(&self, words: &str) -> Result<String> {
        succeeded(self.command("rbd").args(words.split(' ')))
    }

    /// The same as JSON.
    pub(super) fn rbd_json(&self, words: &str) -> Result<Value> {
        let text = self.rbd(&format!("{words} --format json"))?;
        serde_json::from_str(&text).context(text)
    }

    /// The first bytes of an image, as another client of the cluster reads them.
    pub(super) fn contents(&self, image: &str, bytes: usize) -> Result<Vec<u8>> {
        let mut export = self.command("rbd");
        let output = export.args(["export", image, "-"]).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "rbd export {image}: {told}");
        Ok(output.stdout.get(..bytes).context("the image is shorter")?.to_vec())
    }

    /// The sizes of the objects of an image of the pool `rbd`, in their order.
    pub(super) fn objects(&self, image: &str) -> Result<Vec<usize>> {
        let rados =
            |words: &[&str]| succeeded(self.command("rados").args(["-p", "rbd"]).args(words));
        let info = self.rbd_json(&format!("info {image}"))?;
        let prefix = info["block_name_prefix"].as_str().context("no prefix")?;
        let listed = rados(&["ls"])?;
        let mut names: Vec<&str> = listed.lines().filter(|name| name.starts_with(prefix)).collect();
        names.sort_unstable();
        let size = |name: &&str| {
            let shown = rados(&["stat", *name])?;
            let (_, size) = shown.trim().rsplit_once(' ').context("no size")?;
            size.parse::<usize>().with_context(|| shown.clone())
        };
        names.iter().map(size).collect()
    }

    pub(super) fn make_pool(&self, name: &str) -> Result<()> {
        self.ceph(&format!("osd pool create {name} 8"))?;
        self.rbd(&format!("pool init {name}")).map(drop)
    }

    pub(super) fn start_osd(&self) -> Result<()> {
        let osd = daemon(&self.programs, &self.folder, "ceph-osd", "0")?;
        self.osd.replace(Some(osd));
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill_osd(&self) {
        self.osd.replace(None);
    }

    /// Fails if the OSD has ended, with what it has said.
    pub(super) fn check_osd(&self) -> Result<()> {
        ensure_runs(self.osd.borrow_mut().as_mut().context("no OSD runs")?, "the OSD")
    }

    pub(super) fn signal_osd(&self, signal: Signal) -> Result<()> {
        self.osd.borrow().as_ref().context("no OSD runs")?.signal(signal)
    }

    /// Sets how full an OSD may be before it refuses writes: a part of its file.
    pub(super) fn set_full_ratio(&self, ratio: f64) -> Result<()> {
        // In this order, each below the next one.
        for (part, name) in [(0.5, "nearfull"), (0.75, "backfillfull"), (1.0, "full")] {
            self.ceph(&format!("osd set-{name}-ratio {}", ratio * part))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_osd();
        // Its file is large; what it has logged stays.
        let _ = fs::remove_dir_all(self.folder.join("osd"));
    }
}

fn command(programs: &Programs, folder: &Path, name: &str) -> Command {
    let mut command = Command::new(programs.0.join("usr/bin").join(name));
    with_environment(programs, folder, &mut command);
    command
}

fn with_environment(programs: &Programs, folder: &Path, command: &mut Command) {
    command.env("LD_LIBRARY_PATH", programs.library_path());
    command.env("PYTHONPATH", programs.0.join("usr/lib/python3/dist-packages"));
    command.env("CEPH_CONF", folder.join("ceph.conf"));
}

fn daemon(programs: &Programs, folder: &Path, name: &str, id: &str) -> Result<Process> {
    let log = folder.join(format!("{name}.out"));
    Process::start(command(programs, folder, name).args(["-f", "-i", id]), &log)
}

fn ensure_runs(daemon: &mut Process, name: &str) -> Result<()> {
    match daemon.wait(Duration::ZERO) {
        Ok(status) => bail!("{name} has ended ({status}): {}", daemon.output()),
        Err(_) => Ok(()),
    }
}

fn uuid() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// By default a monitor ends if less than 5 % of its disk is free, however large that disk is.
fn configuration(
    programs: &Programs,
    folder: &Path,
    id: &str,
    port: u16,
    purpose: Purpose,
) -> String {
    let (libraries, folder) = (programs.libraries(), folder.display());
    let (osd_bytes, watch_s) = (purpose.osd_bytes(), purpose.watch_s());
    format!(
        "[global]\nfsid = {id}\nmon_host = [v2:127.0.0.1:{port}]\npublic_addr = 127.0.0.1\n\
         cluster_addr = 127.0.0.1\nauth_cluster_required = cephx\n\
         auth_service_required = cephx\nauth_client_required = cephx\nkeyring = {folder}/keyring\n\
         admin_socket =\nrun_dir = {folder}\nlog_file = {folder}/$name.log\n\
         log_to_stderr = false\nerr_to_stderr = true\nplugin_dir = {libraries}/ceph\n\
         erasure_code_dir = {libraries}/ceph/erasure-code\n\
         osd_class_dir = {libraries}/rados-classes\n\
         [mon]\nmon_data = {folder}/mon\nmon_data_avail_crit = 0\n\
         mon_allow_pool_delete = true\n\
         mon_allow_pool_size_one = true\nosd_pool_default_size = 1\n\
         osd_pool_default_min_size = 1\nosd_crush_chooseleaf_type = 0\n\
         osd_pool_default_pg_autoscale_mode = off\npaxos_propose_interval = 0.1\n\
         [client]\nrbd_cache = false\nlog_file = {folder}/client.log\n\
         [osd]\nosd_data = {folder}/osd\nosd_objectstore = bluestore\n\
         bluestore_block_size = {osd_bytes}\nosd_memory_target = 939524096\n\
         osd_client_watch_timeout = {watch_s}\n\
         debug_rocksdb = 0\n"
    )
}
