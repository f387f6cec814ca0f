//! SPDK's methods for namespaces that not every host sees, and the one that Ceph's SPDK has.

use std::sync::Arc;

use serde_json::{Value, json};
use weft_rpc::{ErrorObject, Methods};
use weft_target::config::Namespace;
use weft_target::steps::{NamespaceVisibility, Step};

use super::method::{StepOf, steps};
use super::nvmf;
use super::operator::Operator;
use super::parameters::Params;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let all: [(&'static str, StepOf); 3] = [
        ("nvmf_ns_add_host", |_, params| {
            let host = params.need("host")?;
            step(params, NamespaceVisibility::To(host))
        }),
        ("nvmf_ns_remove_host", |_, params| {
            let host = params.need("host")?;
            step(params, NamespaceVisibility::NotTo(host))
        }),
        ("nvmf_subsystem_set_ns_visibility", |_, params| {
            let visible = match params.need("auto_visible")? {
                true => NamespaceVisibility::ToAll,
                false => NamespaceVisibility::ToListed,
            };
            step(params, visible)
        }),
    ];
    steps(methods, operator, nvmf::parameters, all)
}

/// Shows a namespace's hosts in its object, if not every host sees it.
pub(super) fn show(namespace: &Namespace, json: &mut Value) {
    if let Some(hosts) = &namespace.visible_to {
        json["no_auto_visible"] = true.into();
        json["hosts"] = hosts.iter().map(|host| json!({ "nqn": host })).collect();
    }
}

fn step(params: &mut Params, visible: NamespaceVisibility) -> Result<Step, ErrorObject> {
    let (nqn, nsid) = (params.need("nqn")?, params.need("nsid")?);
    Ok(Step::SetVisible { nqn, nsid, visible })
}
