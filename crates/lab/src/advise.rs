//! The advisor: which of the ways that were measured holds an objective at a rate, and what it
//! takes.
//!
//! A way is all that a plan sets but for the load: link, cores, polling, software. Its cells, at
//! whatever depth and rate, are what the model of `weft_advise` is fitted from; another kind of
//! request than was asked for is no cell of it, since neither device nor network need be alike.

mod answer;
mod conclusion;
mod confirm;
mod evidence;
mod isotonic;
mod kind;
mod load;
mod measured;
mod model;
mod prices;
mod question;
mod way;
mod what_if;

use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

pub use answer::{Advice, Confirmation, Latencies, Point, Row, Tenant, Verdict};
use conclusion::conclusion;
pub use confirm::{confirm, confirming, only};
use kind::Kind;
use load::Load;
use measured::{mean_iops, point_of, whole};
use model::{Forecast, KindModel};
pub use prices::Prices;
pub use question::{Question, objective, rate};
use way::{All, Among, Way, Wire, label_of, way_of};
pub use weft_advise::Interval;
pub use what_if::WhatIf;

use crate::cells::{self, Cell, Cells};
use crate::limits::{CORES_MAX, DEPTH_MAX, IOPS_MAX};
use crate::results::{self, Configuration, Environment, Mark, Results, Role, key};
use crate::units;

/// Points of a predicted curve, and of one that is not shown.
const CURVE: u32 = 16;
const UNSHOWN: u32 = 6;

/// Steps from one of them to the next.
const HALVED: usize = 5;

/// The highest rate of which something is said, by the highest that was measured.
const BEYOND: f64 = 1.25;

/// What else is taken into account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// What is not as it was measured.
    pub what_if: WhatIf,
    /// What it costs; without prices that way is the cheapest which takes the fewest processors.
    pub prices: Option<Prices>,
}

/// Whether anything could be said where parts are replaced, of ways of these settings: of one at
/// least over a network, or of the local one where there is no other.
///
/// # Errors
/// It could not: what to measure.
pub fn replaceable(cells: &[Configuration], what_if: &WhatIf) -> Result<(), String> {
    let mut ways: Vec<Way> = Vec::new();
    for configuration in cells.iter().map(way_of) {
        if ways.iter().all(|way| way.configuration != configuration) {
            ways.push(Way { configuration, cells: Vec::new(), wire: Ok(Wire::default()) });
        }
    }
    let (local, remote): (Vec<&Way>, Vec<&Way>) = ways.iter().partition(|way| way.is_local());
    let asked = if remote.is_empty() { local } else { remote };
    let nearest = asked.into_iter().filter(|way| way.is_nearest(&ways, what_if));
    let mut refused = nearest.map(|way| way.replaceable(&ways, &of_way(way, what_if)).err());
    let first = refused.next().flatten();
    first.filter(|_| refused.all(|why| why.is_some())).map_or(Ok(()), Err)
}

/// What the results say of a question, or of several tenants that share a way.
///
/// # Errors
/// They have no cells of such requests, in the words of the command line.
pub fn advise(
    results: &[Results],
    questions: &[Question],
    terms: &Terms,
) -> Result<Advice, String> {
    results::each_once(results)?;
    if let Some((one, other)) = other_machine(results) {
        return Err(format!("{one} and {other} are of different machines, whose ways are not one"));
    }
    let ways = ways(results);
    let cells: Vec<&Cell> = ways.iter().flat_map(|way| &way.cells).collect();
    if cells.is_empty() {
        return Err("there is no measured cell in these results".to_owned());
    }
    let kinds = questions.iter().map(|question| Kind::asked(question, &cells));
    let kinds = kinds.collect::<Result<Vec<_>, String>>()?;
    if !kinds.iter().all(|kind| ways.iter().any(|way| kind.is_within(&way.cells))) {
        return Err(kind::none_has(&cells));
    }
    let what_if = &terms.what_if;
    let refused = |way: &Way| refused(way, &ways, &kinds, questions, what_if);
    let is_wanted = |way: &Way| way.is_nearest(&ways, what_if);
    // A fit takes seconds.
    let is_any = ways.iter().any(|way| is_wanted(way) && refused(way).is_none());
    let known = at_once(&ways, |way| {
        let beside = way.beside(&ways, what_if);
        let of = |kind| match is_any {
            true => KindModel::of(kind, &way.cells, &beside),
            false => Err(String::new()),
        };
        kinds.iter().map(of).collect::<Vec<_>>()
    });
    let all: Vec<_> = ways.iter().cloned().zip(known).collect();
    let wanted: Vec<_> = all.iter().filter(|(way, _)| is_wanted(way)).collect();
    let mut rows = at_once(&wanted, |(way, known)| {
        let name = label_of(&way.configuration, &ways);
        let blank = blank(name, way, &kinds);
        if let Some((verdict, why)) = refused(way) {
            return Row { verdict, ..blank.refused(why) };
        }
        let known: Result<Vec<&KindModel>, &String> = known.iter().map(Result::as_ref).collect();
        match known {
            Ok(known) => row(blank, way, &known, &all, questions, terms),
            Err(why) => match too_slow(way, &kinds, questions).filter(|_| !what_if.is_any()) {
                Some(slow) => Row { verdict: Verdict::Fails, ..blank.refused(slow) },
                None => blank.refused(why.clone()),
            },
        }
    });
    let prices = terms.prices.as_ref();
    rows.sort_by(|one, other| {
        let [one, other] = [one, other].map(|row| rank(row, prices));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    Ok(Advice {
        p99_ns: questions.iter().map(|one| one.p99_ns).fold(f64::INFINITY, f64::min),
        iops: questions.iter().map(|one| one.iops).sum(),
        currency: prices.map(|prices| prices.currency.clone()),
        conclusion: conclusion(&rows, questions, prices),
        rows,
        confirmation: None,
    })
}

/// The place of a row: the cheapest that holds first, then those that may, and the local device
/// last.
fn rank(row: &Row, prices: Option<&Prices>) -> (u8, f64) {
    let cost = row.cost(prices).unwrap_or(f64::INFINITY);
    match row.verdict {
        _ if row.is_local() => (4, 0.0),
        Verdict::Holds => (0, cost),
        Verdict::Unknown if row.is_likely => (1, cost),
        Verdict::Unknown => (2, 0.0),
        Verdict::Fails => (3, 0.0),
    }
}

/// Of each, on a thread of its own.
fn at_once<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let of = &of;
        let begun: Vec<_> = all.iter().map(|one| scope.spawn(move || of(one))).collect();
        let ended = begun.into_iter();
        ended.map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why))).collect()
    })
}

/// Two results that were measured on different machines.
fn other_machine(results: &[Results]) -> Option<(String, String)> {
    let own = |of: &Results| {
        let Environment { machine, processor, .. } = &of.environment;
        (machine.clone(), processor.model.clone(), processor.cores)
    };
    let first = results.first()?;
    let other = results.iter().find(|other| own(other) != own(first))?;
    let name = |of: &Results| of.directory.display().to_string();
    Some((name(first), name(other)))
}

/// The ways that were measured.
fn ways(results: &[Results]) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    for one in results {
        let cells = Cells::of(&one.records, &one.environment);
        let is_of_a_way = |cell: &&Cell| {
            matches!(cell.role, Role::Plain | Role::Saturation)
                && cell.is_measured()
                && is_possible(cell)
        };
        for cell in cells.cells.iter().filter(is_of_a_way) {
            let configuration = way_of(&cell.configuration);
            match ways.iter_mut().find(|way| way.configuration == configuration) {
                Some(way) => way.cells.push(cell.clone()),
                None => {
                    let wire = Wire::of(&cells, cell);
                    ways.push(Way { configuration, cells: vec![cell.clone()], wire });
                }
            }
        }
    }
    ways
}

/// Whether a machine can have measured it: a simulation of anything else has no end.
fn is_possible(cell: &Cell) -> bool {
    let count = |key| whole(cell.value(key));
    let depth = count(key::DEPTH).saturating_mul(count(key::JOBS));
    let cores = [key::CORES, key::HOST_CORES, key::TARGET_CORES].map(count);
    let rates = || cell.repeats.iter().map(|repeat| repeat.iops);
    (1..=DEPTH_MAX).contains(&depth)
        && cores.into_iter().all(|cores| (1..=CORES_MAX).contains(&cores))
        && rates().all(|iops| iops > 0.0 && iops < IOPS_MAX)
}

/// What needs no fit to be refused, and whether it fails.
fn refused(
    way: &Way,
    ways: &[Way],
    kinds: &[Kind],
    questions: &[Question],
    what_if: &WhatIf,
) -> Option<(Verdict, String)> {
    let of_way = of_way(way, what_if);
    if let Err(why) = way.replaceable(ways, &of_way) {
        return Some((Verdict::Unknown, why));
    }
    if let Some(delays) = of_way.device
        && let Some(why) = overloaded(way, kinds, questions, delays)
    {
        return Some((Verdict::Fails, why));
    }
    let uses = kinds.iter().zip(questions).map(|(kind, question)| (kind, question.iops));
    let uses = uses.filter_map(|(kind, rate)| Some(of_way.link(kind)?.used(rate)));
    load::carried(uses).err().map(|why| (Verdict::Fails, why))
}

/// Why an objective is not held, whatever else cannot be told: no request was as fast.
fn too_slow(way: &Way, kinds: &[Kind], questions: &[Question]) -> Option<String> {
    kinds.iter().zip(questions).find_map(|(kind, question)| {
        let own = way.cells.iter().filter(|cell| Kind::of(cell) == *kind);
        let fastest = own.map(Cell::min_ns).filter(|ns| *ns > 0).min()? as f64;
        (fastest > question.p99_ns)
            .then(|| format!("no request took less than {}", units::time(fastest)))
    })
}

/// Why a device with these delays does not serve what is asked for: more would have to be under way
/// at once than the greatest depth (Little's law).
fn overloaded(
    way: &Way,
    kinds: &[Kind],
    questions: &[Question],
    delays: [Duration; 2],
) -> Option<String> {
    let depth = |cell: &Cell| whole(cell.value(key::DEPTH)) * whole(cell.value(key::JOBS));
    let deepest = way.cells.iter().map(depth).max()? as f64;
    let [read, write] = delays.map(|delay| delay.as_secs_f64());
    kinds.iter().zip(questions).find_map(|(kind, question)| {
        let mean_s = kind.read_part() * read + (1.0 - kind.read_part()) * write;
        (question.iops * mean_s > deepest).then(|| {
            format!(
                "such a device serves {} IOPS at depth {deepest}",
                units::count(deepest / mean_s)
            )
        })
    })
}

/// What is replaced of a way.
fn of_way(way: &Way, what_if: &WhatIf) -> WhatIf {
    if way.is_local() { what_if.of_local() } else { what_if.clone() }
}

/// A row of which nothing is known yet.
fn blank(name: String, way: &Way, kinds: &[Kind]) -> Row {
    let mut configuration = way.configuration.clone();
    let is_its = |cell: &&Cell| kinds.iter().any(|kind| *kind == Kind::of(cell));
    let cells: Vec<&Cell> = way.cells.iter().filter(is_its).collect();
    if let ([_], Some(cell)) = (kinds, cells.first()) {
        let own = |key: &&str| Some(((**key).to_owned(), cell.value(key)?.clone()));
        configuration.extend(kind::OF_THE_REQUESTS.iter().filter_map(own));
    }
    let is_open = |cell: &&&Cell| cell.marks.contains(&Mark::OpenLoop);
    let point = |cell: &&Cell| Some(Point { iops: mean_iops(cell), p99_ns: point_of(cell)? });
    let measured = cells.iter().filter(is_open).filter_map(point).collect();
    Row { measured, ..Row::new(name, configuration, cells.len()) }
}

fn row(
    blank: Row,
    way: &Way,
    known: &[&KindModel],
    all: &All,
    questions: &[Question],
    terms: &Terms,
) -> Row {
    let among = |(place, known)| Among { way, known, place, all };
    let among: Vec<Among<'_>> = known.iter().copied().enumerate().map(among).collect();
    let load = Load::new(&among, questions, &of_way(way, &terms.what_if));
    let said = load.and_then(|load| Ok((load.at(1.0, &load.deepest())?, load)));
    let (said, load) = match said {
        Ok(said) => said,
        Err(why) => return blank.refused(why),
    };
    let tenants: Vec<Tenant> = tenants(&load, &said, questions);
    let worst = |one: Verdict, tenant: &Tenant| match (one, tenant.verdict) {
        (Verdict::Fails, _) | (_, Verdict::Fails) => Verdict::Fails,
        (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
        (Verdict::Holds, Verdict::Holds) => Verdict::Holds,
    };
    let rising = rising(&load, if tenants.len() == 1 { CURVE } else { UNSHOWN });
    let (headroom_iops, is_headroom_least) = headroom(&load, &rising, questions);
    let verdict = tenants.iter().fold(Verdict::Holds, worst);
    let mut row = Row {
        verdict,
        is_likely: verdict == Verdict::Unknown
            && said.iter().zip(questions).all(|(said, question)| is_expected(said, question)),
        is_between: known.iter().any(|known| !known.is_measured()),
        headroom_iops: Some(headroom_iops),
        is_headroom_least,
        is_beyond_knee: said.iter().any(|said| said.prediction.is_beyond_knee),
        processors: load.processors(),
        notes: notes(&load, &said, known),
        cells: known.iter().map(|known| known.cells().count()).sum(),
        repeats: known
            .iter()
            .flat_map(|one| one.cells())
            .map(|cell| cell.repeats.len())
            .min()
            .unwrap_or(0),
        ..blank
    };
    match &tenants[..] {
        [one] => {
            row.quantiles_ns = Some(one.quantiles_ns);
            row.least_depth = one.least_depth;
            row.predicted = predicted(&rising, one.iops);
        }
        _ => row.tenants = tenants,
    }
    if let Some(prices) = &terms.prices {
        prices.put(&mut row);
    }
    row
}

/// Each tenant, with the least depth at which it holds, or is expected to where that cannot be
/// told, while the others have their greatest.
fn tenants(load: &Load<'_>, said: &[Forecast], questions: &[Question]) -> Vec<Tenant> {
    let deepest = load.deepest();
    let of = |(place, (said, question)): (usize, (&Forecast, &Question))| {
        let verdict = verdict(said, question);
        let holds = |depth: &usize| {
            let mut depths = deepest.clone();
            depths[place] = *depth;
            let found = load.at(1.0, &depths);
            found.is_ok_and(|found| match verdict {
                Verdict::Holds => self::verdict(&found[place], question) == Verdict::Holds,
                Verdict::Unknown | Verdict::Fails => is_expected(&found[place], question),
            })
        };
        let depths = std::iter::successors(Some(1), |depth| Some(2 * depth));
        let most = deepest[place];
        let least_depth = match verdict {
            Verdict::Unknown | Verdict::Fails if !is_expected(said, question) => None,
            _ => depths.take_while(|depth| *depth < most).find(holds).or(Some(most)),
        };
        let [p50, p99, p999] = *said.prediction.quantiles_ns;
        let quantiles_ns = (p50, p99, Some(p999).filter(|_| said.prediction.is_tail_known));
        let Question { name, p99_ns, iops, .. } = question.clone();
        Tenant { name, p99_ns, iops, verdict, quantiles_ns, least_depth }
    };
    said.iter().zip(questions).enumerate().map(of).collect()
}

/// What was not measured as it is asked for, and what was not modelled.
fn notes(load: &Load<'_>, said: &[Forecast], known: &[&KindModel]) -> Vec<String> {
    let mut notes: Vec<String> = load.note.clone().into_iter().collect();
    if load.is_recorded() {
        notes.push("not measured, but simulated: arrivals as they were recorded".to_owned());
    }
    notes.extend(load.below().map(|least| {
        let least = units::count(least);
        format!("below {least} IOPS nothing was measured: what sleeps then may be slower")
    }));
    if said.iter().any(|said| said.prediction.is_beyond_knee) {
        notes.push("this rate is beyond the knee: requests would be left over".to_owned());
    }
    let is_measured = |(said, _): &(&Forecast, _)| said.is_measured;
    if let Some((_, known)) = said.iter().zip(known).find(is_measured) {
        let what = if known.is_measured() { "measured" } else { "between measured cells" };
        notes.push(format!("{what}, not modelled: the model does not explain these cells"));
    }
    notes.extend(known.iter().map(|known| known.left_out()).filter(|[left, _]| *left > 0).map(
        |[left, all]| {
            format!("{left} of {all} repeats were left out: other programs had their processors")
        },
    ));
    notes.extend(known.iter().filter(|known| !known.is_measured()).map(|known| {
        format!("{} were not measured, but others on both sides of them", known.kind.words())
    }));
    notes
}

/// How many times the rates, and what becomes of each tenant there; none where it would be a guess.
type Rising = Vec<(f64, Option<Vec<Forecast>>)>;

/// At rising loads, from the lowest to the highest of which something is said.
fn rising(load: &Load<'_>, steps: u32) -> Rising {
    // What is said ends just there.
    let most = BEYOND * load.most() * (1.0 - 1e-9);
    let deepest = load.deepest();
    let all = (1..=steps).map(|step| most * f64::from(step) / f64::from(steps));
    let said = all.map(|times| (times, load.at(times, &deepest).ok()));
    said.skip_while(|(_, said)| said.is_none()).collect()
}

/// The load of all tenants, with the p99 that is farthest from its objective, by that.
fn worst(said: Option<&Vec<Forecast>>, questions: &[Question]) -> cells::Load {
    let none = cells::Load { p99: f64::INFINITY, is_served: false };
    let of = |(one, question): (&Forecast, &Question)| {
        let own = load_of(one);
        cells::Load { p99: own.p99 / question.p99_ns, ..own }
    };
    let worse = |one: cells::Load, other: cells::Load| cells::Load {
        p99: one.p99.max(other.p99),
        is_served: one.is_served && other.is_served,
    };
    said.and_then(|said| said.iter().zip(questions).map(of).reduce(worse)).unwrap_or(none)
}

/// The highest rate at which each p99 is expected to be within its objective, and whether it is
/// only the highest of which something is said: a knee, whose bound is the objective.
fn headroom(load: &Load<'_>, rising: &Rising, questions: &[Question]) -> (f64, bool) {
    let all: f64 = questions.iter().map(|question| question.iops).sum();
    let loads: Vec<_> = rising.iter().map(|(_, said)| worst(said.as_ref(), questions)).collect();
    let last = cells::bend(&loads, |_| 1.0).map(|bend| bend.last);
    let times = |at: usize| rising.get(at).map(|(times, _)| *times);
    let mut low = last.and_then(times).unwrap_or(0.0);
    let Some(mut high) = times(last.map_or(0, |last| last + 1)) else {
        return (low * all, last.is_some());
    };
    for _ in 0..HALVED {
        let middle = f64::midpoint(low, high);
        let said = load.at(middle, &load.deepest()).ok();
        let holds = worst(said.as_ref(), questions).is_within(1.0);
        if holds { low = middle } else { high = middle }
    }
    (low * all, false)
}

/// The prediction at these loads, up to the knee.
fn predicted(rising: &Rising, iops: f64) -> Vec<Point> {
    let at = |(times, said): &(f64, Option<Vec<Forecast>>)| {
        let found = &said.as_ref()?.first()?.prediction;
        let point = Point { iops: times * iops, p99_ns: found.quantiles_ns[1] };
        (!found.is_beyond_knee).then_some(point)
    };
    rising.iter().map_while(at).collect()
}

/// Whether the p99 is within the objective, whatever its interval.
fn is_expected(said: &Forecast, question: &Question) -> bool {
    load_of(said).is_within(question.p99_ns)
}

fn load_of(said: &Forecast) -> cells::Load {
    let one = &said.prediction;
    cells::Load { p99: one.quantiles_ns[1].value, is_served: !one.is_beyond_knee }
}

fn verdict(said: &Forecast, question: &Question) -> Verdict {
    let [_, p99, _] = *said.prediction.quantiles_ns;
    match (p99.low > question.p99_ns, p99.high <= question.p99_ns) {
        (true, _) => Verdict::Fails,
        (false, true) if !said.prediction.is_beyond_knee => Verdict::Holds,
        // Whether what is left over waits for ever is not known as well as that.
        (false, true) => Verdict::Unknown,
        (false, false) if said.prediction.is_beyond_knee => Verdict::Fails,
        (false, false) => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests;
