//! Rules that give queues a class, which SPDK does not have.

use std::sync::Arc;

use serde_json::Value;
use weft_rpc::Methods;
use weft_target::config::{QosClass, QosRule, replaced_key};
use weft_target::steps::Step;

use super::error::invalid;
use super::method::{StepOf, method, steps};
use super::operator::Operator;
use super::parameters::{Params, parameters_of};

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "qos_get_all", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| target.config().qos_rules.iter().map(as_json).collect())
    });
    let all: [(&'static str, StepOf); 2] = [
        ("qos_set", |_, params| {
            if let Some(sentence) = params.names().find_map(replaced_key) {
                return Err(invalid(sentence));
            }
            let rule = QosRule::new(params.need("class")?);
            Ok(Step::SetQosRule(Box::new(params.object_of(&[], &rule)?)))
        }),
        ("qos_delete", |_, params| {
            if ["class", "weight"].iter().any(|name| params.has(name)) {
                return Err(invalid("give host, subsystem and port of the rule, not its class"));
            }
            let rule = QosRule::new(QosClass::Throughput);
            Ok(Step::DeleteQosRule(Box::new(params.object_of(&[], &rule)?)))
        }),
    ];
    steps(methods, operator, Params::of, all)
}

/// A rule as the parameters that set it.
pub(super) fn as_json(rule: &QosRule) -> Value {
    parameters_of(rule, &[]).into()
}
