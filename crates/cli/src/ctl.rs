//! `weft ctl`: changes and shows a target that runs, over its control socket.

mod ana;
mod controller;
mod keys;
mod namespace;
mod pair;
mod qos;
pub(crate) mod session;
mod told;
mod visibility;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde::Serialize;
use serde_json::{Value, json};
use weft_backend::{DeviceSpec, ParseSpecError, bytes};
use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_rpc::{CallError, Code};
use weft_target::config::Listen;

use self::session::{
    ControlledTarget, Session, addresses, as_address, as_text, as_text_of, list, shown, strings,
    text,
};
use crate::failure::Failure;
use crate::limits::CONTROL_TIMEOUT;
use crate::output::Format;
use crate::table::Table;
use crate::values::{size, whole_rate};
use crate::{names, output};

/// Options of `weft ctl`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: ControlledTarget,
    /// Output format.
    #[arg(short, long, global = true, help_heading = "Common", value_enum, default_value_t)]
    output_format: Format,
    #[command(subcommand)]
    noun: Noun,
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
    /// Names for key files, used by `host allow`.
    #[command(subcommand)]
    Key(keys::Verb),
    /// Block devices by name, which keep their contents while no namespace uses them.
    #[command(subcommand)]
    Bdev(BdevVerb),
    /// Limits of IOPS and bandwidth, of a host, a subsystem, a namespace or any combination.
    #[command(subcommand, alias = "limit")]
    RateLimit(RateLimitVerb),
    /// Classes of queues: which are served between the commands of others.
    #[command(subcommand)]
    Qos(qos::Verb),
    /// This target's pair: who is primary, and hand over.
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
    #[command(alias = "add")]
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
        /// Another parameter of `nvmf_create_subsystem` (docs/control.md), such as qid_max=4.
        #[serde(flatten, serialize_with = "session::as_map")]
        #[arg(long, value_name = "KEY=VALUE", value_parser = session::setting)]
        set: Vec<session::Setting>,
    },
    /// Delete a subsystem; block devices of `bdev create` stay.
    #[command(alias = "remove")]
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
        namespace: namespace::AddOptions,
    },
    /// Show a namespace that not every host sees to one more host.
    AddHost(visibility::Host),
    /// No longer show it to a host.
    RemoveHost(visibility::Host),
    /// Remove a namespace; a block device of `bdev create` stays.
    #[command(alias = "delete")]
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
        /// Allow a smaller size of this namespace, named as NQN:NSID.
        #[arg(long, value_name = "NQN:NSID")]
        yes_destroy: Vec<String>,
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
    #[command(alias = "delete")]
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
    #[command(alias = "add")]
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
    #[command(alias = "delete")]
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
    #[command(alias = "add")]
    Create {
        /// Its name.
        name: String,
        /// The device, like memory:1GiB, file:PATH, block:PATH, rbd:IMAGE or null:1TiB.
        #[serde(serialize_with = "as_text_of")]
        device: DeviceSpec,
    },
    /// Delete it, and the namespace that uses it.
    #[command(alias = "remove")]
    Delete {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(names::bdevs))]
        name: String,
        /// Allow to take it from the namespace that uses it, by its name.
        #[serde(skip)]
        #[arg(long, value_name = "NAME")]
        yes_destroy: Vec<String>,
    },
    /// List the block devices.
    List,
}

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
enum RateLimitVerb {
    /// Set the limit for a host, subsystem or namespace; an earlier limit for the same ones is
    /// replaced.
    #[command(alias = "add")]
    Set {
        #[serde(flatten)]
        #[command(flatten)]
        of: LimitedCommands,
        /// Commands in a second, like 5000 or 20k.
        #[arg(long, alias = "iops", value_name = "NUMBER", value_parser = whole_rate)]
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
    #[command(alias = "remove")]
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
    /// Limit the commands of this host (its NQN); given several times: of these hosts together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(add = ArgValueCandidates::new(names::hosts))]
    #[arg(long, value_name = "NQN")]
    host: Vec<String>,
    /// Limit the commands to this subsystem.
    #[arg(add = ArgValueCandidates::new(names::subsystems))]
    #[arg(long, value_name = "NQN")]
    subsystem: Option<String>,
    /// Limit the commands to this namespace of the subsystem.
    #[arg(add = ArgValueCandidates::new(names::namespaces))]
    #[arg(long, requires = "subsystem")]
    nsid: Option<u32>,
    /// Reads, writes or both.
    #[arg(long, default_value = "rw", value_parser = ["read", "write", "rw"])]
    rw: String,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let client = options.target.connect(CONTROL_TIMEOUT)?;
    let mut session = Session { client, json: options.output_format == Format::Json };
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
            let lines = session.call(session::RELOAD, Value::Null)?;
            let text =
                strings(&lines).into_iter().fold(String::new(), |text, line| text + line + "\n");
            session.show(&lines, &text)
        }
        Noun::Call { method, params } => {
            let params = params.as_deref().map(serde_json::from_str).transpose();
            let params = params.map_err(|error| Failure::because(format!("{error} in PARAMS")))?;
            let answer = session.client.call_named(method, params.unwrap_or(Value::Null));
            match answer {
                Ok(answer) => output::print_json(&answer),
                Err(CallError::Error(error)) if error.code == Code::METHOD_NOT_FOUND => {
                    let known = session.call("rpc_get_methods", Value::Null)?;
                    let near = weft_backend::meant(method, strings(&known));
                    Err(Failure::Because(format!("{}{near}", error.message)))
                }
                // Who calls a method by its name gets its error as it is.
                Err(CallError::Error(error)) => Err(Failure::because(error.message)),
                Err(error) => Err(Failure::because(error)),
            }
        }
    }
}

impl Session {
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
            NamespaceVerb::Resize { nqn, nsid, size, yes_destroy } => {
                self.resize_namespace(nqn, *nsid, *size, yes_destroy)
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
            ListenerVerb::List { nqn } => self.listeners(nqn.as_deref()),
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
                self.allow(nqn, host, keys, *dhchap_concat)
            }
            HostVerb::SetKeys { nqn, host, keys } => self.set_keys(nqn, host, keys),
            HostVerb::Remove { nqn, host } if host == "any" => {
                self.change("nvmf_subsystem_allow_any_host", any(nqn, false))
            }
            HostVerb::Remove { nqn, host } => {
                self.change("nvmf_subsystem_remove_host", one(nqn, host))
            }
            HostVerb::List { nqn } => self.hosts(nqn.as_deref()),
        }
    }

    /// The addresses at which subsystems are served, and whether hosts come with TLS there.
    fn listeners(&mut self, nqn: Option<&str>) -> Result<(), Failure> {
        let (mut table, mut all) = (Table::new(&["subsystem", "address", "tls"]), Vec::new());
        for subsystem in self.subsystems(nqn)? {
            let params = json!({ "nqn": subsystem["nqn"] });
            for one in list(&self.call("nvmf_subsystem_get_listeners", params)?) {
                let (address, tls) = (session::url(&one["address"]), shown(&one["tls"], "off"));
                table.row(vec![text(&subsystem["nqn"]), address.clone(), tls.clone()]);
                all.push(json!({ "subsystem": subsystem["nqn"], "address": address, "tls": tls }));
            }
        }
        self.show(&all.into(), &table.text())
    }

    /// The hosts that may connect, with the names of their keys.
    fn hosts(&mut self, nqn: Option<&str>) -> Result<(), Failure> {
        let (mut table, mut all) = (Table::new(&["subsystem", "host", "keys"]), Vec::new());
        for subsystem in self.subsystems(nqn)? {
            for host in hosts(&subsystem) {
                // One that is listed beside any has keys of its own.
                let of = list(&subsystem["hosts"]).iter().find(|one| one["nqn"] == host.as_str());
                let keys = of.map(keys).unwrap_or_default();
                table.row(vec![text(&subsystem["nqn"]), host.clone(), keys.join(" ")]);
                all.push(json!({ "subsystem": subsystem["nqn"], "host": host, "keys": keys }));
            }
        }
        self.show(&all.into(), &table.text())
    }

    fn bdev(&mut self, verb: &BdevVerb) -> Result<(), Failure> {
        match verb {
            BdevVerb::Create { .. } => self.change("bdev_device_create", verb),
            BdevVerb::Delete { name, yes_destroy } => {
                self.confirm_unused(name, yes_destroy)?;
                self.change("bdev_delete", verb)
            }
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
            RateLimitVerb::Set { of, rate_iops, rate, burst, .. } => {
                let all = self.call("rate_limit_get_all", Value::Null)?;
                self.change("rate_limit_set", verb)?;
                let given = [rate_iops.is_some(), rate.is_some(), burst.is_some()];
                self.tell_what_is_gone(list(&all), of, given)?;
                self.tell_what_is_missing(of.subsystem.as_deref(), of.nsid)
            }
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
                        one["rate"].as_u64().map_or("-".to_owned(), per_second),
                        shown("burst", "-"),
                    ]);
                }
                self.show(&all, &table.text())
            }
        }
    }
}

/// A bandwidth, in the unit in which it is a short number.
fn per_second(rate: u64) -> String {
    match rate.is_multiple_of(1_000_000) {
        true => format!("{}MB/s", rate / 1_000_000),
        false => format!("{}/s", bytes::exact(rate)),
    }
}

impl Device {
    /// The device that is to be made; none: it exists.
    fn spec(&self) -> Result<Option<DeviceSpec>, Failure> {
        type Parse = fn(&str) -> Result<DeviceSpec, ParseSpecError>;
        let kinds: [(&Option<String>, Parse); 5] = [
            (&absolute(&self.file), DeviceSpec::file),
            (&absolute(&self.block), DeviceSpec::block),
            (&self.rbd, DeviceSpec::rbd),
            (&self.memory, DeviceSpec::memory),
            (&self.null, DeviceSpec::null),
        ];
        let found = kinds.into_iter().find_map(|(text, parse)| text.as_deref().map(parse));
        found.transpose().map_err(Failure::because)
    }
}

/// A path as the target finds it, whose folder is another one.
fn absolute(path: &Option<String>) -> Option<String> {
    let here = std::env::current_dir().ok()?;
    path.as_deref().map(|path| match path.starts_with('/') {
        true => path.to_owned(),
        // A comma ends a path, unless it is written twice.
        false => format!("{}/{path}", here.display().to_string().replace(',', ",,")),
    })
}

/// The kinds of keys that a host has, each with its name or file.
fn keys(host: &Value) -> Vec<String> {
    let all = host.as_object().into_iter().flatten();
    let keys = all.filter(|(name, value)| *name != "nqn" && !value.is_null());
    keys.map(|(name, value)| format!("{name}={}", shown(value, ""))).collect()
}

/// The hosts that may connect to a subsystem: any, and those that are listed.
fn hosts(subsystem: &Value) -> Vec<String> {
    let any = (subsystem["allow_any_host"] == true).then(|| "any".to_owned());
    let listed = list(&subsystem["hosts"]).iter().map(|host| text(&host["nqn"]));
    any.into_iter().chain(listed).collect()
}
