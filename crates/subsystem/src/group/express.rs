//! Express queues: I/O queues whose commands are served between the commands of others, so that a
//! host that waits for each answer does not wait for the others' as well.
//!
//! The commands of a turn stay one batch, which is interrupted: between two of them one word says
//! whether something has come for an express queue ([`Reactor::has_express`]). Then that is
//! received, begun, executed and answered at once. The others send in slices meanwhile.
//!
//! A queue is express by a rule, because its host asked for it with Connect, or by itself while it
//! has few and small commands in flight and another queue of the group does not. Each of these has
//! a part of the time ([`Budgets`]); without credit its queues are served in their turn. Where more
//! queues are to be express without a rule than there are places, they take turns ([`turns`]).
//!
//! [`Reactor::has_express`]: weft_reactor::Reactor::has_express

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_backend::RequestCompletion;
use weft_reactor::ReactorCompletion;

use super::budget::{AccountId, Budgets};
use super::connection::{Connection, Role};
use super::core::{CONNECTIONS, Core, DEVICES};
use super::{Group, devices};
use crate::config::{QosClass, QosRule};
use crate::shared::classes::{ClassWord, Grant};

/// Commands in flight of an express queue, at most: one that waits for each answer has one, and two
/// if it has sent the next one before the answer to the last was handed to the network.
const IN_FLIGHT_MAX: usize = 2;

/// Bytes of data of its commands, at most.
const BYTES_MAX: usize = 16 << 10;

/// Express queues of a group without a rule, at most. Each is one descriptor more that is watched,
/// and with more the credit is too small for all of them anyway.
const QUEUES_MAX: usize = 64;

/// Express queues of a group, at most.
const QUEUES_RULED_MAX: usize = 128;

/// A queue must have behaved as an express queue for so long before it is one.
const PROBATION: Duration = Duration::from_millis(1);

/// Queues are express while others have had larger work within this time: a queue alone, or one
/// among its like, gains nothing.
const OTHERS_TIME: Duration = Duration::from_millis(100);

/// An express queue without commands for this long is one no longer: while there is one, the others
/// send in slices.
const IDLE_TIME: Duration = Duration::from_millis(100);

/// How often the express queues are looked through for those that are to be so no longer, and
/// places are given to others that wait for one.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Pieces of requests in a turn: what a memory device zeroes in one.
const PIECES_MAX: usize = 16;

/// The express queues of a group together.
#[derive(Debug)]
pub(crate) struct Express {
    budgets: Budgets,
    /// Since when one of them is being served.
    served_since: Option<Duration>,
    /// The oldest first.
    queues: Vec<Place>,
    /// Others that are to be express when there is a place, in their order.
    waiting: VecDeque<Place>,
    /// When they were last looked through.
    looked_at: Duration,
    /// When a queue last had a command that is to be served in its turn.
    others_at: Option<Duration>,
    /// No queue is to be express without a rule.
    is_off: bool,
}

/// A queue that is express, or waits for that.
#[derive(Debug, Clone)]
struct Place {
    connection: usize,
    host: Arc<str>,
    /// A rule decides it.
    is_ruled: bool,
}

/// Whether a queue is express.
#[derive(Debug)]
pub(crate) struct QueueClass {
    /// Who decides it.
    grant: Grant,
    /// Its connection, and whose it is.
    place: Place,
    /// What it is charged to, if it is express.
    account: Option<AccountId>,
    /// It has a place among those without a rule.
    has_place: bool,
    /// It waits for one.
    is_waiting: bool,
    /// Its connection cannot be.
    is_excluded: bool,
    /// When it was last served as an express queue, or became one.
    served_at: Duration,
    /// Since when it has behaved as an express queue.
    since: Duration,
    /// What others see of it.
    shown: Arc<ClassWord>,
}

impl Express {
    /// None yet. Whether queues may be express without a rule, and the rules.
    pub(crate) fn new(is_on: bool, rules: &[QosRule]) -> Self {
        Self {
            budgets: Budgets::new(rules),
            served_since: None,
            queues: Vec::new(),
            waiting: VecDeque::new(),
            looked_at: Duration::ZERO,
            others_at: None,
            is_off: !is_on,
        }
    }

    /// The same from now on; every queue is to be [granted](QueueClass::regrant) its class again.
    pub(crate) fn replace(&mut self, is_on: bool, old: &[QosRule], new: &[QosRule]) {
        self.is_off = !is_on;
        self.budgets.replace(old, new);
    }

    /// How many queues are express.
    pub(crate) const fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Whether one of them may have credit: otherwise they are served in their turn.
    pub(crate) fn may_have_credit(&self, now: Duration) -> bool {
        self.budgets.may_have_credit(now)
    }

    /// Since when one of them is being served, if one is.
    pub(crate) const fn served_since(&self) -> Option<Duration> {
        self.served_since
    }

    /// Whether it is time to look them through.
    fn is_look_due(&mut self, now: Duration) -> bool {
        let has_any = !self.queues.is_empty() || !self.waiting.is_empty();
        let is_due = has_any && self.looked_at + LOOK_INTERVAL <= now;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// Whether a queue is to be express, or to stay so, for which no rule decides that: beside
    /// others, and not without commands.
    fn takes(&self, queue: &QueueClass, now: Duration) -> bool {
        let has_others = self.has_others(now);
        let is_busy = !queue.is_express() || now.saturating_sub(queue.served_at) < IDLE_TIME;
        has_others && is_busy && !self.is_off
    }

    /// Whether others have had commands lately.
    fn has_others(&self, now: Duration) -> bool {
        self.others_at.is_some_and(|at| now.saturating_sub(at) < OTHERS_TIME)
    }

    /// Whether a queue without a rule finds a place that nobody waits for.
    fn has_free_place(&self) -> bool {
        self.queues.len() < QUEUES_MAX && self.waiting.is_empty()
    }

    /// The queues that give their places to others now, and those that get one. Each host has as
    /// many as the others, or as it has use for.
    fn next_turns(&mut self) -> (Vec<usize>, Vec<usize>) {
        let waiting = std::mem::take(&mut self.waiting);
        let without_rule = self.queues.iter().filter(|place| !place.is_ruled);
        let ruled = self.queues.len() - without_rule.clone().count();
        let mut chosen =
            turns(waiting.iter().chain(without_rule.clone()), QUEUES_MAX - ruled.min(QUEUES_MAX));
        chosen.sort_unstable();
        let has_turn = |connection: &usize| chosen.binary_search(connection).is_ok();
        let leaving: Vec<Place> =
            without_rule.filter(|place| !has_turn(&place.connection)).cloned().collect();
        let (entering, waiting): (Vec<Place>, Vec<Place>) =
            waiting.into_iter().partition(|place| has_turn(&place.connection));
        let connections = |of: &[Place]| of.iter().map(|place| place.connection).collect();
        let changes = (connections(&leaving), connections(&entering));
        // In their order, so that all have their turns equally often.
        self.waiting = waiting.into_iter().chain(leaving).collect();
        changes
    }
}

/// Who has the next turn of all that want a place, the longest wait first: hosts choose one of
/// theirs one after the other.
fn turns<'a>(all: impl Iterator<Item = &'a Place>, places: usize) -> Vec<usize> {
    let mut hosts: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for place in all {
        hosts.entry(&place.host).or_default().push_back(place.connection);
    }
    let mut chosen = Vec::new();
    while chosen.len() < places && !hosts.is_empty() {
        hosts.retain(|_, own| {
            chosen.extend(own.pop_front().filter(|_| chosen.len() < places));
            !own.is_empty()
        });
    }
    chosen
}

impl QueueClass {
    /// The class of a host's queue that is granted now.
    pub(crate) fn new(
        grant: Grant,
        (connection, host): (usize, &str),
        group: &Express,
        now: Duration,
    ) -> Self {
        let class = Self {
            grant,
            place: Place {
                connection,
                host: host.into(),
                is_ruled: matches!(grant, Grant::Rule(..)),
            },
            account: None,
            has_place: false,
            is_waiting: false,
            is_excluded: false,
            served_at: Duration::ZERO,
            since: now,
            shown: Arc::default(),
        };
        class.show(group);
        class
    }

    /// It is granted another class; the group's accounts are new.
    pub(crate) fn regrant(&mut self, grant: Grant, group: &mut Express, now: Duration) {
        self.grant = grant;
        self.place.is_ruled = matches!(grant, Grant::Rule(..));
        self.has_place = self.is_express() && !self.place.is_ruled;
        self.wait_no_longer(group);
        let (connection, is_ruled) = (self.place.connection, self.place.is_ruled);
        let own = group.queues.iter_mut().find(|place| place.connection == connection);
        own.into_iter().for_each(|place| place.is_ruled = is_ruled);
        if self.is_express() {
            self.account = Some(group.budgets.enter(grant, &self.place.host, now));
        }
        self.show(group);
    }

    /// What others see of it.
    pub(crate) fn shown(&self) -> Arc<ClassWord> {
        Arc::clone(&self.shown)
    }

    fn show(&self, group: &Express) {
        self.shown.set(self.grant.shown(self.is_express(), group.is_off));
    }

    /// The account that it is charged to, if it is express.
    pub(crate) const fn account(&self) -> Option<AccountId> {
        self.account
    }

    /// Who decides it.
    pub(crate) const fn grant(&self) -> Grant {
        self.grant
    }

    /// Whether it is express.
    pub(crate) const fn is_express(&self) -> bool {
        self.account.is_some()
    }

    /// A command of so many bytes begins, with which the queue has this many in flight.
    #[inline]
    pub(crate) fn count(
        &mut self,
        group: &mut Express,
        (in_flight, bytes): (usize, usize),
        now: Duration,
    ) {
        let is_large = in_flight > IN_FLIGHT_MAX || bytes > BYTES_MAX;
        match self.grant {
            Grant::Automatic if is_large => {
                self.since = now;
                group.others_at = Some(now);
            }
            Grant::Rule(QosClass::Throughput, _) | Grant::Connect(QosClass::Throughput) => {
                group.others_at = Some(now);
            }
            _ => {}
        }
    }

    /// Whether it is to become express, or to be so no longer. It waits for a place if it needs
    /// one.
    #[inline]
    pub(crate) fn is_to_change(&mut self, group: &mut Express, now: Duration) -> bool {
        if !self.is_wanted(group, now) || self.is_excluded {
            self.has_place = false;
            self.wait_no_longer(group);
            return self.is_express();
        }
        if self.place.is_ruled || self.has_place {
            return !self.is_express();
        }
        // One that is express gives its place to another one.
        let is_to_change = self.is_express() || group.has_free_place();
        if !is_to_change && !std::mem::replace(&mut self.is_waiting, true) {
            group.waiting.push_back(self.place.clone());
        }
        is_to_change
    }

    /// It has become express, or is so no longer, if that was possible.
    pub(crate) fn changed(&mut self, group: &mut Express, is_done: bool, now: Duration) {
        self.is_excluded |= !is_done;
        if self.is_express() {
            self.leave(group);
        } else if is_done {
            self.served_at = now;
            self.has_place = !self.place.is_ruled;
            group.queues.push(self.place.clone());
            self.account = Some(group.budgets.enter(self.grant, &self.place.host, now));
        }
        self.show(group);
    }

    /// It has its turn among those without a rule, or waits for the next one.
    pub(crate) const fn set_place(&mut self, is_given: bool) {
        (self.has_place, self.is_waiting) = (is_given, !is_given);
    }

    /// Its connection is closed.
    pub(crate) fn end(&mut self, group: &mut Express) {
        self.leave(group);
        self.wait_no_longer(group);
        self.is_excluded = true;
    }

    fn wait_no_longer(&mut self, group: &mut Express) {
        if std::mem::take(&mut self.is_waiting) {
            group.waiting.retain(|place| place.connection != self.place.connection);
        }
    }

    fn leave(&mut self, group: &mut Express) {
        self.has_place = false;
        let Some(account) = self.account.take() else { return };
        group.budgets.leave(account);
        group.queues.retain(|place| place.connection != self.place.connection);
    }

    /// Whether it is to be express, if there is a place.
    fn is_wanted(&self, group: &Express, now: Duration) -> bool {
        match self.grant {
            Grant::Automatic => {
                group.takes(self, now) && now.saturating_sub(self.since) >= PROBATION
            }
            Grant::Connect(QosClass::Latency) => group.takes(self, now),
            // The operator's word: it holds beside whatever others, and without commands as well.
            Grant::Rule(QosClass::Latency, _) => {
                self.is_express() || group.queues.len() < QUEUES_RULED_MAX
            }
            Grant::Rule(QosClass::Throughput, _) | Grant::Connect(QosClass::Throughput) => false,
        }
    }
}

impl Group {
    /// The reactor has been polled: serves what has come for express queues before anything else.
    pub(super) fn begin_express_turn(&mut self, completions: &mut Vec<ReactorCompletion>) {
        let now = self.core.reactor.turn_time();
        if self.core.targets.is_on() || self.core.express.queues() > 0 {
            self.core.targets.polled(self.core.reactor.idle_time(), now);
        }
        if self.core.express.is_look_due(now) {
            self.look_through(now);
        }
        if self.core.reactor.has_express() {
            self.take_express();
            completions.append(&mut self.deferred);
        } else {
            // A turn without other work has no other look.
            self.core.note_empty_look();
        }
        let queues = self.core.express.queues();
        self.core.devices.set_express(queues > 0);
        self.core.devices.counters().set_express_queues(queues);
    }

    /// Large requests without data that others have begun: a turn executes so many of their pieces,
    /// and express queues come between.
    pub(super) fn begin_pieces(&mut self) {
        for _ in 0..PIECES_MAX {
            let Some(tag) = self.core.devices.begin_piece(&mut self.core.reactor) else { return };
            self.finish_requests();
            self.serve_express();
            self.charge(devices::origin(tag).0);
        }
    }

    /// Queues that are to be express no longer leave, and places are given to those that wait.
    fn look_through(&mut self, now: Duration) {
        let express = &self.core.express.queues;
        for index in express.iter().map(|place| place.connection).collect::<Vec<_>>() {
            self.settle_class_of(index, now, |_| ());
        }
        if self.core.express.waiting.is_empty() {
            return;
        }
        let (leaving, entering) = self.core.express.next_turns();
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
        let Some((account, now)) = self.account_with_credit(index) else { return Err(done) };
        self.serve_at_once((index, account), now, |connection, core| {
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
        let Some((account, now)) = self.account_with_credit(index) else { return Err(completion) };
        self.serve_at_once((index, account), now, |connection, core| {
            connection.handle(completion, core);
        });
        Ok(())
    }

    /// The account of a connection, if it is an express queue that has credit now.
    #[inline]
    fn account_with_credit(&mut self, index: usize) -> Option<(AccountId, Duration)> {
        if self.core.express.queues() == 0 {
            return None;
        }
        let account = self.connections.at(index)?.express_account()?;
        let now = self.core.reactor.now();
        self.core.express.budgets.has_credit(account, now).then_some((account, now))
    }

    /// Counts that what came for a connection waits for its turn, if that is an express queue.
    pub(super) fn count_refused(&mut self, index: usize) {
        let has_come = |one: &&Connection| one.is_express() && one.transport.has_events();
        if let Some(one) = self.connections.at(index).filter(has_come) {
            self.core.devices.counters().count_express_refused();
            if let Role::Io(io) = &one.role {
                self.core.targets.refused(io.class.grant());
            }
        }
    }

    /// Serves an express queue: from what was received, or what a device has completed, to the
    /// answer that is sent.
    fn serve_at_once(
        &mut self,
        (index, account): (usize, AccountId),
        since: Duration,
        begin: impl FnOnce(&mut Connection, &mut Core),
    ) {
        let Some(mut connection) = self.connections.take(index) else { return };
        let core = &mut self.core;
        let arrived = core.targets.empty_at();
        let allowance = core.admission.begin_express();
        core.express.served_since = Some(since);
        // What is under way at a device keeps the processor awake, for which alone is no reason.
        if core.express.has_others(since) {
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
        core.flush(&mut connection);
        core.reactor.end_express();
        core.express.served_since = None;
        core.admission.end_express(allowance);
        let now = core.reactor.now();
        let took = now.saturating_sub(since);
        core.express.budgets.charge(account, took, now);
        core.shares.leave_out(took);
        core.targets.leave_out(took);
        core.devices.counters().count_express(u64::from(is_served), took);
        if is_served && let Role::Io(io) = &mut connection.role {
            io.class.served_at = now;
            core.targets.served(io.class.grant(), now.saturating_sub(arrived));
        }
        connection.settle_class(now, core);
        if connection.transport.has_events() || connection.is_gone() {
            self.mark_active(&mut connection);
        }
        self.connections.put(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    fn group() -> Express {
        Express::new(true, &[])
    }

    fn class_of(grant: Grant, connection: usize, group: &Express) -> QueueClass {
        QueueClass::new(grant, (connection, "nqn.2024-01.a:h"), group, us(0))
    }

    fn automatic(group: &Express) -> QueueClass {
        class_of(Grant::Automatic, 0, group)
    }

    /// A queue, and a group in which another one has had large commands at `others_at`.
    fn queue(others_at: Duration) -> (QueueClass, Express) {
        let mut group = group();
        let mut other = automatic(&group);
        other.count(&mut group, (1, BYTES_MAX + 1), others_at);
        (automatic(&group), group)
    }

    fn settle(queue: &mut QueueClass, group: &mut Express, now: Duration) -> bool {
        if queue.is_to_change(group, now) {
            queue.changed(group, true, now);
        }
        assert_eq!(group.queues(), usize::from(queue.is_express()));
        assert_eq!(queue.shown.get(), queue.grant.shown(queue.is_express(), group.is_off));
        queue.is_express()
    }

    #[test]
    fn a_queue_is_express_beside_others_and_while_it_is_small() {
        let (mut queue, mut group) = queue(us(900));
        assert!(!settle(&mut queue, &mut group, us(999)), "not yet");
        queue.count(&mut group, (IN_FLIGHT_MAX, BYTES_MAX), us(999));
        assert!(settle(&mut queue, &mut group, us(1000)));
        for large in [(IN_FLIGHT_MAX + 1, 512), (1, BYTES_MAX + 1)] {
            queue.count(&mut group, large, us(2000));
            assert!(!settle(&mut queue, &mut group, us(2000)), "at once");
            assert!(!settle(&mut queue, &mut group, us(2999)));
            assert!(settle(&mut queue, &mut group, us(3000)), "after a while");
        }
        queue.served_at = us(100_000);
        assert!(settle(&mut queue, &mut group, us(101_999)));
        assert!(!settle(&mut queue, &mut group, us(102_000)), "the others have gone");
    }

    #[test]
    fn a_queue_alone_is_not_express() {
        let mut group = group();
        let mut queue = automatic(&group);
        for now in 0..100 {
            queue.count(&mut group, (1, 4096), us(now * 100));
            assert!(!settle(&mut queue, &mut group, us(now * 100)));
        }
    }

    #[test]
    fn no_queue_is_express_where_that_is_off() {
        let (mut queue, mut group) = queue(us(5000));
        assert!(settle(&mut queue, &mut group, us(5000)));
        for (is_on, expected) in [(false, false), (true, true)] {
            group.replace(is_on, &[], &[]);
            queue.regrant(Grant::Automatic, &mut group, us(5000));
            assert_eq!(settle(&mut queue, &mut group, us(5000)), expected);
        }
    }

    /// Whatever it does, and whether or not that is on.
    #[test]
    fn a_rule_decides_alone() {
        let mut group = Express::new(false, &[]);
        let [latency, throughput] =
            [QosClass::Latency, QosClass::Throughput].map(|class| Grant::Rule(class, 0));
        let mut queue = class_of(latency, 0, &group);
        assert!(settle(&mut queue, &mut group, us(0)));
        queue.count(&mut group, (128, 1 << 20), us(1));
        assert!(settle(&mut queue, &mut group, us(1)));
        assert!(settle(&mut queue, &mut group, us(10_000_000)), "without commands");
        assert_eq!(group.others_at, None);
        group.replace(true, &[], &[]);
        queue.regrant(throughput, &mut group, us(5000));
        assert!(!settle(&mut queue, &mut group, us(10_000_000)));
        queue.count(&mut group, (1, 512), us(10_000_000));
        assert_eq!(group.others_at, Some(us(10_000_000)), "others are beside it");
        assert!(!settle(&mut queue, &mut group, us(10_002_000)));
    }

    /// Its host has said so: from the first command on, and with many of them, but not alone.
    #[test]
    fn a_priority_decides_beside_others() {
        let (_, mut group) = self::queue(us(5000));
        let urgent = Grant::Connect(QosClass::Latency);
        let mut queue = class_of(urgent, 0, &group);
        queue.count(&mut group, (128, 1 << 20), us(5000));
        assert!(settle(&mut queue, &mut group, us(5000)));
        assert!(!settle(&mut queue, &mut group, us(105_000)), "the others have gone");
        let mut other = class_of(Grant::Connect(QosClass::Throughput), 1, &group);
        other.count(&mut group, (1, 512), us(105_000));
        assert!(!other.is_to_change(&mut group, us(105_000)));
        assert!(settle(&mut queue, &mut group, us(105_000)));
    }

    #[test]
    fn an_express_queue_is_charged_to_its_own_account_at_all_times() {
        let (_, mut group) = self::queue(us(5000));
        let rule = Grant::Rule(QosClass::Latency, 0);
        let mut queue = automatic(&group);
        assert!(settle(&mut queue, &mut group, us(5000)));
        group.budgets.charge(queue.account().expect("one"), us(300), us(10_000));
        assert!(!group.may_have_credit(us(10_000)));
        let rules = [QosRule {
            host: None,
            subsystem: None,
            port: None,
            class: QosClass::Latency,
            budget: None,
            weight: None,
            latency_target: None,
            max_throughput_loss: None,
        }];
        group.replace(true, &[], &rules);
        queue.regrant(rule, &mut group, us(5000));
        assert!(group.may_have_credit(us(10_000)));
        group.budgets.charge(queue.account().expect("one"), us(300), us(10_000));
        assert!(!group.may_have_credit(us(10_000)));
        queue.end(&mut group);
        assert!(group.may_have_credit(us(10_000)), "nobody waits for credit");
    }

    #[test]
    fn a_queue_without_commands_is_not_express() {
        let (mut queue, mut group) = queue(us(5000));
        assert!(settle(&mut queue, &mut group, us(5000)));
        assert!(group.is_look_due(us(20_000)) && !group.is_look_due(us(29_999)));
        group.others_at = Some(us(104_999));
        assert!(settle(&mut queue, &mut group, us(104_999)));
        assert!(!settle(&mut queue, &mut group, us(105_000)));
        assert!(!group.is_look_due(us(105_000)), "there is none");
    }

    #[test]
    fn a_connection_that_cannot_be_express_is_not_tried_again() {
        let (mut queue, mut group) = queue(us(5000));
        assert!(queue.is_to_change(&mut group, us(5000)));
        queue.changed(&mut group, false, us(5000));
        assert!(!queue.is_express() && !queue.is_to_change(&mut group, us(9000)));
    }

    /// Settles these queues as their commands come; those that are express then.
    fn settle_all(queues: &mut [QueueClass], group: &mut Express, now: Duration) -> Vec<usize> {
        for queue in &mut *queues {
            if queue.is_to_change(group, now) {
                queue.changed(group, true, now);
            }
        }
        let express = queues.iter().enumerate().filter(|(_, queue)| queue.is_express());
        express.map(|(connection, _)| connection).collect()
    }

    /// The next turns are given.
    fn give_turns(queues: &mut [QueueClass], group: &mut Express, now: Duration) {
        let (leaving, entering) = group.next_turns();
        for (is_given, of) in [(false, leaving), (true, entering)] {
            for connection in of {
                let queue = &mut queues[connection];
                queue.set_place(is_given);
                assert!(queue.is_to_change(group, now), "{connection} {is_given}");
                queue.changed(group, true, now);
            }
        }
    }

    #[test]
    fn a_group_has_so_many_express_queues_at_most() {
        let (_, mut group) = queue(us(5000));
        let mut queues: Vec<_> =
            (0..QUEUES_MAX + 9).map(|one| class_of(Grant::Automatic, one, &group)).collect();
        let express = settle_all(&mut queues, &mut group, us(5000));
        assert_eq!(express, (0..QUEUES_MAX).collect::<Vec<_>>());
        assert_eq!((group.queues(), group.waiting.len()), (QUEUES_MAX, 9));
        for queue in &mut queues {
            queue.end(&mut group);
            assert!(!queue.is_to_change(&mut group, us(5000)));
        }
        assert_eq!((group.queues(), group.waiting.len()), (0, 0));
    }

    /// 200 of one host have equal turns; the queue of another host, one of a rule and one that
    /// waits no longer have theirs throughout, or not at all.
    #[test]
    fn queues_take_turns_and_hosts_have_equally_many() {
        let (_, mut group) = queue(us(5000));
        let ruled = Grant::Rule(QosClass::Latency, 0);
        let of_host = |connection: usize, group: &Express| {
            let host = if connection == 200 { "nqn.2024-01.a:other" } else { "nqn.2024-01.a:h" };
            let grant = if connection == 201 { ruled } else { Grant::Automatic };
            QueueClass::new(grant, (connection, host), group, us(0))
        };
        let mut queues: Vec<_> = (0..203).map(|one| of_host(one, &group)).collect();
        let mut turns = vec![0; queues.len()];
        for turn in 0..100 {
            group.others_at = Some(us(5000));
            let _ = settle_all(&mut queues, &mut group, us(5000));
            if turn == 0 {
                let quiet = &mut queues[202];
                quiet.since = us(1_000_000);
                assert!(quiet.is_waiting && !quiet.is_to_change(&mut group, us(5000)));
                assert!(!quiet.is_waiting && group.waiting.len() == 200 - QUEUES_MAX + 1);
            }
            give_turns(&mut queues, &mut group, us(5000));
            assert_eq!(group.queues(), QUEUES_MAX);
            for (turns, queue) in turns.iter_mut().zip(&queues) {
                *turns += usize::from(queue.is_express());
            }
        }
        assert_eq!((turns[200], turns[201], turns[202]), (100, 100, 0));
        // 62 places for 200 queues, a hundred times.
        assert!(turns[..200].iter().all(|turns| (30..=32).contains(turns)), "{turns:?}");
    }
}
