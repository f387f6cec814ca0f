//! The configuration as the calls that make it, which is how SPDK saves one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;
use weft_backend::DeviceSpec;
use weft_backend::rbd::CephSpec;
use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_rpc::{ErrorObject, Methods};
use weft_target::Target;
use weft_target::config::{
    AnaState, BdevKind, Config, Namespace, Referral, Subsystem, implied_bdev_name,
};
use weft_target::steps::DISCOVERY_NQN;

use super::error::invalid;
use super::found::{NamedBdev, bdevs};
use super::method::{address_json, method};
use super::operator::Operator;
use super::parameters::{Params, parameters_of};
use super::{ana, bdev, keyring, nvmf, qos, rate_limit, rbd};

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "framework_get_subsystems", |_, params| {
        Params::of(params)?.end()?;
        Ok(json!([
            { "subsystem": "keyring", "depends_on": [] },
            { "subsystem": "bdev", "depends_on": ["keyring"] },
            { "subsystem": "nvmf", "depends_on": ["bdev", "keyring"] },
        ]))
    });
    method(methods, operator, "framework_get_config", |operator, params| {
        let mut params = Params::of(params)?;
        let name: String = params.need("name")?;
        // Batches save SPDK round trips; a list without them makes the same.
        params.ignore(&["with_batches"]);
        params.end()?;
        match name.as_str() {
            "bdev" => operator.with(|target| {
                let found = bdevs(target);
                let clusters = &target.config().operated.ceph_clusters;
                let made = found.iter().map(|bdev| bdev_call(bdev, clusters));
                let limited = found.iter().filter_map(limits_call);
                rbd::cluster_calls(clusters).into_iter().chain(made).chain(limited).collect()
            }),
            "keyring" => operator.with(|target| {
                let keys = keyring::all(target).into_iter();
                keys.map(|params| call("keyring_file_add_key", params)).collect()
            }),
            "nvmf" => operator.with(|target| nvmf_calls(target).into()),
            _ => Err(no_subsystem(&name)),
        }
    })
}

fn no_subsystem(name: &str) -> ErrorObject {
    invalid(format_args!("there is no {name:?}; framework_get_subsystems lists what there is"))
}

fn call(method: &str, params: Value) -> Value {
    json!({ "method": method, "params": params })
}

/// The call that makes a block device.
fn bdev_call(bdev: &NamedBdev, clusters: &BTreeMap<String, CephSpec>) -> Value {
    let uuid = Uuid::from_bytes(bdev.uuid).to_string();
    let name = &bdev.name;
    let sized = json!({
        "name": name,
        "num_blocks": bdev.blocks,
        "block_size": bdev.block_bytes,
        "uuid": uuid,
    });
    match (bdev.kind, &bdev.device) {
        (BdevKind::Malloc, _) => call("bdev_malloc_create", sized),
        (BdevKind::Null, _) => call("bdev_null_create", sized),
        (kind @ (BdevKind::Aio | BdevKind::Uring), device) => {
            let (block_bytes, read_only) = match device {
                DeviceSpec::File { block_bytes, read_only, .. } => (*block_bytes, *read_only),
                DeviceSpec::Block { read_only, .. } => (None, *read_only),
                _ => (None, false),
            };
            let filename = device.path().map(|path| path.display().to_string());
            let mut params = json!({ "name": name, "filename": filename, "uuid": uuid });
            if let Some(bytes) = block_bytes {
                params["block_size"] = bytes.into();
            }
            if read_only {
                params["readonly"] = true.into();
            }
            call(&format!("bdev_{}_create", kind.word()), params)
        }
        (BdevKind::Rbd, DeviceSpec::Rbd(spec)) => {
            let mut params = rbd::create_params(spec, bdev.block_bytes, clusters);
            params["name"] = name.as_str().into();
            params["uuid"] = uuid.into();
            call("bdev_rbd_create", params)
        }
        (BdevKind::Delay, _) => {
            let mut params = bdev::delay_params(bdev);
            params["uuid"] = uuid.into();
            call("bdev_delay_create", params)
        }
        (BdevKind::Device | BdevKind::Rbd, device) => {
            let params = json!({ "name": name, "device": device.to_string(), "uuid": uuid });
            call("bdev_device_create", params)
        }
    }
}

/// The call that limits a block device, if any limit is set.
fn limits_call(bdev: &NamedBdev) -> Option<Value> {
    let mut params = json!(bdev.limits);
    let set = params.as_object_mut()?;
    set.retain(|_, limit| *limit != 0);
    if set.is_empty() {
        return None;
    }
    set.insert("name".to_owned(), bdev.name.clone().into());
    Some(call("bdev_set_qos_limit", params))
}

fn nvmf_calls(target: &Target) -> Vec<Value> {
    let config = target.config();
    let most = config.operated.subsystems_max;
    let limit = most.map(|most| call("nvmf_set_max_subsystems", json!({ "max_subsystems": most })));
    let transports = nvmf::transports(config)
        .map(|one| call("nvmf_create_transport", nvmf::transport_json(one, config)));
    let lists = authentication(config).map(|params| call("nvmf_set_config", params));
    let mut calls: Vec<Value> = lists.into_iter().chain(limit).chain(transports).collect();
    if config.operated.without_discovery {
        calls.push(call("nvmf_delete_subsystem", json!({ "nqn": DISCOVERY_NQN })));
    }
    for subsystem in &config.subsystems {
        subsystem_calls(target, subsystem, &mut calls);
    }
    let names = config.subsystems.iter().map(|subsystem| subsystem.nqn.as_str());
    for nqn in std::iter::once(DISCOVERY_NQN).chain(names) {
        for port in nvmf::ports(target, nqn) {
            let address = address_json(port.listen.transport, nvmf::address(target, port));
            let secure = port.tls != TlsMode::Off;
            let mut params =
                json!({ "nqn": nqn, "listen_address": address, "secure_channel": secure });
            // Where this is not known, hosts without TLS are not served.
            if port.tls == TlsMode::Allowed {
                params["tls"] = port.tls.name().into();
            }
            if port.tls_records != TlsRecords::User {
                params["tls_records"] = port.tls_records.name().into();
            }
            calls.push(call("nvmf_subsystem_add_listener", params));
        }
    }
    for subsystem in config.subsystems.iter().filter(|subsystem| subsystem.ana_reporting) {
        ana_calls(target, subsystem, &mut calls);
    }
    // A file names one at each of its ports, and a call is for all ports.
    let mut referrals: Vec<&Referral> = Vec::new();
    for referral in config.referrals() {
        if !referrals.iter().any(|known| known.is_to_that_of(referral)) {
            referrals.push(referral);
            calls.push(call("nvmf_discovery_add_referral", nvmf::referral_json(referral)));
        }
    }
    calls.extend(
        config.rate_limits.iter().map(|limit| call("rate_limit_set", rate_limit::as_json(limit))),
    );
    calls.extend(config.qos_rules.iter().map(|rule| call("qos_set", qos::as_json(rule))));
    calls
}

/// What hosts without lists of their own authenticate themselves with, unless it is everything.
fn authentication(config: &Config) -> Option<Value> {
    fn words(all: &[impl ToString]) -> Value {
        all.iter().map(ToString::to_string).collect()
    }
    let (hashes, groups) = (&config.operated.dhchap_hashes, &config.operated.dhchap_groups);
    let mut params = json!({ "dhchap_digests": words(hashes), "dhchap_dhgroups": words(groups) });
    let set = params.as_object_mut()?;
    set.retain(|_, words| *words != json!([]));
    (!set.is_empty()).then_some(params)
}

/// The calls that set the access states of a subsystem's groups.
fn ana_calls(target: &Target, subsystem: &Subsystem, calls: &mut Vec<Value>) {
    let nqn = &subsystem.nqn;
    for (port, (transport, at)) in nvmf::ports(target, nqn).zip(nvmf::listeners(target, nqn)) {
        for group in subsystem.ana_groups() {
            let state = port.ana_state(nqn, group);
            if state != AnaState::Optimized {
                let params = json!({
                    "nqn": nqn,
                    "listen_address": address_json(transport, at),
                    "ana_state": ana::word(state),
                    "anagrpid": group,
                });
                calls.push(call("nvmf_subsystem_listener_set_ana_state", params));
            }
        }
    }
}

/// The calls that make a subsystem, without its listeners.
fn subsystem_calls(target: &Target, subsystem: &Subsystem, calls: &mut Vec<Value>) {
    let nqn = &subsystem.nqn;
    let (first, last) = subsystem.controller_ids(target.config().pair.as_ref());
    let whole = Subsystem {
        serial: Some(subsystem.serial()),
        cntlid_min: Some(first),
        cntlid_max: Some(last),
        ..subsystem.clone()
    };
    let mut params: Value = parameters_of(&whole, nvmf::SUBSYSTEM).into();
    params["allow_any_host"] = subsystem.allowed_hosts.is_none().into();
    params["model_number"] = subsystem.model.as_str().into();
    calls.push(call("nvmf_create_subsystem", params));
    for mut params in nvmf::hosts_json(subsystem, nvmf::HOST) {
        params["nqn"] = nqn.as_str().into();
        calls.push(call("nvmf_subsystem_add_host", params));
    }
    for namespace in &subsystem.namespaces {
        let Some(served) = target.namespace(nqn, namespace.nsid) else { continue };
        let bdev = namespace.bdev.clone();
        let whole = Namespace {
            bdev: bdev.or_else(|| Some(implied_bdev_name(nqn, namespace.nsid))),
            nguid: Some(served.nguid),
            uuid: Some(served.uuid),
            ..namespace.clone()
        };
        let mut of: Value = parameters_of(&whole, nvmf::NAMESPACE).into();
        // In the form that SPDK reads.
        of["nguid"] = nvmf::hex(&served.nguid).into();
        if let Some(eui64) = namespace.eui64 {
            of["eui64"] = nvmf::hex(&eui64).into();
        }
        if namespace.visible_to.is_some() {
            of["no_auto_visible"] = true.into();
        }
        calls.push(call("nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": of })));
        for host in namespace.visible_to.iter().flatten() {
            let params = json!({ "nqn": nqn, "nsid": namespace.nsid, "host": host });
            calls.push(call("nvmf_ns_add_host", params));
        }
    }
}
