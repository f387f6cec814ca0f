//! Identifiers of the connection manager and the channels on which their events come.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use socket2::{SockAddr, SockAddrStorage};

use super::super::{Parameters, PrivateData};
use super::abi::{self, Address, Connection, Functions};
use super::library::{done, explained, functions, made};

/// Retries of a request, and of one that finds no receive posted (7: unlimited), as in the kernel's
/// host and target.
const RETRIES: u8 = 7;
const RECEIVER_NOT_READY_RETRIES: u8 = 7;

/// An event channel, destroyed with its last identifier.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) functions: &'static Functions,
    raw: NonNull<abi::EventChannel>,
}

// SAFETY: librdmacm takes its own locks; a channel may be used by any thread.
unsafe impl Send for Channel {}
// SAFETY: as above; reading events is left to the one manager that made the channel.
unsafe impl Sync for Channel {}

impl Channel {
    pub(super) fn open() -> io::Result<Arc<Self>> {
        let functions = functions()?;
        // SAFETY: takes nothing; what it returns is destroyed in `drop`.
        let raw = made(unsafe { (functions.rdma_create_event_channel)() }).map_err(|error| {
            explained(
                &error,
                "the kernel's RDMA connection manager cannot be reached (modprobe rdma_ucm, and \
                 this user must be allowed to open /dev/infiniband/rdma_cm)",
            )
        })?;
        let channel = Self { functions, raw };
        let flags = fcntl_getfl(channel.descriptor())?;
        fcntl_setfl(channel.descriptor(), flags | OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    pub(super) fn raw(&self) -> *mut abi::EventChannel {
        self.raw.as_ptr()
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there as long as `self`, and its descriptor as long as it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every identifier on it held an `Arc` of it, so none is left.
        unsafe { (self.functions.rdma_destroy_event_channel)(self.raw.as_ptr()) }
    }
}

/// An identifier; its queue pair is not part of this type.
#[derive(Debug)]
pub(super) struct Identifier {
    raw: NonNull<abi::Identifier>,
    channel: Arc<Channel>,
}

// SAFETY: librdmacm takes its own locks; an identifier may be used by any thread, by one at a time.
unsafe impl Send for Identifier {}

impl Identifier {
    /// Creates an identifier on a channel; `user` is the key of its events.
    pub(super) fn new(channel: &Arc<Channel>, user: usize) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        let user = ptr::without_provenance_mut::<c_void>(user);
        let create = channel.functions.rdma_create_id;
        // SAFETY: the channel is alive and `raw` is written to; `user` is only ever a number.
        done(unsafe { create(channel.raw(), &raw mut raw, user, abi::PORT_SPACE_TCP) })?;
        Ok(Self { raw: made(raw)?, channel: Arc::clone(channel) })
    }

    /// Takes the identifier of a connection request on this channel.
    ///
    /// # Safety
    /// The identifier is alive, on this channel, and has no other owner.
    pub(super) unsafe fn received(raw: NonNull<abi::Identifier>, channel: &Arc<Channel>) -> Self {
        Self { raw, channel: Arc::clone(channel) }
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.channel.functions
    }

    pub(super) fn raw(&self) -> *mut abi::Identifier {
        self.raw.as_ptr()
    }

    /// The key of its events, unique among live identifiers.
    pub(super) fn key(&self) -> u64 {
        key(self.raw.as_ptr())
    }

    /// The device it is bound to, if it is.
    pub(super) fn context(&self) -> Option<NonNull<abi::Context>> {
        // SAFETY: the identifier is alive; the manager sets this once, before its event.
        NonNull::new(unsafe { (*self.raw.as_ptr()).verbs })
    }

    /// The port of the device it is bound to.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier is alive.
        unsafe { (*self.raw.as_ptr()).port }
    }

    pub(super) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let address = SockAddr::from(address);
        let bind = self.functions().rdma_bind_addr;
        // SAFETY: the address is a whole one of its family and is only read.
        done(unsafe { bind(self.raw(), address.as_ptr().cast()) })
    }

    pub(super) fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        // SAFETY: the identifier is alive.
        done(unsafe { (self.functions().rdma_listen)(self.raw(), backlog) })
    }

    pub(super) fn resolve(
        &self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        timeout_ms: i32,
    ) -> io::Result<()> {
        let remote = SockAddr::from(remote);
        let local = local.map(SockAddr::from);
        let source = local.as_ref().map_or(ptr::null(), |local| local.as_ptr().cast());
        let resolve = self.functions().rdma_resolve_addr;
        // SAFETY: both addresses are whole ones of their families (or null) and are only read.
        done(unsafe { resolve(self.raw(), source, remote.as_ptr().cast(), timeout_ms) })
    }

    /// Moves its events to this channel.
    pub(super) fn migrate(&mut self, channel: &Arc<Channel>) -> io::Result<()> {
        if !Arc::ptr_eq(&self.channel, channel) {
            // SAFETY: both are alive. The call waits until events of the old channel are
            // acknowledged, which is done directly after they are read.
            done(unsafe { (self.functions().rdma_migrate_id)(self.raw(), channel.raw()) })?;
            self.channel = Arc::clone(channel);
        }
        Ok(())
    }

    pub(super) fn connect(&self, parameters: &Parameters) -> io::Result<()> {
        let mut connection = connection(parameters);
        // SAFETY: the private data that it points to lives in `parameters` and is copied.
        done(unsafe { (self.functions().rdma_connect)(self.raw(), &raw mut connection) })
    }

    pub(super) fn accept(&self, parameters: &Parameters) -> io::Result<()> {
        let mut connection = connection(parameters);
        // SAFETY: as for `connect`.
        done(unsafe { (self.functions().rdma_accept)(self.raw(), &raw mut connection) })
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let data = PrivateData::new(private_data);
        let bytes = data.bytes();
        let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
        let reject = self.functions().rdma_reject;
        // SAFETY: as many bytes as are said are there and are only read.
        done(unsafe { reject(self.raw(), bytes.as_ptr().cast(), length) })
    }

    pub(super) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        done(unsafe { (self.functions().rdma_disconnect)(self.raw()) })
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        // SAFETY: the identifier is alive, and the manager writes its addresses before their event.
        socket_address(unsafe { (*self.raw.as_ptr()).source })
    }

    pub(super) fn peer_address(&self) -> io::Result<SocketAddr> {
        // SAFETY: as above.
        socket_address(unsafe { (*self.raw.as_ptr()).destination })
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: the endpoint has destroyed its queue pair, if any; and all its events are
        // acknowledged, for which this would wait.
        let result = unsafe { (self.functions().rdma_destroy_id)(self.raw()) };
        if let Err(error) = done(result) {
            log::warn!("an RDMA identifier cannot be destroyed: {error}");
        }
    }
}

/// The key of an identifier's events.
pub(super) fn key(raw: *mut abi::Identifier) -> u64 {
    raw.addr() as u64
}

fn connection(parameters: &Parameters) -> Connection {
    let private_data = parameters.private_data.bytes();
    Connection {
        private_data: private_data.as_ptr().cast(),
        private_data_length: u8::try_from(private_data.len()).unwrap_or(u8::MAX),
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RECEIVER_NOT_READY_RETRIES,
        shared_receives: 0,
        queue_pair: 0,
    }
}

fn socket_address(address: Address) -> io::Result<SocketAddr> {
    let mut storage = SockAddrStorage::zeroed();
    let length = size_of::<Address>().min(size_of::<SockAddrStorage>());
    // SAFETY: both are at least `length` bytes long, and every pattern is a storage.
    unsafe {
        ptr::copy_nonoverlapping(
            (&raw const address).cast::<u8>(),
            (&raw mut storage).cast(),
            length,
        );
    }
    let length = storage.size_of();
    // SAFETY: the storage is initialised in full.
    let address = unsafe { SockAddr::new(storage, length) };
    address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        for text in ["192.0.2.1:4420", "[2001:db8::7]:4420"] {
            let expected: SocketAddr = text.parse().expect("an address");
            let from = SockAddr::from(expected);
            let mut address: Address = [0; 16];
            // SAFETY: the address is shorter than the storage.
            unsafe {
                ptr::copy_nonoverlapping(
                    from.as_ptr().cast::<u8>(),
                    (&raw mut address).cast(),
                    usize::try_from(from.len()).expect("small"),
                );
            }
            assert_eq!(socket_address(address).expect("an address"), expected);
        }
        assert!(socket_address([0; 16]).is_err(), "no family is no address");
    }

    #[test]
    fn private_data_is_said_with_its_length() {
        let private_data = PrivateData::new(&[7; 32]);
        let parameters = Parameters { private_data, responder_resources: 3, initiator_depth: 4 };
        let said = connection(&parameters);
        assert_eq!((said.private_data_length, said.responder_resources), (32, 3));
        assert_eq!((said.initiator_depth, said.rnr_retry_count), (4, 7));
    }
}
