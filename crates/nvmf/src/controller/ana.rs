//! Asymmetric Namespace Access: the log page and what a controller remembers of its changes.

pub(super) mod changes;

use weft_nvme::Wire;
use weft_nvme::event::Event;
use weft_nvme::log_page::{AsymmetricNamespaceAccessHeader as Header, GetLogPage, GroupDescriptor};
use weft_nvme::wire::{U16, U64};

use super::Controller;
use crate::subsystem::SubsystemView;
use changes::{Changes, groups};

/// Log Specific Parameter: Return Groups Only (RGO).
const GROUPS_ONLY: u8 = 1;

impl Controller {
    /// The log page: every group that has a namespace, in the order of their identifiers.
    pub(super) fn ana_page(&self, get: &GetLogPage) -> Vec<u8> {
        let groups = groups(&self.view, self.port_id);
        let header = Header {
            change_count: U64::new(self.ana_changes.count),
            groups: U16::new(u16::try_from(groups.len()).unwrap_or(u16::MAX)),
            ..Header::default()
        };
        let mut page = header.bytes().to_vec();
        let groups_only = get.specific_parameter & GROUPS_ONLY != 0;
        for (id, group) in groups {
            let nsids = if groups_only { &[][..] } else { &group.nsids[..] };
            let count = u32::try_from(nsids.len()).unwrap_or(u32::MAX);
            let changed = self.ana_changes.groups.get(&id).copied().unwrap_or(0);
            let descriptor = GroupDescriptor::new(id, group.state, changed, count);
            page.extend_from_slice(descriptor.bytes());
            page.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        page
    }

    /// Counts the changes of the log page, and raises its event if a namespace that was there
    /// before has another state or group. Namespaces that come and go have an event of their own.
    pub(super) fn note_ana_changes(&mut self, old: &SubsystemView) {
        if self.view.ana.is_none() {
            return;
        }
        let (before, now) = (groups(old, self.port_id), groups(&self.view, self.port_id));
        if before == now {
            return;
        }
        self.ana_changes.count += 1;
        let count = self.ana_changes.count;
        let changed = now.iter().filter(|(id, group)| before.get(id) != Some(*group));
        self.ana_changes.groups.extend(changed.map(|(id, _)| (*id, count)));
        let access = |view: &SubsystemView, nsid| {
            let group = view.namespaces.get(nsid)?.ana_group;
            Some((group, view.ana_state(self.port_id, group)))
        };
        let mut known = old.namespaces.iter().map(|namespace| namespace.nsid);
        let moved = known.any(|nsid| {
            let now = access(&self.view, nsid);
            now.is_some() && access(old, nsid) != now
        });
        if moved {
            self.raise(Event::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE);
        }
    }

    /// The counts begin anew with a reset.
    pub(super) fn reset_ana_changes(&mut self) {
        self.ana_changes = Changes::default();
    }
}
