//! An image of a Ceph cluster (RADOS block device) as a device.
//!
//! `rbd:[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]`, with options after commas: `conf=PATH`, `user=NAME`
//! and `cluster=NAME` as Ceph's commands take them, `config.OPTION=VALUE` for any of Ceph's own
//! options, `size=1GiB` (extend it to that), `create` (make it, of that size, if there is none),
//! `block=512`, `read-only`, `exclusive` (keep the exclusive lock, so that no other client writes)
//! and `timeout=20s`.
//!
//! librbd is loaded when the first image is opened. It has threads of its own: its operations are
//! started by the reactor's thread, and their ends come back by a source of the reactor. The image
//! is open once for all reactors, so that they share its exclusive lock.
//!
//! librbd's cache is switched off: what was written is in the cluster, where another gateway
//! finds it.
//!
//! # An image that hangs
//!
//! Ceph waits for a cluster that does not answer, without an end. A request that takes longer than
//! the timeout fails with [`crate::Failure::PathLost`]: the host tries again or takes another path.
//! librbd keeps the operation and executes it, when the cluster answers again, before any later one
//! on the same blocks. Its memory is not that of the request but a copy from a pool of the device,
//! and stays in use until librbd has ended the operation. When all of it is in use further requests
//! wait, and fail after the same time. Opening, resizing and closing wait on threads of their own.

mod device;
mod librbd;
mod lock;
mod spec;
#[cfg(test)]
mod tests;

pub use lock::ImageLock;
pub use spec::{CephSpec, RbdSpec};

use crate::error::check_size;
use crate::null::NullFactory;
use crate::{
    BlockDevice, Capabilities, DeviceFactory, Geometry, OpenError, ResizeCallback, ResizeError,
    Storage, StorageId, bytes, geometry,
};
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::time::Duration;
use device::RbdDevice;
use librbd::{ChangeCallback, Cluster, Image};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::{io, thread};
use weft_reactor::system::monotonic_time;
use weft_reactor::{Owner, Reactor};

/// Time to open, resize or flush an image: longer than the 30 s after which Ceph gives up a client
/// that has died with the exclusive lock.
const PATIENCE: Duration = Duration::from_secs(40);
/// Between two attempts to remove an image that is still open.
const CLOSED_POLL: Duration = Duration::from_millis(100);
/// The option that says how small a discard may be, and its default.
const GRANULARITY: (&str, u64) = ("rbd_discard_granularity_bytes", 65536);

/// An image as a namespace.
#[derive(Debug)]
pub struct RbdFactory {
    spec: RbdSpec,
    image: Arc<Image>,
    shared: Arc<Shared>,
    storage: Arc<Storage>,
}

/// What the handles of an image, and the thread that reads its size, share.
#[derive(Debug)]
struct Shared {
    name: String,
    /// The image was removed.
    gone: AtomicBool,
    /// Asks the thread that follows the image whether it is still there.
    asked: AtomicBool,
    follower: mpsc::Sender<Event>,
    base: Geometry,
    blocks: AtomicU64,
    resized: Mutex<Option<ResizeCallback>>,
}

/// What the thread that follows an image is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The image has changed, its size perhaps.
    Changed,
    /// A request has failed, perhaps because the image was removed.
    Failed,
}

impl RbdFactory {
    /// Opens an image. An error says what to do.
    pub fn open(spec: &RbdSpec) -> Result<Self, OpenError> {
        let wanted = spec.clone();
        let opened = within(PATIENCE, "the image was open", move || {
            let cluster = Cluster::connect(&wanted.ceph)?;
            match open_image(Arc::clone(&cluster), &wanted) {
                // What another image has left: the next connection is a new one.
                Err(_) if cluster.is_fenced() => {
                    open_image(Cluster::connect(&wanted.ceph)?, &wanted)
                }
                opened => opened,
            }
        });
        let (image, events) = opened.map_err(invalid)?;
        Self::with(spec, image, events)
    }

    fn with(
        spec: &RbdSpec,
        image: Arc<Image>,
        (follower, events): Follower,
    ) -> Result<Self, OpenError> {
        let base = geometry_of(spec, &image)?;
        let id = image.storage_id(spec).map_err(invalid)?;
        let blocks = AtomicU64::new(base.blocks);
        let (name, resized) = (spec.identity(), Mutex::default());
        let (gone, asked) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Shared { name, gone, asked, follower, base, blocks, resized };
        let shared = Arc::new(shared);
        let storage = Storage::new(id, image.is_created);
        let factory = Self { spec: spec.clone(), image, shared, storage };
        factory.follow(events).map_err(|error| OpenError::System {
            doing: "start a thread",
            path: None,
            error,
        })?;
        Ok(factory)
    }

    /// Asks for the size whenever the image has changed, and whether it is still there when a
    /// request has failed: neither librbd's callback nor a reactor may wait for that. Ends once the
    /// image is closed.
    fn follow(&self, events: mpsc::Receiver<Event>) -> io::Result<()> {
        let (image, shared) = (Arc::downgrade(&self.image), Arc::downgrade(&self.shared));
        let follow = move || {
            while let Ok(event) = events.recv() {
                let (Some(image), Some(shared)) = (image.upgrade(), shared.upgrade()) else {
                    break;
                };
                match event {
                    Event::Changed => shared.read_size(&image),
                    Event::Failed => shared.look_for(&image),
                }
            }
        };
        thread::Builder::new().name("rbd-follow".to_owned()).spawn(follow).map(drop)
    }
}

/// An image that nobody has asked its cluster for: it has its name, and no size.
#[derive(Debug)]
pub(crate) struct UnopenedImage {
    name: String,
    null: NullFactory,
    storage: Arc<Storage>,
}

impl UnopenedImage {
    pub(crate) fn new(spec: &RbdSpec) -> Result<Self, OpenError> {
        let (name, block_bytes) = (spec.identity(), spec.block_bytes.unwrap_or(4096));
        let storage = Storage::new(StorageId::Named(name.clone()), false);
        Ok(Self { name, null: NullFactory::new(block_bytes.into(), block_bytes)?, storage })
    }
}

impl DeviceFactory for UnopenedImage {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        self.null.open(reactor, owner)
    }

    fn geometry(&self) -> Geometry {
        self.null.geometry()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        self.name.clone()
    }

    fn resize(&self, _: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        Some(&self.storage)
    }
}

/// Both ends of the channel to the thread that follows an image.
type Follower = (mpsc::Sender<Event>, mpsc::Receiver<Event>);

/// Opens an image, with the channel that tells of its changes.
fn open_image(cluster: Arc<Cluster>, spec: &RbdSpec) -> io::Result<(Arc<Image>, Follower)> {
    let (follower, events) = mpsc::channel();
    let changed = || -> ChangeCallback {
        let told = follower.clone();
        // Who would be told may have gone.
        Box::new(move || {
            let _ = told.send(Event::Changed);
        })
    };
    let image = match Image::open(Arc::clone(&cluster), spec, changed()) {
        Err(error) if spec.create && error.kind() == io::ErrorKind::NotFound => {
            let bytes = spec.least_bytes.unwrap_or_default();
            Image::create(Arc::clone(&cluster), spec, bytes)?;
            log::warn!("{} is created, empty, with {}", spec.identity(), bytes::human(bytes));
            let mut image = Image::open(cluster, spec, changed())?;
            image.is_created = true;
            image
        }
        opened => opened?,
    };
    if let Some(bytes) = spec.least_bytes.filter(|_| !spec.is_read_only())
        && image.bytes()? < bytes
    {
        image.resize(bytes)?;
    }
    Ok((Arc::new(image), (follower, events)))
}

impl DeviceFactory for RbdFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let (image, shared) = (Arc::clone(&self.image), Arc::clone(&self.shared));
        Ok(Box::new(RbdDevice::open(reactor, owner, image, shared, self.spec.timeout)?))
    }

    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        self.shared.name.clone()
    }

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        if self.spec.is_read_only() {
            return Err(ResizeError::Unsupported);
        }
        check_size(bytes, self.shared.base.block_bytes)?;
        // A handle must not see blocks that do not exist: a smaller size is published first.
        if bytes < self.geometry().bytes() {
            self.shared.set_bytes(bytes);
        }
        let image = Arc::clone(&self.image);
        let result = within(PATIENCE, "the image was resized", move || image.resize(bytes));
        // A cluster that does not answer is not asked for the size as well.
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return result.map_err(ResizeError::System);
        }
        self.refresh().map_err(ResizeError::System)?;
        result.map_err(ResizeError::System)
    }

    fn refresh(&self) -> io::Result<Geometry> {
        let image = Arc::clone(&self.image);
        let bytes = within(PATIENCE, "the size was read", move || image.bytes())?;
        self.shared.set_bytes(bytes);
        Ok(self.geometry())
    }

    fn sync(&self) -> io::Result<()> {
        if self.spec.is_read_only() {
            return Ok(());
        }
        let image = Arc::clone(&self.image);
        within(PATIENCE, "writes were flushed", move || image.flush())
    }

    fn storage(&self) -> Option<&Arc<Storage>> {
        Some(&self.storage)
    }

    fn when_resized(&self, resized: ResizeCallback) {
        *self.shared.resized.lock().unwrap_or_else(PoisonError::into_inner) = Some(resized);
    }
}

impl Shared {
    fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks.load(Acquire), ..self.base }
    }

    /// Has the cluster asked whether the image is still there, unless that is under way.
    fn note_failure(&self) {
        if !self.asked.swap(true, Relaxed) {
            let _ = self.follower.send(Event::Failed);
        }
    }

    fn look_for(&self, image: &Image) {
        if !image.exists() && !self.gone.swap(true, Relaxed) {
            log::error!(
                "{}: the image was removed: its requests fail until the namespace is removed",
                self.name
            );
        }
        self.asked.store(false, Relaxed);
    }

    fn read_size(&self, image: &Image) {
        match image.bytes() {
            Ok(bytes) => self.set_bytes(bytes),
            Err(error) => log::warn!("{}: its size cannot be read: {error}", self.name),
        }
    }

    /// Publishes a new size.
    fn set_bytes(&self, bytes: u64) {
        let blocks = bytes / u64::from(self.base.block_bytes);
        if self.blocks.swap(blocks, Release) == blocks {
            return;
        }
        let resized = self.resized.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(resized) = resized {
            resized.tell();
        }
    }
}

fn geometry_of(spec: &RbdSpec, image: &Image) -> Result<Geometry, OpenError> {
    let system =
        |error| OpenError::System { doing: "read the size of the image", path: None, error };
    let (bytes, stripe_unit) =
        (image.bytes().map_err(system)?, image.stripe_unit().map_err(system)?);
    let fitting = if bytes.is_multiple_of(4096) { 4096 } else { 512 };
    let block_bytes = spec.block_bytes.unwrap_or(fitting);
    if !geometry::is_block_size(block_bytes) || bytes < u64::from(block_bytes) {
        let name = spec.name();
        let what = format!("image {name} has {bytes} bytes, less than a block of {block_bytes}");
        return Err(OpenError::Invalid(what));
    }
    let writable = !spec.is_read_only();
    let granularity = image.option(GRANULARITY.0).unwrap_or(GRANULARITY.1);
    let granularity = u32::try_from(granularity).unwrap_or(u32::MAX) / block_bytes;
    Ok(Geometry {
        discard_granularity_blocks: if writable { granularity.max(1) } else { 0 },
        capabilities: Capabilities {
            read_only: !writable,
            // An image or a pool may have a configuration of its own that switches the cache on.
            volatile_cache: writable,
            discard: writable,
            // librbd leaves out parts of objects that are smaller than the granularity.
            discard_reads_zeroes: false,
            write_zeroes: writable,
            durable_write: true,
            // The cluster compares and writes within one object.
            compare_and_write: writable && stripe_unit.is_multiple_of(block_bytes.into()),
            ..Capabilities::default()
        },
        ..Geometry::new(bytes, block_bytes)
    })
}

fn invalid(error: impl fmt::Display) -> OpenError {
    OpenError::Invalid(error.to_string())
}

/// Does something that waits for the cluster, on a thread of its own; that thread is left alone if
/// the cluster does not answer within this time.
fn within<T: Send + 'static>(
    time: Duration,
    until: &str,
    action: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = mpsc::sync_channel(1);
    // Nobody may be waiting any more.
    let action = move || drop(done.send(action()));
    thread::Builder::new().name("rbd-wait".to_owned()).spawn(action)?;
    outcome.recv_timeout(time).unwrap_or_else(|_| {
        let time = time.as_secs();
        let what =
            format!("the Ceph cluster does not answer: {time} s were not enough until {until}");
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}

/// Waits until this process knows the newest map of a cluster: which clients are fenced, among
/// others. Blocks, for a limited time.
pub fn wait_for_latest_map(ceph: &CephSpec) -> io::Result<()> {
    let ceph = ceph.clone();
    within(PATIENCE, "its newest map was there", move || {
        Cluster::connect(&ceph)?.wait_for_latest_map()
    })
}

/// Removes an image, if there is one, as soon as this process has closed it, on a thread of its
/// own.
pub fn remove(spec: &RbdSpec) {
    let spec = spec.clone();
    librbd::in_background("remove", move || {
        let removed = until_closed(|| Image::remove(Cluster::connect(&spec.ceph)?, &spec));
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            let name = spec.name();
            log::error!("image {name} is no longer used, but cannot be removed: {error}");
        }
    });
}

/// Tries something until nobody has the image open, for a limited time.
fn until_closed(mut action: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let end = monotonic_time() + PATIENCE;
    while !action()? {
        if monotonic_time() >= end {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "a client has it open"));
        }
        thread::sleep(CLOSED_POLL);
    }
    Ok(())
}

/// Waits until the images that were in use are closed, which frees their locks: for the end of a
/// process. Not longer than this time.
pub fn wait_until_closed(time: Duration) {
    if !librbd::wait_until_closed(time) {
        log::warn!(
            "an RBD image is not closed or removed yet: its lock is free after 30 s; one whose \
             namespace a host has deleted stays until `rbd rm`"
        );
    }
}
