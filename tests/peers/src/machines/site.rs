//! Studies over links that a site file names.

use super::bench::{Bench, NAMES, PATIENCE, ip, name};
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};
use xtask::python::succeeded;

impl Bench {
    /// Writes the site of target and first load: two links, and one whose ends are on different
    /// ones.
    fn site(&self) -> Result<String> {
        let machine = |machine: &str, of: &str, host: u32, crossed: u32| {
            let place = format!("exec:ip netns exec {} {} agent", name(of), self.weft.display());
            format!(
                "[machines.{machine}]\nplace = \"{place}\"\nlinks = {{ \
                 fast = \"10.77.1.{host}\", slow = \"10.77.3.{host}\", \
                 crossed = \"10.77.{crossed}.{host}\" }}\n"
            )
        };
        let path = self.path("site.toml")?;
        let machines =
            [machine("server", NAMES[0], 1, 1), machine("client", NAMES[1], 2, 3)].concat();
        fs::write(&path, format!("target = \"server\"\nloads = [\"client\"]\n{machines}"))?;
        Ok(path)
    }
}

/// The records of a run.
pub(super) fn records(out: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(Path::new(out).join("results.jsonl"))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The only sentence that a command says, which has failed.
pub(super) fn refusal(command: &mut Command) -> Result<String> {
    let said = command.output()?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(!said.status.success(), "it did not fail");
    ensure!(text.trim_end().lines().count() == 1, "not one sentence: {text}");
    Ok(text)
}

pub(super) fn links(bench: &Bench) -> Result<()> {
    let (site, out) = (bench.site()?, bench.path("out")?);
    let axes = "transport = [\"tcp@fast\", \"tcp@slow\", \"tcp@absent\", \"rdma@fast\"]";
    succeeded(&mut bench.study_of(axes, &out, &["--site", &site])?)?;
    let probed: Value =
        serde_json::from_slice(&fs::read(Path::new(&out).join("environment.json"))?)?;
    for link in ["fast", "slow"] {
        let probes = probed["link"].as_array().context("no probes")?;
        let mut own = probes.iter().filter(|probe| probe["connection"]["link"] == link);
        let stream = own.next().and_then(|probe| probe["stream_bytes_per_s"].as_f64());
        ensure!(stream > Some(1e6), "the raw link {link}: {stream:?}");
    }
    let records = records(&out)?;
    let of = |transport: &str| {
        let mut found = records.iter();
        found
            .find(|record| record["configuration"]["transport"] == transport)
            .with_context(|| format!("no record of {transport}"))
    };
    for (transport, link, network) in [("tcp@fast", "fast", 1), ("tcp@slow", "slow", 3)] {
        let record = of(transport)?;
        ensure!(record["status"]["is"] == "measured", "{transport}: {}", record["status"]);
        let connection = &record["connection"];
        ensure!(connection["link"] == link && connection["protocol"] == "tcp", "{connection}");
        for (end, host) in [("target", 1), ("host", 2)] {
            let address = connection[end].as_str().unwrap_or_default();
            let expected = format!("10.77.{network}.{host}:");
            ensure!(address.starts_with(&expected), "{connection}");
        }
        ensure!(record["read"]["requests"].as_u64() > Some(0), "{record}");
        let command = record["command"].as_str().unwrap_or_default();
        ensure!(command.contains(&format!("--site {site}")), "{command}");
    }
    for (transport, reason) in
        [("tcp@absent", "no link absent"), ("rdma@fast", "no RDMA device has the address")]
    {
        let status = &of(transport)?["status"];
        let said = status["reason"].as_str().unwrap_or_default();
        ensure!(status["is"] == "skipped" && said.contains(reason), "{status}");
    }
    let axes = "transport = [\"tcp@crossed\"]";
    let said = refusal(&mut bench.study_of(axes, &bench.path("no")?, &["--site", &site])?)?;
    ensure!(said.contains("crossed has its ends in two networks, 10.77.1.1/24 at"), "{said}");
    others(bench, &site)
}

/// The raw link as a study, and a device of the target's machine that is written first.
fn others(bench: &Bench, site: &str) -> Result<()> {
    let short = ["--quick", "--runtime", "300ms", "--ramp-time", "100ms", "--repeats", "1"];
    let run = |study: &str, out: &str, words: &[&str]| {
        let fixed = ["study", "run", study, "--site", site, "--out", out, "--no-report"];
        succeeded(&mut bench.weft(&[&fixed, &short[..], words].concat()))
    };
    let out = bench.path("raw")?;
    let only = "depth=1,host_polling=sleep,block_bytes=4KiB";
    run("link-probe", &out, &["--set", "transport=tcp@fast", "--only", only])?;
    let found = records(&out)?;
    let [probe] = &found[..] else { anyhow::bail!("{} records", found.len()) };
    ensure!(probe["status"]["is"] == "measured", "{}", probe["status"]);
    ensure!(probe["connection"]["link"] == "fast", "{}", probe["connection"]);
    ensure!(probe["read"]["requests"].as_u64() > Some(10), "{}", probe["read"]);
    let (out, path) = (bench.path("written")?, bench.path("disk.img")?);
    fs::File::create(&path)?.set_len(8 << 20)?;
    let device = ["--local", &path, "--yes-destroy", &path];
    let first = ["--precondition", "--precondition-limit", "200ms"];
    let links = ["--set", "transport=local,tcp@fast"];
    run("local-vs-remote", &out, &[&device[..], &first, &links].concat())?;
    for record in records(&out)? {
        ensure!(record["status"]["is"] == "measured", "{}: {}", record["cell"], record["status"]);
    }
    let notes = fs::read_to_string(Path::new(&out).join("environment.json"))?;
    ensure!(notes.contains("the device was filled twice"), "{notes}");
    Ok(())
}

fn mtu(of: &str, interface: &str) -> Result<u64> {
    let text = ip(&["-j", "-n", &name(of), "link", "show", interface])?;
    let found: Value = serde_json::from_str(&text)?;
    found[0]["mtu"].as_u64().context("no MTU")
}

/// Waits until an interface has an MTU.
fn await_mtu(of: &str, interface: &str, wanted: u64) -> Result<()> {
    let begin = Instant::now();
    loop {
        let now = mtu(of, interface)?;
        if now == wanted {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "{interface} has MTU {now}, not {wanted}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn tso(of: &str, interface: &str) -> Result<bool> {
    let namespace = name(of);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace, "ethtool", "-k", interface]);
    Ok(succeeded(&mut command)?.contains("tcp-segmentation-offload: on"))
}

/// The journals of knobs on this machine.
pub(super) fn journals() -> Vec<String> {
    let entries = fs::read_dir("/run/weft-study").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("knobs-")).collect()
}

pub(super) fn check(bench: &Bench) -> Result<()> {
    let site = bench.site()?;
    ip(&["-n", &name(NAMES[1]), "link", "set", "far3", "mtu", "1400"])?;
    let file = bench.path("found.json")?;
    let words = ["site", "check", "--site", &site, "--output", &file];
    let said = bench.weft(&words).output()?;
    ensure!(!said.status.success(), "a link of two networks was not refused");
    let text = String::from_utf8(said.stdout)?;
    for part in [
        "slow: the MTU is 1400 at client and 1500 at server",
        "crossed: client to server does not work: 10.77.3.2/24 and 10.77.1.1/24 are in two",
    ] {
        ensure!(text.contains(part), "no {part:?} in {text}");
    }
    let found: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    let all = |key: &str, link: &str| -> Vec<Value> {
        let found = found[key].as_array().cloned().unwrap_or_default();
        found.into_iter().filter(|one| one["link"] == link).collect()
    };
    for (link, interfaces) in [("fast", ["far1", "near1"]), ("slow", ["far3", "near3"])] {
        let ends = all("ends", link);
        let names: Vec<&str> =
            ends.iter().filter_map(|end| end["end"]["interface"].as_str()).collect();
        ensure!(names == interfaces, "{ends:?}");
        let is_described = |end: &Value| end["ethtool"]["tcp-segmentation-offload"] == "on";
        ensure!(ends.iter().all(is_described), "{ends:?}");
        let ways = all("ways", link);
        ensure!(ways.len() == 2, "{ways:?}");
        for way in ways {
            let number = |key: &str| way[key].as_f64().unwrap_or_default();
            ensure!(number("round_trip_ns") > 0.0 && number("bytes_per_s") > 0.0, "{way}");
            ensure!(number("through_interface") > 0.5 * number("bytes_per_s"), "{way}");
        }
    }
    // Without the link that has a fault there is none.
    let text = fs::read_to_string(&site)?;
    let text =
        text.replace(", crossed = \"10.77.1.1\"", "").replace(", crossed = \"10.77.3.2\"", "");
    fs::write(&site, text)?;
    let said = succeeded(&mut bench.weft(&["site", "check", "--site", &site]))?;
    ensure!(!said.contains("does not work"), "{said}");
    Ok(())
}

pub(super) fn knobs(bench: &Bench) -> Result<()> {
    let (site, out, before) = (bench.site()?, bench.path("out")?, journals());
    let axes = "transport = [\"tcp@slow\"]\nmtu = [1400, 9000]\ntso = [\"off\"]\nrps = [\"all\"]\n\
                congestion_control = [\"reno\"]";
    succeeded(&mut bench.study_of(axes, &out, &["--site", &site])?)?;
    let found = records(&out)?;
    ensure!(found.len() == 2, "{} records", found.len());
    for record in found {
        ensure!(record["status"]["is"] == "measured", "{}", record["status"]);
        let wanted = record["configuration"]["mtu"].to_string();
        for role in ["target", "load"] {
            let knobs = record["knobs"].as_array().context("no knobs")?;
            let of = |knob: &str| {
                let mut own = knobs.iter().filter(|one| one["role"] == role);
                let found = own.find(|one| one["knob"] == knob);
                let text = |key: &str| {
                    found.and_then(|one| one[key].as_str()).unwrap_or_default().to_owned()
                };
                (text("before"), text("value"))
            };
            ensure!(of("mtu") == ("1500".to_owned(), wanted.clone()), "{knobs:?}");
            ensure!(of("tso") == ("on".to_owned(), "off".to_owned()), "{knobs:?}");
            ensure!(of("congestion_control").1 == "reno", "{knobs:?}");
            ensure!(of("rps").0 == "0" || of("rps").0.starts_with("00"), "{knobs:?}");
        }
    }
    let lro = "transport = [\"tcp@slow\"]\nmtu = [1400]\nlro = [\"on\"]";
    let refused = bench.path("refused")?;
    succeeded(&mut bench.study_of(lro, &refused, &["--site", &site])?)?;
    let found = records(&refused)?;
    let reason = found.first().and_then(|record| record["status"]["reason"].as_str());
    let reason = reason.unwrap_or_default();
    ensure!(reason.contains("lro on cannot be set: ethtool -K near3 lro: "), "{found:?}");
    for (of, interface) in [(NAMES[0], "near3"), (NAMES[1], "far3")] {
        ensure!(mtu(of, interface)? == 1500 && tso(of, interface)?, "{interface} is changed");
    }
    ensure!(journals() == before, "a journal is left: {:?}", journals());
    Ok(())
}

/// A study that runs for long, with knobs.
struct LongStudy(Process);

impl LongStudy {
    fn start(bench: &Bench, site: &str, out: &str) -> Result<Self> {
        let axes = "transport = [\"tcp@slow\"]\nmtu = [1400]";
        let mut command = bench.study_of(axes, out, &["--site", site, "--runtime", "60s"])?;
        let long = Self(Process::start(&mut command, &bench.folder.join("long.log"))?);
        for (of, interface) in [(NAMES[0], "near3"), (NAMES[1], "far3")] {
            await_mtu(of, interface, 1400)?;
        }
        Ok(long)
    }

    /// Waits until it has ended, since one of its agents has.
    fn end(mut self) -> Result<()> {
        self.0.wait(PATIENCE).map(drop).context("the study goes on without its agent")
    }
}

/// Kills the agents of a namespace, and their watchdogs, too, if that is wanted.
fn kill(of: &str, watchdogs: bool) -> Result<()> {
    let pids = ip(&["netns", "pids", &name(of)])?;
    let mut killed = Vec::new();
    for watched in [true, false] {
        for pid in pids.lines() {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            let is_watchdog = words.contains("--watch");
            if words.contains("agent") && is_watchdog == watched && (watchdogs || !watched) {
                succeeded(Command::new("kill").args(["-KILL", pid]))?;
                killed.push(is_watchdog);
            }
        }
    }
    let expected: &[bool] = if watchdogs { &[true, false] } else { &[false] };
    ensure!(killed == expected, "{} processes were killed", killed.len());
    Ok(())
}

pub(super) fn killed(bench: &Bench) -> Result<()> {
    let (site, before) = (bench.site()?, journals());
    let long = LongStudy::start(bench, &site, &bench.path("one")?)?;
    kill(NAMES[1], false)?;
    await_mtu(NAMES[1], "far3", 1500).context("its watchdog")?;
    long.end()?;
    await_mtu(NAMES[0], "near3", 1500).context("the agent that lives")?;
    ensure!(journals() == before, "a journal is left: {:?}", journals());
    let long = LongStudy::start(bench, &site, &bench.path("two")?)?;
    kill(NAMES[1], true)?;
    long.end()?;
    await_mtu(NAMES[0], "near3", 1500).context("the agent that lives")?;
    ensure!(mtu(NAMES[1], "far3")? == 1400, "nobody was there to put it back");
    let said = succeeded(&mut bench.weft(&["site", "restore", "--site", &site]))?;
    ensure!(said.contains("left by an earlier run: /sys/class/net/far3/mtu 1500"), "{said}");
    ensure!(mtu(NAMES[1], "far3")? == 1500, "it is not put back");
    ensure!(journals() == before, "a journal is left: {:?}", journals());
    let said = succeeded(&mut bench.weft(&["site", "restore", "--site", &site]))?;
    ensure!(said == "nothing is left changed\n", "{said}");
    Ok(())
}
