//! Studies over ssh: sshd in two of the namespaces, and everything that may go wrong there.

use super::bench::{Bench, PATIENCE, ip, name};
use super::site::{journals, records, refusal};
use crate::process::{Process, within};
use anyhow::{Context, Result, bail, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use xtask::python::succeeded;

const SSHD: &str = "/usr/sbin/sshd";

/// The rate of the slow link, and what one stream of it may carry at most, in bytes a second.
const SLOW: &str = "1gbit";
const SLOW_BYTES: f64 = 125e6;

/// An agent whose clock is set forward by five seconds after it was read nine times, as it is
/// before its load begins.
const JUMPING: &str = r#"#!/usr/bin/perl
$| = 1;
my $read = 0;
open(my $agent, '-|', 'WEFT', 'agent') or die;
while (my $line = <$agent>) {
    $line =~ s/"secs":(\d+)/'"secs":' . ($1 + 5)/e
        if $line =~ /"result":\{"secs":\d+,"nanos":\d+\}/ && ++$read > 9;
    print $line;
}
"#;

/// Two machines that are reached over ssh, as `wb` and `wc`.
pub(super) struct Ssh<'a> {
    bench: &'a Bench,
    /// With the ssh that has the configuration of this test; that of the user stays as it is.
    path: String,
    sshds: [Process; 2],
}

/// Makes a key: its public half.
fn key(path: &str) -> Result<String> {
    succeeded(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", path]))?;
    Ok(fs::read_to_string(format!("{path}.pub"))?)
}

fn write_program(path: &str, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Writes a program with another build ID.
fn write_other_build(program: &Path, path: &str) -> Result<()> {
    // The head of that note, with an ID of 20 bytes.
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    fs::copy(program, path)?;
    let mut bytes = fs::read(path)?;
    let at = bytes.windows(NOTE.len()).position(|bytes| bytes == NOTE);
    let first = at.context("the program has no build ID")? + NOTE.len();
    bytes[first] ^= 1;
    Ok(fs::write(path, bytes)?)
}

impl<'a> Ssh<'a> {
    fn start(bench: &'a Bench) -> Result<Self> {
        let (host, client) = (key(&bench.path("host")?)?, key(&bench.path("client")?)?);
        key(&bench.path("unknown")?)?;
        let greeted = key(&bench.path("greeted")?)?;
        let greeting = "command=\"echo This account is for mail only.\"";
        fs::write(bench.path("authorized")?, format!("{client}{greeting} {greeted}"))?;
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
            describe("refused", "10.77.1.2", &bench.path("unknown")?, &known),
            describe("greeting", "10.77.1.2", &bench.path("greeted")?, &known),
            describe("unverified", "10.77.1.2", &client, "/dev/null"),
            describe("closed", "10.77.1.1", &client, &known),
        ];
        fs::write(bench.path("config")?, config.concat())?;
        let real = succeeded(Command::new("sh").args(["-c", "command -v ssh"]))?;
        let script = format!("exec {} -F {} \"$@\"", real.trim(), bench.path("config")?);
        write_program(&bench.path("ssh")?, &format!("#!/bin/sh\n{script}\n"))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", bench.folder.display());
        let sshds = [sshd(bench, "b", "10.77.1.2")?, sshd(bench, "c", "10.77.2.2")?];
        Ok(Self { bench, path, sshds })
    }

    /// A study with a target here.
    fn study(&self, axes: &str, out: &str, words: &[&str]) -> Result<Command> {
        let mut command = self.bench.study_of(axes, out, words)?;
        command.env("PATH", &self.path);
        Ok(command)
    }

    /// The same with loads at these places, whose weft is at a path.
    fn loads(&self, out: &str, loads: &str, program: &str) -> Result<Command> {
        let words = ["--target-on", "here", "--load-on", loads, "--agent-program", program];
        self.study("transport = [\"tcp\"]", out, &words)
    }

    /// Nothing of a study is left on any machine: no process but sshd, no socket that listens but
    /// its own, no folder of ssh's, no journal and no knob.
    fn nothing_is_left(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let left = self.left()?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "left behind: {}", left.join("; "));
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for (of, sshds) in [("a", 0), ("b", 1), ("c", 1)] {
            let namespace = name(of);
            let pids = ip(&["netns", "pids", &namespace])?;
            for pid in pids.lines() {
                let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let words = String::from_utf8_lossy(&words).replace('\0', " ");
                if !self.sshds.iter().any(|sshd| sshd.id().to_string() == pid) {
                    left.push(format!("{of}: process {pid}, {words}"));
                }
            }
            let listening = ip(&["netns", "exec", &namespace, "ss", "-Hltn"])?;
            if listening.lines().count() != sshds {
                left.push(format!("{of}: it listens: {listening}"));
            }
            let links: serde_json::Value =
                serde_json::from_str(&ip(&["-j", "-n", &namespace, "link", "show"])?)?;
            for link in links.as_array().context("no links")? {
                if link["mtu"] != 1500 && link["ifname"] != "lo" {
                    left.push(format!("{of}: {} has MTU {}", link["ifname"], link["mtu"]));
                }
            }
        }
        let sockets = fs::read_dir("/tmp")?.flatten().map(|entry| entry.file_name());
        let sockets = sockets.map(|name| name.to_string_lossy().into_owned());
        left.extend(sockets.filter(|name| name.starts_with("weft-ssh-")));
        left.extend(journals());
        Ok(left)
    }
}

/// Starts sshd at an address of a namespace, and waits until it listens.
fn sshd(bench: &Bench, of: &str, address: &str) -> Result<Process> {
    fs::create_dir_all("/run/sshd")?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name(of), SSHD, "-D", "-e", "-f", "/dev/null"]);
    command.args(["-h", &bench.path("host")?, "-o", "StrictModes=no", "-o", "PidFile=none"]);
    command.args(["-o", &format!("AuthorizedKeysFile={}", bench.path("authorized")?)]);
    command.args(["-o", &format!("ListenAddress={address}")]);
    let sshd = Process::start(&mut command, &bench.folder.join(format!("sshd-{of}.log")))?;
    within(PATIENCE, "sshd listens", || {
        let listening = ip(&["netns", "exec", &name(of), "ss", "-Hltn", "sport = :22"])?;
        ensure!(listening.contains(address), "nothing listens at {address}: {}", sshd.output());
        Ok(())
    })?;
    Ok(sshd)
}

/// A study of three machines over two links of a site, one of which is slow; its page.
pub(super) fn links(bench: &Bench) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    bench.switched()?;
    let weft = bench.weft.display();
    let machine = |name: &str, place: &str, host: u32| {
        format!(
            "[machines.{name}]\nplace = \"{place}\"\n\
             links = {{ fast = \"10.78.1.{host}\", slow = \"10.78.2.{host}\" }}\n"
        )
    };
    let head = "target = \"server\"\nloads = [\"one\", \"two\"]\n";
    let site = [
        format!("{head}program = \"{weft}\"\n"),
        machine("server", "here", 1),
        machine("one", "wb", 2),
        machine("two", "wc", 3),
    ];
    fs::write(bench.path("site.toml")?, site.concat())?;
    let plan = bench.root.join("tests/machines/two-links.toml");
    let (plan, site, out) =
        (plan.to_str().context("text")?, bench.path("site.toml")?, bench.path("out")?);
    let words = ["study", "run", plan, "--site", &site, "--out", &out, "--seed", "7"];
    succeeded(bench.weft(&words).env("PATH", &ssh.path))?;
    let found = records(&out)?;
    ensure!(found.len() == 8, "{} records", found.len());
    for record in &found {
        ensure!(record["status"]["is"] == "measured", "{}: {}", record["cell"], record["status"]);
        let ends = &record["connection"];
        let network = if ends["link"] == "fast" { 1 } else { 2 };
        for (end, host) in [("target", 1), ("host", 2)] {
            let address = ends[end].as_str().unwrap_or_default();
            ensure!(address.starts_with(&format!("10.78.{network}.{host}:")), "{ends}");
        }
        let parts = record["parts"].as_array().context("no parts")?;
        let of = |key: &'static str| parts.iter().map(move |part| part[key].as_u64().unwrap_or(0));
        let places: Vec<&str> = parts.iter().filter_map(|part| part["place"].as_str()).collect();
        ensure!(places == ["wb", "wc"] && of("requests").all(|count| count > 0), "{parts:?}");
        ensure!(record["read"]["requests"] == of("requests").sum::<u64>(), "{record}");
        if network == 2 {
            let seconds = parts[0]["seconds"].as_f64().context("no time")?;
            let rate = of("bytes").sum::<u64>() as f64 / seconds;
            ensure!(rate < SLOW_BYTES, "{}: {rate} B/s over {SLOW}", record["cell"]);
        }
    }
    let page = fs::read_to_string(Path::new(&out).join("report.html"))?;
    let expected =
        ["tcp@fast", "tcp@slow", "The load of each machine", "wb IOPS", "wc IOPS", "fairness"];
    for part in expected {
        ensure!(page.contains(part), "the page has no {part:?}");
    }
    println!("the page is {out}/report.html");
    ssh.nothing_is_left()
}

/// Loads of two machines over ssh, by whatever address is reached.
pub(super) fn loads(bench: &Bench) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    let (out, weft) = (bench.path("out")?, bench.weft.display().to_string());
    succeeded(&mut ssh.loads(&out, "wb,wc", &weft)?)?;
    bench.measured(&out)?;
    ssh.nothing_is_left()
}

/// What a study is refused for before anything is measured: one sentence with the place and what
/// helps.
pub(super) fn refused(bench: &Bench) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    let (weft, never) = (bench.weft.display().to_string(), bench.path("never")?);
    let other = bench.path("other")?;
    write_other_build(&bench.weft, &other)?;
    let older = bench.path("older")?;
    write_program(&older, "#!/bin/sh\necho \"error: unrecognized subcommand '$1'\" >&2\nexit 2\n")?;
    for (place, program, expected) in [
        ("nobody.invalid", weft.as_str(), "there is no such host"),
        ("refused", &weft, "ssh-copy-id refused"),
        ("unverified", &weft, "connect once with `ssh unverified`"),
        ("closed", &weft, "start sshd there"),
        ("wb", "/nowhere/weft", "name its path with --agent-program"),
        ("wb", &other, "another build of weft"),
        ("wb", &older, "its weft knows no agents"),
        ("greeting", &weft, "it said \"This account is for mail only.\""),
    ] {
        let said = refusal(&mut ssh.loads(&never, place, program)?)?;
        println!("{}", said.trim_end());
        if !said.contains(&format!("{place}: ")) || !said.contains(expected) {
            bail!("{said:?} does not name {place} and {expected:?}");
        }
        // Beside a load that could be started nothing is left either.
        let said = refusal(&mut ssh.loads(&never, &format!("wc,{place}"), program)?)?;
        ensure!(said.contains(": "), "{said}");
        ssh.nothing_is_left().with_context(|| format!("after {expected:?}"))?;
    }
    ensure!(!Path::new(&never).exists(), "something was measured");
    let machine = |name: &str, place: &str, host: u32, crossed: u32| {
        format!(
            "[machines.{name}]\nplace = \"{place}\"\nlinks = {{ one = \"10.77.1.{host}\", \
             crossed = \"10.77.{crossed}.{host}\", slow = \"10.77.3.{host}\" }}\n"
        )
    };
    let site = bench.path("site.toml")?;
    let head = format!("target = \"server\"\nloads = [\"client\"]\nprogram = \"{weft}\"\n");
    fs::write(&site, head + &machine("server", "here", 1, 1) + &machine("client", "wb", 2, 3))?;
    for (axes, expected) in [
        ("transport = [\"tcp@crossed\"]", "crossed has its ends in two networks"),
        (
            "transport = [\"tcp@one\"]\nmtu = [1400]",
            "here: near1 carries control, so its mtu is not changed",
        ),
    ] {
        let said = refusal(&mut ssh.study(axes, &never, &["--site", &site])?)?;
        println!("{}", said.trim_end());
        ensure!(said.contains(expected), "{said:?} has no {expected:?}");
        ssh.nothing_is_left().with_context(|| format!("after {expected:?}"))?;
    }
    // What a driver refuses is the reason of its cells; other knobs of them are put back.
    let (axes, out) =
        ("transport = [\"tcp@slow\"]\nmtu = [1400]\nlro = [\"on\"]", bench.path("refusing")?);
    succeeded(&mut ssh.study(axes, &out, &["--site", &site])?)?;
    let found = records(&out)?;
    let reason = found.first().and_then(|record| record["status"]["reason"].as_str());
    let reason = reason.unwrap_or_default();
    println!("{reason}");
    for part in ["here: lro on cannot be set: ethtool -K near3 lro: ", "leave it out of the plan"] {
        ensure!(reason.contains(part), "{found:?}");
    }
    ssh.nothing_is_left()
}

/// What happens to a machine under load: its cells are void, the machine is named, the study goes
/// on and can be resumed.
pub(super) fn lost(bench: &Bench) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    let (weft, out) = (bench.weft.display().to_string(), bench.path("out")?);
    // An agent that is killed.
    let words = ["--target-on", "here", "--load-on", "wb,wc", "--agent-program", &weft];
    let axes = "transport = [\"tcp\"]\nblock_bytes = [4096, 8192]";
    let mut command = ssh.study(axes, &out, &[&words[..], &["--runtime", "2s"]].concat())?;
    let mut study = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let begin = Instant::now();
    let connected = || {
        let to = ip(&["netns", "exec", &name("c"), "ss", "-Htn", "state", "established"]);
        to.map(|lines| lines.lines().filter(|line| !line.contains(":22 ")).count() > 1)
    };
    while !connected()? {
        ensure!(begin.elapsed() < PATIENCE, "the load of wc does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(500));
    let pids = ip(&["netns", "pids", &name("c")])?;
    let is_agent = |pid: &&str| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(weft.as_bytes())
    };
    let agent = pids.lines().find(is_agent).context("no agent")?;
    succeeded(Command::new("kill").args(["-KILL", agent]))?;
    let status = study.wait()?;
    ensure!(!status.success(), "a cell is missing, and nobody says so");
    let found = records(&out)?;
    let (void, measured): (Vec<_>, Vec<_>) =
        found.iter().partition(|record| record["status"]["is"] == "void");
    let [void] = void[..] else { bail!("one is void: {found:?}") };
    let reason = void["status"]["reason"].as_str().unwrap_or_default();
    println!("{reason}");
    ensure!(reason.starts_with("wc: its agent has ended"), "{reason}");
    ensure!(measured.len() == 1 && measured[0]["status"]["is"] == "measured", "{measured:?}");
    ssh.nothing_is_left()?;
    let resumed = ["study", "run", "--resume", &out, "--no-report"];
    succeeded(bench.weft(&resumed).env("PATH", &ssh.path))?;
    let again = records(&out)?;
    let is_measured = |record: &&serde_json::Value| record["status"]["is"] == "measured";
    ensure!(again.iter().filter(is_measured).count() == 2, "{again:?}");
    ssh.nothing_is_left()?;

    // A clock that jumps.
    let (jumping, out) = (bench.path("jumping")?, bench.path("jumped")?);
    write_program(&jumping, &JUMPING.replace("WEFT", &weft))?;
    let said = ssh.loads(&out, "wb,wc", &jumping)?.output()?;
    ensure!(!said.status.success(), "a clock has jumped, and nobody says so");
    let found = records(&out)?;
    let reason = found.first().and_then(|record| record["status"]["reason"].as_str());
    let reason = reason.unwrap_or_default();
    println!("{reason}");
    ensure!(reason.starts_with("wb: its clock jumped by 5.0"), "{found:?}");
    ensure!(reason.contains("--resume") && found[0]["status"]["is"] == "void", "{found:?}");
    ssh.nothing_is_left()
}
