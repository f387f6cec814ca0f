//! What measured cells give to the model, and what they say by themselves.

use weft_advise::fit::Cell as FittedCell;
use weft_advise::network::Interruptions;
use weft_advise::predict::{CLOSEST, NORMAL};
use weft_advise::{Arrivals, Interval};

use crate::cells::{Cell, Repeat};
use crate::results::{Side, Value, key, number};

/// Settings of the load: cells that differ in them alone are of one way.
pub(super) const OF_THE_LOAD: [&str; 5] =
    [key::DEPTH, key::JOBS, key::LOAD_PERCENT, key::RATE_IOPS, key::RATE_PROCESS];

/// Quantiles that a cell gives to the model.
const PERCENTILES: [f64; 14] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.9];

/// The p99 of a cell, and without what may be of other programs' making.
pub(super) fn p99_of(cell: &Cell) -> Option<Interval> {
    let value = cell.latency().percentile_ns(99.0)? as f64;
    let [down, _] = cell.slack("p99");
    Some(Interval { value, low: value * (-down).exp(), high: value })
}

/// The p99 of a cell with what another run may have: as many requests at random, one of its
/// repeats, or a machine that differs from minute to minute; at the least without other programs.
pub(super) fn point_of(cell: &Cell) -> Option<Interval> {
    let (own, latency) = (p99_of(cell)?, cell.latency());
    let apart = 100.0 * NORMAL * (0.99 * 0.01 / latency.count() as f64).sqrt();
    let at = |percentile| latency.percentile_ns(percentile).unwrap_or(latency.max_ns()) as f64;
    let around = Interval::around(own.value, CLOSEST);
    let repeats = cell.repeats.iter().filter_map(|repeat| repeat.latency.percentile_ns(99.0));
    let repeats: Vec<f64> = repeats.map(|ns| ns as f64).collect();
    let low = repeats.iter().copied().fold(around.low.min(at(99.0 - apart)), f64::min);
    let high = repeats.into_iter().fold(around.high.max(at(99.0 + apart)), f64::max);
    Some(Interval { low: low * own.low / own.value, high, ..own })
}

/// A setting that counts something; 1 if it is not set.
pub(super) fn whole(value: Option<&Value>) -> usize {
    usize::try_from(value.and_then(Value::as_integer).unwrap_or(1)).unwrap_or(usize::MAX)
}

pub(super) fn mean_iops(cell: &Cell) -> f64 {
    cell.repeats.iter().map(|repeat| repeat.iops).sum::<f64>() / cell.repeats.len().max(1) as f64
}

/// A cell for the model: the mean of its repeats, and the latencies of all.
pub(super) fn fitted_cell(cell: &Cell) -> Option<FittedCell> {
    let latency = cell.latency();
    let mean = |of: &dyn Fn(&Repeat) -> Option<f64>| {
        let values: Vec<f64> = cell.repeats.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let iops = mean(&|repeat| Some(repeat.iops))?;
    let whole = |key: &str| whole(cell.value(key));
    let offered = mean(&|repeat| repeat.values.get(number::OFFERED_IOPS).copied());
    let arrivals = match (offered, cell.number(key::RATE_IOPS)) {
        (Some(rate), _) | (None, Some(rate)) if rate > 0.0 => Arrivals::Poisson(rate),
        _ => Arrivals::Closed,
    };
    let quantiles = PERCENTILES.iter().filter_map(|percentile| {
        Some((percentile / 100.0, latency.percentile_ns(*percentile)? as f64))
    });
    let is_local = cell.text(key::TRANSPORT) == "local";
    let mean_ns = latency.mean_ns();
    let [down, _] = cell.slack("mean");
    let undisturbed_ns = mean_ns * (-down).exp();
    let [host_cores, target_cores] =
        [key::HOST_CORES, key::TARGET_CORES].map(|side| whole(side).max(whole(key::CORES)));
    Some(FittedCell {
        arrivals,
        depth: whole(key::DEPTH) * whole(key::JOBS),
        host_cores,
        target_cores: if is_local { 0 } else { target_cores },
        iops,
        mean_ns: [undisturbed_ns, mean_ns],
        quantiles: quantiles.collect(),
        late: mean(&|repeat| Some(repeat.lost.requests))?,
        interruptions: mean_interruptions(cell),
        ran: [
            used(cell, |repeat| &repeat.host).map(|used| used / host_cores as f64),
            used(cell, |repeat| &repeat.target).map(|used| used / target_cores as f64),
        ],
    })
}

/// What each core of a cell lost to other programs.
fn mean_interruptions(cell: &Cell) -> Interruptions {
    let sides = cell.repeats.iter().flat_map(|repeat| [&repeat.host, &repeat.target]).flatten();
    let (mut seconds, mut lost_s, mut pieces) = (0.0, 0.0, 0.0);
    for (side, lost) in sides.filter_map(|side| Some((side, side.lost_s?))) {
        seconds += side.seconds;
        lost_s += lost;
        pieces += side.interruptions as f64;
    }
    match seconds > 0.0 && pieces > 0.0 {
        true => Interruptions { share: lost_s / seconds, mean_ns: lost_s / pieces * 1e9 },
        false => Interruptions::default(),
    }
}

/// Processors that a side of a cell used.
fn used(cell: &Cell, of: fn(&Repeat) -> &Option<Side>) -> Option<f64> {
    let sides = cell.repeats.iter().filter_map(|repeat| of(repeat).as_ref());
    let (cpu_s, seconds) = sides.fold((0.0, 0.0), |(cpu_s, seconds), side| {
        (cpu_s + side.cpu_seconds(), seconds + side.seconds)
    });
    (seconds > 0.0).then_some(cpu_s / seconds)
}

/// Processors of the host and of the target at a rate: between the cells with the nearest rates.
pub(super) fn processors(cells: &[Cell], rate: f64) -> [Option<f64>; 2] {
    let at = |of: fn(&Repeat) -> &Option<Side>| {
        let points = cells.iter().filter_map(|cell| Some((mean_iops(cell), used(cell, of)?)));
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let above = points.iter().position(|point| point.0 >= rate);
        match above {
            Some(0) => points.first().map(|point| point.1),
            Some(above) => {
                let ((low, less), (high, more)) = (points[above - 1], points[above]);
                Some(less + (more - less) * (rate - low) / (high - low).max(f64::MIN_POSITIVE))
            }
            None => points.last().map(|point| point.1),
        }
    };
    [at(|repeat| &repeat.host), at(|repeat| &repeat.target)]
}
