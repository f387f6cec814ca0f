//! Layouts and functions of libibverbs and librdmacm, as far as they are used here.
//!
//! The libraries promise these layouts for their version 1. Structures that only they allocate are
//! declared up to the last field that is read. The tests compare sizes and offsets with those of a
//! C compiler.

use std::ffi::{c_char, c_int, c_void};

/// `struct ibv_context`, with the operations that are called through it, up to the descriptor of
/// its asynchronous events. Some providers do not have those of memory windows.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut DeviceHandle,
    before: [*mut c_void; 7],
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut Domain, c_int) -> *mut RawWindow>,
    bind_mw: *mut c_void,
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut RawWindow) -> c_int>,
    create_cq: *mut c_void,
    pub(super) poll_cq: unsafe extern "C" fn(*mut Queue, c_int, *mut Work) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Queue, c_int) -> c_int,
    between: [*mut c_void; 12],
    pub(super) post_send:
        unsafe extern "C" fn(*mut RawQueuePair, *mut Send, *mut *mut Send) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut RawQueuePair, *mut Receive, *mut *mut Receive) -> c_int,
    behind: [*mut c_void; 5],
    cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// `struct ibv_async_event`. Its element is a pointer or, for a port, a number.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AsyncEvent {
    pub(super) element: AsyncElement,
    pub(super) kind: u32,
}

/// The object of an asynchronous event.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union AsyncElement {
    pub(super) queue: *mut Queue,
    pub(super) pair: *mut RawQueuePair,
    pub(super) port: c_int,
}

/// `struct ibv_device`.
#[repr(C)]
pub(super) struct DeviceHandle {
    operations: [*mut c_void; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
}

/// `struct ibv_device_attr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct DeviceLimits {
    before: [u32; 24],
    pub(super) vendor_id: u32,
    vendor_part_id: u32,
    hw_ver: u32,
    pub(super) max_qp: u32,
    pub(super) max_qp_wr: u32,
    pub(super) device_cap_flags: u32,
    pub(super) max_sge: u32,
    max_sge_rd: u32,
    max_cq: u32,
    pub(super) max_cqe: u32,
    max_mr: u32,
    max_pd: u32,
    pub(super) max_qp_rd_atom: u32,
    max_ee_rd_atom: u32,
    max_res_rd_atom: u32,
    pub(super) max_qp_init_rd_atom: u32,
    behind: [u32; 18],
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PortState {
    pub(super) state: u32,
    max_mtu: u32,
    active_mtu: u32,
    between: [u8; 34],
    pub(super) link_layer: u8,
    behind: [u8; 5],
}

/// `struct ibv_pd`.
#[repr(C)]
pub(super) struct Domain {
    pub(super) context: *mut Context,
    handle: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct Channel {
    context: *mut Context,
    pub(super) fd: c_int,
    users: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(super) struct Queue {
    pub(super) context: *mut Context,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(super) struct RawQueuePair {
    pub(super) context: *mut Context,
    parts: [*mut c_void; 5],
    handle: u32,
    pub(super) number: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct MemoryRegion {
    context: *mut Context,
    domain: *mut Domain,
    address: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(super) struct RawWindow {
    pub(super) context: *mut Context,
    domain: *mut Domain,
    pub(super) key: u32,
    handle: u32,
    kind: c_int,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scatter {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) key: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Send {
    pub(super) work: u64,
    pub(super) next: *mut Send,
    pub(super) list: *mut Scatter,
    pub(super) pieces: c_int,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    pub(super) invalidate: u32,
    pub(super) remote_address: u64,
    pub(super) remote_key: u32,
    pub(super) behind: [u64; 3],
    pub(super) window: *mut RawWindow,
    pub(super) window_key: u32,
    /// The `struct ibv_mw_bind_info` of a window.
    pub(super) region: *mut MemoryRegion,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) access: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) work: u64,
    pub(super) next: *mut Receive,
    pub(super) list: *mut Scatter,
    pub(super) pieces: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) work: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    vendor_error: u32,
    pub(super) bytes: u32,
    pub(super) invalidated: u32,
    pub(super) queue_pair: u32,
    source: u32,
    pub(super) flags: u32,
    key_index: u16,
    source_identifier: u16,
    service_level: u8,
    path_bits: u8,
}

/// `struct ibv_qp_init_attr`, with its `struct ibv_qp_cap`.
#[repr(C)]
pub(super) struct PairOptions {
    pub(super) context: *mut c_void,
    pub(super) send_queue: *mut Queue,
    pub(super) receive_queue: *mut Queue,
    pub(super) shared_receives: *mut c_void,
    pub(super) send_depth: u32,
    pub(super) receive_depth: u32,
    pub(super) send_pieces: u32,
    pub(super) receive_pieces: u32,
    pub(super) inline_bytes: u32,
    pub(super) kind: u32,
    pub(super) all_signalled: c_int,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct sockaddr_storage`.
pub(super) type Address = [u64; 16];

/// `struct rdma_cm_id`.
#[repr(C)]
pub(super) struct Identifier {
    pub(super) verbs: *mut Context,
    channel: *mut EventChannel,
    /// The context given to `rdma_create_id`.
    pub(super) user: *mut c_void,
    pub(super) pair: *mut RawQueuePair,
    pub(super) source: Address,
    pub(super) destination: Address,
    route: [u8; 60],
    pub(super) port: u8,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub(super) struct Event {
    pub(super) identifier: *mut Identifier,
    pub(super) listener: *mut Identifier,
    pub(super) kind: u32,
    pub(super) status: c_int,
    pub(super) connection: Connection,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) private_data: *const c_void,
    pub(super) private_data_length: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) shared_receives: u8,
    pub(super) queue_pair: u32,
}

/// `IBV_TRANSPORT_IWARP`.
pub(super) const TRANSPORT_IWARP: c_int = 1;
/// The vendor ID of soft-iWARP.
pub(super) const VENDOR_SOFT_IWARP: u32 = 0x62_6d74;
/// The vendor ID of soft-RoCE.
pub(super) const VENDOR_SOFT_ROCE: u32 = 0xff_ffff;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(super) const LINK_ETHERNET: u8 = 2;
/// `IBV_PORT_ACTIVE`.
pub(super) const PORT_ACTIVE: u32 = 4;
/// `IBV_DEVICE_MEM_MGT_EXTENSIONS`.
pub(super) const MEMORY_MANAGEMENT_EXTENSIONS: u32 = 1 << 21;
/// `IBV_DEVICE_MEM_WINDOW_TYPE_2B`.
pub(super) const MEMORY_WINDOW_TYPE_2B: u32 = 1 << 24;
/// `IBV_MW_TYPE_2`.
pub(super) const WINDOW_TYPE_2: c_int = 2;
/// `IBV_QPT_RC`.
pub(super) const RELIABLE_CONNECTION: u32 = 2;
/// `RDMA_PS_TCP`.
pub(super) const PORT_SPACE_TCP: c_int = 0x106;

/// `enum ibv_access_flags`.
pub(super) mod access {
    pub(in super::super) const LOCAL_WRITE: i32 = 1;
    pub(in super::super) const REMOTE_WRITE: i32 = 2;
    pub(in super::super) const REMOTE_READ: i32 = 4;
    pub(in super::super) const WINDOW_BIND: i32 = 16;
}

/// `enum ibv_wr_opcode`.
pub(super) mod opcode {
    pub(in super::super) const WRITE: u32 = 0;
    pub(in super::super) const SEND: u32 = 2;
    pub(in super::super) const READ: u32 = 4;
    pub(in super::super) const LOCAL_INVALIDATE: u32 = 7;
    pub(in super::super) const BIND_WINDOW: u32 = 8;
    pub(in super::super) const SEND_WITH_INVALIDATE: u32 = 9;
}

/// `enum ibv_send_flags`, and from `enum ibv_wc_flags` the flag for an invalidated key.
pub(super) mod flag {
    pub(in super::super) const SIGNALED: u32 = 2;
    pub(in super::super) const INLINE: u32 = 8;
    pub(in super::super) const WITH_INVALIDATE: u32 = 8;
    /// The flag for an invalidated key that soft-RoCE returns: the kernel's, which in this enum is
    /// a flag of datagrams only.
    pub(in super::super) const WITH_INVALIDATE_SOFT_ROCE: u32 = 4;
}

/// `enum rdma_cm_event_type`.
pub(super) mod event {
    pub(in super::super) const ADDRESS_RESOLVED: u32 = 0;
    pub(in super::super) const ADDRESS_ERROR: u32 = 1;
    pub(in super::super) const ROUTE_RESOLVED: u32 = 2;
    pub(in super::super) const ROUTE_ERROR: u32 = 3;
    pub(in super::super) const CONNECT_REQUEST: u32 = 4;
    pub(in super::super) const CONNECT_ERROR: u32 = 6;
    pub(in super::super) const UNREACHABLE: u32 = 7;
    pub(in super::super) const REJECTED: u32 = 8;
    pub(in super::super) const ESTABLISHED: u32 = 9;
    pub(in super::super) const DISCONNECTED: u32 = 10;
    pub(in super::super) const DEVICE_REMOVAL: u32 = 11;
    pub(in super::super) const ADDRESS_CHANGE: u32 = 14;
}

/// `enum ibv_event_type`.
pub(super) mod device_event {
    pub(in super::super) const QUEUE_ERROR: u32 = 0;
    pub(in super::super) const PAIR_FATAL: u32 = 1;
    pub(in super::super) const PAIR_REQUEST_ERROR: u32 = 2;
    pub(in super::super) const PAIR_ACCESS_ERROR: u32 = 3;
    pub(in super::super) const DEVICE_FATAL: u32 = 8;
    pub(in super::super) const PORT_ACTIVE: u32 = 9;
    pub(in super::super) const PORT_ERROR: u32 = 10;
}

/// Declares the functions of both libraries and how to load them.
macro_rules! functions {
    ($($library:ident: fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The loaded functions.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Loads all functions, or returns the missing one.
            pub(super) fn find(
                verbs: &libloading::Library,
                manager: &libloading::Library,
            ) -> Result<Self, libloading::Error> {
                let libraries = Libraries { verbs, manager };
                Ok(Self {
                    // SAFETY: the libraries' headers declare each function with this signature.
                    $($name: unsafe {
                        *libraries.$library.get(concat!(stringify!($name), "\0").as_bytes())?
                    },)*
                })
            }
        }
    };
}

struct Libraries<'a> {
    verbs: &'a libloading::Library,
    manager: &'a libloading::Library,
}

functions! {
    verbs: fn ibv_get_device_list(*mut c_int) -> *mut *mut DeviceHandle;
    verbs: fn ibv_free_device_list(*mut *mut DeviceHandle);
    verbs: fn ibv_get_device_name(*mut DeviceHandle) -> *const c_char;
    verbs: fn ibv_open_device(*mut DeviceHandle) -> *mut Context;
    verbs: fn ibv_close_device(*mut Context) -> c_int;
    verbs: fn ibv_query_device(*mut Context, *mut DeviceLimits) -> c_int;
    verbs: fn ibv_query_port(*mut Context, u8, *mut PortState) -> c_int;
    verbs: fn ibv_alloc_pd(*mut Context) -> *mut Domain;
    verbs: fn ibv_dealloc_pd(*mut Domain) -> c_int;
    verbs: fn ibv_reg_mr(*mut Domain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    verbs: fn ibv_dereg_mr(*mut MemoryRegion) -> c_int;
    verbs: fn ibv_create_comp_channel(*mut Context) -> *mut Channel;
    verbs: fn ibv_destroy_comp_channel(*mut Channel) -> c_int;
    verbs: fn ibv_create_cq(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Queue;
    verbs: fn ibv_destroy_cq(*mut Queue) -> c_int;
    verbs: fn ibv_get_cq_event(*mut Channel, *mut *mut Queue, *mut *mut c_void) -> c_int;
    verbs: fn ibv_ack_cq_events(*mut Queue, u32);
    verbs: fn ibv_get_async_event(*mut Context, *mut AsyncEvent) -> c_int;
    verbs: fn ibv_ack_async_event(*mut AsyncEvent);
    manager: fn rdma_create_event_channel() -> *mut EventChannel;
    manager: fn rdma_destroy_event_channel(*mut EventChannel);
    manager: fn rdma_create_id(
        *mut EventChannel, *mut *mut Identifier, *mut c_void, c_int
    ) -> c_int;
    manager: fn rdma_destroy_id(*mut Identifier) -> c_int;
    manager: fn rdma_bind_addr(*mut Identifier, *const c_void) -> c_int;
    manager: fn rdma_listen(*mut Identifier, c_int) -> c_int;
    manager: fn rdma_resolve_addr(*mut Identifier, *const c_void, *const c_void, c_int) -> c_int;
    manager: fn rdma_resolve_route(*mut Identifier, c_int) -> c_int;
    manager: fn rdma_migrate_id(*mut Identifier, *mut EventChannel) -> c_int;
    manager: fn rdma_create_qp(*mut Identifier, *mut Domain, *mut PairOptions) -> c_int;
    manager: fn rdma_destroy_qp(*mut Identifier);
    manager: fn rdma_connect(*mut Identifier, *mut Connection) -> c_int;
    manager: fn rdma_accept(*mut Identifier, *mut Connection) -> c_int;
    manager: fn rdma_reject(*mut Identifier, *const c_void, u8) -> c_int;
    manager: fn rdma_disconnect(*mut Identifier) -> c_int;
    manager: fn rdma_get_cm_event(*mut EventChannel, *mut *mut Event) -> c_int;
    manager: fn rdma_ack_cm_event(*mut Event) -> c_int;
    manager: fn rdma_get_devices(*mut c_int) -> *mut *mut Context;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Sizes and offsets of the headers of rdma-core 44, on a machine with pointers of 8 bytes.
    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<DeviceLimits>(), 232);
        assert_eq!(size_of::<PortState>(), 52);
        assert_eq!(size_of::<Domain>(), 16);
        assert_eq!(size_of::<Channel>(), 16);
        assert_eq!(size_of::<MemoryRegion>(), 48);
        assert_eq!(size_of::<Scatter>(), 16);
        assert_eq!(size_of::<Send>(), 128);
        assert_eq!(size_of::<Receive>(), 32);
        assert_eq!(size_of::<Work>(), 48);
        assert_eq!(size_of::<PairOptions>(), 64);
        assert_eq!(size_of::<Connection>(), 24);
        for (ours, theirs) in [
            (offset_of!(Context, alloc_mw), 64),
            (offset_of!(Context, dealloc_mw), 80),
            (offset_of!(Context, poll_cq), 96),
            (offset_of!(Context, req_notify_cq), 104),
            (offset_of!(Context, post_send), 208),
            (offset_of!(Context, post_recv), 216),
            (offset_of!(Context, async_fd), 268),
            (size_of::<AsyncEvent>(), 16),
            (offset_of!(AsyncEvent, kind), 8),
            (offset_of!(DeviceHandle, node_type), 16),
            (offset_of!(DeviceHandle, transport_type), 20),
            (offset_of!(DeviceLimits, vendor_id), 96),
            (offset_of!(DeviceLimits, max_qp), 108),
            (offset_of!(DeviceLimits, max_qp_wr), 112),
            (offset_of!(DeviceLimits, device_cap_flags), 116),
            (offset_of!(DeviceLimits, max_sge), 120),
            (offset_of!(DeviceLimits, max_cqe), 132),
            (offset_of!(DeviceLimits, max_qp_rd_atom), 144),
            (offset_of!(DeviceLimits, max_qp_init_rd_atom), 156),
            (offset_of!(PortState, link_layer), 46),
            (offset_of!(Channel, fd), 8),
            (offset_of!(RawQueuePair, number), 52),
            (offset_of!(MemoryRegion, local_key), 36),
            (offset_of!(MemoryRegion, remote_key), 40),
            (offset_of!(Send, pieces), 24),
            (offset_of!(Send, opcode), 28),
            (offset_of!(Send, flags), 32),
            (offset_of!(Send, invalidate), 36),
            (offset_of!(Send, remote_address), 40),
            (offset_of!(Send, remote_key), 48),
            (offset_of!(Send, window), 80),
            (offset_of!(Send, window_key), 88),
            (offset_of!(Send, region), 96),
            (offset_of!(Send, address), 104),
            (offset_of!(Send, length), 112),
            (offset_of!(Send, access), 120),
            (size_of::<RawWindow>(), 32),
            (offset_of!(RawWindow, key), 16),
            (offset_of!(Receive, list), 16),
            (offset_of!(Receive, pieces), 24),
            (offset_of!(Work, status), 8),
            (offset_of!(Work, bytes), 20),
            (offset_of!(Work, invalidated), 24),
            (offset_of!(Work, queue_pair), 28),
            (offset_of!(Work, flags), 36),
            (offset_of!(PairOptions, send_depth), 32),
            (offset_of!(PairOptions, kind), 52),
            (offset_of!(PairOptions, all_signalled), 56),
            (offset_of!(Identifier, pair), 24),
            (offset_of!(Identifier, source), 32),
            (offset_of!(Identifier, destination), 160),
            (offset_of!(Identifier, port), 348),
            (offset_of!(Event, kind), 16),
            (offset_of!(Event, status), 20),
            (offset_of!(Event, connection), 24),
            (offset_of!(Connection, private_data_length), 8),
            (offset_of!(Connection, responder_resources), 9),
            (offset_of!(Connection, rnr_retry_count), 13),
            (offset_of!(Connection, queue_pair), 16),
        ] {
            assert_eq!(ours, theirs);
        }
    }
}
