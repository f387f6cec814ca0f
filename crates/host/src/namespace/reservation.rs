//! Reservations of a namespace.

use weft_nvme::reservation::{
    EXTENDED_STATUS_REST, Registrant, ReservationControl, ReservationKeys, ReservationStatus,
};
use weft_nvme::wire::U64;
use weft_nvme::{Command, NvmOpcode, Wire};

use super::Namespace;
use crate::error::Error;
use crate::queue::ReservationCommand;
use crate::worker::IoKind;

/// Extended Data Structure (EDS): Host Identifiers of 128 bits.
const EXTENDED: u32 = 1;

/// What a report in the extended form begins with.
const HEAD_BYTES: usize = ReservationStatus::SIZE + EXTENDED_STATUS_REST;

/// Reservations belong to this host, by its Host Identifier: they outlive the connection. A command
/// whose connection is lost is not sent again, since it may have been carried out.
impl Namespace {
    /// Registers, replaces or takes back the key of this host (Reservation Register).
    pub fn reservation_register(
        &self,
        control: ReservationControl,
        current: u64,
        new: u64,
    ) -> Result<(), Error> {
        self.reserve(NvmOpcode::RESERVATION_REGISTER, control, keys(current, new).bytes())
    }

    /// Acquires or preempts a reservation (Reservation Acquire).
    pub fn reservation_acquire(
        &self,
        control: ReservationControl,
        current: u64,
        preempted: u64,
    ) -> Result<(), Error> {
        self.reserve(NvmOpcode::RESERVATION_ACQUIRE, control, keys(current, preempted).bytes())
    }

    /// Releases the reservation, or clears it with all registrants (Reservation Release).
    pub fn reservation_release(
        &self,
        control: ReservationControl,
        current: u64,
    ) -> Result<(), Error> {
        self.reserve(NvmOpcode::RESERVATION_RELEASE, control, &current.to_le_bytes())
    }

    /// Who is registered, and what is reserved (Reservation Report).
    pub fn reservation_report(&self) -> Result<(ReservationStatus, Vec<Registrant>), Error> {
        let mut room = 0;
        loop {
            let bytes = self.report(HEAD_BYTES + room * Registrant::SIZE)?;
            let status = ReservationStatus::read(&bytes).map_err(|_| Error::Stopped)?;
            let there = usize::from(status.registrants.get());
            if there <= room {
                let each = bytes[HEAD_BYTES..].chunks_exact(Registrant::SIZE).take(there);
                let registrants = each.filter_map(|one| Registrant::read(one).ok());
                return Ok((status, registrants.collect()));
            }
            // Others may register meanwhile.
            room = there;
        }
    }

    fn report(&self, length: usize) -> Result<Vec<u8>, Error> {
        let dwords_0s_based = u32::try_from(length / 4).unwrap_or(u32::MAX) - 1;
        let command = Command::new(NvmOpcode::RESERVATION_REPORT)
            .with_cdw10(dwords_0s_based)
            .with_cdw11(EXTENDED);
        let kind = IoKind::Reservation(Box::new(ReservationCommand { command, is_report: true }));
        // What the controller does not send stays zero.
        self.call(kind, 0, 0, vec![0; length])
    }

    fn reserve(
        &self,
        opcode: NvmOpcode,
        control: ReservationControl,
        data: &[u8],
    ) -> Result<(), Error> {
        let command = Command::new(opcode).with_cdw10(control.0);
        let kind = IoKind::Reservation(Box::new(ReservationCommand { command, is_report: false }));
        self.call(kind, 0, 0, data.to_vec()).map(drop)
    }
}

fn keys(current: u64, other: u64) -> ReservationKeys {
    ReservationKeys { current: U64::new(current), other: U64::new(other) }
}
