//! The knobs of the machines of a study.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use super::calls::{Order, SetKnobs};
use super::control;
use super::fleet::{Fleet, lock};
use super::line::Agent;
use crate::results::{KnobRecord, Value, key};
use crate::study::knob::{Applied, KNOBS, KnobValue, Knobs, is_of_interface};
use crate::study::plan::Plan;
use crate::study::site::{LOOPBACK, end, link_of};

impl Fleet {
    /// Checks before a study whether its knobs can be set: by root, and not on the link that
    /// carries control.
    ///
    /// # Errors
    /// One sentence that names machine and knob, and what helps.
    pub fn check_knobs(&self, plan: &Plan) -> Result<(), String> {
        let has = |knob: &&str| plan.values(knob).next().is_some();
        let knobs: Vec<&str> = KNOBS.iter().map(|(knob, _)| *knob).filter(has).collect();
        let Some(first) = knobs.first() else { return Ok(()) };
        let loads = self.loads();
        if let Some(agent) = loads.iter().chain([&self.target()]).find(|one| !one.description.root)
        {
            return Err(format!(
                "{}: {first} is set by root only: have the agent run as root there (root@HOST, or \
                 exec:sudo -n weft agent), or take {first} out of the plan",
                agent.place
            ));
        }
        let Some(knob) = knobs.into_iter().find(|knob| is_of_interface(knob)) else {
            return Ok(());
        };
        let control = self.control();
        for link in plan.values(key::TRANSPORT).filter_map(Value::as_text).map(link_of) {
            for (_, agent, at) in self.ends_of(link) {
                let ends = &agent.description.ends;
                let interface = |at: IpAddr| {
                    ends.iter().find(|end| end.address == at).map(|end| &end.interface)
                };
                let own = at.and_then(interface);
                if own.is_some() && control.iter().any(|at| interface(*at) == own) {
                    let own = own.map_or("", String::as_str);
                    return Err(format!("{}: {}", agent.place, carries_control(own, knob)));
                }
            }
        }
        Ok(())
    }

    /// What agents have put back that others before them had left changed.
    #[must_use]
    pub fn restored(&self) -> Vec<String> {
        let loads = self.loads();
        let all = std::iter::once(self.target()).chain(loads);
        all.flat_map(|agent| agent.restored()).collect()
    }

    /// The addresses over which agents are controlled.
    fn control(&self) -> Vec<IpAddr> {
        let loads = self.loads();
        let all = loads.iter().chain([&self.target()]).map(Arc::clone).collect::<Vec<_>>();
        all.iter().flat_map(|agent| agent.description.control.clone()).collect()
    }

    /// What runs at each end of a link, and the address there.
    fn ends_of(&self, link: &str) -> Vec<(&'static str, Arc<Agent>, Option<IpAddr>)> {
        let known = self.places.links.get(link);
        let lo = (link == LOOPBACK).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let target = ("target", self.target(), known.map(|link| link.target).or(lo));
        let loads = self.loads().into_iter().enumerate().map(|(number, load)| {
            let own = known.and_then(|link| link.loads.get(number).copied());
            ("load", load, own.or(lo))
        });
        std::iter::once(target).chain(loads).collect()
    }

    /// Gives all machines the knobs of a cell over a link.
    ///
    /// # Errors
    /// One sentence: a knob that does not exist there, or that the driver refuses.
    pub(in crate::study) fn set_knobs(
        &self,
        wishes: &[KnobValue],
        link: &str,
    ) -> Result<Vec<KnobRecord>, String> {
        // Machines without any are asked nothing.
        let has_knobs = std::mem::replace(&mut *lock(&self.has_knobs), !wishes.is_empty());
        if wishes.is_empty() && !has_knobs {
            return Ok(Vec::new());
        }
        let control = self.control();
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for (role, agent, at) in self.ends_of(link) {
            let order = Order { wishes: wishes.to_vec(), at, control: control.clone() };
            let applied = match agent.call::<SetKnobs>(&order) {
                Ok(applied) => applied,
                // The others put back what they have in any case.
                Err(why) if wishes.is_empty() => {
                    faults.push(why);
                    continue;
                }
                Err(why) => return Err(why),
            };
            all.extend(applied.into_iter().map(|Applied { knob, value, before }| KnobRecord {
                role: role.to_owned(),
                place: agent.place.clone(),
                knob,
                value,
                before,
            }));
        }
        if faults.is_empty() { Ok(all) } else { Err(faults.join("; ")) }
    }
}

impl Agent {
    /// What it has put back that others had left changed, in sentences.
    pub(super) fn restored(&self) -> Vec<String> {
        let said = self.description.restored.iter();
        said.map(|what| format!("{}: left by an earlier run: {what}", self.place)).collect()
    }
}

/// Follows an order on this machine.
pub(super) fn set(knobs: &mut Knobs, order: &Order) -> Result<Vec<Applied>, String> {
    let ends = end::ends();
    let end = |at: IpAddr| {
        let own = ends.iter().find(|end| end.address == at);
        own.ok_or_else(|| format!("it has no address {at} any more"))
    };
    let interface = order.at.map(end).transpose()?.map(|end| end.interface.as_str());
    let knob = order.wishes.iter().find(|wish| is_of_interface(&wish.knob));
    if let (Some(wish), Some(interface)) = (knob, interface) {
        let control = control::interfaces(Path::new("/sys"), &ends, &order.control);
        if control.contains(interface) {
            return Err(carries_control(interface, &wish.knob));
        }
    }
    knobs.arrange(&order.wishes, interface)
}

fn carries_control(interface: &str, knob: &str) -> String {
    format!(
        "{interface} carries control, so its {knob} is not changed: have the agent's place use \
         another of the machine's links"
    )
}
