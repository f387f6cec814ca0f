//! A limit of a rate, shared by all groups: the generic cell rate algorithm (GCRA) with leases.
//!
//! One word says until which time the rate has been handed out. A command may begin if that time
//! has come, and moves it on by what the command costs; so a bucket is exceeded by one command at
//! most. The word stays at most [`Bucket::tolerance_ns`] behind the time: that is the burst. With
//! several groups, each takes a little more than its command needs from what has accrued (a
//! [`Lease`]), so that most commands do not write to the word that the groups share.
//!
//! In any time, at most the rate of it, the burst, one command, and the rate of 1 ms for each group
//! is admitted. Time is counted in whole ns, and what is left of a ns stays in the lease: nothing
//! is rounded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Units in a lease for one unit of the rate: a rate is per second, a lease counts in ns.
const NS: u128 = 1_000_000_000;

/// How much of a rate a group may lease, if there are several groups.
const LEASE_NS: u64 = 250_000;

/// What accrues while a group is late: for each group, together with its lease.
const SLACK_NS: u64 = 1_000_000;

/// A limit of a rate.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Commands or bytes in a second.
    rate: u64,
    lease_ns: u64,
    tolerance_ns: u64,
    /// The time until which the rate has been handed out.
    handed_out_ns: AtomicU64,
}

/// What a group has taken of a bucket's rate and not used, in units of the rate times ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lease(u128);

impl Bucket {
    /// A bucket for this many groups, of a rate of 1 or more in a second. Its burst has accrued.
    pub(crate) fn new(rate: u64, burst: Duration, groups: usize) -> Self {
        let groups = u64::try_from(groups).unwrap_or(u64::MAX).max(1);
        let lease_ns = if groups > 1 { LEASE_NS } else { 0 };
        let slack_ns = groups.saturating_mul(SLACK_NS - lease_ns);
        let tolerance_ns = ns(burst).saturating_add(slack_ns);
        Self { rate: rate.max(1), lease_ns, tolerance_ns, handed_out_ns: AtomicU64::new(0) }
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
        lease: &mut Lease,
        units: u64,
        now: Duration,
    ) -> Result<(), Duration> {
        let now = ns(now);
        let taken = self.update(lease, units, now, |from| from <= now);
        taken.map_err(Duration::from_nanos)
    }

    /// When it is to ask again if it would not be admitted now.
    pub(crate) fn refuses(&self, lease: Lease, units: u64, now: Duration) -> Option<Duration> {
        let is_covered = lease.0 >= u128::from(units) * NS;
        let at = Duration::from_nanos(self.handed_out_ns.load(Ordering::Relaxed));
        (!is_covered && at > now).then_some(at)
    }

    /// Takes what a command costs that cannot wait: later ones wait longer.
    pub(crate) fn take_at_once(&self, lease: &mut Lease, units: u64, now: Duration) {
        // It is never refused.
        let _taken = self.update(lease, units, ns(now), |_| true);
    }

    /// Gives back what was taken for a command that does not begin.
    pub(crate) fn give_back(&self, lease: &mut Lease, units: u64) {
        lease.0 = lease.0.saturating_add(u128::from(units) * NS);
        let held_ns = u64::try_from(lease.0 / u128::from(self.rate)).unwrap_or(u64::MAX);
        let surplus_ns = held_ns.saturating_sub(self.lease_ns);
        lease.0 -= u128::from(surplus_ns) * u128::from(self.rate);
        self.handed_out_ns.fetch_sub(surplus_ns, Ordering::Relaxed);
    }

    fn update(
        &self,
        lease: &mut Lease,
        units: u64,
        now: u64,
        may_begin: impl Fn(u64) -> bool,
    ) -> Result<(), u64> {
        let cost = u128::from(units) * NS;
        if let Some(rest) = lease.0.checked_sub(cost) {
            lease.0 = rest;
            return Ok(());
        }
        let rate = u128::from(self.rate);
        let oldest = now.saturating_sub(self.tolerance_ns);
        let mut handed_out = self.handed_out_ns.load(Ordering::Relaxed);
        loop {
            // While the rate was not used the lease was not either: it is part of the burst.
            let (from, rest) = match handed_out < oldest {
                true => (oldest, 0),
                false => (handed_out, lease.0),
            };
            if !may_begin(from) {
                return Err(from);
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
                    lease.0 = held.saturating_sub(cost);
                    return Ok(());
                }
                Err(other) => handed_out = other,
            }
        }
    }
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
            let (mut lease, mut now) = (Lease::default(), 0);
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
            let mut leases = [Lease::default(); 4];
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
            let mut leases = [Lease::default(); 4];
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

    #[test]
    fn a_change_is_in_force_at_once_and_keeps_the_debt() {
        let now = Duration::from_secs(1);
        let slow = Bucket::new(1 << 10, Duration::ZERO, 1);
        let mut lease = Lease::default();
        slow.take(&mut lease, 1 << 20, now).expect("the first one");
        let wait = slow.take(&mut lease, 1, now).expect_err("a debt") - now;
        assert!(wait > Duration::from_secs(1023), "{wait:?}");
        let fast = Bucket::new(1 << 30, Duration::ZERO, 1).continue_from(&slow, now);
        let wait = fast.take(&mut Lease::default(), 1, now).expect_err("a debt") - now;
        assert!((900..1000).contains(&wait.as_micros()), "{wait:?}");
        // A burst is not given again with each change.
        let again = Bucket::new(1 << 29, Duration::from_secs(1), 1).continue_from(&fast, now);
        assert!(again.take(&mut Lease::default(), 1, now).is_err());
    }

    #[test]
    fn what_is_given_back_is_there_for_every_group() {
        let now = Duration::from_secs(1);
        let bucket = Bucket::new(1 << 10, Duration::ZERO, 2);
        let (mut one, mut other) = (Lease::default(), Lease::default());
        bucket.take(&mut one, 1 << 20, now).expect("the first one");
        assert!(bucket.take(&mut other, 1, now).is_err());
        bucket.give_back(&mut one, 1 << 20);
        assert_eq!(bucket.take(&mut other, 1, now), Ok(()));
    }

    #[test]
    fn a_command_that_cannot_wait_makes_later_ones_wait() {
        let now = Duration::from_secs(1);
        let bucket = Bucket::new(1000, Duration::ZERO, 1);
        let mut lease = Lease::default();
        (0..10).for_each(|_| bucket.take_at_once(&mut lease, 1, now));
        assert_eq!(bucket.take(&mut lease, 1, now), Err(now + 9 * MS));
    }
}
