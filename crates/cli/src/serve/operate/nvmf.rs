//! SPDK's methods for subsystems, namespaces, listeners, hosts and connections.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;
use weft_nvmf::auth::{default_groups, default_hashes};
use weft_nvmf::keys::TlsMode;
use weft_nvmf::registration::{LABEL_BYTES_MAX, LABEL_BYTES_MIN};
use weft_rpc::{Code, ErrorObject, Methods};
use weft_statistics::NamespaceStatistics;
use weft_target::config::{
    CNTLID_LAST, Config, HostKeys, Listen, Namespace, Port, Referral, Subsystem, Transport,
    implied_bdev_name,
};
use weft_target::steps::{DISCOVERY_NQN, Step, StepErrorKind};
use weft_target::{ConnectedQueue, QueueAuthentication, Target};

use super::ana;
use super::error::invalid;
use super::method::{StepOf, address_json, method, steps, thread_name};
use super::operator::Operator;
use super::parameters::{Params, Renames, parameters_of};

type Answer = Result<Value, ErrorObject>;

/// The name of SPDK's target, which is the only one of a process unless others are created.
const TARGET_NAME: &str = "nvmf_tgt";

/// SPDK's names for what a subsystem is created with. What it has several of is added by calls of
/// their own.
pub(super) const SUBSYSTEM: Renames = &[
    ("serial_number", "serial"),
    ("model_number", "model"),
    ("max_namespaces", "namespaces-max"),
    ("min_cntlid", "cntlid-min"),
    ("max_cntlid", "cntlid-max"),
    ("enable_nssr", "subsystem-reset"),
    ("", "allowed-hosts"),
    ("", "listed-hosts"),
    ("", "host"),
    ("", "namespace"),
];

/// SPDK's names for what a namespace is added with.
pub(super) const NAMESPACE: Renames = &[
    ("bdev_name", "bdev"),
    ("anagrpid", "ana-group"),
    ("", "by-position"),
    ("", "device"),
    ("", "visible-to"),
];

/// SPDK's names for what a host is added with.
pub(super) const HOST: Renames = &[("host", "nqn")];

/// Those of them that are changed while the host is connected.
const HOST_KEYS: Renames = &[
    ("host", "nqn"),
    ("", "dhchap-hashes"),
    ("", "dhchap-groups"),
    ("", "psk-compat"),
    ("", "dhchap-concat"),
    ("", "dhchap-concat-compat"),
];

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    type Handler = fn(&Operator, Value) -> Answer;
    let all: [(&'static str, Handler); 12] = [
        ("nvmf_set_config", set_config),
        ("nvmf_set_crdt", set_retry_delays),
        ("nvmf_create_transport", create_transport),
        ("nvmf_get_transports", get_transports),
        ("nvmf_create_subsystem", create_subsystem),
        ("nvmf_delete_subsystem", delete_subsystem),
        ("nvmf_get_subsystems", get_subsystems),
        ("nvmf_subsystem_get_listeners", get_listeners),
        ("nvmf_subsystem_get_controllers", get_controllers),
        ("nvmf_subsystem_get_qpairs", get_qpairs),
        ("nvmf_discovery_get_referrals", get_referrals),
        ("nvmf_get_stats", get_stats),
    ];
    let methods = all
        .into_iter()
        .fold(methods, |methods, (name, handler)| method(methods, operator, name, handler));
    let all: [(&'static str, StepOf); 11] = [
        ("nvmf_subsystem_add_ns", add_namespace),
        ("nvmf_subsystem_remove_ns", |_, params| {
            Ok(Step::RemoveNamespace { nqn: params.need("nqn")?, nsid: params.need("nsid")? })
        }),
        ("nvmf_subsystem_add_listener", add_listener),
        ("nvmf_subsystem_remove_listener", remove_listener),
        ("nvmf_subsystem_add_host", add_host),
        ("nvmf_subsystem_remove_host", |_, params| {
            // The step has a bound of its own.
            params.ignore(&["timeout_ms"]);
            Ok(Step::RemoveHost { nqn: params.need("nqn")?, host: params.need("host")? })
        }),
        ("nvmf_subsystem_set_keys", set_keys),
        ("nvmf_subsystem_allow_any_host", |_, params| {
            let (nqn, allow) = (params.need("nqn")?, params.need("allow_any_host")?);
            Ok(Step::AllowAnyHost { nqn, allow })
        }),
        ("nvmf_discovery_add_referral", |_, params| Ok(Step::AddReferral(referral(params)?))),
        ("nvmf_discovery_remove_referral", |_, params| Ok(Step::RemoveReferral(referral(params)?))),
        ("nvmf_set_max_subsystems", |_, params| {
            Ok(Step::LimitSubsystems { most: params.need("max_subsystems")? })
        }),
    ];
    steps(methods, operator, parameters, all)
}

/// The parameters of a method; there is one target, with SPDK's usual name.
pub(super) fn parameters(params: Value) -> Result<Params, ErrorObject> {
    let mut params = Params::of(params)?;
    match params.take::<String>("tgt_name")? {
        Some(name) if name != TARGET_NAME => {
            let what = format!("Unable to find a target: {name:?} is none; leave tgt_name out");
            Err(ErrorObject::new(Code::INTERNAL_ERROR, what))
        }
        _ => Ok(params),
    }
}

fn transport_of(word: &str) -> Option<Transport> {
    [Transport::Tcp, Transport::Rdma]
        .into_iter()
        .find(|transport| transport.to_string().eq_ignore_ascii_case(word))
}

fn transport(params: &mut Params) -> Result<Transport, ErrorObject> {
    let word: String = params.need("trtype")?;
    transport_of(&word).ok_or_else(|| {
        params.error(format_args!("trtype {word:?} is not served; give TCP or RDMA"))
    })
}

/// What SPDK sets for all subsystems before it starts: the lists of authentication, at any time.
/// Everything else is accepted where it asks for what hosts get here.
fn set_config(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    params.refuse(&["admin_cmd_passthru", "discovery_filters", "poll_groups_mask"])?;
    params.only("discovery_filter", "match_any")?;
    params.only("dup_host_policy", "allow")?;
    let hashes = allowed(&mut params, "dhchap_digests", &default_hashes())?;
    let groups = allowed(&mut params, "dhchap_dhgroups", &default_groups())?;
    params.end()?;
    if hashes.is_some() || groups.is_some() {
        operator.nvmf_step(&Step::SetAuthentication { hashes, groups })?;
    }
    Ok(true.into())
}

/// Those of `all` that a parameter lists, in their order, as SPDK has a set and no order; none of
/// them if it lists all.
fn allowed<T: Clone + PartialEq + FromStr<Err: fmt::Display>>(
    params: &mut Params,
    name: &str,
    all: &[T],
) -> Result<Option<Vec<T>>, ErrorObject> {
    let Some(words) = params.take::<Vec<String>>(name)? else { return Ok(None) };
    let listed: Result<Vec<T>, _> = words.iter().map(|word| word.parse()).collect();
    let listed = listed.map_err(|error| params.error(format_args!("{name}: {error}")))?;
    let mut allowed: Vec<T> = all.iter().filter(|one| listed.contains(one)).cloned().collect();
    if allowed.is_empty() {
        return Err(params.error(format_args!("{name} allows none; name one or more")));
    }
    if allowed.len() == all.len() {
        allowed.clear();
    }
    Ok(Some(allowed))
}

/// No status of this target asks for a delay before the command is tried again (CRD).
fn set_retry_delays(_: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    params.refuse(&["crdt1", "crdt2", "crdt3"])?;
    params.end()?;
    Ok(true.into())
}

fn create_transport(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let transport = transport(&mut params)?;
    params.refuse(&["zcopy", "dif_insert_or_strip", "sock_priority"])?;
    let mut limits = operator.with(|target| target.config().limits.clone())?;
    fn set<T>(place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
        }
    }
    set(&mut limits.queue_entries, params.take("max_queue_depth")?);
    set(&mut limits.io_queues, params.take("max_io_qpairs_per_ctrlr")?);
    set(&mut limits.in_capsule_bytes, params.take("in_capsule_data_size")?);
    set(&mut limits.transfer_bytes, params.take("max_io_size")?);
    // As in SPDK, other parameters are not looked at: they divide memory that is divided otherwise,
    // or say when the SUCCESS flag is used (c2h_success), which the session decides.
    let made = operator.step(&Step::CreateTransport(transport, Box::new(limits)))?;
    made.map_err(|error| match error.kind {
        StepErrorKind::Exists => {
            let word = transport.to_string().to_uppercase();
            let what = format!("Transport type '{word}' already exists");
            ErrorObject::new(Code::INTERNAL_ERROR, what)
        }
        _ => invalid(error),
    })?;
    Ok(true.into())
}

/// A transport with the parameters that it was or could be created with.
pub(super) fn transport_json(transport: Transport, config: &Config) -> Value {
    let limits = &config.limits;
    json!({
        "trtype": transport.to_string().to_uppercase(),
        "max_queue_depth": limits.queue_entries,
        "max_io_qpairs_per_ctrlr": limits.io_queues,
        "in_capsule_data_size": limits.in_capsule_bytes,
        "max_io_size": limits.transfer_bytes,
        "zcopy": false,
        "c2h_success": true,
        "sock_priority": 0,
    })
}

/// The transports that there are.
pub(super) fn transports(config: &Config) -> impl Iterator<Item = Transport> {
    [Transport::Tcp, Transport::Rdma].into_iter().filter(|one| config.has_transport(*one))
}

fn get_transports(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let wanted: Option<String> = params.take("trtype")?;
    params.end()?;
    operator.with(|target| {
        let config = target.config();
        let all = transports(config)
            .filter(|one| wanted.as_ref().is_none_or(|wanted| transport_of(wanted) == Some(*one)));
        let all: Vec<Value> = all.map(|one| transport_json(one, config)).collect();
        match wanted {
            Some(word) if all.is_empty() => Err(ErrorObject::new(
                Code(-19),
                format!("No such device: transport {word:?} was not created"),
            )),
            _ => Ok(all.into()),
        }
    })?
}

fn create_subsystem(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let base = Subsystem::new(params.need::<String>("nqn")?);
    let mut subsystem = params.object_of(SUBSYSTEM, &base)?;
    subsystem.admin_label = subsystem.admin_label.filter(|label| !label.is_empty());
    subsystem.namespaces_max = subsystem.namespaces_max.filter(|most| *most > 0);
    let allow_any_host = params.take("allow_any_host")?.unwrap_or(false);
    subsystem.allowed_hosts = (!allow_any_host).then(Vec::new);
    params.refuse(&["passthrough"])?;
    // Limits of Deallocate and Write Zeroes, which have their own here: SPDK's names of 26.1 and of
    // before.
    params.ignore(&["dmrsl", "wzsl", "max_discard_size_kib", "max_write_zeroes_size_kib"]);
    params.end()?;
    check_identity(&subsystem)?;
    let nqn = subsystem.nqn.clone();
    operator.step(&Step::CreateSubsystem(Box::new(subsystem)))?.map_err(|error| {
        let what = format!("Unable to create subsystem {nqn}: {error}");
        ErrorObject::new(Code::INTERNAL_ERROR, what)
    })?;
    Ok(true.into())
}

/// What SPDK refuses as parameters; all else that is wrong with a subsystem is an error of the
/// step.
fn check_identity(subsystem: &Subsystem) -> Result<(), ErrorObject> {
    let is_text = |text: &str, most| {
        text.len() <= most && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    };
    let (first, last) = subsystem.controller_ids(None);
    if let Some(serial) = subsystem.serial.as_ref().filter(|serial| !is_text(serial, 20)) {
        return Err(invalid(format_args!(
            "the serial number {serial:?} is not of up to 20 printable ASCII characters"
        )));
    }
    if !is_text(&subsystem.model, 40) {
        return Err(invalid(format_args!(
            "the model number {:?} is not of up to 40 printable ASCII characters",
            subsystem.model
        )));
    }
    let is_label = |label: &str| label.len() >= LABEL_BYTES_MIN && is_text(label, LABEL_BYTES_MAX);
    if let Some(label) = subsystem.admin_label.as_ref().filter(|label| !is_label(label)) {
        let lengths = format!("{LABEL_BYTES_MIN} to {LABEL_BYTES_MAX}");
        let what = format!("{label:?} is not of {lengths} printable ASCII characters");
        return Err(ErrorObject::new(Code::INVALID_PARAMS, format!("Invalid admin_label: {what}")));
    }
    if first == 0 || last > CNTLID_LAST || first > last {
        return Err(invalid(format_args!(
            "min_cntlid {first} to max_cntlid {last} is no range within 1 to {CNTLID_LAST}"
        )));
    }
    Ok(())
}

fn delete_subsystem(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let nqn: String = params.need("nqn")?;
    params.end()?;
    operator.step(&Step::DeleteSubsystem { nqn: nqn.clone() })?.map_err(|error| {
        match error.kind {
            StepErrorKind::NotFound => {
                let what = format!("Subsystem with NQN '{nqn}' not found");
                ErrorObject::new(Code::INVALID_PARAMS, what)
            }
            _ => ErrorObject::new(Code::INTERNAL_ERROR, error),
        }
    })?;
    Ok(true.into())
}

/// The ports at which a subsystem was given a listener.
pub(super) fn ports<'a>(target: &'a Target, nqn: &'a str) -> impl Iterator<Item = &'a Port> {
    let config = target.config();
    config.ports.iter().filter(move |port| match nqn {
        DISCOVERY_NQN => {
            port.discovery
                && (!port.made_at_run_time || config.operated.discovery.contains(&port.listen))
        }
        _ => port.subsystems.contains(nqn),
    })
}

/// The addresses of a subsystem.
pub(super) fn listeners(target: &Target, nqn: &str) -> Vec<(Transport, SocketAddr)> {
    ports(target, nqn).map(|port| (port.listen.transport, address(target, port))).collect()
}

/// Where a port listens.
pub(super) fn address(target: &Target, port: &Port) -> SocketAddr {
    target.addresses().get(&port.id).copied().unwrap_or(port.listen.address)
}

fn get_subsystems(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let wanted: Option<String> = params.take("nqn")?;
    params.end()?;
    operator.with(|target| {
        let config = target.config();
        let is_wanted = |nqn: &str| wanted.as_ref().is_none_or(|wanted| wanted == nqn);
        let mut all = Vec::new();
        if is_wanted(DISCOVERY_NQN) && !config.operated.without_discovery {
            all.push(json!({
                "nqn": DISCOVERY_NQN,
                "subtype": "Discovery",
                "listen_addresses": addresses_json(target, DISCOVERY_NQN),
                "allow_any_host": true,
                "hosts": [],
            }));
        }
        let named = config.subsystems.iter().filter(|subsystem| is_wanted(&subsystem.nqn));
        all.extend(named.map(|subsystem| subsystem_json(target, subsystem)));
        match wanted {
            Some(nqn) if all.is_empty() => Err(ErrorObject::new(
                Code(-19),
                format!("No such device: there is no subsystem {nqn}"),
            )),
            _ => Ok(all.into()),
        }
    })?
}

fn addresses_json(target: &Target, nqn: &str) -> Vec<Value> {
    listeners(target, nqn).into_iter().map(|(kind, at)| address_json(kind, at)).collect()
}

fn subsystem_json(target: &Target, subsystem: &Subsystem) -> Value {
    let nqn = &subsystem.nqn;
    let namespaces = subsystem.namespaces.iter().filter_map(|namespace| {
        let served = target.namespace(nqn, namespace.nsid)?;
        let bdev = namespace.bdev.clone();
        let bdev = bdev.unwrap_or_else(|| implied_bdev_name(nqn, namespace.nsid));
        let mut json = json!({
            "nsid": namespace.nsid,
            "bdev_name": bdev,
            "name": bdev,
            "nguid": hex(&served.nguid),
            "uuid": Uuid::from_bytes(served.uuid).to_string(),
        });
        if subsystem.ana_reporting {
            json["anagrpid"] = namespace.ana_group().into();
        }
        if let Some(eui64) = namespace.eui64 {
            json["eui64"] = hex(&eui64).into();
        }
        super::visibility::show(namespace, &mut json);
        Some(json)
    });
    let namespaces: Vec<Value> = namespaces.collect();
    let most = subsystem.namespaces_max.unwrap_or(target.config().limits.namespaces);
    let (first, last) = subsystem.controller_ids(target.config().pair.as_ref());
    // What is configured, and over it what is the case.
    let mut json = Value::Object(parameters_of(subsystem, SUBSYSTEM));
    let live = json!({
        "nqn": nqn,
        "subtype": "NVMe",
        "listen_addresses": addresses_json(target, nqn),
        "allow_any_host": subsystem.allowed_hosts.is_none(),
        "hosts": hosts_json(subsystem, &[]),
        "serial_number": subsystem.serial(),
        "model_number": subsystem.model,
        "max_namespaces": most,
        "min_cntlid": first,
        "max_cntlid": last,
        "ana_reporting": subsystem.ana_reporting,
        "namespaces": namespaces,
    });
    if let (Value::Object(all), Value::Object(live)) = (&mut json, live) {
        all.extend(live);
    }
    json
}

/// An identifier as SPDK writes it.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn add_namespace(_: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let nqn = params.need("nqn")?;
    let mut namespace = params.object("namespace")?;
    namespace.refuse(&["hide_metadata"])?;
    let hidden = namespace.take("no_auto_visible")?.unwrap_or(false);
    let base = Namespace::on_bdev(namespace.need::<String>("bdev_name")?);
    let added =
        Namespace { visible_to: hidden.then(Vec::new), ..namespace.object_of(NAMESPACE, &base)? };
    let ana_group = added.ana_group.filter(|group| *group > 0);
    namespace.end()?;
    Ok(Step::AddNamespace { nqn, namespace: Box::new(Namespace { ana_group, ..added }) })
}

/// The address of a listener, or that of a referral.
pub(super) fn listen(params: &mut Params, name: &str) -> Result<Listen, ErrorObject> {
    let mut address = params.object(name)?;
    let transport = transport(&mut address)?;
    let ip: String = address.need("traddr")?;
    let port: Option<u16> = address.parse("trsvcid")?;
    let listen = Listen::at(transport, &ip, port.unwrap_or(4420))
        .map_err(|error| address.error(format_args!("traddr: {error}")))?;
    let family: Option<String> = address.take("adrfam")?;
    let fits = match family.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => true,
        Some("ipv4") => listen.address.is_ipv4(),
        Some("ipv6") => listen.address.is_ipv6(),
        Some(_) => false,
    };
    if !fits {
        return Err(address.error("adrfam is not that of traddr; give ipv4 or ipv6"));
    }
    address.end()?;
    Ok(listen)
}

fn add_listener(_: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let (nqn, listen) = (params.need("nqn")?, listen(params, "listen_address")?);
    let tls = tls_mode(params)?;
    let tls_records = params.parse("tls_records")?;
    let ana = params.parse("ana_state")?.unwrap_or_default();
    Ok(Step::AddListener { nqn, listen, ana, tls, tls_records })
}

/// Whether hosts come with TLS: SPDK's parameters, or the configuration's, which says more.
fn tls_mode(params: &mut Params) -> Result<Option<TlsMode>, ErrorObject> {
    let secure: Option<bool> = params.take("secure_channel")?;
    let tls: Option<TlsMode> = params.parse("tls")?;
    let sockets: Option<String> = params.take("sock_impl")?;
    let mode = match (secure, tls) {
        (Some(secure), Some(tls)) if secure != (tls != TlsMode::Off) => {
            return Err(params.error("secure_channel and tls contradict each other"));
        }
        (_, Some(tls)) => Some(tls),
        (Some(true), None) => Some(TlsMode::Required),
        (Some(false), None) => Some(TlsMode::Off),
        (None, None) => None,
    };
    let wants_tls = mode.is_some_and(|mode| mode != TlsMode::Off);
    match sockets.as_deref() {
        None => Ok(mode),
        // Its sockets are those of TLS, whether or not the discovery log has a secure channel.
        Some("ssl") if tls.is_none() => Ok(Some(TlsMode::Required)),
        Some("ssl") if wants_tls => Ok(mode),
        Some("posix" | "uring") if !wants_tls => Ok(mode),
        Some(word @ ("ssl" | "posix" | "uring")) => {
            Err(params.error(format_args!("sock_impl {word:?} contradicts secure_channel or tls")))
        }
        Some(word) => {
            Err(params.error(format_args!("sock_impl {word:?} is none; give posix, uring or ssl")))
        }
    }
}

fn remove_listener(operator: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let (nqn, listen) = (params.need("nqn")?, listen(params, "listen_address")?);
    params.ignore(&["secure_channel", "tls", "tls_records", "sock_impl"]);
    Ok(Step::RemoveListener { nqn, listen: as_configured(operator, listen)? })
}

/// A port whose number the kernel chose is known by the number that it has.
pub(super) fn as_configured(
    operator: &Operator,
    mut listen: Listen,
) -> Result<Listen, ErrorObject> {
    operator.with(|target| {
        let addresses = target.addresses();
        let has_it = |port: &&Port| {
            port.listen.transport == listen.transport
                && addresses.get(&port.id) == Some(&listen.address)
        };
        if let Some(port) = target.config().ports.iter().find(has_it) {
            listen = port.listen;
        }
        listen
    })
}

/// The name of a subsystem that exists.
pub(super) fn existing(operator: &Operator, params: &mut Params) -> Result<String, ErrorObject> {
    let nqn: String = params.need("nqn")?;
    let exists = operator.with(|target| {
        nqn == DISCOVERY_NQN || target.config().subsystems.iter().any(|one| one.nqn == nqn)
    })?;
    match exists {
        true => Ok(nqn),
        false => Err(params.error(format_args!("there is no subsystem {nqn}"))),
    }
}

fn get_listeners(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let nqn = existing(operator, &mut params)?;
    params.end()?;
    operator.with(|target| {
        let listener = |port: &Port| {
            let address = address_json(port.listen.transport, address(target, port));
            let mut json = json!({ "address": address });
            if let Some(states) = ana::states(target.config(), port, &nqn) {
                json["ana_states"] = json!(states);
            }
            if port.tls != TlsMode::Off {
                json["secure_channel"] = true.into();
                json["tls"] = port.tls.name().into();
                json["tls_records"] = port.tls_records.name().into();
            }
            json
        };
        ports(target, &nqn).map(listener).collect()
    })
}

/// The hosts of a subsystem with the names of their keys, as parameters and results have them.
pub(super) fn hosts_json(subsystem: &Subsystem, renamed: Renames) -> Vec<Value> {
    let hosts = subsystem.allowed_hosts.as_ref().unwrap_or(&subsystem.listed_hosts);
    let json = |host: &String| {
        let keys = subsystem.host_keys.iter().find(|keys| keys.nqn == *host);
        let keys = keys.cloned().unwrap_or_else(|| HostKeys::new(host));
        parameters_of(&keys, renamed).into()
    };
    hosts.iter().map(json).collect()
}

fn set_keys(_: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let nqn = params.need("nqn")?;
    let has_psk = params.has("psk");
    let host = HostKeys::new(params.need::<String>("host")?);
    let host = params.object_of(HOST_KEYS, &host)?;
    if !has_psk {
        Ok(Step::SetKeys { nqn, host })
    } else if host.dhchap_key.is_some() || host.dhchap_ctrlr_key.is_some() {
        // In the same call, keys of authentication that are left out would be taken away.
        Err(params.error("psk is changed by a call of its own"))
    } else {
        Ok(Step::SetPsks { nqn, host: host.nqn, psk: host.psk })
    }
}

fn add_host(_: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let nqn = params.need("nqn")?;
    let host = HostKeys::new(params.need::<String>("host")?);
    let host = params.object_of(HOST, &host)?;
    Ok(Step::AddHost { nqn, host })
}

fn get_controllers(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let nqn = existing(operator, &mut params)?;
    params.end()?;
    let kind = if nqn == DISCOVERY_NQN { "discovery" } else { "io" };
    let controllers = operator.with(|target| target.controllers(Some(&nqn)))?;
    let controllers = controllers.into_iter().map(|controller| {
        json!({
            "cntlid": controller.controller_id,
            "cntrltype": kind,
            "hostnqn": controller.host,
            "hostid": Uuid::from_bytes(controller.host_id).to_string(),
            "num_io_qpairs": controller.io_queues,
        })
    });
    Ok(controllers.collect())
}

fn get_qpairs(operator: &Operator, params: Value) -> Answer {
    let mut params = parameters(params)?;
    let nqn = existing(operator, &mut params)?;
    params.end()?;
    operator.with(|target| {
        let ports = &target.config().ports;
        let queue = |queue: ConnectedQueue| {
            let port = ports.iter().find(|port| port.id == queue.port_id);
            let transport = port.map_or(Transport::Tcp, |port| port.listen.transport);
            let mut json = json!({
                "cntlid": queue.controller_id,
                "qid": queue.queue_id,
                "state": "enabled",
                "thread": thread_name(queue.group),
                "hostnqn": queue.host,
                "listen_address": address_json(transport, queue.local),
                "peer_address": address_json(transport, queue.peer),
            });
            if let Some(class) = queue.class {
                json["qos"] = json!({
                    "class": class.class.word(),
                    "reason": class.reason.word(),
                    "express": class.is_express,
                });
            }
            if let Some(records) = queue.tls_records {
                json["tls"] = json!({ "records": records.name() });
            }
            match queue.authentication {
                None => {}
                Some(QueueAuthentication::Negotiating) => {
                    json["auth"] = json!({ "state": "negotiate" });
                }
                Some(QueueAuthentication::Completed(hash, group)) => {
                    let (digest, dhgroup) = (hash.to_string(), group.to_string());
                    json["auth"] =
                        json!({ "state": "completed", "digest": digest, "dhgroup": dhgroup });
                }
            }
            json
        };
        target.queues(Some(&nqn)).into_iter().map(queue).collect()
    })
}

/// A referral to another discovery controller, or to a subsystem of another target.
fn referral(params: &mut Params) -> Result<Referral, ErrorObject> {
    let address = listen(params, "address")?;
    let subsystem: Option<String> = params.take("subnqn")?;
    let subsystem = subsystem.filter(|nqn| !nqn.is_empty() && nqn != DISCOVERY_NQN);
    params.refuse(&["secure_channel"])?;
    params.ignore_others();
    Ok(Referral { address, port_id: 0, subsystem })
}

fn get_referrals(operator: &Operator, params: Value) -> Answer {
    parameters(params)?.end()?;
    operator.with(|target| target.config().referrals().map(referral_json).collect())
}

/// A referral with the parameters that it is made with.
pub(super) fn referral_json(referral: &Referral) -> Value {
    json!({
        "address": address_json(referral.address.transport, referral.address.address),
        "secure_channel": false,
        "subnqn": referral.subsystem.as_deref().unwrap_or(DISCOVERY_NQN),
    })
}

fn get_stats(operator: &Operator, params: Value) -> Answer {
    parameters(params)?.end()?;
    let groups = operator.watch().read(weft_reactor::monotonic_time());
    operator.with(|target| {
        let (queues, came) = (target.queues(None), target.watch().queues_that_came());
        let transports: Vec<Value> = transports(target.config())
            .map(|one| json!({ "trtype": one.to_string().to_uppercase() }))
            .collect();
        let groups = groups.into_iter().map(|group| {
            let here = queues.iter().filter(|queue| queue.group == group.group);
            let (admin, io): (Vec<_>, Vec<_>) = here.partition(|queue| queue.queue_id == 0);
            let (admin_came, io_came) = came.get(group.group).copied().unwrap_or_default();
            let completed = group.served.iter().map(NamespaceStatistics::commands);
            json!({
                "name": thread_name(group.group),
                "admin_qpairs": admin_came,
                "io_qpairs": io_came,
                "current_admin_qpairs": admin.len(),
                "current_io_qpairs": io.len(),
                "completed_nvme_io": completed.sum::<u64>(),
                "transports": transports,
            })
        });
        let groups: Vec<Value> = groups.collect();
        json!({ "tick_rate": super::bdev::TICK_RATE, "poll_groups": groups })
    })
}
