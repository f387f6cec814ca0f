//! `weft ctl controller`: what hosts have connected.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use serde_json::json;

use super::session::{Session, list, text};
use crate::failure::Failure;
use crate::names;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the controllers.
    List {
        /// Of this subsystem only.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
}

impl Session {
    pub(super) fn controllers(&mut self, nqn: Option<&str>) -> Result<(), Failure> {
        let mut table = Table::new(&["subsystem", ">controller", "host", ">queues"]);
        let mut all = Vec::new();
        for subsystem in self.subsystems(nqn)? {
            let params = json!({ "nqn": subsystem["nqn"] });
            let controllers = self.call("nvmf_subsystem_get_controllers", params)?;
            for one in list(&controllers) {
                table.row(vec![
                    text(&subsystem["nqn"]),
                    text(&one["cntlid"]),
                    text(&one["hostnqn"]),
                    text(&one["num_io_qpairs"]),
                ]);
                let mut one = one.clone();
                one["subsystem"] = subsystem["nqn"].clone();
                all.push(one);
            }
        }
        self.show(&all.into(), &table.text())
    }
}
