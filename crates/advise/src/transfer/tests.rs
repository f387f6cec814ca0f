//! Networks whose truth is known.

use super::*;
use crate::network::{Arrivals, Core, Network};

fn network(delay_ns: f64, target_cores: usize) -> Network {
    Network {
        host: Core { turn_ns: 500.0, request_ns: 200.0 },
        host_cores: 1,
        target: Core { turn_ns: 1000.0, request_ns: 2000.0 },
        target_cores,
        delays_ns: vec![delay_ns, 1.5 * delay_ns],
        device_width: f64::INFINITY,
        wire_ns: 0.0,
        has_lanes: false,
    }
}

fn simulated(network: &Network, rate: f64) -> Outcome {
    network.simulate(Arrivals::Poisson(rate), 256, 50_000, 3)
}

/// What was measured is half again as slow as the simulation says.
fn known(before: &Outcome) -> Prediction {
    let of = |value: f64| Interval::around(1.5 * value, 0.02);
    Prediction {
        iops: before.iops,
        is_beyond_knee: false,
        mean_ns: of(before.mean()),
        quantiles_ns: Quantiles::new(PARTS.map(|part| of(before.quantile(part)))),
        is_tail_known: true,
        busy: before.busy,
    }
}

/// Without a change the prediction is what it was; a longer delay is in it as it is, whatever made
/// the rest, and cores that are slower are at least as they are and at most as much slower as the
/// measured ones were.
#[test]
fn a_prediction_changes_as_the_simulation_does() {
    let rate = 200_000.0;
    let before = simulated(&network(20_000.0, 1), rate);
    let known = known(&before);
    let all = [before.clone()];
    let change = |worked, after| Change { before: &before, worked, after };
    let same = change(&all, &all).of(&known, rate).expect("known");
    let is_near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
    for (one, other) in same.quantiles_ns.iter().zip(known.quantiles_ns.iter()) {
        assert!(is_near(one.value, other.value) && is_near(one.high, other.high), "{one:?}");
    }
    let after = [simulated(&network(100_000.0, 1), rate)];
    let found = change(&all, &after).of(&known, rate).expect("known");
    let [p99, longer] = [known.quantiles_ns[1], found.quantiles_ns[1]];
    let (was, is) = (before.quantile(0.99), after[0].quantile(0.99));
    assert!(is_near(longer.value, p99.value + is - was), "{longer:?}");
    let worked = change(&after, &after).of(&known, rate).expect("known").quantiles_ns[1];
    assert!(worked.low <= p99.value + is - was && 1.5 * is <= worked.high, "{worked:?}");
    assert!(longer.low < longer.value && longer.value < longer.high, "{longer:?}");
    assert!(longer.high - longer.low > p99.high - p99.low, "{longer:?} {p99:?}");
    // What is taken out is no larger a part of it than it was: of a prediction that is half of what
    // is simulated a half is left, too.
    let small = Prediction {
        quantiles_ns: Quantiles::new([Interval::around(1e4, 0.02); 3]),
        ..known.clone()
    };
    let back = Change { before: &after[0], worked: &after, after: &all };
    let back = back.of(&small, rate).expect("known").quantiles_ns[1];
    assert!(is_near(back.value, 1e4 * was / is), "{back:?}");
    // What may be slower is in the interval only.
    let doubted = [after[0].clone(), simulated(&network(120_000.0, 1), rate)];
    let twice = [before.clone(), before.clone()];
    let wider = change(&twice, &doubted).of(&known, rate).expect("known");
    assert!(is_near(wider.quantiles_ns[1].value, longer.value), "{wider:?}");
    assert!(wider.quantiles_ns[1].high > longer.high + 20_000.0, "{wider:?}");
}

/// The knee is that of the other network; beyond the knee of the measured one nothing is known of a
/// faster one.
#[test]
fn the_knee_is_that_of_the_other_network() {
    let before = simulated(&network(20_000.0, 2), 300_000.0);
    let known = known(&before);
    let slower = [simulated(&network(20_000.0, 1), 600_000.0)];
    let change = |all| Change { before: &before, worked: all, after: all };
    let found = change(&slower).of(&known, 600_000.0).expect("known");
    assert!(found.is_beyond_knee, "{found:?}");
    let beyond = Prediction { is_beyond_knee: true, ..known };
    let faster = [before.clone()];
    assert_eq!(change(&faster).of(&beyond, 300_000.0), None);
}

/// Between two mixes the value is between theirs, and the interval holds both.
#[test]
fn between_two_predictions_the_interval_holds_both() {
    let [one, other] =
        [20_000.0, 80_000.0].map(|delay| known(&simulated(&network(delay, 1), 200_000.0)));
    let found = Prediction::between(&[(0.5, one.clone()), (0.5, other.clone())]).expect("both");
    let [low, p99, high] = [&one, &found, &other].map(|all| all.quantiles_ns[1]);
    assert!((p99.value / (low.value * high.value).sqrt() - 1.0).abs() < 1e-9, "{p99:?}");
    assert!(p99.low == low.low && p99.high == high.high, "{p99:?}");
    let beyond = Prediction { is_beyond_knee: true, ..other };
    assert_eq!(Prediction::between(&[(0.5, one), (0.5, beyond)]), None);
    assert_eq!(Prediction::between(&[]), None);
}

/// A percentile and its ends are not below those of a smaller part of the requests, in whatever way
/// a prediction is made.
#[test]
fn percentiles_of_one_prediction_are_ordered() {
    let is_ordered = |all: &Quantiles| {
        let of = |one: &Interval| [one.low, one.value, one.high];
        let pairs = all.windows(2).map(|two| (of(&two[0]), of(&two[1])));
        pairs.into_iter().all(|(one, other)| (0..3).all(|end| one[end] <= other[end]))
    };
    let crossed = |shift: f64| {
        Quantiles::new([
            Interval { value: 100e3 * shift, low: 10e3, high: 900e3 },
            Interval { value: 90e3, low: 50e3 * shift, high: 700e3 },
            Interval { value: 95e3, low: 20e3, high: 100e3 },
        ])
    };
    let fast = simulated(&network(20_000.0, 1), 200_000.0);
    let slow = simulated(&network(200_000.0, 1), 200_000.0);
    let of = |shift| Prediction { quantiles_ns: crossed(shift), ..known(&fast) };
    for shift in [0.5, 1.0, 2.0] {
        assert!(is_ordered(&crossed(shift)), "{:?}", crossed(shift));
        for (before, after) in [(&fast, &slow), (&slow, &fast)] {
            let (worked, after) = ([before.clone()], [after.clone()]);
            let change = Change { before, worked: &worked, after: &after };
            let found = change.of(&of(shift), 200_000.0).expect("known");
            assert!(is_ordered(&found.quantiles_ns), "{found:?}");
        }
        let between = Prediction::between(&[(0.5, of(shift)), (0.5, of(1.0))]).expect("both");
        assert!(is_ordered(&between.quantiles_ns), "{between:?}");
    }
}
