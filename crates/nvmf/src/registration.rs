//! What hosts and Direct Discovery controllers register with a discovery controller: the data of
//! Discovery Information Management, and the table of all that is registered.
//!
//! Registrations belong to the host that sent them: no other one can change them. They are bounded,
//! and end some time after their host's association unless it registers again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use weft_nvme::discovery_information::{
    DiscoveryEntryFormat, DiscoveryInformation, DiscoveryTask, EntityType, EntryKeyType,
    ExtendedAttribute, ExtendedAttributeType, ExtendedEntryTail,
};
use weft_nvme::log_page::DiscoveryEntry;
use weft_nvme::wire::{Text, U16, U32, U64};

use crate::limits::{ATTRIBUTE_BYTES_MAX, REGISTRATIONS_MAX, REGISTRATIONS_OF_HOST_MAX};
use weft_nvme::{AdminOpcode, Command, Nqn, Status, Wire};

/// How long registrations stay when the association of their host has ended.
pub const GRACE: Duration = Duration::from_secs(60);

/// Bytes of a basic entry, and of an extended one without attributes.
const BASIC_BYTES: usize = DiscoveryEntry::SIZE;
const EXTENDED_BYTES: usize = RegisteredEntry::EXTENDED_BYTES_MIN;

/// Most bytes of an admin label.
pub const LABEL_BYTES_MAX: usize = 256;

/// Fewest bytes of an admin label.
pub const LABEL_BYTES_MIN: usize = 4;

/// Who registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Its type (ETYPE).
    pub kind: EntityType,
    /// Its identifier (EID).
    pub id: Nqn,
    /// Its name (ENAME).
    pub name: String,
    /// Its version (EVER).
    pub version: String,
}

/// An entry, with its extended attributes as they are on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredEntry {
    /// The fields of a basic entry.
    pub entry: DiscoveryEntry,
    /// Number of extended attributes.
    pub attributes: u16,
    /// Their heads and values.
    pub attribute_bytes: Vec<u8>,
}

impl RegisteredEntry {
    /// Bytes of one without attributes, in the extended format.
    pub const EXTENDED_BYTES_MIN: usize = BASIC_BYTES + ExtendedEntryTail::SIZE;

    /// An entry without attributes.
    #[must_use]
    pub const fn basic(entry: DiscoveryEntry) -> Self {
        Self { entry, attributes: 0, attribute_bytes: Vec::new() }
    }

    /// An entry with an admin label of ASCII characters, or without attributes.
    #[must_use]
    pub fn labelled(entry: DiscoveryEntry, label: Option<&str>) -> Self {
        let Some(label) = label else { return Self::basic(entry) };
        let length = Self::label_bytes(label) - ExtendedAttribute::SIZE;
        let head = ExtendedAttribute {
            raw_kind: U16::new(ExtendedAttributeType::ADMIN_LABEL_ASCII.0),
            length: U16::new(u16::try_from(length).unwrap_or(u16::MAX)),
        };
        let mut attribute_bytes = [head.bytes(), label.as_bytes()].concat();
        attribute_bytes.resize(ExtendedAttribute::SIZE + length, 0);
        Self { entry, attributes: 1, attribute_bytes }
    }

    /// Bytes of an admin label as an extended attribute.
    pub(crate) const fn label_bytes(label: &str) -> usize {
        ExtendedAttribute::SIZE + label.len().next_multiple_of(4)
    }

    /// Its bytes in the extended format.
    #[must_use]
    pub fn extended_bytes(&self) -> usize {
        EXTENDED_BYTES + self.attribute_bytes.len()
    }

    /// Appends it in the extended format.
    pub fn extend_to(&self, bytes: &mut Vec<u8>) {
        let tail = ExtendedEntryTail {
            total_length: U32::new(u32::try_from(self.extended_bytes()).unwrap_or(u32::MAX)),
            attributes: U16::new(self.attributes),
            ..ExtendedEntryTail::default()
        };
        bytes.extend_from_slice(self.entry.bytes());
        bytes.extend_from_slice(tail.bytes());
        bytes.extend_from_slice(&self.attribute_bytes);
    }
}

/// A Discovery Information Management command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What is done with the entries (TAS).
    pub task: DiscoveryTask,
    /// Who does it.
    pub entity: Entity,
    /// What tells one entry from another (EKTYPE).
    pub key: EntryKeyType,
    /// The entries; of an update the old one and the new one.
    pub entries: Vec<RegisteredEntry>,
}

impl Change {
    /// Reads a command and its data.
    ///
    /// # Errors
    /// The status by which the command is refused.
    pub fn read(command: &Command, data: &[u8]) -> Result<Self, Status> {
        let invalid = Status::INVALID_FIELD;
        let head = DiscoveryInformation::read(data).map_err(|_| invalid)?;
        let length = usize::try_from(head.total_length.get()).map_err(|_| invalid)?;
        let data = data.get(..length).ok_or(invalid)?;
        let rest = data.get(DiscoveryInformation::SIZE..).ok_or(invalid)?;
        let [task, ..] = command.cdw10.get().to_le_bytes();
        let task = DiscoveryTask(task & 0xf);
        let entity = Entity {
            kind: EntityType(head.raw_entity_type.get()),
            id: Nqn::from_field(&head.entity_id).map_err(|_| invalid)?,
            name: printable(head.entity_name.as_bytes()),
            version: printable(head.entity_version.as_bytes()),
        };
        let key = EntryKeyType(head.raw_entry_key_type.get());
        let is_direct = match entity.kind {
            EntityType::DIRECT => true,
            EntityType::HOST | EntityType::CENTRALIZED => false,
            _ => return Err(invalid),
        };
        let keys_differ =
            key != EntryKeyType::ADDRESS && (key != EntryKeyType::PORT_ID || !is_direct);
        if keys_differ || (head.port_local != 0 && !is_direct) {
            return Err(invalid);
        }
        let entries = usize::try_from(head.entries.get()).map_err(|_| invalid)?;
        match task {
            DiscoveryTask::UPDATE if entries != 2 => return Err(invalid),
            DiscoveryTask::REGISTER | DiscoveryTask::DEREGISTER if entries == 0 => {
                return Err(invalid);
            }
            DiscoveryTask::REGISTER | DiscoveryTask::DEREGISTER | DiscoveryTask::UPDATE => {}
            _ => return Err(invalid),
        }
        let format = DiscoveryEntryFormat(head.raw_entry_format.get());
        let entries = read_entries(rest, entries, format, is_direct)?;
        Ok(Self { task, entity, key, entries })
    }

    /// The command without data pointer, and its data.
    #[must_use]
    pub fn to_command(&self) -> (Command, Vec<u8>) {
        let mut entries = Vec::new();
        self.entries.iter().for_each(|entry| entry.extend_to(&mut entries));
        let length = DiscoveryInformation::SIZE + entries.len();
        let mut head = DiscoveryInformation::zeroed();
        head.total_length = U32::new(u32::try_from(length).unwrap_or(u32::MAX));
        head.entries = U64::new(self.entries.len() as u64);
        head.raw_entry_format = U16::new(DiscoveryEntryFormat::EXTENDED.0);
        head.raw_entity_type = U16::new(self.entity.kind.0);
        head.raw_entry_key_type = U16::new(self.key.0);
        head.entity_id = self.entity.id.to_field();
        head.entity_name = Text::new(&self.entity.name);
        head.entity_version = Text::new(&self.entity.version);
        let command = Command::new(AdminOpcode::DISCOVERY_INFORMATION_MANAGEMENT);
        (command.with_cdw10(self.task.0.into()), [head.bytes(), &entries].concat())
    }
}

/// What a peer says, without what could do something to a terminal.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "?")
}

fn read_entries(
    mut rest: &[u8],
    count: usize,
    format: DiscoveryEntryFormat,
    is_direct: bool,
) -> Result<Vec<RegisteredEntry>, Status> {
    let invalid = Status::INVALID_FIELD;
    // No entry is shorter.
    if count > rest.len() / BASIC_BYTES {
        return Err(invalid);
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = DiscoveryEntry::read(rest).map_err(|_| invalid)?;
        let (registered, length) = match format {
            // Only NVM subsystems may be described without attributes.
            DiscoveryEntryFormat::BASIC if is_direct => {
                (RegisteredEntry::basic(entry), BASIC_BYTES)
            }
            DiscoveryEntryFormat::EXTENDED => read_extended(entry, rest)?,
            _ => return Err(invalid),
        };
        let has_host_id =
            registered.attribute_kinds().any(|kind| kind == ExtendedAttributeType::HOST_ID);
        entry.subsystem().map_err(|_| Status::INVALID_DISCOVERY_INFORMATION)?;
        // A host says who it is, and a subsystem is none.
        if has_host_id == is_direct {
            return Err(Status::INVALID_DISCOVERY_INFORMATION);
        }
        entries.push(registered);
        rest = rest.get(length..).ok_or(invalid)?;
    }
    Ok(entries)
}

fn read_extended(entry: DiscoveryEntry, bytes: &[u8]) -> Result<(RegisteredEntry, usize), Status> {
    let invalid = Status::INVALID_FIELD;
    let tail = bytes.get(BASIC_BYTES..).ok_or(invalid)?;
    let tail = ExtendedEntryTail::read(tail).map_err(|_| invalid)?;
    let length = usize::try_from(tail.total_length.get()).map_err(|_| invalid)?;
    let attribute_bytes = bytes.get(EXTENDED_BYTES..length).ok_or(invalid)?;
    if attribute_bytes.len() > ATTRIBUTE_BYTES_MAX {
        return Err(Status::INSUFFICIENT_DISCOVERY_RESOURCES);
    }
    let attributes = tail.attributes.get();
    let mut rest = attribute_bytes;
    for _ in 0..attributes {
        let head = ExtendedAttribute::read(rest).map_err(|_| invalid)?;
        let length = usize::from(head.length.get());
        let is_right = match ExtendedAttributeType(head.raw_kind.get()) {
            ExtendedAttributeType::HOST_ID => length == 16,
            ExtendedAttributeType::ADMIN_LABEL_ASCII | ExtendedAttributeType::ADMIN_LABEL_UTF8 => {
                (LABEL_BYTES_MIN..=LABEL_BYTES_MAX).contains(&length)
            }
            kind => kind.0 >= 0xff00 && length > 0,
        };
        if !is_right || !length.is_multiple_of(4) {
            return Err(invalid);
        }
        rest = rest.get(ExtendedAttribute::SIZE + length..).ok_or(invalid)?;
    }
    if !rest.is_empty() {
        return Err(invalid);
    }
    Ok((RegisteredEntry { entry, attributes, attribute_bytes: attribute_bytes.to_vec() }, length))
}

impl RegisteredEntry {
    fn attribute_kinds(&self) -> impl Iterator<Item = ExtendedAttributeType> {
        let mut rest = self.attribute_bytes.as_slice();
        std::iter::from_fn(move || {
            let head = ExtendedAttribute::read(rest).ok()?;
            rest = rest.get(ExtendedAttribute::SIZE + usize::from(head.length.get())..)?;
            Some(ExtendedAttributeType(head.raw_kind.get()))
        })
    }

    /// What tells it from other entries.
    fn key(&self, kind: EntryKeyType) -> [&[u8]; 6] {
        #[cfg(test)]
        tests::count_entry();
        let entry = &self.entry;
        [
            entry.transport_type.bytes(),
            entry.address_family.bytes(),
            &entry.service_id.0,
            match kind {
                EntryKeyType::PORT_ID => entry.port_id.bytes(),
                _ => &entry.address.0,
            },
            &entry.subsystem_nqn,
            &entry.address_subtype.0,
        ]
    }
}

/// The entries of one association, in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    all: Arc<[Arc<RegisteredEntry>]>,
    extended_bytes: usize,
}

impl FromIterator<Arc<RegisteredEntry>> for Entries {
    fn from_iter<T: IntoIterator<Item = Arc<RegisteredEntry>>>(entries: T) -> Self {
        let mut all: Vec<_> = entries.into_iter().collect();
        all.sort_by(|one, other| one.entry.bytes().cmp(other.entry.bytes()));
        let extended_bytes = all.iter().map(|one| one.extended_bytes()).sum();
        Self { all: all.into(), extended_bytes }
    }
}

impl Deref for Entries {
    type Target = [Arc<RegisteredEntry>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Entries {
    /// Bytes of all of them in the extended format.
    #[must_use]
    pub const fn extended_bytes(&self) -> usize {
        self.extended_bytes
    }
}

/// What a host has registered over one association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who it says that it is.
    pub entity: Entity,
    /// What it has registered.
    pub entries: Entries,
    /// When this ends; `None` while the association is there.
    pub ends: Option<Duration>,
}

impl Record {
    /// The subsystems among its entries: those of a Direct Discovery controller.
    fn subsystems(&self) -> Option<&Entries> {
        (self.entity.kind == EntityType::DIRECT).then_some(&self.entries)
    }
}

/// What one host has registered, by the association over which it came.
type Records<A> = BTreeMap<A, Record>;

/// All that is registered, by the host that did it. A change costs what its host has, however much
/// others have registered.
#[derive(Debug, Clone)]
pub struct Registrations<A> {
    hosts: BTreeMap<Nqn, Records<A>>,
    /// The entries of all hosts.
    entries: usize,
    /// Goes up with each change.
    version: u64,
}

impl<A> Default for Registrations<A> {
    fn default() -> Self {
        Self { hosts: BTreeMap::new(), entries: 0, version: 0 }
    }
}

impl<A: Copy + Ord> Registrations<A> {
    /// Carries a command of a host out, which came over this association. Says whether other
    /// subsystems are registered than before.
    ///
    /// # Errors
    /// There is no room for more.
    pub fn change(&mut self, host: Nqn, association: A, change: Change) -> Result<bool, Status> {
        let Change { task, entity, key, entries } = change;
        let (gone, new) = match (task, entries.as_slice()) {
            (DiscoveryTask::UPDATE, [old, new]) => {
                (std::slice::from_ref(old), std::slice::from_ref(new))
            }
            (DiscoveryTask::REGISTER, all) => (&[][..], all),
            (_, all) => (all, &[][..]),
        };
        let gone: BTreeSet<_> = gone.iter().map(|one| one.key(key)).collect();
        // Of those that are the same the last one counts.
        let new: BTreeMap<_, _> = new.iter().map(|one| (one.key(key), one)).collect();
        let before = self.hosts.get(&host).cloned().unwrap_or_default();
        let mut records = before.clone();
        for (by, record) in &mut records {
            // What is registered again replaces that of this association, and of ended ones.
            let replaces = *by == association || record.ends.is_some();
            let stays = |one: &&Arc<RegisteredEntry>| {
                let key = one.key(key);
                !(gone.contains(&key) || replaces && new.contains_key(&key))
            };
            record.entries = record.entries.iter().filter(stays).cloned().collect();
        }
        if !new.is_empty() {
            let known = records.remove(&association).map(|record| record.entries);
            let known = known.iter().flat_map(|entries| entries.iter().cloned());
            let new = new.into_values().map(|one| Arc::new(one.clone()));
            let entries = known.chain(new).collect();
            records.insert(association, Record { entity, entries, ends: None });
        }
        records.retain(|_, record| !record.entries.is_empty());
        let (had, has) = (len(&before), len(&records));
        let all = self.entries - had + has;
        if has > had && (has > REGISTRATIONS_OF_HOST_MAX || all > REGISTRATIONS_MAX) {
            return Err(Status::INSUFFICIENT_DISCOVERY_RESOURCES);
        }
        self.entries = all;
        let is_other = subsystems(&before) != subsystems(&records);
        self.version += u64::from(is_other);
        match records.is_empty() {
            true => self.hosts.remove(&host),
            false => self.hosts.insert(host, records),
        };
        Ok(is_other)
    }

    /// An association has ended. Returns when what was registered over it ends, if anything was.
    pub fn left(&mut self, host: &Nqn, association: A, now: Duration) -> Option<Duration> {
        let record = self.hosts.get_mut(host)?.get_mut(&association)?;
        record.ends = Some(now + GRACE);
        record.ends
    }

    /// Removes what has ended. Says whether subsystems were among it.
    pub fn expire(&mut self, now: Duration) -> bool {
        let (mut is_other, mut gone) = (false, 0);
        self.hosts.retain(|_, records| {
            records.retain(|_, record| {
                let stays = record.ends.is_none_or(|ends| ends > now);
                if !stays {
                    is_other |= record.subsystems().is_some();
                    gone += record.entries.len();
                }
                stays
            });
            !records.is_empty()
        });
        self.entries -= gone;
        self.version += u64::from(is_other);
        is_other
    }

    /// How often the subsystems among it have changed.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// All of it, with the host that did it.
    pub fn records(&self) -> impl Iterator<Item = (&Nqn, &Record)> {
        let all = self.hosts.iter();
        all.flat_map(|(host, records)| records.values().map(move |record| (host, record)))
    }

    /// The subsystems that were registered, in the order of the hosts that did it.
    #[must_use]
    pub fn subsystems(&self) -> Vec<Entries> {
        self.records().filter_map(|(_, record)| record.subsystems().cloned()).collect()
    }
}

fn len<A>(records: &Records<A>) -> usize {
    records.values().map(|record| record.entries.len()).sum()
}

/// The subsystems of one host, whatever the association over which each came.
fn subsystems<A>(records: &Records<A>) -> Vec<&Arc<RegisteredEntry>> {
    let each = records.values().filter_map(Record::subsystems);
    let mut all: Vec<_> = each.flat_map(|entries| entries.iter()).collect();
    all.sort_by(|one, other| one.entry.bytes().cmp(other.entry.bytes()));
    all
}

#[cfg(test)]
mod tests;
