//! `weft ctl ana`: access states of groups of namespaces.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use serde::Serialize;
use serde_json::{Value, json};
use weft_target::config::{AnaState, Listen};

use super::session::{Session, as_address, list, text, url};
use crate::failure::Failure;
use crate::names;
use crate::table::Table;

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
pub(super) enum Verb {
    /// Set how an address reaches the namespaces of a subsystem: optimized, non-optimized,
    /// inaccessible, persistent-loss or change.
    Set {
        /// The subsystem, which was made with ANA reporting.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The address.
        #[serde(rename = "listen_address", serialize_with = "as_address")]
        #[arg(add = ArgValueCandidates::new(names::listeners))]
        url: Listen,
        /// The state.
        #[serde(rename = "ana_state")]
        state: AnaState,
        /// Of this group only.
        #[serde(rename = "anagrpid")]
        #[arg(long)]
        group: Option<u32>,
    },
    /// Put a namespace into another group.
    Group {
        /// The subsystem.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The namespace.
        #[arg(add = ArgValueCandidates::new(names::namespaces))]
        nsid: u32,
        /// The group.
        #[serde(rename = "anagrpid")]
        group: u32,
    },
    /// List the states.
    List {
        /// Of this subsystem only.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
}

impl Session {
    pub(super) fn ana(&mut self, verb: &Verb) -> Result<(), Failure> {
        match verb {
            Verb::Set { .. } => self.change("nvmf_subsystem_listener_set_ana_state", verb),
            Verb::Group { .. } => self.change("nvmf_subsystem_set_ns_ana_group", verb),
            Verb::List { nqn } => self.ana_states(nqn.as_deref()),
        }
    }

    /// The states of every group at every address, with the namespaces of the group.
    fn ana_states(&mut self, nqn: Option<&str>) -> Result<(), Failure> {
        let mut table = Table::new(&["subsystem", "address", ">group", "state", "namespaces"]);
        let mut all = Vec::new();
        for subsystem in self.subsystems(nqn)? {
            let params = json!({ "nqn": subsystem["nqn"] });
            for listener in list(&self.call("nvmf_subsystem_get_listeners", params)?) {
                for one in list(&listener["ana_states"]) {
                    let namespaces = list(&subsystem["namespaces"]).iter();
                    let within = namespaces.filter(|other| other["anagrpid"] == one["ana_group"]);
                    let nsids: Vec<Value> = within.map(|other| other["nsid"].clone()).collect();
                    let state = text(&one["ana_state"]).replace('_', "-");
                    table.row(vec![
                        text(&subsystem["nqn"]),
                        url(&listener["address"]),
                        text(&one["ana_group"]),
                        state.clone(),
                        nsids.iter().map(text).collect::<Vec<_>>().join(" "),
                    ]);
                    all.push(json!({
                        "subsystem": subsystem["nqn"],
                        "address": url(&listener["address"]),
                        "group": one["ana_group"],
                        "state": state,
                        "namespaces": nsids,
                    }));
                }
            }
        }
        self.show(&all.into(), &table.text())
    }
}
