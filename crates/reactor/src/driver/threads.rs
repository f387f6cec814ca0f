//! A few threads for operations that would block: on files where there is no io_uring, and
//! requests to block devices that io_uring does not support.

use crate::driver::files::FileOperation;
use crate::driver::step::KernelRequest;
use crate::mailbox::Waker;
use crate::operation::{ReactorCompletion, Token};
use crate::slab::{Key, Slab};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Operations that threads execute, and the threads.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    threads_max: usize,
    operations: Slab<FileOperation>,
    finished: Vec<(Key, Result<u64, Errno>)>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    available: Condvar,
    finished: Mutex<Vec<(Key, Result<u64, Errno>)>>,
    has_finished: AtomicBool,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    stop: bool,
}

/// One step of an operation. The descriptor and the memory belong to a [`FileOperation`] that
/// stays in `Threads::operations` until this job's result has been taken.
#[derive(Debug)]
struct Job {
    key: Key,
    descriptor: RawFd,
    step: KernelRequest,
}

// SAFETY: the pointers in a step lead to memory that the operation owns until its completion, and
// which nothing else accesses meanwhile (or, for zeroes, that is never written).
unsafe impl Send for Job {}

impl Threads {
    pub(crate) fn new(threads_max: usize, waker: Waker) -> Self {
        let shared = Shared {
            queue: Mutex::new(Queue::default()),
            available: Condvar::new(),
            finished: Mutex::new(Vec::new()),
            has_finished: AtomicBool::new(false),
            waker,
        };
        Self {
            shared: Arc::new(shared),
            handles: Vec::new(),
            threads_max: threads_max.max(1),
            operations: Slab::new(),
            finished: Vec::new(),
        }
    }

    /// Starts an operation. Its completion comes out of [`collect`](Self::collect).
    pub(crate) fn submit(&mut self, operation: FileOperation, ready: &mut Vec<ReactorCompletion>) {
        let key = self.operations.insert(operation);
        self.start(key, ready);
    }

    /// Whether [`collect`](Self::collect) would find something.
    pub(crate) fn has_ready(&self) -> bool {
        self.shared.has_finished.load(Ordering::Acquire)
    }

    /// Takes what has finished.
    pub(crate) fn collect(&mut self, ready: &mut Vec<ReactorCompletion>) {
        if !self.has_ready() {
            return;
        }
        {
            let mut finished = lock(&self.shared.finished);
            self.shared.has_finished.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *finished, &mut self.finished);
        }
        let mut finished = std::mem::take(&mut self.finished);
        for (key, result) in finished.drain(..) {
            let Some(operation) = self.operations.get_mut(key) else { continue };
            match operation.advance(result) {
                None => self.start(key, ready),
                Some(result) => {
                    if let Some(operation) = self.operations.remove(key) {
                        ready.push(operation.end(result));
                    }
                }
            }
        }
        self.finished = finished;
    }

    /// Withdraws an operation that no thread has begun. Whether there was one by that name.
    pub(crate) fn cancel(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>) -> bool {
        let Some(key) = self.operations.iter().find(|(_, it)| it.token() == token) else {
            return false;
        };
        let key = key.0;
        let withdrawn = {
            let mut queue = lock(&self.shared.queue);
            let position = queue.jobs.iter().position(|job| job.key == key);
            position.and_then(|position| queue.jobs.remove(position)).is_some()
        };
        if withdrawn && let Some(operation) = self.operations.remove(key) {
            ready.push(operation.end(Err(Errno::CANCELED.into())));
        }
        true
    }

    fn start(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        let step = operation.step();
        let job = Job { key, descriptor: operation.descriptor().as_raw_fd(), step };
        let is_short_of_threads = {
            let mut queue = lock(&self.shared.queue);
            queue.jobs.push_back(job);
            queue.jobs.len() > queue.idle
        };
        self.shared.available.notify_one();
        if is_short_of_threads && self.handles.len() < self.threads_max {
            self.grow(key, ready);
        }
    }

    fn grow(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let shared = Arc::clone(&self.shared);
        let spawned =
            std::thread::Builder::new().name("weft-io".to_owned()).spawn(move || serve(&shared));
        match spawned {
            Ok(handle) => self.handles.push(handle),
            Err(_) if !self.handles.is_empty() => {} // the others get to it
            Err(error) => {
                lock(&self.shared.queue).jobs.retain(|job| job.key != key);
                if let Some(operation) = self.operations.remove(key) {
                    ready.push(operation.end(Err(error)));
                }
            }
        }
    }
}

impl Drop for Threads {
    /// Waits for what has begun; the memory it uses goes away afterwards.
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.shared.queue);
            queue.stop = true;
            queue.jobs.clear();
        }
        self.shared.available.notify_all();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks can leave their contents half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Shared) {
    // A thread inherits its creator's affinity: with a pinned reactor it would do its blocking
    // work on the reactor's CPU. So it takes the affinity of the process's first thread.
    let first = rustix::process::getpid();
    if let Ok(cpus) = rustix::thread::sched_getaffinity(Some(first)) {
        let _ = rustix::thread::sched_setaffinity(None, &cpus);
    }
    while let Some(job) = next_job(shared) {
        let result = execute_job(&job);
        {
            let mut finished = lock(&shared.finished);
            finished.push((job.key, result));
            shared.has_finished.store(true, Ordering::Release);
        }
        shared.waker.wake();
    }
}

fn next_job(shared: &Shared) -> Option<Job> {
    let mut queue = lock(&shared.queue);
    loop {
        if queue.stop {
            return None;
        }
        if let Some(job) = queue.jobs.pop_front() {
            return Some(job);
        }
        queue.idle += 1;
        queue = shared.available.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
    }
}

fn execute_job(job: &Job) -> Result<u64, Errno> {
    // SAFETY: the operation that this job is a step of keeps the file open (see `Job`).
    let descriptor = unsafe { BorrowedFd::borrow_raw(job.descriptor) };
    match job.step {
        KernelRequest::Read { memory, len, offset } => {
            // SAFETY: the memory belongs to the operation, nobody else touches it (see `Job`),
            // and a buffer's memory is initialised.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory, len) };
            Ok(rustix::io::pread(descriptor, bytes, offset)? as u64)
        }
        KernelRequest::Write { memory, len, offset, durable } => {
            // SAFETY: as for reading; here nobody writes to it.
            let bytes = unsafe { std::slice::from_raw_parts(memory, len) };
            let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            Ok(rustix::io::pwritev2(descriptor, &[IoSlice::new(bytes)], offset, flags)? as u64)
        }
        KernelRequest::Sync => rustix::fs::fdatasync(descriptor).map(|()| 0),
        KernelRequest::Allocate { flags, offset, length } => {
            rustix::fs::fallocate(descriptor, flags, offset, length).map(|()| 0)
        }
        KernelRequest::DeviceDiscard { offset, length } => {
            block_request::<BLKDISCARD>(descriptor, offset, length)
        }
        KernelRequest::DeviceZero { offset, length } => {
            block_request::<BLKZEROOUT>(descriptor, offset, length)
        }
        KernelRequest::FetchUblk { .. } => Err(Errno::OPNOTSUPP),
    }
}

/// `_IO(0x12, 119)` and `_IO(0x12, 127)` of linux/fs.h.
const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
const BLKZEROOUT: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 127);

fn block_request<const OPCODE: rustix::ioctl::Opcode>(
    device: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> Result<u64, Errno> {
    // SAFETY: both requests take a pointer to two 64-bit numbers, start and length in bytes, and
    // only read them.
    unsafe {
        let request = rustix::ioctl::Setter::<OPCODE, [u64; 2]>::new([offset, length]);
        rustix::ioctl::ioctl(device, request)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// The kernel writes durably or refuses: a file without a medium, such as this one of proc,
    /// can be written, but not durably.
    #[test]
    fn a_durable_write_is_asked_of_the_kernel() {
        let path = "/proc/self/oom_score_adj";
        let name = fs::read(path).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        let write = |durable| {
            let memory = name.as_ptr();
            let step = KernelRequest::Write { memory, len: name.len(), offset: 0, durable };
            let key = Slab::new().insert(());
            execute_job(&Job { key, descriptor: file.as_raw_fd(), step })
        };
        assert_eq!(write(false), Ok(name.len() as u64));
        assert_eq!(write(true), Err(Errno::OPNOTSUPP));
    }
}
