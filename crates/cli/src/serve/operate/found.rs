//! The block devices of a target.

use std::collections::{BTreeMap, BTreeSet};

use weft_target::Target;
use weft_target::config::{self as served, BdevKind, Config, Namespace};

/// A block device, whether it has a name of its own or is a namespace's of the configuration.
pub(super) struct NamedBdev {
    pub(super) name: String,
    pub(super) kind: BdevKind,
    pub(super) device: weft_backend::DeviceSpec,
    pub(super) uuid: [u8; 16],
    pub(super) block_bytes: u32,
    pub(super) blocks: u64,
    pub(super) user: Option<(String, u32)>,
    /// The block device that it delays, by name.
    pub(super) base: Option<String>,
    /// Whether another one delays it.
    pub(super) is_base: bool,
    pub(super) limits: served::BdevLimits,
}

/// Every block device.
pub(super) fn bdevs(target: &Target) -> Vec<NamedBdev> {
    let config = target.config();
    let namespaces = config.subsystems.iter().flat_map(|subsystem| {
        subsystem.namespaces.iter().map(move |namespace| (subsystem, namespace))
    });
    let users: BTreeMap<_, _> = namespaces
        .clone()
        .filter_map(|(subsystem, namespace)| {
            Some((namespace.bdev.as_ref()?, (subsystem.nqn.clone(), namespace.nsid)))
        })
        .collect();
    let bases: BTreeSet<_> =
        config.operated.bdevs.iter().filter_map(|one| one.base.as_ref()).collect();
    let named = config.operated.bdevs.iter().map(|bdev| {
        let (block_bytes, blocks) = target.bdev_size(&bdev.name).unwrap_or_default();
        NamedBdev {
            name: bdev.name.clone(),
            kind: bdev.kind,
            device: bdev.device.clone(),
            uuid: bdev.uuid,
            block_bytes,
            blocks,
            user: users.get(&bdev.name).cloned(),
            base: bdev.base.clone(),
            is_base: bases.contains(&bdev.name),
            limits: limits_of(config, &bdev.name),
        }
    });
    let implied =
        namespaces.filter_map(|(subsystem, namespace)| implied(target, &subsystem.nqn, namespace));
    named.chain(implied).collect()
}

/// The block device of a namespace of the configuration, which has no name of its own.
pub(super) fn implied(target: &Target, nqn: &str, namespace: &Namespace) -> Option<NamedBdev> {
    if namespace.bdev.is_some() {
        return None;
    }
    let served = target.namespace(nqn, namespace.nsid)?;
    let name = served::implied_bdev_name(nqn, namespace.nsid);
    Some(NamedBdev {
        limits: limits_of(target.config(), &name),
        name,
        kind: BdevKind::of(&namespace.device),
        device: namespace.device.clone(),
        uuid: served.uuid,
        block_bytes: served.block_bytes,
        blocks: served.blocks,
        user: Some((nqn.to_owned(), namespace.nsid)),
        base: None,
        is_base: false,
    })
}

fn limits_of(config: &Config, bdev: &str) -> served::BdevLimits {
    config.operated.bdev_limits.get(bdev).copied().unwrap_or_default()
}
