//! SPDK's methods for namespaces that not every host sees, and the one that Ceph's SPDK has.

use std::sync::Arc;

use serde_json::{Value, json};
use weft_rpc::{ErrorObject, Methods};
use weft_target::config::Namespace;
use weft_target::steps::{NamespaceVisibility, Step};

use super::method::method;
use super::nvmf;
use super::operator::Operator;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "nvmf_ns_add_host", add_host);
    let methods = method(methods, operator, "nvmf_ns_remove_host", remove_host);
    method(methods, operator, "nvmf_subsystem_set_ns_visibility", set)
}

/// Shows a namespace's hosts in its object, if not every host sees it.
pub(super) fn show(namespace: &Namespace, json: &mut Value) {
    if let Some(hosts) = &namespace.visible_to {
        json["no_auto_visible"] = true.into();
        json["hosts"] = hosts.iter().map(|host| json!({ "nqn": host })).collect();
    }
}

fn add_host(operator: &Operator, params: Value) -> Result<Value, ErrorObject> {
    change(operator, params, NamespaceVisibility::To)
}

fn remove_host(operator: &Operator, params: Value) -> Result<Value, ErrorObject> {
    change(operator, params, NamespaceVisibility::NotTo)
}

fn change(
    operator: &Operator,
    params: Value,
    visible: fn(String) -> NamespaceVisibility,
) -> Result<Value, ErrorObject> {
    let mut params = nvmf::parameters(params)?;
    let (nqn, nsid) = (params.need("nqn")?, params.need("nsid")?);
    let visible = visible(params.need("host")?);
    params.end()?;
    operator.nvmf_step(&Step::SetVisible { nqn, nsid, visible })?;
    Ok(true.into())
}

fn set(operator: &Operator, params: Value) -> Result<Value, ErrorObject> {
    let mut params = nvmf::parameters(params)?;
    let (nqn, nsid) = (params.need("nqn")?, params.need("nsid")?);
    let auto_visible: bool = params.need("auto_visible")?;
    params.end()?;
    let visible =
        if auto_visible { NamespaceVisibility::ToAll } else { NamespaceVisibility::ToListed };
    operator.nvmf_step(&Step::SetVisible { nqn, nsid, visible })?;
    Ok(true.into())
}
