//! Loads the libraries, once for the process, and declares what is used of them.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

const RADOS: &str = "librados.so.2";
const RBD: &str = "librbd.so.1";
const INSTALL: &str = "an RBD image needs librbd and librados: install them (on Debian: apt-get \
                       install librbd1)";

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t` and `rbd_completion_t`: pointers to what only the
/// libraries know.
pub(super) type Handle = *mut c_void;
/// `rbd_callback_t`: the completion, and the argument it was made with.
pub(super) type Callback = unsafe extern "C" fn(Handle, *mut c_void);
/// `rbd_update_callback_t`: the argument.
pub(super) type UpdateCallback = unsafe extern "C" fn(*mut c_void);

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(super) const LOCK_EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(super) const FEATURE_LOCK: u64 = 4;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`: zeroes are written where there was nothing.
pub(super) const ZEROES_THICK: c_int = 1;
/// `LIBRADOS_OP_FLAG_FADVISE_FUA`: not before the data is in the cluster, whatever caches there
/// are.
pub(super) const WRITE_FUA: c_int = 0x80;

macro_rules! functions {
    ($($library:ident: fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The loaded functions.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Loads all functions, or returns the missing one.
            fn find(libraries: &Libraries) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the libraries' headers declare each function with this signature.
                    $($name: unsafe {
                        *libraries.$library.get(concat!(stringify!($name), "\0").as_bytes())?
                    },)*
                })
            }
        }
    };
}

struct Libraries {
    rados: Library,
    rbd: Library,
}

functions! {
    rados: fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
    rados: fn rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados: fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados: fn rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
    rados: fn rados_connect(Handle) -> c_int;
    rados: fn rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
    rados: fn rados_wait_for_latest_osdmap(Handle) -> c_int;
    rados: fn rados_shutdown(Handle);
    rados: fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados: fn rados_ioctx_set_namespace(Handle, *const c_char);
    rados: fn rados_ioctx_get_id(Handle) -> i64;
    rados: fn rados_ioctx_destroy(Handle);
    rados: fn rados_set_pool_full_try(Handle);
    rbd: fn rbd_create(Handle, *const c_char, u64, *mut c_int) -> c_int;
    rbd: fn rbd_remove(Handle, *const c_char) -> c_int;
    rbd: fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd: fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd: fn rbd_close(Handle) -> c_int;
    rbd: fn rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    rbd: fn rbd_get_size(Handle, *mut u64) -> c_int;
    rbd: fn rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
    rbd: fn rbd_resize(Handle, u64) -> c_int;
    rbd: fn rbd_flush(Handle) -> c_int;
    rbd: fn rbd_watchers_list(Handle, *mut c_void, *mut usize) -> c_int;
    rbd: fn rbd_get_features(Handle, *mut u64) -> c_int;
    rbd: fn rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
    rbd: fn rbd_lock_acquire(Handle, c_int) -> c_int;
    rbd: fn rbd_lock_release(Handle) -> c_int;
    rbd: fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd: fn rbd_update_watch(Handle, *mut u64, UpdateCallback, *mut c_void) -> c_int;
    rbd: fn rbd_update_unwatch(Handle, u64) -> c_int;
    rbd: fn rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
    rbd: fn rbd_aio_get_return_value(Handle) -> isize;
    rbd: fn rbd_aio_release(Handle);
    rbd: fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd: fn rbd_aio_write2(Handle, u64, usize, *const c_char, Handle, c_int) -> c_int;
    rbd: fn rbd_aio_flush(Handle, Handle) -> c_int;
    rbd: fn rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
    rbd: fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    rbd: fn rbd_aio_compare_and_write(
        Handle, u64, usize, *const c_char, *const c_char, Handle, *mut u64, c_int
    ) -> c_int;
}

/// The functions of both libraries, which stay loaded for the life of the process.
pub(super) fn functions() -> io::Result<&'static Functions> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED
        .get_or_init(|| load(RADOS, RBD))
        .as_ref()
        .map_err(|why| io::Error::new(io::ErrorKind::NotFound, &**why))
}

fn load(rados: &str, rbd: &str) -> Result<Functions, String> {
    if cfg!(target_feature = "crt-static") {
        return Err(
            "a static binary cannot load librbd: use weft's Debian package or Python wheel"
                .to_owned(),
        );
    }
    let open = |name| {
        // SAFETY: what these two libraries do when they are loaded is harmless at any time.
        unsafe { Library::new(name) }.map_err(|error| format!("{INSTALL}; {error}"))
    };
    let libraries = Libraries { rados: open(rados)?, rbd: open(rbd)? };
    let functions = Functions::find(&libraries)
        .map_err(|error| format!("{rbd} is older than that of Ceph 16: {error}"))?;
    // The functions are used until the process ends.
    std::mem::forget(libraries);
    Ok(functions)
}

/// Checks the result of a function that returns a negative error number.
pub(super) fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// The same error with a preceding sentence.
pub(super) fn explained(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// A text that a function stores, with a zero byte at its end, where there is room for so much.
pub(super) fn stored(store: impl FnOnce(*mut c_char, usize) -> c_int) -> io::Result<String> {
    let mut bytes = [0u8; 256];
    done(store(bytes.as_mut_ptr().cast(), bytes.len()))?;
    let found = CStr::from_bytes_until_nul(&bytes).ok().and_then(|text| text.to_str().ok());
    found.map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A text as C has it.
pub(super) fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| {
        let what = format!("{text:?} contains a zero byte");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_libraries_are_told_with_what_to_install() {
        let error = load("libno-such.so.2", RBD).unwrap_err();
        assert!(error.contains("apt-get install librbd1"), "{error}");
        // Every system has this library, which has none of the functions.
        let error = load("libc.so.6", "libc.so.6").unwrap_err();
        assert!(error.contains("older than that of Ceph 16"), "{error}");
    }
}
