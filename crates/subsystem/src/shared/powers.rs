//! The powers of authentication: computed on one thread for all groups, which runs when no other
//! thread wants to. Each takes up to 10 ms, and a poll group must not wait for it. Where there are
//! processors without a poll group it uses these: one whose group polls leaves it next to nothing.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError, Weak};

use weft_nvmf::auth::target::{Work, WorkDone};
use weft_reactor::MailboxSender;

use crate::shared::ids::ConnectionId;
use crate::shared::message::Message;

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
    Threaded {
        /// To the thread, if there is one.
        sender: Mutex<Option<Sender<Job>>>,
        /// The processors that it may use.
        cpus: Vec<usize>,
    },
}

impl Powers {
    /// On those processors of the calling thread that have none of these poll groups, if there are
    /// any: the thread is started by a group, which may be pinned.
    pub(crate) fn threaded(of_groups: &[usize]) -> Self {
        let cpus = weft_reactor::system::cpus_of_current_thread().unwrap_or_else(|error| {
            log::warn!("the processors for authentication are not known: {error}");
            Vec::new()
        });
        Self::Threaded { sender: Mutex::new(None), cpus: besides(&cpus, of_groups) }
    }

    /// Computes a power; if it is not done at once, the group gets a message.
    pub(crate) fn compute(&self, job: Job) -> Option<WorkDone> {
        let Self::Threaded { sender, cpus } = self else { return Some(job.work.run()) };
        let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        let to = match sender.take() {
            Some(to) => to,
            None => match start(cpus.clone()) {
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

/// The processors that have no group, or all if every one has.
fn besides(cpus: &[usize], of_groups: &[usize]) -> Vec<usize> {
    let free: Vec<usize> = cpus.iter().copied().filter(|cpu| !of_groups.contains(cpu)).collect();
    if free.is_empty() { cpus.to_vec() } else { free }
}

fn start(cpus: Vec<usize>) -> std::io::Result<Sender<Job>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("weft-auth".to_owned());
    thread.spawn(move || {
        settle(&cpus);
        run(&receiver);
    })?;
    Ok(sender)
}

/// Has the calling thread get in nobody's way.
fn settle(cpus: &[usize]) {
    if let Err(error) = weft_reactor::system::lower_priority_of_current_thread() {
        log::warn!("authentication has the same priority as everything else: {error}");
    }
    // Unknown ones cannot be asked for.
    if !cpus.is_empty()
        && let Err(error) = weft_reactor::system::confine_current_thread(cpus)
    {
        log::warn!("authentication uses the processor of a poll group: {error}");
    }
}

fn run(receiver: &Receiver<Job>) {
    while let Ok(Job { work, connection, post, alive }) = receiver.recv() {
        if alive.strong_count() > 0 {
            post.post(Message::PowerComputed { connection, done: Box::new(work.run()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_reactor::system::{cpus_of_current_thread, pin_current_thread};

    #[test]
    fn powers_are_computed_where_no_group_is() {
        assert_eq!(besides(&[0, 1, 2, 3], &[1, 2]), [0, 3]);
        assert_eq!(besides(&[4, 5], &[]), [4, 5], "groups that are not pinned");
        assert_eq!(besides(&[4, 5], &[4, 5]), [4, 5], "groups are everywhere");
        assert_eq!(besides(&[4, 5], &[0, 4]), [5]);
    }

    #[test]
    fn a_group_that_is_pinned_does_not_pin_the_thread_of_powers() {
        let all = cpus_of_current_thread().expect("processors");
        let first = *all.first().expect("one");
        let Powers::Threaded { cpus, .. } = Powers::threaded(&[first]) else { unreachable!() };
        let group = std::thread::spawn(move || {
            pin_current_thread(first).expect("it may run there");
            let powers = std::thread::spawn(move || {
                settle(&cpus);
                cpus_of_current_thread().expect("processors")
            });
            powers.join().expect("it has ended")
        });
        assert_eq!(group.join().expect("it has ended"), besides(&all, &[first]));
    }
}
