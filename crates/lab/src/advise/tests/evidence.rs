//! What was measured comes before what the model says of it.

use super::*;
use crate::results::LatencyRecord;

/// The open cells of made-up results are the last three; 0.3, 0.6 and 0.85 of the highest rate.
fn known() -> Vec<Results> {
    results(&[("tcp", network(1500.0, 50_000.0))], &[])
}

fn of(results: &[Results], p99_us: f64, iops: f64) -> Row {
    advise(results, &question(p99_us, iops)).expect("advice").rows.remove(0)
}

/// A core that sleeps is slow at a low rate, a device that stalls at a high one: whichever rate was
/// measured with a p99 that the model does not have, its interval holds it there.
#[test]
fn the_interval_at_a_measured_rate_holds_what_was_measured() {
    for at in [3, 5] {
        let mut all = known();
        longer(&mut all[0].records[at], 2.5);
        let record = &all[0].records[at];
        let iops = record.configuration[key::RATE_IOPS].as_number().expect("a rate");
        let latency = record.read.as_ref().expect("reads").latency.latency().expect("a histogram");
        let measured = latency.percentile_ns(99.0).expect("many requests") as f64;
        let row = of(&all, 0.999 * measured / 1e3, iops);
        let p99 = row.quantiles_ns.expect("latencies").1;
        assert!(p99.low <= measured && measured <= p99.high, "{at}: {measured} in {p99:?}");
        assert_ne!(row.verdict, Verdict::Holds, "{at}: {row:?}");
    }
}

/// What a closed loop of the greatest depth reached is the most that is served; and what was served
/// is not beyond the knee, however the model has it.
#[test]
fn a_rate_is_served_up_to_what_was_measured() {
    let mut all = known();
    let most = all[0].records[2].iops();
    let row = of(&all, 1e6, 1.03 * most);
    assert_ne!(row.verdict, Verdict::Holds, "{row:?}");
    assert!(row.headroom_iops.is_some_and(|iops| iops <= 1.001 * most), "{row:?} {most}");
    // Repeats that are slow make the model's cores slow.
    for record in &mut all[0].records[..3] {
        let read = record.read.as_mut().expect("reads");
        read.requests /= 2;
    }
    let iops = all[0].records[5].configuration[key::RATE_IOPS].as_number().expect("a rate");
    assert!(!of(&all, 1e6, 0.99 * iops).is_beyond_knee);
}

#[test]
fn results_of_two_machines_are_not_taken_together() {
    let (one, mut other) = (known(), known());
    other[0].environment.processor.cores = 64;
    let both = [one, other].concat();
    let error = advise(&both, &question(1000.0, 1000.0)).expect_err("two machines");
    assert!(error.contains("different machines"), "{error}");
}

/// Where other programs spoilt most repeats of the cells, though each cell has one left, nothing is
/// said; where they spoilt some, that is said.
#[test]
fn repeats_that_were_left_out_are_told() {
    let run = |spoilt: usize| {
        let mut all = known();
        let records = std::mem::take(&mut all[0].records);
        for mut record in records {
            for repeat in 0..3 {
                record.repeat = u32::try_from(repeat).expect("few") + 1;
                let host = record.host.as_mut().expect("a side");
                host.lost_s = Some(if repeat < spoilt { 0.2 } else { 0.0 });
                all[0].records.push(record.clone());
            }
        }
        of(&all, 1000.0, 100_000.0)
    };
    let some = run(1);
    assert!(some.refusal.is_none(), "{some:?}");
    assert!(some.notes[0].starts_with("6 of 18 repeats were left out"), "{:?}", some.notes);
    let most = run(2);
    assert_eq!(most.refusal.as_deref(), Some(Mark::Disturbed.explained()), "{most:?}");
}

/// Numbers that no machine has are no cells, and a device that is too slow for the rate needs no
/// simulation: both would have no end.
#[test]
fn what_cannot_be_is_not_simulated() {
    for (name, count) in [(key::DEPTH, 1_u64 << 40), (key::HOST_CORES, 1 << 40), (key::JOBS, 0)] {
        let mut all = known();
        for record in &mut all[0].records {
            record.configuration.insert(name.to_owned(), count.into());
        }
        let error = advise(&all, &question(1000.0, 1000.0)).expect_err(name);
        assert_eq!(error, "there is no measured cell in these results");
    }
    let what_if = "device=delay:read=1s".parse().expect("a device");
    let terms = Terms { what_if, ..Terms::default() };
    let advice = super::super::advise(&known(), &[question(1e6, 100_000.0)], &terms);
    let row = advice.expect("advice").rows.remove(0);
    assert_eq!(row.verdict, Verdict::Fails);
    assert_eq!(row.refusal.as_deref(), Some("such a device serves 128 IOPS at depth 128"));
}

/// Other programs only make requests slower.
#[test]
fn what_no_request_reached_is_not_held_on_a_busy_machine_either() {
    let mut all = known();
    all[0].records[2].marks = vec![Mark::BusyMachine];
    assert_eq!(of(&all, 0.001, 100_000.0).verdict, Verdict::Fails);
    assert_eq!(of(&all, 1000.0, 100_000.0).verdict, Verdict::Unknown);
    let latency = Latency::new();
    all[0].records[0].read.as_mut().expect("reads").latency = LatencyRecord::of(&latency);
    assert_eq!(of(&all, 0.001, 100_000.0).verdict, Verdict::Fails, "a cell without requests");
}
