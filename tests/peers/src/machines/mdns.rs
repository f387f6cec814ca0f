//! Discovery controllers that announce themselves by multicast DNS: weft finds weft's, Debian's
//! avahi finds weft's, and weft finds avahi's.

use super::bench::{Bench, NAMES, PATIENCE, name};
use crate::process::Process;
use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use xtask::packages;
use xtask::python::succeeded;

/// avahi and D-Bus, with their libraries. They are only extracted: installing them would start
/// daemons.
const PACKAGES: &[&str] = &[
    "avahi-daemon",
    "avahi-utils",
    "libavahi-core7",
    "libavahi-common3",
    "libavahi-client3",
    "libdaemon0",
    "dbus-daemon",
    "libdbus-1-3",
    "libapparmor1",
    "libcap-ng0",
    "libaudit1",
];

const BUS: &str = "unix:abstract=weft";

const BUS_CONFIG: &str = r#"
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type><listen>unix:abstract=weft</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>
"#;

const AVAHI_CONFIG: &str = "[server]\nhost-name=peer\nuse-ipv6=no\ndeny-interfaces=lo\n\
                            [publish]\npublish-workstation=no\n";

/// avahi wants a user of its own and a folder below /run, which it has in this namespace alone.
const AVAHI: &str = r#"
mount -t tmpfs none /run && mkdir /run/avahi-daemon || exit
for of in passwd group; do mount --bind "$0/$of" "/etc/$of" || exit; done
exec avahi-daemon --no-drop-root --no-chroot --no-rlimits -f "$0/avahi.conf"
"#;

const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The address of the target's namespace on the first link.
const URL: &str = "tcp://10.77.1.1:8009";

const TOML: &str = "[[port]]\nlisten = \"tcp://0.0.0.0:8009\"\n\
                    [[subsystem]]\nnqn = \"nqn.2024-01.org.example:mdns\"\n\
                    [[subsystem.namespace]]\nmemory = \"1MiB\"\n";

pub(super) fn check(bench: &Bench) -> Result<()> {
    let peer = Peer::new(bench)?;
    let config = bench.path("target.toml")?;
    fs::write(&config, format!("mdns = true\n{TOML}"))?;
    let log = bench.folder.join("target.log");
    let mut target = Process::start(&mut bench.weft(&["target", "--config", &config]), &log)?;
    target.wait_for("listening", PATIENCE)?;

    let (_bus, _avahi) = (peer.bus()?, peer.avahi()?);
    let theirs = "avahi-publish -s other _nvme-disc._tcp 8010 NQN=nqn.2024-01.io.example:cdc p=tcp";
    let mut published = peer.start(theirs, "published.log")?;
    published.wait_for("Established", PATIENCE)?;

    // Who finds them: weft in avahi's namespace, avahi, and weft in the target's own.
    peer.wait_until(true)?;
    let browsed = peer.browsed()?;
    let line = browsed.lines().find(|line| line.contains(";10.77.1.1;8009;"));
    let is_whole = |line: &str| {
        let texts = [format!("\"NQN={DISCOVERY}\""), "\"p=tcp\"".to_owned()];
        texts.iter().all(|text| line.contains(text))
    };
    ensure!(line.is_some_and(is_whole), "avahi does not find weft:\n{browsed}");
    let mut here = bench.weft(&["discover", "--mdns", "-o", "json"]);
    let found: Value = serde_json::from_str(&succeeded(&mut here)?)?;
    let is_theirs = has(&found, "tcp://10.77.1.2:8010", "nqn.2024-01.io.example:cdc");
    ensure!(is_theirs, "weft does not find avahi: {found}");

    // A reload takes it back, another one announces it again, and the end takes it back.
    for mdns in [false, true] {
        fs::write(&config, format!("mdns = {mdns}\n{TOML}"))?;
        target.signal(Signal::HUP)?;
        peer.wait_until(mdns)?;
    }
    target.stop()?;
    peer.wait_until(false)?;
    ensure!(!peer.browsed()?.contains("10.77.1.1"), "avahi was not told of its end");
    Ok(())
}

fn has(found: &Value, url: &str, nqn: &str) -> bool {
    let all = found.as_array().into_iter().flatten();
    all.filter(|one| one["address"] == url).any(|one| one["nqn"] == nqn)
}

/// The namespace of avahi.
struct Peer<'a> {
    bench: &'a Bench,
    /// Where the packages are.
    root: PathBuf,
}

impl<'a> Peer<'a> {
    fn new(bench: &'a Bench) -> Result<Self> {
        let root = packages::extract_all(&bench.root, "avahi", PACKAGES)?;
        for (name, line) in
            [("passwd", "avahi:x:65530:65530::/:/bin/false"), ("group", "avahi:x:65530:")]
        {
            let text = fs::read_to_string(Path::new("/etc").join(name))?;
            fs::write(bench.folder.join(name), format!("{text}{line}\n"))?;
        }
        fs::write(bench.folder.join("bus.conf"), BUS_CONFIG)?;
        fs::write(bench.folder.join("avahi.conf"), AVAHI_CONFIG)?;
        Ok(Self { bench, root })
    }

    /// A program in its namespace, with the extracted packages.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(NAMES[1]), program]);
        let usr = self.root.join("usr");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}/bin:{}/sbin:{path}", usr.display(), usr.display());
        let libraries = format!("{}/lib/{}-linux-gnu", usr.display(), std::env::consts::ARCH);
        command.env("PATH", path).env("LD_LIBRARY_PATH", libraries);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", BUS);
        command
    }

    fn start(&self, words: &str, log: &str) -> Result<Process> {
        let mut words = words.split(' ');
        let mut command = self.command(words.next().unwrap_or_default());
        Process::start(command.args(words), &self.bench.folder.join(log))
    }

    fn bus(&self) -> Result<Process> {
        let config = self.bench.path("bus.conf")?;
        let words = format!("dbus-daemon --nofork --print-address --config-file={config}");
        let mut bus = self.start(&words, "bus.log")?;
        bus.wait_for("unix:abstract", PATIENCE)?;
        Ok(bus)
    }

    fn avahi(&self) -> Result<Process> {
        let mut command = self.command("sh");
        command.args(["-c", AVAHI]).arg(&self.bench.folder);
        let mut avahi = Process::start(&mut command, &self.bench.folder.join("avahi.log"))?;
        avahi.wait_for("Server startup complete", PATIENCE)?;
        Ok(avahi)
    }

    /// What avahi finds, once it has answers.
    fn browsed(&self) -> Result<String> {
        succeeded(self.command("avahi-browse").args(["-rpt", "_nvme-disc._tcp"]))
    }

    /// Waits until weft finds the target here, or does not find it any more.
    fn wait_until(&self, is_there: bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let mut weft = self.command(&self.bench.weft.to_string_lossy());
            let found = succeeded(weft.args(["discover", "--mdns=2s", "-o", "json"]))?;
            if has(&serde_json::from_str(&found)?, URL, DISCOVERY) == is_there {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "announced is not {is_there}: {found}");
        }
    }
}
