//! Latency targets: how much others lose so that a rule's express queues keep a p99.
//!
//! What counts is a command's residence: from the last look at which nothing had come for express
//! queues until its answer is sent, or until its device has it if that does not answer at once. If
//! more than 1 % of a rule's are longer than its target, what delays them is made smaller by a
//! step: the slices in which others' answers are sent, then what a turn begins of others. If the
//! target is met for a while, the last step is taken back; the while becomes longer each time that
//! this was too early.
//!
//! What others lose by that is measured: the group's time for each [`COMMAND_BYTES`] that they
//! begin, without express work and idle time, beside the same without any step, which a short time
//! in each [`PROBE_INTERVAL`] shows. If it is more than a rule allows, the last step is taken back.
//! A target that is still missed then cannot be reached on this core.
//!
//! [`COMMAND_BYTES`]: crate::shared::limits::COMMAND_BYTES

use std::time::Duration;

use crate::config::QosRule;
use crate::shared::classes::Grant;
use crate::shared::limits::{COMMAND_BYTES, TURN_BYTES};
use crate::shared::statistics::{LatencyState, LatencyTarget, ns};

/// How often it is looked whether targets are met.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// So many commands say what the p99 is.
const SAMPLES: usize = 100;

/// Those of a look that are kept.
const SAMPLES_MAX: usize = 4096;

/// After so long fewer say it, too.
const SAMPLES_TIME_MAX: Duration = Duration::from_secs(1);

/// How often a target is to be met before a step is taken back, at first and at most.
const PATIENCE: u32 = 5;
const PATIENCE_MAX: u32 = 320;

/// How often a target is missed, where no further step is possible, until it cannot be reached.
const MISSED_MAX: u32 = 5;

/// How often others have a look without steps: half a percent of the time, so that it is not seen
/// in the p99. So long a step that has cost too much is not taken again.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Of so many [`COMMAND_BYTES`] a time says what one takes.
const UNITS_MIN: u64 = 64;

/// So many looks say what a step costs.
const PACES: u32 = 3;

/// What express queues wait for, by step.
pub(crate) const STEPS: [Step; 6] = [
    Step { slice: 256 << 10, turn: TURN_BYTES },
    Step { slice: 128 << 10, turn: TURN_BYTES },
    Step { slice: 64 << 10, turn: TURN_BYTES },
    Step { slice: 64 << 10, turn: TURN_BYTES / 2 },
    Step { slice: 64 << 10, turn: TURN_BYTES / 4 },
    Step { slice: 32 << 10, turn: TURN_BYTES / 8 },
];

/// What express queues wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bytes that others send at once.
    pub(crate) slice: usize,
    /// Bytes that a turn begins of others.
    pub(crate) turn: usize,
}

/// The latency targets of a group.
#[derive(Debug, Default)]
pub(crate) struct LatencyTargets {
    rules: Vec<Ruled>,
    step: usize,
    /// No step beyond this one until then: it has cost too much.
    ceiling: usize,
    ceiling_until: Duration,
    /// How often all targets were met since the last change, and how often that is enough.
    met: u32,
    patience: u32,
    /// The last change was a step taken back.
    is_relaxed: bool,
    /// How often one was missed where no step was left.
    stuck: u32,
    /// Others have this look without steps.
    is_probe: bool,
    probed_at: Duration,
    looked_at: Duration,
    judged_at: Duration,
    /// The last look at which nothing had come.
    empty_at: Duration,
    idle: Duration,
    begun: usize,
    express: Duration,
    /// The time of [`COMMAND_BYTES`], in ns: without steps, and with the present one.
    free_ns: Option<u64>,
    pace_ns: Option<u64>,
    paces: u32,
}

/// A rule with a target.
#[derive(Debug)]
struct Ruled {
    /// Its place among all rules.
    place: usize,
    target: Duration,
    max_loss: u8,
    residences: Vec<Duration>,
    /// Commands that were served in their turn.
    refused: usize,
    since: Duration,
    p99: Option<Duration>,
    state: LatencyState,
}

impl Ruled {
    /// What its commands say since the last time, if these are enough.
    fn judge(&mut self, now: Duration) -> Option<LatencyState> {
        let count = self.residences.len() + self.refused;
        let is_late = self.since + SAMPLES_TIME_MAX <= now;
        if count < SAMPLES && !is_late {
            return None;
        }
        self.since = now;
        let refused = std::mem::take(&mut self.refused);
        let mut residences = std::mem::take(&mut self.residences);
        let last = residences.len().checked_sub(1);
        let place = (residences.len() * 99).div_ceil(100).saturating_sub(1);
        self.p99 = last.map(|_| *residences.select_nth_unstable(place).1);
        residences.clear();
        self.residences = residences;
        self.state = match self.p99 {
            _ if refused * 100 > count => LatencyState::OverBudget,
            None => LatencyState::Unknown,
            Some(p99) if p99 <= self.target => LatencyState::Met,
            Some(_) => LatencyState::Missed,
        };
        (self.state != LatencyState::Unknown).then_some(self.state)
    }
}

impl LatencyTargets {
    /// Those of these rules, in a group that has begun so many bytes and was idle for so long.
    pub(crate) fn new(rules: &[QosRule], begun: usize, idle: Duration, now: Duration) -> Self {
        let ruled = rules.iter().enumerate().filter_map(|(place, rule)| {
            Some(Ruled {
                place,
                target: rule.latency_target?,
                max_loss: rule.max_throughput_loss(),
                residences: Vec::new(),
                refused: 0,
                since: now,
                p99: None,
                state: LatencyState::Unknown,
            })
        });
        Self {
            rules: ruled.collect(),
            ceiling: STEPS.len() - 1,
            patience: PATIENCE,
            looked_at: now,
            judged_at: now,
            probed_at: now,
            empty_at: now,
            begun,
            idle,
            ..Self::default()
        }
    }

    /// Whether there is one.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Nothing has come for express queues until now.
    #[inline]
    pub(crate) const fn looked(&mut self, now: Duration) {
        self.empty_at = now;
    }

    /// Since when a command that is served now may have been there.
    pub(crate) const fn empty_at(&self) -> Duration {
        self.empty_at
    }

    /// The reactor has been polled until now, and was idle for so long since its start.
    pub(crate) fn polled(&mut self, idle: Duration, now: Duration) {
        if idle > self.idle {
            self.looked_at += idle - self.idle;
            (self.idle, self.empty_at) = (idle, now);
        }
    }

    /// A queue of a rule was served, with so long a residence.
    pub(crate) fn served(&mut self, grant: Grant, residence: Duration) {
        if let Some(rule) = self.rule(grant)
            && rule.residences.len() < SAMPLES_MAX
        {
            rule.residences.push(residence);
        }
    }

    /// A queue of a rule is served in its turn, as it has no credit.
    pub(crate) fn refused(&mut self, grant: Grant) {
        self.rule(grant).into_iter().for_each(|rule| rule.refused += 1);
    }

    /// Express work took so long.
    pub(crate) fn leave_out(&mut self, took: Duration) {
        self.express += took;
    }

    fn rule(&mut self, grant: Grant) -> Option<&mut Ruled> {
        let Grant::Rule(_, place) = grant else { return None };
        self.rules.iter_mut().find(|rule| rule.place == place)
    }

    /// The step in force.
    pub(crate) fn step(&self) -> Step {
        let step = if self.is_probe { 0 } else { self.step };
        STEPS.get(step).copied().unwrap_or(STEPS[0])
    }

    /// A turn has ended, and so many bytes were begun of others since the start, counted as in a
    /// turn's allowance. Whether it is known now how targets are met.
    pub(crate) fn end_turn(&mut self, begun: usize, now: Duration) -> bool {
        if now < self.looked_at + LOOK_INTERVAL {
            return false;
        }
        let express = std::mem::take(&mut self.express);
        let busy = (now - self.looked_at).saturating_sub(express);
        let units = begun.wrapping_sub(std::mem::replace(&mut self.begun, begun)) / COMMAND_BYTES;
        self.looked_at = now;
        if units as u64 >= UNITS_MIN {
            self.measure(ns(busy) / units as u64);
        }
        let was_probe = std::mem::take(&mut self.is_probe);
        if was_probe {
            // What others have without steps says nothing about these.
            self.rules.iter_mut().for_each(|rule| rule.residences.clear());
        } else {
            self.judge(now);
        }
        if self.step > 0 && !was_probe && self.probed_at + PROBE_INTERVAL <= now {
            (self.is_probe, self.probed_at) = (true, now);
        }
        true
    }

    /// Others took so long for each of their [`COMMAND_BYTES`].
    fn measure(&mut self, pace_ns: u64) {
        let mean = |before: Option<u64>| before.map_or(pace_ns, |one| (3 * one + pace_ns) / 4);
        if self.is_probe || self.step == 0 {
            self.free_ns = Some(mean(self.free_ns));
        } else {
            (self.pace_ns, self.paces) = (Some(mean(self.pace_ns)), self.paces + 1);
        }
    }

    /// What others lose, in percent.
    fn loss(&self) -> u8 {
        let (Some(free), Some(pace)) = (self.free_ns, self.pace_ns) else { return 0 };
        let loss = pace.saturating_sub(free) * 100 / pace.max(1);
        u8::try_from(loss).unwrap_or(100)
    }

    fn judge(&mut self, now: Duration) {
        let states: Vec<_> = self.rules.iter_mut().filter_map(|rule| rule.judge(now)).collect();
        let used = self.rules.iter().filter(|rule| rule.p99.is_some());
        let max_loss = used.map(|rule| rule.max_loss).min().unwrap_or(0);
        if self.step > 0 && self.paces >= PACES && self.loss() > max_loss {
            (self.ceiling, self.ceiling_until) = (self.step - 1, now + PROBE_INTERVAL);
            self.stuck = self.stuck.saturating_add(1);
            return self.set_step(self.step - 1);
        }
        if states.is_empty() {
            // Nobody uses it: others have all again.
            if self.judged_at + 2 * SAMPLES_TIME_MAX <= now && self.step > 0 {
                self.set_step(0);
            }
            return;
        }
        self.judged_at = now;
        if states.contains(&LatencyState::Missed) {
            if std::mem::take(&mut self.is_relaxed) {
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
            }
            self.met = 0;
            let last = if now < self.ceiling_until { self.ceiling } else { STEPS.len() - 1 };
            if self.step < last {
                return self.set_step(self.step + 1);
            }
            self.stuck = self.stuck.saturating_add(1);
        } else if !states.contains(&LatencyState::OverBudget) {
            self.met += 1;
            self.stuck = 0;
            if self.met < self.patience {
                return;
            }
            if std::mem::take(&mut self.is_relaxed) {
                self.patience = PATIENCE;
            }
            self.met = 0;
            if self.step > 0 {
                self.set_step(self.step - 1);
                self.is_relaxed = true;
            }
        }
    }

    fn set_step(&mut self, step: usize) {
        self.step = step;
        (self.pace_ns, self.paces) = (None, 0);
        (self.met, self.is_relaxed) = (0, false);
    }

    /// The target that is furthest from being met, of those that are used.
    pub(crate) fn worst(&self) -> Option<LatencyTarget> {
        let ratio = |rule: &&Ruled| {
            let p99 = rule.p99.unwrap_or_default();
            (
                rule.state == LatencyState::OverBudget,
                ns(p99).saturating_mul(1000) / ns(rule.target).max(1),
            )
        };
        let rule = self.rules.iter().max_by_key(ratio)?;
        let state = match rule.state {
            LatencyState::Missed if self.stuck >= MISSED_MAX => LatencyState::Unreachable,
            state => state,
        };
        let throughput_loss = self.loss();
        let p99 = rule.p99.unwrap_or_default();
        Some(LatencyTarget { target: rule.target, p99, state, throughput_loss })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QosClass;

    const MS: Duration = Duration::from_millis(1);

    fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    fn rule(target: Duration, loss: u8) -> QosRule {
        QosRule {
            host: None,
            subsystem: None,
            port: None,
            class: QosClass::Latency,
            budget: None,
            weight: None,
            latency_target: Some(target),
            max_throughput_loss: Some(loss),
        }
    }

    fn of(target: Duration, loss: u8) -> LatencyTargets {
        LatencyTargets::new(&[rule(target, loss)], 0, Duration::ZERO, Duration::from_secs(1))
    }

    const GRANT: Grant = Grant::Rule(QosClass::Latency, 0);

    /// A group whose express commands wait for a slice of others, which takes 1 µs for each 4 KiB
    /// and `each` besides. Its targets after so many looks, and what others had of what they have
    /// without express queues.
    fn run(targets: &mut LatencyTargets, each: u64, looks: usize) -> f64 {
        let (mut now, mut begun) = (targets.looked_at, targets.begun);
        let (mut sent, mut freely) = (0.0, 0.0);
        for _ in 0..looks {
            let slice = targets.step().slice as u64 / 4096;
            let of_slice = us(slice + each);
            let slices = 10_000 / (slice + each);
            begun += usize::try_from(slices).expect("few") * targets.step().slice;
            sent += (slices * slice) as f64;
            freely += (10_000 / (64 + each) * 64) as f64;
            for one in 0..50 {
                targets.served(GRANT, of_slice * (50 + one) / 100);
            }
            now += 10 * MS;
            assert!(targets.end_turn(begun, now));
        }
        sent / freely
    }

    #[test]
    fn a_target_that_can_be_reached_is_met_and_no_more_is_lost_than_needed() {
        let mut targets = of(us(40), 25);
        let kept = run(&mut targets, 1, 1000);
        let worst = targets.worst().expect("one");
        assert_eq!(worst.state, LatencyState::Met, "{worst:?}");
        assert!(worst.p99 <= us(40) && kept > 0.97, "{worst:?}, {kept}");
        // Slices of 64 KiB would cost 4 %.
        assert_eq!(targets.step, 1, "the others keep slices of 128 KiB");
        // Without steps it is missed, and this is seldom tried.
        assert!(targets.patience >= 160, "{}", targets.patience);
    }

    #[test]
    fn others_lose_no_more_than_a_rule_allows() {
        for (each, loss, least) in [(30, 25, 0.75), (30, 75, 0.28), (3, 10, 0.88)] {
            let mut targets = of(us(5), loss);
            // What is tried and costs too much is taken back after three looks.
            run(&mut targets, each, 100);
            let kept = run(&mut targets, each, 2000);
            let worst = targets.worst().expect("one");
            assert_eq!(worst.state, LatencyState::Unreachable, "{worst:?}");
            assert!(kept >= least - 0.03, "{kept}, {worst:?}");
            assert!(worst.throughput_loss <= loss, "{worst:?}");
        }
    }

    #[test]
    fn a_target_that_nobody_uses_costs_nothing() {
        let mut targets = of(us(5), 75);
        run(&mut targets, 1, 100);
        assert!(targets.step > 0);
        let mut now = targets.looked_at;
        for _ in 0..400 {
            now += 10 * MS;
            targets.end_turn(targets.begun, now);
        }
        assert_eq!(targets.step(), STEPS[0]);
    }

    #[test]
    fn what_is_over_its_budget_says_so() {
        let mut targets = of(us(50), 25);
        let now = targets.looked_at;
        (0..98).for_each(|_| targets.served(GRANT, us(10)));
        (0..2).for_each(|_| targets.refused(GRANT));
        targets.refused(Grant::Automatic);
        assert!(targets.end_turn(0, now + 10 * MS));
        assert_eq!(targets.worst().expect("one").state, LatencyState::OverBudget);
        assert_eq!(targets.step, 0, "others are not the reason");
    }

    #[test]
    fn a_residence_begins_at_the_last_empty_look() {
        let mut targets = of(us(50), 25);
        let at = |time| Duration::from_secs(1) + us(time);
        targets.looked(at(7));
        targets.polled(Duration::ZERO, at(9));
        assert_eq!(targets.empty_at(), at(7), "the reactor did not wait");
        targets.polled(us(20), at(40));
        assert_eq!(targets.empty_at(), at(40));
        assert!(!LatencyTargets::new(&[], 0, us(0), us(0)).is_on());
    }
}
