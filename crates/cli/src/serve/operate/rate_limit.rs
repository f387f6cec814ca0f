//! Rate limits by host, subsystem and namespace, which SPDK does not have.

use std::sync::Arc;

use serde_json::Value;
use weft_rpc::Methods;
use weft_target::config::RateLimit;
use weft_target::steps::Step;

use super::error::invalid;
use super::method::{StepOf, method, steps};
use super::operator::Operator;
use super::parameters::{Params, parameters_of};

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = method(methods, operator, "rate_limit_get_all", |operator, params| {
        Params::of(params)?.end()?;
        operator.with(|target| target.config().rate_limits.iter().map(as_json).collect())
    });
    let all: [(&'static str, StepOf); 2] = [
        ("rate_limit_set", |_, params| {
            Ok(Step::SetRateLimit(params.object_of(&[], &Box::default())?))
        }),
        ("rate_limit_delete", |_, params| {
            let limit: Box<RateLimit> = params.object_of(&[], &Box::default())?;
            if limit.rate.is_some() || limit.rate_iops.is_some() {
                let what = "give host, subsystem, nsid and rw of the limit, not its rates";
                return Err(invalid(what));
            }
            Ok(Step::DeleteRateLimit(limit))
        }),
    ];
    steps(methods, operator, Params::of, all)
}

/// A limit as the parameters that set it.
pub(super) fn as_json(limit: &RateLimit) -> Value {
    parameters_of(limit, &[]).into()
}
