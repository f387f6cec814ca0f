//! The groups of a controller, and the counts of their changes.

use std::collections::BTreeMap;

use weft_nvme::log_page::AsymmetricNamespaceAccessState as State;

use crate::subsystem::SubsystemView;

/// The Change Count of the log page, and of each group that has changed.
#[derive(Debug, Default)]
pub(in crate::controller) struct Changes {
    pub(super) count: u64,
    pub(super) groups: BTreeMap<u32, u64>,
}

/// A group that has namespaces: its state at the controller's port, and their identifiers.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::controller) struct Group {
    pub(in crate::controller) state: State,
    pub(in crate::controller) nsids: Vec<u32>,
}

pub(in crate::controller) fn groups(view: &SubsystemView, port_id: u16) -> BTreeMap<u32, Group> {
    let mut groups = BTreeMap::new();
    for namespace in view.namespaces.iter() {
        let id = namespace.ana_group;
        let fresh = || Group { state: view.ana_state(port_id, id), nsids: Vec::new() };
        groups.entry(id).or_insert_with(fresh).nsids.push(namespace.nsid);
    }
    groups
}
