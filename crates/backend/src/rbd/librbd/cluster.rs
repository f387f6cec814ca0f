//! Connections to clusters.

use super::library::{Functions, Handle, done, explained, functions, stored, text};
use crate::rbd::CephSpec;
use std::ffi::{CString, c_char};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{fmt, io, ptr};

/// Time to reach a monitor, unless the configuration says another.
const MOUNT_TIMEOUT: &str = "10";

/// The connections of this process. Images that reach their cluster in the same way share one.
static CONNECTED: Mutex<Vec<(CephSpec, Weak<Cluster>)>> = Mutex::new(Vec::new());

/// A connection to a cluster.
pub(in crate::rbd) struct Cluster {
    pub(super) handle: Handle,
    pub(super) functions: &'static Functions,
    /// The cluster takes nothing from this connection any more, which is kept for who uses it.
    fenced: AtomicBool,
}

// SAFETY: a `rados_t` may be used by several threads at a time.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// The connection for this specification: one that exists, or a new one. Blocks until a monitor
    /// answers.
    pub(in crate::rbd) fn connect(spec: &CephSpec) -> io::Result<Arc<Self>> {
        let functions = functions()?;
        let known = || {
            let mut connected = CONNECTED.lock().unwrap_or_else(PoisonError::into_inner);
            let is_usable = |cluster: &Weak<Self>| {
                cluster.upgrade().is_some_and(|cluster| !cluster.is_fenced())
            };
            connected.retain(|(_, cluster)| is_usable(cluster));
            let found = connected.iter().find(|(known, _)| known == spec);
            found.and_then(|(_, cluster)| cluster.upgrade())
        };
        if let Some(cluster) = known() {
            return Ok(cluster);
        }
        // Without the lock: another cluster may not answer for a while.
        let cluster = Arc::new(Self::open(functions, spec)?);
        let mut connected = CONNECTED.lock().unwrap_or_else(PoisonError::into_inner);
        connected.push((spec.clone(), Arc::downgrade(&cluster)));
        Ok(cluster)
    }

    /// A new connection.
    pub(super) fn open(functions: &'static Functions, spec: &CephSpec) -> io::Result<Self> {
        let name = text(spec.cluster.as_deref().unwrap_or("ceph"))?;
        let user = text(&format!("client.{}", spec.user.as_deref().unwrap_or("admin")))?;
        let mut handle = ptr::null_mut();
        // SAFETY: both names are C strings, and the function stores a handle.
        done(unsafe {
            (functions.rados_create2)(&raw mut handle, name.as_ptr(), user.as_ptr(), 0)
        })
        .map_err(|error| explained(&error, "librados cannot start"))?;
        // From now on it is closed when this fails.
        let cluster = Self { handle, functions, fenced: AtomicBool::new(false) };
        cluster.configure(spec)?;
        // SAFETY: the handle is open and not connected.
        done(unsafe { (functions.rados_connect)(handle) })
            .map_err(|error| explained(&error, &format!("cannot connect to {}", shown(spec))))?;
        Ok(cluster)
    }

    fn configure(&self, spec: &CephSpec) -> io::Result<()> {
        let path = match &spec.conf {
            Some(path) => {
                // The library would wait for one who writes to a FIFO.
                if path.metadata().is_ok_and(|found| !found.is_file()) {
                    let what = format!("{} is not a regular file", path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
                }
                Some(text(&path.to_string_lossy())?)
            }
            None => None,
        };
        let path = path.as_ref().map_or(ptr::null(), |path: &CString| path.as_ptr());
        // SAFETY: the handle is open; the path is a C string, or null for the usual places.
        let read = done(unsafe { (self.functions.rados_conf_read_file)(self.handle, path) });
        let monitors = spec.config.contains_key("mon_host");
        read.or_else(|error| match spec.conf.is_none() && monitors {
            true => Ok(()),
            false => Err(explained(&error, &format!("cannot read {}", conf_shown(spec)))),
        })?;
        self.set("client_mount_timeout", MOUNT_TIMEOUT)?;
        for (key, value) in &spec.config {
            if key == "key" {
                // It would be in command lines, logs and saved configurations.
                let what = "give Ceph's key in a file: config.keyring=FILE in place of config.key";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            self.set(key, value)
                .map_err(|error| explained(&error, &format!("cannot set {key}")))?;
        }
        // A write that has completed is in the cluster, and what another client writes is read.
        self.set("rbd_cache", "false")
    }

    /// What no other cluster has.
    pub(super) fn fsid(&self) -> io::Result<String> {
        // SAFETY: the handle is connected, and there is room for that many bytes.
        stored(|into, len| unsafe { (self.functions.rados_cluster_fsid)(self.handle, into, len) })
    }

    /// Waits until the cluster's newest map of OSDs, and of fenced clients, is known. Blocks.
    pub(in crate::rbd) fn wait_for_latest_map(&self) -> io::Result<()> {
        // SAFETY: the handle is open.
        done(unsafe { (self.functions.rados_wait_for_latest_osdmap)(self.handle) })
    }

    /// Takes note of a result of the cluster, which may be that this client is fenced. The next
    /// image that is opened has a new connection then.
    pub(in crate::rbd) fn note(&self, result: i64) {
        let fenced = -i64::from(rustix::io::Errno::SHUTDOWN.raw_os_error());
        if result == fenced && !self.fenced.swap(true, Relaxed) {
            log::error!(
                "this client of a Ceph cluster was fenced (blocklisted): requests of its images \
                 fail until their namespaces are removed and added again"
            );
        }
    }

    /// Whether another client has had this one fenced.
    pub(in crate::rbd) fn is_fenced(&self) -> bool {
        self.fenced.load(Relaxed)
    }

    fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (text(key)?, text(value)?);
        // SAFETY: the handle is open, and both are C strings.
        done(unsafe { (self.functions.rados_conf_set)(self.handle, key.as_ptr(), value.as_ptr()) })
    }

    /// The value of an option that is a number.
    pub(in crate::rbd) fn number(&self, key: &str) -> Option<u64> {
        let key = text(key).ok()?;
        let mut value = [0; 32];
        let into = value.as_mut_ptr().cast::<c_char>();
        // SAFETY: the handle is open, the key is a C string, and there is room for that many bytes.
        done(unsafe {
            (self.functions.rados_conf_get)(self.handle, key.as_ptr(), into, value.len())
        })
        .ok()?;
        let end = value.iter().position(|byte| *byte == 0)?;
        str::from_utf8(value.get(..end)?).ok()?.parse().ok()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: nothing else uses the handle: images have an `Arc` of this.
        unsafe { (self.functions.rados_shutdown)(self.handle) };
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

fn conf_shown(spec: &CephSpec) -> String {
    match &spec.conf {
        Some(path) => path.display().to_string(),
        None => format!("/etc/ceph/{}.conf", spec.cluster.as_deref().unwrap_or("ceph")),
    }
}

fn shown(spec: &CephSpec) -> String {
    let user = spec.user.as_deref().unwrap_or("admin");
    match spec.config.get("mon_host") {
        Some(monitors) => format!("the Ceph cluster at {monitors} as client.{user}"),
        None => format!("the Ceph cluster of {} as client.{user}", conf_shown(spec)),
    }
}
