//! `--mdns`: the addresses of the discovery subsystem are announced on the local network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use weft_target::Target;
use weft_target::config::Transport;

use super::operate::operator::Operator;
use crate::failure::Failure;
use crate::mdns::{ALL, ALL_OF_IPV4, Announcer, Services};

/// What announces a target until it is stopped.
#[derive(Debug)]
pub(super) struct Announcement {
    orders: Sender<Order>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    /// Ports may have come or gone.
    Look,
    Stop,
}

impl Announcement {
    pub(super) fn start(operator: &Arc<Operator>) -> Result<Self, Failure> {
        let (order, orders) = channel();
        let run = {
            let operator = Arc::clone(operator);
            move || run(&operator, &orders)
        };
        let thread = thread::Builder::new().name("weft-mdns".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Failure::io("start", &"a thread", &error))?;
        let changed = order.clone();
        operator.when_changed(move || {
            let _ = changed.send(Order::Look);
        });
        // It looks at once.
        let _ = order.send(Order::Look);
        Ok(Self { orders: order, thread })
    }

    /// Takes the announcements back.
    pub(super) fn stop(self) {
        let _ = self.orders.send(Order::Stop);
        // What went wrong there has been logged.
        drop(self.thread.join());
    }
}

fn run(operator: &Operator, orders: &Receiver<Order>) {
    let mut announcer = None;
    while let Ok(Order::Look) = orders.recv() {
        let Ok(services) = operator.with(|target| services(target)) else { break };
        if let Err(error) = announce(&mut announcer, &services) {
            log::warn!("mdns: this target cannot be announced: {error}");
        }
    }
    if let Some(Err(error)) = announcer.map(Announcer::stop) {
        log::warn!("mdns: the announcements cannot be taken back: {error}");
    }
}

/// Nothing is opened before there is something to announce.
fn announce(announcer: &mut Option<Announcer>, services: &Services) -> Result<(), String> {
    let announcer = match announcer {
        Some(announcer) => announcer,
        None if services.is_empty() => return Ok(()),
        None => announcer.insert(Announcer::new()?),
    };
    announcer.announce(services)
}

/// Where discovery controllers are, if the configuration wants them announced.
fn services(target: &Target) -> Services {
    let mut services = Services::new();
    let ports = target.config().ports.iter();
    for port in ports.filter(|port| port.discovery && target.config().mdns) {
        let protocol = match port.listen.transport {
            Transport::Tcp => "tcp",
            Transport::Rdma => "roce",
            Transport::Loopback => continue,
        };
        let address = port.advertise.or_else(|| target.addresses().get(&port.id).copied());
        if let Some(address) = address {
            add(&mut services, protocol, address);
        }
    }
    services
}

/// A wildcard covers others of its port: 0.0.0.0 those of IPv4, :: all, because the target takes
/// connections of both families there.
fn add(services: &mut Services, protocol: &'static str, address: SocketAddr) {
    let (ip, key) = (address.ip(), (address.port(), protocol));
    // What only this machine reaches is nothing for others.
    if ip.is_loopback() {
        return;
    }
    let ips = services.entry(key).or_default();
    ips.insert(ip);
    if ips.contains(&ALL) {
        ips.retain(|ip| *ip == ALL);
    } else if ips.contains(&ALL_OF_IPV4) {
        ips.retain(|ip| *ip == ALL_OF_IPV4 || ip.is_ipv6());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_its_port_and_loopback_is_for_nobody_else() {
        let mut services = Services::new();
        for (protocol, address) in [
            ("tcp", "192.0.2.1:8009"),
            ("tcp", "[2001:db8::1]:8009"),
            ("tcp", "127.0.0.1:8009"),
            ("tcp", "192.0.2.1:4420"),
            ("tcp", "0.0.0.0:4420"),
            ("tcp", "192.0.2.2:4420"),
            ("roce", "192.0.2.1:4420"),
            ("tcp", "[2001:db8::2]:4420"),
            ("tcp", "[::1]:4421"),
            ("tcp", "192.0.2.2:4422"),
            ("tcp", "[::]:4422"),
            ("tcp", "0.0.0.0:4422"),
        ] {
            add(&mut services, protocol, address.parse().expect("an address"));
        }
        let ips = |text: &[&str]| text.iter().map(|ip| ip.parse().expect("an IP")).collect();
        let expected = [
            ((4420, "roce"), ips(&["192.0.2.1"])),
            ((4420, "tcp"), ips(&["0.0.0.0", "2001:db8::2"])),
            ((4422, "tcp"), ips(&["::"])),
            ((8009, "tcp"), ips(&["192.0.2.1", "2001:db8::1"])),
        ];
        assert_eq!(services, Services::from(expected));
    }
}
