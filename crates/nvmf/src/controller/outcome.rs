//! What becomes of an admin command, and whether its data is as long as it should be.

use weft_nvme::sgl::Location;
use weft_nvme::{Command, Status};

use crate::queue::{CommandError, error};

/// The outcome of an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Done, with this result in dwords 0 and 1.
    Done(u64),
    /// Done, with this data for the host.
    Data(Vec<u8>),
    /// This many bytes from the host are missing; nothing has happened yet.
    NeedData(u32),
    /// It will be answered later.
    Pending,
}

pub(super) const DATA_LENGTH: CommandError = error(Status::DATA_SGL_LENGTH_INVALID, 32);

const DATA_OFFSET: CommandError = error(Status::SGL_OFFSET_INVALID, 24);

pub(super) const DATA_TYPE: CommandError = error(Status::SGL_DESCRIPTOR_TYPE_INVALID, 39);

const DATA_DIRECTION: CommandError = error(Status::INVALID_FIELD, 39);

/// The data pointer must describe exactly the data that goes to the host.
pub(super) fn check_data_to_host(command: &Command, length: u32) -> Result<(), CommandError> {
    match command.data_pointer.location() {
        Ok(Location::InCapsule { .. }) => Err(DATA_DIRECTION),
        location => check_length(location.ok(), length),
    }
}

/// The data pointer must describe exactly the data that the host is to send.
pub(super) fn check_data_from_host(command: &Command, length: u32) -> Result<(), CommandError> {
    match command.data_pointer.location() {
        Ok(Location::InCapsule { offset, .. }) if offset != 0 => Err(DATA_OFFSET),
        location => check_length(location.ok(), length),
    }
}

fn check_length(location: Option<Location>, length: u32) -> Result<(), CommandError> {
    match location {
        Some(
            Location::Transport { length: described }
            | Location::InCapsule { length: described, .. }
            | Location::Keyed { length: described, .. },
        ) => {
            if described == length {
                Ok(())
            } else {
                Err(DATA_LENGTH)
            }
        }
        _ => Err(DATA_TYPE),
    }
}
