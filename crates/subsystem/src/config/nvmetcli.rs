//! The JSON that `nvmetcli save` writes: the kernel target's configfs tree as text.
//!
//! Its attributes are texts (`"allow_any_host": "1"`), its names the kernel's. What this target
//! serves in another way, or does not support, is reported and ignored, with two exceptions that
//! are errors: authentication and TLS, because a target that ignored them would be open to
//! everyone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use weft_backend::DeviceSpec;

use super::{
    AnaRule, AnaState, Config, ConfigError, HexId, Limits, Listen, Namespace, Port, PortSubsystems,
    Referral, Subsystem, Transport, socket_address,
};

/// A configuration, and what of its text is not part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportResult {
    /// The configuration.
    pub config: Config,
    /// One sentence for each thing that is left out, to be shown to the user.
    pub notes: Vec<String>,
}

/// The attributes of a subsystem. Its `version` is decided by the target.
const SUBSYSTEM_ATTRIBUTES: &[&str] = &[
    "allow_any_host",
    "cntlid_max",
    "cntlid_min",
    "firmware",
    "model",
    "pi_enable",
    "qid_max",
    "serial",
    "version",
];

/// I/O queues of a subsystem whose `qid_max` is not given.
const NVMET_NR_QUEUES: u16 = 128;

/// Reads and checks a configuration.
///
/// # Errors
/// The text is not of this form, contradicts itself, or asks for what must not be ignored.
pub fn parse(text: &str) -> Result<ImportResult, ConfigError> {
    parse_with(text, &is_block_device)
}

/// A path is a block device if the file there is one; without a file, if it begins with /dev.
fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path)
        .map_or_else(|_| path.starts_with("/dev"), |found| found.file_type().is_block_device())
}

pub(super) fn parse_with(
    text: &str,
    is_block: &dyn Fn(&Path) -> bool,
) -> Result<ImportResult, ConfigError> {
    let saved_config: SavedConfig = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        ConfigError::new("", message)
            .remedy("the file must have the form that `nvmetcli save` writes")
            .on_line(Some(error.line()))
    })?;
    let mut reader = Reader { is_block, notes: Vec::new(), ports: Vec::new(), nsids: Vec::new() };
    let config = reader.read(saved_config)?;
    config.validate().map_err(|error| {
        let key = reader.key_in_file(error.key());
        error.with_key(key)
    })?;
    Ok(ImportResult { config, notes: reader.notes })
}

#[derive(Deserialize)]
struct SavedConfig {
    #[serde(default)]
    hosts: Vec<HostEntry>,
    #[serde(default)]
    ports: Vec<PortEntry>,
    #[serde(default)]
    subsystems: Vec<SubsystemEntry>,
}

/// A group of attributes as configfs shows them.
type Attributes = BTreeMap<String, Text>;

#[derive(Deserialize)]
struct HostEntry {
    #[serde(default)]
    nqn: String,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct PortEntry {
    addr: Attributes,
    #[serde(default)]
    param: Attributes,
    portid: u16,
    #[serde(default)]
    subsystems: Vec<String>,
    #[serde(default)]
    referrals: Vec<ReferralEntry>,
    #[serde(default)]
    ana_groups: Vec<AnaGroupEntry>,
}

#[derive(Deserialize)]
struct AnaGroupEntry {
    #[serde(default)]
    ana: Attributes,
    grpid: u32,
}

#[derive(Deserialize)]
struct ReferralEntry {
    addr: Attributes,
    enable: Option<Text>,
}

#[derive(Deserialize)]
struct SubsystemEntry {
    nqn: String,
    #[serde(default)]
    attr: Attributes,
    #[serde(default)]
    allowed_hosts: Vec<String>,
    #[serde(default)]
    namespaces: Vec<NamespaceEntry>,
    #[serde(default)]
    passthru: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct NamespaceEntry {
    nsid: u32,
    device: Attributes,
    enable: Option<Text>,
    #[serde(default)]
    ana: Attributes,
}

/// A string, or a number or truth value in a file that was edited by hand.
#[derive(Clone, Debug)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "an attribute is a text or a number")]
        enum AnyScalar {
            Text(String),
            Number(i64),
            Bool(bool),
        }
        Ok(Self(match AnyScalar::deserialize(deserializer)? {
            AnyScalar::Text(text) => text.trim().to_owned(),
            AnyScalar::Number(number) => number.to_string(),
            AnyScalar::Bool(bool) => u8::from(bool).to_string(),
        }))
    }
}

struct Reader<'a> {
    is_block: &'a dyn Fn(&Path) -> bool,
    notes: Vec<String>,
    /// For each port of the configuration, its index in the file.
    ports: Vec<usize>,
    /// For each namespace of each subsystem, its index in the file.
    nsids: Vec<Vec<usize>>,
}

impl Reader<'_> {
    fn read(&mut self, saved_config: SavedConfig) -> Result<Config, ConfigError> {
        for (index, host) in saved_config.hosts.iter().enumerate() {
            check_host(index, host)?;
        }
        let mut config = Config::default();
        for (index, entry) in saved_config.ports.into_iter().enumerate() {
            let at = format!("ports[{index}]");
            check_port_security(&at, &entry.addr)?;
            if let Some(port) = self.port(&at, &entry)? {
                self.port_parameters(&at, &entry.param, &mut config.limits)?;
                config.ports.push(port);
                self.ports.push(index);
            }
        }
        for (index, entry) in saved_config.subsystems.into_iter().enumerate() {
            let subsystem = self.subsystem(&format!("subsystems[{index}]"), entry)?;
            // Whoever has made it has nowhere to raise the limit.
            let largest = subsystem.largest_nsid();
            config.limits.namespaces = config.limits.namespaces.max(largest);
            config.subsystems.push(subsystem);
        }
        report_ana(&mut config);
        // What a subsystem says bounds its own controllers.
        let wanted = config.subsystems.iter().filter_map(|subsystem| subsystem.qid_max);
        config.limits.io_queues = wanted.map(NonZeroU16::get).fold(NVMET_NR_QUEUES, u16::max);
        Ok(config)
    }

    fn port(&mut self, at: &str, entry: &PortEntry) -> Result<Option<Port>, ConfigError> {
        let kind = attribute(&entry.addr, "trtype").unwrap_or_default();
        let Some(transport) = transport_of(kind) else {
            self.notes.push(format!("{at}: its transport is {kind:?}, which is not served"));
            return Ok(None);
        };
        let listen = Listen { transport, address: address(&format!("{at}.addr"), &entry.addr)? };
        let mut port = Port::new(entry.portid, listen);
        port.ana = ana_rules(at, &entry.ana_groups)?;
        port.subsystems = PortSubsystems::Only(entry.subsystems.clone());
        for (index, referral) in entry.referrals.iter().enumerate() {
            let at = format!("{at}.referrals[{index}]");
            if referral.enable.as_ref().is_some_and(|text| text.0 == "0") {
                continue;
            }
            let kind = attribute(&referral.addr, "trtype").unwrap_or_default();
            let Some(transport) = transport_of(kind) else {
                self.notes.push(format!("{at}: its transport is {kind:?}, so it is left out"));
                continue;
            };
            let at = format!("{at}.addr");
            let address = Listen { transport, address: address(&at, &referral.addr)? };
            let port_id = attribute(&referral.addr, "portid").and_then(|id| id.parse().ok());
            let port_id = port_id.unwrap_or(0);
            port.referrals.push(Referral { address, port_id, subsystem: None });
        }
        Ok(Some(port))
    }

    /// Attributes that this reader does not know are reported.
    fn note_unknown(&mut self, at: &str, attributes: &Attributes, known: &[&str]) {
        for (name, value) in attributes {
            if !known.contains(&name.as_str()) && !value.0.is_empty() {
                self.notes.push(format!("{at}.{name}: this attribute is left aside"));
            }
        }
    }

    /// The kernel has these for each port, this target for all: the largest wins.
    fn port_parameters(
        &mut self,
        at: &str,
        parameters: &Attributes,
        limits: &mut Limits,
    ) -> Result<(), ConfigError> {
        let given = |name: &str| -> Result<Option<u32>, ConfigError> {
            match attribute(parameters, name) {
                None | Some("" | "-1") => Ok(None),
                Some(text) => number(&format!("{at}.param.{name}"), text).map(Some),
            }
        };
        if let Some(bytes) = given("inline_data_size")? {
            let first = self.ports.is_empty();
            let before = if first { 0 } else { limits.in_capsule_bytes };
            limits.in_capsule_bytes = bytes.max(before);
        }
        if let Some(entries) = given("max_queue_size")? {
            let before = if self.ports.is_empty() { 0 } else { limits.queue_entries };
            let entries = u16::try_from(entries).unwrap_or(u16::MAX);
            limits.queue_entries = entries.max(before);
        }
        if attribute(parameters, "pi_enable").is_some_and(|text| text != "0") {
            self.notes.push(format!("{at}.param.pi_enable: protection information is not served"));
        }
        let known = ["inline_data_size", "max_queue_size", "pi_enable"];
        self.note_unknown(&format!("{at}.param"), parameters, &known);
        Ok(())
    }

    fn subsystem(&mut self, at: &str, entry: SubsystemEntry) -> Result<Subsystem, ConfigError> {
        let mut subsystem = Subsystem::new(entry.nqn);
        let anyone = attribute(&entry.attr, "allow_any_host").is_some_and(|text| text != "0");
        subsystem.allowed_hosts = (!anyone).then_some(entry.allowed_hosts);
        let text = |name| attribute(&entry.attr, name).filter(|text| !text.is_empty());
        subsystem.serial = text("serial").map(str::to_owned);
        if let Some(model) = text("model") {
            subsystem.model = model.to_owned();
        }
        if let Some(firmware) = text("firmware") {
            subsystem.firmware = firmware.to_owned();
        }
        if let Some(first) = text("cntlid_min") {
            subsystem.cntlid_min = Some(number(&format!("{at}.attr.cntlid_min"), first)?);
        }
        if let Some(last) = text("cntlid_max") {
            subsystem.cntlid_max = Some(number(&format!("{at}.attr.cntlid_max"), last)?);
        }
        if text("pi_enable").is_some_and(|text| text != "0") {
            self.notes.push(format!("{at}.attr.pi_enable: protection information is not served"));
        }
        if let Some(most) = text("qid_max") {
            subsystem.qid_max = NonZeroU16::new(number(&format!("{at}.attr.qid_max"), most)?);
        }
        self.note_unknown(&format!("{at}.attr"), &entry.attr, SUBSYSTEM_ATTRIBUTES);
        if !entry.passthru.is_empty() {
            self.notes.push(format!("{at}.passthru: passthru of a controller is not served"));
        }
        let mut indices = Vec::new();
        for (index, entry) in entry.namespaces.iter().enumerate() {
            let at = format!("{at}.namespaces[{index}]");
            if let Some(namespace) = self.namespace(&at, entry)? {
                subsystem.namespaces.push(namespace);
                indices.push(index);
            }
        }
        self.nsids.push(indices);
        Ok(subsystem)
    }

    fn namespace(
        &mut self,
        at: &str,
        entry: &NamespaceEntry,
    ) -> Result<Option<Namespace>, ConfigError> {
        // A namespace that was never enabled is dumped with 0; the kernel does not show it.
        if entry.enable.as_ref().is_none_or(|text| text.0 == "0") {
            self.notes.push(format!("{at}: it is not enabled"));
            return Ok(None);
        }
        let path = attribute(&entry.device, "path").unwrap_or_default();
        if path.is_empty() {
            return Err(ConfigError::new(
                format!("{at}.device.path"),
                "the namespace has no device",
            )
            .remedy("give the path of a file or a block device"));
        }
        let path = PathBuf::from(path);
        let device = if (self.is_block)(&path) {
            DeviceSpec::Block { path, read_only: false, shared: false, polled: false }
        } else {
            DeviceSpec::File {
                path,
                create_bytes: None,
                block_bytes: None,
                direct: None,
                read_only: false,
                shared: false,
            }
        };
        self.note_unknown(&format!("{at}.device"), &entry.device, &["path", "uuid", "nguid"]);
        let mut namespace = Namespace::new(entry.nsid, device);
        namespace.uuid = identifier(at, &entry.device, "uuid")?;
        namespace.nguid = identifier(at, &entry.device, "nguid")?;
        let group = attribute(&entry.ana, "grpid").unwrap_or("1");
        namespace.ana_group = Some(number(&format!("{at}.ana.grpid"), group)?);
        Ok(Some(namespace))
    }

    /// The key in the file for a key of the checks, which count only what is served.
    fn key_in_file(&self, key: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut subsystem = None;
        for part in key.split('.') {
            let (name, index) = split_index(part);
            parts.push(match (name, index) {
                ("port", Some(index)) => {
                    format!("ports[{}]", self.ports.get(index).unwrap_or(&index))
                }
                ("subsystem", Some(index)) => {
                    subsystem = self.nsids.get(index);
                    format!("subsystems[{index}]")
                }
                ("namespace", Some(index)) => {
                    let found = subsystem.and_then(|nsids| nsids.get(index));
                    format!("namespaces[{}]", found.unwrap_or(&index))
                }
                ("listen" | "advertise", None) => "addr".to_owned(),
                ("uuid" | "nguid", None) => format!("device.{name}"),
                ("serial" | "model" | "firmware", None) => format!("attr.{name}"),
                ("cntlid-min", None) => "attr.cntlid_min".to_owned(),
                ("allowed-hosts", Some(index)) => format!("allowed_hosts[{index}]"),
                ("id", None) => "portid".to_owned(),
                _ => part.to_owned(),
            });
        }
        parts.join(".")
    }
}

/// The states of a port's groups but for optimized, which needs no rule.
fn ana_rules(at: &str, groups: &[AnaGroupEntry]) -> Result<Vec<AnaRule>, ConfigError> {
    let mut rules = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let word = attribute(&group.ana, "state").unwrap_or("optimized");
        let state = word.parse().map_err(|error: String| {
            let key = format!("{at}.ana_groups[{index}].ana.state");
            ConfigError::new(key, error).remedy("write it as the kernel does")
        })?;
        if state != AnaState::Optimized {
            rules.push(AnaRule { subsystem: None, group: Some(group.grpid), state });
        }
    }
    Ok(rules)
}

/// The kernel tells hosts of access states always. Here it is done where it says something: for
/// namespaces in several groups, and where not all is optimized.
fn report_ana(config: &mut Config) {
    for subsystem in &mut config.subsystems {
        let here = |port: &&Port| port.subsystems.contains(&subsystem.nqn);
        let ruled = config.ports.iter().filter(here).any(|port| !port.ana.is_empty());
        let grouped = subsystem.namespaces.iter().any(|one| one.ana_group() != 1);
        subsystem.ana_reporting = ruled || grouped;
        if !subsystem.ana_reporting {
            subsystem.namespaces.iter_mut().for_each(|one| one.ana_group = None);
        }
    }
}

fn split_index(part: &str) -> (&str, Option<usize>) {
    match part.split_once('[') {
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse().ok()),
        None => (part, None),
    }
}

fn check_host(index: usize, host: &HostEntry) -> Result<(), ConfigError> {
    let secret = host.rest.iter().find(|(name, value)| {
        let given = |value: &serde_json::Value| value.as_str().is_some_and(|text| !text.is_empty());
        let within = value.as_object().is_some_and(|group| {
            group.iter().any(|(name, value)| name.contains("key") && given(value))
        });
        within || name.contains("dhchap") && given(value)
    });
    let Some((name, _)) = secret else { return Ok(()) };
    let what =
        format!("host {:?} has a key, and weft reads keys from files of their own", host.nqn);
    Err(ConfigError::new(format!("hosts[{index}].{name}"), what).remedy(
        "write the key into a file of mode 0600, take it out of this one, and name its file as the \
         dhchap-key of the host in the result, without which the host need not authenticate",
    ))
}

fn check_port_security(at: &str, address: &Attributes) -> Result<(), ConfigError> {
    let treq = attribute(address, "treq").unwrap_or_default();
    let tsas = attribute(address, "tsas").unwrap_or_default();
    let (name, value) = if treq == "required" {
        ("treq", treq)
    } else if tsas.starts_with("tls") {
        ("tsas", tsas)
    } else {
        return Ok(());
    };
    let what = format!("{value:?} asks for TLS, whose keys are not in this file");
    Err(ConfigError::new(format!("{at}.addr.{name}"), what)
        .remedy("write it as TOML, with `tls` and `psk`; or serve without: `tsas` \"none\""))
}

fn transport_of(kind: &str) -> Option<Transport> {
    match kind {
        "tcp" => Some(Transport::Tcp),
        "rdma" => Some(Transport::Rdma),
        _ => None,
    }
}

fn address(at: &str, attributes: &Attributes) -> Result<SocketAddr, ConfigError> {
    let text = attribute(attributes, "traddr").unwrap_or_default();
    let remedy = "give an IP address in `traddr` and a port in `trsvcid`";
    let ip = if text.contains(':') { format!("[{text}]") } else { text.to_owned() };
    let mut address = socket_address(&format!("{ip}:0")).map_err(|error| {
        let what = if text.contains('%') { error } else { format!("{text:?} is no IP address") };
        ConfigError::new(format!("{at}.traddr"), what).remedy(remedy)
    })?;
    let ip = address.ip();
    let family = attribute(attributes, "adrfam").unwrap_or_default();
    if (family == "ipv4" && ip.is_ipv6()) || (family == "ipv6" && ip.is_ipv4()) {
        let what = format!("{family:?} is not the family of {ip}");
        return Err(ConfigError::new(format!("{at}.adrfam"), what).remedy("make the two agree"));
    }
    let service = attribute(attributes, "trsvcid").unwrap_or_default();
    address.set_port(service.parse().map_err(|_| {
        ConfigError::new(format!("{at}.trsvcid"), format!("{service:?} is no port")).remedy(remedy)
    })?);
    Ok(address)
}

fn number<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, ConfigError> {
    text.parse().map_err(|_| {
        ConfigError::new(key, format!("{text:?} is no number that fits"))
            .remedy("give a decimal number")
    })
}

/// An identifier; the kernel writes zeros where there is none.
fn identifier(at: &str, device: &Attributes, name: &str) -> Result<Option<[u8; 16]>, ConfigError> {
    let Some(text) = attribute(device, name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let HexId(id) = text.parse().map_err(|error: super::ParseIdError| {
        ConfigError::new(format!("{at}.device.{name}"), error.to_string())
            .remedy("write it like ef90689c-6c46-d44c-89c1-4067801309a8, or leave it out")
    })?;
    Ok((id != [0; 16]).then_some(id))
}

fn attribute<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    attributes.get(name).map(|text| text.0.as_str())
}

#[cfg(test)]
mod tests;
