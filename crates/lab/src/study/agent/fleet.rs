//! The agents of a study.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_host::{Transport, TransportId};
use weft_rpc::Client;
use weft_rpc::machine::Machine;

use super::calls::{
    Build, Count, Counters, DeviceRequest, EndedTarget, Listen, OpenLoad, Reach, StartTarget,
    StopTarget, TargetRequest, UseSpdk,
};
use super::line::{Agent, call_all};
pub use super::line::{Carrier, Streams};
use super::together::Elsewhere;
use crate::results::{AgentMachine, Connection, IdleRate};
use crate::study::capabilities::MissingSoftware;
use crate::study::capabilities::{Apart, Capabilities};
use crate::study::deployment::Load;
use crate::study::given::protocol_name;
use crate::study::inside::Settings;
use crate::study::launch::{Launcher, StartedTarget, TargetSpec};
use crate::study::load_device::LoadDevice;
use crate::study::side;
use crate::study::site::{Link, SpdkTools};

/// Makes the connection to an agent.
pub trait Connector: Send + Sync + fmt::Debug {
    /// Where the agent is, as it was given.
    fn place(&self) -> String;

    /// Starts it.
    ///
    /// # Errors
    /// Half a sentence that says why it cannot be started, and what helps.
    fn connect(&self) -> Result<Streams, String>;
}

/// Where the agents of a study are.
#[derive(Debug)]
pub struct Places {
    /// That of the target.
    pub target: Box<dyn Connector>,
    /// Those of the loads.
    pub loads: Vec<Box<dyn Connector>>,
    /// The address of the target's machine for the loads, if not the first that all of them reach.
    pub address: Option<IpAddr>,
    /// The links between them that have names.
    pub links: BTreeMap<String, Link>,
    /// Where SPDK's programs are, by places.
    pub spdk: BTreeMap<String, SpdkTools>,
    /// This build.
    pub build: Build,
}

/// The agents of a study.
#[derive(Debug)]
pub struct Fleet {
    pub(super) places: Places,
    /// The agents of the target and of the loads; one that is lost is started again.
    target: Mutex<Arc<Agent>>,
    loads: Mutex<Vec<Arc<Agent>>>,
    /// The address of the target's machine that all loads have reached.
    reached: Mutex<Option<IpAddr>>,
    /// Whether agents have been told to set knobs.
    pub(super) has_knobs: Mutex<bool>,
}

/// Counters of every machine, by its boot.
pub(in crate::study) type Readings = BTreeMap<String, Counters>;

impl Fleet {
    /// Starts all agents.
    ///
    /// # Errors
    /// One sentence that names the place without an agent of this build, and what helps.
    pub fn gather(places: Places) -> Result<Self, String> {
        let target = start(&*places.target, &places)?;
        let loads = places.loads.iter().map(|place| start(&**place, &places));
        let loads = loads.collect::<Result<Vec<_>, String>>()?;
        let (target, loads) = (Mutex::new(target), Mutex::new(loads));
        let (reached, has_knobs) = (Mutex::default(), Mutex::default());
        Ok(Self { places, target, loads, reached, has_knobs })
    }

    /// What is available for a study on these machines; `local` says whether it has a device that
    /// was given.
    #[must_use]
    pub fn capabilities(&self, local: bool) -> Capabilities {
        let loads = self.loads();
        let of = |agent: &Arc<Agent>| agent.description.cpus.clone();
        let mut load_cpus = loads.first().map(of).unwrap_or_default();
        load_cpus.retain(|cpu| loads.iter().all(|load| load.description.cpus.contains(cpu)));
        let one_machine = self.is_one_machine();
        let boots: BTreeSet<&str> =
            loads.iter().map(|load| load.description.boot_id.as_str()).collect();
        Capabilities {
            cpus: of(&self.target()),
            own_target: true,
            rdma: self.has_rdma(),
            lacks: self.lacks(),
            apart: Some(Apart {
                load_cpus,
                one_machine,
                loads: loads.len(),
                same_load_machine: boots.len() < loads.len(),
                local,
                links: self.links(),
            }),
            ..Capabilities::default()
        }
    }

    /// Why the target's machine, or one of the loads', lacks other software.
    fn lacks(&self) -> MissingSoftware {
        let mut host = BTreeMap::new();
        for load in self.loads() {
            let of =
                |(name, why): (&String, &String)| (name.clone(), format!("{}: {why}", load.place));
            host.extend(load.description.lacks.host.iter().map(of));
        }
        let agent = self.target();
        let of =
            |(name, why): (&String, &String)| (name.clone(), format!("{}: {why}", agent.place));
        let target = agent.description.lacks.target.iter().map(of).collect();
        MissingSoftware { target, host }
    }

    /// Whether all machines have an RDMA device.
    #[must_use]
    pub fn has_rdma(&self) -> bool {
        let loads = self.loads();
        loads.iter().chain([&self.target()]).all(|agent| agent.description.rdma)
    }

    /// The machines, for the results.
    #[must_use]
    pub fn machines(&self) -> Vec<AgentMachine> {
        let of = |role: &str, agent: &Arc<Agent>| {
            let about = &agent.description;
            AgentMachine {
                role: role.to_owned(),
                place: agent.place.clone(),
                boot_id: about.boot_id.clone(),
                cpus: about.cpus.clone(),
                machine: about.environment.machine.clone(),
                kernel: about.environment.kernel.clone(),
                processor: about.environment.processor.clone(),
                memory_bytes: about.environment.memory_bytes,
                hardware: about.environment.hardware.clone(),
                interfaces: about.environment.interfaces.clone(),
                sysctls: about.environment.sysctls.clone(),
                irq_time_accounting: about.environment.irq_time_accounting,
                notes: about.environment.notes.clone(),
            }
        };
        let loads = self.loads();
        let target = of("target", &self.target());
        std::iter::once(target).chain(loads.iter().map(|load| of("load", load))).collect()
    }

    pub(super) fn target(&self) -> Arc<Agent> {
        Arc::clone(&lock(&self.target))
    }

    pub(super) fn loads(&self) -> Vec<Arc<Agent>> {
        lock(&self.loads).clone()
    }

    /// Whether the target runs on the machine of one of the loads.
    pub(super) fn is_one_machine(&self) -> bool {
        let target = self.target();
        let here = |load: &Arc<Agent>| load.description.boot_id == target.description.boot_id;
        self.loads().iter().any(here)
    }

    /// Why an agent does not answer any more, if one does not.
    pub(in crate::study) fn lost(&self) -> Option<String> {
        let loads = self.loads();
        loads.iter().chain([&self.target()]).find_map(|agent| agent.lost())
    }

    /// Starts the agents again that do not answer any more.
    pub(in crate::study) fn mend(&self) -> Result<(), String> {
        let places = &self.places;
        if self.target().lost().is_some() {
            let agent = start(&*places.target, places)?;
            *lock(&self.target) = agent;
        }
        let mut loads = lock(&self.loads);
        for (agent, place) in loads.iter_mut().zip(&places.loads) {
            if agent.lost().is_some() {
                *agent = start(&**place, places)?;
            }
        }
        Ok(())
    }

    /// The counters of the loads' machines and of the target's.
    pub(in crate::study) fn readings(&self) -> Result<(Readings, Readings), String> {
        let read = |agents: &[Arc<Agent>]| {
            let mut readings = Readings::new();
            for agent in agents {
                let boot = &agent.description.boot_id;
                if !readings.contains_key(boot) {
                    readings.insert(boot.clone(), agent.call::<Count>(&())?);
                }
            }
            Ok::<_, String>(readings)
        };
        Ok((read(&self.loads())?, read(&[self.target()])?))
    }

    /// The device of a load on its machines, over a link if it has a name.
    pub(in crate::study) fn open(
        &self,
        addresses: &[TransportId],
        link: &str,
        nsid: u32,
        load: &Load,
    ) -> Result<LoadDevice, String> {
        let all = self.loads();
        let numbers = load.tenant.of(all.len());
        let agents: Vec<_> = all.get(numbers.clone()).unwrap_or_default().to_vec();
        let answers = call_all::<OpenLoad>(&agents, |index| {
            let number = numbers.start + index;
            Ok(DeviceRequest {
                addresses: addresses.iter().map(ToString::to_string).collect(),
                nsid,
                hosts: load.hosts,
                subsystems: load.subsystems,
                renamed: number > 0,
                from: self.connects_from(link, number)?,
                host: load.host.clone(),
                job: Settings::of(&load.job),
            })
        });
        let is_open =
            |(agent, answer): (Arc<Agent>, &Result<_, String>)| answer.is_ok().then_some(agent);
        let opened = agents.into_iter().zip(&answers).filter_map(is_open).collect();
        // If one is not open the others are closed with this value.
        let elsewhere = Elsewhere::new(opened);
        let answers = answers.into_iter().collect::<Result<Vec<_>, String>>()?;
        let device = answers.into_iter().next().ok_or("there is no machine for the load")?;
        let within = |ends: Connection| ends.within(self.is_one_machine());
        let connection = device.connection.map(|ends| self.over_link(link, within(ends)));
        let connection = connection.transpose()?;
        Ok(LoadDevice::elsewhere(elsewhere, device.name, device.identity, nsid, connection))
    }

    /// The address at which the target has to listen: the first that all loads reach.
    pub(super) fn route(&self) -> Result<IpAddr, String> {
        if let Some(address) = *lock(&self.reached) {
            return Ok(address);
        }
        let target = self.target();
        let all = match self.places.address {
            Some(address) => vec![address],
            None => target.description.addresses.clone(),
        };
        let mut faults = Vec::new();
        for address in all {
            let fault = match target.call::<Listen>(&(address,)) {
                Ok(listening) => {
                    let reach = |load: &Arc<Agent>| match load.call::<Reach>(&listening) {
                        Ok(None) => None,
                        Ok(Some(why)) => Some(format!("from {} {why}", load.place)),
                        Err(why) => Some(why),
                    };
                    self.loads().iter().find_map(reach)
                }
                Err(why) => Some(why),
            };
            match fault {
                None => {
                    *lock(&self.reached) = Some(address);
                    return Ok(address);
                }
                Some(fault) => faults.push(fault),
            }
        }
        Err(format!(
            "{}: no address of this machine is reached by all machines of the load ({}): open its \
             firewall for their TCP connections, or name an address with --target-address",
            target.place,
            faults.join("; ")
        ))
    }
}

fn start(place: &dyn Connector, places: &Places) -> Result<Arc<Agent>, String> {
    let name = place.place();
    let streams = place.connect().map_err(|why| format!("{name}: {why}"))?;
    let mut agent = Agent::greet(&name, streams, &places.build)?;
    if let Some(tools) = places.spdk.get(&name) {
        agent.description.lacks = agent.call::<UseSpdk>(tools)?;
    }
    Ok(Arc::new(agent))
}

/// What machines did between two readings, for each second.
pub(in crate::study) fn idle(before: &Readings, after: &Readings) -> Option<IdleRate> {
    let mut all: Option<IdleRate> = None;
    for (boot, after) in after {
        let Some(before) = before.get(boot) else { continue };
        let seconds = after.time.saturating_sub(before.time).as_secs_f64();
        let counted: Machine = after.machine.since(&before.machine);
        let Some(rate) = IdleRate::of(&side::machine(&counted), seconds) else { continue };
        all = Some(match all {
            None => rate,
            Some(sum) => IdleRate {
                seconds: sum.seconds.min(rate.seconds),
                processors: sum.processors + rate.processors,
                cpu_s: sum.cpu_s + rate.cpu_s,
                interrupts: sum.interrupts + rate.interrupts,
                network_softirqs: sum.network_softirqs + rate.network_softirqs,
            },
        });
    }
    all
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Sessions of ssh to one machine share the connection of the first, which waits for the
        // others.
        let mut loads = lock(&self.loads);
        while loads.pop().is_some() {}
    }
}

impl Launcher for Fleet {
    fn launch(
        &self,
        spec: &TargetSpec,
        listen: Option<IpAddr>,
    ) -> Result<Box<dyn StartedTarget>, String> {
        let agent = self.target();
        let listen = self.listens_at(&spec.link)?.or(listen);
        let listen = match spec.transport {
            Transport::Tcp => Some(listen.map_or_else(|| self.route(), Ok)?),
            // The agent knows the address of its device.
            Transport::Rdma | Transport::Loopback => listen,
        };
        let started = agent.call::<StartTarget>(&TargetRequest {
            devices: spec.devices.iter().map(ToString::to_string).collect(),
            subsystems: spec.subsystems,
            transport: protocol_name(spec.transport).to_owned(),
            cpus: spec.cpus.clone(),
            idle_poll: spec.idle_poll,
            express: spec.express,
            driver: spec.driver.name().to_owned(),
            software: spec.software,
            listen,
        })?;
        let (number, has_control) = (started.number, started.has_control);
        let read = |text: &String| {
            text.parse::<TransportId>().map_err(|error| format!("{}: {error}", agent.place))
        };
        let addresses = started.addresses.iter().map(read).collect::<Result<Vec<_>, String>>()?;
        let address = addresses.first().cloned();
        let address = address.ok_or_else(|| format!("{}: no subsystem", agent.place))?;
        let runs = true;
        Ok(Box::new(TargetElsewhere { agent, number, address, addresses, has_control, runs }))
    }
}

/// A target that an agent has started.
#[derive(Debug)]
struct TargetElsewhere {
    agent: Arc<Agent>,
    number: u64,
    address: TransportId,
    addresses: Vec<TransportId>,
    has_control: bool,
    runs: bool,
}

impl StartedTarget for TargetElsewhere {
    fn address(&self) -> &TransportId {
        &self.address
    }

    fn addresses(&self) -> Vec<TransportId> {
        self.addresses.clone()
    }

    fn has_control(&self) -> bool {
        self.has_control
    }

    fn control(&self) -> Result<Client, String> {
        Ok(self.agent.control(self.number))
    }

    fn machine(&self) -> Result<Option<(Duration, Machine)>, String> {
        let counters = self.agent.call::<Count>(&())?;
        Ok((!self.has_control).then_some((counters.time, counters.machine)))
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    fn ended(&mut self) -> Option<String> {
        // An agent that does not answer has taken its targets with it.
        self.agent.call::<EndedTarget>(&(self.number,)).unwrap_or_else(Some)
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        self.runs = false;
        self.agent.call::<StopTarget>(&(self.number,))
    }
}

impl Drop for TargetElsewhere {
    fn drop(&mut self) {
        if self.runs {
            // If the agent does not answer it has ended, and its targets with it.
            let _ = self.agent.call::<StopTarget>(&(self.number,));
        }
    }
}

pub(super) fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
