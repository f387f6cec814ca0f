//! Studies on several machines: network namespaces with a link each, reached by `ip` and by ssh,
//! and nodes of a cluster. Multicast DNS between such namespaces.

mod many;
mod mdns;
mod site;
mod slurm;
mod ssh;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::cargo;
use xtask::packages;
use xtask::python::succeeded;
use xtask::report::Report;

/// How long something may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The namespaces: of the target, and of two loads. Each load has a link to the target's, and the
/// first one two.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The namespace of the switches.
const SWITCH: &str = "s";

/// A check, and the name by which it is chosen, which is that of the folder of its results.
type Check = (&'static str, &'static str, fn(&Bench) -> Result<()>);

/// What takes longest, which only `cargo xtask test --all` runs, or whoever names it.
const LONG: &[&str] = &["two-links", "lost", "many", "mdns", "slurm"];

const CHECKS: &[Check] = &[
    ("commands", "a study of three namespaces, by commands", commands),
    ("ssh", "the same over ssh", ssh::loads),
    ("two-links", "a study of three namespaces and two links over ssh", ssh::links),
    ("refused", "what ssh, agents, links and drivers refuse", ssh::refused),
    ("lost", "an agent that is killed, and a clock that jumps", ssh::lost),
    ("links", "a study over two links of a site", site::links),
    ("site", "weft site check", site::check),
    ("knobs", "knobs are set for cells, and are back afterwards", site::knobs),
    ("killed", "knobs are back after an agent was killed, and its watchdog", site::killed),
    ("many", "64 agents", many::agents),
    ("mdns", "multicast DNS, with avahi", mdns::check),
];

/// Which checks run.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Those that take long as well.
    All,
    /// Not those.
    Short,
    /// The one of this name.
    One(&'a str),
}

impl Which<'_> {
    fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Short => !LONG.contains(&name),
            Self::One(one) => name == one,
        }
    }
}

/// Runs them.
pub(crate) fn run(root: &Path, report: &mut Report, which: Which<'_>) {
    if !rustix::process::geteuid().is_root() {
        let why = "needs root, to make network namespaces and a cluster";
        report.skip("studies on several machines", CHECKS.len() + 1, why);
        return;
    }
    let mut names = CHECKS.iter().map(|(name, ..)| *name).chain(["slurm"]);
    if !names.clone().any(|name| which.has(name)) {
        report.check("studies on several machines", || {
            bail!("their checks are {}", names.by_ref().collect::<Vec<_>>().join(", "))
        });
        return;
    }
    let mut weft = None;
    report.check("ip and ssh from Debian", || {
        packages::need(
            "studies run on several machines",
            &[
                ("ip", "iproute2"),
                ("/usr/sbin/sshd", "openssh-server"),
                ("ssh", "openssh-client"),
                ("ethtool", "ethtool"),
            ],
        )?;
        weft = Some(cargo::build_binary(root)?);
        Ok(())
    });
    let Some(weft) = weft else { return };
    let folders = cargo::target_folder(root).join("machines");
    for (name, title, check) in CHECKS.iter().filter(|(name, ..)| which.has(name)) {
        report.check(title, || {
            let folder = folders.join(name);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            check(&Bench::new(root, weft.clone(), folder)?)
        });
    }
    if which.has("slurm") && report.check("Slurm from Debian", slurm::install) {
        // Not under the target folder, which may be too long for the name of a socket.
        let folder = std::env::temp_dir().join(format!("weft-slurm-{}", std::process::id()));
        let done = report.check("a study in a job of Slurm", || {
            fs::create_dir(&folder)?;
            slurm::run(root, &weft, &folder, &folders.join("slurm"))
        });
        match done {
            true => drop(fs::remove_dir_all(&folder)),
            false => println!("its files are in {}", folder.display()),
        }
    }
}

/// Writes the plan of a study with these axes.
fn plan(path: &Path, axes: &str) -> Result<()> {
    let head = "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"What then?\"\n\
                source = { document = \"weft\", figure = \"none\" }\n";
    Ok(fs::write(path, format!("{head}[axes]\n{axes}\n[fixed]\ndepth = 4\n"))?)
}

/// The first record of a study, which was measured.
fn record(out: &Path) -> Result<Value> {
    let text = fs::read_to_string(out.join("results.jsonl"))?;
    let record: Value = serde_json::from_str(text.lines().next().context("no record")?)?;
    ensure!(record["status"]["is"] == "measured", "{}", record["status"]);
    Ok(record)
}

/// Namespaces, the program under test and a folder for its files.
struct Bench {
    /// The checkout.
    root: PathBuf,
    weft: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn new(root: &Path, weft: PathBuf, folder: PathBuf) -> Result<Self> {
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
    fn switched(&self) -> Result<()> {
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
    fn weft(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(NAMES[0])]).arg(&self.weft).args(words);
        command
    }

    fn path(&self, name: &str) -> Result<String> {
        Ok(self.folder.join(name).to_str().context("a path of text")?.to_owned())
    }

    /// The study's command, in the target's namespace.
    fn study(&self, out: &str, words: &[&str]) -> Result<Command> {
        self.study_of("transport = [\"tcp\"]", out, words)
    }

    /// The same of these axes.
    fn study_of(&self, axes: &str, out: &str, words: &[&str]) -> Result<Command> {
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
    fn measured(&self, out: &str) -> Result<()> {
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
fn name(of: &str) -> String {
    format!("weft-{}-{of}", std::process::id())
}

fn ip(words: &[&str]) -> Result<String> {
    succeeded(Command::new("ip").args(words))
}

fn commands(bench: &Bench) -> Result<()> {
    let out = bench.path("out")?;
    let place =
        |of: &str| format!("exec:ip netns exec {} {} agent", name(of), bench.weft.display());
    let [a, b, c] = NAMES.map(place);
    let words = ["--target-on", &a, "--load-on", &b, "--load-on", &c];
    succeeded(&mut bench.study(&out, &words)?)?;
    bench.measured(&out)
}
