//! What a step needs: targets, and loads with their processors.

use std::ops::Range;
use std::time::Duration;

use weft_backend::{BLOCK_BYTES_DEFAULT, DeviceSpec};
use weft_load::job::Think;
use weft_load::network::NetworkEnd;
use weft_load::pacer::Process;
use weft_load::{Job, Pattern, Polling, Rate};
use weft_reactor::DriverKind;

use super::capabilities::Capabilities;
use super::given::{given_targets, protocol};
use super::launch::{TargetSpec, Tls};
use super::matrix::{self, Cell, Step, is_network};
use super::plan::{Plan, Shared};
use super::roles::{self, Roles};
use super::site;
use super::software::{HostSettings, Software};
use crate::results::{Role, Value, key};
use crate::results::{integer, text};

/// Size of a memory or null device if a plan gives none: more than caches hold, and written within
/// a fraction of a second.
pub const DEVICE_BYTES: u64 = 256 << 20;

/// The device that a load drives.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A local device.
    Local(DeviceSpec),
    /// A namespace's device inside the target that is started here and holds it: local, too.
    Inside {
        /// Index of the target in [`Deployment::targets`].
        target: usize,
        /// The namespace.
        nsid: u32,
    },
    /// A namespace of a target that is started here.
    Own {
        /// Index of the target in [`Deployment::targets`].
        target: usize,
        /// The namespace.
        nsid: u32,
    },
    /// A namespace of a given target.
    Given {
        /// Index of the target.
        target: usize,
        /// Whether it serves two tenants; then this one uses the second namespace.
        beside: bool,
    },
    /// The bytes of reads over the link, without storage.
    Network(NetworkEnd),
}

impl Place {
    /// Whether it is reached through a target.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        !matches!(self, Self::Local(_) | Self::Inside { .. })
    }
}

/// Which of several machines drive a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenant {
    /// All of them.
    #[default]
    All,
    /// The first: the tenant that is looked at.
    First,
    /// The others: its neighbour.
    Others,
}

impl Tenant {
    /// The one that a cell of an interference study is.
    const fn of_role(role: Role) -> Self {
        match role {
            Role::Alone | Role::Foreground => Self::First,
            // The capacity is that of those who offer a share of it.
            Role::Background | Role::Saturation => Self::Others,
            _ => Self::All,
        }
    }

    /// Its machines, by their numbers.
    pub(super) fn of(self, machines: usize) -> Range<usize> {
        match self {
            Self::First if machines > 1 => 0..1,
            Self::Others if machines > 1 => 1..machines,
            _ => 0..machines,
        }
    }
}

/// The load of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its cell.
    pub cell: Cell,
    /// Its job.
    pub job: Job,
    /// Its device.
    pub place: Place,
    /// Hosts that drive it together.
    pub hosts: u32,
    /// Subsystems that each host is connected to.
    pub subsystems: u32,
    /// How they connect.
    pub(super) host: HostSettings,
    /// Which machines drive it.
    pub(super) tenant: Tenant,
}

impl Load {
    /// A load of one host and one subsystem.
    fn new(cell: Cell, job: Job, place: Place) -> Self {
        let host = HostSettings::of(&cell.configuration);
        Self { cell, job, place, hosts: 1, subsystems: 1, host, tenant: Tenant::All }
    }

    /// The same load from several hosts, each at several subsystems.
    fn spread(mut self, hosts: u32, subsystems: u32) -> Self {
        (self.hosts, self.subsystems) = (hosts, subsystems);
        self.job.copies *= hosts * subsystems;
        self
    }

    /// Makes it an open loop of so many requests a second on so many machines, if a rate is given.
    fn offer(&mut self, iops: Option<f64>, machines: usize) {
        // The rate of a job is that of each copy.
        let copies = f64::from(self.job.copies.max(1)) * machines.max(1) as f64;
        let process = process(&self.cell);
        self.job.rate = iops.map(|iops| Rate { iops: iops / copies, process }).or(self.job.rate);
    }
}

/// A number of a cell; 1 where it says none.
fn count_of(cell: &Cell, key: &str) -> u32 {
    let count = integer(&cell.configuration, key).and_then(|count| u32::try_from(count).ok());
    count.unwrap_or(1).max(1)
}

fn process(cell: &Cell) -> Process {
    match text(&cell.configuration, key::RATE_PROCESS) {
        "poisson" => Process::Poisson,
        _ => Process::Fixed,
    }
}

/// Everything that a step needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// Targets to be started.
    pub targets: Vec<TargetSpec>,
    /// The loads; the second one is the background.
    pub loads: Vec<Load>,
    /// Whether roles share processors although each should have its own.
    pub shared: bool,
}

/// What is the same for all steps.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// The study.
    pub plan: &'a Plan,
    /// What is available.
    pub capabilities: &'a Capabilities,
    /// A given device, in place of the plan's.
    pub local: Option<&'a DeviceSpec>,
    /// Seed of the load.
    pub seed: u64,
    /// The driver of all reactors.
    pub driver: DriverKind,
}

impl Planner<'_> {
    /// What a step needs. `offered` is the rate of a background, or of an open loop.
    ///
    /// # Errors
    /// What is missing or contradictory.
    pub fn deployment(&self, step: &Step, offered: Option<f64>) -> Result<Deployment, String> {
        match step {
            Step::Single(cell) => {
                let mut deployment = self.single(cell)?;
                for load in &mut deployment.loads {
                    load.tenant = self.tenant(load.cell.role);
                    load.offer(offered, self.machines(load));
                }
                Ok(deployment)
            }
            Step::Pair { foreground, background } => self.pair(foreground, background, offered),
        }
    }

    fn tenant(&self, role: Role) -> Tenant {
        self.plan.interference.as_ref().map_or(Tenant::All, |_| Tenant::of_role(role))
    }

    /// How many machines drive a load.
    fn machines(&self, load: &Load) -> usize {
        let all = self.capabilities.apart.as_ref().map_or(1, |apart| apart.loads);
        load.tenant.of(all).len()
    }

    fn single(&self, cell: &Cell) -> Result<Deployment, String> {
        let configuration = &cell.configuration;
        let transport = text(configuration, key::TRANSPORT);
        if transport == "local" {
            let roles =
                roles::plain(&self.capabilities.cpus, self.count(cell, key::HOST_CORES), None)?;
            let job = self.job(cell, &roles.host, roles.shared)?;
            let (targets, place) = self.local(cell)?;
            let loads = vec![Load::new(cell.clone(), job, place)];
            return Ok(Deployment { targets, loads, shared: roles.shared });
        }
        let given = given_targets(self.plan, transport, self.capabilities);
        let roles = self.roles(cell, given.is_some())?;
        let mut job = self.job(cell, &roles.host, roles.shared)?;
        let targets = self.targets(cell, &roles, given.is_some())?;
        if cell.role == Role::Saturation {
            // Every poll group and every processor of the host gets a queue.
            let queues = match self.shared(cell) {
                Some(Shared::Target) => 2,
                _ => roles.targets.first().map_or(1, |cpus| cpus.len().max(1)),
            };
            job.copies = job.copies.max(u32::try_from(queues).unwrap_or(1));
        }
        let place = match given {
            Some(given) => Place::Given { target: self.which(cell, &given)?, beside: false },
            None => Place::Own { target: 0, nsid: 1 },
        };
        let (hosts, subsystems) = (count_of(cell, key::HOSTS), count_of(cell, key::SUBSYSTEMS));
        let load = Load::new(cell.clone(), job, place).spread(hosts, subsystems);
        let loads = vec![load];
        Ok(Deployment { targets, loads, shared: roles.shared })
    }

    /// A local load's device: a file or block device is held by the target that serves it to the
    /// other loads, so it is driven inside such a target.
    fn local(&self, cell: &Cell) -> Result<(Vec<TargetSpec>, Place), String> {
        let starts = self.capabilities.own_target && self.capabilities.targets.is_empty();
        let elsewhere = self.capabilities.apart.is_some();
        if !starts || !elsewhere && !self.local.is_some_and(is_claimed) {
            return Ok((Vec::new(), Place::Local(self.local_device(cell)?.into_shared())));
        }
        let target = TargetSpec::holding(self.local_device(cell)?, self.driver);
        Ok((vec![target], Place::Inside { target: 0, nsid: 1 }))
    }

    fn pair(
        &self,
        foreground: &Cell,
        background: &Cell,
        offered: Option<f64>,
    ) -> Result<Deployment, String> {
        let transport = text(&foreground.configuration, key::TRANSPORT);
        let given = given_targets(self.plan, transport, self.capabilities);
        let roles = self.roles(foreground, given.is_some())?;
        let mut second = self.job(background, &roles.background, roles.shared)?;
        // With the same seed two loads would access the same blocks in the same order.
        second.seed ^= 0x6261_636b;
        let first = self.job(foreground, &roles.host, roles.shared)?;
        let targets = self.targets(foreground, &roles, given.is_some())?;
        let (one, other) = match &given {
            // Tenants have a target each, or a namespace each of a given target.
            Some(given) => {
                let target = self.which(foreground, given)?;
                let other = given.get(1).copied().unwrap_or(target);
                let beside = other == target;
                (Place::Given { target, beside: false }, Place::Given { target: other, beside })
            }
            None if roles.targets.len() > 1 => {
                (Place::Own { target: 0, nsid: 1 }, Place::Own { target: 1, nsid: 1 })
            }
            None => (Place::Own { target: 0, nsid: 1 }, Place::Own { target: 0, nsid: 2 }),
        };
        // Without storage the background's bytes come from where its target would be.
        let other = match targets.last().filter(|_| is_network(&background.configuration)) {
            Some(target) => Place::Network(NetworkEnd {
                cpu: target.cpus.first().copied(),
                idle_poll: target.idle_poll.ok_or("how long its end polls is not given")?,
                driver: target.driver,
            }),
            None => other,
        };
        let mut looked_at = Load::new(foreground.clone(), first, one);
        let mut beside = Load::new(background.clone(), second, other);
        looked_at.tenant = self.tenant(foreground.role);
        beside.tenant = self.tenant(background.role);
        beside.offer(offered, self.machines(&beside));
        let loads = vec![looked_at, beside];
        Ok(Deployment { targets, loads, shared: roles.shared })
    }

    /// Index of the given target of a cell, among those of its protocol.
    fn which(&self, cell: &Cell, given: &[usize]) -> Result<usize, String> {
        let name = text(&cell.configuration, key::TARGET);
        let is_it = |index: &&usize| {
            self.capabilities.targets.get(**index).is_some_and(|target| target.name == name)
        };
        let found = given.iter().find(is_it).or(given.first());
        found.copied().ok_or_else(|| "no given target speaks its protocol".to_owned())
    }

    /// The processors of each role.
    fn roles(&self, cell: &Cell, given: bool) -> Result<Roles, String> {
        let cpus = &self.capabilities.cpus;
        if let Some(load_cpus) = self.capabilities.load_cpus() {
            let tenants = matches!(cell.role, Role::Alone | Role::Foreground | Role::Background);
            if let Some(shared) = self.shared(cell).filter(|_| tenants) {
                let apart = self.capabilities.apart.as_ref();
                let together = apart.is_some_and(|apart| apart.same_load_machine);
                let loads = matrix::background_cores(self.plan, self.capabilities);
                return Ok(roles::tenants(shared, load_cpus, cpus, together, loads));
            }
            let (host, target) = match (cell.role, self.shared(cell)) {
                (Role::Saturation, Some(Shared::Host)) => (1, cpus.len().min(2)),
                (Role::Saturation, Some(Shared::Target)) => (load_cpus.len().min(2), 1),
                _ => (self.count(cell, key::HOST_CORES), self.count(cell, key::TARGET_CORES)),
            };
            return roles::apart(load_cpus, host, cpus, target);
        }
        let mut roles = match (cell.role, self.shared(cell)) {
            (Role::Saturation, Some(shared)) => roles::saturation(cpus, shared),
            (Role::Alone | Role::Foreground | Role::Background, Some(shared)) => {
                let loads = matrix::background_cores(self.plan, self.capabilities);
                roles::interference(cpus, shared, loads)
            }
            _ if text(&cell.configuration, key::PLACEMENT) == "same-core" => roles::same_core(cpus),
            _ => {
                let target = (!given).then(|| self.count(cell, key::TARGET_CORES));
                roles::plain(cpus, self.count(cell, key::HOST_CORES), target)?
            }
        };
        if given {
            roles.targets.clear();
        }
        Ok(roles)
    }

    fn shared(&self, cell: &Cell) -> Option<Shared> {
        let word = text(&cell.configuration, key::SHARED);
        let section = self.plan.interference.as_ref().map(|section| section.shared);
        section.or(match word {
            "host" => Some(Shared::Host),
            "target" => Some(Shared::Target),
            _ => None,
        })
    }

    /// The targets to be started; none if one was given.
    fn targets(&self, cell: &Cell, roles: &Roles, given: bool) -> Result<Vec<TargetSpec>, String> {
        if given {
            return Ok(Vec::new());
        }
        let mut device = self.device(cell)?;
        if roles.targets.len() > 1 {
            device = device.into_shared();
        }
        let named = text(&cell.configuration, key::TRANSPORT);
        let (transport, link) = (protocol(named), site::link_of(named));
        let transport = transport.ok_or("a local device has no target")?;
        let tenants = matches!(cell.role, Role::Alone | Role::Foreground | Role::Background);
        // Tenants of one target have a namespace each.
        let namespaces = if tenants && roles.targets.len() == 1 { 2 } else { 1 };
        let idle_poll = integer(&cell.configuration, key::TARGET_IDLE_POLL_US);
        let software = Software::of(&cell.configuration, key::TARGET_SOFTWARE);
        let express = match text(&cell.configuration, key::TARGET_EXPRESS) {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        let spec = |cpus: &Vec<usize>| TargetSpec {
            devices: (0..namespaces).map(|number| device.clone().numbered(number)).collect(),
            subsystems: count_of(cell, key::SUBSYSTEMS),
            transport,
            link: link.to_owned(),
            // The threads of others are not pinned here.
            cpus: if software == Software::Weft { cpus.clone() } else { Vec::new() },
            idle_poll: idle_poll.map(Duration::from_micros),
            express,
            driver: self.driver,
            tls: Tls::named(text(&cell.configuration, key::TLS)),
            software,
        };
        Ok(roles.targets.iter().map(spec).collect())
    }

    /// The device that is driven locally or served by a started target.
    fn device(&self, cell: &Cell) -> Result<DeviceSpec, String> {
        if let Some(local) = self.local {
            return Ok(local.clone());
        }
        let bytes = integer(&cell.configuration, key::DEVICE_BYTES).unwrap_or(DEVICE_BYTES);
        let block_bytes = self.block_bytes();
        match text(&cell.configuration, key::DEVICE) {
            "memory" => Ok(DeviceSpec::Memory { bytes, block_bytes }),
            "null" => Ok(DeviceSpec::Null { bytes, block_bytes }),
            other => other.parse().map_err(|error| format!("device {other}: {error}")),
        }
    }

    /// The device of a local cell, whose completions it may want to be polled.
    fn local_device(&self, cell: &Cell) -> Result<DeviceSpec, String> {
        let device = self.device(cell)?;
        match text(&cell.configuration, key::HIPRI) {
            "on" => device.into_polled(),
            _ => Ok(device),
        }
    }

    /// Blocks of 4 KiB, or of the smallest request of any cell if that is smaller.
    fn block_bytes(&self) -> u32 {
        let whole = u64::from(BLOCK_BYTES_DEFAULT);
        let small = self
            .plan
            .values(key::BLOCK_BYTES)
            .filter_map(Value::as_integer)
            .any(|bytes| !bytes.is_multiple_of(whole));
        if small { 512 } else { BLOCK_BYTES_DEFAULT }
    }

    fn count(&self, cell: &Cell, key: &str) -> usize {
        integer(&cell.configuration, key).and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
    }

    fn job(&self, cell: &Cell, cpus: &[usize], shared: bool) -> Result<Job, String> {
        let configuration = &cell.configuration;
        let number = |key: &str, otherwise: u32| {
            integer(configuration, key).and_then(|n| u32::try_from(n).ok()).unwrap_or(otherwise)
        };
        let pattern: Pattern =
            text(configuration, key::PATTERN).parse().map_err(|error| format!("{error}"))?;
        let polling = match text(configuration, key::HOST_POLLING) {
            // On a shared processor a polling thread starves the others.
            _ if shared && self.capabilities.cpus.len() < 2 => Polling::Sleep,
            "spin" => Polling::Spin,
            "sleep" => Polling::Sleep,
            _ => Job::default().polling,
        };
        let rate = configuration.get(key::RATE_IOPS).and_then(Value::as_number);
        let process = process(cell);
        let think = integer(configuration, key::THINKTIME_US).map(|pause| Think {
            time: Duration::from_micros(pause),
            blocks: number(key::THINKTIME_BLOCKS, 1),
        });
        Ok(Job {
            name: cell.id.clone(),
            pattern,
            read_percent: f64::from(number(key::READ_PERCENT, 70)),
            random_map: false,
            block_bytes: number(key::BLOCK_BYTES, 4096),
            depth: number(key::DEPTH, 1),
            copies: number(key::JOBS, 1),
            runtime: Some(self.plan.measure.runtime),
            time_based: true,
            ramp: self.plan.measure.ramp,
            rate: rate.map(|iops| Rate { iops, process }),
            think,
            cpus: cpus.to_vec(),
            seed: self.seed,
            polling,
            driver: self.driver,
            ..Job::default()
        })
    }
}

/// Whether a process that opens this device claims it.
fn is_claimed(device: &DeviceSpec) -> bool {
    match device {
        DeviceSpec::Memory { .. } | DeviceSpec::Null { .. } => false,
        DeviceSpec::File { .. } | DeviceSpec::Block { .. } => true,
        // Ceph keeps the writers of an image apart.
        DeviceSpec::Rbd(_) => false,
        DeviceSpec::Delay { inner, .. }
        | DeviceSpec::Fault { inner, .. }
        | DeviceSpec::Uncorrectable { inner, .. } => is_claimed(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Configuration;
    use crate::study::builtin;
    use crate::study::capabilities::KnownTarget;
    use weft_host::Transport;

    #[test]
    fn bursts_are_those_of_the_neighbour_alone() {
        let pause = Think { time: Duration::from_millis(9), blocks: 256 };
        let all = deployments("isolation", 4);
        let loads = || all.iter().flat_map(|(_, deployment)| &deployment.loads);
        for load in loads() {
            let is_neighbour = load.cell.role != Role::Foreground;
            let has_bursts = load.cell.configuration.get(key::NEIGHBOUR) == Some(&"bursts".into());
            let expected = (is_neighbour && has_bursts).then_some(pause);
            assert_eq!(load.job.think, expected, "{:?}", load.cell);
        }
        assert!(loads().any(|load| load.job.think.is_some()));
    }

    fn deployments(name: &str, cpus: usize) -> Vec<(Cell, Deployment)> {
        let plan = builtin::find(name).expect(name).plan().expect(name);
        let capabilities =
            Capabilities { cpus: (0..cpus).collect(), own_target: true, ..Capabilities::default() };
        let planner = Planner {
            plan: &plan,
            capabilities: &capabilities,
            local: None,
            seed: 7,
            driver: DriverKind::Auto,
        };
        let matrix = matrix::expand(&plan, &capabilities, &Configuration::new());
        matrix
            .steps()
            .filter(|step| step.missing().is_none())
            .map(|step| {
                let cell = step.cells().next().expect("a cell").clone();
                let deployment = planner.deployment(step, Some(1000.0)).expect("a deployment");
                (cell, deployment)
            })
            .collect()
    }

    #[test]
    fn every_runnable_cell_of_every_study_has_a_deployment() {
        for builtin in builtin::BUILTINS {
            for cpus in [1, 2, 3, 8] {
                for (cell, deployment) in deployments(builtin.name, cpus) {
                    for load in &deployment.loads {
                        let runtime = load.job.runtime.expect("a runtime");
                        assert!(!runtime.is_zero(), "{}", cell.id);
                        // As before there were these two: results stay comparable.
                        assert!(load.job.time_based && !load.job.random_map, "{}", cell.id);
                        if let Place::Own { target, nsid } = &load.place {
                            let spec = &deployment.targets[*target];
                            assert!(spec.devices.len() >= *nsid as usize, "{}", cell.id);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn small_requests_select_small_blocks() {
        let of = |name: &str| match &deployments(name, 2)[0].1.loads[0].place {
            Place::Local(device) => device.to_string(),
            place => panic!("{place:?}"),
        };
        assert_eq!(of("size-sweep"), "memory:256MiB,block=512");
        assert_eq!(of("overhead-l-app"), "memory:256MiB");
    }

    #[test]
    fn tenants_share_only_the_given_processor() {
        for (cell, deployment) in deployments("host-interference", 4) {
            if cell.role != Role::Foreground {
                continue;
            }
            assert_eq!(deployment.targets.len(), 2);
            assert_eq!(
                (&deployment.targets[0].cpus, &deployment.targets[1].cpus),
                (&vec![1], &vec![2])
            );
            assert_eq!(deployment.loads[0].job.cpus, deployment.loads[1].job.cpus);
            assert!(deployment.loads[1].job.rate.is_some_and(|rate| rate.iops == 1000.0));
            assert_ne!(deployment.loads[0].job.seed, deployment.loads[1].job.seed);
        }
        for (cell, deployment) in deployments("target-interference", 2) {
            assert_eq!(deployment.targets.len(), 1, "{}", cell.id);
            let namespaces = if cell.role == Role::Saturation { 1 } else { 2 };
            assert_eq!(deployment.targets[0].devices.len(), namespaces, "{}", cell.id);
            assert!(deployment.shared, "two processors are too few: {}", cell.id);
        }
    }

    #[test]
    fn a_background_loads_the_target_from_the_processors_that_saturated_it() {
        for (cpus, host, shared) in [(8, vec![2, 3], false), (3, vec![2], true), (2, vec![1], true)]
        {
            for (cell, deployment) in deployments("target-interference", cpus) {
                let of_the_load = &deployment.loads[deployment.loads.len() - 1];
                let said = integer(&of_the_load.cell.configuration, key::HOST_CORES);
                if cell.role != Role::Alone {
                    let job = &of_the_load.job;
                    assert_eq!(job.copies, 2, "{}", cell.id);
                    assert_eq!(said, u64::try_from(job.cpus.len()).ok(), "{}", cell.id);
                }
                if cell.role == Role::Foreground {
                    assert_eq!((&of_the_load.job.cpus, deployment.shared), (&host, shared));
                    assert_eq!(of_the_load.job.rate.expect("a rate").iops, 500.0, "of each copy");
                }
            }
        }
    }

    #[test]
    fn a_claimed_device_is_driven_inside_its_target() {
        let of = |device: &str, targets: Vec<KnownTarget>, study: &str| {
            let plan = builtin::find(study).expect(study).plan().expect(study);
            let cpus = (0..4).collect();
            let capabilities =
                Capabilities { cpus, own_target: true, targets, ..Capabilities::default() };
            let local: DeviceSpec = device.parse().expect(device);
            let planner = Planner {
                plan: &plan,
                capabilities: &capabilities,
                local: Some(&local),
                seed: 7,
                driver: DriverKind::Auto,
            };
            let matrix = matrix::expand(&plan, &capabilities, &Configuration::new());
            let steps = matrix.steps().filter(|step| step.missing().is_none());
            steps.map(|step| planner.deployment(step, Some(1.0)).expect("room")).collect::<Vec<_>>()
        };
        let is_local = |place: &Place| matches!(place, Place::Local(_) | Place::Inside { .. });
        let served = |all: &[Deployment]| -> Vec<String> {
            let targets = all.iter().flat_map(|deployment| &deployment.targets);
            let mut served: Vec<String> =
                targets.flat_map(|target| target.devices.iter().map(ToString::to_string)).collect();
            served.dedup();
            served
        };
        let all = of("file:/ssd", Vec::new(), "local-vs-remote");
        let local = all.iter().filter(|deployment| is_local(&deployment.loads[0].place));
        let local: Vec<&Deployment> = local.collect();
        assert_eq!(local.len(), 2);
        for deployment in local {
            assert_eq!(deployment.loads[0].place, Place::Inside { target: 0, nsid: 1 });
            assert_eq!(deployment.targets.len(), 1);
        }
        assert_eq!(served(&all), ["file:/ssd"], "claimed by whichever target runs");
        // Two targets at the same time cannot both claim it.
        let shared = served(&of("file:/ssd", Vec::new(), "host-interference"));
        assert!(shared.contains(&"file:/ssd,shared".to_owned()), "{shared:?}");
        // Where no target is started, and of memory, which each process has for itself.
        let given =
            KnownTarget { name: "there".to_owned(), transport: Transport::Tcp, elsewhere: true };
        for (device, targets) in [("file:/ssd", vec![given]), ("memory:1MiB", Vec::new())] {
            let all = of(device, targets, "local-vs-remote");
            let mut places = all.iter().map(|deployment| &deployment.loads[0].place);
            assert!(places.any(|place| matches!(place, Place::Local(_))), "{device}");
            assert!(!places.any(|place| matches!(place, Place::Inside { .. })), "{device}");
        }
    }

    #[test]
    fn without_storage_the_background_meets_its_targets_processor() {
        for (name, cpus) in [("host-interference", vec![1, 2]), ("target-interference", vec![0])] {
            let mut seen = 0;
            for (cell, deployment) in deployments(name, 4) {
                if cell.role != Role::Foreground || !is_network(&cell.configuration) {
                    continue;
                }
                seen += 1;
                let served: Vec<usize> =
                    deployment.targets.iter().flat_map(|target| target.cpus.clone()).collect();
                assert_eq!(served, cpus, "the targets are those of the study");
                let [foreground, background] = &deployment.loads[..] else { panic!("two loads") };
                assert_eq!(foreground.place, Place::Own { target: 0, nsid: 1 });
                let Place::Network(end) = &background.place else { panic!("{background:?}") };
                assert_eq!((end.cpu, end.idle_poll), (cpus.last().copied(), Duration::ZERO));
                assert!(background.job.rate.is_some(), "the rate of the background with storage");
            }
            assert!(seen > 0, "{name}");
        }
    }

    #[test]
    fn a_target_processor_is_loaded_by_two_loads() {
        let deployments = deployments("saturation", 8);
        let of = |word: &str| {
            let found = deployments
                .iter()
                .find(|(cell, _)| text(&cell.configuration, key::SHARED) == word)
                .expect(word);
            (&found.1.loads[0].job, &found.1.targets[0])
        };
        let (job, spec) = of("target");
        assert_eq!((job.copies, job.cpus.len(), spec.cpus.len()), (2, 2, 1));
        let (job, spec) = of("host");
        assert_eq!((job.copies, job.cpus.len(), spec.cpus.len()), (2, 1, 2));
    }
}
