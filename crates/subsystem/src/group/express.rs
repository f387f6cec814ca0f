//! Express queues are served at once: their commands come between the commands of others, so that a
//! host that waits for each answer does not wait for the others' as well.
//!
//! The commands of a turn stay one batch, which is interrupted: between two of them one word says
//! whether something has come for an express queue ([`Reactor::has_express`]). Then that is
//! received, begun, executed and answered at once. The others send in slices meanwhile.
//!
//! [`Reactor::has_express`]: weft_reactor::Reactor::has_express

use std::time::Duration;

use weft_backend::RequestCompletion;
use weft_reactor::ReactorCompletion;

use super::connection::{Connection, Role};
use super::core::Core;
use super::owners::{CONNECTIONS, DEVICES};
use super::schedule::QueueClass;
use super::{Group, devices};

impl Group {
    /// The reactor has been polled: serves what has come for express queues before anything else.
    pub(super) fn begin_express_turn(&mut self, completions: &mut Vec<ReactorCompletion>) {
        let now = self.core.reactor.turn_time();
        if self.core.schedule.express.is_look_due(now) {
            self.look_through(now);
        }
        if self.core.reactor.has_express() {
            self.take_express();
            completions.append(&mut self.deferred);
        } else {
            // A turn without other work has no other look.
            self.core.note_empty_look();
        }
        let queues = self.core.schedule.express.queues();
        self.core.devices.set_express(queues > 0);
        self.core.devices.counters().set_express_queues(queues);
    }

    /// Queues that are to be express no longer leave, and places are given to those that wait.
    fn look_through(&mut self, now: Duration) {
        for index in self.core.schedule.express.connections() {
            self.settle_class_of(index, now, |_| ());
        }
        if !self.core.schedule.express.has_waiting() {
            return;
        }
        let (leaving, entering) = self.core.schedule.express.next_turns();
        for (is_given, queues) in [(false, leaving), (true, entering)] {
            for index in queues {
                self.settle_class_of(index, now, |class| class.set_place(is_given));
            }
        }
    }

    fn settle_class_of(
        &mut self,
        index: usize,
        now: Duration,
        change: impl FnOnce(&mut QueueClass),
    ) {
        self.with_if_changed(index, |connection, core| {
            if let Role::Io(io) = &mut connection.role {
                change(&mut io.class);
            }
            connection.settle_class(now, core);
            false
        });
    }

    /// Serves express queues if something has come for one: called between any two pieces of other
    /// work, while no connection is taken out of the table.
    #[inline]
    pub(super) fn serve_express(&mut self) {
        if self.core.is_express_due() {
            self.take_express();
        }
    }

    /// Takes what has come for express queues and serves those that have credit.
    pub(super) fn take_express(&mut self) {
        let mut completions = std::mem::take(&mut self.express_completions);
        self.core.reactor.poll_express(&mut completions);
        let mut is_of_devices = false;
        for completion in completions.drain(..) {
            if completion.token.owner.0 >= DEVICES {
                // What it goes on with is express as well.
                self.core.reactor.begin_express();
                self.core.devices.handle(completion, &mut self.core.reactor);
                self.core.reactor.end_express();
                is_of_devices = true;
            } else if let Err(completion) = self.dispatch_express(completion) {
                self.deferred.push(completion);
            }
        }
        self.express_completions = completions;
        if is_of_devices {
            self.finish_express_requests();
        }
    }

    /// Answers the commands of express queues that devices have completed.
    fn finish_express_requests(&mut self) {
        while let Some(done) = self.core.poll_completion() {
            self.set_aside(done);
        }
        while let Some(done) = self.set_aside.pop_front() {
            if let Err(done) = self.finish_express(done) {
                return self.set_aside.push_front(done);
            }
        }
    }

    /// Answers a command that a device has completed, if it is one of an express queue that has
    /// credit.
    pub(super) fn finish_express(
        &mut self,
        done: RequestCompletion,
    ) -> Result<(), RequestCompletion> {
        let index = devices::origin(done.tag).0;
        let Some(now) = self.time_with_credit(index) else { return Err(done) };
        self.serve_at_once(index, now, |connection, core| {
            connection.handle_done(done, now, core);
        });
        Ok(())
    }

    /// A request has completed whose turn has not come: those of express queues come first.
    fn set_aside(&mut self, done: RequestCompletion) {
        let index = devices::origin(done.tag).0;
        match self.connections.at(index).is_some_and(Connection::is_express) {
            true => self.set_aside.push_front(done),
            false => self.set_aside.push_back(done),
        }
    }

    /// Serves an express queue at once, if the completion is for one and it has credit.
    pub(super) fn dispatch_express(
        &mut self,
        completion: ReactorCompletion,
    ) -> Result<(), ReactorCompletion> {
        if completion.token.owner != CONNECTIONS {
            return Err(completion);
        }
        let index = weft_transport::tag_of(completion.token) as usize;
        let Some(now) = self.time_with_credit(index) else { return Err(completion) };
        self.serve_at_once(index, now, |connection, core| {
            connection.handle(completion, core);
        });
        Ok(())
    }

    /// The time, if a connection is an express queue that has credit now.
    #[inline]
    fn time_with_credit(&mut self, index: usize) -> Option<Duration> {
        if self.core.schedule.express.queues() == 0 || !self.connections.at(index)?.is_express() {
            return None;
        }
        let now = self.core.reactor.now();
        self.core.schedule.express.has_credit(now).then_some(now)
    }

    /// Counts that what came for a connection waits for its turn, if that is an express queue.
    pub(super) fn count_refused(&mut self, index: usize) {
        let is_waiting = |one: &Connection| one.is_express() && one.transport.has_events();
        if self.connections.at(index).is_some_and(is_waiting) {
            self.core.devices.counters().count_express_refused();
        }
    }

    /// Serves an express queue: from what was received, or what a device has completed, to the
    /// answer that is sent.
    fn serve_at_once(
        &mut self,
        index: usize,
        since: Duration,
        begin: impl FnOnce(&mut Connection, &mut Core),
    ) {
        let Some(mut connection) = self.connections.take(index) else { return };
        let core = &mut self.core;
        let turn = core.schedule.interrupt(since);
        // What is under way at a device keeps the processor awake, for which alone is no reason.
        if core.schedule.express.has_others(since) {
            core.reactor.begin_express();
        }
        begin(&mut connection, core);
        let is_served = connection.transport.has_events();
        // What goes to a device is flushed to it, see `Core::submit`.
        connection.handle_events(core);
        while let Some(done) = self.core.poll_completion() {
            if devices::origin(done.tag).0 == index {
                let now = self.core.reactor.now();
                connection.handle_done(done, now, &mut self.core);
            } else {
                self.set_aside(done);
            }
        }
        let core = &mut self.core;
        connection.flush(core);
        core.reactor.end_express();
        let now = core.reactor.now();
        let took = core.schedule.resume(turn, now);
        core.devices.counters().count_express(u64::from(is_served), took);
        if is_served && let Role::Io(io) = &mut connection.role {
            io.class.served(now);
        }
        connection.settle_class(now, core);
        if connection.has_work() || connection.is_gone() {
            connection.mark_active(core);
        }
        self.connections.put(connection);
    }
}
