//! Rate limits by host, subsystem and namespace, which SPDK does not have.

use std::sync::Arc;

use serde_json::{Map, Value};
use weft_rpc::{ErrorObject, Methods};
use weft_target::{config::RateLimit, steps::Step};

use super::{Operator, invalid, method, parameters::Params};

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "rate_limit_get_all", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| target.config().rate_limits.iter().map(as_json).collect())
    });
    let methods = method(methods, operator, "rate_limit_set", |operator, params| {
        operator.nvmf_step(&Step::SetRateLimit(Box::new(parse(params)?)))?;
        Ok(true.into())
    });
    method(methods, operator, "rate_limit_delete", |operator, params| {
        let limit = parse(params)?;
        if limit.rate.is_some() || limit.rate_iops.is_some() {
            return Err(invalid("give host, subsystem, nsid and rw of the limit, not its rates"));
        }
        operator.nvmf_step(&Step::DeleteRateLimit(Box::new(limit)))?;
        Ok(true.into())
    })
}

/// The keys of a `[[rate-limit]]` as parameters: with underscores, as those of other methods.
fn parse(params: Value) -> Result<RateLimit, ErrorObject> {
    serde_json::from_value(keys(params)?.into()).map_err(invalid)
}

/// Parameters as the keys of a configuration that they stand for.
pub(super) fn keys(params: Value) -> Result<Map<String, Value>, ErrorObject> {
    let keys = match params {
        Value::Null => Map::new(),
        Value::Object(keys) => keys,
        _ => return Err(invalid("give them by name")),
    };
    let given = keys.into_iter().filter(|(_, value)| !value.is_null());
    Ok(given.map(|(key, value)| (key.replace('_', "-"), value)).collect())
}

/// A limit as the parameters that set it.
pub(super) fn as_json(limit: &RateLimit) -> Value {
    let Ok(Value::Object(keys)) = serde_json::to_value(limit) else { return Value::Null };
    let mut json: Map<_, _> =
        keys.into_iter().map(|(key, value)| (key.replace('-', "_"), value)).collect();
    if let Some(rate) = limit.rate {
        json.insert("rate".to_owned(), rate.into());
    }
    json.into()
}
