//! A site: which machine is reached how, and which address it has on which link.
//!
//! Plans name links (`tcp@NAME`, `rdma@NAME`) by what they are, and a site says where they are, so
//! that one plan runs on any site.

pub mod end;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The link that every machine has: its own loopback interface.
pub const LOOPBACK: &str = "lo";

/// The machines and links of a site, as a file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The machine of the target.
    #[serde(default)]
    pub target: String,
    /// The machines of the loads.
    #[serde(default)]
    pub loads: Vec<String>,
    /// The path of weft on these machines, if their shells do not find it.
    #[serde(default)]
    pub program: String,
    /// The machines, by their names.
    pub machines: BTreeMap<String, SiteMachine>,
}

/// A machine of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteMachine {
    /// How it is reached: a place of agents.
    pub place: String,
    /// Its address on each link that it has.
    #[serde(default)]
    pub links: BTreeMap<String, IpAddr>,
    /// SPDK's programs there, if not where they are looked for.
    #[serde(default)]
    pub spdk: SpdkTools,
}

/// Where SPDK's programs are on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpdkTools {
    /// The JSON-RPC socket of its target, if not its default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub socket: String,
    /// `nvmf_tgt`, which is started where none runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nvmf_tgt: String,
    /// `spdk_nvme_perf`, if it is not in PATH.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub perf: String,
}

impl SpdkTools {
    /// Whether nothing is said of them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The ends of a link in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The address of the target's machine.
    pub target: IpAddr,
    /// Those of the loads' machines, in their order.
    pub loads: Vec<IpAddr>,
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let site: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            format!("{line}{}", error.message().trim())
        })?;
        site.check()?;
        Ok(site)
    }
}

impl Site {
    fn check(&self) -> Result<(), String> {
        for (name, machine) in &self.machines {
            if let Some(link) = machine.links.keys().find(|link| !is_link(link)) {
                return Err(format!(
                    "machines.{name}.links: {link:?} is not the name of a link, which has a-z, \
                     0-9, dots, dashes and underscores"
                ));
            }
            if machine.links.contains_key(LOOPBACK) {
                return Err(format!(
                    "machines.{name}.links: {LOOPBACK} is the loopback interface of every machine \
                     and needs no address"
                ));
            }
        }
        let roles = std::iter::once(&self.target).filter(|name| !name.is_empty());
        if let Some(name) = roles.chain(&self.loads).find(|name| !self.machines.contains_key(*name))
        {
            let known: Vec<&str> = self.machines.keys().map(String::as_str).collect();
            return Err(format!("there is no machine {name:?}; there are {}", known.join(", ")));
        }
        match self.target.is_empty() == self.loads.is_empty() {
            true => Ok(()),
            false => Err("target and loads belong together: name both, or neither; one machine \
                          may be both, and needs one entry"
                .to_owned()),
        }
    }

    /// A machine by its name, or else by its place.
    #[must_use]
    pub fn machine(&self, name_or_place: &str) -> Option<(&String, &SiteMachine)> {
        let named = self.machines.get_key_value(name_or_place);
        named.or_else(|| self.machines.iter().find(|(_, machine)| machine.place == name_or_place))
    }

    /// The links on which a target's machine and all machines of loads have an address. A machine
    /// that the site does not know has none.
    #[must_use]
    pub fn links(&self, target: &str, loads: &[&str]) -> BTreeMap<String, Link> {
        let links = |place: &str| self.machine(place).map(|(_, machine)| &machine.links);
        let mut found = BTreeMap::new();
        for (name, address) in links(target).into_iter().flatten() {
            let ends = loads.iter().map(|load| links(load)?.get(name).copied());
            if let Some(loads) = ends.collect::<Option<Vec<IpAddr>>>() {
                found.insert(name.clone(), Link { target: *address, loads });
            }
        }
        found
    }
}

/// Whether a word may name a link.
#[must_use]
pub fn is_link(name: &str) -> bool {
    let is_plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
    !name.is_empty() && name.len() <= 32 && name.chars().all(is_plain)
}

/// The protocol and the link of a transport that names one: `tcp@roce100`.
#[must_use]
pub fn named(transport: &str) -> Option<(&str, &str)> {
    transport.split_once('@')
}

/// The name of the link in a transport; empty if it names none.
#[must_use]
pub fn link_of(transport: &str) -> &str {
    named(transport).map_or("", |(_, link)| link)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = r#"
        target = "server"
        loads = ["one", "two"]
        [machines.server]
        place = "root@server"
        links = { eth1g = "192.0.2.1", roce100 = "198.51.100.1" }
        [machines.one]
        place = "one"
        links = { eth1g = "192.0.2.2", roce100 = "198.51.100.2" }
        [machines.two]
        place = "here"
        spdk = { socket = "/run/spdk.sock", nvmf_tgt = "/opt/spdk/nvmf_tgt" }
        links = { eth1g = "192.0.2.3" }
    "#;

    #[test]
    fn a_link_has_an_end_at_every_machine_of_a_run() {
        let site: Site = SITE.parse().expect("a site");
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let links = site.links("server", &["one", "two"]);
        let names: Vec<&str> = links.keys().map(String::as_str).collect();
        assert_eq!(names, ["eth1g"], "two has no address on the other");
        assert_eq!(site.machines["two"].spdk.socket, "/run/spdk.sock");
        assert!(site.machines["one"].spdk.is_empty());
        assert_eq!(links["eth1g"].loads, [address("192.0.2.2"), address("192.0.2.3")]);
        let links = site.links("root@server", &["one"]);
        assert_eq!(links["roce100"].target, address("198.51.100.1"), "a machine by its place");
        assert_eq!(links.len(), 2);
        assert!(site.links("server", &["elsewhere"]).is_empty());
    }

    #[test]
    fn one_machine_is_both_ends_with_one_entry() {
        let site: Site = "target = \"box\"\nloads = [\"box\"]\n[machines.box]\n\
                          place = \"here\"\nlinks = { eth = \"192.0.2.1\" }\n"
            .parse()
            .expect("a site");
        let links = site.links("box", &["box"]);
        let address: IpAddr = "192.0.2.1".parse().expect("an address");
        assert_eq!((links["eth"].target, &links["eth"].loads[..]), (address, &[address][..]));
        let half = "target = \"box\"\n[machines.box]\nplace = \"here\"\n".parse::<Site>();
        let error = half.expect_err("an end is missing");
        assert!(error.contains("one machine may be both, and needs one entry"), "{error}");
    }

    #[test]
    fn faults_of_a_site_are_told_in_a_sentence() {
        for (from, to, part) in [
            ("\"two\"]", "\"three\"]", "no machine \"three\"; there are one, server, two"),
            ("loads = [\"one\", \"two\"]", "", "target and loads belong together"),
            ("eth1g = \"192.0.2.3\"", "eth1g = \"192.0.2\"", "line 13: invalid IP"),
            ("eth1g = \"192.0.2.3\"", "\"Eth 1\" = \"192.0.2.3\"", "\"Eth 1\" is not the name"),
            ("eth1g = \"192.0.2.3\"", "lo = \"127.0.0.1\"", "loopback interface"),
            ("place = \"here\"", "placed = \"here\"", "unknown field `placed`"),
        ] {
            assert!(SITE.contains(from), "{from}");
            let error = SITE.replacen(from, to, 1).parse::<Site>().expect_err(to);
            assert!(error.contains(part), "{to}: {error}");
        }
    }

    #[test]
    fn a_transport_may_name_a_link() {
        assert_eq!(named("rdma@roce100"), Some(("rdma", "roce100")));
        assert_eq!((link_of("tcp@lo"), link_of("tcp-link")), ("lo", ""));
    }
}
