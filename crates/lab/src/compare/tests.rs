use std::path::PathBuf;

use super::*;
use crate::{
    histogram::Latency,
    results::{Configuration, Direction, LatencyRecord, Mark, Record, Status, Value, key},
};

/// Chance that is always the same.
struct Chance(u64);

impl Chance {
    fn about_one(&mut self, deviation: f64) -> f64 {
        let mut share = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (self.0 >> 33) as f64 / (1u64 << 31) as f64
        };
        1.0 + deviation * ((0..12).map(|_| share()).sum::<f64>() - 6.0)
    }
}

struct Made {
    cells: u64,
    repeats: u32,
    windows: usize,
    /// The second set is so many times as fast.
    speed: f64,
    noise: f64,
}

impl Made {
    fn record(&self, depth: u64, repeat: u32, speed: f64, chance: &mut Chance) -> Record {
        let configuration = Configuration::from([(key::DEPTH.to_owned(), Value::from(depth))]);
        let mut record = Record::new("s", &format!("depth={depth}"), Role::Plain, configuration);
        record.repeat = repeat;
        let speed = speed * chance.about_one(self.noise);
        let mut latency = Latency::new();
        for step in 0..500u64 {
            let ns = (10_000.0 + 20.0 * step as f64) * depth as f64 / speed;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            latency.record_times(ns as u64, 20);
        }
        record.read = Some(Direction {
            requests: 10_000,
            bytes: 40_960_000,
            seconds: 1.0 / speed,
            latency: LatencyRecord::of(&latency),
            completion: None,
            window_iops: (0..self.windows)
                .map(|_| 10_000.0 * speed * chance.about_one(self.noise))
                .collect(),
        });
        record
    }

    fn set(&self, seed: u64, speed: f64) -> Results {
        let mut chance = Chance(seed);
        let mut records = Vec::new();
        for depth in 1..=self.cells {
            for repeat in 1..=self.repeats {
                records.push(self.record(depth, repeat, speed, &mut chance));
            }
        }
        Results {
            directory: PathBuf::new(),
            environment: crate::results::Environment::default(),
            plan: String::new(),
            records,
        }
    }

    fn compared(&self) -> Comparison {
        let parameters = Parameters::default();
        compare(&self.set(11, 1.0), &self.set(99, self.speed), parameters)
    }
}

fn answers(comparison: &Comparison, quantity: Quantity) -> Vec<Answer> {
    let of = comparison.quantities().filter(|compared| compared.quantity == quantity);
    of.map(|compared| compared.answer).collect()
}

#[test]
fn enough_repeats_are_ranked_exactly() {
    let made = Made { cells: 2, repeats: 8, windows: 0, speed: 0.8, noise: 0.01 };
    let comparison = made.compared();
    assert!(comparison.quantities().all(|one| one.ranking == Ranking::Repeats));
    assert!(comparison.quantities().all(|one| one.answer == Answer::Slower), "{comparison:?}");
    assert!(comparison.is_slower());
    let first = &comparison.cells[0].quantities[0];
    assert!((first.p_slower - 1.0 / 12_870.0).abs() < 1e-9);
    assert!(first.noticeable.is_some_and(|least| (0.05..0.09).contains(&least)), "{first:?}");
}

#[test]
fn what_got_faster_or_stayed_is_told_apart() {
    let of = |speed| Made { cells: 1, repeats: 8, windows: 0, speed, noise: 0.005 }.compared();
    assert_eq!(answers(&of(1.3), Quantity::Iops), [Answer::Faster]);
    let same = of(1.0);
    assert!(same.quantities().all(|one| one.answer == Answer::Same), "{same:?}");
    assert!(!same.is_slower());
    // Slower, but not by more than the margin.
    assert!(!of(0.97).is_slower());
}

#[test]
fn few_repeats_fall_back_on_windows_and_requests() {
    let made = Made { cells: 3, repeats: 3, windows: 20, speed: 0.8, noise: 0.01 };
    let comparison = made.compared();
    let rankings: Vec<Ranking> =
        comparison.cells[0].quantities.iter().map(|one| one.ranking).collect();
    assert_eq!(rankings, [Ranking::Windows, Ranking::Requests, Ranking::Nothing]);
    assert_eq!(answers(&comparison, Quantity::Iops), [Answer::Slower; 3]);
    assert_eq!(answers(&comparison, Quantity::P99), [Answer::Undecided; 3]);
    assert!(comparison.cells[0].quantities[2].noticeable.is_none());
}

#[test]
fn windows_do_not_speak_against_repeats_that_overlap() {
    let mut first = Made { cells: 1, repeats: 2, windows: 30, speed: 1.0, noise: 0.001 };
    let one = first.set(5, 1.0);
    let mut other = first.set(6, 0.8);
    // One repeat was as fast as ever.
    first.windows = 30;
    other.records[1] = first.record(1, 2, 1.0, &mut Chance(3));
    let comparison = compare(&one, &other, Parameters::default());
    assert_eq!(answers(&comparison, Quantity::Iops), [Answer::Undecided]);
    assert!(!comparison.is_slower());
}

#[test]
fn one_repeat_each_and_no_windows_decide_nothing_about_iops() {
    let made = Made { cells: 1, repeats: 1, windows: 1, speed: 0.5, noise: 0.0 };
    let comparison = made.compared();
    assert_eq!(comparison.cells[0].quantities[0].ranking, Ranking::Nothing);
    assert_eq!(answers(&comparison, Quantity::Iops), [Answer::Undecided]);
}

#[test]
fn many_cells_together_convince_where_one_alone_cannot() {
    let made = Made { cells: 12, repeats: 3, windows: 0, speed: 0.85, noise: 0.02 };
    let comparison = made.compared();
    assert_eq!(answers(&comparison, Quantity::Iops), [Answer::Undecided; 12]);
    let overall = comparison.overall.as_ref().expect("cells");
    assert!(overall.slower && overall.p_slower < 1e-6, "{overall:?}");
    assert!((overall.iops_ratio - 0.85).abs() < 0.02);
    assert!(comparison.is_slower());
}

#[test]
fn the_same_machine_twice_is_not_called_slower() {
    for seed in 0..40 {
        let made = Made { cells: 10, repeats: 3, windows: 20, speed: 1.0, noise: 0.03 };
        let (one, other) = (made.set(seed * 2 + 1, 1.0), made.set(seed * 2 + 1000, 1.0));
        let comparison = compare(&one, &other, Parameters::default());
        assert!(!comparison.is_slower(), "{seed}");
    }
}

#[test]
fn cells_that_are_gone_are_told() {
    let made = Made { cells: 3, repeats: 3, windows: 0, speed: 1.0, noise: 0.01 };
    let (one, mut other) = (made.set(1, 1.0), made.set(2, 1.0));
    other.records.retain(|record| record.cell != "depth=1");
    for record in other.records.iter_mut().filter(|record| record.cell == "depth=2") {
        record.status = Status::Failed { reason: "gone".to_owned() };
        record.mark(Mark::Loopback);
    }
    other.environment.kernel = "6.0".to_owned();
    let comparison = compare(&one, &other, Parameters::default());
    assert_eq!(comparison.cells.len(), 1);
    assert_eq!(comparison.missing["depth=1"], "not in the second set");
    assert_eq!(comparison.missing["depth=2"], "gone");
    assert_eq!(comparison.differences, ["kernel: \"\" and \"6.0\""]);
    let turned = compare(&other, &one, Parameters::default());
    assert_eq!(turned.new, ["depth=1", "depth=2"]);
    let nothing =
        compare(&made.set(1, 1.0), &Made { cells: 0, ..made }.set(1, 1.0), Parameters::default());
    assert_eq!((nothing.cells.len(), nothing.overall.clone()), (0, None));
    assert!(!nothing.is_slower());
}
