//! Assigns processors to roles.

use super::plan::Shared;

/// The processors of each role. An empty list: not pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Those of the load (the foreground's, if there are two).
    pub host: Vec<usize>,
    /// Those of the background.
    pub background: Vec<usize>,
    /// Those of each target process, with one poll group on each processor.
    pub targets: Vec<Vec<usize>>,
    /// Whether roles share a processor although each should have its own.
    pub shared: bool,
}

/// The processors of a plain cell: so many for the load, and so many for the target if it runs on
/// this machine.
///
/// # Errors
/// There are not enough processors.
pub fn plain(cpus: &[usize], host: usize, target: Option<usize>) -> Result<Roles, String> {
    let has = cpus.len();
    let needs = host + target.unwrap_or(0);
    if needs <= has {
        // The load's processors follow the target's, even without a target, so that local and
        // remote loads run on the same ones.
        let skip = target.unwrap_or(if 2 * host <= has { host } else { 0 });
        let targets = target.map(|target| taken(cpus, 0, target));
        let host = taken(cpus, skip, host);
        return Ok(Roles { host, targets: targets.into_iter().collect(), ..Roles::default() });
    }
    if host == 1 && target.is_none_or(|target| target == 1) {
        // One processor for both: a polling thread starves the other, so neither is pinned.
        let targets = target.map(|_| Vec::new()).into_iter().collect();
        return Ok(Roles { targets, shared: true, ..Roles::default() });
    }
    Err(match target {
        Some(target) => format!(
            "needs {host} processors for the load and {target} for the target; this machine has \
             {has}"
        ),
        None => format!("needs {host} processors; this machine has {has}"),
    })
}

/// The processors of a plain cell whose load and target have machines of their own.
///
/// # Errors
/// One of the machines has too few.
pub fn apart(
    load_cpus: &[usize],
    host: usize,
    target_cpus: &[usize],
    target: usize,
) -> Result<Roles, String> {
    for (cpus, needs, what) in [(load_cpus, host, "load"), (target_cpus, target, "target")] {
        if needs > cpus.len() {
            let has = cpus.len();
            return Err(format!(
                "needs {needs} processors for the {what}, whose machine has {has}"
            ));
        }
    }
    let (host, targets) = (taken(load_cpus, 0, host), vec![taken(target_cpus, 0, target)]);
    Ok(Roles { host, targets, ..Roles::default() })
}

/// Two tenants that share a processor of one side, which are hosts of their own, and a target on
/// another machine. Of a target's processor the foreground has one of its own, the background so
/// many; if they are on one machine (`together`), they have different ones while there are enough.
/// Of a host's processor they are on one machine, and each has a target.
#[must_use]
pub fn tenants(
    which: Shared,
    load_cpus: &[usize],
    target_cpus: &[usize],
    together: bool,
    background: usize,
) -> Roles {
    let one = taken(load_cpus, 0, 1);
    match which {
        Shared::Host => {
            let skip = usize::from(target_cpus.len() > 1);
            let targets = vec![taken(target_cpus, 0, 1), taken(target_cpus, skip, 1)];
            Roles { host: one.clone(), background: one, targets, shared: skip == 0 }
        }
        Shared::Target => {
            let skip = usize::from(together && load_cpus.len() > 1);
            Roles {
                host: one,
                background: taken(load_cpus, skip, background),
                targets: vec![taken(target_cpus, 0, 1)],
                shared: together && load_cpus.len() < 1 + background,
            }
        }
    }
}

/// Load and target on the same processor.
#[must_use]
pub fn same_core(cpus: &[usize]) -> Roles {
    let first = taken(cpus, 0, 1);
    Roles { host: first.clone(), targets: vec![first], ..Roles::default() }
}

/// The processors of a saturation cell: the host's processor is loaded by one load against as
/// many targets as fit, the target's by two loads.
#[must_use]
pub fn saturation(cpus: &[usize], full: Shared) -> Roles {
    let one = taken(cpus, 0, 1);
    let rest = taken(cpus, 1, 2);
    let shared = cpus.len() < 3;
    match full {
        Shared::Host => Roles { host: one, targets: vec![rest], shared: cpus.len() < 2, ..none() },
        Shared::Target => Roles { host: rest, targets: vec![one], shared, ..none() },
    }
}

/// The processors of an interference cell: two tenants share a processor of one side. On the other
/// side each has its own or, if there are too few, both share the second one. The background has
/// `loads` processors of a host of its own; if there are fewer, its loads share them.
#[must_use]
pub fn interference(cpus: &[usize], which: Shared, loads: usize) -> Roles {
    let one = taken(cpus, 0, 1);
    let first = taken(cpus, 1, 1);
    let others = |count| if cpus.len() < 3 { first.clone() } else { taken(cpus, 2, count) };
    match which {
        Shared::Host => {
            let targets = vec![first.clone(), others(1)];
            Roles { host: one.clone(), background: one, targets, shared: cpus.len() < 3 }
        }
        Shared::Target => {
            let (background, shared) = (others(loads), cpus.len() < 2 + loads);
            Roles { host: first, background, targets: vec![one], shared }
        }
    }
}

fn none() -> Roles {
    Roles::default()
}

fn taken(cpus: &[usize], skip: usize, count: usize) -> Vec<usize> {
    cpus.iter().copied().skip(skip).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[usize] = &[0, 1];
    const EIGHT: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn target_and_load_have_separate_processors() {
        let roles = plain(EIGHT, 2, Some(2)).expect("room");
        assert_eq!((roles.host, roles.targets), (vec![2, 3], vec![vec![0, 1]]));
        let roles = plain(TWO, 1, Some(1)).expect("room");
        assert_eq!((roles.host, roles.targets, roles.shared), (vec![1], vec![vec![0]], false));
        let error = plain(TWO, 2, Some(2)).expect_err("no room");
        assert!(error.contains("this machine has 2"), "{error}");
    }

    #[test]
    fn a_local_device_is_driven_from_the_same_processors() {
        assert_eq!(plain(TWO, 1, None).expect("room").host, [1]);
        assert_eq!(plain(EIGHT, 4, None).expect("room").host, [4, 5, 6, 7]);
        assert_eq!(plain(TWO, 2, None).expect("room").host, [0, 1]);
        assert!(plain(TWO, 3, None).is_err());
    }

    #[test]
    fn machines_of_their_own_have_the_processors_of_each_side() {
        let roles = apart(TWO, 2, EIGHT, 3).expect("room");
        assert_eq!(
            (roles.host, roles.targets, roles.shared),
            (vec![0, 1], vec![vec![0, 1, 2]], false)
        );
        let error = apart(TWO, 3, EIGHT, 3).expect_err("no room");
        assert!(error.contains("for the load, whose machine has 2"), "{error}");
        let error = apart(EIGHT, 3, TWO, 3).expect_err("no room");
        assert!(error.contains("for the target, whose machine has 2"), "{error}");
    }

    #[test]
    fn a_single_processor_is_shared_by_all() {
        let roles = plain(&[0], 1, Some(1)).expect("shared");
        assert!(roles.shared && roles.host.is_empty());
        assert_eq!(roles.targets, [Vec::<usize>::new()]);
    }

    #[test]
    fn tenants_share_one_side_only() {
        let host = interference(EIGHT, Shared::Host, 1);
        assert_eq!((host.host, host.background), (vec![0], vec![0]));
        assert_eq!((host.targets, host.shared), (vec![vec![1], vec![2]], false));
        let target = interference(EIGHT, Shared::Target, 1);
        assert_eq!((target.host, target.background), (vec![1], vec![2]));
        assert_eq!(target.targets, [vec![0]]);
    }

    #[test]
    fn tenants_on_machines_apart_from_their_targets_share_one_side_only() {
        let host = tenants(Shared::Host, EIGHT, TWO, true, 1);
        assert_eq!((host.host, host.background, host.shared), (vec![0], vec![0], false));
        assert_eq!(host.targets, [[0], [1]]);
        assert!(tenants(Shared::Host, EIGHT, &[0], true, 1).shared);
        let target = tenants(Shared::Target, EIGHT, TWO, true, 2);
        assert_eq!((target.host, target.background), (vec![0], vec![1, 2]));
        assert_eq!((target.targets, target.shared), (vec![vec![0]], false));
        assert!(tenants(Shared::Target, TWO, TWO, true, 2).shared);
        assert!(!tenants(Shared::Target, TWO, TWO, false, 2).shared);
    }

    #[test]
    fn with_two_processors_the_other_side_shares_the_second() {
        let host = interference(TWO, Shared::Host, 1);
        assert_eq!((host.host, host.background), (vec![0], vec![0]));
        assert_eq!((host.targets, host.shared), (vec![vec![1], vec![1]], true));
        let target = interference(TWO, Shared::Target, 1);
        assert_eq!((target.host, target.background), (vec![1], vec![1]));
        assert_eq!((target.targets, target.shared), (vec![vec![0]], true));
    }

    #[test]
    fn a_background_has_as_many_processors_as_saturated_the_target() {
        let enough = interference(EIGHT, Shared::Target, 2);
        assert_eq!((enough.host, enough.background, enough.shared), (vec![1], vec![2, 3], false));
        assert_eq!(enough.targets, [vec![0]]);
        let three = interference(&[0, 1, 2], Shared::Target, 2);
        assert_eq!((three.host, three.background, three.shared), (vec![1], vec![2], true));
        let two = interference(TWO, Shared::Target, 2);
        assert_eq!((two.host, two.background, two.shared), (vec![1], vec![1], true));
    }

    #[test]
    fn other_processors_load_the_saturated_one() {
        let host = saturation(EIGHT, Shared::Host);
        assert_eq!((host.host, host.targets), (vec![0], vec![vec![1, 2]]));
        let target = saturation(EIGHT, Shared::Target);
        assert_eq!((target.host, target.targets), (vec![1, 2], vec![vec![0]]));
        let few = saturation(TWO, Shared::Target);
        assert_eq!((few.host, few.targets, few.shared), (vec![1], vec![vec![0]], true));
    }
}
