//! Rate limits by host, subsystem and namespace, which SPDK does not have.

use std::sync::Arc;

use serde_json::Value;
use weft_rpc::{ErrorObject, Methods};
use weft_target::config::RateLimit;
use weft_target::steps::Step;

use super::error::invalid;
use super::method::method;
use super::operator::Operator;
use super::parameters::{Params, parameters_of};

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

fn parse(params: Value) -> Result<RateLimit, ErrorObject> {
    let mut params = Params::of(params)?;
    let limit = params.object_of(&[], &RateLimit::default())?;
    params.end()?;
    Ok(limit)
}

/// A limit as the parameters that set it.
pub(super) fn as_json(limit: &RateLimit) -> Value {
    parameters_of(limit, &[]).into()
}
