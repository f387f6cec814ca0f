//! SPDK's methods for keys, which are in files and have names.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use weft_rpc::Methods;
use weft_target::Target;
use weft_target::steps::Step;

use super::method::method;
use super::operator::Operator;
use super::parameters::Params;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "keyring_get_keys", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| all(target).into())
    });
    let methods = method(methods, operator, "keyring_file_add_key", |operator, params| {
        let mut params = Params::of(params)?;
        let (name, path) = (params.need("name")?, params.need::<PathBuf>("path")?);
        params.end()?;
        operator.nvmf_step(&Step::AddKey { name, path })?;
        Ok(true.into())
    });
    method(methods, operator, "keyring_file_remove_key", |operator, params| {
        let mut params = Params::of(params)?;
        let name = params.need("name")?;
        params.end()?;
        operator.nvmf_step(&Step::RemoveKey { name })?;
        Ok(true.into())
    })
}

/// The keys with their files, as the parameters that add them.
pub(super) fn all(target: &Target) -> Vec<Value> {
    let keyring = &target.config().keyring;
    keyring.iter().map(|(name, path)| json!({ "name": name, "path": path })).collect()
}
