use super::*;

fn points(all: &[(f64, &[f64])]) -> Vec<Point> {
    let of = |(rate, repeats): &(f64, &[f64])| Point {
        rate: *rate,
        repeats: repeats.iter().map(|one| one.ln()).collect(),
        slack: 0.0,
    };
    all.iter().map(of).collect()
}

/// A latency that falls with the rate is a mean of both; what is between is between both ends.
#[test]
fn what_is_measured_rises_with_the_rate() {
    let rising: &[(f64, &[f64])] =
        &[(3.0, &[90.0, 110.0]), (1.0, &[10.0, 10.5]), (2.0, &[40.0, 41.0])];
    let at = |all: &[(f64, &[f64])], rate| between(points(all), rate).expect("repeats");
    let [low, middle, high] = [1.0, 1.5, 2.0].map(|rate| at(rising, rate));
    assert!(low.value < middle.value && middle.value < high.value, "{middle:?}");
    assert!(middle.low == low.low && middle.high == high.high, "{middle:?}");
    assert!(high.low < 40.0 && high.high > 41.0, "{high:?}");
    let falling: &[(f64, &[f64])] =
        &[(1.0, &[10.0, 10.0]), (2.0, &[40.0, 40.0]), (3.0, &[10.0, 10.0]), (4.0, &[50.0, 50.0])];
    let [first, second] = [2.0, 3.0].map(|rate| at(falling, rate).value);
    assert!((first / 20.0 - 1.0).abs() < 1e-9 && first == second, "{first} {second}");
    assert!((at(falling, 4.0).value / 50.0 - 1.0).abs() < 1e-9);
    // Of more spread comes more doubt, and without a repeat there is no interval.
    let wide: &[(f64, &[f64])] = &[(1.0, &[5.0, 20.0]), (2.0, &[30.0, 50.0])];
    let width = |one: Interval| one.high / one.low;
    assert!(width(at(wide, 1.0)) > 3.0 * width(low));
    assert_eq!(between(points(&[(1.0, &[10.0]), (2.0, &[20.0])]), 1.5), None);
}
