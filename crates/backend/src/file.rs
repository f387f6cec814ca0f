//! A regular file as a device.
//!
//! It is opened with `O_DIRECT` where `statx`, or a trial read, shows that single blocks can be
//! transferred from page-aligned memory; otherwise it is used through the page cache. In both cases
//! the cache is volatile: at least the file's metadata is not durable before a flush (`fdatasync`).
//!
//! A discard punches a hole, which reads as zeroes. Opening the file tests whether the file system
//! supports that; otherwise there is no discard.
//!
//! One block is atomic. File systems do not promise that a read which overlaps a write returns all
//! or nothing of it; devices promise it for their sectors, and with `O_DIRECT` a block is such a
//! sector. So a compare-and-write of several blocks is atomic for all writers, but for readers only
//! block by block, and the geometry reports one block.

use crate::claim::{self, Claim, ClaimedFile};
use crate::engine::Shared;
use crate::error::check_size;
use crate::watch::Watch;
use crate::{
    BlockDevice, Capabilities, DeviceFactory, Geometry, OpenError, ResizeError, Storage, StorageId,
    bytes, files, geometry,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, StatxFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_reactor::simulation::SimulatedFile;
use weft_reactor::{FileId, FileSource, Owner, Reactor};

/// How to open a file. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Create the file with this size if it does not exist, for its owner only; extend it if it is
    /// smaller. It is never truncated.
    pub create_bytes: Option<u64>,
    /// The block size: 512 or 4096, or with `direct: Some(false)` any power of two. By default 4096
    /// if the size is a multiple of it, else 512.
    pub block_bytes: Option<u32>,
    /// Use `O_DIRECT`, or the page cache. By default `O_DIRECT` where it works.
    pub direct: Option<bool>,
    /// Refuse writes.
    pub read_only: bool,
    /// Other processes may write to the file. Otherwise it is locked against them.
    pub shared: bool,
    /// The file is only looked at: it is neither created nor extended, and a file without a name
    /// stands for one that would be created.
    pub is_trial: bool,
}

/// A namespace in a file.
#[derive(Debug)]
pub struct FileFactory {
    path: PathBuf,
    file: Arc<File>,
    read_only: bool,
    shared: Arc<Shared>,
    _watch: Option<Watch>,
    _claim: Claim,
}

impl FileFactory {
    /// Opens the file, or creates it.
    pub fn open(path: &Path, options: FileOptions) -> Result<Self, OpenError> {
        // Before one is created.
        claim::check_not_own(path)?;
        let is_created = !is_there(path, &options)?;
        let is_unnamed = is_created && options.is_trial;
        let system = |doing| move |error| OpenError::system(doing, path, error);
        let file = open_file(path, &options, is_unnamed);
        let file = Arc::new(file.map_err(system("open"))?);
        let metadata = file.metadata().map_err(system("stat"))?;
        let id = match is_unnamed {
            true => StorageId::Named(files::canonical(path).display().to_string()),
            false => StorageId::of_metadata(&metadata),
        };
        let claimed = ClaimedFile { path, file: &file, id: &id, is_created };
        let claim = claim::claim(claimed, options.read_only || options.shared)?;
        let mut bytes = metadata.len();
        if let Some(wanted) = options.create_bytes.filter(|wanted| *wanted > bytes) {
            if options.read_only {
                return Err(OpenError::Invalid(cannot_grow(path, wanted)));
            }
            if is_unnamed || !options.is_trial {
                file.set_len(wanted).map_err(system("set the size of"))?;
            }
            bytes = wanted;
        }
        if is_created && !options.is_trial {
            log::warn!("{} is created, empty, with {}", path.display(), bytes::human(bytes));
        }
        if options.create_bytes.is_some_and(|wanted| wanted < bytes) {
            let (path, has) = (path.display(), bytes::human(bytes));
            log::warn!("{path} has {has}, which is more than its size=; it is not cut");
        }
        let block_bytes = choose_block_bytes(path, bytes, &options)?;
        // What is not extended yet may have no block to try it with, and what has no name may be
        // memory.
        let is_tried = !options.is_trial || metadata.len() >= bytes;
        let direct = is_tried && choose_direct(path, &file, block_bytes, options.direct)?;
        let path = match is_unnamed {
            true => files::canonical(path),
            false => path.canonicalize().map_err(system("resolve"))?,
        };
        let mut geometry = Geometry::new(bytes, block_bytes);
        let is_written = !options.read_only && !options.is_trial;
        let can_discard = is_written && can_punch_holes(&file, bytes);
        let allocation = u32::try_from(metadata.blksize()).unwrap_or(0) / block_bytes;
        geometry.preferred_blocks = allocation.max(1);
        geometry.discard_granularity_blocks = if can_discard { allocation.max(1) } else { 0 };
        geometry.capabilities = Capabilities {
            read_only: options.read_only,
            volatile_cache: true,
            discard: can_discard,
            discard_reads_zeroes: can_discard,
            write_zeroes: !options.read_only,
            durable_write: true,
            compare_and_write: !options.read_only,
            ..Capabilities::default()
        };
        claim.storage().set_bytes(bytes);
        let shared = Shared::new(geometry, direct, claim.storage());
        let read_only = options.read_only;
        let watch = Watch::new(&file, claim.storage());
        Ok(Self { path, file, read_only, shared, _watch: watch, _claim: claim })
    }

    /// Whether `O_DIRECT` is used.
    pub fn is_direct(&self) -> bool {
        self.shared.direct
    }
}

impl DeviceFactory for FileFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        open_shared(reactor, owner, &self.shared, reopened(&self.file, &self.path))
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

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        let geometry = self.shared.geometry();
        if self.read_only {
            return Err(ResizeError::Unsupported);
        }
        check_size(bytes, geometry.block_bytes)?;
        // A handle must not see blocks that do not exist: a smaller size is published first.
        if bytes < geometry.bytes() {
            self.shared.set_bytes(bytes);
        }
        let result = self.file.set_len(bytes);
        self.refresh().map_err(ResizeError::System)?;
        result.map_err(ResizeError::System)
    }

    fn refresh(&self) -> io::Result<Geometry> {
        self.shared.set_bytes(self.file.metadata()?.len());
        Ok(self.shared.geometry())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync(&self.file)
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        Some(&self.shared.storage)
    }

    fn detached(&self) -> Option<String> {
        let path = self.path.display();
        if self.file.metadata().is_ok_and(|file| file.nlink() == 0) {
            let (process, number) = (std::process::id(), self.file.as_raw_fd());
            return Some(format!(
                "{path} was removed while it is served: its data is gone when it is no longer \
                 served; stop the hosts that write to it, and copy /proc/{process}/fd/{number}"
            ));
        }
        let found = StorageId::of(&self.path);
        (found.as_ref() != Some(self.shared.storage.id())).then(|| {
            let now = if found.is_some() { "another file is there" } else { "nothing is there" };
            format!(
                "the file that is served as {path} was moved away, and {now}: the next start would \
                 not find its data; move it back"
            )
        })
    }
}

/// A namespace in a file of the simulated world.
#[derive(Debug)]
pub struct SimulatedFileFactory {
    file: SimulatedFile,
    shared: Arc<Shared>,
}

impl SimulatedFileFactory {
    /// Uses a file that was added to the world with this many bytes.
    pub fn new(file: SimulatedFile, bytes: u64, block_bytes: u32) -> Result<Self, OpenError> {
        let mut geometry = geometry::sized(bytes, block_bytes)?;
        geometry.capabilities = Capabilities {
            volatile_cache: true,
            discard: true,
            discard_reads_zeroes: true,
            write_zeroes: true,
            durable_write: true,
            compare_and_write: true,
            ..Capabilities::default()
        };
        // Another process of that world has a storage of its own.
        let storage = Storage::new(StorageId::Named(format!("{file:?}")), false);
        storage.set_bytes(bytes);
        Ok(Self { file, shared: Shared::new(geometry, true, &storage) })
    }
}

impl DeviceFactory for SimulatedFileFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        open_shared(reactor, owner, &self.shared, self.file)
    }

    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        format!("{:?}", self.file)
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        Some(&self.shared.storage)
    }

    fn resize(&self, _: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
}

/// Opens a file or block device on a reactor.
pub(crate) fn open_shared(
    reactor: &mut Reactor,
    owner: Owner,
    shared: &Arc<Shared>,
    file: impl Into<FileSource>,
) -> Result<Box<dyn BlockDevice>, OpenError> {
    let id = reactor.add_file(file, shared.direct);
    open_registered(reactor, owner, shared, id)
}

/// The same of a file that the reactor has already.
pub(crate) fn open_registered(
    reactor: &mut Reactor,
    owner: Owner,
    shared: &Arc<Shared>,
    id: FileId,
) -> Result<Box<dyn BlockDevice>, OpenError> {
    match shared.open(id, owner) {
        Some(device) => Ok(Box::new(device)),
        None => {
            reactor.remove_file(id);
            Err(OpenError::Invalid("too many reactors have the device open".to_owned()))
        }
    }
}

/// What is said of a file that is not there, and is not to be created.
#[must_use]
pub fn missing_file(path: &Path) -> String {
    let shown = path.display();
    match path.starts_with("/dev") {
        true => format!("there is no {shown} (lsblk lists the devices of this machine)"),
        false => format!("{shown} does not exist (add size=1GiB to create it)"),
    }
}

/// Opens the file, or what stands for one that would be created.
fn open_file(path: &Path, options: &FileOptions, is_unnamed: bool) -> std::io::Result<File> {
    if is_unnamed {
        return files::create_unnamed(path);
    }
    OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .create(options.create_bytes.is_some() && !options.read_only && !options.is_trial)
        .mode(0o600)
        .open(path)
}

/// Why a file that is only read cannot have its `size`.
fn cannot_grow(path: &Path, wanted: u64) -> String {
    let (path, wanted) = (path.display(), bytes::human(wanted));
    format!("{path} is smaller than {wanted} and cannot grow read-only")
}

/// Whether there is such a file; if not, it is to be created.
fn is_there(path: &Path, options: &FileOptions) -> Result<bool, OpenError> {
    let kind = match path.metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match options.create_bytes {
                // Checked before the file is created.
                Some(bytes) if !options.read_only => {
                    choose_block_bytes(path, bytes, options).map(|_| false)
                }
                _ => Err(OpenError::Invalid(missing_file(path))),
            };
        }
        Err(error) => return Err(OpenError::system("stat", path, error)),
    };
    if kind.is_file() {
        return Ok(true);
    }
    let path = path.display();
    Err(OpenError::Invalid(if kind.is_block_device() {
        format!("{path} is a block device, not a file (use block:{path})")
    } else {
        format!("{path} is not a regular file")
    }))
}

fn choose_block_bytes(path: &Path, bytes: u64, options: &FileOptions) -> Result<u32, OpenError> {
    let fitting = if bytes.is_multiple_of(4096) { 4096 } else { 512 };
    let block_bytes = options.block_bytes.unwrap_or(fitting);
    let is_small = options.direct == Some(false) && block_bytes.is_power_of_two();
    if bytes < u64::from(block_bytes) || !is_small && !geometry::is_block_size(block_bytes) {
        let what = format!(
            "{} has {bytes} bytes, less than a block of {block_bytes} (extend it with \
             size=1GiB)",
            path.display()
        );
        return Err(OpenError::Invalid(what));
    }
    Ok(block_bytes)
}

/// Sets O_DIRECT if it is wanted, or if it works and nothing was specified.
fn choose_direct(
    path: &Path,
    file: &File,
    block_bytes: u32,
    wanted: Option<bool>,
) -> Result<bool, OpenError> {
    if wanted == Some(false) {
        return Ok(false);
    }
    match try_direct(file, block_bytes) {
        Ok(true) => Ok(true),
        Ok(false) if wanted.is_none() => Ok(false),
        Ok(false) => Err(OpenError::Invalid(format!(
            "{} cannot be used with O_DIRECT in blocks of {block_bytes} bytes (direct=off uses the \
             page cache)",
            path.display()
        ))),
        Err(error) => Err(OpenError::system("set O_DIRECT on", path, error)),
    }
}

fn try_direct(file: &File, block_bytes: u32) -> io::Result<bool> {
    let alignment = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let alignment = alignment.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    if let Some(stat) = alignment {
        let memory = stat.stx_dio_mem_align;
        let offset = stat.stx_dio_offset_align;
        if memory == 0 || u64::from(memory) > PAGE_BYTES as u64 || offset > block_bytes {
            return Ok(false);
        }
    }
    let flags = rustix::fs::fcntl_getfl(file)?;
    if rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(false);
    }
    if alignment.is_some() || reads_directly(file, block_bytes) {
        return Ok(true);
    }
    rustix::fs::fcntl_setfl(file, flags)?;
    Ok(false)
}

const PAGE_BYTES: usize = weft_reactor::BUFFER_BYTES_MIN;

/// Older kernels do not report the alignment; a read shows it.
fn reads_directly(file: &File, block_bytes: u32) -> bool {
    let Ok(block_bytes) = usize::try_from(block_bytes) else { return false };
    let mut memory = vec![0; block_bytes + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    let aligned = memory.get_mut(start..).and_then(|memory| memory.get_mut(..block_bytes));
    aligned.is_some_and(|block| file.read_exact_at(block, 0).is_ok())
}

/// Punches a hole behind the end of the file, as a test: it changes nothing.
fn can_punch_holes(file: &File, bytes: u64) -> bool {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, hole, bytes.next_multiple_of(PAGE_BYTES as u64), 4096).is_ok()
}

/// The file by another open file description, for a handle of its own: Linux tells a lost
/// write-back once to each, so that with one for all handles only the first flush would fail.
pub(crate) fn reopened(file: &Arc<File>, path: &Path) -> Arc<File> {
    let node = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = rustix::fs::fcntl_getfl(file)
        // A file without a name is opened as others are.
        .map(|flags| (flags - OFlags::TMPFILE) | OFlags::CLOEXEC)
        .and_then(|flags| rustix::fs::open(node, flags, Mode::empty()));
    match opened {
        Ok(descriptor) => Arc::new(descriptor.into()),
        Err(error) => {
            let (path, error) = (path.display(), io::Error::from(error));
            log::warn!(
                "{path} cannot be opened once more ({error}): of flushes at the same time only one \
                 would be told that writes were lost"
            );
            Arc::clone(file)
        }
    }
}

/// Opens a device node with O_DIRECT, or without where that is refused.
pub(crate) fn open_node(path: &Path, write: bool, exclusive: bool) -> io::Result<(File, bool)> {
    let exclusive = if exclusive { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
    };
    match open(exclusive | OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            Ok((open(exclusive)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_handle_has_an_open_file_description_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let options = FileOptions { create_bytes: Some(1 << 20), ..FileOptions::default() };
        let factory = FileFactory::open(&path, options).unwrap();
        let file = reopened(&factory.file, &path);
        (&*factory.file).seek(SeekFrom::Start(5)).unwrap();
        assert_eq!((&*file).stream_position().unwrap(), 0, "the position is of the description");
        let flags = |file: &File| rustix::fs::fcntl_getfl(file).unwrap();
        assert_eq!(flags(&file), flags(&factory.file));
    }

    #[test]
    fn a_created_file_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let options = FileOptions { create_bytes: Some(1 << 20), ..FileOptions::default() };
        drop(FileFactory::open(&path, options).unwrap());
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        drop(FileFactory::open(&path, options).unwrap());
        assert_eq!(mode(), 0o640, "that of a file that exists is left");
    }
}
