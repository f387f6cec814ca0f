//! `weft ctl`: changes and shows a target that runs, over its control socket.

mod ana;
mod controller;
mod keys;
mod namespace;
mod pair;
mod qos;
mod visibility;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use weft_backend::{DeviceSpec, ParseSpecError, bytes};
use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_rpc::{Address, CallError, Client, Token};
use weft_target::config::{Listen, traddr};

use crate::{
    failure::Failure,
    names, output,
    serve::sentence,
    table::Table,
    values::{size, whole_rate},
};

/// The environment variable with the address of the control socket.
const VARIABLE: &str = "WEFT_CONTROL";

/// The environment variable with its token file.
const TOKEN_VARIABLE: &str = "WEFT_CONTROL_TOKEN_FILE";

/// How long an answer may take: a change waits for every poll group.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Options of `weft ctl`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: ControlledTarget,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    noun: Noun,
}

/// The target that is meant.
#[derive(Debug, Default, Args)]
pub(crate) struct ControlledTarget {
    /// The control socket of the target: unix:PATH or tcp://ADDRESS:PORT; by default that of the
    /// variable WEFT_CONTROL.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) control: Option<String>,
    /// The token file of the target, for tcp: addresses; by default that of the variable
    /// WEFT_CONTROL_TOKEN_FILE.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) control_token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Subsystems.
    #[command(subcommand)]
    Subsystem(SubsystemVerb),
    /// Namespaces of a subsystem.
    #[command(subcommand)]
    Namespace(NamespaceVerb),
    /// Addresses at which a subsystem is served.
    #[command(subcommand)]
    Listener(ListenerVerb),
    /// Access states of groups of namespaces at addresses (Asymmetric Namespace Access).
    #[command(subcommand)]
    Ana(ana::Verb),
    /// Hosts that may connect to a subsystem.
    #[command(subcommand)]
    Host(HostVerb),
    /// Key files by name, which hosts have.
    #[command(subcommand)]
    Key(keys::Verb),
    /// Block devices by name, which keep their contents while no namespace uses them.
    #[command(subcommand)]
    Bdev(BdevVerb),
    /// Limits of IOPS and bandwidth, of a host, a subsystem, a namespace or any combination.
    #[command(subcommand)]
    RateLimit(RateLimitVerb),
    /// Classes of queues: which are served between the commands of others.
    #[command(subcommand)]
    Qos(qos::Verb),
    /// The pair of targets that it is a member of.
    #[command(subcommand)]
    Pair(pair::Verb),
    /// Controllers that hosts have connected.
    #[command(subcommand)]
    Controller(controller::Verb),
    /// Read the configuration's file again, as SIGHUP does.
    Reload,
    /// Call a method of docs/control.md and print its result.
    Call {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(names::methods))]
        method: String,
        /// Its parameters, a JSON object.
        params: Option<String>,
    },
}

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
enum SubsystemVerb {
    /// Create a subsystem, to which no host may connect until one is allowed.
    Create {
        /// Its name.
        nqn: String,
        /// Its serial number.
        #[serde(rename = "serial_number")]
        #[arg(long)]
        serial: Option<String>,
        /// Its model number.
        #[serde(rename = "model_number")]
        #[arg(long)]
        model: Option<String>,
        /// Every host may connect.
        #[arg(long)]
        allow_any_host: bool,
        /// Most namespaces, and the largest NSID.
        #[arg(long, value_name = "NUMBER")]
        max_namespaces: Option<u32>,
        /// Tell hosts how well each address reaches its namespaces (ANA).
        #[arg(long)]
        ana_reporting: bool,
    },
    /// Delete a subsystem; block devices of `bdev create` stay.
    Delete {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
    },
    /// List the subsystems.
    List,
}

#[derive(Debug, Subcommand)]
enum NamespaceVerb {
    /// Add a namespace.
    Add {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        #[command(flatten)]
        device: Box<Device>,
        #[command(flatten)]
        namespace: namespace::Added,
    },
    /// Show a namespace that not every host sees to one more host.
    AddHost(visibility::Host),
    /// No longer show it to a host.
    RemoveHost(visibility::Host),
    /// Remove a namespace; a block device of `bdev create` stays.
    Remove {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The namespace.
        #[arg(add = ArgValueCandidates::new(names::namespaces))]
        nsid: u32,
    },
    /// Give a namespace another size.
    Resize {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The namespace.
        #[arg(add = ArgValueCandidates::new(names::namespaces))]
        nsid: u32,
        /// The size, like 2GiB.
        #[arg(value_parser = size)]
        size: u64,
    },
    /// List the namespaces.
    List {
        /// Of this subsystem only.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
}

/// What a namespace stands on.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Device {
    /// A file: PATH[,size=SIZE][,block=512][,direct=on|off][,read-only][,shared].
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// A block device: PATH[,read-only][,shared].
    #[arg(long, value_name = "PATH")]
    block: Option<String>,
    /// An image of a Ceph cluster: POOL/IMAGE, with the options of weft target --rbd.
    #[arg(long, value_name = "IMAGE")]
    rbd: Option<String>,
    /// Memory: SIZE[,block=512].
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// A device that forgets what is written: SIZE[,block=512].
    #[arg(long, value_name = "SIZE")]
    null: Option<String>,
    /// A block device that exists.
    #[arg(add = ArgValueCandidates::new(names::bdevs))]
    #[arg(long, value_name = "NAME")]
    bdev: Option<String>,
}

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
enum ListenerVerb {
    /// Serve a subsystem at an address.
    Add {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The address, like tcp://127.0.0.1:4420.
        #[serde(rename = "listen_address", serialize_with = "as_address")]
        url: Listen,
        /// Whether hosts come with TLS there: off, allowed or required.
        #[serde(serialize_with = "as_text")]
        #[arg(long, value_name = "MODE")]
        tls: Option<TlsMode>,
        /// Who makes the records of TLS: user (this program) or kernel.
        #[serde(serialize_with = "as_text")]
        #[arg(long, value_name = "WHO", requires = "tls")]
        tls_records: Option<TlsRecords>,
    },
    /// No longer serve it there.
    Remove {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The address.
        #[serde(rename = "listen_address", serialize_with = "as_address")]
        #[arg(add = ArgValueCandidates::new(names::listeners))]
        url: Listen,
    },
    /// List the addresses.
    List {
        /// Of this subsystem only.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum HostVerb {
    /// Allow a host, or with `any` every host.
    Allow {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The host's NQN, or any.
        #[arg(add = ArgValueCandidates::new(names::hosts))]
        host: String,
        #[command(flatten)]
        keys: keys::HostKeys,
        /// It is served over TLS only, with keys that the authentication makes (--concat).
        #[arg(long, requires = "dhchap_key")]
        dhchap_concat: bool,
    },
    /// Give a host other keys, of the kinds that are named; it stays connected.
    SetKeys {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The host's NQN.
        #[arg(add = ArgValueCandidates::new(names::hosts))]
        host: String,
        #[command(flatten)]
        keys: keys::HostKeys,
    },
    /// No longer allow it.
    Remove {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The host's NQN, or any.
        #[arg(add = ArgValueCandidates::new(names::hosts))]
        host: String,
    },
    /// List the hosts that may connect.
    List {
        /// To this subsystem only.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
}

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
enum BdevVerb {
    /// Create a block device.
    Create {
        /// Its name.
        name: String,
        /// The device, like memory:1GiB, file:PATH, block:PATH, rbd:IMAGE or null:1TiB.
        #[serde(serialize_with = "as_text_of")]
        device: DeviceSpec,
    },
    /// Delete it, and the namespace that uses it.
    Delete {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(names::bdevs))]
        name: String,
    },
    /// List the block devices.
    List,
}

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
enum RateLimitVerb {
    /// Set a limit, or change that for the same commands.
    Set {
        #[serde(flatten)]
        #[command(flatten)]
        of: LimitedCommands,
        /// Commands in a second, like 5000 or 20k.
        #[arg(long, value_name = "NUMBER", value_parser = whole_rate)]
        rate_iops: Option<u64>,
        /// Bytes in a second, like 200MiB.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        rate: Option<u64>,
        /// What may be done at once after a pause: the rate of this time, like 50ms.
        #[arg(long, value_name = "TIME")]
        burst: Option<String>,
        /// Accept a rate at which a host's commands may reach their timeout.
        #[arg(long)]
        force: bool,
    },
    /// Delete a limit.
    Delete {
        #[serde(flatten)]
        #[command(flatten)]
        of: LimitedCommands,
    },
    /// List the limits.
    List,
}

/// The commands that a limit is for, all together.
#[derive(Debug, Args, Serialize)]
struct LimitedCommands {
    /// Those of this host, by NQN; given several times: those of all these together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(add = ArgValueCandidates::new(names::hosts))]
    #[arg(long, value_name = "NQN")]
    host: Vec<String>,
    /// Those to this subsystem, by NQN.
    #[arg(add = ArgValueCandidates::new(names::subsystems))]
    #[arg(long, value_name = "NQN")]
    subsystem: Option<String>,
    /// Those to this namespace of the subsystem.
    #[arg(add = ArgValueCandidates::new(names::namespaces))]
    #[arg(long, requires = "subsystem")]
    nsid: Option<u32>,
    /// Reads, writes or both.
    #[arg(long, default_value = "rw", value_parser = ["read", "write", "rw"])]
    rw: String,
}

/// A target, and how its answers are printed.
struct Session {
    client: Client,
    json: bool,
}

impl ControlledTarget {
    /// Connects to its control socket.
    pub(crate) fn connect(&self, timeout: Duration) -> Result<Client, Failure> {
        let address = self.control.clone().or_else(|| std::env::var(VARIABLE).ok());
        let what = "no target is named: give --control unix:PATH or set WEFT_CONTROL";
        let address: Address =
            address.ok_or_else(|| Failure::because(what))?.parse().map_err(Failure::because)?;
        let file = self.control_token_file.clone();
        let file = file.or_else(|| std::env::var_os(TOKEN_VARIABLE).map(PathBuf::from));
        let token = file.as_deref().map(token).transpose()?;
        Client::connect(&address, token.as_ref(), timeout)
            .map_err(|error| Failure::io("reach the target at", &address, &error))
    }
}

/// The token of a file, which only its user may read.
pub(crate) fn token(file: &Path) -> Result<Token, Failure> {
    let shown = file.display();
    let text = weft_reactor::read_private_file(file)
        .map_err(|error| Failure::io("read the token file", &shown, &error))?;
    Token::new(&String::from_utf8_lossy(&text))
        .map_err(|error| Failure::Because(format!("{shown}: {error}")))
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let client = options.target.connect(TIMEOUT)?;
    let mut session = Session { client, json: options.json };
    match &options.noun {
        Noun::Subsystem(verb) => session.subsystem(verb),
        Noun::Namespace(verb) => session.namespace(verb),
        Noun::Listener(verb) => session.listener(verb),
        Noun::Ana(verb) => session.ana(verb),
        Noun::Host(verb) => session.host(verb),
        Noun::Key(verb) => session.key(verb),
        Noun::Bdev(verb) => session.bdev(verb),
        Noun::RateLimit(verb) => session.rate_limit(verb),
        Noun::Qos(verb) => session.qos(verb),
        Noun::Pair(verb) => session.pair(*verb),
        Noun::Controller(controller::Verb::List { nqn }) => session.controllers(nqn.as_deref()),
        Noun::Reload => {
            let lines = session.call("reload", Value::Null)?;
            let text =
                strings(&lines).into_iter().fold(String::new(), |text, line| text + line + "\n");
            session.show(&lines, &text)
        }
        Noun::Call { method, params } => {
            let params = params.as_deref().map(serde_json::from_str).transpose();
            let params = params.map_err(|error| Failure::because(format!("{error} in PARAMS")))?;
            let answer = session.client.call_named(method, params.unwrap_or(Value::Null));
            // Who calls a method by its name gets its error as it is.
            let answer = answer.map_err(|error| match error {
                CallError::Error(error) => Failure::because(error.message),
                error => Failure::because(error),
            })?;
            output::print_json(&answer)
        }
    }
}

impl Session {
    /// Calls a method. Options that were not given are no parameters.
    fn call(&mut self, method: &str, params: impl Serialize) -> Result<Value, Failure> {
        let mut params = serde_json::to_value(params).map_err(Failure::because)?;
        if let Some(params) = params.as_object_mut() {
            params.retain(|_, value| !value.is_null());
        }
        self.client.call_named(method, params).map_err(|error| match error {
            CallError::Error(error) => Failure::because(sentence(&error.message)),
            error => Failure::because(error),
        })
    }

    /// Prints a list.
    fn show(&self, value: &Value, text: &str) -> Result<(), Failure> {
        if self.json { output::print_json(value) } else { output::print(text) }
    }

    /// Prints what was made, for programs alone.
    fn made(&self, value: &Value) -> Result<(), Failure> {
        if self.json { output::print_json(value) } else { Ok(()) }
    }

    /// Makes a change that has no result.
    fn change(&mut self, method: &str, params: impl Serialize) -> Result<(), Failure> {
        let answer = self.call(method, params)?;
        self.made(&answer)
    }

    /// The subsystems with namespaces, or one of them.
    fn subsystems(&mut self, nqn: Option<&str>) -> Result<Vec<Value>, Failure> {
        let params = nqn.map_or(Value::Null, |nqn| json!({ "nqn": nqn }));
        let all = self.call("nvmf_get_subsystems", params)?;
        let is_nvm = |subsystem: &&Value| subsystem["subtype"] == "NVMe";
        Ok(list(&all).iter().filter(is_nvm).cloned().collect())
    }

    /// Says where a subsystem that was made is served, to a person: at once, where an address of
    /// the configuration has every subsystem.
    fn show_where(&mut self, nqn: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let at: Vec<_> = self.subsystems(Some(nqn))?.iter().flat_map(addresses).collect();
        output::print(&match at.is_empty() {
            true => format!("served nowhere yet: give it an address by listener add {nqn} URL\n"),
            false => format!("served at {}, like every subsystem\n", at.join(" ")),
        })
    }

    fn subsystem(&mut self, verb: &SubsystemVerb) -> Result<(), Failure> {
        match verb {
            SubsystemVerb::Create { nqn, .. } => {
                self.change("nvmf_create_subsystem", verb)?;
                self.show_where(nqn)
            }
            SubsystemVerb::Delete { nqn } => {
                let unnamed = self.unnamed_devices(nqn, None)?;
                self.change("nvmf_delete_subsystem", verb)?;
                self.delete_devices(unnamed)
            }
            SubsystemVerb::List => {
                let all = self.subsystems(None)?;
                let mut table =
                    Table::new(&["nqn", "sn", "model", ">namespaces", "hosts", "addresses"]);
                for one in &all {
                    table.row(vec![
                        text(&one["nqn"]),
                        text(&one["serial_number"]),
                        text(&one["model_number"]),
                        list(&one["namespaces"]).len().to_string(),
                        hosts(one).join(" "),
                        addresses(one).join(" "),
                    ]);
                }
                self.show(&all.into(), &table.text())
            }
        }
    }

    fn namespace(&mut self, verb: &NamespaceVerb) -> Result<(), Failure> {
        match verb {
            NamespaceVerb::Add { nqn, device, namespace } => {
                self.add_namespace(nqn, device, namespace)
            }
            NamespaceVerb::AddHost(host) => self.change("nvmf_ns_add_host", host),
            NamespaceVerb::RemoveHost(host) => self.change("nvmf_ns_remove_host", host),
            NamespaceVerb::Remove { nqn, nsid } => {
                let unnamed = self.unnamed_devices(nqn, Some(*nsid))?;
                self.change("nvmf_subsystem_remove_ns", json!({ "nqn": nqn, "nsid": nsid }))?;
                self.delete_devices(unnamed)
            }
            NamespaceVerb::Resize { nqn, nsid, size } => {
                let bdev = self.devices(nqn, Some(*nsid))?.pop();
                let bdev =
                    bdev.ok_or_else(|| Failure::Because(format!("{nqn} has no namespace {nsid}")))?;
                self.change("bdev_resize", json!({ "name": bdev, "size": size }))
            }
            NamespaceVerb::List { nqn } => self.namespaces(nqn.as_deref()),
        }
    }

    fn listener(&mut self, verb: &ListenerVerb) -> Result<(), Failure> {
        match verb {
            ListenerVerb::Add { url, .. } => {
                let word = url.transport.to_string().to_uppercase();
                let transports = self.call("nvmf_get_transports", Value::Null)?;
                if !list(&transports).iter().any(|one| one["trtype"] == word.as_str()) {
                    self.call("nvmf_create_transport", json!({ "trtype": word }))?;
                }
                self.change("nvmf_subsystem_add_listener", verb)
            }
            ListenerVerb::Remove { .. } => self.change("nvmf_subsystem_remove_listener", verb),
            ListenerVerb::List { nqn } => self.show_each(nqn.as_deref(), ("address", addresses)),
        }
    }

    fn host(&mut self, verb: &HostVerb) -> Result<(), Failure> {
        let any = |nqn: &str, allow: bool| json!({ "nqn": nqn, "allow_any_host": allow });
        let one = |nqn: &str, host: &str| json!({ "nqn": nqn, "host": host });
        match verb {
            HostVerb::Allow { nqn, host, .. } if host == "any" => {
                self.change("nvmf_subsystem_allow_any_host", any(nqn, true))
            }
            HostVerb::Allow { nqn, host, keys, dhchap_concat } => {
                self.allow((nqn, host), keys, *dhchap_concat)
            }
            HostVerb::SetKeys { nqn, host, keys } => self.set_keys((nqn, host), keys),
            HostVerb::Remove { nqn, host } if host == "any" => {
                self.change("nvmf_subsystem_allow_any_host", any(nqn, false))
            }
            HostVerb::Remove { nqn, host } => {
                self.change("nvmf_subsystem_remove_host", one(nqn, host))
            }
            HostVerb::List { nqn } => self.show_each(nqn.as_deref(), ("host", hosts)),
        }
    }

    /// Prints something that a subsystem has several of.
    fn show_each(
        &mut self,
        nqn: Option<&str>,
        (name, of): (&str, fn(&Value) -> Vec<String>),
    ) -> Result<(), Failure> {
        let (mut table, mut all) = (Table::new(&["subsystem", name]), Vec::new());
        for subsystem in self.subsystems(nqn)? {
            for value in of(&subsystem) {
                all.push(json!({ "subsystem": subsystem["nqn"], name: value }));
                table.row(vec![text(&subsystem["nqn"]), value]);
            }
        }
        self.show(&all.into(), &table.text())
    }

    fn bdev(&mut self, verb: &BdevVerb) -> Result<(), Failure> {
        match verb {
            BdevVerb::Create { .. } => self.change("bdev_device_create", verb),
            BdevVerb::Delete { .. } => self.change("bdev_delete", verb),
            BdevVerb::List => {
                let all = self.call("bdev_get_bdevs", Value::Null)?;
                let mut table = Table::new(&["name", "kind", ">size", ">block", "used", "uuid"]);
                for one in list(&all) {
                    let number = |key: &str| one[key].as_u64().unwrap_or(0);
                    let (block, blocks) = (number("block_size"), number("num_blocks"));
                    table.row(vec![
                        text(&one["name"]),
                        text(&one["product_name"]),
                        bytes::exact(block.saturating_mul(blocks)),
                        block.to_string(),
                        if one["claimed"] == true { "yes" } else { "no" }.to_owned(),
                        text(&one["uuid"]),
                    ]);
                }
                self.show(&all, &table.text())
            }
        }
    }

    fn rate_limit(&mut self, verb: &RateLimitVerb) -> Result<(), Failure> {
        match verb {
            RateLimitVerb::Set { .. } => self.change("rate_limit_set", verb),
            RateLimitVerb::Delete { .. } => self.change("rate_limit_delete", verb),
            RateLimitVerb::List => {
                let all = self.call("rate_limit_get_all", Value::Null)?;
                let head = ["host", "subsystem", ">nsid", "rw", ">rate-iops", ">rate", ">burst"];
                let mut table = Table::new(&head);
                for one in list(&all) {
                    let shown = |key: &str, none: &str| shown(&one[key], none);
                    table.row(vec![
                        shown("host", "all"),
                        shown("subsystem", "all"),
                        shown("nsid", "all"),
                        shown("rw", "rw"),
                        shown("rate_iops", "-"),
                        one["rate"].as_u64().map_or("-".to_owned(), bytes::exact),
                        shown("burst", "-"),
                    ]);
                }
                self.show(&all, &table.text())
            }
        }
    }
}

impl Device {
    /// The device that is to be made; none: it exists.
    fn spec(&self) -> Result<Option<DeviceSpec>, Failure> {
        type Parse = fn(&str) -> Result<DeviceSpec, ParseSpecError>;
        let kinds: [(&Option<String>, Parse); 5] = [
            (&self.file, DeviceSpec::file),
            (&self.block, DeviceSpec::block),
            (&self.rbd, DeviceSpec::rbd),
            (&self.memory, DeviceSpec::memory),
            (&self.null, DeviceSpec::null),
        ];
        let found = kinds.into_iter().find_map(|(text, parse)| text.as_deref().map(parse));
        found.transpose().map_err(Failure::because)
    }
}

/// An option as its text.
fn as_text<S: Serializer>(value: &Option<impl fmt::Display>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

/// A value as its text.
fn as_text_of<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// An address as the parameter `listen_address`.
fn as_address<S: Serializer>(url: &Listen, to: S) -> Result<S::Ok, S::Error> {
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

fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

/// A text or number as it is shown.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What is shown of a value that may be a list or be left out.
fn shown(value: &Value, none: &str) -> String {
    match value {
        Value::Null => none.to_owned(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(","),
        value => text(value),
    }
}

/// The hosts that may connect to a subsystem.
fn hosts(subsystem: &Value) -> Vec<String> {
    match subsystem["allow_any_host"] == true {
        true => vec!["any".to_owned()],
        false => list(&subsystem["hosts"]).iter().map(|host| text(&host["nqn"])).collect(),
    }
}

/// The addresses of a subsystem, as other commands take them.
pub(crate) fn addresses(subsystem: &Value) -> Vec<String> {
    list(&subsystem["listen_addresses"]).iter().map(url).collect()
}

/// An address, as other commands take it.
fn url(one: &Value) -> String {
    let transport = text(&one["trtype"]).to_lowercase();
    let (ip, port) = (text(&one["traddr"]), text(&one["trsvcid"]));
    if one["adrfam"] == "IPv6" {
        format!("{transport}://[{ip}]:{port}")
    } else {
        format!("{transport}://{ip}:{port}")
    }
}
