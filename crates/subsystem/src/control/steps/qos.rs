//! Rules of classes.

use super::{Outcome, StepError, done};
use crate::config::{Config, QosRule};

pub(super) fn set(config: &mut Config, rule: &QosRule) -> Outcome {
    config.set_qos_rule(rule);
    done([])
}

pub(super) fn delete(config: &mut Config, rule: &QosRule) -> Outcome {
    match config.delete_qos_rule(rule) {
        true => done([]),
        false => Err(StepError::not_found(format!("there is no rule for {rule}"))),
    }
}
