//! Cargo, as the tasks run it: in this repository, with the features that are tested.

use crate::python::succeeded;
use crate::report::Report;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is tested has TLS, which takes a C compiler and some minutes to build, and multicast DNS.
pub(crate) const FEATURES: [&str; 2] = ["--features", "tls,mdns"];

/// Builds the binary for the tests that run it and returns its path; or the path in
/// `WEFT_BINARY`, for the test of another build.
pub(crate) fn build_binary(root: &Path) -> Result<PathBuf> {
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
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    root.join(folder)
}

/// Runs cargo with its output on this terminal.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    let status = cargo_command(root).args(arguments).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Cargo in the repository, without input.
pub(crate) fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// Makes sure that the compiler has the standard library for `target`.
pub(crate) fn need_target(root: &Path, target: &str) -> Result<()> {
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

/// Runs a `cargo test`, prints all but the tests that pass, and adds up the harness' counts.
pub(crate) fn cargo_test(report: &mut Report, name: &str, mut command: Command) -> Result<()> {
    // Most tests of sockets and processes wait: more of them than processors run at a time.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (3 * processors).to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut failures = 0;
    for line in lines.map_while(Result::ok) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            report.add(count(counts, "passed"), count(counts, "ignored"));
            println!("{counts}");
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
