//! The bounds of a session, and where each number comes from.

/// In-capsule data that a controller must take on an admin queue and with Fabrics commands, in
/// bytes: the TCP transport fixes it, Linux calls it `NVME_TCP_ADMIN_CCSZ`.
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// In-capsule data that a controller takes on I/O queues unless configured otherwise, in bytes.
/// Twice the usual 8 KiB of SPDK and four times that of Linux, so that small writes need no R2T.
pub const IN_CAPSULE_BYTES_DEFAULT: u32 = 16 * 1024;

/// MAXH2CDATA that a controller announces unless configured otherwise, in bytes. Not below
/// [`R2T_BYTES_DEFAULT`]: hosts older than Linux 5.17 answer each R2T with one PDU, however long.
pub const MAXIMUM_H2C_DATA_DEFAULT: u32 = 1024 * 1024;

/// Bytes that a controller asks for with one R2T unless configured otherwise: with the usual
/// transfer sizes one round suffices.
pub const R2T_BYTES_DEFAULT: u32 = 1024 * 1024;

/// Bytes that a controller sends with one C2HData PDU unless configured otherwise.
pub const C2H_DATA_BYTES_DEFAULT: u32 = 1024 * 1024;

/// R2Ts of one command that a controller keeps outstanding, however many the host would take
/// (MAXR2T). More would only fill the socket that one already fills.
pub const R2T_OUTSTANDING_MAX: usize = 4;

/// MAXR2T that a host announces unless configured otherwise, as a count. Each costs the host a
/// queue entry.
pub const MAXIMUM_R2T_DEFAULT: u32 = 4;

/// Bits of a transfer tag or command identifier that name a slot; the other four are the index of
/// an R2T (target) or a generation (host).
pub const SLOT_BITS: u32 = 12;

/// Commands in flight on one connection at most. One less than the bits could name, so that no
/// command identifier is FFFFh.
pub const SLOTS_MAX: u16 = (1 << SLOT_BITS) - 1;

/// Commands in flight before Connect: Connect itself.
pub const SLOTS_BEFORE_CONNECT: u16 = 1;

const _: () = assert!(R2T_OUTSTANDING_MAX <= 1 << (16 - SLOT_BITS));
const _: () = assert!(MAXIMUM_H2C_DATA_DEFAULT >= R2T_BYTES_DEFAULT);
