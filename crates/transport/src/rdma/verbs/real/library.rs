//! Loads the libraries, once for the process.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::Library;

use super::abi::Functions;

const VERBS: &str = "libibverbs.so.1";
const MANAGER: &str = "librdmacm.so.1";
const INSTALL: &str = "RDMA needs libibverbs and librdmacm: install rdma-core (on Debian: \
    apt-get install ibverbs-providers librdmacm1)";
/// Such a binary has no loader.
const STATIC: &str = "a static binary has no RDMA, whose libraries are loaded at run time: use \
    weft's Debian package, container image or Python wheel";

/// The functions of both libraries, which stay loaded for the life of the process.
pub(super) fn functions() -> io::Result<&'static Functions> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(|why| io::Error::new(io::ErrorKind::NotFound, &**why))
}

fn load() -> Result<Functions, String> {
    if cfg!(target_feature = "crt-static") {
        return Err(STATIC.to_owned());
    }
    let open = |name| {
        // SAFETY: what these two libraries do when they are loaded is harmless at any time.
        unsafe { Library::new(name) }.map_err(|error| format!("{INSTALL}; {error}"))
    };
    let (verbs, manager) = (open(VERBS)?, open(MANAGER)?);
    let functions = Functions::find(&verbs, &manager)
        .map_err(|error| format!("{VERBS} or {MANAGER} is too old: {error}"))?;
    // The functions are used until the process ends.
    std::mem::forget((verbs, manager));
    keep_devices_open(&functions);
    Ok(functions)
}

/// Makes the connection manager open its devices and never close them, so that contexts stay valid.
fn keep_devices_open(functions: &Functions) {
    let mut count = 0;
    // SAFETY: the list is never given back, and with it no context.
    let _ = unsafe { (functions.rdma_get_devices)(&raw mut count) };
}

/// Checks the result of a function that returns a pointer, or null and `errno`.
pub(super) fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// Checks the result of a function that returns 0, or -1 and `errno`.
pub(super) fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks the result of a function that returns 0 or an error number.
pub(super) fn number(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result.abs())) }
}

/// The same error with a preceding sentence.
pub(super) fn explained(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
