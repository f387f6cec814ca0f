//! Paths that a discovery controller lists, now and later.
//!
//! A thread keeps a discovery controller and reads its log page whenever that has changed, or when
//! it is connected again. A port that is new becomes a path. One that is listed no longer is
//! disconnected as soon as another path that is listed can be used: a discovery controller that has
//! just started, and lists nothing yet, takes no path away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use weft_nvmf::host::{Event, TransportId, discovery};

use super::Group;
use crate::controller::{Controller, connect_discovery};
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::shared::ControllerState;

/// A search that goes on until it is stopped.
#[derive(Debug)]
pub(super) struct Search {
    common: Arc<Common>,
    thread: Thread,
}

/// What the thread shares with who stops it.
#[derive(Debug, Default)]
struct Common(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    discovery: Option<Arc<Controller>>,
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Its state is valid even if a panic poisoned it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }
}

/// The options of the discovery controllers at the addresses of these.
fn of_discovery(options: &Options) -> Options {
    let mut discovery = options.clone();
    discovery.address.subnqn = None;
    discovery.multipath = false;
    // Another endpoint may list the paths when this one is lost.
    discovery.ctrl_loss_tmo = Some(Duration::ZERO);
    discovery
}

/// The ports by which a discovery controller reaches the subsystem of the options.
fn listed(controller: &Controller, options: &Options) -> Result<Vec<TransportId>, Error> {
    let log = controller.discovery_log()?;
    let ports = log.entries.iter().filter(|entry| !discovery::is_referral(entry));
    let ports = ports.filter_map(|entry| discovery::transport_id(entry).ok());
    let mut listed: Vec<TransportId> = Vec::new();
    for port in ports.filter(|port| port.subnqn == options.address.subnqn) {
        if !listed.contains(&port) {
            listed.push(port);
        }
    }
    Ok(listed)
}

/// The ports of the subsystem, with the discovery controller that lists them.
fn first(options: &Options) -> Result<(Vec<TransportId>, Controller), Error> {
    options.check()?;
    let controller = connect_discovery(&of_discovery(options))?;
    let ports = listed(&controller, options)?;
    if ports.is_empty() {
        let name = options.address.subnqn.as_ref().map_or("", |nqn| nqn.as_str());
        let at = &controller.shared().options.address;
        return Err(Error::Invalid(format!("{at} lists no port of {name} for this host")));
    }
    Ok((ports, controller))
}

/// The ports that a discovery controller lists now.
pub(crate) fn ports(options: &Options) -> Result<Vec<TransportId>, Error> {
    let (ports, controller) = first(options)?;
    controller.disconnect()?;
    Ok(ports)
}

impl Search {
    /// Makes paths of the ports that are listed, and of those that will be.
    pub(super) fn start(options: &Options, group: &Arc<Group>) -> Result<Self, Error> {
        let (ports, controller) = first(options)?;
        group.set_ports(&ports, true)?;
        let discovery = Some(Arc::new(controller));
        let common = Arc::new(Common(Mutex::new(State { is_stopped: false, discovery })));
        let (options, group, seen) = (options.clone(), Arc::clone(group), Arc::clone(&common));
        let run = move || {
            while !seen.is_stopped() {
                search(&options, &group, &seen);
            }
        };
        let thread = std::thread::Builder::new().name("weft-paths".into()).spawn(run);
        let thread = thread
            .map_err(|error| Error::Invalid(format!("cannot start a thread: {error}")))?
            .thread()
            .clone();
        Ok(Self { common, thread })
    }
}

impl Drop for Search {
    /// The thread ends by itself, and with it a path that it has added meanwhile. It is not waited
    /// for: it may be connecting.
    fn drop(&mut self) {
        let mut state = self.common.lock();
        state.is_stopped = true;
        if let Some(controller) = &state.discovery {
            controller.end();
        }
        self.thread.unpark();
    }
}

/// Follows the log page of a discovery controller until that is lost.
fn search(options: &Options, group: &Group, common: &Common) {
    let known = common.lock().discovery.clone();
    let (controller, mut is_read) = match known {
        Some(controller) => (controller, true),
        None => match connect_discovery(&of_discovery(options)).map(Arc::new) {
            Ok(controller) => {
                common.lock().discovery = Some(Arc::clone(&controller));
                (controller, false)
            }
            Err(error) => {
                log::info!("no discovery controller: {error}");
                return std::thread::park_timeout(options.reconnect_delay);
            }
        },
    };
    let mut ports = Vec::new();
    while !common.is_stopped() {
        if !is_read {
            match listed(&controller, options) {
                Ok(now) => ports = now,
                Err(error) => {
                    log::warn!("the discovery log page cannot be read: {error}");
                    std::thread::park_timeout(options.reconnect_delay);
                    break;
                }
            }
        }
        if common.is_stopped() {
            break;
        }
        let is_settled = ports.is_empty() || set_ports(group, &ports, !is_read);
        let patience = if is_settled { limits::LOG_REREAD } else { limits::UNLISTED_POLL };
        match controller.next_event(patience) {
            Some(Event::DiscoveryChanged) => is_read = false,
            Some(_) => is_read = true,
            None if matches!(controller.state(), ControllerState::Ended(_)) => break,
            // Whatever was missed.
            None => is_read = !is_settled,
        }
    }
    common.lock().discovery = None;
}

fn set_ports(group: &Group, ports: &[TransportId], are_new: bool) -> bool {
    group.set_ports(ports, are_new).unwrap_or_else(|error| {
        log::warn!("a path cannot be added: {error}");
        true
    })
}
