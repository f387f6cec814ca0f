//! TLS of ports: which key a host's identity has, and that a host is who its identity says.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_nvme::{Nqn, Status};
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::keys::{TlsIdentity, TlsMode, TlsPsk, TlsRecords};
use weft_transport::tls::TlsAcceptor;

use crate::config::{Config, Psks};
use crate::shared::error::TargetError;
use crate::shared::generated::GeneratedKeys;

/// Whether this program can serve the ports of a configuration.
pub(crate) fn check(config: &Config) -> Result<(), TargetError> {
    let of_kernel = config.ports.iter().find(|port| port.tls_records == TlsRecords::Kernel);
    if let Some(port) = of_kernel {
        let told = |error| TargetError::new(format!("port {} (tls-records): {error}", port.id));
        weft_reactor::check_kernel_records().map_err(told)?;
    }
    acceptor(config, &BTreeMap::new(), &Arc::default()).map(drop)
}

/// What the ports with TLS accept hosts with; none if no port has it.
pub(crate) fn acceptor(
    config: &Config,
    psks: &BTreeMap<String, Arc<Psks>>,
    generated: &Arc<GeneratedKeys>,
) -> Result<Option<TlsAcceptor>, TargetError> {
    let Some(port) = config.ports.iter().find(|port| port.tls != TlsMode::Off) else {
        return Ok(None);
    };
    let (psks, generated) = (psks.clone(), Arc::clone(generated));
    let find = move |identity: &str| match TlsIdentity::is_generated(identity) {
        true => generated.find(identity),
        false => find(&psks, identity),
    };
    let acceptor = TlsAcceptor::new(Arc::new(find));
    let told = |fault| TargetError::new(format!("port {} (tls): {fault}", port.id));
    acceptor.map(Some).map_err(told)
}

/// The PSK of an identity. A host reads the discovery log with its keys of any subsystem.
fn find(psks: &BTreeMap<String, Arc<Psks>>, identity: &str) -> Option<TlsPsk> {
    let TlsIdentity { host, subsystem, .. } = TlsIdentity::parse(identity)?;
    let is_meant = |nqn: &str| subsystem == nqn || subsystem == Nqn::DISCOVERY.as_str();
    let meant = psks.iter().filter(|(nqn, _)| is_meant(nqn));
    let mut keys = meant.filter_map(|(_, hosts)| hosts.get(host)).flatten();
    keys.find_map(|(key, derivation)| key.psk_named(identity, *derivation))
}

/// Checks that a Connect names the host and the subsystem of the connection's identity. A
/// connection without TLS may have come before its port required that.
pub(crate) fn check_connect(
    identity: Option<&str>,
    mode: TlsMode,
    request: &ConnectRequest,
) -> Result<(), ConnectError> {
    let may = match identity.map(TlsIdentity::parse) {
        None => mode != TlsMode::Required,
        Some(None) => false,
        Some(Some(TlsIdentity { host, subsystem, .. })) => {
            host == request.host.as_str() && subsystem == request.subsystem.as_str()
        }
    };
    let refused = ConnectError::status(Status::CONNECT_INVALID_HOST.with_dnr());
    if may { Ok(()) } else { Err(refused) }
}
