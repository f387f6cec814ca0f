//! Properties of the parsers over arbitrary bytes: what a peer sends never panics, and what was
//! parsed comes back from what is made of it.

use proptest::prelude::*;
use weft_nvme::abort::Abort;
use weft_nvme::fabrics::{Authentication, Connect, Disconnect, PropertyGet, PropertySet};
use weft_nvme::feature::{GetFeatures, SetFeatures};
use weft_nvme::identify::{
    Controller, ControllerList, Descriptors, Identify, Namespace, NamespaceIdentifier,
    NamespaceList, push_descriptor,
};
use weft_nvme::log_page::{DiscoveryEntry, GetLogPage, Groups, TelemetryHeader};
use weft_nvme::nvm::{DatasetManagement, ReadWrite, WriteZeroes};
use weft_nvme::sgl::{Descriptor, Location};
use weft_nvme::tcp::{CommonHeader, Kind};
use weft_nvme::wire::Text;
use weft_nvme::{Command, Completion, FabricsType, Nqn, NvmOpcode, Status, Wire};

fn command() -> impl Strategy<Value = Command> {
    prop::array::uniform32(any::<u16>()).prop_map(|words| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Command::read(&bytes).expect("64 bytes are a command")
    })
}

fn identifier() -> impl Strategy<Value = NamespaceIdentifier> {
    prop_oneof![
        any::<[u8; 8]>().prop_map(NamespaceIdentifier::Eui64),
        any::<[u8; 16]>().prop_map(NamespaceIdentifier::Nguid),
        any::<[u8; 16]>().prop_map(NamespaceIdentifier::Uuid),
        any::<u8>().prop_map(|value| NamespaceIdentifier::CommandSet(value.into())),
    ]
}

proptest! {
    /// What a command's dwords mean is not changed by writing them and reading them again.
    #[test]
    fn admin_commands_round_trip(command in command()) {
        let identify = Identify::from_command(&command);
        prop_assert_eq!(Identify::from_command(&identify.to_command()), identify);
        let get = GetFeatures::from_command(&command);
        prop_assert_eq!(GetFeatures::from_command(&get.to_command()), get);
        let set = SetFeatures::from_command(&command);
        prop_assert_eq!(SetFeatures::from_command(&set.to_command()), set);
        let log = GetLogPage::from_command(&command);
        prop_assert_eq!(GetLogPage::from_command(&log.to_command()), log);
        prop_assert_eq!(log.length() % 4, 0);
        let abort = Abort::from_command(&command);
        prop_assert_eq!(Abort::from_command(&abort.to_command()), abort);
    }

    #[test]
    fn fabrics_commands_round_trip(command in command()) {
        let connect = Connect::from_command(&command);
        prop_assert_eq!(Connect::from_command(&connect.to_command()), connect);
        let get = PropertyGet::from_command(&command);
        prop_assert_eq!(PropertyGet::from_command(&get.to_command()), get);
        let set = PropertySet::from_command(&command);
        prop_assert_eq!(PropertySet::from_command(&set.to_command()), set);
        let disconnect = Disconnect::from_command(&command);
        prop_assert_eq!(Disconnect::from_command(&disconnect.to_command()), disconnect);
        let send = Authentication::from_command(&command);
        let made = send.to_command(FabricsType::AUTHENTICATION_SEND);
        prop_assert_eq!(Authentication::from_command(&made), send);
        prop_assert_eq!(made.fabrics_type(), Some(FabricsType::AUTHENTICATION_SEND));
    }

    #[test]
    fn io_commands_round_trip(command in command()) {
        let read = ReadWrite::from_command(&command);
        prop_assert_eq!(ReadWrite::from_command(&read.to_command(NvmOpcode::READ, 1)), read);
        if let Some(blocks) = read.blocks() {
            prop_assert_eq!(blocks.end - blocks.start, u64::from(read.nlb()));
            let made = ReadWrite::new(read.slba, read.nlb()).unwrap();
            prop_assert_eq!(made.blocks(), Some(blocks));
        }
        let zeroes = WriteZeroes::from_command(&command);
        prop_assert_eq!(WriteZeroes::from_command(&zeroes.to_command(1)), zeroes);
        let dataset = DatasetManagement::from_command(&command);
        prop_assert!((1..=256).contains(&dataset.range_count));
        prop_assert_eq!(DatasetManagement::from_command(&dataset.to_command(1)), dataset);
    }

    /// A descriptor that is one of those that Fabrics uses is made of what it says.
    #[test]
    fn descriptors_round_trip(bytes in any::<[u8; 16]>()) {
        let descriptor = Descriptor::read(&bytes).unwrap();
        let again = match descriptor.location() {
            Ok(Location::Keyed { address, length, key, invalidate }) => {
                Descriptor::keyed(address, length, key, invalidate)
            }
            Ok(Location::InCapsule { offset, length }) => Descriptor::in_capsule(offset, length),
            Ok(Location::Transport { length }) => Descriptor::transport(length),
            Ok(_) | Err(_) => return Ok(()),
        };
        prop_assert_eq!(again.location(), descriptor.location());
    }

    #[test]
    fn keyed_descriptors_round_trip(
        address: u64, length in 0u32..1 << 24, key: u32, invalidate: bool,
    ) {
        let descriptor = Descriptor::keyed(address, length, key, invalidate);
        let location = Location::Keyed { address, length, key, invalidate };
        prop_assert_eq!(descriptor.location(), Ok(location));
    }

    #[test]
    fn statuses_round_trip(raw in 0u16..1 << 15, command_id: u16) {
        let completion = Completion::new(command_id, Status(raw));
        let again = Completion::read(completion.bytes()).unwrap();
        prop_assert_eq!(again.status(), Status(raw));
        prop_assert_eq!(again.command_id.get(), command_id);
        prop_assert!(!again.status().to_string().is_empty());
        prop_assert_eq!(Status(raw).with_dnr().code(), Status(raw).code());
    }

    /// A header that passes the check leaves room for itself, and for no more than it may have.
    #[test]
    fn checked_headers_are_consistent(bytes in any::<[u8; 8]>(), pdu_type in 0u8..12, hlen: bool) {
        let mut header = CommonHeader::read(&bytes).unwrap();
        header.pdu_type = pdu_type.into();
        if let (Some(kind), true) = (Kind::of(header.pdu_type), hlen) {
            header.header_length = kind.header_length();
        }
        match Kind::check(&header) {
            Ok(kind) => {
                let beyond = header.pdu_length.get() - u32::from(header.header_length);
                prop_assert_eq!(kind.pdu_type(), header.pdu_type);
                prop_assert!(kind.has_data() || beyond <= 128);
            }
            Err(error) => prop_assert!(error.field_offset <= 4),
        }
    }

    /// Whatever bytes there are, a name is either refused or comes back whole.
    #[test]
    fn names_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(name) = Nqn::from_bytes(&bytes) {
            prop_assert_eq!(name.as_bytes(), &bytes);
            prop_assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
            prop_assert_eq!(name.to_string().parse::<Nqn>(), Ok(name));
        }
        if let Ok(name) = Nqn::from_field(&bytes) {
            prop_assert!(bytes.starts_with(name.as_bytes()));
        }
    }

    #[test]
    fn names_from_text_round_trip(text in "[a-z0-9.:-]{1,223}") {
        let name: Nqn = text.parse().unwrap();
        prop_assert_eq!(name.as_str(), text);
    }

    #[test]
    fn texts_round_trip(text in "[!-~]{0,20}") {
        let field = Text::<20>::new(&text);
        prop_assert_eq!(field.raw_text(), Some(text.as_str()));
        prop_assert_eq!(field.to_string(), text);
    }

    /// Lists of arbitrary bytes end, and never yield more than fits in them.
    #[test]
    fn lists_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(Descriptors::new(&bytes).count() <= bytes.len() / 5 + 1);
        if let Ok(groups) = Groups::new(&bytes) {
            let mut namespaces = 0;
            for group in groups.flatten() {
                namespaces += group.1.count();
            }
            prop_assert!(namespaces * 4 <= bytes.len());
        }
    }

    #[test]
    fn descriptor_lists_round_trip(identifiers in prop::collection::vec(identifier(), 0..8)) {
        let mut list = [0; 4096];
        let mut room = list.as_mut_slice();
        for identifier in &identifiers {
            room = push_descriptor(room, *identifier).unwrap();
        }
        let parsed: Result<Vec<_>, _> = Descriptors::new(&list).collect();
        prop_assert_eq!(parsed, Ok(identifiers));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The large structures can be asked anything, whatever they hold.
    #[test]
    fn large_structures_answer(seed in prop::collection::vec(any::<u8>(), 1..64), page: u8) {
        let bytes: Vec<u8> = seed.iter().copied().cycle().take(4096).collect();
        let controller = Controller::view(&bytes).unwrap();
        let limit = controller.maximum_transfer_bytes(page);
        prop_assert!(limit.is_none_or(|bytes| bytes >= 8192));
        prop_assert!(controller.in_capsule_data_bytes() <= u64::from(u32::MAX) * 16);
        let printed = format!("{controller:?}");
        prop_assert!(printed.is_ascii());
        let namespace = Namespace::view(&bytes).unwrap();
        if let Some(block) = namespace.lba_format().and_then(|format| format.block_bytes()) {
            prop_assert!(block.is_power_of_two() && block >= 512);
        }
        prop_assert!(NamespaceList::view(&bytes).unwrap().iter().all(|id| id != 0));
        prop_assert!(ControllerList::view(&bytes).unwrap().iter().count() <= 2047);
        let entry = DiscoveryEntry::view(&bytes).unwrap();
        prop_assert!(entry.address.to_string().chars().all(|c| (' '..='~').contains(&c)));
        let telemetry = TelemetryHeader::view(&bytes).unwrap();
        let areas: Vec<_> = (1..=4).map_while(|area| telemetry.blocks(area).ok()).collect();
        prop_assert!(areas.is_sorted() && !areas.is_empty());
    }
}
