//! What is replaced, held against networks that have it.

use weft_advise::network::Link;

use super::super::load::Load;
use super::super::way::{All, Among};
use super::*;
use crate::results::Connection;

/// Results of one way over this machine's loopback.
fn measured(ways: &[(&str, Network)]) -> Vec<Results> {
    let mut all = results(ways, &[(key::BLOCK_BYTES, 4096_u64.into())]);
    for record in &mut all[0].records {
        record.connection = Some(Connection::over_loopback("tcp"));
    }
    all
}

fn asked(all: &[Results], what_if: &str, p99_us: f64, iops: f64) -> Row {
    let what_if = what_if.parse().expect("what is replaced");
    let terms = Terms { what_if, ..Terms::default() };
    let advice = super::super::advise(all, &[question(p99_us, iops)], &terms).expect("advice");
    advice.rows.into_iter().next().expect("a row")
}

/// The truth is in the interval, and the value is near it.
fn assert_near(row: &Row, truth: &weft_advise::Outcome, what: &str) {
    let (_, p99, _) = row.quantiles_ns.unwrap_or_else(|| panic!("{what}: {row:?}"));
    let truth = truth.quantile(0.99);
    assert!(p99.low <= truth && truth <= p99.high, "{what}: {truth} {p99:?}");
    assert!((p99.value / truth).ln().abs() < 0.2, "{what}: {truth} {p99:?}");
    assert!(row.notes.iter().any(|note| note.starts_with("not measured, but replaced")), "{row:?}");
}

#[test]
fn another_device_and_link_are_put_in_place_of_the_measured_ones() {
    let own = network(1500.0, 20_000.0);
    let all = measured(&[("tcp", own.clone())]);
    let with = |more: f64| Network {
        delays_ns: own.delays_ns.iter().map(|delay| delay + more).collect(),
        ..own.clone()
    };
    let rate = 200_000.0;
    let open = Arrivals::Poisson(rate);
    let plain = asked(&all, "", 1000.0, rate);
    assert_near_plain(&plain);
    for (what, more) in [("device=delay:read=80us", 80e3), ("rtt=30us", 30e3)] {
        let row = asked(&all, what, 1000.0, rate);
        assert_near(&row, &with(more).simulate(open, 128, 60_000, 9), what);
        let width = |row: &Row| row.quantiles_ns.map_or(0.0, |(_, p99, _)| p99.high - p99.low);
        assert!(width(&row) > width(&plain) * 0.999, "{row:?} {plain:?}");
    }
    let link = Some(Link { request_ns: 4096.0 * 8.0 / 2.0, read_part: 1.0 });
    let class = |rate: f64| {
        let arrivals = Arrivals::Poisson(rate);
        let class = Class { network: &own, arrivals, depth: 128, link, gaps: &[] };
        together(&[class], 60_000, 9).remove(0)
    };
    assert_near(&asked(&all, "link=2Gb/s", 1000.0, 40_000.0), &class(40_000.0), "link");
    let slow = asked(&all, "link=2Gb/s", 1000.0, 80_000.0);
    assert_eq!(slow.verdict, Verdict::Fails, "{slow:?}");
    let why = slow.refusal.expect("a reason");
    assert_eq!(why, "the link carries 76 % of this rate");
    assert!(class(80_000.0).iops < 70_000.0);
}

/// A round trip that is so much longer makes each percentile longer by that, whatever made the
/// rest: cores, a device with lanes, or interruptions that are a hundred times as long.
#[test]
fn a_longer_round_trip_moves_each_percentile_by_as_much() {
    let plain = network(1500.0, 20_000.0);
    let lanes = Network { device_width: 8.0, has_lanes: true, ..plain.clone() };
    for (what, network, late) in
        [("cores", &plain, 1.0), ("lanes", &lanes, 1.0), ("late", &plain, 100.0)]
    {
        let mut all = measured(&[("tcp", network.clone())]);
        for record in &mut all[0].records {
            // Every twentieth request meets an interruption.
            longer_from(record, 95.0, late);
        }
        let most = all[0].records[2].iops();
        let known = fitted(&all);
        for part in [0.1, 0.3, 0.5] {
            let before = said(&known, "", part * most);
            for us in [5, 30, 100] {
                let after = said(&known, &format!("rtt={us}us"), part * most);
                let by = f64::from(us) * 1e3;
                for (one, other) in before.quantiles_ns.iter().zip(after.quantiles_ns.iter()) {
                    let value = (other.value - one.value) / by;
                    let [low, high] =
                        [other.low - one.low, other.high - one.high].map(|one| one / by);
                    let all =
                        format!("{what} {part} {us}: {value} {low} {high}, {one:?} {other:?}");
                    assert!((0.7..1.4).contains(&value), "{all}");
                    assert!(low > -10.0 && high < 10.0 && low <= high, "{all}");
                }
            }
        }
    }
}

/// What is known of the first way.
fn fitted(all: &[Results]) -> Vec<(Way, Vec<Result<KindModel, String>>)> {
    let of = |way: Way| {
        let known = KindModel::of(&Kind::of(&way.cells[0]), &way.cells, &[]);
        (way, vec![known])
    };
    ways(all).into_iter().map(of).collect()
}

fn said(all: &All, what_if: &str, rate: f64) -> weft_advise::Prediction {
    let (way, known) = &all[0];
    let among = Among { way, known: known[0].as_ref().expect("a fit"), place: 0, all };
    let what_if = what_if.parse().expect("what is replaced");
    let load = Load::new(&[among], &[question(1e6, rate)], &what_if).expect("a load");
    load.at(1.0, &load.deepest()).expect("known").remove(0).prediction
}

/// What needs no fit to be refused is refused first: there are too few cells for one here.
#[test]
fn what_needs_no_fit_is_refused_before_one() {
    let mut all = measured(&[("tcp", network(1500.0, 20_000.0))]);
    all[0].records.truncate(2);
    let of = |all: &[Results], what_if| {
        let row = asked(all, what_if, 1000.0, 80_000.0);
        (row.verdict, row.refusal.expect("a refusal"))
    };
    let (verdict, why) = of(&all, "rtt=30us");
    assert!(verdict == Verdict::Unknown && why.starts_with("at least three"), "{why}");
    let (verdict, why) = of(&all, "link=2Gb/s");
    assert!(verdict == Verdict::Fails && why.starts_with("the link carries"), "{why}");
    let (_, why) = of(&all, "target-cores=4");
    assert!(why.starts_with("what another target core costs was not measured"), "{why}");
    all[0].records.iter_mut().for_each(|record| record.connection = None);
    let (_, why) = of(&all, "rtt=30us");
    assert!(why.starts_with("what its link takes was not measured"), "{why}");
}

fn assert_near_plain(row: &Row) {
    assert!(row.notes.is_empty() && row.quantiles_ns.is_some(), "{row:?}");
}

/// What a link takes within one machine is known, what it takes elsewhere is measured or not known;
/// and so is what a device takes.
#[test]
fn what_was_not_measured_apart_is_not_replaced() {
    let ways = [("tcp", network(1500.0, 100_000.0))];
    let unknown = results(&ways, &[]);
    let refusal = |all: &[Results], what_if: &str| {
        let row = asked(all, what_if, 1000.0, 50_000.0);
        assert_eq!(row.verdict, Verdict::Unknown, "{row:?}");
        row.refusal.expect("a refusal")
    };
    for what in ["rtt=30us", "link=25Gb/s"] {
        assert!(refusal(&unknown, what).contains("link takes was not measured"));
    }
    let given = results(&ways, &[(key::TARGET, "far".into())]);
    let file = results(&ways, &[(key::DEVICE, "file:/a".into())]);
    for all in [&given, &file] {
        let why = refusal(all, "device=delay:read=80us");
        assert!(why.contains("what the device takes was not measured"), "{why}");
    }
    let why = refusal(&unknown, "target-cores=4");
    assert!(why.contains("--set target_cores=1,2"), "{why}");
    // The device is known where it was measured without a network.
    let device = Network { target_cores: 0, ..network(0.0, 100_000.0) };
    let ways = [("tcp", network(1500.0, 120_000.0)), ("local", device)];
    let both = results(&ways, &[(key::DEVICE, "file:/a".into())]);
    let other = "rtt=30us,target-cores=1".parse().expect("what is replaced");
    let terms = Terms { what_if: other, ..Terms::default() };
    let rows = super::super::advise(&both, &[question(1000.0, 50_000.0)], &terms).expect("rows");
    let local = rows.rows.last().filter(|row| row.is_local() && row.refusal.is_none());
    assert!(local.is_some_and(|row| row.notes.is_empty()), "it has no link: {rows:?}");
    let row = asked(&both, "device=delay:read=10us", 1000.0, 50_000.0);
    let (p50, ..) = row.quantiles_ns.expect("known");
    let truth = network(1500.0, 0.0);
    let truth = Network { delays_ns: vec![30_000.0, 36_000.0], ..truth };
    let truth = truth.simulate(Arrivals::Poisson(50_000.0), 128, 60_000, 9).quantile(0.5);
    assert!(p50.low <= truth && truth <= p50.high, "{truth} {p50:?}");
    assert!(p50.high / p50.low > 1.3, "what is taken out is not known by itself: {p50:?}");
}

/// More cores come with what a second one was measured to cost, or are refused.
#[test]
fn more_cores_come_with_the_measured_cost_of_a_second_one() {
    let with = |cores: usize, slower: f64| Network {
        host: Core { turn_ns: 300.0, request_ns: 100.0 },
        target: Core { turn_ns: 2000.0, request_ns: 6000.0 * slower },
        target_cores: cores,
        ..network(6000.0, 30_000.0)
    };
    let both = |second: f64| {
        let mut all = measured(&[("tcp", with(1, 1.0))]);
        let [mut more] =
            <[Results; 1]>::try_from(measured(&[("tcp", with(2, second))])).expect("one");
        for record in &mut more.records {
            record.configuration.insert(key::TARGET_CORES.to_owned(), 2_u64.into());
            record.cell += " 2 cores";
        }
        all[0].records.extend(more.records);
        all
    };
    let all = both(1.1);
    let rate = 380_000.0;
    let row = asked(&all, "target-cores=4", 1000.0, rate);
    let truth = with(4, 1.21).simulate(Arrivals::Poisson(rate), 128, 60_000, 9);
    assert_near(&row, &truth, "cores");
    assert!(row.notes[0].contains("4 target cores (2 served 1.8"), "{:?}", row.notes);
    let [_, taken] = row.processors;
    let needed = 4.0 * truth.busy[1];
    assert!(taken.is_some_and(|taken| (taken / needed).ln().abs() < 0.4), "{taken:?} {needed}");
    let far = asked(&all, "target-cores=4", 1000.0, 900_000.0);
    assert!(far.verdict != Verdict::Holds, "{far:?}");
    let fewer = asked(&all, "target-cores=1", 1000.0, 50_000.0);
    assert!(fewer.refusal.is_none() && fewer.way.contains("1 target core"), "{fewer:?}");
    // Where a second core served no more it is not known what four would do.
    let limited = both(2.2);
    let why = asked(&limited, "target-cores=4", 1000.0, 100_000.0).refusal.expect("refused");
    assert!(why.contains("served no more than 1: what limited them is elsewhere"), "{why}");
}
