//! Express queues: I/O queues whose commands are served between the commands of others, so that a
//! host that waits for each answer does not wait for the others' as well.
//!
//! The commands of a turn stay one batch, which is interrupted: between two of them one word says
//! whether something has come for an express queue ([`Reactor::has_express`]). Then that is
//! received, begun, executed and answered at once. The others send in slices meanwhile.
//!
//! A queue is express by a rule, because its host asked for it with Connect, or by itself while it
//! has few and small commands in flight and another queue of the group does not. Each of these has
//! a part of the time ([`Budgets`]); without credit its queues are served in their turn.
//!
//! [`Reactor::has_express`]: weft_reactor::Reactor::has_express

use std::sync::Arc;
use std::time::Duration;

use weft_reactor::ReactorCompletion;

use super::budget::{AccountId, Budgets};
use super::connection::{Connection, Role};
use super::core::CONNECTIONS;
use super::{Group, devices};
use crate::classes::{ClassWord, Grant};
use crate::config::{QosClass, QosRule};

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

/// How often the express queues are looked through for those that are to be so no longer.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The express queues of a group together.
#[derive(Debug)]
pub(crate) struct Express {
    budgets: Budgets,
    /// Since when one of them is being served.
    served_since: Option<Duration>,
    /// Their connections.
    queues: Vec<usize>,
    /// When they were last looked through.
    looked_at: Duration,
    /// When a queue last had a command that is to be served in its turn.
    others_at: Option<Duration>,
    /// No queue is to be express without a rule.
    is_off: bool,
}

/// Whether a queue is express.
#[derive(Debug)]
pub(crate) struct QueueClass {
    /// Who decides it.
    grant: Grant,
    is_express: bool,
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
        let is_due = !self.queues.is_empty() && self.looked_at + LOOK_INTERVAL <= now;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// Whether a queue may be express, or stay so, for which no rule decides that: beside others,
    /// while there is a place, and not without commands.
    fn takes(&self, queue: &QueueClass, now: Duration) -> bool {
        let has_others = self.others_at.is_some_and(|at| now.saturating_sub(at) < OTHERS_TIME);
        let has_place = match queue.is_express {
            true => now.saturating_sub(queue.served_at) < IDLE_TIME,
            false => self.queues.len() < QUEUES_MAX,
        };
        has_others && has_place && !self.is_off
    }
}

impl QueueClass {
    /// The class of a queue that is granted now.
    pub(crate) fn new(grant: Grant, group: &Express, now: Duration) -> Self {
        let class = Self {
            grant,
            is_express: false,
            is_excluded: false,
            served_at: Duration::ZERO,
            since: now,
            shown: Arc::default(),
        };
        class.show(group);
        class
    }

    /// It is granted another class; the group's accounts are new.
    pub(crate) fn regrant(&mut self, grant: Grant, group: &mut Express) {
        self.grant = grant;
        if self.is_express {
            group.budgets.enter(self.account());
        }
        self.show(group);
    }

    /// What others see of it.
    pub(crate) fn shown(&self) -> Arc<ClassWord> {
        Arc::clone(&self.shown)
    }

    fn show(&self, group: &Express) {
        self.shown.set(self.grant.shown(self.is_express, group.is_off));
    }

    /// The account that it is charged to.
    pub(crate) const fn account(&self) -> AccountId {
        AccountId::of(self.grant)
    }

    /// Who decides it.
    pub(crate) const fn grant(&self) -> Grant {
        self.grant
    }

    /// Whether it is express.
    pub(crate) const fn is_express(&self) -> bool {
        self.is_express
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

    /// Whether it is to become express, or to be so no longer.
    #[inline]
    pub(crate) fn is_to_change(&self, group: &Express, now: Duration) -> bool {
        self.is_wanted(group, now) != self.is_express
    }

    /// It has become express, or is so no longer, if that was possible.
    pub(crate) fn changed(
        &mut self,
        group: &mut Express,
        connection: usize,
        is_done: bool,
        now: Duration,
    ) {
        self.is_excluded |= !is_done;
        if self.is_express {
            self.leave(group, connection);
        } else if is_done {
            (self.is_express, self.served_at) = (true, now);
            group.queues.push(connection);
            group.budgets.enter(self.account());
        }
        self.show(group);
    }

    /// Its connection is closed.
    pub(crate) fn end(&mut self, group: &mut Express, connection: usize) {
        self.leave(group, connection);
        self.is_excluded = true;
    }

    fn leave(&mut self, group: &mut Express, connection: usize) {
        if !std::mem::take(&mut self.is_express) {
            return;
        }
        group.budgets.leave(self.account());
        if let Some(place) = group.queues.iter().position(|queue| *queue == connection) {
            group.queues.swap_remove(place);
        }
    }

    fn is_wanted(&self, group: &Express, now: Duration) -> bool {
        let is_granted = match self.grant {
            Grant::Automatic => {
                group.takes(self, now) && now.saturating_sub(self.since) >= PROBATION
            }
            Grant::Connect(QosClass::Latency) => group.takes(self, now),
            // The operator's word: it holds beside whatever others, and without commands as well.
            Grant::Rule(QosClass::Latency, _) => {
                self.is_express || group.queues.len() < QUEUES_RULED_MAX
            }
            Grant::Rule(QosClass::Throughput, _) | Grant::Connect(QosClass::Throughput) => false,
        };
        is_granted && !self.is_excluded
    }
}

impl Group {
    /// The reactor has been polled: serves what has come for express queues before anything else.
    pub(super) fn begin_express_turn(&mut self, completions: &mut Vec<ReactorCompletion>) {
        let now = self.core.reactor.turn_time();
        if self.core.express.is_look_due(now) {
            // From the last one on: one that leaves the list gives its place to the last.
            for place in (0..self.core.express.queues()).rev() {
                let index = self.core.express.queues.get(place).copied();
                self.with_if_changed(index.unwrap_or(usize::MAX), |connection, core| {
                    connection.settle_class(now, core);
                    false
                });
            }
        }
        if self.core.reactor.has_express() {
            self.take_express();
            completions.append(&mut self.deferred);
        }
        self.core.devices.counters().set_express_queues(self.core.express.queues());
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
        for completion in completions.drain(..) {
            if let Err(completion) = self.dispatch_express(completion) {
                self.deferred.push(completion);
            }
        }
        self.express_completions = completions;
    }

    /// Serves an express queue at once, if the completion is for one and it has credit.
    pub(super) fn dispatch_express(
        &mut self,
        completion: ReactorCompletion,
    ) -> Result<(), ReactorCompletion> {
        if self.core.express.queues() == 0 || completion.token.owner != CONNECTIONS {
            return Err(completion);
        }
        let index = weft_transport::tag_of(completion.token) as usize;
        let account = self.connections.at(index).and_then(Connection::express_account);
        let Some(account) = account else { return Err(completion) };
        let now = self.core.reactor.now();
        if !self.core.express.budgets.has_credit(account, now) {
            return Err(completion);
        }
        self.serve_at_once((index, account), completion, now);
        Ok(())
    }

    /// Counts that what came for a connection waits for its turn, if that is an express queue.
    pub(super) fn count_refused(&self, index: usize) {
        let has_come = |one: &Connection| one.is_express() && one.transport.has_events();
        if self.connections.at(index).is_some_and(has_come) {
            self.core.devices.counters().count_express_refused();
        }
    }

    /// Serves an express queue: from what was received to the answer that is sent.
    fn serve_at_once(
        &mut self,
        (index, account): (usize, AccountId),
        completion: ReactorCompletion,
        since: Duration,
    ) {
        let Some(mut connection) = self.connections.take(index) else { return };
        let core = &mut self.core;
        let allowance = core.admission.begin_express();
        core.express.served_since = Some(since);
        connection.handle(completion, core);
        let is_served = connection.transport.has_events();
        // What goes to a device is flushed to it, see `Io::execute`.
        connection.handle_events(core);
        while let Some(done) = core.devices.poll_completion(since) {
            if devices::origin(done.tag).0 == index {
                let now = core.reactor.now();
                connection.handle_done(done, now, core);
            } else {
                self.set_aside.push_back(done);
            }
        }
        core.flush(&mut connection);
        core.express.served_since = None;
        core.admission.end_express(allowance);
        let now = core.reactor.now();
        let took = now.saturating_sub(since);
        core.express.budgets.charge(account, took, now);
        core.shares.leave_out(took);
        core.devices.counters().count_express(u64::from(is_served), took);
        if is_served && let Role::Io(io) = &mut connection.role {
            io.class.served_at = now;
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

    fn automatic(group: &Express) -> QueueClass {
        QueueClass::new(Grant::Automatic, group, us(0))
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
            queue.changed(group, CONNECTION, true, now);
        }
        assert_eq!(group.queues(), usize::from(queue.is_express()));
        assert_eq!(queue.shown.get(), queue.grant.shown(queue.is_express(), group.is_off));
        queue.is_express()
    }

    const CONNECTION: usize = 7;

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
            queue.regrant(Grant::Automatic, &mut group);
            assert_eq!(settle(&mut queue, &mut group, us(5000)), expected);
        }
    }

    /// Whatever it does, and whether or not that is on.
    #[test]
    fn a_rule_decides_alone() {
        let mut group = Express::new(false, &[]);
        let [latency, throughput] =
            [QosClass::Latency, QosClass::Throughput].map(|class| Grant::Rule(class, 0));
        let mut queue = QueueClass::new(latency, &group, us(0));
        assert!(settle(&mut queue, &mut group, us(0)));
        queue.count(&mut group, (128, 1 << 20), us(1));
        assert!(settle(&mut queue, &mut group, us(1)));
        assert!(settle(&mut queue, &mut group, us(10_000_000)), "without commands");
        assert_eq!(group.others_at, None);
        group.replace(true, &[], &[]);
        queue.regrant(throughput, &mut group);
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
        let mut queue = QueueClass::new(urgent, &group, us(5000));
        queue.count(&mut group, (128, 1 << 20), us(5000));
        assert!(settle(&mut queue, &mut group, us(5000)));
        assert!(!settle(&mut queue, &mut group, us(105_000)), "the others have gone");
        let mut other = QueueClass::new(Grant::Connect(QosClass::Throughput), &group, us(0));
        other.count(&mut group, (1, 512), us(105_000));
        assert!(!other.is_to_change(&group, us(105_000)));
        assert!(settle(&mut queue, &mut group, us(105_000)));
    }

    #[test]
    fn an_express_queue_is_charged_to_its_own_account_at_all_times() {
        let (_, mut group) = self::queue(us(5000));
        let rule = Grant::Rule(QosClass::Latency, 0);
        let mut queue = automatic(&group);
        assert!(settle(&mut queue, &mut group, us(5000)));
        group.budgets.charge(AccountId::of(Grant::Automatic), us(300), us(10_000));
        assert!(!group.may_have_credit(us(10_000)));
        let rules = [QosRule {
            host: None,
            subsystem: None,
            port: None,
            class: QosClass::Latency,
            budget: None,
            weight: None,
        }];
        group.replace(true, &[], &rules);
        queue.regrant(rule, &mut group);
        assert!(group.may_have_credit(us(10_000)));
        group.budgets.charge(queue.account(), us(300), us(10_000));
        assert!(!group.may_have_credit(us(10_000)));
        queue.end(&mut group, CONNECTION);
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
        assert!(queue.is_to_change(&group, us(5000)));
        queue.changed(&mut group, CONNECTION, false, us(5000));
        assert!(!queue.is_express() && !queue.is_to_change(&group, us(9000)));
    }

    #[test]
    fn a_group_has_so_many_express_queues_at_most() {
        let (_, mut group) = queue(us(5000));
        let mut queues: Vec<_> = (0..QUEUES_MAX + 9).map(|_| automatic(&group)).collect();
        for (connection, queue) in queues.iter_mut().enumerate() {
            if queue.is_to_change(&group, us(5000)) {
                queue.changed(&mut group, connection, true, us(5000));
            }
        }
        assert_eq!(group.queues(), QUEUES_MAX);
        assert_eq!(queues.iter().filter(|queue| queue.is_express()).count(), QUEUES_MAX);
        for (connection, queue) in queues.iter_mut().enumerate() {
            queue.end(&mut group, connection);
            assert!(!queue.is_to_change(&group, us(5000)));
        }
        assert_eq!(group.queues(), 0);
    }
}
