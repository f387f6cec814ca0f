//! A target that serves images of the cluster, and weft's host.

use super::cluster::Cluster;
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use xtask::python::succeeded;

pub(super) const NQN: &str = crate::kernels::bench::NQN;

/// Images whose size is a multiple of 4096 have blocks of 4096 bytes.
pub(super) const BLOCKS_OF_MIB: usize = 256;

/// What the steps have in common.
#[derive(Debug)]
pub(super) struct Scene {
    /// The checkout.
    pub(super) root: PathBuf,
    pub(super) cluster: Cluster,
    pub(super) weft: PathBuf,
    /// Configurations, data, logs.
    pub(super) folder: PathBuf,
}

impl Scene {
    /// The binary, which finds librbd and the cluster.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.weft);
        self.cluster.with_libraries(&mut command);
        command.env("CEPH_CONF", self.cluster.configuration());
        command.env_remove("WEFT_LOG").stdin(Stdio::null());
        command
    }

    /// The TOML of an image as the next namespace.
    pub(super) fn namespace(&self, image: &str) -> String {
        let conf = self.cluster.configuration();
        format!("[[subsystem.namespace]]\nrbd = \"{image},user=weft,conf={conf}\"\n")
    }

    /// Serves images, as namespaces 1 and following, and behind them 16 MiB of memory.
    pub(super) fn serve(&self, name: &str, images: &[&str]) -> Result<RunningTarget<'_>> {
        let mut namespaces: String = images.iter().map(|image| self.namespace(image)).collect();
        namespaces += "[[subsystem.namespace]]\nmemory = \"16MiB\"\n";
        self.serve_toml(name, "", &namespaces)
    }

    /// Serves what the TOML of a port and of a subsystem say.
    pub(super) fn serve_toml(
        &self,
        name: &str,
        of_port: &str,
        of_subsystem: &str,
    ) -> Result<RunningTarget<'_>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = self.folder.join(format!("{name}.toml"));
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:{port}\"\nadvertise = \"10.0.2.2:{port}\"\n\
             {of_port}[[subsystem]]\nnqn = \"{NQN}\"\n{of_subsystem}"
        );
        fs::write(&config, text)?;
        self.start(name, port, &["--config", &config.display().to_string()])
    }

    fn start(&self, name: &str, port: u16, words: &[&str]) -> Result<RunningTarget<'_>> {
        // The path of a socket is short.
        let control = format!("weft-ceph-{}-{name}", std::process::id());
        let control = std::env::temp_dir().join(control);
        let mut target = self.command();
        target.arg("target").args(words);
        target.arg("--control").arg(format!("unix:{}", control.display()));
        let mut target = Process::start(&mut target, &self.folder.join(format!("{name}.log")))?;
        target.wait_for("control on", Duration::from_secs(30))?;
        Ok(RunningTarget { scene: self, target, port, control })
    }

    /// Starts a load.
    pub(super) fn load(&self, address: &str, words: &str) -> Result<Load> {
        let mut load = self.command();
        load.args(["bench", "--quiet", address]).args(words.split(' '));
        load.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Load(Some(load.spawn()?)))
    }

    /// A file of bytes that no other seed has, for `weft write`.
    pub(super) fn data(&self, seed: u64, bytes: usize) -> Result<(PathBuf, Vec<u8>)> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let word = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let data: Vec<u8> = (0..bytes / 8).flat_map(word).collect();
        let path = self.folder.join("data");
        fs::write(&path, &data)?;
        Ok((path, data))
    }
}

/// A target that runs.
#[derive(Debug)]
pub(super) struct RunningTarget<'a> {
    pub(super) scene: &'a Scene,
    target: Process,
    pub(super) port: u16,
    control: PathBuf,
}

impl RunningTarget<'_> {
    pub(super) fn url(&self, nsid: u32) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid={nsid}", self.port)
    }

    /// What the target has logged.
    pub(super) fn log(&self) -> String {
        self.target.output()
    }

    fn run(&self, command: &str, nsid: u32, words: &[&str]) -> Result<Output> {
        Ok(self.scene.command().args([command, &self.url(nsid)]).args(words).output()?)
    }

    /// The output of a command of weft on a namespace.
    pub(super) fn weft(&self, command: &str, nsid: u32, words: &[&str]) -> Result<Vec<u8>> {
        let output = self.run(command, nsid, words)?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "weft {command} of namespace {nsid}: {told}");
        Ok(output.stdout)
    }

    /// The error of a command that must fail.
    pub(super) fn refused(&self, command: &str, nsid: u32, words: &[&str]) -> Result<String> {
        let output = self.run(command, nsid, words)?;
        ensure!(!output.status.success(), "weft {command} of namespace {nsid} succeeded");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Writes a file, from this MiB of a namespace on.
    pub(super) fn write(&self, nsid: u32, at: usize, data: &Path, more: &[&str]) -> Result<()> {
        let (at, data) = ((at * BLOCKS_OF_MIB).to_string(), data.display().to_string());
        let words = [&["--start-block", &at, "--data", &data], more].concat();
        self.weft("write", nsid, &words).map(drop)
    }

    /// Fails unless a namespace has this data from this MiB on.
    pub(super) fn has(&self, nsid: u32, at: usize, data: &[u8]) -> Result<()> {
        let (start, size) = ((at * BLOCKS_OF_MIB).to_string(), data.len().to_string());
        let found = self.weft("read", nsid, &["--start-block", &start, "--data-size", &size])?;
        ensure!(found == data, "namespace {nsid} has other data from {at} MiB on");
        Ok(())
    }

    /// Starts a load.
    pub(super) fn load(&self, nsid: u32, words: &str) -> Result<Load> {
        self.scene.load(&self.url(nsid), words)
    }

    /// The result of a method of the control socket.
    pub(super) fn call(&self, method: &str, params: &Value) -> Result<Value> {
        let control = format!("unix:{}", self.control.display());
        let mut call = self.scene.command();
        call.args(["ctl", "--control", &control, "call", method, &params.to_string()]);
        Ok(serde_json::from_str(&succeeded(&mut call)?)?)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        self.target.signal(signal)
    }

    /// Waits until it ends by itself, and not in good order; returns what it has logged.
    pub(super) fn ends_badly(mut self, time: Duration) -> Result<String> {
        let status = self.target.wait(time)?;
        let _ = fs::remove_file(&self.control);
        ensure!(!status.success(), "the target has ended in good order");
        Ok(self.log())
    }

    /// SIGKILL.
    pub(super) fn kill(self) {
        drop(self.target);
        // Which it could not.
        let _ = fs::remove_file(self.control);
    }

    /// Ends it in good order.
    pub(super) fn stop(self) -> Result<()> {
        let log = self.log();
        self.target.stop().context(log)
    }
}

/// A load that runs until it is ended.
#[derive(Debug)]
pub(super) struct Load(Option<Child>);

/// A load that checks what it reads, of so few blocks that each is written again and again.
pub(super) const VERIFIED: &str =
    "--rw randrw --bs 4k --size 1m --iodepth 8 --runtime 300 --time_based --verify crc32c";

/// Fails unless a load has read back what it had written.
pub(super) fn all_verified(said: &str) -> Result<()> {
    let verified = said.lines().find(|line| line.contains("blocks compared"));
    let verified = verified.with_context(|| format!("nothing was verified: {said}"))?;
    ensure!(verified.ends_with(", 0 wrong") && !verified.contains(": 0 blocks"), "{verified}");
    Ok(())
}

impl Load {
    /// Ends it; it has met no error, and has read back all that it had written.
    pub(super) fn ends_well(mut self) -> Result<()> {
        let child = self.0.take().context("it has ended")?;
        kill_process(Pid::from_child(&child), Signal::INT)?;
        let output = child.wait_with_output()?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(130), "the load: {}: {told}", output.status);
        all_verified(&String::from_utf8_lossy(&output.stdout)).context(told)
    }

    /// Ends it; returns what it has measured.
    pub(super) fn measured(mut self) -> Result<Value> {
        let child = self.0.take().context("it has ended")?;
        kill_process(Pid::from_child(&child), Signal::INT)?;
        let mut said: Value = serde_json::from_slice(&child.wait_with_output()?.stdout)?;
        Ok(said["jobs"][0].take())
    }

    /// The error with which it ends by itself.
    pub(super) fn fails(mut self) -> Result<String> {
        let child = self.0.take().context("it has ended")?;
        let output = child.wait_with_output()?;
        if output.status.success() {
            bail!("the load did not fail");
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // One that has ended already is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
