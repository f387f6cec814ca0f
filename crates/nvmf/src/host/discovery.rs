//! Reading the Discovery log page: in pieces, and again from the start if it changed meanwhile.
//!
//! ```text
//!   Header ──▶ Entries ─┬─▶ Entries …  ──▶ Check ── generation as before ─▶ done
//!     ▲  │ none         │                   │ changed
//!     │  └──────────────┼──────────────▶ done
//!     └─────────────────┴───────────────────┘ (a few times)
//! ```

use weft_nvme::log_page::{
    DiscoveryEntry, DiscoveryHeader, GetLogPage, LogPageId, SubsystemType, TransportType,
};
use weft_nvme::{Command, Completion, Nqn, Wire};

use super::address::{AddressError, AddressFamily, Transport, TransportId};
use super::admin_queue::AdminData;
use super::limits;
use super::problem::{HostStep, Problem, refused};

/// A Discovery log page.
#[derive(Debug, Clone)]
pub struct DiscoveryLog {
    /// Generation Counter (GENCTR).
    pub generation: u64,
    /// Its entries, as received.
    pub entries: Vec<DiscoveryEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Entries { next: u64, records: u64 },
    Check,
    Done,
}

/// Reads the log page, one command at a time.
#[derive(Debug)]
pub struct DiscoveryReader {
    state: State,
    log: DiscoveryLog,
    restarts: u32,
}

impl Default for DiscoveryReader {
    fn default() -> Self {
        Self::new()
    }
}

impl DiscoveryReader {
    /// A reader that has read nothing.
    #[must_use]
    pub const fn new() -> Self {
        let log = DiscoveryLog { generation: 0, entries: Vec::new() };
        Self { state: State::Header, log, restarts: 0 }
    }

    /// The next command, once the last one was answered; `None` when the log has been read.
    #[must_use]
    pub fn poll_command(&self) -> Option<(Command, AdminData)> {
        let header = DiscoveryHeader::SIZE as u64;
        let (offset, length) = match self.state {
            State::Header | State::Check => (0, header),
            State::Entries { next, records } => {
                let size = DiscoveryEntry::SIZE as u64;
                let most = limits::LOG_PIECE_BYTES as u64 / size;
                let count = (records - next).min(most);
                (header + next * size, count * size)
            }
            State::Done => return None,
        };
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        // The event stays until the log has been read in one piece: the check clears it.
        let retain_event = self.state != State::Check;
        let get =
            GetLogPage { retain_event, ..GetLogPage::new(LogPageId::DISCOVERY, offset, length) };
        Some((get.to_command(), AdminData::FromController(length)))
    }

    /// The last command was answered.
    pub fn handle_completion(
        &mut self,
        completion: &Completion,
        data: &[u8],
    ) -> Result<(), Problem> {
        if !completion.status().is_success() {
            return Err(refused(HostStep::ReadDiscoveryLog, completion));
        }
        match self.state {
            State::Header => self.header(data),
            State::Entries { next, records } => self.entries(data, next, records),
            State::Check => {
                let header = view_header(data)?;
                if header.generation.get() == self.log.generation {
                    self.state = State::Done;
                    return Ok(());
                }
                self.restart()
            }
            State::Done => Ok(()),
        }
    }

    /// The log page, when it has been read.
    #[must_use]
    pub fn finish(self) -> Option<DiscoveryLog> {
        (self.state == State::Done).then_some(self.log)
    }

    fn header(&mut self, data: &[u8]) -> Result<(), Problem> {
        let header = view_header(data)?;
        if header.record_format.get() != 0 {
            return Err(invalid_response("its record format is not known"));
        }
        let records = header.records.get();
        if records > limits::DISCOVERY_ENTRIES_MAX {
            return Err(invalid_response("it has more entries than this host reads"));
        }
        self.log.generation = header.generation.get();
        self.log.entries.clear();
        self.state = match records {
            0 => State::Check,
            _ => State::Entries { next: 0, records },
        };
        Ok(())
    }

    fn entries(&mut self, data: &[u8], next: u64, records: u64) -> Result<(), Problem> {
        let wanted = usize::try_from(records - next).unwrap_or(usize::MAX);
        let before = self.log.entries.len();
        let pieces = data.chunks_exact(DiscoveryEntry::SIZE).take(wanted);
        self.log.entries.extend(pieces.filter_map(|piece| DiscoveryEntry::read(piece).ok()));
        let got = (self.log.entries.len() - before) as u64;
        if got == 0 {
            return Err(invalid_response("an entry is too short"));
        }
        self.state = match next + got {
            next if next >= records => State::Check,
            next => State::Entries { next, records },
        };
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Problem> {
        self.restarts += 1;
        if self.restarts > limits::DISCOVERY_RESTARTS_MAX {
            return Err(invalid_response("it changes during each read"));
        }
        self.state = State::Header;
        Ok(())
    }
}

fn invalid_response(what: &'static str) -> Problem {
    Problem::InvalidResponse { step: HostStep::ReadDiscoveryLog, what }
}

fn view_header(data: &[u8]) -> Result<&DiscoveryHeader, Problem> {
    DiscoveryHeader::view(data).map_err(|_| invalid_response("its header is too short"))
}

/// Where an entry leads, for transports that are known.
pub fn transport_id(entry: &DiscoveryEntry) -> Result<TransportId, AddressError> {
    let transport = match entry.transport_type {
        TransportType::TCP => Transport::Tcp,
        TransportType::RDMA => Transport::Rdma,
        other => return Err(AddressError::Transport(other.to_string())),
    };
    let text = |field: Option<&str>| field.unwrap_or_default().trim().to_owned();
    let traddr = text(entry.address.raw_text());
    let service = text(entry.service_id.raw_text());
    let trsvcid = match service.as_str() {
        "" => None,
        service => Some(service.parse().map_err(|_| AddressError::Value {
            what: "port",
            value: service.to_owned(),
            why: "is not a number from 1 to 65535".into(),
        })?),
    };
    let subnqn: Option<Nqn> = entry.subsystem().ok();
    let id = TransportId::tcp(&traddr, trsvcid)?;
    let family = AddressFamily::of(&traddr);
    Ok(TransportId { transport, family, subnqn, ..id })
}

/// Whether an entry leads to another discovery controller that has not been asked yet.
#[must_use]
pub fn is_referral(entry: &DiscoveryEntry) -> bool {
    entry.subsystem_type == SubsystemType::REFERRAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvme::Status;
    use weft_nvme::log_page::{self, Endpoint};

    fn entry(service: u16) -> DiscoveryEntry {
        let endpoint = Endpoint {
            transport_type: TransportType::TCP,
            address_family: log_page::AddressFamily::IPV4,
            address: "192.0.2.7",
            service_id: &service.to_string(),
            port_id: 1,
        };
        let nqn: Nqn = "nqn.2024-01.io.example:disk".parse().unwrap();
        DiscoveryEntry::new(SubsystemType::NVM, &nqn, &endpoint, 32)
    }

    /// A log page as a controller has it.
    struct Log {
        generation: u64,
        entries: Vec<DiscoveryEntry>,
    }

    impl Log {
        fn answer(&self, command: &Command) -> Vec<u8> {
            let get = GetLogPage::from_command(command);
            let records = self.entries.len() as u64;
            let mut bytes = DiscoveryHeader::new(self.generation, records).bytes().to_vec();
            for entry in &self.entries {
                bytes.extend_from_slice(entry.bytes());
            }
            let start = usize::try_from(get.offset).unwrap().min(bytes.len());
            let mut piece = bytes.split_off(start);
            piece.resize(usize::try_from(get.length()).unwrap(), 0);
            piece
        }
    }

    fn success() -> Completion {
        Completion::new(0, Status::SUCCESS)
    }

    fn step(reader: &mut DiscoveryReader, log: &Log) -> bool {
        let Some((command, _)) = reader.poll_command() else { return false };
        reader.handle_completion(&success(), &log.answer(&command)).unwrap();
        true
    }

    #[test]
    fn a_long_log_is_read_in_pieces() {
        let log = Log { generation: 9, entries: (1..=10).map(entry).collect() };
        let mut reader = DiscoveryReader::new();
        let mut commands = 0;
        while step(&mut reader, &log) {
            commands += 1;
        }
        assert_eq!(commands, 5, "header, three pieces of at most four entries, check");
        let read = reader.finish().unwrap();
        assert_eq!((read.generation, read.entries.len()), (9, 10));
        assert!(read.entries == log.entries);
    }

    #[test]
    fn a_change_during_a_read_starts_it_again() {
        let mut log = Log { generation: 1, entries: vec![entry(1)] };
        let mut reader = DiscoveryReader::new();
        assert!(step(&mut reader, &log) && step(&mut reader, &log));
        log.generation = 2;
        log.entries.clear();
        while step(&mut reader, &log) {}
        let read = reader.finish().unwrap();
        assert_eq!((read.generation, read.entries.len()), (2, 0));
    }

    #[test]
    fn a_log_that_keeps_changing_is_given_up() {
        let mut log = Log { generation: 1, entries: vec![] };
        let mut reader = DiscoveryReader::new();
        let error = loop {
            let (command, _) = reader.poll_command().unwrap();
            log.generation += 1;
            if let Err(error) = reader.handle_completion(&success(), &log.answer(&command)) {
                break error;
            }
        };
        assert!(error.to_string().contains("changes during each read"), "{error}");
        assert!(reader.finish().is_none());
    }

    #[test]
    fn only_the_last_read_clears_the_event() {
        let log = Log { generation: 1, entries: vec![entry(1)] };
        let mut reader = DiscoveryReader::new();
        let mut retained = Vec::new();
        while let Some((command, _)) = reader.poll_command() {
            retained.push(GetLogPage::from_command(&command).retain_event);
            step(&mut reader, &log);
        }
        assert_eq!(retained, [true, true, false]);
    }

    #[test]
    fn short_or_invalid_responses_are_refused() {
        for (records, length) in [(1, 1023), (u64::MAX, 1024)] {
            let mut reader = DiscoveryReader::new();
            let header = DiscoveryHeader::new(1, records);
            let data = &header.bytes()[..length];
            assert!(reader.handle_completion(&success(), data).is_err());
        }
        let mut reader = DiscoveryReader::new();
        let header = DiscoveryHeader::new(1, 3);
        reader.handle_completion(&success(), header.bytes()).unwrap();
        assert!(reader.handle_completion(&success(), &[0; 1000]).is_err());
        let refusal = Completion::new(0, Status::INVALID_LOG_PAGE);
        assert!(DiscoveryReader::new().handle_completion(&refusal, &[]).is_err());
    }

    #[test]
    fn entries_lead_somewhere() {
        let id = transport_id(&entry(4421)).unwrap();
        assert_eq!(id.to_string(), "nvme-tcp://192.0.2.7:4421/nqn.2024-01.io.example:disk");
        assert!(!is_referral(&entry(1)));
        let mut wild = entry(1);
        wild.transport_type = TransportType::FIBRE_CHANNEL;
        assert!(transport_id(&wild).is_err());
        let mut wild = entry(1);
        wild.service_id = weft_nvme::wire::Text::new("http");
        assert!(transport_id(&wild).is_err());
    }
}
