//! The process through which an agent is spoken to, and what it says when it ends.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use weft_lab::study::agent::Streams;

use super::AgentPlace;

/// How long it may take to end when its input has ended.
const END: Duration = Duration::from_secs(2);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How many of its messages are kept, and how much of them.
const LINES: usize = 20;
const MESSAGES: u64 = 1 << 20;

/// A process that ends with this value.
#[derive(Debug)]
struct Process {
    child: Child,
    place: AgentPlace,
    messages: Arc<Mutex<Vec<String>>>,
    /// Reads them.
    reader: Option<JoinHandle<()>>,
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
    let messages = Arc::<Mutex<Vec<String>>>::default();
    let (heard, place) = (Arc::clone(&messages), place.clone());
    let mut process = Process { child, place, messages, reader: None };
    let (Some(to), Some(from), Some(stderr)) = (to, from, stderr) else {
        return Err(format!("{name} has no pipes"));
    };
    let reader = thread::Builder::new().name("weft-agent-log".to_owned());
    let reader = reader.spawn(move || read(stderr, &heard));
    process.reader = Some(reader.map_err(|error| format!("cannot start a thread: {error}"))?);
    let why = Box::new(move || process.why());
    Ok(Streams { from: Box::new(from), to: Box::new(to), why })
}

fn read(stderr: ChildStderr, messages: &Mutex<Vec<String>>) {
    let lines = BufReader::new(stderr.take(MESSAGES)).lines();
    for line in lines.map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
        let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == LINES {
            messages.remove(0);
        }
        messages.push(line.trim().to_owned());
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
            waited += LOOK;
        }
        // It may have ended by now.
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }

    /// Why it does not answer.
    fn why(&mut self) -> String {
        let status = self.end();
        let mut waited = Duration::ZERO;
        let is_reading = |reader: &JoinHandle<()>| !reader.is_finished();
        // What it started may have the pipe as well, and go on.
        while waited < END && self.reader.as_ref().is_some_and(is_reading) {
            thread::sleep(LOOK);
            waited += LOOK;
        }
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        explain(&self.place, status, &messages)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Half a sentence that says why an agent does not answer, and what helps.
pub(super) fn explain(
    place: &AgentPlace,
    status: Option<ExitStatus>,
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
    format!(
        "its agent has ended ({how}{last}): what it did not measure, weft study run --resume \
         measures"
    )
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
            explain(place, Some(ExitStatus::from_raw(code << 8)), &[line.to_owned()])
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
        let killed = explain(&exec, Some(ExitStatus::from_raw(9)), &[]);
        assert!(killed.contains("signal: 9") && killed.contains("--resume"), "{killed}");
    }

    #[test]
    fn a_process_ends_with_its_input_and_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo ended >&2; exit 3"]);
        let place = AgentPlace::Exec(vec!["sh".to_owned()]);
        let Streams { mut from, to, mut why } = start(command, &place).expect("a process");
        drop(to);
        let mut said = String::new();
        from.read_to_string(&mut said).expect("nothing");
        let why = why();
        assert!(why.contains("exit status: 3") && why.contains("ended"), "{why}");
        let missing = start(Command::new("/nowhere/weft"), &place).expect_err("no program");
        assert!(missing.contains("cannot run /nowhere/weft"), "{missing}");
    }
}
