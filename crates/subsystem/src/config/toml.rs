//! The TOML form: that of the types of a configuration, with short forms for what would be long.
//! `docs/config.toml` shows every key.
//!
//! Short forms are replaced in the tree of the text, which keeps its places, before it is read as a
//! [`Config`]: a namespace names its device by kind (`file = "/srv/disk"`). Numbers that the text
//! leaves out are given afterwards, in its order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde_with::{DisplayFromStr, serde_as};
use weft_backend::bytes::as_text::option as size;
use weft_backend::rbd::RbdSpec;
use weft_backend::{BLOCK_BYTES_DEFAULT, DeviceSpec, files};

use super::pair::PairKeys;
use super::qos::replaced_key;
use super::{Config, ConfigError, Pair, RuntimeObjects};

/// Keys that only the state of a target has, or nvmet, by table.
const KEPT: [(&str, &[&str]); 3] = [
    ("port", &["made-at-run-time"]),
    ("subsystem", &["listed-hosts"]),
    ("namespace", &["by-position", "bdev", "path", "device_path"]),
];

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
    let on_its_line = |error: ConfigError| {
        let line = error.line().or_else(|| line_of_key(text, error.key()));
        error.on_line(line)
    };
    let document = DeTable::parse(text).map_err(|error| from_toml(text, &error))?;
    let config = File { text }.config(document).map_err(on_its_line)?;
    config.check_consistent().map_err(on_its_line)?;
    Ok(config)
}

/// The text that is read as this configuration, without what is as it is by default.
///
/// # Errors
/// It has something that is not part of a file: what was made at run time, or a pair.
pub fn write(config: &Config) -> Result<String, String> {
    if config.pair.is_some() || config.operated != RuntimeObjects::default() {
        return Err("what was made at run time, or a pair, is not written".to_owned());
    }
    let table = |config: &Config| ::toml::Table::try_from(config).map_err(|e| e.to_string());
    let (mut written, default) = (table(config)?, table(&Config::default())?);
    written.retain(|key, value| default.get(key) != Some(value));
    for subsystem in
        written.get_mut("subsystem").and_then(|all| all.as_array_mut()).into_iter().flatten()
    {
        let namespaces = subsystem.get_mut("namespace").and_then(|all| all.as_array_mut());
        for namespace in namespaces.into_iter().flatten().filter_map(|one| one.as_table_mut()) {
            if namespace.remove("by-position").is_some() {
                namespace.remove("nsid");
            }
        }
    }
    ::toml::to_string(&written).map_err(|error| error.to_string())
}

impl Config {
    /// Reads and checks a TOML file, which may have nothing to serve.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or contradicts itself.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = files::read_text(path).map_err(|error| {
            ConfigError::new("", format!("the file cannot be read: {error}"))
                .remedy("check the path and its permissions")
                .in_file(path)
        })?;
        let read = match text.trim_start().starts_with('{') {
            true => Err(ConfigError::new("", "it is JSON, as nvmetcli writes it")
                .remedy("weft convert FILE prints it as TOML")),
            false => read(&text),
        };
        read.map_err(|error| error.in_file(path))
    }
}

type Table<'i> = Spanned<DeTable<'i>>;

/// A file that is read.
#[derive(Clone, Copy)]
struct File<'i> {
    text: &'i str,
}

impl<'i> File<'i> {
    fn config(self, mut document: Table<'i>) -> Result<Config, ConfigError> {
        let root = document.get_mut();
        let pair = root.remove("pair");
        let mut first = None;
        for_each_table(root.get_mut("subsystem"), |index, subsystem| {
            if index == 0 {
                first =
                    subsystem.get("nqn").and_then(|nqn| nqn.get_ref().as_str()).map(str::to_owned);
            }
            let at = format!("subsystem[{index}]");
            for_each_table(subsystem.get_mut("namespace"), |index, namespace| {
                self.name_device(&format!("{at}.namespace[{index}]"), namespace)
            })?;
            self.refuse_kept("subsystem", subsystem)
        })?;
        for_each_table(root.get_mut("port"), |_, port| self.refuse_kept("port", port))?;
        let pair: Option<PairKeys> = pair.map(|pair| self.read(pair)).transpose()?;
        let pair = pair.map(|keys| keys.into_pair(first.as_deref())).transpose()?;
        if pair.is_some() {
            for_each_table(root.get_mut("subsystem"), |_, subsystem| {
                let key = Spanned::new(0..0, "ana-reporting".into());
                subsystem.entry(key).or_insert(Spanned::new(0..0, DeValue::Boolean(true)));
                Ok(())
            })?;
        }
        let mut config: Config = self.read(document)?;
        config.pair = pair;
        config.give_numbers()?;
        Ok(config)
    }

    fn read<T: Deserialize<'i>>(
        self,
        from: impl IntoDeserializer<'i, ::toml::de::Error>,
    ) -> Result<T, ConfigError> {
        let read = T::deserialize(from.into_deserializer());
        read.map_err(|error| from_toml(self.text, &error))
    }

    /// Refuses the keys that only a state has.
    fn refuse_kept(self, name: &str, table: &DeTable<'i>) -> Result<(), ConfigError> {
        let kept = KEPT.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, keys)| keys);
        match kept.iter().find_map(|key| table.get_key_value(*key)) {
            None => Ok(()),
            Some((key, _)) => {
                let what = format!("unknown field `{}`", key.get_ref());
                Err(ConfigError::new(&**key.get_ref(), what)
                    .remedy(elsewhere(key.get_ref()).unwrap_or_else(|| EVERY_KEY.to_owned()))
                    .on_line(Some(line_at(self.text, key.span().start))))
            }
        }
    }

    /// Refuses a namespace without a device, of which a key is almost the name of one.
    fn refuse_misspelt(
        self,
        at: &str,
        namespace: &DeTable<'i>,
        keys: &DeTable<'i>,
    ) -> Result<(), ConfigError> {
        let kinds = &DEVICE_KEYS[..KINDS];
        let has_device = kinds.iter().any(|kind| keys.get(*kind).is_some());
        let meant = |key: &str| weft_backend::nearest(key, kinds.iter().copied());
        let mut near = namespace.keys().filter_map(|key| Some((key, meant(key.get_ref())?)));
        match near.next().filter(|_| !has_device) {
            None => Ok(()),
            Some((key, kind)) => {
                let name = key.get_ref();
                let what = format!("unknown field `{name}`");
                Err(ConfigError::new(format!("{at}.{name}"), what)
                    .remedy(format!("did you mean {kind}?"))
                    .on_line(Some(line_at(self.text, key.span().start))))
            }
        }
    }

    /// Puts the description of a namespace's device in the place of the keys that make it.
    fn name_device(self, at: &str, namespace: &mut DeTable<'i>) -> Result<(), ConfigError> {
        self.refuse_kept("namespace", namespace)?;
        let mut keys = DeTable::new();
        for key in DEVICE_KEYS {
            if let Some((key, value)) = namespace.remove_entry(key) {
                keys.insert(key, value);
            }
        }
        self.refuse_misspelt(at, namespace, &keys)?;
        let read_only = namespace.get("read-only").and_then(|value| value.get_ref().as_bool());
        let place = keys.iter().next().map_or(0..0, |(key, _)| key.span());
        let keys: DeviceKeys = self.read(Spanned::new(place.clone(), keys))?;
        let device = keys.device(at, read_only.unwrap_or(false))?;
        let device = keys.delayed(device).to_string();
        if let Err(error) = device.parse::<DeviceSpec>() {
            return Err(ConfigError::new(at, error.to_string()));
        }
        let device = DeValue::String(device.into());
        namespace.insert(Spanned::new(place.clone(), "device".into()), Spanned::new(place, device));
        Ok(())
    }
}

/// Does something with each table of a list, if it is one.
fn for_each_table<'i>(
    list: Option<&mut Spanned<DeValue<'i>>>,
    mut action: impl FnMut(usize, &mut DeTable<'i>) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let Some(DeValue::Array(list)) = list.map(Spanned::get_mut) else { return Ok(()) };
    for (index, value) in list.iter_mut().enumerate() {
        if let DeValue::Table(table) = value.get_mut() {
            action(index, table)?;
        }
    }
    Ok(())
}

impl Config {
    /// Gives ports and namespaces that have no number that of their place, and allows hosts that
    /// have keys.
    fn give_numbers(&mut self) -> Result<(), ConfigError> {
        let apart = self.pair.as_ref().map_or(0, Pair::port_ids_apart);
        for (index, port) in self.ports.iter_mut().enumerate().filter(|(_, port)| port.id == 0) {
            port.id = u16::try_from(index + 1)
                .map(|number| number.saturating_add(apart))
                .map_err(|_| ConfigError::new("port", "there are too many of them"))?;
        }
        for subsystem in &mut self.subsystems {
            // Beside hosts with keys, others would need none.
            for host in &subsystem.host_keys {
                let allowed = subsystem.allowed_hosts.get_or_insert_default();
                if !allowed.contains(&host.nqn) {
                    allowed.push(host.nqn.clone());
                }
            }
            let mut next = 1;
            for namespace in &mut subsystem.namespaces {
                if namespace.nsid == 0 {
                    (namespace.nsid, namespace.by_position) = (next, true);
                }
                next = namespace.nsid.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// How many of them name a device.
const KINDS: usize = 6;

/// The keys of [`DeviceKeys`], those that name a device first.
const DEVICE_KEYS: [&str; 12] = [
    "memory",
    "null",
    "file",
    "block",
    "rbd",
    "device",
    "size",
    "block-size",
    "direct",
    "delay-read",
    "delay-write",
    "shared",
];

/// The device of a namespace by its kind, or as the command line writes it.
#[serde_as]
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct DeviceKeys {
    #[serde(with = "size")]
    memory: Option<u64>,
    #[serde(with = "size")]
    null: Option<u64>,
    file: Option<PathBuf>,
    block: Option<PathBuf>,
    #[serde_as(as = "Option<DisplayFromStr>")]
    rbd: Option<RbdSpec>,
    #[serde_as(as = "Option<DisplayFromStr>")]
    device: Option<DeviceSpec>,
    #[serde(with = "size")]
    size: Option<u64>,
    #[serde(with = "size")]
    block_size: Option<u64>,
    direct: Option<bool>,
    #[serde(with = "weft_backend::duration::as_text")]
    delay_read: Duration,
    #[serde(with = "weft_backend::duration::as_text")]
    delay_write: Duration,
    shared: bool,
}

impl DeviceKeys {
    fn device(&self, at: &str, read_only: bool) -> Result<DeviceSpec, ConfigError> {
        let block_bytes = self.block_size.map(u32::try_from).transpose().map_err(|_| {
            ConfigError::new(format!("{at}.block-size"), "it is too large")
                .remedy("give 512 or 4096")
        })?;
        let or_default = block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
        let (size, shared) = (self.size, self.shared);
        let given = [
            self.memory.map(|bytes| DeviceSpec::Memory { bytes, block_bytes: or_default }),
            self.null.map(|bytes| DeviceSpec::Null { bytes, block_bytes: or_default }),
            self.file.clone().map(|path| DeviceSpec::File {
                path,
                create_bytes: size,
                block_bytes,
                direct: self.direct,
                read_only,
                shared,
            }),
            self.block.clone().map(|path| DeviceSpec::Block {
                path,
                read_only,
                shared,
                polled: false,
            }),
            self.rbd.as_ref().map(|spec| {
                DeviceSpec::Rbd(Box::new(RbdSpec {
                    least_bytes: size.or(spec.least_bytes),
                    block_bytes: block_bytes.or(spec.block_bytes),
                    read_only: read_only || spec.read_only,
                    ..spec.clone()
                }))
            }),
            self.device.clone(),
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
        let (is_file, is_block) = (self.file.is_some(), self.block.is_some());
        let misplaced = [
            (
                self.size.is_some() && !is_file && self.rbd.is_none(),
                "size",
                "`file`, to create it, and `rbd`, to extend it",
            ),
            (self.direct.is_some() && !is_file, "direct", "`file`"),
            (self.shared && !is_file && !is_block, "shared", "`file` and `block`"),
            (
                block_bytes.is_some() && (is_block || self.device.is_some()),
                "block-size",
                "`memory`, `null`, `file` and `rbd`",
            ),
        ];
        match misplaced.into_iter().find(|(is_misplaced, ..)| *is_misplaced) {
            None => Ok(device),
            Some((_, name, kinds)) => {
                let what = "it says nothing about this device";
                Err(ConfigError::new(format!("{at}.{name}"), what)
                    .remedy(format!("`{name}` goes with {kinds}")))
            }
        }
    }

    fn delayed(&self, device: DeviceSpec) -> DeviceSpec {
        let (read, write) = (self.delay_read, self.delay_write);
        match read.is_zero() && write.is_zero() {
            true => device,
            false => DeviceSpec::Delay { read, write, inner: Box::new(device) },
        }
    }
}

/// An error of the TOML reader as a [`ConfigError`]: its line, the key on that line, its message.
fn from_toml(text: &str, error: &::toml::de::Error) -> ConfigError {
    let message = error.message().trim().replace('\n', ", ");
    let span = error.span().filter(|span| span.start <= text.len());
    let Some(span) = span else {
        return ConfigError::new("", message).remedy(EVERY_KEY);
    };
    let start = text.floor_char_boundary(span.start);
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let (key, value) = line.split_once('=').unwrap_or_default();
    let (key, value) = (key.trim(), value.trim());
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let remedy = unknown.map_or_else(|| right_form(&message, key, value), elsewhere);
    let meant = meant(&message, line.trim()).filter(|_| remedy.is_none());
    let message = match (unknown, unknown.and_then(replaced_key)) {
        (_, Some(replaced)) => replaced,
        // Those that are known are too many for a sentence.
        (Some(name), None) => format!("unknown field `{name}`"),
        (None, None) => message,
    };
    let message = match meant {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message,
    };
    ConfigError::new(key, message)
        .remedy(remedy.unwrap_or_else(|| EVERY_KEY.to_owned()))
        .on_line(Some(line_at(text, start)))
}

const EVERY_KEY: &str = "docs/config.toml shows every key";

/// Words that are no keys where they stand, and what to write: those of nvmet, of flags, and of the
/// whole target.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (
        &["cpus", "express-cpus", "threads", "driver", "idle-poll", "express", "register", "mdns"],
        "it belongs above the first [table]",
    ),
    (
        &["control", "control-token-file", "metrics", "state"],
        "it is a flag: weft target --control unix:PATH, --metrics PORT, --state FILE",
    ),
    (&["dhchap-secret", "dhchap-secret-file"], "write `dhchap-key = \"PATH\"`"),
    (&["tls-key", "tls-key-file"], "write `psk = \"PATH\"`"),
    (&["traddr", "trsvcid", "trtype", "address"], "write `listen = \"tcp://ADDRESS:PORT\"`"),
    (&["attr_allow_any_host", "allow-any-host"], "leave `allowed-hosts` out"),
    (&["path", "device_path"], "write `file = \"PATH\"` or `block = \"PATH\"`"),
];

fn elsewhere(name: &str) -> Option<String> {
    let found = ELSEWHERE.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, remedy)| (*remedy).to_owned())
}

/// How a value is written that has another form than its key wants.
fn right_form(message: &str, key: &str, value: &str) -> Option<String> {
    let (wrong, wanted) = message.split_once(", expected ").unwrap_or((message, ""));
    let is_text = value.starts_with(['"', '\'']);
    Some(match wrong {
        _ if is_text && wanted.starts_with("a sequence") => {
            format!("write a list: {key} = [{value}]")
        }
        _ if is_text && wrong.starts_with("invalid type: string") && wanted.starts_with('u') => {
            format!("write a number without quotes and unit: {key} = 5000")
        }
        _ if wrong.starts_with("invalid type: integer") && wanted.starts_with("a string") => {
            format!("write it in quotes, a time with its unit: {key} = \"{value}s\"")
        }
        _ if value.starts_with(|first: char| first.is_ascii_alphabetic())
            && !["true", "false"].contains(&value) =>
        {
            format!("put the value in quotes: {key} = \"{value}\"")
        }
        _ => return None,
    })
}

/// Tables within others, which are looked for at the top, and the one that is read by itself.
const NESTED: [(&str, &str); 4] = [
    ("namespace", "[[subsystem.namespace]]"),
    ("host", "[[subsystem.host]]"),
    ("ana", "[[port.ana]]"),
    ("pair", "[pair]"),
];

/// Names of tables, which are no keys with a value.
const TABLES: [&str; 9] =
    ["port", "subsystem", "limits", "qos", "rate-limit", "namespace", "host", "ana", "referral"];

/// What was probably meant by a line with an error.
fn meant(message: &str, line: &str) -> Option<String> {
    if let Some(unknown) = message.strip_prefix("unknown field `") {
        // The fields that are known stand behind it.
        let mut quoted = unknown.split('`').step_by(2);
        let name = quoted.next()?;
        let is_key = line.contains('=');
        let is_written = |key: &&str| {
            let is_kept = KEPT.iter().any(|(_, keys)| keys.contains(key));
            !(is_kept || is_key && TABLES.contains(key))
        };
        let known = quoted.chain(DEVICE_KEYS).filter(is_written);
        let nested = || {
            let table = weft_backend::nearest(name, NESTED.map(|(table, _)| table))?;
            NESTED.iter().find(|(nested, _)| *nested == table).map(|(_, path)| *path)
        };
        return weft_backend::nearest(name, known).or_else(nested).map(str::to_owned);
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
