//! A wrapper that delays each request.
//!
//! The delay precedes the execution: a delayed write has not changed the device yet, so that it can
//! land late, as on a slow path.

use crate::{
    BlockDevice, DEVICE_TAGS, DeviceFactory, Failure, Geometry, OpenError, Request,
    RequestCompletion, ResizeError, Resized, spec::LAYERS_MAX,
};
use core::time::Duration;
use std::{collections::VecDeque, io, sync::Arc};
use weft_reactor::{Owner, Reactor, Token};

/// A device with a delay before each request.
#[derive(Debug)]
pub struct DelayFactory {
    inner: Arc<dyn DeviceFactory>,
    read: Duration,
    write: Duration,
}

impl DelayFactory {
    /// Delays reads, compare and verify by `read`, and everything else by `write`.
    pub fn new(
        inner: Arc<dyn DeviceFactory>,
        read: Duration,
        write: Duration,
    ) -> Result<Self, OpenError> {
        if inner.layers() >= LAYERS_MAX {
            return Err(OpenError::Invalid(format!("more than {LAYERS_MAX} wrappers")));
        }
        Ok(Self { inner, read, write })
    }
}

impl DeviceFactory for DelayFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let tag = u32::from(self.layers()) * DEVICE_TAGS;
        Ok(Box::new(DelayDevice {
            inner: self.inner.open(reactor, owner)?,
            reads: DelayQueue { delay: self.read, waiting: VecDeque::new() },
            writes: DelayQueue { delay: self.write, waiting: VecDeque::new() },
            timer: Token::new(owner, tag),
            timer_at: None,
            done: VecDeque::new(),
            closed: false,
        }))
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn survives_restart(&self) -> bool {
        self.inner.survives_restart()
    }

    fn identity(&self) -> String {
        self.inner.identity()
    }

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        self.inner.resize(bytes)
    }

    fn refresh(&self) -> io::Result<Geometry> {
        self.inner.refresh()
    }

    fn when_resized(&self, resized: Resized) {
        self.inner.when_resized(resized);
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn has_lost_writes(&self) -> bool {
        self.inner.has_lost_writes()
    }

    fn layers(&self) -> u8 {
        self.inner.layers() + 1
    }
}

#[derive(Debug)]
struct DelayDevice {
    inner: Box<dyn BlockDevice>,
    reads: DelayQueue,
    writes: DelayQueue,
    timer: Token,
    timer_at: Option<Duration>,
    /// Requests refused after the device was closed.
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

/// Requests with the same delay, oldest first.
#[derive(Debug)]
struct DelayQueue {
    delay: Duration,
    waiting: VecDeque<(Duration, Request)>,
}

impl DelayQueue {
    fn due(&self) -> Option<Duration> {
        self.waiting.front().map(|(due, _)| *due)
    }

    fn pop_due(&mut self, now: Duration) -> Option<Request> {
        self.due().filter(|due| *due <= now)?;
        self.waiting.pop_front().map(|(_, request)| request)
    }
}

impl DelayDevice {
    fn release_due(&mut self, reactor: &mut Reactor) {
        if self.reads.waiting.is_empty() && self.writes.waiting.is_empty() {
            return;
        }
        let now = reactor.now();
        for line in [&mut self.reads, &mut self.writes] {
            while let Some(request) = line.pop_due(now) {
                self.inner.submit(reactor, request);
            }
        }
        self.arm(reactor);
    }

    fn arm(&mut self, reactor: &mut Reactor) {
        let next = match (self.reads.due(), self.writes.due()) {
            (Some(read), Some(write)) => Some(read.min(write)),
            (read, write) => read.or(write),
        };
        if next == self.timer_at {
            return;
        }
        self.timer_at = next;
        match next {
            Some(at) => reactor.set_timer(self.timer, at),
            None => reactor.clear_timer(self.timer),
        }
    }
}

impl BlockDevice for DelayDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        if self.closed {
            return self.done.push_back(request.refuse(Failure::Gone));
        }
        let read = request.operation.kind().is_read();
        let line = if read { &mut self.reads } else { &mut self.writes };
        if line.delay.is_zero() {
            return self.inner.submit(reactor, request);
        }
        line.waiting.push_back((reactor.now().saturating_add(line.delay), request));
        self.arm(reactor);
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        if completion.token == self.timer {
            self.timer_at = None;
            self.release_due(reactor);
        } else {
            self.inner.handle(reactor, completion);
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        self.release_due(reactor);
        self.inner.flush(reactor);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front().or_else(|| self.inner.poll_completion())
    }

    fn in_flight(&self) -> usize {
        let waiting = self.reads.waiting.len() + self.writes.waiting.len();
        self.inner.in_flight() + waiting + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        for line in [&mut self.reads, &mut self.writes] {
            let gone = line.waiting.drain(..).map(|(_, request)| request.refuse(Failure::Gone));
            self.done.extend(gone);
        }
        self.arm(reactor);
        self.inner.close(reactor);
    }
}
