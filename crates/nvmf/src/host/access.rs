//! Asymmetric Namespace Access as a host knows it: the state of each namespace at one controller.
//!
//! A host that has several paths reads the log page when it connects and after each event. What
//! Linux takes for wrong is wrong here, too: then the page counts as not there, and commands find
//! out by their statuses.

use std::collections::BTreeMap;

use weft_nvme::log_page::{
    AsymmetricNamespaceAccessHeader, AsymmetricNamespaceAccessState as State, GroupDescriptor,
    Groups, NamespaceIds,
};
use weft_nvme::{Wire, identify};

use super::limits;

/// The access states of the namespaces at one controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessStates {
    /// By namespace identifier; `None` if the controller does not report them.
    states: Option<BTreeMap<u32, State>>,
}

impl AccessStates {
    /// The state of a namespace; optimized where the controller reports none. `None`: it reports
    /// those of others, and this one has to wait until its group is listed.
    #[must_use]
    pub fn of(&self, nsid: u32) -> Option<State> {
        match &self.states {
            None => Some(State::OPTIMIZED),
            Some(states) => states.get(&nsid).copied(),
        }
    }

    /// Whether the controller reports access states.
    #[must_use]
    pub const fn are_reported(&self) -> bool {
        self.states.is_some()
    }

    /// The namespaces whose state is another than it was, with the state.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<(u32, State)> {
        let states = self.states.iter().flatten();
        let changed = states.filter(|(nsid, state)| before.of(**nsid) != Some(**state));
        changed.map(|(nsid, state)| (*nsid, *state)).collect()
    }

    /// Whether a namespace is between two states.
    pub(super) fn has_change(&self) -> bool {
        self.states.iter().flatten().any(|(_, state)| *state == State::CHANGE)
    }

    /// From a log page; `None` if it is not valid.
    pub(super) fn read(page: &[u8], controller: &identify::Controller) -> Option<Self> {
        let mut states = BTreeMap::new();
        for group in Groups::new(page).ok()? {
            let (descriptor, nsids) = group.ok()?;
            read_group(&descriptor, nsids, controller, &mut states)?;
        }
        Some(Self { states: Some(states) })
    }
}

fn read_group(
    descriptor: &GroupDescriptor,
    nsids: NamespaceIds<'_>,
    controller: &identify::Controller,
    states: &mut BTreeMap<u32, State>,
) -> Option<()> {
    let id = descriptor.group_id.get();
    let known = [
        State::OPTIMIZED,
        State::NON_OPTIMIZED,
        State::INACCESSIBLE,
        State::PERSISTENT_LOSS,
        State::CHANGE,
    ];
    let state = descriptor.state();
    if id == 0 || id > controller.ana_group_id_max.get() || !known.contains(&state) {
        return None;
    }
    let mut last = 0;
    for nsid in nsids {
        if nsid <= last {
            return None;
        }
        last = nsid;
        states.insert(nsid, state);
    }
    Some(())
}

/// The bytes of the log page of a controller that has one which a single command can read; with
/// several the states could be those of different times.
pub(super) fn log_bytes(controller: &identify::Controller, most: Option<u32>) -> Option<u32> {
    let namespaces = controller.maximum_allowed_namespaces.get();
    if !controller.multipath.asymmetric_namespace_access()
        || namespaces == 0
        || namespaces > controller.namespaces.get()
    {
        return None;
    }
    let size = |size: usize| u32::try_from(size).ok();
    let groups = controller.ana_groups.get().checked_mul(size(GroupDescriptor::SIZE)?)?;
    let bytes = size(AsymmetricNamespaceAccessHeader::SIZE)?
        .checked_add(groups)?
        .checked_add(namespaces.checked_mul(4)?)?;
    let most = most.unwrap_or(u32::MAX).min(limits::ACCESS_LOG_BYTES_MAX);
    (bytes <= most).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvme::identify::MultipathCapabilities;
    use weft_nvme::wire::{U16, U32};

    fn controller() -> identify::Controller {
        let mut controller = identify::Controller::zeroed();
        controller.multipath = MultipathCapabilities(0).with_asymmetric_namespace_access(true);
        controller.namespaces = U32::new(16);
        controller.maximum_allowed_namespaces = U32::new(16);
        controller.ana_groups = U32::new(4);
        controller.ana_group_id_max = U32::new(4);
        controller
    }

    fn page(groups: &[(u32, State, &[u32])]) -> Vec<u8> {
        let header = AsymmetricNamespaceAccessHeader {
            groups: U16::new(u16::try_from(groups.len()).unwrap()),
            ..Default::default()
        };
        let mut page = header.bytes().to_vec();
        for (id, state, nsids) in groups {
            let count = u32::try_from(nsids.len()).unwrap();
            page.extend(GroupDescriptor::new(*id, *state, 1, count).bytes());
            page.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        page.resize(page.len() + 64, 0);
        page
    }

    fn read(groups: &[(u32, State, &[u32])]) -> Option<AccessStates> {
        AccessStates::read(&page(groups), &controller())
    }

    #[test]
    fn states_are_those_of_the_groups() {
        let states = read(&[(1, State::OPTIMIZED, &[1, 5]), (4, State::CHANGE, &[2])]).unwrap();
        let of = [1, 5, 2, 3].map(|nsid| states.of(nsid));
        let (good, change) = (Some(State::OPTIMIZED), Some(State::CHANGE));
        assert_eq!(of, [good, good, change, None], "3 is in no group that is listed");
        assert!(states.has_change() && states.are_reported());
        assert_eq!(AccessStates::default().of(3), good, "not reported at all");
        assert_eq!(states.changes_since(&AccessStates::default()), [(2, State::CHANGE)]);
        assert!(states.changes_since(&states).is_empty());
    }

    #[test]
    fn what_linux_takes_for_wrong_is_no_page() {
        for (what, groups) in [
            ("group 0", (0, State::OPTIMIZED, &[1][..])),
            ("a group above ANAGRPMAX", (5, State::OPTIMIZED, &[1])),
            ("state 0", (1, State(0), &[1])),
            ("an unknown state", (1, State(7), &[1])),
            ("NSIDs that do not ascend", (1, State::OPTIMIZED, &[2, 2])),
            ("NSID 0", (1, State::OPTIMIZED, &[0])),
        ] {
            assert_eq!(read(&[groups]), None, "{what}");
        }
        let whole = page(&[(1, State::OPTIMIZED, &[1, 2])]);
        assert_eq!(AccessStates::read(&whole[..50], &controller()), None, "cut");
        assert_eq!(AccessStates::read(&[], &controller()), None, "empty");
    }

    #[test]
    fn the_page_is_read_with_one_command_or_not() {
        let controller = controller();
        assert_eq!(log_bytes(&controller, None), Some(16 + 4 * 32 + 16 * 4));
        assert_eq!(log_bytes(&controller, Some(100)), None, "beyond MDTS");
        let with = |change: fn(&mut identify::Controller)| {
            let mut other = controller;
            change(&mut other);
            log_bytes(&other, None)
        };
        assert_eq!(with(|other| other.maximum_allowed_namespaces = U32::new(17)), None);
        assert_eq!(with(|other| other.maximum_allowed_namespaces = U32::ZERO), None);
        assert_eq!(with(|other| other.multipath = MultipathCapabilities(0)), None);
        assert_eq!(with(|other| other.ana_groups = U32::new(u32::MAX)), None);
    }
}
