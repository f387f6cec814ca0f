//! What exists only since an operator made it at run time: block devices by name, transports, and
//! the listeners of the discovery subsystem.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_backend::DeviceSpec;
use weft_backend::rbd::CephSpec;
use weft_nvmf::auth::{Group, HashFunction};

use super::{BdevLimits, Bdevs, Config, HexId, Listen, PortSubsystems, Referral, Transport};

/// The kind of a block device, as SPDK names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BdevKind {
    /// Memory of this process.
    Malloc,
    /// A device that forgets what is written.
    Null,
    /// A file or block device that was made with SPDK's `bdev_aio_create`.
    Aio,
    /// One that was made with `bdev_uring_create`.
    Uring,
    /// An image of a Ceph cluster that was made with `bdev_rbd_create`.
    Rbd,
    /// Another block device with a delay that was made with `bdev_delay_create`.
    Delay,
    /// Any other device, as the command line writes it.
    Device,
}

impl BdevKind {
    /// The word for it in SPDK's methods.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Null => "null",
            Self::Aio => "aio",
            Self::Uring => "uring",
            Self::Rbd => "rbd",
            Self::Delay => "delay",
            Self::Device => "device",
        }
    }

    /// The kind of a device that a configuration describes.
    #[must_use]
    pub fn of(device: &DeviceSpec) -> Self {
        match device {
            DeviceSpec::Memory { .. } => Self::Malloc,
            DeviceSpec::Null { .. } => Self::Null,
            _ => Self::Device,
        }
    }
}

/// A block device with a name: it exists, and keeps its contents, whether a namespace uses it or
/// not.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bdev {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: BdevKind,
    /// The device.
    #[serde_as(as = "DisplayFromStr")]
    pub device: DeviceSpec,
    /// The block device that it delays, by name; none: it stands on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Its UUID, which a namespace on it has as well.
    #[serde_as(as = "HexId<16>")]
    pub uuid: [u8; 16],
}

/// What was made at run time, beside subsystems and ports.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Operated {
    /// Block devices.
    pub bdevs: Bdevs,
    /// Transports that were created.
    #[serde_as(as = "Vec<DisplayFromStr>")]
    pub transports: Vec<Transport>,
    /// Listeners that the discovery subsystem was given. It answers at every listener that was made
    /// at run time; these stay when no other subsystem uses them.
    pub discovery: Vec<Listen>,
    /// The discovery subsystem was deleted: new listeners are without it.
    pub without_discovery: bool,
    /// Referrals to other discovery controllers and to subsystems of other targets, at every port.
    pub referrals: Vec<Referral>,
    /// Hash functions of hosts with none of their own, the preferred one first; none: all.
    #[serde_as(as = "Vec<DisplayFromStr>")]
    pub dhchap_hashes: Vec<HashFunction>,
    /// DH groups of hosts with none of their own, the preferred one first; none: all.
    #[serde_as(as = "Vec<DisplayFromStr>")]
    pub dhchap_groups: Vec<Group>,
    /// Most subsystems, if there is a limit.
    pub subsystems_max: Option<usize>,
    /// Ceph clusters by the names that block devices are created with.
    pub ceph_clusters: BTreeMap<String, CephSpec>,
    /// Limits of block devices, by name.
    pub bdev_limits: BTreeMap<String, BdevLimits>,
}

/// A namespace of a configuration without a block device of its own name: it has this name where
/// one is needed.
#[must_use]
pub fn implied_bdev_name(nqn: &str, nsid: u32) -> String {
    format!("{nqn}:{nsid}")
}

impl Config {
    /// What hosts are referred to, at any port.
    pub fn referrals(&self) -> impl Iterator<Item = &Referral> {
        let of_ports = self.ports.iter().flat_map(|port| &port.referrals);
        self.operated.referrals.iter().chain(of_ports)
    }

    /// The block device of this name.
    #[must_use]
    pub fn bdev(&self, name: &str) -> Option<&Bdev> {
        self.operated.bdevs.get(name)
    }

    /// The namespace that uses a block device, by the place of its subsystem and its own place.
    #[must_use]
    pub fn user_of(&self, bdev: &str) -> Option<(usize, usize)> {
        self.subsystems.iter().enumerate().find_map(|(index, subsystem)| {
            let uses = |namespace: &super::Namespace| match &namespace.bdev {
                Some(name) => name == bdev,
                None => bdev
                    .strip_prefix(subsystem.nqn.as_str())
                    .and_then(|rest| rest.strip_prefix(':'))
                    .is_some_and(|nsid| nsid == namespace.nsid.to_string()),
            };
            Some((index, subsystem.namespaces.iter().position(uses)?))
        })
    }

    /// A copy without subsystems and block devices, which are all that is large.
    pub(crate) fn frame(&mut self) -> Self {
        let subsystems = std::mem::take(&mut self.subsystems);
        let bdevs = std::mem::take(&mut self.operated.bdevs);
        let frame = self.clone();
        (self.subsystems, self.operated.bdevs) = (subsystems, bdevs);
        frame
    }

    /// Is as in this frame again, but for subsystems and block devices.
    pub(crate) fn restore_frame(&mut self, mut frame: Self) {
        frame.subsystems = std::mem::take(&mut self.subsystems);
        frame.operated.bdevs = std::mem::take(&mut self.operated.bdevs);
        *self = frame;
    }

    /// Whether a transport was created, or is used by a port.
    #[must_use]
    pub fn has_transport(&self, transport: Transport) -> bool {
        self.operated.transports.contains(&transport)
            || self.ports.iter().any(|port| port.listen.transport == transport)
    }

    /// Removes ports that serve nothing any more, and what ports say of subsystems that are gone.
    pub(crate) fn prune_ports(&mut self) {
        let subsystems = &self.subsystems;
        let has = |nqn: &String| subsystems.iter().any(|subsystem| subsystem.nqn == *nqn);
        for port in &mut self.ports {
            port.ana.retain(|rule| rule.subsystem.as_ref().is_none_or(has));
        }
        let discovery = &self.operated.discovery;
        self.ports.retain(|port| {
            port.subsystems != PortSubsystems::Only(Vec::new())
                || !port.made_at_run_time
                || discovery.contains(&port.listen)
        });
    }
}
