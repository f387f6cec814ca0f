//! What becomes of hosts, of their network and of what they may access.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use weft_host::{ControllerDriver, ControllerKind, ControllerState, IoPolicy, Options};
use weft_reactor::{Owner, Reactor, Token, WaitLimit};
use weft_target::config::Config;

use super::{Host, Link, SUBSYSTEM, Security, Size, Testbed};

/// In which virtual time a change is answered. Longer than any keep-alive time-out.
const ANSWER: Duration = Duration::from_secs(60);

/// What is other than usual.
#[derive(Clone, Copy, Debug)]
pub struct Tune {
    /// Changes the options of hosts.
    pub options: fn(&mut Options),
    /// Whether the connections of a process that is killed are reset; none: as those of the
    /// drivers of the kernel are.
    pub resets_at_death: Option<bool>,
}

impl Testbed {
    /// A step that ends at this time, if it comes before the next event.
    pub fn step_within(&mut self, end: Duration) {
        self.settle();
        let clock = self.clock.get_or_insert_with(|| Reactor::simulated(&self.world));
        clock.set_timer(Token::new(Owner(0), 0), end);
        clock.poll(WaitLimit::NoWait, &mut self.completions);
        self.completions.clear();
        self.world.advance();
    }

    /// Over TCP by so many paths, with less patience than usual. The policy of several
    /// paths is the seed's.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn tuned(seed: u64, device: &str, size: Size, paths: usize, tune: Tune) -> Self {
        let what = (seed, device, size);
        let mut testbed = Self::apart(Link::Tcp, Security::Off, what, paths, |config| vec![config]);
        testbed.tune = tune.options;
        tune.resets_at_death.into_iter().for_each(|it| testbed.world.set_resets_at_death(it));
        let policy = IoPolicy::ALL[usize::try_from(seed % 4).expect("small")];
        testbed.connect(size, (paths > 1).then_some(policy));
        testbed
    }

    /// The address of a host over TCP.
    ///
    /// # Panics
    /// With more than 200 hosts.
    #[must_use]
    pub fn host_address(number: usize) -> IpAddr {
        IpAddr::from([10, 0, 1, u8::try_from(number + 1).expect("few hosts")])
    }

    /// The address of a port over TCP, the first one being 0.
    ///
    /// # Panics
    /// With more than 200 ports.
    #[must_use]
    pub fn port_address(port: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, u8::try_from(port + 1).expect("few ports")])
    }

    /// A new process of a host, which begins to connect.
    pub(super) fn begin_host(
        &self,
        number: usize,
        subsystem: &str,
        addresses: Vec<SocketAddr>,
        multipath: bool,
    ) -> Host {
        let mut host = self.idle_host();
        host.addresses = addresses;
        for (owner, address) in (0..).map(Owner).zip(host.addresses.clone()) {
            let options = Options { multipath, ..self.options_for(address, number, subsystem) };
            let kind = ControllerKind::Nvm;
            let driver = ControllerDriver::connect(&host.reactor, owner, &options, kind);
            host.drivers.push(driver.expect("it starts"));
        }
        host
    }

    /// A host that is not connected.
    fn idle_host(&self) -> Host {
        let reactor = Reactor::simulated(&self.world);
        let free = reactor.pool().available();
        Host {
            reactor,
            drivers: Vec::new(),
            addresses: Vec::new(),
            multipath: None,
            devices: Vec::new(),
            express: None,
            express_done: Vec::new(),
            free,
        }
    }

    /// Kills a host's process, as SIGKILL does. The kernel has what it has sent.
    pub fn kill_host(&mut self, number: usize) {
        self.hosts[number] = self.idle_host();
    }

    /// Starts another process of the same host, with one path; see [`Self::open`].
    pub fn revive_host(&mut self, number: usize, subsystem: &str) {
        self.revive_by(self.addresses(), number, subsystem);
    }

    /// The same by a port, the first one being 0.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn revive_host_by(&mut self, port: usize, number: usize, subsystem: &str) {
        let address = self.addresses()[port];
        assert_eq!(address.ip(), Self::port_address(port));
        self.revive_by(vec![address], number, subsystem);
    }

    fn revive_by(&mut self, addresses: Vec<SocketAddr>, number: usize, subsystem: &str) {
        self.hosts[number] = self.begin_host(number, subsystem, addresses, false);
    }

    /// Opens the devices of a host that was started anew, once it is connected. Whether it is. A
    /// process whose first Connect is not answered in time ends, and another one is started.
    pub fn open(&mut self, number: usize, queues: usize) -> bool {
        if self.hosts[number].has_ended() {
            let addresses = self.hosts[number].addresses.clone();
            self.revive_by(addresses, number, SUBSYSTEM);
        }
        let host = &self.hosts[number];
        if !host.is_in(|state| *state == ControllerState::Live) {
            return false;
        }
        if host.devices.is_empty() {
            self.open_devices(number, queues, None);
        }
        true
    }

    /// The next sync of the stored device fails.
    ///
    /// # Panics
    /// If it is not stored.
    pub fn fail_sync(&self) {
        let (file, _) = self.file.expect("a stored device");
        self.world.fail_sync(file);
    }

    /// Changes the target's configuration; what is returned says when that is answered.
    ///
    /// # Panics
    /// If it is not possible, or the target does not run.
    pub fn change(&mut self, change: impl FnOnce(&mut Config)) -> Receiver<()> {
        let member = &mut self.targets[0];
        change(&mut member.config);
        let target = member.running.as_mut().expect("it runs");
        target.change(&member.config).expect("a valid configuration")
    }

    /// Lets time pass until a change is answered.
    ///
    /// # Panics
    /// If it is not.
    pub fn until_answered(&mut self, answer: &Receiver<()>, mut each: impl FnMut(&mut Self)) {
        let end = self.world.now() + ANSWER;
        self.settle();
        while answer.try_recv() == Err(TryRecvError::Empty) {
            assert!(self.world.now() < end, "a change is not answered");
            self.step();
            each(self);
        }
    }
}
