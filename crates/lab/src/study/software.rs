//! What host and target are: weft, the Linux kernel, or SPDK. Axes of a plan, with the settings
//! that each of them has.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    given::{protocol, protocol_name},
    matrix::{Capabilities, integer, text},
    plan::Plan,
};
use crate::results::{Configuration, Role, Value, key};

/// What a host or a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Software {
    /// This program.
    #[default]
    Weft,
    /// The kernel's: nvmet as a target, `nvme connect` and its block device as a host.
    Linux,
    /// SPDK's target.
    Spdk,
}

impl Software {
    /// Its name in plans and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weft => "weft",
            Self::Linux => "linux",
            Self::Spdk => "spdk",
        }
    }

    /// The one that a configuration has under this key.
    pub(super) fn of(configuration: &Configuration, key: &str) -> Self {
        text(configuration, key).parse().unwrap_or_default()
    }
}

impl fmt::Display for Software {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Software {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Weft, Self::Linux, Self::Spdk];
        let found = all.into_iter().find(|software| software.name() == text);
        found.ok_or_else(|| format!("{text:?}: expected weft, linux or spdk"))
    }
}

/// Why hosts and targets that are not weft cannot run here: by software and protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lacks {
    /// Of the target.
    pub target: BTreeMap<String, String>,
    /// Of the host.
    pub host: BTreeMap<String, String>,
}

/// Settings that only a target of this program has.
const OF_WEFTS_TARGET: [&str; 4] =
    [key::TARGET_EXPRESS, key::TARGET_IDLE_POLL_US, key::TARGET_CORES, key::PLACEMENT];

/// Settings that only the kernel's host has.
const OF_THE_KERNELS_HOST: [&str; 6] = [
    key::NR_POLL_QUEUES,
    key::NR_WRITE_QUEUES,
    key::TOS,
    key::KEEP_ALIVE_TMO,
    key::CTRL_LOSS_TMO,
    key::SCHEDULER,
];

/// How a host connects, with nvme-cli's names. What is none is the host's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HostSettings {
    pub(super) software: Software,
    pub(super) nr_io_queues: Option<u16>,
    pub(super) nr_write_queues: Option<u16>,
    pub(super) queue_size: Option<u16>,
    pub(super) tos: Option<u16>,
    pub(super) keep_alive_tmo: Option<u16>,
    pub(super) ctrl_loss_tmo: Option<u16>,
    pub(super) hdr_digest: bool,
    pub(super) data_digest: bool,
    pub(super) scheduler: Option<String>,
}

impl HostSettings {
    /// Those of a cell.
    pub(super) fn of(configuration: &Configuration) -> Self {
        let number = |key| integer(configuration, key).and_then(|n| u16::try_from(n).ok());
        let is_on = |key| text(configuration, key) == "on";
        let scheduler = configuration.get(key::SCHEDULER).and_then(Value::as_text);
        Self {
            software: Software::of(configuration, key::HOST_SOFTWARE),
            nr_io_queues: number(key::NR_IO_QUEUES),
            nr_write_queues: number(key::NR_WRITE_QUEUES),
            queue_size: number(key::QUEUE_SIZE),
            tos: number(key::TOS),
            keep_alive_tmo: number(key::KEEP_ALIVE_TMO),
            ctrl_loss_tmo: number(key::CTRL_LOSS_TMO),
            hdr_digest: is_on(key::HDR_DIGEST),
            data_digest: is_on(key::DATA_DIGEST),
            scheduler: scheduler.map(str::to_owned),
        }
    }
}

/// Takes the settings that this cell's host and target do not have out of its configuration, and
/// adds the one that the kernel's host always has.
pub(super) fn keep_applied(configuration: &mut Configuration) {
    if Software::of(configuration, key::TARGET_SOFTWARE) != Software::Weft {
        for key in OF_WEFTS_TARGET {
            configuration.remove(key);
        }
    }
    match Software::of(configuration, key::HOST_SOFTWARE) {
        Software::Weft => {
            for key in OF_THE_KERNELS_HOST {
                configuration.remove(key);
            }
        }
        Software::Linux | Software::Spdk => {
            let scheduler = configuration.entry(key::SCHEDULER.to_owned());
            scheduler.or_insert_with(|| Value::from("none"));
        }
    }
}

/// Why a plan cannot run with its hosts and targets: it varies a setting that one does not have.
pub(super) fn refusal(plan: &Plan) -> Option<String> {
    let has = |key: &str, software: Software| {
        let mut all = plan.values(key).peekable();
        // A plan without a word is weft's.
        let none = all.peek().is_none() && software == Software::Weft;
        none || all.any(|value| value.as_text() == Some(software.name()))
    };
    let varied =
        |keys: &[&'static str]| keys.iter().copied().find(|key| plan.axes.contains_key(*key));
    let refuse = |knob: &str, what: &str, other: &str| {
        Some(format!(
            "the plan varies {knob}, which {what} does not have: run it with {other} alone, or \
             take {knob} out of the plan's axes"
        ))
    };
    let others = [(Software::Linux, "the kernel's target"), (Software::Spdk, "SPDK's target")];
    for (software, what) in others {
        let has = has(key::TARGET_SOFTWARE, software);
        if let Some(knob) = varied(&OF_WEFTS_TARGET).filter(|_| has) {
            return refuse(knob, what, "--target-software weft");
        }
    }
    if let Some(knob) =
        varied(&OF_THE_KERNELS_HOST).filter(|_| has(key::HOST_SOFTWARE, Software::Weft))
    {
        return refuse(knob, "weft's host", "--host-software linux");
    }
    None
}

/// Why a cell whose host or target is not weft cannot run here.
pub(super) fn missing(
    role: Role,
    configuration: &Configuration,
    capabilities: &Capabilities,
    given: bool,
) -> Option<String> {
    let host = Software::of(configuration, key::HOST_SOFTWARE);
    let target = match given {
        true => Software::Weft,
        false => Software::of(configuration, key::TARGET_SOFTWARE),
    };
    let transport = text(configuration, key::TRANSPORT);
    if (host, target) == (Software::Weft, Software::Weft) || transport == "local" {
        return None;
    }
    let said = |what: &str| Some(what.to_owned());
    if transport == "loopback" {
        return said("over loopback host and target are weft");
    }
    let tenants = matches!(role, Role::Alone | Role::Foreground | Role::Background);
    if role == Role::Link || tenants || configuration.contains_key(key::SHARED) {
        return said(
            "needs weft as host and target: only its threads can be pinned and counted one by one",
        );
    }
    if host == Software::Linux && integer(configuration, key::HOSTS).is_some_and(|count| count > 1)
    {
        return said("the kernel's host is one host");
    }
    if integer(configuration, key::NR_POLL_QUEUES).is_some_and(|count| count > 0) {
        return said(
            "poll queues are used by rings with IORING_SETUP_IOPOLL, which the load generator does \
             not have",
        );
    }
    if !["", "off"].contains(&text(configuration, key::TLS)) {
        return said("needs weft as host and target: a study gives keys of TLS to no others");
    }
    let spoken = protocol_name(protocol(transport)?);
    let lack = |all: &BTreeMap<String, String>, software: Software| {
        all.get(&format!("{software} {spoken}")).cloned()
    };
    let device = match text(configuration, key::DEVICE) {
        "memory" | "null" if target == Software::Linux => {
            capabilities.lacks.target.get("linux null_blk").cloned()
        }
        _ => None,
    };
    lack(&capabilities.lacks.target, target)
        .or_else(|| lack(&capabilities.lacks.host, host))
        .or(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::matrix::expand;

    fn plan(rest: &str) -> Plan {
        let head = "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"What then?\"\n\
                    source = { document = \"weft\", figure = \"none\" }\n";
        format!("{head}{rest}").parse().expect("a plan")
    }

    const PAIRINGS: &str = "[axes]\nhost_software = [\"weft\", \"linux\"]\n\
                            target_software = [\"weft\", \"linux\"]\n[fixed]\n\
                            target_idle_poll_us = 20\ntos = 8\nnr_io_queues = 2\n";

    fn here() -> Capabilities {
        Capabilities { cpus: vec![0, 1], own_target: true, ..Capabilities::default() }
    }

    #[test]
    fn settings_that_a_side_does_not_have_are_not_in_its_records() {
        let matrix = expand(&plan(PAIRINGS), &here(), &Configuration::new());
        assert_eq!(matrix.len(), 4);
        for cell in matrix.steps().flat_map(|step| step.cells()) {
            let has = |key: &str| cell.configuration.contains_key(key);
            let host = Software::of(&cell.configuration, key::HOST_SOFTWARE);
            let target = Software::of(&cell.configuration, key::TARGET_SOFTWARE);
            assert_eq!(cell.missing, None, "{}", cell.id);
            for key in [key::TARGET_IDLE_POLL_US, key::TARGET_CORES] {
                assert_eq!(has(key), target == Software::Weft, "{key} of {}", cell.id);
            }
            for key in [key::TOS, key::SCHEDULER] {
                assert_eq!(has(key), host == Software::Linux, "{key} of {}", cell.id);
            }
            assert!(has(key::NR_IO_QUEUES), "both have it");
            let settings = HostSettings::of(&cell.configuration);
            assert_eq!((settings.software, settings.nr_io_queues), (host, Some(2)));
        }
    }

    #[test]
    fn a_plan_that_varies_what_a_side_does_not_have_is_refused() {
        let told = |rest: &str| refusal(&plan(rest)).unwrap_or_default();
        let axis = "[axes]\ntarget_idle_poll_us = [0, 20]\n";
        assert_eq!(told(axis), "");
        let why = told(&format!("{axis}[fixed]\ntarget_software = \"linux\"\n"));
        let expected =
            "the plan varies target_idle_poll_us, which the kernel's target does not have";
        assert!(why.starts_with(expected), "{why}");
        let why = told("[axes]\ntos = [0, 8]\n");
        assert!(why.contains("tos, which weft's host does not have"), "{why}");
        let both = "[axes]\ntos = [0, 8]\nhost_software = [\"weft\", \"linux\"]\n";
        assert!(!told(both).is_empty());
        assert_eq!(told("[axes]\ntos = [0, 8]\n[fixed]\nhost_software = \"linux\"\n"), "");
    }

    #[test]
    fn a_cell_that_cannot_run_here_says_why() {
        let mut here = here();
        let why = "the kernel has no module nvmet_tcp";
        here.lacks.target.insert("linux tcp".to_owned(), why.to_owned());
        let missing = |rest: &str, here: &Capabilities| {
            let matrix = expand(&plan(rest), here, &Configuration::new());
            let missing = matrix.steps().map(|step| step.missing().map(str::to_owned));
            missing.collect::<Vec<_>>()
        };
        let found = missing(PAIRINGS, &here);
        assert_eq!(found.iter().flatten().collect::<Vec<_>>(), [why, why]);
        let local = "[axes]\ntransport = [\"local\", \"loopback\"]\n[fixed]\n\
                     target_software = \"linux\"\n";
        let found = missing(local, &here);
        let over = Some("over loopback host and target are weft".to_owned());
        assert!(found.contains(&None) && found.contains(&over), "{found:?}");
        let polled = "[axes]\nnr_poll_queues = [0, 2]\n[fixed]\nhost_software = \"linux\"\n";
        let found = missing(polled, &here);
        assert!(found.contains(&None), "{found:?}");
        assert!(found.iter().flatten().any(|why| why.contains("IOPOLL")), "{found:?}");
        let shared = "kind = \"saturation\"\n[axes]\nshared = [\"target\"]\n[fixed]\n\
                      host_software = \"linux\"\n";
        let found = missing(shared, &here);
        assert!(found.iter().flatten().any(|why| why.contains("pinned")), "{found:?}");
    }
}
