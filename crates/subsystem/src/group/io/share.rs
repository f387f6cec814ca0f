//! Whose share of its group's time the commands of a queue are part of.

use weft_nvme::fabrics::ConnectAttributes;

use super::Io;
use crate::group::core::Core;
use crate::group::schedule::{Shares, TenantId, TenantKey};
use crate::shared::classes::ClassSource;

impl Io {
    /// Whose share its commands are part of, if that is known.
    pub(in crate::group) fn tenant(&self, shares: &Shares) -> Option<TenantId> {
        self.tenant.filter(|tenant| shares.has(*tenant))
    }

    /// The same of a queue that may have work.
    pub(in crate::group) fn enter_tenant(&mut self, core: &mut Core) -> Option<TenantId> {
        if self.closed {
            return None;
        }
        let class_weight = self.priority.map_or(1, |class| self.class_weight(class));
        if let Some(tenant) = self.tenant(&core.schedule.shares) {
            if self.priority.is_some() {
                core.schedule.shares.set_class_weight(tenant, class_weight);
            }
            return Some(tenant);
        }
        let rule = match self.class.grant() {
            ClassSource::Rule(_, place) => Some(place),
            ClassSource::Connect(_) | ClassSource::Automatic => None,
        };
        let weight = rule.and_then(|place| core.snapshot.qos_rules.get(place)?.weight);
        let key = match (rule, weight) {
            (Some(place), Some(_)) => TenantKey::Rule(place),
            // A rule decides alone, so that the host's priorities do not count.
            (Some(_), None) => TenantKey::Host(self.host.names().0.to_owned(), None),
            (None, _) => TenantKey::Host(self.host.names().0.to_owned(), self.priority),
        };
        self.tenant = Some(core.schedule.shares.enter(key, weight, class_weight));
        self.tenant
    }

    /// The weight of a priority class. Urgent queues are served in their turn only beyond the
    /// time that express queues have.
    fn class_weight(&self, class: u8) -> u16 {
        let arbitration = self.queue.arbitration();
        let weight = match class {
            ConnectAttributes::URGENT => u8::MAX,
            1 => arbitration.high_priority_weight(),
            2 => arbitration.medium_priority_weight(),
            _ => arbitration.low_priority_weight(),
        };
        u16::from(weight) + 1
    }
}
