//! Expands a plan into cells for this machine.

use std::collections::BTreeMap;

use weft_host::Transport;
use weft_load::random::Random;

use super::capabilities::{Apart, Capabilities, KnownTarget};
use super::given::{self, given_targets, no_target, protocol};
use super::launch::Tls;
use super::plan::{Kind, Plan, Shared};
use super::software;
use super::{knob, roles, site};
use crate::results::{Configuration, Role, Value, integer, key, text};

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its identifier: the same for every repeat of the cell, in every run of the study.
    pub id: String,
    /// What it is for.
    pub role: Role,
    /// Every axis, every fixed setting and every default that affects the result.
    pub configuration: Configuration,
    /// Why it cannot run here.
    pub missing: Option<String>,
}

/// Cells that are measured at the same time.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// One load.
    Single(Cell),
    /// Two loads side by side: foreground and background.
    Pair {
        /// The load that is studied.
        foreground: Cell,
        /// The load beside it.
        background: Cell,
    },
}

impl Step {
    /// Its cells.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        match self {
            Self::Single(cell) => [Some(cell), None],
            Self::Pair { foreground, background } => [Some(foreground), Some(background)],
        }
        .into_iter()
        .flatten()
    }

    /// Why it cannot run here.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        self.cells().find_map(|cell| cell.missing.as_deref())
    }
}

/// Steps that are measured directly after one another: one point, local and remote.
pub type Point = Vec<Step>;

/// The cells of a study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Points that others depend on: saturation points.
    pub first: Vec<Point>,
    /// The others.
    pub points: Vec<Point>,
}

impl Matrix {
    /// Every step.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.first.iter().chain(&self.points).flatten()
    }

    /// How many cells there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps().map(|step| step.cells().count()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cell that comes back through a run: the first one over a transport, or else the first
    /// one, that can run here. It has its own role, since its repeats are not spread over rounds.
    #[must_use]
    pub fn reference(&self) -> Option<Step> {
        let single = |step: &Step| match step {
            Step::Single(cell) if cell.missing.is_none() && cell.role != Role::Link => {
                Some(cell.clone())
            }
            _ => None,
        };
        let is_remote = |cell: &Cell| text(&cell.configuration, key::TRANSPORT) != "local";
        let mut cells = self.steps().filter_map(single);
        let first = cells.next()?;
        let mut cell =
            Some(first.clone()).into_iter().chain(cells).find(is_remote).unwrap_or(first);
        cell.role = Role::Reference;
        cell.id = format!("role=reference {}", cell.id);
        Some(Step::Single(cell))
    }

    /// The points of one round of repeats, in the order of measurement: points are shuffled, and
    /// so are the steps within each, so that neither side of a comparison always comes first.
    #[must_use]
    pub fn round(&self, seed: u64, round: u32, shuffle: bool) -> Vec<Vec<&Step>> {
        let mut points: Vec<Vec<&Step>> =
            self.points.iter().map(|point| point.iter().collect()).collect();
        if shuffle {
            let mut random = Random::new(seed, u64::from(round));
            random.shuffle(&mut points);
            points.iter_mut().for_each(|steps| random.shuffle(steps));
        }
        points
    }
}

/// The cells of a plan; with `only`, those whose configuration has these values.
#[must_use]
pub fn expand(plan: &Plan, capabilities: &Capabilities, only: &Configuration) -> Matrix {
    let mut matrix = Matrix::default();
    let combinations = combinations(&axes(plan, capabilities));
    match plan.kind {
        Kind::Interference => interference(plan, capabilities, &combinations, &mut matrix),
        Kind::Load => load(plan, capabilities, &combinations, &mut matrix),
        Kind::Matrix | Kind::Link | Kind::Saturation => {
            let role = match plan.kind {
                Kind::Link => Role::Link,
                Kind::Saturation => Role::Saturation,
                Kind::Matrix | Kind::Interference | Kind::Load => Role::Plain,
            };
            let mut points: BTreeMap<String, Point> = BTreeMap::new();
            for combination in &combinations {
                let mut apart = combination.clone();
                apart.remove(key::TRANSPORT);
                let point = points.entry(name(role, &apart)).or_default();
                for combination in on_each_target(plan, capabilities, combination) {
                    let cell = cell(plan, capabilities, role, &combination, &plan.fixed);
                    point.push(Step::Single(cell));
                }
            }
            matrix.points = points.into_values().collect();
        }
    }
    keep(&mut matrix.points, only);
    keep_references(&mut matrix, only);
    matrix
}

/// Removes the saturation points on which no selected point depends, unless they are what `only`
/// selects.
fn keep_references(matrix: &mut Matrix, only: &Configuration) {
    let saturation = role_name(Role::Saturation);
    if only.get("role").and_then(Value::as_text) == Some(saturation) {
        keep(&mut matrix.first, only);
    } else if matrix.points.is_empty() {
        matrix.first.clear();
    } else {
        let mut apart = only.clone();
        for key in ["role", key::LOAD_PERCENT, key::FOREGROUND, key::BACKGROUND] {
            apart.remove(key);
        }
        // Settings that are the foreground's alone do not tell references apart.
        let known = |key: &String| {
            matrix.first.iter().flatten().flat_map(Step::cells).any(|cell| {
                cell.configuration.get(key).map(ToString::to_string)
                    == apart.get(key).map(ToString::to_string)
            })
        };
        let apart = apart.iter().filter(|(key, _)| known(key));
        let apart = apart.map(|(key, value)| (key.clone(), value.clone())).collect();
        keep(&mut matrix.first, &apart);
    }
}

/// Open loops at shares of a capacity, and a closed loop that finds that capacity for each
/// combination of the other axes.
fn load(
    plan: &Plan,
    capabilities: &Capabilities,
    combinations: &[Configuration],
    matrix: &mut Matrix,
) {
    let mut references: BTreeMap<String, Step> = BTreeMap::new();
    let mut points: BTreeMap<String, Point> = BTreeMap::new();
    for combination in combinations {
        let mut apart = combination.clone();
        apart.remove(key::TRANSPORT);
        let point = points.entry(name(Role::Plain, &apart)).or_default();
        for combination in on_each_target(plan, capabilities, combination) {
            let of = |role, varied: &Configuration| {
                Step::Single(cell(plan, capabilities, role, varied, &plan.fixed))
            };
            point.push(of(Role::Plain, &combination));
            let mut rest = combination;
            rest.remove(key::LOAD_PERCENT);
            references
                .entry(name(Role::Saturation, &rest))
                .or_insert_with(|| of(Role::Saturation, &rest));
        }
    }
    matrix.first = references.into_values().map(|step| vec![step]).collect();
    matrix.points = points.into_values().collect();
}

/// Removes the steps that `only` does not select.
fn keep(points: &mut Vec<Point>, only: &Configuration) {
    let wanted = |cell: &Cell| {
        let same = |(key, value): (&String, &Value)| {
            let text = if key == "role" {
                Some(role_name(cell.role).to_owned())
            } else {
                cell.configuration.get(key).map(ToString::to_string)
            };
            text == Some(value.to_string())
        };
        only.iter().all(same)
    };
    for point in points.iter_mut() {
        point.retain(|step| step.cells().any(wanted));
    }
    points.retain(|point| !point.is_empty());
}

/// The axes with words such as `all` replaced by numbers; a number that then occurs twice is kept
/// once.
fn axes(plan: &Plan, capabilities: &Capabilities) -> Vec<(String, Vec<Value>)> {
    let has_meaning = |key: &str| !given::is_meaningless(key, plan, capabilities);
    let axes = plan.axes.iter().filter(|(key, _)| has_meaning(key));
    let resolved = axes.map(|(key, values)| {
        let mut seen: Vec<Value> = Vec::new();
        for value in values {
            let value = resolve(key, value, capabilities);
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
        (key.clone(), seen)
    });
    resolved.collect()
}

fn resolve(name: &str, value: &Value, capabilities: &Capabilities) -> Value {
    let cores = [key::CORES, key::HOST_CORES, key::TARGET_CORES].contains(&name);
    match value.as_text() {
        Some("all") if cores => Value::from(all_cores(capabilities) as u64),
        _ => value.clone(),
    }
}

/// Processors of each side if all are used.
fn all_cores(capabilities: &Capabilities) -> usize {
    let has = capabilities.cpus.len();
    if let Some(load) = capabilities.load_cpus() {
        return has.min(load.len()).max(1);
    }
    if capabilities.target_elsewhere() { has.max(1) } else { (has / 2).max(1) }
}

/// Every combination of the axes, the last axis fastest.
fn combinations(axes: &[(String, Vec<Value>)]) -> Vec<Configuration> {
    let mut combinations = vec![Configuration::new()];
    for (key, values) in axes {
        let mut next = Vec::with_capacity(combinations.len() * values.len());
        for combination in &combinations {
            for value in values {
                let mut longer = combination.clone();
                longer.insert(key.clone(), value.clone());
                next.push(longer);
            }
        }
        combinations = next;
    }
    combinations
}

/// The combination repeated for each of several given targets, if it uses a given target. These are
/// measured directly after one another, as transports are.
fn on_each_target(
    plan: &Plan,
    capabilities: &Capabilities,
    combination: &Configuration,
) -> Vec<Configuration> {
    let varied = combination.get(key::TRANSPORT).or(plan.fixed(key::TRANSPORT));
    let transport = varied.and_then(Value::as_text).unwrap_or("tcp");
    let given = given_targets(plan, transport, capabilities).unwrap_or_default();
    if given.len() < 2 || plan.kind == Kind::Link {
        return vec![combination.clone()];
    }
    let with = |target: &KnownTarget| {
        let mut combination = combination.clone();
        combination.insert(key::TARGET.to_owned(), Value::from(target.name.as_str()));
        combination
    };
    given.iter().filter_map(|index| capabilities.targets.get(*index)).map(with).collect()
}

fn interference(
    plan: &Plan,
    capabilities: &Capabilities,
    combinations: &[Configuration],
    matrix: &mut Matrix,
) {
    let Some(section) = &plan.interference else { return };
    let shared = Value::Text(section.shared.to_string());
    let with = |load: &Configuration| {
        let mut fixed = plan.fixed.clone();
        fixed.extend(load.clone());
        fixed.insert(key::SHARED.to_owned(), shared.clone());
        fixed
    };
    // Axes other than those two (patterns, knobs) have references of their own.
    let mut references: BTreeMap<String, Step> = BTreeMap::new();
    let mut alone: BTreeMap<String, Step> = BTreeMap::new();
    let mut pairs = Vec::new();
    for combination in combinations {
        let mut rest = combination.clone();
        rest.remove(key::LOAD_PERCENT);
        rest.remove(key::BACKGROUND);
        let tenant = rest.get(key::FOREGROUND).map(ToString::to_string).unwrap_or_default();
        let load = section.foreground.get(&tenant).cloned().unwrap_or_default();
        let mut background = section.background.clone();
        let neighbour = rest.get(key::NEIGHBOUR).map(ToString::to_string).unwrap_or_default();
        background.extend(section.neighbour.get(&neighbour).cloned().unwrap_or_default());
        let mut without = rest.clone();
        without.remove(key::NEIGHBOUR);
        let single = |role, combination: &Configuration, load: &Configuration| {
            Step::Single(cell(plan, capabilities, role, combination, &with(load)))
        };
        alone
            .entry(name(Role::Alone, &without))
            .or_insert_with(|| single(Role::Alone, &without, &load));
        rest.remove(key::FOREGROUND);
        references
            .entry(name(Role::Saturation, &rest))
            .or_insert_with(|| single(Role::Saturation, &rest, &background));
        let of = |role, load| cell(plan, capabilities, role, combination, &with(load));
        pairs.push(vec![Step::Pair {
            foreground: of(Role::Foreground, &load),
            background: of(Role::Background, &background),
        }]);
    }
    matrix.first = references.into_values().map(|step| vec![step]).collect();
    matrix.points = alone.into_values().map(|step| vec![step]).chain(pairs).collect();
}

/// The host's processors that a plan wants for its background.
pub(super) fn background_cores(plan: &Plan, capabilities: &Capabilities) -> usize {
    let background = plan.interference.as_ref().map(|section| &section.background);
    let wanted = background.and_then(|load| load.get(key::HOST_CORES));
    let wanted =
        wanted.and_then(|count| resolve(key::HOST_CORES, count, capabilities).as_integer());
    wanted.and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// The host's processors that the background, or the load that finds its saturation, has here.
fn applied_cores(plan: &Plan, role: Role, capabilities: &Capabilities) -> Option<u64> {
    let shared = plan.interference.as_ref()?.shared;
    let cpus = &capabilities.cpus;
    let wanted = background_cores(plan, capabilities);
    let loads_cpus = capabilities.load_cpus();
    let has = match (role, loads_cpus) {
        (Role::Background, Some(load)) => {
            let together = capabilities.apart.as_ref().is_some_and(|apart| apart.same_load_machine);
            roles::tenants(shared, load, cpus, together, wanted).background.len()
        }
        (Role::Saturation, Some(_)) if shared == Shared::Host => 1,
        (Role::Saturation, Some(cpus)) => cpus.len().min(2),
        (Role::Background, None) => roles::interference(cpus, shared, wanted).background.len(),
        (Role::Saturation, None) => roles::saturation(cpus, shared).host.len(),
        _ => return None,
    };
    u64::try_from(has.max(1)).ok()
}

/// A cell's identifier: the varied settings, and its role unless that is plain.
fn name(role: Role, combination: &Configuration) -> String {
    let mut words: Vec<String> =
        combination.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if role != Role::Plain || words.is_empty() {
        words.insert(0, format!("role={}", role_name(role)));
    }
    words.join(" ")
}

/// The name of a role in `results.jsonl`.
pub(crate) const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Plain => "plain",
        Role::Foreground => "foreground",
        Role::Background => "background",
        Role::Alone => "alone",
        Role::Saturation => "saturation",
        Role::Reference => "reference",
        Role::Link => "link",
    }
}

/// Defaults of settings that a plan leaves out.
const DEFAULTS: [(&str, &str); 3] =
    [(key::TRANSPORT, "tcp"), (key::PATTERN, "randread"), (key::DEVICE, "memory")];
const DEFAULT_NUMBERS: [(&str, u64); 6] = [
    (key::READ_PERCENT, 70),
    (key::BLOCK_BYTES, 4096),
    (key::DEPTH, 1),
    (key::JOBS, 1),
    (key::HOST_CORES, 1),
    (key::TARGET_CORES, 1),
];

fn cell(
    plan: &Plan,
    capabilities: &Capabilities,
    role: Role,
    combination: &Configuration,
    fixed: &Configuration,
) -> Cell {
    let mut configuration: Configuration = fixed
        .iter()
        .map(|(key, value)| (key.clone(), resolve(key, value, capabilities)))
        .chain(combination.clone())
        .collect();
    if let Some(cores) = configuration.get(key::CORES).cloned() {
        for side in [key::HOST_CORES, key::TARGET_CORES] {
            configuration.entry(side.to_owned()).or_insert_with(|| cores.clone());
        }
    }
    for (key, word) in DEFAULTS {
        configuration.entry(key.to_owned()).or_insert_with(|| Value::from(word));
    }
    for (key, number) in DEFAULT_NUMBERS {
        configuration.entry(key.to_owned()).or_insert(Value::Integer(number));
    }
    if let Some(cores) = applied_cores(plan, role, capabilities) {
        configuration.insert(key::HOST_CORES.to_owned(), cores.into());
    }
    configuration.entry(key::HOST_POLLING.to_owned()).or_insert_with(|| Value::from("adaptive"));
    if configuration.get(key::JOBS).and_then(Value::as_text) == Some("per-core") {
        let cores = configuration.get(key::HOST_CORES).cloned().unwrap_or(Value::Integer(1));
        configuration.insert(key::JOBS.to_owned(), cores);
    }
    let mixed = matches!(text(&configuration, key::PATTERN), "rw" | "randrw");
    if !mixed {
        configuration.remove(key::READ_PERCENT);
    }
    if text(&configuration, key::TRANSPORT) == "local" {
        configuration.remove(key::TARGET_CORES);
        configuration.remove(key::TLS);
        configuration.remove(key::TARGET_EXPRESS);
        if !combination.contains_key(key::TARGET_IDLE_POLL_US) {
            configuration.remove(key::TARGET_IDLE_POLL_US);
        }
        let of_others = |key: &String| {
            knob::is_of_interface(key) || software::OF_A_CONNECTION.contains(&key.as_str())
        };
        configuration.retain(|key, _| !of_others(key) || combination.contains_key(key));
    }
    let transport = text(&configuration, key::TRANSPORT).to_owned();
    if role != Role::Link && given_targets(plan, &transport, capabilities).is_some() {
        given::keep_applied(&mut configuration);
    }
    if transport != "local" {
        software::keep_applied(&mut configuration);
    }
    let missing = missing(plan, role, &configuration, combination, capabilities);
    Cell { id: name(role, combination), role, configuration, missing }
}

/// Why there are not several hosts or subsystems.
fn not_spread(transport: &str, role: Role, given: bool, subsystems: bool) -> Option<&'static str> {
    match transport {
        "local" => Some("a local device has one host and no subsystems"),
        _ if role != Role::Plain => Some("a tenant is one host with one subsystem"),
        "loopback" if subsystems => Some("over loopback the target has one subsystem"),
        _ if given && subsystems => Some("a given target has the subsystems that it has"),
        _ => None,
    }
}

/// Why a cell cannot have TLS, if it is to have that.
fn no_tls(
    role: Role,
    configuration: &Configuration,
    capabilities: &Capabilities,
) -> Option<&'static str> {
    Tls::named(text(configuration, key::TLS))?;
    let several = |key: &str| integer(configuration, key).is_some_and(|count| count > 1);
    match protocol(text(configuration, key::TRANSPORT)) {
        Some(Transport::Tcp) if !capabilities.tls => Some(
            "this weft was built without TLS (build it with the cargo feature `tls`, or take a \
                 package of docs/install.md)",
        ),
        Some(Transport::Tcp) if capabilities.apart.is_some() => {
            Some("keys of TLS are not given to agents")
        }
        Some(Transport::Tcp) if role != Role::Plain && role != Role::Reference => {
            Some("TLS is measured with plain cells alone")
        }
        Some(Transport::Tcp) if several(key::HOSTS) || several(key::SUBSYSTEMS) => {
            Some("keys of TLS are made for one host and one subsystem")
        }
        Some(Transport::Tcp) => None,
        _ => Some("only TCP has TLS"),
    }
}

/// Why a cell cannot run with its target and its load in different places.
fn not_apart(
    plan: &Plan,
    role: Role,
    configuration: &Configuration,
    apart: &Apart,
) -> Option<&'static str> {
    let same_core = text(configuration, key::PLACEMENT) == "same-core";
    match text(configuration, key::TRANSPORT) {
        _ if matches!(role, Role::Alone | Role::Foreground | Role::Background)
            && tenants_together(plan, role, configuration, apart).is_some() =>
        {
            tenants_together(plan, role, configuration, apart)
        }
        "local" if !apart.local => Some("needs a device of the target's machine (--local DEVICE)"),
        "loopback" => Some("over loopback target and load are one process"),
        "tcp" if plan.has(key::TRANSPORT, "tcp-link") => {
            Some("between machines these are the cells of tcp-link")
        }
        _ if same_core && !apart.one_machine => {
            Some("target and load have machines of their own, and no processor in common")
        }
        _ => None,
    }
}

/// Why the tenants of a processor cannot be hosts on machines of their own.
fn tenants_together(
    plan: &Plan,
    role: Role,
    configuration: &Configuration,
    apart: &Apart,
) -> Option<&'static str> {
    let shared = plan.interference.as_ref().map(|section| section.shared);
    match shared {
        Some(_) if role != Role::Alone && is_network(configuration) => {
            Some("the link without storage is measured on one machine, without --target-on")
        }
        Some(Shared::Target) if apart.loads < 2 => {
            Some("the tenants are hosts at two places: --load-on A,B")
        }
        Some(Shared::Host) if apart.loads < 2 || !apart.same_load_machine => {
            Some("the tenants of a host's processor are two loads of one machine: --load-on A,A")
        }
        Some(Shared::Target | Shared::Host) => None,
        None => Some("a tenant shares a processor, and the plan does not say which"),
    }
}

/// Why the link that a transport names cannot be used.
fn no_link(transport: &str, capabilities: &Capabilities) -> Option<String> {
    let (spoken, link) = site::named(transport)?;
    let Some(apart) = &capabilities.apart else {
        return match (link, capabilities.own_target) {
            (site::LOOPBACK, true) => None,
            (site::LOOPBACK, false) => Some("no target was given".to_owned()),
            _ => Some(format!(
                "{link} is a link of a site, whose machines have agents (--site FILE)"
            )),
        };
    };
    match apart.links.get(link) {
        Some(false) if spoken == "rdma" => {
            Some(format!("no RDMA device has the address of every end of the link {link}"))
        }
        Some(_) => None,
        None if link == site::LOOPBACK => {
            Some("target and load have no loopback interface in common".to_owned())
        }
        None => Some(format!("the site has no link {link} between these machines")),
    }
}

/// Why the knobs of a cell cannot be set.
fn no_knobs(configuration: &Configuration, capabilities: &Capabilities) -> Option<String> {
    let knob = knob::any(configuration)?;
    if capabilities.apart.is_none() {
        return Some(format!(
            "{knob} is set by agents (--site FILE, or --target-on and --load-on)"
        ));
    }
    let transport = text(configuration, key::TRANSPORT);
    let knob = knob::of_interface(configuration)?;
    (transport != "local" && site::link_of(transport).is_empty()).then(|| {
        format!("{knob} is set on the interfaces of a link, which has to have a name (tcp@NAME)")
    })
}

/// Why a cell cannot run here, as far as that is known beforehand.
fn missing(
    plan: &Plan,
    role: Role,
    configuration: &Configuration,
    varied: &Configuration,
    capabilities: &Capabilities,
) -> Option<String> {
    let said = |what: &str| Some(what.to_owned());
    let transport = text(configuration, key::TRANSPORT);
    if let Some(apart) = &capabilities.apart
        && let Some(reason) = not_apart(plan, role, configuration, apart)
    {
        return said(reason);
    }
    let reason = no_link(transport, capabilities);
    if let Some(reason) = reason.or_else(|| no_knobs(configuration, capabilities)) {
        return Some(reason);
    }
    match transport {
        "rdma" if !capabilities.rdma => {
            return said("this machine has no RDMA device with an IPv4 address");
        }
        "local" if plan.kind == Kind::Link => return said("a local device has no link"),
        "tcp" | "tcp-link" | "rdma" if no_target(plan, transport, capabilities).is_some() => {
            return no_target(plan, transport, capabilities);
        }
        "tcp" | "tcp-link" | "rdma"
            if plan.kind == Kind::Link && is_far(plan, transport, capabilities) =>
        {
            return said("needs a probe at the other end of the link, which weft does not have");
        }
        "loopback" if !capabilities.own_target => return said("no target was given"),
        "loopback" if matches!(plan.kind, Kind::Interference | Kind::Link) => {
            return said("over loopback all targets are one process without a link between them");
        }
        "tcp" | "rdma" if !capabilities.own_target && capabilities.targets.is_empty() => {
            return said("no target was given");
        }
        _ => {}
    }
    missing_of_role(plan, role, configuration, varied, capabilities)
}

/// The same, of what its role and its settings want.
fn missing_of_role(
    plan: &Plan,
    role: Role,
    configuration: &Configuration,
    varied: &Configuration,
    capabilities: &Capabilities,
) -> Option<String> {
    let said = |what: &str| Some(what.to_owned());
    let transport = text(configuration, key::TRANSPORT);
    let given = given_targets(plan, transport, capabilities).is_some();
    if let Some(reason) = software::missing(role, configuration, capabilities, given) {
        return Some(reason);
    }
    let is_polled = varied.get(key::HIPRI).and_then(Value::as_text) == Some("on");
    if is_polled && transport != "local" && !configuration.contains_key(key::HIPRI) {
        return said("weft's host has no block device whose queues could be polled");
    }
    let is_loaded = matches!(role, Role::Foreground | Role::Background);
    if is_loaded && is_network(configuration) {
        if protocol(transport) != Some(Transport::Tcp) {
            return said("needs the link without storage over RDMA, which weft does not have");
        }
        if given {
            return said("needs an end of the link where the given target runs");
        }
    }
    let several = |key: &str| integer(configuration, key).is_some_and(|count| count > 1);
    if (several(key::HOSTS) || several(key::SUBSYSTEMS))
        && let Some(reason) = not_spread(transport, role, given, several(key::SUBSYSTEMS))
    {
        return said(reason);
    }
    if !given && let Some(reason) = no_tls(role, configuration, capabilities) {
        return said(reason);
    }
    if given && let Some(knob) = given::unsettable(varied.keys()) {
        return Some(format!("a given target keeps its own {knob}: it cannot be set"));
    }
    if role != Role::Plain || text(configuration, key::PLACEMENT) == "same-core" {
        return None;
    }
    let count = |key| {
        integer(configuration, key).and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
    };
    let own = transport != "local" && !given;
    let target = own.then(|| count(key::TARGET_CORES));
    if let (Some(load_cpus), Some(target)) = (capabilities.load_cpus(), target) {
        let host = count(key::HOST_CORES);
        return roles::apart(load_cpus, host, &capabilities.cpus, target).err();
    }
    roles::plain(&capabilities.cpus, count(key::HOST_CORES), target).err()
}

/// Whether the background of a cell moves bytes without storage.
pub(crate) fn is_network(configuration: &Configuration) -> bool {
    text(configuration, key::BACKGROUND) == "network"
}

/// Whether the other end of cells of this transport is on another machine.
fn is_far(plan: &Plan, transport: &str, capabilities: &Capabilities) -> bool {
    let given = given_targets(plan, transport, capabilities).unwrap_or_default();
    let target = given.first().and_then(|index| capabilities.targets.get(*index));
    target.is_some_and(|target| target.elsewhere)
}

#[cfg(test)]
mod tests;
