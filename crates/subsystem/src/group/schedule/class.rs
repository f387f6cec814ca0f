//! The class latency: which queues are express ones, served between the commands of others, and for
//! how much of a group's time.
//!
//! A queue is express by a rule, because its host asked for it with Connect, or by itself while it
//! has few and small commands in flight and another queue of the group does not. All express queues
//! of a group have one part of its time together ([`Credit`]); without credit they are served in
//! their turn. Where more queues are to be express without a rule than there are places, they take
//! turns ([`turns`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::config::QosClass;
use crate::shared::classes::{ClassSource, ClassWord};

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

/// The part of a group's time that its express queues have together, in percent: the others always
/// have the rest.
const EXPRESS_PERCENT: u32 = 50;

/// The time of which they can use their part at once; what is older is lost.
const CREDIT_TIME: Duration = Duration::from_millis(1);

/// The express queues of a group together.
#[derive(Debug)]
pub(crate) struct Express {
    credit: Credit,
    /// Since when one of them is being served.
    served_since: Option<Duration>,
    /// The oldest first.
    queues: Vec<ExpressCandidate>,
    /// Others that are to be express when there is a place, in their order.
    waiting: VecDeque<ExpressCandidate>,
    /// When they were last looked through.
    looked_at: Duration,
    /// The last look at which nothing had come for one of them.
    empty_at: Duration,
    /// When a queue last had a command that is to be served in its turn.
    others_at: Option<Duration>,
    /// No queue is to be express without a rule.
    is_off: bool,
}

/// A token bucket of time.
#[derive(Debug, Default)]
struct Credit {
    /// When the part of the time until then covers what was used.
    paid_at: Duration,
}

impl Credit {
    fn is_there(&self, now: Duration) -> bool {
        self.paid_at <= now
    }

    /// So much was used until now.
    fn charge(&mut self, took: Duration, now: Duration) {
        let from = self.paid_at.max(now.saturating_sub(CREDIT_TIME));
        self.paid_at = from + took * 100 / EXPRESS_PERCENT;
    }
}

/// A queue that is express, or waits for that.
#[derive(Debug, Clone)]
struct ExpressCandidate {
    connection: usize,
    host: Arc<str>,
    /// A rule decides it.
    is_ruled: bool,
}

/// Whether a queue is express.
#[derive(Debug)]
pub(crate) struct QueueClass {
    /// Who decides it.
    grant: ClassSource,
    /// Its connection, and whose it is.
    place: ExpressCandidate,
    state: ClassState,
    /// When it was last served as an express queue, or became one.
    served_at: Duration,
    /// Since when it has behaved as an express queue.
    since: Duration,
    /// What others see of it.
    shown: Arc<ClassWord>,
}

/// How far a queue is on its way to be express, and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClassState {
    /// It is served in its turn.
    Ordinary,
    /// So it is, and it waits for a place among those without a rule.
    Waiting,
    /// It has got a place, and is express next.
    Entering,
    Express,
    /// It is express, and no longer next: it may wait for another place already.
    Leaving {
        is_waiting: bool,
    },
    /// Its connection cannot be express.
    Excluded,
}

impl Express {
    /// None yet. Whether queues may be express without a rule.
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            credit: Credit::default(),
            served_since: None,
            queues: Vec::new(),
            waiting: VecDeque::new(),
            looked_at: Duration::ZERO,
            empty_at: Duration::ZERO,
            others_at: None,
            is_off: !is_on,
        }
    }

    /// The same from now on; every queue is to be [granted](QueueClass::regrant) its class again.
    pub(crate) fn replace(&mut self, is_on: bool) {
        self.is_off = !is_on;
    }

    /// How many queues are express.
    pub(crate) const fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Whether they have credit: otherwise they are served in their turn.
    pub(crate) fn has_credit(&self, now: Duration) -> bool {
        self.credit.is_there(now)
    }

    /// Nothing had come for them at this look.
    pub(crate) const fn looked(&mut self, now: Duration) {
        self.empty_at = now;
    }

    /// The last look that found nothing: what is found now has come since then.
    pub(crate) const fn empty_at(&self) -> Duration {
        self.empty_at
    }

    /// Since when one of them is being served, if one is.
    pub(crate) const fn served_since(&self) -> Option<Duration> {
        self.served_since
    }

    /// One of them is being served from now on.
    pub(crate) const fn begin(&mut self, now: Duration) {
        self.served_since = Some(now);
    }

    /// It was served until now. How long that took.
    pub(crate) fn end(&mut self, now: Duration) -> Duration {
        let took = now.saturating_sub(self.served_since.take().unwrap_or(now));
        self.credit.charge(took, now);
        took
    }

    /// The connections whose queues are express.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.queues.iter().map(|place| place.connection).collect()
    }

    /// Whether queues wait for a place.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it is time to look them through.
    pub(crate) fn is_look_due(&mut self, now: Duration) -> bool {
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
    pub(crate) fn has_others(&self, now: Duration) -> bool {
        self.others_at.is_some_and(|at| now.saturating_sub(at) < OTHERS_TIME)
    }

    /// Whether a queue without a rule finds a place that nobody waits for.
    fn has_free_place(&self) -> bool {
        self.queues.len() < QUEUES_MAX && self.waiting.is_empty()
    }

    /// The queues that give their places to others now, and those that get one. Each host has as
    /// many as the others, or as it has use for.
    pub(crate) fn next_turns(&mut self) -> (Vec<usize>, Vec<usize>) {
        let waiting = std::mem::take(&mut self.waiting);
        let without_rule = self.queues.iter().filter(|place| !place.is_ruled);
        let ruled = self.queues.len() - without_rule.clone().count();
        let mut chosen =
            turns(waiting.iter().chain(without_rule.clone()), QUEUES_MAX - ruled.min(QUEUES_MAX));
        chosen.sort_unstable();
        let has_turn = |connection: &usize| chosen.binary_search(connection).is_ok();
        let leaving: Vec<ExpressCandidate> =
            without_rule.filter(|place| !has_turn(&place.connection)).cloned().collect();
        let (entering, waiting): (Vec<ExpressCandidate>, Vec<ExpressCandidate>) =
            waiting.into_iter().partition(|place| has_turn(&place.connection));
        let connections =
            |of: &[ExpressCandidate]| of.iter().map(|place| place.connection).collect();
        let changes = (connections(&leaving), connections(&entering));
        // In their order, so that all have their turns equally often.
        self.waiting = waiting.into_iter().chain(leaving).collect();
        changes
    }
}

/// Who has the next turn of all that want a place, the longest wait first: hosts choose one of
/// theirs one after the other.
fn turns<'a>(all: impl Iterator<Item = &'a ExpressCandidate>, places: usize) -> Vec<usize> {
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
        grant: ClassSource,
        connection: usize,
        host: &str,
        group: &Express,
        now: Duration,
    ) -> Self {
        let class = Self {
            grant,
            place: ExpressCandidate {
                connection,
                host: host.into(),
                is_ruled: matches!(grant, ClassSource::Rule(..)),
            },
            state: ClassState::Ordinary,
            served_at: Duration::ZERO,
            since: now,
            shown: Arc::default(),
        };
        class.show(group);
        class
    }

    /// It is granted another class.
    pub(crate) fn regrant(&mut self, grant: ClassSource, group: &mut Express) {
        self.grant = grant;
        self.place.is_ruled = matches!(grant, ClassSource::Rule(..));
        self.wait_no_longer(group);
        self.state = match self.state {
            ClassState::Entering => ClassState::Ordinary,
            ClassState::Leaving { .. } => ClassState::Express,
            other => other,
        };
        let (connection, is_ruled) = (self.place.connection, self.place.is_ruled);
        let own = group.queues.iter_mut().find(|place| place.connection == connection);
        own.into_iter().for_each(|place| place.is_ruled = is_ruled);
        self.show(group);
    }

    /// What others see of it.
    pub(crate) fn shown(&self) -> Arc<ClassWord> {
        Arc::clone(&self.shown)
    }

    fn show(&self, group: &Express) {
        self.shown.set(self.grant.shown(self.is_express(), group.is_off));
    }

    /// Who decides it.
    pub(crate) const fn grant(&self) -> ClassSource {
        self.grant
    }

    /// Whether it is express.
    pub(crate) const fn is_express(&self) -> bool {
        matches!(self.state, ClassState::Express | ClassState::Leaving { .. })
    }

    /// A command of so many bytes begins, with which the queue has this many in flight.
    #[inline]
    pub(crate) fn count(
        &mut self,
        group: &mut Express,
        in_flight: usize,
        bytes: usize,
        now: Duration,
    ) {
        let is_large = in_flight > IN_FLIGHT_MAX || bytes > BYTES_MAX;
        match self.grant {
            ClassSource::Automatic if is_large => {
                self.since = now;
                group.others_at = Some(now);
            }
            ClassSource::Rule(QosClass::Throughput, _)
            | ClassSource::Connect(QosClass::Throughput) => {
                group.others_at = Some(now);
            }
            _ => {}
        }
    }

    /// Whether it is to become express, or to be so no longer. It waits for a place if it needs
    /// one.
    #[inline]
    pub(crate) fn is_to_change(&mut self, group: &mut Express, now: Duration) -> bool {
        if !self.is_wanted(group, now) {
            self.wait_no_longer(group);
            self.state = match self.state {
                ClassState::Entering => ClassState::Ordinary,
                ClassState::Express => ClassState::Leaving { is_waiting: false },
                other => other,
            };
            return self.is_express();
        }
        match self.state {
            ClassState::Ordinary if self.place.is_ruled || group.has_free_place() => true,
            ClassState::Ordinary => {
                self.state = ClassState::Waiting;
                group.waiting.push_back(self.place.clone());
                false
            }
            ClassState::Leaving { .. } if self.place.is_ruled => {
                self.state = ClassState::Express;
                false
            }
            ClassState::Entering | ClassState::Leaving { .. } => true,
            ClassState::Waiting | ClassState::Express | ClassState::Excluded => false,
        }
    }

    /// It has become express, or is so no longer, if that was possible.
    pub(crate) fn changed(&mut self, group: &mut Express, is_done: bool, now: Duration) {
        if !is_done {
            self.end(group);
        } else if self.is_express() {
            self.leave(group);
        } else {
            self.served_at = now;
            self.state = ClassState::Express;
            group.queues.push(self.place.clone());
        }
        self.show(group);
    }

    /// It was served until now.
    pub(crate) const fn served(&mut self, now: Duration) {
        self.served_at = now;
    }

    /// It has its turn among those without a rule, or waits for the next one.
    pub(crate) const fn set_place(&mut self, is_given: bool) {
        self.state = match (self.state, is_given) {
            (ClassState::Excluded, _) => ClassState::Excluded,
            (ClassState::Express | ClassState::Leaving { .. }, true) => ClassState::Express,
            (ClassState::Express | ClassState::Leaving { .. }, false) => {
                ClassState::Leaving { is_waiting: true }
            }
            (_, true) => ClassState::Entering,
            (_, false) => ClassState::Waiting,
        };
    }

    /// Its connection is closed, or cannot be express.
    pub(crate) fn end(&mut self, group: &mut Express) {
        self.wait_no_longer(group);
        self.leave(group);
        self.state = ClassState::Excluded;
    }

    fn wait_no_longer(&mut self, group: &mut Express) {
        self.state = match self.state {
            ClassState::Waiting => ClassState::Ordinary,
            ClassState::Leaving { is_waiting: true } => ClassState::Leaving { is_waiting: false },
            _ => return,
        };
        group.waiting.retain(|place| place.connection != self.place.connection);
    }

    fn leave(&mut self, group: &mut Express) {
        self.state = match self.state {
            ClassState::Express | ClassState::Leaving { is_waiting: false } => ClassState::Ordinary,
            ClassState::Leaving { is_waiting: true } => ClassState::Waiting,
            _ => return,
        };
        group.queues.retain(|place| place.connection != self.place.connection);
    }

    /// Whether it is to be express, if there is a place.
    fn is_wanted(&self, group: &Express, now: Duration) -> bool {
        match self.grant {
            ClassSource::Automatic => {
                group.takes(self, now) && now.saturating_sub(self.since) >= PROBATION
            }
            ClassSource::Connect(QosClass::Latency) => group.takes(self, now),
            // The operator's word: it holds beside whatever others, and without commands as well.
            ClassSource::Rule(QosClass::Latency, _) => {
                self.is_express() || group.queues.len() < QUEUES_RULED_MAX
            }
            ClassSource::Rule(QosClass::Throughput, _)
            | ClassSource::Connect(QosClass::Throughput) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    fn group() -> Express {
        Express::new(true)
    }

    fn class_of(grant: ClassSource, connection: usize, group: &Express) -> QueueClass {
        QueueClass::new(grant, connection, "nqn.2024-01.a:h", group, us(0))
    }

    fn automatic(group: &Express) -> QueueClass {
        class_of(ClassSource::Automatic, 0, group)
    }

    /// A queue, and a group in which another one has had large commands at `others_at`.
    fn queue(others_at: Duration) -> (QueueClass, Express) {
        let mut group = group();
        let mut other = automatic(&group);
        other.count(&mut group, 1, BYTES_MAX + 1, others_at);
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
        queue.count(&mut group, IN_FLIGHT_MAX, BYTES_MAX, us(999));
        assert!(settle(&mut queue, &mut group, us(1000)));
        for (in_flight, bytes) in [(IN_FLIGHT_MAX + 1, 512), (1, BYTES_MAX + 1)] {
            queue.count(&mut group, in_flight, bytes, us(2000));
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
            queue.count(&mut group, 1, 4096, us(now * 100));
            assert!(!settle(&mut queue, &mut group, us(now * 100)));
        }
    }

    #[test]
    fn no_queue_is_express_where_that_is_off() {
        let (mut queue, mut group) = queue(us(5000));
        assert!(settle(&mut queue, &mut group, us(5000)));
        for (is_on, expected) in [(false, false), (true, true)] {
            group.replace(is_on);
            queue.regrant(ClassSource::Automatic, &mut group);
            assert_eq!(settle(&mut queue, &mut group, us(5000)), expected);
        }
    }

    /// Whatever it does, and whether or not that is on.
    #[test]
    fn a_rule_decides_alone() {
        let mut group = Express::new(false);
        let [latency, throughput] =
            [QosClass::Latency, QosClass::Throughput].map(|class| ClassSource::Rule(class, 0));
        let mut queue = class_of(latency, 0, &group);
        assert!(settle(&mut queue, &mut group, us(0)));
        queue.count(&mut group, 128, 1 << 20, us(1));
        assert!(settle(&mut queue, &mut group, us(1)));
        assert!(settle(&mut queue, &mut group, us(10_000_000)), "without commands");
        assert_eq!(group.others_at, None);
        group.replace(true);
        queue.regrant(throughput, &mut group);
        assert!(!settle(&mut queue, &mut group, us(10_000_000)));
        queue.count(&mut group, 1, 512, us(10_000_000));
        assert_eq!(group.others_at, Some(us(10_000_000)), "others are beside it");
        assert!(!settle(&mut queue, &mut group, us(10_002_000)));
    }

    /// Its host has said so: from the first command on, and with many of them, but not alone.
    #[test]
    fn a_priority_decides_beside_others() {
        let (_, mut group) = self::queue(us(5000));
        let urgent = ClassSource::Connect(QosClass::Latency);
        let mut queue = class_of(urgent, 0, &group);
        queue.count(&mut group, 128, 1 << 20, us(5000));
        assert!(settle(&mut queue, &mut group, us(5000)));
        assert!(!settle(&mut queue, &mut group, us(105_000)), "the others have gone");
        let mut other = class_of(ClassSource::Connect(QosClass::Throughput), 1, &group);
        other.count(&mut group, 1, 512, us(105_000));
        assert!(!other.is_to_change(&mut group, us(105_000)));
        assert!(settle(&mut queue, &mut group, us(105_000)));
    }

    proptest! {
        /// In any time, express queues take their part of it, that part of a millisecond more, and
        /// what the last service took; and they have credit again in time.
        #[test]
        fn express_queues_take_their_part(
            services in proptest::collection::vec((0_u64..2000, 0_u64..100), 1..200),
        ) {
            let mut credit = Credit::default();
            let mut now = us(10_000);
            let mut served = Vec::new();
            for (pause, took) in services {
                now += us(pause);
                if credit.is_there(now) {
                    let begun = now;
                    now += us(took);
                    credit.charge(us(took), now);
                    served.push((begun, now));
                }
                prop_assert!(credit.is_there(now + us(100) * 100 / EXPRESS_PERCENT));
            }
            for (first, (begun, _)) in served.iter().enumerate() {
                let mut used = Duration::ZERO;
                for (since, until) in &served[first..] {
                    let time = (*since - *begun) + CREDIT_TIME;
                    prop_assert!(used * 100 <= time * EXPRESS_PERCENT + us(20));
                    used += *until - *since;
                }
            }
        }
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
            (0..QUEUES_MAX + 9).map(|one| class_of(ClassSource::Automatic, one, &group)).collect();
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
        let ruled = ClassSource::Rule(QosClass::Latency, 0);
        let of_host = |connection: usize, group: &Express| {
            let host = if connection == 200 { "nqn.2024-01.a:other" } else { "nqn.2024-01.a:h" };
            let grant = if connection == 201 { ruled } else { ClassSource::Automatic };
            QueueClass::new(grant, connection, host, group, us(0))
        };
        let mut queues: Vec<_> = (0..203).map(|one| of_host(one, &group)).collect();
        let mut turns = vec![0; queues.len()];
        for turn in 0..100 {
            group.others_at = Some(us(5000));
            let _ = settle_all(&mut queues, &mut group, us(5000));
            if turn == 0 {
                let quiet = &mut queues[202];
                quiet.since = us(1_000_000);
                assert_eq!(quiet.state, ClassState::Waiting);
                assert!(!quiet.is_to_change(&mut group, us(5000)));
                assert_eq!(quiet.state, ClassState::Ordinary);
                assert_eq!(group.waiting.len(), 200 - QUEUES_MAX + 1);
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
