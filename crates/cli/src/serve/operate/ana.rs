//! SPDK's methods for Asymmetric Namespace Access.

use std::sync::Arc;

use serde_json::{Value, json};
use weft_rpc::{ErrorObject, Methods};
use weft_target::config::{AnaState, Config, Port};
use weft_target::steps::Step;

use super::method::{StepOf, steps};
use super::nvmf;
use super::operator::Operator;
use super::parameters::Params;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let all: [(&'static str, StepOf); 2] = [
        ("nvmf_subsystem_listener_set_ana_state", set_state),
        ("nvmf_subsystem_set_ns_ana_group", set_group),
    ];
    steps(methods, operator, nvmf::parameters, all)
}

/// The word for a state, as SPDK writes it.
pub(super) fn word(state: AnaState) -> String {
    state.word().replace('-', "_")
}

/// The states of a subsystem's groups at a port, if hosts are told of them.
pub(super) fn states(config: &Config, port: &Port, nqn: &str) -> Option<Vec<Value>> {
    let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)?;
    let state = |group: u32| {
        let state = config.shown_state(port.ana_state(nqn, group));
        json!({ "ana_group": group, "ana_state": word(state) })
    };
    let reports = subsystem.ana_reporting;
    reports.then(|| subsystem.ana_groups().into_iter().map(state).collect())
}

fn set_state(operator: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let nqn = nvmf::existing(operator, params)?;
    let listen = nvmf::listen(params, "listen_address")?;
    let state: Option<AnaState> = params.parse("ana_state")?;
    let state = state.ok_or_else(|| params.error("ana_state is missing"))?;
    let group = params.take("anagrpid")?.filter(|group| *group > 0);
    let listen = nvmf::as_configured(operator, listen)?;
    Ok(Step::SetAnaState { nqn, listen, group, state })
}

fn set_group(operator: &Operator, params: &mut Params) -> Result<Step, ErrorObject> {
    let nqn = nvmf::existing(operator, params)?;
    let (nsid, group) = (params.need("nsid")?, params.need("anagrpid")?);
    // SPDK's name for a group to go through, of which Ceph's gateways ask for none.
    params.refuse(&["transit_anagrpid"])?;
    Ok(Step::SetAnaGroup { nqn, nsid, group })
}
