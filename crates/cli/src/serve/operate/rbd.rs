//! SPDK's methods for images of Ceph clusters.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use weft_backend::DeviceSpec;
use weft_backend::rbd::{self, CephSpec, RbdSpec};
use weft_rpc::{Code, ErrorObject, Methods};
use weft_target::config::BdevKind;
use weft_target::steps::Step;

use super::bdev;
use super::method::method;
use super::operator::Operator;
use super::parameters::Params;

type Answer = Result<Value, ErrorObject>;
type Clusters = BTreeMap<String, CephSpec>;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    type Handler = fn(&Operator, Value) -> Answer;
    let all: [(&'static str, Handler); 7] = [
        ("bdev_rbd_create", create),
        ("bdev_rbd_delete", |operator, params| bdev::delete(operator, params, BdevKind::Rbd)),
        ("bdev_rbd_resize", |operator, params| {
            bdev::resize_mebibytes(operator, params, BdevKind::Rbd)
        }),
        ("bdev_rbd_register_cluster", register_cluster),
        ("bdev_rbd_unregister_cluster", unregister_cluster),
        ("bdev_rbd_get_clusters_info", get_clusters_info),
        ("bdev_rbd_wait_for_latest_osdmap", wait_for_latest_osdmap),
    ];
    all.into_iter()
        .fold(methods, |methods, (name, handler)| method(methods, operator, name, handler))
}

fn create(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: Option<String> = params.take("name")?;
    let cluster: Option<String> = params.take("cluster_name")?;
    let given = CephSpec {
        user: params.take("user_id")?,
        config: params.take("config")?.unwrap_or_default(),
        ..CephSpec::default()
    };
    let pool: String = params.need("pool_name")?;
    let image: String = params.need("rbd_name")?;
    let namespace: Option<String> = params.take("namespace_name")?;
    let block_bytes: u32 = params.need("block_size")?;
    let read_only = params.take("read_only")?.unwrap_or(false);
    let uuid = params.parse("uuid")?;
    let ceph = match cluster {
        None => given,
        Some(_) if given != CephSpec::default() => {
            return Err(params.error("user_id and config are those of the cluster: leave them out"));
        }
        Some(name) => operator
            .with(|target| target.config().operated.ceph_clusters.get(&name).cloned())?
            .ok_or_else(|| params.error(format_args!("there is no cluster {name}")))?,
    };
    params.end()?;
    let block_bytes = Some(block_bytes);
    let spec = RbdSpec { namespace, ceph, block_bytes, read_only, ..RbdSpec::new(pool, image) };
    bdev::create(operator, BdevKind::Rbd, name, DeviceSpec::Rbd(Box::new(spec)), uuid)
}

fn register_cluster(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: String = params.need("name")?;
    let mut config: BTreeMap<String, String> = params.take("config_param")?.unwrap_or_default();
    if let Some(key_file) = params.take::<String>("key_file")? {
        config.insert("keyring".to_owned(), key_file);
    }
    let conf: Option<PathBuf> = params.take("config_file")?;
    let ceph = CephSpec { cluster: None, conf, user: params.take("user_id")?, config };
    params.refuse(&["core_mask"])?;
    params.end()?;
    operator.bdev_step(&Step::RegisterCluster { name: name.clone(), ceph })?;
    Ok(name.into())
}

fn unregister_cluster(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name = params.need("name")?;
    params.end()?;
    operator.bdev_step(&Step::UnregisterCluster { name })?;
    Ok(true.into())
}

/// Of Ceph's SPDK: its gateways ask for it before they take over from one that was fenced.
fn wait_for_latest_osdmap(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: String = params.need("name")?;
    params.end()?;
    let ceph = operator
        .with(|target| target.config().operated.ceph_clusters.get(&name).cloned())?
        .ok_or_else(|| no_cluster(&name))?;
    rbd::wait_for_latest_map(&ceph)
        .map_err(|error| ErrorObject::new(Code::INTERNAL_ERROR, error.to_string()))?;
    Ok(true.into())
}

fn no_cluster(name: &str) -> ErrorObject {
    ErrorObject::new(Code(-2), format!("No such file or directory: no cluster {name}"))
}

fn get_clusters_info(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: Option<String> = params.take("name")?;
    params.end()?;
    let clusters = operator.with(|target| target.config().operated.ceph_clusters.clone())?;
    let info = |(name, ceph): (&String, &CephSpec)| {
        let mut info = reached(ceph);
        info["cluster_name"] = name.as_str().into();
        info
    };
    match name {
        None => Ok(clusters.iter().map(info).collect()),
        Some(name) => clusters.get_key_value(&name).map(info).ok_or_else(|| no_cluster(&name)),
    }
}

/// How a cluster is reached, as SPDK says it; a key file is not told apart from other options.
fn reached(ceph: &CephSpec) -> Value {
    let mut config = ceph.config.clone();
    let key_file = config.remove("keyring");
    let mut info = json!({});
    let texts = [
        ("user_id", ceph.user.clone()),
        ("config_file", ceph.conf.as_ref().map(|path| path.display().to_string())),
        ("key_file", key_file),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            info[key] = text.into();
        }
    }
    if !config.is_empty() {
        info["config_param"] = json!(config);
    }
    info
}

/// The calls that name the clusters.
pub(super) fn cluster_calls(clusters: &Clusters) -> Vec<Value> {
    let call = |(name, ceph): (&String, &CephSpec)| {
        let mut params = reached(ceph);
        params["name"] = name.as_str().into();
        json!({ "method": "bdev_rbd_register_cluster", "params": params })
    };
    clusters.iter().map(call).collect()
}

/// The parameters that make an image's block device, beside its name and UUID.
pub(super) fn create_params(spec: &RbdSpec, block_bytes: u32, clusters: &Clusters) -> Value {
    let mut params = json!({
        "pool_name": spec.pool,
        "rbd_name": spec.image,
        "block_size": block_bytes,
    });
    if let Some(namespace) = &spec.namespace {
        params["namespace_name"] = namespace.as_str().into();
    }
    if spec.read_only {
        params["read_only"] = true.into();
    }
    match clusters.iter().find(|(_, ceph)| **ceph == spec.ceph) {
        Some((name, _)) => params["cluster_name"] = name.as_str().into(),
        None => {
            if let Some(user) = &spec.ceph.user {
                params["user_id"] = user.as_str().into();
            }
            if !spec.ceph.config.is_empty() {
                params["config"] = json!(spec.ceph.config);
            }
        }
    }
    params
}
