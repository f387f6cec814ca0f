//! Readiness and files by io_uring, from Linux 5.15 on.
//!
//! Descriptors are watched by multishot polls, which report edges as epoll does; everything that
//! is pending goes to the kernel with one system call per turn, and that call also fetches what
//! has come. A spinning reactor makes it only if there is something to hand over or the kernel
//! has set a flag in shared memory.
//!
//! Newer kernels run the completing half of the work when this thread asks for it
//! (DEFER_TASKRUN), and not in the middle of something else. What a kernel supports is found by
//! trying; see [`RingMode`].

mod side;

use self::side::{CommandRing, PolledRing};
use crate::driver::Wait;
use crate::driver::files::FileOperation;
use crate::driver::poller::{Poller, Ready, timespec};
use crate::driver::step::KernelRequest;
use crate::driver::threads::Threads;
use crate::limits::{COMPLETION_ENTRIES, SUBMISSION_ENTRIES};
use crate::mailbox::Waker;
use crate::operation::{ReactorCompletion, Token};
use crate::passthrough::URING_CMD_IO;
use crate::setup::{Config, RingMode};
use crate::slab::{Key, Slab};
use crate::ublk::{COMMIT_AND_FETCH_REQ, FETCH_REQ};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{fmt, io};

/// What the two bits above a key say about it.
const KIND_SHIFT: u32 = 62;
const KIND_WATCH: u64 = 0;
const KIND_FILE: u64 = 1;
const KIND_WAKER: u64 = 2;
/// Completions of requests whose result nobody needs: removals and cancellations.
const KIND_IGNORED: u64 = 3;
/// The poll of the ring of commands, among the ignored ones.
const COMMANDS_DATA: u64 = KIND_IGNORED << KIND_SHIFT | 1;

/// Flags of `io_uring_enter`: fetch completions, use the extended argument, do not count the
/// wait as one for I/O (an idle machine would look busy).
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;
const ENTER_NO_IOWAIT: u32 = 128;

/// File operations that wait for the turn's end at most. The disk is idle while they
/// wait: with 32 in flight on a virtio disk a whole turn's at once cost a fifth of the IOPS, and
/// one by one is no faster than four.
const FILES_PENDING_MAX: usize = 4;

pub(crate) struct Uring {
    // Its memory is what the kernel holds; see `drop`.
    operations: Slab<FileOperation>,
    ring: IoUring,
    /// For files of which completions are polled; made with the first of them.
    polled: Option<PolledRing>,
    /// For namespaces without the block layer; made with the first of them.
    commands: Option<CommandRing>,
    /// What did not fit into the submission queue.
    backlog: VecDeque<squeue::Entry>,
    /// What was taken from the completion queue only to make room in it.
    early: VecDeque<cqueue::Entry>,
    threads: Threads,
    mode: RingMode,
    wait_flags: u32,
    waker: Waker,
    /// File operations that have not been handed to the kernel.
    files_pending: usize,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("operations", &self.operations.len())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// A ring in the best mode that the kernel supports, `config.ring` at most.
    pub(crate) fn new(config: &Config, waker: &Waker) -> io::Result<Self> {
        Self::with(config.ring, Threads::new(config.io_threads, waker.clone()), waker)
    }

    fn with(mode: RingMode, threads: Threads, waker: &Waker) -> io::Result<Self> {
        let (ring, mode) = set_up(mode)?;
        check_features(&ring)?;
        let is_idle_honest = ring.params().is_feature_no_iowait();
        let mut this = Self {
            operations: Slab::new(),
            ring,
            polled: None,
            commands: None,
            backlog: VecDeque::new(),
            early: VecDeque::new(),
            threads,
            mode,
            wait_flags: ENTER_GETEVENTS
                | ENTER_EXT_ARG
                | if is_idle_honest { ENTER_NO_IOWAIT } else { 0 },
            waker: waker.clone(),
            files_pending: 0,
        };
        this.watch_waker();
        this.submit();
        Ok(this)
    }

    fn watch_waker(&mut self) {
        if let Some(descriptor) = self.waker.descriptor() {
            let entry = watch_entry(descriptor, PollFlags::IN, KIND_WAKER << KIND_SHIFT);
            self.push(entry);
        }
    }

    fn watch_commands(&mut self) {
        if let Some(commands) = &self.commands {
            let events = u32::from(PollFlags::IN.bits());
            let poll = opcode::PollAdd::new(Fd(commands.descriptor()), events).multi(true);
            self.push(poll.build().user_data(COMMANDS_DATA));
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            if self.try_push(&entry) {
                return;
            }
            self.submit();
            if self.try_push(&entry) {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: what an entry points to is a descriptor or memory of an operation in
        // `operations`, which stays there until the kernel has reported its end.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Submits pending entries and fetches completions, without waiting.
    fn submit(&mut self) {
        // An error is a full completion queue or an interruption: in both cases the
        // completions that are there are taken and the call is repeated.
        let _ = self.enter(0, ENTER_GETEVENTS, None);
    }

    fn enter(
        &mut self,
        wanted: u32,
        flags: u32,
        args: Option<&SubmitArgs<'_, '_>>,
    ) -> io::Result<usize> {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                break;
            }
        }
        self.files_pending = 0;
        let pending = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // SAFETY: the entries are valid (`try_push`), and the argument has the type that EXT_ARG
        // asks for and outlives the call.
        unsafe { self.ring.submitter().enter(pending, wanted, flags, args) }
    }

    fn has_pending(&mut self) -> bool {
        !self.ring.submission().is_empty() || !self.backlog.is_empty()
    }

    fn is_something_to_fetch(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    fn wait(&mut self, until: Option<Duration>, now: Duration) {
        let time = until.map(|until| {
            let time = timespec(until.saturating_sub(now));
            io_uring::types::Timespec::new()
                .sec(time.tv_sec.unsigned_abs())
                .nsec(u32::try_from(time.tv_nsec).unwrap_or(0))
        });
        let args = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        // An error is the end of the time, or as in `submit`.
        let _ = self.enter(1, self.wait_flags, Some(&args));
    }

    /// Takes all completions that the kernel has left. Whether the waker's was among them: it is
    /// not reported again.
    fn drain(&mut self, readiness: &mut Vec<Ready>, ready: &mut Vec<ReactorCompletion>) -> bool {
        let mut was_called = false;
        loop {
            // One at a time: handling one may push entries, and so needs the ring.
            let entry = self.early.pop_front().or_else(|| self.ring.completion().next());
            let Some(entry) = entry else { return was_called };
            let data = entry.user_data();
            match data >> KIND_SHIFT {
                KIND_WATCH => readiness.extend(interpret(&entry)),
                KIND_FILE => self.file_completed(Key::from_bits(data), entry.result(), ready),
                KIND_WAKER => {
                    was_called = true;
                    if !cqueue::more(entry.flags()) {
                        self.watch_waker();
                    }
                }
                _ if data == COMMANDS_DATA && !cqueue::more(entry.flags()) => {
                    self.watch_commands();
                }
                _ => {}
            }
        }
    }

    fn file_completed(&mut self, key: Key, result: i32, ready: &mut Vec<ReactorCompletion>) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        let result = match u64::try_from(result) {
            Ok(count) => Ok(count),
            Err(_) => Err(Errno::from_raw_os_error(result.saturating_neg())),
        };
        match operation.advance(result) {
            Some(result) => {
                if let Some(operation) = self.operations.remove(key) {
                    ready.push(operation.end(result));
                }
            }
            None => self.start(key, ready),
        }
    }

    /// How many requests are in flight whose completions are polled.
    fn polled_in_flight(&self) -> usize {
        self.polled.as_ref().map_or(0, PolledRing::in_flight)
    }

    /// Looks for their completions.
    fn look_at_polled(&mut self, ready: &mut Vec<ReactorCompletion>) -> io::Result<()> {
        if self.polled_in_flight() == 0 {
            return Ok(());
        }
        let looked = self.polled.as_mut().map_or(Ok(()), PolledRing::look);
        while let Some((data, result)) = self.polled.as_mut().and_then(PolledRing::next) {
            self.file_completed(Key::from_bits(data), result, ready);
        }
        looked
    }

    /// Hands over commands of devices, and takes the completions of earlier ones.
    fn look_at_commands(&mut self, ready: &mut Vec<ReactorCompletion>) -> io::Result<()> {
        while self.has_commands() {
            let looked = self.commands.as_mut().map_or(Ok(()), CommandRing::look);
            while let Some((data, result)) = self.commands.as_mut().and_then(CommandRing::next) {
                self.command_completed(Key::from_bits(data), result, ready);
            }
            looked?;
        }
        Ok(())
    }

    /// Whether there are commands to hand over or completions of them to take.
    fn has_commands(&mut self) -> bool {
        self.commands.as_mut().is_some_and(CommandRing::has_work)
    }

    fn command_completed(&mut self, key: Key, result: i32, ready: &mut Vec<ReactorCompletion>) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        match operation.advance_command(result) {
            Some(result) => {
                if let Some(operation) = self.operations.remove(key) {
                    ready.push(operation.end(result));
                }
            }
            None => self.start(key, ready),
        }
    }

    /// Begins the next step of an operation.
    fn start(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        if let (Some(command), Some(ring)) = (operation.command(), self.commands.as_mut()) {
            let descriptor = Fd(operation.descriptor().as_raw_fd());
            let entry = opcode::UringCmd80::new(descriptor, URING_CMD_IO).cmd(command).build();
            return ring.push(entry.user_data(key.bits() | KIND_FILE << KIND_SHIFT));
        }
        let step = operation.step();
        if step.needs_thread() {
            if let Some(operation) = self.operations.remove(key) {
                self.threads.submit(operation, ready);
            }
            return;
        }
        let is_polled = operation.is_polled()
            && matches!(step, KernelRequest::Read { .. } | KernelRequest::Write { .. });
        let descriptor = Fd(operation.descriptor().as_raw_fd());
        let entry = file_entry(descriptor, step).user_data(key.bits() | KIND_FILE << KIND_SHIFT);
        if let Some(polled) = self.polled.as_mut().filter(|_| is_polled) {
            return polled.push(entry);
        }
        self.push(entry);
        if matches!(step, KernelRequest::FetchUblk { .. }) {
            // All of a turn go together.
            return;
        }
        self.files_pending += 1;
        if self.files_pending >= FILES_PENDING_MAX {
            // As in `submit`; but what has come is fetched at its own time.
            let _ = self.enter(0, 0, None);
        }
    }
}

impl Uring {
    /// A ring is unusable: the memory that it may still write is never used again.
    fn forget_operations(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.operations, Slab::new()));
    }
}

impl Poller for Uring {
    const NAME: &'static str = "io_uring";
    const HAS_COMMANDS: bool = true;
    const HAS_EXPRESS_FILES: bool = true;

    fn watch(&mut self, descriptor: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        let events = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        self.push(watch_entry(descriptor, events, key.bits()));
        Ok(())
    }

    /// The removal does not wait for the turn to end. A poll keeps the file open, and with it its
    /// address in use and its peer waiting; and one that has not been submitted names a descriptor
    /// that another file may have as soon as it is closed.
    fn unwatch(&mut self, _descriptor: BorrowedFd<'_>, key: Key) {
        // Not by PollRemove: it does not remove a poll whose event is being reported, and the
        // socket would stay open.
        let entry = opcode::AsyncCancel::new(key.bits()).build();
        self.push(entry.user_data(KIND_IGNORED << KIND_SHIFT));
        self.submit();
        while self.has_pending() {
            // Old kernels take nothing while completions have no room.
            self.early.extend(self.ring.completion());
            self.submit();
        }
    }

    fn submit_file(&mut self, operation: FileOperation, ready: &mut Vec<ReactorCompletion>) {
        let key = self.operations.insert(operation);
        self.start(key, ready);
    }

    fn cancel_file(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>) {
        let found = self.operations.iter().find(|(_, operation)| operation.token() == token);
        let Some((key, operation)) = found else {
            self.threads.cancel(token, ready);
            return;
        };
        if operation.is_final() {
            return;
        }
        let data = key.bits() | KIND_FILE << KIND_SHIFT;
        let entry = opcode::AsyncCancel::new(data).build();
        self.push(entry.user_data(KIND_IGNORED << KIND_SHIFT));
    }

    fn prepare_polling(&mut self) -> io::Result<()> {
        if self.polled.is_none() {
            self.polled = Some(PolledRing::polled()?);
        }
        Ok(())
    }

    fn prepare_commands(&mut self) -> io::Result<()> {
        if self.commands.is_none() {
            self.commands = Some(CommandRing::commands()?);
            self.watch_commands();
        }
        Ok(())
    }

    fn files_in_flight(&self) -> usize {
        self.operations.len()
    }

    fn hand_over(&mut self) {
        if self.has_pending() {
            self.submit();
        }
    }

    fn has_ready(&mut self) -> bool {
        // The kernel's flag may also be about a hot socket, which is tried anyway: it only counts
        // if it can be about a file.
        !self.early.is_empty()
            || self.polled_in_flight() > 0
            || self.has_commands()
            || !self.ring.completion().is_empty()
            || !self.ring.submission().is_empty()
            || self.threads.has_ready()
            || (self.operations.len() > 0 && self.is_something_to_fetch())
    }

    fn for_express(&self) -> io::Result<Self> {
        let waker = Waker::without_kernel();
        Self::with(self.mode, Threads::new(0, waker.clone()), &waker)
    }

    fn is_reported(&mut self) -> bool {
        self.is_something_to_fetch()
            || !self.early.is_empty()
            || !self.ring.completion().is_empty()
            || !self.ring.submission().is_empty()
    }

    fn poll(
        &mut self,
        now: Duration,
        wait: Wait,
        readiness: &mut Vec<Ready>,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        self.threads.collect(ready);
        let found = ready.len();
        // An error is one of this call, and the next one is soon.
        let _ = self.look_at_polled(ready);
        let _ = self.look_at_commands(ready);
        let was_called = self.drain(readiness, ready);
        let is_idle = readiness.is_empty() && found == ready.len() && !was_called;
        match wait {
            Wait::Block(until)
                if is_idle
                    && ready.is_empty()
                    && self.polled_in_flight() == 0
                    && !self.has_commands() =>
            {
                self.wait(until, now);
            }
            _ => {
                if self.has_pending() || self.is_something_to_fetch() {
                    self.submit();
                }
            }
        }
        self.drain(readiness, ready);
        let _ = self.look_at_commands(ready);
        self.threads.collect(ready);
    }
}

impl Drop for Uring {
    /// Waits for the file operations in flight: the kernel reads and writes their memory.
    fn drop(&mut self) {
        let (mut readiness, mut ready) = (Vec::new(), Vec::new());
        while self.operations.len() > 0 {
            if self.operations.iter().all(|(_, operation)| operation.is_open_ended()) {
                // The kernel ends them after the ring, and until then writes to their buffers.
                return self.forget_operations();
            }
            if self.polled_in_flight() > 0 {
                match self.look_at_polled(&mut ready) {
                    Err(error) if !is_passing(&error) => return self.forget_operations(),
                    _ => continue,
                }
            }
            if self.look_at_commands(&mut ready).is_err_and(|error| !is_passing(&error)) {
                return self.forget_operations();
            }
            if self.operations.len() == 0 {
                return;
            }
            if self.early.is_empty() && self.ring.completion().is_empty() {
                let result = self.enter(1, ENTER_GETEVENTS, None);
                if result.is_err_and(|error| !is_passing(&error)) {
                    return self.forget_operations();
                }
            }
            self.drain(&mut readiness, &mut ready);
            readiness.clear();
        }
    }
}

/// Whether the same call can succeed later.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::TIME];
    passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Tries the modes from `best` down.
fn set_up(best: RingMode) -> io::Result<(IoUring, RingMode)> {
    let modes = [RingMode::Deferred, RingMode::Cooperative, RingMode::Plain];
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for mode in modes.into_iter().skip_while(|mode| *mode != best) {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(COMPLETION_ENTRIES);
        match mode {
            RingMode::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            RingMode::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            RingMode::Plain => {}
        }
        match builder.build(SUBMISSION_ENTRIES) {
            Ok(ring) => return Ok((ring, mode)),
            // A flag that this kernel does not support.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Features that are required. Resource tags came with Linux 5.13, as did multishot polls, for
/// which there is no feature flag.
fn check_features(ring: &IoUring) -> io::Result<()> {
    let unsupported = |what| Err(io::Error::new(io::ErrorKind::Unsupported, what));
    let params = ring.params();
    if !params.is_feature_nodrop()
        || !params.is_feature_ext_arg()
        || !params.is_feature_resource_tagging()
    {
        return unsupported("the kernel's io_uring is older than Linux 5.13");
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
    ];
    if needed.iter().all(|code| probe.is_supported(*code)) {
        Ok(())
    } else {
        unsupported("the kernel's io_uring lacks requests that are needed")
    }
}

fn watch_entry(descriptor: BorrowedFd<'_>, events: PollFlags, data: u64) -> squeue::Entry {
    opcode::PollAdd::new(Fd(descriptor.as_fd().as_raw_fd()), u32::from(events.bits()))
        .multi(true)
        .build()
        .user_data(data)
}

fn file_entry(descriptor: Fd, step: KernelRequest) -> squeue::Entry {
    let length_of = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    match step {
        KernelRequest::Read { memory, len, offset } => {
            opcode::Read::new(descriptor, memory, length_of(len)).offset(offset).build()
        }
        KernelRequest::Write { memory, len, offset, durable } => {
            let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            opcode::Write::new(descriptor, memory, length_of(len))
                .offset(offset)
                .rw_flags(flags.bits().cast_signed())
                .build()
        }
        KernelRequest::Sync => opcode::Fsync::new(descriptor).flags(FsyncFlags::DATASYNC).build(),
        KernelRequest::Allocate { flags, offset, length } => {
            opcode::Fallocate::new(descriptor, length)
                .offset(offset)
                .mode(flags.bits().cast_signed())
                .build()
        }
        KernelRequest::DeviceDiscard { .. } | KernelRequest::DeviceZero { .. } => {
            unreachable!("these are done by threads")
        }
        KernelRequest::FetchUblk { queue, tag, result, memory } => {
            let operation = if result.is_some() { COMMIT_AND_FETCH_REQ } else { FETCH_REQ };
            let mut command = [0; 16];
            command[..2].copy_from_slice(&queue.to_ne_bytes());
            command[2..4].copy_from_slice(&tag.to_ne_bytes());
            command[4..8].copy_from_slice(&result.unwrap_or(0).to_ne_bytes());
            let address = memory.expose_provenance() as u64;
            command[8..].copy_from_slice(&address.to_ne_bytes());
            opcode::UringCmd16::new(descriptor, operation).cmd(command).build()
        }
    }
}

fn interpret(entry: &cqueue::Entry) -> Option<Ready> {
    let key = Key::from_bits(entry.user_data());
    let is_watched = cqueue::more(entry.flags());
    let Ok(bits) = u16::try_from(entry.result()) else {
        // The watch ended by removal or for lack of memory: its operations are tried again.
        return Some(Ready { key, readable: true, writable: true, ended: false, is_watched });
    };
    let flags = PollFlags::from_bits_retain(bits);
    let is_broken = flags.intersects(PollFlags::ERR | PollFlags::HUP);
    let is_ended = is_broken || flags.contains(PollFlags::RDHUP);
    Some(Ready {
        key,
        readable: is_ended || flags.contains(PollFlags::IN),
        writable: is_broken || flags.contains(PollFlags::OUT),
        ended: is_ended,
        is_watched,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::monotonic_time;
    use rustix::fs::FallocateFlags;

    /// Opcode, descriptor, offset, length and flags as the kernel reads them.
    fn fields(step: KernelRequest) -> (u8, i32, u64, u32, u32) {
        let entry = file_entry(Fd(7), step);
        // SAFETY: an entry is a submission queue entry of the kernel's, 64 bytes of plain numbers
        // (`transmute` checks the size).
        let bytes: [u8; 64] = unsafe { std::mem::transmute(entry) };
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let offset = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        (bytes[0], word(4).cast_signed(), offset, word(24), word(28))
    }

    /// RWF_DSYNC and IORING_FSYNC_DATASYNC.
    const DSYNC: u32 = 2;
    const DATASYNC: u32 = 1;

    #[test]
    fn a_call_that_has_arrived_before_the_wait_ends_it() {
        for mode in [RingMode::Deferred, RingMode::Cooperative, RingMode::Plain] {
            let waker = Waker::new().unwrap();
            let mut ring = Uring::with(mode, Threads::new(0, waker.clone()), &waker).unwrap();
            for _ in 0..3 {
                assert!(waker.begin_sleep());
                waker.wake();
                // Its completion is there now, whatever the mode.
                ring.submit();
                let (begin, limit) = (monotonic_time(), Duration::from_secs(10));
                let wait = Wait::Block(Some(begin + limit));
                ring.poll(begin, wait, &mut Vec::new(), &mut Vec::new());
                assert!(monotonic_time() - begin < limit, "{mode:?}: the call was lost");
                waker.end_sleep();
                assert!(waker.take_pending());
            }
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernel_is_asked_for_what_was_asked() {
        let null = std::ptr::null_mut();
        let read = fields(KernelRequest::Read { memory: null, len: 512, offset: 1 << 40 });
        assert_eq!(read, (opcode::Read::CODE, 7, 1 << 40, 512, 0));
        let write = |durable| {
            fields(KernelRequest::Write { memory: null, len: 512, offset: 4096, durable })
        };
        assert_eq!(write(false), (opcode::Write::CODE, 7, 4096, 512, 0));
        assert_eq!(write(true), (opcode::Write::CODE, 7, 4096, 512, DSYNC));
        assert_eq!(fields(KernelRequest::Sync), (opcode::Fsync::CODE, 7, 0, 0, DATASYNC));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let hole = fields(KernelRequest::Allocate { flags, offset: 8192, length: 1 << 33 });
        assert_eq!(hole, (opcode::Fallocate::CODE, 7, 8192, flags.bits(), 0));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_tag_is_fetched_with_its_buffer_and_the_result_of_its_last_request() {
        let memory = std::ptr::without_provenance_mut(0x1122_3344_5566_7000);
        let fetch = |result| {
            let step = KernelRequest::FetchUblk { queue: 3, tag: 0x105, result, memory };
            let entry = file_entry(Fd(7), step);
            // SAFETY: as in `fields`.
            let bytes: [u8; 64] = unsafe { std::mem::transmute(entry) };
            let operation = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            let command: [u8; 16] = bytes[48..].try_into().unwrap();
            (bytes[0], operation, command)
        };
        let address = [0, 0x70, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        let with = |result: i32| {
            let bytes = [&[3, 0, 5, 1][..], &result.to_le_bytes(), &address].concat();
            <[u8; 16]>::try_from(bytes).unwrap()
        };
        assert_eq!(fetch(None), (opcode::UringCmd16::CODE, FETCH_REQ, with(0)));
        let committed = (opcode::UringCmd16::CODE, COMMIT_AND_FETCH_REQ, with(-5));
        assert_eq!(fetch(Some(-5)), committed);
    }
}
