//! What ways cost, and what would have to be true for the next one.

use super::*;

fn asked(all: &[Results], prices: &str, question: Question) -> Advice {
    let prices = format!("currency = \"EUR a month\"\n{prices}").parse().expect("prices");
    let terms = Terms { prices: Some(prices), ..Terms::default() };
    super::super::advise(all, &[question], &terms).expect("advice")
}

/// The way of the least money is advised, and at which price of its ports another one would be.
#[test]
fn the_cheapest_way_in_money_is_advised() {
    let ways = [("tcp", network(3000.0, 50_000.0)), ("rdma", network(1000.0, 50_000.0))];
    let all = results(&ways, &[]);
    let wanted = question(1000.0, 150_000.0);
    let plain = advise(&all, &wanted).expect("advice");
    assert_eq!((plain.rows[0].way.as_str(), plain.rows[0].money), ("rdma", None));
    let cores = "host_core = 100\ntarget_core = 100\n";
    let dear = asked(&all, &format!("{cores}[port]\ntcp = 10\nrdma = 500"), wanted.clone());
    let [tcp, rdma] = [&dear.rows[0], &dear.rows[1]];
    assert_eq!((tcp.way.as_str(), rdma.way.as_str()), ("tcp", "rdma"), "{dear:?}");
    let [money, other] = [tcp, rdma].map(|row| row.money.expect("a price"));
    let taken = tcp.processors.map(|side| side.expect("known"));
    assert!((money - 100.0 * (taken[0] + taken[1]) - 10.0).abs() < 1e-6, "{tcp:?}");
    let below = money - (other - 500.0);
    let said = format!(
        "Rdma would be cheaper if its ports cost less than {} EUR a month.",
        units::digits(below)
    );
    assert!(dear.conclusion.contains(&said), "{} {said}", dear.conclusion);
    assert!(dear.conclusion.contains(&format!("{} EUR a month.", units::digits(money))));
    // And at less than that it is.
    let ports = format!("{cores}[port]\ntcp = 10\nrdma = {}", 0.9 * below);
    assert_eq!(asked(&all, &ports, wanted.clone()).rows[0].way, "rdma");
    let unsaid = asked(&all, &format!("{cores}[port]\ntcp = 10"), wanted.clone());
    assert_eq!((unsaid.rows[1].way.as_str(), unsaid.rows[1].money), ("rdma", None));
    assert!(unsaid.rows[1].notes.iter().any(|note| note.starts_with("no price: rdma")));
    let mut silent = all.clone();
    silent[0].records.iter_mut().for_each(|record| record.target = None);
    let silent = asked(&silent, &format!("{cores}[port]\ntcp = 10\nrdma = 1"), wanted);
    assert!(
        silent.rows.iter().all(|row| row.money.is_none() && row.notes.len() == 1),
        "{silent:?}"
    );
}

/// An interval that repeats would make narrower: how many of them.
#[test]
fn how_many_repeats_may_tell_is_said() {
    let all = results(&[("tcp", network(1500.0, 200_000.0))], &[]);
    let far = advise(&all, &question(1000.0, 150_000.0)).expect("advice");
    let (_, p99, _) = far.rows[0].quantiles_ns.expect("known");
    let objective = (p99.value * p99.high).sqrt() / 1e3;
    let advice = advise(&all, &question(objective, 150_000.0)).expect("advice");
    assert_eq!(advice.rows[0].verdict, Verdict::Unknown, "{advice:?}");
    // Half as wide by the logarithm: four times as many, of which one is there.
    assert!(
        advice.conclusion.ends_with("; 3 more repeats of its cells may tell."),
        "{}",
        advice.conclusion
    );
    let below = advise(&all, &question(0.99 * p99.value / 1e3, 150_000.0)).expect("advice");
    assert!(!below.conclusion.contains("more repeats"), "{}", below.conclusion);
}
