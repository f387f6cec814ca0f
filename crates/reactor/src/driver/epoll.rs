//! Readiness by edge-triggered epoll, and files by threads: works on every Linux.

use crate::driver::Wait;
use crate::driver::files::FileOperation;
use crate::driver::poller::{Poller, Ready, timespec};
use crate::driver::threads::Threads;
use crate::limits::{EVENTS, EXPRESS_INTERVAL};
use crate::mailbox::Waker;
use crate::operation::{ReactorCompletion, Token};
use crate::setup::Config;
use crate::slab::Key;
use crate::system::monotonic_time;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use std::{fmt, io};

/// The mark of the waker's events; no key has this value.
const WAKER: u64 = u64::MAX;

/// Below this, milliseconds (the unit of `epoll_wait`) are too coarse for a deadline.
const COARSE_ENOUGH: Duration = Duration::from_millis(100);

pub(crate) struct Epoll {
    epoll: OwnedFd,
    threads: Threads,
    events: Box<[MaybeUninit<epoll::Event>; EVENTS]>,
    /// Events that were taken and not handed out.
    found: Vec<Ready>,
    /// When a poller of express sockets last took some.
    last_look: Duration,
    // Keeps the watched eventfd open.
    _waker: Waker,
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Epoll {
    pub(crate) fn new(config: &Config, waker: &Waker) -> io::Result<Self> {
        Self::with(Threads::new(config.io_threads, waker.clone()), waker.clone())
    }

    fn with(threads: Threads, waker: Waker) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(descriptor) = waker.descriptor() {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, descriptor, EventData::new_u64(WAKER), flags)?;
        }
        Ok(Self {
            epoll,
            threads,
            events: Box::new([const { MaybeUninit::uninit() }; EVENTS]),
            found: Vec::new(),
            last_look: Duration::ZERO,
            _waker: waker,
        })
    }

    /// Waits for events, and takes them.
    fn find(&mut self, timeout: Option<Duration>) {
        // An interrupted wait found nothing.
        let timeout = timeout.map(timespec);
        let found = epoll::wait(&self.epoll, &mut self.events[..], timeout.as_ref());
        if let Ok((events, _)) = found {
            self.found.extend(events.iter().filter_map(interpret));
        }
    }

    /// Waits until the epoll descriptor is readable, with a deadline finer than milliseconds.
    fn wait_finely(&self, patience: Duration) -> io::Result<()> {
        let mut descriptors = [PollFd::new(&self.epoll, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&timespec(patience)))?;
        Ok(())
    }
}

impl Poller for Epoll {
    const NAME: &'static str = "epoll";

    fn watch(&mut self, descriptor: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(key.bits()), flags)?)
    }

    fn unwatch(&mut self, descriptor: BorrowedFd<'_>, _key: Key) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    fn submit_file(&mut self, operation: FileOperation, ready: &mut Vec<ReactorCompletion>) {
        self.threads.submit(operation, ready);
    }

    fn cancel_file(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>) {
        self.threads.cancel(token, ready);
    }

    fn has_ready(&mut self) -> bool {
        self.threads.has_ready()
    }

    fn for_express(&self) -> io::Result<Self> {
        Self::with(Threads::new(0, Waker::without_kernel()), Waker::without_kernel())
    }

    fn is_reported(&mut self) -> bool {
        let now = monotonic_time();
        if self.found.is_empty() && now.saturating_sub(self.last_look) >= EXPRESS_INTERVAL {
            self.last_look = now;
            self.find(Some(Duration::ZERO));
        }
        !self.found.is_empty()
    }

    fn poll(
        &mut self,
        now: Duration,
        wait: Wait,
        readiness: &mut Vec<Ready>,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        self.threads.collect(ready);
        let mut timeout = Some(Duration::ZERO);
        if let (Wait::Block(until), true) = (wait, ready.is_empty()) {
            timeout = until.map(|until| until.saturating_sub(now));
            if let Some(patience) = timeout
                && patience < COARSE_ENOUGH
            {
                let _ = self.wait_finely(patience);
                timeout = Some(Duration::ZERO);
            }
        }
        if self.found.is_empty() {
            self.find(timeout);
        }
        readiness.append(&mut self.found);
        self.threads.collect(ready);
    }
}

fn interpret(event: &epoll::Event) -> Option<Ready> {
    let (data, flags) = (event.data.u64(), event.flags);
    if data == WAKER {
        return None;
    }
    let is_broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
    let is_ended = is_broken || flags.contains(EventFlags::RDHUP);
    Some(Ready {
        key: Key::from_bits(data),
        readable: is_ended || flags.contains(EventFlags::IN),
        writable: is_broken || flags.contains(EventFlags::OUT),
        ended: is_ended,
        is_watched: true,
    })
}
