//! The links of a site between the machines of a run.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::fleet::Fleet;
use super::line::Agent;
use crate::results::{Connection, Value, key};
use crate::study::plan::Plan;
use crate::study::site::end::End;
use crate::study::site::{LOOPBACK, Link, link_of};

impl Fleet {
    /// The links between all machines, and whether each has an RDMA device at every end.
    pub(super) fn links(&self) -> BTreeMap<String, bool> {
        let (target, loads) = (self.target(), self.loads());
        let has_rdma =
            |agent: &Agent, at: IpAddr| end_of(agent, at).is_some_and(|end| end.rdma.is_some());
        let of = |(name, link): (&String, &Link)| {
            let mut ends = loads.iter().zip(&link.loads);
            let all = has_rdma(&target, link.target) && ends.all(|(load, at)| has_rdma(load, *at));
            (name.clone(), all)
        };
        let mut links: BTreeMap<String, bool> = self.places.links.iter().map(of).collect();
        if loads.iter().all(|load| load.place == target.place) {
            links.insert(LOOPBACK.to_owned(), false);
        }
        links
    }

    /// Checks the links that a plan names: each machine has its address, and all of a link are in
    /// one network.
    ///
    /// # Errors
    /// One sentence that names link and machine.
    pub fn check_links(&self, plan: &Plan) -> Result<(), String> {
        let axes = plan.axes.get(key::TRANSPORT).into_iter().flatten();
        let named = axes.chain(plan.fixed(key::TRANSPORT)).filter_map(Value::as_text).map(link_of);
        named.filter(|name| !name.is_empty()).try_for_each(|name| self.check_link(name))
    }

    fn check_link(&self, name: &str) -> Result<(), String> {
        let Some(link) = self.places.links.get(name) else { return Ok(()) };
        let target = self.target();
        let near = own_end(&target, name, link.target)?;
        for (load, address) in self.loads().iter().zip(&link.loads) {
            let far = own_end(load, name, *address)?;
            if !near.reaches(*address) || !far.reaches(link.target) {
                let network = |end: &End| format!("{}/{}", end.address, end.prefix);
                return Err(format!(
                    "the link {name} has its ends in two networks, {} at {} and {} at {}: put \
                     right the addresses there, or in the site file",
                    network(near),
                    target.place,
                    network(far),
                    load.place
                ));
            }
        }
        Ok(())
    }

    /// The address at which a target listens for a link.
    pub(super) fn listens_at(&self, link: &str) -> Result<Option<IpAddr>, String> {
        match link {
            "" => Ok(None),
            LOOPBACK => Ok(Some(IpAddr::V4(Ipv4Addr::LOCALHOST))),
            name => Ok(Some(self.link(name)?.target)),
        }
    }

    /// The address from which a load connects over a link.
    pub(super) fn connects_from(&self, link: &str, load: usize) -> Result<Option<IpAddr>, String> {
        match link {
            "" | LOOPBACK => Ok(None),
            name => Ok(self.link(name)?.loads.get(load).copied()),
        }
    }

    fn link(&self, name: &str) -> Result<&Link, String> {
        self.places.links.get(name).ok_or_else(|| format!("the site has no link {name}"))
    }

    /// A connection with the name of its link, between whose ends it has to be.
    pub(super) fn over_link(
        &self,
        link: &str,
        connection: Connection,
    ) -> Result<Connection, String> {
        let named = Connection { link: link.to_owned(), ..connection };
        let Some(known) = self.places.links.get(link) else { return Ok(named) };
        let (host, target) = (named.host.ip(), named.target.ip());
        match known.target == target && known.loads.first() == Some(&host) {
            true => Ok(named),
            false => Err(format!("the connection from {host} to {target} is not on {link}")),
        }
    }
}

fn end_of(agent: &Agent, address: IpAddr) -> Option<&End> {
    agent.description.ends.iter().find(|end| end.address == address)
}

/// The end of a link at a machine.
fn own_end<'a>(agent: &'a Agent, link: &str, address: IpAddr) -> Result<&'a End, String> {
    end_of(agent, address).ok_or_else(|| {
        let known = agent.description.ends.iter().filter(|end| !end.address.is_loopback());
        let known: Vec<String> = known.map(|end| end.address.to_string()).collect();
        format!(
            "{}: it has no address {address}, which the site file gives it on the link {link}; it \
             has {}",
            agent.place,
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        )
    })
}
