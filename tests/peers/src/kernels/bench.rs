//! What a step uses: the guest, the target outside, and the shared folder.

use super::suite::Suite;
use crate::guest::{Exit, Guest, Image, Options, output};
use crate::process::{Process, tail};
use anyhow::{Error, Result, bail};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xtask::cargo::target_folder;

/// The NQN of all steps.
pub(crate) const NQN: &str = "nqn.2026-01.io.weft:peer";

/// Longest time of a function in the guest, emulated on a busy machine.
const GUEST_TIME: Duration = Duration::from_secs(300);

/// The port in the guest to which `port` of this machine is forwarded.
const GUEST_PORT: u16 = 4420;

/// The same for `second_port`.
const SECOND_GUEST_PORT: u16 = 4421;

/// The guest and everything outside it.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// The folder mounted as `/share` in the guest: scripts, logs, data.
    pub(crate) folder: PathBuf,
    /// A free port of this machine: the target's, or the one forwarded to the guest's target.
    pub(crate) port: u16,
    /// One that is forwarded to a second port of the guest's target.
    pub(crate) second_port: u16,
    /// The binary under test.
    pub(crate) weft: PathBuf,
    /// The reactor's driver, as in `WEFT_DRIVER`.
    pub(crate) driver: &'static str,
    /// The target outside, if one runs.
    pub(crate) target: Option<Process>,
    guest: Guest,
    alive: bool,
    script: &'static str,
    /// The output of the current step's commands.
    transcript: String,
}

/// What the guests of a run have in common.
pub(crate) struct Setup<'a> {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// The guest's kernel and files.
    pub(crate) image: &'a Image,
    /// The binary under test.
    pub(crate) weft: PathBuf,
    /// The reactor's driver, as in `WEFT_DRIVER`.
    pub(crate) driver: &'static str,
}

impl Bench {
    /// Boots a guest for the functions of a suite's script.
    pub(super) fn boot(setup: &Setup<'_>, suite: &Suite) -> Result<Self> {
        let Setup { root, image, weft, driver } = setup;
        let script = suite.script;
        let folder = target_folder(root).join("peers").join(format!("{}-{driver}", suite.name));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(root.join("tests/peers/scripts"))? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        let free = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let (port, second_port) = (free()?, free()?);
        let forwards = [(port, GUEST_PORT), (second_port, SECOND_GUEST_PORT)];
        let options = Options {
            share: Some(folder.canonicalize()?),
            forwards: if suite.forwards { forwards.to_vec() } else { Vec::new() },
            modules: suite.modules.iter().map(|module| (*module).to_owned()).collect(),
            ssd: if suite.modules.contains(&"nvme") { Some(folder.canonicalize()?) } else { None },
            ..Options::default()
        };
        let guest = Guest::boot(image, &options)?;
        Ok(Self {
            root: root.clone(),
            folder,
            port,
            second_port,
            weft: weft.clone(),
            driver: *driver,
            target: None,
            guest,
            alive: true,
            script,
            transcript: String::new(),
        })
    }

    /// Whether the guest accepts commands.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive
    }

    /// Starts a new step.
    pub(crate) fn begin(&mut self) {
        self.transcript.clear();
    }

    /// Calls a function of the suite's script in the guest and returns its output.
    pub(crate) fn guest(&mut self, function: &str) -> Result<String> {
        let script = format!(
            "export ADDRESS=10.0.2.2 PORT={} NQN={NQN} WEFT_DRIVER={}\n\
             exec bash -euo pipefail -c '. /share/{}; {function}'",
            self.port, self.driver, self.script,
        );
        let (exit, said) = self.raw(&script, GUEST_TIME)?;
        self.transcript += &format!("[guest] {function}\n{said}");
        match exit {
            Exit::Status(0) => Ok(said),
            Exit::Status(status) => bail!("{function}: status {status}"),
            Exit::TimedOut | Exit::Died => {
                self.alive = false;
                bail!("{function}: the guest has ended: {exit:?}")
            }
        }
    }

    fn raw(&mut self, script: &str, time: Duration) -> Result<(Exit, String)> {
        let mut bytes: Vec<u8> = Vec::new();
        let exit = self.guest.run(script, time, &mut |more| bytes.extend(more))?;
        Ok((exit, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Runs `weft` outside to its end and returns its standard output.
    pub(crate) fn weft(&mut self, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = self.weft_command().args(arguments).output()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.transcript += &format!(
            "[outside] weft {}\n{}{}",
            arguments.join(" "),
            text(output.stdout.get(..4096).unwrap_or(&output.stdout)),
            text(&output.stderr),
        );
        if !output.status.success() {
            bail!("weft {}: {}", arguments.join(" "), output.status);
        }
        Ok(output.stdout)
    }

    /// The binary under test, with the driver of this run.
    pub(crate) fn weft_command(&self) -> Command {
        let mut command = Command::new(&self.weft);
        command.env("WEFT_DRIVER", self.driver).env("WEFT_LOG", "debug");
        command
    }

    /// Puts `weft` into the guest's memory, without symbols, which take as long as the rest: from
    /// the shared folder each start would take seconds.
    pub(crate) fn give_weft(&mut self) -> Result<()> {
        let stripped = self.folder.join("weft");
        output(Command::new("strip").arg("-o").arg(stripped).arg(&self.weft))?;
        self.guest("cp /share/weft $WEFT").map(drop)
    }

    /// Writes the target's configuration; `more` is further TOML of the subsystem.
    pub(crate) fn configure(&self, more: &str) -> Result<()> {
        self.configure_port("", more)
    }

    /// The same with further TOML of the port.
    pub(crate) fn configure_port(&self, of_port: &str, more: &str) -> Result<()> {
        let file = self.file().display().to_string();
        let port = self.port;
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:{port}\"\nadvertise = \"10.0.2.2:{port}\"\n\
             {of_port}\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             host-namespaces = {{ capacity = \"32MiB\" }}\nsubsystem-reset = true\n{more}\n\
             [[subsystem.namespace]]\nnsid = 1\n\
             device = \"uncorrectable::memory:64MiB,block=512\"\n\
             uuid = \"77656674-0000-4000-8000-00000000beef\"\n\n\
             [[subsystem.namespace]]\nnsid = 2\nfile = \"{file}\"\nblock-size = 4096\n"
        );
        Ok(fs::write(self.configuration(), text)?)
    }

    /// The path of the target's configuration.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.join("target.toml")
    }

    /// The file that is namespace 2.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("namespace2.img")
    }

    /// Starts the target outside and waits until it serves.
    pub(crate) fn start_target(&mut self) -> Result<()> {
        self.start_target_with(&[])
    }

    /// The same with further arguments.
    pub(crate) fn start_target_with(&mut self, arguments: &[&str]) -> Result<()> {
        let mut command = self.weft_command();
        command.arg("target").arg("--config").arg(self.configuration()).args(arguments);
        let mut target = Process::start(&mut command, &self.target_log())?;
        target.wait_for("nvme connect", Duration::from_secs(20))?;
        self.target = Some(target);
        Ok(())
    }

    /// Kills the target.
    pub(crate) fn kill_target(&mut self) {
        self.target = None;
    }

    /// Stops the target cleanly.
    pub(crate) fn stop_target(&mut self) -> Result<()> {
        self.running()?;
        self.target.take().map_or(Ok(()), Process::stop)
    }

    /// Makes the target reload its configuration.
    pub(crate) fn reload_target(&mut self) -> Result<()> {
        self.running()?.signal(Signal::HUP)
    }

    /// The running target.
    pub(crate) fn running(&mut self) -> Result<&mut Process> {
        match &mut self.target {
            Some(target) => Ok(target),
            None => bail!("no target runs"),
        }
    }

    fn target_log(&self) -> PathBuf {
        self.folder.join("target.log")
    }

    /// Adds logs to an error.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        let (kernel, from) = match self.alive {
            true => {
                let dmesg = self.raw("dmesg | tail -n 40", Duration::from_secs(20));
                (dmesg.map(|(_, text)| text).unwrap_or_default(), "kernel")
            }
            false => (self.guest.console(), "console"),
        };
        let _ = fs::write(self.folder.join("console.log"), self.guest.console());
        let target = tail(&self.target_log(), 40);
        let transcript: Vec<&str> = self.transcript.lines().collect();
        let transcript = transcript[transcript.len().saturating_sub(60)..].join("\n");
        error.context(format!(
            "--- output\n{transcript}\n--- the guest's {from}\n{kernel}\n\
             --- the target's log\n{target}\n--- complete logs are in {}\n",
            self.folder.display()
        ))
    }
}
