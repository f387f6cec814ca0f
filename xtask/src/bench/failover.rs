//! How long a host waits when the path that it uses ends and another one is there.

use super::experiment::{Metric, PathEnd, Sample};
use super::process::{Folder, Program, Target, words};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

const NQN: &str = "nqn.2024-01.org.example:failover";

/// How long the load runs, and when the path ends.
const RUNTIME: Duration = Duration::from_secs(6);
const UNTIL_END: Duration = Duration::from_secs(3);

/// Two targets serve one file as one subsystem. A host reads and writes by the first, which ends.
/// Both longest requests are printed; the sample has the longer one.
pub(crate) fn sample(program: &Program, end: PathEnd) -> Result<Sample> {
    let folder = Folder::new("failover")?;
    let disk = folder.0.join("disk");
    File::create(&disk)?.set_len(16 << 20)?;
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o666))?;
    let start = |number: u16| -> Result<Target> {
        let config = folder.0.join(format!("target{number}.toml"));
        fs::write(&config, configuration(number, &disk))?;
        let config = config.to_str().context("a path of text")?.to_owned();
        let mut arguments = words(&["target", "--config", &config, "--stop-with-stdin"]);
        arguments.extend(words(&["--control", "tcp://127.0.0.1:0", "--output-format", "json"]));
        Target::start(program, &arguments, None)
    };
    let (first, second) = (start(1)?, start(2)?);
    let place = |target: &Target| -> Result<String> {
        let rest = target.address.strip_prefix("nvme-tcp://").context("an address of TCP")?;
        Ok(rest.split('/').next().unwrap_or_default().to_owned())
    };
    let (one, two) = (place(&first)?, place(&second)?);
    let address = format!("nvme-tcp://{one},{two}/{NQN}?nsid=1");
    let mut arguments = words(&["bench", &address, "--output-format", "json", "--quiet"]);
    arguments.extend(words(&["--rw", "randrw", "--bs", "4k", "--iodepth", "8"]));
    arguments.extend(words(&["--time_based", "--runtime", &format!("{}s", RUNTIME.as_secs())]));
    let mut load = program.command(&arguments, None);
    let load = load.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    sleep(UNTIL_END);
    match end {
        PathEnd::Death => first.kill()?,
        PathEnd::Command => {
            let url = format!("tcp://{one}");
            let control = first.control.as_deref().context("no control socket")?;
            let set = ["ctl", "--control", control, "ana", "set", NQN, &url, "inaccessible"];
            let mut set = program.command(&words(&set), None);
            ensure!(set.stdout(Stdio::null()).status()?.success(), "the state cannot be set");
        }
    }
    let ended = load.wait_with_output()?;
    ensure!(ended.status.success(), "the host saw an error: {}", ended.status);
    let said: Value = serde_json::from_slice(&ended.stdout)?;
    let longest = |side: &str| -> Result<f64> {
        let max = said["jobs"][0][side]["lat_ns"]["max"].as_f64();
        Ok(max.with_context(|| format!("no longest {side}"))? / 1e6)
    };
    let (read, write) = (longest("read")?, longest("write")?);
    println!("    the longest read {read:.1} ms, the longest write {write:.1} ms");
    if said["jobs"][0]["error"] != 0 {
        bail!("the host saw an error: {}", said["jobs"][0]["error"]);
    }
    Ok(Sample::from([(Metric::Milliseconds, read.max(write))]))
}

/// Both serve the same subsystem; hosts prefer the first.
fn configuration(number: u16, disk: &Path) -> String {
    let state = if number == 1 { "optimized" } else { "non-optimized" };
    format!(
        "[[port]]\nid = {number}\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[port.ana]]\nstate = \"{state}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nana-reporting = true\n\
         cntlid-min = {}\ncntlid-max = {}\n\
         [[subsystem.namespace]]\nfile = \"{}\"\nshared = true\n",
        number * 100,
        number * 100 + 99,
        disk.display()
    )
}
