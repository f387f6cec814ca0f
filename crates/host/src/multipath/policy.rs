//! Which of several paths a request takes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How the path of a request is chosen, always among those of the best access state that can be
/// used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IoPolicy {
    /// The same one, as long as none is better. Linux's `numa` without nodes, and its default.
    #[default]
    OptimizedFirst,
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests in flight.
    QueueDepth,
    /// The one whose requests have taken the shortest time lately.
    Latency,
}

impl IoPolicy {
    /// Every policy.
    pub const ALL: [Self; 4] =
        [Self::OptimizedFirst, Self::RoundRobin, Self::QueueDepth, Self::Latency];

    /// The word for it; Linux's, where it has the policy.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OptimizedFirst => "numa",
            Self::RoundRobin => "round-robin",
            Self::QueueDepth => "queue-depth",
            Self::Latency => "latency",
        }
    }
}

impl fmt::Display for IoPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl FromStr for IoPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = if text == "optimized-first" { "numa" } else { text };
        Self::ALL.into_iter().find(|policy| policy.word() == word).ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            format!("{text:?} is no I/O policy; give one of {all}")
        })
    }
}

/// A path that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Smaller is better, and none is better than [`BEST`].
    pub(super) rank: u8,
    /// Requests in flight.
    pub(super) load: usize,
    /// What they take on average; zero if not known yet.
    pub(super) latency: Duration,
}

/// The rank of optimized access.
pub(super) const BEST: u8 = 0;

/// One in so many requests takes the next path, whatever is known of its latency.
const EXPLORE_EVERY: u32 = 64;

/// Chooses paths.
#[derive(Debug)]
pub(super) struct Chooser {
    policy: IoPolicy,
    current: usize,
    requests: u32,
}

impl Chooser {
    pub(super) const fn new(policy: IoPolicy) -> Self {
        Self { policy, current: 0, requests: 0 }
    }

    pub(super) const fn measures_latency(&self) -> bool {
        matches!(self.policy, IoPolicy::Latency)
    }

    /// The path of the next request, of so many, each of which may be a candidate.
    pub(super) fn choose(
        &mut self,
        count: usize,
        candidate: impl Fn(usize) -> Option<Candidate>,
    ) -> Option<usize> {
        // What nearly every request finds: no other path has to be looked at.
        if self.policy == IoPolicy::OptimizedFirst
            && self.current < count
            && candidate(self.current).is_some_and(|found| found.rank == BEST)
        {
            return Some(self.current);
        }
        let best = (0..count).filter_map(&candidate).map(|found| found.rank).min()?;
        let of = |number: usize| candidate(number).filter(|found| found.rank == best);
        // The current one comes last, so that of equals another follows.
        let others = (self.current + 1..count).chain(0..=self.current.min(count - 1));
        let mut others = others.filter_map(|number| Some((number, of(number)?)));
        self.requests = self.requests.wrapping_add(1);
        let explores = self.requests.is_multiple_of(EXPLORE_EVERY);
        let chosen = match self.policy {
            IoPolicy::OptimizedFirst if of(self.current).is_some() => Some(self.current),
            IoPolicy::OptimizedFirst => (0..count).find(|number| of(*number).is_some()),
            IoPolicy::RoundRobin => others.next().map(|(number, _)| number),
            IoPolicy::Latency if explores => others.next().map(|(number, _)| number),
            IoPolicy::QueueDepth => {
                others.min_by_key(|(_, found)| found.load).map(|(number, _)| number)
            }
            IoPolicy::Latency => {
                others.min_by_key(|(_, found)| found.latency).map(|(number, _)| number)
            }
        };
        self.current = chosen?;
        chosen
    }
}

/// What requests take on one path, by Little's law: the time that requests were in flight, all
/// added up, divided by the number that ended.
#[derive(Debug, Default)]
pub(super) struct Latency {
    at: Duration,
    load: u32,
    in_flight: Duration,
    ended: u32,
    average: Duration,
}

impl Latency {
    /// Completions that make an average.
    const SAMPLE: u32 = 32;

    /// `ended` requests have ended since the last call, and `load` are in flight.
    pub(super) fn note(&mut self, now: Duration, load: usize, ended: u32) {
        self.in_flight += now.saturating_sub(self.at).saturating_mul(self.load);
        self.at = now;
        self.load = u32::try_from(load).unwrap_or(u32::MAX);
        self.ended += ended;
        if self.ended >= Self::SAMPLE || (self.average.is_zero() && self.ended > 0) {
            let sample = self.in_flight / self.ended;
            let before = if self.average.is_zero() { sample } else { self.average };
            self.average = (before * 3 + sample) / 4;
            (self.in_flight, self.ended) = (Duration::ZERO, 0);
        }
    }

    pub(super) const fn average(&self) -> Duration {
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rank: u8, load: usize, microseconds: u64) -> Option<Candidate> {
        Some(Candidate { rank, load, latency: Duration::from_micros(microseconds) })
    }

    fn chosen(policy: IoPolicy, paths: &[Option<Candidate>], times: usize) -> Vec<Option<usize>> {
        let mut chooser = Chooser::new(policy);
        (0..times).map(|_| chooser.choose(paths.len(), |number| paths[number])).collect()
    }

    #[test]
    fn the_best_state_comes_first_whatever_the_policy() {
        for policy in IoPolicy::ALL {
            let paths = [path(1, 0, 1), path(0, 9, 99), None];
            assert_eq!(chosen(policy, &paths, 3), [Some(1); 3], "{policy}");
            assert_eq!(chosen(policy, &[path(1, 0, 1), None], 2), [Some(0); 2], "{policy}");
            assert_eq!(chosen(policy, &[None, None], 1), [None]);
            assert_eq!(chosen(policy, &[], 1), [None]);
        }
    }

    #[test]
    fn optimized_first_stays_while_it_can() {
        let mut chooser = Chooser::new(IoPolicy::OptimizedFirst);
        let mut paths = [None, path(0, 0, 0), path(0, 0, 0)];
        assert_eq!(chooser.choose(3, |number| paths[number]), Some(1));
        paths[0] = path(0, 0, 0);
        assert_eq!(chooser.choose(3, |number| paths[number]), Some(1), "no better one");
        paths[1] = path(1, 0, 0);
        assert_eq!(chooser.choose(3, |number| paths[number]), Some(0));
    }

    #[test]
    fn round_robin_takes_turns() {
        let paths = [path(0, 0, 0), None, path(0, 0, 0), path(0, 0, 0)];
        let turns = [2, 3, 0, 2, 3, 0].map(Some);
        assert_eq!(chosen(IoPolicy::RoundRobin, &paths, 6), turns);
    }

    #[test]
    fn the_shortest_queue_and_the_shortest_time() {
        let paths = [path(0, 7, 10), path(0, 2, 90), path(0, 3, 50)];
        assert_eq!(chosen(IoPolicy::QueueDepth, &paths, 2), [Some(1); 2]);
        let times = chosen(IoPolicy::Latency, &paths, 128);
        assert_eq!(times.iter().filter(|number| **number == Some(0)).count(), 126);
        assert_eq!(times[63], Some(1), "the others are measured, too");
    }

    #[test]
    fn an_average_follows_littles_law() {
        let mut latency = Latency::default();
        let us = Duration::from_micros;
        latency.note(us(100), 2, 0);
        latency.note(us(150), 0, 2);
        assert_eq!(latency.average(), us(50));
        for turn in 0..400 {
            latency.note(us(200 + turn * 100), 1, 1);
        }
        assert!(latency.average() > us(95), "{:?}", latency.average());
    }

    #[test]
    fn words_are_linuxs() {
        for policy in IoPolicy::ALL {
            assert_eq!(policy.word().parse(), Ok(policy));
        }
        assert_eq!("optimized-first".parse(), Ok(IoPolicy::OptimizedFirst));
        assert!("best".parse::<IoPolicy>().expect_err("a policy").contains("queue-depth"));
    }
}
