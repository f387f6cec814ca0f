//! SPDK's methods for keys, which are in files and have names.

use std::sync::Arc;

use serde_json::{Value, json};
use weft_rpc::Methods;
use weft_target::Target;
use weft_target::steps::Step;

use super::method::{StepOf, method, steps};
use super::operator::Operator;
use super::parameters::Params;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "keyring_get_keys", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| all(target).into())
    });
    let all: [(&'static str, StepOf); 2] = [
        ("keyring_file_add_key", |_, params| {
            Ok(Step::AddKey { name: params.need("name")?, path: params.need("path")? })
        }),
        ("keyring_file_remove_key", |_, params| Ok(Step::RemoveKey { name: params.need("name")? })),
    ];
    steps(methods, operator, Params::of, all)
}

/// The keys with their files, as the parameters that add them.
pub(super) fn all(target: &Target) -> Vec<Value> {
    let keyring = &target.config().keyring;
    keyring.iter().map(|(name, path)| json!({ "name": name, "path": path })).collect()
}
