//! What a discovery controller shows: where subsystems can be reached, for whom.
//!
//! A [`DiscoveryView`] names every way into every subsystem. A host sees those of subsystems that
//! allow it, with an address that it can reach: where a listener has a wildcard address, the
//! host is shown the address that it came to itself.

use std::net::IpAddr;

use weft_nvme::fabrics::CONTROLLER_ID_DYNAMIC;
use weft_nvme::log_page::{
    self, AddressFamily, DiscoveryEntryFlags, DiscoveryHeader, Endpoint, RdmaSubtype,
    SubsystemType, TransportType,
};
use weft_nvme::wire::U16;
use weft_nvme::{Nqn, Wire};

/// What all discovery controllers of a target show; replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryView {
    /// Generation Counter: different for every view that is published.
    pub generation: u64,
    /// The ways in, in the order that they are shown.
    pub entries: Vec<DiscoveryEntry>,
}

/// One way into one subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// What is to be found there.
    pub kind: EntryKind,
    /// NVMe Qualified Name of the subsystem; of a referral, of its discovery subsystem.
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
    /// The hosts that see it; `None` for every host.
    pub allowed_hosts: Option<Vec<Nqn>>,
}

/// What is to be found at an entry's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A subsystem of I/O controllers.
    Nvm,
    /// This very discovery subsystem.
    Current,
    /// Another discovery subsystem.
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

    fn to_wire(&self, address: IpAddr) -> log_page::DiscoveryEntry {
        let (subsystem_type, flags) = match self.kind {
            EntryKind::Nvm => (SubsystemType::NVM, DiscoveryEntryFlags(0)),
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
        entry
    }
}

impl DiscoveryView {
    /// The entries that `host` sees when it came to `local_address`, each with its address; no
    /// two say the same.
    #[must_use]
    pub fn entries_for(&self, host: &Nqn, local_address: IpAddr) -> Vec<(&DiscoveryEntry, IpAddr)> {
        let mut shown: Vec<(&DiscoveryEntry, IpAddr)> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.is_visible_to(host)) {
            let Some(address) = entry.address_for(local_address) else { continue };
            let known = shown.iter().any(|(other, at)| {
                *at == address
                    && other.port == entry.port
                    && other.transport == entry.transport
                    && other.subsystem == entry.subsystem
            });
            if !known {
                shown.push((entry, address));
            }
        }
        shown
    }

    /// `length` bytes from `offset` of the Discovery log page that `host` sees when it came to
    /// `local_address`; zeros behind its end. `None` if it ends before `offset`.
    #[must_use]
    pub fn log_page(
        &self,
        host: &Nqn,
        local_address: IpAddr,
        offset: u64,
        length: usize,
    ) -> Option<Vec<u8>> {
        let shown = self.entries_for(host, local_address);
        let header = DiscoveryHeader::new(self.generation, shown.len() as u64);
        let mut page = header.bytes().to_vec();
        page.extend(shown.iter().flat_map(|(entry, at)| entry.to_wire(*at).bytes().to_vec()));
        window(&page, offset, length)
    }
}

/// `length` bytes from `offset` of a log page; zeros behind its end, `None` beyond it.
pub(crate) fn window(page: &[u8], offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = page.get(usize::try_from(offset).ok()?..)?.to_vec();
    bytes.resize(length, 0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::test_support::{HOST, SUBSYSTEM, nqn};
    use weft_nvme::log_page::DiscoveryEntry as Wired;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn entry(text: &str) -> DiscoveryEntry {
        DiscoveryEntry::tcp(EntryKind::Nvm, nqn(SUBSYSTEM), address(text), 4420)
    }

    #[test]
    fn a_wildcard_is_shown_as_the_address_that_the_host_came_to() {
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
    fn a_host_sees_what_allows_it_and_once() {
        let host = nqn(HOST);
        let hidden = DiscoveryEntry {
            allowed_hosts: Some(vec![nqn("nqn.other")]),
            subsystem: nqn("nqn.hidden"),
            ..entry("192.0.2.1")
        };
        let named = DiscoveryEntry {
            allowed_hosts: Some(vec![host]),
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
            ],
        };
        let seen: Vec<_> = view
            .entries_for(&host, address("192.0.2.1"))
            .into_iter()
            .map(|(entry, at)| (entry.subsystem, at.to_string(), entry.port))
            .collect();
        let at = |name: Nqn, port| (name, "192.0.2.1".to_owned(), port);
        assert_eq!(
            seen,
            [at(nqn(SUBSYSTEM), 4420), at(named.subsystem, 4420), at(nqn(SUBSYSTEM), 4421)]
        );
        assert_eq!(view.entries_for(&nqn("nqn.other"), address("192.0.2.1")).len(), 3);
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
            ],
        };
        let page = view.log_page(&host, local, 0, 4096).expect("a page");
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
    fn any_part_of_the_page_can_be_read() {
        let host = nqn(HOST);
        let local = address("192.0.2.1");
        let view = DiscoveryView { generation: 5, entries: vec![entry("0.0.0.0")] };
        let whole = view.log_page(&host, local, 0, 2048).expect("a page");
        for (offset, length) in [(0, 16), (8, 8), (1020, 1028), (2044, 4), (2048, 0)] {
            let part = view.log_page(&host, local, offset, length).expect("a part");
            let from = usize::try_from(offset).expect("small");
            assert_eq!(part, whole[from..from + length]);
        }
        let behind = view.log_page(&host, local, 2044, 12).expect("a part");
        assert_eq!(behind[4..], [0; 8]);
        for offset in [2049, 2052, u64::MAX] {
            assert_eq!(view.log_page(&host, local, offset, 4), None);
        }
    }
}
