//! The advisor: which of the ways that were measured holds an objective at a rate, and what it
//! takes.
//!
//! A way is all that a plan sets but for the load: link, cores, polling, software. Its cells, at
//! whatever depth and rate, are what the model of `weft_advise` is fitted from; another kind of
//! request than was asked for is no cell of it, since neither device nor network need be alike.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use weft_advise::Interval;
use weft_advise::fit::{Cell as FittedCell, Fit};
use weft_advise::network::Interruptions;
use weft_advise::{Arrivals, Prediction, Refusal};

use crate::cells::{Cell, Cells, Repeat};
use crate::results::{Configuration, Mark, Results, Role, Side, Value, key, number};
use crate::study::plan::{Kind, Measure, Plan};
use crate::units;
use weft_load::Job;
use weft_load::Pattern;

/// Settings of the load: cells that differ in them alone are of one way.
const OF_THE_LOAD: [&str; 5] =
    [key::DEPTH, key::JOBS, key::LOAD_PERCENT, key::RATE_IOPS, key::RATE_PROCESS];

/// Marks with which a cell says nothing of a way.
const SPOILT: [Mark; 4] =
    [Mark::BusyMachine, Mark::AboveFloor, Mark::SharedCores, Mark::BackgroundShort];

/// A mark with which a cell is left out: its rate is not that of what was asked for.
const LEFT_OUT: Mark = Mark::GeneratorFull;

/// Quantiles that a cell gives to the model.
const PERCENTILES: [f64; 14] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.9];

/// Points of a predicted curve.
const CURVE: u32 = 24;

/// How long the advised way is measured.
const CONFIRMED: Duration = Duration::from_secs(30);

/// Of each prediction, so that the same results give the same advice.
const SEED: u64 = 1;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The latency that 99 % of the requests have at most, in ns.
    pub p99_ns: f64,
    /// Requests a second.
    pub iops: f64,
    /// The pattern, in the words of a plan; none: that of the results, if they have one only.
    pub pattern: Option<String>,
    /// Which part of the requests are reads, in percent, where the pattern mixes them.
    pub read_percent: Option<u64>,
    /// Their size; none: that of the results, if they have one only.
    pub block_bytes: Option<u64>,
}

impl Question {
    /// What a job asks for, with this rate or its own.
    ///
    /// # Errors
    /// It has no rate, or something that no plan of a study has: a sentence without its subject.
    pub fn of(job: &Job, p99_ns: f64, iops: Option<f64>) -> Result<Self, String> {
        let own = job.rate.map(|rate| rate.iops * f64::from(job.copies));
        let iops = iops.or(own).ok_or("the job has no rate_iops: give --iops")?;
        let known = Job {
            pattern: job.pattern,
            read_percent: job.read_percent,
            block_bytes: job.block_bytes,
            ..Job::default()
        };
        let differs = [
            (job.modifier != known.modifier, "rw with a modifier"),
            (job.zones != known.zones, "zones"),
            (job.sizes != known.sizes, "bssplit or a range of sizes"),
            (job.spread != known.spread, "random_distribution"),
            (job.random_percent != known.random_percent, "percentage_random"),
            (job.think != known.think, "thinktime"),
            (job.replay.is_some(), "read_iolog"),
            (job.verify, "verify"),
        ];
        if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
            return Err(format!("the job has {what}, which no study measures"));
        }
        let mixed = [Pattern::RandRw, Pattern::ReadWrite].contains(&job.pattern);
        let whole = format!("{:.0}", job.read_percent).parse().ok().filter(|_| mixed);
        Ok(Self {
            p99_ns,
            iops,
            pattern: Some(job.pattern.name().to_owned()),
            read_percent: whole,
            block_bytes: Some(job.block_bytes.into()),
        })
    }
}

/// Whether a way holds the objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval of its p99 is within the objective.
    Holds,
    /// None of it is, or less is served than is asked for.
    Fails,
    /// The objective is within the interval, or nothing can be said.
    Unknown,
}

impl Verdict {
    /// ✓, ✗ or ?.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Holds => "✓",
            Self::Fails => "✗",
            Self::Unknown => "?",
        }
    }
}

/// The p99 at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests a second.
    pub iops: f64,
    /// In ns.
    pub p99_ns: Interval,
}

/// One way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name: the settings by which ways differ.
    pub way: String,
    /// Whether it holds the objective.
    pub verdict: Verdict,
    /// Why nothing is said of it.
    pub refusal: Option<String>,
    /// p50, p99 and p99.9 at the rate, in ns, with 90 % intervals.
    pub quantiles_ns: Option<[Interval; 3]>,
    /// The least depth, a power of two, at which it holds.
    pub least_depth: Option<usize>,
    /// The rate up to which the p99 is expected to be within the objective.
    pub headroom_iops: Option<f64>,
    /// Processors of the host and of the target that it takes at the rate, between the cells with
    /// the nearest rates; of a target that reports none, none.
    pub processors: [Option<f64>; 2],
    /// Cells that were fitted.
    pub cells: usize,
    /// Its settings.
    pub configuration: Configuration,
    /// What is expected at several rates at its greatest depth, up to the knee.
    pub predicted: Vec<Point>,
    /// What was measured with random arrivals: as measured, and without what may be of other
    /// programs' making.
    pub measured: Vec<Point>,
}

impl Row {
    /// One of which nothing is known yet.
    fn new(way: String, configuration: Configuration, cells: usize) -> Self {
        Self {
            way,
            verdict: Verdict::Unknown,
            refusal: None,
            quantiles_ns: None,
            least_depth: None,
            headroom_iops: None,
            processors: [None; 2],
            cells,
            configuration,
            predicted: Vec::new(),
            measured: Vec::new(),
        }
    }

    fn refused(self, why: String) -> Self {
        Self { refusal: Some(why), ..self }
    }

    /// Whether it is the device of this machine, without a network: what others are held against.
    fn is_local(&self) -> bool {
        self.configuration.get(key::TRANSPORT).is_some_and(|name| name.as_text() == Some("local"))
    }

    /// Processors of both sides, if the host's are known.
    fn cost(&self) -> Option<f64> {
        Some(self.processors[0]? + self.processors[1].unwrap_or(0.0))
    }
}

/// What is advised.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// The objective's p99, in ns, and rate.
    pub p99_ns: f64,
    /// Requests a second.
    pub iops: f64,
    /// Each way, the cheapest that holds first, and the local device last.
    pub rows: Vec<Row>,
    /// The conclusion.
    pub conclusion: String,
    /// What became of it when it was measured.
    pub confirmation: Option<Confirmation>,
}

impl Advice {
    /// The cheapest way that holds the objective; a local one only where nothing else was measured.
    #[must_use]
    pub fn advised(&self) -> Option<&Row> {
        advised(&self.rows)
    }
}

fn advised(rows: &[Row]) -> Option<&Row> {
    rows.first().filter(|row| row.verdict == Verdict::Holds)
}

/// What was measured of an advised way at the rate that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Confirmation {
    /// Requests a second.
    pub iops: f64,
    /// The p99: as measured, and what of it may be of other programs' making.
    pub p99_ns: Interval,
    /// Whether it is within the objective; unknown where other programs make the difference.
    pub verdict: Verdict,
    /// Whether the prediction's interval and this one have a number in common.
    pub is_predicted: bool,
}

impl Confirmation {
    /// In a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let p99 = self.p99_ns;
        let within = format!("p99 {} at {} IOPS", units::time(p99.value), units::count(self.iops));
        let predicted = match self.is_predicted {
            true => "as predicted",
            false => "which is not what was predicted",
        };
        match self.verdict {
            Verdict::Holds => format!("Measured: it holds, {within}, {predicted}."),
            Verdict::Fails => format!("Measured: it does not hold, {within}, {predicted}."),
            Verdict::Unknown => format!(
                "Measured: {within}, of which other programs may have made what is above {}: \
                 measure on a quiet machine (--wait-for-quiet).",
                units::time(p99.low)
            ),
        }
    }
}

/// The plan that measures an advised way at the rate that was asked for: the one that was measured,
/// with this load in place of its own.
///
/// # Errors
/// The results have no plan that can be read.
pub fn confirming(results: &Results, row: &Row, question: &Question) -> Result<Plan, String> {
    let mut plan: Plan = results.plan.parse().map_err(|error| format!("{error}"))?;
    for key in OF_THE_LOAD {
        plan.axes.remove(key);
        plan.fixed.remove(key);
    }
    plan.fixed.insert(key::RATE_IOPS.to_owned(), question.iops.into());
    plan.fixed.insert(key::RATE_PROCESS.to_owned(), "poisson".into());
    let depth = row.least_depth.unwrap_or(1) as u64;
    plan.fixed.insert(key::DEPTH.to_owned(), depth.into());
    plan.measure = Measure {
        runtime: CONFIRMED,
        repeats: 1,
        repeats_max: 1,
        settle: Duration::ZERO,
        ..plan.measure
    };
    (plan.quick, plan.rdma) = Default::default();
    Ok(Plan { kind: Kind::Matrix, answer: None, plots: Vec::new(), run: None, ..plan })
}

/// The settings of a way that its plan has several values of.
#[must_use]
pub fn only(plan: &Plan, row: &Row) -> Configuration {
    let several = |key: &String| plan.axes.contains_key(key);
    row.configuration
        .iter()
        .filter(|(key, _)| several(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// What a run of such a plan says of an advice.
///
/// # Errors
/// It has no result.
pub fn confirm(results: &Results, row: &Row, question: &Question) -> Result<Confirmation, String> {
    let cells = Cells::of(&results.records, &results.environment);
    let cell = cells.cells.iter().find(|cell| cell.is_measured());
    let cell = cell.ok_or("the way that was advised could not be measured")?;
    let repeat = cell.repeats.first().ok_or("no repeat")?;
    let p99_ns = p99_of(cell).ok_or("too few requests for a p99")?;
    let verdict = match () {
        () if cell.is_spoilt() => Verdict::Unknown,
        () if repeat.iops < 0.98 * question.iops || p99_ns.low > question.p99_ns => Verdict::Fails,
        () if p99_ns.high <= question.p99_ns => Verdict::Holds,
        () => Verdict::Unknown,
    };
    let predicted = row.quantiles_ns.map(|[_, p99, _]| p99);
    let is_predicted =
        predicted.is_some_and(|one| one.low <= p99_ns.high && p99_ns.low <= one.high);
    Ok(Confirmation { iops: repeat.iops, p99_ns, verdict, is_predicted })
}

/// The p99 of a cell, and without what may be of other programs' making.
fn p99_of(cell: &Cell) -> Option<Interval> {
    let value = cell.latency().percentile_ns(99.0)? as f64;
    let [down, _] = cell.slack("p99");
    Some(Interval { value, low: value * (-down).exp(), high: value })
}

/// What the results say of a question.
///
/// # Errors
/// They have no cells of such requests, in the words of the command line.
pub fn advise(results: &[Results], question: &Question) -> Result<Advice, String> {
    let mut ways: Vec<(Configuration, Vec<Cell>)> = Vec::new();
    let mut kinds: BTreeSet<String> = BTreeSet::new();
    for one in results {
        let cells = Cells::of(&one.records, &one.environment);
        for cell in cells.cells {
            if !matches!(cell.role, Role::Plain | Role::Saturation) || !cell.is_measured() {
                continue;
            }
            kinds.insert(kind_of(&cell));
            if !is_asked_for(&cell, question) {
                continue;
            }
            let way = way_of(&cell.configuration);
            match ways.iter_mut().find(|(known, _)| *known == way) {
                Some((_, cells)) => cells.push(cell),
                None => ways.push((way, vec![cell])),
            }
        }
    }
    let kinds: Vec<String> = kinds.into_iter().collect();
    if ways.is_empty() {
        return Err(match kinds.is_empty() {
            true => "there is no measured cell in these results".to_owned(),
            false => format!("no cell has such requests: there are {}", kinds.join("; ")),
        });
    }
    let asked: Vec<String> = ways.iter().flat_map(|(_, cells)| cells).map(kind_of).collect();
    if let Some(other) = asked.iter().find(|kind| **kind != asked[0]) {
        return Err(format!("give --rw and --bs: there are {} and {other}", asked[0]));
    }
    // A fit takes seconds.
    let mut rows: Vec<Row> = thread::scope(|scope| {
        let begin = |(way, cells): &'_ (Configuration, Vec<Cell>)| {
            let blank = Row::new(label_of(way, &ways), way.clone(), cells.len());
            let cells = cells.clone();
            scope.spawn(move || row(blank, &cells, question))
        };
        let begun: Vec<_> = ways.iter().map(begin).collect();
        begun
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why)))
            .collect()
    });
    let rank = |row: &Row| match row.verdict {
        _ if row.is_local() => (3, 0.0),
        Verdict::Holds => (0, row.cost().unwrap_or(f64::INFINITY)),
        Verdict::Unknown => (1, 0.0),
        Verdict::Fails => (2, 0.0),
    };
    rows.sort_by(|one, other| {
        let (one, other) = (rank(one), rank(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    let conclusion = conclusion(&rows, question);
    let (p99_ns, iops) = (question.p99_ns, question.iops);
    Ok(Advice { p99_ns, iops, rows, conclusion, confirmation: None })
}

/// A cell's requests in words.
fn kind_of(cell: &Cell) -> String {
    let settings = [key::PATTERN, key::READ_PERCENT, key::BLOCK_BYTES];
    let words = settings.iter().filter_map(|key| Some(units::short(key, cell.value(key)?)));
    words.collect::<Vec<String>>().join(", ")
}

fn is_asked_for(cell: &Cell, question: &Question) -> bool {
    let is = |key: &str, wanted: Option<Value>| {
        wanted.is_none_or(|wanted| cell.value(key) == Some(&wanted))
    };
    is(key::PATTERN, question.pattern.as_deref().map(Value::from))
        && is(key::READ_PERCENT, question.read_percent.map(Value::from))
        && is(key::BLOCK_BYTES, question.block_bytes.map(Value::from))
}

fn way_of(configuration: &Configuration) -> Configuration {
    let mut way = configuration.clone();
    way.retain(|key, _| !OF_THE_LOAD.contains(&key.as_str()));
    way
}

/// The link, then the other settings in which the ways differ.
fn label_of(way: &Configuration, all: &[(Configuration, Vec<Cell>)]) -> String {
    let differs = |key: &str| all.iter().any(|(other, _)| other.get(key) != way.get(key));
    let link = way.get(key::TRANSPORT).map(|value| units::short(key::TRANSPORT, value));
    let others = way.iter().filter(|(key, _)| *key != key::TRANSPORT && differs(key));
    let others = others.map(|(key, value)| units::setting(key, value));
    link.into_iter().chain(others).collect::<Vec<String>>().join(", ")
}

fn row(mut row: Row, cells: &[Cell], question: &Question) -> Row {
    let is_open = |cell: &&Cell| cell.marks.contains(&Mark::OpenLoop);
    let measured = cells
        .iter()
        .filter(is_open)
        .filter_map(|cell| Some(Point { iops: mean_iops(cell), p99_ns: p99_of(cell)? }));
    row.measured = measured.collect();
    let spoilt = |cell: &&Cell| cell.marks.iter().any(|mark| SPOILT.contains(mark));
    if let Some(cell) = cells.iter().find(spoilt) {
        let marks = cell.marks.iter().filter(|mark| SPOILT.contains(mark));
        let words: Vec<&str> = marks.map(|mark| mark.explained()).collect();
        return row.refused(words.join(", "));
    }
    let kept: Vec<Cell> = cells.iter().filter_map(Cell::unspoilt).collect();
    if 2 * kept.len() < cells.len() {
        return row.refused(Mark::Disturbed.explained().to_owned());
    }
    let cells = &kept[..];
    let sound = cells.iter().filter(|cell| !cell.marks.contains(&LEFT_OUT));
    let fitted: Vec<FittedCell> = sound.filter_map(fitted_cell).collect();
    let Some(fit) = Fit::new(&fitted, SEED) else {
        let why = "at least three cells are needed, one of them at half of the highest rate or \
                   less: weft study run latency-vs-load";
        return row.refused(why.to_owned());
    };
    let cores = fitted.first().map_or([1, 0], |cell| [cell.host_cores, cell.target_cores]);
    let deepest = fitted.iter().map(|cell| cell.depth).max().unwrap_or(1);
    let predict = |depth: usize| fit.predict(question.iops, depth, cores, SEED);
    let prediction = match predict(deepest) {
        Ok(prediction) => prediction,
        Err(refusal) => return row.refused(reason(refusal)),
    };
    let verdict = verdict(&prediction, question);
    let holds = |depth: &usize| {
        predict(*depth).is_ok_and(|found| self::verdict(&found, question) == Verdict::Holds)
    };
    let depths = std::iter::successors(Some(1), |depth| Some(2 * depth));
    let least_depth = match verdict {
        Verdict::Holds => depths.take_while(|depth| *depth < deepest).find(holds).or(Some(deepest)),
        Verdict::Fails | Verdict::Unknown => None,
    };
    Row {
        verdict,
        quantiles_ns: Some(prediction.quantiles_ns),
        least_depth,
        headroom_iops: Some(fit.headroom(1, question.p99_ns, deepest, cores)),
        predicted: predicted(&fit, deepest, cores),
        processors: processors(cells, question.iops),
        ..row
    }
}

/// The prediction at some rates, up to the knee.
fn predicted(fit: &Fit, depth: usize, cores: [usize; 2]) -> Vec<Point> {
    let most = fit.measured.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let rates = (1..=CURVE).map(|part| 1.1 * most * f64::from(part) / f64::from(CURVE));
    let at = |iops: f64| {
        let found = fit.predict(iops, depth, cores, SEED).ok()?;
        (!found.is_beyond_knee).then_some(Point { iops, p99_ns: found.quantiles_ns[1] })
    };
    rates.map_while(at).collect()
}

fn mean_iops(cell: &Cell) -> f64 {
    cell.repeats.iter().map(|repeat| repeat.iops).sum::<f64>() / cell.repeats.len().max(1) as f64
}

fn verdict(prediction: &Prediction, question: &Question) -> Verdict {
    let [_, p99, _] = prediction.quantiles_ns;
    if prediction.is_beyond_knee || p99.low > question.p99_ns {
        Verdict::Fails
    } else if p99.high <= question.p99_ns {
        Verdict::Holds
    } else {
        Verdict::Unknown
    }
}

fn reason(refusal: Refusal) -> String {
    match refusal {
        Refusal::BeyondMeasured { most } => {
            format!(
                "nothing is said beyond {} IOPS, 1.25 of the most that was measured",
                units::count(most)
            )
        }
        Refusal::NotExplained { factor } => {
            let factor = units::times(factor);
            format!("the model is off by {factor} in its own cells: measure this rate")
        }
    }
}

/// A cell for the model: the mean of its repeats, and the latencies of all.
fn fitted_cell(cell: &Cell) -> Option<FittedCell> {
    let latency = cell.latency();
    let mean = |of: &dyn Fn(&crate::cells::Repeat) -> Option<f64>| {
        let values: Vec<f64> = cell.repeats.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let iops = mean(&|repeat| Some(repeat.iops))?;
    let whole = |key: &str| {
        let number = cell.value(key).and_then(Value::as_integer).unwrap_or(1);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
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
    Some(FittedCell {
        arrivals,
        depth: whole(key::DEPTH) * whole(key::JOBS),
        host_cores: whole(key::HOST_CORES).max(whole(key::CORES)),
        target_cores: if is_local { 0 } else { whole(key::TARGET_CORES).max(whole(key::CORES)) },
        iops,
        mean_ns: [undisturbed_ns, mean_ns],
        quantiles: quantiles.collect(),
        late: mean(&|repeat| Some(repeat.lost.requests))?,
        interruptions: mean_interruptions(cell),
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

/// Processors of the host and of the target at a rate: between the cells with the nearest rates.
fn processors(cells: &[Cell], rate: f64) -> [Option<f64>; 2] {
    let used = |cell: &Cell, of: fn(&Repeat) -> &Option<Side>| {
        let sides = cell.repeats.iter().filter_map(|repeat| of(repeat).as_ref());
        let (cpu_s, seconds) = sides.fold((0.0, 0.0), |(cpu_s, seconds), side| {
            (cpu_s + side.cpu_seconds(), seconds + side.seconds)
        });
        (seconds > 0.0).then_some(cpu_s / seconds)
    };
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

/// The cheapest way that holds, and what would have to be true for the next one.
fn conclusion(rows: &[Row], question: &Question) -> String {
    let objective =
        format!("p99 ≤ {} at {} IOPS", units::time(question.p99_ns), units::count(question.iops));
    let unknown = rows.iter().find(|row| row.verdict == Verdict::Unknown && !row.is_local());
    let Some(first) = advised(rows) else {
        return match unknown {
            Some(row) => {
                format!("No way is known to hold {objective}; of {} it cannot be told.", row.way)
            }
            None => format!("No way that was measured holds {objective}."),
        };
    };
    let (depth, headroom) = (first.least_depth.unwrap_or(1), first.headroom_iops.unwrap_or(0.0));
    let cost = first
        .cost()
        .map_or_else(String::new, |cost| format!(", {} processors", units::digits(cost)));
    let mut text = format!(
        "{} holds {objective} from depth {depth} on, up to {} IOPS{cost}.",
        units::capital(&first.way),
        units::count(headroom)
    );
    if let Some(row) = unknown {
        let what = match (&row.refusal, row.quantiles_ns) {
            (None, Some([_, p99, _])) => {
                format!("its p99 may be {} to {}", units::time(p99.low), units::time(p99.high))
            }
            (refusal, _) => refusal.clone().unwrap_or_default(),
        };
        text += &format!(" Of {} it cannot be told: {what}.", row.way);
    }
    text
}

#[cfg(test)]
mod tests;
