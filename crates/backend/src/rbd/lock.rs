//! The exclusive lock of an image as a lock: one client of the cluster has it, and who takes it
//! from one that is gone has that one fenced first.

use super::librbd::{Cluster, Image};
use super::{PATIENCE, RbdSpec, within};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the cluster may take to say who has the lock.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// The exclusive lock of an image. A client that was fenced because another one broke this lock can
/// write to no image that was opened with the same [`super::CephSpec`].
#[derive(Debug)]
pub struct ImageLock(Arc<Image>);

impl ImageLock {
    /// Opens the image, and takes no lock.
    pub fn open(spec: &RbdSpec) -> io::Result<Self> {
        let wanted = spec.clone();
        let open = move || Self::with(Cluster::connect(&wanted.ceph)?, &wanted);
        within(PATIENCE, "the image of the lock was open", open)
    }

    pub(super) fn with(cluster: Arc<Cluster>, spec: &RbdSpec) -> io::Result<Self> {
        let image = Image::open(cluster, spec, Box::new(|| ()))?;
        if !image.is_lockable()? {
            let what = format!(
                "image {} has no lock: rbd feature enable {} exclusive-lock",
                spec.name(),
                spec.name()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Ok(Self(Arc::new(image)))
    }

    /// Takes the lock, and keeps it until it is released; false: another client keeps it. Blocks
    /// while it is not known whether that client is gone, as long as its watch of the image lasts.
    pub fn try_acquire(&self) -> io::Result<bool> {
        // Without a limit: an attempt that goes on could take the lock for nobody.
        self.0.lock()
    }

    /// Whether any client has the lock.
    pub fn is_taken(&self) -> io::Result<bool> {
        self.ask(Image::is_locked)
    }

    /// Whether this client still has it. Once that is false it may be fenced.
    pub fn is_kept(&self) -> io::Result<bool> {
        self.ask(Image::keeps_lock)
    }

    /// Gives it up.
    pub fn release(&self) -> io::Result<()> {
        let image = Arc::clone(&self.0);
        within(PATIENCE, "the lock was released", move || image.unlock())
    }

    fn ask(&self, what: fn(&Image) -> io::Result<bool>) -> io::Result<bool> {
        let image = Arc::clone(&self.0);
        within(ANSWER_PATIENCE, "it was known who has the lock", move || what(&image))
    }
}
