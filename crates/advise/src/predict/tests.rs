//! Networks whose truth is known.

use super::*;
use crate::fit::{Cell, cell_of};
use crate::network::{Core, Interruptions};

/// A host and a target of one core each, where the target is the slower one.
fn truth() -> Network {
    Network {
        host: Core { turn_ns: 1500.0, request_ns: 900.0 },
        host_cores: 1,
        target: Core { turn_ns: 2500.0, request_ns: 1800.0 },
        target_cores: 1,
        delays_ns: (0..=20).map(|step| 20_000.0 + f64::from(step) * 500.0).collect(),
        device_width: f64::INFINITY,
        wire_ns: 0.0,
        has_lanes: false,
    }
}

/// Interruptions are simulated here, and not added by the formula.
fn measure(network: &Network, arrivals: Arrivals, depth: usize, seed: u64) -> Cell {
    let by = Interruptions { share: 0.0008, mean_ns: 60_000.0 };
    let outcome = network.simulate_interrupted(by, arrivals, depth, 200_000, seed);
    // Of two cores: what is under way at each, or arrives meanwhile and until it is served.
    let each = by.share / by.mean_ns * outcome.mean();
    let late = match arrivals {
        Arrivals::Closed => 2.0 * each,
        Arrivals::Poisson(_) => {
            2.0 * each + outcome.busy.map(|busy| by.share / (1.0 - busy)).iter().sum::<f64>()
        }
    };
    let cell = cell_of(network, arrivals, depth, &outcome);
    let quiet = cell.quantile(0.5).unwrap_or_default().min(outcome.mean());
    Cell { late, interruptions: by, mean_ns: [quiet, outcome.mean()], ..cell }
}

/// Twelve cells at most: closed loops of some depths, and some rates.
fn cells(network: &Network) -> Vec<Cell> {
    let closed = [1, 8, 32, 128].map(|depth| measure(network, Arrivals::Closed, depth, 11));
    let most = closed[3].iops;
    let open =
        [0.2, 0.5, 0.8].map(|part| measure(network, Arrivals::Poisson(part * most), 128, 12));
    closed.into_iter().chain(open).collect()
}

/// Rates and depths that were not fitted: rate, mean and p99, as the median of the errors, and how
/// many are in their intervals.
#[test]
fn what_was_not_fitted_is_predicted() {
    for (name, network) in
        [("target", truth()), ("device", Network { device_width: 16.0, ..truth() })]
    {
        let cells = cells(&network);
        let fit = Fit::new(&cells, 1).expect("enough cells");
        let most = cells[3].iops;
        let mut errors: Vec<[f64; 3]> = Vec::new();
        let (mut within, mut all) = (0, 0);
        for part in [0.4, 0.7] {
            for depth in [32, 256] {
                let rate = part * most;
                let found = fit.predict(rate, depth, [1, 1], 5).expect("it is within");
                let held = measure(&network, Arrivals::Poisson(rate), depth, 77);
                let error = |one: f64, other: f64| (one / other).ln().abs();
                let p99 = held.quantile(0.99).expect("known");
                for (part, interval) in PARTS.iter().zip(found.quantiles_ns.iter()) {
                    let truth = held.quantile(*part).expect("known");
                    within += usize::from(interval.low <= truth && truth <= interval.high);
                    all += 1;
                }
                errors.push([
                    error(found.iops, held.iops),
                    error(found.mean_ns.value, held.mean_ns[1]),
                    error(found.quantiles_ns[1].value, p99),
                ]);
            }
        }
        let median = |kind: usize| {
            let mut all: Vec<f64> = errors.iter().map(|one| one[kind]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let medians = [0, 1, 2].map(median);
        assert!(within * 10 >= all * 8, "{name}: {within} of {all}");
        assert!(medians[0] < 0.05 && medians[1] < 0.08 && medians[2] < 0.15, "{name}: {medians:?}");
    }
}

/// Each station can be the slow one, and the search finds which: the network comes near the cells
/// that it was fitted to, uncorrected.
#[test]
fn the_slow_station_is_found() {
    let local =
        Network { host: Core { turn_ns: 5000.0, request_ns: 4000.0 }, target_cores: 0, ..truth() };
    let device = |has_lanes| Network { device_width: 4.0, has_lanes, ..truth() };
    for (name, network) in [
        ("target", truth()),
        ("host", local),
        ("device", device(false)),
        ("lanes of the device", device(true)),
    ] {
        let fit = Fit::new(&cells(&network), 1).expect("enough cells");
        let deviation = fit.deviation(|cell| cell.mean);
        assert!(deviation < 0.1, "{name}: {deviation} {:?}", fit.errors);
    }
}

/// More than a network can serve is beyond the knee; far more than was measured is not said.
#[test]
fn beyond_the_knee_is_said_and_far_beyond_is_refused() {
    let network = truth();
    let cells = cells(&network);
    let most = cells[3].iops;
    let fit = Fit::new(&cells, 1).expect("enough cells");
    assert!(!fit.predict(0.7 * most, 256, [1, 1], 1).expect("within").is_beyond_knee);
    assert!(fit.predict(1.2 * most, 256, [1, 1], 1).expect("within").is_beyond_knee);
    let refused = fit.predict(1.3 * most, 256, [1, 1], 1);
    assert!(matches!(refused, Err(Refusal::BeyondMeasured { .. })), "{refused:?}");
    let refused = fit.predict(0.5 * most, 256, [1, 2], 1);
    assert!(matches!(refused, Err(Refusal::BeyondMeasured { most }) if most == 0.0), "{refused:?}");
}

/// Numbers that no network of this kind has are not explained.
#[test]
fn cells_that_no_network_has_are_refused() {
    let mut cells = cells(&truth());
    for (place, cell) in cells.iter_mut().enumerate() {
        let by = if place % 2 == 0 { 50.0 } else { 0.02 };
        cell.mean_ns = cell.mean_ns.map(|mean| mean * by);
        cell.quantiles.iter_mut().for_each(|one| one.1 *= by);
    }
    let fit = Fit::new(&cells, 1).expect("enough cells");
    let refused = fit.predict(0.5 * cells[3].iops, 128, [1, 1], 1);
    assert!(matches!(refused, Err(Refusal::NotExplained { .. })), "{refused:?}");
}

/// What the network does not have, but its cells have all along, is in what is said between them;
/// what differs from cell to cell is in the interval.
#[test]
fn what_is_left_of_the_cells_corrects_what_is_between_them() {
    let network = truth();
    let most = measure(&network, Arrivals::Closed, 128, 11).iops;
    let longer = |rate: f64| 1.5 + rate / most;
    let mut measured = cells(&network);
    let fit = Fit::new(&measured, 1).expect("enough cells");
    let plain = fit.predict(0.35 * most, 128, [1, 1], 1).expect("within").quantiles_ns[1];
    for cell in measured.iter_mut().filter(|cell| cell.arrivals != Arrivals::Closed) {
        let by = longer(cell.iops);
        cell.quantiles.iter_mut().filter(|one| one.0 > 0.9).for_each(|one| one.1 *= by);
    }
    let corrected = Fit { residuals: Vec::new(), ..fit }.with_residuals(&measured);
    let found = corrected.predict(0.35 * most, 128, [1, 1], 1).expect("within").quantiles_ns[1];
    let ratio = found.value / plain.value / longer(0.35 * most);
    assert!((0.9..1.1).contains(&ratio), "{plain:?} {found:?}");
    assert!(found.high / found.value >= plain.high / plain.value * 0.99, "{plain:?} {found:?}");
}

/// A closed loop is corrected by what is left of the cells with closed loops, also of tails that no
/// network has, and between their depths.
#[test]
fn a_closed_loop_is_corrected_as_well() {
    let network = truth();
    let mut measured = cells(&network);
    let all = measured.iter_mut().filter(|cell| cell.arrivals == Arrivals::Closed);
    for cell in all {
        cell.quantiles.iter_mut().filter(|one| one.0 > 0.95).for_each(|one| one.1 *= 2.0);
    }
    let fit = Fit::new(&measured, 1).expect("enough cells");
    let plain = Fit { residuals: Vec::new(), ..fit.clone() };
    let errors = [&plain, &fit].map(|fit| {
        let error = |depth: usize| {
            let truth = measure(&network, Arrivals::Closed, depth, 77).quantile(0.99);
            let p99 = fit.closed(depth, [1, 1], 5).quantiles_ns[1].value;
            (p99 / (2.0 * truth.expect("known"))).ln().abs()
        };
        [4, 16, 64].map(error).iter().sum::<f64>()
    });
    assert!(errors[1] < 0.8 * errors[0], "{errors:?}");
}
