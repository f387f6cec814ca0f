//! A wrapper that delays each request.
//!
//! The delay precedes the execution: a delayed write has not changed the device yet, so that it can
//! land late, as on a slow path.

use crate::device::PIECE_BYTES;
use crate::limits::LAYERS_MAX;
use crate::wrapper::Wrapper;
use crate::{
    BlockDevice, DEVICE_TAGS, DeviceFactory, Failure, Geometry, OpenError, Request,
    RequestCompletion,
};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
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

impl Wrapper for DelayFactory {
    fn inner(&self) -> &dyn DeviceFactory {
        &*self.inner
    }

    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let tag = u32::from(self.layers()) * DEVICE_TAGS;
        let [ordinary, express] =
            [tag, tag + 1].map(|tag| Line::new(Token::new(owner, tag), self.read, self.write));
        Ok(Box::new(DelayDevice {
            inner: self.inner.open(reactor, owner)?,
            ordinary,
            express,
            done: VecDeque::new(),
            closed: false,
        }))
    }
}

#[derive(Debug)]
struct DelayDevice {
    inner: Box<dyn BlockDevice>,
    ordinary: Line,
    /// Requests of express queues, which do not wait until others that are due have been executed.
    express: Line,
    /// Requests refused after the device was closed.
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

/// Requests that wait, and the timer of the one that is due first.
#[derive(Debug)]
struct Line {
    reads: DelayQueue,
    writes: DelayQueue,
    timer: Token,
    timer_at: Option<Duration>,
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

impl Line {
    fn new(timer: Token, read: Duration, write: Duration) -> Self {
        let queue = |delay| DelayQueue { delay, waiting: VecDeque::new() };
        Self { reads: queue(read), writes: queue(write), timer, timer_at: None }
    }

    fn len(&self) -> usize {
        self.reads.waiting.len() + self.writes.waiting.len()
    }

    /// The next one that is due.
    fn pop_due(&mut self, now: Duration) -> Option<Request> {
        self.reads.pop_due(now).or_else(|| self.writes.pop_due(now))
    }

    fn arm(&mut self, reactor: &mut Reactor, is_express: bool) {
        let next = self.reads.due().into_iter().chain(self.writes.due()).min();
        if next == self.timer_at {
            return;
        }
        self.timer_at = next;
        match next {
            Some(at) if is_express => reactor.set_express_timer(self.timer, at),
            Some(at) => reactor.set_timer(self.timer, at),
            None => reactor.clear_timer(self.timer),
        }
    }
}

impl DelayDevice {
    /// Executes what is due; what is not express in pieces, and no more once something express has
    /// come. Express requests are released by their timer alone.
    fn release_due(&mut self, reactor: &mut Reactor, is_express: bool) {
        let line = if is_express { &mut self.express } else { &mut self.ordinary };
        if line.len() == 0 {
            return;
        }
        let (now, mut bytes) = (reactor.now(), 0);
        while let Some(request) = line.pop_due(now) {
            let blocks = request.operation.ranges().map(|(_, blocks)| u64::from(blocks));
            bytes += blocks.sum::<u64>() * u64::from(self.inner.geometry().block_bytes);
            self.inner.submit(reactor, request);
            if bytes >= PIECE_BYTES as u64 && !is_express {
                bytes = 0;
                self.inner.flush(reactor);
                if reactor.has_express() {
                    break;
                }
            }
        }
        line.arm(reactor, is_express);
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
        let (read, is_express) = (request.operation.kind().is_read(), reactor.is_express());
        let line = if is_express { &mut self.express } else { &mut self.ordinary };
        let queue = if read { &mut line.reads } else { &mut line.writes };
        if queue.delay.is_zero() {
            return self.inner.submit(reactor, request);
        }
        queue.waiting.push_back((reactor.now().saturating_add(queue.delay), request));
        line.arm(reactor, is_express);
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        if completion.token == self.express.timer {
            self.express.timer_at = None;
            self.release_due(reactor, true);
        } else if completion.token == self.ordinary.timer {
            self.ordinary.timer_at = None;
            self.release_due(reactor, false);
        } else {
            self.inner.handle(reactor, completion);
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        if !reactor.is_express() {
            self.release_due(reactor, false);
        }
        self.inner.flush(reactor);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front().or_else(|| self.inner.poll_completion())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.ordinary.len() + self.express.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        for (line, is_express) in [(&mut self.ordinary, false), (&mut self.express, true)] {
            for queue in [&mut line.reads, &mut line.writes] {
                let gone = queue.waiting.drain(..).map(|(_, one)| one.refuse(Failure::Gone));
                self.done.extend(gone);
            }
            line.arm(reactor, is_express);
        }
        self.inner.close(reactor);
    }
}
