//! One reactor's hold on an adapter: protection domain, completion channel, completion queues and
//! registered memory.

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
use super::library::{done, explained, made, number};
use super::news::News;

/// Completions taken from a queue at once.
const BATCH: usize = 64;

/// What completion queues, regions and queue pairs keep alive.
#[derive(Debug)]
pub(super) struct Domain {
    functions: &'static Functions,
    context: NonNull<abi::Context>,
    raw: NonNull<abi::Domain>,
    channel: NonNull<abi::Channel>,
}

impl Domain {
    fn open(functions: &'static Functions, context: NonNull<abi::Context>) -> io::Result<Self> {
        // SAFETY: the context is one of the connection manager's, which it keeps open.
        let channel = made(unsafe { (functions.ibv_create_comp_channel)(context.as_ptr()) })?;
        // SAFETY: as above.
        let raw = made(unsafe { (functions.ibv_alloc_pd)(context.as_ptr()) });
        let raw = raw.inspect_err(|_| {
            // SAFETY: nothing uses the channel yet.
            unsafe { (functions.ibv_destroy_comp_channel)(channel.as_ptr()) };
        })?;
        let domain = Self { functions, context, raw, channel };
        let flags = fcntl_getfl(domain.descriptor())?;
        fcntl_setfl(domain.descriptor(), flags | OFlags::NONBLOCK)?;
        Ok(domain)
    }

    pub(super) fn raw(&self) -> *mut abi::Domain {
        self.raw.as_ptr()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there as long as `self`, and its descriptor as long as it.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whatever was made with the domain or the channel held an `Rc` of this.
        let results = unsafe {
            [
                (self.functions.ibv_dealloc_pd)(self.raw.as_ptr()),
                (self.functions.ibv_destroy_comp_channel)(self.channel.as_ptr()),
            ]
        };
        for error in results.into_iter().filter_map(|result| number(result).err()) {
            log::warn!("an RDMA protection domain or completion channel stays behind: {error}");
        }
    }
}

#[derive(Debug)]
pub(crate) struct Device {
    domain: Rc<Domain>,
    news: News,
    attributes: Attributes,
}

impl Device {
    pub(super) fn open(
        functions: &'static Functions,
        context: NonNull<abi::Context>,
        port: u8,
    ) -> io::Result<Self> {
        let attributes = attributes(functions, context, port)?;
        let news = News::open(functions, context)?;
        Ok(Self { domain: Rc::new(Domain::open(functions, context)?), news, attributes })
    }

    pub(super) fn domain(&self) -> &Rc<Domain> {
        &self.domain
    }

    pub(in super::super) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    pub(in super::super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.domain.descriptor())
    }

    pub(in super::super) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.news.descriptor())
    }

    pub(in super::super) fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.news.poll()
    }

    pub(in super::super) fn take_events(&mut self) {
        let functions = self.domain.functions;
        loop {
            let (mut queue, mut user) = (ptr::null_mut(), ptr::null_mut());
            let channel = self.domain.channel.as_ptr();
            // SAFETY: the channel is alive and does not block; both places are written to.
            let result =
                unsafe { (functions.ibv_get_cq_event)(channel, &raw mut queue, &raw mut user) };
            if result != 0 {
                return;
            }
            // SAFETY: a queue whose event was read is not destroyed before this acknowledgement,
            // for which its destruction waits; and it is destroyed by this thread only.
            unsafe { (functions.ibv_ack_cq_events)(queue, 1) };
        }
    }

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
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        let address = ptr::with_exposed_provenance_mut::<c_void>(pool.address() + offset);
        let register = self.domain.functions.ibv_reg_mr;
        // SAFETY: the range lies in the pool's mapping, which the region keeps alive. What the
        // device writes there are bytes of buffers that nobody reads until the work completes.
        let raw = made(unsafe { register(self.domain.raw(), address, bytes, flags) });
        let device = || self.attributes.name.clone();
        let raw = raw.map_err(|error| NotRegistered { device: device(), bytes, error })?;
        Ok(Region { raw, domain: Rc::clone(&self.domain), _pool: pool.clone() })
    }

    pub(in super::super) fn create_completion_queue(
        &self,
        entries: u32,
    ) -> io::Result<CompletionQueue> {
        let functions = self.domain.functions;
        let (context, channel) = (self.domain.context.as_ptr(), self.domain.channel.as_ptr());
        let entries = i32::try_from(entries).map_err(io::Error::other)?;
        // SAFETY: context and channel are alive and are kept so by the queue.
        let raw = made(unsafe {
            (functions.ibv_create_cq)(context, entries, ptr::null_mut(), channel, 0)
        })?;
        let queue = Queue { raw, domain: Rc::clone(&self.domain) };
        Ok(CompletionQueue { queue: Rc::new(queue) })
    }
}

/// A completion queue, which queue pairs keep alive.
#[derive(Debug)]
pub(super) struct Queue {
    raw: NonNull<abi::Queue>,
    domain: Rc<Domain>,
}

impl Queue {
    pub(super) fn raw(&self) -> *mut abi::Queue {
        self.raw.as_ptr()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: every queue pair on it held an `Rc` of it.
        let result = unsafe { (self.domain.functions.ibv_destroy_cq)(self.raw.as_ptr()) };
        if let Err(error) = number(result) {
            log::warn!("an RDMA completion queue stays behind: {error}");
        }
    }
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    queue: Rc<Queue>,
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
            let invalidated = work.flags & flag::WITH_INVALIDATE != 0;
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

#[derive(Debug)]
pub(crate) struct Region {
    raw: NonNull<abi::Registered>,
    domain: Rc<Domain>,
    /// The memory stays mapped until the device has let go of it.
    _pool: Pool,
}

impl Region {
    pub(in super::super) fn local_key(&self) -> u32 {
        // SAFETY: the region is registered as long as `self` is there.
        unsafe { (*self.raw.as_ptr()).local_key }
    }

    pub(in super::super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).remote_key }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it is registered, and given back once.
        let result = unsafe { (self.domain.functions.ibv_dereg_mr)(self.raw.as_ptr()) };
        if let Err(error) = number(result) {
            log::warn!("RDMA memory stays registered: {error}");
        }
    }
}

/// What a device can do, seen from one of its ports.
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
pub struct Found {
    /// What it can do.
    pub attributes: Attributes,
    /// Whether its first port is up.
    pub active: bool,
}

/// All devices of this machine, each as it is or with the reason why it cannot be opened.
pub fn devices() -> io::Result<Vec<(String, io::Result<Found>)>> {
    let functions = super::library::functions()?;
    let mut count = 0;
    // SAFETY: `count` is written to; the list is given back below.
    let list = made(unsafe { (functions.ibv_get_device_list)(&raw mut count) })
        .map_err(|error| explained(&error, "the kernel tells nothing of its RDMA devices"))?;
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
            Ok(Found { attributes: attributes?, active: state?.state == abi::PORT_ACTIVE })
        });
        found.push((name, look));
    }
    // SAFETY: it came from `ibv_get_device_list` and no device of it is used any more.
    unsafe { (functions.ibv_free_device_list)(list.as_ptr()) };
    Ok(found)
}
