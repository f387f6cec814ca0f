//! Runs the binary.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The drivers with which every test of serving runs.
pub(crate) const DRIVERS: [&str; 2] = ["uring", "epoll"];

/// The NQN of the tested subsystem.
pub(crate) const NQN: &str = "nqn.2024-01.io.example:cli-test";

/// The command for the binary.
pub(crate) fn command(driver: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("WEFT_DRIVER", driver).env_remove("WEFT_LOG").stdin(Stdio::null());
    command
}

/// The result of a command.
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Its output; the command must succeed.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its output as JSON; the command must succeed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Its error message of one sentence; the command must fail.
    #[track_caller]
    pub(crate) fn fault(&self) -> String {
        assert!(!matches!(self.code, None | Some(0)), "{:?}: {}", self.code, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{}", self.stderr);
        self.stderr.trim_end().to_owned()
    }
}

/// Runs a command to its end.
pub(crate) fn weft<S: AsRef<OsStr>>(
    driver: &str,
    words: impl IntoIterator<Item = S>,
) -> CommandOutput {
    CommandOutput::from(command(driver).args(words).output().expect("the binary"))
}

/// A running target, stopped when dropped.
pub(crate) struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    log: Receiver<String>,
    pub(crate) driver: &'static str,
    pub(crate) said: Value,
}

impl Target {
    /// Starts a target with these arguments and waits until it serves. It listens on a free port
    /// of the loopback interface unless the arguments give an address.
    #[track_caller]
    pub(crate) fn start(driver: &'static str, words: &[&str]) -> Self {
        let mut command = command(driver);
        command.args(["target", "--output-format", "json", "--stop-with-stdin"]);
        if !words.iter().any(|word| ["--listen", "--config"].contains(word)) {
            command.args(["--listen", "tcp://127.0.0.1:0"]);
        }
        if !words.iter().any(|word| ["--nqn", "--config"].contains(word)) {
            command.args(["--nqn", NQN]);
        }
        command.args(words);
        Self::spawn(driver, command)
    }

    /// Starts a target with a complete command, and waits until it serves.
    #[track_caller]
    pub(crate) fn spawn(driver: &'static str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary");
        let (line, log) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        thread::spawn(move || {
            for text in stderr.lines().map_while(Result::ok) {
                let _ = line.send(text);
            }
        });
        let stdin = child.stdin.take();
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut said).expect("a line");
        let Ok(said) = serde_json::from_str(&said) else {
            let _ = child.wait();
            panic!("it did not start: {:?}", log.iter().collect::<Vec<String>>());
        };
        Self { child, stdin, log, driver, said }
    }

    /// A port on which it listens.
    pub(crate) fn port(&self, index: usize) -> u16 {
        let address = self.said["ports"][index]["address"].as_str().expect("an address");
        address.rsplit_once(':').expect("a port").1.parse().expect("a port")
    }

    /// The URL of a namespace of the first subsystem.
    pub(crate) fn url(&self, nsid: u32) -> String {
        let nqn = self.said["subsystems"][0]["nqn"].as_str().expect("a name");
        format!("nvme-tcp://127.0.0.1:{}/{nqn}?nsid={nsid}", self.port(0))
    }

    /// Runs a subcommand on one of its namespaces: the arguments, then the address.
    pub(crate) fn weft(&self, verb: &str, nsid: u32, words: &[&str]) -> CommandOutput {
        let url = self.url(nsid);
        let address = ["--", url.as_str()];
        let address = if verb == "log" { &address[1..] } else { &address[..] };
        let (first, rest) = words.split_at(usize::from(verb == "log").min(words.len()));
        let words: Vec<&str> = match verb {
            "log" => [&["log"], first, address, rest].concat(),
            verb => [&[verb], rest, address].concat(),
        };
        weft(self.driver, words)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the process is there");
    }

    /// The rest of its log; it must have ended, or been killed.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        self.log.iter().collect()
    }

    /// Waits for a log line that contains this text.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, part: &str) -> String {
        self.log_until(part).pop().expect("the last is that line")
    }

    /// Its log up to a line that contains this text.
    #[track_caller]
    pub(crate) fn log_until(&self, part: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match self.log.recv_timeout(Duration::from_secs(20)) {
                Ok(line) => seen.push(line),
                Err(_) => panic!("{part:?} is not in {seen:#?}"),
            }
            if seen.last().is_some_and(|line| line.contains(part)) {
                return seen;
            }
        }
    }

    /// Waits for its end; returns the exit code.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Option<i32> {
        for _ in 0..2_000 {
            if let Some(status) = self.child.try_wait().expect("the process") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not stop");
    }

    /// Stops it by closing its standard input.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        drop(self.stdin.take());
        assert_eq!(self.wait(), Some(0));
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A folder of one test's own, which is removed after it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let prefix = format!("weft-cli-{name}-");
        Self(tempfile::Builder::new().prefix(&prefix).tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("a file");
        path
    }
}

/// A path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// A pattern of bytes that differs between positions.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + at / 251) % 256).expect("a byte")).collect()
}

/// Runs a command with this standard input.
pub(crate) fn weft_with_stdin(driver: &str, words: &[&str], stdin: &[u8]) -> CommandOutput {
    let mut child = command(driver)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    // A command that does not need all of it closes its end.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    let mut stdout = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("bytes");
    let mut ran = CommandOutput::from(child.wait_with_output().expect("the binary"));
    ran.stdout = stdout;
    ran
}
