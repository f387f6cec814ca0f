//! The findings of a study, in sentences that are computed from the numbers.
//!
//! Differences within 5 % do not count. Beyond that, a sentence states at how many points the error
//! bars of the best and the second do not overlap.

use super::{
    tradeoff::{CLOSE, Tradeoff, tradeoff},
    units,
};
use crate::{
    cells::{
        Cell, Cells, Estimate, Knee, Metric, Unit,
        gate::{Gate, Sentence, Sifted, compare, gate},
        knee, value_order,
    },
    limits::FULL,
    results::{Mark, Role, Value, key, number},
    study::plan::{Kind, Plan},
};

/// Share of the maximum at which a curve has reached it.
const KNEE: f64 = 0.9;

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
        return knees(cells).into_iter().collect();
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

/// Whether cells are within 5 % of local.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Near {
    Within,
    Behind,
    /// It cannot be told, and why.
    Unknown(String),
}

fn near_local(cells: &Cells, cell: &Cell) -> Option<(Near, f64)> {
    let metric = named("share-of-local");
    let share = metric.read(cells, cell).estimate()?;
    let (both, bound) = ([cell, cells.local(cell)?], Estimate::exact(1.0 - CLOSE));
    let near = match compare(Sentence::Comparison, &metric, &both, &share, &bound).refusal() {
        Some(why) => Near::Unknown(why),
        None if share.mean > bound.mean => Near::Within,
        None => Near::Behind,
    };
    Some((near, share.mean))
}

/// The value of the first axis from which on a remote transport is as good as local.
fn from_where_on(cells: &Cells, remote: &Value) -> Option<String> {
    let axis = first_axis(cells)?;
    let mut places: Vec<(Value, Near, f64)> = Vec::new();
    for cell in of_transport(cells, remote) {
        let Some((value, (near, share))) = cell.value(&axis).zip(near_local(cells, cell)) else {
            continue;
        };
        // A value of the axis counts by its worst cell.
        match places.iter_mut().find(|(known, ..)| known == value) {
            Some(place) if share < place.2 => *place = (value.clone(), near, share),
            Some(_) => {}
            None => places.push((value.clone(), near, share)),
        }
    }
    let known = |(_, near, _): &&(Value, Near, f64)| !matches!(near, Near::Unknown(_));
    if places.len() < 2 || !places.iter().any(|place| known(&place)) {
        return None;
    }
    places.sort_by(|(one, ..), (other, ..)| value_order(&axis, one, other));
    let name = units::axis(&axis);
    let along = |value: &Value| units::setting(&axis, value);
    let Some(last) = places.iter().rposition(|(_, near, _)| *near != Near::Within) else {
        return Some(format!("They are within 5 % of local at every {name}."));
    };
    if let Some((value, ..)) = places.get(last + 1) {
        return Some(format!("They are within 5 % of local from {} on.", along(value)));
    }
    if let Some((value, Near::Unknown(why), _)) = places.iter().find(|place| !known(place)) {
        return Some(format!("Within 5 % of local at {}: {why}.", along(value)));
    }
    let (nearest, _, share) = places.iter().max_by(|one, other| one.2.total_cmp(&other.2))?;
    Some(format!(
        "They are not within 5 % of local at any {name}; the closest is {} (at least {}).",
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
    let criteria = tradeoff.criteria();
    let mut sentences = Vec::new();
    for criterion in &criteria {
        use super::tradeoff::Standing::{Behind, Best, Close};
        let with = |wanted| {
            let entries = criterion.entries.iter().zip(&names);
            entries.filter(move |((_, standing), _)| *standing == wanted)
        };
        let Some(((value, _), best)) = with(Best).next() else { continue };
        let close: Vec<&str> = with(Close).map(|(_, name)| name.as_str()).collect();
        let behind: Vec<String> =
            with(Behind).map(|((value, _), name)| format!("{name} {value}")).collect();
        let name = capital(criterion.name);
        let (apart, points) = criterion.apart;
        let told = format!("their error bars are separate at {apart} of {points} points");
        sentences.push(match (close.is_empty(), behind.is_empty()) {
            (_, true) => format!("{name}: all within 5 % of {best} ({value})."),
            (true, false) => {
                format!("{name}: {best} is best ({value}), then {}; {told}.", behind.join(", "))
            }
            (false, false) => format!(
                "{name}: {best} is best ({value}), {} within 5 % of it, then {}; {told}.",
                close.join(" and "),
                behind.join(", ")
            ),
        });
    }
    sentences
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(letters).collect::<String>())
}

/// Where IOPS reach 90 % of their maximum along depth, cores or jobs.
fn knees(cells: &Cells) -> Option<String> {
    const AXES: [&str; 4] = [key::DEPTH, key::CORES, key::JOBS, key::HOST_CORES];
    let varied = cells.varied(Role::Plain);
    let axis = AXES.iter().find(|axis| varied.iter().any(|key| key == *axis))?;
    let others: Vec<&String> = varied.iter().filter(|key| key.as_str() != *axis).collect();
    // Each line of the figure, with its points.
    type Line = (Vec<Option<Value>>, Vec<(Value, f64)>);
    let mut lines: Vec<Line> = Vec::new();
    for cell in cells.measured(Role::Plain) {
        let line: Vec<Option<Value>> = others.iter().map(|key| cell.value(key).cloned()).collect();
        let (Some(value), Some(iops)) = (cell.value(axis), named("iops").read(cells, cell).mean())
        else {
            continue;
        };
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, points)) => points.push((value.clone(), iops)),
            None => lines.push((line, vec![(value.clone(), iops)])),
        }
    }
    let mut found: Vec<(String, String)> = Vec::new();
    for (line, mut points) in lines {
        if points.len() < 3 {
            continue;
        }
        points.sort_by(|(one, _), (other, _)| value_order(axis, one, other));
        let most = points.iter().map(|(_, iops)| *iops).fold(0.0, f64::max);
        let knee = points.iter().find(|(_, iops)| *iops >= KNEE * most)?;
        let words = others.iter().zip(&line);
        let words: Vec<String> =
            words.filter_map(|(key, value)| Some(units::setting(key, value.as_ref()?))).collect();
        let words = if words.is_empty() { "all cells".to_owned() } else { words.join(", ") };
        let peak = units::show(Unit::Iops, most);
        found.push((units::setting(axis, &knee.0), format!("{words} ({peak} IOPS)")));
    }
    // More would be a table.
    if found.is_empty() || found.len() > 8 {
        return None;
    }
    let mut sentences: Vec<(String, Vec<String>)> = Vec::new();
    for (knee, line) in found {
        match sentences.iter_mut().find(|(known, _)| *known == knee) {
            Some((_, lines)) => lines.push(line),
            None => sentences.push((knee, vec![line])),
        }
    }
    let parts = sentences.iter().map(|(knee, lines)| format!("at {knee} for {}", join(lines)));
    let parts: Vec<String> = parts.collect();
    Some(format!("90 % of the maximum IOPS is reached {}.", parts.join("; ")))
}

fn join(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn cpu(tradeoff: &Tradeoff<'_>) -> Option<String> {
    let metric = named("cpu-per-io");
    let known: Vec<(String, f64)> = tradeoff
        .names()
        .into_iter()
        .enumerate()
        .filter_map(|(index, name)| {
            Some((name, tradeoff.value(&metric, super::tradeoff::Over::Typical, index)?))
        })
        .collect();
    if known.len() < 2 {
        return None;
    }
    let parts: Vec<String> = known
        .iter()
        .map(|(name, ns)| format!("{} with {name}", units::show(Unit::Time, *ns)))
        .collect();
    Some(format!(
        "CPU time of host and target together per request, geometric mean over the points: {}.",
        parts.join(", ")
    ))
}

fn interference(cells: &Cells) -> Vec<String> {
    let mut tenants: Vec<&str> = Vec::new();
    for cell in cells.measured(Role::Foreground) {
        let tenant = cell.text(key::FOREGROUND);
        if !tenants.contains(&tenant) {
            tenants.push(tenant);
        }
    }
    let mut sentences = Vec::new();
    let shares = |cell: &Cell| cell.marks.contains(&Mark::SharedCores);
    if let Some(cell) = cells.measured(Role::Foreground).find(|cell| shares(cell)) {
        let (one, other) = match cell.text(key::SHARED) {
            "host" => ("the host's core", "targets"),
            _ => ("the target's core", "loads"),
        };
        sentences.push(format!(
            "This machine has too few processors to separate the tenants: their {other} shared one \
             as well, so the results show the interference on both, not on {one} alone."
        ));
    }
    let reference = |cell: &Cell| {
        cell.repeats.iter().find_map(|repeat| repeat.values.get(number::REFERENCE_IOPS)).copied()
    };
    if let Some(iops) = cells.measured(Role::Foreground).find_map(reference) {
        let iops = units::show(Unit::Iops, iops);
        sentences.push(format!("A background load of 100 % is {iops} IOPS."));
    }
    sentences.extend(tenants.iter().filter_map(|tenant| of_tenant(cells, tenant)));
    sentences.extend(tenants.iter().filter_map(|tenant| short_beside(cells, tenant)));
    sentences
}

/// From which load on the background did not reach its rate.
fn short_beside(cells: &Cells, tenant: &str) -> Option<String> {
    let short = cells
        .measured(Role::Background)
        .filter(|cell| cell.text(key::FOREGROUND) == tenant)
        .filter(|cell| cell.marks.contains(&Mark::BackgroundShort))
        .filter_map(|cell| cell.number(key::LOAD_PERCENT))
        .fold(f64::INFINITY, f64::min);
    short.is_finite().then(|| {
        format!(
            "With the {} in the foreground the background did not reach its requested rate from \
             {short:.0} % on: interference is underestimated there.",
            capital(tenant)
        )
    })
}

fn of_tenant(cells: &Cells, tenant: &str) -> Option<String> {
    let latency = tenant.starts_with('l');
    let metric = named(if latency { "latency-interference" } else { "throughput-sustained" });
    let mut points: Vec<(f64, f64)> = cells
        .measured(Role::Foreground)
        .filter(|cell| cell.text(key::FOREGROUND) == tenant)
        .filter_map(|cell| {
            Some((cell.number(key::LOAD_PERCENT)?, metric.read(cells, cell).mean()?))
        })
        .collect();
    points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (first_load, first) = points.first()?;
    let (last_load, last) = points.last()?;
    let (what, harmed): (&str, fn(f64) -> bool) = if latency {
        ("p99", |times| times > 1.0 + CLOSE)
    } else {
        ("IOPS", |share| share < 1.0 - CLOSE)
    };
    let number = |value: f64| {
        if latency { units::times(value) } else { units::percent(value) }
    };
    let of = if latency { "" } else { " of" };
    let mut sentence = format!(
        "{}: {what} is {}{of} its value alone at {first_load:.0} % background load, {} at \
         {last_load:.0} %",
        capital(tenant),
        number(*first),
        number(*last)
    );
    // More load should do more harm; an exception is stated.
    let worse = |one: f64, other: f64| if latency { one > other } else { one < other };
    let worst = points
        .iter()
        .copied()
        .reduce(|worst, point| if worse(point.1, worst.1) { point } else { worst })?;
    if worst.0 < *last_load && (worst.1 / last - 1.0).abs() > CLOSE {
        sentence += &match worst.0 > *first_load {
            true => format!(", and at worst {} at {:.0} %", number(worst.1), worst.0),
            false => " (the lowest load does the most harm)".to_owned(),
        };
    }
    let unharmed = points.iter().rposition(|(_, value)| !harmed(*value));
    match unharmed {
        None => sentence += "; every load makes it more than 5 % worse",
        Some(index) if index + 1 == points.len() => {
            sentence += "; no load makes it more than 5 % worse"
        }
        Some(index) => {
            if let Some((load, _)) = points.get(index + 1) {
                sentence += &format!("; loads from {load:.0} % on make it more than 5 % worse");
            }
        }
    }
    Some(sentence + ".")
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
    let Knee { cell, is_last } = knee(cells, &curve)?;
    let p99 = named("p99");
    let gate = gate(Sentence::Value, &p99, &[cell]);
    if let Some(why) = gate.refusal() {
        return Some(format!("Knee of {transport}: {why}."));
    }
    let load = cell.number(key::LOAD_PERCENT)?;
    let iops = units::show(Unit::Iops, named("iops").read(cells, cell).mean()?);
    let latency = units::show(Unit::Time, p99.read(cells, cell).mean()?);
    let beyond = if is_last { ", the highest load that was measured" } else { "" };
    Some(format!(
        "Over {transport} p99 stays within twice its least value up to {iops} IOPS, {load:.0} % of \
         the capacity{beyond}; it is {latency} there{}.",
        gate.named()
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
            let place = super::draw::label(cells, cell);
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
