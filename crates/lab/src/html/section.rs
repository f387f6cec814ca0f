//! The section of one study in a report.

use std::collections::BTreeMap;

use serde_json::json;

use super::drift::drift;
use super::figure::{Content, Figure, Grid};
use super::paper::{self, PaperComparison};
use super::{advice, bare, draw, machines, over_time, units};
use crate::advise::Advice;
use crate::cells::gate::{Sentence, gate};
use crate::cells::{Cell, Cells, Metric, Unit};
use crate::claims::{self, Answer, Claim};
use crate::published::published;
use crate::results::{AgentMachine, Environment, LinkProbe, Mark, Results, Role, Status, key};
use crate::study::plan::{Kind, Plan};

/// A study as the page shows it.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    /// What a reader has to know before everything else.
    pub(super) banner: Option<String>,
    /// Why the plan could not be read.
    pub(super) plan_fault: Option<String>,
    pub(super) extent: String,
    /// Why the directory is not whole.
    pub(super) faults: Vec<String>,
    /// Reservations, shown first.
    pub(super) warnings: Vec<String>,
    pub(super) answer: Option<Answer>,
    /// What was advised from these results.
    pub(super) advice: Option<Advice>,
    /// What every study of its kind is asked.
    pub(super) findings: Vec<Claim>,
    pub(super) figures: Vec<Figure>,
    /// Cells over time.
    pub(super) over_time: Vec<Figure>,
    /// Contenders by each criterion, of a study of points.
    pub(super) tradeoffs: Vec<Claim>,
    pub(super) paper: Vec<(PaperComparison, String)>,
    /// The hardware of this run, in a sentence.
    pub(super) here: String,
    /// The raw link, and what share of it the study reached.
    pub(super) link: Option<Grid>,
    pub(super) link_shares: Vec<String>,
    /// Cells without a result, by reason.
    pub(super) missing: Vec<(&'static str, String, Vec<String>)>,
    pub(super) marks: Vec<(Mark, Vec<String>)>,
    pub(super) all: Grid,
    pub(super) commands: Vec<(String, String)>,
    pub(super) about_cpu: bool,
}

impl Section {
    pub(super) fn of(results: &Results) -> Self {
        let cells = Cells::of(&results.records, &results.environment);
        let (plan, plan_fault) = match results.plan.parse::<Plan>() {
            Ok(plan) => (plan, None),
            Err(error) => (plan_of(results), Some(error.to_string())),
        };
        let published = published();
        let theirs = paper::results(published, &plan);
        let plots = draw::plots(&plan, &cells);
        let drawn =
            plots.iter().map(|plot| draw::figures(&cells, plan.kind, plot, &plots, &theirs));
        let mut figures: Vec<Figure> = drawn.flatten().collect();
        let paper = paper::paper_comparisons(published, &cells, &plan);
        let paper = paper.into_iter().map(|one| {
            let summary = paper::summary(&one);
            (one, summary)
        });
        let told = |claim: &Claim| claim.rows.iter().any(|row| row.value.is_some());
        let findings = claims::findings(&plan, &cells);
        let findings = findings.iter().map(|ask| ask.claim(&cells)).filter(told);
        let mut warnings = warnings(&cells, &plan);
        let advice = advice::of(&results.directory);
        let of_advice = advice.iter().flat_map(advice::figures);
        figures.splice(0..0, of_advice.collect::<Vec<Figure>>());
        figures.extend(machines::loads(&cells));
        figures.extend(bare::figure(&cells));
        if let Some(drift) = drift(&cells) {
            figures.push(drift.figure);
            warnings.extend(drift.warning);
        }
        let about_cpu = figures.iter().any(|figure| figure.about_cpu);
        let answer = claims::of_cells(&plan, &cells);
        Self {
            over_time: over_time::figures(&cells, &plan, answer.as_ref()),
            answer,
            advice,
            extent: extent(&cells, &plan),
            faults: Vec::new(),
            warnings,
            findings: findings.collect(),
            tradeoffs: tradeoffs(&cells, &plan),
            paper: paper.collect(),
            here: here(&results.environment),
            link: link(&results.environment),
            link_shares: link_shares(&cells),
            missing: missing(&cells),
            marks: marks(&cells),
            all: all(&cells),
            commands: commands(&cells),
            environment: results.environment.clone(),
            banner: claims::banner(&cells),
            about_cpu,
            figures,
            plan,
            plan_fault,
        }
    }

    /// The charts, in the order in which they appear.
    pub(super) fn charts(&self) -> impl Iterator<Item = &serde_json::Value> {
        self.figures.iter().chain(&self.over_time).filter_map(|figure| match &figure.content {
            Content::Chart { data, .. } => Some(data),
            Content::Table(_) => None,
        })
    }
}

/// The part of a plan that can be derived from results.
fn plan_of(results: &Results) -> Plan {
    let name = results.records.first().map_or("", |record| record.study.as_str());
    let roles = || results.records.iter().map(|record| record.role);
    // Bare sockets are beside something else.
    let kind = match roles().filter(|role| *role != Role::Link).max().or_else(|| roles().max()) {
        Some(Role::Foreground | Role::Background | Role::Alone) => Kind::Interference,
        Some(Role::Saturation) => Kind::Saturation,
        Some(Role::Link) => Kind::Link,
        Some(Role::Plain | Role::Reference) | None => Kind::Matrix,
    };
    let title = if name.is_empty() { "Results".to_owned() } else { name.replace('-', " ") };
    let plan = json!({
        "name": name,
        "title": title,
        "question": "",
        "kind": kind,
        "source": { "document": "none", "figure": "none" },
    });
    serde_json::from_value(plan)
        .unwrap_or_else(|error| unreachable!("it has all required fields: {error}"))
}

/// The number of cells and repeats, and the measured time.
fn extent(cells: &Cells, plan: &Plan) -> String {
    let measured: Vec<&Cell> = cells.cells.iter().filter(|cell| cell.is_measured()).collect();
    let counts = measured.iter().map(|cell| cell.repeats.len());
    let n = match (counts.clone().min(), counts.max()) {
        (Some(least), Some(most)) if least == most => format!("n = {most}"),
        (Some(least), Some(most)) => format!("n = {least} to {most}"),
        _ => "n = 0".to_owned(),
    };
    let seconds: f64 = measured.iter().flat_map(|cell| &cell.repeats).map(|r| r.seconds).sum();
    let each = plan.measure.runtime.as_secs_f64();
    format!(
        "{} of {} cells have a result, {n}; {} each, {} measured in all.",
        measured.len(),
        cells.cells.len(),
        units::time(each * 1e9),
        // The sum of nothing is -0.
        units::time((seconds + 0.0) * 1e9),
    )
}

fn warnings(cells: &Cells, plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    let quick = plan.run.as_ref().is_some_and(|run| run.quick);
    let most = cells.cells.iter().map(|cell| cell.repeats.len()).max().unwrap_or(0);
    if plan.name == "first-look" || quick {
        let repeats = match most {
            1 => "one repeat (n = 1)".to_owned(),
            2 => "two repeats (n = 2)".to_owned(),
            n => format!("{n} repeats (n = {n})"),
        };
        warnings.push(format!(
            "A quick look, not a measurement: {repeats}, short cells ({}), measured without \
             waiting for steady state.",
            units::time(plan.measure.runtime.as_secs_f64() * 1e9)
        ));
    }
    if cells.cells.iter().any(|cell| cell.marks.contains(&Mark::OpenLoop)) {
        warnings.push(
            "Cells marked as open loop start requests when they are due, and latency counts from \
             then. All others are closed loops with a fixed number of requests in flight."
                .to_owned(),
        );
    }
    warnings
}

fn tradeoffs(cells: &Cells, plan: &Plan) -> Vec<Claim> {
    if plan.kind != Kind::Matrix {
        return Vec::new();
    }
    let claims = claims::criteria(cells).into_iter().map(|ask| ask.claim(cells));
    let compares = |claim: &Claim| claim.rows.iter().filter(|row| row.value.is_some()).count() > 1;
    claims.filter(compares).collect()
}

fn here(environment: &Environment) -> String {
    let cores = environment.processor.cores;
    let mut words = vec![format!("{} ({cores} cores)", environment.processor.model)];
    if environment.processor.hypervisor {
        words.push("a virtual machine".to_owned());
    }
    words.push(format!("Linux {}", environment.kernel));
    if !environment.machines.is_empty() {
        // The machine that ran the study has measured nothing.
        let of = |machine: &AgentMachine| format!("{} on {}", machine.role, machine.described());
        words = environment.machines.iter().map(of).collect();
    }
    if !environment.local.is_empty() {
        words.push(format!("local device {}", environment.local_device()));
    }
    for target in &environment.targets {
        words.push(if target.started_here {
            format!("target {} on this machine", target.device)
        } else {
            format!("target {} ({})", target.address, target.identity)
        });
    }
    words.join(", ")
}

fn link(environment: &Environment) -> Option<Grid> {
    if environment.link.is_empty() {
        return None;
    }
    let head = [
        "ends",
        "protocol",
        "waiting",
        "messages",
        "round trip, mean",
        "p50",
        "p99",
        "round trips/s",
        "messages/s, 128 in flight",
        "stream",
    ];
    let rows = environment.link.iter().map(|probe: &LinkProbe| {
        let latency = probe.round_trip.latency().ok();
        let at = |percentile| {
            let ns = latency.as_ref().and_then(|latency| latency.percentile_ns(percentile));
            ns.map_or("unresolved".to_owned(), |ns| units::time(ns as f64))
        };
        vec![
            match probe.spoilt {
                true => format!("{} (other programs used the processors)", probe.between),
                false => probe.between.clone(),
            },
            probe.connection.as_ref().map_or_else(String::new, |ends| ends.protocol.clone()),
            if probe.spinning { "both poll" } else { "both sleep" }.to_owned(),
            format!("{} B, {} B", probe.request_bytes, probe.response_bytes),
            units::time(probe.round_trip.mean_ns()),
            at(50.0),
            at(99.0),
            units::show(Unit::Iops, probe.round_trips_per_s),
            units::show(Unit::Iops, probe.messages_per_s),
            units::show(Unit::BytesPerSecond, probe.stream_bytes_per_s),
        ]
    });
    Some(Grid { head: head.map(str::to_owned).to_vec(), rows: rows.collect() })
}

/// What share of the raw link the best cells of the study reached, of those whose link was probed.
fn link_shares(cells: &Cells) -> Vec<String> {
    let all = || cells.cells.iter().filter(|cell| cell.is_measured() && cell.role != Role::Link);
    let small = |cell: &&Cell| {
        cell.value(key::BLOCK_BYTES) == Some(&4096u64.into())
            && cell.text(key::PATTERN).ends_with("read")
    };
    let depth_1 = |cell: &&Cell| {
        [key::DEPTH, key::JOBS].iter().all(|key| cell.value(key) == Some(&1u64.into()))
    };
    let mut sentences = Vec::new();
    let mut add = |what: &str,
                   name: &str,
                   of: &mut dyn Iterator<Item = &Cell>,
                   floor: fn(&LinkProbe) -> f64| {
        let Some(metric) = Metric::named(name) else { return };
        let share = |cell: &Cell| {
            let link = cells.link(cell).map(floor).fold(0.0, f64::max);
            let value = metric.read(cells, cell).mean()?;
            (link > 0.0).then_some(value / link)
        };
        let found = of.filter_map(|cell| Some((share(cell)?, cell)));
        let Some((share, cell)) = found.max_by(|(one, _), (other, _)| one.total_cmp(other)) else {
            return;
        };
        let gate = gate(Sentence::ShareOfLink, &metric, &[cell]);
        let (share, place) = (units::percent(share), &cell.label);
        sentences.push(match gate.refusal() {
            None => format!("{what}: {share} ({place}){}.", gate.named()),
            Some(why) => format!("{what}: {why}."),
        });
    };
    let what = "4 KiB reads at depth 1, relative to raw round trips";
    let one = &mut all().filter(small).filter(depth_1);
    add(what, "iops", one, |probe| probe.round_trips_per_s);
    let what = "4 KiB reads with more in flight, relative to raw messages";
    let many = &mut all().filter(small).filter(|cell| !depth_1(cell));
    add(what, "iops", many, |probe| probe.messages_per_s);
    let what = "Maximum bandwidth, relative to the raw stream";
    add(what, "bandwidth", &mut all(), |probe| probe.stream_bytes_per_s);
    sentences
}

/// Cells without a result, by status and reason.
fn missing(cells: &Cells) -> Vec<(&'static str, String, Vec<String>)> {
    let mut reasons: Vec<(&'static str, String, Vec<String>)> = Vec::new();
    for cell in &cells.cells {
        for status in &cell.missing {
            let what = word(status);
            let reason = status.reason().unwrap_or_default();
            let name = cell.label.clone();
            let known = reasons.iter_mut().find(|(w, r, _)| *w == what && r == reason);
            match known {
                Some((.., names)) if names.last() == Some(&name) => {}
                Some((.., names)) => names.push(name),
                None => reasons.push((what, reason.to_owned(), vec![name])),
            }
        }
    }
    reasons
}

/// What became of a repeat without a result.
const fn word(status: &Status) -> &'static str {
    match status {
        Status::Skipped { .. } => "skipped",
        Status::Void { .. } => "void",
        Status::Failed { .. } | Status::Measured => "failed",
    }
}

fn marks(cells: &Cells) -> Vec<(Mark, Vec<String>)> {
    let mut marks: BTreeMap<Mark, Vec<String>> = BTreeMap::new();
    for cell in &cells.cells {
        for mark in &cell.marks {
            marks.entry(*mark).or_default().push(cell.label.clone());
        }
    }
    marks.into_iter().collect()
}

/// Every cell with its main numbers.
fn all(cells: &Cells) -> Grid {
    let names = [
        "iops",
        "bandwidth",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "host-cpu",
        "target-cpu",
        "cpu-per-io",
    ];
    let metrics: Vec<Metric> = names.iter().filter_map(|name| Metric::named(name)).collect();
    let mut head = vec!["cell".to_owned()];
    head.extend(metrics.iter().map(|metric| match metric.name.as_str() {
        "host-cpu" => "CPU host".to_owned(),
        "target-cpu" => "CPU target".to_owned(),
        "cpu-per-io" => "CPU time per request, both".to_owned(),
        "mean" => "mean".to_owned(),
        name if metric.unit == Unit::Time => name.to_owned(),
        _ => metric.label.clone(),
    }));
    head.extend(["n", Grid::MARKS].map(str::to_owned));
    let rows = cells.cells.iter().map(|cell| {
        let mut row = vec![cell.label.clone()];
        if cell.is_measured() {
            row.extend(
                metrics
                    .iter()
                    .map(|metric| units::show_reading(metric.unit, &metric.read(cells, cell))),
            );
        } else {
            row.push(cell.missing.first().map_or("failed", word).to_owned());
            row.extend(metrics.iter().skip(1).map(|_| String::new()));
        }
        row.push(match (cell.repeats.len(), cell.left_out) {
            (counted, 0) => counted.to_string(),
            (counted, left_out) => format!("{counted} of {}", counted + left_out),
        });
        let marks: Vec<&str> = cell.marks.iter().map(|mark| mark.explained()).collect();
        row.push(marks.join("; "));
        row
    });
    Grid { head, rows: rows.collect() }
}

fn commands(cells: &Cells) -> Vec<(String, String)> {
    let told = cells.cells.iter().filter(|cell| !cell.command.is_empty());
    told.map(|cell| (cell.label.clone(), cell.command.clone())).collect()
}
