//! Reservations of a namespace: which hosts are registered, which of them holds it, and what each
//! host may do.
//!
//! [`Reservations`] are the rules as a plain value. [`ReservationTable`] has those of a subsystem's
//! namespaces, and tells the I/O queues in one word for each host and namespace what is refused.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_nvme::log_page::ReservationNotificationType as NoticeKind;
use weft_nvme::reservation::{
    AcquireAction, CONTROLLER_ID_DYNAMIC, EXTENDED_STATUS_REST, RegisterAction, Registrant,
    ReleaseAction, ReservationKeys, ReservationStatus, ReservationType,
};
use weft_nvme::wire::{U16, U32, U64};
use weft_nvme::{Status, Wire};

use crate::limits::REGISTRANTS_MAX;

pub use table::{HostAccess, ReservationTable};

/// A Host Identifier, which is what registers.
pub type HostId = [u8; 16];

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
const FIELD: Status = Status::INVALID_FIELD.with_dnr();

/// What is refused to a host: bits of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals(pub(crate) u8);

impl Refusals {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Commands that read.
    pub const READS: Self = Self(1);
    /// Commands that write.
    pub const WRITES: Self = Self(2);
    /// Both.
    pub const ALL: Self = Self(3);

    /// Whether something is refused that `other` does not refuse.
    const fn exceeds(self, other: Self) -> bool {
        self.0 & !other.0 != 0
    }
}

/// What a command of a host is to change, without its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reservation Register.
    Register {
        /// Which action.
        action: RegisterAction,
        /// The current key is not looked at.
        ignore_existing_key: bool,
        /// What Persist Through Power Loss becomes, if it is to change.
        persist: Option<bool>,
    },
    /// Reservation Acquire.
    Acquire {
        /// Which action.
        action: AcquireAction,
        /// The type of the reservation.
        kind: ReservationType,
    },
    /// Reservation Release.
    Release {
        /// Which action.
        action: ReleaseAction,
        /// The type of the reservation.
        kind: ReservationType,
    },
    /// Set Features for Reservation Persistence.
    Persist(bool),
}

impl Operation {
    /// The request with the keys that the host has sent.
    pub fn request(self, data: &[u8]) -> Result<Request, Status> {
        let short = |_| Status::DATA_SGL_LENGTH_INVALID.with_dnr();
        let (current, other) = match self {
            Self::Register { .. } | Self::Acquire { .. } => {
                let keys = ReservationKeys::view(data).map_err(short)?;
                (keys.current.get(), keys.other.get())
            }
            Self::Release { .. } => (U64::read(data).map_err(short)?.get(), 0),
            Self::Persist(_) => (0, 0),
        };
        Ok(Request { operation: self, current, other })
    }
}

/// A command with its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub operation: Operation,
    /// Current Reservation Key.
    pub current: u64,
    /// New Reservation Key or Preempt Reservation Key.
    pub other: u64,
}

/// A host is to be notified, if it has not masked this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The host.
    pub host: HostId,
    /// What has happened.
    pub kind: NoticeKind,
}

/// The reservation that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentReservation {
    /// Its type.
    pub kind: ReservationType,
    /// The host that acquired it. If all registrants hold it, one of them.
    pub holder: HostId,
}

/// The registrants of a namespace and the reservation that is held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    generation: u32,
    registrants: BTreeMap<HostId, u64>,
    /// The names of the hosts that have registered, as far as they are known.
    owners: BTreeMap<HostId, Arc<str>>,
    held: Option<CurrentReservation>,
    persists: bool,
}

impl Reservations {
    /// Those that persisted; `None` if the holder is not one of the registrants, or they are too
    /// many.
    #[must_use]
    pub fn restored(
        registrants: BTreeMap<HostId, u64>,
        held: Option<CurrentReservation>,
    ) -> Option<Self> {
        let is_right =
            held.is_none_or(|held| held.kind.is_held() && registrants.contains_key(&held.holder));
        let fits = registrants.len() <= REGISTRANTS_MAX;
        let owners = BTreeMap::new();
        let own = Self { generation: 0, registrants, owners, held, persists: true };
        (is_right && fits).then_some(own)
    }

    /// The registrants with their keys.
    #[must_use]
    pub const fn registrants(&self) -> &BTreeMap<HostId, u64> {
        &self.registrants
    }

    /// The NQNs of registrants, as far as they are known.
    #[must_use]
    pub const fn owners(&self) -> &BTreeMap<HostId, Arc<str>> {
        &self.owners
    }

    /// These are the NQNs of hosts; only those of registrants are kept.
    pub fn add_owners(&mut self, owners: impl IntoIterator<Item = (HostId, Arc<str>)>) {
        self.owners.extend(owners);
        self.owners.retain(|host, _| self.registrants.contains_key(host));
    }

    /// The reservation that is held.
    #[must_use]
    pub const fn held(&self) -> Option<CurrentReservation> {
        self.held
    }

    /// Persist Through Power Loss.
    #[must_use]
    pub const fn persists(&self) -> bool {
        self.persists
    }

    /// What is refused to a host.
    #[must_use]
    pub fn refused_to(&self, host: &HostId) -> Refusals {
        let Some(held) = self.held else { return Refusals::NONE };
        let is_free = match held.kind.is_of_holder() {
            true => held.holder == *host,
            false => self.registrants.contains_key(host),
        };
        match (is_free, held.kind.reserves_reading()) {
            (true, _) => Refusals::NONE,
            (false, false) => Refusals::WRITES,
            (false, true) => Refusals::ALL,
        }
    }

    /// Carries a request of a host out, and returns who is to be notified. `can_persist`: there
    /// is a place where reservations can be kept. After an error the value is not to be used.
    pub fn apply(
        &mut self,
        host: HostId,
        request: &Request,
        can_persist: bool,
    ) -> Result<Vec<Notice>, Status> {
        if host == HostId::default() {
            return Err(Status::HOST_ID_NOT_INITIALIZED.with_dnr());
        }
        let Request { operation, current, other } = *request;
        match operation {
            Operation::Register { action, ignore_existing_key, persist } => {
                self.set_persists(persist, can_persist)?;
                let current = (!ignore_existing_key).then_some(current);
                let notices = self.register(host, action, current, other)?;
                self.generation = self.generation.wrapping_add(1);
                Ok(notices)
            }
            Operation::Acquire { action, kind } => {
                self.check_key(&host, current)?;
                match action {
                    AcquireAction::ACQUIRE => self.acquire(host, kind).map(|()| Vec::new()),
                    _ => self.preempt(host, kind, other),
                }
            }
            Operation::Release { action, kind } => {
                self.check_key(&host, current)?;
                match action {
                    ReleaseAction::RELEASE => self.release(host, kind),
                    _ => Ok(self.clear(host)),
                }
            }
            Operation::Persist(persist) => {
                self.set_persists(Some(persist), can_persist)?;
                Ok(Vec::new())
            }
        }
    }

    /// The data of an extended Reservation Report.
    #[must_use]
    pub fn report(&self) -> Vec<u8> {
        let status = ReservationStatus {
            generation: U32::new(self.generation),
            reservation_type: self.held.map_or(ReservationType::NONE, |held| held.kind),
            registrants: U16::new(u16::try_from(self.registrants.len()).unwrap_or(u16::MAX)),
            persistence: self.persists.into(),
            ..ReservationStatus::default()
        };
        let mut report = status.bytes().to_vec();
        report.resize(report.len() + EXTENDED_STATUS_REST, 0);
        for (host, key) in &self.registrants {
            let registrant = Registrant {
                controller_id: U16::new(CONTROLLER_ID_DYNAMIC),
                status: self.is_holder(host).into(),
                key: U64::new(*key),
                host_id: *host,
                ..Registrant::default()
            };
            report.extend_from_slice(registrant.bytes());
        }
        report
    }

    fn set_persists(&mut self, persist: Option<bool>, can_persist: bool) -> Result<(), Status> {
        match persist {
            Some(true) if !can_persist => return Err(FIELD),
            Some(persist) => self.persists = persist,
            None => {}
        }
        Ok(())
    }

    fn is_holder(&self, host: &HostId) -> bool {
        self.held.is_some_and(|held| match held.kind.is_of_all_registrants() {
            true => self.registrants.contains_key(host),
            false => held.holder == *host,
        })
    }

    fn check_key(&self, host: &HostId, key: u64) -> Result<(), Status> {
        if self.registrants.get(host) == Some(&key) { Ok(()) } else { Err(CONFLICT) }
    }

    /// `current` is the key that the host says it has, unless that is to be ignored.
    fn register(
        &mut self,
        host: HostId,
        action: RegisterAction,
        current: Option<u64>,
        new: u64,
    ) -> Result<Vec<Notice>, Status> {
        let known = self.registrants.get(&host).copied();
        if action == RegisterAction::REGISTER {
            match known {
                Some(key) if key != new => return Err(CONFLICT),
                None if self.registrants.len() >= REGISTRANTS_MAX => {
                    return Err(Status::INTERNAL_ERROR.with_dnr());
                }
                _ => {}
            }
            self.registrants.insert(host, new);
            return Ok(Vec::new());
        }
        if known.is_none() || current.is_some_and(|current| known != Some(current)) {
            return Err(CONFLICT);
        }
        if action == RegisterAction::REPLACE {
            self.registrants.insert(host, new);
            return Ok(Vec::new());
        }
        let before = self.held;
        self.unregister(&host);
        // A host that may not do more than before is not told.
        match before {
            Some(held) if self.held.is_none() && !held.kind.is_of_holder() => {
                Ok(self.notices(NoticeKind::RESERVATION_RELEASED, host))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn acquire(&mut self, host: HostId, kind: ReservationType) -> Result<(), Status> {
        match self.held {
            None => self.held = Some(CurrentReservation { kind, holder: host }),
            Some(held) if held.kind == kind && self.is_holder(&host) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(())
    }

    fn preempt(
        &mut self,
        host: HostId,
        kind: ReservationType,
        key: u64,
    ) -> Result<Vec<Notice>, Status> {
        let before = self.held;
        let (of_all, holders_key) = match before {
            None => (false, None),
            Some(held) if held.kind.is_of_all_registrants() => (true, None),
            Some(held) => (false, self.registrants.get(&held.holder).copied()),
        };
        // The reservation itself is preempted, or only registrations are.
        let takes = if of_all { key == 0 } else { holders_key == Some(key) };
        if !takes && key == 0 && before.is_some() {
            return Err(FIELD);
        }
        let is_meant = |one: &HostId, its: u64| match (takes, of_all) {
            (true, true) => *one != host,
            (true, false) => *one != host && its == key,
            (false, _) => its == key,
        };
        let meant = self.registrants.iter().filter(|(one, its)| is_meant(one, **its));
        let gone: Vec<HostId> = meant.map(|(one, _)| *one).collect();
        if gone.is_empty() && !takes {
            return Err(CONFLICT);
        }
        for one in &gone {
            self.unregister(one);
        }
        if takes {
            self.held = Some(CurrentReservation { kind, holder: host });
        }
        self.generation = self.generation.wrapping_add(1);
        let preempted = gone.into_iter().filter(|one| *one != host);
        let kind = NoticeKind::REGISTRATION_PREEMPTED;
        let mut notices: Vec<_> = preempted.map(|host| Notice { host, kind }).collect();
        if before.is_some() && before.map(|held| held.kind) != self.held.map(|held| held.kind) {
            notices.extend(self.notices(NoticeKind::RESERVATION_RELEASED, host));
        }
        Ok(notices)
    }

    fn release(&mut self, host: HostId, kind: ReservationType) -> Result<Vec<Notice>, Status> {
        match self.held {
            Some(held) if self.is_holder(&host) => {
                if held.kind != kind {
                    return Err(FIELD);
                }
                self.held = None;
                if held.kind.is_of_holder() {
                    return Ok(Vec::new());
                }
                Ok(self.notices(NoticeKind::RESERVATION_RELEASED, host))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn clear(&mut self, host: HostId) -> Vec<Notice> {
        let notices = self.notices(NoticeKind::RESERVATION_PREEMPTED, host);
        self.registrants.clear();
        self.held = None;
        self.generation = self.generation.wrapping_add(1);
        notices
    }

    /// Removes a registrant. What it holds alone is released; what all registrants hold is
    /// released with the last of them.
    fn unregister(&mut self, host: &HostId) {
        self.registrants.remove(host);
        if let Some(held) = &mut self.held
            && held.holder == *host
        {
            match self.registrants.keys().next() {
                Some(next) if held.kind.is_of_all_registrants() => held.holder = *next,
                _ => self.held = None,
            }
        }
    }

    /// A notice for every registrant but the host that caused it.
    fn notices(&self, kind: NoticeKind, but: HostId) -> Vec<Notice> {
        let others = self.registrants.keys().filter(|host| **host != but);
        others.map(|host| Notice { host: *host, kind }).collect()
    }
}
