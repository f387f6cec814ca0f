//! What host and target are: weft, the Linux kernel, or SPDK. Axes of a plan, with the settings
//! that each of them has.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_host::Transport;

use super::capabilities::Capabilities;
use super::given::{protocol, protocol_name};
use super::plan::Plan;
use crate::results::{Configuration, Role, Value, key};
use crate::results::{integer, text};

/// What a host or a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Software {
    /// This program.
    #[default]
    Weft,
    /// The kernel's: nvmet as a target, `nvme connect` and its block device as a host.
    Linux,
    /// SPDK's: `nvmf_tgt` as a target, its perf tool as a host.
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

/// What is not known of a study whose host or target is SPDK's; nothing of others.
pub(super) fn untried(plan: &Plan) -> Option<String> {
    let of_spdk = |key: &str| {
        let mut values = plan.values(key).filter_map(Value::as_text);
        values.any(|name| name == Software::Spdk.name())
    };
    (of_spdk(key::HOST_SOFTWARE) || of_spdk(key::TARGET_SOFTWARE)).then(|| {
        "weft was tried against what SPDK 26.09-pre is recorded to answer, and against what its \
         perf prints by its source, but never against SPDK itself"
            .to_owned()
    })
}

/// Settings that only a target of this program has.
const OF_WEFTS_TARGET: [&str; 3] = [key::TARGET_EXPRESS, key::TARGET_CORES, key::PLACEMENT];

/// Settings that only the kernel's host has, of those that reach a target.
const OF_THE_KERNELS_HOST: [&str; 6] = [
    key::NR_POLL_QUEUES,
    key::NR_WRITE_QUEUES,
    key::HIPRI,
    key::KEEP_ALIVE_TMO,
    key::CTRL_LOSS_TMO,
    key::SCHEDULER,
];

/// Settings of weft's and the kernel's host that SPDK's perf tool does not have.
const NOT_OF_SPDKS_HOST: [&str; 5] =
    [key::NR_IO_QUEUES, key::QUEUE_SIZE, key::TOS, key::SO_PRIORITY, key::HOST_POLLING];

/// Settings of a connection, which a local cell has none of.
pub(super) const OF_A_CONNECTION: [&str; 11] = [
    key::NR_IO_QUEUES,
    key::NR_WRITE_QUEUES,
    key::NR_POLL_QUEUES,
    key::QUEUE_SIZE,
    key::TOS,
    key::SO_PRIORITY,
    key::HDR_DIGEST,
    key::DATA_DIGEST,
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
    pub(super) nr_poll_queues: Option<u16>,
    pub(super) tos: Option<u8>,
    pub(super) so_priority: Option<u32>,
    /// Whether completions of its block device are polled.
    pub(super) hipri: bool,
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
            nr_poll_queues: number(key::NR_POLL_QUEUES),
            tos: integer(configuration, key::TOS).and_then(|tos| u8::try_from(tos).ok()),
            so_priority: integer(configuration, key::SO_PRIORITY)
                .and_then(|priority| u32::try_from(priority).ok()),
            hipri: is_on(key::HIPRI),
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
    let target = Software::of(configuration, key::TARGET_SOFTWARE);
    if target != Software::Weft {
        for key in OF_WEFTS_TARGET {
            configuration.remove(key);
        }
    }
    let is_tcp = protocol(text(configuration, key::TRANSPORT)) == Some(Transport::Tcp);
    if target == Software::Spdk || target == Software::Linux && !is_tcp {
        configuration.remove(key::TARGET_IDLE_POLL_US);
    }
    match Software::of(configuration, key::HOST_SOFTWARE) {
        Software::Weft => {
            for key in OF_THE_KERNELS_HOST {
                configuration.remove(key);
            }
        }
        Software::Spdk => {
            for key in OF_THE_KERNELS_HOST.iter().chain(&NOT_OF_SPDKS_HOST) {
                configuration.remove(*key);
            }
        }
        Software::Linux => {
            let scheduler = configuration.entry(key::SCHEDULER.to_owned());
            scheduler.or_insert_with(|| Value::from("none"));
            if integer(configuration, key::NR_POLL_QUEUES).is_some_and(|count| count > 0) {
                let hipri = configuration.entry(key::HIPRI.to_owned());
                hipri.or_insert_with(|| Value::from("on"));
            }
        }
    }
}

/// Why a plan cannot run with its hosts and targets: it varies a setting that one does not have.
#[must_use]
pub fn refusal(plan: &Plan) -> Option<String> {
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
        let polls = (software == Software::Spdk).then_some(key::TARGET_IDLE_POLL_US);
        let polls = polls.and_then(|key| varied(&[key]));
        if let Some(knob) = varied(&OF_WEFTS_TARGET).or(polls).filter(|_| has) {
            return refuse(knob, what, "--target-software weft");
        }
    }
    if let Some(knob) = varied(&OF_THE_KERNELS_HOST)
        // Local devices have it as well.
        .filter(|knob| *knob != key::HIPRI && has(key::HOST_SOFTWARE, Software::Weft))
    {
        return refuse(knob, "weft's host", "--host-software linux");
    }
    let all = OF_THE_KERNELS_HOST.iter().chain(&NOT_OF_SPDKS_HOST).copied().collect::<Vec<_>>();
    if let Some(knob) = varied(&all).filter(|_| has(key::HOST_SOFTWARE, Software::Spdk)) {
        return refuse(knob, "SPDK's host", "another --host-software");
    }
    None
}

/// Why a host cannot have the settings of a cell.
fn not_applied(host: Software, configuration: &Configuration) -> Option<String> {
    let spoken = protocol(text(configuration, key::TRANSPORT));
    let of_tcp: &[&str] = match host {
        Software::Weft => &[key::TOS, key::SO_PRIORITY],
        Software::Linux | Software::Spdk => &[key::SO_PRIORITY],
    };
    let has = |key: &&&str| configuration.contains_key(**key);
    if let Some(key) = of_tcp.iter().find(has).filter(|_| spoken != Some(Transport::Tcp)) {
        return Some(format!("{key} is of TCP's sockets"));
    }
    let number = |key: &str| integer(configuration, key);
    match (host, number(key::NR_IO_QUEUES), number(key::JOBS)) {
        (Software::Weft, Some(queues), Some(jobs)) if queues < jobs => Some(format!(
            "weft's host has an I/O queue for each job: nr_io_queues {queues} is less than \
             {jobs} jobs"
        )),
        _ => None,
    }
}

/// Why SPDK's perf tool cannot drive a cell.
fn not_of_perf(
    role: Role,
    configuration: &Configuration,
    capabilities: &Capabilities,
) -> Option<&'static str> {
    let number = |key: &str| integer(configuration, key).unwrap_or(1);
    let cores = number(key::HOST_CORES).min(number(key::JOBS)).max(1);
    let is_offered = [key::RATE_IOPS, key::LOAD_PERCENT];
    let loads = capabilities.apart.as_ref().map_or(1, |apart| apart.loads);
    let reasons = [
        (is_offered.iter().any(|key| configuration.contains_key(*key)), "SPDK's perf has no rate"),
        (configuration.contains_key(key::THINKTIME_US), "SPDK's perf has no pauses"),
        (role == Role::Saturation, "SPDK's perf does not say when it is full"),
        (
            !number(key::JOBS).is_multiple_of(cores),
            "SPDK's perf has as many queues on each processor: jobs are a multiple of them",
        ),
        (loads > 1, "SPDK's perf begins when it is ready, not with those of other machines"),
    ];
    reasons.into_iter().find_map(|(is_so, why)| is_so.then_some(why))
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
    let said = |what: &str| Some(what.to_owned());
    if let Some(why) = not_applied(host, configuration).filter(|_| transport != "local") {
        return Some(why);
    }
    if (host, target) == (Software::Weft, Software::Weft) || transport == "local" {
        return None;
    }
    if transport == "loopback" {
        return said("over loopback host and target are weft");
    }
    let tenants = matches!(role, Role::Alone | Role::Foreground | Role::Background);
    if role == Role::Link || tenants || configuration.contains_key(key::SHARED) {
        return said(
            "needs weft as host and target: only its threads can be pinned and counted one by one",
        );
    }
    if host != Software::Weft && integer(configuration, key::HOSTS).is_some_and(|count| count > 1) {
        return said("a host that is not weft is one host on each machine");
    }
    if let Some(why) = not_of_perf(role, configuration, capabilities)
        && host == Software::Spdk
    {
        return said(why);
    }
    let polls = integer(configuration, key::NR_POLL_QUEUES).is_some_and(|count| count > 0);
    if text(configuration, key::HIPRI) == "on" && !polls {
        return said("hipri polls queues, of which the kernel's host has none: nr_poll_queues");
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
            assert_eq!(has(key::TARGET_CORES), target == Software::Weft, "{}", cell.id);
            assert!(has(key::TARGET_IDLE_POLL_US), "both have it");
            assert_eq!(has(key::SCHEDULER), host == Software::Linux, "{}", cell.id);
            assert!(has(key::NR_IO_QUEUES) && has(key::TOS), "both have them");
            let settings = HostSettings::of(&cell.configuration);
            assert_eq!((settings.software, settings.nr_io_queues), (host, Some(2)));
        }
    }

    #[test]
    fn a_plan_that_varies_what_a_side_does_not_have_is_refused() {
        let told = |rest: &str| refusal(&plan(rest)).unwrap_or_default();
        let axis = "[axes]\ntarget_cores = [1, 2]\n";
        assert_eq!(told(axis), "");
        let why = told(&format!("{axis}[fixed]\ntarget_software = \"linux\"\n"));
        let expected = "the plan varies target_cores, which the kernel's target does not have";
        assert!(why.starts_with(expected), "{why}");
        let axis = "[axes]\nnr_write_queues = [1, 2]\n";
        let why = told(axis);
        assert!(why.contains("nr_write_queues, which weft's host does not have"), "{why}");
        assert!(!told(&format!("{axis}host_software = [\"weft\", \"linux\"]\n")).is_empty());
        assert_eq!(told(&format!("{axis}[fixed]\nhost_software = \"linux\"\n")), "");
        assert_eq!(told("[axes]\ntos = [0, 8]\nnr_io_queues = [1, 2]\n"), "", "both have them");
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
        assert_eq!(missing(polled, &here), [None, None]);
        let found = missing(&format!("{polled}hipri = \"on\"\n"), &here);
        assert!(found[0].as_ref().is_some_and(|why| why.contains("has none")), "{found:?}");
        let few = "[axes]\njobs = [1, 4]\n[fixed]\nnr_io_queues = 2\n";
        let found = missing(few, &here);
        assert!(found[0].is_none(), "{found:?}");
        let why = "weft's host has an I/O queue for each job: nr_io_queues 2 is less than 4 jobs";
        assert_eq!(found[1].as_deref(), Some(why));
        let marked = "[axes]\ntransport = [\"local\", \"tcp\", \"loopback\"]\n[fixed]\n\
                      tos = 8\n";
        let found = missing(marked, &here);
        let why = Some("tos is of TCP's sockets".to_owned());
        assert_eq!(found, [None, None, why], "{found:?}");
        let plan = plan("[axes]\ntransport = [\"local\"]\n[fixed]\ntos = 8\nnr_io_queues = 2\n");
        let matrix = expand(&plan, &here, &Configuration::new());
        let mut cells = matrix.steps().flat_map(|step| step.cells());
        assert!(cells.all(|cell| !cell.configuration.contains_key(key::TOS)));
        let shared = "kind = \"saturation\"\n[axes]\nshared = [\"target\"]\n[fixed]\n\
                      host_software = \"linux\"\n";
        let found = missing(shared, &here);
        assert!(found.iter().flatten().any(|why| why.contains("pinned")), "{found:?}");
    }
}
