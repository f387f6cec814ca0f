//! Which places are hot: fio's `random_distribution`.

use std::f64::consts::LN_2;

use crate::pattern::permutation::Permutation;
use crate::random::Random;
use crate::units::whole;

/// How random requests are spread over their region.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Spread {
    /// Each place is as likely as the other.
    #[default]
    Uniform,
    /// By Zipf's law with this exponent; where the most likely place is, from 0 to 1, if not
    /// anywhere.
    Zipf(f64, Option<f64>),
    /// By Pareto's law: `h` of the places take `1 - h` of the requests.
    Pareto(f64, Option<f64>),
    /// Normally, widened by so many percent of the region.
    Normal(f64, Option<f64>),
    /// By zones that follow each other.
    Zoned(Vec<Zone>),
}

/// A zone of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// So many of a hundred requests go there.
    pub accesses: u32,
    /// How long it is.
    pub length: ZoneLength,
}

/// How long a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLength {
    /// Percent of the region.
    Percent(u32),
    /// Bytes.
    Bytes(u64),
}

/// Terms of the sum behind Zipf's law at most, as in fio.
const TERMS_MAX: u64 = 10_000_000;

/// Uniform numbers whose mean is taken for a normal one, as in fio.
const NORMAL_TERMS: u64 = 12;

/// Spreads what a law makes neighbours over the region: fio multiplies by the golden ratio, and so
/// places may fall together.
const SCATTER: u64 = 0x61c8_8646_80b5_83eb;

/// Chooses places.
#[derive(Clone, Debug)]
pub struct Chooser {
    places: u64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Map(Permutation),
    Uniform,
    Zipf {
        exponent: f64,
        eta: f64,
        sum: f64,
        second: f64,
        shift: u64,
    },
    Pareto {
        power: f64,
        shift: u64,
    },
    Normal {
        deviation: u64,
        shift: u64,
    },
    /// Of a hundred requests the first so many go to places from there on, so many of them.
    Zoned(Vec<(u64, u64, u64)>),
}

impl Chooser {
    /// Chooses among so many places (one at least) of `align` bytes. `map`: with a uniform spread
    /// every place comes once before any comes again.
    #[must_use]
    pub fn new(spread: &Spread, places: u64, align: u64, map: bool, mut random: Random) -> Self {
        let places = places.max(1);
        let n = places as f64;
        // Where no centre is given, it is anywhere.
        let mut shift = |centre: Option<f64>| match centre {
            Some(centre) => whole(n * centre) % places,
            None => random.word() % places,
        };
        let law = match spread {
            Spread::Uniform if map => Law::Map(Permutation::new(places, random)),
            Spread::Uniform => Law::Uniform,
            Spread::Zipf(theta, centre) => {
                let sum = zeta(places.min(TERMS_MAX), *theta);
                let first_two = 1.0 + (-theta * LN_2).exp();
                let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - first_two / sum);
                let exponent = 1.0 / (1.0 - theta);
                Law::Zipf { exponent, eta, sum, second: first_two, shift: shift(*centre) }
            }
            Spread::Pareto(h, centre) => {
                Law::Pareto { power: h.ln() / (1.0 - h).ln(), shift: shift(*centre) }
            }
            Spread::Normal(deviation, centre) => {
                let deviation = whole((n * deviation / 100.0).ceil()).min(places / 2);
                // The middle is the default, and the law is there without a shift.
                let off = whole(n * (centre.unwrap_or(0.5) + 0.5)) % places;
                Law::Normal { deviation, shift: off }
            }
            Spread::Zoned(zones) => Law::Zoned(zoned(zones, places, align)),
        };
        Self { places, law }
    }

    /// Begins a pass: where every place comes once, all come again.
    pub fn restart(&mut self) {
        if let Law::Map(permutation) = &mut self.law {
            permutation.restart();
        }
    }

    /// The next place.
    #[inline]
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        let places = self.places;
        let scattered =
            |place: u64, shift: u64| (place.wrapping_mul(SCATTER) % places + shift) % places;
        match &mut self.law {
            Law::Map(permutation) => permutation.draw(),
            Law::Uniform => random.below(places),
            Law::Zipf { exponent, eta, sum, second, shift } => {
                let unit = random.unit();
                let place = match unit * *sum {
                    first if first < 1.0 => 0,
                    two if two < *second => 1,
                    _ => whole(places as f64 * (*eta * (unit - 1.0) + 1.0).powf(*exponent)),
                };
                scattered(place, *shift)
            }
            Law::Pareto { power, shift } => {
                let place = whole((places - 1) as f64 * random.unit().powf(*power));
                scattered(place, *shift)
            }
            Law::Normal { deviation, shift } => {
                let sum: u64 = (0..NORMAL_TERMS).map(|_| random.below(places + 1)).sum();
                let mean = sum.div_ceil(NORMAL_TERMS);
                let place = widened(mean, *deviation, places, random);
                scattered(place, *shift)
            }
            Law::Zoned(zones) => {
                let at = random.below(100);
                let zone = zones.iter().find(|(accesses, ..)| at < *accesses).or(zones.last());
                zone.map_or(0, |(_, from, count)| from + random.below(*count))
            }
        }
    }
}

/// Moves a place by up to half of `deviation` either way; less where that would leave the region.
fn widened(place: u64, deviation: u64, places: u64, random: &mut Random) -> u64 {
    let half = deviation / 2;
    let by = random.below(deviation);
    let (mut distance, up) = if by >= half { (by - half, true) } else { (half - by, false) };
    loop {
        let moved = if up { place.checked_add(distance) } else { place.checked_sub(distance) };
        match moved {
            Some(moved) if moved < places || distance == 0 => return moved,
            _ => distance /= 2,
        }
    }
}

fn zoned(zones: &[Zone], places: u64, align: u64) -> Vec<(u64, u64, u64)> {
    let (mut accesses, mut percent, mut from) = (0, 0, 0);
    let mut all = Vec::with_capacity(zones.len());
    for zone in zones {
        accesses += u64::from(zone.accesses);
        let end = match zone.length {
            ZoneLength::Percent(length) => {
                percent += u64::from(length);
                u64::try_from(u128::from(places) * u128::from(percent) / 100).unwrap_or(places)
            }
            ZoneLength::Bytes(length) => from + length / align.max(1),
        };
        let end = end.min(places);
        all.push((accesses, from.min(places - 1), end.saturating_sub(from).max(1)));
        from = end;
    }
    all
}

/// The sum of `1 / i ^ theta` for i from 1 to `terms`: the first of them one by one, and the rest
/// by the formula of Euler and Maclaurin.
fn zeta(terms: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1_000;
    let term = |i: u64| (i as f64).powf(-theta);
    let exact: f64 = (1..=terms.min(EXACT)).map(term).sum();
    if terms <= EXACT {
        return exact;
    }
    let (a, b) = (EXACT as f64, terms as f64);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (term(terms) - term(EXACT)) / 2.0;
    let slopes = theta * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0)) / 12.0;
    exact + integral + ends + slopes
}
