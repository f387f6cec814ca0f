//! What is asked of a study: by its plan, and beside that of every study of its kind.

use crate::cells::{Cell, Cells, Metric};
use crate::results::{Configuration, Role, Value, key};
use crate::study::builtin;
use crate::study::plan::{AnswerKind, AnswerNumber, AnswerPlan, Kind, Plan};
use crate::units;

/// Settings that make a point, at which contenders are compared. All others that vary distinguish
/// contenders.
const POINTS: [&str; 18] = [
    key::PATTERN,
    key::READ_PERCENT,
    key::BLOCK_BYTES,
    key::DEPTH,
    key::JOBS,
    key::CORES,
    key::HOST_CORES,
    key::TARGET_CORES,
    key::LOAD_PERCENT,
    key::HOSTS,
    key::SUBSYSTEMS,
    key::RATE_IOPS,
    key::RATE_PROCESS,
    key::DEVICE_BYTES,
    key::THINKTIME_US,
    key::THINKTIME_BLOCKS,
    key::LOSS_PERCENT,
    key::REORDER_PERCENT,
];

/// What a contender is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The best of them.
    Best,
    /// Local: of rates its highest, of latencies that at the same point.
    Local,
    /// Its own highest value along a setting, and local where it is near that.
    Highest,
    /// Local along a setting: from which value on it is reached.
    Parity,
    /// Its value without a background, along the load of that.
    Alone,
    /// The same: the largest load beside which it is near that.
    Borne,
    /// The second value of a setting, at each value of another.
    Second,
    /// The capacity, along the offered load.
    Capacity,
}

/// A question about cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(super) question: String,
    pub(super) metric: Metric,
    pub(super) role: Role,
    /// Only cells with these values.
    pub(super) at: Configuration,
    /// Points that distinguish contenders nevertheless.
    pub(super) over: Vec<String>,
    /// The setting along which something begins to hold.
    pub(super) along: String,
    pub(super) beside: Beside,
    /// Whether a value is the geometric mean over all points, and not the best of them.
    pub(super) is_typical: bool,
    /// Whether a choice among contenders is asked for, not a value.
    pub(super) is_choice: bool,
    /// Whether it is told only if it can be.
    pub(super) is_aside: bool,
    /// The settings that make its points, once they are known.
    pub(super) points: Vec<String>,
}

impl Ask {
    fn new(question: impl Into<String>, metric: Metric, role: Role, beside: Beside) -> Self {
        Self {
            question: question.into(),
            metric,
            role,
            at: Configuration::new(),
            over: Vec::new(),
            along: String::new(),
            beside,
            is_typical: false,
            is_choice: false,
            is_aside: false,
            points: Vec::new(),
        }
    }

    fn at(self, at: &Configuration) -> Self {
        let mut all = self.at.clone();
        all.extend(at.clone());
        Self { at: all, ..self }
    }

    /// The settings that distinguish its contenders among these cells.
    pub(super) fn contending(&self, cells: &[&Cell]) -> Vec<String> {
        let mut keys: Vec<&String> =
            cells.iter().flat_map(|cell| cell.configuration.keys()).collect();
        // Those without a rank have the same, and are told apart by their names.
        keys.sort_by_key(|key| (crate::cells::rank(key), key.as_str()));
        keys.dedup();
        let is_point = |key: &str| {
            (POINTS.contains(&key) || key == self.along)
                && !self.over.iter().any(|over| over == key)
        };
        let varies = |key: &str| {
            let mut values = cells.iter().filter_map(|cell| cell.value(key));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let keys = keys.into_iter().filter(|key| !is_point(key) && varies(key));
        keys.cloned().collect()
    }
}

fn named(name: &str) -> Metric {
    Metric::named(name).unwrap_or_else(|| unreachable!("{name} is a metric"))
}

/// What the plan's answer asks; none if it has none.
pub(super) fn of_answer(plan: &Plan, cells: &Cells) -> Option<Vec<Ask>> {
    // Results of an earlier version have a plan without it.
    let earlier = || builtin::find(&plan.name)?.plan().ok()?.answer;
    let answer = plan.answer.clone().or_else(earlier)?;
    let role = plan.kind.role();
    let metric =
        |otherwise: &str| named(if answer.metric.is_empty() { otherwise } else { &answer.metric });
    let ask = |metric: Metric, beside| {
        let question = format!("{}{}", metric.label, place(&answer.at));
        let over = Some(answer.over.clone()).filter(|over| !over.is_empty());
        let ask = Ask::new(question, metric, role, beside).at(&answer.at);
        Ask { over: over.into_iter().collect(), ..ask }
    };
    let along = |ask: Ask, along: &str| Ask { along: along.to_owned(), over: Vec::new(), ..ask };
    Some(match answer.kind {
        AnswerKind::ExtraLatency => {
            let cost = ask(named("cpu-per-io"), Beside::Best);
            vec![ask(metric("mean"), Beside::Local), Ask { is_aside: true, ..cost }]
        }
        AnswerKind::Ratio => {
            let ask = ask(metric("iops"), Beside::Local);
            let is_one = ask.points_of(cells).is_empty();
            let question = if is_one { String::new() } else { "highest ".to_owned() };
            vec![Ask { question: question + &ask.question, ..ask }]
        }
        AnswerKind::Best => {
            vec![Ask { is_choice: true, ..ask(metric("p99"), Beside::Best) }]
        }
        AnswerKind::Knee => vec![knee()],
        AnswerKind::Slowdown => {
            tenants(plan, cells).into_iter().map(|ask| ask.at(&answer.at)).collect()
        }
        AnswerKind::Reach => vec![along(ask(metric("iops"), Beside::Highest), &answer.over)],
        AnswerKind::Parity => vec![along(ask(metric("bandwidth"), Beside::Parity), &answer.over)],
        AnswerKind::Beats => {
            vec![Ask { along: answer.along.clone(), ..ask(metric("p99"), Beside::Second) }]
        }
        AnswerKind::Values => {
            let of = |number: &AnswerNumber| {
                let ask = Ask {
                    question: number.label.clone(),
                    ..ask(named(&number.metric), Beside::Best)
                };
                Ask { is_choice: !answer.over.is_empty(), ..ask.at(&number.at) }
            };
            wanted(&answer, cells, role).iter().map(of).collect()
        }
    })
}

/// The numbers that the plan names for these cells: those of given targets, where no cell has a
/// setting that the others ask for.
fn wanted<'a>(answer: &'a AnswerPlan, cells: &Cells, role: Role) -> &'a [AnswerNumber] {
    let remote = |cell: &&Cell| cell.role == role && cell.text(key::TRANSPORT) != "local";
    let cells: Vec<&Cell> = cells.cells.iter().filter(remote).collect();
    let mut settings = answer.number.iter().flat_map(|number| number.at.keys());
    let keeps_own = settings.any(|key| cells.iter().all(|cell| cell.value(key).is_none()));
    let is_given = !cells.is_empty() && !answer.given.is_empty() && keeps_own;
    if is_given { &answer.given } else { &answer.number }
}

fn place(at: &Configuration) -> String {
    let words: Vec<String> = at.iter().map(|(key, value)| units::setting(key, value)).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

fn knee() -> Ask {
    let ask = Ask::new(
        "load up to which p99 is at most twice its least",
        named("iops"),
        Role::Plain,
        Beside::Capacity,
    );
    Ask { along: key::LOAD_PERCENT.to_owned(), ..ask }
}

/// Whether a tenant is judged by its latency: it has one request in flight. The plan says so, or
/// else its cells do.
fn is_judged_by_latency(name: &Value, plan: &Plan, cells: &Cells) -> bool {
    let planned = || plan.interference.as_ref()?.foreground.get(&name.to_string())?.get(key::DEPTH);
    let measured = || {
        let is_its = |cell: &&Cell| cell.value(key::FOREGROUND) == Some(name);
        cells.cells.iter().filter(is_its).find_map(|cell| cell.value(key::DEPTH))
    };
    planned().or_else(measured).and_then(Value::as_integer) == Some(1)
}

/// What a background does to each tenant: to the p99 of one that is judged by its latency, to the
/// IOPS of the others.
fn tenants(plan: &Plan, cells: &Cells) -> Vec<Ask> {
    let of = |name: &Value| {
        let is_latency = is_judged_by_latency(name, plan, cells);
        let metric = if is_latency { "latency-interference" } else { "throughput-sustained" };
        let what = if is_latency { "p99" } else { "IOPS" };
        let shared = plan
            .interference
            .as_ref()
            .map_or_else(|| "one".to_owned(), |of| format!("the same {}", of.shared));
        let question = format!("{what} of {name} beside a neighbour on {shared} core");
        let ask = Ask::new(question, named(metric), Role::Foreground, Beside::Alone);
        let at = Configuration::from([(key::FOREGROUND.to_owned(), name.clone())]);
        Ask { along: key::LOAD_PERCENT.to_owned(), ..ask.at(&at) }
    };
    let borne = |ask: Ask| {
        let name = ask.at.get(key::FOREGROUND).map(ToString::to_string).unwrap_or_default();
        let question = format!("largest background that {name} bears");
        [ask.clone(), Ask { question, beside: Beside::Borne, ..ask }]
    };
    let mut names: Vec<&Value> = Vec::new();
    let foregrounds = cells.cells.iter().filter(|cell| cell.role == Role::Foreground);
    let planned = plan.axes.get(key::FOREGROUND).into_iter().flatten();
    for name in planned.chain(foregrounds.filter_map(|cell| cell.value(key::FOREGROUND))) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(of).flat_map(borne).collect()
}

/// The criteria of tradeoffs, and whether a value is the mean over all points.
const CRITERIA: [(&str, &str, bool); 6] = [
    ("bandwidth, peak", "bandwidth", false),
    ("IOPS, peak", "iops", false),
    ("mean latency", "mean", true),
    ("tail latency (p99)", "p99", true),
    ("cost (cores for a million IOPS)", "cores-per-miops", true),
    ("concurrency, peak", "concurrency", false),
];

/// The criteria by which contenders are compared in every study of points.
pub(crate) fn criteria(cells: &Cells) -> Vec<Ask> {
    let contending =
        |cell: &&Cell| cell.role == Role::Plain && cell.text(key::TRANSPORT) != "local";
    let remote: Vec<&Cell> = cells.cells.iter().filter(contending).collect();
    let of = |(name, metric, is_typical): (&str, &str, bool)| {
        let ask = Ask::new(name, named(metric), Role::Plain, Beside::Best);
        let is_alone = ask.contending(&remote).is_empty();
        let beside = if is_alone { Beside::Local } else { Beside::Best };
        Ask { is_typical, is_choice: !is_alone, beside, ..ask }
    };
    CRITERIA.into_iter().map(of).collect()
}

/// What is asked of every study of this kind, but for what its answer says already.
pub(crate) fn findings(plan: &Plan, cells: &Cells) -> Vec<Ask> {
    let mut asks = match plan.kind {
        Kind::Matrix => matrix(cells),
        Kind::Load => vec![knee()],
        Kind::Interference => {
            let full = Ask::new(
                "a background load of 100 %",
                named("saturation"),
                Role::Saturation,
                Beside::Best,
            );
            tenants(plan, cells).into_iter().chain([full]).collect()
        }
        Kind::Saturation => {
            let ask =
                Ask::new("IOPS of one core", named("saturation"), Role::Saturation, Beside::Best);
            vec![Ask { is_choice: true, ..ask }]
        }
        Kind::Link => ["p50", "p99", "bandwidth"]
            .map(|name| Ask::new(named(name).label, named(name), Role::Link, Beside::Best))
            .into(),
    };
    let answered = of_answer(plan, cells).unwrap_or_default();
    let is_same = |one: &Ask, other: &Ask| {
        let is_at = one.beside == Beside::Local || one.at == other.at;
        is_at
            && (&one.metric, one.beside, &one.along) == (&other.metric, other.beside, &other.along)
    };
    asks.retain(|ask| !answered.iter().any(|known| is_same(known, ask)));
    asks
}

fn matrix(cells: &Cells) -> Vec<Ask> {
    const AXES: [&str; 6] =
        [key::DEPTH, key::BLOCK_BYTES, key::CORES, key::JOBS, key::HOST_CORES, key::TARGET_CORES];
    let varied = cells.varied(Role::Plain);
    let axis = AXES.iter().find(|axis| varied.iter().any(|key| key == *axis));
    let mut asks = Vec::new();
    if let Some(axis) = axis {
        for (question, beside) in [
            ("from where on IOPS are near their highest", Beside::Highest),
            ("from where on IOPS reach those of local", Beside::Parity),
        ] {
            let ask = Ask::new(
                format!("{question}, along {}", units::axis(axis)),
                named("iops"),
                Role::Plain,
                beside,
            );
            asks.push(Ask { along: (*axis).to_owned(), ..ask });
        }
    }
    if axis.is_some_and(|axis| *axis == key::JOBS) {
        let question = "jobs with which p99 and CPU time are least together";
        let ask = Ask::new(question, named("p99-and-cpu"), Role::Plain, Beside::Best);
        let over = vec![key::JOBS.to_owned()];
        asks.push(Ask { over, is_choice: true, is_aside: true, ..ask });
    }
    for (question, name) in [
        ("cores that a link at line rate takes", "line-rate-cores"),
        ("drives for each link", "drives"),
    ] {
        let ask = Ask::new(question, named(name), Role::Plain, Beside::Best);
        asks.push(Ask { is_aside: true, ..ask });
    }
    if cells.measured(Role::Plain).any(|cell| cell.text(key::TRANSPORT) == "local") {
        let one = Configuration::from([(key::DEPTH.to_owned(), 1u64.into())]);
        let question = "mean latency of one request at a time";
        let ask = Ask::new(question, named("mean"), Role::Plain, Beside::Local);
        asks.push(ask.at(&one));
    }
    asks
}
