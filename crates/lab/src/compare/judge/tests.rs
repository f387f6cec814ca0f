use weft_load::random::Random;

use super::*;

/// Values about `mean` with a spread of 10 % from repeat to repeat, as repeats on one machine have.
fn repeats(count: usize, mean: f64, random: &mut Random) -> Vec<f64> {
    let mut normal = || (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
    (0..count).map(|_| mean * (SPREAD * normal()).exp()).collect()
}

/// A page of so many cells of which the first one has this ratio, and their geometric means.
fn page(
    cells: usize,
    count: usize,
    is_time: bool,
    ratio: f64,
    random: &mut Random,
) -> Vec<Question> {
    let mut questions = Vec::new();
    for cell in 0..cells {
        let ratio = if cell == 0 { ratio } else { 1.0 };
        let first = repeats(count, 1000.0, random);
        questions.push(Question {
            first,
            second: repeats(count, 1000.0 * ratio, random),
            is_time,
            between: 0.0,
        });
    }
    let together = |side: fn(&Question) -> &[f64]| {
        let log = |round: usize| questions.iter().map(|of| side(of)[round].ln()).sum::<f64>();
        (0..count).map(|round| (log(round) / cells as f64).exp()).collect::<Vec<f64>>()
    };
    let (first, second) = (together(|of| &of.first), together(|of| &of.second));
    questions.push(Question { first, second, is_time, between: 0.0 });
    questions
}

/// In how many of so many simulations the predicate is true.
fn share(times: u64, mut of: impl FnMut(&mut Random) -> bool) -> f64 {
    (0..times).filter(|seed| of(&mut Random::new(2026, *seed))).count() as f64 / times as f64
}

fn changed(judged: &[Judgement]) -> bool {
    judged.iter().any(|one| matches!(one.answer, Answer::Slower | Answer::Faster))
}

#[test]
fn the_least_number_of_repeats_is_that_of_the_exact_test() {
    let of = |questions| least_repeats(questions, &Parameters::default());
    // 24 cells of one metric, and all together: 1 of 924 arrangements, against 0.04 ÷ 25.
    assert_eq!(of(25), 6);
    assert_eq!((of(1), of(2), of(75)), (4, 4, 7));
    for (count, can) in [(5, false), (6, true)] {
        let (first, second) = (vec![1000.0; count], vec![1.0; count]);
        let of = Question { first, second, is_time: false, between: 0.0 };
        assert_eq!(can_convince(&of, 25, &Parameters::default()), can);
    }
}

#[test]
fn a_slow_down_of_one_cell_is_found_with_the_recommended_repeats() {
    let parameters = Parameters::default();
    for (is_time, ratio) in [(false, 0.85), (true, 1.15)] {
        let found = |count: usize, times: u64| {
            share(times, |random| {
                let judged = judge(&page(24, count, is_time, ratio, random), &parameters);
                judged[0].answer == Answer::Slower
            })
        };
        let count = recommended_repeats(25, is_time, None, &parameters);
        let (enough, half) = (found(count, 100), found(count / 2, 50));
        assert!(enough >= 0.8, "{count} repeats: {enough}");
        // Nor are by far more recommended than it takes.
        assert!(half < 0.7, "{} repeats: {half}", count / 2);
    }
}

/// How many of so many simulated pages without a change report one.
fn wrong(times: u64, count: usize, margin: f64) -> f64 {
    let parameters = Parameters { margin, ..Parameters::default() };
    share(times, |random| changed(&judge(&page(24, count, false, 1.0, random), &parameters)))
}

#[test]
fn a_page_without_a_change_reports_one_in_at_most_five_of_a_hundred() {
    for (count, times) in [(6, 400), (25, 100)] {
        let share = wrong(times, count, 0.05);
        assert!(share <= 0.05, "{count} repeats: {share}");
    }
    // A margin far below the spread gives no protection of its own: then it is just 5 of 100, and
    // a simulation may find a few more (two standard deviations).
    let share = wrong(600, 9, 0.0001);
    assert!((0.02..0.068).contains(&share), "{share}");
}

#[test]
fn what_repeats_of_one_round_have_in_common_counts_once() {
    // The machine is in another state in every round, the same for all cells.
    let parameters = Parameters { margin: 0.0001, ..Parameters::default() };
    let wrong = share(400, |random| {
        let state = [repeats(8, 1000.0, random), repeats(8, 1000.0, random)];
        let [first, second] = state;
        let one = Question { first, second, is_time: false, between: 0.0 };
        changed(&judge(&vec![one; 25], &parameters))
    });
    assert!(wrong <= 0.05, "{wrong}");
}

/// Of 400 comparisons of a build with itself, 3 % from repeat to repeat and 10 % from session to
/// session, at most 5 % say that something changed: in turns, where both builds have the same
/// sessions, and of several sessions of three repeats, whose spread enters. A real 20 % is found.
#[test]
fn a_real_change_is_found_and_none_is_invented_in_turns_and_over_sessions() {
    let normal = |random: &mut Random| (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
    let value = |random: &mut Random, between: f64, within: f64| {
        1000.0 * (between * normal(random) + within * normal(random)).exp()
    };
    for (count, cells, between, within) in [(6, 3, 0.0, 0.03), (12, 1, 0.1, 0.03 / 3f64.sqrt())] {
        let page = |ratio: f64, random: &mut Random| -> Vec<Judgement> {
            let mut set = |ratio: f64| -> Vec<f64> {
                (0..count).map(|_| ratio * value(random, between, within)).collect()
            };
            // A median latency shows it, as one that is longer.
            let question =
                |_| Question { first: set(1.0), second: set(ratio), is_time: true, between: 0.0 };
            let questions: Vec<Question> = (0..cells).map(question).collect();
            judge(&questions, &Parameters::default())
        };
        let wrong = share(400, |random| changed(&page(1.0, random)));
        let slower = |one: &Judgement| one.answer == Answer::Slower;
        let found = share(400, |random| page(1.2, random).iter().any(slower));
        assert!(wrong <= 0.05, "{count} of {between}: {wrong}");
        assert!(found >= if between > 0.0 { 0.8 } else { 0.95 }, "{count} of {between}: {found}");
    }
}
