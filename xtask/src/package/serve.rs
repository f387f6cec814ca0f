//! A target and a load from a package.

use crate::python::succeeded;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const NQN: &str = "nqn.2014-08.org.example:disk";

/// The host that has a key of TLS.
const HOST: &str = "nqn.2014-08.org.example:package";

/// Serves memory with the target that `weft` starts, and reads it with another process, in the
/// clear and over TLS; both see the files of `root`.
pub(super) fn serve(weft: &Command, root: &Path) -> Result<()> {
    let folder = format!("tmp/weft-package-{}", std::process::id());
    let outside = root.join(&folder);
    fs::create_dir_all(&outside)?;
    let served = serve_from(weft, &format!("/{folder}"), &outside);
    let _ = fs::remove_dir_all(&outside);
    served
}

fn serve_from(weft: &Command, folder: &str, outside: &Path) -> Result<()> {
    let key = format!("{folder}/key");
    succeeded(&mut with(weft, &["key", "generate", "tls", &key]))?;
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"required\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\npsk = [\"{key}\"]\n\
         [[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    );
    fs::write(outside.join("target.toml"), config)?;
    let mut command = with(weft, &["target", "--config", &format!("{folder}/target.toml")]);
    command.args(["--stop-with-stdin", "--output-format", "json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut target = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = target.stdout.take().context("no output")?;
    let read = read_from(weft, &mut BufReader::new(stdout), &key);
    drop(target.stdin.take());
    let status = target.wait()?;
    read?;
    if status.success() { Ok(()) } else { bail!("the target ended with {status}") }
}

/// Reads at both ports of a target.
fn read_from(weft: &Command, said: &mut impl BufRead, key: &str) -> Result<()> {
    let mut line = String::new();
    said.read_line(&mut line)?;
    let said: serde_json::Value =
        serde_json::from_str(&line).context("the target did not start")?;
    for (port, tls) in [(0, &[][..]), (1, &["--tls", "--tls-key-file", key])] {
        let port = said["ports"][port]["address"].as_str().context("no address")?;
        let address = format!("nvme-tcp://{port}/{NQN}");
        let load = ["bench", "--hostnqn", HOST, "--rw", "randread", "--number-ios", "100"];
        succeeded(with(weft, &load).args(tls).arg("--").arg(address))?;
    }
    Ok(())
}

/// The same command with more arguments.
pub(super) fn with(command: &Command, arguments: &[&str]) -> Command {
    let mut more = Command::new(command.get_program());
    more.args(command.get_args()).args(arguments);
    more
}
