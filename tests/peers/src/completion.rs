//! The completions of zsh and fish, by these shells; bash's are tested with the binary.
//!
//! Each script is where the Debian package puts it, and found there by the shell itself.

use crate::spdk::{NQN, OperatedTarget};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use xtask::python::succeeded;
use xtask::report::Report;
use xtask::{cargo, packages};

/// How long a shell takes at most, beside other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is typed, and the word that it becomes: what `weft` knows, and what a target has.
const LINES: [(&str, &str); 2] =
    [("weft ctl subsystem dele", "delete"), ("weft ctl subsystem delete nqn", NQN)];

/// Completes what there is in a target that runs.
pub(crate) fn run(root: &Path, report: &mut Report) {
    for (shell, check) in [("zsh", zsh as fn(&CompletionScene) -> Result<()>), ("fish", fish)] {
        report.check(&format!("{shell} completes the names that exist"), || {
            packages::need("its completion is tested", &[(shell, shell)])?;
            let operated = OperatedTarget::start(root, Path::new(""))?;
            check(&CompletionScene::new(root, shell, operated)?)
        });
    }
}

/// A target with a subsystem, and the script of a shell.
struct CompletionScene {
    operated: OperatedTarget,
    /// Before all other programs.
    path: String,
}

impl CompletionScene {
    fn new(root: &Path, shell: &str, operated: OperatedTarget) -> Result<Self> {
        let weft = cargo::build_binary(root)?;
        let create = ["ctl", "subsystem", "create", NQN];
        succeeded(Command::new(&weft).args(create).env("WEFT_CONTROL", operated.control()))?;
        let script = succeeded(Command::new(&weft).args(["completion", shell]))?;
        let name = if shell == "zsh" { "_weft" } else { "weft.fish" };
        fs::write(operated.folder().join(name), script)?;
        let folder = weft.parent().context("a folder")?.display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        Ok(Self { operated, path })
    }

    fn shell(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path).env("WEFT_CONTROL", self.operated.control());
        command.env("TERM", "dumb").current_dir(self.operated.folder());
        command
    }
}

fn fish(of: &CompletionScene) -> Result<()> {
    let folder = of.operated.folder().display();
    for (line, word) in LINES {
        let script = format!("set -p fish_complete_path {folder}; complete -C '{line}'");
        let said = succeeded(of.shell("fish").args(["--no-config", "-c", &script]))?;
        let mut offered = said.lines().filter_map(|line| line.split('\t').next());
        ensure!(offered.any(|one| one == word), "{line}: {said}");
    }
    Ok(())
}

/// Zsh completes at a terminal alone, which `script` gives it.
fn zsh(of: &CompletionScene) -> Result<()> {
    for (line, word) in LINES {
        let mut command = of.shell("script");
        command.args(["--quiet", "--command", "zsh -f -i", "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("no input")?;
        let mut stdout = child.stdout.take().context("no output")?;
        let (some, said) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                let _ = some.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
            }
        });
        let folder = of.operated.folder().display();
        // What is completed is shown by the shell itself, as it would be executed.
        let begin = format!(
            "PROMPT=; fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; \
             show() {{ zle -M \"is:$BUFFER:\"; }}; zle -N show; bindkey '^G' show; echo be''gun\n"
        );
        stdin.write_all(begin.as_bytes())?;
        let mut seen = String::new();
        let mut wait_for = |text: &str| loop {
            if seen.contains(text) {
                return Ok(());
            }
            match said.recv_timeout(PATIENCE) {
                Ok(part) => seen += &part.replace(['\r', '\n'], ""),
                Err(RecvTimeoutError::Timeout) => bail!("zsh shows no {text:?}: {seen:?}"),
                Err(RecvTimeoutError::Disconnected) => bail!("zsh has ended: {seen:?}"),
            }
        };
        let whole = line.rsplit_once(' ').map_or("", |(words, _)| words);
        let outcome = wait_for("begun").and_then(|()| {
            stdin.write_all(format!("{line}\t\x07").as_bytes())?;
            wait_for(&format!("is:{whole} {word}"))
        });
        drop(stdin);
        let _ = child.kill();
        child.wait()?;
        outcome?;
    }
    Ok(())
}
