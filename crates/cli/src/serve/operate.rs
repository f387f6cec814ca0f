//! A target that is changed while it runs: by SPDK's methods, by ours, and by reloads.

mod ana;
mod bdev;
mod config;
pub(super) mod error;
mod found;
mod framework;
mod keyring;
pub(super) mod method;
mod nvmf;
pub(super) mod operator;
pub(super) mod parameters;
mod qos;
mod rate_limit;
mod rbd;
mod registration;
mod trace;
mod visibility;

use std::sync::Arc;

use weft_rpc::Methods;

use super::pair;
use operator::Operator;

/// SPDK's methods, and those of ours beside them.
pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let methods = rbd::methods(bdev::methods(methods, operator), operator);
    let methods = ana::methods(nvmf::methods(methods, operator), operator);
    let methods = qos::methods(rate_limit::methods(methods, operator), operator);
    let methods = keyring::methods(visibility::methods(methods, operator), operator);
    let methods = framework::methods(pair::methods(methods, operator), operator);
    let methods = registration::methods(methods, operator);
    framework::with_names(trace::methods(methods, operator))
}
