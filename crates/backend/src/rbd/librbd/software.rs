//! A cluster in memory for tests, behind the functions of the libraries: its operations end on a
//! thread of its own, as librbd's do.

use super::Cluster;
use super::library::{
    Callback, FEATURE_LOCK, Functions, Handle, UpdateCallback, WRITE_FUA, ZEROES_THICK,
};
use crate::rbd::CephSpec;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::{io, slice, thread};

/// A cluster that tests control.
#[derive(Debug)]
pub(in crate::rbd) struct World {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(in crate::rbd) struct State {
    /// By pool, namespace and name, like `pool/namespace/image`.
    pub(in crate::rbd) images: BTreeMap<String, Vec<u8>>,
    /// Operations are not executed.
    pub(in crate::rbd) hangs: bool,
    /// Every operation fails with this error number.
    pub(in crate::rbd) fails: Option<c_int>,
    /// What was asked for, in words.
    pub(in crate::rbd) log: Vec<String>,
    /// Another client has the exclusive lock.
    pub(in crate::rbd) locked: bool,
    /// This client has asked for it, and not released it.
    pub(in crate::rbd) kept: bool,
    queue: VecDeque<Task>,
    watches: Vec<(u64, UpdateCallback, Pointer)>,
    /// How often each image is open.
    open: BTreeMap<String, usize>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pointer(*mut c_void);
// SAFETY: the functions below pass pointers on as librbd does.
unsafe impl Send for Pointer {}

struct Task(Box<dyn FnOnce(&mut State) -> Pointer + Send>);

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

struct Context {
    world: Arc<World>,
    path: Mutex<String>,
}

struct Completion {
    callback: Callback,
    argument: Pointer,
    result: isize,
}

static WORLDS: Mutex<BTreeMap<String, Arc<World>>> = Mutex::new(BTreeMap::new());

impl World {
    /// A cluster of this name, and a connection to it.
    pub(in crate::rbd) fn new(name: &str) -> (Arc<Self>, Arc<Cluster>) {
        let world = Arc::new(Self { state: Mutex::default(), changed: Condvar::new() });
        let executing = Arc::clone(&world);
        thread::spawn(move || executing.execute());
        WORLDS.lock().unwrap().insert(name.to_owned(), Arc::clone(&world));
        let spec = CephSpec { cluster: Some(name.to_owned()), ..CephSpec::default() };
        (world, Arc::new(Cluster::open(&FUNCTIONS, &spec).unwrap()))
    }

    /// Another connection, with what the specification says.
    pub(in crate::rbd) fn connect(spec: &CephSpec) -> io::Result<Arc<Cluster>> {
        Cluster::open(&FUNCTIONS, spec).map(Arc::new)
    }

    pub(in crate::rbd) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(in crate::rbd) fn hang(&self, hangs: bool) {
        self.lock().hangs = hangs;
        self.changed.notify_all();
    }

    /// Another client has changed the size.
    pub(in crate::rbd) fn resize(&self, image: &str, bytes: usize) {
        let mut state = self.lock();
        state.images.get_mut(image).unwrap().resize(bytes, 0);
        let watches = state.watches.clone();
        drop(state);
        for (_, callback, argument) in watches {
            // SAFETY: as librbd does while there is the watch.
            unsafe { callback(argument.0) };
        }
    }

    /// Ends its thread.
    pub(in crate::rbd) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn execute(&self) {
        loop {
            let idle = |state: &mut State| !state.ended && (state.hangs || state.queue.is_empty());
            let mut state = self.changed.wait_while(self.lock(), idle).unwrap();
            let Some(Task(task)) = state.queue.pop_front() else { return };
            let done = task(&mut state).0;
            drop(state);
            let completion: *mut Completion = done.cast();
            // SAFETY: the task gave the completion it was made with, which is still there.
            unsafe { ((*completion).callback)(done, (*completion).argument.0) };
        }
    }
}

/// Queues an operation on the image at `image`.
fn queue(
    image: Handle,
    completion: Handle,
    word: impl Into<String>,
    action: impl FnOnce(&mut Vec<u8>) -> isize + Send + 'static,
) -> c_int {
    // SAFETY: `open` made it, and `rbd_close` is not called before all operations have ended.
    let image = unsafe { &*image.cast::<Context>() };
    let (path, completion) = (image.path.lock().unwrap().clone(), Pointer(completion));
    let task = move |state: &mut State| {
        let done = completion;
        let result = match (state.fails, state.images.get_mut(&path)) {
            (Some(error), _) => -(error as isize),
            (None, Some(bytes)) => action(bytes),
            (None, None) => -2,
        };
        // SAFETY: the completion is made by `create_completion` and there until it is released.
        unsafe { (*done.0.cast::<Completion>()).result = result };
        done
    };
    let mut state = image.world.lock();
    state.log.push(word.into());
    state.queue.push_back(Task(Box::new(task)));
    drop(state);
    image.world.changed.notify_all();
    0
}

/// The bytes of an operation, or the error of one beyond the end. Reads are cut at the end.
fn range(bytes: &mut [u8], offset: u64, len: usize) -> Result<&mut [u8], isize> {
    let offset = usize::try_from(offset).unwrap();
    let end = (offset + len).min(bytes.len());
    if offset > bytes.len() { Err(-22) } else { Ok(&mut bytes[offset..end]) }
}

unsafe fn name<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the binding passes C strings.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

unsafe extern "C" fn create(
    into: *mut Handle,
    cluster: *const c_char,
    user: *const c_char,
    _: u64,
) -> c_int {
    // SAFETY: the binding passes C strings and a place for the handle.
    unsafe {
        let Some(world) = WORLDS.lock().unwrap().get(name(cluster)).cloned() else { return -2 };
        world.lock().log.push(format!("create {}", name(user)));
        let path = Mutex::default();
        *into = Box::into_raw(Box::new(Context { world, path })).cast();
    }
    0
}

unsafe extern "C" fn conf_read(cluster: Handle, path: *const c_char) -> c_int {
    // SAFETY: `create` made the handle; the path is a C string or null.
    unsafe {
        let path = if path.is_null() { "" } else { name(path) };
        (*cluster.cast::<Context>()).world.lock().log.push(format!("conf {path}"));
        if path.contains("missing") { -2 } else { 0 }
    }
}

unsafe extern "C" fn conf_set(cluster: Handle, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe {
        let word = format!("set {}={}", name(key), name(value));
        (*cluster.cast::<Context>()).world.lock().log.push(word);
        if name(key).contains("unknown") { -2 } else { 0 }
    }
}

unsafe extern "C" fn conf_get(_: Handle, _: *const c_char, into: *mut c_char, _: usize) -> c_int {
    let value = c"16384".to_bytes_with_nul();
    // SAFETY: there is room for 32 bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr().cast(), into, value.len()) };
    0
}

unsafe extern "C" fn connect(_: Handle) -> c_int {
    0
}

unsafe extern "C" fn destroy(context: Handle) {
    // SAFETY: one of the functions below made it, and nothing uses it any more.
    drop(unsafe { Box::from_raw(context.cast::<Context>()) });
}

unsafe extern "C" fn ioctx(cluster: Handle, pool: *const c_char, into: *mut Handle) -> c_int {
    // SAFETY: as above.
    unsafe {
        let world = Arc::clone(&(*cluster.cast::<Context>()).world);
        let path = Mutex::new(name(pool).to_owned());
        if name(pool) == "missing" {
            return -2;
        }
        *into = Box::into_raw(Box::new(Context { world, path })).cast();
    }
    0
}

unsafe extern "C" fn set_namespace(context: Handle, namespace: *const c_char) {
    // SAFETY: as above.
    unsafe {
        let mut path = (*context.cast::<Context>()).path.lock().unwrap();
        path.push('/');
        path.push_str(name(namespace));
    }
}

unsafe extern "C" fn full_try(context: Handle) {
    // SAFETY: as above.
    let context = unsafe { &*context.cast::<Context>() };
    context.world.lock().log.push("full try".to_owned());
}

unsafe extern "C" fn open(
    context: Handle,
    image: *const c_char,
    into: *mut Handle,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: as above; the snapshot is a C string or null.
    unsafe {
        let context = &*context.cast::<Context>();
        let path = format!("{}/{}", context.path.lock().unwrap(), name(image));
        let snapshot = if snapshot.is_null() { "" } else { name(snapshot) };
        let mut state = context.world.lock();
        state.log.push(format!("open {path}@{snapshot}"));
        if !state.images.contains_key(&path) {
            return -2;
        }
        *state.open.entry(path.clone()).or_default() += 1;
        let world = Arc::clone(&context.world);
        *into = Box::into_raw(Box::new(Context { world, path: Mutex::new(path) })).cast();
    }
    0
}

unsafe extern "C" fn create_image(
    context: Handle,
    image: *const c_char,
    bytes: u64,
    order: *mut c_int,
) -> c_int {
    // SAFETY: as above, and there is a number.
    unsafe {
        let context = &*context.cast::<Context>();
        let path = format!("{}/{}", context.path.lock().unwrap(), name(image));
        let mut state = context.world.lock();
        state.log.push(format!("make {path} {bytes} {}", *order));
        match state.fails {
            Some(error) => return -error,
            None if state.images.contains_key(&path) => return -17,
            None => state.images.insert(path, vec![0; usize::try_from(bytes).unwrap()]),
        };
    }
    0
}

unsafe extern "C" fn remove_image(context: Handle, image: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe {
        let context = &*context.cast::<Context>();
        let path = format!("{}/{}", context.path.lock().unwrap(), name(image));
        let mut state = context.world.lock();
        if state.open.get(&path).is_some_and(|count| *count > 0) {
            return -16;
        }
        if state.images.remove(&path).is_none() { -2 } else { 0 }
    }
}

unsafe extern "C" fn close(image: Handle) -> c_int {
    // SAFETY: `open` made it.
    let context = unsafe { &*image.cast::<Context>() };
    let (world, path) = (Arc::clone(&context.world), context.path.lock().unwrap().clone());
    let busy = |state: &mut State| !state.queue.is_empty();
    while busy(&mut world.lock()) {
        thread::yield_now();
    }
    let mut state = world.lock();
    state.log.push(format!("close {path}"));
    *state.open.get_mut(&path).unwrap() -= 1;
    drop(state);
    // SAFETY: nobody uses it any more.
    unsafe { destroy(image) };
    0
}

unsafe extern "C" fn get_size(image: Handle, into: *mut u64) -> c_int {
    // SAFETY: as above, and there is a place for the number.
    unsafe {
        let context = &*image.cast::<Context>();
        let path = context.path.lock().unwrap().clone();
        let state = context.world.lock();
        let Some(bytes) = state.images.get(&path) else { return -2 };
        *into = bytes.len() as u64;
    }
    0
}

/// Stores a text, with a zero byte at its end.
unsafe fn store(text: &str, into: *mut c_char, len: usize) -> c_int {
    let text = std::ffi::CString::new(text).unwrap();
    let bytes = text.as_bytes_with_nul();
    assert!(bytes.len() <= len, "there is room");
    // SAFETY: there is room for `len` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), into, bytes.len()) };
    0
}

unsafe extern "C" fn fsid(cluster: Handle, into: *mut c_char, len: usize) -> c_int {
    // SAFETY: as above.
    let context = unsafe { &*cluster.cast::<Context>() };
    let fsid = format!("{:p}", Arc::as_ptr(&context.world));
    // SAFETY: the binding says how much room there is.
    unsafe { store(&fsid, into, len) }
}

unsafe extern "C" fn pool_id(context: Handle) -> i64 {
    // SAFETY: as above.
    let context = unsafe { &*context.cast::<Context>() };
    let path = context.path.lock().unwrap();
    path.split('/').next().unwrap_or_default().bytes().map(i64::from).sum()
}

unsafe extern "C" fn image_id(image: Handle, into: *mut c_char, len: usize) -> c_int {
    // SAFETY: as above.
    let context = unsafe { &*image.cast::<Context>() };
    let path = context.path.lock().unwrap();
    // SAFETY: the binding says how much room there is.
    unsafe { store(path.rsplit('/').next().unwrap_or_default(), into, len) }
}

unsafe extern "C" fn stripe_unit(_: Handle, into: *mut u64) -> c_int {
    // SAFETY: there is a place for the number.
    unsafe { *into = 4 << 20 };
    0
}

unsafe extern "C" fn resize(image: Handle, bytes: u64) -> c_int {
    // SAFETY: as above.
    let context = unsafe { &*image.cast::<Context>() };
    let path = context.path.lock().unwrap().clone();
    context.world.resize(&path, usize::try_from(bytes).unwrap());
    0
}

unsafe extern "C" fn watchers(image: Handle, _: *mut c_void, _: *mut usize) -> c_int {
    // SAFETY: as above.
    let context = unsafe { &*image.cast::<Context>() };
    let path = context.path.lock().unwrap().clone();
    if context.world.lock().images.contains_key(&path) { -34 } else { -2 }
}

unsafe extern "C" fn flush(image: Handle) -> c_int {
    // SAFETY: as above.
    let mut state = unsafe { &*image.cast::<Context>() }.world.lock();
    state.log.push("sync".to_owned());
    0
}

unsafe extern "C" fn get_features(_: Handle, into: *mut u64) -> c_int {
    // SAFETY: the caller has room for a number.
    unsafe { into.write(FEATURE_LOCK) };
    0
}

unsafe extern "C" fn is_lock_owner(image: Handle, into: *mut c_int) -> c_int {
    // SAFETY: as above.
    let state = unsafe { &*image.cast::<Context>() }.world.lock();
    // SAFETY: the caller has room for a number.
    unsafe { into.write((!state.locked).into()) };
    0
}

unsafe extern "C" fn lock_acquire(image: Handle, _: c_int) -> c_int {
    // SAFETY: as above.
    let mut state = unsafe { &*image.cast::<Context>() }.world.lock();
    state.kept |= !state.locked;
    if state.locked { -30 } else { 0 }
}

unsafe extern "C" fn lock_release(image: Handle) -> c_int {
    // SAFETY: as above.
    unsafe { &*image.cast::<Context>() }.world.lock().kept = false;
    0
}

unsafe extern "C" fn lock_owners(
    image: Handle,
    _: *mut c_int,
    _: *mut *mut c_char,
    room: *mut usize,
) -> c_int {
    // SAFETY: as above.
    let state = unsafe { &*image.cast::<Context>() }.world.lock();
    // SAFETY: there is a place for the number.
    unsafe { *room = usize::from(state.locked || state.kept) };
    match state.fails {
        Some(error) => -error,
        None if state.locked || state.kept => -34,
        None => -2,
    }
}

unsafe extern "C" fn update_watch(
    image: Handle,
    into: *mut u64,
    callback: UpdateCallback,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let mut state = unsafe { &*image.cast::<Context>() }.world.lock();
    let number = state.watches.iter().map(|(number, _, _)| number + 1).max().unwrap_or(0);
    state.watches.push((number, callback, Pointer(argument)));
    // SAFETY: there is a place for the number.
    unsafe { *into = number };
    0
}

unsafe extern "C" fn update_unwatch(image: Handle, watch: u64) -> c_int {
    // SAFETY: as above.
    let mut state = unsafe { &*image.cast::<Context>() }.world.lock();
    state.watches.retain(|(number, _, _)| *number != watch);
    0
}

unsafe extern "C" fn create_completion(
    argument: *mut c_void,
    callback: Callback,
    into: *mut Handle,
) -> c_int {
    let argument = Pointer(argument);
    let completion = Box::new(Completion { callback, argument, result: 0 });
    // SAFETY: there is a place for the handle.
    unsafe { *into = Box::into_raw(completion).cast() };
    0
}

unsafe extern "C" fn return_value(completion: Handle) -> isize {
    // SAFETY: `create_completion` made it.
    unsafe { (*completion.cast::<Completion>()).result }
}

unsafe extern "C" fn release(completion: Handle) {
    // SAFETY: as above; nothing uses it any more.
    drop(unsafe { Box::from_raw(completion.cast::<Completion>()) });
}

unsafe extern "C" fn read(
    image: Handle,
    offset: u64,
    len: usize,
    into: *mut c_char,
    completion: Handle,
) -> c_int {
    let into = Pointer(into.cast());
    queue(image, completion, "read", move |bytes| {
        let into = { into };
        match range(bytes, offset, len) {
            Ok(found) => {
                // SAFETY: the memory is that of the operation until it has ended.
                let into = unsafe { slice::from_raw_parts_mut(into.0.cast::<u8>(), len) };
                into[..found.len()].copy_from_slice(found);
                found.len() as isize
            }
            Err(error) => error,
        }
    })
}

unsafe extern "C" fn write(
    image: Handle,
    offset: u64,
    len: usize,
    from: *const c_char,
    completion: Handle,
    flags: c_int,
) -> c_int {
    let (from, word) = (Pointer(from.cast_mut().cast()), ["write", "write fua"]);
    queue(image, completion, word[usize::from(flags == WRITE_FUA)], move |bytes| {
        let from = { from };
        // SAFETY: the memory is that of the operation until it has ended.
        let from = unsafe { slice::from_raw_parts(from.0.cast::<u8>(), len) };
        range(bytes, offset, len).map_or_else(
            |error| error,
            |into| {
                into.copy_from_slice(&from[..into.len()]);
                0
            },
        )
    })
}

unsafe extern "C" fn aio_flush(image: Handle, completion: Handle) -> c_int {
    queue(image, completion, "flush", |_| 0)
}

unsafe extern "C" fn discard(image: Handle, offset: u64, len: u64, completion: Handle) -> c_int {
    queue(image, completion, format!("discard {offset}+{len}"), move |bytes| {
        let len = usize::try_from(len).unwrap();
        range(bytes, offset, len).map_or_else(
            |error| error,
            |into| {
                into.fill(0);
                0
            },
        )
    })
}

unsafe extern "C" fn write_zeroes(
    image: Handle,
    offset: u64,
    len: usize,
    completion: Handle,
    flags: c_int,
    operation_flags: c_int,
) -> c_int {
    let words = [["zero", "zero thick"], ["zero fua", "zero thick fua"]];
    let durable = usize::from(operation_flags == WRITE_FUA);
    let word = words[durable][usize::from(flags == ZEROES_THICK)];
    queue(image, completion, word, move |bytes| {
        range(bytes, offset, len).map_or_else(
            |error| error,
            |into| {
                into.fill(0);
                0
            },
        )
    })
}

unsafe extern "C" fn compare_and_write(
    image: Handle,
    offset: u64,
    len: usize,
    expected: *const c_char,
    new: *const c_char,
    completion: Handle,
    mismatch: *mut u64,
    operation_flags: c_int,
) -> c_int {
    let words = ["compare and write", "compare and write fua"];
    let word = words[usize::from(operation_flags == WRITE_FUA)];
    let pointers = [expected, new].map(|at| Pointer(at.cast_mut().cast()));
    let mismatch = Pointer(mismatch.cast());
    queue(image, completion, word, move |bytes| {
        let (pointers, mismatch) = ({ pointers }, { mismatch });
        // SAFETY: the memory is that of the operation until it has ended.
        let [expected, new] =
            pointers.map(|at| unsafe { slice::from_raw_parts(at.0.cast::<u8>(), len) });
        match range(bytes, offset, len) {
            Ok(found) if found == expected => {
                found.copy_from_slice(new);
                0
            }
            Ok(_) => {
                // SAFETY: as above.
                unsafe { *mismatch.0.cast::<u64>() = offset };
                -84
            }
            Err(error) => error,
        }
    })
}

static FUNCTIONS: Functions = Functions {
    rados_create2: create,
    rados_conf_read_file: conf_read,
    rados_conf_set: conf_set,
    rados_conf_get: conf_get,
    rados_connect: connect,
    rados_cluster_fsid: fsid,
    rados_wait_for_latest_osdmap: connect,
    rados_shutdown: destroy,
    rados_ioctx_create: ioctx,
    rados_ioctx_set_namespace: set_namespace,
    rados_ioctx_get_id: pool_id,
    rados_ioctx_destroy: destroy,
    rados_set_pool_full_try: full_try,
    rbd_create: create_image,
    rbd_remove: remove_image,
    rbd_open: open,
    rbd_open_read_only: open,
    rbd_close: close,
    rbd_get_id: image_id,
    rbd_get_size: get_size,
    rbd_get_stripe_unit: stripe_unit,
    rbd_resize: resize,
    rbd_flush: flush,
    rbd_watchers_list: watchers,
    rbd_get_features: get_features,
    rbd_is_exclusive_lock_owner: is_lock_owner,
    rbd_lock_acquire: lock_acquire,
    rbd_lock_release: lock_release,
    rbd_lock_get_owners: lock_owners,
    rbd_update_watch: update_watch,
    rbd_update_unwatch: update_unwatch,
    rbd_aio_create_completion: create_completion,
    rbd_aio_get_return_value: return_value,
    rbd_aio_release: release,
    rbd_aio_read: read,
    rbd_aio_write2: write,
    rbd_aio_flush: aio_flush,
    rbd_aio_discard: discard,
    rbd_aio_write_zeroes: write_zeroes,
    rbd_aio_compare_and_write: compare_and_write,
};
