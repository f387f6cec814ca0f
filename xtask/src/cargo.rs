//! Cargo, as the tasks run it: in this repository, with the features that are tested.

use crate::python::succeeded;
use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What is tested has TLS, which takes a C compiler and some minutes to build, and multicast DNS.
pub const FEATURES: [&str; 2] = ["--features", "tls,mdns"];

/// Names another folder with this repository, for which the tasks are then.
pub const ROOT: &str = "WEFT_ROOT";

/// Builds the binary for the tests that run it and returns its path; or the path in
/// `WEFT_BINARY`, for the test of another build.
pub fn build_binary(root: &Path) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEFT_BINARY") {
        return Ok(Path::new(&path).canonicalize()?);
    }
    // The one of the tests: alone it would have dependencies with other features, built anew.
    let of_tests = ["test", "--no-run", "--quiet", "--workspace", "--test", "binary"];
    cargo(root, &[&of_tests[..], &FEATURES].concat())?;
    let path = target_folder(root).join("debug/weft");
    if path.exists() { Ok(path) } else { bail!("cargo has built no {}", path.display()) }
}

/// Where cargo puts what it builds.
pub fn target_folder(root: &Path) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    root.join(folder)
}

/// Runs cargo with its output on this terminal.
pub fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    let status = cargo_command(root).args(arguments).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Cargo in the repository, without input.
pub fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// A program of crates.io, which cargo builds below `target/` if it is not there.
pub fn install(root: &Path, name: &str, version: &str, features: &[&str]) -> Result<PathBuf> {
    let folder = target_folder(root).join("cargo").join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.exists() {
        let mut install = cargo_command(root);
        install.args(["install", "--locked", "--quiet", name, "--version", version]);
        install.args(features).arg("--root").arg(&folder);
        // What it is made of is of no use to the builds of this repository.
        install.arg("--target-dir").arg(folder.join("build"));
        succeeded(&mut install)?;
        std::fs::remove_dir_all(folder.join("build"))?;
    }
    Ok(program)
}

/// The program of the tests beside programs and kernels of others; its arguments follow.
pub fn peers(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--package", "peers", "--manifest-path"]);
    command.arg(root.join("Cargo.toml")).arg("--");
    command
}

/// Makes sure that the compiler has the standard library for `target`.
pub fn need_target(root: &Path, target: &str) -> Result<()> {
    let has = || -> Result<bool> {
        let mut command = Command::new("rustc");
        let print = ["--print", "target-libdir", "--target", target];
        Ok(Path::new(succeeded(command.current_dir(root).args(print))?.trim()).exists())
    };
    if has()? {
        return Ok(());
    }
    let add = ["target", "add", target];
    succeeded(Command::new("rustup").current_dir(root).args(add)).with_context(|| {
        format!("this compiler has no standard library for {target}: rustup target add {target}")
    })?;
    if has()? { Ok(()) } else { bail!("rustup has installed no standard library for {target}") }
}

/// A program of tests, which cargo has built.
#[derive(Debug)]
pub struct TestProgram {
    /// The folder of its package.
    folder: PathBuf,
    name: String,
    kind: String,
    path: PathBuf,
}

impl TestProgram {
    /// Builds those of all packages: a part of them would have other features, and be built anew.
    pub fn build(root: &Path) -> Result<Vec<Self>> {
        let mut command = cargo_command(root);
        command.args(["test", "--workspace", "--no-run"]).args(FEATURES);
        command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
        let output = command.output().context("cannot start cargo")?;
        ensure!(output.status.success(), "{command:?}: {}", output.status);
        let messages = String::from_utf8(output.stdout)?;
        let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        Ok(messages.filter_map(|message| Self::of(&message)).collect())
    }

    /// The program that a message of cargo is about, if it is one of tests.
    fn of(message: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let path = text(&message["executable"])?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let target = &message["target"];
        let (name, kind) = (text(&target["name"])?, text(&target["kind"][0])?);
        let is_test = message["profile"]["test"] == true;
        is_test.then(|| Self { folder, name, kind, path: path.into() })
    }

    /// Whether it uses a driver of the reactor, and no process of its own. Others simulate,
    /// compute or read; load and lab measure by what is tested without them.
    pub fn has_driver(&self) -> bool {
        match self.kind.as_str() {
            "lib" => !self.is_of(&["load", "lab"]),
            _ => ["allocation", "serve", "suite"].contains(&self.name.as_str()),
        }
    }

    /// Whether it measures times and rates, which a program beside it would change.
    pub fn measures(&self) -> bool {
        self.is_of(&["load", "lab", "cli"])
    }

    fn is_of(&self, crates: &[&str]) -> bool {
        crates.iter().any(|name| self.folder.ends_with(name))
    }

    /// Runs it as cargo does.
    pub fn run(&self, report: &mut Report, variables: &[(&str, &str)]) {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let epoll = if variables.contains(&EPOLL) { " over epoll" } else { "" };
        let name = format!("{package}/{}{epoll}", self.name);
        if let Err(error) = count_tests(report, &name, &mut command) {
            report.add_failure(&format!("{name}: {error:#}"));
        }
    }
}

/// What has tests use epoll in place of io_uring.
pub const EPOLL: (&str, &str) = ("WEFT_DRIVER", "epoll");

/// Runs tests, prints all but those that pass, and adds up the harness' counts.
pub fn count_tests(report: &mut Report, name: &str, command: &mut Command) -> Result<()> {
    // Most tests of sockets and processes wait: more of them than processors run at a time.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (3 * processors).to_string());
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the tests")?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut failures = 0;
    for line in lines.map_while(Result::ok) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            report.add(count(counts, "passed"), count(counts, "ignored"));
            println!("{name}: {counts}");
        } else if let Some(test) = line.strip_prefix("test ").and_then(|l| l.strip_suffix("FAILED"))
        {
            failures += 1;
            report.add_failure(&format!("{name}: {}", test.trim_end_matches([' ', '.'])));
            println!("{line}");
        } else if !line.is_empty() && !line.ends_with("... ok") && !line.starts_with("running ") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    report.took(name, start.elapsed());
    if !status.success() && failures == 0 {
        report.add_failure(&format!("{name}: {status}"));
    }
    Ok(())
}

/// The number before `word` in the line "ok. 3 passed; 0 failed; 1 ignored; …".
fn count(text: &str, word: &str) -> usize {
    let words: Vec<&str> = text.split([' ', ';']).collect();
    let at = words.iter().position(|found| *found == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_the_harness_are_parsed() {
        let line =
            "ok. 13 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(count(line, "passed"), 13);
        assert_eq!(count(line, "failed"), 2);
        assert_eq!(count(line, "ignored"), 1);
        assert_eq!(count("nonsense", "passed"), 0);
    }
}
