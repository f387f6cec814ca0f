//! `weft ctl ana`: access states of groups of namespaces.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};
use weft_target::config::{AnaState, Listen};

use super::{Session, given, list, listen_address, text, url};
use crate::{failure::Failure, names, table::Table};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Set how an address reaches the namespaces of a subsystem: optimized, non-optimized,
    /// inaccessible, persistent-loss or change.
    Set {
        /// The subsystem, which was made with ANA reporting.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: String,
        /// The address.
        #[arg(add = ArgValueCandidates::new(names::listeners))]
        url: Listen,
        /// The state.
        state: AnaState,
        /// Of this group only.
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
            Verb::Set { nqn, url, state, group } => {
                let params = given([
                    ("nqn", json!(nqn)),
                    ("listen_address", listen_address(url)),
                    ("ana_state", json!(state.word())),
                    ("anagrpid", json!(group)),
                ]);
                self.change("nvmf_subsystem_listener_set_ana_state", params)
            }
            Verb::Group { nqn, nsid, group } => {
                let params = json!({ "nqn": nqn, "nsid": nsid, "anagrpid": group });
                self.change("nvmf_subsystem_set_ns_ana_group", params)
            }
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
