//! A method of the control socket, and what several of them show.

use std::sync::Arc;

use serde_json::{Value, json};
use weft_rpc::{ErrorObject, Methods};
use weft_target::steps::{Step, StepOutcome};
use weft_target::{config as served, key_file};

use super::operator::Operator;
use super::parameters::Params;

/// A method that works on the target.
pub(in crate::serve) fn method(
    methods: Methods,
    operator: &Arc<Operator>,
    name: &'static str,
    handler: impl Fn(&Operator, Value) -> Result<Value, ErrorObject> + Send + Sync + 'static,
) -> Methods {
    let operator = Arc::clone(operator);
    // What only reads is named so.
    let changes = !name.contains("_get_") && !name.contains("_wait_");
    methods.with_named(name, move |caller, params| {
        let told = if changes { without_secrets(&params).to_string() } else { String::new() };
        let outcome = handler(&operator, params);
        match &outcome {
            Ok(_) if changes => log::info!("control: {caller}: {name} {told}"),
            Err(error) if changes => log::warn!("control: {caller}: {name} {told}: {error}"),
            _ => {}
        }
        outcome
    })
}

/// The step that the parameters of a call name.
pub(super) type StepOf = fn(&Operator, &mut Params) -> Result<Step, ErrorObject>;

/// Methods that make one step each, and leave no parameter.
pub(super) fn steps<const N: usize>(
    methods: Methods,
    operator: &Arc<Operator>,
    read: fn(Value) -> Result<Params, ErrorObject>,
    all: [(&'static str, StepOf); N],
) -> Methods {
    all.into_iter().fold(methods, |methods, (name, step_of)| {
        method(methods, operator, name, move |operator, params| {
            let mut params = read(params)?;
            let step = step_of(operator, &mut params)?;
            params.end()?;
            Ok(match operator.nvmf_step(&step)? {
                StepOutcome::Nsid(nsid) => nsid.into(),
                StepOutcome::Done => true.into(),
            })
        })
    })
}

/// The name of a poll group's thread. Monitors of SPDK look for the threads that poll by this word.
pub(super) fn thread_name(group: usize) -> String {
    format!("weft-poll-group-{group}")
}

/// Parameters as they may be logged. Keys are given by name, but somebody may give one itself.
fn without_secrets(params: &Value) -> Value {
    match params {
        Value::String(text) if key_file::is_key(text) || text.contains("config.key=") => {
            "(a key)".into()
        }
        Value::Array(items) => items.iter().map(without_secrets).collect(),
        Value::Object(map) => {
            let shown = |(name, value): (&String, &Value)| {
                // Ceph's secret key.
                let is_secret = name == "key";
                let value = if is_secret { "(a key)".into() } else { without_secrets(value) };
                (name.clone(), value)
            };
            map.iter().map(shown).collect()
        }
        other => other.clone(),
    }
}

/// A transport address as SPDK shows it.
pub(super) fn address_json(
    transport: weft_target::config::Transport,
    at: std::net::SocketAddr,
) -> Value {
    json!({
        "trtype": transport.to_string().to_uppercase(),
        "adrfam": if at.is_ipv4() { "IPv4" } else { "IPv6" },
        "traddr": served::traddr(at),
        "trsvcid": at.port().to_string(),
    })
}
