//! Whether an address can be reached, and what answers there.

use std::collections::BTreeSet;
use std::time::Duration;

use weft_host::{DiscoveryLog, Error, Side, TransportId};
use weft_target::steps::DISCOVERY_NQN;

use super::finding::{Finding, Severity};
use crate::connection::Connection;
use crate::failure::Failure;

/// What is found at an address.
pub(super) fn finding(connection: &Connection) -> Result<Finding, Failure> {
    let mut options = connection.options()?;
    options.ctrl_loss_tmo = Some(Duration::ZERO);
    let address = options.address.clone();
    let Some(subsystem) = address.subnqn.filter(|_| !address.is_discovery()) else {
        return Ok(match weft_host::discover(&options) {
            Ok(log) => Finding::ok(format!("{address} lists {}", names(&log))),
            Err(error) => unreachable(&error, address.port()),
        });
    };
    let error = match weft_host::connect(&options) {
        Ok(controller) => {
            let namespaces = controller.namespaces().len();
            controller.disconnect()?;
            let plural = if namespaces == 1 { "" } else { "s" };
            let what = format!("{address} answers, with {namespaces} namespace{plural}");
            return Ok(match namespaces {
                0 => Finding::new(
                    Severity::Warning,
                    what,
                    "this host sees none of them",
                    "weft ctl namespace list, and its visible-to",
                ),
                _ => Finding::ok(what),
            });
        }
        Err(error) => error,
    };
    // The reason of the first is the one that counts, unless the address itself answers.
    let Ok(log) = weft_host::discover(&options) else {
        return Ok(unreachable(&error, address.port()));
    };
    let is_listed = log
        .entries
        .iter()
        .any(|entry| entry.subsystem().is_ok_and(|listed| listed.as_str() == subsystem.as_str()));
    let (why, remedy) = if is_listed {
        let why = "the subsystem is there and does not take this host".to_owned();
        (why, format!("weft ctl host allow {subsystem} {}, or its keys", options.hostnqn))
    } else {
        let why = format!("this host is not shown that subsystem, but {}", names(&log));
        let discovery = TransportId { subnqn: None, nsid: None, ..address };
        (why, format!("weft discover {discovery}"))
    };
    Ok(Finding::new(Severity::Fault, error.to_string(), &why, &remedy))
}

/// The NVM subsystems of a log.
fn names(log: &DiscoveryLog) -> String {
    let listed = log.entries.iter().filter_map(|entry| Some(entry.subsystem().ok()?.to_string()));
    let names: BTreeSet<String> = listed.filter(|name| name != DISCOVERY_NQN).collect();
    if names.is_empty() {
        return "no subsystem".to_owned();
    }
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn unreachable(error: &Error, port: u16) -> Finding {
    let (why, remedy) = match error.side() {
        Side::Io => (
            "no host can connect there",
            format!(
                "at the target: ss -ltn sport = :{port} (does it listen?), nft list ruleset (is \
                 the port open?); here: ip route get ADDRESS"
            ),
        ),
        Side::Local => {
            ("this host cannot use it as it is given", "weft discover --help".to_owned())
        }
        _ => (
            "something answers there, and not as an NVMe target does",
            format!("at the target: ss -ltnp sport = :{port} (who listens?), its log"),
        ),
    };
    Finding::new(Severity::Fault, error.to_string(), why, &remedy)
}
