//! Reservations: changes are made here for all groups, and kept in a file if they persist.
//!
//! A change is applied to a copy; what persists is written; then the words that the queues look at
//! are set, and the change is there for every queue at once. Commands that a group had already
//! begun for a host that lost access are waited for (`Message::Settle`) before the host that made
//! the change, and those that it concerns, are told.
//!
//! A group makes a change itself, except where a file may have to be written: then it is made by a
//! thread, in the order in which the commands came.

pub(crate) mod file;

use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weft_backend::OwnFile;
use weft_nvme::Status;
use weft_nvmf::reservation::{HostId, Notice, Request, Reservations};
use weft_nvmf::subsystem::{NamespaceView, SubsystemView};
use weft_reactor::MailboxSender;

use crate::shared::message::{Message, Requester, ReservationResult};
use crate::shared::round::{Round, Waiter};

/// A change that a host asks for.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) asker: Requester,
    pub(crate) view: Arc<SubsystemView>,
    pub(crate) nsid: u32,
    pub(crate) host: HostId,
    pub(crate) request: Request,
    /// Where the reservations of the namespace are kept.
    pub(crate) file: Option<Arc<OwnFile>>,
}

/// Makes the changes.
#[derive(Debug, Default)]
pub(crate) struct Reserver {
    /// To the thread that writes files, once there was a reason for it.
    writer: OnceLock<Sender<Task>>,
}

/// What the thread does that writes files.
#[derive(Debug)]
enum Task {
    Change(Change),
    /// Says that all before is done.
    Tell(Sender<()>),
}

impl Reserver {
    /// Makes a change, now or as soon as it is written.
    pub(crate) fn change(&self, change: Change, posts: &[MailboxSender<Message>]) {
        if change.file.is_none() {
            return make(change, posts);
        }
        let writer = self.writer.get_or_init(|| start_writer(posts.to_vec()));
        // Without a thread the groups wait for the file.
        if let Err(SendError(Task::Change(change))) = writer.send(Task::Change(change)) {
            make(change, posts);
        }
    }

    /// Waits until the changes that were asked for before are made and written; `false`: they take
    /// longer than this.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let Some(writer) = self.writer.get() else { return true };
        let (tell, told) = channel();
        // Without a thread nothing is left to be done later.
        writer.send(Task::Tell(tell)).is_err() || told.recv_timeout(patience).is_ok()
    }
}

fn start_writer(posts: Vec<MailboxSender<Message>>) -> Sender<Task> {
    let (tasks, next): (_, Receiver<Task>) = channel();
    let run = move || {
        next.into_iter().for_each(|task| match task {
            Task::Change(change) => make(change, &posts),
            // If it waits no longer, it has said so.
            Task::Tell(tell) => drop(tell.send(())),
        });
    };
    let started = std::thread::Builder::new().name("weft-reserve".to_owned()).spawn(run);
    if let Err(error) = started {
        log::error!("no thread can be started that writes reservations: {error}");
    }
    tasks
}

fn make(change: Change, posts: &[MailboxSender<Message>]) {
    let Change { asker, ref view, nsid, .. } = change;
    let (status, notices, losers) = match try_to_make(&change) {
        Ok((notices, losers)) => (Status::SUCCESS, notices, losers),
        Err(status) => (status, Vec::new(), Vec::new()),
    };
    let changed = Arc::new(ReservationResult { asker, status, subsystem: view.nqn, nsid, notices });
    let device = view.namespaces.get(nsid).map(|namespace| namespace.device);
    match device {
        Some(device) if !losers.is_empty() => {
            let hosts: Arc<[HostId]> = losers.into();
            let waiter = Waiter::Reservation(changed);
            Round::begin(posts, waiter, |round| Message::Settle {
                device,
                hosts: Arc::clone(&hosts),
                round,
            });
        }
        _ => {
            if let Some(post) = posts.get(asker.connection.group) {
                post.post(Message::Reserved(changed));
            }
        }
    }
}

/// Who is to be told, and which hosts may do less than before.
fn try_to_make(change: &Change) -> Result<(Vec<Notice>, Vec<HostId>), Status> {
    let Change { view, nsid, host, request, file, .. } = change;
    let namespace = view.namespaces.get(*nsid).ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    let table = view.shared.reservations();
    loop {
        let before = table.get(*nsid);
        let mut after = before.clone();
        let notices = after.apply(*host, request, file.is_some())?;
        after.add_owners(table.owner(host).map(|owner| (*host, owner)));
        write(&before, &after, namespace, file.as_deref())?;
        // Another group may have made a change at the same time.
        if let Some(losers) = table.change(*nsid, &before, after) {
            return Ok((notices, losers));
        }
    }
}

/// Writes what persists, and that nothing does any more.
fn write(
    before: &Reservations,
    after: &Reservations,
    namespace: &NamespaceView,
    file: Option<&OwnFile>,
) -> Result<(), Status> {
    let is_concerned = before.persists() || after.persists();
    let Some(path) = file.filter(|_| is_concerned && before != after) else { return Ok(()) };
    file::write(path, before, after, &namespace.uuid).map_err(|error| {
        log::error!("reservations cannot be written to {}: {error}", path.display());
        Status::INTERNAL_ERROR
    })
}
