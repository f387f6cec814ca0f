//! Finds the measured number that corresponds to a published one.

use std::collections::BTreeSet;

use crate::cells::gate::{Gate, Sentence, gate};
use crate::cells::{Cell, Cells, Metric, Part, Reading, value_order};
use crate::html::draw;
use crate::published::{PublishedResult, Source, published};
use crate::results::{Connection, Role, Value, key};
use crate::study::matrix::is_network;
use crate::study::plan::{Kind, Plan};
use crate::study::site::link_of;
use crate::units;

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

/// A published number with its document and the study's cells.
pub(super) struct PublishedNumber<'a> {
    pub(super) result: &'a PublishedResult,
    pub(super) source: &'a Source,
    pub(super) plan: &'a Plan,
    pub(super) cells: &'a Cells,
    role: Role,
}

impl<'a> PublishedNumber<'a> {
    pub(super) fn new(
        result: &'a PublishedResult,
        source: &'a Source,
        plan: &'a Plan,
        cells: &'a Cells,
    ) -> Self {
        let role = match (plan.kind, result.metric.as_str()) {
            (Kind::Interference, "latency_interference" | "throughput_sustained") => {
                Role::Foreground
            }
            (kind, _) => kind.role(),
        };
        Self { result, source, plan, cells, role }
    }

    /// The measured number, or why there is none.
    pub(super) fn counterpart(&self) -> Result<Counterpart, String> {
        let (result, cells) = (self.result, self.cells);
        if result.metric.ends_with("_from_interrupt_moderation") {
            return Err(
                "it compares two runs, whose adapters moderate completions or do not".into()
            );
        }
        self.has_what_was_printed()?;
        let transport = self.transport()?;
        let of_point = |cell: &&Cell| {
            transport.as_ref().is_none_or(|wanted| cell.text(key::TRANSPORT) == wanted)
                && self.fits(cell)
        };
        let mut candidates: Vec<&Cell> = cells.measured(self.role).filter(of_point).collect();
        if candidates.is_empty() {
            return Err(self.why_not(&of_point));
        }
        let differences = nearest(result, &mut candidates);
        let value = self.value(&candidates)?;
        let time = ["s", "ms", "us"].contains(&result.unit.as_str());
        let relative = relative(result);
        let all: Vec<&Cell> = match &relative {
            Some(one) => candidates.iter().flat_map(|cell| one.made_from(cells, cell)).collect(),
            None => candidates.iter().copied().chain(self.beside(&candidates)).collect(),
        };
        let metric = relative.or_else(|| Metric::named(if time { "mean" } else { "iops" }));
        let gate = metric.map(|metric| gate(Sentence::Published, &metric, &all));
        let gate = gate.unwrap_or_else(|| unreachable!("both are metrics"));
        let setting = setting(cells, &candidates);
        Ok(Counterpart { value, differences, gate, setting })
    }

    /// Whether cells have the document's own settings that nothing stands for.
    fn has_what_was_printed(&self) -> Result<(), String> {
        let own = self.result.printed.iter();
        let own = own.filter(|(name, _)| !self.result.settings.contains_key(*name));
        for (key, value) in own.flat_map(|(_, settings)| settings) {
            let mut has = self.cells.cells.iter().filter_map(|cell| cell.value(key)).peekable();
            if has.peek().is_some() && !has.any(|own| own == value) {
                return Err(format!("no cell has {}", units::setting(key, value)));
            }
        }
        Ok(())
    }

    fn why_not(&self, of_point: &dyn Fn(&&Cell) -> bool) -> String {
        let skipped = self.cells.cells.iter().filter(|cell| cell.role == self.role).find(of_point);
        let reason =
            skipped.and_then(|cell| cell.missing.first()).and_then(|status| status.reason());
        reason.map_or_else(|| "no cell with these settings".to_owned(), str::to_owned)
    }

    /// The transports of the study's cells, with a result or without.
    fn present(&self) -> BTreeSet<&'a str> {
        let own = self.cells.cells.iter().filter(|cell| cell.role == self.role);
        own.map(|cell| cell.text(key::TRANSPORT)).collect()
    }

    /// Our name of the document's transport: that over the link of its role, or what stands for
    /// it. None: the number names no transport.
    fn transport(&self) -> Result<Option<String>, String> {
        const REMOTE: [&str; 6] = [
            "best_idle_poll",
            "p99_improvement",
            "iops_improvement",
            "local_over_remote_iops",
            "bs_at_parity",
            "target_cpu_per_gbps_saving_vs_tcp",
        ];
        let Some(theirs) = &self.result.transport else {
            let is_remote = REMOTE.iter().any(|metric| self.result.metric.starts_with(metric));
            let link = self.source.links.values().next().map(String::as_str);
            return if is_remote { self.ours("tcp", link).map(Some) } else { Ok(None) };
        };
        let known = self.plan.published.as_ref().and_then(|known| known.transports.get(theirs));
        let stand_in = match (known, theirs.as_str()) {
            (Some(name), _) => name,
            (None, "local") => "local",
            (None, name) if name.contains("rdma") => "rdma",
            (None, name) if name.contains("tcp") => "tcp",
            (None, name) => {
                return Err(format!("no transport of this study corresponds to {name}"));
            }
        };
        self.ours(stand_in, self.source.links.get(theirs).map(String::as_str)).map(Some)
    }

    /// The cells' transport for one of a plan, which is over this link in the document.
    fn ours(&self, stand_in: &str, link: Option<&str>) -> Result<String, String> {
        let present = self.present();
        let protocol = stand_in.split(['-', '@']).next().unwrap_or_default();
        let printed = link.map(|link| format!("{protocol}@{link}"));
        if let Some(name) = printed.filter(|name| present.contains(name.as_str())) {
            return Ok(name);
        }
        // The role of another link, of this document or of another one about the same study.
        let published = published();
        let of_study = published.results.iter().filter(|one| one.study == self.result.study);
        let sources = of_study.filter_map(|one| published.source.get(&one.source));
        let roles: BTreeSet<&String> = sources.flat_map(|source| source.links.values()).collect();
        let is_other = |name: &str| roles.iter().any(|known| *known == link_of(name));
        let is_over_a_link = |name: &&&str| {
            name.split('@').next() == Some(protocol) && !link_of(name).is_empty() && !is_other(name)
        };
        let over_a_link: Vec<&&str> = present.iter().filter(is_over_a_link).collect();
        match over_a_link[..] {
            [sole] if !present.contains(stand_in) && stand_in != "tcp-link" => {
                Ok((*sole).to_owned())
            }
            [] | [_] => match (present.contains(stand_in), link) {
                (false, Some(link)) if present.iter().any(|name| !link_of(name).is_empty()) => {
                    Err(format!("no cell is over a link that the site file calls {link}"))
                }
                _ => Ok(stand_in.to_owned()),
            },
            _ if present.contains(stand_in) => Ok(stand_in.to_owned()),
            _ => Err(format!(
                "which of several links it is over is not known: in a site file its name is {}",
                link.unwrap_or(stand_in)
            )),
        }
    }

    /// Our names of the transports that a difference lies between.
    fn between(&self) -> Result<Option<[String; 2]>, String> {
        let Some([lower, higher]) = &self.result.between else { return Ok(None) };
        let link = self.source.links.values().next().map(String::as_str);
        let of = |name: &str| match name {
            "tcp-link" => self.ours(name, link),
            _ => Ok(name.to_owned()),
        };
        let both = [of(lower)?, of(higher)?];
        let present = self.present();
        match both.iter().find(|name| !present.contains(name.as_str())) {
            None => Ok(Some(both)),
            Some(name) if name == "tcp" => {
                Err("no cell is over loopback: that is a run on one machine".to_owned())
            }
            Some(name) => Err(format!("no cell is over {name}")),
        }
    }

    /// Whether a cell has the settings of the published number that belong to the load.
    fn fits(&self, cell: &Cell) -> bool {
        let result = self.result;
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
            && self.has_knobs(cell)
    }

    /// Whether a cell has the document's own settings, where cells have such, or what stands for
    /// them.
    fn has_knobs(&self, cell: &Cell) -> bool {
        let has = |key: &String| self.cells.cells.iter().any(|cell| cell.value(key).is_some());
        let is_printed = |name: &String| {
            let printed = self.result.printed.get(name).into_iter().flatten();
            printed.filter(|(key, _)| *key != name).any(|(key, _)| has(key))
                || !self.result.settings.contains_key(name)
        };
        let own = self.result.printed.iter().filter(|(name, _)| is_printed(name));
        let mut own = own.flat_map(|(_, settings)| settings);
        let mut others = self
            .result
            .settings
            .iter()
            .filter(|(name, _)| !self.result.printed.contains_key(*name) || !is_printed(name));
        own.all(|(key, value)| cell.value(key).is_none_or(|measured| measured == value))
            && others.all(|(key, published)| cell.value(key) == Some(published))
    }

    /// Cells that a number is made from besides its own.
    fn beside(&self, candidates: &[&'a Cell]) -> Vec<&'a Cell> {
        let own = candidates.first().map_or("", |cell| cell.text(key::TRANSPORT));
        let between = self.between().ok().flatten();
        let transports: Vec<&str> = match (self.result.metric.as_str(), &between) {
            (_, Some(between)) => between.iter().map(String::as_str).collect(),
            ("local_over_remote_iops" | "bs_at_parity", _) => vec!["local", own],
            _ => Vec::new(),
        };
        let is_of = |cell: &&Cell| transports.contains(&cell.text(key::TRANSPORT));
        self.cells.measured(Role::Plain).filter(is_of).collect()
    }

    fn value(&self, candidates: &[&Cell]) -> Result<f64, String> {
        let (result, cells) = (self.result, self.cells);
        let own = candidates.first().map_or("", |cell| cell.text(key::TRANSPORT));
        let value = match result.metric.as_str() {
            "p99_added" | "p99_added_pct" => {
                let between = self.between()?;
                between.and_then(|[without, with]| added(result, cells, &without, &with))
            }
            "local_over_remote_iops" => {
                let most = |name| transport_most(cells, name, "iops");
                most("local").zip(most(own)).map(|(local, remote)| local / remote)
            }
            "bs_at_parity" => {
                Some(parity(cells, own).ok_or("it is nowhere on a par with local here")?)
            }
            "target_cpu_per_gbps_saving_vs_tcp" => Some(saving(cells, own).ok_or(
                "it compares an offload with none: measure a link with it and one without, \
                 --set transport=tcp@toe,tcp@nic",
            )?),
            metric if metric.contains("cpu") => {
                let is_one = |cell: &&Cell| {
                    cell.connection.as_ref().is_some_and(Connection::is_within_a_machine)
                };
                if candidates.iter().any(is_one) {
                    return Err("it is of a whole machine, which host and target share here".into());
                }
                processors(metric, cells, candidates)
            }
            _ => plain(result, cells, candidates),
        };
        let is_value = |value: &f64| value.is_finite();
        value
            .filter(is_value)
            .ok_or_else(|| "the corresponding cells do not have this number".into())
    }
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
    if result.study == "link-probe" && result.metric == "latency" {
        let what = "a round trip with 4 KiB measured; published is no size and no direction";
        differences.push(what.to_owned());
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
    const NAMES: [&str; 4] =
        ["delta", "concurrency", "latency-interference", "throughput-sustained"];
    Metric::named(result.ours().filter(|name| NAMES.contains(name))?)
}

/// A number of the candidates alone.
fn plain(result: &PublishedResult, cells: &Cells, candidates: &[&Cell]) -> Option<f64> {
    let metric = result.metric.as_str();
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
    match metric {
        "iops_min" => all("iops").into_iter().reduce(f64::min),
        "latency" => {
            let at_depth_1 = |cell: &&&Cell| cell.value(key::DEPTH) == Some(&Value::from(1u64));
            candidates.iter().filter(at_depth_1).find_map(|cell| read("mean", cell))
        }
        "latency_interference" => most("latency-interference"),
        "throughput_sustained" => all("throughput-sustained").into_iter().reduce(f64::min),
        "bs_at_near_peak" => reaches(cells, candidates, key::BLOCK_BYTES, "bandwidth"),
        "cores_at_peak" => reaches(cells, candidates, key::CORES, "iops"),
        "jobs_at_peak" => reaches(cells, candidates, key::JOBS, "iops"),
        "qd_at_write_saturation" => reaches(cells, candidates, key::DEPTH, "iops"),
        "p99_improvement" | "iops_improvement" => improvement(metric, cells),
        "p99_improvement_min" | "p99_improvement_max" | "best_idle_poll" => {
            idle_poll(metric, cells, candidates)
        }
        _ => {
            let name = result.ours()?;
            if Metric::named(name)?.is_rate() { most(name) } else { first(name) }
        }
    }
}

/// Shares of the time of all processors of a machine, in percent.
fn processors(metric: &str, cells: &Cells, candidates: &[&Cell]) -> Option<f64> {
    let busy = |name: &str| {
        let first = candidates.first()?;
        Some(100.0 * Metric::named(name)?.read(cells, first).mean()?)
    };
    let share = |parts: &[Part], target: bool| {
        let sides = draw::sides(candidates.first()?, target);
        let shares: Option<Vec<f64>> = parts.iter().map(|part| part.share(&sides, true)).collect();
        Some(100.0 * shares?.iter().sum::<f64>())
    };
    match metric {
        "cpu_usr" => share(&[Part::User], false),
        "cpu_sys" => share(&[Part::System, Part::Softirq], false),
        "cpu_iowait" => share(&[Part::Iowait], false),
        "host_cpu" | "host_cpu_max" => busy("host-machine-cpu"),
        "target_cpu" => busy("target-machine-cpu"),
        _ => None,
    }
}

/// How much less of the target's processors a Gb/s takes than over the other transport, in percent.
fn saving(cells: &Cells, with: &str) -> Option<f64> {
    let metric = Metric::named("target-cpu-per-gbps")?;
    let least = |wanted: &dyn Fn(&str) -> bool| {
        let of = cells.measured(Role::Plain).filter(|cell| wanted(cell.text(key::TRANSPORT)));
        of.filter_map(|cell| metric.read(cells, cell).mean()).reduce(f64::min)
    };
    let without = least(&|name| name != with && name != "local")?;
    Some(100.0 * (1.0 - least(&|name| name == with)? / without))
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
fn added(result: &PublishedResult, cells: &Cells, without: &str, with: &str) -> Option<f64> {
    let metric = Metric::named("p99")?;
    let p99 =
        |name: &str| of_transport(cells, name).find_map(|cell| metric.read(cells, cell).mean());
    let (with, without) = (p99(with)?, p99(without)?);
    if result.metric == "p99_added" {
        return Some(with - without);
    }
    Some(100.0 * (with / without - 1.0))
}

/// The smallest block size at which the best bandwidth over a transport is on a par with local.
fn parity(cells: &Cells, remote: &str) -> Option<f64> {
    let metric = Metric::named("bandwidth")?;
    let mut sizes: Vec<u64> = of_transport(cells, remote)
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
    let at_par = |size: &u64| Some(best(remote, *size)? >= PARITY * best("local", *size)?);
    sizes.into_iter().find(|size| at_par(size) == Some(true)).map(|size| size as f64)
}

/// The gain of polling over sleeping: p99 at depth 1, or maximum IOPS, in percent.
fn improvement(metric: &str, cells: &Cells) -> Option<f64> {
    // The kernel's polled queues, where there are some; hosts that poll stand for them.
    let has_queues = cells.cells.iter().any(|cell| cell.value(key::NR_POLL_QUEUES).is_some());
    let of = |polling: &'static str| {
        cells.measured(Role::Plain).filter(move |cell| match has_queues {
            true => {
                let queues = cell.number(key::NR_POLL_QUEUES).unwrap_or_default();
                (queues > 0.0) == (polling == "spin")
            }
            false => cell.text(key::HOST_POLLING) == polling,
        })
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
