//! Answers about a setting that is swept: from which value on something holds.

use super::{Asked, Number, Point, Said, quotient, refused};
use crate::{
    cells::{
        Cell, Estimate, Metric, Unit,
        gate::{Gate, Sentence, Sifted, compare, gate},
    },
    results::{Value, key},
    study::plan::AnswerNumber,
    units,
};

/// A rate that is this share of its highest is near it.
const NEAR: f64 = 0.9;

/// A rate that is this share of the local one reaches it.
const PARITY: f64 = 0.95;

/// Whether a share is above a bound beyond doubt.
fn is_surely(share: &Estimate, bound: f64) -> bool {
    share.mean > bound && share.is_apart_from(&Estimate::exact(bound))
}

/// From which value on a rate is near its highest, and how much of local that is.
pub(super) fn reach(asked: &Asked<'_>) -> Said {
    let at = &asked.answer.at;
    let over = asked.answer.over.as_str();
    let metric = asked.metric("iops");
    let Some(transport) = asked.remote(at) else { return asked.missing(at) };
    let curve = of_transport(asked, &metric, transport);
    let Some(highest) = best(&metric, &curve) else { return asked.missing(at) };
    let near = |point: &Point<'_>| {
        let share = quotient(&point.estimate, &highest.estimate);
        point.value == highest.value || is_surely(&share, NEAR)
    };
    let from = curve.iter().rposition(|point| !near(point)).map_or(0, |last| last + 1);
    // Behind the highest it may fall again.
    let found = curve.get(from).unwrap_or(highest);
    // What holds from there on is said of all of them.
    let on: Vec<&Cell> =
        curve.iter().skip(from).map(|point| point.cell).chain([highest.cell]).collect();
    let peak_gate = gate(Sentence::Capacity, &metric, &on);
    if let Some(why) = peak_gate.refusal() {
        return Said::open(&format!("the {} over {transport}: {why}", metric.label));
    }
    let setting = units::setting(over, found.value);
    let there =
        Number::of(format!("{} with {setting}", metric.label), metric.unit, &found.estimate)
            .made_from(&[found.cell]);
    let mut numbers = vec![there.clone()];
    let says = match &curve[..] {
        [_] => format!("is {} with {setting}, the only one here", there.told()),
        [.., before, last]
            if last.value == found.value && last.estimate.is_apart_from(&before.estimate) =>
        {
            format!("still grows at {setting}, the last that was measured: {}", there.told())
        }
        _ if found.value == highest.value => {
            format!("is highest with {setting}: {}", there.told())
        }
        _ => {
            let label = format!("highest {}", metric.label);
            let most = Number::of(label, metric.unit, &highest.estimate);
            let most = most.made_from(&[highest.cell]);
            let near = format!("is near its highest, {}, from {setting} on", most.told());
            numbers.push(most);
            format!("{near}: {} there", there.told())
        }
    };
    let mut sentence = format!("Over {transport} the {} {says}", metric.label);
    let local = of_transport(asked, &metric, "local");
    if let Some(local) = local.iter().find(|point| point.value == found.value) {
        let cells = [found.cell, local.cell];
        let (one, other) = (&found.estimate, &local.estimate);
        let of_local = compare(Sentence::Comparison, &metric, &cells, one, other);
        if matches!(of_local, Gate::Allowed { .. }) {
            let share =
                Number::of("of local there", Unit::Share, &quotient(one, other)).made_from(&cells);
            let named = of_local.and(peak_gate).named();
            sentence += &format!(", {} of local{named}", share.told());
            numbers.push(share);
            return Said::answered(format!("{sentence}."), numbers);
        }
        sentence += &format!("; beside local: {}", refused(&of_local));
    }
    Said::answered(format!("{sentence}{}.", peak_gate.named()), numbers)
}

/// From which value on a rate reaches the local one.
pub(super) fn parity(asked: &Asked<'_>) -> Said {
    let at = &asked.answer.at;
    let over = asked.answer.over.as_str();
    let metric = asked.metric("bandwidth");
    let Some(transport) = asked.remote(at) else { return asked.missing(at) };
    let local = of_transport(asked, &metric, "local");
    let pairs: Vec<(Point<'_>, &Point<'_>)> = of_transport(asked, &metric, transport)
        .into_iter()
        .filter_map(|point| Some((point.clone(), local.iter().find(|of| of.value == point.value)?)))
        .collect();
    let share = |(one, other): &(Point<'_>, &Point<'_>)| one.estimate.mean / other.estimate.mean;
    let reaches = |(one, other): &(Point<'_>, &Point<'_>)| {
        is_surely(&quotient(&one.estimate, &other.estimate), PARITY)
    };
    let from = pairs.iter().rposition(|pair| !reaches(pair)).map_or(0, |last| last + 1);
    let found = pairs.get(from);
    let nearest = pairs.iter().max_by(|one, other| share(one).total_cmp(&share(other)));
    let Some((one, other)) = found.or(nearest) else { return asked.missing(at) };
    let cells = [one.cell, other.cell];
    let told = match found {
        // That they are apart from the bound is known; what holds from there on is said of all.
        Some(_) => {
            let on = pairs.iter().skip(from).flat_map(|(one, other)| [one.cell, other.cell]);
            gate(Sentence::Comparison, &metric, &on.collect::<Vec<&Cell>>())
        }
        None => compare(Sentence::Comparison, &metric, &cells, &one.estimate, &other.estimate),
    };
    let setting = units::setting(over, one.value);
    if told.refusal().is_some() {
        return Said::open(&format!("{setting} over {transport} beside local: {}", refused(&told)));
    }
    let of_local = Number::of("of local", Unit::Share, &quotient(&one.estimate, &other.estimate));
    let label = format!("{} with {setting}", metric.label);
    let there = Number::of(label, metric.unit, &one.estimate).made_from(&cells);
    let start = match found {
        Some(_) => {
            format!("Over {transport} the {} reaches that of local from {setting} on", metric.label)
        }
        None if pairs.iter().any(reaches) => format!(
            "Over {transport} the {} reaches that of local with some {} only; it is nearest with \
             {setting}",
            metric.label,
            units::axis(over),
        ),
        None => format!(
            "Over {transport} the {} reaches that of local nowhere; it is nearest with {setting}",
            metric.label
        ),
    };
    let place = asked.place(one.cell, &[over]);
    let sentence =
        format!("{start}: {}, {} of it{place}{}.", there.told(), of_local.told(), told.named());
    Said::answered(sentence, vec![of_local, there])
}

/// At which values of one setting the first value of another is better than the second.
pub(super) fn beats(asked: &Asked<'_>) -> Said {
    let at = &asked.answer.at;
    let (over, along) = (asked.answer.over.as_str(), asked.answer.along.as_str());
    let metric = asked.metric("p99");
    let Some([first, second, ..]) = asked.plan.axes.get(over).map(Vec::as_slice) else {
        return asked.missing(at);
    };
    let of = |wanted: &Value| {
        let cells = asked.at(at).filter(|cell| cell.value(over) == Some(wanted));
        asked.curve(&metric, along, cells)
    };
    let (ones, others) = (of(first), of(second));
    let (mut better, mut worse) = (Vec::new(), Vec::new());
    let mut open: Vec<(String, Vec<String>)> = Vec::new();
    let (mut numbers, mut gates) = (Vec::new(), Vec::new());
    for one in &ones {
        let Some(other) = others.iter().find(|other| other.value == one.value) else { continue };
        let cells = [one.cell, other.cell];
        let told = compare(Sentence::Comparison, &metric, &cells, &one.estimate, &other.estimate);
        let setting = units::setting(along, one.value);
        let reason = told.reason();
        gates.push((told, ()));
        if let Some(why) = reason {
            match open.iter_mut().find(|(known, _)| *known == why) {
                Some((_, places)) => places.push(setting),
                None => open.push((why, vec![setting])),
            }
            continue;
        }
        let ratio = quotient(&one.estimate, &other.estimate);
        let number = Number::of(format!("at {setting}"), Unit::Times, &ratio);
        numbers.push(number.made_from(&cells));
        match metric.is_better(one.estimate.mean, other.estimate.mean) {
            true => better.push(setting),
            false => worse.push(setting),
        }
    }
    if numbers.is_empty() && open.is_empty() {
        return asked.missing(at);
    }
    let (lower, higher) = if metric.is_rate() { (worse, better) } else { (better, worse) };
    let list = |what: &str, places: &[String]| {
        (!places.is_empty()).then(|| format!("{what} at {}", places.join(", ")))
    };
    let open = open.iter().map(|(why, places)| format!("at {}: {why}", places.join(", ")));
    // The first and the last place say how far it goes.
    if let [first, .., last] = &numbers[..] {
        numbers = vec![first.clone(), last.clone()];
    }
    let ends = numbers.iter().map(|number| format!("{} {}", number.told(), number.label));
    let parts = [list("lower", &lower), list("higher", &higher)].into_iter().flatten();
    let parts: Vec<String> = parts.chain(open).chain(ends).collect();
    let named = Sifted::of(gates).named();
    let name = |value: &Value| units::setting(over, value);
    let sentence = format!(
        "{}, {} against {}: {}{named}.",
        units::capital(&metric.label),
        name(first),
        name(second),
        parts.join("; ")
    );
    Said { sentence, is_answered: !numbers.is_empty(), numbers }
}

/// The best value of a setting by a number's metric, with the place of the number; an error says
/// why there is none.
pub(super) fn winner(
    asked: &Asked<'_>,
    wanted: &AnswerNumber,
    over: &str,
) -> Result<(Number, String), String> {
    let metric = Metric::named(&wanted.metric).ok_or("not a metric")?;
    let remote = asked.at(&wanted.at).filter(|cell| cell.text(key::TRANSPORT) != "local");
    let mut points = asked.curve(&metric, over, remote);
    let Some(first) = best(&metric, &points).cloned() else {
        return Err(asked.why_missing(&wanted.at));
    };
    points.retain(|point| point.value != first.value);
    let told = match best(&metric, &points) {
        Some(other) => {
            let cells = [first.cell, other.cell];
            compare(Sentence::Comparison, &metric, &cells, &first.estimate, &other.estimate)
        }
        None => gate(Sentence::Value, &metric, &[first.cell]),
    };
    let name = |point: &Point<'_>| units::setting(over, point.value);
    match (&told, best(&metric, &points)) {
        (Gate::Allowed { .. }, _) => {}
        (_, Some(other)) => {
            return Err(format!("{} and {} are {}", name(&first), name(other), refused(&told)));
        }
        (_, None) => return Err(refused(&told)),
    }
    let label = format!("{} ({})", wanted.label, name(&first));
    let place = format!(" with {}{}", name(&first), told.named());
    let number = Number::of(label, metric.unit, &first.estimate).made_from(&[first.cell]);
    Ok((number, place))
}

fn of_transport<'a>(asked: &Asked<'a>, metric: &Metric, transport: &str) -> Vec<Point<'a>> {
    let cells = asked.at(&asked.answer.at).filter(|cell| cell.text(key::TRANSPORT) == transport);
    // What the generator limited is no capacity; it counts if all cells are so.
    let cells: Vec<&Cell> = cells.collect();
    let allowed = |cell: &&Cell| gate(Sentence::Capacity, metric, &[*cell]).refusal().is_none();
    let good: Vec<&Cell> = cells.iter().copied().filter(allowed).collect();
    let cells = if good.is_empty() { cells } else { good };
    asked.curve(metric, &asked.answer.over, cells.into_iter())
}

fn best<'p, 'a>(metric: &Metric, points: &'p [Point<'a>]) -> Option<&'p Point<'a>> {
    points.iter().reduce(|best, other| {
        if metric.is_better(other.estimate.mean, best.estimate.mean) { other } else { best }
    })
}
