//! Repeats grouped by cell: the input of reports and comparisons.

mod estimate;
pub(crate) mod gate;
mod knee;
mod lost;
mod metric;

pub(crate) use estimate::{Estimate, Scale};
pub(crate) use knee::{Load, MOST_REACHED, bend, knee};
pub(crate) use lost::is_spoilt;
pub(crate) use metric::{Better, Metric, Part, Reading, is_better_if_less, is_of_a_repeat};
use weft_load::Latency;
pub(crate) use weft_load::units::Unit;

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::INTERVAL_REPEATS;
use crate::results::{
    Configuration, Connection, Environment, LinkProbe, LoadPart, Mark, Record, Role, Side, Status,
    Value, Window, key,
};
use crate::units;

/// Settings that have no meaning without a target.
const OF_THE_TARGET: [&str; 5] =
    [key::TARGET_CORES, key::TARGET_IDLE_POLL_US, key::TARGET_EXPRESS, key::PLACEMENT, key::TLS];

/// Settings that give the load of the background.
const OF_THE_LOAD: [&str; 4] =
    [key::LOAD_PERCENT, key::RATE_IOPS, key::RATE_PROCESS, key::BACKGROUND];

/// Why a cell of the plan has no result, if results have no line of it.
const ABSENT: &str = "it has no line here";

/// A cell with all its repeats.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) id: String,
    /// Its name for a reader: the settings that distinguish it in its study.
    pub(crate) label: String,
    pub(crate) role: Role,
    pub(crate) configuration: Configuration,
    pub(crate) command: String,
    /// The connection of its first repeat that has one.
    pub(crate) connection: Option<Connection>,
    /// Marks of any of its repeats.
    pub(crate) marks: Vec<Mark>,
    /// The repeats that have a result, in order.
    pub(crate) repeats: Vec<Repeat>,
    /// The status of each repeat without a result.
    pub(crate) missing: Vec<Status>,
    /// How many repeats have a result that does not count, since other programs had too much of
    /// their time.
    pub(crate) left_out: usize,
}

/// One repeat that has a result.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    pub(crate) number: u32,
    pub(crate) started_at_ms: u64,
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// Reads and writes together.
    pub(crate) latency: Latency,
    pub(crate) host: Option<Side>,
    pub(crate) target: Option<Side>,
    pub(crate) values: BTreeMap<String, f64>,
    /// What it lost to other programs.
    pub(crate) lost: lost::Lost,
    /// What each of several machines did.
    pub(crate) parts: Vec<LoadPart>,
    /// The run over time; of results of an earlier version IOPS of the measured time only.
    pub(crate) windows: Vec<Window>,
}

impl Repeat {
    pub(crate) fn of(record: &Record) -> Result<Self, String> {
        let mut latency = Latency::new();
        if record.directions().any(|direction| !(0.0..f64::INFINITY).contains(&direction.seconds)) {
            return Err("its measured time is no time".to_owned());
        }
        for direction in record.directions() {
            latency.add(&direction.latency.latency().map_err(|error| error.to_string())?);
        }
        Ok(Self {
            number: record.repeat,
            started_at_ms: record.started_at_ms,
            iops: record.iops(),
            bytes_per_second: record.bytes_per_second(),
            requests: record.directions().map(|direction| direction.requests).sum(),
            seconds: record.directions().map(|direction| direction.seconds).fold(0.0, f64::max),
            lost: lost::Lost::of(record, &latency),
            latency,
            host: record.host.clone(),
            target: record.target.clone(),
            values: record.values.clone(),
            parts: record.parts.clone(),
            windows: record.over_time(),
        })
    }
}

impl Repeat {
    /// How far below and above a metric of it the value on a quiet machine may lie, by the
    /// logarithm.
    pub(crate) fn slack(&self, metric: &str) -> [f64; 2] {
        self.lost.slack(metric, &self.latency)
    }
}

impl Cell {
    /// Whether other programs had so much of a repeat that it says nothing but its own numbers.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.repeats.iter().any(|repeat| repeat.lost.is_all())
    }

    /// The cell with the repeats that other programs left; none if there is none.
    pub(crate) fn unspoilt(&self) -> Option<Self> {
        let kept = self.repeats.iter().filter(|repeat| !repeat.lost.is_all());
        let cell = Self { repeats: kept.cloned().collect(), ..self.clone() };
        cell.is_measured().then_some(cell)
    }

    /// Leaves spoilt repeats out where enough others have an interval without them. That depends on
    /// what other programs did, and not on the numbers.
    pub(crate) fn leave_out_spoilt(&mut self) {
        let spoilt = self.spoilt();
        if spoilt > 0 && self.has_enough_without() {
            self.repeats.retain(|repeat| !repeat.lost.is_all());
            self.left_out = spoilt;
        }
    }

    fn spoilt(&self) -> usize {
        self.repeats.iter().filter(|repeat| repeat.lost.is_all()).count()
    }

    /// Whether there is an interval without spoilt repeats, or there are none of these.
    pub(crate) fn has_enough_without(&self) -> bool {
        let spoilt = self.spoilt();
        spoilt == 0 || self.repeats.len() - spoilt >= INTERVAL_REPEATS as usize
    }

    /// The slack of a metric, as the mean of the repeats.
    pub(crate) fn slack(&self, metric: &str) -> [f64; 2] {
        let count = self.repeats.len().max(1) as f64;
        let all = self.repeats.iter().map(|repeat| repeat.slack(metric));
        all.fold([0.0; 2], |sum, [down, up]| [sum[0] + down / count, sum[1] + up / count])
    }

    /// The value of a setting.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.configuration.get(key)
    }

    /// A setting whose value is text.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.value(key).and_then(Value::as_text).unwrap_or_default()
    }

    /// A setting whose value is a number.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.value(key).and_then(Value::as_number)
    }

    /// Whether there is a result.
    pub(crate) fn is_measured(&self) -> bool {
        !self.repeats.is_empty()
    }

    fn new(id: &str, role: Role, configuration: Configuration) -> Self {
        Self {
            id: id.to_owned(),
            label: String::new(),
            role,
            configuration,
            command: String::new(),
            connection: None,
            marks: Vec::new(),
            repeats: Vec::new(),
            missing: Vec::new(),
            left_out: 0,
        }
    }

    fn without_repeats(&self) -> Self {
        Self {
            label: self.label.clone(),
            connection: self.connection.clone(),
            marks: self.marks.clone(),
            missing: self.missing.clone(),
            left_out: self.left_out,
            ..Self::new(&self.id, self.role, self.configuration.clone())
        }
    }

    /// A cell of the plan that has no line: what varies is in its name, and what does not is in
    /// the others of its role.
    fn absent(id: &str, others: &[Self]) -> Self {
        let (role, varied) = named(id);
        let is_local = |transport: Option<&str>| transport == Some("local");
        let is_like = |cell: &&Self| {
            let transport = varied.iter().find(|(key, _)| *key == key::TRANSPORT);
            let wanted = is_local(transport.map(|(_, transport)| *transport));
            cell.role == role && is_local(Some(cell.text(key::TRANSPORT))) == wanted
        };
        let value = |key: &str, text: &str| {
            let mut known = others.iter().filter_map(|cell| cell.value(key));
            let known = known.find(|value| value.to_string() == text).cloned();
            let number = || text.parse().map(Value::Integer).ok();
            known.or_else(number).unwrap_or_else(|| text.into())
        };
        let mut configuration: Configuration =
            varied.iter().map(|(key, text)| ((*key).to_owned(), value(key, text))).collect();
        for (key, value) in others.iter().filter(is_like).flat_map(|cell| &cell.configuration) {
            let mut all = others.iter().filter(is_like).filter_map(|cell| cell.value(key));
            if all.all(|other| other == value) {
                configuration.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        let reason = ABSENT.to_owned();
        Self { missing: vec![Status::Failed { reason }], ..Self::new(id, role, configuration) }
    }

    /// Whether it is the bare sockets beside an open loop.
    pub(crate) fn is_bare_socket(&self) -> bool {
        let rates = [key::LOAD_PERCENT, key::RATE_IOPS];
        self.role == Role::Link && rates.iter().any(|key| self.value(key).is_some())
    }

    /// Whether it is a cell of the plan that has no line.
    pub(crate) fn is_absent(&self) -> bool {
        self.missing.iter().any(|status| status.reason() == Some(ABSENT))
    }

    /// The fastest request of all repeats.
    pub(crate) fn min_ns(&self) -> u64 {
        let filled = self.repeats.iter().filter(|repeat| repeat.latency.count() > 0);
        filled.map(|repeat| repeat.latency.min_ns()).min().unwrap_or(0)
    }

    /// All samples of all repeats.
    pub(crate) fn latency(&self) -> Latency {
        let mut all = Latency::new();
        self.repeats.iter().for_each(|repeat| all.add(&repeat.latency));
        all
    }
}

/// The cells of a study.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) cells: Vec<Cell>,
    /// The cell that came back through the run.
    pub(crate) reference: Option<Cell>,
    pub(crate) environment: Environment,
}

impl Cells {
    /// Groups records by cell; cells come in the order of their configuration, not of time. Spoilt
    /// repeats are left out where that can be.
    pub(crate) fn of(records: &[Record], environment: &Environment) -> Self {
        let mut all = Self::whole(records, environment);
        let reference = all.reference.iter_mut();
        all.cells.iter_mut().chain(reference).for_each(Cell::leave_out_spoilt);
        all
    }

    /// The same with all repeats.
    pub(crate) fn whole(records: &[Record], environment: &Environment) -> Self {
        let mut cells: Vec<Cell> = Vec::new();
        let mut places: BTreeMap<(Role, &str), usize> = BTreeMap::new();
        for record in records {
            let place = *places.entry((record.role, &record.cell)).or_insert_with(|| {
                let configuration = record.configuration.clone();
                let cell = Cell::new(&record.cell, record.role, configuration);
                cells.push(Cell { command: record.command.clone(), ..cell });
                cells.len() - 1
            });
            if let Some(cell) = cells.get_mut(place) {
                add(cell, record);
            }
        }
        let is_absent = |id: &&String| !cells.iter().any(|cell| cell.id == **id);
        let absent = environment.cells.iter().filter(is_absent);
        let absent: Vec<Cell> = absent.map(|id| Cell::absent(id, &cells)).collect();
        cells.extend(absent);
        for cell in &mut cells {
            if was_busy(cell, environment) {
                cell.marks.push(Mark::BusyMachine);
            }
            cell.repeats.sort_by_key(|repeat| repeat.number);
            cell.marks.sort_unstable();
        }
        cells.sort_by(|one, other| {
            one.role
                .cmp(&other.role)
                .then_with(|| order(&one.configuration, &other.configuration))
                .then_with(|| one.id.cmp(&other.id))
        });
        let place = cells.iter().position(|cell| cell.role == Role::Reference);
        let reference = place.map(|place| cells.remove(place));
        let mut all = Self { cells, reference, environment: environment.clone() };
        all.mark_foregrounds();
        all.set_labels();
        all
    }

    /// A background that was too slow is one of the foreground's conditions.
    fn mark_foregrounds(&mut self) {
        let is_short = |cell: &Cell| {
            let background = self.background(cell);
            cell.role == Role::Foreground
                && background.is_some_and(|of| of.marks.contains(&Mark::BackgroundShort))
        };
        let short: Vec<bool> = self.cells.iter().map(is_short).collect();
        for (cell, _) in self.cells.iter_mut().zip(short).filter(|(_, is_short)| *is_short) {
            if !cell.marks.contains(&Mark::BackgroundShort) {
                cell.marks.push(Mark::BackgroundShort);
                cell.marks.sort_unstable();
            }
        }
    }

    fn set_labels(&mut self) {
        let label = |cell: &Cell| {
            let varied = self.varied(cell.role);
            let value = |key: &String| Some(units::setting(key, cell.value(key)?));
            let mut words: Vec<String> = varied.iter().filter_map(value).collect();
            let role = match cell.role {
                Role::Link if cell.is_bare_socket() => Some("bare socket"),
                Role::Plain | Role::Foreground | Role::Link => None,
                Role::Background => Some("background"),
                Role::Alone => Some("alone"),
                Role::Saturation => Some("saturation"),
                Role::Reference => Some("reference"),
            };
            words.extend(role.map(str::to_owned));
            if words.is_empty() { "the cell".to_owned() } else { words.join(", ") }
        };
        let labels: Vec<String> = self.cells.iter().chain(&self.reference).map(label).collect();
        for (cell, label) in self.cells.iter_mut().chain(&mut self.reference).zip(labels) {
            cell.label = label;
        }
    }

    /// Each repeat by itself.
    pub(crate) fn by_repeat(&self) -> Vec<Self> {
        let repeats = self.cells.iter().flat_map(|cell| &cell.repeats);
        let numbers: BTreeSet<u32> = repeats.map(|repeat| repeat.number).collect();
        let of = |number: u32| {
            let cells = self.cells.iter().map(|cell| {
                let repeats = cell.repeats.iter().filter(|repeat| repeat.number == number);
                Cell { repeats: repeats.cloned().collect(), ..cell.without_repeats() }
            });
            let (reference, environment) = (None, self.environment.clone());
            Self { cells: cells.collect(), reference, environment }
        };
        numbers.into_iter().map(of).collect()
    }

    /// Cells of a role that have a result.
    pub(crate) fn measured(&self, role: Role) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.role == role && cell.is_measured())
    }

    /// The local cell with the same settings; a local cell is its own.
    pub(crate) fn local<'a>(&'a self, cell: &'a Cell) -> Option<&'a Cell> {
        if cell.text(key::TRANSPORT) == "local" {
            return Some(cell);
        }
        let local = Value::from("local");
        let same = |other: &&Cell| {
            other.role == cell.role
                && other.value(key::TRANSPORT) == Some(&local)
                && agree(&cell.configuration, &other.configuration, &[key::TRANSPORT])
        };
        self.cells.iter().filter(|cell| cell.is_measured()).find(same).or_else(|| {
            let mut apart = vec![key::TRANSPORT];
            apart.extend(OF_THE_TARGET);
            self.measured(cell.role).find(|other| {
                other.value(key::TRANSPORT) == Some(&local)
                    && agree(&cell.configuration, &other.configuration, &apart)
            })
        })
    }

    /// The local cell with the same settings at depth 1.
    pub(crate) fn local_at_depth_1<'a>(&'a self, cell: &'a Cell) -> Option<&'a Cell> {
        let mut apart = vec![key::TRANSPORT, key::DEPTH];
        apart.extend(OF_THE_TARGET);
        self.measured(cell.role).find(|other| {
            other.text(key::TRANSPORT) == "local"
                && other.value(key::DEPTH) == Some(&Value::from(1u64))
                && agree(&cell.configuration, &other.configuration, &apart)
        })
    }

    /// The probes of the raw link between the ends of a cell, over its protocol, but for those that
    /// other programs spoilt.
    pub(crate) fn link(&self, cell: &Cell) -> impl Iterator<Item = &LinkProbe> {
        self.environment.links(cell.connection.as_ref()).filter(|probe| !probe.spoilt)
    }

    /// The bare sockets that were measured beside an open loop.
    pub(crate) fn bare_socket<'a>(&'a self, cell: &Cell) -> Option<&'a Cell> {
        let is_beside = |other: &&Cell| other.id.strip_prefix("role=link ") == Some(&cell.id);
        self.measured(Role::Link).find(is_beside)
    }

    /// The foreground measured without a background.
    pub(crate) fn alone<'a>(&'a self, cell: &'a Cell) -> Option<&'a Cell> {
        if cell.role == Role::Alone {
            return Some(cell);
        }
        self.measured(Role::Alone)
            .find(|other| agree(&cell.configuration, &other.configuration, &OF_THE_LOAD))
    }

    /// The background that was measured together with a foreground.
    pub(crate) fn background<'a>(&'a self, cell: &'a Cell) -> Option<&'a Cell> {
        let apart = [key::DEPTH, key::BLOCK_BYTES, key::JOBS, key::PATTERN, key::RATE_IOPS];
        let more = [key::RATE_PROCESS, key::READ_PERCENT, key::HOST_CORES];
        let apart = [&apart[..], &more].concat();
        self.measured(Role::Background)
            .find(|other| agree(&cell.configuration, &other.configuration, &apart))
    }

    /// Settings that differ among the cells of a role, in display order.
    pub(crate) fn varied(&self, role: Role) -> Vec<String> {
        let mut values: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for cell in self.cells.iter().filter(|cell| cell.role == role) {
            for (key, value) in &cell.configuration {
                let seen = values.entry(key).or_default();
                if !seen.contains(&value) {
                    seen.push(value);
                }
            }
        }
        let mut keys: Vec<&str> =
            values.into_iter().filter(|(_, seen)| seen.len() > 1).map(|(key, _)| key).collect();
        // One axis sets both sides' processors.
        if keys.contains(&key::CORES) {
            keys.retain(|key| ![key::HOST_CORES, key::TARGET_CORES, key::JOBS].contains(key));
        }
        keys.sort_by_key(|key| rank(key));
        keys.into_iter().map(str::to_owned).collect()
    }
}

/// The role and the varied settings that the name of a cell gives, as text.
fn named(id: &str) -> (Role, Vec<(&str, &str)>) {
    let words = || id.split(' ').filter_map(|word| word.split_once('='));
    let role = words().find(|(key, _)| *key == "role");
    let role = role.and_then(|(_, name)| serde_json::from_value(name.into()).ok());
    (role.unwrap_or(Role::Plain), words().filter(|(key, _)| *key != "role").collect())
}

/// Whether a machine of a cell was busy before the run.
fn was_busy(cell: &Cell, environment: &Environment) -> bool {
    let is_elsewhere = cell.connection.as_ref().is_some_and(|ends| !ends.is_within_a_machine());
    let target = || environment.target_busy_share(cell.text(key::TARGET));
    environment.busy_share().is_some() || is_elsewhere && target().is_some()
}

fn add(cell: &mut Cell, record: &Record) {
    for mark in &record.marks {
        if !cell.marks.contains(mark) {
            cell.marks.push(*mark);
        }
    }
    if cell.connection.is_none() {
        cell.connection.clone_from(&record.connection);
    }
    if !record.is_measured() {
        cell.missing.push(record.status.clone());
        return;
    }
    match Repeat::of(record) {
        Ok(repeat) => cell.repeats.push(repeat),
        Err(reason) => cell.missing.push(Status::Failed { reason }),
    }
}

/// Whether two configurations have the same values where both have one, but for `apart`.
fn agree(one: &Configuration, other: &Configuration, apart: &[&str]) -> bool {
    one.iter()
        .filter(|(key, _)| !apart.contains(&key.as_str()))
        .all(|(key, value)| other.get(key).is_none_or(|others| others == value))
}

/// The order in which settings are displayed.
pub(crate) fn rank(key: &str) -> usize {
    const ORDER: [&str; 22] = [
        key::TRANSPORT,
        key::HOST_SOFTWARE,
        key::TARGET_SOFTWARE,
        key::SHARED,
        key::FOREGROUND,
        key::BACKGROUND,
        key::NEIGHBOUR,
        key::PATTERN,
        key::READ_PERCENT,
        key::BLOCK_BYTES,
        key::DEPTH,
        key::JOBS,
        key::CORES,
        key::HOST_CORES,
        key::TARGET_CORES,
        key::LOAD_PERCENT,
        key::HOST_POLLING,
        key::TARGET_IDLE_POLL_US,
        key::TARGET_EXPRESS,
        key::PLACEMENT,
        key::TLS,
        key::DEVICE,
    ];
    ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len())
}

/// The order of a setting's values: known words in their usual order, numbers by size.
pub(crate) fn value_order(key: &str, one: &Value, other: &Value) -> std::cmp::Ordering {
    const WORDS: [(&str, &[&str]); 7] = [
        (key::HOST_SOFTWARE, &["weft", "linux"]),
        (key::TARGET_SOFTWARE, &["weft", "linux", "spdk"]),
        (key::TRANSPORT, &["local", "loopback", "tcp", "tcp-link", "rdma"]),
        (key::PATTERN, &["read", "write", "rw", "randread", "randwrite", "randrw"]),
        (key::FOREGROUND, &["l-app", "t-app", "b-app"]),
        (key::BACKGROUND, &["storage", "network"]),
        (key::TLS, &["off", "aes-128-gcm", "aes-256-gcm", "concatenation"]),
    ];
    let words = WORDS.iter().find(|(known, _)| *known == key).map(|(_, words)| *words);
    let place = |value: &Value| {
        let words = words?;
        let text = value.as_text()?;
        Some(words.iter().position(|word| *word == text).unwrap_or(words.len()))
    };
    match (place(one), place(other)) {
        (Some(one), Some(other)) if one != other => one.cmp(&other),
        _ => one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal),
    }
}

fn order(one: &Configuration, other: &Configuration) -> std::cmp::Ordering {
    let mut keys: Vec<&String> = one.keys().filter(|key| other.contains_key(*key)).collect();
    keys.sort_by_key(|key| rank(key));
    keys.into_iter()
        .filter_map(|key| Some(value_order(key, one.get(key)?, other.get(key)?)))
        .find(|ordering| ordering.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

#[cfg(test)]
mod tests;
