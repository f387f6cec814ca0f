//! Debian's Prometheus scrapes a target under load; its numbers equal the load's own. It answers
//! each query of the dashboard, and `promtool` has nothing to say of the metrics and the alerts.

use crate::process::{Process, within};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::python::{self, succeeded};
use xtask::report::Report;
use xtask::{cargo, packages};

const NQN: &str = "nqn.2024-01.org.example:prometheus";
const HOST: &str = "nqn.2024-01.org.example:host";

/// The target: with a limit, so that something waits for it.
const CONFIG: &str = "
[[port]]
listen = \"tcp://127.0.0.1:0\"
[[subsystem]]
nqn = \"nqn.2024-01.org.example:prometheus\"
[[subsystem.namespace]]
memory = \"64MiB\"
[[rate-limit]]
host = \"nqn.2024-01.org.example:host\"
rate-iops = 2000
";

const PROMETHEUS: &str = "
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yml]
scrape_configs: [{job_name: weft, static_configs: [{targets: [\"METRICS\"]}]}]
";

/// Python's own client, which reads OpenMetrics more strictly than Prometheus does.
const CLIENT: &str = "prometheus-client==0.26.0";

const PARSER: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
names = [family.name for family in parse(sys.stdin.read())]
print('\\n'.join(name for name in names if name == 'weft_host_errors'))
";

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs all of it.
pub(crate) fn run(root: &Path, report: &mut Report) {
    let mut programs = None;
    report.check("Prometheus from Debian", || {
        let promtool = packages::extract(root, "prometheus", "promtool")?;
        programs = promtool.parent().map(Path::to_owned);
        Ok(())
    });
    let Some(programs) = programs else { return };
    let monitoring = root.join("monitoring");
    report.check("promtool: each alert fires when it has to", || {
        let mut promtool = Command::new(programs.join("promtool"));
        succeeded(promtool.args(["test", "rules", "alerts.test.yml"]).current_dir(&monitoring))
            .map(drop)
    });
    report.check("Prometheus counts what the load counts, and answers the dashboard", || {
        let folder = cargo::target_folder(root).join("prometheus/run");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(monitoring.join("alerts.yml"), folder.join("alerts.yml"))?;
        let dashboard = std::fs::read_to_string(monitoring.join("dashboard.json"))?;
        scrape(root, &programs, &folder, &serde_json::from_str(&dashboard)?)
    });
}

fn scrape(root: &Path, programs: &Path, folder: &Path, dashboard: &Value) -> Result<()> {
    let weft = cargo::build_binary(root)?;
    let config = folder.join("target.toml");
    std::fs::write(&config, CONFIG)?;
    let mut target = Command::new(&weft);
    target.args(["target", "-o", "json", "--metrics", "0", "--config"]).arg(config);
    let target = Process::start(&mut target, &folder.join("target.log"))?;
    let said = target.said()?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no address");
    let at = text(&said["ports"][0]["address"])?;
    let metrics = text(&said["metrics"])?;
    let metrics = metrics.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();

    let server = free_address()?;
    std::fs::write(folder.join("prometheus.yml"), PROMETHEUS.replace("METRICS", &metrics))?;
    let mut prometheus = Command::new(programs.join("prometheus"));
    prometheus.current_dir(folder).args(["--config.file=prometheus.yml", "--storage.tsdb.path=db"]);
    prometheus.arg(format!("--web.listen-address={server}"));
    let _prometheus = Process::start(&mut prometheus, &folder.join("prometheus.log"))?;
    within(PATIENCE, "Prometheus has scraped the target", || {
        let up = value(&server, "up{job=\"weft\"}")?;
        ensure!(up == Some(1.0), "up is {up:?}");
        Ok(())
    })?;

    let mut load = Command::new(&weft);
    // Seven seconds under the limit. A load that ends by time leaves out what was under way.
    load.args(["bench", "--rw", "randrw", "--iodepth", "64", "--number_ios", "14000"]);
    load.args(["--quiet", "-o", "json", "--hostnqn", HOST]);
    load.arg(format!("nvme-tcp://{at}/{NQN}?nsid=1"));
    let load = load.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    std::thread::sleep(Duration::from_secs(6));
    let answered = answer_dashboard(&server, dashboard);
    let text = metrics_of(&metrics, "")?;
    checked_by(Command::new(programs.join("promtool")).args(["check", "metrics"]), &text, "")?;
    let python = python::install(root, CLIENT, "python3")?.join("python3");
    let open = metrics_of(&metrics, "Accept: application/openmetrics-text\r\n")?;
    checked_by(Command::new(python).args(["-c", PARSER]), &open, "weft_host_errors")?;
    let load = load.wait_with_output()?;
    ensure!(load.status.success(), "the load failed: {}", load.status);
    answered?;
    let load: Value = serde_json::from_slice(&load.stdout)?;
    same_numbers(&server, &load["jobs"][0])
}

/// A program that reads metrics succeeds, and says this.
fn checked_by(program: &mut Command, text: &str, says: &str) -> Result<()> {
    let pipes = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn()?;
    child.stdin.take().context("no input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success() && said.trim() == says, "{program:?}: {said}");
    Ok(())
}

/// Each query of each panel has an answer with numbers.
fn answer_dashboard(server: &str, dashboard: &Value) -> Result<()> {
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let mut queries = 0;
    for panel in panels {
        for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
            let query = target["expr"].as_str().context("no query")?;
            let query = query.replace("$__rate_interval", "4s");
            let query = ["$host", "$subsystem", "$instance"]
                .iter()
                .fold(query, |query, variable| query.replace(variable, ".*"));
            let answer = ask(server, &query)?;
            let series = answer["data"]["result"].as_array().context("no result")?;
            let is_number = |one: &Value| one["value"][1].as_str().is_some_and(|v| v != "NaN");
            ensure!(series.iter().any(is_number), "{}: {query}: {answer}", panel["title"]);
            queries += 1;
        }
    }
    ensure!(queries >= 10, "the dashboard has {queries} queries");
    Ok(())
}

/// What Prometheus has counted is what the load has counted.
fn same_numbers(server: &str, job: &Value) -> Result<()> {
    // A load begins with one read of the first block that it does not count.
    for (command, more) in [("read", 1.0), ("write", 0.0)] {
        let ios = job[command]["total_ios"].as_f64().context("no count")?;
        ensure!(ios > 1000.0, "{command}: {ios} requests");
        let labels = format!("{{host=\"{HOST}\",nsid=\"1\",command=\"{command}\"}}");
        let queries = [
            (format!("weft_host_command_duration_seconds_count{labels}"), ios + more),
            (format!("weft_host_bytes_total{labels}"), (ios + more) * 4096.0),
        ];
        for (query, expected) in queries {
            within(PATIENCE, "Prometheus has the load's numbers", || {
                let found = value(server, &query)?;
                ensure!(
                    found == Some(expected),
                    "{query} is {found:?}, the load counts {expected}"
                );
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// The number that a query has as its only answer.
fn value(server: &str, query: &str) -> Result<Option<f64>> {
    let answer = ask(server, query)?;
    let value = answer["data"]["result"][0]["value"][1].as_str();
    Ok(value.and_then(|value| value.parse().ok()))
}

fn ask(server: &str, query: &str) -> Result<Value> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = get(server, &format!("/api/v1/query?query={encoded}"), "")?;
    let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
    ensure!(answer["status"] == "success", "{query}: {answer}");
    Ok(answer)
}

/// A target's metrics.
fn metrics_of(address: &str, headers: &str) -> Result<String> {
    get(address, "/metrics", headers)
}

/// The body of an answer; HTTP/1.0 has it end with the connection.
pub(crate) fn get(address: &str, path: &str, headers: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n{headers}\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    Ok(body.to_owned())
}

/// An address that was free a moment ago.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
