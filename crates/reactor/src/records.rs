//! TLS of the kernel: it makes and reads the records of a stream once it has their keys.
//!
//! What is sent and received on such a stream is plaintext, as on another. A record that is no data
//! stops the receives with EIO until [`Records::receive`] has taken it.

use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt,
};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

/// A direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordDirection {
    /// What is sent.
    Send,
    /// What is received.
    Receive,
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordType(pub u8);

impl RecordType {
    /// Why nothing more comes.
    pub const ALERT: Self = Self(21);
    /// KeyUpdate, for example.
    pub const HANDSHAKE: Self = Self(22);
    /// What receives get.
    pub const DATA: Self = Self(23);
}

/// Room for the control message that has the type of a record (`CMSG_SPACE(1)` is 24), aligned as
/// the kernel has it.
const CONTROL_BYTES: usize = 32;

#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// The records of a stream.
#[derive(Debug)]
pub struct Records<'a> {
    pub(crate) descriptor: &'a OwnedFd,
    /// Whether the stream has records.
    pub(crate) begun: &'a mut bool,
}

impl Records<'_> {
    /// A stream can be given keys from now on.
    ///
    /// # Errors
    /// The kernel has no TLS, or the stream is not connected.
    pub fn begin(&mut self) -> io::Result<()> {
        setsockopt(self.descriptor, sockopt::TcpUlp::default(), b"tls")?;
        *self.begun = true;
        Ok(())
    }

    /// Gives the kernel the key of a direction, in the form of its `tls12_crypto_info_…`.
    ///
    /// # Errors
    /// The kernel does not have the cipher, or, before Linux 6.14, the stream has a key already.
    pub fn set_key(&self, direction: RecordDirection, info: &[u8]) -> io::Result<()> {
        let option = match direction {
            RecordDirection::Send => libc::TLS_TX,
            RecordDirection::Receive => libc::TLS_RX,
        };
        let length =
            libc::socklen_t::try_from(info.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the descriptor is open, and the kernel reads `length` bytes of `info`.
        let result = unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_TLS,
                option,
                info.as_ptr().cast(),
                length,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends a record that is no data, after all data that was sent before; nothing may be in
    /// flight in that direction.
    ///
    /// # Errors
    /// `WouldBlock`: the kernel has no room now.
    pub fn send(&self, kind: RecordType, content: &[u8]) -> io::Result<()> {
        let mut piece =
            libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
        let mut control = Control([0; CONTROL_BYTES]);
        let mut message = header(&mut piece, &mut control);
        // SAFETY: the header's pointers are to `piece`, to `content`, which the kernel only reads,
        // and to `control`, where there is room for one message of a byte.
        let sent = unsafe {
            message.msg_controllen = libc::CMSG_SPACE(1) as _;
            let part = libc::CMSG_FIRSTHDR(&raw const message);
            (*part).cmsg_level = libc::SOL_TLS;
            (*part).cmsg_type = libc::TLS_SET_RECORD_TYPE;
            (*part).cmsg_len = libc::CMSG_LEN(1) as _;
            *libc::CMSG_DATA(part) = kind.0;
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::sendmsg(self.descriptor.as_raw_fd(), &raw const message, flags)
        };
        match usize::try_from(sent) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(sent) if sent == content.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Takes the record that has stopped the receives. Returns its type and its length.
    ///
    /// # Errors
    /// The connection is broken, or has no such record.
    pub fn receive(&self, place: &mut [u8]) -> io::Result<(RecordType, usize)> {
        let mut piece = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
        let mut control = Control([0; CONTROL_BYTES]);
        let mut message = header(&mut piece, &mut control);
        // SAFETY: the header's pointers are to `piece`, to `place` and to `control`, which have the
        // lengths that it says, and of which nobody else has a reference meanwhile.
        let received = unsafe {
            libc::recvmsg(self.descriptor.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has filled `control` as far as the header now says: none, or the one
        // message there is room for.
        let kind = unsafe {
            let part = libc::CMSG_FIRSTHDR(&raw const message);
            let is_type = !part.is_null()
                && (*part).cmsg_level == libc::SOL_TLS
                && (*part).cmsg_type == libc::TLS_GET_RECORD_TYPE;
            if is_type { RecordType(*libc::CMSG_DATA(part)) } else { RecordType::DATA }
        };
        Ok((kind, received))
    }
}

/// A header of a message with these, for which they have to stay where they are.
fn header(piece: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: plain data of the kernel, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    message
}

/// Whether this kernel has TLS; as root it loads the module for it.
///
/// # Errors
/// A sentence that says why not.
pub fn check_kernel_records() -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let probe = socket(AddressFamily::Inet, SockType::Stream, flags, SockProtocol::Tcp)?;
    match setsockopt(&probe, sockopt::TcpUlp::default(), b"tls") {
        // Only a socket that is connected takes it.
        Ok(()) | Err(nix::Error::ENOTCONN) => Ok(()),
        Err(nix::Error::ENOENT) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no TLS (load its module: modprobe tls)",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Whether a stream can be given another key for the one that it has (Linux 6.14); the kernel
/// counts that since then. It is asked once, by the first stream that has records: then the module
/// is there.
#[must_use]
pub fn kernel_replaces_keys() -> bool {
    static REPLACES: OnceLock<bool> = OnceLock::new();
    *REPLACES.get_or_init(|| {
        let counters = std::fs::read_to_string("/proc/net/tls_stat").unwrap_or_default();
        counters.contains("TlsTxRekeyOk")
    })
}

/// Whether this kernel makes records with such a key, in the form of its `tls12_crypto_info_…`:
/// tried on a connection of this process with itself.
///
/// # Errors
/// It does not have the cipher, or no connection can be made.
pub fn check_kernel_cipher(info: &[u8]) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let descriptor = OwnedFd::from(TcpStream::connect(listener.local_addr()?)?);
    let mut begun = false;
    let mut records = Records { descriptor: &descriptor, begun: &mut begun };
    records.begin()?;
    [RecordDirection::Send, RecordDirection::Receive]
        .into_iter()
        .try_for_each(|direction| records.set_key(direction, info))
}
