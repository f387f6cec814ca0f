//! Whether an address can be reached, and what answers there.

use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use weft_host::{DiscoveryLog, Error, Nqn, Options, Problem, Side, Transport, TransportId};
use weft_nvme::status::StatusCode;
use weft_target::steps::DISCOVERY_NQN;

use super::finding::{Finding, Severity};
use crate::connection::Connection;
use crate::failure::Failure;

/// How long it may take until it is known whether somebody listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What is found at an address: at each of its endpoints.
pub(super) fn findings(connection: &Connection) -> Result<Vec<Finding>, Failure> {
    let mut options = connection.options()?;
    options.ctrl_loss_tmo = Some(Duration::ZERO);
    let endpoints = options.address.endpoints().collect::<Vec<_>>();
    let mut found = Vec::new();
    for endpoint in endpoints {
        options.address = endpoint;
        found.push(at_endpoint(&options)?);
    }
    // What fails beside a path that works is one path less.
    if found.iter().any(|one: &Finding| one.severity < Severity::Fault) {
        for one in found.iter_mut().filter(|one| one.severity == Severity::Fault) {
            one.severity = Severity::Warning;
            one.why += "; another path of the address works";
        }
    }
    Ok(found)
}

fn at_endpoint(options: &Options) -> Result<Finding, Failure> {
    let address = options.address.clone();
    let Some(subsystem) = address.subnqn.filter(|_| !address.is_discovery()) else {
        return Ok(match weft_host::discover(options) {
            Ok(log) => Finding::ok(format!("{address} lists {}", names(&log))),
            Err(error) => unreachable(&error, options),
        });
    };
    let error = match weft_host::connect(options) {
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
    if let Some((why, remedy)) = refusal(&error, &subsystem, &options.hostnqn) {
        return Ok(Finding::new(Severity::Fault, error.to_string(), why, &remedy));
    }
    // The reason of the first is the one that counts, unless the address itself answers.
    let Ok(log) = weft_host::discover(options) else {
        return Ok(unreachable(&error, options));
    };
    let why = format!("this host is not shown that subsystem; it is shown {}", names(&log));
    let discovery = TransportId { subnqn: None, nsid: None, ..address };
    let remedy = format!("weft discover {discovery}; at the target: weft ctl subsystem list");
    Ok(Finding::new(Severity::Fault, error.to_string(), &why, &remedy))
}

/// Why a subsystem that is there does not take this host, and what to do about it.
fn refusal(error: &Error, subsystem: &Nqn, host: &Nqn) -> Option<(&'static str, String)> {
    let Error::Controller { problem, .. } = error else { return None };
    Some(match problem {
        Problem::Refused { status, .. } if status.code() == StatusCode::CONNECT_INVALID_HOST => (
            "the subsystem is there and does not take this host",
            format!("at the target: weft ctl host allow {subsystem} {host}"),
        ),
        Problem::AuthenticationRequired => (
            "the target has a key for this host, which it has to show",
            format!(
                "--dhchap-secret-file FILE, with the key that `weft ctl host list {subsystem}` \
                 names at the target for {host}"
            ),
        ),
        Problem::SecureChannelRequired => (
            "the target serves this host over TLS only",
            "--concat beside --dhchap-secret-file, or --tls --tls-key-file FILE".to_owned(),
        ),
        Problem::Authentication(_) => (
            "host and target do not have the same keys",
            format!(
                "weft key check FILE, here and at the target; there: weft ctl host set-keys \
                 {subsystem} {host} --dhchap-key NAME"
            ),
        ),
        _ => return None,
    })
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

fn unreachable(error: &Error, options: &Options) -> Finding {
    let port = options.address.port();
    let (why, remedy) = match error.side() {
        Side::Local => {
            ("this host cannot use it as it is given", "weft discover --help".to_owned())
        }
        _ if options.tls_key.is_none() && listens(&options.address) => (
            "somebody listens there, and ends this connection: a port that requires TLS does so",
            format!(
                "--tls --tls-key-file FILE, with the key that the target has for {} (there: weft \
                 ctl listener list, weft ctl host list); otherwise: ss -ltnp sport = :{port}, and \
                 the target's log",
                options.hostnqn
            ),
        ),
        Side::Io => (
            "no host can connect there",
            format!(
                "at the target: ss -ltn sport = :{port} (does it listen?), nft list ruleset (is \
                 the port open?); here: ip route get ADDRESS"
            ),
        ),
        _ => (
            "something answers there, and not as an NVMe target does",
            format!("at the target: ss -ltnp sport = :{port} (who listens?), its log"),
        ),
    };
    Finding::new(Severity::Fault, error.to_string(), why, &remedy)
}

/// Whether a socket listens at an address of TCP.
fn listens(address: &TransportId) -> bool {
    let at = (address.traddr.as_str(), address.port()).to_socket_addrs();
    let mut at = at.ok().into_iter().flatten().filter(|_| address.transport == Transport::Tcp);
    at.any(|at| TcpStream::connect_timeout(&at, CONNECT_TIMEOUT).is_ok())
}
