//! The calls that ceph-nvmeof makes of SPDK's target, with its parameters and in its order: from
//! the start of a gateway to a namespace in use, a fail-over, and back to nothing.
//!
//! As read from its source of October 2024; the daemon itself is not run.

use super::served::Scene;
use crate::python::succeeded;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f7f-4856-b0b3-51e60b8de349";
const UUID: &str = "9f0bbd5c-2a8c-4e7b-8d83-3f3f6a3d7a11";

/// What weft refuses, which docs/ceph.md has as gaps.
const GAPS: [&str; 1] = ["bdev_rbd_register_cluster with core_mask"];

pub(super) fn calls(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M nvmeof")?;
    let served = scene.serve_nothing("nvmeof")?;
    let key = scene.folder.join("dhchap.key");
    let _ = std::fs::remove_file(&key);
    succeeded(scene.command().args(["key", "generate", "dhchap"]).arg(&key))?;
    let mut refused = Vec::new();
    for (name, method, params) in conversation(served.port, &key.display().to_string()) {
        match served.call(method, &params) {
            Ok(_) if GAPS.contains(&name) => bail!("{name} is answered: it is no gap any more"),
            Err(error) if !GAPS.contains(&name) => refused.push(format!("{name}: {error:#}")),
            _ => {}
        }
    }
    ensure!(refused.is_empty(), "refused: {}", refused.join("\n"));
    served.stop()
}

/// A name, a method and its parameters.
type Call = (&'static str, &'static str, Value);

fn conversation(port: u16, key: &str) -> Vec<Call> {
    [start(), serve(port), use_it(key), end(port)].concat()
}

fn same(method: &'static str, params: Value) -> Call {
    (method, method, params)
}

/// Parameters with the address of the listener.
fn listener(port: u16, more: Value) -> Value {
    let mut params = json!({ "nqn": NQN, "listen_address": { "trtype": "TCP",
        "traddr": "127.0.0.1", "trsvcid": port.to_string(), "adrfam": "ipv4" } });
    for (name, value) in more.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    params
}

fn start() -> Vec<Call> {
    let options = json!({ "trtype": "TCP", "in_capsule_data_size": 8192,
        "max_io_qpairs_per_ctrlr": 7 });
    let discovery = json!({ "nqn": "nqn.2014-08.org.nvmexpress.discovery" });
    vec![
        same("spdk_get_version", json!({})),
        same("nvmf_create_transport", options),
        // For a discovery service of its own.
        ("nvmf_delete_subsystem of discovery", "nvmf_delete_subsystem", discovery),
        same("log_get_flags", json!({})),
        same("log_set_level", json!({ "level": "NOTICE" })),
        same("log_set_print_level", json!({ "level": "NOTICE" })),
        same("log_get_level", json!({})),
        same("log_get_print_level", json!({})),
    ]
}

fn serve(port: u16) -> Vec<Call> {
    let masked = json!({ "name": "masked", "user_id": "weft", "core_mask": "0x1" });
    let image = json!({ "name": "bdev", "cluster_name": "cluster", "pool_name": "rbd",
        "rbd_name": "nvmeof", "block_size": 512, "uuid": UUID });
    let subsystem = json!({ "nqn": NQN, "serial_number": "Ceph1", "max_namespaces": 256,
        "model_number": "Ceph bdev Controller", "min_cntlid": 1, "max_cntlid": 2040,
        "ana_reporting": true, "allow_any_host": false });
    let namespace = json!({ "bdev_name": "bdev", "nsid": 1, "anagrpid": 1, "uuid": UUID,
        "no_auto_visible": true });
    let state = "nvmf_subsystem_listener_set_ana_state";
    let all = listener(port, json!({ "ana_state": "inaccessible" }));
    let one = listener(port, json!({ "ana_state": "optimized", "anagrpid": 1 }));
    vec![
        ("bdev_rbd_register_cluster with core_mask", "bdev_rbd_register_cluster", masked),
        same("bdev_rbd_register_cluster", json!({ "name": "cluster", "user_id": "weft" })),
        same("bdev_rbd_create", image),
        same("bdev_get_bdevs", json!({ "name": "bdev" })),
        same("nvmf_create_subsystem", subsystem),
        same("nvmf_subsystem_add_listener", listener(port, json!({}))),
        ("all groups are inaccessible", state, all),
        same("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": namespace })),
        same("bdev_rbd_wait_for_latest_osdmap", json!({ "name": "cluster" })),
        ("one group is optimized", state, one),
    ]
}

fn use_it(key: &str) -> Vec<Call> {
    let host = json!({ "nqn": NQN, "host": HOST, "dhchap_key": "dhchap" });
    let of_host = json!({ "nqn": NQN, "nsid": 1, "host": HOST });
    let limits = json!({ "name": "bdev", "rw_ios_per_sec": 1000, "rw_mbytes_per_sec": 10,
        "r_mbytes_per_sec": 5, "w_mbytes_per_sec": 5 });
    let group = json!({ "nqn": NQN, "nsid": 1, "anagrpid": 2, "transit_anagrpid": 0 });
    vec![
        same("keyring_file_add_key", json!({ "name": "dhchap", "path": key })),
        same("keyring_get_keys", json!({})),
        same("nvmf_subsystem_add_host", host),
        same("nvmf_ns_add_host", of_host.clone()),
        same("nvmf_get_subsystems", json!({ "nqn": NQN })),
        same("nvmf_subsystem_get_qpairs", json!({ "nqn": NQN })),
        same("nvmf_subsystem_get_controllers", json!({ "nqn": NQN })),
        same("bdev_get_iostat", json!({ "name": "bdev" })),
        same("bdev_set_qos_limit", limits),
        same("bdev_rbd_resize", json!({ "name": "bdev", "new_size": 32 })),
        // As it balances the load of its gateways.
        same("nvmf_subsystem_set_ns_ana_group", group),
        same("nvmf_ns_remove_host", of_host),
        same("nvmf_subsystem_remove_host", json!({ "nqn": NQN, "host": HOST })),
        same("keyring_file_remove_key", json!({ "name": "dhchap" })),
    ]
}

fn end(port: u16) -> Vec<Call> {
    vec![
        same("nvmf_subsystem_allow_any_host", json!({ "nqn": NQN, "allow_any_host": true })),
        same("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 1 })),
        same("bdev_rbd_delete", json!({ "name": "bdev" })),
        same("nvmf_subsystem_remove_listener", listener(port, json!({}))),
        same("nvmf_delete_subsystem", json!({ "nqn": NQN })),
        same("bdev_rbd_unregister_cluster", json!({ "name": "cluster" })),
    ]
}
