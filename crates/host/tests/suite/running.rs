//! The controller on a thread of its own, over loopback.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use weft_host::{Controller, Options, connect};
use weft_reactor::{Config, MailboxSender, Owner, Reactor, WaitLimit};

use crate::controller::{SUBSYSTEM, TestTarget};

const OWNER: Owner = Owner(4);
type Order = Box<dyn FnOnce(&mut TestTarget, &mut Reactor) + Send>;

/// The controller on a thread of its own, and a way to tell it what to do.
pub(crate) struct RunningTarget {
    pub(crate) address: SocketAddr,
    orders: MailboxSender<Option<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningTarget {
    pub(crate) fn start() -> Self {
        let (tell, hear) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut reactor = Reactor::new(Config::default()).expect("a reactor");
            let (postbox, mailbox) = reactor.mailbox::<Option<Order>>();
            let any = "127.0.0.1:0".parse().expect("an address");
            let mut target = TestTarget::listen(&mut reactor, OWNER, any);
            tell.send((target.address, postbox)).expect("the test waits");
            let mut completions = Vec::new();
            loop {
                while let Some(order) = mailbox.take() {
                    match order {
                        Some(order) => order(&mut target, &mut reactor),
                        None => return,
                    }
                }
                target.flush(&mut reactor);
                reactor.poll(WaitLimit::Sleep, &mut completions);
                for completion in completions.drain(..) {
                    target.handle(&mut reactor, completion);
                }
            }
        });
        let (address, orders) = hear.recv().expect("the target starts");
        Self { address, orders, thread: Some(thread) }
    }

    /// Does something on the target's thread and waits until it is done.
    pub(crate) fn with<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut TestTarget, &mut Reactor) -> T + Send + 'static,
    ) -> T {
        let (tell, hear) = mpsc::channel();
        self.orders.post(Some(Box::new(move |target, reactor| {
            let _ = tell.send(order(target, reactor));
        })));
        hear.recv().expect("the target lives")
    }

    pub(crate) fn options(&self) -> Options {
        let text = format!("nvme-tcp://{}/{SUBSYSTEM}", self.address);
        let mut options = Options::new(text.parse().expect("a good address"));
        options.reconnect_delay = Duration::from_millis(50);
        options
    }

    pub(crate) fn connect(&self) -> Controller {
        connect(&self.options()).expect("it connects")
    }
}

impl Drop for RunningTarget {
    fn drop(&mut self) {
        self.orders.post(None);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the target's thread panicked");
        }
    }
}
