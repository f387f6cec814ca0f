//! Studies on several machines: network namespaces with a link each, reached by `ip` and by ssh,
//! and nodes of a cluster.

mod site;
mod slurm;

use crate::packages;
use crate::python::succeeded;
use crate::report::Report;
use crate::test;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SSHD: &str = "/usr/sbin/sshd";

/// How long sshd may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The namespaces: of the target, and of two loads. Each load has a link to the target's, and the
/// first one two.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Runs all of it.
pub(crate) fn run(root: &Path, report: &mut Report) {
    if !rustix::process::geteuid().is_root() {
        let why = "needs root, to make network namespaces and a cluster";
        report.skip("studies on several machines", 8, why);
        return;
    }
    let mut weft = None;
    report.check("ip and ssh from Debian", || {
        packages::need(
            "studies run on several machines",
            &[
                ("ip", "iproute2"),
                (SSHD, "openssh-server"),
                ("ssh", "openssh-client"),
                ("ethtool", "ethtool"),
            ],
        )?;
        weft = Some(test::build_binary(root)?);
        Ok(())
    });
    let Some(weft) = weft else { return };
    let folder = test::target_folder(root).join("machines");
    let mut check = |name: &str, check: fn(&Bench) -> Result<()>| {
        report.check(name, || {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            check(&Bench::new(weft.clone(), folder.clone())?)
        });
    };
    check("a study of three namespaces, by commands", commands);
    check("the same over ssh, and what ssh refuses", ssh);
    check("a study over two links of a site", site::links);
    check("weft site check", site::check);
    check("knobs are set for cells, and are back afterwards", site::knobs);
    check("knobs are back after an agent was killed, and its watchdog", site::killed);
    if report.check("Slurm from Debian", slurm::install) {
        // Not under the target folder, which may be too long for the name of a socket.
        let folder = std::env::temp_dir().join(format!("weft-slurm-{}", std::process::id()));
        let done = report.check("a study in a job of Slurm", || {
            fs::create_dir(&folder)?;
            slurm::run(&weft, &folder)
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
    weft: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn new(weft: PathBuf, folder: PathBuf) -> Result<Self> {
        let bench = Self { weft, folder };
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
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(NAMES[0])]).arg(&self.weft);
        command.args(["study", "run", &plan, "--out", out, "--quick"]);
        if !words.contains(&"--runtime") {
            command.args(["--runtime", "1s"]);
        }
        command.args(["--ramp-time", "300ms", "--repeats", "1", "--no-report"]).args(words);
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
        for namespace in NAMES.map(name) {
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

/// sshd in a namespace; it ends with this value.
struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a key.
fn key(path: &str) -> Result<String> {
    succeeded(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", path]))?;
    Ok(fs::read_to_string(format!("{path}.pub"))?)
}

/// Starts sshd at an address of a namespace, and waits until it listens.
fn sshd(bench: &Bench, of: &str, address: &str) -> Result<Sshd> {
    fs::create_dir_all("/run/sshd")?;
    let log = fs::File::create(bench.folder.join(format!("sshd-{of}.log")))?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name(of), SSHD, "-D", "-e", "-f", "/dev/null"]);
    command.args(["-h", &bench.path("host")?, "-o", "StrictModes=no", "-o", "PidFile=none"]);
    command.args(["-o", &format!("AuthorizedKeysFile={}", bench.path("client.pub")?)]);
    command.args(["-o", &format!("ListenAddress={address}")]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
    let sshd = Sshd(child);
    let begin = Instant::now();
    loop {
        let listening = ip(&["netns", "exec", &name(of), "ss", "-Hltn", "sport = :22"])?;
        if listening.contains(address) {
            return Ok(sshd);
        }
        ensure!(begin.elapsed() < PATIENCE, "sshd does not listen at {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ssh(bench: &Bench) -> Result<()> {
    let (host, _) = (key(&bench.path("host")?)?, key(&bench.path("client")?)?);
    key(&bench.path("stranger")?)?;
    let _sshds = [sshd(bench, "b", "10.77.1.2")?, sshd(bench, "c", "10.77.2.2")?];
    let known = format!("10.77.1.2 {host}10.77.2.2 {host}");
    fs::write(bench.path("known")?, known)?;
    let describe = |name: &str, address: &str, key: &str, known: &str| {
        format!(
            "Host {name}\n HostName {address}\n User root\n IdentityFile {key}\n \
             IdentitiesOnly yes\n UserKnownHostsFile {known}\n StrictHostKeyChecking yes\n"
        )
    };
    let (client, known) = (bench.path("client")?, bench.path("known")?);
    let config = [
        describe("wb", "10.77.1.2", &client, &known),
        describe("wc", "10.77.2.2", &client, &known),
        describe("refused", "10.77.1.2", &bench.path("stranger")?, &known),
        describe("unverified", "10.77.1.2", &client, "/dev/null"),
        describe("closed", "10.77.1.1", &client, &known),
    ];
    fs::write(bench.path("config")?, config.concat())?;
    // The user's own configuration stays as it is.
    let real = succeeded(Command::new("sh").args(["-c", "command -v ssh"]))?;
    let wrapper = bench.path("ssh")?;
    let script = format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", real.trim(), bench.path("config")?);
    fs::write(&wrapper, script)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bench.folder.display());
    let weft = bench.weft.display().to_string();
    let study = |out: &str, loads: &str| -> Result<Command> {
        let words = ["--target-on", "here", "--load-on", loads, "--agent-program", &weft];
        let mut command = bench.study(out, &words)?;
        command.env("PATH", &path);
        Ok(command)
    };
    let out = bench.path("out")?;
    succeeded(&mut study(&out, "wb,wc")?)?;
    bench.measured(&out)?;
    let site = bench.path("site.toml")?;
    let machine = |name: &str, place: &str, host: u32| {
        format!("[machines.{name}]\nplace = \"{place}\"\nlinks = {{ one = \"10.77.1.{host}\" }}\n")
    };
    let head = format!("target = \"server\"\nloads = [\"client\"]\nprogram = \"{weft}\"\n");
    let machines = [machine("server", "here", 1), machine("client", "wb", 2)].concat();
    fs::write(&site, head + &machines)?;
    let axes = "transport = [\"tcp@one\"]\nmtu = [1400]";
    let mut command = bench.study_of(axes, &bench.path("never")?, &["--site", &site])?;
    let said = site::refusal(command.env("PATH", &path))?;
    ensure!(said.contains("here: near1 carries control, so its mtu is not changed"), "{said}");
    for (place, expected) in [
        ("refused", "ssh-copy-id refused"),
        ("unverified", "connect once with `ssh unverified`"),
        ("closed", "start sshd there"),
        ("nobody.invalid", "there is no such host"),
    ] {
        let said = study(&bench.path("never")?, place)?.output()?;
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        if !said.contains(&format!("{place}: ")) || !said.contains(expected) {
            bail!("{said:?} does not name {place} and {expected:?}");
        }
        ensure!(said.trim_end().lines().count() == 1, "more than a sentence: {said}");
    }
    Ok(())
}
