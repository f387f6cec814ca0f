//! Which namespace has which NSID, and which NSIDs must not change their owner.
//!
//! A host that has a namespace in use writes to its NSID. So a number belongs to an identity: the
//! UUID if one is given, else an explicit `nsid` together with its device, else the canonical path
//! or what it leads to, else (memory, null) the kind and the order among equals. A reload never
//! gives a number to another identity.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use weft_backend::rbd::RbdSpec;
use weft_backend::{DeviceSpec, StorageId, files};

use crate::config::{Namespace, Subsystem};
use crate::shared::error::TargetError;

/// A namespace that is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServedNamespace<'a> {
    pub(crate) nsid: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) spec: &'a DeviceSpec,
    /// Canonical path of its device, if it has one.
    pub(crate) path: Option<&'a str>,
    /// What its device stands on, whatever the path.
    pub(crate) storage: Option<&'a StorageId>,
    /// The name of its block device, if that has one.
    pub(crate) bdev: Option<&'a str>,
}

/// Gives each namespace of a subsystem its NSID, `most` at most: those that are served keep theirs.
/// Where none is served yet, those that were numbered by their position have the number that they
/// came with: in a state file it is what they had, which may not be their position any more.
///
/// # Errors
/// Which namespace is which is ambiguous, or an NSID would get another owner.
pub(crate) fn assign(
    subsystem: &mut Subsystem,
    owners: &[ServedNamespace<'_>],
    most: u32,
) -> Result<(), TargetError> {
    let nqn = subsystem.nqn.clone();
    let mut numbers: Vec<Option<u32>> = Vec::new();
    let places: Vec<_> = subsystem
        .namespaces
        .iter()
        .map(|namespace| DeviceLocation::of(&namespace.device))
        .collect();
    for (namespace, place) in subsystem.namespaces.iter().zip(&places) {
        let known = || owners.iter().find(|owner| owner.is_named_by(namespace, place));
        let explicit = (!namespace.by_position).then_some(namespace.nsid);
        numbers.push(explicit.or_else(|| known().map(|owner| owner.nsid)));
    }
    for kind in [Kind::Memory, Kind::Null] {
        match_by_order(&subsystem.namespaces, &mut numbers, owners, kind)
            .map_err(|what| TargetError::new(format!("{nqn}: {what}")))?;
    }
    let mut used: BTreeSet<u32> = owners.iter().map(|owner| owner.nsid).collect();
    used.extend(numbers.iter().flatten());
    let by_nsid: BTreeMap<_, _> = owners.iter().map(|owner| (owner.nsid, owner)).collect();
    let mut taken = BTreeMap::new();
    let mut last = 0;
    for ((namespace, number), place) in subsystem.namespaces.iter_mut().zip(numbers).zip(&places) {
        let is_free = |nsid: &u32| !used.contains(nsid);
        let is_kept = |nsid: &u32| owners.is_empty() && *nsid <= most && is_free(nsid);
        let own = Some(namespace.nsid).filter(is_kept);
        let next = || (last + 1..=most).chain(1..=last.min(most)).find(is_free);
        namespace.nsid = number.or(own).or_else(next).ok_or_else(|| {
            TargetError::new(format!("{nqn}: no NSID is left for {}", namespace.device))
        })?;
        last = namespace.nsid;
        used.insert(last);
        let error = |what: &str| Err(TargetError::namespace(&nqn, last, &what));
        if let Some(first) = taken.insert(last, namespace.device.clone()) {
            return error(&format!(
                "{first} and {} would both have this number; give each an `nsid` of its own",
                namespace.device
            ));
        }
        let owner = by_nsid.get(&last);
        if let Some(owner) = owner.filter(|owner| !owner.is_same(namespace, place)) {
            return error(&owner.refusal(namespace));
        }
    }
    Ok(())
}

impl ServedNamespace<'_> {
    /// Whether a namespace has the UUID or the path of this one.
    fn is_named_by(&self, namespace: &Namespace, place: &DeviceLocation) -> bool {
        namespace.uuid == Some(self.uuid) || self.is_at(place)
    }

    /// Whether its device has this path, or stands on what is there.
    fn is_at(&self, place: &DeviceLocation) -> bool {
        self.path.is_some() && place.path.as_deref() == self.path
            || self.storage.is_some() && place.storage.as_ref() == self.storage
    }

    /// Whether a namespace with the same number is this one. A different size does not make another
    /// namespace, and a null device has no contents.
    fn is_same(&self, namespace: &Namespace, place: &DeviceLocation) -> bool {
        if namespace.bdev.is_some() || self.bdev.is_some() {
            return namespace.bdev.as_deref() == self.bdev;
        }
        match namespace.uuid {
            Some(uuid) => uuid == self.uuid,
            None if self.path.is_some() => self.is_at(place),
            None => {
                let kind = Kind::of(self.spec);
                kind == Kind::of(&namespace.device)
                    && (kind == Kind::Null || same_device(self.spec, &namespace.device))
            }
        }
    }

    fn refusal(&self, namespace: &Namespace) -> String {
        let uuid = namespace.uuid.map(|uuid| format!(" (UUID {})", Uuid::from_bytes(uuid)));
        format!(
            "it is {} (UUID {}), and hosts that use it would find {}{} in its place; give that \
             another `nsid`, or remove this number with one reload and use it again with the next",
            self.spec,
            Uuid::from_bytes(self.uuid),
            namespace.device,
            uuid.unwrap_or_default(),
        )
    }
}

/// The kind of a device without a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    Null,
    /// It has a path or a name of its own.
    Stored,
}

impl Kind {
    fn of(spec: &DeviceSpec) -> Self {
        match spec.innermost() {
            DeviceSpec::Memory { .. } => Self::Memory,
            DeviceSpec::Null { .. } => Self::Null,
            _ => Self::Stored,
        }
    }
}

/// Finds the namespaces of a kind that differ only by their order.
fn match_by_order(
    namespaces: &[Namespace],
    numbers: &mut [Option<u32>],
    owners: &[ServedNamespace<'_>],
    kind: Kind,
) -> Result<(), String> {
    let own = owners.iter().filter(|owner| owner.bdev.is_none());
    let left = own.filter(|owner| Kind::of(owner.spec) == kind);
    let taken: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
    let before: Vec<_> = left.filter(|owner| !taken.contains(&owner.nsid)).collect();
    let after: Vec<_> = namespaces
        .iter()
        .zip(numbers)
        .filter(|(namespace, number)| number.is_none() && Kind::of(&namespace.device) == kind)
        .collect();
    let mut pairs = before.iter().zip(&after);
    let all_equal = pairs.clone().all(|(owner, (namespace, _))| *owner.spec == namespace.device);
    // Those with a different size are the same ones if their order has not changed.
    let resized = before.len() == after.len()
        && pairs.all(|(owner, (namespace, _))| {
            *owner.spec == namespace.device
                || before.iter().all(|owner| *owner.spec != namespace.device)
                    && after.iter().all(|(namespace, _)| *owner.spec != namespace.device)
        });
    let clear = before.is_empty()
        || after.is_empty()
        || resized
        || (all_equal && after.len() > before.len());
    if !clear {
        let numbers: Vec<_> = before.iter().map(|owner| owner.nsid.to_string()).collect();
        return Err(format!(
            "it is not clear which {} device is which of the namespaces {}; give each an `nsid`",
            if kind == Kind::Memory { "memory" } else { "null" },
            numbers.join(", ")
        ));
    }
    for (owner, (_, number)) in before.iter().zip(after) {
        *number = Some(owner.nsid);
    }
    Ok(())
}

/// Whether a namespace that was configured as `old` can keep its device when it is configured as
/// `new`: all but the size is equal.
pub(crate) fn same_device(old: &DeviceSpec, new: &DeviceSpec) -> bool {
    use DeviceSpec::{Delay, Fault, File, Memory, Null, Rbd, Uncorrectable};
    match (old, new) {
        (Memory { block_bytes: a, .. }, Memory { block_bytes: b, .. })
        | (Null { block_bytes: a, .. }, Null { block_bytes: b, .. }) => a == b,
        (
            File { path: a, block_bytes: ab, direct: ad, read_only: ar, shared: ash, .. },
            File { path: b, block_bytes: bb, direct: bd, read_only: br, shared: bsh, .. },
        ) => (a, ab, ad, ar, ash) == (b, bb, bd, br, bsh),
        (Rbd(a), Rbd(b)) => {
            let (least_bytes, create) = (a.least_bytes, a.create);
            **a == RbdSpec { least_bytes, create, ..(**b).clone() }
        }
        (Delay { read: a, write: aw, inner: ai }, Delay { read: b, write: bw, inner: bi }) => {
            (a, aw) == (b, bw) && same_device(ai, bi)
        }
        (Fault { rules: a, inner: ai }, Fault { rules: b, inner: bi }) => {
            a == b && same_device(ai, bi)
        }
        (Uncorrectable { file: a, inner: ai }, Uncorrectable { file: b, inner: bi }) => {
            a == b && same_device(ai, bi)
        }
        (old, new) => old == new,
    }
}

/// Where a device that may not be open is.
#[derive(Debug)]
struct DeviceLocation {
    path: Option<String>,
    /// What is there now, where that can be seen.
    storage: Option<StorageId>,
}

impl DeviceLocation {
    fn of(spec: &DeviceSpec) -> Self {
        Self { path: canonical_path(spec), storage: spec.path().and_then(StorageId::of) }
    }
}

/// The canonical path of a device, also of a file that does not exist yet, or the name of an image.
pub(crate) fn canonical_path(spec: &DeviceSpec) -> Option<String> {
    let Some(path) = spec.path() else { return spec.stored_name() };
    Some(files::canonical(path).display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2024-01.io.weft:test";

    fn spec(text: &str) -> DeviceSpec {
        text.parse().expect("a device")
    }

    /// `1=memory:1MiB` has an explicit number, `memory:1MiB` none.
    fn subsystem(devices: &[&str]) -> Subsystem {
        let mut subsystem = Subsystem::new(NQN);
        for (device, position) in devices.iter().zip(1..) {
            let (nsid, device) =
                match device.split_once('=').map(|(nsid, rest)| (nsid.parse(), rest)) {
                    Some((Ok(nsid), rest)) => (Some(nsid), rest),
                    _ => (None, *device),
                };
            let namespace = Namespace::new(nsid.unwrap_or(position), spec(device));
            subsystem.namespaces.push(Namespace { by_position: nsid.is_none(), ..namespace });
        }
        subsystem
    }

    fn uuid_of(nsid: u32) -> [u8; 16] {
        [u8::try_from(nsid).expect("small"); 16]
    }

    /// What a state file keeps where the second namespace was removed and another one was added in
    /// its place.
    #[test]
    fn a_number_that_was_kept_stays_after_a_start() {
        let mut kept = subsystem(&["file:/nowhere/a", "file:/nowhere/c", "file:/nowhere/d"]);
        for (namespace, nsid) in kept.namespaces.iter_mut().zip([1, 3, 2]) {
            namespace.nsid = nsid;
        }
        assign(&mut kept, &[], 1024).expect("a start");
        assert_eq!(kept.namespaces.iter().map(|one| one.nsid).collect::<Vec<_>>(), [1, 3, 2]);
        // A number that is asked for is not that of another one by its position.
        let mut asked = subsystem(&["file:/nowhere/a", "1=file:/nowhere/b", "file:/nowhere/c"]);
        assign(&mut asked, &[], 1024).expect("a start");
        assert_eq!(asked.namespaces.iter().map(|one| one.nsid).collect::<Vec<_>>(), [2, 1, 3]);
    }

    #[test]
    fn no_number_is_above_the_most() {
        let numbers = |devices: &[&str], most| {
            let mut one = subsystem(devices);
            let numbered = assign(&mut one, &[], most).map_err(|error| error.to_string());
            numbered.map(|()| one.namespaces.iter().map(|one| one.nsid).collect::<Vec<_>>())
        };
        // By position the second would have number 4.
        let devices = ["3=memory:1MiB", "4=memory:1MiB", M];
        assert_eq!(numbers(&devices, 4), Ok(vec![3, 4, 1]));
        let full = numbers(&["1=memory:1MiB", M], 1).expect_err("full");
        assert!(full.contains("no NSID is left"), "{full}");
    }

    /// The numbers of `after` where `before` is served.
    fn reloaded(before: &[&str], after: &[&str]) -> Result<Vec<u32>, String> {
        let mut first = subsystem(before);
        assign(&mut first, &[], 1024).expect("a start");
        let paths: Vec<_> =
            first.namespaces.iter().map(|one| canonical_path(&one.device)).collect();
        let owner = |(one, path): (&Namespace, &Option<String>)| {
            (one.nsid, one.device.clone(), path.clone())
        };
        let served: Vec<_> = first.namespaces.iter().zip(&paths).map(owner).collect();
        let owners: Vec<_> = served
            .iter()
            .map(|(nsid, spec, path)| ServedNamespace {
                nsid: *nsid,
                uuid: uuid_of(*nsid),
                spec,
                path: path.as_deref(),
                storage: None,
                bdev: None,
            })
            .collect();
        let mut next = subsystem(after);
        assign(&mut next, &owners, 1024).map_err(|error| error.to_string())?;
        Ok(next.namespaces.iter().map(|namespace| namespace.nsid).collect())
    }

    const M: &str = "memory:1MiB";

    #[test]
    fn a_path_keeps_its_number() {
        let both = ["file:/nowhere/a", "file:/nowhere/b"];
        assert_eq!(reloaded(&both, &both), Ok(vec![1, 2]));
        assert_eq!(reloaded(&both, &both[1..]), Ok(vec![2]));
        assert_eq!(reloaded(&both, &["file:/nowhere/b", "file:/nowhere/a"]), Ok(vec![2, 1]));
        let new = ["file:/nowhere/c", "file:/nowhere/b"];
        assert_eq!(reloaded(&both, &new), Ok(vec![3, 2]), "1 is not given away at once");
        assert_eq!(reloaded(&both[..1], &new), Ok(vec![2, 3]));
        // The same with other options, and with its number said.
        assert_eq!(reloaded(&both, &["file:/nowhere/b,direct=off"]), Ok(vec![2]));
        assert_eq!(reloaded(&both, &["2=file:/nowhere/b"]), Ok(vec![2]));
    }

    #[test]
    fn a_number_gets_no_other_owner() {
        let refused = |before: &[&str], after: &[&str]| {
            let error = reloaded(before, after).expect_err("refused");
            assert!(error.contains("namespace 1 of nqn."), "{error}");
            assert!(error.contains("`nsid`"), "a remedy: {error}");
            error
        };
        let error = refused(&["1=file:/nowhere/a"], &["1=file:/nowhere/b"]);
        assert!(error.contains("/nowhere/a") && error.contains("/nowhere/b"), "{error}");
        assert!(error.contains("01010101-0101"), "{error}");
        refused(&[M], &["1=file:/nowhere/b"]);
        refused(&["1=memory:1MiB"], &["1=null:1MiB"]);
        refused(&["1=memory:1MiB"], &["1=delay:read=1ms:memory:1MiB"]);
        refused(&["1=memory:1MiB"], &["1=memory:1MiB,block=512"]);
        // B has number 2 and is not to lose it to C; and nothing has two owners.
        let both = ["file:/nowhere/a", "file:/nowhere/b"];
        let error = reloaded(&both, &["file:/nowhere/b", "2=file:/nowhere/c"]).expect_err("taken");
        assert!(error.contains("would both have this number"), "{error}");
        assert_eq!(reloaded(&["1=memory:1MiB"], &["1=memory:2MiB"]), Ok(vec![1]));
        assert_eq!(reloaded(&["1=null:1MiB"], &["1=delay:read=1ms:null:1MiB"]), Ok(vec![1]));
    }

    #[test]
    fn a_uuid_keeps_its_number() {
        let mut one = subsystem(&[M, M]);
        one.namespaces[0].uuid = Some(uuid_of(2));
        let memory = spec(M);
        let owner = |nsid| ServedNamespace {
            nsid,
            uuid: uuid_of(nsid),
            spec: &memory,
            path: None,
            storage: None,
            bdev: None,
        };
        assign(&mut one, &[owner(1), owner(2)], 1024).expect("the other is what is left");
        assert_eq!(one.namespaces.iter().map(|n| n.nsid).collect::<Vec<_>>(), [2, 1]);
        let mut other = subsystem(&["1=memory:1MiB"]);
        other.namespaces[0].uuid = Some(uuid_of(9));
        let error = assign(&mut other, &[owner(1)], 1024).expect_err("another UUID").to_string();
        assert!(error.contains("01010101") && error.contains("09090909"), "{error}");
    }

    #[test]
    fn equals_keep_their_order_or_are_ambiguous() {
        assert_eq!(reloaded(&[M, M], &[M, M]), Ok(vec![1, 2]));
        assert_eq!(reloaded(&[M, M], &[M, M, M]), Ok(vec![1, 2, 3]));
        assert_eq!(reloaded(&[M], &["memory:2MiB"]), Ok(vec![1]), "resized");
        assert_eq!(reloaded(&[M, "null:1MiB"], &["null:1MiB"]), Ok(vec![2]), "another kind");
        assert_eq!(reloaded(&[M, M], &["2=memory:1MiB"]), Ok(vec![2]), "what is asked for");
        assert_eq!(reloaded(&[M, M], &["2=memory:1MiB", M]), Ok(vec![2, 1]));
        let two = "memory:2MiB";
        for (before, after) in
            [([M, M].as_slice(), [M].as_slice()), (&[M], &[two, M]), (&[M, two], &[two, M])]
        {
            let error = reloaded(before, after).expect_err("ambiguous");
            assert!(error.contains("not clear") && error.contains("`nsid`"), "{error}");
        }
    }
}
