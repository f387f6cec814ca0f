//! A study in a job of Slurm. Three nodes on this machine, each with a slurmd of its own, are the
//! cluster; munge and Slurm are started with a configuration of this test alone.

use super::bench;
use crate::process::{Process, within};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::packages;
use xtask::python::succeeded;

/// How long a daemon may take to start, and a job to end.
const PATIENCE: Duration = Duration::from_secs(60);

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Programs of Slurm, and munge, which it needs.
pub(super) fn install() -> Result<()> {
    packages::need(
        "studies run in a job of Slurm",
        &[
            ("/usr/sbin/munged", "munge"),
            ("/usr/sbin/slurmctld", "slurmctld"),
            ("/usr/sbin/slurmd", "slurmd"),
            ("srun", "slurm-client"),
        ],
    )
}

/// A study whose places come from its job, and one for which the program is copied to the nodes.
/// The script of the first and its results are kept in `kept`.
pub(super) fn run(root: &Path, weft: &Path, folder: &Path, kept: &Path) -> Result<()> {
    let cluster = Cluster::start(folder)?;
    let weft = weft.display();
    let study = format!(
        "{weft} study run {0}/plan.toml --quick --runtime 1s --ramp-time 300ms --repeats 1",
        folder.display()
    );
    fs::copy(root.join("tests/machines/slurm.toml"), folder.join("plan.toml"))?;
    let said = cluster.job(&format!("{study} --out {}/out", folder.display()))?;
    ensure!(said.contains("the target runs on n1, the load on n2, n3"), "{said}");
    let record = bench::record(&folder.join("out"))?;
    let parts = record["parts"].as_array().context("no parts")?;
    let places: Vec<&str> = parts.iter().filter_map(|part| part["place"].as_str()).collect();
    ensure!(places == ["slurm:n2", "slurm:n3"], "{places:?}");
    ensure!(record["values"]["fairness"].as_f64() > Some(0.0), "{}", record["values"]);
    let page = fs::read_to_string(folder.join("out/report.html"))?;
    ensure!(page.contains("The load of each machine"), "the page has no table of machines");
    let _ = fs::remove_dir_all(kept);
    fs::create_dir_all(kept)?;
    for name in ["job.sh", "slurm.conf"] {
        fs::copy(folder.join(name), kept.join(name))?;
    }
    for entry in fs::read_dir(folder.join("out"))?.flatten() {
        fs::copy(entry.path(), kept.join(entry.file_name()))?;
    }

    let home = folder.join("home");
    fs::create_dir(&home)?;
    let elsewhere = "--target-on slurm:n2 --load-on slurm:n3 --deploy --no-report";
    let out = folder.join("copied");
    let (home, out) = (home.display(), out.display());
    cluster.job(&format!("export HOME={home}\n{study} {elsewhere} --out {out}"))?;
    bench::record(&folder.join("copied"))?;
    let copied: Vec<_> =
        fs::read_dir(folder.join("home/.cache/weft"))?.collect::<Result<_, _>>()?;
    ensure!(copied.len() == 1 && copied[0].path().join("weft").is_file(), "{copied:?}");

    let places = "--target-on slurm:n1 --load-on slurm:n9 --no-report";
    let Err(refused) = cluster.job(&format!("{study} {places} --out {}/never", folder.display()))
    else {
        bail!("a node of another job was taken");
    };
    let refused = format!("{refused:#}");
    ensure!(refused.contains("slurm:n9: it is not a node of Slurm's job"), "{refused}");
    cluster.nothing_is_left()
}

/// munge, the controller and the nodes; they end with this value.
struct Cluster<'a> {
    folder: &'a Path,
    daemons: Vec<Process>,
}

impl<'a> Cluster<'a> {
    fn start(folder: &'a Path) -> Result<Self> {
        let mut cluster = Self { folder, daemons: Vec::new() };
        // Slurm wants it to be readable, munge wants a key that is not.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        let path = |name: &str| folder.join(name).display().to_string();
        let key = fs::File::open("/dev/urandom").context("no random numbers")?;
        std::io::copy(&mut std::io::Read::take(key, 1024), &mut fs::File::create(path("key"))?)?;
        fs::set_permissions(path("key"), fs::Permissions::from_mode(0o400))?;
        for node in NODES {
            fs::create_dir_all(folder.join("spool").join(node))?;
        }
        fs::create_dir(folder.join("state"))?;
        fs::write(path("slurm.conf"), configuration(folder)?)?;
        let munged = [
            "--foreground".to_owned(),
            format!("--key-file={}", path("key")),
            format!("--socket={}", path("munge")),
            format!("--pid-file={}", path("munged.pid")),
            format!("--log-file={}", path("munged.log")),
            format!("--seed-file={}", path("seed")),
        ];
        cluster.daemon("/usr/sbin/munged", &munged)?;
        within(PATIENCE, "munge answers", || {
            cluster.command("munge", &["-n", "-S", &path("munge")])
        })?;
        cluster.daemon("/usr/sbin/slurmctld", &["-D".to_owned()])?;
        for node in NODES {
            cluster.daemon("/usr/sbin/slurmd", &["-D", "-N", node].map(str::to_owned))?;
        }
        within(PATIENCE, "three nodes are idle", || {
            let idle = cluster.command("sinfo", &["-h", "-N", "-t", "idle", "-o", "%N"])?;
            ensure!(idle.lines().count() == NODES.len(), "{idle}");
            Ok(())
        })?;
        Ok(cluster)
    }

    fn of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.join("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn command(&self, program: &str, words: &[&str]) -> Result<String> {
        succeeded(self.of(program).args(words))
    }

    fn daemon(&mut self, program: &str, words: &[String]) -> Result<()> {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        let log = self.folder.join(format!("{name}-{}.log", self.daemons.len()));
        self.daemons.push(Process::start(self.of(program).args(words), &log)?);
        Ok(())
    }

    /// Runs a script on three nodes; returns what it has said.
    fn job(&self, script: &str) -> Result<String> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let (said, ended) = (path("job.out"), path("job.ended"));
        let _ = fs::remove_file(&ended);
        let text = format!("#!/bin/bash\n#SBATCH -N 3\n{script}\necho $? >{ended}.new\n");
        fs::write(path("job.sh"), text + &format!("mv {ended}.new {ended}\n"))?;
        self.command("sbatch", &["-o", &said, &path("job.sh")])?;
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = within(PATIENCE, "the job ends", || {
            let status = read(&ended);
            ensure!(!status.is_empty(), "{}", read(&said));
            Ok(status)
        })?;
        ensure!(status.trim() == "0", "the job has failed ({}): {}", status.trim(), read(&said));
        Ok(read(&said))
    }

    /// No agent and no target runs on.
    fn nothing_is_left(&self) -> Result<()> {
        let folder = self.folder.display().to_string();
        within(PATIENCE, "all that the jobs have started ends", || {
            let mut left = Vec::new();
            for process in fs::read_dir("/proc")?.flatten() {
                let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
                let words = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
                let environment = String::from_utf8_lossy(&read("environ")).into_owned();
                let is_of_a_job = environment.contains("SLURM_JOB_ID=");
                if words.contains("weft ") && is_of_a_job && environment.contains(&folder) {
                    left.push(words);
                }
            }
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        // The nodes, then the controller, then munge.
        for daemon in self.daemons.drain(..).rev() {
            // How it ends is no matter.
            let _ = daemon.stop();
        }
    }
}

fn configuration(folder: &Path) -> Result<String> {
    // Free ports; others may take them before Slurm does, which then says so.
    let listeners: Vec<TcpListener> =
        (0..4).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let ports: Vec<u16> = listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.port()))
        .collect::<Result<_, _>>()?;
    let folder = folder.display();
    let mut text = format!(
        "ClusterName=weft\nSlurmctldHost=localhost\nSlurmctldPort={}\nSlurmUser=root\n\
         SlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={folder}/munge\n\
         CredType=cred/munge\nStateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool/%n\nSlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/%n.pid\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n\
         MpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\n",
        ports[0]
    );
    for (node, port) in NODES.iter().zip(&ports[1..]) {
        text += &format!(
            "NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 \
             State=UNKNOWN\n"
        );
    }
    Ok(text + "PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=YES\n")
}
