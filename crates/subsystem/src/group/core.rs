//! What the connections of a group share.

use std::sync::Arc;
use std::time::Duration;

use weft_backend::{Operation, RequestCompletion};
use weft_reactor::{MailboxSender, Reactor};
use weft_transport::Slot;
use weft_transport::target::TargetConnection;

use super::devices::{self, Devices};
use super::lines::Lines;
use super::schedule::{Schedule, Work};
use super::tracer::Tracer;
use crate::shared::directory::Directory;
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::limits::{FAULT_LINES, HOST_LINES};
use crate::shared::message::Message;
use crate::shared::round::{Round, Waiter};
use crate::shared::snapshot::Snapshot;

/// One group's reactor, devices and mailboxes of the other groups.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: usize,
    pub(crate) reactor: Reactor,
    pub(crate) posts: Vec<MailboxSender<Message>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) devices: Devices,
    /// Which connection may begin its next command.
    pub(crate) schedule: Schedule,
    /// Records what commands go through, while that is asked for.
    pub(crate) tracer: Option<Tracer>,
    /// Checks for stale connections that this group has started.
    pub(crate) stale_checks: u64,
    /// Lines about hosts that have not authenticated themselves, and handshakes that have failed.
    pub(crate) pending_lines: Lines,
    /// Lines about what peers have done wrong.
    pub(crate) fault_lines: Lines,
    /// Lines about hosts that come and go.
    pub(crate) host_lines: Lines,
    /// No new command is begun: the target is about to stop.
    pub(crate) is_stopping: bool,
}

/// What a connection's role works with: the connection itself, and what all of them share.
pub(crate) struct Context<'a> {
    pub(crate) transport: &'a mut TargetConnection,
    pub(crate) core: &'a mut Core,
}

impl Core {
    /// What the turn does next.
    pub(crate) fn next_work(&mut self) -> Option<Work> {
        // Of several tenants each has its pieces in its turn.
        let has_piece = self.devices.pieces().has_next() && !self.schedule.shares.is_divided();
        self.schedule.next(has_piece)
    }

    /// Whether an express queue may have something that is to be served before anything else.
    #[inline]
    pub(crate) fn is_express_due(&mut self) -> bool {
        if self.reactor.has_express() {
            return self.schedule.express.has_credit(self.reactor.now());
        }
        self.note_empty_look();
        false
    }

    /// Nothing has come for express queues, if that is of interest.
    #[inline]
    pub(crate) fn note_empty_look(&mut self) {
        if self.devices.have_express() {
            self.schedule.express.looked(self.reactor.now());
        }
    }

    /// The next request that a device has completed.
    pub(crate) fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.devices.poll_completion(&self.reactor, self.schedule.express.empty_at())
    }

    /// The time as of the current turn, or the time at which an express queue is served within it.
    pub(crate) fn time(&self) -> Duration {
        self.schedule.express.served_since().unwrap_or(self.reactor.turn_time())
    }

    /// Whether times of commands are recorded.
    pub(crate) fn is_measured(&self) -> bool {
        self.directory.io_metrics().is_some() || self.tracer.is_some()
    }

    /// Submits an operation of a connection's command. `false`: there is no such device. What an
    /// express queue submits between the work for others goes to the device at once: its turn may
    /// have flushed the devices already.
    pub(crate) fn submit(
        &mut self,
        device: u32,
        of: ConnectionId,
        slot: Slot,
        operation: Operation,
    ) -> bool {
        let tag = devices::tag(of.index, slot);
        let is_express = self.schedule.express.served_since().is_some();
        let is_there = self.devices.submit(device, tag, is_express, operation, &mut self.reactor);
        if is_there && is_express {
            self.devices.counters().count_express_command();
            self.devices.flush_one(device, &mut self.reactor);
        }
        is_there
    }

    /// Has every group serve this snapshot and finish what it forbids, then notifies the waiter.
    pub(crate) fn publish(&self, snapshot: &Arc<Snapshot>, waiter: Waiter) {
        Round::begin(&self.posts, waiter, |round| Message::Publish {
            snapshot: Arc::clone(snapshot),
            round,
        });
    }

    /// If a device has lost writes, every controller reports it.
    pub(crate) fn publish_lost_writes(&mut self) {
        if self.devices.take_lost_writes() && self.snapshot.misses_lost_writes() {
            let now = self.reactor.turn_time();
            let snapshot = self.directory.update(|before| before.with_lost_writes(now));
            self.publish(&snapshot, Waiter::None);
        }
    }

    /// What was registered by hosts that are gone for long is shown no longer.
    pub(crate) fn expire_registrations(&self) {
        if let Some(snapshot) = self.directory.expire_registrations(self.reactor.turn_time()) {
            self.publish(&snapshot, Waiter::None);
        }
    }

    /// Counts a host that has failed to authenticate itself, or a handshake with TLS that has
    /// failed, and warns of it: at most `most` times in a second, as there may be a flood.
    pub(crate) fn count_failed_authentication(&mut self, what: std::fmt::Arguments<'_>, most: u64) {
        self.directory.pending(|pending| pending.note(false));
        let now = self.reactor.turn_time();
        self.pending_lines.say(log::Level::Warn, what, most, now);
    }

    /// Says what a peer has done wrong.
    pub(crate) fn say_fault(&mut self, level: log::Level, what: std::fmt::Arguments<'_>) {
        self.fault_lines.say(level, what, FAULT_LINES, self.reactor.turn_time());
    }

    /// Says that a host has come or gone.
    pub(crate) fn say_host(&mut self, level: log::Level, what: std::fmt::Arguments<'_>) {
        self.host_lines.say(level, what, HOST_LINES, self.reactor.turn_time());
    }

    /// This group has made the change of a round.
    pub(crate) fn acknowledge(&self, round: &Round) {
        if let Some((to, message)) = round.acknowledge() {
            self.post(to, message);
        }
    }

    /// Sends a message to the group that holds a connection.
    pub(crate) fn post(&self, to: ConnectionId, message: Message) {
        if let Some(post) = self.posts.get(to.group) {
            post.post(message);
        }
    }

    /// One of a host's queues has drained; if it was the last one, the Connects that wait go on.
    pub(crate) fn end_drain(&self, host: &HostKey) {
        for connection in self.directory.end_drain(host) {
            self.post(connection, Message::Proceed { connection });
        }
    }
}
