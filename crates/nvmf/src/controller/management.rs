//! Namespace Management and Namespace Attachment: hosts make namespaces, and say to which
//! controllers they are attached.
//!
//! Which namespaces a controller has follows from its host, so that an attachment holds for all
//! controllers of the hosts whose controllers the command names.

use std::collections::BTreeSet;
use std::time::Duration;

use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::identify::{self, CommandSetId, ControllerList, IDENTIFY_LENGTH};
use weft_nvme::{Command, Status, Wire};

use super::outcome::{Outcome, check_data_from_host};
use super::persistent::setting::{Change, Setting};
use super::{Controller, Effect};
use crate::namespaces::{BLOCK_SIZES, NamespaceChange};
use crate::queue::{CommandError, error};
use crate::subsystem::HostNamespaces;

const OPCODE: CommandError = error(Status::INVALID_OPCODE, 0);
const NAMESPACE: CommandError = error(Status::INVALID_NAMESPACE, 4);
const SELECT: CommandError = error(Status::INVALID_FIELD, 40);
const COMMAND_SET: CommandError = error(Status::INVALID_FIELD, 47);
const CREATE: u32 = 0;
const DELETE: u32 = 1;
const ATTACH: u32 = 0;
const DETACH: u32 = 1;

const fn of_data(status: Status) -> CommandError {
    CommandError { status: status.with_dnr(), parameter: None }
}

impl Controller {
    /// Namespace Management.
    pub(super) fn manage_namespace(
        &mut self,
        command: &Command,
        data: &[u8],
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let Some(own) = &self.view.host_namespaces else { return Err(OPCODE) };
        let nsid = command.namespace_id.get();
        let mut recorded = identify::Namespace::zeroed();
        let change = match command.cdw10.get() & 0xf {
            CREATE => {
                if command.cdw11.get() >> 24 != u32::from(CommandSetId::NVM.0) {
                    return Err(COMMAND_SET);
                }
                check_data_from_host(command, length())?;
                if data.is_empty() {
                    return Ok(Outcome::NeedData(length()));
                }
                recorded = identify::Namespace::read(data).unwrap_or(recorded);
                created(own, self.view.limits.max_namespaces, data)?
            }
            DELETE if nsid == NAMESPACE_ID_BROADCAST => {
                NamespaceChange::Delete(own.made.iter().copied().collect())
            }
            DELETE => {
                let before = self.identify_namespace(own.allocated.get(nsid));
                recorded = identify::Namespace::read(&before).unwrap_or(recorded);
                NamespaceChange::Delete(vec![made(own, nsid)?])
            }
            _ => return Err(SELECT),
        };
        let recorded = Some((Change::of_namespace(command, &recorded), now));
        Ok(self.change_namespaces(command, change, recorded))
    }

    /// Namespace Attachment.
    pub(super) fn attach_namespace(
        &mut self,
        command: &Command,
        data: &[u8],
    ) -> Result<Outcome, CommandError> {
        let Some(own) = &self.view.host_namespaces else { return Err(OPCODE) };
        let select = command.cdw10.get() & 0xf;
        if ![ATTACH, DETACH].contains(&select) {
            return Err(SELECT);
        }
        let nsid = made(own, command.namespace_id.get())?;
        check_data_from_host(command, length())?;
        if data.is_empty() {
            return Ok(Outcome::NeedData(length()));
        }
        let invalid = of_data(Status::CONTROLLER_LIST_INVALID);
        let list = ControllerList::view(data).map_err(|_| invalid)?;
        let mut hosts = BTreeSet::new();
        for id in list.iter() {
            let host = self.view.shared.host(id).ok_or(invalid)?;
            let is_attached = self.view.visibility.shows(nsid, &host);
            match select {
                ATTACH if is_attached => return Err(of_data(Status::NAMESPACE_ALREADY_ATTACHED)),
                DETACH if !is_attached => return Err(of_data(Status::NAMESPACE_NOT_ATTACHED)),
                _ => hosts.insert(host),
            };
        }
        if hosts.is_empty() {
            return Err(invalid);
        }
        let change = match select {
            ATTACH => NamespaceChange::Attach(nsid, hosts),
            _ => NamespaceChange::Detach(nsid, hosts),
        };
        Ok(self.change_namespaces(command, change, None))
    }

    fn change_namespaces(
        &mut self,
        command: &Command,
        change: NamespaceChange,
        recorded: Option<(Change, Duration)>,
    ) -> Outcome {
        let command_id = command.command_id.get();
        self.setting.push(Setting { command_id, change: recorded });
        self.effects.push_back(Effect::ChangeNamespaces { command_id, change });
        Outcome::Pending
    }
}

/// The namespace that a host wants to be made.
fn created(own: &HostNamespaces, most: u32, data: &[u8]) -> Result<NamespaceChange, CommandError> {
    let invalid = of_data(Status::INVALID_FIELD);
    let wanted = identify::Namespace::view(data).map_err(|_| invalid)?;
    let format = wanted.formatted_lba_size.format_index();
    let format = BLOCK_SIZES.get(format).filter(|_| wanted.protection_settings == 0);
    let block_bytes = *format.ok_or(of_data(Status::INVALID_FORMAT))?;
    let blocks = wanted.size.get();
    if blocks == 0 {
        return Err(invalid);
    }
    if wanted.capacity.get() != blocks {
        return Err(of_data(Status::THIN_PROVISIONING_NOT_SUPPORTED));
    }
    let bytes = blocks.checked_mul(u64::from(block_bytes));
    if bytes.is_none_or(|bytes| bytes > own.free_bytes()) {
        return Err(of_data(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
    }
    if own.allocated.iter().count() >= most as usize {
        return Err(of_data(Status::NAMESPACE_ID_UNAVAILABLE));
    }
    let ana_group = Some(wanted.ana_group_id.get()).filter(|group| *group != 0);
    if ana_group.is_some_and(|group| group > most) {
        return Err(invalid);
    }
    Ok(NamespaceChange::Create { blocks, block_bytes, ana_group })
}

/// A namespace that was made by a host; what the target's operator has made is not theirs.
fn made(own: &HostNamespaces, nsid: u32) -> Result<u32, CommandError> {
    match own.allocated.get(nsid) {
        None => Err(NAMESPACE),
        Some(_) if own.made.contains(&nsid) => Ok(nsid),
        Some(_) => Err(of_data(Status::OPERATION_DENIED)),
    }
}

/// Bytes of the data of both commands.
fn length() -> u32 {
    u32::try_from(IDENTIFY_LENGTH).unwrap_or(u32::MAX)
}
