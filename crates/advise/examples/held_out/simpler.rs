//! Ways to predict a cell without a model of what it is made of.

use weft_advise::{Arrivals, Cell};

/// A cell: what is known before it is measured, and what was measured.
#[derive(Clone)]
pub(crate) struct Point {
    way: String,
    /// What arrives; none in a closed loop.
    rate: Option<f64>,
    depth: f64,
    cores: f64,
    /// Requests under way, on average.
    in_flight: f64,
    /// p99 and mean latency in s, and requests a second.
    measured: [f64; 3],
}

impl Point {
    pub(crate) fn of(way: &str, cell: &Cell) -> Self {
        let [p99, mean] = [cell.quantile(0.99).unwrap_or(0.0), cell.mean_ns[1]].map(|ns| ns / 1e9);
        let (rate, in_flight) = match cell.arrivals {
            Arrivals::Poisson(rate) => (Some(rate), cell.iops * mean),
            Arrivals::Closed => (None, cell.depth as f64),
        };
        let (depth, cores) = (cell.depth as f64, cell.host_cores as f64);
        Self {
            way: way.to_owned(),
            rate,
            depth,
            cores,
            in_flight,
            measured: [p99, mean, cell.iops],
        }
    }

    /// What orders cells of a kind: the rate, or the depth of a closed loop.
    fn load(&self) -> f64 {
        self.rate.unwrap_or(self.depth).ln()
    }

    fn is_sound(&self) -> bool {
        self.measured[0] > 0.0 && self.rate.is_none_or(|rate| self.measured[2] >= 0.98 * rate)
    }
}

/// In ns, and requests a second: of a cell, from others of its way, and from all of other ways.
type Method = fn(&Point, &[Point], &[Point]) -> [f64; 3];

pub(crate) const METHODS: [(&str, Method); 6] = [
    ("nearest measured cell", nearest),
    ("between the two nearest", line),
    ("linear in requests in flight", |asked, rest, _| in_flight(asked, rest, 2)),
    ("1/(1 − ρ)", queue),
    ("universal scalability law", |asked, rest, _| in_flight(asked, rest, 3)),
    ("boosted trees", trees),
];

/// The rate follows from what arrives, or by Little's law.
fn with_rate(asked: &Point, p99: f64, mean: f64) -> [f64; 3] {
    [p99 * 1e9, mean * 1e9, asked.rate.unwrap_or(asked.depth / mean)]
}

fn alike<'a>(asked: &Point, rest: &'a [Point]) -> Vec<&'a Point> {
    let is_alike = |one: &&Point| one.rate.is_some() == asked.rate.is_some() && one.is_sound();
    let mut alike: Vec<&Point> = rest.iter().filter(is_alike).collect();
    let distance = |one: &Point| (one.cores / asked.cores).ln().abs();
    let least = alike.iter().map(|one| distance(one)).fold(f64::INFINITY, f64::min);
    alike.retain(|one| distance(one) <= least);
    if alike.is_empty() {
        alike = rest.iter().collect();
    }
    alike.sort_by(|one, other| one.load().total_cmp(&other.load()));
    alike
}

fn nearest(asked: &Point, rest: &[Point], _: &[Point]) -> [f64; 3] {
    let alike = alike(asked, rest);
    let distance = |one: &Point| (one.load() - asked.load()).abs();
    let near = alike.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)));
    near.map_or([f64::NAN; 3], |near| with_rate(asked, near.measured[0], near.measured[1]))
}

/// By logarithms.
fn line(asked: &Point, rest: &[Point], all: &[Point]) -> [f64; 3] {
    let alike = alike(asked, rest);
    let above = alike.iter().position(|one| one.load() >= asked.load());
    let Some(above) = above.filter(|at| *at > 0) else { return nearest(asked, rest, all) };
    let (low, high) = (alike[above - 1], alike[above]);
    let at = (asked.load() - low.load()) / (high.load() - low.load()).max(1e-9);
    let [p99, mean] =
        [0, 1].map(|of| ((1.0 - at) * low.measured[of].ln() + at * high.measured[of].ln()).exp());
    with_rate(asked, p99, mean)
}

/// A latency is the middle of what it would be at rate 0, divided by what is left of the most.
fn queue(asked: &Point, rest: &[Point], _: &[Point]) -> [f64; 3] {
    let alike = alike(asked, rest);
    let same = rest.iter().filter(|one| one.cores == asked.cores || alike[0].cores == one.cores);
    let most = 1.02 * same.map(|one| one.measured[2]).fold(0.0, f64::max);
    let service = |of: usize| {
        let free = |one: &&Point| one.measured[of] * (1.0 - one.measured[2] / most);
        let mut all: Vec<f64> = alike.iter().map(free).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    };
    // Of a closed loop: mean = service / (1 - depth / mean / most).
    let rate = asked.rate.unwrap_or_else(|| asked.depth / (service(1) + asked.depth / most));
    let left = (1.0 - rate / most).max(0.01);
    with_rate(asked, service(0) / left, service(1) / left)
}

/// Latency as a polynomial of the requests in flight; with the square of them it is the universal
/// scalability law, N/X = (1 + σ(N - 1) + κN(N - 1)) / λ.
fn in_flight(asked: &Point, rest: &[Point], terms: usize) -> [f64; 3] {
    let sound: Vec<&Point> = rest.iter().filter(|one| one.is_sound()).collect();
    let [p99, mean] = [0, 1].map(|of| least_squares(&sound, of, terms));
    let at = |law: &[f64; 3], count: f64| {
        let value = law[0] + law[1] * (count - 1.0) + law[2] * count * (count - 1.0);
        value.max(1e-9)
    };
    let Some(rate) = asked.rate else {
        return with_rate(asked, at(&p99, asked.depth), at(&mean, asked.depth));
    };
    // As many are under way as arrive during their mean latency.
    let mut count = 0.0;
    for _ in 0..1000 {
        count = 0.5 * count + 0.5 * (rate * at(&mean, count)).min(asked.depth);
    }
    with_rate(asked, at(&p99, count), at(&mean, count))
}

/// The law of the least relative squares, without terms that would be negative.
fn least_squares(points: &[&Point], of: usize, terms: usize) -> [f64; 3] {
    let mut used = [true, true, terms > 2];
    loop {
        let mut matrix = [[0.0; 4]; 3];
        for (row, used) in used.iter().enumerate() {
            matrix[row][row] += if *used { 1e-12 } else { 1.0 };
        }
        for point in points {
            let (count, value) = (point.in_flight, point.measured[of]);
            let all = [1.0, count - 1.0, count * (count - 1.0)];
            let features: Vec<f64> =
                all.iter().zip(used).map(|(one, used)| if used { *one } else { 0.0 }).collect();
            for row in 0..3 {
                for column in 0..3 {
                    matrix[row][column] += features[row] * features[column] / (value * value);
                }
                matrix[row][3] += features[row] / value;
            }
        }
        let law = solved(matrix);
        match (1..3).find(|at| used[*at] && law[*at] < 0.0) {
            Some(at) => used[at] = false,
            None => return law,
        }
    }
}

/// By Gauss and Jordan.
fn solved(mut matrix: [[f64; 4]; 3]) -> [f64; 3] {
    for at in 0..3 {
        let pivot = matrix[at][at];
        matrix[at].iter_mut().for_each(|one| *one /= pivot);
        for other in (0..3).filter(|other| *other != at) {
            let by = matrix[other][at];
            let row = matrix[at];
            matrix[other].iter_mut().zip(row).for_each(|(one, of)| *one -= by * of);
        }
    }
    matrix.map(|row| row[3])
}

/// Of a tree: which feature is at most what, and the two sides; or a value.
enum Tree {
    Split(usize, f64, Box<[Tree; 2]>),
    Leaf(f64),
}

type Features = [f64; FEATURES];
const FEATURES: usize = 5;

/// Gradient boosting, with the cells of all other ways as well: how many times the least latency
/// of its way a cell has.
fn trees(asked: &Point, rest: &[Point], all: &[Point]) -> [f64; 3] {
    let known: Vec<&Point> =
        rest.iter().chain(all.iter().filter(|one| one.way != asked.way)).collect();
    let of_way = |one: &Point| {
        let way: Vec<&&Point> = known.iter().filter(|other| other.way == one.way).collect();
        let least =
            [0, 1].map(|of| way.iter().map(|one| one.measured[of]).fold(f64::INFINITY, f64::min));
        (least, way.iter().map(|one| one.measured[2]).fold(0.0, f64::max))
    };
    let features = |one: &Point| -> ([f64; 2], Features) {
        let (least, most) = of_way(one);
        let load = one.rate.map_or(0.0, |rate| rate / most);
        let depth = one.rate.map_or(one.depth.ln(), |_| -1.0);
        (least, [load, depth, one.cores, least[1].ln(), (least[0] / least[1]).ln()])
    };
    let sound: Vec<&&Point> = known.iter().filter(|one| one.is_sound()).collect();
    let rows: Vec<([f64; 2], Features)> = sound.iter().map(|one| features(one)).collect();
    let (least, own) = features(asked);
    let [p99, mean] = [0, 1].map(|of| {
        let inputs: Vec<Features> = rows.iter().map(|row| row.1).collect();
        let mut left: Vec<f64> =
            sound.iter().zip(&rows).map(|(one, row)| (one.measured[of] / row.0[of]).ln()).collect();
        let mut sum = 0.0;
        for _ in 0..150 {
            let tree = grown(&inputs, &left, &(0..left.len()).collect::<Vec<usize>>(), 3);
            for (one, input) in left.iter_mut().zip(&inputs) {
                *one -= 0.1 * value(&tree, input);
            }
            sum += 0.1 * value(&tree, &own);
        }
        least[of] * sum.exp()
    });
    with_rate(asked, p99, mean)
}

fn value(tree: &Tree, input: &Features) -> f64 {
    match tree {
        Tree::Leaf(value) => *value,
        Tree::Split(of, most, sides) => value(&sides[usize::from(input[*of] > *most)], input),
    }
}

fn grown(inputs: &[Features], left: &[f64], rows: &[usize], height: usize) -> Tree {
    let sum: f64 = rows.iter().map(|row| left[*row]).sum();
    let mut best: Option<(f64, usize, f64)> = None;
    if height > 0 {
        for of in (0..FEATURES).rev() {
            let mut ordered = rows.to_vec();
            ordered.sort_by(|one, other| inputs[*one][of].total_cmp(&inputs[*other][of]));
            let mut below = 0.0;
            for (at, pair) in ordered.windows(2).enumerate() {
                below += left[pair[0]];
                let (few, many) = (at as f64 + 1.0, (ordered.len() - at - 1) as f64);
                let (low, high) = (inputs[pair[0]][of], inputs[pair[1]][of]);
                let gain = below * below / few + (sum - below).powi(2) / many;
                if low < high && few.min(many) >= 2.0 && best.is_none_or(|one| gain > one.0) {
                    best = Some((gain, of, f64::midpoint(low, high)));
                }
            }
        }
    }
    let Some((_, of, most)) = best else { return Tree::Leaf(sum / rows.len().max(1) as f64) };
    let (low, high): (Vec<usize>, Vec<usize>) =
        rows.iter().copied().partition(|row| inputs[*row][of] <= most);
    let sides = [low, high].map(|rows| grown(inputs, left, &rows, height - 1));
    Tree::Split(of, most, Box::new(sides))
}
