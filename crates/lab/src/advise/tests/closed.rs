//! Closed loops alone, from which random arrivals are predicted.

use super::*;

/// Depths of a closed loop, without any rate.
fn closed_loops(network: &Network) -> Vec<Results> {
    let mut all = results(&[("tcp", network.clone())], &[]);
    let more = [4, 64].map(|depth: usize| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::HOST_CORES, 1_u64.into()),
            (key::TARGET_CORES, 1_u64.into()),
            (key::DEPTH, (depth as u64).into()),
        ];
        simulated(network, Arrivals::Closed, depth, &settings, 7)
    });
    all[0].records.truncate(3);
    all[0].records.extend(more);
    all
}

/// The p99 of random arrivals is near its truth; of a p99.9, which closed loops hardly show,
/// nothing is said.
#[test]
fn a_percentile_that_no_cell_supports_is_not_said() {
    let lanes = Network { device_width: 8.0, has_lanes: true, ..network(1500.0, 50_000.0) };
    for (what, own) in [("target", network(4000.0, 20_000.0)), ("lanes", lanes)] {
        let all = closed_loops(&own);
        let most = all[0].records[2].iops();
        for part in [0.3, 0.6, 0.8] {
            let rate = part * most;
            let truth = own.simulate(Arrivals::Poisson(rate), 128, 60_000, 9).quantile(0.99);
            let row = advise(&all, &question(1e4, rate)).expect("advice").rows.remove(0);
            let (_, p99, p999) = row.quantiles_ns.expect("latencies");
            assert!(p99.low <= truth && truth <= p99.high, "{what} {part}: {truth} {p99:?}");
            assert!((p99.value / truth).ln().abs() < 0.4, "{what} {part}: {truth} {p99:?}");
            assert_eq!(p999, None, "{what} {part}: {row:?}");
        }
    }
}

/// The same where rates were measured with too few requests for it, however many say something of
/// the p99.
#[test]
fn a_percentile_of_too_few_requests_is_not_said() {
    let mut all = results(&[("tcp", network(1500.0, 50_000.0))], &[]);
    let p999 = |all: &[Results]| {
        let row = advise(all, &question(1e4, 100_000.0)).expect("advice").rows.remove(0);
        row.quantiles_ns.expect("latencies").2
    };
    assert!(p999(&all).is_some());
    let few = all[0].records[4].read.as_mut().expect("reads");
    let own = few.latency.latency().expect("a histogram");
    let mut latency = Latency::new();
    for part in 0..5000_u32 {
        let at = own.percentile_ns((f64::from(part) + 0.5) / 50.0).unwrap_or(own.max_ns());
        latency.record(at);
    }
    few.latency = LatencyRecord::of(&latency);
    assert_eq!(p999(&all), None);
}
