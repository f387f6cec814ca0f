//! The kinds of answers.

use super::{Asked, Number, Point, Said, curves, quotient, refused, request};
use crate::{
    cells::{
        Cell, Estimate, MOST_REACHED, Metric, Unit,
        gate::{Gate, Sentence, compare, gate},
        knee,
    },
    results::{Role, Value, key},
    study::{
        matrix::is_network,
        plan::{AnswerKind, AnswerNumber},
    },
    units,
};

/// Latency of a read from a real SSD, where there is none: 4 KiB from NAND flash.
const SSD_NS: f64 = 80_000.0;

pub(super) fn said(asked: &Asked<'_>) -> Said {
    match asked.answer.kind {
        AnswerKind::ExtraLatency => extra_latency(asked),
        AnswerKind::Ratio => ratio(asked),
        AnswerKind::Best => best(asked),
        AnswerKind::Knee => knee_of_load(asked),
        AnswerKind::Slowdown => slowdown(asked),
        AnswerKind::Values => values(asked),
        AnswerKind::Reach => curves::reach(asked),
        AnswerKind::Parity => curves::parity(asked),
        AnswerKind::Beats => curves::beats(asked),
    }
}

fn named(name: &str) -> Metric {
    Metric::named(name).unwrap_or_else(|| unreachable!("{name} is a metric"))
}

/// What one request at a time costs more than locally.
fn extra_latency(asked: &Asked<'_>) -> Said {
    let at = &asked.answer.at;
    let Some(transport) = asked.remote(at) else { return asked.missing(at) };
    let remote = asked.at(at).find(|cell| cell.text(key::TRANSPORT) == transport);
    let Some(remote) = remote else { return asked.missing(at) };
    let Some(local) = asked.cells.local(remote) else {
        return Said::open("there is no local cell beside it");
    };
    let mean = asked.metric("mean");
    let (Some(with), Some(without)) = (asked.estimate(&mean, remote), asked.estimate(&mean, local))
    else {
        return Said::open(&format!("its {} is not resolved", mean.label));
    };
    let gate = compare(Sentence::Comparison, &mean, &[remote, local], &with, &without);
    let request = request(remote);
    if gate.refusal().is_some() {
        let why = format!("{} over {transport} beside local: {}", request, refused(&gate));
        return Said::open(&why);
    }
    let delta = difference(asked, remote, &mean, &with, &without);
    let (verb, sign) = if delta.mean < 0.0 { ("less", -1.0) } else { ("more", 1.0) };
    let delta = delta.scaled(sign);
    let extra = Number::of(format!("{verb} for a {request} over {transport}"), Unit::Time, &delta)
        .made_from(&[remote, local]);
    let (ssd, of_what) = ssd(asked, &without);
    let share = delta.scaled(1.0 / ssd);
    let mut share = Number::of("of a real SSD's latency", Unit::Share, &share);
    share.note = of_what;
    let device = asked.cells.environment.local.split([':', ',']).next().unwrap_or_default();
    let from = match device {
        "memory" | "" => "from local memory, which is a copy and no SSD",
        "null" => "from a local null device, which moves no data",
        _ => "from the local device",
    };
    let what = if mean.name == "mean" { String::new() } else { format!(" at {}", mean.name) };
    let mut sentence = format!(
        "A {request} over {transport} takes {}{what} {verb} than {from}: {} of the latency of \
         {}",
        extra.told(),
        share.told(),
        share.note,
    );
    let mut numbers = vec![extra, share];
    if let Some(cpu) = cpu(asked, remote) {
        let each = if cpu.note.is_empty() { cpu.told() } else { cpu.note.clone() };
        sentence += &format!("; CPU time of a request: {each}");
        numbers.push(cpu);
    }
    Said::answered(format!("{sentence}{}.", gate.named()), numbers)
}

/// Mean latencies are compared repeat by repeat; of percentiles there is no such difference.
fn difference(
    asked: &Asked<'_>,
    remote: &Cell,
    metric: &Metric,
    with: &Estimate,
    without: &Estimate,
) -> Estimate {
    if let ("mean", Some(delta)) = (metric.name.as_str(), asked.estimate(&named("delta"), remote)) {
        return delta;
    }
    let half = match (with.bar(), without.bar()) {
        (Some(one), Some(other)) => Some(one.0.max(one.1).hypot(other.0.max(other.1))),
        _ => None,
    };
    let (least, most) = (with.least - without.most, with.most - without.least);
    Estimate { mean: with.mean - without.mean, least, most, half_width: half, ..*with }
}

/// The latency that stands for a real SSD, and its name.
fn ssd(asked: &Asked<'_>, without: &Estimate) -> (f64, String) {
    let device = asked.cells.environment.local.as_str();
    let is_made = ["memory", "null"].iter().any(|name| device.starts_with(name));
    if device.is_empty() || is_made {
        return (SSD_NS, "an SSD of 80 µs (assumed: none was measured)".to_owned());
    }
    let own = units::show(Unit::Time, without.mean);
    (without.mean, format!("the local device {device} ({own})"))
}

/// CPU time of one request, with both sides in its note; none if the gate forbids it.
fn cpu(asked: &Asked<'_>, cell: &Cell) -> Option<Number> {
    let read = |name: &str, label: &str| {
        let metric = named(name);
        let allowed = gate(Sentence::Value, &metric, &[cell]).refusal().is_none();
        let estimate = asked.estimate(&metric, cell).filter(|_| allowed)?;
        Some(Number::of(label, Unit::Time, &estimate))
    };
    let mut both = read("cpu-per-io", "CPU time of a request")?;
    let sides = (read("host-cpu-per-io", "host"), read("target-cpu-per-io", "target"));
    if let (Some(host), Some(target)) = sides {
        both.note = format!("host {}, target {}", host.told(), target.told());
    }
    Some(both)
}

/// The most of a rate over a transport, as a share of the local one.
fn ratio(asked: &Asked<'_>) -> Said {
    let at = &asked.answer.at;
    let metric = asked.metric("iops");
    let Some(transport) = asked.remote(at) else { return asked.missing(at) };
    let of = |name: &str| {
        let cells: Vec<&Cell> =
            asked.at(at).filter(|cell| cell.text(key::TRANSPORT) == name).collect();
        // What the generator limited is no peak of the transport; it counts if all cells are so.
        let allowed =
            |cell: &&Cell| gate(Sentence::Capacity, &metric, &[*cell]).refusal().is_none();
        let good: Vec<&Cell> = cells.iter().copied().filter(allowed).collect();
        asked.best(&metric, if good.is_empty() { cells } else { good }.into_iter())
    };
    let Some((remote, most)) = of(transport) else { return asked.missing(at) };
    let value = gate(Sentence::Capacity, &metric, &[remote]);
    if let Some(why) = value.refusal() {
        return Said::open(&format!("the {} over {transport}: {why}", metric.label));
    }
    let peak = Number::of(format!("{} over {transport}", metric.label), metric.unit, &most)
        .made_from(&[remote]);
    let place = asked.place(remote, &[]);
    let start = format!("Over {transport} the highest {} is {}{place}", metric.label, peak.told());
    let Some((local, local_most)) = of("local") else {
        return Said::answered(format!("{start}{}.", value.named()), vec![peak]);
    };
    let both = [remote, local];
    let gate = compare(Sentence::Comparison, &metric, &both, &most, &local_most);
    if gate.refusal().is_some() {
        let why = refused(&gate);
        let sentence = format!("{start}; beside local: {why}.");
        return Said { sentence, numbers: vec![peak], is_answered: false };
    }
    let share = Number::of("of local", Unit::Share, &quotient(&most, &local_most));
    let local_peak = Number::of(format!("{} of local", metric.label), metric.unit, &local_most)
        .made_from(&[local]);
    let sentence =
        format!("{start}, {} of the local {}{}.", share.told(), local_peak.told(), gate.named());
    Said::answered(sentence, vec![share, peak, local_peak])
}

/// The best value of a setting.
fn best(asked: &Asked<'_>) -> Said {
    let metric = asked.metric("p99");
    let over = asked.answer.over.as_str();
    let mut found = asked.curve(&metric, over, asked.at(&asked.answer.at));
    found.sort_by(|one, other| match metric.is_rate() {
        true => other.estimate.mean.total_cmp(&one.estimate.mean),
        false => one.estimate.mean.total_cmp(&other.estimate.mean),
    });
    let [first, second, ..] = &found[..] else { return asked.missing(&asked.answer.at) };
    let name = |value: &Value| units::setting(over, value);
    let number = |point: &Point<'_>| {
        let label = format!("{} ({})", metric.label, name(point.value));
        Number::of(label, metric.unit, &point.estimate).made_from(&[point.cell])
    };
    let numbers: Vec<Number> = found.iter().take(2).map(number).collect();
    let [one, other] = &numbers[..] else { return asked.missing(&asked.answer.at) };
    let cells = [first.cell, second.cell];
    let gate = compare(Sentence::Comparison, &metric, &cells, &first.estimate, &second.estimate);
    let place = asked.place(first.cell, &[over]);
    let told = format!(
        "{} {} with {}, {} with {}{place}",
        metric.label,
        one.told(),
        name(first.value),
        other.told(),
        name(second.value)
    );
    match &gate {
        Gate::Allowed { .. } => {
            let sentence = format!("Best is {}: {told}{}.", name(first.value), gate.named());
            Said::answered(sentence, numbers)
        }
        Gate::NotDistinguishable { .. } => {
            let sentence = format!("The best two are {}: {told}.", refused(&gate));
            Said { sentence, numbers, is_answered: false }
        }
        Gate::Forbidden { .. } => Said::open(&refused(&gate)),
    }
}

/// The load up to which latency does not rise.
fn knee_of_load(asked: &Asked<'_>) -> Said {
    let at = &asked.answer.at;
    let Some(transport) = asked.remote(at) else { return asked.missing(at) };
    let curve: Vec<&Cell> =
        asked.at(at).filter(|cell| cell.text(key::TRANSPORT) == transport).collect();
    let Some(bend) = knee(asked.cells, &curve) else {
        return Said::open("fewer than three loads have a p99");
    };
    let (iops, p99, cell) = (named("iops"), named("p99"), bend.cell);
    let gate = gate(Sentence::Value, &p99, &[cell]);
    if let Some(why) = gate.refusal() {
        return Said::open(&why);
    }
    let (Some(rate), Some(latency)) = (asked.estimate(&iops, cell), asked.estimate(&p99, cell))
    else {
        return Said::open("the knee has no p99");
    };
    let rate =
        Number::of(format!("IOPS before latency rises, over {transport}"), Unit::Iops, &rate);
    let latency = Number::of("p99 there", Unit::Time, &latency).made_from(&[cell]);
    let load = cell.number(key::LOAD_PERCENT).unwrap_or_default();
    let capacity = capacity(asked, transport);
    let of = match &capacity {
        Some((capacity, named)) => {
            format!("{load:.0} % of the capacity of {}{named}", capacity.told())
        }
        None => format!("{load:.0} % of {MOST_REACHED}"),
    };
    let capacity = capacity.map(|(capacity, _)| capacity);
    let end = if bend.is_last { ", the highest load that was measured" } else { "" };
    let sentence = format!(
        "Over {transport} p99 stays within twice its least value up to {}, {of}{end}; it is {} \
         there{}{}.",
        rate.told(),
        latency.told(),
        gate.named(),
        bend.doubt(),
    );
    Said::answered(sentence, [Some(rate), Some(latency), capacity].into_iter().flatten().collect())
}

/// The IOPS at depth 128 and the marks that are named; none if its marks forbid to call it that.
fn capacity(asked: &Asked<'_>, transport: &str) -> Option<(Number, String)> {
    let iops = named("iops");
    let mut full = asked.cells.measured(Role::Saturation);
    let full = full.find(|full| full.text(key::TRANSPORT) == transport)?;
    let gate = gate(Sentence::Capacity, &iops, &[full]);
    let estimate = asked.estimate(&iops, full).filter(|_| gate.refusal().is_none())?;
    Some((Number::of("capacity (depth 128)", Unit::Iops, &estimate), gate.named()))
}

/// What a neighbour at its highest load does to a tenant.
fn slowdown(asked: &Asked<'_>) -> Said {
    let mut parts = Vec::new();
    let mut numbers = Vec::new();
    let mut answered = true;
    for (tenant, metric, plain) in
        [("l-app", "latency-interference", "p99"), ("t-app", "throughput-sustained", "iops")]
    {
        let of_tenant = asked.at(&asked.answer.at).filter(|cell| {
            cell.text(key::FOREGROUND) == tenant && !is_network(&cell.configuration)
        });
        let by_load = |cell: &&Cell| cell.value(key::LOAD_PERCENT).and_then(Value::as_integer);
        let Some(cell) = of_tenant.max_by_key(by_load) else { continue };
        let (metric, plain) = (named(metric), named(plain));
        let Some(alone) = asked.cells.alone(cell) else { continue };
        let read = |cell: &Cell| asked.estimate(&plain, cell);
        let (Some(loaded), Some(free)) = (read(cell), read(alone)) else { continue };
        let load = cell.number(key::LOAD_PERCENT).unwrap_or_default();
        let gate = compare(Sentence::Comparison, &plain, &[cell, alone], &loaded, &free);
        if gate.refusal().is_some() {
            answered = false;
            parts.push(format!("{tenant} beside {load:.0} %: {}", refused(&gate)));
            continue;
        }
        let factor = quotient(&loaded, &free);
        let label = match tenant {
            "l-app" => format!("times the p99 alone, beside a neighbour at {load:.0} %"),
            _ => format!("of the IOPS alone, beside a neighbour at {load:.0} %"),
        };
        let number = Number::of(label, metric.unit, &factor).made_from(&[cell, alone]);
        parts.push(match tenant {
            "l-app" => format!(
                "a tenant with one request in flight has {} its p99 alone{}",
                number.told(),
                gate.named()
            ),
            _ => {
                format!("one with a deep queue keeps {} of its IOPS{}", number.told(), gate.named())
            }
        });
        numbers.push(number);
        if let (Some((part, number)), "l-app") = (without_storage(asked, &loaded, cell), tenant) {
            parts.push(part);
            numbers.extend(number);
        }
    }
    if parts.is_empty() {
        return asked.missing(&asked.answer.at);
    }
    let shared = asked.plan.interference.as_ref().map(|section| section.shared.to_string());
    let whose = shared.map_or(String::new(), |side| format!(" on the same {side} core"));
    // Settings that the study varies: the sentence holds for these values only.
    let at = asked.answer.at.iter().filter(|(key, _)| asked.plan.axes.contains_key(*key));
    let at: Vec<String> = at.map(|(key, value)| units::setting(key, value)).collect();
    let at = if at.is_empty() { String::new() } else { format!(" ({})", at.join(", ")) };
    let sentence = format!("Beside a neighbour{whose}{at} {}.", parts.join("; "));
    Said { sentence, numbers, is_answered: answered }
}

/// The p99 of a tenant with the same bytes over TCP only, relative to its p99 alone.
fn without_storage(
    asked: &Asked<'_>,
    loaded: &Estimate,
    beside: &Cell,
) -> Option<(String, Option<Number>)> {
    let same = |cell: &&Cell| {
        let keys = [key::FOREGROUND, key::LOAD_PERCENT];
        is_network(&cell.configuration)
            && keys.iter().all(|key| cell.value(key) == beside.value(key))
    };
    let cell = asked.at(&asked.answer.at).find(same)?;
    let p99 = named("p99");
    let estimate = asked.estimate(&p99, cell)?;
    let alone = asked.cells.alone(cell)?;
    let free = asked.estimate(&p99, alone)?;
    let gate = compare(Sentence::Comparison, &p99, &[beside, cell, alone], loaded, &estimate);
    if gate.refusal().is_some() {
        return Some((format!("with the same bytes over TCP only: {}", refused(&gate)), None));
    }
    let number = Number::of(
        "times the p99 alone, with the same bytes over TCP only",
        Unit::Times,
        &quotient(&estimate, &free),
    )
    .made_from(&[cell, alone]);
    let part = format!("{} with the same bytes over TCP only{}", number.told(), gate.named());
    Some((part, Some(number)))
}

/// Numbers of the study that the plan names.
fn values(asked: &Asked<'_>) -> Said {
    let mut parts = Vec::new();
    let mut numbers = Vec::new();
    for wanted in wanted_numbers(asked) {
        let told = match asked.answer.over.as_str() {
            "" => value(asked, wanted),
            over => curves::winner(asked, wanted, over),
        };
        parts.push(match told {
            Ok((number, place)) => {
                let part = format!("{}: {}{place}", wanted.label, number.told());
                numbers.push(number);
                part
            }
            Err(why) => format!("{}: {}", wanted.label, why.trim_end_matches('.')),
        });
    }
    if parts.is_empty() {
        return asked.missing(&asked.answer.at);
    }
    let sentence = format!("{}.", units::capital(&parts.join("; ")));
    let is_answered = numbers.len() == parts.len();
    Said { sentence, numbers, is_answered }
}

/// The numbers that the plan names for these cells: those of given targets, where no cell has a
/// setting that the others ask for.
fn wanted_numbers<'a>(asked: &Asked<'a>) -> &'a [AnswerNumber] {
    let answer = asked.answer;
    let remote = |cell: &&Cell| cell.role == asked.role && cell.text(key::TRANSPORT) != "local";
    let cells: Vec<&Cell> = asked.cells.cells.iter().filter(remote).collect();
    let mut settings = answer.number.iter().flat_map(|number| number.at.keys());
    let keeps_own = settings.any(|key| cells.iter().all(|cell| cell.value(key).is_none()));
    let is_given = !cells.is_empty() && !answer.given.is_empty() && keeps_own;
    if is_given { &answer.given } else { &answer.number }
}

/// A number, and what follows it: where it was measured, and the marks; or why there is none.
fn value(asked: &Asked<'_>, wanted: &AnswerNumber) -> Result<(Number, String), String> {
    let metric = named(&wanted.metric);
    let transport = asked.remote(&wanted.at);
    let has_transport = wanted.at.contains_key(key::TRANSPORT);
    let cells = asked.at(&wanted.at).filter(|cell| {
        has_transport || transport.is_none_or(|name| cell.text(key::TRANSPORT) == name)
    });
    let Some((cell, estimate)) = asked.best(&metric, cells) else {
        return Err(asked.why_missing(&wanted.at));
    };
    let kind = if metric.is_rate() { Sentence::Capacity } else { Sentence::Value };
    let made_from = metric.made_from(asked.cells, cell);
    let gate = gate(kind, &metric, &made_from);
    if let Some(why) = gate.refusal() {
        return Err(why);
    }
    let keys: Vec<&str> = wanted.at.keys().map(String::as_str).collect();
    let place = format!("{}{}", asked.place(cell, &keys), gate.named());
    let number = Number::of(wanted.label.clone(), metric.unit, &estimate).made_from(&made_from);
    Ok((number, place))
}
