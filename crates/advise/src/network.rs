//! A network of stations and its simulation.
//!
//! ```text
//! arrival -> [depth] -> host core -> device and wire -> target core -> host core -> end
//! ```
//!
//! A core serves what waits for it in turns, as an event loop does: a turn takes a time of its own
//! and a time for each request, and its requests leave together at its end. So a core serves more
//! requests a second the more of them wait, up to one in each request's time. A request waits
//! before the host's core while as many as the depth are under way; its latency begins when it
//! arrives.
//!
//! A core is interrupted now and then by whatever else runs on it. That is rare and long beside a
//! request, so that a simulation would have to be long, and is added by a formula
//! ([`Outcome::interrupted`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::random::Random;

/// Latencies that stand for all of them where interruptions are added.
const SAMPLES: usize = 256;

/// Most requests that a core serves in a turn.
const TURN_MAX: usize = 64;

/// A core's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Core {
    /// Time of a turn, in ns, however many requests it serves.
    pub turn_ns: f64,
    /// Time of a request, in ns.
    pub request_ns: f64,
}

/// What each core loses to others. Lengths are exponential.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interruptions {
    /// Part of the time that it is interrupted for, 0 to 1.
    pub share: f64,
    /// Mean length of one, in ns.
    pub mean_ns: f64,
}

/// A whole number that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, in bounds")]
const fn whole(number: f64) -> usize {
    number as usize
}

impl Interruptions {
    /// Which part of the requests meets one at a core, by the part of its time that the core needs
    /// for a rate if many wait for it: what comes during one, and until what waited then is
    /// served. The first of these waits for all of it and the last one for nothing.
    fn met_at(self, load: f64) -> f64 {
        self.share / (1.0 - load).max(0.05)
    }

    /// The same of a closed loop, in which only what is under way waits: by its latency.
    fn met_by(self, latency_ns: f64) -> f64 {
        self.share * latency_ns / self.mean_ns.max(1.0)
    }
}

/// The stations between a host's program and its data, and back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// Each core of the host.
    pub host: Core,
    /// How many of them.
    pub host_cores: usize,
    /// Each core of the target.
    pub target: Core,
    /// How many of them; 0: the device is one of this machine.
    pub target_cores: usize,
    /// How long the wire and the device take for a request that meets no other: quantiles at equal
    /// distances from 0 to 1, in ns. Without any it takes no time.
    pub delays_ns: Vec<f64>,
    /// How many requests the device works on at a time; infinite: as many as there are.
    pub device_width: f64,
    /// Whether each of these has a queue of its own, as the dies of flash do: a request waits for
    /// the one that has its data, and not for the first that is free.
    pub has_lanes: bool,
}

/// What requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At random moments, so many a second on average, whatever becomes of them.
    Poisson(f64),
    /// The next one when one has ended: the depth is always full.
    Closed,
}

/// What was seen of the requests of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests a second.
    pub iops: f64,
    /// Latencies, in ns, in order.
    latencies: Vec<f64>,
    /// Part of its time that a core of the host and one of the target was busy, 0 to 1.
    pub busy: [f64; 2],
    /// Which part of the requests meets an interruption of a kind, and its mean, in ns.
    met: Vec<(f64, f64)>,
}

impl Outcome {
    /// The same where cores of this network are interrupted, by one kind or several.
    #[must_use]
    pub fn interrupted(
        mut self,
        network: &Network,
        arrivals: Arrivals,
        kinds: &[Interruptions],
    ) -> Self {
        let mean = self.mean();
        let met = |by: &Interruptions, core: Core, cores: usize| match arrivals {
            _ if cores == 0 => 0.0,
            Arrivals::Poisson(rate) => {
                let least = core.request_ns + core.turn_ns / TURN_MAX as f64;
                by.met_at(rate.min(self.iops) / cores as f64 * least / 1e9)
            }
            Arrivals::Closed => by.met_by(mean),
        };
        let of = |by: &Interruptions| {
            let host = met(by, network.host, network.host_cores);
            let target = met(by, network.target, network.target_cores);
            ((host + target).min(0.95), by.mean_ns)
        };
        self.met = kinds.iter().filter(|by| by.share > 0.0).map(of).collect();
        self
    }

    /// Which part of the requests takes longer than this.
    fn beyond(&self, latency_ns: f64) -> f64 {
        let above = self.latencies.partition_point(|one| *one <= latency_ns);
        let count = (self.latencies.len() as f64).max(1.0);
        let longer = (count - above as f64) / count;
        // They are in order: some of them stand for those beside them.
        let stride = (above / SAMPLES).max(1);
        let late = |(met, mean_ns): &(f64, f64)| {
            let later = |one: &f64| ((one - latency_ns) / mean_ns).exp();
            let sum: f64 = self.latencies[..above].iter().step_by(stride).map(later).sum();
            met * sum * stride as f64 / count
        };
        longer + self.met.iter().map(late).sum::<f64>()
    }

    /// A quantile of the latencies, in ns.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        let count = self.latencies.len();
        let at = whole((part * count as f64).ceil()).clamp(1, count.max(1));
        let Some(own) = self.latencies.get(at - 1).copied() else { return 0.0 };
        let Some(longest) = self.met.iter().map(|one| one.1).reduce(f64::max) else { return own };
        let (mut low, mut high) = (own, 2.0 * own + 40.0 * longest);
        while high > 1.001 * low {
            let middle = (low * high).sqrt();
            if self.beyond(middle) > 1.0 - part { low = middle } else { high = middle }
        }
        high
    }

    /// Their mean, in ns.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let own = self.latencies.iter().sum::<f64>() / (self.latencies.len() as f64).max(1.0);
        own + self.met.iter().map(|(met, mean_ns)| met * mean_ns).sum::<f64>()
    }
}

/// A core in a simulation.
#[derive(Debug)]
struct CoreState {
    core: Core,
    waiting: VecDeque<usize>,
    serving: Vec<usize>,
    busy_ns: f64,
}

/// A part of the device.
#[derive(Debug, Default)]
struct Lane {
    working: usize,
    waiting: VecDeque<usize>,
}

/// Where a request goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The host sends it.
    Sent,
    /// The target serves it.
    Served,
    /// The host receives its answer.
    Received,
}

#[derive(Debug)]
struct Request {
    arrived: f64,
    stage: Stage,
}

/// A moment, ordered by time and then by number, so that a simulation is the same on each machine.
#[derive(Debug, PartialEq)]
struct Moment {
    at: f64,
    number: u64,
    event: Event,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// A request arrives.
    Arrival,
    /// A core's turn ends.
    TurnEnd(usize),
    /// The device and the wire have a request's data, by a lane.
    Delayed(usize, usize),
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

struct Simulation<'a> {
    network: &'a Network,
    arrivals: Arrivals,
    depth: usize,
    now: f64,
    events: BinaryHeap<Reverse<Moment>>,
    number: u64,
    /// Those of the host first.
    cores: Vec<CoreState>,
    requests: Vec<Request>,
    /// Requests that wait for the depth.
    held: VecDeque<usize>,
    under_way: usize,
    /// Those of the device; one where it has none.
    lanes: Vec<Lane>,
    latencies: Vec<(f64, f64)>,
    /// Of arrivals, delays and lanes, so that other parameters meet the same chance.
    random: [Random; 3],
    #[cfg(test)]
    truth: tests::Truth,
}

impl Network {
    /// What becomes of so many requests, of which the first tenth is not counted.
    #[must_use]
    pub fn simulate(&self, arrivals: Arrivals, depth: usize, count: usize, seed: u64) -> Outcome {
        let mut simulation = self.simulation(arrivals, depth, seed);
        simulation.run(count);
        simulation.outcome(count)
    }

    fn simulation(&self, arrivals: Arrivals, depth: usize, seed: u64) -> Simulation<'_> {
        let cores = (0..self.host_cores.max(1)).map(|_| self.host);
        let cores = cores.chain((0..self.target_cores).map(|_| self.target));
        Simulation {
            network: self,
            arrivals,
            depth: depth.max(1),
            now: 0.0,
            events: BinaryHeap::new(),
            number: 0,
            cores: cores.map(CoreState::new).collect(),
            requests: Vec::new(),
            held: VecDeque::new(),
            under_way: 0,
            lanes: Vec::new(),
            latencies: Vec::new(),
            random: [1, 2, 3].map(|one| Random::new(seed.wrapping_mul(3).wrapping_add(one))),
            #[cfg(test)]
            truth: tests::Truth::default(),
        }
    }
}

impl CoreState {
    const fn new(core: Core) -> Self {
        Self { core, waiting: VecDeque::new(), serving: Vec::new(), busy_ns: 0.0 }
    }
}

impl Simulation<'_> {
    fn run(&mut self, count: usize) {
        match self.arrivals {
            Arrivals::Poisson(_) => self.schedule(0.0, Event::Arrival),
            Arrivals::Closed => (0..self.depth).for_each(|_| self.schedule(0.0, Event::Arrival)),
        }
        while self.latencies.len() < count
            && let Some(Reverse(moment)) = self.events.pop()
        {
            self.now = moment.at;
            match moment.event {
                Event::Arrival => self.arrive(),
                Event::TurnEnd(core) => self.end_turn(core),
                Event::Delayed(request, lane) => self.delayed(request, lane),
            }
        }
    }

    fn schedule(&mut self, at: f64, event: Event) {
        self.number += 1;
        self.events.push(Reverse(Moment { at, number: self.number, event }));
    }

    fn arrive(&mut self) {
        if let Arrivals::Poisson(rate) = self.arrivals {
            let next = self.random[0].exponential(1e9 / rate.max(1e-9));
            self.schedule(self.now + next, Event::Arrival);
        }
        self.requests.push(Request { arrived: self.now, stage: Stage::Sent });
        self.held.push_back(self.requests.len() - 1);
        self.admit();
    }

    /// Requests begin while the depth allows it.
    fn admit(&mut self) {
        while self.under_way < self.depth
            && let Some(request) = self.held.pop_front()
        {
            self.under_way += 1;
            self.wait_for(self.host_of(request), request);
        }
    }

    fn host_of(&self, request: usize) -> usize {
        request % self.network.host_cores.max(1)
    }

    fn wait_for(&mut self, core: usize, request: usize) {
        self.cores[core].waiting.push_back(request);
        self.begin_turn(core);
    }

    fn begin_turn(&mut self, index: usize) {
        let core = &mut self.cores[index];
        if !core.serving.is_empty() || core.waiting.is_empty() {
            return;
        }
        let count = core.waiting.len().min(TURN_MAX);
        core.serving.extend(core.waiting.drain(..count));
        // The host has half of its work before and half after.
        let parts = if index < self.network.host_cores.max(1) { 2.0 } else { 1.0 };
        let work = core.core.turn_ns + core.core.request_ns * count as f64 / parts;
        core.busy_ns += work;
        #[cfg(not(test))]
        let end = self.now + work;
        #[cfg(test)]
        let end = self.truth.end_of(index, self.now, work);
        self.schedule(end, Event::TurnEnd(index));
    }

    fn end_turn(&mut self, core: usize) {
        for request in std::mem::take(&mut self.cores[core].serving) {
            match self.requests[request].stage {
                Stage::Sent => self.wait_for_device(request),
                Stage::Served => {
                    self.requests[request].stage = Stage::Received;
                    self.wait_for(self.host_of(request), request);
                }
                Stage::Received => self.end(request),
            }
        }
        self.begin_turn(core);
        self.admit();
    }

    fn wait_for_device(&mut self, request: usize) {
        let width = self.network.device_width;
        if width.is_infinite() {
            return self.begin_delay(request, usize::MAX);
        }
        // The last lane of a number that is not whole has so much less of the data.
        let has_lanes = self.network.has_lanes;
        let lane = if has_lanes { whole(self.random[2].unit() * width) } else { 0 };
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        self.lanes[lane].waiting.push_back(request);
        self.feed(lane);
    }

    /// A lane works on one request, or all of the device on as many as it can.
    fn feed(&mut self, at: usize) {
        let most = if self.network.has_lanes { 1.0 } else { self.network.device_width };
        while let Some(lane) = self.lanes.get_mut(at)
            && (lane.working as f64) < most
            && let Some(request) = lane.waiting.pop_front()
        {
            lane.working += 1;
            self.begin_delay(request, at);
        }
    }

    fn begin_delay(&mut self, request: usize, lane: usize) {
        let delay = self.delay();
        self.schedule(self.now + delay, Event::Delayed(request, lane));
    }

    /// Between two quantiles.
    fn delay(&mut self) -> f64 {
        let delays = &self.network.delays_ns;
        let Some(last) = delays.len().checked_sub(1) else { return 0.0 };
        let at = self.random[1].unit() * last as f64;
        let below = whole(at.floor()).min(last);
        let (low, high) = (delays[below], delays[(below + 1).min(last)]);
        low + (high - low) * (at - at.floor())
    }

    fn delayed(&mut self, request: usize, lane: usize) {
        if let Some(of) = self.lanes.get_mut(lane) {
            of.working -= 1;
            self.feed(lane);
        }
        let host_cores = self.network.host_cores.max(1);
        if self.network.target_cores == 0 {
            self.requests[request].stage = Stage::Received;
            return self.wait_for(self.host_of(request), request);
        }
        self.requests[request].stage = Stage::Served;
        self.wait_for(host_cores + request % self.network.target_cores, request);
    }

    fn end(&mut self, request: usize) {
        self.under_way -= 1;
        self.latencies.push((self.now, self.now - self.requests[request].arrived));
        if self.arrivals == Arrivals::Closed {
            self.schedule(self.now, Event::Arrival);
        }
    }

    fn outcome(self, count: usize) -> Outcome {
        let skipped = count / 10;
        let begun = self.latencies.get(skipped).map_or(0.0, |one| one.0);
        let counted = self.latencies.get(skipped + 1..).unwrap_or_default();
        let mut latencies: Vec<f64> = counted.iter().map(|one| one.1).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        let seconds = (self.now - begun).max(1.0) / 1e9;
        let host_cores = self.network.host_cores.max(1);
        let busy = |cores: &[CoreState]| {
            let all: f64 = cores.iter().map(|core| core.busy_ns).sum();
            all / (cores.len() as f64).max(1.0) / self.now.max(1.0)
        };
        let (host, target) = self.cores.split_at(host_cores);
        Outcome {
            iops: latencies.len() as f64 / seconds,
            latencies,
            busy: [busy(host), busy(target)],
            met: Vec::new(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
