//! The Discovery log page of a target.
//!
//! A [`DiscoveryView`] has an entry for every subsystem at every port. A [`DiscoveryLogPage`] has
//! those of subsystems that allow its host, with an address that the host can reach: for a listener
//! with a wildcard address, the address that the host itself came to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use weft_nvme::fabrics::CONTROLLER_ID_DYNAMIC;
use weft_nvme::log_page::{
    self, AddressFamily, DiscoveryEntryFlags, DiscoveryHeader, DiscoveryParameter, Endpoint,
    RdmaSubtype, SecureChannel, SecurityType, SubsystemType, TransportType,
};
use weft_nvme::wire::{U16, U32};
use weft_nvme::{Nqn, Wire};

use crate::keys::TlsMode;
use crate::registration::{Entries, RegisteredEntry, Registrations};

/// Bytes of the log page's header, and of each entry.
const RECORD_BYTES: usize = 1024;

/// The entries of all discovery controllers of a target; replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryView {
    /// Generation Counter: different for every view that is published.
    pub generation: u64,
    /// The entries, in the order of the log page.
    pub entries: Arc<[DiscoveryEntry]>,
    /// Whether it is a Centralized Discovery controller: others register their subsystems with it.
    pub is_centralized: bool,
    /// What they have registered, which every host sees.
    pub registered: Vec<Entries>,
    /// How often that had changed.
    pub registrations: u64,
}

impl DiscoveryView {
    /// The same view with these registrations.
    #[must_use]
    pub fn with_registered<A: Copy + Ord>(&self, registrations: &Registrations<A>) -> Self {
        let version = registrations.version();
        Self {
            generation: self.generation - self.registrations + version,
            entries: Arc::clone(&self.entries),
            is_centralized: self.is_centralized,
            registered: registrations.subsystems(),
            registrations: version,
        }
    }

    /// The subsystems of I/O controllers, as another discovery controller is told of them by one
    /// that came to it from `local_address`.
    #[must_use]
    pub fn to_register(&self, local_address: IpAddr) -> Vec<log_page::DiscoveryEntry> {
        let subsystems = self.entries.iter().filter(|entry| entry.kind == EntryKind::Nvm);
        subsystems
            .filter_map(|entry| Some(entry.to_wire(entry.address_for(local_address)?)))
            .collect()
    }
}

/// One subsystem at one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// The type of the subsystem.
    pub kind: EntryKind,
    /// NVMe Qualified Name of the subsystem; a referral's is a discovery subsystem's or that of a
    /// subsystem of another target.
    pub subsystem: Nqn,
    /// The transport.
    pub transport: TransportType,
    /// Address of the listener; an unspecified address is a wildcard.
    pub address: IpAddr,
    /// Port of the listener.
    pub port: u16,
    /// Port ID: tells ports of one subsystem apart.
    pub port_id: u16,
    /// Controller ID to connect to: FFFFh dynamic, FFFEh static.
    pub controller_id: u16,
    /// Entries of the longest admin queue.
    pub admin_queue_entries: u16,
    /// Whether hosts come to it with TLS.
    pub tls: TlsMode,
    /// A label for administrators, in extended entries only: 4 to 256 ASCII characters.
    pub admin_label: Option<Arc<str>>,
    /// The hosts that may see it; `None` for every host.
    pub allowed_hosts: Option<Arc<BTreeSet<Nqn>>>,
}

/// The type of subsystem at an entry's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A subsystem of I/O controllers.
    Nvm,
    /// This very discovery subsystem.
    Current,
    /// Another discovery subsystem, or a subsystem of another target.
    Referral,
}

impl DiscoveryEntry {
    /// A subsystem of I/O controllers over TCP that every host sees.
    #[must_use]
    pub fn tcp(kind: EntryKind, subsystem: Nqn, address: IpAddr, port: u16) -> Self {
        Self {
            kind,
            subsystem,
            transport: TransportType::TCP,
            address,
            port,
            port_id: 0,
            controller_id: CONTROLLER_ID_DYNAMIC,
            admin_queue_entries: 32,
            tls: TlsMode::Off,
            admin_label: None,
            allowed_hosts: None,
        }
    }

    /// The address that a host which came to `local_address` is shown; `None` if the host could
    /// not come here that way: a wildcard of another address family.
    #[must_use]
    pub fn address_for(&self, local_address: IpAddr) -> Option<IpAddr> {
        let local_address = local_address.to_canonical();
        match self.address {
            address if !address.is_unspecified() => Some(address.to_canonical()),
            // A wildcard of IPv6 takes IPv4 too.
            IpAddr::V6(_) => Some(local_address),
            IpAddr::V4(_) => local_address.is_ipv4().then_some(local_address),
        }
    }

    fn is_visible_to(&self, host: &Nqn) -> bool {
        self.allowed_hosts.as_ref().is_none_or(|allowed| allowed.contains(host))
    }

    /// Its bytes in the extended format.
    fn extended_bytes(&self) -> usize {
        let label = self.admin_label.as_deref();
        RegisteredEntry::EXTENDED_BYTES_MIN + label.map_or(0, RegisteredEntry::label_bytes)
    }

    fn to_wire(&self, address: IpAddr) -> log_page::DiscoveryEntry {
        let (subsystem_type, flags) = match self.kind {
            EntryKind::Nvm => (SubsystemType::NVM, DiscoveryEntryFlags(0)),
            EntryKind::Referral if !self.subsystem.is_discovery() => {
                (SubsystemType::NVM, DiscoveryEntryFlags(0))
            }
            EntryKind::Referral => (SubsystemType::REFERRAL, DiscoveryEntryFlags(0)),
            EntryKind::Current => (
                SubsystemType::CURRENT_DISCOVERY,
                DiscoveryEntryFlags(0)
                    .with_duplicate_information(true)
                    .with_persistent_connections(true),
            ),
        };
        let endpoint = Endpoint {
            transport_type: self.transport,
            address_family: match address {
                IpAddr::V4(_) => AddressFamily::IPV4,
                IpAddr::V6(_) => AddressFamily::IPV6,
            },
            address: &address.to_string(),
            service_id: &self.port.to_string(),
            port_id: self.port_id,
        };
        let mut entry = log_page::DiscoveryEntry::new(
            subsystem_type,
            &self.subsystem,
            &endpoint,
            self.admin_queue_entries,
        );
        entry.controller_id = U16::new(self.controller_id);
        entry.flags = flags.into();
        if self.transport == TransportType::RDMA {
            entry.set_rdma(&RdmaSubtype::RELIABLE);
        }
        if self.tls != TlsMode::Off {
            entry.set_security_type(SecurityType::TLS_1_3);
        }
        if self.tls == TlsMode::Required {
            entry.requirements = entry.requirements.with_secure_channel(SecureChannel::REQUIRED);
        }
        entry
    }
}

/// The Discovery log page of one generation for a host that came to one address.
///
/// Which entries the host sees is found once; a part of the page is made when it is asked for.
#[derive(Debug)]
pub struct DiscoveryLogPage {
    view: Arc<DiscoveryView>,
    local_address: IpAddr,
    /// Indices of the entries that the host sees.
    entries: Vec<usize>,
}

impl DiscoveryLogPage {
    /// The log page that `host` sees when it came to `local_address`. Of entries that name one
    /// subsystem at one address it has the first.
    #[must_use]
    pub fn new(view: Arc<DiscoveryView>, host: &Nqn, local_address: IpAddr) -> Self {
        let mut known = BTreeSet::new();
        let mut is_shown = |entry: &DiscoveryEntry| {
            #[cfg(test)]
            tests::count_entry();
            entry.is_visible_to(host)
                && entry.address_for(local_address).is_some_and(|address| {
                    known.insert((entry.subsystem, entry.transport, address, entry.port))
                })
        };
        let shown = view.entries.iter().enumerate().filter(|(_, entry)| is_shown(entry));
        let entries = shown.map(|(index, _)| index).collect();
        Self { view, local_address, entries }
    }

    /// The same page of another view, if this target's own entries are the same in it.
    #[must_use]
    pub fn with(self, view: &Arc<DiscoveryView>) -> Option<Self> {
        let is_same = Arc::ptr_eq(&self.view.entries, &view.entries);
        is_same.then(|| Self { view: Arc::clone(view), ..self })
    }

    /// `length` bytes from `offset`; zeros behind its end. `None` if it ends before `offset`. Its
    /// entries are extended ones if that was asked for. Only what is asked for is made.
    #[must_use]
    pub fn part(&self, offset: u64, length: usize, extended: bool) -> Option<Vec<u8>> {
        let offset = usize::try_from(offset).ok()?;
        let wanted = offset..offset.saturating_add(length);
        let mut part = PageSlice { wanted, at: 0, first: None, bytes: Vec::new() };
        part.add(RECORD_BYTES, |bytes| bytes.extend_from_slice(self.header(extended).bytes()));
        for entry in self.own() {
            let own = record_bytes(extended, entry.extended_bytes());
            part.add(own, |bytes| {
                if let Some(address) = entry.address_for(self.local_address) {
                    let label = entry.admin_label.as_deref();
                    append(
                        &RegisteredEntry::labelled(entry.to_wire(address), label),
                        extended,
                        bytes,
                    );
                }
            });
        }
        // What another one has registered is behind this target's own.
        for entries in &self.view.registered {
            let whole = match extended {
                true => entries.extended_bytes(),
                false => entries.len() * RECORD_BYTES,
            };
            if !part.has(whole) {
                part.at += whole;
                continue;
            }
            for entry in entries.iter() {
                let own = record_bytes(extended, entry.extended_bytes());
                part.add(own, |bytes| append(entry, extended, bytes));
            }
        }
        if offset > part.at {
            return None;
        }
        window(&part.bytes, (offset - part.first.unwrap_or(offset)) as u64, length)
    }

    /// This target's own entries that the host sees.
    fn own(&self) -> impl Iterator<Item = &DiscoveryEntry> {
        self.entries.iter().filter_map(|index| self.view.entries.get(*index))
    }

    fn header(&self, extended: bool) -> DiscoveryHeader {
        let registered = &self.view.registered;
        let count = self.entries.len() + registered.iter().map(|all| all.len()).sum::<usize>();
        let mut header = DiscoveryHeader::new(self.view.generation, count as u64);
        if extended {
            let own: usize = self.own().map(DiscoveryEntry::extended_bytes).sum();
            let others: usize = registered.iter().map(Entries::extended_bytes).sum();
            header.flags = DiscoveryParameter(0).with_extended_entries(true);
            header.total_length =
                U32::new(u32::try_from(RECORD_BYTES + own + others).unwrap_or(u32::MAX));
        }
        header
    }
}

const fn record_bytes(extended: bool, extended_bytes: usize) -> usize {
    if extended { extended_bytes } else { RECORD_BYTES }
}

fn append(entry: &RegisteredEntry, extended: bool, bytes: &mut Vec<u8>) {
    #[cfg(test)]
    tests::count_entry();
    match extended {
        true => entry.extend_to(bytes),
        false => bytes.extend_from_slice(entry.entry.bytes()),
    }
}

/// A part of the page that is being made.
struct PageSlice {
    /// Where in the page it is.
    wanted: Range<usize>,
    /// Where the next record is.
    at: usize,
    /// Where the first record that was made is.
    first: Option<usize>,
    bytes: Vec<u8>,
}

impl PageSlice {
    /// Whether it has some of the next so many bytes of the page.
    const fn has(&self, bytes: usize) -> bool {
        self.at < self.wanted.end && self.at + bytes > self.wanted.start
    }

    /// Has the next record made if some of it is wanted.
    fn add(&mut self, bytes: usize, make: impl FnOnce(&mut Vec<u8>)) {
        if self.has(bytes) {
            self.first.get_or_insert(self.at);
            make(&mut self.bytes);
        }
        self.at += bytes;
    }
}

/// `length` bytes from `offset` of a log page; zeros behind its end, `None` beyond it.
pub(crate) fn window(page: &[u8], offset: u64, length: usize) -> Option<Vec<u8>> {
    let rest = page.get(usize::try_from(offset).ok()?..)?;
    let mut bytes = rest[..length.min(rest.len())].to_vec();
    bytes.resize(length, 0);
    Some(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::subsystem::test_support::{HOST, SUBSYSTEM, nqn};
    use weft_nvme::log_page::DiscoveryEntry as Wired;

    thread_local! {
        /// Entries that were looked at or encoded on this thread.
        static ENTRIES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_entry() {
        ENTRIES.set(ENTRIES.get() + 1);
    }

    /// How many entries were looked at or encoded so far on this thread.
    pub(crate) fn counted_entries() -> usize {
        ENTRIES.get()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn entry(text: &str) -> DiscoveryEntry {
        DiscoveryEntry::tcp(EntryKind::Nvm, nqn(SUBSYSTEM), address(text), 4420)
    }

    #[test]
    fn a_wildcard_is_reported_as_the_address_that_the_host_connected_to() {
        let table = [
            ("192.0.2.1", "198.51.100.7", Some("192.0.2.1")),
            ("192.0.2.1", "2001:db8::1", Some("192.0.2.1")),
            ("2001:db8::5", "198.51.100.7", Some("2001:db8::5")),
            ("0.0.0.0", "198.51.100.7", Some("198.51.100.7")),
            ("0.0.0.0", "::ffff:198.51.100.7", Some("198.51.100.7")),
            ("0.0.0.0", "2001:db8::1", None),
            ("::", "2001:db8::1", Some("2001:db8::1")),
            ("::", "198.51.100.7", Some("198.51.100.7")),
            ("::", "::ffff:198.51.100.7", Some("198.51.100.7")),
        ];
        for (listener, local, shown) in table {
            let got = entry(listener).address_for(address(local));
            assert_eq!(got, shown.map(address), "{listener} from {local}");
        }
    }

    #[test]
    fn a_host_sees_each_allowed_entry_once() {
        let host = nqn(HOST);
        let hidden = DiscoveryEntry {
            allowed_hosts: Some(Arc::new([nqn("nqn.other")].into())),
            subsystem: nqn("nqn.hidden"),
            ..entry("192.0.2.1")
        };
        let named = DiscoveryEntry {
            allowed_hosts: Some(Arc::new([host].into())),
            subsystem: nqn("nqn.named"),
            ..entry("192.0.2.1")
        };
        let view = DiscoveryView {
            generation: 1,
            entries: vec![
                entry("0.0.0.0"),
                hidden,
                entry("::"),
                entry("192.0.2.1"),
                named.clone(),
                DiscoveryEntry { port: 4421, ..entry("::") },
            ]
            .into(),
            ..DiscoveryView::default()
        };
        let view = Arc::new(view);
        let of = |host| DiscoveryLogPage::new(Arc::clone(&view), &host, address("192.0.2.1"));
        let page = of(host).part(0, 4096, false).expect("a page");
        assert_eq!(page[8], 3);
        let names = [nqn(SUBSYSTEM), named.subsystem, nqn(SUBSYSTEM)];
        for (index, (name, port)) in names.into_iter().zip(["4420 ", "4420 ", "4421 "]).enumerate()
        {
            let entry = parsed(&page, index);
            assert_eq!(entry.subsystem(), Ok(name));
            assert!(entry.address.0.starts_with(b"192.0.2.1 "));
            assert!(entry.service_id.0.starts_with(port.as_bytes()));
        }
        assert_eq!(of(nqn("nqn.other")).part(0, 1024, false).expect("a header")[8], 3);
    }

    fn parsed(page: &[u8], index: usize) -> Wired {
        Wired::read(&page[1024 * (index + 1)..]).expect("an entry")
    }

    #[test]
    fn the_page_has_a_header_and_its_records() {
        let host = nqn(HOST);
        let local = address("2001:db8::1");
        let view = DiscoveryView {
            generation: 0x0102_0304_0506_0708,
            entries: vec![
                DiscoveryEntry::tcp(EntryKind::Current, Nqn::DISCOVERY, address("::"), 8009),
                DiscoveryEntry { port_id: 3, admin_queue_entries: 128, ..entry("192.0.2.1") },
                DiscoveryEntry::tcp(
                    EntryKind::Referral,
                    Nqn::DISCOVERY,
                    address("192.0.2.9"),
                    8010,
                ),
            ]
            .into(),
            ..DiscoveryView::default()
        };
        let log = DiscoveryLogPage::new(Arc::new(view), &host, local);
        let page = log.part(0, 4096, false).expect("a page");
        assert_eq!(page[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(page[8..20], [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let own = parsed(&page, 0);
        assert_eq!(own.subsystem_type, SubsystemType::CURRENT_DISCOVERY);
        assert_eq!(own.flags.get(), 0b11);
        assert_eq!(own.address_family, AddressFamily::IPV6);
        assert_eq!(own.subsystem(), Ok(Nqn::DISCOVERY));
        assert!(own.address.0.starts_with(b"2001:db8::1 "));
        let nvm = parsed(&page, 1);
        assert_eq!(nvm.transport_type, TransportType::TCP);
        assert_eq!(nvm.address_family, AddressFamily::IPV4);
        assert_eq!(nvm.subsystem_type, SubsystemType::NVM);
        assert_eq!((nvm.port_id.get(), nvm.controller_id.get()), (3, 0xffff));
        assert_eq!(nvm.admin_queue_entries_max.get(), 128);
        assert!(nvm.service_id.0.starts_with(b"4420 "));
        assert!(nvm.address.0.starts_with(b"192.0.2.1 "));
        assert_eq!(nvm.subsystem(), Ok(nqn(SUBSYSTEM)));
        let referral = parsed(&page, 2);
        assert_eq!(referral.subsystem_type, SubsystemType::REFERRAL);
        assert!(referral.service_id.0.starts_with(b"8010 "));
    }

    #[test]
    fn a_label_is_an_attribute_of_the_extended_entry() {
        let host = nqn(HOST);
        let labelled = DiscoveryEntry { admin_label: Some("rack 7".into()), ..entry("192.0.2.1") };
        let entries = vec![labelled, DiscoveryEntry { port: 4421, ..entry("192.0.2.1") }];
        let view = DiscoveryView { entries: entries.into(), ..DiscoveryView::default() };
        let log = DiscoveryLogPage::new(Arc::new(view), &host, address("192.0.2.1"));
        let least = RegisteredEntry::EXTENDED_BYTES_MIN;
        let whole = 1024 + 2 * least + 4 + 8;
        let page = log.part(0, whole + 4, true).expect("a page");
        assert_eq!(log.part(whole as u64 + 1, 4, true), None, "nothing is behind it");
        let first = page.get(1024..1024 + least + 12).expect("an entry");
        assert_eq!(first.get(least..), Some(&b"\x02\0\x08\0rack 7\0\0"[..]));
        let total = u32::try_from(least + 12).expect("small").to_le_bytes();
        assert_eq!(first.get(1024..1028), Some(&total[..]));
        let second = page.get(1024 + least + 12..).expect("an entry");
        assert!(Wired::read(second).expect("an entry").service_id.0.starts_with(b"4421 "));
    }

    #[test]
    fn any_part_of_the_page_can_be_read() {
        let host = nqn(HOST);
        let local = address("192.0.2.1");
        let view = DiscoveryView {
            generation: 5,
            entries: vec![entry("0.0.0.0")].into(),
            ..DiscoveryView::default()
        };
        let log = DiscoveryLogPage::new(Arc::new(view), &host, local);
        let whole = log.part(0, 2048, false).expect("a page");
        for (offset, length) in [(0, 16), (8, 8), (1020, 1028), (2044, 4), (2048, 0)] {
            let part = log.part(offset, length, false).expect("a part");
            let from = usize::try_from(offset).expect("small");
            assert_eq!(part, whole[from..from + length]);
        }
        let behind = log.part(2044, 12, false).expect("a part");
        assert_eq!(behind[4..], [0; 8]);
        for offset in [2049, 2052, 3072, u64::MAX] {
            assert_eq!(log.part(offset, 4, false), None);
        }
    }
}
