//! A target in a process of its own.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use weft_backend::DeviceSpec;
use weft_host::TransportId;
use weft_reactor::DriverKind;
use weft_target::config::identity;

use super::Options;
use crate::{bench::Driver, failure::Failure};

/// How long a target may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A target that is stopped with this value, or with this process, whatever becomes of it.
pub(super) struct TargetProcess {
    child: Child,
    address: TransportId,
    pub(super) device: DeviceSpec,
}

impl TargetProcess {
    /// Starts one with a memory device, and waits until it listens.
    pub(super) fn start(options: &Options, cpu: Option<usize>) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::io("find", &"this program", &error))?;
        let device = DeviceSpec::Memory {
            bytes: options.size,
            block_bytes: weft_backend::BLOCK_BYTES_DEFAULT,
        };
        let nqn = identity::fresh_nqn();
        let mut command = Command::new(program);
        command
            .args(["target", "--listen", "tcp://127.0.0.1:0", "--output-format", "json"])
            .args(["--stop-with-stdin", "--nqn", &nqn, "--device", &device.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(cpu) = cpu {
            command.args(["--cpus", &cpu.to_string()]);
        }
        command.args(["--driver", driver_name(options.driver)]);
        command.env("WEFT_LOG", std::env::var("WEFT_LOG").unwrap_or_else(|_| "warn".to_owned()));
        let mut child =
            command.spawn().map_err(|error| Failure::io("start", &"a target", &error))?;
        let address = match listening(&mut child) {
            Ok(address) => address,
            Err(error) => {
                // It has told its own reasons on standard error.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let (traddr, port) = address;
        let id = TransportId::tcp(&traddr, Some(port)).map_err(Failure::because)?;
        let subnqn = Some(nqn.parse().map_err(Failure::because)?);
        Ok(Self { child, address: TransportId { subnqn, ..id }, device })
    }

    /// How a host reaches it.
    pub(super) fn options(&self, driver: Driver) -> Result<weft_host::Options, Failure> {
        let mut options = weft_host::Options::new(self.address.clone());
        options.reactor.driver = DriverKind::from(driver);
        options.check()?;
        Ok(options)
    }

    /// Stops it in good order.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let step = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while waited < STOP_TIMEOUT {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(Failure::Because(format!("the target ended with {status}")));
                }
                Ok(None) => std::thread::sleep(step),
                Err(error) => return Err(Failure::io("wait for", &"the target", &error)),
            }
            waited += step;
        }
        Err(Failure::because("the target does not stop"))
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn driver_name(driver: Driver) -> &'static str {
    match driver {
        Driver::Auto => "auto",
        Driver::Uring => "uring",
        Driver::Epoll => "epoll",
    }
}

/// Where the target says that it listens.
fn listening(child: &mut Child) -> Result<(String, u16), Failure> {
    let Some(stdout) = child.stdout.take() else {
        return Err(Failure::because("the target has no standard output"));
    };
    let mut line = String::new();
    // One line of JSON; more than this is something else.
    let read = BufReader::new(stdout.take(1 << 20)).read_line(&mut line);
    read.map_err(|error| Failure::io("read from", &"the target", &error))?;
    let said: Value =
        serde_json::from_str(&line).map_err(|_| Failure::because("the target did not start"))?;
    let address = said["ports"][0]["address"].as_str();
    let address = address.and_then(|text| text.parse::<std::net::SocketAddr>().ok());
    let address = address.ok_or_else(|| Failure::because("the target did not say its address"))?;
    Ok((address.ip().to_string(), address.port()))
}
