//! Rules that give queues a class, which SPDK does not have.

use std::sync::Arc;

use serde_json::Value;
use weft_rpc::Methods;
use weft_target::config::{QosClass, QosRule, replaced_key};
use weft_target::steps::Step;

use super::error::invalid;
use super::method::method;
use super::operator::Operator;
use super::parameters::{Params, parameters_of};

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "qos_get_all", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| target.config().qos_rules.iter().map(as_json).collect())
    });
    let methods = method(methods, operator, "qos_set", |operator, params| {
        let mut params = Params::of(params)?;
        if let Some(sentence) =
            params.names().find_map(|name| replaced_key(&name.replace('_', "-")))
        {
            return Err(invalid(sentence));
        }
        let class = params.need("class")?;
        let rule = params.object_of(&[], &QosRule::new(class))?;
        params.end()?;
        operator.nvmf_step(&Step::SetQosRule(Box::new(rule)))?;
        Ok(true.into())
    });
    method(methods, operator, "qos_delete", |operator, params| {
        let mut params = Params::of(params)?;
        if ["class", "weight"].iter().any(|name| params.has(name)) {
            return Err(invalid("give host, subsystem and port of the rule, not its class"));
        }
        let rule = params.object_of(&[], &QosRule::new(QosClass::Throughput))?;
        params.end()?;
        operator.nvmf_step(&Step::DeleteQosRule(Box::new(rule)))?;
        Ok(true.into())
    })
}

/// A rule as the parameters that set it.
pub(super) fn as_json(rule: &QosRule) -> Value {
    parameters_of(rule, &[]).into()
}
