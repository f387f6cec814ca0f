//! A limit of a rate, shared by all groups: the generic cell rate algorithm (GCRA) with leases.
//!
//! One word says until which time the rate has been handed out. A command may begin if that time
//! has come, and moves it on by what the command costs; so a bucket is exceeded by one command at
//! most. The word stays at most [`Bucket::tolerance_ns`] behind the time: that is the burst. With
//! several groups, each takes a little more than its command needs from what has accrued (a
//! [`BucketShare`]), so that most commands do not write to the word that the groups share.
//!
//! Groups that wait for a bucket have equal shares of it for each flow that waits, whoever asks
//! first: each has a tag of what it has taken ([`WaitTags`]), and one that is ahead of another that
//! waits is refused while the other may still come.
//!
//! In any time, at most the rate of it, the burst, one command, and the rate of 1 ms for each group
//! is admitted. Time is counted in whole ns, and what is left of a ns stays in the lease: nothing
//! is rounded.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Units in a lease for one unit of the rate: a rate is per second, a lease counts in ns.
const NS: u128 = 1_000_000_000;

/// How much of a rate a group may lease, if there are several groups.
const LEASE_NS: u64 = 250_000;

/// What accrues while a group is late: for each group, together with its lease.
const SLACK_NS: u64 = 1_000_000;

/// How far a group may be ahead of another that waits: with less, groups that take many commands in
/// a turn would wait for each other.
const LEAD_NS: u64 = 100_000;

/// How long what has accrued is kept for a group that waits, at most: it may be at other work.
const PATIENCE_NS_MAX: u64 = 1_000_000;

/// Steps of a tag in a ns, so that a ns can be divided among the flows of a group.
const STEPS: u64 = 64;

/// No flow of the group waits.
const NOBODY: u64 = u64::MAX;

/// A limit of a rate.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Commands or bytes in a second.
    rate: u64,
    lease_ns: u64,
    tolerance_ns: u64,
    /// The time until which the rate has been handed out.
    handed_out_ns: AtomicU64,
    claims: WaitTags,
}

/// Who waits for a bucket, and how much each group has taken of it.
#[derive(Debug)]
struct WaitTags {
    /// By group; none if there is one group only.
    groups: Box<[WaitTag]>,
    /// The largest tag with which a group has begun to take.
    begun: AtomicU64,
    patience_ns: u64,
}

/// The claim of a group, which it alone writes: its tag while a flow of it waits, else [`NOBODY`].
#[derive(Debug)]
#[repr(align(64))]
struct WaitTag(AtomicU64);

/// A group's part of a bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BucketShare {
    /// The group's number.
    group: usize,
    /// What it has taken and not used, in units of the rate times ns.
    held: u128,
    /// How much of the rate it has taken for each of its flows.
    tag: u64,
    /// Its flows that wait for the bucket.
    flows: u64,
}

impl BucketShare {
    /// That of a group which has taken nothing.
    pub(crate) fn new(group: usize) -> Self {
        Self { group, ..Self::default() }
    }
}

impl Bucket {
    /// A bucket for this many groups, of a rate of 1 or more in a second. Its burst has accrued.
    pub(crate) fn new(rate: u64, burst: Duration, groups: usize) -> Self {
        let groups = u64::try_from(groups).unwrap_or(u64::MAX).max(1);
        let lease_ns = if groups > 1 { LEASE_NS } else { 0 };
        let slack_ns = groups.saturating_mul(SLACK_NS - lease_ns);
        let tolerance_ns = ns(burst).saturating_add(slack_ns);
        let claims = WaitTags {
            groups: (0..groups).filter(|_| groups > 1).map(|_| WaitTag::nobody()).collect(),
            begun: AtomicU64::new(0),
            // What nobody takes within the tolerance is lost.
            patience_ns: (tolerance_ns / 2).min(PATIENCE_NS_MAX),
        };
        let handed_out_ns = AtomicU64::new(0);
        Self { rate: rate.max(1), lease_ns, tolerance_ns, handed_out_ns, claims }
    }

    /// Goes on where a bucket of another rate or burst is: what was admitted beyond the old rate
    /// is paid back at the new one.
    pub(crate) fn continue_from(self, old: &Self, now: Duration) -> Self {
        let (now, before) = (ns(now), old.handed_out_ns.load(Ordering::Relaxed));
        let debt = u128::from(before.saturating_sub(now)) * u128::from(old.rate);
        let debt_ns = u64::try_from(debt / u128::from(self.rate)).unwrap_or(u64::MAX);
        let handed_out = before.min(now).saturating_add(debt_ns);
        self.handed_out_ns.store(handed_out, Ordering::Relaxed);
        self
    }

    /// Whether it has this rate and burst.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.rate, self.tolerance_ns) == (other.rate, other.tolerance_ns)
    }

    /// Takes what a command costs. `Err` is the time to ask again.
    pub(crate) fn take(
        &self,
        lease: &mut BucketShare,
        units: u64,
        now: Duration,
    ) -> Result<(), Duration> {
        let now = ns(now);
        self.claims.catch_up(lease, self.time_of(units));
        let mine = *lease;
        let taken = self.update(lease, units, now, |from| self.is_refused(mine, from, now));
        taken.map_err(Duration::from_nanos)
    }

    /// When it is to ask again if it would not be admitted now.
    pub(crate) fn refuses(
        &self,
        lease: BucketShare,
        units: u64,
        now: Duration,
    ) -> Option<Duration> {
        if lease.held >= u128::from(units) * NS {
            return None;
        }
        let (from, now) = (self.handed_out_ns.load(Ordering::Relaxed), ns(now));
        let from = from.max(now.saturating_sub(self.tolerance_ns));
        self.is_refused(lease, from, now).map(Duration::from_nanos)
    }

    /// One more flow of a group waits for it.
    pub(crate) fn enter(&self, lease: &mut BucketShare) {
        lease.flows += 1;
        self.claims.show(lease);
    }

    /// One fewer does.
    pub(crate) fn leave(&self, lease: &mut BucketShare) {
        lease.flows = lease.flows.saturating_sub(1);
        self.claims.show(lease);
    }

    /// None does.
    pub(crate) fn leave_all(&self, lease: &mut BucketShare) {
        lease.flows = 0;
        self.claims.show(lease);
    }

    /// When a group is to ask again if the rate is handed out until `from`.
    fn is_refused(&self, lease: BucketShare, from: u64, now: u64) -> Option<u64> {
        if from > now {
            return Some(from);
        }
        let is_others = now - from < self.claims.patience_ns && self.claims.is_ahead(lease);
        // It asks again at once; its group's timer has a least interval.
        is_others.then_some(now + 1)
    }

    /// For how long the rate is handed out by this.
    fn time_of(&self, units: u64) -> u64 {
        u64::try_from((u128::from(units) * NS).div_ceil(self.rate.into())).unwrap_or(u64::MAX)
    }

    /// Gives back what was taken for a command that does not begin.
    pub(crate) fn give_back(&self, lease: &mut BucketShare, units: u64) {
        lease.held = lease.held.saturating_add(u128::from(units) * NS);
        let held_ns = u64::try_from(lease.held / u128::from(self.rate)).unwrap_or(u64::MAX);
        let surplus_ns = held_ns.saturating_sub(self.lease_ns);
        lease.held -= u128::from(surplus_ns) * u128::from(self.rate);
        self.handed_out_ns.fetch_sub(surplus_ns, Ordering::Relaxed);
        lease.tag = lease.tag.saturating_sub(steps_of(surplus_ns, lease));
        self.claims.show(lease);
    }

    fn update(
        &self,
        lease: &mut BucketShare,
        units: u64,
        now: u64,
        refuses: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), u64> {
        let cost = u128::from(units) * NS;
        if let Some(rest) = lease.held.checked_sub(cost) {
            lease.held = rest;
            return Ok(());
        }
        let rate = u128::from(self.rate);
        let oldest = now.saturating_sub(self.tolerance_ns);
        let mut handed_out = self.handed_out_ns.load(Ordering::Relaxed);
        loop {
            // While the rate was not used the lease was not either: it is part of the burst.
            let (from, rest) = match handed_out < oldest {
                true => (oldest, 0),
                false => (handed_out, lease.held),
            };
            if let Some(at) = refuses(from) {
                return Err(at);
            }
            let missing_ns = u64::try_from((cost - rest).div_ceil(rate)).unwrap_or(u64::MAX);
            let accrued_ns = now.saturating_sub(from).saturating_sub(missing_ns);
            let taken_ns = missing_ns.saturating_add(accrued_ns.min(self.lease_ns));
            let until = from.saturating_add(taken_ns);
            let (seen, new) = (handed_out, until);
            let order = Ordering::Relaxed;
            match self.handed_out_ns.compare_exchange_weak(seen, new, order, order) {
                Ok(_) => {
                    let held = rest.saturating_add(u128::from(taken_ns).saturating_mul(rate));
                    lease.held = held.saturating_sub(cost);
                    self.claims.took(lease, taken_ns);
                    return Ok(());
                }
                Err(other) => handed_out = other,
            }
        }
    }
}

impl WaitTag {
    fn nobody() -> Self {
        Self(AtomicU64::new(NOBODY))
    }
}

impl WaitTags {
    /// Whether a group has taken so much more than another one that waits that it is to wait.
    fn is_ahead(&self, lease: BucketShare) -> bool {
        let all = self.groups.iter().enumerate();
        let mut others = all.filter(|(group, _)| *group != lease.group);
        let least = lease.tag.saturating_sub(LEAD_NS * STEPS);
        others.any(|(_, claim)| claim.0.load(Ordering::Relaxed) < least)
    }

    /// What a group has left to others while it did not ask is not given to it later, but for what
    /// a command of this time needs.
    fn catch_up(&self, lease: &mut BucketShare, time_ns: u64) {
        if self.groups.is_empty() {
            return;
        }
        let credit = time_ns.saturating_mul(2).saturating_add(LEAD_NS).saturating_mul(STEPS);
        let least = self.begun.load(Ordering::Relaxed).saturating_sub(credit);
        if lease.tag < least {
            lease.tag = least;
            self.show(lease);
        }
    }

    /// A group has taken this much.
    fn took(&self, lease: &mut BucketShare, taken_ns: u64) {
        if self.groups.is_empty() {
            return;
        }
        if self.begun.load(Ordering::Relaxed) < lease.tag {
            self.begun.fetch_max(lease.tag, Ordering::Relaxed);
        }
        lease.tag = lease.tag.saturating_add(steps_of(taken_ns, lease)).min(NOBODY - 1);
        self.show(lease);
    }

    /// Lets the others know how much a group has taken, if it waits.
    fn show(&self, lease: &BucketShare) {
        if let Some(claim) = self.groups.get(lease.group) {
            let tag = if lease.flows > 0 { lease.tag } else { NOBODY };
            if claim.0.load(Ordering::Relaxed) != tag {
                claim.0.store(tag, Ordering::Relaxed);
            }
        }
    }
}

/// Steps of a group's tag for this part of the rate.
fn steps_of(taken_ns: u64, lease: &BucketShare) -> u64 {
    taken_ns.saturating_mul(STEPS) / lease.flows.max(1)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    /// The algorithm of one group, in rational numbers: times are fractions over the rate.
    struct Reference {
        rate: i128,
        tolerance: i128,
        theoretical_arrival: i128,
    }

    impl Reference {
        fn take(&mut self, units: u64, now: u64) -> bool {
            let now = i128::from(now) * self.rate;
            let from = self.theoretical_arrival.max(now - self.tolerance);
            if from > now {
                return false;
            }
            self.theoretical_arrival = from + i128::from(units) * 1_000_000_000;
            true
        }
    }

    /// Arrivals: how many ns after the one before, of how many units, at which group.
    fn arrivals() -> impl Strategy<Value = Vec<(u64, u64, usize)>> {
        let gap = prop_oneof![Just(0), 0..2_000_u64, 0..3_000_000_u64, 0..200_000_000_u64];
        proptest::collection::vec((gap, 1..2_000_000_u64, 0..4_usize), 1..200)
    }

    proptest! {
        #[test]
        fn one_group_decides_as_the_reference(
            rate in 1..1_000_000_000_u64, burst_us in 0..200_000_u64, arrivals in arrivals()
        ) {
            let burst = Duration::from_micros(burst_us);
            let bucket = Bucket::new(rate, burst, 1);
            let tolerance = i128::from(ns(burst + MS)) * i128::from(rate);
            let mut reference =
                Reference { rate: rate.into(), tolerance, theoretical_arrival: 0 };
            let (mut lease, mut now) = (BucketShare::default(), 0);
            for (gap, units, _) in arrivals {
                now += gap;
                let taken = bucket.take(&mut lease, units, Duration::from_nanos(now));
                prop_assert_eq!(taken.is_ok(), reference.take(units, now), "at {}", now);
                if let Err(at) = taken {
                    // The time to ask again is the first ns at which it is admitted.
                    let (arrival, rate) = (reference.theoretical_arrival, reference.rate);
                    let first = u64::try_from((arrival + rate - 1) / rate).unwrap();
                    prop_assert_eq!(ns(at), first);
                }
            }
        }

        /// In the time between any two commands, the largest not counted.
        #[test]
        fn no_bucket_is_overdrawn(
            rate in 1..10_000_000_000_u64,
            burst_us in 0..50_000_u64,
            groups in 1..5_usize,
            arrivals in arrivals(),
        ) {
            let burst = Duration::from_micros(burst_us);
            let bucket = Bucket::new(rate, burst, groups);
            let mut leases = [0, 1, 2, 3].map(BucketShare::new);
            // All but the last say that they wait, whether or not they ask.
            leases[..groups - 1].iter_mut().for_each(|lease| bucket.enter(lease));
            let mut admitted: Vec<(u64, u128)> = Vec::new();
            let mut now = 1_000_000_000;
            for (gap, units, group) in arrivals {
                now += gap;
                let lease = &mut leases[group % groups];
                if bucket.take(lease, units, Duration::from_nanos(now)).is_ok() {
                    // A command that is taken and given back changes nothing.
                    if bucket.take(lease, units, Duration::from_nanos(now)).is_ok() {
                        bucket.give_back(lease, units);
                    }
                    admitted.push((now, units.into()));
                }
            }
            let more = ns(burst) + groups as u64 * 1_000_000;
            for (index, (begin, _)) in admitted.iter().enumerate() {
                let (mut sum, mut largest) = (0, 0);
                for (end, units) in &admitted[index..] {
                    let most = u128::from(rate) * u128::from(end - begin + more);
                    // What is less than a ns in each lease.
                    let most = most + u128::from(rate) * groups as u128;
                    sum += units;
                    largest = largest.max(*units);
                    let beside = sum - largest;
                    prop_assert!(beside * NS <= most, "{} in {} ns", beside, end - begin);
                }
            }
        }

        /// Groups that always ask: what is admitted is the rate, but for what the others hold.
        #[test]
        fn the_rate_is_used_up(rate in 1_000..1_000_000_000_u64, groups in 1..5_usize) {
            let bucket = Bucket::new(rate, Duration::ZERO, groups);
            let mut leases = [0, 1, 2, 3].map(BucketShare::new);
            leases[..groups].iter_mut().for_each(|lease| bucket.enter(lease));
            let units = (rate / 10_000).max(1);
            let (mut sum, mut now) = (0_u128, Duration::from_secs(1));
            let end = now + Duration::from_secs(1);
            let mut turn = 0;
            while now < end {
                let lease = &mut leases[turn % groups];
                match bucket.take(lease, units, now) {
                    Ok(()) => sum += u128::from(units),
                    Err(at) => {
                        prop_assert!(at > now);
                        now = at;
                        turn += 1;
                    }
                }
            }
            let least = u128::from(rate) * 98 / 100;
            let most = u128::from(rate) * (1000 + groups as u128) / 1000 + u128::from(units);
            prop_assert!((least..=most).contains(&sum), "{} of {}", sum, rate);
        }
    }

    /// Groups that ask every 50 µs, always in the same order, with as many commands as they are
    /// given; what each takes in a time. `flows`: how many wait in each.
    fn shares(bucket: &Bucket, flows: &[u64], units: u64, time: Duration) -> Vec<u64> {
        let mut leases: Vec<_> = (0..flows.len()).map(BucketShare::new).collect();
        for (lease, flows) in leases.iter_mut().zip(flows) {
            (0..*flows).for_each(|_| bucket.enter(lease));
        }
        let mut taken = vec![0; flows.len()];
        let mut now = Duration::from_secs(1);
        let end = now + time;
        while now < end {
            for (lease, taken) in leases.iter_mut().zip(&mut taken) {
                while bucket.take(lease, units, now).is_ok() {
                    *taken += 1;
                }
            }
            now += Duration::from_micros(50);
        }
        taken
    }

    /// Whoever asks first, for each flow that waits.
    #[test]
    fn groups_that_wait_have_equal_shares() {
        for rate in [100, 1_000, 12_345, 100_000, 1_000_000] {
            for flows in [&[1, 1][..], &[1, 1, 1, 1], &[3, 1], &[1, 4, 2]] {
                let bucket = Bucket::new(rate, Duration::ZERO, flows.len());
                let time = Duration::from_secs(if rate < 10_000 { 10 } else { 1 });
                let taken = shares(&bucket, flows, 1, time);
                let of_flows = flows.iter().zip(&taken);
                let of_flow: Vec<_> = of_flows.map(|(flows, taken)| taken / flows).collect();
                let (least, most) = (of_flow.iter().min(), of_flow.iter().max());
                let (least, most) = (least.expect("groups"), most.expect("groups"));
                assert!(most * 100 <= least * 103 + 100, "{rate}, {flows:?}: {taken:?}");
                let (sum, whole) = (taken.iter().sum::<u64>(), rate * time.as_secs());
                assert!(sum.abs_diff(whole) <= whole / 50 + 1, "{rate}, {flows:?}: {taken:?}");
            }
        }
    }

    /// One that waits and does not ask holds nobody up for long, and is not given later what it has
    /// left to the others.
    #[test]
    fn what_a_group_leaves_goes_to_the_others() {
        for rate in [100, 100_000] {
            let bucket = Bucket::new(rate, Duration::ZERO, 2);
            let (mut absent, mut other) = (BucketShare::new(0), BucketShare::new(1));
            bucket.enter(&mut absent);
            bucket.enter(&mut other);
            let taken =
                |lease: &mut BucketShare, from: Duration, absent: Option<&mut BucketShare>| {
                    let mut absent = absent;
                    let mut taken = [0_u64, 0];
                    for at in 0..20_000 {
                        let now = from + Duration::from_micros(50) * at;
                        while bucket.take(lease, 1, now).is_ok() {
                            taken[0] += 1;
                        }
                        while absent.as_mut().is_some_and(|it| bucket.take(it, 1, now).is_ok()) {
                            taken[1] += 1;
                        }
                    }
                    taken
                };
            let [alone, _] = taken(&mut other, Duration::from_secs(1), None);
            assert!(alone.abs_diff(rate) <= rate / 50 + 1, "{alone} of {rate}");
            let beside = taken(&mut other, Duration::from_secs(2), Some(&mut absent));
            assert!(beside[1] <= beside[0] + rate / 50 + 3, "{beside:?} of {rate}");
            assert!(beside[0] <= beside[1] + rate / 50 + 3, "{beside:?} of {rate}");
        }
    }

    #[test]
    fn a_change_is_in_force_at_once_and_keeps_the_debt() {
        let now = Duration::from_secs(1);
        let slow = Bucket::new(1 << 10, Duration::ZERO, 1);
        let mut lease = BucketShare::default();
        slow.take(&mut lease, 1 << 20, now).expect("the first one");
        let wait = slow.take(&mut lease, 1, now).expect_err("a debt") - now;
        assert!(wait > Duration::from_secs(1023), "{wait:?}");
        let fast = Bucket::new(1 << 30, Duration::ZERO, 1).continue_from(&slow, now);
        let wait = fast.take(&mut BucketShare::default(), 1, now).expect_err("a debt") - now;
        assert!((900..1000).contains(&wait.as_micros()), "{wait:?}");
        // A burst is not given again with each change.
        let again = Bucket::new(1 << 29, Duration::from_secs(1), 1).continue_from(&fast, now);
        assert!(again.take(&mut BucketShare::default(), 1, now).is_err());
    }

    #[test]
    fn what_is_given_back_is_there_for_every_group() {
        let now = Duration::from_secs(1);
        let bucket = Bucket::new(1 << 10, Duration::ZERO, 2);
        let (mut one, mut other) = (BucketShare::new(0), BucketShare::new(1));
        bucket.take(&mut one, 1 << 20, now).expect("the first one");
        assert!(bucket.take(&mut other, 1, now).is_err());
        bucket.give_back(&mut one, 1 << 20);
        assert_eq!(bucket.take(&mut other, 1, now), Ok(()));
    }
}
