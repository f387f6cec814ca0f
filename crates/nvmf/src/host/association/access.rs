//! The access states (ANA) of an association that is one of several paths.

use core::time::Duration;
use std::sync::Arc;

use super::super::admin_queue::Purpose;
use super::super::event::Event;
use super::super::scan::Scan;
use super::super::snapshot::ControllerSnapshot;
use super::{Action, Association};

impl Association {
    /// An I/O queue was refused a command because of an access state, which the log page or an
    /// event may not have said yet: it is read again, and [`Action::Changed`] follows in any case.
    pub fn reread_access(&mut self, now: Duration) {
        self.begin_access_scan(now);
    }

    /// Reads the access states, if they are followed.
    pub(super) fn begin_access_scan(&mut self, now: Duration) {
        let Some(snapshot) = self.snapshot.as_ref().filter(|_| self.is_live()) else { return };
        self.scan_is_told = true;
        if self.scan.is_some() {
            self.scan_again = true;
            return;
        }
        let mut scan = Scan::of_access(snapshot);
        let Some((step, command)) = scan.poll_command() else {
            self.scan_is_told = false;
            return self.actions.push_back(Action::Changed(Arc::clone(snapshot)));
        };
        self.scan = Some(scan);
        self.submit(Purpose::Scan, step, command, now);
    }

    /// Linux gives a namespace that is between two states twice ANATT.
    pub(super) fn await_access(&mut self, now: Duration) {
        let Some(snapshot) = &self.snapshot else { return };
        let transition = u64::from(snapshot.controller.identify.ana_transition_time_s);
        let patience = Duration::from_secs(2 * transition);
        self.stuck_at = match snapshot.access.has_change() && !patience.is_zero() {
            true => self.stuck_at.or(Some(now.saturating_add(patience))),
            false => None,
        };
    }

    pub(super) fn report_access(&mut self, before: &ControllerSnapshot, now: &ControllerSnapshot) {
        let changes = now.access.changes_since(&before.access).into_iter();
        let events = changes.map(|(nsid, state)| Action::Event(Event::Access { nsid, state }));
        self.actions.extend(events);
    }
}
