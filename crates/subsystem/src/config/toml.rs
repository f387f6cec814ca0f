//! The TOML form. `docs/config.toml` shows every key.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ::toml::de::{DeTable, DeValue};
use serde::{Deserialize, Deserializer, de::Error as _};
use weft_backend::{DeviceSpec, rbd::RbdSpec};
use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_reactor::DriverKind;

use super::{
    AnaRule, Config, ConfigError, ControllerIds, ControllerModel, HexId, HostKeys, HostNamespaces,
    Keyring, Limits, Listen, Namespace, Pair, Port, PortSubsystems, QosRule, RateLimit, Referral,
    Subsystem, cpus, pair::PairKeys, replaced_key, socket_address,
};

/// Block size of memory and null devices, if none is given: that of [`DeviceSpec`]'s own forms.
const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Reads and checks a configuration.
///
/// # Errors
/// The text is not TOML, has unknown keys or bad values, or contradicts itself.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let config = read(text)?;
    config.check_serves()?;
    Ok(config)
}

/// The same for a target that waits for what it will serve.
///
/// # Errors
/// The text is not TOML, has unknown keys or bad values, or contradicts itself.
pub fn read(text: &str) -> Result<Config, ConfigError> {
    let file: File = ::toml::from_str(text).map_err(|error| from_toml(text, &error))?;
    let on_its_line = |error: ConfigError| {
        let line = line_of_key(text, error.key());
        error.on_line(line)
    };
    let config = file.into_config().map_err(on_its_line)?;
    config.check_consistent().map_err(on_its_line)?;
    Ok(config)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    cpus: Option<Cpus>,
    express_cpus: Option<Cpus>,
    threads: Option<usize>,
    idle_poll: Option<IdlePoll>,
    express: Option<bool>,
    #[serde(default)]
    mdns: bool,
    #[serde(default)]
    centralized_discovery: bool,
    #[serde(default)]
    register: Vec<Listen>,
    #[serde(default, with = "Driver")]
    driver: DriverKind,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    port: Vec<PortKeys>,
    #[serde(default)]
    subsystem: Vec<SubsystemKeys>,
    #[serde(default)]
    rate_limit: Vec<RateLimit>,
    #[serde(default)]
    qos: Vec<QosRule>,
    #[serde(default)]
    keyring: Keyring,
    pair: Option<PairKeys>,
}

#[derive(Deserialize)]
#[serde(remote = "DriverKind", rename_all = "kebab-case")]
enum Driver {
    Auto,
    Uring,
    Epoll,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PortKeys {
    id: Option<u16>,
    listen: Listen,
    #[serde(default, deserialize_with = "advertised")]
    advertise: Option<SocketAddr>,
    #[serde(default, deserialize_with = "word")]
    tls: TlsMode,
    #[serde(default, deserialize_with = "word")]
    tls_records: TlsRecords,
    discovery: Option<bool>,
    subsystems: Option<Vec<String>>,
    #[serde(default)]
    referral: Vec<Referral>,
    #[serde(default)]
    ana: Vec<AnaRule>,
}

fn word<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: std::str::FromStr<Err = String>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn advertised<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    socket_address(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SubsystemKeys {
    nqn: String,
    serial: Option<String>,
    model: Option<String>,
    firmware: Option<String>,
    admin_label: Option<String>,
    allowed_hosts: Option<Vec<String>>,
    #[serde(default, with = "Model")]
    controllers: ControllerModel,
    cntlid_min: Option<u16>,
    cntlid_max: Option<u16>,
    ana_reporting: Option<bool>,
    host_namespaces: Option<HostNamespacesKeys>,
    #[serde(default)]
    subsystem_reset: bool,
    #[serde(default)]
    host: Vec<HostKeys>,
    #[serde(default)]
    namespace: Vec<NamespaceKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostNamespacesKeys {
    capacity: Size<u64>,
    folder: Option<PathBuf>,
    rbd: Option<Rbd>,
}

#[derive(Deserialize)]
#[serde(remote = "ControllerModel", rename_all = "kebab-case")]
enum Model {
    Dynamic,
    Static,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NamespaceKeys {
    nsid: Option<u32>,
    memory: Option<Size<u64>>,
    null: Option<Size<u64>>,
    file: Option<PathBuf>,
    block: Option<PathBuf>,
    rbd: Option<Rbd>,
    device: Option<Device>,
    size: Option<Size<u64>>,
    block_size: Option<Size<u32>>,
    direct: Option<bool>,
    delay_read: Option<TimeSpan>,
    delay_write: Option<TimeSpan>,
    uuid: Option<HexId<16>>,
    nguid: Option<HexId<16>>,
    eui64: Option<HexId<8>>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    shared: bool,
    ana_group: Option<u32>,
    ptpl_file: Option<PathBuf>,
    visible_to: Option<Vec<String>>,
}

struct Size<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Size<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        size(deserializer).map(Self)
    }
}

/// Reads a size in any of the forms of [`weft_backend::bytes`], in the type of the field.
pub(super) fn size<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let bytes = weft_backend::bytes::as_text::deserialize(deserializer)?;
    T::try_from(bytes).map_err(|_| D::Error::custom(format!("{bytes} bytes are too many here")))
}

struct TimeSpan(Duration);

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        weft_backend::duration::as_text::deserialize(deserializer).map(Self)
    }
}

/// A duration, or `forever`.
struct IdlePoll(Duration);

impl<'de> Deserialize<'de> for IdlePoll {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "forever" {
            return Ok(Self(super::IDLE_POLL_FOREVER));
        }
        weft_backend::duration::parse(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A device as the command line writes it, wrappers and all.
struct Device(DeviceSpec);

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// An image as the command line writes it.
struct Rbd(RbdSpec);

impl<'de> Deserialize<'de> for Rbd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        RbdSpec::parse(&text).map(Self).map_err(D::Error::custom)
    }
}

/// `"0-3"` or `[0, 1, 2, 3]`.
struct Cpus(Vec<usize>);

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "processors are written as \"0-3\" or [0, 1]")]
        enum Either {
            Text(String),
            List(Vec<usize>),
            One(usize),
        }
        match Either::deserialize(deserializer)? {
            Either::Text(text) => cpus::parse(&text).map(Self).map_err(D::Error::custom),
            Either::List(list) => Ok(Self(list)),
            Either::One(cpu) => Ok(Self(vec![cpu])),
        }
    }
}

impl File {
    fn into_config(self) -> Result<Config, ConfigError> {
        let mut config = Config { limits: self.limits, driver: self.driver, ..Config::default() };
        config.threads = self.threads.unwrap_or(config.threads);
        config.express = self.express.unwrap_or(config.express);
        config.mdns = self.mdns;
        config.centralized_discovery = self.centralized_discovery;
        config.register = self.register;
        config.rate_limits = self.rate_limit;
        config.qos_rules = self.qos;
        config.keyring = self.keyring;
        if let Some(Cpus(cpus)) = self.cpus {
            config.cpus = cpus;
        }
        if let Some(Cpus(cpus)) = self.express_cpus {
            config.express_cpus = cpus;
        }
        if let Some(IdlePoll(idle_poll)) = self.idle_poll {
            config.idle_poll = idle_poll;
        }
        let nqn = self.subsystem.first().map(|subsystem| subsystem.nqn.as_str());
        config.pair = self.pair.map(|keys| keys.into_pair(nqn)).transpose()?;
        let apart = config.pair.as_ref().map_or(0, Pair::port_ids_apart);
        for (index, keys) in self.port.into_iter().enumerate() {
            config.ports.push(keys.into_port(index, apart)?);
        }
        for (index, keys) in self.subsystem.into_iter().enumerate() {
            let at = format!("subsystem[{index}]");
            config.subsystems.push(keys.into_subsystem(&at, config.pair.as_ref())?);
        }
        Ok(config)
    }
}

impl PortKeys {
    fn into_port(self, index: usize, apart: u16) -> Result<Port, ConfigError> {
        let id = match self.id {
            Some(id) => id,
            None => u16::try_from(index + 1)
                .map(|number| number.saturating_add(apart))
                .map_err(|_| ConfigError::new("port", "there are too many of them"))?,
        };
        Ok(Port {
            id,
            listen: self.listen,
            advertise: self.advertise,
            tls: self.tls,
            tls_records: self.tls_records,
            discovery: self.discovery.unwrap_or(true),
            subsystems: self.subsystems.map_or(PortSubsystems::All, PortSubsystems::Only),
            referrals: self.referral,
            ana: self.ana,
            made_at_run_time: false,
        })
    }
}

impl SubsystemKeys {
    fn into_subsystem(self, at: &str, pair: Option<&Pair>) -> Result<Subsystem, ConfigError> {
        let mut subsystem = Subsystem::new(self.nqn);
        subsystem.serial = self.serial;
        subsystem.allowed_hosts = self.allowed_hosts;
        // Hosts with keys are allowed; beside them, others would need none.
        for host in &self.host {
            let allowed = subsystem.allowed_hosts.get_or_insert_default();
            if !allowed.contains(&host.nqn) {
                allowed.push(host.nqn.clone());
            }
        }
        subsystem.host_keys = self.host;
        if let Some(model) = self.model {
            subsystem.model = model;
        }
        if let Some(firmware) = self.firmware {
            subsystem.firmware = firmware;
        }
        subsystem.admin_label = self.admin_label;
        let default = ControllerIds::default();
        let default = pair.map_or(default, |pair| pair.controller_ids(default));
        subsystem.controller_ids = ControllerIds {
            model: self.controllers,
            first: self.cntlid_min.unwrap_or(default.first),
            last: self.cntlid_max.unwrap_or(default.last),
        };
        subsystem.host_namespaces = self.host_namespaces.map(|keys| {
            let HostNamespacesKeys { capacity: Size(capacity), folder, rbd } = keys;
            HostNamespaces { capacity, folder, rbd: rbd.map(|Rbd(spec)| Box::new(spec)) }
        });
        subsystem.subsystem_reset = self.subsystem_reset;
        subsystem.ana_reporting = self.ana_reporting.unwrap_or(pair.is_some());
        let mut next_nsid = 1;
        for (index, keys) in self.namespace.into_iter().enumerate() {
            let namespace = keys.into_namespace(&format!("{at}.namespace[{index}]"), next_nsid)?;
            next_nsid = namespace.nsid.saturating_add(1);
            subsystem.namespaces.push(namespace);
        }
        Ok(subsystem)
    }
}

impl NamespaceKeys {
    fn into_namespace(self, at: &str, next_nsid: u32) -> Result<Namespace, ConfigError> {
        let device = self.device(at)?;
        Ok(Namespace {
            nsid: self.nsid.unwrap_or(next_nsid),
            by_position: self.nsid.is_none(),
            device: self.delayed(device),
            bdev: None,
            uuid: self.uuid.map(|id| id.0),
            nguid: self.nguid.map(|id| id.0),
            eui64: self.eui64.map(|id| id.0),
            read_only: self.read_only,
            ana_group: self.ana_group,
            ptpl_file: self.ptpl_file,
            visible_to: self.visible_to,
        })
    }

    fn device(&self, at: &str) -> Result<DeviceSpec, ConfigError> {
        let block_bytes = self.block_size.as_ref().map(|Size(bytes)| *bytes);
        let or_default = block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
        let size = self.size.as_ref().map(|Size(bytes)| *bytes);
        let given = [
            self.memory.as_ref().map(|Size(bytes)| {
                let block_bytes = or_default;
                DeviceSpec::Memory { bytes: *bytes, block_bytes }
            }),
            self.null.as_ref().map(|Size(bytes)| {
                let block_bytes = or_default;
                DeviceSpec::Null { bytes: *bytes, block_bytes }
            }),
            self.file.as_ref().map(|path| DeviceSpec::File {
                path: path.clone(),
                create_bytes: size,
                block_bytes,
                direct: self.direct,
                read_only: self.read_only,
                shared: self.shared,
            }),
            self.block.as_ref().map(|path| DeviceSpec::Block {
                path: path.clone(),
                read_only: self.read_only,
                shared: self.shared,
                polled: false,
            }),
            self.rbd.as_ref().map(|Rbd(spec)| {
                DeviceSpec::Rbd(Box::new(RbdSpec {
                    least_bytes: size.or(spec.least_bytes),
                    block_bytes: block_bytes.or(spec.block_bytes),
                    read_only: self.read_only || spec.read_only,
                    ..spec.clone()
                }))
            }),
            self.device.as_ref().map(|Device(device)| device.clone()),
        ];
        let mut devices = given.into_iter().flatten();
        let (device, more) = (devices.next(), devices.next());
        let wrong = |what: &str| {
            let remedy = "give one of memory, null, file, block, rbd and device";
            ConfigError::new(at, what).remedy(remedy)
        };
        let device = device.ok_or_else(|| wrong("the namespace has no device"))?;
        if more.is_some() {
            return Err(wrong("the namespace has more than one device"));
        }
        let misplaced = |name: &str, kinds: &str| {
            ConfigError::new(format!("{at}.{name}"), "it says nothing about this device")
                .remedy(format!("`{name}` goes with {kinds}"))
        };
        let is_file = self.file.is_some();
        if self.size.is_some() && !is_file && self.rbd.is_none() {
            return Err(misplaced("size", "`file`, to create it, and `rbd`, to extend it"));
        }
        if self.direct.is_some() && !is_file {
            return Err(misplaced("direct", "`file`"));
        }
        if self.shared && !is_file && self.block.is_none() {
            return Err(misplaced("shared", "`file` and `block`"));
        }
        if block_bytes.is_some() && (self.block.is_some() || self.device.is_some()) {
            return Err(misplaced("block-size", "`memory`, `null`, `file` and `rbd`"));
        }
        Ok(device)
    }

    fn delayed(&self, device: DeviceSpec) -> DeviceSpec {
        if self.delay_read.is_none() && self.delay_write.is_none() {
            return device;
        }
        let span =
            |span: &Option<TimeSpan>| span.as_ref().map_or(Duration::ZERO, |TimeSpan(span)| *span);
        DeviceSpec::Delay {
            read: span(&self.delay_read),
            write: span(&self.delay_write),
            inner: Box::new(device),
        }
    }
}

/// An error of the TOML reader as a [`ConfigError`]: its line, the key on that line, its message.
fn from_toml(text: &str, error: &::toml::de::Error) -> ConfigError {
    let message = error.message().trim().replace('\n', ", ");
    let span = error.span().filter(|span| span.start <= text.len());
    let Some(span) = span else {
        return ConfigError::new("", message).remedy("docs/config.toml shows every key");
    };
    let start = text.floor_char_boundary(span.start);
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let key = line.split_once('=').map_or("", |(key, _)| key).trim();
    let message = match (replaced_key(&message), meant(&message, line.trim())) {
        (Some(replaced), _) => replaced,
        (None, Some(meant)) => format!("{message}; did you mean `{meant}`?"),
        (None, None) => message,
    };
    ConfigError::new(key, message)
        .remedy("docs/config.toml shows every key")
        .on_line(Some(line_at(text, start)))
}

/// Tables within others, which are looked for at the top.
const NESTED: [(&str, &str); 3] = [
    ("namespace", "[[subsystem.namespace]]"),
    ("host", "[[subsystem.host]]"),
    ("ana", "[[port.ana]]"),
];

/// What was probably meant by a line with an error.
fn meant(message: &str, line: &str) -> Option<String> {
    if let Some(unknown) = message.strip_prefix("unknown field `") {
        // The fields that are known stand behind it.
        let mut quoted = unknown.split('`').step_by(2);
        let name = quoted.next()?;
        let nested = || NESTED.iter().find(|(nested, _)| *nested == name).map(|(_, path)| *path);
        return weft_backend::nearest(name, quoted).or_else(nested).map(str::to_owned);
    }
    let table = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    if let Some(table) = table.filter(|_| message.ends_with("expected a sequence")) {
        // A table of a list that has not begun.
        let outer = table.strip_prefix('[').and_then(|table| table.split_once('.'));
        return Some(match outer {
            Some((outer, _)) => format!("[[{outer}]] before {line}"),
            None => format!("[[{table}]]"),
        });
    }
    let is_switch = message.contains("boolean `true`") && line.starts_with("tls");
    is_switch.then(|| "tls = \"required\"".to_owned())
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// The line of a key given as a path (`subsystem[0].namespace[1].nsid`), or of the innermost
/// existing table around it.
fn line_of_key(text: &str, key: &str) -> Option<usize> {
    if key.is_empty() {
        return None;
    }
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut offset = None;
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let Some((found, value)) = table.get_key_value(name) else { break };
        offset = Some(found.span().start);
        let mut value = value;
        if let (Some(index), DeValue::Array(array)) = (index, value.get_ref()) {
            let Some(element) = array.get(index) else { break };
            offset = Some(element.span().start);
            value = element;
        }
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    offset.map(|offset| line_at(text, offset))
}

#[cfg(test)]
mod tests;
