//! The powers of authentication: computed on one thread for all groups, which runs when no other
//! thread wants to. Each takes up to 10 ms, and a poll group must not wait for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError, Weak};

use weft_nvmf::auth::target::{Work, WorkDone};
use weft_reactor::MailboxSender;

use crate::group::{ConnectionId, Message};

/// A power to be computed for a connection, which has one at a time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) connection: ConnectionId,
    /// The mailbox of the connection's group.
    pub(crate) post: MailboxSender<Message>,
    /// Gone when the connection is: its power is not computed any more.
    pub(crate) alive: Weak<()>,
}

/// Computes powers.
#[derive(Debug)]
pub(crate) enum Powers {
    /// At once, by the caller: for targets without threads.
    AtOnce,
    /// On a thread that the first job starts, and that ends when this is dropped.
    Threaded(Mutex<Option<Sender<Job>>>),
}

impl Powers {
    pub(crate) const fn threaded() -> Self {
        Self::Threaded(Mutex::new(None))
    }

    /// Computes a power; if it is not done at once, the group gets a message.
    pub(crate) fn compute(&self, job: Job) -> Option<WorkDone> {
        let Self::Threaded(sender) = self else { return Some(job.work.run()) };
        let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        let to = match sender.take() {
            Some(to) => to,
            None => match start() {
                Ok(to) => to,
                Err(error) => {
                    log::error!("the thread for authentication cannot be started: {error}");
                    return Some(job.work.run());
                }
            },
        };
        match to.send(job) {
            Ok(()) => {
                *sender = Some(to);
                None
            }
            // The thread has ended; the next job starts another.
            Err(unsent) => Some(unsent.0.work.run()),
        }
    }
}

fn start() -> std::io::Result<Sender<Job>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("weft-auth".to_owned());
    thread.spawn(move || run(&receiver))?;
    Ok(sender)
}

fn run(receiver: &Receiver<Job>) {
    if let Err(error) = weft_reactor::system::lower_priority_of_current_thread() {
        log::warn!("authentication has the same priority as everything else: {error}");
    }
    while let Ok(Job { work, connection, post, alive }) = receiver.recv() {
        if alive.strong_count() > 0 {
            post.post(Message::PowerComputed { connection, done: Box::new(work.run()) });
        }
    }
}
