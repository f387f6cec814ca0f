use std::cell::Cell;

use super::*;
use crate::limits::{ATTRIBUTE_BYTES_MAX, REGISTRATIONS_MAX, REGISTRATIONS_OF_HOST_MAX};
use crate::subsystem::test_support::{HOST, SUBSYSTEM, nqn};
use weft_nvme::log_page::{AddressFamily, Endpoint, SubsystemType, TransportType};

thread_local! {
    /// Entries that were looked at on this thread.
    static ENTRIES: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn count_entry() {
    ENTRIES.set(ENTRIES.get() + 1);
}

fn entry(address: &str, port_id: u16) -> RegisteredEntry {
    let endpoint = Endpoint {
        transport_type: TransportType::TCP,
        address_family: AddressFamily::IPV4,
        address,
        service_id: "4420",
        port_id,
    };
    let entry = DiscoveryEntry::new(SubsystemType::NVM, &nqn(SUBSYSTEM), &endpoint, 32);
    RegisteredEntry::basic(entry)
}

fn of_host(address: &str) -> RegisteredEntry {
    let head = ExtendedAttribute {
        raw_kind: U16::new(ExtendedAttributeType::HOST_ID.0),
        length: U16::new(16),
    };
    let attribute_bytes = [head.bytes(), &[7; 16]].concat();
    RegisteredEntry { attributes: 1, attribute_bytes, ..entry(address, 0) }
}

fn change(task: DiscoveryTask, entries: &[RegisteredEntry]) -> Change {
    let entity = Entity {
        kind: EntityType::DIRECT,
        id: nqn(HOST),
        name: "a machine".to_owned(),
        version: "1".to_owned(),
    };
    Change { task, entity, key: EntryKeyType::ADDRESS, entries: entries.to_vec() }
}

fn read(change: &Change) -> Result<Change, Status> {
    let (command, data) = change.to_command();
    Change::read(&command, &data)
}

fn addresses(registrations: &Registrations<u8>) -> Vec<String> {
    let all = registrations.subsystems();
    let all = all.iter().flat_map(|entries| entries.iter());
    let mut all: Vec<_> = all.map(|one| one.entry.address.to_string()).collect();
    all.sort();
    all
}

const REGISTER: DiscoveryTask = DiscoveryTask::REGISTER;
const DEREGISTER: DiscoveryTask = DiscoveryTask::DEREGISTER;

#[test]
fn a_command_is_read_as_it_was_written() {
    let direct = change(REGISTER, &[entry("192.0.2.1", 1), entry("192.0.2.2", 2)]);
    assert_eq!(read(&direct), Ok(direct.clone()));
    let update = change(DiscoveryTask::UPDATE, &direct.entries);
    assert_eq!(read(&update), Ok(update.clone()));
    let mut host = change(DEREGISTER, &[of_host("192.0.2.1")]);
    host.entity.kind = EntityType::HOST;
    assert_eq!(read(&host), Ok(host.clone()));
    // Basic entries of a Direct Discovery controller.
    let (command, mut data) = direct.to_command();
    data[16] = 1;
    data.truncate(1024);
    direct.entries.iter().for_each(|one| data.extend_from_slice(one.entry.bytes()));
    data[..4].copy_from_slice(&(3 * 1024_u32).to_le_bytes());
    assert_eq!(Change::read(&command, &data), Ok(direct));
}

#[test]
fn what_is_wrong_is_refused() {
    let direct = change(REGISTER, &[entry("192.0.2.1", 1)]);
    let (command, data) = direct.to_command();
    let edited = |at: usize, bytes: &[u8]| {
        let mut data = data.clone();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        Change::read(&command, &data).expect_err("it is wrong")
    };
    let tail = 2048;
    for (at, bytes, why) in [
        (0, &[255, 255, 0, 0][..], "TDL is longer than the data"),
        (0, &[0, 4, 0, 0], "TDL has no entry"),
        (8, &[0; 8], "no entries"),
        (8, &[2, 0, 0, 0, 0, 0, 0, 0], "more entries than data"),
        (8, &[255; 8], "more entries than there are numbers"),
        (16, &[3, 0], "an unknown format"),
        (18, &[4, 0], "an unknown entity"),
        (22, &[0x5e, 0], "an unknown key"),
        (24, &[0; 4], "no identifier"),
        (tail, &[0, 0, 0, 0], "TEL is 0"),
        (tail, &[0, 4, 0, 0], "TEL is that of a basic entry"),
        (tail + 4, &[1, 0], "an attribute that is not there"),
    ] {
        assert_eq!(edited(at, bytes), Status::INVALID_FIELD, "{why}");
    }
    // A host without its identifier, and a subsystem with one.
    assert_eq!(edited(18, &[1, 0]), Status::INVALID_DISCOVERY_INFORMATION);
    let with_id = change(REGISTER, &[of_host("192.0.2.1")]);
    assert_eq!(read(&with_id), Err(Status::INVALID_DISCOVERY_INFORMATION));
    for task in [3, 15] {
        let command = command.with_cdw10(task);
        assert_eq!(Change::read(&command, &data), Err(Status::INVALID_FIELD));
    }
    let one_of_two = change(DiscoveryTask::UPDATE, &direct.entries);
    assert_eq!(read(&one_of_two), Err(Status::INVALID_FIELD));
    for length in 0..data.len() {
        assert!(Change::read(&command, &data[..length]).is_err(), "{length} bytes");
    }
}

/// Whatever a peer sends is read or refused.
#[test]
fn any_change_of_a_byte_is_survived() {
    let (command, data) = change(REGISTER, &[entry("192.0.2.1", 1)]).to_command();
    let mut host = change(REGISTER, &[of_host("192.0.2.1"), of_host("192.0.2.2")]);
    host.entity.kind = EntityType::HOST;
    for data in [data, host.to_command().1] {
        for at in (0..24).chain(2040..data.len()) {
            for value in [0, 1, 4, 127, 128, 255] {
                let mut data = data.clone();
                data[at] = value;
                let read = Change::read(&command, &data);
                assert!(read.is_err() || read.is_ok_and(|one| !one.entries.is_empty()));
            }
        }
    }
}

#[test]
fn entries_are_registered_replaced_and_removed() {
    let mut all = Registrations::default();
    let (one, other) = (nqn(HOST), nqn("nqn.other"));
    let first = [entry("192.0.2.1", 1), entry("192.0.2.2", 2)];
    assert_eq!(all.change(one, 1, change(REGISTER, &first)), Ok(true));
    assert_eq!(all.change(one, 1, change(REGISTER, &first)), Ok(false), "nothing is new");
    assert_eq!((addresses(&all).len(), all.version()), (2, 1));
    // Another host has its own, and cannot take the first one's away.
    assert_eq!(all.change(other, 2, change(DEREGISTER, &first)), Ok(false));
    assert_eq!(all.change(other, 2, change(REGISTER, &[entry("192.0.2.9", 1)])), Ok(true));
    assert_eq!(addresses(&all).len(), 3);
    // Entries are the same by their address, or by their port.
    let moved = [entry("192.0.2.1", 7)];
    assert_eq!(all.change(one, 1, change(REGISTER, &moved)), Ok(true));
    assert_eq!(addresses(&all).len(), 3, "replaced");
    let mut by_port = change(DEREGISTER, &[entry("192.0.2.200", 7)]);
    by_port.key = EntryKeyType::PORT_ID;
    assert_eq!(all.change(one, 1, by_port), Ok(true));
    assert_eq!(addresses(&all), ["192.0.2.2", "192.0.2.9"]);
    let update = [entry("192.0.2.2", 2), entry("192.0.2.3", 2)];
    assert_eq!(all.change(one, 1, change(DiscoveryTask::UPDATE, &update)), Ok(true));
    assert_eq!(addresses(&all), ["192.0.2.3", "192.0.2.9"]);
    let mut host = change(REGISTER, &[of_host("192.0.2.50")]);
    host.entity.kind = EntityType::HOST;
    assert_eq!(all.change(nqn("nqn.third"), 3, host), Ok(false), "hosts are no subsystems");
    assert_eq!((addresses(&all).len(), all.records().count()), (2, 3));
}

#[test]
fn registrations_end_after_their_association() {
    let mut all = Registrations::default();
    let (host, second) = (nqn(HOST), Duration::from_secs(1));
    let entries = [entry("192.0.2.1", 1), entry("192.0.2.2", 2)];
    assert_eq!(all.change(host, 1, change(REGISTER, &entries)), Ok(true));
    assert_eq!(all.left(&host, 9, second), None, "it has registered nothing");
    assert_eq!(all.left(&host, 1, second), Some(second + GRACE));
    // It is back and registers one of them: that one stays.
    assert_eq!(all.change(host, 2, change(REGISTER, &entries[..1])), Ok(false));
    assert!(!all.expire(GRACE));
    assert!(all.expire(second + GRACE));
    assert_eq!(addresses(&all), ["192.0.2.1"]);
    assert!(!all.expire(GRACE * 100));
    // It takes back what it registered over an association that has ended.
    all.left(&host, 2, second);
    assert_eq!(all.change(host, 3, change(DEREGISTER, &entries)), Ok(true));
    assert_eq!(all.records().count(), 0);
}

#[test]
fn there_is_no_room_for_more_than_the_bounds() {
    let mut all = Registrations::default();
    let many = |host: usize, count: usize| -> Vec<RegisteredEntry> {
        (0..count).map(|at| entry(&format!("10.{host}.{}.{}", at / 256, at % 256), 1)).collect()
    };
    let too_many = Err(Status::INSUFFICIENT_DISCOVERY_RESOURCES);
    let register = |host, count| change(REGISTER, &many(host, count));
    assert_eq!(all.change(nqn(HOST), 0, register(0, REGISTRATIONS_OF_HOST_MAX + 1)), too_many);
    assert_eq!((all.records().count(), all.version()), (0, 0), "nothing has happened");
    let hosts = REGISTRATIONS_MAX / REGISTRATIONS_OF_HOST_MAX;
    for host in 0..hosts {
        let name = nqn(&format!("nqn.host{host}"));
        assert_eq!(all.change(name, 0, register(host, REGISTRATIONS_OF_HOST_MAX)), Ok(true));
    }
    assert_eq!(all.change(nqn("nqn.late"), 0, register(99, 1)), too_many);
    let first = nqn("nqn.host0");
    assert_eq!(all.change(first, 0, change(DEREGISTER, &many(0, 1))), Ok(true));
    assert_eq!(all.change(nqn("nqn.late"), 0, register(99, 1)), Ok(true));
}

/// Attributes of a vendor may be long, and anybody may register.
#[test]
fn the_bytes_of_an_entry_are_bounded() {
    let of = |length: u16| {
        let head = ExtendedAttribute { raw_kind: U16::new(0xff00), length: U16::new(length) };
        let attribute_bytes = [head.bytes(), &vec![7; usize::from(length)]].concat();
        let entry = RegisteredEntry { attributes: 1, attribute_bytes, ..entry("192.0.2.1", 1) };
        read(&change(REGISTER, &[entry])).map(|read| read.entries.len())
    };
    let most = u16::try_from(ATTRIBUTE_BYTES_MAX - ExtendedAttribute::SIZE).expect("16 bits");
    assert_eq!(of(most), Ok(1));
    assert_eq!(of(most + 4), Err(Status::INSUFFICIENT_DISCOVERY_RESOURCES));
    assert_eq!(of(65_532), Err(Status::INSUFFICIENT_DISCOVERY_RESOURCES));
}

/// A command is carried out between the turns of others: it looks once at each of its entries and
/// at each that its host has, and leaves alone what others have registered.
#[test]
fn a_command_costs_what_its_host_has() {
    let mut all = Registrations::default();
    let many = |host: usize| -> Vec<RegisteredEntry> {
        (0..REGISTRATIONS_OF_HOST_MAX).map(|at| entry(&format!("10.0.{host}.{at}"), 1)).collect()
    };
    let name = |host: usize| nqn(&format!("nqn.host{host}"));
    for host in 0..REGISTRATIONS_MAX / REGISTRATIONS_OF_HOST_MAX {
        assert_eq!(all.change(name(host), 0, change(REGISTER, &many(host))), Ok(true));
    }
    let (shown, mut moved) = (all.subsystems(), many(3));
    moved.iter_mut().for_each(|one| one.entry.controller_id = U16::new(7));
    let before = ENTRIES.get();
    assert_eq!(all.change(name(3), 0, change(REGISTER, &moved)), Ok(true));
    assert_eq!(ENTRIES.get() - before, 2 * REGISTRATIONS_OF_HOST_MAX);
    let same = |(one, other): (&Entries, &Entries)| Arc::ptr_eq(&one.all, &other.all);
    let changed = shown.iter().zip(&all.subsystems()).filter(|pair| !same(*pair)).count();
    assert_eq!(changed, 1, "one host's list is made anew");
}
