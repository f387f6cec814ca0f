//! Namespaces of this machine with a link each, in which a study runs.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::python::succeeded;

/// How long something may take to begin or to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The namespaces: of the target, and of two loads. Each load has a link to the target's, and the
/// first one two.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// The namespace of the switches.
const SWITCH: &str = "s";

/// Writes the plan of a study with these axes.
fn plan(path: &Path, axes: &str) -> Result<()> {
    let head = "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"What then?\"\n\
                source = { document = \"weft\", figure = \"none\" }\n";
    Ok(fs::write(path, format!("{head}[axes]\n{axes}\n[fixed]\ndepth = 4\n"))?)
}

/// The first record of a study, which was measured.
pub(super) fn record(out: &Path) -> Result<Value> {
    let text = fs::read_to_string(out.join("results.jsonl"))?;
    let record: Value = serde_json::from_str(text.lines().next().context("no record")?)?;
    ensure!(record["status"]["is"] == "measured", "{}", record["status"]);
    Ok(record)
}

/// Namespaces, the program under test and a folder for its files.
pub(super) struct Bench {
    /// The checkout.
    pub(super) root: PathBuf,
    pub(super) weft: PathBuf,
    pub(super) folder: PathBuf,
}

impl Bench {
    pub(super) fn new(root: &Path, weft: PathBuf, folder: PathBuf) -> Result<Self> {
        let bench = Self { root: root.to_owned(), weft, folder };
        let [a, b, c] = NAMES.map(name);
        for namespace in [&a, &b, &c] {
            ip(&["netns", "add", namespace])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        }
        for (number, other) in [(1, &b), (2, &c), (3, &b)] {
            let (near, far) = (format!("near{number}"), format!("far{number}"));
            let peer = ["type", "veth", "peer", "name", &far, "netns", other];
            ip(&[&["link", "add", &near, "netns", &a], &peer[..]].concat())?;
            for (namespace, link, host) in [(&a, &near, 1), (other, &far, 2)] {
                let address = format!("10.77.{number}.{host}/24");
                ip(&["-n", namespace, "address", "add", &address, "dev", link])?;
                ip(&["-n", namespace, "link", "set", link, "up"])?;
            }
            if number == 3 {
                continue;
            }
            let gateway = format!("10.77.{number}.1");
            ip(&["-n", other, "route", "add", "default", "via", &gateway])?;
        }
        Ok(bench)
    }

    /// Connects all three by two switches: networks 10.78.1 and 10.78.2, of which the second is
    /// slow at every port.
    pub(super) fn switched(&self) -> Result<()> {
        let switch = name(SWITCH);
        ip(&["netns", "add", &switch])?;
        for network in 1..=2 {
            let bridge = format!("switch{network}");
            ip(&["-n", &switch, "link", "add", &bridge, "type", "bridge"])?;
            ip(&["-n", &switch, "link", "set", &bridge, "up"])?;
            for (of, host) in NAMES.iter().zip(1..) {
                let (namespace, link) = (name(of), format!("eth{network}"));
                let port = format!("port{network}{of}");
                let peer = ["type", "veth", "peer", "name", &link, "netns", &namespace];
                ip(&[&["-n", &switch, "link", "add", &port][..], &peer].concat())?;
                ip(&["-n", &switch, "link", "set", &port, "master", &bridge, "up"])?;
                let address = format!("10.78.{network}.{host}/24");
                ip(&["-n", &namespace, "address", "add", &address, "dev", &link])?;
                ip(&["-n", &namespace, "link", "set", &link, "up"])?;
                if network == 2 {
                    let shape = ["root", "tbf", "rate", "1gbit", "burst", "128k", "latency", "5ms"];
                    for (of, port) in [(&namespace, &link), (&switch, &port)] {
                        let at = ["-n", of, "qdisc", "add", "dev", port];
                        succeeded(Command::new("tc").args(at).args(shape))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The program in the target's namespace.
    pub(super) fn weft(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(NAMES[0])]).arg(&self.weft).args(words);
        command
    }

    pub(super) fn path(&self, name: &str) -> Result<String> {
        Ok(self.folder.join(name).to_str().context("a path of text")?.to_owned())
    }

    /// The study's command, in the target's namespace.
    pub(super) fn study(&self, out: &str, words: &[&str]) -> Result<Command> {
        self.study_of("transport = [\"tcp\"]", out, words)
    }

    /// The same of these axes.
    pub(super) fn study_of(&self, axes: &str, out: &str, words: &[&str]) -> Result<Command> {
        let plan = self.path("plan.toml")?;
        self::plan(Path::new(&plan), axes)?;
        let mut command = self.weft(&["study", "run", &plan, "--out", out, "--quick"]);
        if !words.contains(&"--runtime") {
            command.args(["--runtime", "1s"]);
        }
        if !words.contains(&"--repeats") {
            command.args(["--repeats", "1"]);
        }
        command.args(["--ramp-time", "300ms", "--no-report"]).args(words);
        Ok(command)
    }

    /// The loads came from both other namespaces, and their processors count once.
    pub(super) fn measured(&self, out: &str) -> Result<()> {
        let record = record(Path::new(out))?;
        let connection = &record["connection"];
        let host = connection["host"].as_str().unwrap_or_default();
        let target = connection["target"].as_str().unwrap_or_default();
        ensure!(host.starts_with("10.77.1.2:") && target.starts_with("10.77.1.1:"), "{connection}");
        ensure!(connection["one_machine"] == true, "{connection}");
        let parts = record["parts"].as_array().context("no parts")?;
        ensure!(parts.len() == 2, "{parts:?}");
        for part in parts {
            ensure!(part["requests"].as_u64() > Some(0), "{part}");
        }
        let cores = record["host"]["machine"]["cores"].as_array().context("no processors")?;
        let here = fs::read_to_string("/proc/stat")?;
        let here = here.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        ensure!(cores.len() == here, "{} processors of {here}", cores.len());
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for namespace in NAMES.iter().chain([&SWITCH]).map(|of| name(of)) {
            // Its links go with it; it may not be there.
            let _ = ip(&["netns", "delete", &namespace]);
        }
    }
}

/// A namespace of this process alone.
pub(super) fn name(of: &str) -> String {
    format!("weft-{}-{of}", std::process::id())
}

pub(super) fn ip(words: &[&str]) -> Result<String> {
    succeeded(Command::new("ip").args(words))
}
