//! Sockets of the kernel: how they are marked, prepared, and asked about their peers.

use nix::sys::socket::sockopt::Priority;
use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, libc, sockopt_impl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How what a connection sends is marked, for the network and for the queues of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marking {
    /// The type of service (of IPv6, the traffic class); the system's if `None`.
    pub tos: Option<u8>,
    /// `SO_PRIORITY`, which disciplines of queues go by; what follows from `tos` if `None`.
    pub priority: Option<u32>,
}

impl Marking {
    /// Whether sockets of this process may be marked so.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub fn check(self) -> io::Result<()> {
        let any = SocketAddr::from(([0; 4], 0));
        if self == Self::default() { Ok(()) } else { self.apply(tcp_socket(&any)?, &any) }
    }

    /// Marks a socket that is not connected yet.
    pub(crate) fn apply(self, socket: impl AsFd, address: &SocketAddr) -> io::Result<()> {
        let refused = |what: String, error: io::Error| {
            io::Error::new(error.kind(), format!("{what} of a socket cannot be set: {error}"))
        };
        if let Some(tos) = self.tos {
            let set = match address {
                SocketAddr::V4(_) => sockopt::set_ip_tos(&socket, tos),
                SocketAddr::V6(_) => sockopt::set_ipv6_tclass(&socket, tos.into()),
            };
            set.map_err(|error| refused(format!("the type of service {tos}"), error.into()))?;
        }
        // A type of service sets a priority, too.
        if let Some(priority) = self.priority {
            let value = i32::try_from(priority).unwrap_or(i32::MAX);
            let set = setsockopt(&socket.as_fd(), Priority, &value);
            set.map_err(|error| {
                let above = if priority > 6 { " (above 6 it needs CAP_NET_ADMIN)" } else { "" };
                refused(format!("the priority {priority}{above}"), error.into())
            })?;
        }
        Ok(())
    }

    /// What a socket has.
    pub(crate) fn of(socket: impl AsFd, address: &SocketAddr) -> io::Result<Self> {
        let tos = match address {
            SocketAddr::V4(_) => sockopt::ip_tos(&socket)?,
            SocketAddr::V6(_) => u8::try_from(sockopt::ipv6_tclass(&socket)?).unwrap_or(u8::MAX),
        };
        let priority = getsockopt(&socket.as_fd(), Priority)?;
        Ok(Self { tos: Some(tos), priority: u32::try_from(priority).ok() })
    }
}

/// A new non-blocking TCP socket for addresses like `address`.
pub(crate) fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Makes a connected socket ready for small requests and a reactor.
pub(crate) fn prepare(socket: impl AsFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    // Not a TCP socket (a pair of Unix sockets in a test, say): it has no delay.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    set_reset_at_close(&socket, true);
    choose_congestion_control(&socket);
    Ok(())
}

/// Whether the kernel resets a connection and discards what it has not sent when its socket is
/// closed: also by the end of its process, after which nobody wants these bytes to arrive. What a
/// listener has is that of the connections it accepts.
pub(crate) fn set_reset_at_close(socket: impl AsFd, resets: bool) {
    let time = resets.then_some(core::time::Duration::ZERO);
    // It fails for a socket that has been reset already, and then nothing is left to send.
    let _ = sockopt::set_socket_linger(&socket, time);
}

/// The congestion control of a stream between two addresses, by the kernel's name; none: the
/// system's choice. Between two ends on this machine no congestion is possible, and a congestion
/// control that paces (BBR) costs timers and, with large messages, half of the throughput. `reno`
/// never paces, and every kernel allows it to all users.
#[must_use]
pub fn congestion_between(near: IpAddr, far: IpAddr) -> Option<&'static str> {
    (near == far).then_some(UNPACED)
}

const UNPACED: &str = "reno";

/// Whether the congestion control of a socket paces. Linux does not take pacing back from a
/// connection that has had it once.
fn paces(socket: impl AsFd) -> bool {
    sockopt::tcp_congestion(&socket).is_ok_and(|name| name.starts_with("bbr"))
}

fn is_unpaced(socket: impl AsFd) -> bool {
    sockopt::tcp_congestion(&socket).is_ok_and(|name| name.trim_end_matches('\0') == UNPACED)
}

/// Has the connections that a listener will accept begin without pacing: whether their peers are
/// on this machine is not known before.
pub(crate) fn listen_unpaced(listener: impl AsFd) {
    if paces(&listener) {
        let _ = sockopt::set_tcp_congestion(&listener, UNPACED);
    }
}

/// Has a connection that is about to be made to this address begin without pacing, if the address
/// is one of this machine.
pub(crate) fn connect_unpaced(socket: impl AsFd, local: Option<SocketAddr>, far: SocketAddr) {
    if !paces(&socket) {
        return;
    }
    let near = local.map(|local| local.ip()).or_else(|| source_of(far).ok());
    if let Some(name) = near.and_then(|near| congestion_between(near, far.ip())) {
        let _ = sockopt::set_tcp_congestion(&socket, name);
    }
}

/// The address that a connection to this one would come from. Nothing is sent.
fn source_of(far: SocketAddr) -> io::Result<IpAddr> {
    let any = match far {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(far)?;
    Ok(socket.local_addr()?.ip())
}

/// Chooses the congestion control of a connected stream: one that was accepted may have that of
/// its listener.
pub(crate) fn choose_congestion_control(socket: impl AsFd) {
    let ends = (rustix::net::getsockname(&socket), rustix::net::getpeername(&socket));
    let (Ok(near), Ok(Some(far))) = ends else { return };
    let (Ok(near), Ok(far)) = (internet_address(near), internet_address(far)) else { return };
    // Without it the system's choice works as well, only slower.
    let choose = |name: &str| {
        let _ = sockopt::set_tcp_congestion(&socket, name);
    };
    match congestion_between(near.ip(), far.ip()) {
        Some(name) => choose(name),
        None if is_unpaced(&socket) => {
            let fresh = tcp_socket(&far).and_then(|it| Ok(sockopt::tcp_congestion(it)?));
            fresh.into_iter().for_each(|name| choose(name.trim_end_matches('\0')));
        }
        None => {}
    }
}

/// What is known of the life of a connection's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Something of it has come since.
    Shown,
    /// Nothing has come yet. The kernel asks it, within a second.
    Asked,
    /// It does not acknowledge what is sent again, or the connection is over.
    Doubtful,
}

/// After which silence the kernel asks a peer whether it is alive.
const SILENCE: core::time::Duration = core::time::Duration::from_secs(1);
/// The kernel counts the time since something came in its ticks, of up to so many milliseconds.
const TICK_MS: u128 = 10;

/// The first version of the kernel's `tcp_info`: as much as is read here.
type TcpInfo = [u32; 26];
sockopt_impl!(GetTcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo);

/// Whether something of a peer has come within this time; if not, the peer is asked.
pub(crate) fn life_within(socket: impl AsFd, time: core::time::Duration) -> Life {
    let Ok(info) = getsockopt(&socket.as_fd(), GetTcpInfo) else { return Life::Doubtful };
    let [_, _, retransmits, _] = info[0].to_ne_bytes();
    // Since the last data, and since the last acknowledgement.
    let silence = u128::from(info[13].min(info[14]));
    let asks = sockopt::tcp_keepidle(&socket).is_ok_and(|idle| idle == SILENCE);
    if silence + TICK_MS < time.as_millis() {
        if asks {
            keep_alive(&socket);
        }
        return Life::Shown;
    }
    if retransmits > 0 {
        return Life::Doubtful;
    }
    if !asks {
        // In this order: the second one counts from when something came last.
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_tcp_keepidle(&socket, SILENCE);
        let _ = sockopt::set_tcp_keepintvl(&socket, SILENCE);
    }
    Life::Asked
}

/// How long an accepted stream may be silent before the kernel asks whether its peer is still
/// there, how often it asks then, and how many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// Has the kernel end a stream whose peer has gone without a word, two minutes after that: who has
/// lost power sends nothing, and may have agreed with the layer above that silence is no end.
pub(crate) fn keep_alive(socket: impl AsFd) {
    let (idle, interval, probes) = KEEP_ALIVE;
    // Not a TCP socket, if it cannot be set.
    let _ = sockopt::set_tcp_keepidle(&socket, idle);
    let _ = sockopt::set_tcp_keepintvl(&socket, interval);
    let _ = sockopt::set_tcp_keepcnt(&socket, probes);
    let _ = sockopt::set_socket_keepalive(&socket, true);
}

/// The result of `getsockname` and similar calls as an Internet address.
pub(crate) fn internet_address(address: rustix::net::SocketAddrAny) -> io::Result<SocketAddr> {
    SocketAddr::try_from(address)
        .map_err(|_| io::Error::new(io::ErrorKind::Unsupported, "not an Internet address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_a_socket_is_marked_with_is_read_back() {
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let Ok(socket) = tcp_socket(&address) else { continue };
            let marking = Marking { tos: Some(0x88), priority: Some(5) };
            marking.apply(&socket, &address).unwrap();
            assert_eq!(Marking::of(&socket, &address).unwrap(), marking);
        }
        Marking { tos: Some(8), priority: None }.check().unwrap();
        let beyond = Marking { tos: None, priority: Some(7) };
        if let Err(error) = beyond.check() {
            assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        }
    }

    /// A connection that has had BBR goes on pacing whatever is chosen later, so what counts is
    /// what it begins with.
    #[test]
    fn both_ends_on_one_machine_do_without_pacing() {
        let of = |socket: &dyn AsFd| sockopt::tcp_congestion(socket.as_fd()).unwrap();
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (Ok(listener), Ok(near)) = (TcpListener::bind(address), tcp_socket(&address))
            else {
                continue;
            };
            let address = listener.local_addr().unwrap();
            for socket in [listener.as_fd(), near.as_fd()] {
                // As the system's choice would be. It may not be there.
                let _ = sockopt::set_tcp_congestion(socket, "bbr");
            }
            listen_unpaced(&listener);
            connect_unpaced(&near, None, address);
            assert!(!paces(&listener) && !paces(&near));
            let _ = rustix::net::connect(&near, &address);
            let (far, _) = listener.accept().unwrap();
            assert!(!paces(&far));
            for stream in [near, far.into()] {
                prepare(&stream).unwrap();
                assert_eq!(of(&stream).trim_end_matches('\0'), UNPACED);
            }
        }
    }

    #[test]
    fn a_peer_on_another_machine_gets_the_choice_of_the_system() {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _ = sockopt::set_tcp_congestion(&listener, "bbr");
        listen_unpaced(&listener);
        // Another address stands for another machine.
        let near = tcp_socket(&address).unwrap();
        let fresh = sockopt::tcp_congestion(&near).unwrap();
        rustix::net::bind(&near, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        connect_unpaced(&near, Some(([127, 0, 0, 1], 0).into()), address);
        let _ = rustix::net::connect(&near, &address);
        let (far, _) = listener.accept().unwrap();
        for stream in [near, far.into()] {
            choose_congestion_control(&stream);
            assert_eq!(sockopt::tcp_congestion(&stream).unwrap(), fresh);
        }
    }
}
