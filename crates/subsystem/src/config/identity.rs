//! Identities that stay the same without a state file.
//!
//! A host keeps a namespace across a reconnect only if its UUID, NGUID and EUI-64 are the ones it
//! knows. So a device whose contents survive a restart gets identities derived from its names
//! (subsystem and device), and one that loses them (memory) gets new ones at each start, since a
//! host must not keep using a file system that is lost. The configuration takes precedence.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;
use weft_backend::DeviceFactory;

use super::{Namespace, Subsystem};

/// The namespace (in the sense of RFC 9562) of the name-based UUIDs below. Random, and part of
/// what users' identities depend on: it never changes.
const WEFT: Uuid = Uuid::from_u128(0x5f0c_6b8e_2d1b_4b5e_9c59_4a0f_3f6d_71c2);

/// What an identity is derived from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name: a canonical path, or kind and size.
    pub identity: String,
    /// Whether its contents survive a restart.
    pub survives_restart: bool,
}

impl Device {
    /// That of a device that was opened.
    pub(crate) fn of(device: &dyn DeviceFactory) -> Self {
        Self { identity: device.identity(), survives_restart: device.survives_restart() }
    }
}

/// The identities of a namespace for hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UUID.
    pub uuid: [u8; 16],
    /// NGUID.
    pub nguid: [u8; 16],
    /// EUI-64, if one is configured.
    pub eui64: Option<[u8; 8]>,
}

/// The identities of a subsystem's namespaces, given their devices in the same order, and the UUIDs
/// of those that have one already: a namespace that was served before keeps it.
///
/// Devices of the same name (two null devices of one size) are distinguished by their order.
#[must_use]
pub fn namespaces(
    subsystem: &Subsystem,
    devices: &[Device],
    known: &[Option<[u8; 16]>],
) -> Vec<Identity> {
    let mut used: HashSet<[u8; 16]> = known.iter().copied().flatten().collect();
    // What is used stays so: a device is not compared with the earlier ones of its name again.
    let mut occurrences: HashMap<&str, u32> = HashMap::new();
    let mut identities = Vec::with_capacity(devices.len());
    for ((one, device), uuid) in subsystem.namespaces.iter().zip(devices).zip(known) {
        let known =
            KnownIdentity { uuid: *uuid, used: occurrences.entry(&device.identity).or_default() };
        let identity = namespace(&subsystem.nqn, one, device, known, |uuid| used.contains(uuid));
        used.insert(identity.uuid);
        identities.push(identity);
    }
    identities
}

/// What is known of a namespace that is to have an identity.
#[derive(Debug)]
pub(crate) struct KnownIdentity<'a> {
    /// The UUID that it has already.
    pub(crate) uuid: Option<[u8; 16]>,
    /// How many UUIDs that are derived from its device are used; this one is added.
    pub(crate) used: &'a mut u32,
}

/// The identity of one namespace of a subsystem in which some UUIDs are used.
pub(crate) fn namespace(
    nqn: &str,
    namespace: &Namespace,
    device: &Device,
    known: KnownIdentity<'_>,
    is_used: impl Fn(&[u8; 16]) -> bool,
) -> Identity {
    let uuid = namespace.uuid.or(known.uuid).unwrap_or_else(|| {
        if !device.survives_restart {
            return Uuid::new_v4().into_bytes();
        }
        loop {
            let uuid = derived(&["uuid", nqn, &device.identity, &known.used.to_string()]);
            *known.used += 1;
            if !is_used(&uuid) {
                return uuid;
            }
        }
    });
    let nguid =
        namespace.nguid.unwrap_or_else(|| derived(&["nguid", &Uuid::from_bytes(uuid).to_string()]));
    Identity { uuid, nguid, eui64: namespace.eui64 }
}

/// The serial number of a subsystem that has none of its own: 20 hexadecimal digits.
#[must_use]
pub fn serial(nqn: &str) -> String {
    let digits = Uuid::from_bytes(derived(&["serial", nqn])).simple().to_string();
    digits.chars().take(20).collect()
}

/// The NQN of a subsystem without one in the configuration: the same for a machine and port.
#[must_use]
pub fn nqn(machine: &str, port: u16) -> String {
    let uuid = Uuid::from_bytes(derived(&["nqn", machine, &port.to_string()]));
    format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")
}

/// A new NQN.
#[must_use]
pub fn fresh_nqn() -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::new_v4())
}

/// The UUID of a block device on a file or device of this canonical path.
#[must_use]
pub fn bdev(path: &str) -> [u8; 16] {
    derived(&["bdev", path])
}

fn derived(parts: &[&str]) -> [u8; 16] {
    let mut name = String::new();
    for part in parts {
        // A length before each part, so that different lists of parts give different names.
        name.push_str(&format!("{}:{part}", part.len()));
    }
    Uuid::new_v5(&WEFT, name.as_bytes()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_backend::DeviceSpec;

    fn subsystem(nqn: &str, count: u32) -> Subsystem {
        let mut subsystem = Subsystem::new(nqn);
        let device = DeviceSpec::Null { bytes: 1 << 30, block_bytes: 4096 };
        subsystem.namespaces =
            (1..=count).map(|nsid| Namespace::new(nsid, device.clone())).collect();
        subsystem
    }

    /// The identities where nothing was served before.
    fn namespaces(subsystem: &Subsystem, devices: &[Device]) -> Vec<Identity> {
        super::namespaces(subsystem, devices, &vec![None; devices.len()])
    }

    fn device(identity: &str, survives_restart: bool) -> Device {
        Device { identity: identity.to_owned(), survives_restart }
    }

    #[test]
    fn a_persistent_device_keeps_its_identity() {
        let devices = [device("/var/lib/a", true), device("/var/lib/b", true)];
        let first = namespaces(&subsystem("nqn.a", 2), &devices);
        assert_eq!(first, namespaces(&subsystem("nqn.a", 2), &devices));
        assert_ne!(first[0].uuid, first[1].uuid);
        assert_ne!(first[0].nguid, first[0].uuid);
        assert_ne!(first, namespaces(&subsystem("nqn.b", 2), &devices));
    }

    #[test]
    fn the_derivation_is_part_of_the_interface() {
        // Computed with Python's uuid5 over the same parts: these values must never change.
        let identity = namespaces(&subsystem("nqn.a", 1), &[device("/var/lib/a", true)])[0];
        let uuid = Uuid::from_bytes(identity.uuid);
        let nguid = Uuid::from_bytes(identity.nguid);
        assert_eq!(uuid.to_string(), "efbbd131-33ad-522a-bfd9-fe41a26b4467");
        assert_eq!(nguid.to_string(), "f751fef6-c908-53aa-aaf9-53d0812f3f58");
        assert_eq!(serial("nqn.a"), "bc61e242ed8754ba973e");
    }

    #[test]
    fn a_place_in_the_order_does_not_change_a_name() {
        let (a, b) = (device("/a", true), device("/b", true));
        let both = namespaces(&subsystem("nqn.a", 2), &[a, b.clone()]);
        let alone = namespaces(&subsystem("nqn.a", 1), &[b]);
        assert_eq!(both[1], alone[0]);
    }

    #[test]
    fn equal_null_devices_are_told_apart() {
        let null = device("null:1GiB", true);
        let identities = namespaces(&subsystem("nqn.a", 2), &[null.clone(), null]);
        assert_ne!(identities[0].uuid, identities[1].uuid);
        assert_ne!(identities[0].nguid, identities[1].nguid);
    }

    /// As many as a subsystem may have: with a look at all earlier ones for each it took a minute.
    #[test]
    fn many_equal_devices_are_told_apart_soon() {
        let count = crate::config::NSID_MAX;
        let devices = vec![device("null:1GiB", true); count as usize];
        let identities = namespaces(&subsystem("nqn.a", count), &devices);
        let uuids: HashSet<_> = identities.iter().map(|identity| identity.uuid).collect();
        assert_eq!(uuids.len(), devices.len());
        assert_eq!(identities[..2], namespaces(&subsystem("nqn.a", 2), &devices[..2]));
        let last = derived(&["uuid", "nqn.a", "null:1GiB", &(count - 1).to_string()]);
        assert_eq!(identities.last().expect("some").uuid, last);
    }

    /// The second of two stays and gets a new neighbour, which must not get its UUID.
    #[test]
    fn a_served_namespace_keeps_its_uuid() {
        let null = device("null:1GiB", true);
        let both = namespaces(&subsystem("nqn.a", 2), &[null.clone(), null.clone()]);
        let second = both[1].uuid;
        let known = [None, Some(second)];
        let again = super::namespaces(&subsystem("nqn.a", 2), &[null.clone(), null], &known);
        assert_eq!(again[1], both[1]);
        assert_eq!(again[0], both[0]);
        let memory = [device("memory:1GiB", false)];
        let known = [Some([7; 16])];
        assert_eq!(super::namespaces(&subsystem("nqn.a", 1), &memory, &known)[0].uuid, [7; 16]);
    }

    #[test]
    fn a_volatile_device_gets_a_new_uuid_each_time() {
        let memory = [device("memory:1GiB", false)];
        let subsystem = subsystem("nqn.a", 1);
        let (first, second) =
            (namespaces(&subsystem, &memory)[0], namespaces(&subsystem, &memory)[0]);
        assert_ne!(first.uuid, second.uuid);
        assert_ne!(first.nguid, second.nguid);
    }

    #[test]
    fn configured_identifiers_win() {
        let mut subsystem = subsystem("nqn.a", 1);
        subsystem.namespaces[0].uuid = Some([1; 16]);
        subsystem.namespaces[0].eui64 = Some([3; 8]);
        let identity = namespaces(&subsystem, &[device("memory:1GiB", false)])[0];
        assert_eq!((identity.uuid, identity.eui64), ([1; 16], Some([3; 8])));
        assert_eq!(identity, namespaces(&subsystem, &[device("memory:1GiB", false)])[0]);
        subsystem.namespaces[0].nguid = Some([2; 16]);
        assert_eq!(namespaces(&subsystem, &[device("x", true)])[0].nguid, [2; 16]);
    }

    #[test]
    fn names_made_up_for_subsystems_are_valid() {
        assert_eq!(serial("nqn.a").len(), 20);
        assert_eq!(nqn("machine", 4420), nqn("machine", 4420));
        assert_ne!(nqn("machine", 4420), nqn("machine", 4421));
        assert_ne!(fresh_nqn(), fresh_nqn());
        assert!(nqn("machine", 4420).starts_with("nqn.2014-08.org.nvmexpress:uuid:"));
    }
}
