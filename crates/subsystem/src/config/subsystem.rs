//! What a target serves: subsystems with their namespaces.

use std::num::NonZeroU16;
use std::ops::Not;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_backend::rbd::RbdSpec;
use weft_backend::{DeviceSpec, files};
use weft_nvmf::subsystem::ControllerModel;

use super::limits::{CNTLID_FIRST, CNTLID_LAST};
use super::{HexId, HostKeys, Limits, Pair, identity, text};

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Subsystem {
    /// Its name.
    pub nqn: String,
    /// Serial number, at most 20 characters; none: derived from the NQN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number, at most 40 characters.
    #[serde(default = "model", skip_serializing_if = "is_model")]
    pub model: String,
    /// Firmware revision, at most 8 characters.
    #[serde(default = "firmware")]
    pub firmware: String,
    /// A label for administrators in extended discovery log pages, 4 to 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_label: Option<String>,
    /// The hosts that may connect, by NQN; none: every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts that are listed while every host is allowed; they count once that ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed_hosts: Vec<String>,
    /// Most namespaces, and the largest NSID; none: [`Limits::namespaces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces_max: Option<u32>,
    /// Most I/O queues of a controller; none, and at most: [`Limits::io_queues`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qid_max: Option<NonZeroU16>,
    /// Whether the host names the controller it wants (the static controller model) or takes the
    /// one it is given (the dynamic controller model).
    #[serde(default, with = "Model", skip_serializing_if = "text::is_default")]
    pub controllers: ControllerModel,
    /// The first controller id; none: as [`Subsystem::controller_ids`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid_min: Option<u16>,
    /// The last controller id; none: as [`Subsystem::controller_ids`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid_max: Option<u16>,
    /// Whether hosts are told how well each port reaches its namespaces (ANA).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub ana_reporting: bool,
    /// Whether a host may reset the NVM subsystem, for all of its hosts.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub subsystem_reset: bool,
    /// What hosts may make of its namespaces; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_namespaces: Option<HostNamespaces>,
    /// Keys of hosts that are allowed or listed.
    #[serde(rename = "host", default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<HostKeys>,
    /// Its namespaces in the order of their NSIDs.
    #[serde(rename = "namespace", default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ControllerModel", rename_all = "kebab-case")]
enum Model {
    Dynamic,
    Static,
}

fn model() -> String {
    "weft".to_owned()
}

fn is_model(text: &str) -> bool {
    text == model()
}

fn firmware() -> String {
    env!("CARGO_PKG_VERSION").chars().take(8).collect()
}

/// The namespaces that hosts may make in a subsystem, by Namespace Management.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostNamespaces {
    /// Bytes that they may have together.
    #[serde(with = "weft_backend::bytes::as_text")]
    pub capacity: u64,
    /// Each is a file in this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Each is an image of a Ceph cluster, whose name begins with that of this one. Without this
    /// and a folder each is memory.
    #[serde_as(as = "Option<Box<DisplayFromStr>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbd: Option<Box<RbdSpec>>,
}

impl Subsystem {
    /// A subsystem with defaults and without namespaces.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            serial: None,
            model: model(),
            firmware: firmware(),
            admin_label: None,
            allowed_hosts: None,
            listed_hosts: Vec::new(),
            host_keys: Vec::new(),
            namespaces_max: None,
            qid_max: None,
            controllers: ControllerModel::default(),
            cntlid_min: None,
            cntlid_max: None,
            ana_reporting: false,
            subsystem_reset: false,
            host_namespaces: None,
            namespaces: Vec::new(),
        }
    }

    /// Most namespaces that it may have, and the largest NSID.
    #[must_use]
    pub fn most_namespaces(&self, limits: &Limits) -> u32 {
        self.namespaces_max.unwrap_or(limits.namespaces)
    }

    /// The largest NSID that a namespace has.
    pub(crate) fn largest_nsid(&self) -> u32 {
        self.namespaces.iter().map(|namespace| namespace.nsid).max().unwrap_or(0)
    }

    /// The first and the last controller id: those of the member of a pair, or all, where none are
    /// given.
    #[must_use]
    pub fn controller_ids(&self, pair: Option<&Pair>) -> (u16, u16) {
        let (first, last) = pair.map_or((CNTLID_FIRST, CNTLID_LAST), Pair::controller_ids);
        (self.cntlid_min.unwrap_or(first), self.cntlid_max.unwrap_or(last))
    }

    /// The groups that have a namespace, in order.
    #[must_use]
    pub fn ana_groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.namespaces.iter().map(|one| one.ana_group()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// The serial number, derived if none is given.
    #[must_use]
    pub fn serial(&self) -> String {
        self.serial.clone().unwrap_or_else(|| identity::serial(&self.nqn))
    }
}

/// A namespace.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Namespace {
    /// Its id within the subsystem; 0, until it is known: that of its position, or the first free.
    #[serde(default)]
    pub nsid: u32,
    /// Whether the id is only its position in the list: when the target reloads, a namespace that
    /// is still there keeps the id that it has.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub by_position: bool,
    /// Its device.
    #[serde_as(as = "DisplayFromStr")]
    pub device: DeviceSpec,
    /// The block device that it uses, if that has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bdev: Option<String>,
    /// UUID; none: derived, or new at each start for a device that loses its contents.
    #[serde_as(as = "Option<HexId<16>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<[u8; 16]>,
    /// NGUID; none: derived from the UUID.
    #[serde_as(as = "Option<HexId<16>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<[u8; 16]>,
    /// EUI-64; none: not reported.
    #[serde_as(as = "Option<HexId<8>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eui64: Option<[u8; 8]>,
    /// Whether hosts may only read.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub read_only: bool,
    /// Its ANA group; none: that with the number of its NSID, as with SPDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ana_group: Option<u32>,
    /// Where its reservations are kept if hosts let them persist; none: they cannot persist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptpl_file: Option<PathBuf>,
    /// The hosts that see it, by NQN; none: every host of the subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_to: Option<Vec<String>>,
}

impl Namespace {
    /// A namespace with an id and a device only.
    #[must_use]
    pub fn new(nsid: u32, device: DeviceSpec) -> Self {
        Self {
            nsid,
            by_position: false,
            device,
            bdev: None,
            uuid: None,
            nguid: None,
            eui64: None,
            read_only: false,
            ana_group: None,
            ptpl_file: None,
            visible_to: None,
        }
    }

    /// A namespace on a block device by name, which the step that adds it gives its device and, if
    /// it has none, its number.
    #[must_use]
    pub fn on_bdev(name: impl Into<String>) -> Self {
        let block_bytes = weft_backend::BLOCK_BYTES_DEFAULT;
        let device = DeviceSpec::Null { bytes: block_bytes.into(), block_bytes };
        Self { bdev: Some(name.into()), ..Self::new(0, device) }
    }

    /// Its ANA group.
    #[must_use]
    pub fn ana_group(&self) -> u32 {
        self.ana_group.unwrap_or(self.nsid)
    }

    /// The files that no other namespace may have, by canonical path, each with its key.
    pub(crate) fn own_files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let reservations = self.ptpl_file.iter().map(|path| ("ptpl-file", files::canonical(path)));
        let marks = self.device.marks_files().into_iter();
        reservations.chain(marks.map(|path| ("uncorrectable:file", path)))
    }
}

/// What to do about a file that two of them would have.
pub(crate) const OWN_FILE: &str = "give each namespace a file of its own";
