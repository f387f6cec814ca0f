//! Streams and files that reactors take over or pass on.

use crate::simulation;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A connection that belongs to no reactor: between two of them, or from the standard library.
#[derive(Debug)]
pub struct Stream(pub(crate) StreamKind);

#[derive(Debug)]
pub(crate) enum StreamKind {
    Kernel(OwnedFd),
    Simulated(simulation::Detached),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self(StreamKind::Kernel(stream.into()))
    }
}

impl From<OwnedFd> for Stream {
    fn from(descriptor: OwnedFd) -> Self {
        Self(StreamKind::Kernel(descriptor))
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
