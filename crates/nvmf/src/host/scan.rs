//! Scans the namespaces of a controller, one command at a time.
//!
//! ```text
//!   [ReadChangedNamespaces] ─▶ ListNamespaces ─┬▶ IdentifyNamespace ─▶ DescribeNamespace ─┐
//!                                  ▲           │        ▲    │ gone meanwhile             │
//!                                  └─ full ────┘        └────┴────────────────────────────┘
//! ```
//!
//! Reading the Changed Namespace List is what re-arms the event; its contents are not used, since
//! the list may have overflowed, and a whole scan is cheap.
//!
//! A host that follows access states reads their log page last, or alone after its event.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_nvme::identify::{NAMESPACES_PER_LIST, NamespaceList};
use weft_nvme::property::Version;
use weft_nvme::status::StatusCode;
use weft_nvme::{Command, Completion, Status, Wire};

use super::access::AccessStates;
use super::admin_queue::AdminData;
use super::problem::{HostStep, Problem, refused};
use super::snapshot::{
    ControllerInfo, ControllerSnapshot, NamespaceInfo, Namespaces, UnusableNamespaces,
};
use super::{admin_commands, limits};

/// A scan in progress.
#[derive(Debug)]
pub(super) struct Scan {
    controller: ControllerInfo,
    next: Option<HostStep>,
    asked: HostStep,
    waiting: VecDeque<u32>,
    /// The last full list's last namespace: there may be more behind it.
    more_after: Option<u32>,
    listed: usize,
    identify: Vec<u8>,
    found: Namespaces,
    unusable: UnusableNamespaces,
    access: AccessStates,
}

/// What a scan has found.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    pub(super) namespaces: Namespaces,
    pub(super) unusable: UnusableNamespaces,
    pub(super) access: AccessStates,
}

impl Scan {
    pub(super) fn new(controller: &ControllerInfo, read_log: bool) -> Self {
        let first =
            if read_log { HostStep::ReadChangedNamespaces } else { HostStep::ListNamespaces };
        Self {
            controller: controller.clone(),
            next: Some(first),
            asked: first,
            waiting: VecDeque::new(),
            more_after: None,
            listed: 0,
            identify: Vec::new(),
            found: Namespaces::new(),
            unusable: UnusableNamespaces::new(),
            access: AccessStates::default(),
        }
    }

    /// A scan of the access states alone; the namespaces are those of before.
    pub(super) fn of_access(before: &ControllerSnapshot) -> Self {
        Self {
            next: before.controller.access_log_bytes.map(|_| HostStep::ReadAccessLog),
            found: before.namespaces.clone(),
            unusable: before.unusable.clone(),
            access: before.access.clone(),
            ..Self::new(&before.controller, false)
        }
    }

    /// The next command, once the last one was answered; `None` when the scan is complete.
    pub(super) fn poll_command(&mut self) -> Option<(HostStep, (Command, AdminData))> {
        let step = self.next.take()?;
        self.asked = step;
        let request = match step {
            HostStep::ReadAccessLog => {
                admin_commands::access_log(self.controller.access_log_bytes.unwrap_or(0))
            }
            HostStep::ReadChangedNamespaces => admin_commands::changed_namespaces(),
            HostStep::IdentifyNamespace(nsid) => admin_commands::identify_namespace(nsid),
            HostStep::DescribeNamespace(nsid) => admin_commands::describe_namespace(nsid),
            _ => admin_commands::list_namespaces(self.more_after.unwrap_or(0)),
        };
        Some((step, request))
    }

    pub(super) fn handle_completion(
        &mut self,
        completion: &Completion,
        data: &[u8],
    ) -> Result<(), Problem> {
        let status = completion.status();
        match self.asked {
            // If it is refused or wrong, the states that were known go on.
            HostStep::ReadAccessLog => {
                let page = status.is_success().then_some(data);
                let read = |page| AccessStates::read(page, &self.controller.identify);
                if let Some(access) = page.and_then(read) {
                    self.access = access;
                }
            }
            // Refused or not: the list follows.
            HostStep::ReadChangedNamespaces => self.next = Some(HostStep::ListNamespaces),
            HostStep::IdentifyNamespace(nsid) => {
                if status.is_success() {
                    self.identify = data.to_vec();
                    self.next = Some(HostStep::DescribeNamespace(nsid));
                } else if status.code() == StatusCode::INVALID_NAMESPACE {
                    self.go_on();
                } else {
                    return Err(refused(self.asked, completion));
                }
            }
            HostStep::DescribeNamespace(nsid) => {
                if status.code() == StatusCode::INVALID_NAMESPACE {
                    self.go_on();
                } else if !self.may_lack_descriptors(status) {
                    return Err(refused(self.asked, completion));
                } else {
                    let descriptors = if status.is_success() { data } else { &[] };
                    self.take_in(nsid, descriptors);
                }
            }
            _ => {
                if !status.is_success() {
                    return Err(refused(self.asked, completion));
                }
                self.take_list(data)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> ScanResult {
        ScanResult { namespaces: self.found, unusable: self.unusable, access: self.access }
    }

    /// Controllers older than 1.3 have no descriptors, and may refuse with any status. For others
    /// only a status with Do Not Retry means that: after a transient one the namespace would be
    /// mistaken for another.
    fn may_lack_descriptors(&self, status: Status) -> bool {
        let has_none = self.controller.version < Version::V1_3 && !status.is_path_related();
        status.is_success() || status.do_not_retry() || has_none
    }

    fn invalid_response(&self, what: &'static str) -> Problem {
        Problem::InvalidResponse { step: self.asked, what }
    }

    fn take_list(&mut self, data: &[u8]) -> Result<(), Problem> {
        let list =
            NamespaceList::view(data).map_err(|_| self.invalid_response("it is too short"))?;
        let mut last = self.more_after.unwrap_or(0);
        let mut count = 0;
        for nsid in list.iter() {
            if nsid <= last || nsid > limits::NAMESPACE_ID_MAX {
                return Err(self.invalid_response("its identifiers do not ascend"));
            }
            last = nsid;
            count += 1;
            if self.listed < limits::NAMESPACES_MAX {
                self.listed += 1;
                self.waiting.push_back(nsid);
            }
        }
        let full = count == NAMESPACES_PER_LIST && self.listed < limits::NAMESPACES_MAX;
        self.more_after = full.then_some(last);
        self.go_on();
        Ok(())
    }

    /// A namespace that this host cannot use is left out; the others are not affected.
    fn take_in(&mut self, nsid: u32, descriptors: &[u8]) {
        match NamespaceInfo::new(&self.controller, nsid, &self.identify, descriptors) {
            Ok(Some(namespace)) => {
                self.found.insert(nsid, Arc::new(namespace));
            }
            Ok(None) => {}
            Err(why) => {
                self.unusable.insert(nsid, why);
            }
        }
        self.go_on();
    }

    fn go_on(&mut self) {
        self.next = match self.waiting.pop_front() {
            Some(nsid) => Some(HostStep::IdentifyNamespace(nsid)),
            None if self.more_after.is_some() => Some(HostStep::ListNamespaces),
            None => self.controller.access_log_bytes.map(|_| HostStep::ReadAccessLog),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuzzing::config;
    use super::super::fuzzing::peer::Peer;
    use super::*;
    use weft_nvme::identify::{self, FormattedLbaSize, LbaFormat};

    /// Scans a controller of this version that answers the question for descriptors with `status`.
    fn scan(version: Version, status: Status) -> Result<Namespaces, Problem> {
        scan_of(version, status, &mut |_, _| ()).map(|(found, _)| found)
    }

    /// The same, and `change` changes what the controller says of its namespaces.
    fn scan_of(
        version: Version,
        status: Status,
        change: &mut dyn FnMut(u32, &mut identify::Namespace),
    ) -> Result<(Namespaces, UnusableNamespaces), Problem> {
        let mut controller = ControllerInfo::unknown(&config());
        controller.version = version;
        let mut scan = Scan::new(&controller, false);
        let mut peer = Peer::new();
        while let Some((step, (command, _))) = scan.poll_command() {
            let (completion, mut data) = match step {
                HostStep::DescribeNamespace(_) if !status.is_success() => {
                    (Completion::new(0, status), Vec::new())
                }
                _ => peer.answer(&command),
            };
            if let HostStep::IdentifyNamespace(nsid) = step {
                let mut identify = *identify::Namespace::view(&data).unwrap();
                change(nsid, &mut identify);
                data = identify.bytes().to_vec();
            }
            scan.handle_completion(&completion, &data)?;
        }
        let found = scan.finish();
        Ok((found.namespaces, found.unusable))
    }

    #[test]
    fn one_namespace_that_cannot_be_used_leaves_the_others() {
        let all = scan(Version::V2_1, Status::SUCCESS).unwrap();
        assert!(all.len() > 1, "there are others");
        let odd: [fn(&mut identify::Namespace); 3] = [
            |identify| identify.lba_formats[0] = LbaFormat::new(3),
            |identify| identify.lba_formats[0] = LbaFormat::new(17),
            |identify| identify.formatted_lba_size = FormattedLbaSize(9),
        ];
        for make_odd in odd {
            let mut change = |nsid, identify: &mut identify::Namespace| {
                if nsid == 1 {
                    make_odd(identify);
                }
            };
            let (found, unusable) =
                scan_of(Version::V2_1, Status::SUCCESS, &mut change).expect("the scan goes on");
            assert_eq!(unusable.keys().collect::<Vec<_>>(), [&1]);
            assert!(!found.contains_key(&1));
            assert_eq!(found.len(), all.len() - 1);
        }
    }

    #[test]
    fn a_namespace_is_known_by_its_descriptors() {
        let found = scan(Version::V2_1, Status::SUCCESS).unwrap();
        assert!(found[&1].identity.uuid.is_some());
        let found = scan(Version::V2_1, Status::INVALID_FIELD.with_dnr()).unwrap();
        assert!(found[&1].identity.uuid.is_none(), "it has none, and says so");
        assert!(scan(Version::V2_1, Status::INTERNAL_ERROR).is_err(), "it has some");
        let old = Version::new(1, 2, 1);
        assert!(scan(old, Status::INVALID_FIELD).is_ok());
        assert!(scan(old, Status::INTERNAL_PATH_ERROR).is_err());
    }
}
