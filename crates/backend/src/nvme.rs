//! A namespace of an NVMe device of this machine without the block layer: its character device,
//! `/dev/ngXnY`, whose commands io_uring hands over.
//!
//! Its size, blocks and capabilities are what Identify says. Protection information of 8 bytes is
//! added and checked by the device (PRACT); other metadata is not carried, and such a namespace is
//! refused. The namespace's block device is held meanwhile, so that nobody else writes to it.

use crate::claim::{self, Claim, ClaimedFile};
use crate::engine::Shared;
use crate::{
    BlockDevice, Capabilities, DeviceFactory, Geometry, OpenError, ResizeError, Storage, StorageId,
    file,
};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_reactor::{NvmeFormat, NvmeNamespace, Owner, Reactor};

/// CNS of Identify Namespace, of Identify Controller, and of that for the NVM command set.
const NAMESPACE: u8 = 0;
const CONTROLLER: u8 = 1;
const COMMAND_SET_CONTROLLER: u8 = 6;

/// Most bytes of a command, so that its pages fit the segments that the kernel gives a request.
const TRANSFER_BYTES_MAX: u64 = 256 << 10;

/// The unit of MDTS: the smallest page of a controller (CAP.MPSMIN), 4 KiB on all that are known.
const PAGE_SHIFT: u32 = 12;

/// A namespace of a device.
#[derive(Debug)]
pub(crate) struct NvmeFactory {
    path: PathBuf,
    namespace: NvmeNamespace,
    format: NvmeFormat,
    shared: Arc<Shared>,
    /// The block device, open exclusively unless others may write.
    _held: Option<Arc<File>>,
    _claim: Claim,
}

impl NvmeFactory {
    pub(crate) fn open(path: &Path, read_only: bool, shared: bool) -> Result<Self, OpenError> {
        let system = |doing| move |error| OpenError::system(doing, path, error);
        let namespace = NvmeNamespace::open(path, !read_only).map_err(|error| {
            if error.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) {
                return OpenError::Invalid(format!(
                    "{} is neither a block device nor an NVMe namespace (/dev/ngXnY)",
                    path.display()
                ));
            }
            OpenError::system("open", path, error)
        })?;
        let identified = namespace.identify(NAMESPACE, namespace.nsid());
        let identified = identified.map_err(system("identify"))?;
        let controller = namespace.identify(CONTROLLER, 0).map_err(system("identify"))?;
        // Controllers before NVMe 2.0 need not have it.
        let command_set = namespace.identify(COMMAND_SET_CONTROLLER, 0).ok();
        let held = block_device(path).filter(|block| block.exists());
        let limits = Limits {
            zeroes: command_set.map_or(0, |identified| identified[1]),
            kernel_bytes: held.as_ref().and_then(|block| kernel_bytes_max(block)),
        };
        let described = IdentifiedNamespace::of(&identified, &controller, limits, read_only);
        let IdentifiedNamespace { geometry, format } =
            described.map_err(|why| OpenError::Invalid(format!("{} {why}", path.display())))?;
        let opened = namespace.file().metadata().map_err(system("stat"))?;
        let id = StorageId::of_metadata(&opened);
        let exclusive = !read_only && !shared && !claim::takes_turns() && !claim::is_claimed(&id);
        let held = held.and_then(|block| match file::open_node(&block, !read_only, exclusive) {
            Ok((file, _)) => Some(Arc::new(file)),
            Err(error) => {
                log::warn!("{} is in use by another program or mounted: {error}", block.display());
                None
            }
        });
        let file = held.as_ref().unwrap_or(namespace.file());
        let claimed = ClaimedFile { path, file, id: &id, is_created: false };
        let claim = claim::claim(claimed, read_only || shared)?;
        let path = path.canonicalize().map_err(system("resolve"))?;
        claim.storage().set_bytes(geometry.bytes());
        let shared = Shared::new(geometry, true, claim.storage());
        Ok(Self { path, namespace, format, shared, _held: held, _claim: claim })
    }
}

/// The block device of the same namespace.
fn block_device(path: &Path) -> Option<PathBuf> {
    let name = path.canonicalize().ok()?;
    let numbers = name.file_name()?.to_str()?.strip_prefix("ng")?;
    Some(name.with_file_name(format!("nvme{numbers}")))
}

/// Most bytes of a command that the kernel's driver takes, which depends on the machine's bus, too.
fn kernel_bytes_max(block: &Path) -> Option<u64> {
    let name = block.file_name()?;
    let limit = Path::new("/sys/class/block").join(name).join("queue/max_hw_sectors_kb");
    let kib: u64 = fs::read_to_string(limit).ok()?.trim().parse().ok()?;
    Some(kib << 10).filter(|bytes| *bytes > 0)
}

impl DeviceFactory for NvmeFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let id = reactor
            .add_nvme_namespace(&self.namespace, self.format)
            .map_err(|error| OpenError::system("give commands to", &self.path, error))?;
        file::open_registered(reactor, owner, &self.shared, id)
    }

    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        self.path.display().to_string()
    }

    fn resize(&self, _: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }

    fn refresh(&self) -> io::Result<Geometry> {
        let identified = self.namespace.identify(NAMESPACE, self.namespace.nsid())?;
        let blocks = u64::from_le_bytes(field(&identified, 0));
        self.shared.set_bytes(blocks << self.format.block_shift);
        Ok(self.shared.geometry())
    }

    fn sync(&self) -> io::Result<()> {
        if self.shared.geometry().capabilities.read_only {
            return Ok(());
        }
        self.shared.lost_writes().synced(self.namespace.flush())
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        Some(&self.shared.storage)
    }
}

/// Limits of commands beside MDTS.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// WZSL: that of Write Zeroes, in the form of MDTS.
    zeroes: u8,
    /// Most bytes that the kernel's driver takes, where it says so.
    kernel_bytes: Option<u64>,
}

/// The bytes of a limit in the form of MDTS; none if there is no limit.
fn limit_bytes(limit: u8) -> Option<u64> {
    (limit > 0).then(|| 1 << (PAGE_SHIFT + u32::from(limit).min(u32::BITS - PAGE_SHIFT)))
}

/// What Identify says.
#[derive(Debug, PartialEq, Eq)]
struct IdentifiedNamespace {
    geometry: Geometry,
    format: NvmeFormat,
}

impl IdentifiedNamespace {
    /// Reads both structures; `Err` ends a sentence that begins with the device.
    fn of(
        namespace: &[u8],
        controller: &[u8],
        limits: Limits,
        read_only: bool,
    ) -> Result<Self, String> {
        let (flbas, dps) = (namespace[26], namespace[29]);
        let format = usize::from(flbas & 0xf | flbas >> 1 & 0x30);
        let lbaf: [u8; 4] = field(namespace, 128 + 4 * format);
        let metadata = u16::from_le_bytes([lbaf[0], lbaf[1]]);
        let protection_type = if metadata == 8 { dps & 7 } else { 0 };
        if metadata != 0 && protection_type == 0 {
            return Err(format!(
                "has {metadata} bytes of metadata with each block, which weft does not carry: \
                 nvme format makes it one without"
            ));
        }
        let block_shift = u32::from(lbaf[2]);
        if !(9..=16).contains(&block_shift) {
            return Err(format!("has blocks of 2^{block_shift} bytes, which are not supported"));
        }
        let blocks = u64::from_le_bytes(field(namespace, 0));
        let size = blocks.checked_mul(1 << block_shift).filter(|size| *size > 0);
        let size = size.ok_or_else(|| format!("has {blocks} blocks: nothing to serve"))?;
        let geometry = geometry(namespace, controller, size, 1 << block_shift, read_only);
        let mut format = command_sizes(controller[77], limits, block_shift)?;
        format.protection_type = protection_type;
        let oncs = u16::from_le_bytes(field(controller, 520));
        format.writes_zeroes = oncs & 1 << 3 != 0;
        // DLFEAT: deallocated blocks read as zeroes, and Write Zeroes can deallocate.
        format.deallocates_zeroes = namespace[33] & 0xf == 1 << 3 | 1;
        Ok(Self { geometry, format })
    }
}

fn geometry(
    namespace: &[u8],
    controller: &[u8],
    size: u64,
    block_bytes: u32,
    read_only: bool,
) -> Geometry {
    let mut geometry = Geometry::new(size, block_bytes);
    // Hints hold where NSFEAT says so (OPTPERF), and are 0's based.
    let hint = |at| u32::from(u16::from_le_bytes(field(namespace, at))) + 1;
    if namespace[24] & 1 << 4 != 0 {
        geometry.preferred_blocks = hint(64);
        geometry.optimal_blocks = hint(72);
        geometry.discard_granularity_blocks = hint(68);
    }
    let oncs = u16::from_le_bytes(field(controller, 520));
    let read_only = read_only || namespace[99] & 1 != 0;
    let discards = oncs & 1 << 2 != 0 && !read_only;
    geometry.discard_granularity_blocks =
        if discards { geometry.discard_granularity_blocks.max(1) } else { 0 };
    geometry.capabilities = Capabilities {
        read_only,
        volatile_cache: controller[525] & 1 != 0,
        discard: discards,
        discard_reads_zeroes: namespace[33] & 7 == 1,
        write_zeroes: !read_only,
        durable_write: true,
        compare_and_write: !read_only,
        write_uncorrectable: false,
        rotational: false,
    };
    geometry
}

/// How large commands may be: of whole blocks. Where WZSL says nothing MDTS counts for Write Zeroes
/// as well, which has no data, because controllers apply it (Linux does the same).
fn command_sizes(mdts: u8, limits: Limits, block_shift: u32) -> Result<NvmeFormat, String> {
    let whole = |bytes: u64| bytes >> block_shift << block_shift;
    let of_device = limit_bytes(mdts).unwrap_or(u64::MAX);
    let transfer = of_device.min(limits.kernel_bytes.unwrap_or(u64::MAX)).min(TRANSFER_BYTES_MAX);
    let zeroes = limit_bytes(limits.zeroes).unwrap_or(of_device);
    if whole(transfer) == 0 || whole(zeroes) == 0 {
        let most = transfer.min(zeroes);
        return Err(format!("has blocks of 2^{block_shift} bytes and takes {most} in a command"));
    }
    Ok(NvmeFormat {
        block_shift,
        transfer_bytes_max: whole(transfer),
        protection_type: 0,
        writes_zeroes: false,
        zeroes_bytes_max: whole(zeroes),
        deallocates_zeroes: false,
    })
}

/// Bytes of a structure of 4 KiB.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace of 1,000 blocks in format 1, of which there is one with metadata of so many
    /// bytes; and a controller with all optional commands.
    fn identified(metadata: u8, protection: u8) -> ([u8; 4096], [u8; 4096]) {
        let (mut namespace, mut controller) = ([0; 4096], [0; 4096]);
        namespace[..2].copy_from_slice(&1000_u16.to_le_bytes());
        (namespace[24], namespace[26], namespace[29], namespace[33]) = (1 << 4, 1, protection, 1);
        (namespace[64], namespace[68], namespace[72]) = (7, 15, 31);
        (namespace[132], namespace[134]) = (metadata, 12);
        (controller[77], controller[520], controller[525]) = (5, 0b1100, 1);
        (namespace, controller)
    }

    fn described(
        namespace: &[u8],
        controller: &[u8],
        read_only: bool,
    ) -> Result<IdentifiedNamespace, String> {
        IdentifiedNamespace::of(namespace, controller, Limits::default(), read_only)
    }

    #[test]
    fn commands_are_of_whole_blocks_and_no_longer_than_any_limit() {
        let sizes = |mdts, zeroes, kernel_bytes, shift| {
            let sizes = command_sizes(mdts, Limits { zeroes, kernel_bytes }, shift);
            sizes.map(|sizes| (sizes.transfer_bytes_max, sizes.zeroes_bytes_max))
        };
        const UNLIMITED: u64 = u64::MAX << 12;
        for ((mdts, zeroes, kernel_bytes), expected) in [
            ((0, 0, None), (256 << 10, UNLIMITED)),
            ((5, 0, None), (128 << 10, 128 << 10)),
            ((5, 3, None), (128 << 10, 32 << 10)),
            ((5, 12, None), (128 << 10, 16 << 20)),
            // A bus that takes 127 KiB.
            ((5, 0, Some(127 << 10)), (124 << 10, 128 << 10)),
            ((255, 255, None), (256 << 10, 1 << 32)),
        ] {
            assert_eq!(sizes(mdts, zeroes, kernel_bytes, 12), Ok(expected), "{mdts} {zeroes}");
        }
        assert_eq!(sizes(4, 0, Some(96 << 10), 16), Ok((64 << 10, 64 << 10)));
        for (mdts, zeroes, kernel_bytes) in [(3, 0, None), (0, 3, None), (0, 0, Some(32 << 10))] {
            let why = sizes(mdts, zeroes, kernel_bytes, 16).unwrap_err();
            assert!(why.ends_with("takes 32768 in a command"), "{why}");
        }
    }

    #[test]
    fn zeroes_deallocate_where_that_reads_as_zeroes() {
        let (mut namespace, controller) = identified(0, 0);
        for (features, expected) in [(0b1001, true), (0b0001, false), (0b1010, false), (8, false)] {
            namespace[33] = features;
            let found = described(&namespace, &controller, false).unwrap();
            assert_eq!(found.format.deallocates_zeroes, expected, "{features:#b}");
        }
    }

    #[test]
    fn a_device_is_what_identify_says() {
        let (namespace, controller) = identified(0, 0);
        let found = described(&namespace, &controller, false).unwrap();
        let geometry = found.geometry;
        assert_eq!((geometry.blocks, geometry.block_bytes), (1000, 4096));
        assert_eq!((geometry.preferred_blocks, geometry.optimal_blocks), (8, 32));
        assert_eq!(geometry.discard_granularity_blocks, 16);
        let can = geometry.capabilities;
        assert!(can.volatile_cache && can.discard && can.discard_reads_zeroes && !can.read_only);
        let format = NvmeFormat {
            block_shift: 12,
            transfer_bytes_max: 128 << 10,
            protection_type: 0,
            writes_zeroes: true,
            zeroes_bytes_max: 128 << 10,
            deallocates_zeroes: false,
        };
        assert_eq!(found.format, format);
        let read_only = described(&namespace, &controller, true).unwrap().geometry;
        assert!(read_only.capabilities.read_only && !read_only.capabilities.discard);
    }

    #[test]
    fn metadata_is_protection_or_refused() {
        let (namespace, mut controller) = identified(8, 1);
        controller[77] = 0;
        let found = described(&namespace, &controller, false).unwrap();
        assert_eq!(found.format.protection_type, 1);
        assert_eq!(found.format.transfer_bytes_max, TRANSFER_BYTES_MAX);
        for (metadata, protection) in [(8, 0), (16, 1), (64, 0)] {
            let (namespace, controller) = identified(metadata, protection);
            let why = described(&namespace, &controller, false).unwrap_err();
            assert!(why.contains("metadata"), "{why}");
        }
        let empty = described(&[0; 4096], &controller, false).unwrap_err();
        assert!(empty.contains("2^0"), "{empty}");
    }
}
