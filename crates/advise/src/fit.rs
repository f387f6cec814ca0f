//! Parameters of a network from cells that were measured.
//!
//! What a request needs where it meets no other comes from the cell with the lowest latency: the
//! delays of the network are the quantiles of that cell without what its cores took. The times of
//! the cores and the width of the device are those with which the simulation comes closest to all
//! cells, by the logarithms of rate, mean and quantiles: found by the simplex search of Nelder and
//! Mead from a few beginnings.
//!
//! No core may work much longer than its threads ran, which tells a slow host from a slow target.
//! Then the interruptions that no scheduler counts (the hypervisor's, those of devices) are
//! searched in the same way.
//!
//! What other programs took of a cell's cores is measured beside it. What is fitted is the network
//! without them: a simulated number has no error between the measured one and what that is without
//! the requests that may have waited for other programs.

use crate::network::{Arrivals, Core, Interruptions, Network, Outcome};
use crate::predict::is_served;
use crate::residual::Residual;

/// A cell that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What arrived.
    pub arrivals: Arrivals,
    /// Most requests under way.
    pub depth: usize,
    /// Cores of the host.
    pub host_cores: usize,
    /// Cores of the target; 0 for a device of this machine.
    pub target_cores: usize,
    /// Requests a second.
    pub iops: f64,
    /// Mean latency, in ns: the least that it may be without other programs, and as measured.
    pub mean_ns: [f64; 2],
    /// Quantiles of the latency: which part of the requests, and its bound in ns, in order.
    pub quantiles: Vec<(f64, f64)>,
    /// Which part of the requests may have waited for other programs.
    pub late: f64,
    /// What each core lost to them.
    pub interruptions: Interruptions,
    /// The part of its time for which a core of the host and one of the target ran, polling
    /// included: it worked no longer. None where it was not measured.
    pub ran: [Option<f64>; 2],
}

impl Cell {
    /// A quantile without other programs, at the least, and as measured.
    fn quantile_range(&self, part: f64) -> Option<[f64; 2]> {
        Some([self.quantile(part * (1.0 - self.late))?, self.quantile(part)?])
    }

    /// The same of the rate: a closed loop has no requests while a core is lost.
    fn iops_range(&self) -> [f64; 2] {
        let cores = if self.target_cores > 0 { 2.0 } else { 1.0 };
        let kept = match self.arrivals {
            Arrivals::Poisson(_) => 1.0,
            Arrivals::Closed => (1.0 - cores * self.interruptions.share).max(0.1),
        };
        [self.iops, self.iops / kept]
    }

    /// A quantile, between those that are known by their logarithms.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let above = self.quantiles.iter().position(|one| one.0 >= part)?;
        let (high_part, high) = self.quantiles[above];
        let Some((low_part, low)) = above.checked_sub(1).map(|below| self.quantiles[below]) else {
            return Some(high);
        };
        let at = (part - low_part) / (high_part - low_part).max(f64::EPSILON);
        Some((low.max(1.0).ln() * (1.0 - at) + high.max(1.0).ln() * at).exp())
    }

    /// Whether what arrived was served: otherwise its latency says how long the run was.
    #[must_use]
    pub fn is_served(&self) -> bool {
        match self.arrivals {
            Arrivals::Poisson(rate) => is_served(rate, self.iops),
            Arrivals::Closed => true,
        }
    }
}

/// Quantiles that are compared, and how much each counts.
const COMPARED: [(f64, f64); 4] = [(0.5, 1.0), (0.9, 1.0), (0.99, 2.0), (0.999, 0.5)];

/// How much rate and mean count.
const RATE: f64 = 8.0;
const MEAN: f64 = 2.0;

/// How much it counts that a core works longer than it ran. Otherwise the rates of one number of
/// cores do not tell whether host or target is the slower.
const RAN: f64 = 1.0;

/// Delays have so many steps, the last of which is the highest quantile that is not [`LATE`]: what
/// is beyond is no delay of the device but an interruption.
const STEPS: u32 = 200;

/// Requests that are simulated for each cell where the search begins, then, and for its errors.
const ROUGHLY: usize = 1000;
const SEARCHED: usize = 3000;
const JUDGED: usize = 50_000;

/// Parts of the lowest latency that a turn takes in the beginnings of the search, the best of which
/// are followed.
const TURNS: [f64; 3] = [0.01, 0.06, 0.2];
const BEGUN: usize = 2;

/// Steps of the search, and how often it is made of each half of the parameters.
const STEPS_MAX: usize = 60;
const ROUNDS: usize = 2;

/// The search ends where its corners' costs differ by this part.
const CLOSE: f64 = 0.01;

/// A request that takes this multiple of the median has met an interruption.
const LATE: f64 = 4.0;

/// A device of this width is as wide as there are requests.
const WIDE: f64 = 1e5;

/// A network that was fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Its parameters; its cores are those of the cell with the lowest latency.
    pub network: Network,
    /// What each core loses besides, which no scheduler counts.
    pub interruptions: Interruptions,
    /// What each core lost to other programs while it was measured.
    pub others: Interruptions,
    /// Errors of the cells that were fitted, as natural logarithms of simulated by measured: rate,
    /// mean, and the quantiles.
    pub errors: Vec<CellErrors>,
    /// What the model leaves of the cells with random arrivals, by their rates.
    pub(crate) residuals: Vec<Residual>,
    /// The mean latency of the cell with the lowest one.
    pub(crate) alone_ns: f64,
    /// The highest rate that was measured for each number of cores (host, target).
    pub measured: Vec<([usize; 2], f64)>,
}

/// The errors of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CellErrors {
    /// Of the rate.
    pub iops: f64,
    /// Of the mean latency; none where what arrived was not served.
    pub mean: Option<f64>,
    /// Of the quantiles that are compared; none where one is not known.
    pub quantiles: [Option<f64>; COMPARED.len()],
}

/// Natural logarithms of parameters: times of the host's cores, the width of the device, and times
/// of the target's cores if there is one; share and length of interruptions.
type Stations = Vec<f64>;
type Losses = Vec<f64>;

impl Fit {
    /// The network that comes closest to these cells. None if there are too few: three, of which
    /// one has at most half of the highest rate.
    #[must_use]
    pub fn new(cells: &[Cell], seed: u64) -> Option<Self> {
        let most = cells.iter().map(|cell| cell.iops).fold(0.0, f64::max);
        // A program that sleeps wakes up slowly, so that a latency may be lower where more arrives.
        let slow = cells.iter().filter(|cell| cell.is_served() && cell.iops <= most / 2.0);
        let alone = slow.min_by(|one, other| {
            let of = |cell: &Cell| cell.quantile(0.5).unwrap_or(f64::INFINITY);
            of(one).total_cmp(&of(other))
        })?;
        if cells.len() < 3 {
            return None;
        }
        let plain = Search { cells, alone, seed, has_lanes: false };
        let mut losses = plain.losses();
        let ends = [false, true].into_iter().flat_map(|has_lanes| {
            let search = Search { has_lanes, ..plain };
            let ends = search.ends(most, &losses).into_iter();
            ends.map(move |(cost, end)| (cost, end, search))
        });
        let (_, mut stations, search) = ends.min_by(|one, other| one.0.total_cmp(&other.0))?;
        for _ in 0..ROUNDS {
            let simulated = search.simulated(&stations, SEARCHED);
            (_, losses) = nelder_mead(losses, |at| search.cost_of(&stations, &simulated, at));
            (_, stations) = nelder_mead(stations, |at| search.cost(at, &losses, SEARCHED));
        }
        let network = search.network(&stations, alone);
        let judged = search.simulated(&stations, JUDGED);
        let interruptions = search.seen(&stations, &judged, &losses);
        let errors = search.errors(&network, &judged, interruptions);
        let others = mean(cells.iter().map(|cell| cell.interruptions));
        let mut measured: Vec<([usize; 2], f64)> = Vec::new();
        for cell in cells {
            let cores = [cell.host_cores, cell.target_cores];
            match measured.iter_mut().find(|one| one.0 == cores) {
                Some((_, rate)) => *rate = rate.max(cell.iops),
                None => measured.push((cores, cell.iops)),
            }
        }
        let residuals = Vec::new();
        let alone_ns = alone.mean_ns[0].max(1.0);
        let fit = Self { network, interruptions, others, errors, residuals, alone_ns, measured };
        Some(fit.with_residuals(cells))
    }

    /// What interrupts each core, seen by a scheduler or not.
    #[must_use]
    pub const fn interrupted_by(&self) -> [Interruptions; 2] {
        [self.interruptions, self.others]
    }

    /// The root of the mean square of the errors of a kind, by the cells beyond the parameters.
    #[must_use]
    pub fn deviation(&self, of: impl Fn(&CellErrors) -> Option<f64>) -> f64 {
        let errors: Vec<f64> = self.errors.iter().filter_map(of).collect();
        let square: f64 = errors.iter().map(|error| error * error).sum();
        // Each cell has several numbers, so that a parameter takes a part of a cell.
        let free = (errors.len() as f64 - 2.0).max(1.0);
        (square / free).sqrt()
    }
}

impl CellErrors {
    /// That of a quantile that is compared.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let place = COMPARED.iter().position(|one| one.0 == part)?;
        self.quantiles.get(place).copied().flatten()
    }
}

#[derive(Clone, Copy)]
struct Search<'a> {
    cells: &'a [Cell],
    alone: &'a Cell,
    seed: u64,
    /// Whether the device has them.
    has_lanes: bool,
}

impl Search<'_> {
    /// Host, target or device is the slowest, and a core has little, some or much to do in a turn.
    fn beginnings(&self, most: f64) -> impl Iterator<Item = Stations> {
        let alone = self.alone.quantile(0.5).unwrap_or(1000.0);
        let cores = |cell: &Cell| cell.host_cores.max(1) as f64;
        let fastest = self.cells.iter().max_by(|one, other| one.iops.total_cmp(&other.iops));
        let request = fastest.map_or(1e9 / most, |cell| cores(cell) * 1e9 / cell.iops);
        // Lanes are never all in use.
        let spare = if self.has_lanes { 2.0 } else { 1.0 };
        let width = spare * (most * alone / 1e9).max(1.0);
        let (has_lanes, has_target) = (self.has_lanes, self.has_target());
        TURNS.into_iter().flat_map(move |part| {
            let turn = (alone * part).max(100.0);
            // A full turn of the slowest has so much left for each of its requests.
            let slow = (request - turn / 32.0).max(0.3 * request);
            let part = 0.3 * request;
            let wide = if has_lanes { width } else { WIDE };
            let mut all =
                vec![vec![turn, part, width, turn, part], vec![turn, slow, wide, turn, part]];
            if has_target {
                all.push(vec![turn, part, wide, turn, slow]);
            }
            all.into_iter().map(move |mut begin| {
                begin.truncate(if has_target { 5 } else { 3 });
                begin.into_iter().map(f64::ln).collect()
            })
        })
    }

    /// The ends of the searches that begin best, and their costs.
    fn ends(&self, most: f64, losses: &[f64]) -> Vec<(f64, Stations)> {
        let cost = |at: &[f64]| self.cost(at, losses, ROUGHLY);
        let begun = self.beginnings(most).map(|begin| (cost(&begin), begin));
        let mut begun: Vec<(f64, Stations)> = begun.collect();
        begun.sort_by(|one, other| one.0.total_cmp(&other.0));
        begun.into_iter().take(BEGUN).map(|(_, begin)| nelder_mead(begin, cost)).collect()
    }

    const fn has_target(&self) -> bool {
        self.alone.target_cores > 0
    }

    /// What cores lose to others, by the requests of the fastest cell that took far longer than
    /// the others.
    fn losses(&self) -> Losses {
        let late_from = LATE * self.alone.quantile(0.5).unwrap_or_default();
        let cores = if self.alone.target_cores > 0 { 2.0 } else { 1.0 };
        let mut late = (0.0, 0.0);
        for pair in self.alone.quantiles.windows(2) {
            let (part, length) = (pair[1].0 - pair[0].0, pair[1].1);
            if length > late_from {
                late = (late.0 + part, late.1 + part * (length - late_from / LATE));
            }
        }
        let mean_ns = if late.0 > 0.0 { late.1 / late.0 } else { 10.0 * late_from };
        vec![(late.0 / cores).max(1e-3).ln(), mean_ns.ln()]
    }

    /// The network of these parameters, with the cores of a cell.
    fn network(&self, stations: &[f64], cell: &Cell) -> Network {
        let of = |at: usize| stations.get(at).map_or(0.0, |one| one.clamp(-20.0, 30.0).exp());
        let [host_turn, host, width, target_turn, target] = [0, 1, 2, 3, 4].map(of);
        let own = 2.0 * host_turn + host + target_turn + target;
        let late_from = LATE * self.alone.quantile(0.5).unwrap_or_default();
        let mut known = self.alone.quantiles.iter().rev();
        let calm = known.find(|one| one.1 <= late_from).map_or(0.5, |one| one.0);
        let delays_ns = (0..=STEPS).map(|step| {
            let part = f64::from(step) / f64::from(STEPS);
            let known = self.alone.quantile_range((part * calm).max(0.01));
            (known.map_or(0.0, |[quiet, _]| quiet) - own).max(0.0)
        });
        Network {
            host: Core { turn_ns: host_turn, request_ns: host },
            host_cores: cell.host_cores.max(1),
            target: Core { turn_ns: target_turn, request_ns: target },
            target_cores: cell.target_cores,
            delays_ns: delays_ns.collect(),
            device_width: if width > WIDE / 10.0 { f64::INFINITY } else { width },
            wire_ns: 0.0,
            has_lanes: self.has_lanes,
        }
    }

    /// Each cell without interruptions.
    fn simulated(&self, stations: &[f64], requests: usize) -> Vec<Outcome> {
        let each = self.cells.iter().map(|cell| {
            self.network(stations, cell).simulate(cell.arrivals, cell.depth, requests, self.seed)
        });
        each.collect()
    }

    fn errors(
        &self,
        network: &Network,
        simulated: &[Outcome],
        by: Interruptions,
    ) -> Vec<CellErrors> {
        let each = self.cells.iter().zip(simulated).map(|(cell, outcome)| {
            let network = Network {
                host_cores: cell.host_cores.max(1),
                target_cores: cell.target_cores,
                ..network.clone()
            };
            let outcome = outcome.clone().interrupted(&network, cell.arrivals, &[by]);
            let is_served = cell.is_served();
            let quantiles = COMPARED.map(|(part, _)| {
                let range = cell.quantile_range(part).filter(|_| is_served)?;
                Some(beyond(outcome.quantile(part), range))
            });
            CellErrors {
                iops: beyond(outcome.iops, cell.iops_range()),
                mean: is_served.then(|| beyond(outcome.mean(), cell.mean_ns)),
                quantiles,
            }
        });
        each.collect()
    }

    /// The interruptions without which the cells are explained worse. A search that changes nothing
    /// stays where it began: closed loops may not show what would be late in each open one.
    fn seen(&self, stations: &[f64], judged: &[Outcome], losses: &[f64]) -> Interruptions {
        let cost = |losses: &[f64]| self.cost_of(stations, judged, losses);
        let with = cost(losses);
        let is_worse = cost(&[f64::NEG_INFINITY; 2]) > (1.0 + CLOSE) * with;
        if is_worse { interruptions(losses) } else { Interruptions::default() }
    }

    fn cost(&self, stations: &[f64], losses: &[f64], requests: usize) -> f64 {
        self.cost_of(stations, &self.simulated(stations, requests), losses)
    }

    fn cost_of(&self, stations: &[f64], simulated: &[Outcome], losses: &[f64]) -> f64 {
        let network = self.network(stations, self.alone);
        // A far error counts by its size: one cell that is not of this model leaves the others.
        let bounded = |error: f64| {
            let size = error.abs();
            if size < 0.5 { size * size } else { size - 0.25 }
        };
        let mut cost = 0.0;
        for (cell, outcome) in self.cells.iter().zip(simulated) {
            for (busy, ran) in outcome.busy.into_iter().zip(cell.ran) {
                let longer = ran.map_or(0.0, |ran| (busy / ran.max(0.01)).ln().max(0.0));
                cost += RAN * bounded(longer);
            }
        }
        for errors in self.errors(&network, simulated, interruptions(losses)) {
            cost +=
                RATE * bounded(errors.iops) + errors.mean.map_or(0.0, |one| MEAN * bounded(one));
            for ((_, weight), error) in COMPARED.iter().zip(errors.quantiles) {
                cost += error.map_or(0.0, |error| weight * bounded(error));
            }
        }
        cost / self.cells.len() as f64
    }
}

fn interruptions(losses: &[f64]) -> Interruptions {
    Interruptions { share: losses[0].exp().min(0.5), mean_ns: losses[1].exp() }
}

/// How far a number is outside a range, as a natural logarithm.
fn beyond(number: f64, [low, high]: [f64; 2]) -> f64 {
    let ratio = |of: f64| (number.max(1.0) / of.max(1.0)).ln();
    ratio(high).max(0.0) + ratio(low).min(0.0)
}

/// What cores lose in all cells together.
fn mean(cells: impl ExactSizeIterator<Item = Interruptions>) -> Interruptions {
    let count = cells.len() as f64;
    let (mut share, mut pieces) = (0.0, 0.0);
    for cell in cells.filter(|cell| cell.share > 0.0) {
        share += cell.share;
        pieces += cell.share / cell.mean_ns.max(1.0);
    }
    Interruptions { share: share / count, mean_ns: share / f64::max(pieces, f64::MIN_POSITIVE) }
}

/// The parameters of the least cost near a beginning, and that cost.
fn nelder_mead(begin: Vec<f64>, cost: impl Fn(&[f64]) -> f64) -> (f64, Vec<f64>) {
    let count = begin.len();
    let at = |corner: Vec<f64>| (cost(&corner), corner);
    let mut simplex = vec![at(begin.clone())];
    for place in 0..count {
        let mut corner = begin.clone();
        corner[place] -= 0.5;
        simplex.push(at(corner));
    }
    for _ in 0..STEPS_MAX {
        simplex.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (best, second) = (simplex[0].clone(), simplex[count - 1].0);
        let last = simplex[count].clone();
        if last.0 - best.0 < CLOSE * best.0 + 1e-5 {
            break;
        }
        let mut middle = vec![0.0; count];
        for (_, corner) in &simplex[..count] {
            for (sum, one) in middle.iter_mut().zip(corner) {
                *sum += one / count as f64;
            }
        }
        let along = |by: f64| {
            let mut corner = middle.clone();
            for (one, worst) in corner.iter_mut().zip(&last.1) {
                *one += by * (*one - worst);
            }
            at(corner)
        };
        let reflected = along(1.0);
        let next = if reflected.0 < best.0 {
            let expanded = along(2.0);
            if expanded.0 < reflected.0 { expanded } else { reflected }
        } else if reflected.0 < second {
            reflected
        } else {
            along(if reflected.0 < last.0 { 0.5 } else { -0.5 })
        };
        if next.0 < last.0 {
            simplex[count] = next;
            continue;
        }
        for corner in &mut simplex[1..] {
            for (one, best) in corner.1.iter_mut().zip(&best.1) {
                *one = f64::midpoint(*best, *one);
            }
            *corner = at(std::mem::take(&mut corner.1));
        }
    }
    simplex.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((0.0, begin))
}

/// A cell as a simulation had it: for tests, and where a truth is to be known.
#[must_use]
pub fn cell_of(network: &Network, arrivals: Arrivals, depth: usize, outcome: &Outcome) -> Cell {
    let parts = (1..100).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.999, 0.9999]);
    Cell {
        arrivals,
        depth,
        host_cores: network.host_cores,
        target_cores: network.target_cores,
        iops: outcome.iops,
        mean_ns: [outcome.mean(); 2],
        quantiles: parts.map(|part| (part, outcome.quantile(part))).collect(),
        late: 0.0,
        interruptions: Interruptions::default(),
        ran: outcome.busy.map(Some),
    }
}
