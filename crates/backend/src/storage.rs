//! What devices stand on: a file, a block device, an image of a cluster.
//!
//! A path is no identity: hard links, bind mounts, symbolic links and nodes of other names lead to
//! one storage, whose devices must exclude each other's writes, have one size, and know of each
//! other's lost writes. So all devices of one storage within a process share a [`Storage`] (see
//! [`claim`](crate::claim)), whatever their paths, wrappers and block sizes.

use crate::exclusion::Exclusion;
use crate::shared::{LostWrites, ResizeCallback};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_reactor::LoopBacking;

/// Identifies what a device stands on, whatever the path that led to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageId {
    /// A regular file.
    File {
        /// The device of its file system.
        device: u64,
        /// Its inode.
        inode: u64,
    },
    /// A block device, or the namespace of an NVMe device behind its character device.
    Block {
        /// Its number.
        device: u64,
    },
    /// The character device of an NVMe namespace that has no block device.
    Character {
        /// Its number.
        device: u64,
    },
    /// An image of a Ceph cluster.
    Image {
        /// The cluster's fsid.
        cluster: String,
        /// The pool's number.
        pool: i64,
        /// The namespace within the pool.
        namespace: String,
        /// The image's id, which stays when it is renamed.
        image: String,
    },
    /// Something that has a name and no other identity.
    Named(String),
}

impl StorageId {
    /// The identity of what a path leads to. None: nothing can be seen there.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|metadata| Self::of_metadata(&metadata))
    }

    pub(crate) fn of_metadata(metadata: &Metadata) -> Self {
        let (kind, number) = (metadata.file_type(), metadata.rdev());
        if kind.is_block_device() {
            return Self::Block { device: number };
        }
        if kind.is_char_device() {
            return namespace_of(Path::new(SYSFS), number)
                .map_or(Self::Character { device: number }, |device| Self::Block { device });
        }
        Self::File { device: metadata.dev(), inode: metadata.ino() }
    }

    /// The identities of what this one is a part of, or has its blocks on: a partition is a part of
    /// its disk, a loop device has its blocks in a file, a file on the device of its file system.
    #[must_use]
    pub fn wholes(&self) -> BTreeSet<Self> {
        wholes(self, &Machine::own())
    }

    /// What a block device has its blocks on, beginning with itself.
    pub(crate) fn beneath(&self) -> Vec<UnderlyingStorage> {
        beneath(self, &Machine::own())
    }

    /// Whether a loop device makes both of them have the same blocks beneath.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.is_block() && other.is_block() && overlaps(self, other, &Machine::own())
    }

    /// Whether it is a block device, which others can be a part of.
    pub(crate) const fn is_block(&self) -> bool {
        matches!(self, Self::Block { .. })
    }
}

/// Where it is seen what the devices of a machine stand on.
struct Machine {
    sysfs: PathBuf,
    /// Asks a loop device by its node and number. The text in sysfs is no identity.
    ask_loop: Box<AskLoop>,
}

type AskLoop = dyn Fn(&Path, u64) -> io::Result<LoopBacking>;

impl Machine {
    fn own() -> Self {
        Self { sysfs: PathBuf::from(SYSFS), ask_loop: Box::new(LoopBacking::of) }
    }
}

const SYSFS: &str = "/sys";

/// The directory of a device in sysfs.
fn directory_of(sysfs: &Path, kind: &str, device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // What is beside or above a directory is meaningful only after the link has been resolved.
    sysfs.join(format!("dev/{kind}/{major}:{minor}")).canonicalize().ok()
}

/// The number of the device that has this directory in sysfs.
fn number_of(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The block device of the same namespace as an NVMe device's character device: `ng0n1` is beside
/// `nvme0n1`.
fn namespace_of(sysfs: &Path, device: u64) -> Option<u64> {
    let directory = directory_of(sysfs, "char", device)?;
    let numbers = directory.file_name()?.to_str()?.strip_prefix("ng")?;
    // In newer kernels it is below a directory of its class.
    let name = format!("nvme{numbers}");
    let parents = directory.ancestors().skip(1).take(2);
    parents.into_iter().find_map(|parent| number_of(&parent.join(&name)))
}

fn wholes(id: &StorageId, machine: &Machine) -> BTreeSet<StorageId> {
    let mut found = BTreeSet::new();
    let mut next = vec![id.clone()];
    while let Some(id) = next.pop() {
        let above = match id {
            StorageId::File { device, .. } => vec![StorageId::Block { device }],
            StorageId::Block { device } => {
                whole_of(machine, device).into_iter().map(|whole| whole.id).collect()
            }
            _ => Vec::new(),
        };
        next.extend(above.into_iter().filter(|one| found.insert(one.clone())));
    }
    found
}

/// What a block device is a part of, or has its blocks on.
struct WholeDevice {
    id: StorageId,
    path: Option<PathBuf>,
    /// Whether other parts may be used beside it.
    has_parts: bool,
}

/// The disk of a partition, what a loop device has its blocks on, and the devices below one of the
/// device mapper, of md or of bcache.
fn whole_of(machine: &Machine, device: u64) -> Vec<WholeDevice> {
    let Some(directory) = directory_of(&machine.sysfs, "block", device) else { return Vec::new() };
    let mut wholes = Vec::new();
    let block = |directory: &Path| {
        let id = StorageId::Block { device: number_of(directory)? };
        Some(WholeDevice { id, path: node_in(directory), has_parts: true })
    };
    if directory.join("partition").exists() {
        wholes.extend(directory.parent().and_then(block));
    }
    wholes.extend(backing_of(machine, device, &directory));
    let slaves = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
    wholes.extend(slaves.filter_map(|slave| block(&slave.path())));
    wholes
}

/// What a loop device has its blocks on. What the kernel says in words is only where that may be
/// found, and is believed only if the device itself cannot be asked.
fn backing_of(machine: &Machine, device: u64, directory: &Path) -> Option<WholeDevice> {
    let text = fs::read_to_string(directory.join("loop/backing_file")).ok()?;
    let path = PathBuf::from(text.trim_end_matches('\n'));
    let node = node_in(directory);
    let id = match node.as_deref().map(|node| (machine.ask_loop)(node, device)) {
        Some(Ok(LoopBacking::File { device, inode })) => StorageId::File { device, inode },
        Some(Ok(LoopBacking::Block { device })) => StorageId::Block { device },
        Some(Err(_)) | None => StorageId::of(&path)?,
    };
    Some(WholeDevice { id, path: Some(path), has_parts: false })
}

/// The node that the kernel has made for the device with this directory in sysfs.
fn node_in(directory: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(directory.join("uevent")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

/// A file or node that a device has its blocks on, by which other processes are kept away.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnderlyingStorage {
    pub(crate) id: StorageId,
    pub(crate) path: PathBuf,
    /// Whether other processes may use other parts of it.
    pub(crate) has_parts: bool,
}

fn beneath(id: &StorageId, machine: &Machine) -> Vec<UnderlyingStorage> {
    let StorageId::Block { device } = id else { return Vec::new() };
    let path =
        directory_of(&machine.sysfs, "block", *device).and_then(|directory| node_in(&directory));
    let mut next = vec![WholeDevice { id: id.clone(), path, has_parts: false }];
    let mut found: Vec<UnderlyingStorage> = Vec::new();
    while let Some(WholeDevice { id, path, has_parts }) = next.pop() {
        if let StorageId::Block { device } = id {
            let wholes = whole_of(machine, device).into_iter();
            next.extend(
                wholes.map(|one| WholeDevice { has_parts: has_parts || one.has_parts, ..one }),
            );
        }
        match path {
            Some(path) if !found.iter().any(|one| one.id == id) => {
                found.push(UnderlyingStorage { id, path, has_parts });
            }
            _ => {}
        }
    }
    found
}

/// The ways from a device to what it has its blocks on, one after the other.
fn ways(id: &StorageId, machine: &Machine) -> Vec<(StorageId, WholeDevice)> {
    let mut next = vec![id.clone()];
    let mut found = Vec::new();
    while let Some(id) = next.pop() {
        let StorageId::Block { device } = id else { continue };
        for whole in whole_of(machine, device) {
            next.push(whole.id.clone());
            found.push((id.clone(), whole));
        }
    }
    found
}

/// Whether they meet at something that one of them has as a whole: two partitions of a disk do not.
fn overlaps(one: &StorageId, other: &StorageId, machine: &Machine) -> bool {
    let (ones, others) = (ways(one, machine), ways(other, machine));
    let ends = |ways: &[(StorageId, WholeDevice)]| -> BTreeSet<StorageId> {
        ways.iter().map(|(_, whole)| whole.id.clone()).collect()
    };
    let common = &ends(&ones) & &ends(&others);
    ones.iter().chain(&others).any(|(from, whole)| {
        !whole.has_parts && common.contains(&whole.id) && !common.contains(from)
    })
}

/// Why a part and its whole are not both opened.
pub(crate) fn part_beside_whole(part: &Path, whole: &Path) -> String {
    format!(
        "{} has its blocks on {}, and both would write to them: serve only one of the two",
        part.display(),
        whole.display()
    )
}

/// Why two devices over one file or disk are not both opened.
pub(crate) fn same_blocks(one: &Path, other: &Path) -> String {
    format!(
        "{} and {} have their blocks on one file or device, and both would write to it: serve \
         only one of the two",
        one.display(),
        other.display()
    )
}

/// What all devices of one storage within this process share.
#[derive(Debug)]
pub struct Storage {
    id: StorageId,
    is_created: bool,
    bytes: AtomicU64,
    pub(crate) exclusion: Arc<Exclusion>,
    pub(crate) lost_writes: Arc<LostWrites>,
    changed: Mutex<Option<ResizeCallback>>,
    trial: Mutex<Trial>,
}

/// Whether a file that was made for a storage is removed with it.
#[derive(Debug, Default, PartialEq, Eq)]
enum Trial {
    #[default]
    None,
    Begun,
    /// Something was served of it: it has no other trial.
    Over,
}

impl Storage {
    pub(crate) fn new(id: StorageId, is_created: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            is_created,
            bytes: AtomicU64::new(0),
            exclusion: Arc::new(Exclusion::new()),
            lost_writes: Arc::default(),
            changed: Mutex::default(),
            trial: Mutex::default(),
        })
    }

    /// Which one it is.
    #[must_use]
    pub const fn id(&self) -> &StorageId {
        &self.id
    }

    /// Whether this process has made it, empty.
    #[must_use]
    pub const fn is_created(&self) -> bool {
        self.is_created
    }

    /// A file that was made for it is removed when it is closed, unless it was kept before.
    pub fn try_out(&self) {
        let mut trial = self.trial();
        if self.is_created && *trial != Trial::Over {
            *trial = Trial::Begun;
        }
    }

    /// It is served: a file that was made for it stays, whatever is tried later.
    pub fn keep(&self) {
        *self.trial() = Trial::Over;
    }

    pub(crate) fn is_on_trial(&self) -> bool {
        *self.trial() == Trial::Begun
    }

    fn trial(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets that writes were lost: whoever opens it now has had no part in it.
    pub fn forget_lost_writes(&self) {
        self.lost_writes.forget();
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Acquire)
    }

    /// Publishes a size. Who has asked is told of another one than before.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, AcqRel);
        if before != 0 && before != bytes {
            self.tell();
        }
    }

    /// Calls this when something about it has changed.
    pub(crate) fn when_changed(&self, changed: ResizeCallback) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(changed);
    }

    /// Tells who has asked.
    pub(crate) fn tell(&self) {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        changed.iter().for_each(ResizeCallback::tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Disk 8:0 with its partition 8:1, loop device 7:0 with partitions 259:5 and 259:6, loop
    /// device 7:1 over the same file, 7:2 and 7:3 over the disk, the device mapper's 253:0 on the
    /// disk's partition, and the NVMe namespace 259:0 behind 239:0. What sysfs says about the file
    /// is wrong.
    fn machine(backing: &Path) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let add = |kind: &str, number: &str, place: &str| {
            let place = root.path().join("devices").join(place);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("dev"), format!("{number}\n")).unwrap();
            let name = place.file_name().unwrap().display();
            fs::write(place.join("uevent"), format!("MAJOR=1\nDEVNAME={name}\n")).unwrap();
            let links = root.path().join("dev").join(kind);
            fs::create_dir_all(&links).unwrap();
            symlink(&place, links.join(number)).unwrap();
            place
        };
        let add_loop = |minor: u32, text: &str| {
            let place = add("block", &format!("7:{minor}"), &format!("loop{minor}"));
            fs::create_dir_all(place.join("loop")).unwrap();
            fs::write(place.join("loop/backing_file"), format!("{text}\n")).unwrap();
        };
        let disk = add("block", "8:0", "sda");
        let partition = add("block", "8:1", "sda/sda1");
        fs::write(partition.join("partition"), "1\n").unwrap();
        add_loop(0, &format!("{} (deleted)", backing.display()));
        add_loop(1, "/dev/null");
        add_loop(2, "/dev/sda");
        add_loop(3, "/dev/sda");
        let partition = add("block", "259:5", "loop0/loop0p1");
        fs::write(partition.join("partition"), "1\n").unwrap();
        let partition = add("block", "259:6", "loop0/loop0p2");
        fs::write(partition.join("partition"), "2\n").unwrap();
        let mapped = add("block", "253:0", "dm-0");
        fs::create_dir_all(mapped.join("slaves")).unwrap();
        symlink(disk.join("sda1"), mapped.join("slaves/sda1")).unwrap();
        add("block", "259:0", "nvme0/nvme0n1");
        add("char", "239:0", "nvme0/ng0n1");
        add("char", "239:1", "nvme0/nvme-generic/ng1n1");
        add("block", "259:1", "nvme0/nvme1n1");
        let (sysfs, backing) = (root.path().to_owned(), StorageId::of(backing));
        let ask_loop = move |node: &Path, number| match (node.to_str().unwrap(), &backing) {
            ("/dev/loop0" | "/dev/loop1", &Some(StorageId::File { device, inode })) => {
                assert_eq!(rustix::fs::major(number), 7);
                Ok(LoopBacking::File { device, inode })
            }
            ("/dev/loop2" | "/dev/loop3", _) => {
                Ok(LoopBacking::Block { device: rustix::fs::makedev(8, 0) })
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        (root, Machine { sysfs, ask_loop: Box::new(ask_loop) })
    }

    fn block(major: u32, minor: u32) -> StorageId {
        StorageId::Block { device: rustix::fs::makedev(major, minor) }
    }

    #[test]
    fn a_part_knows_its_wholes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (_root, machine) = machine(file.path());
        let of = |major, minor| {
            let found = wholes(&block(major, minor), &machine);
            found.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(8, 0), []);
        assert_eq!(of(8, 1), [block(8, 0)]);
        assert_eq!(of(253, 0), [block(8, 0), block(8, 1)], "what the mapped device stands on");
        let backing = StorageId::of(file.path()).unwrap();
        assert!(matches!(backing, StorageId::File { .. }));
        assert!(of(7, 0).contains(&backing), "the loop device's file");
        assert!(of(259, 5).contains(&backing) && of(259, 5).contains(&block(7, 0)));
        let on_the_partition = StorageId::File { device: rustix::fs::makedev(8, 1), inode: 12 };
        let found = wholes(&on_the_partition, &machine);
        assert!(found.contains(&block(8, 1)) && found.contains(&block(8, 0)));
        assert_eq!(of(9, 9), [], "nothing is known of it");
    }

    #[test]
    fn other_processes_are_kept_away_from_all_that_is_beneath() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (_root, machine) = machine(file.path());
        let backing = StorageId::of(file.path()).unwrap();
        let of = |major, minor| -> Vec<_> {
            let found = beneath(&block(major, minor), &machine).into_iter();
            found.map(|UnderlyingStorage { id, path, has_parts }| (id, path, has_parts)).collect()
        };
        let node = |name: &str| Path::new("/dev").join(name);
        let text = PathBuf::from(format!("{} (deleted)", file.path().display()));
        let is_file = |has_parts| (backing.clone(), text.clone(), has_parts);
        assert_eq!(of(7, 0), [(block(7, 0), node("loop0"), false), is_file(false)]);
        let ring = (block(7, 0), node("loop0"), true);
        assert_eq!(of(259, 5), [(block(259, 5), node("loop0p1"), false), ring, is_file(true)]);
        let [disk, partition] = [(8, 0, "sda"), (8, 1, "sda1")]
            .map(|(major, minor, name)| (block(major, minor), node(name), true));
        assert_eq!(of(253, 0), [(block(253, 0), node("dm-0"), false), partition, disk]);
        assert_eq!(beneath(&backing, &machine), []);
    }

    #[test]
    fn two_loop_devices_of_a_file_share_it_and_two_partitions_do_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (_root, machine) = machine(file.path());
        let overlap = |one: (u32, u32), other: (u32, u32)| {
            overlaps(&block(one.0, one.1), &block(other.0, other.1), &machine)
        };
        assert!(overlap((7, 0), (7, 1)));
        assert!(overlap((259, 5), (7, 1)) && overlap((7, 1), (259, 6)));
        assert!(!overlap((259, 5), (259, 6)), "they are parts of one device");
        assert!(!overlap((8, 1), (7, 0)) && !overlap((8, 0), (253, 0)));
        assert!(overlap((7, 2), (7, 3)), "each has all of the disk");
        assert!(overlap((7, 2), (8, 1)) && overlap((253, 0), (7, 3)), "one has all of the disk");
        assert!(!overlap((7, 0), (7, 2)));
    }

    #[test]
    fn a_character_device_is_the_block_device_of_its_namespace() {
        let (root, _) = machine(Path::new("/nowhere"));
        let of = |minor| namespace_of(root.path(), rustix::fs::makedev(239, minor));
        assert_eq!(of(0), Some(rustix::fs::makedev(259, 0)));
        assert_eq!(of(1), Some(rustix::fs::makedev(259, 1)));
        assert_eq!(of(2), None);
        assert_eq!(StorageId::of(Path::new("/dev/null")), {
            let device = Path::new("/dev/null").metadata().unwrap().rdev();
            Some(StorageId::Character { device })
        });
    }

    #[test]
    fn a_path_is_no_identity() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("one"), "").unwrap();
        fs::write(at("other"), "").unwrap();
        fs::hard_link(at("one"), at("hard")).unwrap();
        symlink(at("one"), at("soft")).unwrap();
        let one = StorageId::of(&at("one"));
        assert!(one.is_some());
        assert_eq!(StorageId::of(&at("hard")), one);
        assert_eq!(StorageId::of(&at("soft")), one);
        assert_ne!(StorageId::of(&at("other")), one);
        assert_eq!(StorageId::of(&at("none")), None);
    }
}
