//! A device as one reactor has opened it: protection domain, completion channel, completion queues
//! and registered memory.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use weft_reactor::Pool;

use super::super::types::WorkStatus;
use super::super::{Access, Attributes, DeviceEvent, DeviceKind, NotRegistered, WorkCompletion};
use super::abi::{self, Functions, access, flag};
use super::events::EventReader;
use super::library::{done, explained, made, number};

/// Completions polled at once.
const BATCH: usize = 64;

/// A completion channel, which completion queues keep alive.
#[derive(Debug)]
struct Channel {
    functions: &'static Functions,
    context: NonNull<abi::Context>,
    raw: NonNull<abi::Channel>,
}

impl Channel {
    fn open(functions: &'static Functions, context: NonNull<abi::Context>) -> io::Result<Self> {
        // SAFETY: the context is one of the connection manager's, which it keeps open.
        let raw = made(unsafe { (functions.ibv_create_comp_channel)(context.as_ptr()) })?;
        let channel = Self { functions, context, raw };
        let flags = fcntl_getfl(channel.descriptor())?;
        fcntl_setfl(channel.descriptor(), flags | OFlags::NONBLOCK)?;
        Ok(channel)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there as long as `self`, and its descriptor as long as it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every completion queue on it held an `Rc` of it.
        let result = unsafe { (self.functions.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
        if let Err(error) = number(result) {
            log::warn!("an RDMA completion channel cannot be destroyed: {error}");
        }
    }
}

/// A protection domain, kept alive by its regions, memory windows and queue pairs.
#[derive(Debug)]
pub(super) struct RawDomain {
    functions: &'static Functions,
    raw: NonNull<abi::Domain>,
}

impl Drop for RawDomain {
    fn drop(&mut self) {
        // SAFETY: everything created in the domain held an `Rc` of it, so nothing is left.
        let result = unsafe { (self.functions.ibv_dealloc_pd)(self.raw.as_ptr()) };
        if let Err(error) = number(result) {
            log::warn!("an RDMA protection domain cannot be deallocated: {error}");
        }
    }
}

#[derive(Debug)]
pub(crate) struct Domain {
    inner: Rc<RawDomain>,
    /// The device's name.
    name: String,
}

impl Domain {
    pub(super) fn raw(&self) -> *mut abi::Domain {
        self.inner.raw.as_ptr()
    }

    pub(super) fn inner(&self) -> &Rc<RawDomain> {
        &self.inner
    }

    /// # Memory that a peer can write
    ///
    /// Safe code never holds a reference to it. A region with remote write access is one of two
    /// kinds:
    ///
    /// * A leased one, in a domain that only one connection uses. While it is registered its bytes
    ///   are not borrowed as a slice, but copied by functions that allow concurrent writes
    ///   (`weft_reactor::Buffer::load` and `store`).
    /// * A wide one, by the choice of a user who trusts the controllers as much as this process: a
    ///   controller's write outside its buffers is then a defect like one of this process.
    ///
    /// All other access is through memory windows. A window covers the bytes of one buffer, which
    /// the command in flight owns (without other handles if it is written), from its binding until
    /// it was invalidated or its queue pair destroyed; only then is the buffer returned.
    ///
    /// The device writes for work requests of this side only to buffers that are kept until the
    /// work has completed, or until the queue pair is destroyed.
    pub(in super::super) fn register(
        &self,
        pool: &Pool,
        offset: usize,
        bytes: usize,
        wanted: Access,
    ) -> io::Result<Region> {
        let end = offset.checked_add(bytes).filter(|end| *end <= pool.capacity());
        end.ok_or(io::ErrorKind::InvalidInput)?;
        let mut flags = 0;
        for (wanted, flag) in [
            (wanted.local_write, access::LOCAL_WRITE),
            (wanted.remote_write, access::REMOTE_WRITE),
            (wanted.remote_read, access::REMOTE_READ),
            (wanted.bind, access::WINDOW_BIND),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        let address = ptr::with_exposed_provenance_mut::<c_void>(pool.address() + offset);
        let register = self.inner.functions.ibv_reg_mr;
        // SAFETY: the range is within the pool's mapping, which the region keeps alive. For writes
        // see above.
        let raw = made(unsafe { register(self.raw(), address, bytes, flags) });
        let device = || self.name.clone();
        let raw = raw.map_err(|error| NotRegistered { device: device(), bytes, error })?;
        let inner = RawRegion { raw, domain: Rc::clone(&self.inner), _pool: pool.clone() };
        Ok(Region { inner: Rc::new(inner) })
    }
}

#[derive(Debug)]
pub(crate) struct Device {
    channel: Rc<Channel>,
    events: EventReader,
    attributes: Attributes,
}

impl Device {
    pub(super) fn open(
        functions: &'static Functions,
        context: NonNull<abi::Context>,
        port: u8,
    ) -> io::Result<Self> {
        let attributes = attributes(functions, context, port)?;
        let events = EventReader::open(functions, context)?;
        let channel = Rc::new(Channel::open(functions, context)?);
        Ok(Self { channel, events, attributes })
    }

    pub(in super::super) fn create_domain(&self) -> io::Result<Domain> {
        let functions = self.channel.functions;
        // SAFETY: the context is one of the connection manager's, which it keeps open.
        let raw = made(unsafe { (functions.ibv_alloc_pd)(self.channel.context.as_ptr()) })?;
        let inner = Rc::new(RawDomain { functions, raw });
        Ok(Domain { inner, name: self.attributes.name.clone() })
    }

    pub(in super::super) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    pub(in super::super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.descriptor())
    }

    pub(in super::super) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.descriptor())
    }

    pub(in super::super) fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.events.poll()
    }

    pub(in super::super) fn take_events(&mut self) {
        let functions = self.channel.functions;
        loop {
            let (mut queue, mut user) = (ptr::null_mut(), ptr::null_mut());
            let channel = self.channel.raw.as_ptr();
            // SAFETY: the channel is alive and does not block; both places are written to.
            let result =
                unsafe { (functions.ibv_get_cq_event)(channel, &raw mut queue, &raw mut user) };
            if result != 0 {
                return;
            }
            // SAFETY: only this thread destroys queues, and destruction waits for this
            // acknowledgement.
            unsafe { (functions.ibv_ack_cq_events)(queue, 1) };
        }
    }

    pub(in super::super) fn create_completion_queue(
        &self,
        entries: u32,
    ) -> io::Result<CompletionQueue> {
        let functions = self.channel.functions;
        let (context, channel) = (self.channel.context.as_ptr(), self.channel.raw.as_ptr());
        let entries = i32::try_from(entries).map_err(io::Error::other)?;
        // SAFETY: context and channel are alive and are kept so by the queue.
        let raw = made(unsafe {
            (functions.ibv_create_cq)(context, entries, ptr::null_mut(), channel, 0)
        })?;
        let queue = Queue { raw, channel: Rc::clone(&self.channel) };
        let more = if self.attributes.soft_roce { flag::WITH_INVALIDATE_SOFT_ROCE } else { 0 };
        let invalidated_flags = flag::WITH_INVALIDATE | more;
        Ok(CompletionQueue { queue: Rc::new(queue), invalidated_flags })
    }
}

/// A completion queue, which queue pairs keep alive.
#[derive(Debug)]
pub(super) struct Queue {
    raw: NonNull<abi::Queue>,
    channel: Rc<Channel>,
}

impl Queue {
    pub(super) fn raw(&self) -> *mut abi::Queue {
        self.raw.as_ptr()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: every queue pair on it held an `Rc` of it.
        let result = unsafe { (self.channel.functions.ibv_destroy_cq)(self.raw.as_ptr()) };
        if let Err(error) = number(result) {
            log::warn!("an RDMA completion queue cannot be destroyed: {error}");
        }
    }
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    queue: Rc<Queue>,
    /// The flags that mark an invalidated key.
    invalidated_flags: u32,
}

impl CompletionQueue {
    pub(super) fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    pub(in super::super) fn key(&self) -> u64 {
        self.queue.raw().addr() as u64
    }

    pub(in super::super) fn poll(
        &mut self,
        most: usize,
        into: &mut Vec<WorkCompletion>,
    ) -> io::Result<usize> {
        let mut works = [abi::Work::default(); BATCH];
        let room = i32::try_from(most.min(BATCH)).unwrap_or(0);
        let raw = self.queue.raw();
        // SAFETY: the queue is alive; at most `room` entries are written, which is what is there.
        let found = unsafe { ((*(*raw).context).poll_cq)(raw, room, works.as_mut_ptr()) };
        let found = usize::try_from(found)
            .map_err(|_| io::Error::other(format!("polling a completion queue failed: {found}")))?;
        into.extend(works.iter().take(found).map(|work| {
            let invalidated = work.flags & self.invalidated_flags != 0;
            WorkCompletion {
                work: work.work,
                queue_pair: work.queue_pair,
                status: WorkStatus(work.status),
                bytes: work.bytes,
                invalidated: invalidated.then_some(work.invalidated),
            }
        }));
        Ok(found)
    }

    pub(in super::super) fn arm(&mut self) -> io::Result<()> {
        let raw = self.queue.raw();
        // SAFETY: the queue is alive.
        number(unsafe { ((*(*raw).context).req_notify_cq)(raw, 0) })
    }
}

/// A memory region, kept alive by memory windows bound to it.
#[derive(Debug)]
pub(super) struct RawRegion {
    raw: NonNull<abi::MemoryRegion>,
    domain: Rc<RawDomain>,
    /// Keeps the memory mapped until the region is deregistered.
    _pool: Pool,
}

impl RawRegion {
    pub(super) fn raw(&self) -> *mut abi::MemoryRegion {
        self.raw.as_ptr()
    }
}

#[derive(Debug)]
pub(crate) struct Region {
    inner: Rc<RawRegion>,
}

impl Region {
    pub(super) fn inner(&self) -> &Rc<RawRegion> {
        &self.inner
    }

    pub(in super::super) fn local_key(&self) -> u32 {
        // SAFETY: the region is registered as long as `self` is there.
        unsafe { (*self.inner.raw()).local_key }
    }

    pub(in super::super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.inner.raw()).remote_key }
    }
}

impl Drop for RawRegion {
    fn drop(&mut self) {
        // SAFETY: it is registered, and given back once.
        let result = unsafe { (self.domain.functions.ibv_dereg_mr)(self.raw.as_ptr()) };
        if let Err(error) = number(result) {
            log::warn!("RDMA memory cannot be deregistered: {error}");
        }
    }
}

/// The properties of a device, and of one of its ports.
pub(super) fn attributes(
    functions: &Functions,
    context: NonNull<abi::Context>,
    port: u8,
) -> io::Result<Attributes> {
    // SAFETY: a device's limits are plain numbers, of which zeroes are some.
    let mut limits: abi::DeviceLimits = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `limits` is as large as the library expects.
    number(unsafe { (functions.ibv_query_device)(context.as_ptr(), &raw mut limits) })?;
    let state = port_state(functions, context, port)?;
    // SAFETY: an open context has its operations; some may be missing.
    let has_windows = unsafe {
        (*context.as_ptr()).alloc_mw.is_some() && (*context.as_ptr()).dealloc_mw.is_some()
    };
    // SAFETY: an open context points to its device, whose name is a string for as long.
    let (name, transport) = unsafe {
        let device = (*context.as_ptr()).device;
        let name = CStr::from_ptr((functions.ibv_get_device_name)(device));
        (name.to_string_lossy().into_owned(), (*device).transport_type)
    };
    let kind = match (transport, state.link_layer) {
        (abi::TRANSPORT_IWARP, _) => DeviceKind::Iwarp,
        (_, abi::LINK_ETHERNET) => DeviceKind::Roce,
        _ => DeviceKind::InfiniBand,
    };
    let depth = |reads: u32| u8::try_from(reads).unwrap_or(u8::MAX);
    Ok(Attributes {
        name,
        kind,
        queue_depth_max: limits.max_qp_wr,
        queue_pairs_max: limits.max_qp,
        completion_entries_max: limits.max_cqe,
        pieces_max: limits.max_sge,
        initiator_depth_max: depth(limits.max_qp_init_rd_atom),
        responder_resources_max: depth(limits.max_qp_rd_atom),
        send_with_invalidate: limits.device_cap_flags & abi::MEMORY_MANAGEMENT_EXTENSIONS != 0,
        memory_windows: has_windows && limits.device_cap_flags & abi::MEMORY_WINDOW_TYPE_2B != 0,
        soft_roce: kind == DeviceKind::Roce && limits.vendor_id == abi::VENDOR_SOFT_ROCE,
        soft_iwarp: kind == DeviceKind::Iwarp && limits.vendor_id == abi::VENDOR_SOFT_IWARP,
    })
}

fn port_state(
    functions: &Functions,
    context: NonNull<abi::Context>,
    port: u8,
) -> io::Result<abi::PortState> {
    // SAFETY: a port's state is plain numbers, of which zeroes are some.
    let mut state: abi::PortState = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `state` is as large as the library expects.
    number(unsafe { (functions.ibv_query_port)(context.as_ptr(), port.max(1), &raw mut state) })?;
    Ok(state)
}

/// A device of this machine, and whether connections can be made over it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDevice {
    /// Its properties.
    pub attributes: Attributes,
    /// Whether its first port is up.
    pub active: bool,
}

/// All devices of this machine, each with its properties or the error of opening it.
pub fn devices() -> io::Result<Vec<(String, io::Result<LocalDevice>)>> {
    let functions = super::library::functions()?;
    let mut count = 0;
    // SAFETY: `count` is written to; the list is given back below.
    let list = made(unsafe { (functions.ibv_get_device_list)(&raw mut count) })
        .map_err(|error| explained(&error, "the RDMA devices cannot be listed"))?;
    let mut found = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, each with a name.
        let (device, name) = unsafe {
            let device = *list.as_ptr().add(index);
            let name = CStr::from_ptr((functions.ibv_get_device_name)(device));
            (device, name.to_string_lossy().into_owned())
        };
        // SAFETY: the device is on the list, which is still held.
        let context = made(unsafe { (functions.ibv_open_device)(device) });
        let look = context.and_then(|context| {
            let attributes = attributes(functions, context, 1);
            let state = port_state(functions, context, 1);
            // SAFETY: it was opened above and nothing was made with it.
            done(unsafe { (functions.ibv_close_device)(context.as_ptr()) })?;
            Ok(LocalDevice { attributes: attributes?, active: state?.state == abi::PORT_ACTIVE })
        });
        found.push((name, look));
    }
    // SAFETY: it came from `ibv_get_device_list` and no device of it is used any more.
    unsafe { (functions.ibv_free_device_list)(list.as_ptr()) };
    Ok(found)
}
