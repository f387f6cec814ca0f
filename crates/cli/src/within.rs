//! Targets within this process, reached over loopback.

use std::net::SocketAddr;
use std::path::PathBuf;

use weft_backend::DeviceSpec;
use weft_host::{QUEUE_SIZE_MAX, Transport, TransportId};
use weft_lab::study::launch::{self, StartedTarget, TargetSpec};
use weft_lab::study::software::Software;
use weft_reactor::DriverKind;
use weft_rpc::{Address, Client, Methods, Server};
use weft_statistics::GetStatistics;
use weft_target::Target;
use weft_target::config::{
    Config, IDLE_POLL_DEFAULT, Listen, Namespace, Port, Subsystem, identity,
};

/// A target within this process.
#[derive(Debug)]
pub(crate) struct TargetWithin {
    target: Option<Target>,
    address: TransportId,
}

impl TargetWithin {
    /// Starts a target with one poll group that serves a device as namespace 1.
    pub(crate) fn serve(device: &DeviceSpec, driver: DriverKind) -> Result<Self, String> {
        Self::start(&TargetSpec {
            devices: vec![device.clone()],
            subsystems: 1,
            transport: Transport::Loopback,
            link: String::new(),
            cpus: Vec::new(),
            idle_poll: None,
            express: None,
            driver,
            tls: None,
            software: Software::Weft,
        })
    }

    /// Starts a target that serves these devices as namespaces 1, 2 and so on.
    pub(crate) fn start(spec: &TargetSpec) -> Result<Self, String> {
        let nqn = identity::fresh_nqn();
        let mut subsystem = Subsystem::new(nqn.clone());
        let namespaces = (1..).zip(&spec.devices);
        subsystem.namespaces =
            namespaces.map(|(nsid, device)| Namespace::new(nsid, device.clone())).collect();
        let listen = Listen::loopback(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut config = Config {
            ports: vec![Port::new(1, listen)],
            subsystems: vec![subsystem],
            cpus: spec.cpus.clone(),
            idle_poll: spec.idle_poll.unwrap_or(IDLE_POLL_DEFAULT),
            driver: spec.driver,
            ..Config::default()
        };
        config.express = spec.express.unwrap_or(config.express);
        config.limits.queue_entries = QUEUE_SIZE_MAX;
        config.validate().map_err(|error| error.to_string())?;
        let target = Target::start(config).map_err(|error| error.to_string())?;
        let addresses = target.addresses();
        let at = addresses.values().next().ok_or("the target has no listener")?;
        let id = TransportId::tcp(&at.ip().to_string(), Some(at.port()));
        let id = id.map_err(|error| error.to_string())?;
        let subnqn = nqn.parse().map_err(|error| format!("{error}"))?;
        let address = TransportId { transport: Transport::Loopback, subnqn: Some(subnqn), ..id };
        Ok(Self { target: Some(target), address })
    }

    /// Its address, for a host of this process.
    pub(crate) const fn address(&self) -> &TransportId {
        &self.address
    }

    /// Adds a control socket for statistics, as other targets have one.
    pub(crate) fn with_control(self, socket: PathBuf) -> Result<ControlledTarget, String> {
        let watch = self.target.as_ref().map(Target::watch).ok_or("the target has stopped")?;
        let methods = Methods::new().with::<GetStatistics>(move |()| Ok(watch.statistics()));
        let server = Server::start(&Address::Unix(socket), methods, None)
            .map_err(|error| format!("cannot listen on the control socket: {error}"))?;
        Ok(ControlledTarget { target: self, server })
    }

    /// Stops it cleanly.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let stopped = self.target.take().map_or(Ok(()), Target::stop);
        stopped.map_err(|error| error.to_string())
    }
}

/// A target with a control socket.
#[derive(Debug)]
pub(crate) struct ControlledTarget {
    target: TargetWithin,
    server: Server,
}

impl StartedTarget for ControlledTarget {
    fn address(&self) -> &TransportId {
        &self.target.address
    }

    fn control(&self) -> Result<Client, String> {
        launch::control(self.server.address())
    }

    /// It does not end before this process.
    fn ended(&mut self) -> Option<String> {
        None
    }

    fn stop(self: Box<Self>) -> Result<(), String> {
        let Self { target, server } = *self;
        drop(server);
        target.stop()
    }
}
