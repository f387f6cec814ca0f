//! Asymmetric Namespace Access: which groups of namespaces a port reaches, and how well.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_nvme::Status;
use weft_nvme::log_page::AsymmetricNamespaceAccessState as State;

/// ANA Transition Time (ANATT) in seconds, as with the Linux target and SPDK: Linux resets a
/// controller whose groups are in the state Change for twice as long.
pub const TRANSITION_TIME_S: u8 = 10;

/// The access states of a subsystem's groups, for each port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnaView(BTreeMap<u16, Arc<GroupStates>>);

/// The access states of groups at one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupStates(BTreeMap<u32, State>);

impl FromIterator<(u16, GroupStates)> for AnaView {
    fn from_iter<T: IntoIterator<Item = (u16, GroupStates)>>(ports: T) -> Self {
        Self(ports.into_iter().map(|(port_id, states)| (port_id, Arc::new(states))).collect())
    }
}

impl FromIterator<(u32, State)> for GroupStates {
    fn from_iter<T: IntoIterator<Item = (u32, State)>>(groups: T) -> Self {
        Self(groups.into_iter().collect())
    }
}

impl AnaView {
    /// The state of a group at a port: optimized unless it is another.
    #[must_use]
    pub fn state(&self, port_id: u16, group: u32) -> State {
        self.0.get(&port_id).map_or(State::OPTIMIZED, |states| states.state(group))
    }

    /// The states at a port, if commands are refused in any of them.
    pub(crate) fn refusing(&self, port_id: u16) -> Option<Arc<GroupStates>> {
        let states = self.0.get(&port_id)?;
        let refuses = states.0.values().any(|state| refusal(*state).is_some());
        refuses.then(|| Arc::clone(states))
    }
}

impl GroupStates {
    fn state(&self, group: u32) -> State {
        self.0.get(&group).copied().unwrap_or(State::OPTIMIZED)
    }

    /// The status of an I/O command to a namespace of this group, if it is refused.
    pub(crate) fn refusal(&self, group: u32) -> Option<Status> {
        refusal(self.state(group))
    }
}

/// The status of commands to a namespace in a state in which they are refused.
pub(crate) fn refusal(state: State) -> Option<Status> {
    match state {
        State::OPTIMIZED | State::NON_OPTIMIZED => None,
        State::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
        State::CHANGE => Some(Status::ANA_TRANSITION),
        _ => Some(Status::ANA_INACCESSIBLE),
    }
}
