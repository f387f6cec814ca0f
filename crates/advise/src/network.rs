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

/// Arrivals and ends of turns that are kept beside the heap, at the most.
const SOON_MAX: usize = 8;

/// A class that is so many times rarer than the others has fewer requests simulated.
const RARE: usize = 10;

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
    /// How much longer the wire takes than it did in these delays, or shorter: nothing waits for
    /// that but the request.
    pub wire_ns: f64,
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
        self,
        network: &Network,
        arrivals: Arrivals,
        kinds: &[Interruptions],
    ) -> Self {
        let mean = self.mean();
        match arrivals {
            Arrivals::Poisson(rate) => {
                let loads = network.loads(rate.min(self.iops));
                self.interrupted_at(network, loads, kinds)
            }
            Arrivals::Closed => self.met(network, kinds, |by, _| by.met_by(mean)),
        }
    }

    /// The same where each core of the host, and of the target, works for such a part of its time,
    /// whoever for.
    #[must_use]
    pub fn interrupted_at(
        self,
        network: &Network,
        loads: [f64; 2],
        kinds: &[Interruptions],
    ) -> Self {
        self.met(network, kinds, |by, side| by.met_at(loads[side]))
    }

    fn met(
        mut self,
        network: &Network,
        kinds: &[Interruptions],
        at: impl Fn(&Interruptions, usize) -> f64,
    ) -> Self {
        let sides = [network.host_cores, network.target_cores];
        let of = |by: &Interruptions| {
            let met = (0..2).filter(|side| sides[*side] > 0).map(|side| at(by, side));
            (met.sum::<f64>().min(0.95), by.mean_ns)
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
        while high > 1.00001 * low {
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
    class: usize,
}

/// Requests that are alike: all of a load, or those of one tenant of several.
#[derive(Clone, Copy, Debug)]
pub struct Class<'a> {
    /// The stations as these requests meet them. All classes have the cores of the first one.
    pub network: &'a Network,
    /// What arrives.
    pub arrivals: Arrivals,
    /// Most requests under way.
    pub depth: usize,
    /// The link that they share with other classes; none: it is part of the delays.
    pub link: Option<Link>,
    /// Times from one arrival to the next as they were recorded, over and over, by their mean;
    /// none: at random moments.
    pub gaps: &'a [f64],
}

/// A link that has one request after the other in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// How long it has the data of a request, in ns.
    pub request_ns: f64,
    /// Which part of the requests are reads, whose data goes the other way.
    pub read_part: f64,
}

impl Link {
    /// The part of the time for which a rate has it, in the direction that has more.
    #[must_use]
    pub fn used(&self, rate: f64) -> f64 {
        rate * self.read_part.max(1.0 - self.read_part) * self.request_ns / 1e9
    }
}

/// A moment, ordered by time and then by number, so that a simulation is the same on each machine.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment {
    /// The time's bits, which are in the order of times from 0 on, and the number: most of a
    /// simulation is to compare them.
    order: u128,
    event: Event,
}

impl Moment {
    /// None: all others come before it.
    const NEVER: Self = Self { order: u128::MAX, event: Event::Arrival(usize::MAX) };

    fn new(at: f64, number: u64, event: Event) -> Self {
        Self { order: u128::from(at.max(0.0).to_bits()) << 64 | u128::from(number), event }
    }

    const fn at(&self) -> f64 {
        f64::from_bits((self.order >> 64) as u64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// A request of a class arrives.
    Arrival(usize),
    /// A core's turn ends.
    TurnEnd(usize),
    /// The device and the wire have a request's data, by a lane.
    Delayed(usize, usize),
    /// A lane may have the next request.
    Freed(usize),
    /// The link has it.
    Linked(usize),
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

/// What becomes of a class.
#[derive(Debug)]
struct ClassState<'a> {
    class: Class<'a>,
    /// Requests that wait for the depth.
    held: VecDeque<usize>,
    under_way: usize,
    arrived: usize,
    latencies: Vec<(f64, f64)>,
    /// Of arrivals, delays and lanes, so that other parameters meet the same chance, and of the
    /// link.
    random: [Random; 4],
}

struct Simulation<'a> {
    classes: Vec<ClassState<'a>>,
    host_cores: usize,
    target_cores: usize,
    now: f64,
    events: BinaryHeap<Reverse<Moment>>,
    /// The next arrival of each class and the end of each core's turn: most moments are of these,
    /// and a few of them need no heap.
    soon: Vec<Moment>,
    number: u64,
    /// Those of the host first.
    cores: Vec<CoreState>,
    requests: Vec<Request>,
    /// What no turn serves: its memory is used again.
    spare: Vec<usize>,
    /// Those of the device; one where it has none.
    lanes: Vec<Lane>,
    /// Until when the link is in use, to the target and from it.
    link_until: [f64; 2],
    #[cfg(test)]
    truth: tests::Truth,
}

impl Network {
    /// What becomes of so many requests, of which the first tenth is not counted.
    #[must_use]
    pub fn simulate(&self, arrivals: Arrivals, depth: usize, count: usize, seed: u64) -> Outcome {
        let class = Class { network: self, arrivals, depth, link: None, gaps: &[] };
        together(&[class], count, seed).pop().unwrap_or_default()
    }

    /// The time that each core of the host, and of the target, has for so many requests a second
    /// if as many as there may be share each turn: a part of its time.
    #[must_use]
    pub fn loads(&self, rate: f64) -> [f64; 2] {
        let least = |core: Core, cores: usize| match cores {
            0 => 0.0,
            _ => rate * core.least_ns() / 1e9 / cores as f64,
        };
        [least(self.host, self.host_cores), least(self.target, self.target_cores)]
    }
}

impl Core {
    /// The least that a request takes.
    fn least_ns(self) -> f64 {
        self.request_ns + self.turn_ns / TURN_MAX as f64
    }
}

/// What becomes of the requests of several classes at the same cores, of which the first tenth is
/// not counted: so many of each, but of a class that is far rarer than another fewer.
#[must_use]
pub fn together(classes: &[Class<'_>], count: usize, seed: u64) -> Vec<Outcome> {
    let mut simulation = Simulation::new(classes, seed);
    simulation.run(count);
    simulation.outcomes(count)
}

impl CoreState {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), serving: Vec::new(), busy_ns: 0.0 }
    }
}

impl<'a> Simulation<'a> {
    fn new(classes: &[Class<'a>], seed: u64) -> Self {
        let cores = classes
            .first()
            .map_or([1, 0], |class| [class.network.host_cores.max(1), class.network.target_cores]);
        let state = |(place, class): (u64, &Class<'a>)| {
            let random = |one| Random::new(seed.wrapping_mul(3).wrapping_add(one + (place << 32)));
            let class = Class { depth: class.depth.max(1), ..*class };
            let (held, latencies) = Default::default();
            let random = [1, 2, 3, 4].map(random);
            ClassState { class, held, under_way: 0, arrived: 0, latencies, random }
        };
        let slots = classes.len() + cores[0] + cores[1];
        Self {
            classes: (0..).zip(classes).map(state).collect(),
            host_cores: cores[0],
            target_cores: cores[1],
            now: 0.0,
            events: BinaryHeap::new(),
            soon: vec![Moment::NEVER; if slots > SOON_MAX { 0 } else { slots }],
            number: 0,
            cores: (0..cores[0] + cores[1]).map(|_| CoreState::new()).collect(),
            requests: Vec::new(),
            spare: Vec::new(),
            lanes: Vec::new(),
            link_until: [0.0; 2],
            #[cfg(test)]
            truth: tests::Truth::default(),
        }
    }

    fn run(&mut self, count: usize) {
        for class in 0..self.classes.len() {
            let at_once = match self.classes[class].class.arrivals {
                Arrivals::Poisson(_) => 1,
                Arrivals::Closed => self.classes[class].class.depth,
            };
            (0..at_once).for_each(|_| self.schedule(0.0, Event::Arrival(class)));
        }
        // Ended requests of all, and classes that have enough.
        let most = count * self.classes.len() * RARE;
        let (mut ended, mut enough) = (0, 0);
        while enough < self.classes.len()
            && ended < most
            && let Some(moment) = self.next()
        {
            self.now = moment.at();
            match moment.event {
                Event::Arrival(class) => self.arrive(class),
                Event::TurnEnd(core) => self.end_turn(core),
                Event::Delayed(request, lane) => self.delayed(request, lane),
                Event::Freed(lane) => self.free(lane),
                Event::Linked(request) => self.reach_target(request),
            }
            let all = self.classes.iter().map(|class| class.latencies.len());
            (ended, enough) = all.fold((0, 0), |(ended, enough), one| {
                (ended + one, enough + usize::from(one >= count))
            });
        }
    }

    fn schedule(&mut self, at: f64, event: Event) {
        self.number += 1;
        let moment = Moment::new(at, self.number, event);
        let place = match event {
            Event::Arrival(class) => class,
            Event::TurnEnd(core) => self.classes.len() + core,
            Event::Delayed(..) | Event::Freed(_) | Event::Linked(_) => usize::MAX,
        };
        match self.soon.get_mut(place).filter(|free| **free == Moment::NEVER) {
            Some(free) => *free = moment,
            None => self.events.push(Reverse(moment)),
        }
    }

    fn next(&mut self) -> Option<Moment> {
        let later = self.events.peek().map_or(u128::MAX, |Reverse(moment)| moment.order);
        let soon = self.soon.iter_mut().min_by_key(|moment| moment.order);
        match soon.filter(|moment| moment.order < later) {
            Some(moment) => Some(std::mem::replace(moment, Moment::NEVER)),
            None => self.events.pop().map(|Reverse(moment)| moment),
        }
    }

    fn arrive(&mut self, class: usize) {
        let state = &mut self.classes[class];
        let Class { arrivals, gaps, .. } = state.class;
        let next = match (arrivals, gaps.len()) {
            (Arrivals::Poisson(rate), 0) => Some(state.random[0].exponential(1e9 / rate.max(1e-9))),
            (Arrivals::Poisson(rate), count) => {
                Some(gaps[state.arrived % count] * 1e9 / rate.max(1e-9))
            }
            (Arrivals::Closed, _) => None,
        };
        state.arrived += 1;
        state.held.push_back(self.requests.len());
        self.requests.push(Request { arrived: self.now, stage: Stage::Sent, class });
        if let Some(next) = next {
            self.schedule(self.now + next, Event::Arrival(class));
        }
        self.admit(class);
    }

    /// Requests begin while the depth allows it.
    fn admit(&mut self, class: usize) {
        while let state = &mut self.classes[class]
            && state.under_way < state.class.depth
            && let Some(request) = state.held.pop_front()
        {
            state.under_way += 1;
            self.wait_for(self.host_of(request), request);
        }
    }

    fn host_of(&self, request: usize) -> usize {
        request % self.host_cores
    }

    fn network_of(&self, request: usize) -> &'a Network {
        self.classes[self.requests[request].class].class.network
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
        let is_host = index < self.host_cores;
        let (mut turn_ns, mut requests_ns) = (0.0_f64, 0.0);
        for (place, state) in self.classes.iter().enumerate() {
            let is_its = |request: &&usize| self.requests[**request].class == place;
            let count = core.serving.iter().filter(is_its).count();
            if count > 0 {
                let network = state.class.network;
                let own = if is_host { network.host } else { network.target };
                turn_ns = turn_ns.max(own.turn_ns);
                requests_ns += own.request_ns * count as f64;
            }
        }
        // The host has half of its work before and half after.
        let work = turn_ns + requests_ns / if is_host { 2.0 } else { 1.0 };
        core.busy_ns += work;
        #[cfg(not(test))]
        let end = self.now + work;
        #[cfg(test)]
        let end = self.truth.end_of(index, self.now, work);
        self.schedule(end, Event::TurnEnd(index));
    }

    fn end_turn(&mut self, core: usize) {
        let mut served = std::mem::take(&mut self.spare);
        std::mem::swap(&mut served, &mut self.cores[core].serving);
        for request in served.drain(..) {
            match self.requests[request].stage {
                Stage::Sent => self.wait_for_device(request),
                Stage::Served => {
                    self.requests[request].stage = Stage::Received;
                    self.wait_for(self.host_of(request), request);
                }
                Stage::Received => self.end(request),
            }
        }
        self.spare = served;
        self.begin_turn(core);
        (0..self.classes.len()).for_each(|class| self.admit(class));
    }

    fn wait_for_device(&mut self, request: usize) {
        let Network { device_width: width, has_lanes, .. } = *self.network_of(request);
        if width.is_infinite() {
            return self.begin_delay(request, usize::MAX);
        }
        // The last lane of a number that is not whole has so much less of the data.
        let random = &mut self.classes[self.requests[request].class].random[2];
        let lane = if has_lanes { whole(random.unit() * width) } else { 0 };
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        self.lanes[lane].waiting.push_back(request);
        self.feed(lane);
    }

    /// A lane works on one request, or all of the device on as many as it can.
    fn feed(&mut self, at: usize) {
        while let Some(request) = self.lanes[at].waiting.front().copied()
            && let network = self.network_of(request)
            && let most = if network.has_lanes { 1.0 } else { network.device_width }
            && (self.lanes[at].working as f64) < most
        {
            self.lanes[at].waiting.pop_front();
            self.lanes[at].working += 1;
            self.begin_delay(request, at);
        }
    }

    fn begin_delay(&mut self, request: usize, lane: usize) {
        let delay = self.delay(request);
        let wire_ns = self.network_of(request).wire_ns;
        if wire_ns == 0.0 {
            return self.schedule(self.now + delay, Event::Delayed(request, lane));
        }
        if lane < self.lanes.len() {
            self.schedule(self.now + delay, Event::Freed(lane));
        }
        self.schedule(self.now + (delay + wire_ns).max(0.0), Event::Delayed(request, usize::MAX));
    }

    fn free(&mut self, lane: usize) {
        if let Some(of) = self.lanes.get_mut(lane) {
            of.working -= 1;
            self.feed(lane);
        }
    }

    /// Between two quantiles.
    fn delay(&mut self, request: usize) -> f64 {
        let delays = &self.network_of(request).delays_ns;
        let Some(last) = delays.len().checked_sub(1) else { return 0.0 };
        let state = &mut self.classes[self.requests[request].class];
        let at = state.random[1].unit() * last as f64;
        let below = whole(at.floor()).min(last);
        let (low, high) = (delays[below], delays[(below + 1).min(last)]);
        low + (high - low) * (at - at.floor())
    }

    fn delayed(&mut self, request: usize, lane: usize) {
        self.free(lane);
        let state = &mut self.classes[self.requests[request].class];
        let Some(link) = state.class.link else { return self.reach_target(request) };
        let way = usize::from(state.random[3].unit() < link.read_part);
        self.link_until[way] = self.link_until[way].max(self.now) + link.request_ns;
        self.schedule(self.link_until[way], Event::Linked(request));
    }

    /// The target has it, or the host has it back where there is none.
    fn reach_target(&mut self, request: usize) {
        if self.target_cores == 0 {
            self.requests[request].stage = Stage::Received;
            return self.wait_for(self.host_of(request), request);
        }
        self.requests[request].stage = Stage::Served;
        self.wait_for(self.host_cores + request % self.target_cores, request);
    }

    fn end(&mut self, request: usize) {
        let Request { arrived, class, .. } = self.requests[request];
        let state = &mut self.classes[class];
        state.under_way -= 1;
        state.latencies.push((self.now, self.now - arrived));
        if state.class.arrivals == Arrivals::Closed {
            self.schedule(self.now, Event::Arrival(class));
        }
    }

    fn outcomes(self, count: usize) -> Vec<Outcome> {
        let busy = |cores: &[CoreState]| {
            let all: f64 = cores.iter().map(|core| core.busy_ns).sum();
            all / (cores.len() as f64).max(1.0) / self.now.max(1.0)
        };
        let (host, target) = self.cores.split_at(self.host_cores);
        let busy = [busy(host), busy(target)];
        let of = |class: &ClassState<'_>| {
            let skipped = class.latencies.len().min(count) / 10;
            let begun = class.latencies.get(skipped).map_or(0.0, |one| one.0);
            let counted = class.latencies.get(skipped + 1..).unwrap_or_default();
            let mut latencies: Vec<f64> = counted.iter().map(|one| one.1).collect();
            latencies.sort_unstable_by(f64::total_cmp);
            let seconds = (self.now - begun).max(1.0) / 1e9;
            let iops = match class.class.arrivals {
                // As many arrive in a part of a recording as there are, whatever the mean is.
                Arrivals::Poisson(rate) if !class.class.gaps.is_empty() => {
                    rate * class.latencies.len() as f64 / class.arrived.max(1) as f64
                }
                _ => latencies.len() as f64 / seconds,
            };
            Outcome { iops, latencies, busy, met: Vec::new() }
        };
        self.classes.iter().map(of).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
