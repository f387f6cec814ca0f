//! Networks whose rate and latency are known by other means.

use super::*;

/// Interruptions that are simulated: what the formula is held against.
#[derive(Debug)]
pub(crate) struct Truth {
    by: Interruptions,
    random: Random,
    /// Of each core the next one: when, and for how long.
    next: Vec<(f64, f64)>,
}

impl Default for Truth {
    fn default() -> Self {
        Self { by: Interruptions::default(), random: Random::new(1), next: Vec::new() }
    }
}

impl Truth {
    fn draw(&mut self, after: f64) -> (f64, f64) {
        let apart = self.by.mean_ns * (1.0 - self.by.share) / self.by.share;
        (after + self.random.exponential(apart), self.random.exponential(self.by.mean_ns))
    }

    /// When work that begins now has ended.
    pub(crate) fn end_of(&mut self, core: usize, mut now: f64, mut left: f64) -> f64 {
        if self.by.share <= 0.0 {
            return now + left;
        }
        while self.next.len() <= core {
            let first = self.draw(0.0);
            self.next.push(first);
        }
        loop {
            let (at, length) = self.next[core];
            if at + length > now {
                if at >= now + left {
                    return now + left;
                }
                left -= (at - now).max(0.0);
                now = at + length;
            }
            self.next[core] = self.draw(at + length);
        }
    }
}

impl Network {
    /// A simulation with interruptions.
    pub(crate) fn simulate_interrupted(
        &self,
        by: Interruptions,
        arrivals: Arrivals,
        depth: usize,
        count: usize,
        seed: u64,
    ) -> Outcome {
        let class = Class { network: self, arrivals, depth, link: None, gaps: &[] };
        let mut simulation = Simulation::new(&[class], seed);
        simulation.truth = Truth { by, random: Random::new(seed + 99), next: Vec::new() };
        simulation.run(count);
        simulation.outcomes(count).pop().expect("its class")
    }
}

fn single(turn_ns: f64, request_ns: f64) -> Network {
    Network {
        host_cores: 1,
        target: Core { turn_ns, request_ns },
        target_cores: 1,
        device_width: f64::INFINITY,
        ..Network::default()
    }
}

/// M/D/1: the mean wait is ρ s / 2 (1 - ρ).
#[test]
fn a_device_of_one_waits_as_its_queue_does() {
    let network =
        Network { host_cores: 1, delays_ns: vec![1000.0], device_width: 1.0, ..Network::default() };
    for load in [0.3, 0.5, 0.8] {
        let outcome = network.simulate(Arrivals::Poisson(load * 1e6), 1 << 20, 200_000, 7);
        let expected = 1000.0 + load * 1000.0 / (2.0 * (1.0 - load));
        let error = (outcome.mean() / expected - 1.0).abs();
        assert!(error < 0.03, "{load}: {} beside {expected}", outcome.mean());
        assert!((outcome.iops / (load * 1e6) - 1.0).abs() < 0.02);
    }
}

/// Each lane is such a queue, however idle the others are: four serve four times as much with the
/// same wait.
#[test]
fn a_request_waits_for_its_own_lane() {
    let network = Network {
        host_cores: 1,
        delays_ns: vec![1000.0],
        device_width: 4.0,
        has_lanes: true,
        ..Network::default()
    };
    for load in [0.3, 0.8] {
        let outcome = network.simulate(Arrivals::Poisson(load * 4e6), 1 << 20, 400_000, 7);
        let expected = 1000.0 + load * 1000.0 / (2.0 * (1.0 - load));
        let error = (outcome.mean() / expected - 1.0).abs();
        assert!(error < 0.03, "{load}: {} beside {expected}", outcome.mean());
    }
    let shared = Network { has_lanes: false, ..network };
    let outcome = shared.simulate(Arrivals::Poisson(0.3 * 4e6), 1 << 20, 400_000, 7);
    assert!(outcome.mean() < 1020.0, "{}", outcome.mean());
}

/// A wire that takes longer makes each request longer by that, and nothing else waits for it.
#[test]
fn a_longer_wire_holds_no_lane() {
    for (has_lanes, device_width) in [(true, 4.0), (false, 4.0), (false, f64::INFINITY)] {
        let network = Network {
            host_cores: 1,
            delays_ns: vec![800.0, 1200.0],
            device_width,
            has_lanes,
            ..Network::default()
        };
        let of = |wire_ns: f64| {
            let network = Network { wire_ns, ..network.clone() };
            network.simulate(Arrivals::Poisson(0.7 * 4e6), 1 << 20, 50_000, 7)
        };
        let (before, after) = (of(0.0), of(30_000.0));
        for part in [0.5, 0.99, 0.999] {
            let longer = after.quantile(part) - before.quantile(part);
            assert!((longer / 30_000.0 - 1.0).abs() < 0.02, "{has_lanes} {part}: {longer}");
        }
        assert!((after.iops / before.iops - 1.0).abs() < 0.02);
        assert!(of(-5000.0).quantile(0.5) < before.quantile(0.5));
    }
}

/// Arrivals as they were recorded: a device that takes as long as they are apart makes none wait,
/// and of those that come four at once the last one waits for three.
#[test]
fn recorded_arrivals_come_as_they_were_recorded() {
    let network =
        Network { host_cores: 1, delays_ns: vec![1000.0], device_width: 1.0, ..Network::default() };
    let of = |gaps: &[f64], rate: f64| {
        let arrivals = Arrivals::Poisson(rate);
        let class = Class { network: &network, arrivals, depth: 1 << 20, link: None, gaps };
        together(&[class], 20_000, 5).remove(0)
    };
    let even = of(&[1.0], 1e6);
    assert!((even.quantile(0.999) - 1000.0).abs() < 1.0, "{}", even.quantile(0.999));
    let bursts = of(&[0.0, 0.0, 0.0, 4.0], 0.5e6);
    assert!((bursts.quantile(0.2) - 1000.0).abs() < 1.0, "{}", bursts.quantile(0.2));
    assert!((bursts.quantile(0.99) - 4000.0).abs() < 1.0, "{}", bursts.quantile(0.99));
    assert!((bursts.iops / 0.5e6 - 1.0).abs() < 0.01, "{}", bursts.iops);
    let much = of(&[0.0, 0.0, 0.0, 4.0], 2e6);
    assert!(much.iops < 1.05e6, "{}", much.iops);
}

/// A closed loop has as many requests a second as its slowest station, and by Little's law a
/// latency of depth / rate.
#[test]
fn a_closed_loop_is_bounded_by_its_slowest_station() {
    let network = single(2000.0, 500.0);
    for depth in [1, 16, 256] {
        let outcome = network.simulate(Arrivals::Closed, depth, 50_000, 1);
        let little = depth as f64 / outcome.iops * 1e9;
        assert!((outcome.mean() / little - 1.0).abs() < 0.02, "{depth}");
    }
    let alone = network.simulate(Arrivals::Closed, 1, 1000, 1);
    assert!((alone.mean() - 2500.0).abs() < 1.0, "{}", alone.mean());
    let most = network.simulate(Arrivals::Closed, 1024, 100_000, 1).iops;
    let expected = 1e9 / (500.0 + 2000.0 / TURN_MAX as f64);
    assert!((most / expected - 1.0).abs() < 0.02, "{most} of {expected}");
}

/// Two cores serve twice as many.
#[test]
fn cores_share_the_work() {
    let one = single(1000.0, 1000.0);
    let two = Network { target_cores: 2, ..one.clone() };
    let [one, two] =
        [one, two].map(|network| network.simulate(Arrivals::Closed, 512, 100_000, 3).iops);
    assert!((two / one - 2.0).abs() < 0.05, "{one}, {two}");
}

/// The formula beside a simulation in which cores are taken away.
#[test]
fn interruptions_are_added_as_they_are_simulated() {
    let network =
        Network { host: Core { turn_ns: 500.0, request_ns: 500.0 }, ..single(1000.0, 1000.0) };
    let by = Interruptions { share: 0.01, mean_ns: 500_000.0 };
    for (arrivals, depth, bound) in [
        (Arrivals::Poisson(20_000.0), 4096, 0.2),
        (Arrivals::Poisson(400_000.0), 4096, 0.2),
        (Arrivals::Poisson(700_000.0), 1 << 20, 0.4),
        (Arrivals::Closed, 1, 0.3),
        (Arrivals::Closed, 64, 0.3),
    ] {
        let simulated = network.simulate_interrupted(by, arrivals, depth, 3_000_000, 5);
        let alone = network.simulate(arrivals, depth, 50_000, 6);
        let added = alone.interrupted(&network, arrivals, &[by]);
        for part in [0.5, 0.99, 0.999] {
            let [one, other] = [&simulated, &added].map(|outcome| outcome.quantile(part));
            let error = (one / other).ln().abs();
            assert!(error < bound, "{arrivals:?} {depth} p{part}: {one} {other}");
        }
    }
}

/// The same seed gives the same latencies.
#[test]
fn a_simulation_is_the_same_again() {
    let network = single(700.0, 300.0);
    let outcome = |seed| network.simulate(Arrivals::Poisson(5e5), 64, 5000, seed);
    assert_eq!(outcome(1), outcome(1));
    assert_ne!(outcome(1), outcome(2));
}

/// Two classes of half the rate each are one of all of it, and each waits for the other.
#[test]
fn classes_share_the_cores() {
    let network = single(1000.0, 1000.0);
    let half = Class {
        network: &network,
        arrivals: Arrivals::Poisson(400_000.0),
        depth: 1000,
        link: None,
        gaps: &[],
    };
    let both = together(&[half, half], 100_000, 3);
    let one = network.simulate(Arrivals::Poisson(800_000.0), 1000, 200_000, 3);
    for class in &both {
        assert!((class.iops / 400_000.0 - 1.0).abs() < 0.03, "{}", class.iops);
        let p99 = class.quantile(0.99) / one.quantile(0.99);
        assert!((p99 - 1.0).abs() < 0.1, "{p99}");
    }
    let alone = network.simulate(Arrivals::Poisson(400_000.0), 1000, 100_000, 3);
    assert!(both[0].quantile(0.99) > 1.5 * alone.quantile(0.99));
    // A rare one ends as well, and its requests cost what they cost, whoever else is there.
    let slow = Network { target: Core { turn_ns: 0.0, request_ns: 50_000.0 }, ..network.clone() };
    let rare = Class { network: &slow, arrivals: Arrivals::Poisson(400.0), ..half };
    let found = together(&[half, rare], 50_000, 3);
    assert!(found[1].quantile(0.5) > 50_000.0, "{}", found[1].quantile(0.5));
    assert!(found[0].quantile(0.99) > alone.quantile(0.99));
}

/// M/D/1 again: a link has one request after the other in each direction.
#[test]
fn a_link_waits_as_its_queue_does() {
    let network = Network { device_width: f64::INFINITY, ..single(0.0, 0.0) };
    let of = |read_part: f64, rate: f64| {
        let link = Some(Link { request_ns: 1000.0, read_part });
        let arrivals = Arrivals::Poisson(rate);
        let class = Class { network: &network, arrivals, depth: 10_000, link, gaps: &[] };
        together(&[class], 200_000, 5).remove(0)
    };
    for part in [0.5, 0.8] {
        let found = of(1.0, part * 1e6).mean();
        let expected = 1000.0 * (1.0 + part / (2.0 * (1.0 - part)));
        assert!((found / expected - 1.0).abs() < 0.05, "{part}: {found} {expected}");
    }
    let (both, one) = (of(0.5, 1.6e6), of(1.0, 1.6e6));
    assert!(both.iops > 1.55e6 && one.iops < 1.02e6, "{} {}", both.iops, one.iops);
}
