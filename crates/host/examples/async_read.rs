//! Reads of a namespace as futures, for any executor: one thread drives a reactor with an I/O queue
//! of its own, and the futures of all other threads meet it in a mailbox. Reads that are asked for
//! together go to the controller in one message.
//!
//! ```text
//! weft target --memory 64MiB
//! cargo run --package weft-host --example async_read -- nvme-tcp://127.0.0.1:4420/NQN
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use weft_host::backend::{BlockDevice, DeviceFactory, Failure, Operation, Request};
use weft_host::reactor::{Config, Mailbox, MailboxSender, Owner, Reactor, WaitLimit};
use weft_host::{NamespaceFactory, Options, TransportId};

/// Reads that are under way at the same time.
const DEPTH: u64 = 32;

/// Whom completions of the reactor are for: there is one device.
const DEVICE: Owner = Owner(1);

fn main() {
    let read = || -> Result<(), Box<dyn Error>> {
        let usage = "an address, please: nvme-tcp://HOST:PORT/NQN";
        let address: TransportId = std::env::args().nth(1).ok_or(usage)?.parse()?;
        let controller = weft_host::connect(&Options::new(address))?;
        let disk = controller.namespace(1)?;
        let reader = Reader::start(disk.factory().clone())?;
        let bytes = block_on(read_all(&reader))?;
        println!("{bytes} bytes in {DEPTH} reads at a time");
        reader.stop();
        controller.disconnect()?;
        Ok(())
    };
    if let Err(error) = read() {
        eprintln!("async_read: {error}");
        std::process::exit(1);
    }
}

/// Begins all reads, then waits for each.
async fn read_all(reader: &Reader) -> Result<usize, Failure> {
    let reads: Vec<ReadFuture> = (0..DEPTH).map(|block| reader.read(block, 1)).collect();
    let mut bytes = 0;
    for read in reads {
        bytes += read.await?.len();
    }
    Ok(bytes)
}

/// A namespace whose reads are futures.
struct Reader {
    orders: MailboxSender<Order>,
    thread: JoinHandle<()>,
}

/// What the reader's thread is asked for.
enum Order {
    Read { slba: u64, nlb: u32, answer: Arc<Answer> },
    Stop,
}

impl Reader {
    /// Opens the namespace on a thread of its own.
    fn start(factory: NamespaceFactory) -> Result<Self, Box<dyn Error>> {
        let (tell, hear) = mpsc::channel();
        let thread = thread::spawn(move || {
            let opened = Reactor::new(Config::default()).map_err(|error| error.to_string());
            let opened = opened.and_then(|mut reactor| {
                let device = factory.open(&mut reactor, DEVICE).map_err(|e| e.to_string())?;
                Ok((reactor, device))
            });
            match opened {
                Ok((reactor, device)) => {
                    let (orders, mailbox) = reactor.mailbox();
                    let _ = tell.send(Ok(orders));
                    drive(reactor, device, &mailbox);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        Ok(Self { orders: hear.recv()??, thread })
    }

    /// Reads blocks; begins at once.
    fn read(&self, slba: u64, nlb: u32) -> ReadFuture {
        let answer = Arc::<Answer>::default();
        self.orders.post(Order::Read { slba, nlb, answer: Arc::clone(&answer) });
        ReadFuture(answer)
    }

    fn stop(self) {
        self.orders.post(Order::Stop);
        let _ = self.thread.join();
    }
}

/// Passes orders to the device and completions to their futures, until it is told to stop.
fn drive(mut reactor: Reactor, mut device: Box<dyn BlockDevice>, mailbox: &Mailbox<Order>) {
    let mut waiting = HashMap::new();
    let mut completions = Vec::new();
    let (mut tag, mut stops) = (0, false);
    while !stops || device.in_flight() > 0 {
        reactor.poll(WaitLimit::Sleep, &mut completions);
        for completion in completions.drain(..) {
            device.handle(&mut reactor, completion);
        }
        while let Some(order) = mailbox.take() {
            let Order::Read { slba, nlb, answer } = order else {
                device.close(&mut reactor);
                stops = true;
                continue;
            };
            let bytes = nlb as usize * device.geometry().block_bytes as usize;
            // A program with more reads than memory has them wait here.
            let Some(into) = reactor.pool().take(bytes) else {
                answer.set(Err(Failure::NoSpace));
                continue;
            };
            tag += 1;
            waiting.insert(tag, answer);
            let operation = Operation::Read { slba, nlb, into };
            device.submit(&mut reactor, Request { tag, operation });
        }
        device.flush(&mut reactor);
        while let Some(done) = device.poll_completion() {
            let Some(answer) = waiting.remove(&done.tag) else { continue };
            let data = done.buffer.map(|buffer| buffer.to_vec()).unwrap_or_default();
            answer.set(done.result.map(|()| data));
        }
    }
}

/// Where the reader's thread leaves the data of a read.
#[derive(Default)]
struct Answer(Mutex<AnswerState>);

#[derive(Default)]
struct AnswerState {
    result: Option<Result<Vec<u8>, Failure>>,
    waker: Option<Waker>,
}

impl Answer {
    fn set(&self, result: Result<Vec<u8>, Failure>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.result = Some(result);
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    }
}

/// A read that is under way.
struct ReadFuture(Arc<Answer>);

impl Future for ReadFuture {
    type Output = Result<Vec<u8>, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The smallest executor: polls one future, and sleeps while it waits.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
