//! The findings of a study, in sentences that are computed from the numbers.
//!
//! Every sentence asks [`gate`] or [`compare`] first: the marks of its cells allow it, and what it
//! compares has separate intervals. Differences within 5 % do not count.

use super::{
    tradeoff::{CLOSE, Criterion, Tradeoff, tradeoff},
    units,
};
use crate::{
    cells::{
        Cell, Cells, Estimate, MOST_REACHED, Metric, Unit,
        gate::{Gate, Sentence, Sifted, compare, gate},
        knee, value_order,
    },
    limits::FULL,
    results::{Mark, Role, Value, key, number},
    study::{
        matrix::is_network,
        plan::{Kind, Plan},
    },
};

/// Share of the maximum at which a curve has reached it.
const NEAR: f64 = 0.9;

/// The sentences for a study.
pub(super) fn findings(cells: &Cells, plan: &Plan) -> Vec<String> {
    let mut sentences = match plan.kind {
        Kind::Matrix => matrix(cells),
        Kind::Link => link(cells),
        Kind::Saturation => saturation(cells),
        Kind::Interference => interference(cells),
        Kind::Load => load(cells),
    };
    if sentences.is_empty() {
        sentences.push(match cells.cells.iter().any(Cell::is_measured) {
            true => "This study compares no alternatives: see the figures.".to_owned(),
            false => "No cell has a result.".to_owned(),
        });
    }
    sentences
}

fn named(name: &str) -> Metric {
    Metric::named(name).unwrap_or_else(|| unreachable!("{name} is a metric"))
}

fn matrix(cells: &Cells) -> Vec<String> {
    let Some(tradeoff) = tradeoff(cells, Role::Plain) else {
        return knees(cells);
    };
    let local = Value::from("local");
    let mut sentences = Vec::new();
    if tradeoff.key == key::TRANSPORT && tradeoff.alternatives.contains(&local) {
        for remote in tradeoff.alternatives.iter().filter(|value| **value != local) {
            sentences.extend(share_of_local(cells, remote));
            sentences.extend(from_where_on(cells, remote));
            sentences.extend(added_latency(cells, remote));
        }
        if tradeoff.alternatives.len() > 2 {
            sentences.extend(winners(&tradeoff));
        }
    } else {
        sentences.extend(winners(&tradeoff));
    }
    sentences.extend(knees(cells));
    sentences.extend(cpu(&tradeoff));
    sentences
}

fn of_transport<'a>(cells: &'a Cells, transport: &'a Value) -> impl Iterator<Item = &'a Cell> + 'a {
    cells.measured(Role::Plain).filter(move |cell| cell.value(key::TRANSPORT) == Some(transport))
}

/// The cells of a transport with their share of local, and whether that differs from all of it.
fn shares<'a>(cells: &'a Cells, remote: &'a Value) -> Sifted<(f64, &'a Cell)> {
    let metric = named("share-of-local");
    Sifted::of(of_transport(cells, remote).filter_map(|cell| {
        let (share, local) = (metric.read(cells, cell).estimate()?, cells.local(cell)?);
        let all = Estimate::exact(1.0);
        let gate = compare(Sentence::Comparison, &metric, &[cell, local], &share, &all);
        Some((gate, (share.mean, cell)))
    }))
}

fn share_of_local(cells: &Cells, remote: &Value) -> Vec<String> {
    let mut shares = shares(cells, remote);
    shares.allowed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let mut sentences = Vec::new();
    match &shares.allowed[..] {
        [] => {}
        [(share, _)] => sentences.push(format!(
            "IOPS over {remote} are {} of the local IOPS{}.",
            units::percent(*share),
            shares.named()
        )),
        [(least, worst), .., (most, best)] => {
            let points = shares.allowed.len();
            let middle = shares.allowed.get(points / 2).map_or(*most, |(share, _)| *share);
            sentences.push(format!(
                "IOPS over {remote} are between {} ({}) and {} ({}) of the local IOPS; the median \
                 over {points} points is {}{}.",
                units::percent(*least),
                place(cells, worst),
                units::percent(*most),
                place(cells, best),
                units::percent(middle),
                shares.named()
            ));
        }
    }
    let refused = shares.refusal();
    sentences.extend(refused.map(|why| format!("IOPS over {remote} beside local: {why}.")));
    sentences
}

/// A cell by the settings that vary, without its transport.
fn place(cells: &Cells, cell: &Cell) -> String {
    let words: Vec<String> = cells
        .varied(cell.role)
        .iter()
        .filter(|key| *key != key::TRANSPORT)
        .filter_map(|key| cell.value(key).map(|value| units::setting(key, value)))
        .collect();
    if words.is_empty() { "the only point".to_owned() } else { words.join(", ") }
}

/// The first numeric axis along which a threshold is sought.
fn first_axis(cells: &Cells) -> Option<String> {
    const AXES: [&str; 6] =
        [key::BLOCK_BYTES, key::DEPTH, key::CORES, key::JOBS, key::HOST_CORES, key::TARGET_CORES];
    let varied = cells.varied(Role::Plain);
    AXES.iter().find(|axis| varied.iter().any(|key| key == *axis)).map(|axis| (*axis).to_owned())
}

/// The share of local of a cell, and whether it can be told from 95 %.
fn near_local(cells: &Cells, cell: &Cell) -> Option<(Gate, f64)> {
    let metric = named("share-of-local");
    let share = metric.read(cells, cell).estimate()?;
    let (both, bound) = ([cell, cells.local(cell)?], Estimate::exact(1.0 - CLOSE));
    Some((compare(Sentence::Comparison, &metric, &both, &share, &bound), share.mean))
}

/// The value of the first axis from which on a remote transport is as good as local.
fn from_where_on(cells: &Cells, remote: &Value) -> Option<String> {
    let axis = first_axis(cells)?;
    let mut places: Vec<(Value, Gate, f64)> = Vec::new();
    for cell in of_transport(cells, remote) {
        let Some((value, (gate, share))) = cell.value(&axis).zip(near_local(cells, cell)) else {
            continue;
        };
        // A value of the axis counts by its worst cell.
        match places.iter_mut().find(|(known, ..)| known == value) {
            Some(place) if share < place.2 => *place = (value.clone(), gate, share),
            Some(_) => {}
            None => places.push((value.clone(), gate, share)),
        }
    }
    let named = Sifted::of(places.iter().map(|(_, gate, _)| (gate.clone(), ())));
    if places.len() < 2 || named.allowed.is_empty() {
        return None;
    }
    let named = named.named();
    places.sort_by(|(one, ..), (other, ..)| value_order(&axis, one, other));
    let name = units::axis(&axis);
    let along = |value: &Value| units::setting(&axis, value);
    let within =
        |(_, gate, share): &(Value, Gate, f64)| gate.refusal().is_none() && *share > 1.0 - CLOSE;
    let Some(last) = places.iter().rposition(|place| !within(place)) else {
        return Some(format!("They are within 5 % of local at every {name}{named}."));
    };
    if let Some((value, ..)) = places.get(last + 1) {
        return Some(format!("They are within 5 % of local from {} on{named}.", along(value)));
    }
    let unknown = places.iter().find_map(|(value, gate, _)| Some((value, gate.refusal()?)));
    if let Some((value, why)) = unknown {
        return Some(format!("Within 5 % of local at {}: {why}.", along(value)));
    }
    let (nearest, _, share) = places.iter().max_by(|one, other| one.2.total_cmp(&other.2))?;
    Some(format!(
        "They are not within 5 % of local at any {name}; the closest is {} (at least {}){named}.",
        along(nearest),
        units::percent(*share)
    ))
}

/// The latency of one request at a time compared with local.
fn added_latency(cells: &Cells, remote: &Value) -> Option<String> {
    let one = Value::from(1u64);
    let cell = of_transport(cells, remote)
        .filter(|cell| cell.value(key::DEPTH) == Some(&one))
        .filter(|cell| cells.local(cell).is_some_and(Cell::is_measured))
        .min_by_key(|cell| cell.value(key::BLOCK_BYTES).and_then(Value::as_integer))?;
    let local = cells.local(cell)?;
    let read = |name: &str, cell: &Cell| named(name).read(cells, cell).estimate();
    let time = |estimate: &Estimate| units::show(Unit::Time, estimate.mean);
    let told = |one: &Estimate, other: &Estimate| {
        compare(Sentence::Comparison, &named("mean"), &[cell, local], one, other)
    };
    let (delta, mean, of_local) = (read("delta", cell)?, read("mean", cell)?, read("mean", local)?);
    let gate = told(&delta, &Estimate::exact(0.0));
    let what = format!("With one request in flight ({}) the mean latency", place(cells, cell));
    if let Some(why) = gate.refusal() {
        return Some(format!("{what} and that of local: {why}."));
    }
    let mut sentence = format!(
        "{what} is {} above local ({} against {})",
        time(&delta),
        time(&mean),
        time(&of_local),
    );
    if let (Some(remote), Some(local)) = (read("p99", cell), read("p99", local)) {
        sentence += &match told(&remote, &local).refusal() {
            None => format!("; p99 is {} against {}", time(&remote), time(&local)),
            Some(why) => format!("; p99 is {why}"),
        };
    }
    Some(sentence + &gate.named() + ".")
}

/// The best alternative by each criterion.
fn winners(tradeoff: &Tradeoff<'_>) -> Vec<String> {
    let names = tradeoff.names();
    tradeoff.criteria().iter().flat_map(|criterion| winner(criterion, &names)).collect()
}

fn winner(criterion: &Criterion, names: &[String]) -> Vec<String> {
    use super::tradeoff::Standing::{Behind, Best, Close};
    let with = |wanted| {
        let entries = criterion.entries.iter().zip(names);
        entries.filter(move |((_, standing), _)| *standing == wanted)
    };
    let name = units::capital(criterion.name);
    let mut sentences = Vec::new();
    if let Some(((value, _), best)) = with(Best).next() {
        let close: Vec<&str> = with(Close).map(|(_, name)| name.as_str()).collect();
        let behind: Vec<String> =
            with(Behind).map(|((value, _), name)| format!("{name} {value}")).collect();
        let beside = match (&criterion.alike, close.len()) {
            (_, 0) => String::new(),
            (None, _) => format!(" {} within 5 % of it,", close.join(" and ")),
            (Some(alike), _) => format!(" {} beside it {alike},", close.join(" and ")),
        };
        let named = &criterion.named;
        sentences.push(match (&criterion.alike, behind.is_empty()) {
            (None, true) => format!("{name}: all within 5 % of {best} ({value}){named}."),
            (Some(alike), true) => format!("{name}: {alike}{named}."),
            (_, false) => {
                let behind = behind.join(", ");
                format!("{name}: {best} is best ({value}),{beside} then {behind}{named}.")
            }
        });
    }
    sentences.extend(criterion.refused.as_ref().map(|why| format!("{name}: {why}.")));
    sentences
}

/// Where IOPS reach 90 % of their maximum along depth, cores or jobs.
fn knees(cells: &Cells) -> Vec<String> {
    const AXES: [&str; 4] = [key::DEPTH, key::CORES, key::JOBS, key::HOST_CORES];
    let varied = cells.varied(Role::Plain);
    let Some(axis) = AXES.iter().find(|axis| varied.iter().any(|key| key == *axis)) else {
        return Vec::new();
    };
    let others: Vec<&String> = varied.iter().filter(|key| key.as_str() != *axis).collect();
    // Each line of the figure, with its points.
    type Line<'a> = (Vec<Option<Value>>, Vec<&'a Cell>);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for cell in cells.measured(Role::Plain).filter(|cell| cell.value(axis).is_some()) {
        let line: Vec<Option<Value>> = others.iter().map(|key| cell.value(key).cloned()).collect();
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, points)) => points.push(cell),
            None => lines.push((line, vec![cell])),
        }
    }
    let found = lines.iter_mut().filter_map(|(line, points)| {
        points.sort_by(|one, other| match (one.value(axis), other.value(axis)) {
            (Some(one), Some(other)) => value_order(axis, one, other),
            _ => std::cmp::Ordering::Equal,
        });
        let words = others.iter().zip(&*line);
        let words: Vec<String> =
            words.filter_map(|(key, value)| Some(units::setting(key, value.as_ref()?))).collect();
        let words = if words.is_empty() { "all cells".to_owned() } else { words.join(", ") };
        near_maximum(cells, axis, &words, points)
    });
    let found = Sifted::of(found);
    // More would be a table.
    if found.allowed.len() > 8 {
        return Vec::new();
    }
    let mut knees: Vec<(&str, Vec<String>)> = Vec::new();
    for (knee, line) in &found.allowed {
        match knees.iter_mut().find(|(known, _)| known == knee) {
            Some((_, lines)) => lines.push(line.clone()),
            None => knees.push((knee, vec![line.clone()])),
        }
    }
    let parts = knees.iter().map(|(knee, lines)| format!("at {knee} for {}", join(lines)));
    let parts: Vec<String> = parts.collect();
    let what = "90 % of the maximum IOPS";
    let mut sentences = Vec::new();
    if !parts.is_empty() {
        sentences.push(format!("{what} is reached {}{}.", parts.join("; "), found.named()));
    }
    sentences.extend(found.refusal().map(|why| format!("{what}: {why}.")));
    sentences
}

/// The first point of a line at 90 % of its maximum, and the line with its maximum, if it has three
/// points or more.
fn near_maximum(
    cells: &Cells,
    axis: &str,
    words: &str,
    points: &[&Cell],
) -> Option<(Gate, (String, String))> {
    let iops = named("iops");
    let read = |cell: &&Cell| iops.read(cells, cell).estimate();
    let values: Vec<Estimate> = points.iter().map(read).collect::<Option<_>>()?;
    if values.len() < 3 {
        return None;
    }
    let most = values.iter().copied().reduce(
        |most, value| {
            if value.mean > most.mean { value } else { most }
        },
    )?;
    let bound = most.scaled(NEAR);
    let at = values.iter().position(|value| value.mean >= bound.mean)?;
    let told = |value: &Estimate| compare(Sentence::Comparison, &iops, points, value, &bound);
    let before = at.checked_sub(1).and_then(|before| values.get(before)).map(told);
    let after = values.get(at).map(told);
    let gates = [before, after].into_iter().flatten();
    let gate = gates.max_by_key(|gate| gate.refusal().is_some())?;
    let peak = units::show(Unit::Iops, most.mean);
    let knee = units::setting(axis, points.get(at)?.value(axis)?);
    Some((gate, (knee, format!("{words} ({peak} IOPS)"))))
}

fn join(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn cpu(tradeoff: &Tradeoff<'_>) -> Vec<String> {
    let metric = named("cpu-per-io");
    let alternatives = tradeoff.names().into_iter().enumerate().filter_map(|(index, name)| {
        let over = (&metric, super::tradeoff::Over::Typical);
        let value = tradeoff.value(over, index, tradeoff.points.iter())?;
        let of: Vec<&Cell> = tradeoff.points.iter().filter_map(|p| p.get(index).copied()).collect();
        let text = format!("{} with {name}", units::show(Unit::Time, value.mean));
        let gate = gate(Sentence::Value, &metric, &of);
        let refused = gate.refusal().map(|why| format!("CPU time with {name}: {why}."));
        Some((gate, (text, refused)))
    });
    let (mut refusals, mut allowed) = (Vec::new(), Vec::new());
    for (gate, (text, refused)) in alternatives {
        refusals.extend(refused);
        allowed.push((gate, text));
    }
    let known = Sifted::of(allowed);
    let mut sentences = Vec::new();
    if !known.allowed.is_empty() {
        sentences.push(format!(
            "CPU time of host and target together per request, geometric mean over the points: \
             {}{}.",
            known.allowed.join(", "),
            known.named()
        ));
    }
    sentences.extend(refusals);
    sentences
}

/// A tenant of hosts that poll or of hosts that sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tenant<'a> {
    name: &'a str,
    /// How its host waits, if the study varies that.
    polling: Option<&'a Value>,
}

impl<'a> Tenant<'a> {
    /// Those of a study, in the order of its cells.
    fn all(cells: &'a Cells) -> Vec<Self> {
        let varied = cells.varied(Role::Foreground).iter().any(|key| key == key::HOST_POLLING);
        let mut tenants: Vec<Self> = Vec::new();
        for cell in cells.measured(Role::Foreground) {
            let polling = cell.value(key::HOST_POLLING).filter(|_| varied);
            let tenant = Self { name: cell.text(key::FOREGROUND), polling };
            if !tenants.contains(&tenant) {
                tenants.push(tenant);
            }
        }
        tenants
    }

    /// Whether a cell is its own, beside storage.
    fn has(&self, cell: &Cell) -> bool {
        self.is_in(cell) && !is_network(&cell.configuration)
    }

    /// The same beside any background.
    fn is_in(&self, cell: &Cell) -> bool {
        cell.text(key::FOREGROUND) == self.name && self.waits_as(cell)
    }

    fn waits_as(&self, cell: &Cell) -> bool {
        self.polling.is_none_or(|polling| cell.value(key::HOST_POLLING) == Some(polling))
    }

    /// Whether it is judged by its latency, and the metric.
    fn metric(&self) -> (bool, Metric) {
        let latency = self.name.starts_with('l');
        (latency, named(if latency { "latency-interference" } else { "throughput-sustained" }))
    }

    /// How its host waits, in brackets.
    fn waiting(&self) -> String {
        let polling = self.polling.map(|polling| units::setting(key::HOST_POLLING, polling));
        polling.map_or(String::new(), |polling| format!(" ({polling})"))
    }
}

fn interference(cells: &Cells) -> Vec<String> {
    let tenants = Tenant::all(cells);
    let mut sentences = Vec::new();
    sentences.extend(shared_cores(cells));
    let mut hosts: Vec<&Tenant<'_>> = Vec::new();
    for tenant in &tenants {
        if hosts.iter().all(|known| known.polling != tenant.polling) {
            hosts.push(tenant);
        }
    }
    sentences.extend(hosts.into_iter().filter_map(|tenant| full_load(cells, tenant)));
    sentences.extend(tenants.iter().flat_map(|tenant| of_tenant(cells, tenant)));
    sentences.extend(tenants.iter().filter_map(|tenant| without_storage(cells, tenant)));
    for network in [false, true] {
        let short = tenants.iter().filter_map(|tenant| short_beside(cells, tenant, network));
        sentences.extend(short);
    }
    sentences
}

/// What shares a processor although it should have its own.
fn shared_cores(cells: &Cells) -> Option<String> {
    let shares = |cell: &&Cell| cell.marks.contains(&Mark::SharedCores);
    let cell = cells.measured(Role::Foreground).find(shares)?;
    let cpus = |cell: &Cell| -> Option<Vec<usize>> {
        Some(cell.repeats.iter().find_map(|repeat| repeat.host.as_ref())?.cpus.clone())
    };
    let beside = cells.background(cell).and_then(cpus).zip(cpus(cell));
    let apart = beside.is_some_and(|(background, own)| {
        !own.is_empty() && !background.is_empty() && background.iter().all(|cpu| !own.contains(cpu))
    });
    let (one, other) = match cell.text(key::SHARED) {
        "host" => ("the host's core", "targets"),
        _ if apart => {
            return Some(
                "This machine has too few processors for the background: its loads shared one, \
                 and may not reach the rate that several would."
                    .to_owned(),
            );
        }
        _ => ("the target's core", "loads"),
    };
    Some(format!(
        "This machine has too few processors to separate the tenants: their {other} shared one as \
         well, so the results show the interference on both, not on {one} alone."
    ))
}

/// What a background load of 100 % is on hosts that wait as a tenant's does.
fn full_load(cells: &Cells, tenant: &Tenant<'_>) -> Option<String> {
    let reference = |cell: &Cell| {
        cell.repeats.iter().find_map(|repeat| repeat.values.get(number::REFERENCE_IOPS)).copied()
    };
    let of = |role| cells.measured(role).filter(|cell| tenant.waits_as(cell));
    let iops = units::show(Unit::Iops, of(Role::Foreground).find_map(reference)?);
    let points: Vec<&Cell> = of(Role::Saturation).collect();
    let gate = gate(Sentence::Value, &named("saturation"), &points);
    let waiting = tenant.waiting();
    Some(match gate.refusal() {
        None => format!("A background load of 100 %{waiting} is {iops} IOPS{}.", gate.named()),
        Some(why) => format!("What a background load of 100 %{waiting} is: {why}."),
    })
}

/// From which load on the background did not reach its rate, with storage or without.
fn short_beside(cells: &Cells, tenant: &Tenant<'_>, network: bool) -> Option<String> {
    let short = cells
        .measured(Role::Background)
        .filter(|cell| tenant.is_in(cell) && is_network(&cell.configuration) == network)
        .filter(|cell| cell.marks.contains(&Mark::BackgroundShort))
        .filter_map(|cell| cell.number(key::LOAD_PERCENT))
        .fold(f64::INFINITY, f64::min);
    short.is_finite().then(|| {
        format!(
            "With the {} in the foreground{}{} the background did not reach its requested rate \
             from {short:.0} % on: interference is underestimated there.",
            units::capital(tenant.name),
            tenant.waiting(),
            if network { " and a background without storage," } else { "" },
        )
    })
}

/// What a tenant's p99, or its IOPS, are beside its value alone.
fn of_tenant(cells: &Cells, tenant: &Tenant<'_>) -> Vec<String> {
    let (latency, metric) = tenant.metric();
    let mut points: Vec<(f64, Estimate, [&Cell; 2])> = cells
        .measured(Role::Foreground)
        .filter(|cell| tenant.has(cell))
        .filter_map(|cell| {
            let load = cell.number(key::LOAD_PERCENT)?;
            let estimate = metric.read(cells, cell).estimate()?;
            Some((load, estimate, [cell, cells.alone(cell)?]))
        })
        .collect();
    points.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let told = |(_, estimate, both): &(f64, Estimate, [&Cell; 2]), bound: f64| {
        compare(Sentence::Comparison, &metric, both, estimate, &Estimate::exact(bound))
    };
    // What is allowed: values that differ from the tenant's value alone.
    let differing =
        Sifted::of(points.iter().map(|point| (told(point, 1.0), (point.0, point.1.mean))));
    let what = if latency { "p99" } else { "IOPS" };
    let name = units::capital(tenant.name) + &tenant.waiting();
    let mut sentences = Vec::new();
    if let Some(values) = values_beside(latency, &differing.allowed) {
        let named = differing.named();
        sentences.push(format!("{name}: {what} is {values}{named}."));
    }
    let worse = if latency { 1.0 + CLOSE } else { 1.0 - CLOSE };
    let harmed = Sifted::of(points.iter().map(|point| {
        let harm = if latency { point.1.mean > worse } else { point.1.mean < worse };
        (told(point, worse), (point.0, harm))
    }));
    sentences.extend(onset(&harmed).map(|onset| format!("{name}: {onset}{}.", harmed.named())));
    let refused = differing.refusal();
    sentences.extend(refused.map(|why| format!("{name}, {what} beside its value alone: {why}.")));
    sentences
}

/// What remains of a tenant's interference where the background moves the same bytes without
/// storage, at the highest load that was measured with both.
fn without_storage(cells: &Cells, tenant: &Tenant<'_>) -> Option<String> {
    let (latency, metric) = tenant.metric();
    let load = |cell: &Cell| cell.value(key::LOAD_PERCENT).and_then(Value::as_integer);
    let own = || cells.measured(Role::Foreground).filter(|cell| tenant.is_in(cell));
    let mut pairs: Vec<(&Cell, &Cell)> = own()
        .filter(|cell| is_network(&cell.configuration))
        .filter_map(|cell| {
            let twin = own().find(|other| tenant.has(other) && load(other) == load(cell))?;
            Some((twin, cell))
        })
        .collect();
    pairs.sort_by_key(|(twin, _)| load(twin));
    let (storage, network) = pairs.pop()?;
    let read = |cell: &Cell| metric.read(cells, cell).estimate();
    let (with, without) = (read(storage)?, read(network)?);
    let alone = cells.alone(storage).into_iter().chain(cells.alone(network));
    let of: Vec<&Cell> = [storage, network].into_iter().chain(alone).collect();
    let gate = compare(Sentence::Comparison, &metric, &of, &with, &without);
    let name = units::capital(tenant.name) + &tenant.waiting();
    let what = if latency { "p99" } else { "IOPS" };
    let start = format!("{name} at {} % background load", load(storage)?);
    if let Some(why) = gate.refusal() {
        return Some(format!(
            "{start}, {what} with storage in the background and with the same bytes over TCP only: \
             {why}."
        ));
    }
    let number = |value: f64| match latency {
        true => units::times(value),
        false => format!("{} of", units::percent(value)),
    };
    Some(format!(
        "{start}: {what} is {} its value alone with storage in the background, and {} it with the \
         same bytes over TCP only{}.",
        number(with.mean),
        number(without.mean),
        gate.named()
    ))
}

/// The values at the lowest and the highest load, and the worst if it is at neither.
fn values_beside(latency: bool, points: &[(f64, f64)]) -> Option<String> {
    let ((first_load, first), (last_load, last)) = (points.first()?, points.last()?);
    let number = |value: f64| {
        if latency { units::times(value) } else { units::percent(value) }
    };
    let of = if latency { "" } else { " of" };
    let mut values =
        format!("{}{of} its value alone at {first_load:.0} % background load", number(*first));
    if points.len() > 1 {
        values += &format!(", {} at {last_load:.0} %", number(*last));
    }
    // More load should do more harm; an exception is stated.
    let worse = |one: f64, other: f64| if latency { one > other } else { one < other };
    let worst = points
        .iter()
        .copied()
        .reduce(|worst, point| if worse(point.1, worst.1) { point } else { worst })?;
    if worst.0 < *last_load && (worst.1 / last - 1.0).abs() > CLOSE {
        values += &match worst.0 > *first_load {
            true => format!(", and at worst {} at {:.0} %", number(worst.1), worst.0),
            false => " (the lowest load does the most harm)".to_owned(),
        };
    }
    Some(values)
}

/// From which load on it is more than 5 % worse, of the loads at which that can be told.
fn onset(harmed: &Sifted<(f64, bool)>) -> Option<String> {
    let points = &harmed.allowed;
    Some(match points.iter().rposition(|(_, harmed)| !harmed) {
        None if points.is_empty() => return None,
        None => "every load makes it more than 5 % worse".to_owned(),
        Some(index) => match points.get(index + 1) {
            None => "no load makes it more than 5 % worse".to_owned(),
            Some((load, _)) => format!("loads from {load:.0} % on make it more than 5 % worse"),
        },
    })
}

/// The knee of each transport.
fn load(cells: &Cells) -> Vec<String> {
    let mut transports: Vec<&str> = Vec::new();
    for cell in cells.measured(Role::Plain) {
        if !transports.contains(&cell.text(key::TRANSPORT)) {
            transports.push(cell.text(key::TRANSPORT));
        }
    }
    transports.into_iter().filter_map(|transport| of_load(cells, transport)).collect()
}

fn of_load(cells: &Cells, transport: &str) -> Option<String> {
    let curve = cells.measured(Role::Plain).filter(|cell| cell.text(key::TRANSPORT) == transport);
    let curve: Vec<&Cell> = curve.collect();
    let bend = knee(cells, &curve)?;
    let (cell, p99) = (bend.cell, named("p99"));
    let full = cells.measured(Role::Saturation).find(|full| full.text(key::TRANSPORT) == transport);
    let capacity = full.map(|full| gate(Sentence::Capacity, &named("iops"), &[full]));
    let gate = gate(Sentence::Value, &p99, &[cell]);
    if let Some(why) = gate.refusal() {
        return Some(format!("Knee of {transport}: {why}."));
    }
    let load = cell.number(key::LOAD_PERCENT)?;
    let iops = units::show(Unit::Iops, named("iops").read(cells, cell).mean()?);
    let latency = units::show(Unit::Time, p99.read(cells, cell).mean()?);
    let beyond = if bend.is_last { ", the highest load that was measured" } else { "" };
    let of = match capacity.filter(|gate| gate.refusal().is_none()) {
        Some(gate) => format!("the capacity{}", gate.named()),
        None => MOST_REACHED.to_owned(),
    };
    Some(format!(
        "Over {transport} p99 stays within twice its least value up to {iops} IOPS, {load:.0} % of \
         {of}{beyond}; it is {latency} there{}{}.",
        gate.named(),
        bend.doubt(),
    ))
}

fn saturation(cells: &Cells) -> Vec<String> {
    let metric = named("saturation");
    let mut points: Vec<(&Cell, Estimate)> = Vec::new();
    let mut sentences = Vec::new();
    for cell in cells.measured(Role::Saturation) {
        let Some(estimate) = metric.read(cells, cell).estimate() else { continue };
        points.push((cell, estimate));
        let shared = cell.text(key::SHARED);
        let iops = units::show(Unit::Iops, estimate.mean);
        let gate = gate(Sentence::Capacity, &metric, &[cell]);
        sentences.push(match gate {
            Gate::Allowed { .. } => {
                format!("One {shared} core delivers {iops} IOPS{}.", gate.named())
            }
            _ => {
                format!("{iops} IOPS with one {shared} core are not its capacity: {}.", limit(cell))
            }
        });
    }
    if let [(host, of_host), (target, of_target)] = &points[..]
        && host.text(key::SHARED) == "host"
    {
        let gate = compare(Sentence::Comparison, &metric, &[host, target], of_host, of_target);
        sentences.push(match gate.refusal() {
            None => format!(
                "A target core delivers {} the IOPS of a host core{}.",
                units::times(of_target.mean / of_host.mean),
                gate.named()
            ),
            Some(why) => format!("A target core beside a host core: {why}."),
        });
    }
    sentences
}

/// What was full in place of the processor under test.
fn limit(cell: &Cell) -> String {
    let mean = |name: &str| {
        let values = cell.repeats.iter().filter_map(|repeat| repeat.values.get(name).copied());
        Estimate::of(&values.collect::<Vec<_>>()).map(|estimate| estimate.mean)
    };
    let host = mean(number::GENERATOR_SHARE).map(|share| ("host", share));
    let target = mean(number::TARGET_SHARE).map(|share| ("target", share));
    let sides = if cell.text(key::SHARED) == "host" { [host, target] } else { [target, host] };
    let [Some((tested, share)), Some((other, others))] = sides else {
        return "which processor was full is not known".to_owned();
    };
    let (said, full) = (units::percent(share), units::percent(others));
    match (share >= FULL, others >= FULL) {
        (true, true) => format!("the {other}'s core was full as well ({full})"),
        (false, true) => {
            format!("the {other}'s core was full first ({full}; the {tested}'s {said})")
        }
        (_, false) => format!("no core was full (the {tested}'s {said}, the {other}'s {full})"),
    }
}

fn link(cells: &Cells) -> Vec<String> {
    let one = Value::from(1u64);
    let mean = named("mean");
    let mut sentences: Vec<String> = cells
        .measured(Role::Link)
        .filter(|cell| cell.value(key::DEPTH) == Some(&one))
        .filter_map(|cell| {
            let time = units::show(Unit::Time, mean.read(cells, cell).mean()?);
            let place = &cell.label;
            let gate = gate(Sentence::Value, &mean, &[cell]);
            Some(match gate.refusal() {
                None => format!("A round trip ({place}) takes {time}{}.", gate.named()),
                Some(why) => format!("A round trip ({place}): {why}."),
            })
        })
        .take(4)
        .collect();
    let bandwidth = named("bandwidth");
    let most = cells
        .measured(Role::Link)
        .filter_map(|cell| Some((bandwidth.read(cells, cell).mean()?, cell)))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    if let Some((most, cell)) = most {
        let gate = gate(Sentence::Value, &bandwidth, &[cell]);
        let most = units::show(Unit::BytesPerSecond, most);
        sentences.push(match gate.refusal() {
            None => format!("The maximum bandwidth of the raw link is {most}{}.", gate.named()),
            Some(why) => format!("The maximum bandwidth of the raw link: {why}."),
        });
    }
    sentences
}
