//! The binary under test, and processes of it.

use super::machine;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The usual limit of locked memory, which root is not held to.
const LOCKED_MEMORY_BYTES: u64 = 8 << 20;

/// `nobody` and `nogroup` of Debian.
const NOBODY: u32 = 65_534;

/// How long a process may take for something that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The user that runs the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The calling user.
    Caller,
    /// As nobody, with the usual limit of locked memory.
    Nobody,
}

impl User {
    /// Root runs the binary as nobody, unless told otherwise or where that cannot be done.
    pub(crate) fn choose(as_root: bool) -> Self {
        if !rustix::process::geteuid().is_root() || as_root {
            return Self::Caller;
        }
        let there =
            |tool: &str| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
        if there("setpriv") && there("prlimit") {
            return Self::Nobody;
        }
        println!("setpriv or prlimit is missing (util-linux): what is measured runs as root");
        Self::Caller
    }

    pub(crate) fn describe(self) -> String {
        match self {
            Self::Nobody => "nobody, 8 MiB of locked memory".to_owned(),
            Self::Caller if rustix::process::geteuid().is_root() => "root".to_owned(),
            Self::Caller => "the calling user".to_owned(),
        }
    }
}

/// The binary under test.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    user: User,
    /// Where the copy is that everybody may run.
    folder: Option<PathBuf>,
    /// Whether its loads take `--time_based` and `--norandommap`. Those of older builds always run
    /// for a time and without a random map.
    has_random_map: bool,
}

impl Program {
    /// Puts the binary where the user may run it, into a folder with `name` in its own.
    pub(crate) fn install(binary: &Path, user: User, name: &str) -> Result<Self> {
        let help = Command::new(binary).args(["bench", "--help"]).output();
        let help = help.with_context(|| format!("cannot run {}", binary.display()))?;
        let has_random_map = String::from_utf8_lossy(&help.stdout).contains("--norandommap");
        if user == User::Caller {
            return Ok(Self { path: binary.to_owned(), user, folder: None, has_random_map });
        }
        let folder = std::env::temp_dir().join(format!("weft-bench-{}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("weft");
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&folder, everybody.clone())?;
        fs::copy(binary, &path)?;
        fs::set_permissions(&path, everybody)?;
        Ok(Self { path, user, folder: Some(folder), has_random_map })
    }

    pub(crate) fn has_random_map(&self) -> bool {
        self.has_random_map
    }

    pub(crate) fn user(&self) -> User {
        self.user
    }

    /// A command line of the binary, confined to a processor where one is named.
    pub(crate) fn command(&self, arguments: &[String], confined_to: Option<usize>) -> Command {
        let mut words: Vec<String> = Vec::new();
        let mut push = |all: &[&str]| words.extend(all.iter().map(|word| (*word).to_owned()));
        if let Some(cpu) = confined_to {
            push(&["taskset", "--cpu-list", &cpu.to_string()]);
        }
        if self.user == User::Nobody {
            let (limit, nobody) = (LOCKED_MEMORY_BYTES, NOBODY);
            push(&["prlimit", &format!("--memlock={limit}:{limit}"), "setpriv"]);
            push(&[&format!("--reuid={nobody}"), &format!("--regid={nobody}"), "--clear-groups"]);
            push(&["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
        }
        push(&[&self.path.to_string_lossy()]);
        words.extend(arguments.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("WEFT_LOG", "error");
        command
    }

    /// Runs the binary to its end; what it says is JSON.
    pub(crate) fn json(&self, arguments: &[String]) -> Result<Value> {
        let output = self.command(arguments, None).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.lines().last().unwrap_or_default();
            bail!("`weft {}`: {}: {last}", arguments.join(" "), output.status);
        }
        serde_json::from_slice(&output.stdout).context("the answer is not JSON")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // A copy that stays behind in the folder of temporary files does no harm.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Sends a process a signal.
pub(crate) fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).context("no process")?;
    kill_process(pid, signal).with_context(|| format!("process {process}"))
}

/// A process of the binary that runs beside this one. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    child: Child,
}

impl RunningProcess {
    /// Starts a process and discards its output.
    pub(crate) fn start(program: &Program, arguments: &[String]) -> Result<Self> {
        let mut command = program.command(arguments, None);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Self { child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it stands: it keeps its connections and does nothing more.
    pub(crate) fn freeze(&self) -> Result<()> {
        signal(self.id(), Signal::STOP)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) -> Result<()> {
        signal(self.id(), Signal::CONT)
    }

    /// Ends it at once.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A target that listens. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Target {
    running: RunningProcess,
    /// How a host reaches it.
    pub(crate) address: String,
    /// The same by all its ports.
    pub(crate) all_paths: String,
    /// Its control socket, if it has one.
    pub(crate) control: Option<String>,
}

impl Target {
    pub(crate) fn start(
        program: &Program,
        arguments: &[String],
        confined_to: Option<usize>,
    ) -> Result<Self> {
        let mut command = program.command(arguments, confined_to);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running =
            RunningProcess { child: command.spawn().context("cannot start a target")? };
        let stdout = running.child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(stdout.take(1 << 20)).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("the target did not start")?;
        let ports = said["ports"].as_array().into_iter().flatten();
        let ports: Vec<&str> = ports.filter_map(|port| port["address"].as_str()).collect();
        let first = ports.first().context("no address")?;
        let nqn = said["subsystems"][0]["nqn"].as_str().context("no subsystem")?;
        let address = |places: &str| format!("nvme-tcp://{places}/{nqn}?nsid=1");
        let (address, all_paths) = (address(first), address(&ports.join(",")));
        let control = said["control"].as_str().map(str::to_owned);
        Ok(Self { running, address, all_paths, control })
    }

    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Ends it at once.
    pub(crate) fn kill(self) -> Result<()> {
        signal(self.id(), Signal::KILL)
    }

    /// Lets it have the processor, or not.
    pub(crate) fn let_run(&self, may_run: bool) -> Result<()> {
        if may_run { self.running.thaw() } else { self.running.freeze() }
    }

    /// Waits until it holds so many connections.
    pub(crate) fn wait_for_connections(&self, connections: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while machine::sockets(self.id())? < connections {
            if Instant::now() > deadline {
                bail!("{connections} connections did not come");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until it holds no more than so many.
    pub(crate) fn wait_for_quiet(&self, connections: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while machine::sockets(self.id())? > connections {
            if Instant::now() > deadline {
                bail!("connections did not go");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Its standard input ends: it stops in good order, if it can.
        let _ = self.let_run(true);
        drop(self.running.child.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while let Ok(None) = self.running.child.try_wait() {
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A folder that everybody may read. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind in the folder of temporary files does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Gives a file to the user that runs the binary, and to nobody else.
pub(crate) fn give(file: &Path, user: User) -> Result<()> {
    if user == User::Nobody {
        std::os::unix::fs::chown(file, Some(NOBODY), Some(NOBODY))?;
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    Ok(())
}

pub(crate) fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}
