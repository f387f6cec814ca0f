//! The scheduler alone, with commands whose times are known.

use proptest::prelude::*;

use super::*;

/// Tenants with these weights, each with one connection: its place.
fn shares(weights: &[u16]) -> (Shares, Vec<TenantId>) {
    let mut shares = Shares::default();
    let enter =
        |(place, weight): (usize, &u16)| shares.enter(TenantKey::Rule(place), Some(*weight), 1);
    let tenants = weights.iter().enumerate().map(enter).collect();
    shares.begin_turn(Duration::from_secs(1), Duration::ZERO);
    (shares, tenants)
}

/// A world of commands: what each tenant still has, by its time in ns, and what was used.
struct World {
    shares: Shares,
    tenants: Vec<TenantId>,
    now: Duration,
    used: Vec<u64>,
}

impl World {
    fn new(weights: &[u16]) -> Self {
        let (shares, tenants) = shares(weights);
        Self { shares, tenants, now: Duration::from_secs(1), used: vec![0; weights.len()] }
    }

    /// A turn of at most so many commands; `next` is the time of a tenant's next command, if it
    /// has one. Tenants are in the round already if they have.
    fn turn(&mut self, commands: usize, mut next: impl FnMut(usize) -> Option<u64>) {
        self.shares.begin_turn(self.now, Duration::ZERO);
        let mut left = commands;
        while left > 0 {
            let Some(visit) = self.shares.next() else { break };
            let most = (visit.bytes / COMMAND_BYTES).max(1).min(left);
            let (mut served, mut has_more) = (0, true);
            while served < most {
                let Some(time) = next(visit.connection) else {
                    has_more = false;
                    break;
                };
                served += 1;
                self.now += Duration::from_nanos(time);
                self.used[visit.connection] += time;
            }
            left -= served;
            self.shares.charge(Some(visit.tenant), self.now);
            self.shares.visited(visit, served * COMMAND_BYTES, has_more);
        }
        self.shares.end_turn(self.now);
    }

    fn begin(&mut self, tenant: usize) {
        self.shares.push(self.tenants[tenant], tenant);
    }
}

/// Jain's index of what each used divided by its weight.
fn jain(used: &[u64], weights: &[u16]) -> f64 {
    let parts: Vec<f64> =
        used.iter().zip(weights).map(|(used, weight)| *used as f64 / f64::from(*weight)).collect();
    let (sum, squares) =
        (parts.iter().sum::<f64>(), parts.iter().map(|one| one * one).sum::<f64>());
    sum * sum / (squares * parts.len() as f64)
}

/// Small commands, middle ones and large ones, and all three ways round.
#[test]
fn time_is_divided_by_weight_whatever_the_commands() {
    for weights in [[100, 200, 400], [400, 200, 100], [1, 2, 4], [100, 100, 100], [1, 100, 10_000]]
    {
        for times in [[1000, 1000, 1000], [1000, 4000, 28_000], [28_000, 4000, 1000]] {
            let mut world = World::new(&weights);
            (0..3).for_each(|tenant| world.begin(tenant));
            let begun = world.now;
            while world.now < begun + Duration::from_secs(2) {
                world.turn(64, |tenant| Some(times[tenant]));
            }
            let jain = jain(&world.used, &weights);
            assert!(jain >= 0.98, "{weights:?}, {times:?}: {jain}, {:?}", world.used);
        }
    }
}

/// One that was away is served as the others from then on; its share was theirs meanwhile.
#[test]
fn a_tenant_that_comes_back_has_its_share_and_no_more() {
    let mut world = World::new(&[100, 100]);
    world.begin(0);
    let ms = Duration::from_millis;
    let run = |world: &mut World, time: Duration, is_there: bool| {
        let (until, before) = (world.now + time, world.used.clone());
        while world.now < until {
            world.turn(64, |tenant| (tenant == 0 || is_there).then_some(1000));
        }
        [0, 1].map(|tenant| world.used[tenant] - before[tenant])
    };
    let alone = run(&mut world, ms(100), false);
    assert!(alone[0] >= 100_000_000 && alone[1] == 0, "{alone:?}");
    for _ in 0..3 {
        world.begin(1);
        let beside = run(&mut world, ms(10), true);
        assert!(beside[0].abs_diff(beside[1]) < 200_000, "{beside:?}");
        // It has nothing more, and is still in the round.
        let again = run(&mut world, ms(100), false);
        assert!(again[0] >= 99_000_000, "{again:?}");
    }
}

/// High, Medium and Low of a host divide what the host has.
#[test]
fn priority_classes_divide_the_weight_of_their_host() {
    let mut shares = Shares::default();
    let class = |name: &str, class| TenantKey::Host(name.to_owned(), Some(class));
    let high = shares.enter(class("h", 1), None, 6);
    let low = shares.enter(class("h", 3), None, 2);
    let other = shares.enter(TenantKey::Host("i".to_owned(), None), None, 1);
    let parts = |shares: &Shares| [high, low, other].map(|one| shares.tenants[one.place].parts);
    assert_eq!(parts(&shares), [76_800, 25_600, 102_400]);
    shares.set_class_weight(low, 6);
    assert_eq!(parts(&shares), [51_200, 51_200, 102_400]);
    shares.leave(low, 0);
    assert_eq!(shares.tenants[high.place].parts, 102_400, "what is not there has no share");
    // Another controller of the host has no classes.
    let plain = shares.enter(TenantKey::Host("h".to_owned(), None), None, 1);
    let parts = |shares: &Shares| [high, plain, other].map(|one| shares.tenants[one.place].parts);
    assert_eq!(parts(&shares), [51_200, 51_200, 102_400], "one host, one share");
    shares.leave(plain, 0);
    assert_eq!(shares.tenants[high.place].parts, 102_400);
}

/// One that is alone has all of each turn, and its connections take turns; it begins with nothing
/// owed when another one comes.
#[test]
fn a_tenant_alone_is_not_measured() {
    let (mut shares, tenants) = shares(&[100]);
    let now = Duration::from_secs(1);
    assert!(!shares.is_divided());
    [7, 8].into_iter().for_each(|connection| shares.push(tenants[0], connection));
    for connection in [7, 8, 7] {
        let visit = shares.next().expect("it has work");
        assert_eq!((visit.connection, visit.bytes), (connection, usize::MAX));
        shares.visited(visit, 64 * COMMAND_BYTES, true);
    }
    shares.leave_out(Duration::from_secs(1));
    let other = shares.enter(TenantKey::Host("h".to_owned(), None), None, 1);
    assert!(!shares.is_divided() && shares.is_to_be_measured());
    shares.begin_turn(now, Duration::from_millis(900));
    assert!(shares.is_divided());
    shares.charge(Some(other), now + Duration::from_micros(3));
    assert_eq!([0, 1].map(|place: usize| shares.tenants[place].balance_ns), [0, -3000]);
    assert_eq!(shares.tenants[0].turn_bytes, 0, "of no turn that was measured");
    shares.leave(other, 9);
    assert!(shares.is_to_be_measured(), "the turn ends as it began");
    shares.begin_turn(now, Duration::from_millis(900));
    assert!(!shares.is_divided() && !shares.is_to_be_measured());
    assert_eq!(shares.reset(), [8, 7], "they enter anew");
    assert!(!shares.has(tenants[0]) && !shares.has_backlog());
}

/// Time that the reactor was idle for, or that express queues had, is nobody's; what was received
/// is charged by bytes.
#[test]
fn what_a_turn_took_is_charged_to_those_it_was_for() {
    let (mut shares, tenants) = shares(&[100, 100]);
    let us = |time| Duration::from_secs(1) + Duration::from_micros(time);
    shares.begin_turn(us(1000), Duration::from_micros(900));
    shares.end_turn(us(1000));
    tenants.iter().for_each(|tenant| shares.push(*tenant, tenant.place));
    // 100 µs, of which 50 were idle and 10 express.
    shares.begin_turn(us(1100), Duration::from_micros(950));
    shares.leave_out(Duration::from_micros(10));
    shares.received(tenants[0], 4096 * 3 - 2048);
    shares.received(tenants[1], 4096 - 2048);
    shares.end_receive(us(1100));
    let owed = |shares: &Shares| [0, 1].map(|place: usize| -shares.tenants[place].balance_ns);
    assert_eq!(owed(&shares), [30_000, 10_000]);
    shares.charge(Some(tenants[1]), us(1120));
    shares.charge(None, us(1122));
    shares.end_turn(us(1126));
    assert_eq!(owed(&shares), [33_000, 33_000]);
}

proptest! {
    /// Against an ideal scheduler, which gives each tenant with work its part of each ns: over any
    /// time in which the same tenants have work, with random weights and commands.
    #[test]
    fn lag_is_bounded(
        weights in proptest::collection::vec(1_u16..=400, 2..6),
        seed in any::<u64>(),
        most in 1_000_u64..200_000,
    ) {
        let count = weights.len();
        let mut random = weft_reactor::simulation::Random::new(seed);
        let mut world = World::new(&weights);
        (0..count).for_each(|tenant| world.begin(tenant));
        let heaviest = weights.iter().copied().max().expect("some");
        let least = f64::from(weights.iter().copied().min().expect("some"));
        let mut samples = vec![world.used.clone()];
        // How far a visit goes beyond its balance: it may begin a turn's worth of commands that
        // are longer than those before.
        let mut beyond = 0_u64;
        for _ in 0..300 {
            let owed = |world: &World| {
                world.shares.tenants.iter().map(|one| -one.balance_ns).max().unwrap_or(0)
            };
            world.turn(64, |_| Some(1 + random.below(most)));
            beyond = beyond.max(u64::try_from(owed(&world)).unwrap_or(0));
            samples.push(world.used.clone());
        }
        let q = QUANTUM_NS as f64 / f64::from(heaviest);
        let bound = 3.0 * q + 2.0 * beyond as f64 / least + 2.0;
        for (begin, end) in [(0, 300), (0, 50), (100, 200), (299, 300), (37, 211)] {
            let part = |tenant: usize| {
                let used = samples[end][tenant] - samples[begin][tenant];
                used as f64 / f64::from(weights[tenant])
            };
            for one in 0..count {
                for other in 0..count {
                    let lag = part(one) - part(other);
                    prop_assert!(lag <= bound, "{} > {}, {:?}", lag, bound, weights);
                }
            }
            // And so with the ideal one, whose parts are all the mean of these.
            let all: f64 = (0..count).map(|one| part(one) * f64::from(weights[one])).sum();
            let ideal = all / weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
            prop_assert!((0..count).all(|one| (part(one) - ideal).abs() <= bound));
        }
        prop_assert!(beyond <= 64 * most + QUANTUM_NS, "{}", beyond);
    }

    /// Whatever comes and goes, every connection with work is served, none twice.
    #[test]
    fn every_connection_is_served(
        steps in proptest::collection::vec((0_usize..6, 0_u64..50_000, 0_u8..8), 1..400)
    ) {
        let mut shares = Shares::default();
        let mut now = Duration::from_secs(1);
        shares.begin_turn(now, Duration::ZERO);
        let mut waiting: BTreeMap<usize, TenantId> = BTreeMap::new();
        let mut tenants: Vec<Option<TenantId>> = vec![None; 6];
        for (connection, time, what) in steps {
            match (what, tenants[connection]) {
                (_, None) => {
                    let key = TenantKey::Host(format!("{}", connection / 2), None);
                    tenants[connection] = Some(shares.enter(key, None, 1));
                }
                (0, Some(tenant)) => {
                    shares.leave(tenant, connection);
                    waiting.remove(&connection);
                    tenants[connection] = None;
                }
                (1..4, Some(tenant)) if !waiting.contains_key(&connection) => {
                    shares.push(tenant, connection);
                    waiting.insert(connection, tenant);
                }
                _ => {
                    shares.begin_turn(now, Duration::ZERO);
                    let visit = shares.next();
                    prop_assert_eq!(visit.is_some(), !waiting.is_empty());
                    let Some(visit) = visit else { continue };
                    prop_assert_eq!(waiting.remove(&visit.connection), Some(visit.tenant));
                    now += Duration::from_nanos(time);
                    shares.charge(Some(visit.tenant), now);
                    shares.visited(visit, 4096, what == 7);
                    if what == 7 {
                        waiting.insert(visit.connection, visit.tenant);
                    }
                    shares.end_turn(now);
                }
            }
        }
        while let Some(visit) = shares.next() {
            prop_assert_eq!(waiting.remove(&visit.connection), Some(visit.tenant));
            shares.visited(visit, 4096, false);
        }
        prop_assert!(waiting.is_empty(), "{:?}", waiting);
    }
}
