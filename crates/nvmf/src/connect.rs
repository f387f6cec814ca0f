//! The checks of the Connect command.
//!
//! A target goes through them in this order. [`ConnectRequest::data_bytes`] says whether the
//! first command on a connection is a Connect and how much data comes with it;
//! [`ConnectRequest::parse`] reads both. For the admin queue, [`ConnectRequest::check_admin`]
//! checks the request against the subsystem and [`ControllerIds::allocate`] finds an identifier;
//! then the target makes a [`crate::controller::Controller`] and answers with its
//! `admin_grant`. For an I/O queue the target finds the controller and calls its `attach_queue`;
//! if there is none, the answer is [`ConnectError::unknown_controller`].
//!
//! Where the specification leaves the order or the status open, this answers as Linux does.

use std::collections::BTreeSet;
use std::fmt;

use weft_nvme::fabrics::{
    ADMIN_QUEUE_ENTRIES_MIN, CONTROLLER_ID_DYNAMIC, CONTROLLER_ID_STATIC, Connect, ConnectData,
    InvalidParameter, RECORD_FORMAT,
};
use weft_nvme::nqn::InvalidNqn;
use weft_nvme::{Command, Completion, FabricsType, Nqn, Status, Wire};

use crate::host::problem::connect_words;
use crate::subsystem::{ControllerModel, SubsystemView};

/// A Connect command with its data, read and well formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Identifier of the Connect command.
    pub command_id: u16,
    /// Queue ID: 0 for the admin queue.
    pub queue_id: u16,
    /// Entries of the submission queue.
    pub entries: u32,
    /// Whether SQ flow control is used.
    pub flow_control: bool,
    /// Priority class of an I/O queue, 0 (Urgent) to 3, for weighted round robin.
    pub priority: u8,
    /// Keep Alive Timeout; 0 for none.
    pub keep_alive_timeout_ms: u32,
    /// Host Identifier.
    pub host_id: [u8; 16],
    /// The controller that is asked for, or one of the two values that leave it open.
    pub controller_id: u16,
    /// The subsystem's name.
    pub subsystem: Nqn,
    /// The host's name: the one made from its identifier, if it gave none.
    pub host: Nqn,
}

/// Why a Connect was refused: the status and dword 0 of the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectError {
    /// The status, with Do Not Retry where a retry cannot succeed.
    pub status: Status,
    /// Dword 0: for Connect Invalid Parameters, the position of the parameter.
    pub result: u32,
}

impl fmt::Display for ConnectError {
    /// The words in which hosts are told of it, or the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names_parameter = self.status.code() == Status::CONNECT_INVALID_PARAMETERS.code();
        let parameter = names_parameter.then_some(InvalidParameter(self.result));
        match connect_words(self.status, parameter) {
            Some(words) => f.write_str(words),
            None => self.status.fmt(f),
        }
    }
}

impl ConnectError {
    /// A parameter is not acceptable.
    #[must_use]
    pub const fn invalid(parameter: InvalidParameter) -> Self {
        Self { status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(), result: parameter.0 }
    }

    /// A status without a parameter.
    #[must_use]
    pub const fn status(status: Status) -> Self {
        Self { status, result: 0 }
    }

    /// There is no such subsystem.
    #[must_use]
    pub const fn unknown_subsystem() -> Self {
        Self::invalid(InvalidParameter::SUBSYSTEM_NQN)
    }

    /// There is no such controller.
    #[must_use]
    pub const fn unknown_controller() -> Self {
        Self::invalid(InvalidParameter::CONTROLLER_ID)
    }

    /// The completion with this error.
    #[must_use]
    pub const fn completion(&self, command_id: u16) -> Completion {
        Completion::new(command_id, self.status).with_dword0(self.result)
    }
}

impl ConnectRequest {
    /// How many bytes of data come with the first command of a connection, if it is a Connect.
    ///
    /// Anything else before Connect is a Command Sequence Error.
    pub fn data_bytes(command: &Command) -> Result<u32, ConnectError> {
        if command.fabrics_type() != Some(FabricsType::CONNECT) {
            return Err(ConnectError::status(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
        }
        let Ok(location) = command.data_pointer.location() else {
            return Err(ConnectError::status(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()));
        };
        if location.length() != Connect::DATA_LENGTH {
            return Err(ConnectError::status(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
        }
        Ok(Connect::DATA_LENGTH)
    }

    /// Reads a Connect command and its data, and checks what needs no subsystem to check.
    pub fn parse(command: &Command, data: &[u8]) -> Result<Self, ConnectError> {
        Self::data_bytes(command)?;
        let connect = Connect::from_command(command);
        if connect.record_format != RECORD_FORMAT {
            let status = Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr();
            return Err(ConnectError::status(status));
        }
        let data = ConnectData::view(data)
            .map_err(|_| ConnectError::status(Status::DATA_SGL_LENGTH_INVALID.with_dnr()))?;
        let subsystem = data.subsystem().map_err(|_| ConnectError::unknown_subsystem())?;
        let host = match data.host() {
            // The Linux target asks for a name only if not every host is allowed, and SPDK's load
            // generator gives none unless it is told to.
            Err(InvalidNqn::Empty) => Nqn::from_uuid(data.host_id),
            named => named.map_err(|_| ConnectError::invalid(InvalidParameter::HOST_NQN))?,
        };
        let entries = connect.submission_queue_entries();
        let smallest = match connect.queue_id {
            0 => u32::from(ADMIN_QUEUE_ENTRIES_MIN),
            _ => 2,
        };
        if entries < smallest {
            return Err(ConnectError::invalid(InvalidParameter::SUBMISSION_QUEUE_SIZE));
        }
        Ok(Self {
            command_id: command.command_id.get(),
            queue_id: connect.queue_id,
            entries,
            flow_control: !connect.attributes.disable_flow_control(),
            priority: connect.attributes.priority_class(),
            keep_alive_timeout_ms: connect.keep_alive_timeout_ms,
            host_id: data.host_id,
            controller_id: data.controller_id.get(),
            subsystem,
            host,
        })
    }

    /// Whether a new controller of `subsystem` may be made for this request.
    pub fn check_admin(&self, subsystem: &SubsystemView) -> Result<(), ConnectError> {
        self.check_host(subsystem)?;
        self.check_size(subsystem)?;
        let acceptable = match subsystem.controller_model {
            ControllerModel::Dynamic => self.controller_id == CONTROLLER_ID_DYNAMIC,
            ControllerModel::Static => {
                let (first, last) = subsystem.limits.controller_ids;
                self.controller_id == CONTROLLER_ID_STATIC
                    || (first..=last).contains(&self.controller_id)
            }
        };
        if acceptable { Ok(()) } else { Err(ConnectError::unknown_controller()) }
    }

    /// Whether the host is allowed to connect to the subsystem.
    pub fn check_host(&self, subsystem: &SubsystemView) -> Result<(), ConnectError> {
        let named = self.subsystem == subsystem.nqn
            || (self.subsystem.is_discovery() && subsystem.discovery().is_some());
        if !named {
            return Err(ConnectError::unknown_subsystem());
        }
        if !subsystem.allows(&self.host) {
            return Err(ConnectError::status(Status::CONNECT_INVALID_HOST.with_dnr()));
        }
        Ok(())
    }

    /// Whether the queue is within Maximum Queue Entries Supported.
    pub(crate) fn check_size(&self, subsystem: &SubsystemView) -> Result<(), ConnectError> {
        if self.entries > queue_entries_max(subsystem).into() {
            return Err(ConnectError::invalid(InvalidParameter::SUBMISSION_QUEUE_SIZE));
        }
        Ok(())
    }
}

/// Entries of the longest queue; the admin queue's smallest size is always granted.
pub(crate) fn queue_entries_max(subsystem: &SubsystemView) -> u16 {
    subsystem.limits.max_queue_entries.max(ADMIN_QUEUE_ENTRIES_MIN)
}

/// The controller identifiers of one subsystem.
///
/// They are given out in turn, so that one that was just given up is not soon used again.
#[derive(Debug, Default)]
pub struct ControllerIds {
    taken: BTreeSet<u16>,
    last: u16,
}

impl ControllerIds {
    /// None taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the identifier that a checked request names, or the next free one.
    pub fn allocate(
        &mut self,
        request: &ConnectRequest,
        subsystem: &SubsystemView,
    ) -> Result<u16, ConnectError> {
        let busy = ConnectError::status(Status::CONNECT_CONTROLLER_BUSY);
        if self.taken.len() >= usize::from(subsystem.limits.max_controllers) {
            return Err(busy);
        }
        let (first, last) = subsystem.limits.controller_ids;
        if (first..=last).contains(&request.controller_id) {
            let free = self.taken.insert(request.controller_id);
            return if free { Ok(request.controller_id) } else { Err(busy) };
        }
        for _ in first..=last {
            let next = self.last.saturating_add(1);
            self.last = if (first..=last).contains(&next) { next } else { first };
            if self.taken.insert(self.last) {
                return Ok(self.last);
            }
        }
        Err(busy)
    }

    /// Gives an identifier up.
    pub fn release(&mut self, controller_id: u16) {
        self.taken.remove(&controller_id);
    }
}

#[cfg(test)]
pub(crate) mod test_support {
    use super::*;
    use crate::subsystem::test_support::{HOST, SUBSYSTEM, nqn};
    use weft_nvme::fabrics::ConnectAttributes;
    use weft_nvme::sgl::Descriptor;

    pub(crate) const HOST_ID: [u8; 16] = [7; 16];

    /// A good Connect of a queue; the controller identifier is that of the admin queue's.
    pub(crate) fn connect_command(queue_id: u16, size: u16) -> Command {
        let connect = Connect {
            record_format: 0,
            queue_id,
            submission_queue_size: size,
            attributes: ConnectAttributes(0),
            keep_alive_timeout_ms: 0,
        };
        connect
            .to_command()
            .with_command_id(0x77)
            .with_data_pointer(Descriptor::in_capsule(0, Connect::DATA_LENGTH))
    }

    pub(crate) fn connect_data(controller_id: u16) -> ConnectData {
        ConnectData::new(HOST_ID, controller_id, &nqn(SUBSYSTEM), &nqn(HOST))
    }

    pub(crate) fn request(queue_id: u16, size: u16, controller_id: u16) -> ConnectRequest {
        ConnectRequest::parse(&connect_command(queue_id, size), connect_data(controller_id).bytes())
            .expect("a good request")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::test_support::{HOST_ID, connect_command, connect_data, request};
    use super::*;
    use crate::subsystem::test_support::{HOST, SUBSYSTEM, nqn, view};
    use weft_nvme::fabrics::CONTROLLER_ID_MAX;
    use weft_nvme::sgl::Descriptor;
    use weft_nvme::{AdminOpcode, NvmOpcode};

    const DYNAMIC: u16 = CONTROLLER_ID_DYNAMIC;

    fn refuse(command: &Command, data: &[u8]) -> (Status, u32) {
        let error = ConnectRequest::parse(command, data).expect_err("refused");
        let completion = error.completion(0x77);
        assert_eq!(completion.command_id.get(), 0x77);
        (completion.status(), completion.dword0())
    }

    const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();

    #[test]
    fn a_good_connect_is_read() {
        let command = connect_command(0, 31).with_cdw12(15_000);
        let expected = ConnectRequest {
            command_id: 0x77,
            queue_id: 0,
            entries: 32,
            flow_control: true,
            priority: 0,
            keep_alive_timeout_ms: 15_000,
            host_id: HOST_ID,
            controller_id: DYNAMIC,
            subsystem: nqn(SUBSYSTEM),
            host: nqn(HOST),
        };
        let data = connect_data(DYNAMIC);
        assert_eq!(ConnectRequest::parse(&command, data.bytes()), Ok(expected));
        let without = command.with_cdw11(0x0004_001f);
        assert!(!ConnectRequest::parse(&without, data.bytes()).unwrap().flow_control);
        let low = command.with_cdw11(0x0003_001f);
        assert_eq!(ConnectRequest::parse(&low, data.bytes()).unwrap().priority, 3);
    }

    #[test]
    fn nothing_comes_before_connect() {
        for command in [
            Command::new(AdminOpcode::IDENTIFY),
            Command::new(NvmOpcode::READ),
            Command::fabrics(FabricsType::PROPERTY_GET),
            Command::fabrics(FabricsType(0xff)),
        ] {
            assert_eq!(
                ConnectRequest::data_bytes(&command).unwrap_err().status,
                Status::COMMAND_SEQUENCE_ERROR.with_dnr()
            );
        }
    }

    #[test]
    fn data_is_one_kibibyte() {
        let data = connect_data(DYNAMIC);
        for length in [0, 1023, 1025, u32::MAX] {
            let command =
                connect_command(0, 31).with_data_pointer(Descriptor::in_capsule(0, length));
            let expected = (Status::DATA_SGL_LENGTH_INVALID.with_dnr(), 0);
            assert_eq!(refuse(&command, data.bytes()), expected);
        }
        let keyed = connect_command(0, 31).with_data_pointer(Descriptor::keyed(0, 1024, 1, true));
        assert_eq!(ConnectRequest::data_bytes(&keyed), Ok(1024));
        let mut unknown = connect_command(0, 31);
        unknown.data_pointer.identifier = weft_nvme::sgl::Identifier(0x77);
        assert_eq!(
            refuse(&unknown, data.bytes()),
            (Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr(), 0)
        );
        for length in 0..1024 {
            let expected = (Status::DATA_SGL_LENGTH_INVALID.with_dnr(), 0);
            assert_eq!(refuse(&connect_command(0, 31), &data.bytes()[..length]), expected);
        }
    }

    #[test]
    fn the_record_format_is_zero() {
        let mut command = connect_command(0, 31);
        command.cdw10 = 1.into();
        assert_eq!(
            refuse(&command, connect_data(DYNAMIC).bytes()),
            (Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr(), 0)
        );
    }

    #[test]
    fn names_are_well_formed() {
        let mut data = connect_data(DYNAMIC);
        data.subsystem_nqn = [0; 256];
        assert_eq!(refuse(&connect_command(0, 31), data.bytes()), (INVALID, 0x1_0100));
        data.subsystem_nqn = [b'a'; 256];
        assert_eq!(refuse(&connect_command(0, 31), data.bytes()), (INVALID, 0x1_0100));
        let mut data = connect_data(DYNAMIC);
        data.host_nqn[0] = 0xff;
        assert_eq!(refuse(&connect_command(0, 31), data.bytes()), (INVALID, 0x1_0200));
        data.host_nqn = [b'h'; 256];
        assert_eq!(refuse(&connect_command(0, 31), data.bytes()), (INVALID, 0x1_0200));
    }

    #[test]
    fn a_host_without_a_name_goes_by_its_identifier() {
        let mut data = connect_data(DYNAMIC);
        data.host_nqn = [0; 256];
        let parsed = ConnectRequest::parse(&connect_command(0, 31), data.bytes()).unwrap();
        assert_eq!(parsed.host, Nqn::from_uuid(HOST_ID));
    }

    #[test]
    fn queues_have_a_least_and_a_most() {
        let data = connect_data(DYNAMIC);
        for (queue_id, size, good) in
            [(0, 30, false), (0, 31, true), (1, 0, false), (1, 1, true), (9, 0xffff, true)]
        {
            let parsed = ConnectRequest::parse(&connect_command(queue_id, size), data.bytes());
            assert_eq!(parsed.is_ok(), good, "queue {queue_id} size {size}");
        }
        assert_eq!(refuse(&connect_command(1, 0), data.bytes()), (INVALID, 44));
        let mut subsystem = view(&[1]);
        subsystem.limits.max_queue_entries = 128;
        assert_eq!(request(0, 127, DYNAMIC).check_admin(&subsystem), Ok(()));
        let error = request(0, 128, DYNAMIC).check_admin(&subsystem).unwrap_err();
        assert_eq!((error.status, error.result), (INVALID, 44));
        subsystem.limits.max_queue_entries = 2;
        assert_eq!(request(0, 31, DYNAMIC).check_admin(&subsystem), Ok(()));
    }

    #[test]
    fn subsystem_and_host_must_fit() {
        let mut subsystem = view(&[1]);
        let good = request(0, 31, DYNAMIC);
        assert_eq!(good.check_admin(&subsystem), Ok(()));
        let other = ConnectRequest { subsystem: nqn("nqn.other"), ..good.clone() };
        assert_eq!(other.check_admin(&subsystem), Err(ConnectError::unknown_subsystem()));
        let discovery = ConnectRequest { subsystem: Nqn::DISCOVERY, ..good.clone() };
        assert_eq!(discovery.check_admin(&subsystem), Err(ConnectError::unknown_subsystem()));
        subsystem.allowed_hosts = Some(Arc::new([nqn("nqn.somebody")].into()));
        let error = good.check_admin(&subsystem).unwrap_err();
        assert_eq!(error, ConnectError::status(Status::CONNECT_INVALID_HOST.with_dnr()));
    }

    #[test]
    fn the_controller_model_says_which_identifiers_are_good() {
        let mut subsystem = view(&[1]);
        let check = |id, subsystem: &SubsystemView| request(0, 31, id).check_admin(subsystem);
        let refused = Err(ConnectError { status: INVALID, result: 0x1_0010 });
        for id in [0, 1, CONTROLLER_ID_MAX, CONTROLLER_ID_STATIC] {
            assert_eq!(check(id, &subsystem), refused);
        }
        subsystem.controller_model = ControllerModel::Static;
        for id in [1, CONTROLLER_ID_MAX, CONTROLLER_ID_STATIC] {
            assert_eq!(check(id, &subsystem), Ok(()));
        }
        for id in [0, CONTROLLER_ID_MAX + 1, DYNAMIC] {
            assert_eq!(check(id, &subsystem), refused);
        }
    }

    #[test]
    fn identifiers_wrap() {
        let mut subsystem = view(&[]);
        subsystem.limits.max_controllers = 3;
        let mut ids = ControllerIds::new();
        let any = request(0, 31, DYNAMIC);
        assert_eq!(ids.allocate(&any, &subsystem), Ok(1));
        assert_eq!(ids.allocate(&any, &subsystem), Ok(2));
        ids.release(1);
        assert_eq!(ids.allocate(&any, &subsystem), Ok(3), "not the one just given up");
        assert_eq!(ids.allocate(&request(0, 31, 9), &subsystem), Ok(9));
        let busy = Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        assert_eq!(ids.allocate(&any, &subsystem), busy, "the limit");
        ids.release(3);
        assert_eq!(ids.allocate(&request(0, 31, 9), &subsystem), busy, "taken");
        ids.last = CONTROLLER_ID_MAX;
        assert_eq!(ids.allocate(&any, &subsystem), Ok(1));
    }

    #[test]
    fn identifiers_stay_within_their_bounds() {
        let mut subsystem = view(&[]);
        subsystem.limits.controller_ids = (10, 12);
        let mut ids = ControllerIds::new();
        let any = request(0, 31, DYNAMIC);
        for id in 10..=12 {
            assert_eq!(ids.allocate(&any, &subsystem), Ok(id));
        }
        let busy = Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        assert_eq!(ids.allocate(&any, &subsystem), busy);
        ids.release(11);
        assert_eq!(ids.allocate(&any, &subsystem), Ok(11));
        subsystem.controller_model = ControllerModel::Static;
        assert_eq!(request(0, 31, 12).check_admin(&subsystem), Ok(()));
        let unknown = Err(ConnectError::unknown_controller());
        assert_eq!(request(0, 31, 13).check_admin(&subsystem), unknown);
        assert_eq!(request(0, 31, 9).check_admin(&subsystem), unknown);
    }
}
