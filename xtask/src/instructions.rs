//! `cargo xtask instructions`: counts the instructions of the protocol, and compares with a record.
//!
//! Counts do not depend on the machine's load, so a command that became more expensive is found by
//! a test. Each script of `tests/instructions` runs twice under callgrind, with few and with many
//! commands: the difference is the cost of the commands alone. The same compiler gives the same
//! count to a fraction of an instruction; another compiler gives another, so the record names its
//! compiler and is not compared with the counts of others.

use crate::cargo::{cargo, target_folder};
use crate::packages;
use crate::report::Report;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

const RECORD: &str = "tests/instructions/recorded.json";
/// A larger growth is a fault, unless it is recorded.
const GROWTH_MAX: f64 = 0.02;
/// Two queues share nothing, so a command costs the same on both.
const TWO_QUEUES: (&str, &str) = ("read-4k-two-queues", "read-4k");
const TWO_QUEUES_MAX: f64 = 0.03;
const FEW: u32 = 256;
const MANY: u32 = 1280;

/// Instructions for one command, by script.
type Counts = BTreeMap<String, f64>;

/// Compares, or records the current counts; false if a count has grown.
pub fn run(root: &Path, record: bool) -> Result<bool> {
    let counts = count(root)?;
    if record {
        let text = serde_json::to_string_pretty(&json!({
            "compiler": compiler()?,
            "instructions_per_command": counts,
        }))?;
        std::fs::write(root.join(RECORD), text + "\n").context(RECORD)?;
        println!("recorded in {RECORD}");
    }
    let faults = compare(root, &counts)?;
    faults.faults.iter().chain(&faults.incomparable).for_each(|line| println!("{line}"));
    Ok(faults.faults.is_empty())
}

/// The same as a stage of the tests.
pub fn test(root: &Path, report: &mut Report) {
    report.announce("instructions of the protocol");
    let mut verdict = Verdict::default();
    report.check("instructions", || {
        verdict = compare(root, &count(root)?)?;
        if verdict.faults.is_empty() { Ok(()) } else { bail!("{}", verdict.faults.join("\n")) }
    });
    if let Some(reason) = verdict.incomparable {
        report.skip("instructions against the record", 1, &reason);
    }
}

/// The result of a comparison.
#[derive(Debug, Default)]
struct Verdict {
    faults: Vec<String>,
    /// Why the record cannot be compared.
    incomparable: Option<String>,
}

/// Compares counts with the record and prints both.
fn compare(root: &Path, counts: &Counts) -> Result<Verdict> {
    let text = std::fs::read_to_string(root.join(RECORD)).context(RECORD)?;
    let recorded: Value = serde_json::from_str(&text).context(RECORD)?;
    let mut verdict = Verdict::default();
    let (theirs, ours) = (recorded["compiler"].as_str().unwrap_or("none"), compiler()?);
    if theirs != ours {
        verdict.incomparable = Some(format!(
            "this is {ours}, and the record was made with {theirs}: run \
             `cargo xtask instructions --record` with the new one before anything is changed"
        ));
    }
    println!("{:<24} {:>12} {:>12} {:>8}", "script", "now", "recorded", "");
    for (name, now) in counts {
        let before = recorded["instructions_per_command"][name].as_f64();
        let growth = before.map(|before| now / before - 1.0);
        let (before, change) = match (before, growth) {
            (Some(before), Some(growth)) => {
                (format!("{before:.1}"), format!("{:+.1} %", growth * 100.0))
            }
            _ => ("none".to_owned(), String::new()),
        };
        println!("{name:<24} {now:>12.1} {before:>12} {change:>8}");
        if verdict.incomparable.is_none() && growth.is_none_or(|growth| growth > GROWTH_MAX) {
            verdict.faults.push(format!(
                "{name}: {now:.1} instructions for a command, {before} recorded; if that is \
                 intended, run `cargo xtask instructions --record` and say why in the commit"
            ));
        }
    }
    verdict.faults.extend(unlike(counts));
    Ok(verdict)
}

/// Whether a second queue changes the cost of commands.
fn unlike(counts: &Counts) -> Option<String> {
    let (two, one) = (counts.get(TWO_QUEUES.0)?, counts.get(TWO_QUEUES.1)?);
    let difference = (two / one - 1.0).abs();
    (difference > TWO_QUEUES_MAX)
        .then(|| format!("{}: {two:.1} instructions, {one:.1} with one queue", TWO_QUEUES.0))
}

fn count(root: &Path) -> Result<Counts> {
    packages::need("callgrind counts the protocol's instructions", &[("valgrind", "valgrind")])?;
    cargo(root, &["build", "--profile", "dist", "--package", "instructions"])?;
    let program = target_folder(root).join("dist/instructions");
    let names = Command::new(&program).output().context("cannot run the scripts")?;
    let names = String::from_utf8(names.stdout)?;
    let mut counts = Counts::new();
    for name in names.lines() {
        let [few, many] = [FEW, MANY].map(|commands| collect(&program, name, commands));
        let spent = many?.checked_sub(few?).context("more commands took fewer instructions")?;
        let each = f64::from(u32::try_from(spent)?) / f64::from(MANY - FEW);
        counts.insert(name.to_owned(), (each * 10.0).round() / 10.0);
    }
    let missing = [TWO_QUEUES.0, TWO_QUEUES.1].into_iter().find(|name| !counts.contains_key(*name));
    missing.map_or(Ok(counts), |name| bail!("there is no script {name}"))
}

/// Instructions of a whole run.
fn collect(program: &Path, name: &str, commands: u32) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = valgrind.args([name, &commands.to_string()]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{name}: {}: {said}", output.status);
    }
    collected(&said).with_context(|| format!("{name}: no count from callgrind: {said}"))
}

/// The number in callgrind's line "==123== Collected : 456".
fn collected(said: &str) -> Option<u64> {
    let count = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    count.trim().parse().ok()
}

fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("cannot run rustc")?;
    Ok(format!("{} on {}", String::from_utf8(output.stdout)?.trim(), std::env::consts::ARCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, f64)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn folder(record: &Value) -> std::path::PathBuf {
        let name = format!("weft-record-{}-{}", std::process::id(), record["name"]);
        let folder = std::env::temp_dir().join(name.replace('"', ""));
        std::fs::create_dir_all(folder.join("tests/instructions")).expect("a folder");
        std::fs::write(folder.join(RECORD), record.to_string()).expect("a file");
        folder
    }

    #[test]
    fn callgrinds_count_is_parsed() {
        let said = "==7== Events    : Ir\n==7== Collected : 1234\n==7==\n";
        assert_eq!(collected(said), Some(1234));
        assert_eq!(collected("==7== Collected : many"), None);
        assert_eq!(collected(""), None);
    }

    #[test]
    fn growth_and_missing_records_are_faults() {
        let compiler = compiler().expect("a compiler");
        let record = json!({"name": "growth", "compiler": compiler,
            "instructions_per_command": {"a": 100.0, "b": 100.0}});
        let root = folder(&record);
        let faults = |list: &[(&str, f64)]| compare(&root, &counts(list)).expect("a record").faults;
        assert!(faults(&[("a", 101.9), ("b", 50.0)]).is_empty());
        assert_eq!(faults(&[("a", 102.1), ("b", 100.0)]).len(), 1);
        assert_eq!(faults(&[("c", 1.0)]).len(), 1);
        std::fs::remove_dir_all(root).expect("it was there");
    }

    #[test]
    fn the_record_of_another_compiler_is_not_compared() {
        let record = json!({"name": "other", "compiler": "rustc 0.1",
            "instructions_per_command": {"a": 1.0}});
        let root = folder(&record);
        let verdict = compare(&root, &counts(&[("a", 100.0)])).expect("a record");
        assert!(verdict.faults.is_empty());
        assert!(verdict.incomparable.expect("a reason").contains("rustc 0.1"));
        std::fs::remove_dir_all(root).expect("it was there");
    }

    #[test]
    fn two_queues_cost_the_same_as_one() {
        assert!(unlike(&counts(&[(TWO_QUEUES.0, 102.0), (TWO_QUEUES.1, 100.0)])).is_none());
        assert!(unlike(&counts(&[(TWO_QUEUES.0, 104.0), (TWO_QUEUES.1, 100.0)])).is_some());
    }
}
