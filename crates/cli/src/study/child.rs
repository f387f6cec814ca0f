//! Target processes for studies; over loopback a target within this process.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use weft_host::{Options, QUEUE_SIZE_MAX, Transport, TransportId};
use weft_lab::environment;
use weft_lab::study::launch::{self, Launcher, StartedTarget, TargetSpec};
use weft_lab::study::linux::Linux;
use weft_lab::study::software::Software;
use weft_rpc::{Address, Client};
use weft_target::config::identity;

use super::keys::Keys;
use crate::limits::CHILD_STOP_TIMEOUT;
use crate::within::TargetWithin;

/// Starts this program as a target process; over loopback a target within this process; or the
/// kernel's target or SPDK's.
#[derive(Debug)]
pub(crate) struct Children {
    started: AtomicU32,
    linux: Arc<Linux>,
}

impl Children {
    /// Those of a process, and targets of this kernel.
    pub(crate) fn new(linux: &Arc<Linux>) -> Self {
        Self { started: AtomicU32::new(0), linux: Arc::clone(linux) }
    }
}

/// A target process that ends with this value, or with this process.
#[derive(Debug)]
struct TargetProcess {
    child: Child,
    address: TransportId,
    control: Address,
    socket: PathBuf,
    /// Of a target whose connections have TLS.
    keys: Option<Keys>,
}

impl Launcher for Children {
    fn launch(
        &self,
        spec: &TargetSpec,
        at: Option<IpAddr>,
    ) -> Result<Box<dyn StartedTarget>, String> {
        if spec.software != Software::Weft {
            return self.linux.start_target(spec, at);
        }
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-study-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        if spec.transport == Transport::Loopback {
            return Ok(Box::new(TargetWithin::start(spec)?.with_control(socket)?));
        }
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot determine the path of this program: {error}"))?;
        let nqn = identity::fresh_nqn();
        let listen = listen(spec.transport, at)?;
        let mut command = Command::new(program);
        command.args(["target", "--output-format", "json", "--stop-with-stdin"]);
        let keys = spec.tls.map(|tls| Keys::new(tls, socket.with_extension("keys"))).transpose()?;
        match &keys {
            Some(keys) => {
                command.arg("--config").arg(keys.configure(spec, &listen, &nqn)?);
            }
            None => {
                command.args(["--listen", &listen, "--nqn", &nqn]);
                for device in &spec.devices {
                    command.args(["--device", &device.to_string()]);
                }
            }
        }
        command
            .args(["--queue-size", &QUEUE_SIZE_MAX.to_string()])
            .args(["--loads", "--control", &format!("unix:{}", socket.display())])
            // A study measures at the host: the target's own measuring would be part of it.
            .args(["--metrics-pairs", "0"])
            .args(["--driver", spec.driver.name()]);
        if !spec.cpus.is_empty() {
            let cpus: Vec<String> = spec.cpus.iter().map(ToString::to_string).collect();
            command.args(["--cpus", &cpus.join(",")]);
        }
        if let Some(idle_poll) = spec.idle_poll {
            command.args(["--idle-poll", &weft_backend::duration::exact(idle_poll)]);
        }
        if let Some(express) = spec.express {
            command.args(["--express", &express.to_string()]);
        }
        command.env("WEFT_LOG", std::env::var("WEFT_LOG").unwrap_or_else(|_| "warn".to_owned()));
        // Ctrl-C is handled by this process, which stops its targets cleanly.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("cannot start a target: {error}"))?;
        // From here on the process is stopped on any error.
        let nowhere = TransportId::tcp("127.0.0.1", None).map_err(|error| error.to_string())?;
        let control = Address::Unix(socket.clone());
        let mut process = TargetProcess { child, address: nowhere, control, socket, keys };
        let (traddr, port) = listening(&mut process.child)?;
        let id = TransportId::tcp(&traddr, Some(port)).map_err(|error| error.to_string())?;
        let subnqn = nqn.parse().map_err(|error| format!("{error}"))?;
        process.address = TransportId { transport: spec.transport, subnqn: Some(subnqn), ..id };
        Ok(Box::new(process))
    }
}

impl StartedTarget for TargetProcess {
    fn address(&self) -> &TransportId {
        &self.address
    }

    fn options(&self) -> Options {
        let options = Options::new(self.address.clone());
        match &self.keys {
            Some(keys) => keys.give(options),
            None => options,
        }
    }

    fn control(&self) -> Result<Client, String> {
        launch::control(&self.control)
    }

    fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("the target ended with {status}")),
            Err(error) => Some(format!("cannot wait for the target: {error}")),
        }
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        drop(self.child.stdin.take());
        let step = Duration::from_millis(2);
        let mut waited = Duration::ZERO;
        while waited < CHILD_STOP_TIMEOUT {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the target ended with {status}")),
                Ok(None) => std::thread::sleep(step),
                Err(error) => return Err(format!("cannot wait for the target: {error}")),
            }
            waited += step;
        }
        Err("the target does not stop".to_owned())
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // A target that stopped cleanly has removed its socket.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The address on which a target listens. An RDMA device has no loopback address.
fn listen(transport: Transport, at: Option<IpAddr>) -> Result<String, String> {
    if transport != Transport::Rdma {
        let at = at.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        return Ok(format!("tcp://{}", SocketAddr::new(at, 0)));
    }
    let address = at.or_else(environment::rdma_address);
    let address = address.ok_or("no RDMA device has an IP address")?;
    Ok(format!("rdma://{}", SocketAddr::new(address, 0)))
}

/// The address that the target reports.
fn listening(child: &mut Child) -> Result<(String, u16), String> {
    let stdout = child.stdout.take().ok_or("the target has no standard output")?;
    let mut line = String::new();
    // One line of JSON, within a bound.
    BufReader::new(stdout.take(1 << 20))
        .read_line(&mut line)
        .map_err(|error| format!("cannot read from the target: {error}"))?;
    // Without a line the reason is on standard error.
    let said: Value =
        serde_json::from_str(&line).map_err(|_| "the target did not start".to_owned())?;
    let address = said["ports"][0]["address"].as_str();
    let address = address.and_then(|text| text.parse::<std::net::SocketAddr>().ok());
    let address = address.ok_or("the target reported no address")?;
    Ok((address.ip().to_string(), address.port()))
}
