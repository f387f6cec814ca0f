//! The session of `weft ctl` with a target, and the values in its answers.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use weft_rpc::{Address, CallError, Client, Token};
use weft_target::config::{Listen, traddr};

use crate::failure::Failure;
use crate::output;
use crate::serve::sentence;

/// The environment variable with the address of the control socket.
const VARIABLE: &str = "WEFT_CONTROL";

/// The environment variable with its token file.
const TOKEN_VARIABLE: &str = "WEFT_CONTROL_TOKEN_FILE";

/// The target that is meant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ControlledTarget {
    /// The control socket of the target: unix:PATH or tcp://ADDRESS:PORT; by default that of the
    /// variable WEFT_CONTROL.
    #[arg(long, global = true, help_heading = "Common", value_name = "URL")]
    pub(crate) control: Option<String>,
    /// The token file of the target, for tcp: addresses; by default that of the variable
    /// WEFT_CONTROL_TOKEN_FILE.
    #[arg(long, global = true, help_heading = "Common", value_name = "FILE")]
    pub(crate) control_token_file: Option<PathBuf>,
}

impl ControlledTarget {
    /// Whether one is named, by the option or the variable.
    pub(crate) fn is_named(&self) -> bool {
        self.control.is_some() || std::env::var_os(VARIABLE).is_some()
    }

    /// Connects to its control socket.
    pub(crate) fn connect(&self, timeout: Duration) -> Result<Client, Failure> {
        let variable = || std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
        let address = self.control.clone().or_else(variable);
        let what = "no target is named: give --control unix:PATH or set WEFT_CONTROL";
        let address: Address =
            address.ok_or_else(|| Failure::because(what))?.parse().map_err(Failure::because)?;
        let file = self.control_token_file.clone();
        let file = file.or_else(|| std::env::var_os(TOKEN_VARIABLE).map(PathBuf::from));
        let token = file.as_deref().map(token).transpose()?;
        Client::connect(&address, token.as_ref(), timeout).map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    format!("; start the target with --control {address}")
                }
                _ => String::new(),
            };
            Failure::Because(format!("cannot reach the target at {address}: {error}{remedy}"))
        })
    }
}

/// A target, and how its answers are printed.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) json: bool,
}

/// The method that reads the file of the configuration again.
pub(super) const RELOAD: &str = "reload";

impl Session {
    /// Calls a method. Options that were not given are no parameters.
    pub(super) fn call(&mut self, method: &str, params: impl Serialize) -> Result<Value, Failure> {
        let mut params = serde_json::to_value(params).map_err(Failure::because)?;
        if let Some(params) = params.as_object_mut() {
            params.retain(|_, value| !value.is_null());
        }
        self.client.call_named(method, params).map_err(|error| match error {
            // A reload is refused for the file, in the words of that.
            CallError::Error(error) if method == RELOAD => {
                Failure::Because(sentence(&error.message).to_owned())
            }
            CallError::Error(error) => Failure::Because(in_flags(sentence(&error.message))),
            error => Failure::because(error),
        })
    }

    /// Prints a list.
    pub(super) fn show(&self, value: &Value, text: &str) -> Result<(), Failure> {
        if self.json { output::print_json(value) } else { output::print(text) }
    }

    /// Prints what was made, for programs alone.
    pub(super) fn made(&self, value: &Value) -> Result<(), Failure> {
        if self.json { output::print_json(value) } else { Ok(()) }
    }

    /// Makes a change that has no result.
    pub(super) fn change(&mut self, method: &str, params: impl Serialize) -> Result<(), Failure> {
        let answer = self.call(method, params)?;
        self.made(&answer)
    }

    /// The subsystems with namespaces, or one of them.
    pub(super) fn subsystems(&mut self, nqn: Option<&str>) -> Result<Vec<Value>, Failure> {
        let params = nqn.map_or(Value::Null, |nqn| json!({ "nqn": nqn }));
        let all = self.call("nvmf_get_subsystems", params)?;
        let is_nvm = |subsystem: &&Value| subsystem["subtype"] == "NVMe";
        Ok(list(&all).iter().filter(is_nvm).cloned().collect())
    }
}

/// A sentence of the target with this command's flags in place of the keys of a configuration,
/// which stand in backticks or before a colon.
fn in_flags(sentence: &str) -> String {
    let key = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let sentence = match sentence.split_once(": ") {
        Some((name, rest)) if key(name) && is_given(&format!("--{name}")) => {
            format!("--{name}: {rest}")
        }
        _ => sentence.to_owned(),
    };
    let parts = sentence.split('`').enumerate().map(|(index, part)| {
        let (name, value) = part.split_once(" = ").unwrap_or((part, "true"));
        match (index % 2 == 1, key(name), value) {
            (false, ..) => part.to_owned(),
            (true, false, _) => format!("`{part}`"),
            (true, true, "true") => format!("--{name}"),
            (true, true, value) => format!("--{name} {}", value.trim_matches('"')),
        }
    });
    parts.collect()
}

/// Whether this command line has a flag.
fn is_given(flag: &str) -> bool {
    std::env::args().any(|word| word.split('=').next() == Some(flag))
}

/// The token of a file, which only its user may read.
pub(crate) fn token(file: &Path) -> Result<Token, Failure> {
    let shown = file.display();
    let text = weft_reactor::read_private_file(file)
        .map_err(|error| Failure::io("read the token file", &shown, &error))?;
    Token::new(&String::from_utf8_lossy(&text))
        .map_err(|error| Failure::Because(format!("{shown}: {error}")))
}

/// An option as its text.
pub(super) fn as_text<S: Serializer>(
    value: &Option<impl fmt::Display>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

/// A parameter by its name.
pub(super) type Setting = (String, Value);

/// `KEY=VALUE`, whose value is JSON or text.
pub(super) fn setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("a parameter is KEY=VALUE, like qid_max=4")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((key.replace('-', "_"), value))
}

/// Parameters beside those that are fields.
pub(super) fn as_map<S: Serializer>(all: &[Setting], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(all.iter().map(|(key, value)| (key, value)))
}

/// A value as its text.
pub(super) fn as_text_of<S: Serializer>(
    value: &impl fmt::Display,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// An address as the parameter `listen_address`.
pub(super) fn as_address<S: Serializer>(url: &Listen, to: S) -> Result<S::Ok, S::Error> {
    let at = url.address;
    let address = json!({
        "trtype": url.transport.to_string().to_uppercase(),
        "adrfam": if at.is_ipv4() { "ipv4" } else { "ipv6" },
        "traddr": traddr(at),
        "trsvcid": at.port().to_string(),
    });
    address.serialize(to)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

/// What a block device stands on: a file, a node of the kernel, an image or a kind.
pub(crate) fn stands_on(bdev: &Value) -> String {
    let specific = bdev["driver_specific"].as_object().into_iter().flatten();
    let mut images = specific.filter_map(|(_, one)| {
        Some(format!("{}/{}", one["pool_name"].as_str()?, one["rbd_name"].as_str()?))
    });
    path_of(bdev).or_else(|| images.next()).unwrap_or_else(|| text(&bdev["product_name"]))
}

/// Whether a block device stands on a file, a node of the kernel or an image.
pub(crate) fn is_stored(bdev: &Value) -> bool {
    let specific = bdev["driver_specific"].as_object().into_iter().flatten();
    let keys = ["filename", "pool_name"];
    specific.into_iter().any(|(_, one)| keys.iter().any(|key| one[*key].is_string()))
}

/// The path of a file or a node of the kernel, as the target was given it.
pub(crate) fn path_of(bdev: &Value) -> Option<String> {
    let mut specific = bdev["driver_specific"].as_object().into_iter().flatten();
    specific
        .find_map(|(_, one)| one["filename"].as_str().or(one["device"].as_str()))
        .map(str::to_owned)
}

/// A text or number as it is shown.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What is shown of a value that may be a list or be left out.
pub(super) fn shown(value: &Value, none: &str) -> String {
    match value {
        Value::Null => none.to_owned(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(","),
        value => text(value),
    }
}

/// The addresses of a subsystem, as other commands take them.
pub(crate) fn addresses(subsystem: &Value) -> Vec<String> {
    list(&subsystem["listen_addresses"]).iter().map(url).collect()
}

/// An address, as other commands take it.
pub(super) fn url(one: &Value) -> String {
    let transport = text(&one["trtype"]).to_lowercase();
    let (ip, port) = (text(&one["traddr"]), text(&one["trsvcid"]));
    if one["adrfam"] == "IPv6" {
        format!("{transport}://[{ip}]:{port}")
    } else {
        format!("{transport}://{ip}:{port}")
    }
}
