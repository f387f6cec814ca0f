//! Claims about a part of what was planned.

use super::*;
use crate::cells::Metric;

/// The first claim of an answer and its row of a contender, for repeats of these IOPS.
fn swept(study: &str, points: &[(&str, u64, [f64; 3])], failed: &[(&str, u64)]) -> Row {
    let of = |name: &str, kib: u64, iops: f64, repeat: u32| {
        let settings =
            [(key::TRANSPORT, Value::from(name)), (key::BLOCK_BYTES, (kib << 10).into())];
        Record { repeat, ..record(Role::Plain, &settings, iops, 100) }
    };
    let each = points.iter().flat_map(|(name, kib, iops)| {
        (1..).zip(iops).map(move |(repeat, iops)| of(name, *kib, *iops, repeat))
    });
    let mut records: Vec<Record> = each.collect();
    records.extend(failed.iter().map(|(name, kib)| Record {
        status: Status::Failed { reason: "the target is gone".to_owned() },
        ..of(name, *kib, 1e5, 1)
    }));
    let answer = of_records(&plan(study), &records, &Environment::default()).expect("an answer");
    let mut rows = answer.claims.into_iter().flat_map(|claim| claim.rows);
    rows.find(|row| row.contender == "tcp").expect("a row")
}

fn about(iops: f64, share: f64) -> [f64; 3] {
    [iops * (1.0 - share), iops, iops * (1.0 + share)]
}

#[test]
fn a_curve_is_highest_at_one_value_only_if_the_others_are_apart() {
    let of = |noise: f64, points: [f64; 4]| {
        let points = [4, 8, 16, 32].into_iter().zip(points);
        let points: Vec<_> = points.map(|(kib, iops)| ("tcp", kib, about(iops, noise))).collect();
        let row = swept("size-sweep", &points, &[]);
        (row.verdict, row.at)
    };
    let told = |verdict, at: &str| (verdict, at.to_owned());
    let falls = [1e5, 4e5, 3.8e5, 2e5];
    assert_eq!(of(0.001, falls), told(Verdict::Yes, "highest at 8 KiB"));
    assert_eq!(of(0.05, falls), told(Verdict::CannotTell, "highest from 8 KiB to 16 KiB"));
    let flat = [1e5, 4e5, 3.99e5, 3.98e5];
    assert_eq!(of(0.01, flat), told(Verdict::Yes, "near its highest from 8 KiB on"));
}

#[test]
fn what_is_said_of_a_part_of_the_points_says_which() {
    let all = [4, 8, 16].map(|kib| ("tcp", kib, about(1e5 * kib as f64, 0.001)));
    let local = [4, 8, 16, 32].map(|kib| ("local", kib, about(1e7, 0.001)));
    let points = [&all[..], &local].concat();
    for study in ["size-sweep", "overhead-b-app"] {
        let whole = swept(study, &points, &[]);
        assert!(!whole.at.contains("points"), "{whole:?}");
        let part = swept(study, &points, &[("tcp", 32)]);
        assert!(part.at.ends_with("over 3 of 4 points, without 32 KiB"), "{part:?}");
    }
}

/// The first value of a setting beside the second one has no contender of the second's name.
#[test]
fn a_row_is_not_named_after_what_it_is_beside() {
    let mut plan = plan("latency-cdf");
    let answer = plan.answer.as_mut().expect("an answer");
    answer.kind = AnswerKind::Beats;
    (answer.over, answer.along) = (key::TRANSPORT.to_owned(), key::DEPTH.to_owned());
    let points = [("local", 1, 1e5, 10), ("tcp", 1, 5e4, 20), ("local", 4, 4e5, 10)];
    let mut records = points.map(|(name, depth, iops, us)| over(name, depth, iops, us)).to_vec();
    records.push(over("tcp", 4, 1e5, 40));
    let answer = of_records(&plan, &repeated(&records), &Environment::default());
    let claim = answer.expect("an answer").claims.remove(0);
    assert_eq!(claim.rows.len(), 2, "{claim:?}");
    for row in &claim.rows {
        assert!(!row.contender.contains("local") && !row.contender.contains("tcp"), "{row:?}");
        assert_ne!(row.verdict, Verdict::Reference, "{row:?}");
    }
}

#[test]
fn a_tenant_alone_has_no_background() {
    let reached = Metric::named("background-reached").expect("a metric");
    let mut told = 0;
    all(|_, records| {
        let cells = Cells::of(&repeated(records), &Environment::default());
        for cell in &cells.cells {
            let is_known = reached.read(&cells, cell).estimate().is_some();
            assert!(!is_known || cell.role != Role::Alone, "{}", cell.label);
            told += usize::from(is_known);
        }
    });
    assert!(told > 0, "a background was reached");
}
