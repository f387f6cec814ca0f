//! The changes that a reload has made, one line each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;
use weft_backend::{DeviceSpec, bytes, duration};
use weft_nvme::Nqn;
use weft_nvmf::subsystem::{NamespaceView, SubsystemView};

use crate::config::rules::Rule;
use crate::config::{Config, Limits, Namespace, Psks, Subsystem};
use crate::shared::snapshot::{PortView, Snapshot};

/// Added to changes that take a restart.
const RESTART: &str = "only after a restart";

/// Added to changes that controllers see only with their next Connect.
const NEXT_CONNECT: &str = "for controllers that connect from now on";

/// Keys of TLS of the hosts of each subsystem.
pub(crate) type AllPsks = BTreeMap<String, Arc<Psks>>;

/// A configuration, the snapshot made from it, and keys that only the handshake has.
pub(crate) type State<'a> = (&'a Config, &'a Snapshot, &'a AllPsks);

/// The changes from one state to the next.
pub(crate) fn between(old: State<'_>, new: State<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    ports(old, new, &mut lines);
    for nqn in old.1.subsystems.keys().filter(|nqn| !new.1.subsystems.contains_key(*nqn)) {
        lines.push(format!("subsystem {nqn} removed"));
    }
    for (nqn, view) in &new.1.subsystems {
        let before = old.1.subsystems.get(nqn);
        match before {
            None => lines.push(format!("subsystem {nqn} added")),
            Some(before) => {
                subsystem(before, view, &mut lines);
                let of = |config: &Config| find_subsystem(config, &view.nqn).cloned();
                let what = format!("subsystem {nqn}");
                keys(&what, (of(old.0), of(new.0)), &SUBSYSTEM_KEYS, &mut lines);
            }
        }
        if let (Some(before), Some(after)) = (old.2.get(nqn), new.2.get(nqn)) {
            psks(nqn, before, after, &mut lines);
        }
        namespaces(old.0, before.map(AsRef::as_ref), new.0, view, &mut lines);
    }
    rules(&old.0.served_rate_limits(), &new.0.served_rate_limits(), &mut lines);
    rules(&old.0.qos_rules, &new.0.qos_rules, &mut lines);
    process_settings(old.0, new.0, &mut lines);
    lines
}

/// Keys of a subsystem whose changes have sentences of their own.
const SUBSYSTEM_KEYS: [&str; 10] = [
    "nqn",
    "serial",
    "model",
    "firmware",
    "allowed-hosts",
    "controllers",
    "cntlid-min",
    "cntlid-max",
    "host",
    "namespace",
];

/// The same of a namespace.
const NAMESPACE_KEYS: [&str; 8] =
    ["nsid", "by-position", "device", "uuid", "nguid", "eui64", "read-only", "visible-to"];

/// The same of a port.
const PORT_KEYS: [&str; 3] = ["id", "listen", "made-at-run-time"];

/// Every key of an object that has changed, but those with a sentence of their own.
fn keys<T: Serialize>(
    what: &str,
    (old, new): (Option<T>, Option<T>),
    told: &[&str],
    lines: &mut Vec<String>,
) {
    let map = |of: &T| match serde_json::to_value(of) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let (Some(old), Some(new)) = (old.as_ref().map(map), new.as_ref().map(map)) else { return };
    let text = |of: &Map<String, Value>, key: &str| match of.get(key) {
        None => "its default".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in all.into_iter().filter(|key| !told.contains(&key.as_str())) {
        if old.get(key) != new.get(key) {
            let (was, is) = (text(&old, key), text(&new, key));
            lines.push(format!("{what}: {key} changed from {was} to {is}"));
        }
    }
}

/// What rules give to the scope of each.
fn rules<T: Rule>(old: &[T], new: &[T], lines: &mut Vec<String>) {
    let find = |all: &[T], one: &T| all.iter().find(|other| other.has_scope_of(one)).map(T::terms);
    for one in old.iter().filter(|one| find(new, one).is_none()) {
        lines.push(format!("{one}: no longer {}{}", T::GIVES, one.terms()));
    }
    for one in new {
        let (given, now) = (T::GIVES, one.terms());
        match find(old, one) {
            None => lines.push(format!("{one}: {given}{now}")),
            Some(before) if before != now => {
                lines.push(format!("{one}: {given}{now}, not {before}"));
            }
            Some(_) => {}
        }
    }
}

fn ports(
    (old_config, old, _): State<'_>,
    (new_config, new, _): State<'_>,
    lines: &mut Vec<String>,
) {
    let find = |snapshot: &Snapshot, port: &PortView| {
        let same = |other: &&PortView| (other.id, other.listen) == (port.id, port.listen);
        snapshot.ports.iter().find(same).cloned()
    };
    for port in old.ports.iter().filter(|port| find(new, port).is_none()) {
        lines.push(format!("no longer listening on {} (port {})", port.listen, port.id));
    }
    for port in &new.ports {
        match find(old, port) {
            None => lines.push(format!("listening on {} (port {})", port.listen, port.id)),
            Some(_) => {
                let of =
                    |config: &Config| config.ports.iter().find(|one| one.id == port.id).cloned();
                let what = format!("port {} on {}", port.id, port.listen);
                keys(&what, (of(old_config), of(new_config)), &PORT_KEYS, lines);
            }
        }
    }
}

fn subsystem(old: &SubsystemView, new: &SubsystemView, lines: &mut Vec<String>) {
    let nqn = &new.nqn;
    let hosts = |view: &SubsystemView| view.allowed_hosts.clone().unwrap_or_default();
    match (&old.allowed_hosts, &new.allowed_hosts) {
        (Some(_), None) => lines.push(format!("subsystem {nqn}: every host is allowed")),
        (None, Some(_)) => lines.push(format!("subsystem {nqn}: only listed hosts are allowed")),
        _ => {}
    }
    let (before, after) = (hosts(old), hosts(new));
    for host in after.difference(&before) {
        lines.push(format!("subsystem {nqn}: host {host} is allowed"));
    }
    for host in before.iter().filter(|host| !new.allows(host)) {
        lines.push(format!("subsystem {nqn}: host {host} is no longer allowed"));
    }
    authentication(old, new, lines);
    let texts =
        |view: &SubsystemView| (view.serial.clone(), view.model.clone(), view.firmware.clone());
    if texts(old) != texts(new) {
        lines.push(format!("subsystem {nqn}: serial number, model or firmware changed"));
    }
    let ids = |view: &SubsystemView| (view.controller_model, view.limits.controller_ids);
    if ids(old) != ids(new) {
        lines.push(format!("subsystem {nqn}: controller ids changed, {NEXT_CONNECT}"));
    }
}

/// Hosts whose keys are others, by name only.
fn authentication(old: &SubsystemView, new: &SubsystemView, lines: &mut Vec<String>) {
    let nqn = &new.nqn;
    for (host, policy) in new.policies.iter() {
        match old.policies.get(host) {
            None => {
                lines.push(format!("subsystem {nqn}: host {host} has to authenticate itself"));
            }
            Some(before) if before != policy => {
                lines.push(format!("subsystem {nqn}: host {host} has other keys"));
            }
            Some(_) => {}
        }
    }
    let gone = old.policies.keys().filter(|host| !new.policies.contains_key(host));
    for host in gone.filter(|host| new.allows(host)) {
        lines.push(format!("subsystem {nqn}: host {host} need not authenticate itself any more"));
    }
}

/// Hosts whose keys of TLS are others.
fn psks(nqn: &str, before: &Psks, after: &Psks, lines: &mut Vec<String>) {
    let hosts: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |psks: &Psks, host: &str| psks.get(host).cloned().unwrap_or_default();
    for host in hosts {
        let (was, is) = (of(before, host), of(after, host));
        let what = match (was.is_empty(), is.is_empty()) {
            _ if was == is => continue,
            (true, _) => "has keys of TLS",
            (_, true) => "has no key of TLS any more",
            (false, false) => "has other keys of TLS",
        };
        lines.push(format!("subsystem {nqn}: host {host} {what}"));
    }
}

fn namespaces(
    old_config: &Config,
    old: Option<&SubsystemView>,
    new_config: &Config,
    new: &SubsystemView,
    lines: &mut Vec<String>,
) {
    let (was, is) = (devices(old_config, &new.nqn), devices(new_config, &new.nqn));
    let name = |of: &BTreeMap<u32, &DeviceSpec>, nsid: u32| of.get(&nsid).map(ToString::to_string);
    for namespace in old.iter().flat_map(|old| old.namespaces.iter()) {
        let nsid = namespace.nsid;
        if new.namespaces.get(nsid).is_none() {
            let device = name(&was, nsid).unwrap_or_default();
            lines.push(format!("namespace {nsid} of {} removed: {device}", new.nqn));
        }
    }
    for namespace in new.namespaces.iter() {
        let nsid = namespace.nsid;
        let device = name(&is, nsid).unwrap_or_default();
        let mut say = |what: &str| lines.push(format!("namespace {nsid} of {} {what}", new.nqn));
        let seen = seen_by(new, nsid);
        let Some(before) = old.and_then(|old| old.namespaces.get(nsid)) else {
            let uuid = Uuid::from_bytes(namespace.uuid);
            say(&format!("added: {device}, {}, UUID {uuid}", size(namespace)));
            if new.visibility.hosts(nsid).is_some() {
                say(&seen);
            }
            continue;
        };
        if old.is_some_and(|old| seen_by(old, nsid) != seen) {
            say(&seen);
        }
        if before.blocks != namespace.blocks {
            say(&format!("resized from {} to {}", size(before), size(namespace)));
        } else if is_not_cut(&was, &is, namespace) {
            say(&format!("keeps its {}: a file is never cut to a smaller size", size(namespace)));
        }
        if before.capabilities.read_only != namespace.capabilities.read_only {
            let read_only = namespace.capabilities.read_only;
            say(if read_only { "is read-only" } else { "is writable" });
        }
        if before.device != namespace.device {
            say(&format!("is opened anew: {device}"));
        }
        if (before.nguid, before.eui64) != (namespace.nguid, namespace.eui64) {
            say("has another NGUID or EUI-64");
        }
        let of = |config: &Config| find_namespace(config, &new.nqn, nsid).cloned();
        let given = |config: &Config| of(config).is_some_and(|one| one.uuid.is_some());
        if given(old_config) && !given(new_config) {
            say(&format!(
                "keeps its UUID {}, which the configuration no longer has, until the next start: \
                 give it as `uuid` again to keep it",
                Uuid::from_bytes(namespace.uuid)
            ));
        }
        let what = format!("namespace {nsid} of {}", new.nqn);
        keys(&what, (of(old_config), of(new_config)), &NAMESPACE_KEYS, lines);
    }
}

fn find_subsystem<'a>(config: &'a Config, nqn: &Nqn) -> Option<&'a Subsystem> {
    config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn.as_str())
}

fn find_namespace<'a>(config: &'a Config, nqn: &Nqn, nsid: u32) -> Option<&'a Namespace> {
    find_subsystem(config, nqn)?.namespaces.iter().find(|namespace| namespace.nsid == nsid)
}

/// Which hosts see a namespace.
fn seen_by(view: &SubsystemView, nsid: u32) -> String {
    match view.visibility.hosts(nsid) {
        None => "is seen by every host".to_owned(),
        Some(hosts) if hosts.is_empty() => "is seen by no host".to_owned(),
        Some(hosts) => {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            format!("is seen by {} only", hosts.join(", "))
        }
    }
}

/// The devices of a subsystem as they are configured.
fn devices<'a>(config: &'a Config, nqn: &Nqn) -> BTreeMap<u32, &'a DeviceSpec> {
    let subsystem = find_subsystem(config, nqn).into_iter();
    let namespaces = subsystem.flat_map(|subsystem| &subsystem.namespaces);
    namespaces.map(|namespace| (namespace.nsid, &namespace.device)).collect()
}

/// Whether what is stored has got a smaller size in the configuration.
fn is_not_cut(
    was: &BTreeMap<u32, &DeviceSpec>,
    is: &BTreeMap<u32, &DeviceSpec>,
    namespace: &NamespaceView,
) -> bool {
    let configured = |of: &BTreeMap<u32, &DeviceSpec>| {
        of.get(&namespace.nsid)
            .filter(|spec| spec.stored_name().is_some())
            .and_then(|spec| spec.configured_bytes())
    };
    let there = namespace.blocks.saturating_mul(namespace.block_bytes.into());
    configured(is).is_some_and(|bytes| bytes < there && configured(was) != Some(bytes))
}

fn size(namespace: &NamespaceView) -> String {
    bytes::exact(namespace.blocks.saturating_mul(namespace.block_bytes.into()))
}

/// Limits, and settings that only a restart changes.
fn process_settings(old: &Config, new: &Config, lines: &mut Vec<String>) {
    for (old, new) in limits(&old.limits).into_iter().zip(limits(&new.limits)) {
        let (name, was, when) = old;
        let (_, is, _) = new;
        if was != is {
            let comma = if when.is_empty() { "" } else { ", " };
            lines.push(format!("limits.{name} changed from {was} to {is}{comma}{when}"));
        }
    }
    for (name, was, is) in [
        ("express", old.express, new.express),
        ("mdns", old.mdns, new.mdns),
        ("centralized-discovery", old.centralized_discovery, new.centralized_discovery),
    ] {
        if was != is {
            lines.push(format!("{name} changed from {was} to {is}"));
        }
    }
    for (name, changed) in [
        ("cpus or threads", (&old.cpus, old.threads) != (&new.cpus, new.threads)),
        ("express-cpus", old.express_cpus != new.express_cpus),
        ("driver", old.driver != new.driver),
        ("idle-poll", old.idle_poll != new.idle_poll),
    ] {
        if changed {
            lines.push(format!("{name} changed, {RESTART}"));
        }
    }
}

/// Each limit: its key, its value, and which connections or controllers a change applies to.
fn limits(of: &Limits) -> [(&'static str, String, &'static str); 14] {
    let size = |bytes: u32| bytes::exact(bytes.into());
    let time = duration::exact;
    let now = "";
    [
        ("queue-entries", of.queue_entries.to_string(), NEXT_CONNECT),
        ("io-queues", of.io_queues.to_string(), NEXT_CONNECT),
        ("transfer-size", size(of.transfer_bytes), NEXT_CONNECT),
        ("in-capsule-size", size(of.in_capsule_bytes), NEXT_CONNECT),
        ("h2c-data-size", size(of.h2c_data_bytes), "for connections made from now on"),
        ("namespaces", of.namespaces.to_string(), NEXT_CONNECT),
        ("controllers", of.controllers.to_string(), NEXT_CONNECT),
        ("connections", of.connections.to_string(), now),
        ("connect-timeout", time(of.connect_timeout), now),
        ("drain-timeout", time(of.drain_timeout), now),
        ("stall-timeout", time(of.stall_timeout), now),
        ("keep-alive-min", time(of.keep_alive_min), NEXT_CONNECT),
        ("keep-alive-max", time(of.keep_alive_max), NEXT_CONNECT),
        ("pool-size", bytes::exact(of.pool_bytes as u64), RESTART),
    ]
}
