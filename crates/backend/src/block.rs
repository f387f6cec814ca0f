//! A block device of this machine.
//!
//! Its geometry is read from sysfs. Where sysfs is not mounted (some containers), the geometry is
//! what the device node's ioctls return, with a volatile cache and without discard.

use crate::claim::{self, Claim, ClaimedFile};
use crate::engine::Shared;
use crate::{
    BlockDevice, Capabilities, DeviceFactory, Geometry, OpenError, ResizeError, Storage, StorageId,
    file,
};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_reactor::{Owner, Reactor};

/// What is said of a path that is no block device.
fn not_a_block_device(path: &Path) -> String {
    let path = path.display();
    format!(
        "{path} is not a block device (give a file as file:{path}, --file {path} or \
         file = \"{path}\")"
    )
}

/// A namespace on a block device.
#[derive(Debug)]
pub struct BlockFactory {
    path: PathBuf,
    file: Arc<File>,
    polled: bool,
    shared: Arc<Shared>,
    _claim: Claim,
}

impl BlockFactory {
    /// Opens a block device by its node. One that is mounted or in use by another program is opened
    /// with a warning, because exclusion does not cover that program's writes. Another weft process
    /// is locked out unless `shared` is set. With `polled` the completions of reads and writes are
    /// looked for at the device, which needs queues that can be polled.
    pub fn open(
        path: &Path,
        read_only: bool,
        shared: bool,
        polled: bool,
    ) -> Result<Self, OpenError> {
        let system = |doing| move |error| OpenError::system(doing, path, error);
        let metadata = path.metadata().map_err(system("stat"))?;
        if !metadata.file_type().is_block_device() {
            return Err(OpenError::Invalid(not_a_block_device(path)));
        }
        let attributes = Attributes::of(metadata.rdev());
        let read_only = read_only || attributes.number("ro") == Some(1);
        let id = StorageId::of_metadata(&metadata);
        // It is held already if it is open here, by another name or as another namespace.
        let exclusive = !read_only && !shared && !claim::takes_turns() && !claim::is_claimed(&id);
        let (file, direct) = match file::open_node(path, !read_only, exclusive) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                log::warn!("{} is in use by another program or mounted", path.display());
                file::open_node(path, !read_only, false)
            }
            opened => opened,
        }
        .map_err(system("open"))?;
        if polled && (!direct || attributes.queue_number("io_poll") == Some(0)) {
            return Err(OpenError::Invalid(unpolled(path)));
        }
        let file = Arc::new(file);
        // What the path leads to may be another device by now.
        let id = StorageId::of_metadata(&file.metadata().map_err(system("stat"))?);
        let claimed = ClaimedFile { path, file: &file, id: &id, is_created: false };
        let claim = claim::claim(claimed, read_only || shared)?;
        let block_bytes = rustix::fs::ioctl_blksszget(&file)
            .map_err(|error| OpenError::system("read the block size of", path, error.into()))?;
        let bytes = end_of(&file).map_err(system("read the size of"))?;
        if bytes < u64::from(block_bytes) || !crate::is_block_size(block_bytes) {
            let what = format!(
                "{} has {bytes} bytes in blocks of {block_bytes}: nothing to serve",
                path.display()
            );
            return Err(OpenError::Invalid(what));
        }
        let geometry = attributes.geometry(bytes, block_bytes, read_only, direct);
        let path = path.canonicalize().map_err(system("resolve"))?;
        claim.storage().set_bytes(bytes);
        let shared = Shared::new(geometry, direct, claim.storage());
        Ok(Self { path, file, polled, shared, _claim: claim })
    }
}

impl DeviceFactory for BlockFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let file = file::reopened(&self.file, &self.path);
        if self.polled {
            let id = reactor
                .add_polled_file(file)
                .map_err(|error| OpenError::system("poll", &self.path, error))?;
            return file::open_registered(reactor, owner, &self.shared, id);
        }
        file::open_shared(reactor, owner, &self.shared, file)
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
        self.shared.set_bytes(end_of(&self.file)?);
        Ok(self.shared.geometry())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync(&self.file)
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        Some(&self.shared.storage)
    }
}

/// What is said of a device that cannot be polled.
fn unpolled(path: &Path) -> String {
    format!(
        "{} has no queues that can be polled (hipri): they are made by nvme's parameter \
         poll_queues for devices of this machine, and by --nr-poll-queues of nvme connect",
        path.display()
    )
}

/// Moves the file position, which nothing else uses: transfers give their offsets.
fn end_of(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// A block device's directory in sysfs.
#[derive(Debug)]
struct Attributes {
    device: PathBuf,
    /// For a partition, the queue directory of its disk.
    queue: PathBuf,
}

impl Attributes {
    fn of(device: u64) -> Self {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Self::at(PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
    }

    fn at(device: PathBuf) -> Self {
        // The parent directory is meaningful only after the link has been resolved.
        let device = device.canonicalize().unwrap_or(device);
        let disk = if device.join("partition").exists() { device.parent() } else { None };
        let queue = disk.unwrap_or(&device).join("queue");
        Self { device, queue }
    }

    fn geometry(&self, bytes: u64, block_bytes: u32, read_only: bool, direct: bool) -> Geometry {
        let blocks_of = |attribute: &str| {
            let bytes = self.queue_number(attribute).unwrap_or(0);
            u32::try_from(bytes / u64::from(block_bytes)).unwrap_or(0)
        };
        let discard = self.queue_number("discard_max_bytes").is_some_and(|bytes| bytes != 0);
        let mut geometry = Geometry::new(bytes, block_bytes);
        geometry.preferred_blocks =
            blocks_of("minimum_io_size").max(blocks_of("physical_block_size"));
        geometry.optimal_blocks = blocks_of("optimal_io_size");
        geometry.discard_granularity_blocks =
            if discard { blocks_of("discard_granularity").max(1) } else { 0 };
        geometry.capabilities = Capabilities {
            read_only,
            // The page cache is volatile, too.
            volatile_cache: !direct || self.queue_text("write_cache") != "write through",
            discard: discard && !read_only,
            // sysfs has no attribute for this.
            discard_reads_zeroes: false,
            write_zeroes: !read_only,
            durable_write: true,
            compare_and_write: !read_only,
            write_uncorrectable: false,
            rotational: self.queue_number("rotational") == Some(1),
        };
        geometry
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        text(&self.device.join(attribute)).parse().ok()
    }

    fn queue_number(&self, attribute: &str) -> Option<u64> {
        self.queue_text(attribute).parse().ok()
    }

    fn queue_text(&self, attribute: &str) -> String {
        text(&self.queue.join(attribute))
    }
}

fn text(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as sysfs shows a disk and its partition.
    fn disk() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("disk/queue")).unwrap();
        fs::create_dir_all(root.join("disk/part")).unwrap();
        fs::write(root.join("disk/part/partition"), "1\n").unwrap();
        fs::write(root.join("disk/part/ro"), "1\n").unwrap();
        for (attribute, value) in [
            ("physical_block_size", "4096"),
            ("minimum_io_size", "4096"),
            ("optimal_io_size", "131072"),
            ("discard_granularity", "65536"),
            ("discard_max_bytes", "2147450880"),
            ("write_cache", "write through"),
            ("rotational", "1"),
        ] {
            fs::write(root.join("disk/queue").join(attribute), format!("{value}\n")).unwrap();
        }
        std::os::unix::fs::symlink("disk/part", root.join("8:1")).unwrap();
        directory
    }

    #[test]
    fn a_partition_is_like_its_disk() {
        let directory = disk();
        let attributes = Attributes::at(directory.path().join("8:1"));
        assert_eq!(attributes.number("ro"), Some(1));
        let geometry = attributes.geometry(1 << 30, 512, false, true);
        assert_eq!(geometry.blocks, 1 << 21);
        assert_eq!(geometry.preferred_blocks, 8);
        assert_eq!(geometry.optimal_blocks, 256);
        assert_eq!(geometry.discard_granularity_blocks, 128);
        let can = geometry.capabilities;
        assert!(can.discard && can.rotational && can.compare_and_write);
        assert!(!can.volatile_cache && !can.read_only && !can.discard_reads_zeroes);
        assert!(attributes.geometry(1 << 30, 512, false, false).capabilities.volatile_cache);
        let read_only = attributes.geometry(1 << 30, 512, true, true).capabilities;
        assert!(read_only.read_only && !read_only.discard && !read_only.compare_and_write);
    }

    #[test]
    fn without_sysfs_a_volatile_cache_is_assumed() {
        let attributes = Attributes::at("/nowhere/8:0".into());
        let geometry = attributes.geometry(1 << 20, 4096, false, true);
        assert_eq!(geometry.blocks, 256);
        assert_eq!(geometry.preferred_blocks, 0);
        assert!(geometry.capabilities.volatile_cache);
        assert!(!geometry.capabilities.discard && !geometry.capabilities.rotational);
    }

    #[test]
    fn only_block_devices_are_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path(), Path::new("/dev/null"), Path::new("/"), Path::new("/nowhere")] {
            assert!(BlockFactory::open(path, true, false, false).is_err(), "{}", path.display());
        }
    }
}
