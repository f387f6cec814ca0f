//! Rules that give queues a class, which SPDK does not have.

use std::sync::Arc;

use serde_json::{Map, Value};
use weft_rpc::{ErrorObject, Methods};
use weft_target::{
    config::{QosClass, QosRule, replaced_key},
    steps::Step,
};

use super::{Operator, invalid, method, parameters::Params, rate_limit};

/// What a rule gives.
const KEYS: [&str; 2] = ["class", "weight"];

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "qos_get_all", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| target.config().qos_rules.iter().map(as_json).collect())
    });
    let methods = method(methods, operator, "qos_set", |operator, params| {
        operator.nvmf_step(&Step::SetQosRule(Box::new(parse(rate_limit::keys(params)?)?)))?;
        Ok(true.into())
    });
    method(methods, operator, "qos_delete", |operator, params| {
        let mut keys = rate_limit::keys(params)?;
        if KEYS.iter().any(|key| keys.contains_key(*key)) {
            return Err(invalid("give host, subsystem and port of the rule, not its class"));
        }
        keys.insert("class".to_owned(), QosClass::Throughput.word().into());
        operator.nvmf_step(&Step::DeleteQosRule(Box::new(parse(keys)?)))?;
        Ok(true.into())
    })
}

fn parse(keys: Map<String, Value>) -> Result<QosRule, ErrorObject> {
    serde_json::from_value(keys.into()).map_err(|error| {
        let error = error.to_string();
        invalid(replaced_key(&error).unwrap_or(error))
    })
}

/// A rule as the parameters that set it.
pub(super) fn as_json(rule: &QosRule) -> Value {
    let Ok(Value::Object(keys)) = serde_json::to_value(rule) else { return Value::Null };
    keys.into_iter().map(|(key, value)| (key.replace('-', "_"), value)).collect()
}
