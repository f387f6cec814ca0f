//! The discovery controllers that are asked for ports: the one of the options, and those that it
//! and others refer to.
//!
//! A target may list only some of its ports at each (Linux' lists the one that was asked) and refer
//! to the others. Each discovery controller is asked once, and kept: it tells of changes.
//! What it has listed counts until it is read again, or nothing that counts refers to it any more,
//! so one that cannot be asked for a while takes no port away.

use std::thread::Thread;
use std::time::Duration;

use weft_nvme::Nqn;
use weft_nvme::log_page::SubsystemType;
use weft_nvmf::host::{ControllerKind, Event, Transport, TransportId, discovery};
use weft_reactor::system::monotonic_time;

use crate::controller::{Controller, connect_discovery};
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::shared::ControllerState;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Of each controller, but for the address.
    options: Options,
    /// Whose ports are meant; of all if there is none.
    subsystem: Option<Nqn>,
    /// The first is that of the options.
    all: Vec<Source>,
    /// Who is woken when there is something to do.
    waiter: Option<Thread>,
}

#[derive(Debug)]
struct Source {
    /// Where it is; that of the options at any of them.
    endpoints: Vec<TransportId>,
    /// The endpoint that is tried next.
    next: usize,
    controller: Option<Controller>,
    /// Whether this controller's log page was read.
    is_read: bool,
    /// Whether its first answer is still to be waited for.
    is_pending: bool,
    /// What was in the log page.
    listed: DiscoveryEntries,
    /// When it is connected, or else read again.
    due: Duration,
}

#[derive(Debug, Default)]
struct DiscoveryEntries {
    ports: Vec<TransportId>,
    referrals: Vec<TransportId>,
}

impl DiscoveryEntries {
    /// What a controller lists that is at one of these endpoints.
    fn read(
        controller: &Controller,
        endpoints: &[TransportId],
        subsystem: Option<&Nqn>,
    ) -> Result<Self, Error> {
        let mut listed = Self::default();
        let zone = endpoints.iter().find_map(TransportId::zone);
        for entry in controller.discovery_log()?.entries {
            let Ok(address) = discovery::transport_id(&entry) else { continue };
            let address = address.in_zone(zone);
            if discovery::is_referral(&entry) {
                listed.referrals.push(address);
            } else if entry.subsystem_type == SubsystemType::NVM
                && (subsystem.is_none() || address.subnqn.as_ref() == subsystem)
            {
                listed.ports.push(address);
            }
        }
        Ok(listed)
    }
}

/// The options of the discovery controllers at the addresses of these.
fn of_discovery(options: &Options) -> Options {
    let mut discovery = options.clone();
    discovery.address.subnqn = None;
    discovery.multipath = false;
    discovery.discovery = false;
    // Another endpoint may list the paths when this one is lost.
    discovery.ctrl_loss_tmo = Some(Duration::ZERO);
    discovery
}

impl Sources {
    /// Asks the discovery controller that the options lead to, and those that are referred to, as
    /// far as they answer: for all of them if there is no port yet, else for a while.
    pub(crate) fn connect(options: &Options) -> Result<Self, Error> {
        let subsystem = options.address.subnqn.filter(|_| !options.address.is_discovery());
        let options = of_discovery(options);
        let controller = connect_discovery(&options)?;
        let endpoints: Vec<TransportId> = options.address.endpoints().collect();
        let first = Source {
            listed: DiscoveryEntries::read(&controller, &endpoints, subsystem.as_ref())?,
            controller: Some(controller),
            is_read: true,
            is_pending: false,
            due: monotonic_time() + limits::LOG_REREAD,
            ..Source::new(endpoints)
        };
        let mut own = Self { options, subsystem, all: vec![first], waiter: None };
        own.follow();
        let mut waited = Duration::ZERO;
        while own.is_pending() && (waited < limits::FURTHER_PATHS || own.ports().is_empty()) {
            std::thread::sleep(limits::STATE_POLL);
            waited += limits::STATE_POLL;
            own.ask();
        }
        Ok(own)
    }

    /// Wakes this thread from now on whenever there may be something to [`Sources::ask`].
    pub(crate) fn wake(&mut self, waiter: Thread) {
        for controller in self.all.iter().filter_map(|source| source.controller.as_ref()) {
            controller.shared().wake(waiter.clone());
        }
        self.waiter = Some(waiter);
    }

    /// The ports that are listed.
    pub(crate) fn ports(&self) -> Vec<TransportId> {
        let mut ports: Vec<TransportId> = Vec::new();
        for port in self.all.iter().flat_map(|source| &source.listed.ports) {
            if !ports.contains(port) {
                ports.push(port.clone());
            }
        }
        ports
    }

    /// Whether one may list further ports as soon as it answers for the first time.
    pub(crate) fn is_pending(&self) -> bool {
        self.all.iter().any(|source| source.is_pending)
    }

    /// How long there is nothing to ask, unless the thread is woken.
    pub(crate) fn patience(&self) -> Duration {
        let due = self.all.iter().map(|source| source.due).min();
        due.unwrap_or_default().saturating_sub(monotonic_time())
    }

    /// Connects and reads what is due, and what has changed. Whether a log page was read.
    pub(crate) fn ask(&mut self) -> bool {
        let mut has_read = false;
        for source in &mut self.all {
            if source.begin(&self.options, self.waiter.as_ref()) {
                has_read |= source.read(&self.options, self.subsystem.as_ref());
            }
        }
        if has_read {
            self.follow();
        }
        has_read
    }

    /// Keeps those that are referred to, beginning with the first, and adds those that are new.
    fn follow(&mut self) {
        let mut others = self.all.split_off(1);
        let mut at = 0;
        while let Some(source) = self.all.get(at) {
            for referral in source.listed.referrals.clone() {
                if self.all.iter().any(|one| one.is_at(&referral)) {
                    continue;
                }
                let most = limits::DISCOVERY_CONTROLLERS_MAX;
                if self.all.len() == most {
                    log::warn!("{referral} is not asked: {most} discovery controllers are");
                    break;
                }
                let known = others.iter().position(|one| one.is_at(&referral));
                let known = known.map(|index| others.swap_remove(index));
                self.all.push(known.unwrap_or_else(|| Source::new(vec![referral])));
            }
            at += 1;
        }
        for one in others.iter().filter_map(|source| source.endpoints.first()) {
            log::info!("nothing refers to {one} any more");
        }
    }
}

impl Source {
    fn new(endpoints: Vec<TransportId>) -> Self {
        Self {
            endpoints,
            next: 0,
            controller: None,
            is_read: false,
            is_pending: true,
            listed: DiscoveryEntries::default(),
            due: Duration::ZERO,
        }
    }

    /// By whatever name of its subsystem.
    fn is_at(&self, address: &TransportId) -> bool {
        fn place(address: &TransportId) -> (Transport, &str, u16) {
            (address.transport, &address.traddr, address.port())
        }
        self.endpoints.iter().any(|one| place(one) == place(address))
    }

    /// Begins to connect if that is due. Whether the log page can be read.
    fn begin(&mut self, options: &Options, waiter: Option<&Thread>) -> bool {
        if self.controller.is_none() && self.due <= monotonic_time() {
            let address = self.endpoints[self.next].clone();
            self.is_read = false;
            let own = Options { address, ..options.clone() };
            match Controller::begin(&own, ControllerKind::Discovery) {
                Ok(controller) => {
                    if let Some(waiter) = waiter {
                        controller.shared().wake(waiter.clone());
                    }
                    self.controller = Some(controller);
                }
                Err(error) => self.fail(&error, options),
            }
        }
        let Some(controller) = &self.controller else { return false };
        match controller.state() {
            ControllerState::Live => return true,
            ControllerState::Ended(problem) => {
                let error = problem.map_or(Error::Stopped, |why| controller.shared().error(why));
                self.fail(&error, options);
            }
            // It tells when that has changed.
            _ => self.due = monotonic_time() + limits::LOG_REREAD,
        }
        false
    }

    /// Reads the log page if that is due or has changed. Whether it was read.
    fn read(&mut self, options: &Options, subsystem: Option<&Nqn>) -> bool {
        let Some(controller) = &self.controller else { return false };
        let mut is_due = !self.is_read || self.due <= monotonic_time();
        while let Some(event) = controller.next_event(Duration::ZERO) {
            is_due |= matches!(event, Event::DiscoveryChanged);
        }
        if !is_due {
            return false;
        }
        match DiscoveryEntries::read(controller, &self.endpoints, subsystem) {
            Ok(listed) => {
                self.listed = listed;
                (self.is_read, self.is_pending) = (true, false);
                self.due = monotonic_time() + limits::LOG_REREAD;
                true
            }
            Err(error) => {
                self.fail(&error, options);
                false
            }
        }
    }

    /// The next endpoint is to be tried, or all of them again after a while.
    fn fail(&mut self, error: &Error, options: &Options) {
        let level = if self.is_pending { log::Level::Warn } else { log::Level::Info };
        log::log!(level, "a discovery controller cannot be asked for paths: {error}");
        self.controller = None;
        self.is_pending = false;
        self.next = (self.next + 1) % self.endpoints.len();
        let pause = if self.next == 0 { options.reconnect_delay } else { Duration::ZERO };
        self.due = monotonic_time() + pause;
    }
}

/// The ports of the subsystem, with those who list them.
pub(crate) fn first(options: &Options) -> Result<(Vec<TransportId>, Sources), Error> {
    options.check()?;
    let sources = Sources::connect(options)?;
    let ports = sources.ports();
    if ports.is_empty() {
        let name = options.address.subnqn.as_ref().map_or("", |nqn| nqn.as_str());
        let at = TransportId { subnqn: None, nsid: None, ..options.address.clone() };
        return Err(Error::Invalid(format!("{at} lists no port of {name} for this host")));
    }
    Ok((ports, sources))
}

/// The ports that are listed now.
pub(crate) fn ports(options: &Options) -> Result<Vec<TransportId>, Error> {
    first(options).map(|(ports, _)| ports)
}

/// The ports of all NVM subsystems that the discovery controller at this address lists for this
/// host, and those that it refers to: each is asked, if it can be.
pub fn discover_ports(options: &Options) -> Result<Vec<TransportId>, Error> {
    let address = TransportId { subnqn: None, ..options.address.clone() };
    // Short connections need no Keep Alive.
    let options = Options { address, keep_alive_tmo: Duration::ZERO, ..options.clone() };
    Sources::connect(&options).map(|sources| sources.ports())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> TransportId {
        format!("nvme-tcp://192.0.2.1:{port}").parse().unwrap()
    }

    fn sources(first: u16) -> Sources {
        let all = vec![Source::new(vec![at(first)])];
        Sources { options: Options::new(at(first)), subsystem: None, all, waiter: None }
    }

    impl Sources {
        /// What the log page there is taken to have.
        fn list(&mut self, source: u16, ports: &[u16], referrals: &[u16]) {
            let all = |list: &[u16]| list.iter().copied().map(at).collect();
            let known = self.all.iter_mut().find(|one| one.is_at(&at(source))).unwrap();
            known.listed = DiscoveryEntries { ports: all(ports), referrals: all(referrals) };
            self.follow();
        }

        fn asked(&self) -> Vec<u16> {
            self.all.iter().map(|source| source.endpoints[0].port()).collect()
        }
    }

    #[test]
    fn each_is_asked_once_and_only_while_one_refers_to_it() {
        let mut sources = sources(1);
        sources.list(1, &[11], &[2, 3, 2, 1]);
        sources.list(2, &[12, 11], &[1, 4]);
        sources.list(4, &[14], &[2]);
        assert_eq!(sources.asked(), [1, 2, 3, 4]);
        assert_eq!(sources.ports(), [11, 12, 14].map(at));
        // The loop of the second and the fourth is not referred to from without.
        sources.list(1, &[11], &[3]);
        assert_eq!(sources.asked(), [1, 3]);
        assert_eq!(sources.ports(), [at(11)]);
        // What is there anew is not known yet.
        sources.list(1, &[11], &[3, 2]);
        assert_eq!((sources.asked(), sources.ports()), (vec![1, 3, 2], vec![at(11)]));
    }

    #[test]
    fn the_number_of_those_that_are_asked_is_bounded() {
        let mut sources = sources(1);
        let most = u16::try_from(limits::DISCOVERY_CONTROLLERS_MAX).unwrap();
        for source in 1..=most {
            sources.list(source, &[], &[source + 1]);
        }
        assert_eq!(sources.asked(), (1..=most).collect::<Vec<u16>>());
    }
}
