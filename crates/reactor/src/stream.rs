//! Streams and files that reactors take over or pass on.

use crate::simulation;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A connection that belongs to no reactor: between two of them, or from the standard library.
#[derive(Debug)]
pub struct Stream(pub(crate) StreamKind);

#[derive(Debug)]
pub(crate) enum StreamKind {
    Kernel {
        descriptor: OwnedFd,
        /// Its TLS is the kernel's.
        records: bool,
    },
    Simulated(simulation::Detached),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::from(OwnedFd::from(stream))
    }
}

impl From<OwnedFd> for Stream {
    fn from(descriptor: OwnedFd) -> Self {
        Self(StreamKind::Kernel { descriptor, records: false })
    }
}

/// A file of the kernel or of a simulated world.
#[derive(Clone, Debug)]
pub struct FileSource(pub(crate) FileKind);

#[derive(Clone, Debug)]
pub(crate) enum FileKind {
    Kernel(Arc<File>),
    Simulated(simulation::SimulatedFile),
}

impl From<Arc<File>> for FileSource {
    fn from(file: Arc<File>) -> Self {
        Self(FileKind::Kernel(file))
    }
}

impl From<File> for FileSource {
    fn from(file: File) -> Self {
        Self(FileKind::Kernel(Arc::new(file)))
    }
}

impl From<simulation::SimulatedFile> for FileSource {
    fn from(file: simulation::SimulatedFile) -> Self {
        Self(FileKind::Simulated(file))
    }
}

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
                SocketAddr::V4(_) => rustix::net::sockopt::set_ip_tos(&socket, tos),
                SocketAddr::V6(_) => rustix::net::sockopt::set_ipv6_tclass(&socket, tos.into()),
            };
            set.map_err(|error| refused(format!("the type of service {tos}"), error.into()))?;
        }
        // A type of service sets a priority, too.
        if let Some(priority) = self.priority {
            let value = i32::try_from(priority).unwrap_or(i32::MAX);
            let set = setsockopt(&socket.as_fd(), sockopt::Priority, &value);
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
            SocketAddr::V4(_) => rustix::net::sockopt::ip_tos(&socket)?,
            SocketAddr::V6(_) => {
                u8::try_from(rustix::net::sockopt::ipv6_tclass(&socket)?).unwrap_or(u8::MAX)
            }
        };
        let priority = getsockopt(&socket.as_fd(), sockopt::Priority)?;
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
    let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
    choose_congestion_control(&socket);
    Ok(())
}

/// The congestion control of a stream between two addresses, by the kernel's name; none: the
/// system's choice. Between two ends on this machine no congestion is possible, and a congestion
/// control that paces (BBR) costs timers and, with large messages, half of the throughput. `reno`
/// never paces, and every kernel allows it to all users.
#[must_use]
pub fn congestion_between(near: IpAddr, far: IpAddr) -> Option<&'static str> {
    (near == far).then_some("reno")
}

/// Chooses the congestion control of a connected stream.
pub(crate) fn choose_congestion_control(socket: impl AsFd) {
    let ends = (rustix::net::getsockname(&socket), rustix::net::getpeername(&socket));
    if let (Ok(near), Ok(Some(far))) = ends
        && let (Ok(near), Ok(far)) = (internet_address(near), internet_address(far))
        && let Some(name) = congestion_between(near.ip(), far.ip())
    {
        // Without it the system's choice works as well, only slower.
        let _ = rustix::net::sockopt::set_tcp_congestion(&socket, name);
    }
}

/// How long an accepted stream may be silent before the kernel asks whether its peer is still there,
/// how often it asks then, and how many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// Has the kernel end a stream whose peer has gone without a word, two minutes after that: who has
/// lost power sends nothing, and may have agreed with the layer above that silence is no end.
pub(crate) fn keep_alive(socket: impl AsFd) {
    let (idle, interval, probes) = KEEP_ALIVE;
    // Not a TCP socket, if it cannot be set.
    let _ = rustix::net::sockopt::set_tcp_keepidle(&socket, idle);
    let _ = rustix::net::sockopt::set_tcp_keepintvl(&socket, interval);
    let _ = rustix::net::sockopt::set_tcp_keepcnt(&socket, probes);
    let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
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

    #[test]
    fn both_ends_on_one_machine_do_without_pacing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for stream in [near, far] {
            prepare(&stream).unwrap();
            let chosen = rustix::net::sockopt::tcp_congestion(&stream).unwrap();
            assert_eq!(chosen.trim_end_matches('\0'), "reno");
        }
    }
}
