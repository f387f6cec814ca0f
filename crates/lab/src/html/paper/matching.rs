//! Finds the measured number that corresponds to a published one.

use crate::{
    cells::{
        Cell, Cells, Metric, Part, Reading,
        gate::{Gate, Sentence, gate},
        value_order,
    },
    html::draw,
    published::PublishedResult,
    results::{Connection, Role, Value, key},
    study::{
        matrix::is_network,
        plan::{Kind, Plan},
    },
};

/// Share of the maximum from which on a curve is near its peak.
const NEAR_PEAK: f64 = 0.9;
/// Share of another curve from which on a curve is on a par with it.
const PARITY: f64 = 0.95;

/// The measured number for a published one.
#[derive(Clone, Debug)]
pub(super) struct Counterpart {
    /// In the same unit as the published number.
    pub(super) value: f64,
    /// How the settings differ.
    pub(super) differences: Vec<String>,
    /// Whether the cells that it is of allow a verdict.
    pub(super) gate: Gate,
    /// What they were measured on: transport, device and cores.
    pub(super) setting: String,
}

/// The result of the search.
#[derive(Clone, Debug)]
pub(super) enum Match {
    Found(Counterpart),
    Missing(String),
}

/// Finds the measured number.
pub(super) fn counterpart(result: &PublishedResult, cells: &Cells, plan: &Plan) -> Match {
    let role = match (plan.kind, result.metric.as_str()) {
        (Kind::Interference, "latency_interference" | "throughput_sustained") => Role::Foreground,
        (kind, _) => draw::role(kind),
    };
    let Some(transport) = transport(result, plan) else {
        let published = result.transport.as_deref().unwrap_or("its transport");
        return Match::Missing(format!("no transport of this study corresponds to {published}"));
    };
    let of_point = |cell: &&Cell| {
        transport.as_ref().is_none_or(|wanted| cell.text(key::TRANSPORT) == wanted)
            && fits(result, cell)
    };
    let mut candidates: Vec<&Cell> = cells.measured(role).filter(of_point).collect();
    if candidates.is_empty() {
        return Match::Missing(why_not(cells, role, &of_point));
    }
    let differences = nearest(result, &mut candidates);
    match value(result, cells, &candidates) {
        Some(value) if value.is_finite() => {
            let time = ["s", "ms", "us"].contains(&result.unit.as_str());
            let metric = Metric::named(if time { "mean" } else { "iops" });
            let relative = relative(result);
            let all: Vec<&Cell> = match &relative {
                Some(one) => {
                    candidates.iter().flat_map(|cell| one.made_from(cells, cell)).collect()
                }
                None => candidates.iter().copied().chain(beside(result, cells)).collect(),
            };
            let metric = relative.or(metric);
            let gate = metric.map(|metric| gate(Sentence::Published, &metric, &all));
            let gate = gate.unwrap_or_else(|| unreachable!("both are metrics"));
            let setting = setting(cells, &candidates);
            Match::Found(Counterpart { value, differences, gate, setting })
        }
        _ => Match::Missing("the corresponding cells do not have this number".to_owned()),
    }
}

/// Cells of the transports that a number is made from besides its own.
fn beside<'a>(result: &PublishedResult, cells: &'a Cells) -> Vec<&'a Cell> {
    let transports: Vec<&str> = match result.metric.as_str() {
        "p99_added" | "p99_added_pct" => {
            result.between.iter().flatten().map(String::as_str).collect()
        }
        "local_over_remote_iops" | "bs_at_parity" => vec!["local", "tcp"],
        _ => Vec::new(),
    };
    let is_of = |cell: &&Cell| transports.contains(&cell.text(key::TRANSPORT));
    cells.measured(Role::Plain).filter(is_of).collect()
}

/// The transports, devices and cores of cells, each once.
fn setting(cells: &Cells, of: &[&Cell]) -> String {
    let each = |word: &dyn Fn(&Cell) -> String| {
        let mut words: Vec<String> = of.iter().map(|cell| word(cell)).collect();
        words.sort_unstable();
        words.dedup();
        words.retain(|word| !word.is_empty());
        words.join(" or ")
    };
    let path = |cell: &Cell| {
        let within = cell.connection.as_ref().map(Connection::is_within_a_machine);
        let place = match within {
            Some(true) => " within one machine",
            Some(false) => " between two machines",
            None => "",
        };
        format!("{}{place}", cell.text(key::TRANSPORT))
    };
    let device = |cell: &Cell| match cell.text(key::DEVICE) {
        "" if cell.role == Role::Link => String::new(),
        "" => "a device that is not known".to_owned(),
        "memory" | "null" => cell.text(key::DEVICE).to_owned(),
        name => format!("device {name}"),
    };
    let cores = |cell: &Cell| {
        let side = |key: &str, side: &str| {
            cell.value(key).map(|count| format!("{count} of the {side}'s cores"))
        };
        let sides = [side(key::HOST_CORES, "host"), side(key::TARGET_CORES, "target")];
        sides.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    };
    let mut words = vec![each(&path), each(&device), each(&cores)];
    if cells.environment.processor.hypervisor {
        words.push("virtual".to_owned());
    }
    words.retain(|word| !word.is_empty());
    words.join(", ")
}

/// The plan's name for the document's transport; an outer None: there is none, an inner one: the
/// number names no transport.
#[expect(clippy::option_option, reason = "two different questions")]
fn transport(result: &PublishedResult, plan: &Plan) -> Option<Option<String>> {
    let Some(published) = &result.transport else {
        let remote = ["best_idle_poll", "p99_improvement", "iops_improvement"];
        let any = remote.iter().any(|metric| result.metric.starts_with(metric));
        return Some(any.then(|| "tcp".to_owned()));
    };
    let known = plan.published.as_ref().and_then(|known| known.transports.get(published));
    if let Some(name) = known {
        return Some(Some(name.clone()));
    }
    Some(Some(match published.as_str() {
        "local" => "local".to_owned(),
        published if published.contains("rdma") => "rdma".to_owned(),
        published if published.contains("tcp") => "tcp".to_owned(),
        _ => return None,
    }))
}

fn why_not(cells: &Cells, role: Role, of_point: &dyn Fn(&&Cell) -> bool) -> String {
    let skipped = cells.cells.iter().filter(|cell| cell.role == role).find(of_point);
    let reason = skipped.and_then(|cell| cell.missing.first()).and_then(|status| status.reason());
    reason.map_or_else(|| "no cell with these settings".to_owned(), str::to_owned)
}

/// Whether a cell has the settings of the published number that belong to the load.
fn fits(result: &PublishedResult, cell: &Cell) -> bool {
    let pattern = result.pattern.as_deref().is_none_or(|patterns| {
        patterns.split(',').any(|pattern| match pattern {
            "rw70" => ["rw", "randrw"].contains(&cell.text(key::PATTERN)),
            pattern => cell.text(key::PATTERN) == pattern,
        })
    });
    // A raw link has its own patterns.
    let pattern = pattern || cell.role == Role::Link;
    let same = |key: &str, published: Option<u64>| {
        published.is_none_or(|published| {
            cell.value(key).is_none_or(|measured| *measured == published.into())
        })
    };
    let depth = result.metric.ends_with("_max") || same(key::DEPTH, result.qd);
    // The published backgrounds were storage.
    pattern
        && depth
        && !is_network(&cell.configuration)
        && same(key::BLOCK_BYTES, result.bs_bytes)
        && result.settings.iter().all(|(key, published)| cell.value(key) == Some(published))
}

/// Keeps the candidates nearest in jobs and cores; returns the differences.
fn nearest(result: &PublishedResult, candidates: &mut Vec<&Cell>) -> Vec<String> {
    let mut differences = Vec::new();
    if result.study.ends_with("-interference") {
        // The thesis has hosts that poll.
        let is = |cell: &Cell, word: &str| cell.text(key::HOST_POLLING) == word;
        if candidates.iter().any(|cell| is(cell, "spin")) {
            candidates.retain(|cell| is(cell, "spin"));
        } else if candidates.iter().any(|cell| is(cell, "sleep")) {
            differences.push("hosts that sleep measured, hosts that poll published".to_owned());
        }
    }
    for (name, published, keys) in [
        ("jobs", result.jobs, &[key::JOBS][..]),
        ("cores", result.cores, &[key::CORES, key::HOST_CORES, key::JOBS][..]),
    ] {
        let Some(published) = published else { continue };
        let of = |cell: &Cell| keys.iter().find_map(|key| cell.value(key)?.as_integer());
        let distance =
            |cell: &Cell| of(cell).map_or(u64::MAX, |measured| measured.abs_diff(published));
        let Some(least) = candidates.iter().map(|cell| distance(cell)).min() else { continue };
        candidates.retain(|cell| distance(cell) == least);
        if let Some(measured) = candidates.first().and_then(|cell| of(cell))
            && measured != published
        {
            differences.push(format!("{measured} {name} measured, {published} published"));
        }
    }
    let qd = result.qd.filter(|_| result.metric.ends_with("_max"));
    if let Some(published) = qd {
        let most = candidates.iter().filter_map(|cell| cell.value(key::DEPTH)?.as_integer()).max();
        if let Some(most) = most.filter(|most| *most < published) {
            differences.push(format!("up to depth {most} measured, {published} published"));
        }
    }
    differences
}

/// The metric of a number that is relative to another cell.
fn relative(result: &PublishedResult) -> Option<Metric> {
    let name = match result.metric.as_str() {
        "lat_added" => "delta",
        "concurrency_max" => "concurrency",
        "latency_interference" => "latency-interference",
        "throughput_sustained" => "throughput-sustained",
        _ => return None,
    };
    Metric::named(name)
}

fn value(result: &PublishedResult, cells: &Cells, candidates: &[&Cell]) -> Option<f64> {
    let read = |name: &str, cell: &Cell| -> Option<f64> {
        match Metric::named(name)?.read(cells, cell) {
            Reading::Is(estimate) => Some(estimate.mean),
            Reading::Unresolved | Reading::Unknown => None,
        }
    };
    let all = |name: &str| -> Vec<f64> {
        candidates.iter().filter_map(|cell| read(name, cell)).collect()
    };
    let most = |name: &str| all(name).into_iter().reduce(f64::max);
    let first = |name: &str| candidates.iter().find_map(|cell| read(name, cell));
    let metric = result.metric.as_str();
    match metric {
        "iops" | "iops_max" => most("iops"),
        "iops_min" => all("iops").into_iter().reduce(f64::min),
        "iops_saturation" => first("saturation"),
        "bandwidth" | "bandwidth_peak" => most("bandwidth"),
        "latency" => {
            let at_depth_1 = |cell: &&&Cell| cell.value(key::DEPTH) == Some(&Value::from(1u64));
            candidates.iter().filter(at_depth_1).find_map(|cell| read("mean", cell))
        }
        "lat_mean" => first("mean"),
        "lat_added" => first("delta"),
        "concurrency_max" => most("concurrency"),
        "latency_interference" => most("latency-interference"),
        "throughput_sustained" => all("throughput-sustained").into_iter().reduce(f64::min),
        "cpu_usr" => share(candidates, &[Part::User], false),
        "cpu_sys" => share(candidates, &[Part::System, Part::Softirq], false),
        "cpu_iowait" => share(candidates, &[Part::Iowait], false),
        "host_cpu" | "host_cpu_max" => busy(candidates, false),
        "target_cpu" => busy(candidates, true),
        "bs_at_near_peak" => reaches(cells, candidates, key::BLOCK_BYTES, "bandwidth"),
        "cores_at_peak" => reaches(cells, candidates, key::CORES, "iops"),
        "jobs_at_peak" => reaches(cells, candidates, key::JOBS, "iops"),
        "qd_at_write_saturation" => reaches(cells, candidates, key::DEPTH, "iops"),
        "p99_added" | "p99_added_pct" => added(result, cells),
        "local_over_remote_iops" => {
            let of = |name| transport_most(cells, name, "iops");
            Some(of("local")? / of("tcp")?)
        }
        "bs_at_parity" => parity(cells),
        "p99_improvement" | "iops_improvement" => improvement(metric, cells),
        "p99_improvement_min" | "p99_improvement_max" | "best_idle_poll" => {
            idle_poll(metric, cells, candidates)
        }
        _ => {
            let percentile = metric.strip_prefix("lat_")?;
            first(percentile)
        }
    }
}

fn share(candidates: &[&Cell], parts: &[Part], target: bool) -> Option<f64> {
    let sides = draw::sides(candidates.first()?, target);
    let shares: Option<Vec<f64>> = parts.iter().map(|part| part.share(&sides)).collect();
    Some(100.0 * shares?.iter().sum::<f64>())
}

fn busy(candidates: &[&Cell], target: bool) -> Option<f64> {
    Some(100.0 - share(candidates, &[Part::Idle, Part::Iowait], target)?)
}

/// The smallest value of an axis at which a metric is near its peak.
fn reaches(cells: &Cells, candidates: &[&Cell], axis: &str, metric: &str) -> Option<f64> {
    let metric = Metric::named(metric)?;
    let mut points: Vec<(&Value, f64)> = candidates
        .iter()
        .filter_map(|cell| Some((cell.value(axis)?, metric.read(cells, cell).mean()?)))
        .collect();
    points.sort_by(|(one, _), (other, _)| value_order(axis, one, other));
    let peak = points.iter().map(|(_, value)| *value).reduce(f64::max)?;
    // One point is no curve.
    let (first, last) = (points.first()?.0, points.last()?.0);
    if first == last {
        return None;
    }
    points.iter().find(|(_, value)| *value >= NEAR_PEAK * peak)?.0.as_number()
}

fn of_transport<'a>(cells: &'a Cells, transport: &'a str) -> impl Iterator<Item = &'a Cell> {
    cells.measured(Role::Plain).filter(move |cell| cell.text(key::TRANSPORT) == transport)
}

fn transport_most(cells: &Cells, transport: &str, metric: &str) -> Option<f64> {
    let metric = Metric::named(metric)?;
    of_transport(cells, transport)
        .filter_map(|cell| metric.read(cells, cell).mean())
        .reduce(f64::max)
}

/// p99 of one transport above another's, in ns or in percent.
fn added(result: &PublishedResult, cells: &Cells) -> Option<f64> {
    let [without, with] = result.between.as_ref()?;
    let metric = Metric::named("p99")?;
    let p99 =
        |name: &str| of_transport(cells, name).find_map(|cell| metric.read(cells, cell).mean());
    let (with, without) = (p99(with)?, p99(without)?);
    if result.metric == "p99_added" {
        return Some(with - without);
    }
    Some(100.0 * (with / without - 1.0))
}

/// The smallest block size at which the best bandwidth over TCP is on a par with local.
fn parity(cells: &Cells) -> Option<f64> {
    let metric = Metric::named("bandwidth")?;
    let mut sizes: Vec<u64> = of_transport(cells, "tcp")
        .filter_map(|cell| cell.value(key::BLOCK_BYTES)?.as_integer())
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best = |transport: &str, size: u64| {
        of_transport(cells, transport)
            .filter(|cell| cell.value(key::BLOCK_BYTES) == Some(&Value::from(size)))
            .filter_map(|cell| metric.read(cells, cell).mean())
            .reduce(f64::max)
    };
    let at_par = |size: &u64| Some(best("tcp", *size)? >= PARITY * best("local", *size)?);
    sizes.into_iter().find(|size| at_par(size) == Some(true)).map(|size| size as f64)
}

/// The gain of polling over sleeping: p99 at depth 1, or maximum IOPS, in percent.
fn improvement(metric: &str, cells: &Cells) -> Option<f64> {
    let of = |polling: &'static str| {
        cells.measured(Role::Plain).filter(move |cell| cell.text(key::HOST_POLLING) == polling)
    };
    if metric == "iops_improvement" {
        let iops = Metric::named("iops")?;
        let most =
            |polling| of(polling).filter_map(|cell| iops.read(cells, cell).mean()).reduce(f64::max);
        return Some(100.0 * (most("spin")? / most("sleep")? - 1.0));
    }
    let p99 = Metric::named("p99")?;
    let one = Value::from(1u64);
    let at_1 = |polling| {
        let mut cells_of = of(polling).filter(|cell| cell.value(key::DEPTH) == Some(&one));
        cells_of.find_map(|cell| p99.read(cells, cell).mean())
    };
    Some(100.0 * (1.0 - at_1("spin")? / at_1("sleep")?))
}

/// The gain in p99 at depth 1 from the target's idle polling: the best value in µs (as ns), or the
/// least and the most gain over no idle polling, in percent.
fn idle_poll(metric: &str, cells: &Cells, candidates: &[&Cell]) -> Option<f64> {
    let p99 = Metric::named("p99")?;
    let points: Vec<(f64, f64)> = candidates
        .iter()
        .filter(|cell| cell.value(key::DEPTH) == Some(&Value::from(1u64)))
        .filter_map(|cell| {
            Some((cell.number(key::TARGET_IDLE_POLL_US)?, p99.read(cells, cell).mean()?))
        })
        .collect();
    if metric == "best_idle_poll" {
        let best = points.iter().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        return Some(best.0 * 1e3);
    }
    let base = points.iter().find(|(idle, _)| *idle == 0.0)?.1;
    let gains = points.iter().filter(|(idle, _)| *idle > 0.0);
    let gains = gains.map(|(_, p99)| 100.0 * (1.0 - p99 / base));
    if metric.ends_with("_min") { gains.reduce(f64::min) } else { gains.reduce(f64::max) }
}
