//! Several jobs at the same cores, and requests between those that were measured.

use super::*;

fn of_kind(network: &Network, pattern: &str, percent: Option<u64>, bytes: u64) -> Vec<Results> {
    let mut settings = vec![(key::PATTERN, Value::from(pattern)), (key::BLOCK_BYTES, bytes.into())];
    settings.extend(percent.map(|percent| (key::READ_PERCENT, percent.into())));
    results(&[("tcp", network.clone())], &settings)
}

fn tenant(name: &str, pattern: &str, bytes: u64, p99_us: f64, iops: f64) -> Question {
    Question {
        name: name.to_owned(),
        pattern: Some(pattern.to_owned()),
        block_bytes: Some(bytes),
        ..question(p99_us, iops)
    }
}

/// Each tenant is held against its own objective while the others are served by the same cores, and
/// is close to what it is in truth.
#[test]
fn tenants_share_the_cores() {
    let [small, large] = [network(1500.0, 30_000.0), network(20_000.0, 60_000.0)];
    let all = [of_kind(&small, "randread", None, 4096), of_kind(&large, "randread", None, 65_536)];
    let all = all.concat();
    let questions = [
        tenant("small", "randread", 4096, 1000.0, 150_000.0),
        tenant("large", "randread", 65_536, 1000.0, 20_000.0),
    ];
    let ask = |questions: &[Question]| {
        super::super::advise(&all, questions, &Terms::default()).expect("advice")
    };
    let advice = ask(&questions);
    let row = &advice.rows[0];
    assert_eq!((row.verdict, row.tenants.len()), (Verdict::Holds, 2), "{row:?}");
    assert!((advice.iops, row.quantiles_ns) == (170_000.0, None), "{advice:?}");
    let class = |network, rate| Class {
        network,
        arrivals: Arrivals::Poisson(rate),
        depth: 128,
        link: None,
        gaps: &[],
    };
    let classes = [class(&small, 150_000.0), class(&large, 20_000.0)];
    let truth = together(&classes, 60_000, 9);
    for (tenant, truth) in row.tenants.iter().zip(&truth) {
        let ((_, p99, _), truth) = (tenant.quantiles_ns, truth.quantile(0.99));
        assert!(p99.low <= truth && truth <= p99.high, "{truth} {tenant:?}");
        assert!((p99.value / truth).ln().abs() < 0.25, "{truth} {tenant:?}");
    }
    // What one of them alone holds it does not hold beside the other.
    let p99 = truth[0].quantile(0.99);
    let alone = small.simulate(Arrivals::Poisson(150_000.0), 128, 60_000, 9).quantile(0.99);
    assert!(p99 > 1.5 * alone, "{p99} {alone}");
    let tight = tenant("small", "randread", 4096, 1.25 * alone / 1e3, 150_000.0);
    assert_eq!(ask(std::slice::from_ref(&tight)).rows[0].verdict, Verdict::Holds);
    let both = ask(&[tight, questions[1].clone()]);
    let verdicts: Vec<Verdict> = both.rows[0].tenants.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [Verdict::Fails, Verdict::Holds], "{both:?}");
    assert_eq!(both.rows[0].verdict, Verdict::Fails);
    // Together they are too much, although each alone is not.
    let much =
        [0, 1].map(|at| Question { iops: 1.6 * questions[at].iops, ..questions[at].clone() });
    assert!(
        much.iter().all(|one| ask(std::slice::from_ref(one)).rows[0].verdict == Verdict::Holds)
    );
    assert_ne!(ask(&much).rows[0].verdict, Verdict::Holds);
    // Another size is none of these, and none between them.
    let other = [questions[0].clone(), tenant("huge", "randread", 1 << 20, 1000.0, 100.0)];
    let refused = super::super::advise(&all, &other, &Terms::default()).expect_err("not measured");
    assert!(refused.starts_with("no cell has such requests"), "{refused}");
    let between = [questions[0].clone(), tenant("middle", "randread", 16_384, 1000.0, 1000.0)];
    let row = ask(&between).rows.remove(0);
    assert!(
        row.refusal.is_none() && row.notes.iter().any(|note| note.contains("16 KiB")),
        "{row:?}"
    );
}

/// A mix between two measured ones is between them, with an interval that has both; one beyond them
/// is refused.
#[test]
fn a_mix_between_measured_ones_is_between_them() {
    let [read, mixed, half] = [50_000.0, 80_000.0, 110_000.0].map(|one| network(1500.0, one));
    let all = [of_kind(&read, "randread", None, 4096), of_kind(&half, "randrw", Some(50), 4096)];
    let all = all.concat();
    let ask = |percent: u64, what: &[Results]| {
        let question = Question {
            read_percent: Some(percent),
            ..tenant("", "randrw", 4096, 1000.0, 200_000.0)
        };
        advise(what, &question)
    };
    let row = ask(75, &all).expect("advice").rows.remove(0);
    let (_, p99, _) = row.quantiles_ns.expect("known");
    let truth = mixed.simulate(Arrivals::Poisson(200_000.0), 128, 60_000, 9).quantile(0.99);
    assert!(
        p99.low <= truth && truth <= p99.high && (p99.value / truth).ln().abs() < 0.2,
        "{p99:?}"
    );
    assert!(row.notes[0].starts_with("random, 75.0 % reads, 4 KiB were not measured"), "{row:?}");
    // Words and mark say so.
    let said = ask(75, &all).expect("advice").conclusion;
    assert!(row.is_between && row.mark() == "✓≈", "{row:?}");
    assert!(said.contains("is expected to hold") && said.contains("both sides of these"), "{said}");
    let objective = Question { p99_ns: (p99.value * p99.high).sqrt(), ..question(0.0, 200_000.0) };
    let near = Question { read_percent: Some(75), ..objective };
    let near = advise(&all, &near).expect("a mix of the results' pattern");
    assert!(near.rows[0].is_likely && near.rows[0].mark() == "?≈", "{near:?}");
    assert!(near.conclusion.contains("that may is tcp (only requests"), "{}", near.conclusion);
    let measured = ask(50, &all).expect("advice").rows.remove(0);
    assert!(measured.notes.is_empty() && measured.mark() == "✓", "{measured:?}");
    let other = Question { read_percent: Some(70), ..question(1000.0, 200_000.0) };
    let refused = advise(&all[1..], &other).expect_err("50 % only");
    assert!(refused.starts_with("no cell has such requests: there are"), "{refused}");
    let width = |one: &Row| one.quantiles_ns.map_or(0.0, |(_, p99, _)| p99.high / p99.low);
    assert!(width(&row) > width(&measured), "{row:?}");
    let refused = ask(30, &all).expect_err("beyond");
    assert!(refused.starts_with("no cell has such requests: there are"), "{refused}");
    let in_order = Question { pattern: Some("rw".to_owned()), ..tenant("", "rw", 4096, 1e3, 1e3) };
    assert!(advise(&all, &in_order).is_err());
    // A way that was measured with one of both only is not known.
    let mut other = of_kind(&read, "randread", None, 4096);
    other[0].records.iter_mut().for_each(|record| {
        record.configuration.insert(key::TRANSPORT.to_owned(), "rdma".into());
        record.cell += " rdma";
    });
    let advice = ask(75, &[all, other].concat()).expect("advice");
    let rdma = advice.rows.iter().find(|row| row.way == "rdma").expect("a row");
    assert!(rdma.refusal.as_deref().is_some_and(|why| why.starts_with("neither such")), "{rdma:?}");
}
