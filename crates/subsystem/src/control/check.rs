//! What a target would serve that starts with a configuration: the start itself, up to where hosts
//! would be served, with devices that are neither created nor written to.

use std::thread;

use weft_backend::DeviceSpec;

use crate::config::Config;
use crate::control::catalogue::Catalogue;
use crate::control::target::Target;
use crate::shared::error::TargetError;

/// A namespace as it would be served.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedNamespace {
    /// The subsystem's name.
    pub subsystem: String,
    /// Its number.
    pub nsid: u32,
    /// Whether the number is only its position in the list.
    pub by_position: bool,
    /// Its device.
    pub device: DeviceSpec,
    /// Its UUID; none: a new one at each start.
    pub uuid: Option<[u8; 16]>,
    /// Its size; none: only its cluster knows.
    pub bytes: Option<u64>,
    /// Whether its file is not there and would be created.
    pub is_created: bool,
}

/// What would be served. Its devices are open, and locked, until it is dropped.
#[derive(Debug)]
pub struct CheckedTarget {
    /// The namespaces.
    pub namespaces: Vec<CheckedNamespace>,
    _devices: Catalogue,
}

/// The namespaces that a target would serve that starts with this configuration. Whether there must
/// be any is for its caller to say, as at a start. For a moment its ports are open, without anybody
/// being served; afterwards everything is as it was before.
///
/// # Errors
/// What the start would be refused with, except for what only the cluster of an image knows.
pub fn check(config: &Config) -> Result<CheckedTarget, TargetError> {
    config.check_consistent().map_err(|error| TargetError::new(error.to_string()))?;
    let mut config = config.clone();
    let catalogue = Target::try_out(&mut config)?;
    let mut namespaces = Vec::new();
    for subsystem in &config.subsystems {
        for namespace in &subsystem.namespaces {
            let (nqn, nsid) = (&subsystem.nqn, namespace.nsid);
            let Some((uuid, device)) = catalogue.served(nqn, nsid) else { continue };
            let stays = namespace.uuid.is_some() || device.survives_restart();
            let is_image = matches!(namespace.device.innermost(), DeviceSpec::Rbd(_));
            namespaces.push(CheckedNamespace {
                subsystem: nqn.clone(),
                nsid,
                by_position: namespace.by_position,
                device: namespace.device.clone(),
                uuid: stays.then_some(uuid),
                bytes: (!is_image).then(|| device.geometry().bytes()),
                is_created: device.storage().is_some_and(|storage| storage.is_created()),
            });
        }
    }
    Ok(CheckedTarget { namespaces, _devices: catalogue })
}

/// Whether the machine has the processors.
pub(crate) fn check_processors(config: &Config) -> Result<(), TargetError> {
    for cpu in config.cpus.iter().chain(&config.express_cpus).copied() {
        let pin = || weft_reactor::system::pin_current_thread(cpu);
        let pinned = thread::scope(|scope| scope.spawn(pin).join());
        if let Ok(Err(error)) = pinned {
            let what =
                format!("there is no processor {cpu} for `cpus` or `express-cpus` ({error})");
            let here = weft_reactor::system::cpus_of_current_thread().unwrap_or_default();
            let here: Vec<String> = here.iter().map(ToString::to_string).collect();
            return Err(TargetError::new(format!("{what}; there are {}", here.join(","))));
        }
    }
    Ok(())
}
