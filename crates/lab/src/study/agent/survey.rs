//! What a site is: its machines, the ends of its links, and what each link carries.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::Streams;
use super::calls::{Build, Offloads, ProbeListen, ProbeRun};
use super::line::Agent;
use super::probe::{Probe, Way};
use crate::study::site::end::End;
use crate::study::site::{Site, SiteMachine};

/// How long each probe takes.
const PROBE: Duration = Duration::from_millis(300);

/// A stream carries at least this share of a link's speed if nothing is wrong with it.
const SPEED_SHARE: f64 = 0.7;

/// What passes through an interface is at least this share of what a stream has carried.
const THROUGH_SHARE: f64 = 0.8;

/// The machines of a site, by their agents.
#[derive(Debug)]
pub struct Survey {
    site: Site,
    agents: BTreeMap<String, Result<Arc<Agent>, String>>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The machines.
    pub machines: Vec<FoundMachine>,
    /// The ends of links.
    pub ends: Vec<FoundEnd>,
    /// Ways between two ends, in each direction.
    pub ways: Vec<FoundWay>,
    /// What has to be looked at, in sentences.
    pub remarks: Vec<String>,
}

/// A machine that was found, or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FoundMachine {
    /// Its name in the site file.
    pub name: String,
    /// Where it is.
    pub place: String,
    /// Why it has no agent; empty if it has.
    pub fault: String,
    /// Its own name, kernel and processors.
    pub machine: String,
    /// Its kernel.
    pub kernel: String,
    /// The model of its processors.
    pub processor: String,
    /// How many it may use.
    pub cpus: usize,
    /// The frequency governor; empty if there is none.
    pub governor: String,
    /// Whether the agent may change the machine.
    pub root: bool,
    /// The kernel's identifier of its boot: places with the same are one machine.
    pub boot_id: String,
}

/// An end of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundEnd {
    /// The link.
    pub link: String,
    /// The machine.
    pub machine: String,
    /// Its address, as the site file has it.
    pub address: IpAddr,
    /// Its interface; none if the machine does not have the address.
    pub end: Option<End>,
    /// Offloads and interrupt moderation, as ethtool prints them; empty without ethtool.
    pub ethtool: BTreeMap<String, String>,
}

/// A way from one end to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FoundWay {
    /// The link.
    pub link: String,
    /// The machine that sends.
    pub from: String,
    /// The machine that receives.
    pub to: String,
    /// Why it was not measured; empty if it was.
    pub fault: String,
    /// The mean of round trips of 64 bytes, and the shortest: ns.
    pub round_trip_ns: f64,
    /// The shortest round trip.
    pub round_trip_min_ns: u64,
    /// What one TCP connection carries.
    pub bytes_per_s: f64,
    /// How much of that the receiving interface has counted.
    pub through_interface: f64,
}

impl Survey {
    /// Starts an agent on each machine that lets it.
    pub fn gather(
        site: Site,
        connect: &dyn Fn(&SiteMachine) -> Result<Streams, String>,
        build: &Build,
    ) -> Self {
        let start = |machine: &SiteMachine| {
            let place = &machine.place;
            let streams = connect(machine).map_err(|why| format!("{place}: {why}"))?;
            Agent::greet(place, streams, build).map(Arc::new)
        };
        let agents = site.machines.iter().map(|(name, machine)| (name.clone(), start(machine)));
        Self { agents: agents.collect(), site }
    }

    /// What agents have put back that others before them had left changed, and which machines have
    /// no agent, in sentences.
    #[must_use]
    pub fn restored(&self) -> (Vec<String>, Vec<String>) {
        let reached = self.agents.values().filter_map(|agent| agent.as_ref().ok());
        let unreached = self.agents.values().filter_map(|agent| agent.as_ref().err().cloned());
        (reached.flat_map(|agent| agent.restored()).collect(), unreached.collect())
    }

    /// Describes machines and ends, and probes each way. `tell` is told what is done.
    pub fn check(&self, tell: &mut dyn FnMut(&str)) -> Findings {
        let machine = |(name, agent): (&String, &Result<Arc<Agent>, String>)| {
            let place = self.site.machines.get(name).map(|known| known.place.clone());
            let found = FoundMachine {
                name: name.clone(),
                place: place.unwrap_or_default(),
                ..FoundMachine::default()
            };
            let agent = match agent {
                Ok(agent) => agent,
                Err(why) => return FoundMachine { fault: why.clone(), ..found },
            };
            let about = &agent.description;
            FoundMachine {
                machine: about.environment.machine.clone(),
                kernel: about.environment.kernel.clone(),
                processor: about.environment.processor.model.clone(),
                cpus: about.cpus.len(),
                governor: about.environment.processor.governor.clone(),
                root: about.root,
                boot_id: about.boot_id.clone(),
                ..found
            }
        };
        let mut findings = Findings {
            machines: self.agents.iter().map(machine).collect(),
            ends: self.ends(),
            ..Findings::default()
        };
        for one in &findings.ends {
            for other in &findings.ends {
                if one.link == other.link && one.machine != other.machine {
                    tell(&format!("{}: from {} to {}", one.link, one.machine, other.machine));
                    findings.ways.extend(self.way(one, other));
                }
            }
        }
        findings.remarks = remarks(&findings);
        findings
    }

    fn agent(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.get(name)?.as_ref().ok()
    }

    fn ends(&self) -> Vec<FoundEnd> {
        let mut all = Vec::new();
        for (name, machine) in &self.site.machines {
            let Some(agent) = self.agent(name) else { continue };
            for (link, address) in &machine.links {
                let known = agent.description.ends.iter().find(|end| end.address == *address);
                let ethtool = known.map(|end| agent.call::<Offloads>(&(end.interface.clone(),)));
                all.push(FoundEnd {
                    link: link.clone(),
                    machine: name.clone(),
                    address: *address,
                    end: known.cloned(),
                    // Without ethtool nothing is known, which is said once.
                    ethtool: ethtool.and_then(Result::ok).unwrap_or_default(),
                });
            }
        }
        all.sort_by(|one, other| (&one.link, &one.machine).cmp(&(&other.link, &other.machine)));
        all
    }

    /// What is found from one end to another; none if one of them has no address.
    fn way(&self, from: &FoundEnd, to: &FoundEnd) -> Option<FoundWay> {
        let (sender, receiver) = (self.agent(&from.machine)?, self.agent(&to.machine)?);
        let (near, far) = (from.end.as_ref()?, to.end.as_ref()?);
        let found = FoundWay {
            link: from.link.clone(),
            from: from.machine.clone(),
            to: to.machine.clone(),
            ..FoundWay::default()
        };
        if !near.reaches(far.address) || !far.reaches(near.address) {
            let fault = format!(
                "{}/{} and {}/{} are in two networks",
                near.address, near.prefix, far.address, far.prefix
            );
            return Some(FoundWay { fault, ..found });
        }
        let probe = |probe: Probe| {
            let at = sender.call::<ProbeListen>(&(probe, from.address))?;
            let interface = far.interface.clone();
            receiver.call::<ProbeRun>(&Way {
                probe,
                from: to.address,
                interface,
                to: at,
                runtime: PROBE,
            })
        };
        let both = probe(Probe::RoundTrip).and_then(|ping| Ok((ping, probe(Probe::Stream)?)));
        Some(match both {
            Ok((ping, stream)) => FoundWay {
                round_trip_ns: ping.round_trip.sum_ns as f64 / ping.round_trip.count.max(1) as f64,
                round_trip_min_ns: ping.round_trip.min_ns,
                bytes_per_s: stream.bytes_per_s,
                through_interface: stream.through_interface,
                ..found
            },
            Err(fault) => FoundWay { fault, ..found },
        })
    }
}

/// What has to be looked at, in sentences.
fn remarks(findings: &Findings) -> Vec<String> {
    let mut said = Vec::new();
    for machine in &findings.machines {
        let FoundMachine { name, governor, fault, .. } = machine;
        if !fault.is_empty() {
            said.push(format!("{name} has no agent: {fault}"));
            continue;
        }
        if !machine.root {
            said.push(format!("{name}: without root no knob can be set there"));
        }
        if !governor.is_empty() && governor != "performance" {
            said.push(format!("{name}: its frequency governor is {governor}, not performance"));
        }
    }
    for found in &findings.ends {
        said.extend(remarks_of_end(found, findings));
    }
    for way in &findings.ways {
        let FoundWay { link, from, to, fault, .. } = way;
        if !fault.is_empty() {
            said.push(format!("{link}: {from} to {to} does not work: {fault}"));
            continue;
        }
        if way.through_interface < way.bytes_per_s * THROUGH_SHARE {
            said.push(format!(
                "{link}: {from} to {to} went over another interface than that of the address at \
                 {to}: two of one network need rules for routing, or networks of their own"
            ));
        }
        let speed = findings.ends.iter().filter(|end| end.link == *link);
        let speed = speed.filter(|end| [from, to].contains(&&end.machine));
        let speed = speed.filter_map(|end| end.end.as_ref()?.speed_mbit_per_s).min();
        let share = speed.map(|speed| way.bytes_per_s * 8.0 / (speed as f64 * 1e6));
        if let (Some(share), Some(speed)) = (share.filter(|share| *share < SPEED_SHARE), speed) {
            said.push(format!(
                "{link}: one connection from {from} to {to} carries {:.0} % of {speed} Mb/s; \
                 compare MTU, offloads, processors and the other direction",
                share * 100.0
            ));
        }
    }
    said
}

fn remarks_of_end(found: &FoundEnd, findings: &Findings) -> Vec<String> {
    let FoundEnd { link, machine, address, .. } = found;
    let Some(end) = &found.end else {
        return vec![format!("{link}: {machine} does not have the address {address}")];
    };
    let mut said = Vec::new();
    let name = &end.interface;
    if !end.carrier {
        said.push(format!("{link}: {name} of {machine} has no carrier"));
    }
    let others = findings.ends.iter().filter(|other| other.link == *link);
    let others = others.filter_map(|other| Some((&other.machine, other.end.as_ref()?)));
    for (other, far) in others.filter(|(other, _)| *other > machine) {
        if far.mtu != end.mtu {
            said.push(format!(
                "{link}: the MTU is {} at {machine} and {} at {other}: the smaller one holds",
                end.mtu, far.mtu
            ));
        }
        if far.speed_mbit_per_s != end.speed_mbit_per_s {
            said.push(format!("{link}: {machine} and {other} have different speeds"));
        }
        if far.rdma.is_some() != end.rdma.is_some() {
            said.push(format!("{link}: only one of {machine} and {other} has an RDMA device"));
        }
    }
    if let Some(rdma) = &end.rdma
        && rdma.link_layer == "Ethernet"
        && rdma.gid_kind != "RoCE v2"
    {
        said.push(format!("{link}: {} of {machine} has no GID of RoCE v2", rdma.device));
    }
    if found.ethtool.is_empty() && !end.address.is_loopback() {
        said.push(format!("{link}: the offloads of {machine} are not known: install ethtool"));
    }
    said
}

#[cfg(test)]
mod tests;
