//! What exists only since an operator made it at run time: block devices by name, transports, and
//! the listeners of the discovery subsystem.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_backend::rbd::CephSpec;
use weft_nvmf::auth::{Group, HashFunction};

use super::{BdevLimits, Bdevs, Listen, Referral, Transport};

/// What was made at run time, beside subsystems and ports.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RuntimeObjects {
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
