//! The thread of one queue: requests of the kernel become requests to the namespace.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::io::Errno;
use weft_backend::{BlockDevice, DeviceFactory, Failure, Operation, Request, RequestCompletion};
use weft_nvme::Status;
use weft_nvme::status::StatusCode;
use weft_reactor::ublk::{self, Kind};
use weft_reactor::{
    Buffer, Config, DriverKind, FileId, Operation as ReactorOperation, Outcome, Owner, Reactor,
    ReactorCompletion, Token, WaitLimit,
};

use super::parameters::SECTOR_BYTES;
use crate::values::PollingMode;

/// Whose a completion of the reactor is.
const DEVICE: Owner = Owner(0);
const KERNEL: Owner = Owner(1);
const EXPRESS: Owner = Owner(2);

/// Bytes of a request that goes by the queue pair for small ones, at most.
const EXPRESS_BYTES_MAX: u64 = 16 << 10;

/// With so many of these in flight each leaves at once, with more at the end of the turn.
const AT_ONCE_MAX: usize = 2;

/// The tag of the timer after which a buffer is looked for again.
const RETRY_TAG: u32 = u32::MAX;
const RETRY: Duration = Duration::from_millis(1);

/// How long to look before a sleep.
const GRACE: Duration = Duration::from_micros(50);

/// Memory beside the buffers of the tags: what the connection receives.
const POOL_BYTES_SPARE: usize = 32 << 20;

/// What a thread tells.
#[derive(Debug)]
pub(super) enum ThreadEvent {
    /// Its tags are the kernel's.
    Ready,
    /// It has ended: the device is stopped, or this has failed.
    Ended(Result<(), String>),
}

/// What a thread is to do.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) device: ublk::Device,
    pub(super) number: u16,
    pub(super) factory: Arc<dyn DeviceFactory>,
    pub(super) driver: DriverKind,
    pub(super) polling: PollingMode,
    /// Small requests have a queue pair of their own.
    pub(super) express: bool,
    pub(super) news: Sender<ThreadEvent>,
}

/// Tells of a thread that ends by a fault of this program.
struct Watch(Sender<ThreadEvent>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(ThreadEvent::Ended(Err("by a fault of this program".to_owned())));
        }
    }
}

/// The body of a thread.
pub(super) fn work(order: Order) {
    let _watch = Watch(order.news.clone());
    let outcome = Server::open(&order).and_then(|mut server| {
        // If nobody listens the process is about to end.
        let _ = order.news.send(ThreadEvent::Ready);
        server.run()
    });
    let Order { device, news, .. } = order;
    // The kernel removes a device only when nobody has it open.
    drop(device);
    let _ = news.send(ThreadEvent::Ended(outcome));
}

/// A queue and what serves it.
struct Server {
    device: Box<dyn BlockDevice>,
    /// The same for small requests, if they have one of their own.
    express: Option<Box<dyn BlockDevice>>,
    reactor: Reactor,
    queue: ublk::Queue,
    file: FileId,
    polling: PollingMode,
    tags: Vec<Tag>,
    /// Tags whose result waits for memory.
    starved: Vec<u16>,
    /// Tags that the kernel has not taken back.
    open: usize,
    fault: Option<String>,
}

/// A request of the kernel.
#[derive(Debug, Default)]
struct Tag {
    /// The buffer, unless the kernel or the device has it.
    buffer: Option<Buffer>,
    /// Bytes to tell of if it succeeds, then what to tell.
    result: i32,
}

impl Server {
    fn open(order: &Order) -> Result<Self, String> {
        let info = *order.device.info();
        let pool_bytes =
            usize::from(info.depth) * info.request_bytes_max as usize + POOL_BYTES_SPARE;
        let config = Config { driver: order.driver, pool_bytes, ..Config::default() };
        let mut reactor = Reactor::new(config).map_err(|error| error.to_string())?;
        let device = order.factory.open(&mut reactor, DEVICE).map_err(|error| error.to_string())?;
        let mut express = None;
        if order.express {
            let mut small =
                order.factory.open(&mut reactor, EXPRESS).map_err(|error| error.to_string())?;
            small.set_express(&mut reactor, true);
            express = Some(small);
        }
        let queue = order.device.queue(order.number);
        let queue = queue.map_err(|error| format!("cannot map a queue: {error}"))?;
        let file = reactor.add_ublk_queue(&queue).map_err(|error| error.to_string())?;
        let depth = queue.depth();
        let mut server = Self {
            device,
            express,
            reactor,
            queue,
            file,
            polling: order.polling,
            tags: (0..depth).map(|_| Tag::default()).collect(),
            starved: Vec::new(),
            open: usize::from(depth),
            fault: None,
        };
        for tag in 0..depth {
            let buffer = server.buffer(None).ok_or("there is no memory for buffers")?;
            server.fetch(tag, None, buffer);
        }
        Ok(server)
    }

    /// Serves the queue until the device is stopped.
    fn run(&mut self) -> Result<(), String> {
        let mut completions = Vec::with_capacity(256);
        let mut deferred = Vec::new();
        while self.open > 0 || self.devices().any(|device| device.in_flight() > 0) {
            if self.open == 0 {
                self.close_devices();
            }
            let patience = match completions.is_empty() {
                true => limit(self.polling, self.reactor.last_wait()),
                false => WaitLimit::NoWait,
            };
            self.reactor.poll(patience, &mut completions);
            self.serve_express(&mut deferred);
            for completion in completions.drain(..) {
                match completion.token.owner {
                    KERNEL => self.fetched(completion),
                    EXPRESS => self.handle_express(completion),
                    _ => self.device.handle(&mut self.reactor, completion),
                }
                self.serve_express(&mut deferred);
            }
            completions.append(&mut deferred);
            // What is small leaves first.
            self.flush_express();
            self.device.flush(&mut self.reactor);
            while self.reactor.continue_sends() {
                self.serve_express(&mut completions);
            }
            while let Some(completion) = self.device.poll_completion() {
                self.completed(completion);
                self.serve_express(&mut completions);
            }
            for tag in std::mem::take(&mut self.starved) {
                self.commit(tag);
            }
        }
        self.close();
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Lets the connection end in order.
    fn close(&mut self) {
        let mut completions = Vec::new();
        self.close_devices();
        self.flush_express();
        self.device.flush(&mut self.reactor);
        self.reactor.poll(WaitLimit::NoWait, &mut completions);
    }

    fn devices(&self) -> impl Iterator<Item = &dyn BlockDevice> {
        std::iter::once(&*self.device).chain(self.express.as_deref())
    }

    fn close_devices(&mut self) {
        self.device.close(&mut self.reactor);
        if let Some(express) = &mut self.express {
            express.close(&mut self.reactor);
        }
    }

    /// Serves the queue pair for small requests if something has come for it: between any two
    /// pieces of other work. What has come for others with that waits.
    fn serve_express(&mut self, others: &mut Vec<ReactorCompletion>) {
        if !self.reactor.has_express() {
            return;
        }
        let known = others.len();
        self.reactor.poll_express(others);
        for completion in others.split_off(known) {
            match completion.token.owner {
                EXPRESS => self.handle_express(completion),
                _ => others.push(completion),
            }
        }
    }

    fn handle_express(&mut self, completion: ReactorCompletion) {
        if let Some(express) = &mut self.express {
            express.handle(&mut self.reactor, completion);
            self.flush_express();
        }
    }

    /// Sends what is small, and ends what has been answered.
    fn flush_express(&mut self) {
        let Some(express) = &mut self.express else { return };
        express.flush(&mut self.reactor);
        while let Some(completion) = self.express.as_mut().and_then(|one| one.poll_completion()) {
            self.completed(completion);
        }
    }

    /// A tag has a request, or is the kernel's no longer.
    fn fetched(&mut self, completion: ReactorCompletion) {
        let Ok(tag) = u16::try_from(completion.token.tag) else { return };
        match completion.outcome {
            Outcome::Transferred { buffer } => self.begin(tag, buffer),
            // The timer's tag is no tag of the queue.
            Outcome::Timer => {}
            Outcome::Failed { error, .. } => {
                self.open -= 1;
                if error.raw_os_error() != Some(Errno::NODEV.raw_os_error()) {
                    self.fault.get_or_insert(format!("the kernel has refused a request: {error}"));
                }
            }
            _ => self.open -= 1,
        }
    }

    /// Begins the request of a tag.
    fn begin(&mut self, tag: u16, mut buffer: Buffer) {
        let request = self.queue.request(tag);
        let geometry = self.device.geometry();
        let per_block = u64::from(geometry.block_bytes) / SECTOR_BYTES;
        let (slba, blocks) = (request.sector / per_block, u64::from(request.sectors) / per_block);
        let nlb = u32::try_from(blocks).unwrap_or(u32::MAX);
        let bytes = u64::from(request.sectors) * SECTOR_BYTES;
        let durable = request.durable;
        let state = &mut self.tags[usize::from(tag)];
        state.result = 0;
        let moves = matches!(request.kind, Kind::Read | Kind::Write);
        let operation = match request.kind {
            _ if moves && bytes > self.queue.buffer_bytes() as u64 => {
                return self.refuse(tag, buffer, Errno::INVAL);
            }
            Kind::Read | Kind::Write => {
                state.result = i32::try_from(bytes).unwrap_or(i32::MAX);
                buffer.set_len(usize::try_from(bytes).unwrap_or(0));
                if request.kind == Kind::Read {
                    Operation::Read { slba, nlb, into: buffer }
                } else {
                    Operation::Write { slba, nlb, from: buffer, durable }
                }
            }
            other => {
                let operation = match other {
                    Kind::Flush => Operation::Flush,
                    Kind::Discard => Operation::Discard { ranges: [(slba, nlb)].into() },
                    Kind::WriteZeroes => {
                        let deallocate = !request.keeps_blocks;
                        Operation::WriteZeroes { slba, nlb, deallocate, durable }
                    }
                    _ => return self.refuse(tag, buffer, Errno::OPNOTSUPP),
                };
                state.buffer = Some(buffer);
                operation
            }
        };
        let request = Request { tag: u64::from(tag), operation };
        match &mut self.express {
            Some(express) if moves && bytes <= EXPRESS_BYTES_MAX => {
                express.submit(&mut self.reactor, request);
                if express.in_flight() <= AT_ONCE_MAX {
                    express.flush(&mut self.reactor);
                }
            }
            _ => self.device.submit(&mut self.reactor, request),
        }
    }

    /// Ends a request that cannot begin.
    fn refuse(&mut self, tag: u16, buffer: Buffer, error: Errno) {
        let state = &mut self.tags[usize::from(tag)];
        (state.buffer, state.result) = (Some(buffer), -error.raw_os_error());
        self.commit(tag);
    }

    /// A request to the namespace has ended.
    fn completed(&mut self, completion: RequestCompletion) {
        let Ok(tag) = u16::try_from(completion.tag) else { return };
        let Some(state) = self.tags.get_mut(usize::from(tag)) else { return };
        if let Err(failure) = completion.result {
            log::debug!("request {tag}: {failure}");
            state.result = -error_number(failure);
        }
        if completion.buffer.is_some() {
            state.buffer = completion.buffer;
        }
        self.commit(tag);
    }

    /// Tells the kernel how a tag's request ended, and lends it a buffer for the next one.
    fn commit(&mut self, tag: u16) {
        let kept = self.tags[usize::from(tag)].buffer.take();
        match self.buffer(kept) {
            Some(buffer) => self.fetch(tag, Some(self.tags[usize::from(tag)].result), buffer),
            None => {
                self.starved.push(tag);
                let at = self.reactor.now() + RETRY;
                self.reactor.set_timer(Token::new(KERNEL, RETRY_TAG), at);
            }
        }
    }

    /// A whole buffer: this one, or another if a part of it is still being sent.
    fn buffer(&self, kept: Option<Buffer>) -> Option<Buffer> {
        kept.filter(|buffer| !buffer.is_shared())
            .or_else(|| self.reactor.pool().take(self.queue.buffer_bytes()))
    }

    fn fetch(&mut self, tag: u16, result: Option<i32>, buffer: Buffer) {
        let operation = ReactorOperation::FetchUblk { file: self.file, tag, result, buffer };
        self.reactor.submit(Token::new(KERNEL, u32::from(tag)), operation);
    }
}

/// How to wait after a wait of this length.
fn limit(polling: PollingMode, waited: Duration) -> WaitLimit {
    match polling {
        PollingMode::Adaptive => WaitLimit::after(waited, GRACE),
        PollingMode::Sleep => WaitLimit::Sleep,
        PollingMode::Spin => WaitLimit::Spin,
    }
}

/// The error number that the block layer has for a failure.
fn error_number(failure: Failure) -> i32 {
    let errno = match failure {
        Failure::NoSpace => Errno::NOSPC,
        Failure::Unsupported => Errno::OPNOTSUPP,
        Failure::MediaRead | Failure::MediaWrite => Errno::NODATA,
        Failure::PathLost | Failure::Gone => Errno::NOLINK,
        Failure::Remote(status) if Status(status).code() == StatusCode::RESERVATION_CONFLICT => {
            Errno::BADE
        }
        Failure::Remote(_) => Errno::REMOTEIO,
        Failure::Device(number) if number > 0 => return number,
        _ => Errno::IO,
    };
    errno.raw_os_error()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::attach::{DeviceEvent, hear};

    #[test]
    fn a_thread_that_fails_ends_the_process() {
        let (news, received) = channel();
        let _others = news.clone();
        let thread = std::thread::spawn(move || {
            let _watch = Watch(news);
            panic!("a fault of this program, as a test");
        });
        assert!(thread.join().is_err());
        let heard = hear(&received, 3);
        let DeviceEvent::Failed(crate::failure::Failure::Because(said)) = heard else {
            panic!("{heard:?}")
        };
        assert!(said.contains("/dev/ublkb3") && said.contains("--recover 3"), "{said}");
        assert!(matches!(hear(&received, 3), DeviceEvent::Nothing), "others serve");
    }

    #[test]
    fn a_thread_looks_only_where_looking_has_found_something() {
        let looks = WaitLimit::Adaptive { grace: GRACE };
        for (waited, expected) in [(0, looks), (60, looks), (101, WaitLimit::Sleep)] {
            let waited = Duration::from_micros(waited);
            assert_eq!(limit(PollingMode::Adaptive, waited), expected, "{waited:?}");
            assert_eq!(limit(PollingMode::Spin, waited), WaitLimit::Spin);
            assert_eq!(limit(PollingMode::Sleep, waited), WaitLimit::Sleep);
        }
    }

    #[test]
    fn every_failure_is_an_error_to_the_kernel() {
        for failure in [
            Failure::OutOfRange,
            Failure::ReadOnly,
            Failure::NoSpace,
            Failure::Unsupported,
            Failure::MediaRead,
            Failure::MediaWrite,
            Failure::Gone,
            Failure::Aborted,
            Failure::PathLost,
            Failure::Device(-1),
            Failure::Device(0),
            Failure::Device(12),
            Failure::Remote(0x281),
        ] {
            assert!(error_number(failure) > 0, "{failure}");
        }
        assert_eq!(error_number(Failure::Device(12)), 12);
        let conflict = Failure::Remote(StatusCode::RESERVATION_CONFLICT.0 | 0x4000);
        assert_eq!(error_number(conflict), Errno::BADE.raw_os_error());
        // `ENODEV` would mean to the kernel that the device is stopped.
        assert_ne!(error_number(Failure::Gone), Errno::NODEV.raw_os_error());
    }
}
