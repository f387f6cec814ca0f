use std::path::PathBuf;

use weft_load::Latency;

use super::*;
use crate::results::{
    Configuration, Direction, LatencyRecord, Mark, Record, Side, Status, Value, key,
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

struct MadeUpRun {
    cells: u64,
    repeats: u32,
    /// The second set is so many times as fast.
    speed: f64,
    noise: f64,
}

impl MadeUpRun {
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
            window_iops: vec![10_000.0 * speed; 40],
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
        compare(&self.set(11, 1.0), &self.set(99, self.speed), &Parameters::default())
    }
}

#[test]
fn one_disturbed_repeat_changes_neither_the_values_nor_the_answer() {
    let made = MadeUpRun { cells: 1, repeats: 9, speed: 1.0, noise: 0.01 };
    let mut second = made.set(99, 1.0);
    second.records[4] = made.record(1, 5, 0.001, &mut Chance(7));
    let comparison = compare(&made.set(11, 1.0), &second, &Parameters::default());
    for compared in comparison.each() {
        assert_eq!(compared.answer, Answer::Same, "{compared:?}");
        assert!((0.97..1.03).contains(&compared.ratio), "{compared:?}");
    }
    assert!((median(&[3.0, 1.0, 2.0, 9.0]) - 2.5).abs() < 1e-12);
}

/// Of one set alone that would make a build differ from itself.
#[test]
fn spoilt_repeats_are_left_out_of_both_sets_or_of_none() {
    let made = MadeUpRun { cells: 1, repeats: 20, speed: 1.0, noise: 0.01 };
    let with = |seed: u64, sound: usize| {
        let mut set = made.set(seed, 1.0);
        for record in set.records.iter_mut().skip(sound) {
            *record = made.record(1, record.repeat, 0.6, &mut Chance(seed));
            let side =
                Side { seconds: 1.0, lost_s: Some(0.4), interruptions: 20, ..Side::default() };
            record.host = Some(side);
        }
        set
    };
    let repeats = |first: usize, second: usize| {
        let comparison = compare(&with(11, first), &with(99, second), &Parameters::default());
        let all: Vec<_> = comparison.each().map(|compared| compared.repeats).collect();
        assert!(!comparison.is_slower(), "{comparison:?}");
        all
    };
    assert_eq!(repeats(4, 2), [(20, 20)]);
    assert_eq!(repeats(4, 5), [(4, 5)]);
}

fn answers(comparison: &Comparison) -> Vec<Answer> {
    comparison.each().map(|compared| compared.answer).collect()
}

#[test]
fn enough_repeats_are_ranked_exactly() {
    let made = MadeUpRun { cells: 2, repeats: 8, speed: 0.8, noise: 0.01 };
    let comparison = made.compared();
    assert!(comparison.all().all(|one| one.answer == Answer::Slower), "{comparison:?}");
    assert!(comparison.is_slower());
    let first = &comparison.cells[0].metrics[0];
    assert!((first.p_slower - 1.0 / 12_870.0).abs() < 1e-9);
    assert!((first.p_slower_adjusted - 3.0 / 12_870.0).abs() < 1e-9);
    assert!(first.noticeable.is_some_and(|least| (0.05..0.09).contains(&least)), "{first:?}");
    assert_eq!((comparison.overall.len(), comparison.overall[0].repeats), (1, (8, 8)));
}

#[test]
fn what_got_faster_or_stayed_is_told_apart() {
    let of = |speed| MadeUpRun { cells: 1, repeats: 8, speed, noise: 0.005 }.compared();
    assert_eq!(answers(&of(1.3)), [Answer::Faster]);
    let same = of(1.0);
    assert!(same.all().all(|one| one.answer == Answer::Same), "{same:?}");
    assert!(!same.is_slower());
    // Slower, but not by more than the margin.
    assert!(!of(0.97).is_slower());
}

#[test]
fn too_few_repeats_are_refused_with_the_number_that_it_takes() {
    let made = MadeUpRun { cells: 24, repeats: 5, speed: 0.5, noise: 0.01 };
    let comparison = made.compared();
    assert!(comparison.all().all(|one| one.answer == Answer::TooFew));
    assert!(!comparison.is_slower());
    let refusal = comparison.inconclusive().expect("a reason");
    assert!(refusal.starts_with("5 repeats of a cell cannot convince"), "{refusal}");
    assert!(refusal.contains("25 questions") && refusal.contains("at least 6 of"), "{refusal}");
    let enough = MadeUpRun { repeats: 6, ..made }.compared();
    assert_eq!((enough.inconclusive(), enough.is_slower()), (None, true));
    assert!(enough.each().all(|one| one.answer == Answer::Slower));
    // Three metrics are three times as many questions.
    let metrics = ["iops", "mean", "p99"].map(str::to_owned).to_vec();
    let (one, other) = (made.set(1, 1.0), made.set(2, 0.5));
    let three = compare(&one, &other, &Parameters { metrics, ..Parameters::default() });
    assert_eq!((three.needed.questions, three.needed.least), (75, 7));
}

#[test]
fn requests_and_windows_do_not_convince_where_repeats_overlap() {
    // As many requests as there may be: two repeats are two values.
    let made = MadeUpRun { cells: 1, repeats: 2, speed: 0.7, noise: 0.001 };
    assert!(made.compared().inconclusive().is_some());
    // The spread from run to run is 10 %, within a run it is nothing.
    let made = MadeUpRun { cells: 10, repeats: 6, speed: 1.0, noise: 0.1 };
    for seed in 0..20 {
        let (one, other) = (made.set(seed * 2 + 1, 1.0), made.set(seed * 2 + 1000, 1.0));
        let metrics = ["iops", "mean"].map(str::to_owned).to_vec();
        let parameters = Parameters { metrics, ..Parameters::default() };
        let comparison = compare(&one, &other, &parameters);
        let changed = [Answer::Slower, Answer::Faster];
        assert!(!comparison.all().any(|one| changed.contains(&one.answer)), "{seed}");
    }
}

#[test]
fn the_plan_says_by_what_a_study_is_judged() {
    let made = MadeUpRun { cells: 2, repeats: 6, speed: 0.7, noise: 0.01 };
    let (mut one, other) = (made.set(1, 1.0), made.set(2, 0.7));
    let metric = |comparison: &Comparison| comparison.cells[0].metrics[0].metric.clone();
    assert_eq!(metric(&compare(&one, &other, &Parameters::default())), "iops");
    one.plan = crate::study::builtin::find("overhead-l-app").expect("a study").text.to_owned();
    let comparison = compare(&one, &other, &Parameters::default());
    assert_eq!(metric(&comparison), "p99");
    assert!(comparison.overall[0].ratio > 1.35, "{:?}", comparison.overall);
    assert!(comparison.is_slower());
}

#[test]
fn sets_that_were_measured_one_after_the_other_are_named() {
    let made = MadeUpRun { cells: 1, repeats: 6, speed: 1.0, noise: 0.01 };
    let (mut one, mut other) = (made.set(1, 1.0), made.set(2, 1.0));
    let during = |of: &mut Results, times: (u64, u64)| {
        (of.environment.started_at_ms, of.environment.ended_at_ms) = times;
    };
    during(&mut one, (100, 200));
    during(&mut other, (200, 300));
    let told = compare(&one, &other, &Parameters::default());
    assert!(told.is_undecided() && !told.is_slower(), "equal within a session says nothing");
    let differences = told.differences;
    assert!(differences[0].starts_with("time: one set was measured after"), "{differences:?}");
    during(&mut other, (101, 201));
    let told = compare(&one, &other, &Parameters::default());
    assert!(told.differences.is_empty() && !told.is_undecided());
}

/// Of 400 comparisons of a build with itself, 3 % from repeat to repeat and 10 % from session to
/// session, at most 5 % say that something changed, and none that it is the same; what is twice as
/// slow is found nevertheless.
#[test]
fn runs_after_each_other_are_told_apart_only_beyond_what_lies_between_sessions() {
    let made = MadeUpRun { cells: 3, repeats: 6, speed: 1.0, noise: 0.03 };
    let mut sessions = Chance(47);
    let (mut wrong, mut found) = (0, 0);
    for seed in 0..400u64 {
        let mut session = |speed: f64, at: u64| {
            let mut set = made.set(seed * 2 + at, speed * sessions.about_one(0.1));
            (set.environment.started_at_ms, set.environment.ended_at_ms) =
                (100 * at, 100 * at + 99);
            set
        };
        let (one, other, slow) = (session(1.0, 1), session(1.0, 2), session(0.5, 3));
        let told = compare(&one, &other, &Parameters::default());
        let is = |wanted: &[Answer]| told.all().any(|one| wanted.contains(&one.answer));
        assert!(!is(&[Answer::Same]));
        wrong += u32::from(is(&[Answer::Slower, Answer::Faster]));
        found += u32::from(compare(&one, &slow, &Parameters::default()).is_slower());
    }
    assert!(wrong <= 20, "{wrong} of 400");
    assert!(found > 380, "{found} of 400");
}

#[test]
fn not_slower_is_said_only_where_a_slow_down_would_have_been_seen() {
    let of = |noise| MadeUpRun { cells: 1, repeats: 6, speed: 1.0, noise }.compared();
    let (quiet, loud) = (of(0.01), of(0.3));
    assert!(!quiet.is_undecided() && !quiet.is_slower(), "{quiet:?}");
    assert!(loud.is_undecided() && !loud.is_slower(), "{loud:?}");
}

#[test]
fn cells_that_are_gone_are_told() {
    let made = MadeUpRun { cells: 3, repeats: 3, speed: 1.0, noise: 0.01 };
    let (one, mut other) = (made.set(1, 1.0), made.set(2, 1.0));
    other.records.retain(|record| record.cell != "depth=1");
    for record in other.records.iter_mut().filter(|record| record.cell == "depth=2") {
        record.status = Status::Failed { reason: "gone".to_owned() };
        record.mark(Mark::Loopback);
    }
    other.environment.kernel = "6.0".to_owned();
    let comparison = compare(&one, &other, &Parameters::default());
    assert_eq!(comparison.cells.len(), 1);
    assert_eq!(comparison.missing["depth=1"], "not in the second set");
    assert_eq!(comparison.missing["depth=2"], "gone");
    assert_eq!(comparison.differences, ["kernel: \"\" and \"6.0\""]);
    let turned = compare(&other, &one, &Parameters::default());
    assert_eq!(turned.new, ["depth=1", "depth=2"]);
    let nothing = compare(
        &made.set(1, 1.0),
        &MadeUpRun { cells: 0, ..made }.set(1, 1.0),
        &Parameters::default(),
    );
    assert_eq!((nothing.cells.len(), nothing.overall.len()), (0, 0));
    assert!(!nothing.is_slower());
}

#[test]
fn sessions_are_values_and_their_repeats_are_none() {
    let made = MadeUpRun { cells: 2, repeats: 50, speed: 1.0, noise: 0.001 };
    let set = |seeds: std::ops::Range<u64>, speed| -> Vec<Results> {
        seeds.map(|seed| made.set(seed, speed)).collect()
    };
    // However many repeats: three sessions cannot convince.
    let few = compare_sets(&set(0..3, 1.0), &set(3..6, 0.5), &Parameters::default());
    let refusal = few.inconclusive().expect("a reason");
    assert!(refusal.starts_with("3 sessions of a cell cannot convince"), "{refusal}");
    assert!(refusal.contains("sessions of each"), "{refusal}");
    let enough = compare_sets(&set(0..6, 1.0), &set(6..12, 0.5), &Parameters::default());
    assert!(enough.is_slower() && enough.inconclusive().is_none(), "{enough:?}");
    let one = compare_sets(&set(0..1, 1.0), &set(6..12, 0.5), &Parameters::default());
    let refusal = one.refusal().expect("a refusal");
    assert!(refusal.starts_with("one set has one session and the other 6 sessions"), "{refusal}");
}

#[test]
fn disturbed_sets_are_refused_unless_they_are_accepted() {
    let made = MadeUpRun { cells: 2, repeats: 10, speed: 1.0, noise: 0.01 };
    let quiet = made.set(1, 1.0);
    let disturb = |count: usize| {
        let mut set = made.set(2, 1.0);
        set.records.iter_mut().take(count).for_each(|record| record.mark(Mark::Disturbed));
        set
    };
    let accepting = Parameters { accepts_disturbed: true, ..Parameters::default() };
    let refusal = |first: &Results, second: &Results, parameters: &Parameters| {
        compare(first, second, parameters).refusal()
    };
    assert_eq!(refusal(&quiet, &disturb(2), &Parameters::default()), None, "a tenth");
    let why = refusal(&quiet, &disturb(3), &Parameters::default()).expect("a refusal");
    assert!(why.starts_with("3 of 20 repeats of the second set were disturbed"), "{why}");
    assert!(why.contains("--accept-disturbed") && why.contains("--wait-for-quiet"), "{why}");
    assert!(refusal(&disturb(3), &quiet, &Parameters::default()).is_some());
    let told = compare(&quiet, &disturb(3), &accepting);
    assert_eq!(told.refusal(), None);
    assert!(told.differences.iter().any(|what| what.contains("were disturbed")), "{told:?}");
    let mut busy = made.set(2, 1.0);
    busy.environment.idle = Some(crate::results::IdleRate {
        seconds: 2.0,
        processors: 2,
        cpu_s: 1.97,
        ..Default::default()
    });
    let why = refusal(&quiet, &busy, &Parameters::default()).expect("a refusal");
    assert!(why.starts_with("the machine was 98 % busy before the second set"), "{why}");
}
