//! Block devices of this kernel that are served from user space: ublk.
//!
//! [`Control`] makes and ends such devices. Each has queues, of which one thread serves one: it
//! maps the [`Queue`], adds it to its reactor ([`Reactor::add_ublk_queue`](crate::Reactor)) and
//! submits [`Operation::FetchUblk`](crate::Operation) for each of its tags. The operation completes
//! when the kernel has a request for that tag, [`Queue::request`] says which, and the next
//! operation for the tag has its result.
//!
//! The kernel copies data between the operation's buffer and the pages of who made the request: the
//! data of a write before the operation completes, that of a read when its result is handed over.
//!
//! The layouts are those of `linux/ublk_cmd.h`.

mod control;
mod queue;

pub(crate) use control::{COMMIT_AND_FETCH_REQ, FETCH_REQ};
pub use control::{Control, Device};
pub(crate) use queue::QueueInfo;
pub use queue::{Kind, Queue, Request};

/// A device as the kernel knows it (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number: the block device is `/dev/ublkbN`.
    pub id: u32,
    /// Number of queues.
    pub queues: u16,
    /// Requests in flight of each queue, at most.
    pub depth: u16,
    /// What it does.
    pub state: State,
    /// Most bytes of a request.
    pub request_bytes_max: u32,
    /// The process that serves it, or that did.
    pub pid: u32,
    /// Features ([`Features`]).
    pub features: Features,
    /// A number that is the server's own.
    pub mark: u64,
}

/// What a device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It is not started, or it is stopped.
    #[default]
    Dead,
    /// It is served.
    Live,
    /// Its server has ended: requests wait for another one.
    Quiesced,
    /// A state of a kernel that is newer than this program.
    Other(u16),
}

impl State {
    const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Dead,
            1 => Self::Live,
            2 => Self::Quiesced,
            other => Self::Other(other),
        }
    }
}

/// Features of the kernel or of a device (`UBLK_F_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// A device outlives its server.
    pub const USER_RECOVERY: Self = Self(1 << 3);
    /// Requests that the old server had are given to the new one.
    pub const USER_RECOVERY_REISSUE: Self = Self(1 << 4);
    /// Commands are encoded as those of `ioctl` are.
    pub const CMD_IOCTL_ENCODE: Self = Self(1 << 6);
    /// The size can change while the device is served.
    pub const UPDATE_SIZE: Self = Self(1 << 10);

    /// Whether it has all of these.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl DeviceInfo {
    const BYTES: usize = 64;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 8, &self.request_bytes_max.to_ne_bytes());
        put(&mut bytes, 12, &self.id.to_ne_bytes());
        put(&mut bytes, 16, &self.pid.to_ne_bytes());
        put(&mut bytes, 24, &self.features.0.to_ne_bytes());
        put(&mut bytes, 32, &self.mark.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(get(bytes, 0)),
            depth: u16::from_ne_bytes(get(bytes, 2)),
            state: State::from_number(u16::from_ne_bytes(get(bytes, 4))),
            request_bytes_max: u32::from_ne_bytes(get(bytes, 8)),
            id: u32::from_ne_bytes(get(bytes, 12)),
            pid: u32::from_ne_bytes(get(bytes, 16)),
            features: Features(u64::from_ne_bytes(get(bytes, 24))),
            mark: u64::from_ne_bytes(get(bytes, 32)),
        }
    }
}

/// What the kernel is told of a device's medium (`struct ublk_params`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Nothing is written.
    pub read_only: bool,
    /// A hard disk.
    pub rotational: bool,
    /// Completed writes may be lost with the power until a flush.
    pub volatile_cache: bool,
    /// A single write can be made durable.
    pub durable_write: bool,
    /// Size of a logical block, as a power of two.
    pub logical_block_shift: u8,
    /// Of a physical one.
    pub physical_block_shift: u8,
    /// The best length of a transfer.
    pub optimal_shift: u8,
    /// Most sectors of a request that has data.
    pub sectors_max: u32,
    /// The size in sectors of 512 bytes.
    pub sectors: u64,
    /// Bytes of which discards are a multiple.
    pub discard_granularity: u32,
    /// Most sectors of a discard; 0: none can be discarded.
    pub discard_sectors_max: u32,
    /// Most sectors that are zeroed at once; 0: the kernel writes zeroes.
    pub zero_sectors_max: u32,
}

impl Parameters {
    /// As far as `struct ublk_param_devt`, which only the kernel fills.
    const BYTES: usize = 76;
    /// `UBLK_PARAM_TYPE_BASIC`, `UBLK_PARAM_TYPE_DISCARD`.
    const BASIC: u32 = 1;
    const DISCARD: u32 = 2;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let discards = self.discard_sectors_max != 0 || self.zero_sectors_max != 0;
        let types = if discards { Self::BASIC | Self::DISCARD } else { Self::BASIC };
        let length = u32::try_from(Self::BYTES).unwrap_or(0);
        put(&mut bytes, 0, &length.to_ne_bytes());
        put(&mut bytes, 4, &types.to_ne_bytes());
        let attributes = [self.read_only, self.rotational, self.volatile_cache, self.durable_write];
        let attributes = (0..).zip(attributes).map(|(bit, set)| u32::from(set) << bit).sum::<u32>();
        put(&mut bytes, 8, &attributes.to_ne_bytes());
        let shifts = [
            self.logical_block_shift,
            self.physical_block_shift,
            self.optimal_shift,
            self.physical_block_shift,
        ];
        put(&mut bytes, 12, &shifts);
        put(&mut bytes, 16, &self.sectors_max.to_ne_bytes());
        put(&mut bytes, 24, &self.sectors.to_ne_bytes());
        if discards {
            put(&mut bytes, 44, &self.discard_granularity.to_ne_bytes());
            put(&mut bytes, 48, &self.discard_sectors_max.to_ne_bytes());
            put(&mut bytes, 52, &self.zero_sectors_max.to_ne_bytes());
            put(&mut bytes, 56, &1_u16.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at| u32::from_ne_bytes(get(bytes, at));
        let attribute = |bit: u32| word(8) >> bit & 1 != 0;
        let [logical_block_shift, physical_block_shift, optimal_shift, _] = get(bytes, 12);
        let discards = word(4) & Self::DISCARD != 0;
        let of_discard = |at| if discards { word(at) } else { 0 };
        Self {
            read_only: attribute(0),
            rotational: attribute(1),
            volatile_cache: attribute(2),
            durable_write: attribute(3),
            logical_block_shift,
            physical_block_shift,
            optimal_shift,
            sectors_max: word(16),
            sectors: u64::from_ne_bytes(get(bytes, 24)),
            discard_granularity: of_discard(44),
            discard_sectors_max: of_discard(48),
            zero_sectors_max: of_discard(52),
        }
    }
}

/// Writes a field.
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Reads a field.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_layout_of_the_kernel() {
        let info = DeviceInfo {
            id: 0x0d0c_0b0a,
            queues: 3,
            depth: 128,
            state: State::Dead,
            request_bytes_max: 0x8_0000,
            pid: 77,
            features: Features::USER_RECOVERY.with(Features::UPDATE_SIZE),
            mark: 0x1122_3344_5566_7788,
        };
        let mut bytes = info.to_bytes();
        assert_eq!(bytes[12..16], 0x0d0c_0b0a_u32.to_ne_bytes());
        assert_eq!(bytes[24..32], 0x408_u64.to_ne_bytes());
        put(&mut bytes, 4, &2_u16.to_ne_bytes());
        assert_eq!(DeviceInfo::from_bytes(&bytes), DeviceInfo { state: State::Quiesced, ..info });
    }

    #[test]
    fn parameters_have_the_layout_of_the_kernel() {
        let parameters = Parameters {
            read_only: true,
            volatile_cache: true,
            logical_block_shift: 9,
            physical_block_shift: 12,
            optimal_shift: 17,
            sectors_max: 1024,
            sectors: 1 << 33,
            discard_granularity: 4096,
            discard_sectors_max: 8,
            zero_sectors_max: 16,
            ..Parameters::default()
        };
        let bytes = parameters.to_bytes();
        assert_eq!(bytes[..12], [76, 3, 5].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[12..16], [9, 12, 17, 12]);
        assert_eq!(Parameters::from_bytes(&bytes), parameters);
        let plain = Parameters { discard_sectors_max: 0, zero_sectors_max: 0, ..parameters };
        assert_eq!(plain.to_bytes()[4..8], 1_u32.to_ne_bytes());
        assert_eq!(Parameters::from_bytes(&plain.to_bytes()).discard_granularity, 0);
    }
}
