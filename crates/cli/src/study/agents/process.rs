//! The process through which an agent is spoken to, and what it says when it ends.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use weft_lab::study::agent::{Carrier, Streams};

use super::place::AgentPlace;

/// How long it may take to end when its input has ended.
const END: Duration = Duration::from_secs(2);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How many of its messages are kept, and how much of each.
const LINES: usize = 20;
const LINE: usize = 1 << 10;

/// A process that ends with this value.
#[derive(Debug)]
struct Process {
    child: Child,
    place: AgentPlace,
    stderr: ChildStderr,
    messages: Messages,
}

/// Starts a command that carries an agent.
pub(super) fn start(mut command: Command, place: &AgentPlace) -> Result<Streams, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Ctrl-C is handled by this process, which ends its agents.
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run {name} ({error}): is it installed?"))?;
    let (to, from, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(to), Some(from), Some(stderr)) = (to, from, stderr) else {
        return Err(format!("{name} has no pipes"));
    };
    let (place, messages) = (place.clone(), Messages::default());
    let process = Process { child, place, stderr, messages };
    // It is read beside the answers, which do not wait for it.
    ioctl_fionbio(&process.stderr, true).map_err(|error| format!("{name}: {error}"))?;
    let carrier = Box::new(process);
    Ok(Streams { from: OwnedFd::from(from), to: Box::new(to), carrier })
}

/// The last lines that a process has said.
#[derive(Debug, Default)]
struct Messages {
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Messages {
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE.saturating_sub(self.partial.len());
            self.partial.extend(part.iter().take(room));
            if part.ends_with(b"\n") {
                self.end();
            }
        }
    }

    /// Ends a line.
    fn end(&mut self) {
        let line = std::mem::take(&mut self.partial);
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if !line.is_empty() {
            self.lines.truncate(LINES - 1);
            self.lines.push_front(line);
        }
    }
}

impl Process {
    /// Waits for its end, and ends it if that takes long.
    fn end(&mut self) -> Option<ExitStatus> {
        let mut waited = Duration::ZERO;
        while waited < END {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => thread::sleep(LOOK),
                Err(_) => return None,
            }
            self.read();
            waited += LOOK;
        }
        // It may have ended by now.
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }

    /// Reads what it has said; whether there may be more.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stderr.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.messages.take(bytes.get(..count).unwrap_or_default()),
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

impl Carrier for Process {
    fn hear(&mut self) {
        self.read();
    }

    fn why(&mut self, has_answered: bool) -> String {
        let status = self.end();
        let mut waited = Duration::ZERO;
        // What it started may have the pipe as well, and go on.
        while self.read() && waited < END {
            thread::sleep(LOOK);
            waited += LOOK;
        }
        self.messages.end();
        let mut messages: Vec<String> = self.messages.lines.iter().cloned().collect();
        messages.reverse();
        explain(&self.place, status, has_answered, &messages)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Half a sentence that says why an agent does not answer, as it once did or not, and what helps.
pub(super) fn explain(
    place: &AgentPlace,
    status: Option<ExitStatus>,
    has_answered: bool,
    messages: &[String],
) -> String {
    let find = |parts: &[&str]| {
        let has = |line: &&String| parts.iter().any(|part| line.contains(part));
        messages.iter().rev().find(has)
    };
    if let AgentPlace::Ssh(destination) = place {
        if let Some(line) = find(&["Permission denied"]) {
            return format!(
                "ssh is refused ({line}): `ssh {destination}` has to work without a password \
                 (ssh-copy-id {destination})"
            );
        }
        if let Some(line) = find(&["Could not resolve", "Name or service not known"]) {
            return format!(
                "there is no such host ({line}): check its name, or describe it in ~/.ssh/config"
            );
        }
        if let Some(line) = find(&["Host key verification failed"]) {
            return format!(
                "its key is not known here ({line}): connect once with `ssh {destination}`, and \
                 compare the key"
            );
        }
        let unreachable = ["Connection refused", "timed out", "No route", "unreachable"];
        if let Some(line) = find(&unreachable) {
            return format!(
                "it is not reached ({line}): start sshd there, and open its firewall for it"
            );
        }
    }
    let install = "install there the package of which this program is";
    let code = status.and_then(|status| status.code());
    if let Some(line) = find(&["unrecognized subcommand"]) {
        return format!("its weft knows no agents ({line}): {install}");
    }
    if let Some(line) = find(&["GLIBC_"]) {
        return format!(
            "its C library is older than this program needs ({line}): use the static build of \
             weft on all machines"
        );
    }
    if let Some(line) = find(&["Exec format error"]) {
        return format!("its processor is of another kind ({line}): {install}");
    }
    let missing = find(&["not found", "No such file"]).filter(|_| code != Some(0));
    if missing.is_some() || code == Some(127) {
        let line = missing.or(messages.last()).map(|line| format!(" ({line})"));
        return format!(
            "it has no weft{}: {install}, or name its path with --agent-program",
            line.unwrap_or_default()
        );
    }
    let how = status.map_or_else(|| "it does not answer".to_owned(), |status| status.to_string());
    let last = messages.last().map(|line| format!(", {line:?}")).unwrap_or_default();
    match has_answered {
        true => format!(
            "its agent has ended ({how}{last}): what it did not measure, weft study run --resume \
             measures"
        ),
        false => format!(
            "no agent answers there ({how}{last}): its shell has to run the command that it is \
             given, and nothing in place of it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn each_reason_has_a_sentence_with_what_helps() {
        let ssh = AgentPlace::Ssh("u@h".to_owned());
        let exec = AgentPlace::Exec(vec!["sh".to_owned()]);
        let said = |place: &AgentPlace, code: i32, line: &str| {
            explain(place, Some(ExitStatus::from_raw(code << 8)), false, &[line.to_owned()])
        };
        for (line, expected) in [
            ("u@h: Permission denied (publickey).", "ssh-copy-id u@h"),
            ("ssh: Could not resolve hostname h: Name or service not known", "~/.ssh/config"),
            ("Host key verification failed.", "connect once"),
            ("ssh: connect to host h port 22: Connection refused", "start sshd"),
        ] {
            let why = said(&ssh, 255, line);
            assert!(why.contains(expected) && why.contains(line), "{why}");
        }
        for (code, line) in [(127, "bash: line 1: weft: command not found"), (127, "")] {
            let why = said(&ssh, code, line);
            assert!(why.contains("--agent-program"), "{why}");
        }
        let old = "weft: /lib/libc.so.6: version `GLIBC_2.38' not found (required by weft)";
        for (line, expected) in
            [(old, "static build"), ("sh: 1: weft: Exec format error", "another kind")]
        {
            let why = said(&ssh, 1, line);
            assert!(why.contains(expected), "{why}");
        }
        let why = said(&exec, 2, "error: unrecognized subcommand 'agent'");
        assert!(why.contains("knows no agents"), "{why}");
        let why = said(&exec, 1, "Not for people.");
        assert!(why.contains("no agent answers there") && why.contains("Not for"), "{why}");
        let killed = explain(&exec, Some(ExitStatus::from_raw(9)), true, &[]);
        assert!(killed.contains("signal: 9") && killed.contains("--resume"), "{killed}");
    }

    #[test]
    fn a_process_ends_with_its_input_and_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo ended >&2; exit 3"]);
        let place = AgentPlace::Exec(vec!["sh".to_owned()]);
        let Streams { from, to, mut carrier } = start(command, &place).expect("a process");
        drop(to);
        let mut said = String::new();
        std::fs::File::from(from).read_to_string(&mut said).expect("nothing");
        let why = carrier.why(true);
        assert!(why.contains("exit status: 3") && why.contains("ended"), "{why}");
        let missing = start(Command::new("/nowhere/weft"), &place).expect_err("no program");
        assert!(missing.contains("cannot run /nowhere/weft"), "{missing}");
    }
}
