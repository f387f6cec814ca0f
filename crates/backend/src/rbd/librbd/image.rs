//! Open images.

use super::Cluster;
use super::library::{
    FEATURE_LOCK, Functions, Handle, LOCK_EXCLUSIVE, done, explained, stored, text,
};
use crate::StorageId;
use crate::rbd::RbdSpec;
use rustix::io::Errno;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io, ptr, thread};

/// What is done when the image has changed, on a thread of librbd's.
pub(in crate::rbd) type ChangeCallback = Box<dyn Fn() + Send + Sync>;

/// An open image. The last owner does not wait until it is closed: see [`wait_until_closed`].
pub(in crate::rbd) struct Image {
    cluster: Arc<Cluster>,
    handle: Handle,
    /// What is to be closed; none once that has begun.
    open: Option<Open>,
    /// Whether this process has made it, empty.
    pub(in crate::rbd) is_created: bool,
}

// SAFETY: an `rbd_image_t` may be used by several threads at a time.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

struct Open {
    cluster: Arc<Cluster>,
    context: Handle,
    /// Null until it is open.
    image: Handle,
    /// The watch of changes, and its callback's argument.
    watch: Option<(u64, Arc<ChangeCallback>)>,
}

// SAFETY: an image and its context may be closed by any thread.
unsafe impl Send for Open {}

impl Image {
    /// Opens an image, and the exclusive lock if that is wanted. Blocks while the cluster does not
    /// answer.
    pub(in crate::rbd) fn open(
        cluster: Arc<Cluster>,
        spec: &RbdSpec,
        changed: ChangeCallback,
    ) -> io::Result<Self> {
        let mut open = Open::context(cluster, spec)?;
        let name = text(&spec.image)?;
        let snapshot = match &spec.snapshot {
            Some(snapshot) => Some(text(snapshot)?),
            None => None,
        };
        let snapshot = snapshot.as_ref().map_or(ptr::null(), |name: &CString| name.as_ptr());
        let functions = open.functions();
        let how =
            if spec.is_read_only() { functions.rbd_open_read_only } else { functions.rbd_open };
        // SAFETY: the context is open, both names are C strings (or null: no snapshot), and the
        // function stores a handle.
        let opened = unsafe { how(open.context, name.as_ptr(), &raw mut open.image, snapshot) };
        open.cluster.note(opened.into());
        done(opened)
            .map_err(|error| explained(&error, &format!("cannot open image {}", spec.name())))?;
        if spec.exclusive && !spec.is_read_only() {
            // SAFETY: the image is open.
            done(unsafe { (functions.rbd_lock_acquire)(open.image, LOCK_EXCLUSIVE) }).map_err(
                |error| {
                    let what = format!(
                        "cannot take the exclusive lock of image {} (another client keeps it, or \
                         the image has no feature exclusive-lock)",
                        spec.name()
                    );
                    explained(&error, &what)
                },
            )?;
        }
        open.watch(changed)?;
        Ok(Self {
            cluster: Arc::clone(&open.cluster),
            handle: open.image,
            open: Some(open),
            is_created: false,
        })
    }

    /// Makes an image of this size, as Ceph's configuration says, unless there is one. Blocks.
    pub(in crate::rbd) fn create(
        cluster: Arc<Cluster>,
        spec: &RbdSpec,
        bytes: u64,
    ) -> io::Result<()> {
        let (open, name) = (Open::context(cluster, spec)?, text(&spec.image)?);
        // 0: the size of objects is the configured one.
        let mut order = 0;
        let create = open.functions().rbd_create;
        // SAFETY: the context is open, the name is a C string, and the function stores a number.
        let made = unsafe { create(open.context, name.as_ptr(), bytes, &raw mut order) };
        open.cluster.note(made.into());
        match done(made) {
            Err(error) if is(&error, Errno::EXIST) => Ok(()),
            made => made
                .map_err(|error| explained(&error, &format!("cannot make image {}", spec.name()))),
        }
    }

    /// Removes an image that nobody has open; `false`: somebody has. Blocks, the longer the larger
    /// it is.
    pub(in crate::rbd) fn remove(cluster: Arc<Cluster>, spec: &RbdSpec) -> io::Result<bool> {
        let (open, name) = (Open::context(cluster, spec)?, text(&spec.image)?);
        // SAFETY: the context is open, and the name is a C string.
        let removed = unsafe { (open.functions().rbd_remove)(open.context, name.as_ptr()) };
        open.cluster.note(removed.into());
        match done(removed) {
            Err(error) if is(&error, Errno::BUSY) => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.cluster.functions
    }

    /// The image, which is open.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Which image it is, whatever the names that lead to it.
    pub(in crate::rbd) fn storage_id(&self, spec: &RbdSpec) -> io::Result<StorageId> {
        let Some(open) = &self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        // SAFETY: the context is open.
        let pool = unsafe { (self.functions().rados_ioctx_get_id)(open.context) };
        let get_id = self.functions().rbd_get_id;
        // SAFETY: the image is open, and there is room for that many bytes.
        let id = stored(|into, len| unsafe { get_id(self.handle(), into, len) })?;
        let snapshot = spec.snapshot.iter().map(|name| format!("@{name}")).collect::<String>();
        Ok(StorageId::Image {
            cluster: self.cluster.fsid()?,
            pool,
            namespace: spec.namespace.clone().unwrap_or_default(),
            image: id + &snapshot,
        })
    }

    /// The size in bytes. May block.
    pub(in crate::rbd) fn bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        // SAFETY: the image is open, and the function stores a number.
        done(unsafe { (self.functions().rbd_get_size)(self.handle(), &raw mut bytes) })?;
        Ok(bytes)
    }

    /// Takes note of the result of an operation.
    pub(super) fn note(&self, result: i64) {
        self.cluster.note(result);
    }

    /// Bytes that lie together in one object.
    pub(in crate::rbd) fn stripe_unit(&self) -> io::Result<u64> {
        let mut bytes = 0;
        // SAFETY: as in `bytes`.
        done(unsafe { (self.functions().rbd_get_stripe_unit)(self.handle(), &raw mut bytes) })?;
        Ok(bytes)
    }

    /// An option of the image's cluster that is a number.
    pub(in crate::rbd) fn option(&self, key: &str) -> Option<u64> {
        self.cluster.number(key)
    }

    /// Whether the image is there, which the cluster is asked. Blocks.
    pub(in crate::rbd) fn exists(&self) -> bool {
        let mut room = 0;
        // SAFETY: the image is open, and there is no room for watchers: the function stores their
        // number.
        let found = unsafe {
            (self.functions().rbd_watchers_list)(self.handle, ptr::null_mut(), &raw mut room)
        };
        found != -Errno::NOENT.raw_os_error()
    }

    /// Whether this client has the exclusive lock, or the image has none.
    fn has_lock(&self) -> io::Result<bool> {
        Ok(!self.is_lockable()? || self.is_owner()?)
    }

    fn is_owner(&self) -> io::Result<bool> {
        let (is_owner, mut owner) = (self.functions().rbd_is_exclusive_lock_owner, 0);
        // SAFETY: the image is open, and the function stores a number.
        done(unsafe { is_owner(self.handle, &raw mut owner) })?;
        Ok(owner != 0)
    }

    /// Whether the image can have an exclusive lock.
    pub(in crate::rbd) fn is_lockable(&self) -> io::Result<bool> {
        let mut features = 0;
        // SAFETY: the image is open, and the function stores a number.
        done(unsafe { (self.functions().rbd_get_features)(self.handle, &raw mut features) })?;
        Ok(features & FEATURE_LOCK != 0)
    }

    /// Takes the exclusive lock, and keeps it when others ask for it; false: another client keeps
    /// it. That of a client that is gone is broken, and that client fenced. Blocks, also while it
    /// is not known whether a client is gone.
    pub(in crate::rbd) fn lock(&self) -> io::Result<bool> {
        // SAFETY: the image is open.
        let taken = unsafe { (self.functions().rbd_lock_acquire)(self.handle, LOCK_EXCLUSIVE) };
        self.note(taken.into());
        match done(taken) {
            Err(error) if is(&error, Errno::ROFS) => Ok(false),
            taken => taken.map(|()| true),
        }
    }

    /// Gives the exclusive lock up. Blocks.
    pub(in crate::rbd) fn unlock(&self) -> io::Result<()> {
        // SAFETY: the image is open.
        done(unsafe { (self.functions().rbd_lock_release)(self.handle) })
    }

    /// Whether any client has the exclusive lock, which the cluster is asked. Blocks.
    pub(in crate::rbd) fn is_locked(&self) -> io::Result<bool> {
        let (mut mode, mut owner, mut room) = (0, ptr::null_mut(), 0);
        let owners = self.functions().rbd_lock_get_owners;
        // SAFETY: the image is open, and there is no room for owners: the function stores their
        // number.
        let found = unsafe { owners(self.handle, &raw mut mode, &raw mut owner, &raw mut room) };
        self.note(found.into());
        match done(found) {
            Err(error) if is(&error, Errno::RANGE) => Ok(true),
            Err(error) if is(&error, Errno::NOENT) => Ok(false),
            none => none.map(|()| false),
        }
    }

    /// Whether this client has the exclusive lock and is not fenced, which the cluster is asked.
    /// Blocks.
    pub(in crate::rbd) fn keeps_lock(&self) -> io::Result<bool> {
        match self.is_locked() {
            Err(error) if is(&error, Errno::SHUTDOWN) => Ok(false),
            locked => Ok(locked? && self.is_owner()?),
        }
    }

    /// Changes the size. Blocks.
    pub(in crate::rbd) fn resize(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: the image is open.
        done(unsafe { (self.functions().rbd_resize)(self.handle(), bytes) })
    }

    /// Waits until all writes are in the cluster. A client that gave its lock away flushed before
    /// that; it would take the lock again.
    pub(in crate::rbd) fn flush(&self) -> io::Result<()> {
        if !self.has_lock()? {
            return Ok(());
        }
        // SAFETY: the image is open.
        done(unsafe { (self.functions().rbd_flush)(self.handle()) })
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

impl Open {
    /// The I/O context of an image's pool and namespace.
    fn context(cluster: Arc<Cluster>, spec: &RbdSpec) -> io::Result<Self> {
        let functions = cluster.functions;
        let pool = text(&spec.pool)?;
        let mut context = ptr::null_mut();
        // SAFETY: the cluster is connected, the name is a C string, and the function stores a
        // handle.
        done(unsafe {
            (functions.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &raw mut context)
        })
        .map_err(|error| explained(&error, &format!("cannot open pool {}", spec.pool)))?;
        let open = Self { cluster, context, image: ptr::null_mut(), watch: None };
        if let Some(namespace) = &spec.namespace {
            let namespace = text(namespace)?;
            // SAFETY: the context is open, and the name is a C string.
            unsafe { (functions.rados_ioctx_set_namespace)(open.context, namespace.as_ptr()) };
        }
        // A write to a full pool fails instead of waiting for room.
        // SAFETY: the context is open.
        unsafe { (functions.rados_set_pool_full_try)(open.context) };
        Ok(open)
    }

    fn functions(&self) -> &'static Functions {
        self.cluster.functions
    }

    fn watch(&mut self, changed: ChangeCallback) -> io::Result<()> {
        let argument = Arc::new(changed);
        let pointer = Arc::as_ptr(&argument);
        let mut watch = 0;
        // SAFETY: the image is open. `told` takes a pointer to a `ChangeCallback`, which lives
        // until the watch has ended: `close` ends it first, after which librbd does not call it any
        // more.
        done(unsafe {
            (self.functions().rbd_update_watch)(
                self.image,
                &raw mut watch,
                told,
                pointer.cast_mut().cast(),
            )
        })
        .map_err(|error| explained(&error, "cannot watch the image"))?;
        self.watch = Some((watch, argument));
        Ok(())
    }
}

/// Called by librbd when the image has changed.
unsafe extern "C" fn told(argument: *mut c_void) {
    // SAFETY: the argument that `watch` gave, which is there until the watch has ended.
    let changed = unsafe { &*argument.cast::<ChangeCallback>().cast_const() };
    changed();
}

impl Drop for Open {
    /// Blocks while operations are in flight.
    fn drop(&mut self) {
        let functions = self.functions();
        if let Some((watch, argument)) = self.watch.take() {
            // SAFETY: the image is open and has this watch.
            let ended = unsafe { (functions.rbd_update_unwatch)(self.image, watch) };
            if ended < 0 {
                // It may still be called.
                std::mem::forget(argument);
            }
        }
        if !self.image.is_null() {
            // SAFETY: the image is open, and nobody else has it. It is closed whatever is returned.
            unsafe { (functions.rbd_close)(self.image) };
        }
        // SAFETY: the context is open, and the image that was opened in it is closed.
        unsafe { (functions.rados_ioctx_destroy)(self.context) };
    }
}

/// Images that are being closed or removed.
static CLOSING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Drop for Image {
    /// Closing waits for the cluster, which the owner's thread must not.
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        in_background("close", move || drop(open));
    }
}

/// Closes or removes an image on a thread of its own, which [`wait_until_closed`] waits for.
pub(in crate::rbd) fn in_background(what: &str, action: impl FnOnce() + Send + 'static) {
    fn count(change: fn(usize) -> usize) {
        let mut closing = CLOSING.0.lock().unwrap_or_else(PoisonError::into_inner);
        *closing = change(*closing);
        CLOSING.1.notify_all();
    }
    count(|closing| closing + 1);
    let action = move || {
        action();
        count(|closing| closing - 1);
    };
    if let Err(error) = thread::Builder::new().name(format!("rbd-{what}")).spawn(action) {
        count(|closing| closing - 1);
        log::error!("no thread to {what} an RBD image: {error}");
    }
}

/// Waits until every image that was dropped is closed, so that a lock that it held is free, and
/// every one that is no longer used is removed. False: not within this time.
pub(in crate::rbd) fn wait_until_closed(within: Duration) -> bool {
    let closing = CLOSING.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = CLOSING.1.wait_timeout_while(closing, within, |closing| *closing > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").finish_non_exhaustive()
    }
}
