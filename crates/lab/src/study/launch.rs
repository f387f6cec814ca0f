//! The interface through which a study starts targets; the caller implements it.

use std::net::IpAddr;
use std::time::Duration;

use weft_backend::DeviceSpec;
use weft_host::{Options, Transport, TransportId};
use weft_reactor::DriverKind;
use weft_rpc::machine::Machine;
use weft_rpc::{Address, Client, Token};

use super::software::Software;

/// How long a target may take to answer on its control connection.
pub(super) const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// TLS of the connections to a target that a study starts, with keys that are made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// A shared key, for this cipher suite.
    Aes128Gcm,
    /// The same for this one.
    Aes256Gcm,
    /// Keys that an authentication makes (secure concatenation).
    Concatenation,
}

impl Tls {
    /// The names in plans and results; the first is that of none.
    pub(super) const NAMES: [&str; 4] = ["off", "aes-128-gcm", "aes-256-gcm", "concatenation"];

    /// The one of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "aes-128-gcm" => Some(Self::Aes128Gcm),
            "aes-256-gcm" => Some(Self::Aes256Gcm),
            "concatenation" => Some(Self::Concatenation),
            _ => None,
        }
    }
}

/// A target that a study starts.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// What it serves, as namespaces 1, 2 and so on of its subsystem.
    pub devices: Vec<DeviceSpec>,
    /// Subsystems that serve such devices, each devices of its own; of weft's the launcher starts
    /// the first.
    pub subsystems: u32,
    /// Its transport. Over loopback it runs within this process.
    pub transport: Transport,
    /// The link at whose address it listens; empty: at any address that its hosts reach.
    pub link: String,
    /// A poll group on each of these processors; empty: one, not pinned.
    pub cpus: Vec<usize>,
    /// How long it polls for commands before it sleeps, if not its default.
    pub idle_poll: Option<Duration>,
    /// Whether it has express queues for what has no rule, if not its default.
    pub express: Option<bool>,
    /// The driver of its reactors.
    pub driver: DriverKind,
    /// TLS of all connections to it, over TCP; none: they are in the clear.
    pub tls: Option<Tls>,
    /// What it is.
    pub software: Software,
}

impl TargetSpec {
    /// One that holds a device, which is driven inside it.
    pub(super) fn holding(device: DeviceSpec, driver: DriverKind) -> Self {
        Self {
            devices: vec![device],
            subsystems: 1,
            transport: Transport::Tcp,
            link: String::new(),
            cpus: Vec::new(),
            idle_poll: Some(Duration::ZERO),
            express: None,
            driver,
            tls: None,
            software: Software::Weft,
        }
    }
}

/// Starts targets.
pub trait Launcher {
    /// Starts one in a process of its own, unless it is reached over loopback, and waits until it
    /// listens: at `listen`, or else at an address that hosts on its machine reach.
    ///
    /// # Errors
    /// One sentence that says why it does not.
    fn launch(
        &self,
        spec: &TargetSpec,
        listen: Option<IpAddr>,
    ) -> Result<Box<dyn StartedTarget>, String>;
}

/// A target that was started. Dropping it kills it.
pub trait StartedTarget: Send {
    /// The address of its subsystem.
    fn address(&self) -> &TransportId;

    /// How a host connects to it: with keys, if the target wants TLS.
    fn options(&self) -> Options {
        Options::new(self.address().clone())
    }

    /// Those of all subsystems, if it has made them itself; else that of the first.
    fn addresses(&self) -> Vec<TransportId> {
        vec![self.address().clone()]
    }

    /// Whether it has a control interface.
    fn has_control(&self) -> bool {
        true
    }

    /// A connection to its control interface, for statistics and loads inside it.
    ///
    /// # Errors
    /// One sentence that says why there is none.
    fn control(&self) -> Result<Client, String>;

    /// The counters of its machine and when they were read, of one without a control interface.
    ///
    /// # Errors
    /// One sentence that says why they cannot be read.
    fn machine(&self) -> Result<Option<(Duration, Machine)>, String> {
        Ok(None)
    }

    /// Whether it may run on another machine, which this one need not reach.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Why it has ended, if it has.
    fn ended(&mut self) -> Option<String>;

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// One sentence with the reason.
    fn stop(self: Box<Self>) -> Result<(), String>;
}

/// Connects to the control interface of a target of this machine.
///
/// # Errors
/// One sentence that names the address.
pub fn control(address: &Address) -> Result<Client, String> {
    Client::connect(address, None, CONTROL_TIMEOUT)
        .map_err(|error| format!("control connection {address}: {error}"))
}

/// A target that was running before the study.
#[derive(Clone, Debug)]
pub struct GivenTarget {
    /// How a host connects to it: its address, optionally with a namespace, and the host's name and
    /// keys.
    pub options: Options,
    /// Its control address, if it has one.
    pub control: Option<Address>,
    /// The token sent to it over TCP.
    pub token: Option<Token>,
}
